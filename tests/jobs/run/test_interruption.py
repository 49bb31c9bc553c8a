"""A job whose workers and whose command are killed, and that is begun again, ends in the same bytes."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests.jobs.simulated import RANKS, write_job
from wallscope.cache_folder import ASIDE, EntryKind

MOST_S, MANY_RANKS = 240, 16


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


def begin(folder, cache, result):
    return subprocess.Popen(
        [sys.executable, "-m", "wallscope", "analyze", folder, "--jobs", "2", "--json", result],
        env=os.environ | {"WALLSCOPE_CACHE_DIR": str(cache)},
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    )


def list_kept(cache):
    """Answers in a cache; not those that are being written."""
    paths = [path for path in (cache / EntryKind.ANSWERS).glob("*") if not path.name.startswith(ASIDE)]
    return {path.name: path.stat().st_ino for path in paths}


def cut_off(head):
    """Kill a command, and wait until its workers have ended."""
    workers = list_workers(head)
    head.kill()
    head.wait()
    await_any(lambda: all(not Path(f"/proc/{pid}").exists() for pid in workers))


def kill_every(head, seconds, until):
    """Kill a worker of a command in turn until it ends or something is true; return how many were killed."""
    killed, due_s = 0, time.monotonic() + seconds
    while head.poll() is None and not until():
        if time.monotonic() >= due_s and (workers := list_workers(head)):
            os.kill(workers[killed % len(workers)], signal.SIGKILL)
            killed, due_s = killed + 1, time.monotonic() + seconds
        time.sleep(0.005)
    return killed


@pytest.mark.slow
@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
def test_killed_workers_and_a_killed_command_leave_the_same_bytes(job_folder, tmp_path):
    cache, whole, result = tmp_path / "interrupted", tmp_path / "whole.json", tmp_path / "resumed.json"
    assert begin(job_folder, tmp_path / "whole", whole).wait(MOST_S) == 0

    head = begin(job_folder, cache, result)
    try:
        os.kill(await_any(lambda: list_workers(head), head)[0], signal.SIGKILL)
        kept = await_any(lambda: list_kept(cache), head)
    finally:
        cut_off(head)
    assert not result.exists()

    head = begin(job_folder, cache, result)
    os.kill(await_any(lambda: list_workers(head), head)[-1], signal.SIGKILL)

    assert head.wait(MOST_S) == 0
    assert 0 < len(kept) < RANKS
    assert kept.items() <= list_kept(cache).items()
    assert result.read_bytes() == whole.read_bytes()


@pytest.mark.slow
@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
def test_workers_killed_again_and_again_and_a_killed_command_leave_the_same_bytes(tmp_path):
    folder = write_job(tmp_path / "job", MANY_RANKS)
    cache, whole, result = tmp_path / "interrupted", tmp_path / "whole.json", tmp_path / "resumed.json"
    begun_s = time.monotonic()
    assert begin(folder, tmp_path / "whole", whole).wait(MOST_S) == 0
    every_s = min(10, (time.monotonic() - begun_s) / 3)  # a fast machine is through before ten seconds

    head = begin(folder, cache, result)
    try:
        killed = kill_every(head, every_s, lambda: len(list_kept(cache)) >= MANY_RANKS // 2)
        kept = list_kept(cache)
    finally:
        cut_off(head)
    assert not result.exists()

    head = begin(folder, cache, result)
    killed += kill_every(head, every_s, lambda: False)

    assert head.returncode == 0
    assert killed > 0
    assert 0 < len(kept) < MANY_RANKS
    assert kept.items() <= list_kept(cache).items()
    assert result.read_bytes() == whole.read_bytes()
