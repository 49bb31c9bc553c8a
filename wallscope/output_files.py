"""Files that appear whole or not at all, and where they really are."""

import os
import stat
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from wallscope.errors import OutputError

_NEW = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC


def write_chunks(target: Path, chunks: Iterable[bytes]) -> None:
    """Write aside, chunk by chunk, then rename: all of the chunks, or what was there before.

    Raises:
        OutputError: the file cannot be written.
    """
    aside = name_aside(target)
    try:
        with os.fdopen(os.open(aside, _NEW, 0o600), "wb") as stream:
            for chunk in chunks:
                stream.write(chunk)
            stream.flush()
            os.fsync(stream.fileno())
        aside.chmod(_mode(target))
        aside.replace(target)
    except OSError as error:
        raise OutputError(f"{target} — cannot be written: {error.strerror} — name another file") from error
    finally:
        with suppress(OSError):
            aside.unlink()  # unless it is the target by now


@contextmanager
def defer_signals() -> Iterator[None]:
    """Let signals that end the process wait until the block is done."""
    import signal  # noqa: PLC0415  # keeps --help fast
    import threading  # noqa: PLC0415  # same

    if threading.current_thread() is not threading.main_thread():  # signals go to the main thread
        yield
        return
    waiting: list[int] = []
    ending = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
    former = {number: signal.signal(number, lambda got, _: waiting.append(got)) for number in ending}
    try:
        yield
    finally:
        for number, handler in former.items():
            signal.signal(number, handler)
        for first in waiting[:1]:
            signal.raise_signal(first)


def name_aside(target: Path) -> Path:
    """Return a new name next to a target; known before anything is created, so that it can be removed."""
    return target.parent / f".wallscope-{os.urandom(8).hex()}"


def resolve_path(path: Path) -> Path:
    """The path without links, as far as they lead anywhere."""
    return Path(os.path.realpath(path))  # Path.resolve raises RuntimeError for a link that leads to itself


def _mode(target: Path) -> int:
    """The permissions of the file that is replaced; else what the user's mask leaves of a new file."""
    if target.exists():
        return stat.S_IMODE(target.stat().st_mode)
    mask = os.umask(0)
    os.umask(mask)
    return 0o666 & ~mask
