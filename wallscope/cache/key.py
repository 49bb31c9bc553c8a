"""The key of an answer: all that decides it, in one digest.

The program itself (all its files), the libraries it works with, the export, and the options with the content
of the files that they name.
"""

import hashlib
import json
import os
import shutil
import stat
import sys
from collections.abc import Iterator, Sequence
from dataclasses import asdict
from functools import cache
from pathlib import Path

from wallscope._version import __version__
from wallscope.cache_folder import fingerprint_file
from wallscope.model.analysis import SCHEMA
from wallscope.model.options import Options

_SQLITE = b"SQLite format 3\x00"
_COMPANIONS = ("-wal", "-journal")
_LIBRARIES = ("jinja2", "msgspec", "numpy", "plotly", "polars", "pydantic", "pyyaml")
_MOST_TABLES, _LARGEST_TEXT = 1_000, 64 << 20


def answer_key(path: Path, options: Options) -> str | None:
    """Return the key of the answer to `options` about the export at `path`; `None` without a readable file.

    The key of a file includes base name, size, time of change to the nanosecond, up to 64 blocks of the
    content, and a log or journal next to it. Its folder is not included. A change that keeps size, time and
    those blocks is not noticed. Neither SQLite nor nsys writes in this way. Anyone who patches bytes and
    resets the time must use --no-cache.
    """
    try:
        return _digest(path.name, _folder(path) if path.is_dir() else _file(path), options)
    except (OSError, ValueError):
        return None


def answer_key_of_version(name: str, version: list[str], options: Options) -> str | None:
    """Return the same for an export that is not on this machine, with the version that its URL has."""
    try:
        return _digest(name, version, options)
    except (OSError, ValueError):
        return None


def _digest(name: str, content: Sequence[object], options: Options) -> str:
    known = [
        _program(),
        _libraries(),
        name,
        content,
        options.step_range,
        asdict(options.selection),
        sorted(options.streams.items()),
        asdict(options.step_facts),
        options.reader,
        options.python_functions,
        *(_read_named_file(file) for file in (options.kernels, options.configuration)),
    ]
    return hashlib.blake2b(json.dumps(known).encode(), digest_size=20).hexdigest()


def _file(path: Path) -> list[object]:
    """Return what identifies a file, what lies next to it, and for a report the nsys that exports it."""
    known = _describe_file(path)
    if not known[0]:
        raise ValueError  # reading some files of the system waits
    for companion in _COMPANIONS:
        companion_file = Path(f"{path}{companion}")
        known.append(_describe_file(companion_file) if companion_file.is_file() else companion_file.exists())
    with path.open("rb") as stream:
        is_database = stream.read(len(_SQLITE)) == _SQLITE
    nsys = None if is_database else shutil.which("nsys")
    return [*known, None if nsys is None else [nsys, *_describe_file(Path(nsys))]]


def _folder(path: Path) -> list[object]:
    """Return each file of a folder, by name.

    Raises:
        ValueError: there are more than an export has, or it holds folders.
    """
    entries = sorted(path.iterdir(), key=lambda entry: entry.name)
    if len(entries) > _MOST_TABLES:
        raise ValueError
    return [[entry.name, *_describe_file(entry)] for entry in entries]


def _describe_file(path: Path) -> list[object]:
    status = path.stat()
    if not stat.S_ISREG(status.st_mode):
        raise ValueError
    return [status.st_size, status.st_mtime_ns, fingerprint_file(path, status.st_size)]


def _read_named_file(path: Path | None) -> list[str] | None:
    """Return a file that an option names, with all of its content: findings may quote either."""
    if path is None:
        return None
    status = path.stat()
    if not stat.S_ISREG(status.st_mode) or not 0 < status.st_size <= _LARGEST_TEXT:
        raise ValueError
    return [str(path), hashlib.blake2b(path.read_bytes()).hexdigest()]


@cache
def _program() -> list[str]:
    """Return version, schema, Python, and a digest of the program's files: a checkout changes in between."""
    digest = hashlib.blake2b(digest_size=20)
    package = Path(__file__).resolve().parent.parent
    companion_file = [package.parent / name for name in ("queries", "reports")]
    for root in (package, *(folder for folder in companion_file if folder.is_dir())):
        for file in _sources(root):
            content = file.read_bytes()
            digest.update(f"{file.relative_to(root).as_posix()} {len(content)}\n".encode())
            digest.update(content)
    return [__version__, SCHEMA, sys.version, digest.hexdigest()]


def _sources(folder: Path) -> Iterator[Path]:
    for at, folders, names in os.walk(folder):
        folders[:] = sorted(set(folders) - {"__pycache__"})
        yield from (Path(at, name) for name in sorted(names))


@cache
def _libraries() -> list[str]:
    """Return names and versions of the libraries that an answer passes through, by their folders."""
    found = set()
    for place in sys.path:
        if os.path.isdir(place):  # noqa: PTH112  # an entry may be empty, or an archive
            with os.scandir(place) as listed:
                found |= {entry.name for entry in listed if entry.name.endswith(".dist-info")}
    return sorted(name for name in found if name.lower().startswith(_LIBRARIES))
