"""Which exports are meant by files, folders and patterns."""

import glob
import re
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TypeVar

from wallscope.errors import InputError
from wallscope.files import real
from wallscope.jobs.remote import Source, Url, list_files

_EXPORTS = (".sqlite", ".sqlite3")
_REPORTS = (".nsys-rep", ".qdrep")
_ANSWERS = (".json",)
_TABLES = (".parquet", ".arrow")
_Entry = TypeVar("_Entry", Path, Url)


def is_many(paths: Sequence[Source]) -> bool:
    """Return whether several exports are asked for: several paths, a folder, a pattern, or answers."""
    (first, *others) = paths
    if others or first.suffix in _ANSWERS:
        return True
    if isinstance(first, Url):
        return not _is_file(first)
    return _holds_exports(first) or _is_pattern(first)


def find_exports(paths: Sequence[Source]) -> tuple[Source, ...]:
    """Return the exports, in the order given; those of a folder or pattern by name, numbers by value.

    A folder stands for the exports in it; for the reports where it has none, and for the answers in JSON
    where it has neither. The same file given twice counts once.

    Raises:
        InputError: a folder holds no export, a pattern matches nothing, or a URL cannot be listed.
    """
    found: dict[Source, Source] = {}
    for path in paths:
        for export in _url_exports(path) if isinstance(path, Url) else _exports(path):
            found.setdefault(export if isinstance(export, Url) else real(export), export)
    return tuple(found.values())


def _url_exports(url: Url) -> list[Url]:
    """Return the exports that a URL means: itself, what fits its pattern, or what lies in its folder."""
    if _is_file(url):
        return [url]
    entries = sorted(list_files(url), key=_natural)
    if url.is_pattern and not entries:
        raise InputError(f"{url} — matches no file — check the pattern")
    found = entries if url.is_pattern else _first_kind(entries)
    if not found:
        raise InputError(f"{url} — holds no export — give a folder of .sqlite exports")
    return found


def _is_file(url: Url) -> bool:
    return url.suffix in (*_EXPORTS, *_REPORTS, *_ANSWERS) and not url.is_pattern


def _exports(path: Path) -> Iterator[Path]:
    if _is_pattern(path):
        matches = sorted(map(Path, glob.glob(str(path), recursive=True)), key=_natural)  # noqa: PTH207  # absolute patterns too
        if not matches:
            raise InputError(f"{path} — matches no file — check the pattern")
        yield from matches
    elif _holds_exports(path):
        yield from _inside(path)
    elif path.is_dir() and not _is_export_folder(path):
        raise InputError(f"{path} — holds no export — give a folder of .sqlite exports")
    else:
        yield path


def _is_pattern(path: Path) -> bool:
    return glob.has_magic(str(path)) and not path.exists()


def _holds_exports(path: Path) -> bool:
    return path.is_dir() and not _is_export_folder(path) and bool(_inside(path))


def _is_export_folder(path: Path) -> bool:
    return path.is_dir() and any(entry.suffix in _TABLES for entry in path.iterdir())


def _inside(folder: Path) -> list[Path]:
    entries = sorted(folder.iterdir(), key=_natural)
    exports = [entry for entry in entries if entry.suffix in _EXPORTS or _is_export_folder(entry)]
    return exports or _first_kind(entries)


def _first_kind(entries: Sequence[_Entry]) -> list[_Entry]:
    """Return the exports; the reports where there are none, the answers where there are neither."""
    kinds = ([entry for entry in entries if entry.suffix in kind] for kind in (_EXPORTS, _REPORTS, _ANSWERS))
    return next((found for found in kinds if found), [])


def _natural(path: Source) -> tuple[list[tuple[int, str]], str]:
    """Return names in order, the numbers in them by value.

    >>> sorted([Path("r10.sqlite"), Path("r9.sqlite")], key=_natural)[0].name
    'r9.sqlite'
    """
    parts = re.split(r"(\d+)", str(path))
    return [(int(part), "") if part.isdecimal() else (0, part) for part in parts], str(path)
