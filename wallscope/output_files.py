"""Files that appear whole or not at all, and where they really are."""

import os
import stat
from collections.abc import Iterable
from pathlib import Path

from wallscope.errors import OutputError


def write_chunks(target: Path, chunks: Iterable[bytes]) -> None:
    """Write aside, chunk by chunk, then rename: all of the chunks, or what was there before.

    Raises:
        OutputError: the file cannot be written.
    """
    import tempfile  # noqa: PLC0415  # keeps --help fast

    aside: Path | None = None
    try:
        with tempfile.NamedTemporaryFile(
            dir=target.parent, prefix=f".{target.name[:100]}.", delete=False
        ) as stream:
            aside = Path(stream.name)
            for chunk in chunks:
                stream.write(chunk)
            stream.flush()
            os.fsync(stream.fileno())
        aside.chmod(_mode(target))
        aside.replace(target)
        aside = None
    except OSError as error:
        raise OutputError(f"{target} — cannot be written: {error.strerror} — name another file") from error
    finally:
        if aside is not None:
            aside.unlink(missing_ok=True)


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
