"""A command that is asked to end does so at once, whatever its workers are about to send."""

import contextlib
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

WITHIN_S = 5
PROGRAM = """
import sys
from pathlib import Path

from tests.jobs.sending import {one}
from wallscope.cli.streams import end_on_signals
from wallscope.jobs.run import analyze_in_processes
from wallscope.model.capture import Options

if __name__ == "__main__":
    end_on_signals()
    paths = [Path(sys.argv[1], name) for name in "abcd"]
    for place, outcome in analyze_in_processes(paths, Options(), 2, lambda _: None, {one}):
        print(place, outcome, flush=True)
"""


def await_file(path):
    until_s = time.monotonic() + 60
    while not path.exists():
        assert time.monotonic() < until_s, f"{path.name} was never there"
        time.sleep(0.01)


def is_alive(pid):
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return Path(f"/proc/{pid}/stat").read_text(encoding="ascii").rpartition(")")[2].split()[0] != "Z"


@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT], ids=lambda number: number.name)
@pytest.mark.parametrize("one", ["works_on", "stops_before_sending", "stops_while_sending", "sends_forever"])
@pytest.mark.parametrize("to_group", [False, True], ids=["head", "group"])
def test_all_processes_end_within_seconds(tmp_path, one, number, to_group):
    head = subprocess.Popen(
        [sys.executable, "-c", PROGRAM.format(one=one), str(tmp_path)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        start_new_session=True,
    )
    try:
        await_file(tmp_path / "a.pid")
        await_file(tmp_path / "b.pid")
        time.sleep(0.2)
        begin_s = time.monotonic()
        (os.killpg if to_group else os.kill)(head.pid, number)
        head.communicate(timeout=WITHIN_S)
        assert time.monotonic() - begin_s < WITHIN_S
        assert head.returncode != 0
        workers = [int((tmp_path / f"{name}.pid").read_text()) for name in "ab"]
        assert [pid for pid in workers if is_alive(pid)] == []
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(head.pid, signal.SIGKILL)
        head.wait()


CALLED_BACK = """
import os, signal, weakref
from wallscope.jobs.run import _leave

class Held:
    pass

signal.signal(signal.SIGTERM, _leave)
held = Held()
reference = weakref.ref(held, lambda _: os.kill(os.getpid(), signal.SIGTERM))
del held
print("goes on", flush=True)
"""


def test_a_worker_that_is_asked_where_nothing_can_be_raised_prints_nothing():
    ran = subprocess.run([sys.executable, "-c", CALLED_BACK], capture_output=True, text=True, check=False)

    assert (ran.stdout, ran.stderr) == ("goes on\n", "")
