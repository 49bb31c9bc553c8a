"""What `wallscope history` says of many commits."""

import csv
import io
import json
import re
import threading
import time
import urllib.request
from dataclasses import replace
from http.server import BaseHTTPRequestHandler, HTTPServer

import numpy as np
import pytest

from tests.store.test_records import BED
from wallscope.files import read_report
from wallscope.model.profile import RECORD_SCHEMA, Record, RecordedRank
from wallscope.store import Store

DAY_NS = 86_400 * 10**9


def record_commits(folder, times_ns, until_ns=None):
    """One run of each commit, a day apart, of which a fifth is the host's."""
    store, until_ns = Store(folder), until_ns or time.time_ns()
    for number, time_ns in enumerate(times_ns):
        host_ns = int(time_ns / 5)
        causes = {"compute/gemm": int(time_ns) - host_ns, "host/framework": host_ns}
        rank = RecordedRank(0, 0, "0" * 64, int(time_ns), 20, causes)
        at_ns = until_ns - (len(times_ns) - 1 - number) * DAY_NS
        store.add(Record(RECORD_SCHEMA, commit_of(number), BED, at_ns, (rank,), 0), {})
    return str(folder)


def commit_of(number):
    return f"{number:04x}" * 10


def times(count=30, seed=3, noise=0.01):
    return 1e8 * (1 + noise * np.random.default_rng(seed).standard_normal(count))


@pytest.fixture
def slower(tmp_path):
    return record_commits(tmp_path / "store", times() * np.where(np.arange(30) >= 17, 1.05, 1))


@pytest.mark.parametrize("metric", ["step", "compute", "host/framework"])
def test_a_change_is_told_with_the_commits_that_hold_its_cause(slower, called, metric):
    said = " ".join(called("history", metric, "--store", slower).out.split())

    assert re.search(rf"{metric} rose by [45]\.\d % \(.*\) at {commit_of(17)[:12]}", said)
    after, until = re.search(r"cause is in ([0-9a-f]{12})\.\.([0-9a-f]{12})", said).groups()
    assert after < commit_of(17)[:12] <= until


def test_slow_drift_is_told(tmp_path, called):
    store = record_commits(tmp_path / "store", times() * 1.003 ** np.arange(30))
    said = " ".join(called("history", "step", "--store", store).out.split())

    assert re.search(r"step drifts by \+0\.[234]\d* % per commit, \+\d+\.\d % over 30 commits", said)


def test_nothing_is_told_of_noise_and_of_few_commits(tmp_path, called):
    same = record_commits(tmp_path / "same", times())
    few = record_commits(tmp_path / "few", times(5))

    said = " ".join(called("history", "step", "--store", same).out.split())
    assert re.search(
        r"No change among 30 commits\. Smallest .* detected: 1\.\d % halfway, \d+\.\d % at the newest", said
    )
    assert (
        "It takes 6 recorded commits to be sure of a change, and there are 5."
        in called("history", "step", "--store", few).out
    )


FIVE_AND_THREE = np.array([51.1e6] * 5 + [58.8e6] * 3) * (1 + 0.004 * times(8, seed=1, noise=1) / 1e8 - 0.004)


def test_a_jump_with_few_later_commits_is_named_with_what_would_settle_it(tmp_path, called):
    store = record_commits(tmp_path / "few", FIVE_AND_THREE)
    said = " ".join(called("history", "step", "--store", store).out.split())
    before, at = commit_of(4)[:12], commit_of(5)[:12]

    assert re.search(rf"Likely: step rose by 1[45]\.\d % \(7\.\d ms\) at {at}, but there are too few", said)
    assert f"To be sure, record 3 more commits at the new time, or more runs of {before} and {at}." in said
    assert "No change" not in said


def test_what_is_said_to_settle_a_jump_settles_it(tmp_path, called):
    later = record_commits(tmp_path / "later", np.append(FIVE_AND_THREE, [58.7e6, 58.9e6, 58.8e6]))
    said = " ".join(called("history", "step", "--store", later).out.split())

    assert re.search(rf"step rose by 1[45]\.\d % \(7\.\d ms\) at {commit_of(5)[:12]}\. The cause is in", said)
    assert "Likely" not in said


def test_history_and_bisect_name_the_same_commit_of_a_jump(tmp_path, called):
    store = record_commits(tmp_path / "same", FIVE_AND_THREE)
    ends = f"{commit_of(0)[:12]}..{commit_of(7)[:12]}"
    (row,) = [
        row
        for row in json.loads(called("history", "step", "--store", store, "--format", "json").out)
        if row["changed_ns"]
    ]
    found = called("bisect", ends, "step", "--store", store).out

    assert (row["commit"], row["changed_grade"], row["settled_by"]) == (commit_of(5), "likely", 3)
    assert f"First commit with the change: {commit_of(5)[:12]}" in found


def test_a_jump_at_the_newest_commit_alone_is_only_possible(tmp_path, called):
    store = record_commits(tmp_path / "last", times(20) * np.where(np.arange(20) == 19, 1.08, 1))
    said = " ".join(called("history", "step", "--store", store).out.split())

    assert f"at {commit_of(19)[:12]}, but there are too few later commits" in said
    assert "Possible, but perhaps chance: step rose by" in said


def test_an_old_record_is_told(tmp_path, called):
    old = record_commits(tmp_path / "old", times(8), time.time_ns() - 40 * DAY_NS)
    new = record_commits(tmp_path / "new", times(8))

    assert "The newest record is 40 days old" in called("history", "step", "--store", old).out
    assert "days old" not in called("history", "step", "--store", new).out


def test_rows_are_printed_in_three_formats(slower, called):
    rows, table, metrics = (
        called("history", "step", "--store", slower, "--format", form).out
        for form in ("json", "csv", "openmetrics")
    )
    listed = json.loads(rows)
    (changed,) = [row for row in listed if row["changed_ns"]]
    assert changed["commit"] == commit_of(17)
    assert changed["changed_after"] < commit_of(17) <= changed["changed_until"]
    assert [row["commit"] for row in csv.DictReader(io.StringIO(table))] == [row["commit"] for row in listed]
    lines = metrics.splitlines()
    assert lines[-1] == "# EOF"
    assert sum(line.startswith("wallscope_time_seconds{") for line in lines) == 30
    assert sum(line.startswith("wallscope_change_ratio{") for line in lines) == 1
    pattern = r'wallscope_\w+\{metric="step",testbed="[^"]*",commit="[0-9a-f]+"\} \S+ \d+\.\d{3}'
    assert all(re.fullmatch(pattern, line) for line in lines if not line.startswith("#"))


@pytest.mark.parametrize("form", ["openmetrics", "csv", "json"])
def test_no_format_writes_what_a_terminal_obeys(form, tmp_path, called):
    store = Store(tmp_path / "store")
    rank = RecordedRank(0, 0, "0" * 64, 10**8, 20, {"compute/gemm": 10**8})
    bed = replace(BED, labels={"evil": '\x1b[31mred\r\u202e"q"\\\n# EOF'})
    store.add(Record(RECORD_SCHEMA, commit_of(1), bed, time.time_ns(), (rank,), 0), {})
    found = called("history", "step", "--store", tmp_path / "store", "--format", form)

    assert found.code == 0
    assert not re.search("[\x1b\r\u202e]", found.out)
    assert found.out.splitlines().count("# EOF") == (form == "openmetrics")


@pytest.mark.parametrize(
    ("options", "said"),
    [(("--format", "xml"), "xml"), (("--format", "json", "--csv", "-"), "leave out --csv and --json")],
)
def test_bad_formats_are_refused(slower, called, options, said):
    ran = called("history", "step", "--store", slower, *options)

    assert (ran.code, ran.out) == (2, "")
    assert said in ran.err


@pytest.fixture
def collector():
    """A collector of OpenTelemetry metrics on the loopback, and what it was sent."""
    received = []

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self):
            body = self.rfile.read(int(self.headers["Content-Length"]))
            received.append((self.path, self.headers["Content-Type"], json.loads(body)))
            self.send_response(200)
            self.end_headers()
            self.wfile.write(b"{}")

        def log_message(self, *_):
            pass

    server = HTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    yield f"http://127.0.0.1:{server.server_port}/v1/metrics", received
    server.shutdown()
    thread.join()
    server.server_close()


def test_a_collector_gets_the_times_that_the_rows_have(tmp_path, called, collector):
    store = record_commits(tmp_path / "store", times(8))
    url, received = collector
    printed = called("history", "step", "--store", store, "--format", "otlp").out
    assert received == []  # nothing is sent but by the user
    request = urllib.request.Request(url, printed.encode(), {"Content-Type": "application/json"})
    urllib.request.urlopen(request).close()
    ((path, kind, sent),) = received
    rows = json.loads(called("history", "step", "--store", store, "--format", "json").out)
    (scope,) = sent["resourceMetrics"][0]["scopeMetrics"]
    (times_s,) = [one for one in scope["metrics"] if one["name"] == "wallscope.time"]

    assert (path, kind, times_s["unit"]) == ("/v1/metrics", "application/json", "s")
    assert [
        (point["timeUnixNano"], point["asDouble"], {one["key"]: one["value"] for one in point["attributes"]})
        for point in times_s["gauge"]["dataPoints"]
    ] == [
        (
            str(row["recorded_utc_ns"]),
            pytest.approx(row["median_ns"] / 1e9),
            {
                "metric": {"stringValue": "step"},
                "testbed": {"stringValue": row["testbed"]},
                "commit": {"stringValue": row["commit"]},
            },
        )
        for row in rows
    ]


def test_the_dashboard_shows_the_metrics_that_are_written(tmp_path, called):
    store = record_commits(tmp_path / "store", times(8))
    text = called("history", "step", "--store", store, "--format", "openmetrics").out
    written = set(re.findall(r"^# TYPE (\w+) gauge$", text, re.MULTILINE))
    board = json.loads(read_report("grafana-dashboard.json"))
    asked = [target["expr"] for panel in board["panels"] for target in panel["targets"]]
    variables = {one["name"] for one in board["templating"]["list"]}

    assert {expression.partition("{")[0] for expression in asked} == written
    assert len({panel["id"] for panel in board["panels"]}) == len(board["panels"])
    assert set(re.findall(r"\$\{?(\w+)", json.dumps(board))) <= variables
