"""Where a store is: a folder, or a URL that fsspec knows."""

import re
from collections.abc import Iterable
from pathlib import Path
from typing import Protocol

from wallscope.store.files import Folder
from wallscope.store.remote import Remote

_URL = re.compile(r"[a-zA-Z][a-zA-Z0-9+.-]*(?:://|::)")
_LOCAL = ("file://", "local://")


class Place(Protocol):
    """Files by name that appear whole or not at all; `Folder` and `Remote` say how each fails.

    A link is never followed: whatever meets one raises a `StoreError`.
    """

    def write(self, name: str, content: bytes) -> None:
        """Write a file whole."""

    def read(self, name: str) -> bytes:
        """All of a file."""

    def read_all(self, names: Iterable[str]) -> dict[str, bytes]:
        """All of some files; one that is gone is left out."""

    def has(self, name: str) -> bool:
        """Whether a file is there."""

    def top(self) -> tuple[str, ...]:
        """The names of files and folders in the place itself, sorted."""

    def names(self, below: str) -> tuple[str, ...]:
        """The files below a folder, sorted."""

    def mtime_s(self, name: str) -> float | None:
        """When a file was written; `None` where it is gone or nothing tells it."""

    def delete(self, name: str) -> None:
        """Delete a file if it is there."""


def place_of(where: str) -> Place:
    """The folder or URL that a user names.

    >>> str(place_of("file:///srv/records")), str(place_of("records"))
    ('/srv/records', 'records')
    """
    for scheme in _LOCAL:
        if where.startswith(scheme):
            return Folder(Path(where.removeprefix(scheme)))
    return Remote(where) if _URL.match(where) else Folder(Path(where))
