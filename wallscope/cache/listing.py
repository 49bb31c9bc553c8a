"""What lies in a folder of the cache: entries, and what killed writers left. Nothing else is touched."""

import os
import re
import stat
import time
from dataclasses import dataclass

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


def entries_in(room: int, kind: str) -> list[Entry]:
    """The entries in an open folder: regular files that bear a name of ours; links are none."""
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


def remove(room: int, name: str) -> bool:
    """Remove a file of an open folder; whether it was there."""
    try:
        os.unlink(name, dir_fd=room)
    except FileNotFoundError:
        return False
    return True


def sweep(room: int) -> None:
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
                remove(room, name)
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
