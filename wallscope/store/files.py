"""A store in a folder: files are written aside and renamed, so that a reader sees all of one or nothing."""

import os
import tempfile
from collections.abc import Iterable
from pathlib import Path

from wallscope.errors import StoreError

ASIDE = ".aside-"


class Folder:
    """Files below a folder, which the first one makes; names are paths with slashes."""

    def __init__(self, root: Path) -> None:
        self.root = root

    def __str__(self) -> str:
        return str(self.root)

    def write(self, name: str, content: bytes) -> None:
        """Write a file whole; a killed writer leaves what was there.

        Raises:
            StoreError: it cannot be written.
        """
        path, aside = self.root / name, None
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            handle, made = tempfile.mkstemp(prefix=ASIDE, dir=path.parent)
            aside = Path(made)
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

    def read(self, name: str) -> bytes:
        """All of a file.

        Raises:
            StoreError: it cannot be read.
        """
        path = self.root / name
        try:
            if path.exists() and not path.is_file():  # a pipe would be waited for
                raise StoreError(f"{path} — is no regular file — delete it and record the run again")
            return path.read_bytes()
        except OSError as error:
            raise StoreError(f"{path} — cannot be read: {error.strerror} — record the run again") from error

    def read_all(self, names: Iterable[str]) -> dict[str, bytes]:
        """All of some files; one that is deleted in the meantime is left out.

        Raises:
            StoreError: one cannot be read.
        """
        return {name: self.read(name) for name in names if self.has(name)}

    def has(self, name: str) -> bool:
        """Whether a file is there."""
        return (self.root / name).is_file()

    def names(self, below: str) -> tuple[str, ...]:
        """The files at any depth below a folder, sorted; what writers have aside is among them.

        Raises:
            StoreError: the folder cannot be read.
        """
        try:
            found = [path for path in (self.root / below).rglob("*") if path.is_file()]
        except OSError as error:
            raise StoreError(
                f"{self.root} — cannot be read: {error.strerror} — give another --store"
            ) from error
        return tuple(sorted(path.relative_to(self.root).as_posix() for path in found))

    def written_s(self, name: str) -> float | None:
        """When a file was written, in seconds of the clock; `None` where it is gone."""
        try:
            return (self.root / name).stat().st_mtime
        except OSError:
            return None

    def delete(self, name: str) -> None:
        """Delete a file if it is there.

        Raises:
            StoreError: it cannot be deleted.
        """
        try:
            (self.root / name).unlink(missing_ok=True)
        except OSError as error:
            raise StoreError(
                f"{self.root / name} — cannot be deleted: {error.strerror} — give another --store"
            ) from error


def _sync_folder(folder: Path) -> None:
    """Make the rename outlive a crash of the machine, where folders can be opened."""
    if os.name != "posix":
        return
    handle = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
