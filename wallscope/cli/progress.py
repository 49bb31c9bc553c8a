"""Talk on standard error: progress of long work, on a terminal alone, after a second."""

import sys
import time
from contextlib import contextmanager
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

    from wallscope.model.capture import Progress


_PATIENCE_S = 1.0
_ERASE = "\r\x1b[2K"
_READING = "reading"
_NOT_COMPILED = (
    "wallscope: the compiled loops are missing (no C compiler at installation):"
    " reading and analysis take several times as long\n"
)


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
