"""What `wallscope history` says of many commits."""

import csv
import io
import json
import re
import time

import numpy as np
import pytest

from tests.store.test_store import BED
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

    assert "No change among 30 commits" in called("history", "step", "--store", same).out
    assert (
        "5 recorded: changes are looked for from 6 commits on."
        in called("history", "step", "--store", few).out
    )


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


@pytest.mark.parametrize(
    ("options", "said"),
    [(("--format", "xml"), "xml"), (("--format", "json", "--csv", "-"), "leave out --csv and --json")],
)
def test_bad_formats_are_refused(slower, called, options, said):
    ran = called("history", "step", "--store", slower, *options)

    assert (ran.code, ran.out) == (2, "")
    assert said in ran.err
