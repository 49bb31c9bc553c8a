"""A store behind a URL, by fsspec and whatever plugin the user has for its protocol.

Object stores show all of an object or nothing. Where a plugin writes files piece by piece, they are written
aside and moved; such places may hold links, which are refused.
"""

from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from datetime import UTC, datetime
from typing import TYPE_CHECKING
from uuid import uuid4

from wallscope.errors import StoreError
from wallscope.store.folder import ASIDE
from wallscope.urls import describe_failure, redact_url

if TYPE_CHECKING:
    from fsspec import AbstractFileSystem

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
            raise StoreError(
                f"{self.url} — a store behind a URL needs fsspec — pip install fsspec"
            ) from error
        with self._explained(
            f"{self.url} — cannot be opened", "check the URL, and that its fsspec plugin is installed"
        ):
            self.system: AbstractFileSystem
            self.system, root = url_to_fs(self._named)
        self.root = str(root).rstrip("/")

    def __str__(self) -> str:
        return self.url

    def write(self, name: str, content: bytes) -> None:
        """Write an object whole; a killed writer leaves what was there.

        Raises:
            StoreError: it cannot be written.
        """
        path = self._path(name)
        with self._explained(f"{self.url}/{name} — cannot be written", "give another --store"):
            if _puts_whole(self.system):
                self.system.pipe_file(path, content)
                return
            self._refuse_links((name,))
            folder, _, last = path.rpartition("/")
            aside = f"{folder}/{ASIDE}{uuid4().hex}-{last}"
            self.system.makedirs(folder, exist_ok=True)
            self.system.pipe_file(aside, content)
            self.system.mv(aside, path)

    def read(self, name: str) -> bytes:
        """All of an object.

        Raises:
            StoreError: it cannot be read.
        """
        with self._explained(f"{self.url}/{name} — cannot be read", "record the run again"):
            self._refuse_links((name,))
            return bytes(self.system.cat_file(self._path(name)))

    def read_all(self, names: Iterable[str]) -> dict[str, bytes]:
        """All of some objects, side by side where the plugin can; one deleted in the meantime is left out.

        Raises:
            StoreError: one cannot be read.
        """
        wanted = list(names)
        with self._explained(f"{self.url} — cannot be read", "check the URL and your rights there"):
            self._refuse_links(wanted)
            ends = [None] * len(wanted)
            paths = [self._path(name) for name in wanted]
            found = self.system.cat_ranges(paths, ends, ends, on_error="return") if wanted else []
            for content in found:
                if isinstance(content, Exception) and not isinstance(content, _ABSENT):
                    raise content
        return {
            name: bytes(content)
            for name, content in zip(wanted, found, strict=True)
            if not isinstance(content, Exception)
        }

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
            StoreError: the store cannot be listed.
        """
        with self._explained(f"{self.url} — cannot be listed", "check the URL and your rights there"):
            self.system.invalidate_cache()
            return tuple(sorted(self._listed("")))

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
        with self._explained(f"{self.url}/{name} — cannot be deleted", "give another --store"):
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
            for place, part in enumerate(parts):
                below = "/".join(parts[:place])
                if below not in around:
                    around[below] = self._listed(below)
                if _is_link(around[below].get(part, {})):
                    raise self._link("/".join(parts[: place + 1]))

    def _link(self, name: str) -> StoreError:
        return StoreError(
            f"{self.url}/{name} — is a link, and a store follows none — remove it, or give another --store"
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
