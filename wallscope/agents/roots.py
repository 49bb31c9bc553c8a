"""The folders that the server may read: every path that a client names is resolved and checked against them.

What is outside is refused with the same words whether it exists or not: an answer reveals nothing about it.
"""

import os
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from wallscope.errors import InputError, OptionError
from wallscope.render.texts import visible

_COMPANIONS = ("-wal", "-journal", "-shm")
_MOST_ENTRIES, _DEPTH = 10_000, 3
_LONGEST_NAME = 200


@dataclass(frozen=True, slots=True)
class Located:
    """A file or folder below a root: the path as the client named it, and what it is, links resolved."""

    named: str
    path: Path


@dataclass(frozen=True, slots=True)
class Roots:
    """Folders, links resolved; a relative path is looked for in each of them in turn."""

    folders: tuple[Path, ...]

    def locate(self, named: str) -> Located:
        """Return the file or folder that a client names.

        Raises:
            InputError: it lies outside all folders, does not exist, or leads out of them.
        """
        for folder in self.folders:
            try:
                path = (folder / named).resolve(strict=True)
            except (OSError, RuntimeError, ValueError):
                continue
            if self._holds(path) and (path.is_file() or path.is_dir()):
                self._check_inside(path, named)
                return Located(named, path)
        raise InputError(_refuse(named))

    def hide(self, text: str) -> str:
        """Return the text without the location of the folders.

        >>> Roots((Path("/data"),)).hide("/data/run.sqlite of /data, host/data-loading")
        'run.sqlite of ., host/data-loading'
        """
        for folder in sorted(map(str, self.folders), key=len, reverse=True):
            if folder.strip(os.sep):
                whole = rf"(?<![\w./-]){re.escape(folder)}"
                text = re.sub(rf"{whole}{re.escape(os.sep)}(?=[\w.])", "", text)
                text = re.sub(rf"{whole}(?![\w.-])", ".", text)
        return text

    def _holds(self, path: Path) -> bool:
        return any(path.is_relative_to(folder) for folder in self.folders)

    def _check_inside(self, path: Path, named: str) -> None:
        """Refuse a file or folder with a link that leads out, next to it or in it.

        Raises:
            InputError: there is one, or too much to look at.
        """
        companions = (Path(f"{path}{end}") for end in _COMPANIONS) if path.is_file() else ()
        for count, entry in enumerate((*companions, *(_walk(path) if path.is_dir() else ()))):
            if count >= _MOST_ENTRIES:
                raise InputError(f"{visible(named)} — holds too many files — name the exports")
            if entry.is_symlink() and not self._holds(Path(os.path.realpath(entry))):
                raise InputError(_refuse(named))


def open_roots(named: Sequence[Path]) -> Roots:
    """Return the folders that the user names, links resolved.

    Raises:
        OptionError: one is not a folder.
    """
    for folder in named:
        if not folder.is_dir():
            raise OptionError(f"{folder} — is not a folder — name the folders that agents may read")
    return Roots(tuple(dict.fromkeys(folder.resolve() for folder in named)))


def _walk(folder: Path) -> Iterator[Path]:
    """List what a folder holds as deep as exports lie, links not followed."""
    for at, folders, files in os.walk(folder):
        yield from (Path(at, name) for name in (*folders, *files))
        if len(Path(at).relative_to(folder).parts) >= _DEPTH:
            folders.clear()


def _refuse(named: str) -> str:
    shown = visible(named, most=_LONGEST_NAME)
    return f"{shown} — is not a file below the folders of this server — name one that is"
