"""A job whose workers and whose command are killed, and that is begun again, ends in the same bytes."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests.jobs.simulated import RANKS
from wallscope.cache_folder import EntryKind

MOST_S = 240


def list_workers(head):
    """The processes of a command that analyze exports: not the one that tracks what they share."""
    children = Path(f"/proc/{head.pid}/task/{head.pid}/children")
    pids = [int(pid) for pid in children.read_text(encoding="ascii").split()] if children.exists() else []
    return [
        pid
        for pid in pids
        if (line := Path(f"/proc/{pid}/cmdline")).exists() and b"spawn_main" in line.read_bytes()
    ]


def await_any(found, head=None):
    until_s = time.monotonic() + MOST_S
    while not (got := found()):
        assert head is None or head.poll() is None, "the command ended before"
        assert time.monotonic() < until_s, "nothing came"
        time.sleep(0.005)
    return got


@pytest.mark.slow
@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
def test_killed_workers_and_a_killed_command_leave_the_same_bytes(job_folder, tmp_path):
    def begin(cache, result):
        return subprocess.Popen(
            [sys.executable, "-m", "wallscope", "analyze", job_folder, "--jobs", "2", "--json", result],
            env=os.environ | {"WALLSCOPE_CACHE_DIR": str(tmp_path / cache)},
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
        )

    def list_kept():
        folder = tmp_path / "interrupted" / EntryKind.ANSWERS
        return {path.name: path.stat().st_ino for path in folder.glob("*")} if folder.exists() else {}

    whole, result = tmp_path / "whole.json", tmp_path / "resumed.json"
    assert begin("whole", whole).wait(MOST_S) == 0

    head = begin("interrupted", result)
    try:
        os.kill(await_any(lambda: list_workers(head), head)[0], signal.SIGKILL)
        kept = await_any(list_kept, head)
        workers = list_workers(head)
    finally:
        head.kill()
        head.wait()
    assert not result.exists()
    await_any(lambda: all(not Path(f"/proc/{pid}").exists() for pid in workers))

    killed, head = 0, begin("interrupted", result)
    while head.poll() is None:
        if not killed and (workers := list_workers(head)):
            os.kill(workers[-1], signal.SIGKILL)
            killed += 1
        time.sleep(0.005)

    assert (head.returncode, killed) == (0, 1)
    assert 0 < len(kept) < RANKS
    assert kept.items() <= list_kept().items()
    assert result.read_bytes() == whole.read_bytes()
