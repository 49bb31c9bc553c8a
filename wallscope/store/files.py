"""Files of a store: written aside and renamed, so that a reader sees all of one or nothing."""

import os
import tempfile
from pathlib import Path

from wallscope.errors import StoreError

ASIDE = ".aside-"


def write_once(path: Path, content: bytes) -> None:
    """Write a file that nothing else will ever be in; whoever is first wins, a killed writer leaves no trace.

    Raises:
        StoreError: the store cannot be written.
    """
    aside: Path | None = None
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        handle, name = tempfile.mkstemp(prefix=ASIDE, dir=path.parent)
        aside = Path(name)
        with os.fdopen(handle, "wb") as stream:
            stream.write(content)
            stream.flush()
            os.fsync(stream.fileno())
        aside.chmod(0o644)
        aside.replace(path)
        _sync_folder(path.parent)
    except OSError as error:
        if aside is not None:
            aside.unlink(missing_ok=True)
        raise StoreError(
            f"{path.parent} — cannot be written: {error.strerror} — give another --store"
        ) from error


def _sync_folder(folder: Path) -> None:
    """Make the rename outlive a crash of the machine."""
    handle = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def read_bytes(path: Path) -> bytes:
    """All of a file.

    Raises:
        StoreError: it cannot be read.
    """
    try:
        return path.read_bytes()
    except OSError as error:
        raise StoreError(f"{path} — cannot be read: {error.strerror} — record the run again") from error
