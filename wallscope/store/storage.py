"""Where a store keeps files: in a folder, or behind a URL by fsspec and the plugin for its protocol.

Files appear whole or not at all. No link below a folder is followed. Each part of a name is opened in the
folder before it, so a part that becomes a link in the meantime is refused too. The folder itself may be a
link, because the user named it. Object stores show all of an object or nothing. Where a plugin writes files
piece by piece, they are written aside and moved; such stores may hold links, which are refused.
"""

import os
import stat
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING
from uuid import uuid4

from wallscope.errors import StoreError
from wallscope.extras import name_install_command
from wallscope.units import size
from wallscope.urls import describe_failure, is_url, redact_url, strip_local

if TYPE_CHECKING:
    from fsspec import AbstractFileSystem

ASIDE = ".aside-"
"""The beginning of the name of a file before its rename."""
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
        with self._explained((self.root / name).parent, "written"):
            self.root.mkdir(parents=True, exist_ok=True)
            with self._opened(below, make=True) as folder:
                self._status(folder, name)
                _replace(folder, last, content)

    def read(self, name: str, most_bytes: int = MOST_BYTES) -> bytes:
        """All of a file.

        Raises:
            StoreError: it cannot be read, or is larger than `most_bytes`.
        """
        with self._explained(self.root / name, "read", "record the run again"):
            return self._content(name, most_bytes)

    def read_each(self, names: Iterable[str], most_bytes: int) -> dict[str, bytes | StoreError]:
        """Read several files whole; one that cannot be read, or is larger than `most_bytes`, is its error.

        Deleted files and those that are not regular are left out.
        """
        found: dict[str, bytes | StoreError] = {}
        for name in names:
            try:
                if self.has(name):
                    found[name] = self.read(name, most_bytes)
            except StoreError as error:
                found[name] = error
        return found

    def has(self, name: str) -> bool:
        """Whether a file is there.

        Raises:
            StoreError: it cannot be read, or it lies behind a link.
        """
        with self._explained(self.root / name, "read"):
            try:
                with self._opened(name.rpartition("/")[0]) as folder:
                    status = self._status(folder, name, only_files=False)
            except (FileNotFoundError, NotADirectoryError):
                return False
        return status is not None and stat.S_ISREG(status.st_mode)

    def top(self) -> tuple[str, ...]:
        """The names of files and folders in the folder itself, sorted; empty if it is not a folder.

        Raises:
            StoreError: the folder cannot be read, or holds a link.
        """
        found = []
        with (
            self._listing(),
            suppress(NotADirectoryError),
            self._opened("") as folder,
            os.scandir(folder) as listed,
        ):
            for entry in listed:
                if entry.is_symlink():
                    raise _link(self.root / entry.name)
                found.append(entry.name)
        return tuple(sorted(found))

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
        with (
            self._explained(self.root / name, "deleted"),
            suppress(FileNotFoundError),
            self._opened(below) as folder,
        ):
            if self._status(folder, name) is not None:
                os.unlink(last, dir_fd=folder)

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
        with self._explained(self.root, "read"), suppress(FileNotFoundError):
            yield

    @contextmanager
    def _explained(self, path: Path, what: str, cure: str = "give another store") -> Iterator[None]:
        """Whatever the system refuses, in a line."""
        try:
            yield
        except OSError as error:
            raise StoreError(f"{path} — cannot be {what}: {error.strerror} — {cure}") from error

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

    def _content(self, name: str, most_bytes: int) -> bytes:
        below, _, last = name.rpartition("/")
        with self._opened(below) as folder:
            handle = _open(folder, last, _READ, self.root / name)
        with os.fdopen(handle, "rb") as stream:
            status = os.fstat(handle)
            if not stat.S_ISREG(status.st_mode):
                raise _irregular(self.root / name)
            if status.st_size > most_bytes:
                raise _oversize(f"{self.root / name}", status.st_size)
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
    return StoreError(f"{path} — is a link, and a store follows none — remove it, or give another store")


def _oversize(path: str, size_bytes: int) -> StoreError:
    return StoreError(
        f"{path} — has {size(size_bytes)}, more than a store writes — delete it and record the run again"
    )


def _irregular(path: Path) -> StoreError:
    return StoreError(f"{path} — is not a regular file — delete it and record the run again")


_ABSENT = (FileNotFoundError, NotADirectoryError)


class Remote:
    """Files below a URL.

    Raises:
        StoreError: fsspec or the plugin for the protocol is not installed, or refuses the URL.
    """

    def __init__(self, url: str) -> None:
        self._named = url.rstrip("/")
        self.url = redact_url(self._named)
        try:
            from fsspec.core import url_to_fs  # noqa: PLC0415  # an extra
        except ImportError as error:
            command = name_install_command("remote", "fsspec")
            raise StoreError(f"{self.url} — a store behind a URL needs fsspec — {command}") from error
        with self._explained(
            f"{self.url} — cannot be opened", "check the URL, and that its fsspec plugin is installed"
        ):
            self.system: AbstractFileSystem
            self.system, root = url_to_fs(self._named)
        self.root = str(root).rstrip("/")
        self._sizes: dict[str, object] = {}  # of objects, as they were listed last

    def __str__(self) -> str:
        return self.url

    def write(self, name: str, content: bytes) -> None:
        """Write an object whole; a killed writer leaves what was there.

        Raises:
            StoreError: it cannot be written.
        """
        path = self._path(name)
        with self._explained(f"{self.url}/{name} — cannot be written", "give another store"):
            if _puts_whole(self.system):
                self.system.pipe_file(path, content)
                return
            self._refuse_links((name,))
            folder, _, last = path.rpartition("/")
            aside = f"{folder}/{ASIDE}{uuid4().hex}-{last}"
            self.system.makedirs(folder, exist_ok=True)
            self.system.pipe_file(aside, content)
            self.system.mv(aside, path)

    def read(self, name: str, most_bytes: int = MOST_BYTES) -> bytes:
        """All of an object.

        Raises:
            StoreError: it cannot be read, or is larger than `most_bytes`.
        """
        with self._explained(f"{self.url}/{name} — cannot be read", "record the run again"):
            self._refuse_links((name,))
            self._refuse_oversize(name, self.system.size(self._path(name)), most_bytes)
            return bytes(self.system.cat_file(self._path(name)))

    def read_each(self, names: Iterable[str], most_bytes: int) -> dict[str, bytes | StoreError]:
        """All of some objects, side by side where the plugin can; what cannot be read is its error.

        An object that is larger than `most_bytes` is an error too; one deleted in the meantime is left out.

        Raises:
            StoreError: a name leads through a link, or the store cannot be asked.
        """
        wanted = list(names)
        cure = "check the URL and your rights there"
        with self._explained(f"{self.url} — cannot be read", cure):
            self._refuse_links(wanted)
            found = self._sized(wanted, most_bytes)
            paths = [self._path(name) for name in wanted if name not in found]
            ends = [None] * len(paths)
            contents = self.system.cat_ranges(paths, ends, ends, on_error="return") if paths else []
        for path, content in zip(paths, contents, strict=True):
            if isinstance(content, _ABSENT):
                continue
            try:
                with self._explained(f"{self.url}/{self._name(path)} — cannot be read", cure):
                    if isinstance(content, Exception):
                        raise content
                    found[self._name(path)] = bytes(content)
            except StoreError as error:
                found[self._name(path)] = error
        return found

    def _sized(self, names: Iterable[str], most_bytes: int) -> dict[str, bytes | StoreError]:
        """Return the errors of names that are known to be too large."""
        errors: dict[str, bytes | StoreError] = {}
        for name in names:
            try:
                self._refuse_oversize(name, self._sizes.get(name), most_bytes)
            except StoreError as error:
                errors[name] = error
        return errors

    def _refuse_oversize(self, name: str, size_bytes: object, most_bytes: int) -> None:
        if isinstance(size_bytes, int) and size_bytes > most_bytes:
            raise _oversize(f"{self.url}/{name}", size_bytes)

    def has(self, name: str) -> bool:
        """Whether an object is there.

        Raises:
            StoreError: the store cannot be asked.
        """
        with self._explained(f"{self.url} — cannot be read", "check the URL and your rights there"):
            self.system.invalidate_cache()
            self._refuse_links((name,))
            return bool(self.system.isfile(self._path(name)))

    def top(self) -> tuple[str, ...]:
        """The last parts of the names at the URL itself, sorted.

        Raises:
            StoreError: the store cannot be listed, or holds a link.
        """
        with self._explained(f"{self.url} — cannot be listed", "check the URL and your rights there"):
            self.system.invalidate_cache()
            found = self._listed("")
        for name, info in found.items():
            if _is_link(info):
                raise self._link(name)
        return tuple(sorted(found))

    def names(self, below: str) -> tuple[str, ...]:
        """The objects at any depth below a name, sorted.

        Raises:
            StoreError: the store cannot be listed, or holds a link.
        """
        with self._explained(f"{self.url} — cannot be listed", "check the URL and your rights there"):
            self.system.invalidate_cache()
            self._refuse_links((below,))
            found = self.system.find(self._path(below), detail=True)
        names = {self._name(path): info for path, info in found.items()}
        for name, info in names.items():
            if _is_link(info):
                raise self._link(name)
            self._sizes[name] = info.get("size")
        return tuple(sorted(names))

    def mtime_s(self, name: str) -> float | None:
        """When an object was written, in seconds of the clock; `None` if it is gone or the time is unknown.

        Raises:
            StoreError: the store cannot be asked.
        """
        with self._explained(f"{self.url}/{name} — cannot be read", "check the URL and your rights there"):
            self.system.invalidate_cache()
            try:
                at = self.system.modified(self._path(name))
            except (FileNotFoundError, NotImplementedError, KeyError):
                return None
        if isinstance(at, datetime):
            return (at if at.tzinfo else at.replace(tzinfo=UTC)).timestamp()
        return float(at) if isinstance(at, int | float) else None

    def delete(self, name: str) -> None:
        """Delete an object if it is there.

        Raises:
            StoreError: it cannot be deleted.
        """
        with self._explained(f"{self.url}/{name} — cannot be deleted", "give another store"):
            self._refuse_links((name,))
            try:
                self.system.rm_file(self._path(name))
            except (FileNotFoundError, KeyError):
                return

    @contextmanager
    def _explained(self, what: str, cure: str) -> Iterator[None]:
        """Whatever a plugin raises, in a line that repeats no credential."""
        try:
            yield
        except StoreError:
            raise
        except Exception as error:  # plugins raise what the clients below them raise
            raise StoreError(f"{what}: {describe_failure(error, self._named)} — {cure}") from error

    def _path(self, name: str) -> str:
        return f"{self.root}/{name}"

    def _name(self, path: str) -> str:
        return path[path.index(f"{self.root}/") + len(self.root) + 1 :]

    def _listed(self, below: str) -> dict[str, dict[str, object]]:
        """What lies directly below a name, by its last part."""
        path = self._path(below).rstrip("/")
        try:
            found = self.system.ls(path, detail=True)
        except _ABSENT:
            return {}
        return {
            str(info["name"]).rstrip("/").rpartition("/")[2]: info
            for info in found
            if str(info["name"]).rstrip("/") != path  # a file lists itself, as a folder of some object stores
        }

    def _refuse_links(self, names: Iterable[str]) -> None:
        """Refuse names of which a part is a link; plugins show it in the list of the parent folder.

        Raises:
            StoreError: a part is a link.
        """
        if _puts_whole(self.system):
            return
        around: dict[str, dict[str, dict[str, object]]] = {}
        for name in names:
            parts = name.split("/")
            for index, part in enumerate(parts):
                below = "/".join(parts[:index])
                if below not in around:
                    around[below] = self._listed(below)
                if _is_link(around[below].get(part, {})):
                    raise self._link("/".join(parts[: index + 1]))

    def _link(self, name: str) -> StoreError:
        return StoreError(
            f"{self.url}/{name} — is a link, and a store follows none — remove it, or give another store"
        )


def _puts_whole(system: "AbstractFileSystem") -> bool:
    """Whether the plugin uploads an object in one piece, as object stores do."""
    from fsspec import AbstractFileSystem  # noqa: PLC0415  # an extra
    from fsspec.asyn import AsyncFileSystem  # noqa: PLC0415

    if isinstance(system, AsyncFileSystem):
        return type(system)._pipe_file is not AsyncFileSystem._pipe_file  # noqa: SLF001  # tells overriding
    return type(system).pipe_file is not AbstractFileSystem.pipe_file


def _is_link(info: Mapping[str, object]) -> bool:
    return bool(info.get("islink")) or info.get("type") == "link"


Storage = Folder | Remote
"""Files by name that appear whole or not at all; whatever meets a link raises a `StoreError`."""


def open_storage(where: str) -> Storage:
    """Return the folder or URL that a user names.

    >>> str(open_storage("file:///srv/records")), str(open_storage("records"))
    ('/srv/records', 'records')
    """
    where = strip_local(where)
    return Remote(where) if is_url(where) else Folder(Path(where))
