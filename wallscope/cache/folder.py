"""The cache folder: private, never followed out of, and never a reason to fail.

An entry is written aside and renamed, so that a reader sees all of one or none, however many write. Its
first line holds a digest of name and content: what is damaged, cut or renamed counts as absent, and the next
writer replaces it.
"""

import hashlib
import logging
import os
import re
import stat
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path

from wallscope.cache.listing import ASIDE, Entry, entries_in, remove, sweep
from wallscope.errors import OptionError

_FOLDER, _SIZE = "WALLSCOPE_CACHE_DIR", "WALLSCOPE_CACHE_SIZE"
_DEFAULT_BYTES = 4 << 30
_MOST_BYTES = 1 << 30
_MAGIC = b"wallscope cache 1 "
_POWERS = {"": 0, "K": 1, "M": 2, "G": 3, "T": 4}
_OPENED = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC


class Kind(StrEnum):
    """What is kept; the name of its folder."""

    ANSWERS = "answers"
    PAGES = "pages"
    EXPORTS = "exports"


_SEAL = b"wallscope cache "
_HEADS = {Kind.ANSWERS: _SEAL, Kind.PAGES: _SEAL, Kind.EXPORTS: b"SQLite format 3\0"}
"""How the entries of a kind begin; what does not is somebody else's."""


@dataclass(frozen=True, slots=True)
class Cache:
    """A folder with a size that it is cut back to, the longest unused entries first."""

    folder: Path
    limit_bytes: int = _DEFAULT_BYTES

    def kept(self, kind: Kind, name: str) -> bytes | None:
        """The content of an entry; `None` where there is none, or none that can be trusted."""
        try:
            with self._room(kind) as room:
                content = _content(room, name)
        except FileNotFoundError:
            return None
        except OSError as error:
            _say(self.folder, error)
            return None
        found = _unsealed(content, f"{kind}/{name}")
        if found is None:
            logging.getLogger(__name__).info("a damaged entry of the cache is left out: %s/%s", kind, name)
        return found

    def keep(self, kind: Kind, name: str, content: bytes) -> None:
        """Put an entry into the cache, or go on without where that cannot be."""
        sealed = _sealed(content, f"{kind}/{name}")
        if len(sealed) > min(self.limit_bytes, _MOST_BYTES):
            return
        try:
            self.private_folder(kind)
            with self._room(kind) as room:
                _write(room, name, sealed)
            self.trim(kind, name)
        except OSError as error:
            _say(self.folder, error)

    def private_folder(self, kind: Kind) -> Path:
        """The folder of a kind, made where it is absent, readable by the user alone.

        Raises:
            OSError: it cannot be made, or is not the user's own.
        """
        self.folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        place = self.folder / kind
        place.mkdir(mode=0o700, exist_ok=True)
        with self._room(kind) as room:
            if stat.S_IMODE(os.fstat(room).st_mode) != 0o700:
                os.fchmod(room, 0o700)
        return place

    def used(self, kind: Kind, name: str) -> None:
        """Note that an entry is of use, so that others go first."""
        with suppress(OSError), self._room(kind) as room:
            os.utime(name, dir_fd=room, follow_symlinks=False)

    def entries(self) -> tuple[Entry, ...]:
        """All entries, the longest unused first."""
        found: list[Entry] = []
        for kind in Kind:
            with suppress(OSError), self._room(kind) as room:
                found += entries_in(room, kind)
        return tuple(sorted(found, key=lambda entry: (entry.used_ns, entry.kind, entry.name)))

    def trim(self, kind: Kind, name: str) -> None:
        """Cut the cache back to its limit; the entry that is named stays."""
        found = self.entries()
        excess_bytes = sum(entry.size_bytes for entry in found) - self.limit_bytes
        for entry in found:
            if excess_bytes <= 0:
                break
            if (entry.kind, entry.name) != (kind, name):
                self._remove(entry)
                excess_bytes -= entry.size_bytes
        with suppress(OSError), self._room(kind) as room:
            sweep(room)

    def clear(self) -> tuple[Entry, ...]:
        """Remove all entries; those that are gone."""
        return tuple(entry for entry in self.entries() if self._remove(entry))

    def _remove(self, entry: Entry) -> bool:
        """Remove an entry, unless it only bears the name of one; whether it is gone by this."""
        kind = Kind(entry.kind)
        with suppress(OSError), self._room(kind) as room:
            return _begins(room, entry.name, _HEADS[kind]) and remove(room, entry.name)
        return False

    @contextmanager
    def _room(self, kind: Kind) -> Iterator[int]:
        """The folder of a kind, open; a link or the folder of another user is refused."""
        room = os.open(self.folder / kind, _OPENED | os.O_DIRECTORY)
        try:
            if os.fstat(room).st_uid != os.geteuid():
                raise PermissionError(1, "it belongs to another user")
            yield room
        finally:
            os.close(room)


def users_cache() -> Cache:
    """The cache of the user: $WALLSCOPE_CACHE_DIR, else where the system keeps caches; $WALLSCOPE_CACHE_SIZE.

    Raises:
        OptionError: the size cannot be read.
    """
    named = os.environ.get(_FOLDER)
    if named:
        folder = Path(named).absolute()
    else:
        from platformdirs import user_cache_path  # noqa: PLC0415  # takes longer than all else here

        folder = user_cache_path("wallscope", appauthor=False)
    text = os.environ.get(_SIZE)
    return Cache(folder, _size_bytes(text) if text else _DEFAULT_BYTES)


def _size_bytes(text: str) -> int:
    """Bytes from a spelling: `500M`, `4 GiB`, `0`."""
    found = re.fullmatch(r"\s*(\d{1,15})\s*([KMGT]?)(?:i?B)?\s*", text, re.IGNORECASE)
    if found is None:
        raise OptionError(f"{_SIZE}={text[:40]} — is no size — write {_SIZE}=4G")
    return int(found[1]) << 10 * _POWERS[found[2].upper()]


def _content(room: int, name: str) -> bytes:
    """All of a regular file of an open folder, which is marked as used."""
    with os.fdopen(os.open(name, _OPENED, dir_fd=room), "rb") as stream:
        status = os.fstat(stream.fileno())
        if not stat.S_ISREG(status.st_mode) or status.st_size > _MOST_BYTES:
            return b""
        with suppress(OSError):
            os.utime(stream.fileno())
        return stream.read()


def _begins(room: int, name: str, head: bytes) -> bool:
    """Whether a file of an open folder begins so."""
    with os.fdopen(os.open(name, _OPENED, dir_fd=room), "rb") as stream:
        return stream.read(len(head)) == head


def _write(room: int, name: str, content: bytes) -> None:
    aside = f"{ASIDE}{os.urandom(8).hex()}"
    handle = os.open(aside, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600, dir_fd=room)
    try:
        with os.fdopen(handle, "wb") as stream:
            stream.write(content)
        os.replace(aside, name, src_dir_fd=room, dst_dir_fd=room)
    except BaseException:
        remove(room, aside)
        raise


def _sealed(content: bytes, name: str) -> bytes:
    return _MAGIC + _digest(content, name) + b"\n" + content


def _unsealed(sealed: bytes, name: str) -> bytes | None:
    head, newline, content = sealed.partition(b"\n")
    return content if newline and head == _MAGIC + _digest(content, name) else None


def _digest(content: bytes, name: str) -> bytes:
    digest = hashlib.blake2b(f"{name}\n".encode(), digest_size=32)
    digest.update(content)
    return digest.hexdigest().encode()


def _say(folder: Path, error: OSError) -> None:
    logging.getLogger(__name__).info("going on without the cache %s: %s", folder, error.strerror)
