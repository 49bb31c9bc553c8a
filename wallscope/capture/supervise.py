"""Runs a program under nsys as if nsys were not there: streams, signals and exit code are the program's own.

nsys writes to the streams that it is given, dies of signals, and does not always return the code of the
program. So its own output goes to a log, and it runs this file, which starts the program with the true
streams, and writes its process id and its code. It also runs by itself: standard library alone.

Call as: supervise.py outer PREFIX LOG NSYS-COMMAND... -- PROGRAM...
or as: supervise.py inner PREFIX DOOR PROGRAM...
"""

import contextlib
import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Sequence
from pathlib import Path

FORWARDED = (signal.SIGTERM, signal.SIGHUP, signal.SIGUSR1, signal.SIGUSR2)
_OF_THE_TERMINAL = (signal.SIGINT, signal.SIGQUIT)
"""A terminal sends these to its whole process group."""
_POLL_S = 0.02
_GRACE_S = 2.0


class Supervised:
    """A program that was started, directly or under nsys."""

    def __init__(
        self, process: "subprocess.Popen[bytes]", prefix: str | None = None, door: str | None = None
    ) -> None:
        self.process = process
        self._prefix, self._door = prefix, door
        self._gone_s: float | None = None

    @property
    def pid(self) -> int | None:
        """The process id of the program; `None` before nsys has started it."""
        return self.process.pid if self._prefix is None else _read_number(f"{self._prefix}.pid")

    def poll(self) -> int | None:
        """Return the exit code of the program, negative for a signal; `None` while it runs.

        nsys may end before the program does. A program that ended without a code has the code of nsys.
        """
        code = self.process.poll()
        if self._prefix is None or self._door is None:
            return code
        if code is not None:
            shutil.rmtree(self._door, ignore_errors=True)  # also if nsys started nothing
        own = _read_number(f"{self._prefix}.code")
        if own is not None or code is None:
            return own
        pid = self.pid
        if pid is not None and _is_alive(pid):
            return None
        self._gone_s = self._gone_s or time.monotonic()  # its code may be written this moment
        return code if time.monotonic() - self._gone_s > _GRACE_S else None

    def interrupt(self, number: int) -> None:
        """Send what a terminal sent us to the program, unless the terminal has done so itself.

        Under nsys, the program is in another process group than the one that the terminal sends to.
        """
        pid = self.pid
        with contextlib.suppress(ProcessLookupError):
            group = None if pid is None else os.getpgid(pid)
            if group is not None and group != os.getpgrp():
                os.killpg(group, number)

    def send(self, number: int) -> None:
        """Send a signal to the program, not to nsys."""
        pid = self.pid
        with contextlib.suppress(ProcessLookupError):
            os.kill(self.process.pid if pid is None else pid, number)


def start_program(
    program: Sequence[str],
    environment: dict[str, str],
    nsys: Sequence[str] = (),
    prefix: str = "",
    log: Path | None = None,
) -> Supervised:
    """Start a program, under a command of nsys if one is given.

    Args:
        program: the command of the user.
        environment: of the program.
        nsys: `nsys profile` with its options.
        prefix: of the files for the process id and the exit code.
        log: what takes the output of nsys. nsys never holds the streams of the program: its agent may stay
            behind, and who reads the output of the program would wait for it.

    Raises:
        OSError: the program cannot be started.
    """
    if log is None:
        return Supervised(subprocess.Popen(program, env=environment, close_fds=False), None)  # noqa: S603  # the user's
    door = tempfile.mkdtemp(prefix="wallscope-", dir="/tmp")  # a socket's path is short; its own folder
    listener = socket.socket(socket.AF_UNIX)
    listener.bind(f"{door}/streams")
    listener.listen(1)
    inner = [sys.executable, "-I", __file__, "inner", prefix, door, *program]
    with log.open("ab") as stream:
        process = subprocess.Popen(  # noqa: S603  # the user's
            [*nsys, *inner],
            env=environment,
            stdin=subprocess.DEVNULL,
            stdout=stream,
            stderr=stream,
            process_group=0,  # Ctrl-C would end it before the program
        )
    threading.Thread(target=_hand_over_streams, args=(listener,), daemon=True).start()
    return Supervised(process, prefix, door)


def _hand_over_streams(listener: socket.socket) -> None:
    """Send the standard streams to the process that starts the program."""
    with listener:
        connection, _ = listener.accept()
        with connection:
            socket.send_fds(connection, [b"streams"], [0, 1, 2])


def _fetch_streams(door: str) -> list[int]:
    with socket.socket(socket.AF_UNIX) as connection:
        connection.connect(f"{door}/streams")
        _, streams, *_ = socket.recv_fds(connection, 16, 3)
    return streams


def forward_signals(started: Supervised) -> None:
    """Send what this process is sent to the program, Ctrl-C where the program does not get it anyway."""
    for number in FORWARDED:
        signal.signal(number, lambda received, _: started.send(received))
    for number in _OF_THE_TERMINAL:
        signal.signal(number, lambda received, _: started.interrupt(received))


def end_as(code: int) -> int:
    """Return the exit code of the program; end by the same signal if one ended it."""
    if code < 0:
        signal.signal(-code, signal.SIG_DFL)
        os.kill(os.getpid(), -code)
        time.sleep(1)  # a signal that does not end a process
        return 128 - code
    return code


def _run_inner(prefix: str, door: str, program: list[str]) -> int:
    """Start the program with the true streams, and write its process id and its exit code."""
    own, out, err = _fetch_streams(door)
    try:
        child = subprocess.Popen(program, stdin=own, stdout=out, stderr=err)  # noqa: S603  # the user's
    except OSError:
        _write_number(f"{prefix}.code", 127)
        return 127
    for stream in (own, out, err):
        os.close(stream)
    for number in (*FORWARDED, *_OF_THE_TERMINAL):
        signal.signal(number, signal.SIG_IGN)
    _write_number(f"{prefix}.pid", child.pid)
    code = child.wait()
    _write_number(f"{prefix}.code", code)
    return code if code >= 0 else 128 - code


def _run_outer(prefix: str, log: str, words: list[str]) -> int:
    """Run one rank under nsys, in the place of its process."""
    place = words.index("--")
    started = start_program(words[place + 1 :], dict(os.environ), words[:place], prefix, Path(log))
    forward_signals(started)
    while (code := started.poll()) is None:
        time.sleep(_POLL_S)
    with contextlib.suppress(subprocess.TimeoutExpired):
        started.process.wait(60)  # it completes the report
    return end_as(code)


def _write_number(path: str, number: int) -> None:
    Path(f"{path}.part").write_text(str(number), encoding="ascii")
    Path(f"{path}.part").replace(path)


def _read_number(path: str) -> int | None:
    try:
        return int(Path(path).read_text(encoding="ascii"))
    except (OSError, ValueError):
        return None


def _is_alive(pid: int) -> bool:
    """Return whether a process runs; one that ended, and that its new parent has not noticed, does not."""
    try:
        status = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8", errors="replace")
    except OSError:
        return False
    return status.rpartition(")")[2].split()[:1] != ["Z"]


if __name__ == "__main__":
    _role, _prefix, *_rest = sys.argv[1:]
    if _role == "inner":
        sys.exit(_run_inner(_prefix, _rest[0], _rest[1:]))
    sys.exit(_run_outer(_prefix, _rest[0], _rest[1:]))
