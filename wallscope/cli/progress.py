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


def talkative(*, verbose: bool) -> None:
    """Show what the modules log, if the user asked for it."""
    if verbose:
        import logging  # noqa: PLC0415  # keeps --help fast

        logging.basicConfig(
            stream=sys.stderr, level=logging.INFO, format="%(relativeCreated)6d ms  %(message)s"
        )


@contextmanager
def reported() -> "Iterator[Progress]":
    """A place to report progress to; one line that is gone when the work is done."""
    import logging  # noqa: PLC0415  # keeps --help fast

    started_s = time.monotonic()
    on_terminal = sys.stderr.isatty()
    shown = False

    def report(what: str) -> None:
        nonlocal shown
        logging.getLogger(__name__).info(what)
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
