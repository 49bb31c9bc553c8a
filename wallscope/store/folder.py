"""A store in a folder: its marker, the names of its files, and writes that appear whole or not at all.

A store is a folder with the marker and with files of these names. Nothing else in it is ever touched.

    wallscope-store.json            the marker, written first

    objects/<2>/<62>                a packed profile, named by the SHA-256 of its bytes

    records/<commit>/<32>.json      a recorded run, which names its objects

    objects/<2>/.aside-*            a file before its rename, also below records/<commit>

No link below the folder is followed. Each part of a name is opened in the folder before it, so a part that
becomes a link in the meantime is refused too. The folder itself may be a link, because the user named it.
"""

import json
import os
import re
import stat
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING

from wallscope.errors import StoreError
from wallscope.units import size

if TYPE_CHECKING:
    from wallscope.store.records import Place


MARKER = "wallscope-store.json"
STORE_SCHEMA = "wallscope.store/1"
ASIDE = ".aside-"
RECORDS, OBJECTS = "records", "objects"
_HEX = "[0-9a-f]"
_COMMIT = re.compile(f"{_HEX}{{4,64}}")
_OBJECT = re.compile(f"{OBJECTS}/{_HEX}{{2}}/{_HEX}{{62}}")
_RECORD = re.compile(f"{RECORDS}/{_COMMIT.pattern}/{_HEX}{{32}}[.]json")
_LEFTOVER = re.compile(f"(?:{OBJECTS}/{_HEX}{{2}}|{RECORDS}/{_COMMIT.pattern})/{re.escape(ASIDE)}[^/]+")
_MOST_SHOWN = 3


def is_commit(name: str) -> bool:
    """Whether a commit can be named so, and with it a folder of records."""
    return _COMMIT.fullmatch(name) is not None


def is_object(path: str) -> bool:
    """Whether a path is that of a profile."""
    return _OBJECT.fullmatch(path) is not None


def is_record(path: str) -> bool:
    """Whether a path is that of a recorded run."""
    return _RECORD.fullmatch(path) is not None


def is_leftover(path: str) -> bool:
    """Whether a path is that of a file that a writer has not renamed yet."""
    return _LEFTOVER.fullmatch(path) is not None


def object_path(name: str) -> str:
    """Return where the profile of this name lies."""
    return f"{OBJECTS}/{name[:2]}/{name[2:]}"


def mark_store(place: "Place") -> None:
    """Make a store of a place that is absent, empty, or a store of version 0.1.

    Raises:
        StoreError: it holds something else, or cannot be written.
    """
    if not has_marker(place):
        place.write(MARKER, (json.dumps({"schema": STORE_SCHEMA}) + "\n").encode())


def has_marker(place: "Place") -> bool:
    """Whether a place is marked as a store; one without a marker must be absent, empty, or of version 0.1.

    Raises:
        StoreError: it holds something else, or cannot be read.
    """
    content = place.read_all((MARKER,)).get(MARKER)
    if content is not None:
        _check_marker(content, f"{place}/{MARKER}")
        return True
    found = place.top()
    if MARKER in found:  # another writer has marked it since, or it is not a file
        content = place.read_all((MARKER,)).get(MARKER)
        if content is None:
            raise StoreError(f"{place}/{MARKER} — does not mark a store — give another --store")
        _check_marker(content, f"{place}/{MARKER}")
        return True
    others = [name for name in found if name not in {RECORDS, OBJECTS} and not name.startswith(ASIDE)]
    others = others or [
        path
        for below in (RECORDS, OBJECTS)
        if below in found
        for path in place.names(below)
        if not (is_object(path) or is_record(path) or is_leftover(path))
    ]
    if others:
        shown = ", ".join(ascii(name[:60]) for name in others[:_MOST_SHOWN])
        raise StoreError(
            f"{place} — holds other files ({shown}) and is not a wallscope store — name a new or an"
            " empty folder"
        )
    return False


def _check_marker(content: bytes, path: str) -> None:
    try:
        told = json.loads(content)
    except (ValueError, RecursionError):
        told = None
    schema = told.get("schema") if isinstance(told, dict) else None
    if schema is None:
        raise StoreError(f"{path} — does not mark a store — give another --store")
    if schema != STORE_SCHEMA:
        raise StoreError(
            f"{path} — is {str(schema)[:60]}, not {STORE_SCHEMA} — use the wallscope that wrote it"
        )


_ROOT = os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC
_FOLDER = _ROOT | os.O_NOFOLLOW
_READ = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC  # a pipe would be waited for
_WRITE = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC
MOST_BYTES = 512 << 20
_DEEPEST = 2  # slashes in the name of a file


class Folder:
    """Files below a folder, which the first one makes; names are paths with slashes."""

    def __init__(self, root: Path) -> None:
        self.root = root

    def __str__(self) -> str:
        return str(self.root)

    def write(self, name: str, content: bytes) -> None:
        """Write a file whole; a killed writer leaves what was there.

        Raises:
            StoreError: it cannot be written, or something else than a regular file is there.
        """
        below, _, last = name.rpartition("/")
        try:
            self.root.mkdir(parents=True, exist_ok=True)
            with self._opened(below, make=True) as folder:
                self._status(folder, name)
                _replace(folder, last, content)
        except OSError as error:
            raise StoreError(
                f"{(self.root / name).parent} — cannot be written: {error.strerror} — give another --store"
            ) from error

    def read(self, name: str) -> bytes:
        """All of a file.

        Raises:
            StoreError: it cannot be read.
        """
        try:
            return self._content(name)
        except OSError as error:
            raise StoreError(
                f"{self.root / name} — cannot be read: {error.strerror} — record the run again"
            ) from error

    def read_all(self, names: Iterable[str]) -> dict[str, bytes]:
        """Read several files whole; deleted files and those that are not regular are left out.

        Raises:
            StoreError: one cannot be read.
        """
        return {name: self.read(name) for name in names if self.has(name)}

    def has(self, name: str) -> bool:
        """Whether a file is there.

        Raises:
            StoreError: it cannot be read, or it lies behind a link.
        """
        try:
            with self._opened(name.rpartition("/")[0]) as folder:
                status = self._status(folder, name, only_files=False)
        except (FileNotFoundError, NotADirectoryError):
            return False
        except OSError as error:
            raise StoreError(
                f"{self.root / name} — cannot be read: {error.strerror} — give another --store"
            ) from error
        return status is not None and stat.S_ISREG(status.st_mode)

    def top(self) -> tuple[str, ...]:
        """The names of files and folders in the folder itself, sorted; empty if it is not a folder.

        Raises:
            StoreError: the folder cannot be read.
        """
        with (
            self._listing(),
            suppress(NotADirectoryError),
            self._opened("") as folder,
            os.scandir(folder) as listed,
        ):
            return tuple(sorted(entry.name for entry in listed))
        return ()

    def names(self, below: str) -> tuple[str, ...]:
        """The files below a folder, sorted; what writers have aside is among them.

        A folder where a store has files alone is not looked into: its name ends with a slash.

        Raises:
            StoreError: the folder cannot be read, or holds a link.
        """
        found, waiting = [], [below]
        while waiting:
            inside = waiting.pop()
            with self._listing(), self._opened(inside) as folder, os.scandir(folder) as listed:
                for entry in listed:
                    name = f"{inside}/{entry.name}"
                    if entry.is_symlink():
                        raise _link(self.root / name)
                    if entry.is_file(follow_symlinks=False):
                        found.append(name)
                    elif entry.is_dir(follow_symlinks=False) and name.count("/") < _DEEPEST:
                        waiting.append(name)
                    elif entry.is_dir(follow_symlinks=False):
                        found.append(f"{name}/")
        return tuple(sorted(found))

    def mtime_s(self, name: str) -> float | None:
        """When a file was written, in seconds of the clock; `None` where it is gone."""
        try:
            with self._opened(name.rpartition("/")[0]) as folder:
                status = self._status(folder, name)
        except OSError:
            return None
        return None if status is None else status.st_mtime

    def delete(self, name: str) -> None:
        """Delete a file if it is there.

        Raises:
            StoreError: it cannot be deleted, or is not a regular file.
        """
        below, _, last = name.rpartition("/")
        try:
            with self._opened(below) as folder:
                if self._status(folder, name) is not None:
                    os.unlink(last, dir_fd=folder)
        except FileNotFoundError:
            return
        except OSError as error:
            raise StoreError(
                f"{self.root / name} — cannot be deleted: {error.strerror} — give another --store"
            ) from error

    @contextmanager
    def _opened(self, below: str, *, make: bool = False) -> Iterator[int]:
        """Open a folder below the root, part by part.

        Raises:
            StoreError: a part is a link.
            OSError: a part is absent, or cannot be opened or made.
        """
        folder, path = os.open(self.root, _ROOT), self.root
        try:
            for part in below.split("/") if below else ():
                path /= part
                if make:
                    with suppress(FileExistsError):
                        os.mkdir(part, dir_fd=folder)
                inner = _open(folder, part, _FOLDER, path)
                os.close(folder)
                folder = inner
            yield folder
        finally:
            os.close(folder)

    @contextmanager
    def _listing(self) -> Iterator[None]:
        """List a folder; one that is absent holds nothing."""
        try:
            yield
        except FileNotFoundError:
            return
        except OSError as error:
            raise StoreError(
                f"{self.root} — cannot be read: {error.strerror} — give another --store"
            ) from error

    def _status(self, folder: int, name: str, *, only_files: bool = True) -> os.stat_result | None:
        """What stands at a name of an open folder; `None` for nothing.

        Raises:
            StoreError: it is a link, or with `only_files` no regular file.
        """
        try:
            status = os.stat(name.rpartition("/")[2], dir_fd=folder, follow_symlinks=False)
        except FileNotFoundError:
            return None
        if stat.S_ISLNK(status.st_mode):
            raise _link(self.root / name)
        if only_files and not stat.S_ISREG(status.st_mode):
            raise _irregular(self.root / name)
        return status

    def _content(self, name: str) -> bytes:
        below, _, last = name.rpartition("/")
        with self._opened(below) as folder:
            handle = _open(folder, last, _READ, self.root / name)
        with os.fdopen(handle, "rb") as stream:
            status = os.fstat(handle)
            if not stat.S_ISREG(status.st_mode):
                raise _irregular(self.root / name)
            if status.st_size > MOST_BYTES:
                raise StoreError(
                    f"{self.root / name} — has {size(status.st_size)}, more than anything of a store —"
                    " delete it and record the run again"
                )
            return stream.read()


def _open(folder: int, name: str, flags: int, path: Path) -> int:
    """Open what an open folder holds under a name; a link is an error that says so."""
    try:
        return os.open(name, flags, dir_fd=folder)
    except OSError:
        with suppress(FileNotFoundError):
            if stat.S_ISLNK(os.stat(name, dir_fd=folder, follow_symlinks=False).st_mode):
                raise _link(path) from None
        raise


def _replace(folder: int, name: str, content: bytes) -> None:
    """Write a file of an open folder aside, then rename it."""
    aside = f"{ASIDE}{os.urandom(8).hex()}"
    try:
        with os.fdopen(os.open(aside, _WRITE, 0o600, dir_fd=folder), "wb") as stream:
            stream.write(content)
            stream.flush()
            os.fchmod(stream.fileno(), 0o644)
            os.fsync(stream.fileno())
        os.replace(aside, name, src_dir_fd=folder, dst_dir_fd=folder)
    except BaseException:
        with suppress(OSError):
            os.unlink(aside, dir_fd=folder)
        raise
    os.fsync(folder)  # the rename outlives a crash of the machine


def _link(path: Path) -> StoreError:
    return StoreError(f"{path} — is a link, and a store follows none — remove it, or give another --store")


def _irregular(path: Path) -> StoreError:
    return StoreError(f"{path} — is not a regular file — delete it and record the run again")
