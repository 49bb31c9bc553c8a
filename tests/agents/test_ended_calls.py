"""What a call leaves: no process and no file when it is canceled, nothing in the cache without a cache."""

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

pytest.importorskip("mcp", reason="the SDK of the protocol is absent: pip install 'wallscope[mcp]'")

import anyio
from mcp import Client

from tests.agents.conftest import EXAMPLE, run_apart
from tests.conftest import ROOT, slow
from wallscope.agents.server import build_server
from wallscope.agents.worker import open_roots

REPORT = b"NVIDIA Tegra Profiler Report 2026@2@1\n" + bytes(5_000)
SLOW = "Path({pid!r}).write_text(str(os.getpid()))\nmade.write_bytes(b'half')\ntime.sleep(120)"
STUBBORN = "import signal\nsignal.signal(signal.SIGTERM, signal.SIG_IGN)\n" + SLOW
FORKED = """import subprocess
child = subprocess.Popen(['sleep', '120'])
Path({pid!r}).write_text(str(child.pid))
time.sleep(120)"""
SERVER = """import subprocess, sys, time
command = [sys.executable, "-P", "-m", "wallscope.agents.worker"]
worker = subprocess.Popen(command, stdin=subprocess.PIPE)
worker.stdin.write(sys.argv[1].encode() + b"\\n")
worker.stdin.flush()
time.sleep(120)"""
COPIED = f"shutil.copyfile({str(EXAMPLE)!r}, made)"


def is_running(pid):
    """Whether a process runs, one that waits to be reaped aside."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] not in {"Z", "X"}
    except (FileNotFoundError, ProcessLookupError):
        return False


def wait_for(seen, seconds=20):
    """Wait until something is so."""
    until = time.monotonic() + seconds
    while not (found := seen()) and time.monotonic() < until:
        time.sleep(0.02)
    return found


@pytest.mark.skipif(sys.platform != "linux", reason="looks at processes in /proc")
@pytest.mark.parametrize(
    "does",
    [
        pytest.param(SLOW, id="slow", marks=pytest.mark.slow),
        pytest.param(STUBBORN, id="stubborn"),
        pytest.param(FORKED, id="with a child", marks=pytest.mark.slow),
    ],
)
def test_a_canceled_call_ends_the_nsys_that_it_started(folder, install_nsys, own_cache, tmp_path, does):
    pid = tmp_path / "pid"
    install_nsys(does.format(pid=str(pid)))
    (folder / "run.nsys-rep").write_bytes(REPORT)

    async def run():
        async with Client(build_server(open_roots([folder]))) as client:
            with anyio.CancelScope() as scope:
                async with anyio.create_task_group() as tasks:
                    tasks.start_soon(client.call_tool, "analyze", {"files": ["run.nsys-rep"]})
                    await anyio.to_thread.run_sync(wait_for, lambda: pid.exists() and pid.read_text())
                    scope.cancel()
            return await client.call_tool("explain", {"word": "ep-overlap"})

    assert not run_apart(run).is_error
    assert wait_for(lambda: not is_running(int(pid.read_text())))
    if does is not STUBBORN:
        assert not list((own_cache / "exports").iterdir())


@pytest.mark.skipif(sys.platform != "linux", reason="looks at processes in /proc")
def test_a_worker_ends_with_a_server_that_is_killed(folder, install_nsys, own_cache, tmp_path):
    pid = tmp_path / "pid"
    install_nsys(SLOW.format(pid=str(pid)))
    (folder / "run.nsys-rep").write_bytes(REPORT)
    call = {
        "tool": "analyze",
        "arguments": {"files": ["run.nsys-rep"], "max_rows": 3},
        "paths": {"run.nsys-rep": str(folder / "run.nsys-rep")},
        "roots": [str(folder)],
        "has_cache": True,
    }
    server = subprocess.Popen(
        [sys.executable, "-c", SERVER, json.dumps(call)], env={**os.environ, "PYTHONPATH": str(ROOT)}
    )
    try:
        assert wait_for(lambda: pid.exists() and pid.read_text())
    finally:
        server.send_signal(signal.SIGKILL)
        server.wait()
    assert wait_for(lambda: not is_running(int(pid.read_text())))
    assert wait_for(lambda: not list((own_cache / "exports").iterdir()))


@pytest.mark.parametrize("has_cache", [False, *slow(True)])
def test_only_a_server_with_a_cache_writes_to_it(folder, install_nsys, own_cache, monkeypatch, has_cache):
    scratch = folder.parent / "scratch"
    scratch.mkdir()
    monkeypatch.setenv("TMPDIR", str(scratch))
    install_nsys(COPIED)
    (folder / "run.nsys-rep").write_bytes(REPORT)

    async def run():
        async with Client(build_server(open_roots([folder]), has_cache=has_cache)) as client:
            return await client.call_tool("analyze", {"files": ["run.nsys-rep"]})

    answer = run_apart(run)

    assert not answer.is_error, answer.content[0].text
    assert own_cache.exists() == has_cache
    assert not list(scratch.iterdir())
