"""`history --to`: rows of a history through the clients of W&B and MLflow, on this machine alone."""

import contextlib
import importlib.util
import json
import os
import signal
import socket
import subprocess
import sys
import time
import urllib.request

import pytest

from tests.cli.test_history import commit_of, record_commits, times

COUNT = 8
SERVER = os.environ.get("WALLSCOPE_MLFLOW", "")
"""The program `mlflow` of a whole MLflow; the client that is tested has no server."""
NAME = "wallscope_time_seconds/host"

needs_wandb = pytest.mark.skipif(
    importlib.util.find_spec("wandb") is None, reason="wandb is not installed: make test-trackers"
)
needs_mlflow = pytest.mark.skipif(
    importlib.util.find_spec("mlflow") is None, reason="mlflow is not installed: make test-trackers"
)


@pytest.fixture
def store(tmp_path):
    return record_commits(tmp_path / "store", times(COUNT))


@pytest.fixture
def rows(store, called):
    return json.loads(called("history", "host", "--store", store, "--format", "json").out)


def run_python(folder, *arguments, **environment):
    """Run Python in a folder, without the settings that clients find in the environment or at home."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("WANDB", "MLFLOW"))}
    home = {"HOME": str(folder), "XDG_CONFIG_HOME": str(folder)}
    return subprocess.run(
        [sys.executable, *map(str, arguments)],
        cwd=folder,
        env={**kept, **home, **environment},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        check=False,
        timeout=100,
    )


def send(folder, store, tracker, *arguments, **environment):
    command = ("-m", "wallscope", "history", "host", "--store", store, "--to", tracker, *arguments)
    return run_python(folder, *command, **environment)


READ_WANDB = """
import json, struct, sys
from pathlib import Path
from wandb.proto import wandb_internal_pb2 as proto
data, at, whole, found = Path(sys.argv[1]).read_bytes(), 7, b"", []  # after the header: blocks as of LevelDB
while at + 7 <= len(data):
    if (left := 32768 - at % 32768) < 7:
        at += left
        continue
    size, kind = struct.unpack_from("<HB", data, at + 4)
    whole += data[at + 7 : at + 7 + size]
    at += 7 + size
    if kind in {1, 4}:  # whole, or its last part
        record, whole = proto.Record.FromString(whole), b""
        if record.WhichOneof("record_type") == "history":
            items = [(item.nested_key[0], item.value_json) for item in record.history.item]
            found.append({name: json.loads(text) for name, text in items})
        elif record.WhichOneof("record_type") == "run":
            run = record.run
            print(json.dumps([run.project, run.display_name, run.host, run.git.commit]))
        elif record.WhichOneof("record_type") == "files":
            print(json.dumps([file.path for file in record.files.files]), file=sys.stderr)
print(json.dumps(found))
"""


@needs_wandb
def test_an_offline_run_of_wandb_has_the_rows_and_nothing_of_the_machine(store, rows, tmp_path):
    ran = send(tmp_path, store, "wandb", "--project", "steps", WANDB_MODE="offline")

    assert (ran.returncode, ran.stderr) == (0, "")
    assert ran.stdout.count("\n") == 1
    assert f"{COUNT} rows sent" in ran.stdout
    (file,) = tmp_path.glob("wandb/offline-run-*/*.wandb")
    read = run_python(tmp_path, "-c", READ_WANDB, file)
    assert read.stderr == ""  # no file goes with the run
    run, found = map(json.loads, read.stdout.splitlines())
    assert run == ["steps", f"host · {rows[0]['testbed']}", "", ""]
    assert [one["commit"] for one in found] == [commit_of(number) for number in range(COUNT)]
    assert [one[NAME] for one in found] == pytest.approx([row["median_ns"] / 1e9 for row in rows])
    assert [one["recorded_utc_s"] for one in found] == pytest.approx(
        [row["recorded_utc_ns"] / 1e9 for row in rows]
    )


READ_MLFLOW = """
import json
from mlflow import MlflowClient
client = MlflowClient()
runs = client.search_runs([client.get_experiment_by_name("wallscope").experiment_id], max_results=100)
print(json.dumps([[one.info.start_time, one.data.tags, one.data.metrics] for one in runs]))
"""


@needs_mlflow
def test_mlflow_has_a_run_for_each_commit_however_often_it_is_sent(store, rows, tmp_path):
    place = {
        "MLFLOW_TRACKING_URI": (tmp_path / "runs").as_uri(),
        "MLFLOW_ALLOW_FILE_STORE": "true",
        "MLFLOW_DISABLE_TELEMETRY": "true",
    }
    for _ in range(2):
        ran = send(tmp_path, store, "mlflow", **place)
        assert (ran.returncode, ran.stdout.count("\n")) == (0, 1), ran.stderr
        assert f"{COUNT} rows sent" in ran.stdout
    found = sorted(json.loads(run_python(tmp_path, "-c", READ_MLFLOW, **place).stdout))

    assert [start_ms for start_ms, _, _ in found] == [row["recorded_utc_ns"] // 10**6 for row in rows]
    assert [tags["mlflow.source.git.commit"] for _, tags, _ in found] == [row["commit"] for row in rows]
    assert {tags["wallscope.testbed"] for _, tags, _ in found} == {rows[0]["testbed"]}
    assert [own[NAME] for _, _, own in found] == pytest.approx([row["median_ns"] / 1e9 for row in rows])


@pytest.fixture
def server(tmp_path):
    """The address of a server of MLflow on this machine; the client alone cannot be one."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    (tmp_path / "server").mkdir()
    words = [SERVER, "server", "--host", "127.0.0.1", "--port", str(port), "--workers", "1"]
    with (tmp_path / "server.log").open("wb") as log:
        started = subprocess.Popen(
            words, cwd=tmp_path / "server", env={**os.environ, "MLFLOW_DISABLE_TELEMETRY": "true"},
            stdin=subprocess.DEVNULL, stdout=log, stderr=log, start_new_session=True,
        )  # fmt: skip
        address = f"http://127.0.0.1:{port}"
        try:
            for _ in range(240):
                with contextlib.suppress(OSError), urllib.request.urlopen(f"{address}/health") as answer:
                    assert answer.status == 200
                    break
                assert started.poll() is None
                time.sleep(0.5)
            yield address
        finally:
            os.killpg(started.pid, signal.SIGTERM)
            started.wait()


@needs_mlflow
@pytest.mark.skipif(not SERVER, reason="WALLSCOPE_MLFLOW names no mlflow with its server")
def test_a_server_of_mlflow_has_the_rows_once_they_are_sent(store, rows, tmp_path, server, called):
    place = {"MLFLOW_TRACKING_URI": server, "MLFLOW_DISABLE_TELEMETRY": "true"}
    count = (
        "from mlflow import MlflowClient; print([one.name for one in MlflowClient().search_experiments()])"
    )

    called("history", "host", "--store", store, "--format", "json")
    assert run_python(tmp_path, "-c", count, **place).stdout == "['Default']\n"  # nothing but by the user
    for _ in range(2):
        ran = send(tmp_path, store, "mlflow", **place)
        assert (ran.returncode, ran.stdout.count("\n")) == (0, 1), ran.stderr
    found = sorted(json.loads(run_python(tmp_path, "-c", READ_MLFLOW, **place).stdout))

    assert [tags["mlflow.source.git.commit"] for _, tags, _ in found] == [row["commit"] for row in rows]
    assert [own[NAME] for _, _, own in found] == pytest.approx([row["median_ns"] / 1e9 for row in rows])


@needs_wandb
def test_wandb_without_a_key_is_one_line(store, tmp_path):
    ran = send(tmp_path, store, "wandb", WANDB_BASE_URL="http://127.0.0.1:9")

    assert (ran.returncode, ran.stdout) == (2, "")
    assert ran.stderr.startswith("wallscope: --to wandb — ")
    assert ran.stderr.count("\n") == 1


@needs_mlflow
def test_mlflow_needs_a_server_that_answers(store, tmp_path):
    for place, said in (
        ({}, "set MLFLOW_TRACKING_URI"),
        ({"MLFLOW_TRACKING_URI": "http://127.0.0.1:9"}, "check MLFLOW_TRACKING_URI"),
    ):
        ran = send(tmp_path, store, "mlflow", MLFLOW_HTTP_REQUEST_MAX_RETRIES="0", **place)
        assert (ran.returncode, ran.stdout) == (2, "")
        assert said in ran.stderr
        assert ran.stderr.count("\n") == 1


@pytest.mark.parametrize(("tracker", "package"), [("wandb", "wandb"), ("mlflow", "mlflow-skinny")])
def test_an_absent_client_is_one_line_with_the_command(tracker, package, store, called, monkeypatch):
    for name in ("wandb", "mlflow"):
        monkeypatch.setitem(sys.modules, name, None)
    ran = called("history", "step", "--store", store, "--to", tracker)

    assert (ran.code, ran.out, ran.err.count("\n")) == (2, "", 1)
    assert f"--to {tracker} — needs the package `{package}`" in ran.err
    assert "install" in ran.err.rpartition(" — ")[2]


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (("--project", "x"), "add --to"),
        (("--to", "wandb", "--format", "json"), "leave out --format"),
        (("--to", "wandb", "--json", "-"), "leave out --format"),
        (("--to", "mlflow", "--brief"), "leave out --format"),
        (("--to", "other"), "wandb"),
    ],
)
def test_bad_usage_is_one_line(options, said, store, called):
    ran = called("history", "step", "--store", store, *options)

    assert (ran.code, ran.out, ran.err.count("\n")) == (2, "", 1)
    assert said in ran.err
