"""Which exports are meant by files, folders and patterns."""

import glob
import re
from collections.abc import Iterator, Sequence
from pathlib import Path

from wallscope.errors import InputError
from wallscope.files import real

_EXPORTS = (".sqlite", ".sqlite3")
_REPORTS = (".nsys-rep", ".qdrep")
_TABLES = (".parquet", ".arrow")


def is_many(paths: Sequence[Path]) -> bool:
    """Whether several exports are asked for: several paths, a folder of exports, or a pattern."""
    (first, *others) = paths
    return bool(others) or _holds_exports(first) or _is_pattern(first)


def exports_of(paths: Sequence[Path]) -> tuple[Path, ...]:
    """The exports, in the order given; those of a folder or pattern by name, numbers by value.

    A folder stands for the exports in it, for the reports where it has none. The same file given twice
    counts once.

    Raises:
        InputError: a folder holds no export, or a pattern matches nothing.
    """
    found: dict[Path, Path] = {}
    for path in paths:
        for export in _exports(path):
            found.setdefault(real(export), export)
    return tuple(found.values())


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
    return exports or [entry for entry in entries if entry.suffix in _REPORTS]


def _natural(path: Path) -> tuple[list[tuple[int, str]], str]:
    """Names in order, the numbers in them by value.

    >>> sorted([Path("r10.sqlite"), Path("r9.sqlite")], key=_natural)[0].name
    'r9.sqlite'
    """
    parts = re.split(r"(\d+)", str(path))
    return [(int(part), "") if part.isdecimal() else (0, part) for part in parts], str(path)
