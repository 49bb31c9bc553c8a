"""Standard streams: one way out for what is printed, and progress on standard error.

What is written fails no command, repeats no credential, and gives no runner orders. Runners of CI jobs obey
lines of what a job prints: `::error::` where a line begins and `##[error]` anywhere
(GitHub, https://github.com/actions/runner, ActionCommand.cs), `##vso[` (Azure), `##teamcity[`,
`section_start:` (GitLab), `travis_fold:`. Names in an export must not be such orders. Progress of long work
is shown on a terminal alone, after a second.
"""

import io
import os
import re
import select
import signal
import stat
import sys
import time
from collections.abc import Callable
from contextlib import contextmanager
from typing import TYPE_CHECKING, NoReturn

from wallscope.urls import redact

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from _typeshed import ReadableBuffer

    from wallscope.model.capture import Progress

_RUNNERS = ("CI", "GITHUB_ACTIONS", "TF_BUILD", "TEAMCITY_VERSION", "GITLAB_CI", "TRAVIS", "BUILDKITE")
_ORDER = re.compile(
    r"(?P<before>^[^\S\n]*(?:\x1b\[[0-9;]*m[^\S\n]*)*)(?:(?P<line>:)(?=:)|(?P<group>[-+~^])(?=[-+~^]{2}))"
    r"|#(?=#(?:\w{0,20}\[))"
    r"|s(?=ection_(?:start|end):)"
    r"|t(?=ravis_(?:fold|time):)",
    re.MULTILINE,
)
_NOTHING = "\u200b"  # a space without width
_PATIENCE_S = 1.0
_ERASE = "\r\x1b[2K"
_READING = "reading"
_NOT_COMPILED = (
    "wallscope: the compiled loops are missing (no C compiler or Python headers at installation):"
    " reading and analysis take several times as long\n"
)


def break_orders(text: str) -> str:
    r"""Return a text of which no runner obeys a word; JSON stays the same JSON.

    >>> break_orders("::error::x ##[error]").encode("ascii", "replace")
    b':?:error::x #?#[error]'
    >>> break_orders('{"name": "##[error]"}')
    '{"name": "\\u0023#[error]"}'
    """
    if text.startswith(("{", "[")):
        return _ORDER.sub(_as_escape, text)
    return _ORDER.sub(lambda found: f"{found[0]}{_NOTHING}", text)


def _as_escape(found: re.Match[str]) -> str:
    return found[0] if found["before"] is not None else f"\\u{ord(found[0]):04x}"


class Outlet(io.RawIOBase):
    """What is written to a handle, until that fails; what comes after goes nowhere."""

    def __init__(self, handle: int) -> None:
        super().__init__()
        self.handle = handle
        self.failure: OSError | None = None

    def fileno(self) -> int:
        """Return the handle."""
        return self.handle

    def isatty(self) -> bool:
        """Return whether a terminal shows it."""
        return os.isatty(self.handle)

    def writable(self) -> bool:
        """Return that it takes bytes."""
        return True

    def write(self, data: "ReadableBuffer") -> int:
        """Write some of the bytes; how many are done with."""
        while self.failure is None:
            try:
                return os.write(self.handle, data)
            except BlockingIOError:
                select.select([], [self.handle], [])
            except OSError as error:
                self.failure = error
        return memoryview(data).nbytes


class FilteredStream(io.TextIOWrapper):
    """A stream of text, each part made harmless before it leaves."""

    def __init__(self, outlet: Outlet, encoding: str, clean: Callable[[str], str]) -> None:
        super().__init__(
            io.BufferedWriter(outlet), encoding, errors="replace", line_buffering=outlet.isatty()
        )
        self.outlet, self.clean = outlet, clean

    def write(self, text: str) -> int:
        """Write a text.

        Raises:
            TypeError: it is bytes; typer writes some to find out whether a stream takes them.
        """
        if not isinstance(text, str):
            raise TypeError(f"a text is written, not {type(text).__name__}")
        super().write(self.clean(text))
        return len(text)


def fill_missing_streams() -> None:
    """Open nowhere what the parent closed: a file opened later would take its place, and what is printed."""
    for handle in range(3):
        try:
            os.fstat(handle)
        except OSError:
            os.open(os.devnull, os.O_RDWR)  # takes the lowest handle that is free
    if sys.stdin is None:
        sys.stdin = open(os.devnull, encoding="utf-8")  # noqa: PTH123, SIM115  # a handle open to the end


def guard_streams() -> tuple[Outlet, Outlet]:
    """Put our own streams in the place of standard output and error; what they write to."""
    fill_missing_streams()
    runner = any(os.environ.get(name) for name in _RUNNERS)
    out, err = Outlet(1), Outlet(2)
    is_data = stat.S_ISREG(os.fstat(1).st_mode)  # no runner reads it
    sys.stdout = FilteredStream(out, _encoding(sys.stdout), break_orders if runner and not is_data else str)
    sys.stderr = FilteredStream(err, _encoding(sys.stderr), _clean_error if runner else redact)
    sys.stderr.reconfigure(line_buffering=True)
    return out, err


def _encoding(stream: object) -> str:
    return str(getattr(stream, "encoding", None) or "utf-8")


def _clean_error(text: str) -> str:
    return break_orders(redact(text))


def end_on_signals() -> None:
    """Leave by way of all that cleans up when the process is asked to end; its workers end too."""
    for name in ("SIGTERM", "SIGHUP"):
        number = getattr(signal, name, None)
        if number is not None and signal.getsignal(number) == signal.SIG_DFL:
            signal.signal(number, _end_process)


def _end_process(number: int, _frame: object) -> NoReturn:
    signal.signal(number, signal.SIG_IGN)
    processes = sys.modules.get("multiprocessing.process")  # absent unless a process was started
    for worker in processes.active_children() if processes else ():
        worker.terminate()
    sys.exit(128 + number)


def is_talkative(*, verbose: bool) -> None:
    """Show what the modules log, if the user asked for it."""
    if verbose:
        import logging  # noqa: PLC0415  # keeps --help fast

        logging.basicConfig(
            stream=sys.stderr, level=logging.INFO, format="%(relativeCreated)6d ms  %(message)s"
        )


@contextmanager
def report_progress() -> "Iterator[Progress]":
    """A place to report progress to; one line that is gone when the work is done.

    Then the log shows the time of each stage, and the peak memory of the program at its end.
    Work without compiled loops is announced as slow, once.
    """
    import logging  # noqa: PLC0415  # keeps --help fast

    from wallscope import kernels  # noqa: PLC0415  # same

    log, stages = logging.getLogger(__name__), Stages()
    started_s = time.monotonic()
    on_terminal = sys.stderr.isatty()
    shown = False
    is_announced = kernels.is_compiled()

    def report(what: str) -> None:
        nonlocal shown, is_announced
        if not is_announced:
            sys.stderr.write(_NOT_COMPILED)
            is_announced = True
        log.info(what)
        stages.enter(_READING if what.startswith(f"{_READING} ") else what)
        if on_terminal and time.monotonic() - started_s > _PATIENCE_S:
            sys.stderr.write(f"{_ERASE}{what}")
            sys.stderr.flush()
            shown = True

    try:
        yield report
    finally:
        if shown:
            sys.stderr.write(_ERASE)
            sys.stderr.flush()
        if log.isEnabledFor(logging.INFO):
            for line in stages.lines():
                log.info(line)


def announce_output(target: "Path", what: str = "") -> None:
    """Say on standard error that a file or folder was written, and `what` it is if its name does not show."""
    from wallscope.render.texts import visible  # noqa: PLC0415  # keeps --help fast

    cleared = _ERASE if sys.stderr.isatty() else ""  # of progress
    sys.stderr.write(f"{cleared}Wrote {visible(str(target), most=4_000)}{f' ({what})' if what else ''}\n")


class Stages:
    """How long the stages of some work take, one behind the other."""

    def __init__(self) -> None:
        self._begun: list[tuple[str, int, int]] = []
        self._ended: list[tuple[str, int, int, int | None]] = []

    def enter(self, stage: str) -> None:
        """Begin a stage, if it is not the one that is going on, and end that one."""
        if not self._begun or self._begun[-1][0] != stage:
            self._end()
            self._begun.append((stage, time.perf_counter_ns(), time.process_time_ns()))

    def lines(self) -> list[str]:
        """Return a line for each stage; ends the last one."""
        from wallscope.units import duration, size  # noqa: PLC0415  # keeps --help fast

        self._end()
        self._begun.clear()
        return [
            f"{stage}: {duration(wall_ns)}, {duration(cpu_ns)} of CPU time"
            + ("" if peak_bytes is None else f", {size(peak_bytes)} at the peak")
            for stage, wall_ns, cpu_ns, peak_bytes in self._ended
        ]

    def _end(self) -> None:
        if self._begun:
            stage, wall_ns, cpu_ns = self._begun[-1]
            wall_ns, cpu_ns = time.perf_counter_ns() - wall_ns, time.process_time_ns() - cpu_ns
            self._ended.append((stage, wall_ns, cpu_ns, _peak_bytes()))


def _peak_bytes() -> int | None:
    """Return the peak memory of the program so far; `None` where the system does not report it."""
    try:
        from resource import RUSAGE_SELF, getrusage  # noqa: PLC0415  # Windows has none
    except ImportError:
        return None
    peak = getrusage(RUSAGE_SELF).ru_maxrss
    return peak if sys.platform == "darwin" else peak << 10
