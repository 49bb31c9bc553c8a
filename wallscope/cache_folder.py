"""The user's cache folder, under one size limit: private, never followed out of, and never a reason to fail.

    answers/<name>          a sealed answer
    pages/<name>            a sealed page
    exports/<name>.sqlite   the export that nsys made of a report

A name holds all that decides the content, so an entry is right or it is not there. An entry is written aside
and renamed, so that a reader sees all of one or none, however many write. Its first line holds a digest of
name and content: what is damaged, cut or renamed counts as absent, and the next writer replaces it.
"""

import hashlib
import logging
import os
import re
import stat
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from enum import StrEnum
from pathlib import Path

from wallscope.errors import OptionError
from wallscope.records import dataclass

_BLOCK_BYTES, _MOST_BLOCKS = 65_536, 64


def fingerprint_file(path: Path, size_bytes: int) -> str:
    """Return the BLAKE2 digest of the size and of up to 64 evenly spaced blocks of 64 KiB.

    The first and the last block are among them.

    Files up to 4 MiB are read whole. Of larger ones it notices another size and whatever SQLite writes: the
    first block holds the change counter, the page count and the schema's version. It does not notice bytes
    that something else than SQLite patched between the blocks.

    Raises:
        OSError: the file cannot be read.
    """
    digest = hashlib.blake2b(size_bytes.to_bytes(8, "big"), digest_size=16)
    blocks = -(-size_bytes // _BLOCK_BYTES)
    with path.open("rb", buffering=0) as stream:
        for index in range(min(blocks, _MOST_BLOCKS)):
            block = index if blocks <= _MOST_BLOCKS else index * (blocks - 1) // (_MOST_BLOCKS - 1)
            stream.seek(block * _BLOCK_BYTES, os.SEEK_SET)
            digest.update(stream.read(_BLOCK_BYTES))
    return digest.hexdigest()


ASIDE = ".aside-"
_ENTRY = re.compile(r"[0-9a-f]{32,64}(?:\.sqlite)?")
_GRACE_S = 24 * 3_600


@dataclass(frozen=True, slots=True)
class Entry:
    """A file of the cache: its kind, name and size; when it was last used."""

    kind: str
    name: str
    size_bytes: int
    used_ns: int


def _entries_in(room: int, kind: str) -> list[Entry]:
    """Return the entries in an open folder: regular files that bear a name of ours; links are none."""
    found = []
    with os.scandir(room) as listed:
        for entry in listed:
            if _ENTRY.fullmatch(entry.name) is None or not entry.is_file(follow_symlinks=False):
                continue
            try:
                status = entry.stat(follow_symlinks=False)
            except FileNotFoundError:
                continue  # another process removed it just now
            found.append(Entry(kind, entry.name, status.st_size, status.st_mtime_ns))
    return found


def _remove(room: int, name: str) -> bool:
    """Remove a file of an open folder; whether it was there."""
    try:
        os.unlink(name, dir_fd=room)
    except FileNotFoundError:
        return False
    return True


def _remove_leftovers(room: int) -> None:
    """Remove what killed writers left in an open folder, a day later."""
    with os.scandir(room) as listed:
        left = [entry.name for entry in listed if entry.name.startswith(ASIDE)]
    for name in left:
        try:
            status = os.stat(name, dir_fd=room, follow_symlinks=False)
            if time.time() - status.st_mtime < _GRACE_S:
                continue
            if stat.S_ISDIR(status.st_mode):
                _remove_folder(room, name)
            else:
                _remove(room, name)
        except OSError:
            continue  # it is in use, or gone


def _remove_folder(room: int, name: str) -> None:
    """Remove a folder of files; one that holds folders stays."""
    inside = os.open(name, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW, dir_fd=room)
    try:
        with os.scandir(inside) as listed:
            names = [held.name for held in listed]
        for held in names:
            os.unlink(held, dir_fd=inside)
    finally:
        os.close(inside)
    os.rmdir(name, dir_fd=room)


CACHE_FOLDER, _SIZE = "WALLSCOPE_CACHE_DIR", "WALLSCOPE_CACHE_SIZE"
_DEFAULT_BYTES = 4 << 30
_MOST_BYTES = 1 << 30
_MAGIC = b"wallscope cache 1 "
_POWERS = {"": 0, "K": 1, "M": 2, "G": 3, "T": 4}
_OPENED = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC


class EntryKind(StrEnum):
    """What is kept; the name of its folder."""

    ANSWERS = "answers"
    PAGES = "pages"
    TIMELINES = "timelines"
    EXPORTS = "exports"


_SEAL = b"wallscope cache "
_HEADS = {
    EntryKind.ANSWERS: _SEAL,
    EntryKind.PAGES: _SEAL,
    EntryKind.TIMELINES: _SEAL,
    EntryKind.EXPORTS: b"SQLite format 3\0",
}
"""How the entries of a kind begin; what does not is somebody else's."""


@dataclass(frozen=True, slots=True)
class Cache:
    """A folder with a size that it is cut back to, the longest unused entries first."""

    folder: Path
    limit_bytes: int = _DEFAULT_BYTES

    def read(self, kind: EntryKind, name: str) -> bytes | None:
        """Return the content of an entry; `None` where there is none, or none that can be trusted."""
        try:
            with self._room(kind) as room:
                content = _content(room, name)
        except FileNotFoundError:
            return None
        except OSError as error:
            _log(self.folder, error)
            return None
        found = _unseal(content, f"{kind}/{name}")
        if found is None:
            logging.getLogger(__name__).info("a damaged entry of the cache is left out: %s/%s", kind, name)
        return found

    def write(self, kind: EntryKind, name: str, content: bytes) -> None:
        """Put an entry into the cache, or go on without where that cannot be."""
        sealed = _seal(content, f"{kind}/{name}")
        if len(sealed) > min(self.limit_bytes, _MOST_BYTES):
            return
        try:
            self.make_folder(kind)
            with self._room(kind) as room:
                _write_entry(room, name, sealed)
            self.trim(kind, name)
        except OSError as error:
            _log(self.folder, error)

    def make_folder(self, kind: EntryKind) -> Path:
        """Return the folder of a kind, made where it is absent, readable by the user alone.

        Raises:
            OSError: it cannot be made, or is not the user's own.
        """
        self.folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        place = self.folder / kind
        place.mkdir(mode=0o700, exist_ok=True)
        room = os.open(place, _OPENED | os.O_DIRECTORY)
        try:
            status = os.fstat(room)
            if status.st_uid == os.geteuid() and stat.S_IMODE(status.st_mode) != 0o700:
                _empty(room, kind)
                os.fchmod(room, 0o700)
        finally:
            os.close(room)
        with self._room(kind):
            return place

    def is_trustworthy(self, kind: EntryKind, name: str) -> bool:
        """Return whether an entry is there that this user alone can have written."""
        try:
            with self._room(kind) as room:
                status = os.stat(name, dir_fd=room, follow_symlinks=False)
                _refuse_strangers(status)
        except OSError:
            return False
        return stat.S_ISREG(status.st_mode)

    def touch(self, kind: EntryKind, name: str) -> None:
        """Record the use of an entry, so that others are deleted first."""
        with suppress(OSError), self._room(kind) as room:
            os.utime(name, dir_fd=room, follow_symlinks=False)

    def entries(self) -> tuple[Entry, ...]:
        """Return all entries, the longest unused first."""
        found: list[Entry] = []
        for kind in EntryKind:
            with suppress(OSError), self._room(kind) as room:
                found += _entries_in(room, kind)
        return tuple(sorted(found, key=lambda entry: (entry.used_ns, entry.kind, entry.name)))

    def trim(self, kind: EntryKind, name: str) -> None:
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
            _remove_leftovers(room)

    def clear(self) -> tuple[Entry, ...]:
        """Remove all entries; those that are gone."""
        return tuple(entry for entry in self.entries() if self._remove(entry))

    def _remove(self, entry: Entry) -> bool:
        """Remove an entry, unless it only bears the name of one; whether it is gone by this."""
        kind = EntryKind(entry.kind)
        with suppress(OSError), self._room(kind) as room:
            return _begins_with(room, entry.name, _HEADS[kind]) and _remove(room, entry.name)
        return False

    @contextmanager
    def _room(self, kind: EntryKind) -> Iterator[int]:
        """Yield the folder of a kind, open; a link, or a folder that other users can write, is refused."""
        _refuse_strangers(self.folder.stat(), may_be_shared=True)
        room = os.open(self.folder / kind, _OPENED | os.O_DIRECTORY)
        try:
            _refuse_strangers(os.fstat(room))
            yield room
        finally:
            os.close(room)


def _empty(room: int, kind: EntryKind) -> None:
    """Remove the entries of an open folder that others may write, as they may be theirs."""
    if os.fstat(room).st_mode & (stat.S_IWGRP | stat.S_IWOTH):
        for entry in _entries_in(room, kind):
            if _begins_with(room, entry.name, _HEADS[kind]):
                _remove(room, entry.name)


def _refuse_strangers(status: os.stat_result, *, may_be_shared: bool = False) -> None:
    """Refuse what belongs to another user, or what other users may write.

    The folder around all may belong to the system, and be shared if users cannot move files of others, as in
    /tmp.

    Raises:
        PermissionError: it does, or they may.
    """
    owners = {os.geteuid(), 0} if may_be_shared else {os.geteuid()}
    if status.st_uid not in owners:
        raise PermissionError(1, "it belongs to another user")
    is_sticky = may_be_shared and status.st_mode & stat.S_ISVTX
    if status.st_mode & (stat.S_IWGRP | stat.S_IWOTH) and not is_sticky:
        raise PermissionError(1, "other users may write it")


def user_cache() -> Cache:
    """Return the cache of the user, at $WALLSCOPE_CACHE_DIR or where the system keeps caches, with its limit.

    Raises:
        OptionError: the size cannot be read.
    """
    named = os.environ.get(CACHE_FOLDER)
    if named:
        folder = Path(named).absolute()
    else:
        from platformdirs import user_cache_path  # noqa: PLC0415  # takes longer than all else here

        folder = user_cache_path("wallscope", appauthor=False)
    text = os.environ.get(_SIZE)
    return Cache(folder, _size_bytes(text) if text else _DEFAULT_BYTES)


def _size_bytes(text: str) -> int:
    """Return bytes from a spelling: `500M`, `4 GiB`, `0`."""
    found = re.fullmatch(r"\s*(\d{1,15})\s*([KMGT]?)(?:i?B)?\s*", text, re.IGNORECASE)
    if found is None:
        raise OptionError(f"{_SIZE}={text[:40]} — is not a size — write {_SIZE}=4G")
    return int(found[1]) << 10 * _POWERS[found[2].upper()]


def _content(room: int, name: str) -> bytes:
    """Return all of a regular file of an open folder, which is marked as used."""
    with os.fdopen(os.open(name, _OPENED, dir_fd=room), "rb") as stream:
        status = os.fstat(stream.fileno())
        if not stat.S_ISREG(status.st_mode) or status.st_size > _MOST_BYTES:
            return b""
        _refuse_strangers(status)
        with suppress(OSError):
            os.utime(stream.fileno())
        return stream.read()


def _begins_with(room: int, name: str, head: bytes) -> bool:
    """Return whether a file of an open folder begins so."""
    with os.fdopen(os.open(name, _OPENED, dir_fd=room), "rb") as stream:
        return stream.read(len(head)) == head


def _write_entry(room: int, name: str, content: bytes) -> None:
    aside = f"{ASIDE}{os.urandom(8).hex()}"
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC
    try:
        with os.fdopen(os.open(aside, flags, 0o600, dir_fd=room), "wb") as stream:
            stream.write(content)
        os.replace(aside, name, src_dir_fd=room, dst_dir_fd=room)
    except BaseException:
        _remove(room, aside)
        raise


def _seal(content: bytes, name: str) -> bytes:
    return _MAGIC + _hash_entry(content, name) + b"\n" + content


def _unseal(sealed: bytes, name: str) -> bytes | None:
    head, newline, content = sealed.partition(b"\n")
    return content if newline and head == _MAGIC + _hash_entry(content, name) else None


def _hash_entry(content: bytes, name: str) -> bytes:
    digest = hashlib.blake2b(f"{name}\n".encode(), digest_size=32)
    digest.update(content)
    return digest.hexdigest().encode()


def _log(folder: Path, error: OSError) -> None:
    logging.getLogger(__name__).info("going on without the cache %s: %s", folder, error.strerror)
