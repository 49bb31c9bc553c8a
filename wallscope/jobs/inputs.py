"""Which exports and traces a job or a side of a comparison consists of: files, folders, patterns and URLs.

SQLite wants a file of this machine, so what is behind a URL is fetched. A process holds one copy at most, and
removes it; what killed ones left is removed by the next that fetches. Credentials are those that fsspec's
plugins find.
"""

import fcntl
import glob
import os
import re
import shutil
import tempfile
import time
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, suppress
from dataclasses import field, replace
from fnmatch import fnmatchcase
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from wallscope.cache_folder import Cache
from wallscope.errors import ComparisonError, InputError, WallscopeError
from wallscope.extras import name_install_command
from wallscope.files import resolve_path
from wallscope.kineto.trace_bytes import has_trace_keys
from wallscope.model.capture import CAPTURE_RECORDS, Options, Progress
from wallscope.records import dataclass
from wallscope.units import size
from wallscope.urls import describe_failure, is_url, redact_url, strip_local

if TYPE_CHECKING:
    from fsspec import AbstractFileSystem

    from wallscope.jobs.answers import RenderedAnalysis
    from wallscope.model.profile import Profile


_EXPORTS = (".sqlite", ".sqlite3")
_REPORTS = (".nsys-rep", ".qdrep")
_ANSWERS = (".json",)
_TRACES = (".json.gz", ".trace.json")
"""How names of PyTorch's traces end; a plain .json is one by its content."""
_TABLES = (".parquet", ".arrow")
_COMPARED = (".nsys-rep", ".sqlite", ".json.gz", ".json")
"""Of a capture that is there in several forms the last is compared."""
_ASIDE = "wallscope-fetched-"
_LEFT = re.compile(f"{_ASIDE}[a-z0-9_]{{8}}")  # as tempfile names folders
_GRACE_S = 60
_VERSIONS = (
    *("ETag", "etag", "e_tag", "md5Hash", "content_md5", "Content-MD5", "Digest", "generation", "VersionId"),
    *("LastModified", "last_modified", "Last-Modified", "updated", "mtime", "modified", "created"),
)
"""What plugins call that which changes with the content, in `info`."""


@dataclass(frozen=True, slots=True)
class Url:
    """Where an export is that is not on this machine."""

    text: str = field(repr=False)

    @property
    def name(self) -> str:
        """The last part of the path."""
        return str(self).rstrip("/").rpartition("/")[2]

    @property
    def suffix(self) -> str:
        """The end of the name, from its last dot on."""
        return Path(self.name).suffix

    @property
    def is_pattern(self) -> bool:
        """Whether it stands for all files that fit it."""
        return glob.has_magic(str(self).partition("://")[2].partition("/")[2])

    def absolute(self) -> "Url":
        """Return itself: it does not depend on the folder that one is in."""
        return self

    def __str__(self) -> str:
        return redact_url(self.text)


Source = Path | Url
_Entry = TypeVar("_Entry", Path, Url)


def parse_source(named: str) -> Source:
    """Return the file or URL that a user names.

    >>> parse_source("file:///runs/a.sqlite"), parse_source("s3://runs/a.sqlite").name
    (PosixPath('/runs/a.sqlite'), 'a.sqlite')
    """
    named = strip_local(named)
    return Url(named) if is_url(named) else Path(named)


def list_files(url: Url) -> tuple[Url, ...]:
    """Return the files that a pattern of URLs means, or that lie in a folder, in no order.

    Raises:
        InputError: it cannot be listed.
    """
    with _explain_errors(url, "cannot be listed"):
        system, root = _open_url(url)
        found = system.glob(root) if url.is_pattern else system.ls(root, detail=False)
        text = url.text.rstrip("/")
        prefix = text.removesuffix(root) if text.endswith(root) else None
        return tuple(
            Url(system.unstrip_protocol(path) if prefix is None else f"{prefix}{path}")
            for path in map(str, found)
        )


def url_version(url: Url) -> list[str] | None:
    """Return what identifies the content of a URL; `None` where its plugin knows the size alone.

    Raises:
        InputError: it cannot be asked.
    """
    with _explain_errors(url, "cannot be read"):
        system, root = _open_url(url)
        system.invalidate_cache()
        found: dict[str, Any] = system.info(root)
    known = [f"{name}={found[name]}" for name in _VERSIONS if found.get(name) is not None]
    return [url.text, f"size={found.get('size')}", *known] if known else None


@contextmanager
def fetch_source(source: Source) -> Iterator[Path]:
    """Yield the file itself, or a copy of what is behind a URL, which is removed in the end.

    Raises:
        InputError: it cannot be fetched whole, or there is no room for it.
        WallscopeError: what the block raises, the copy named by its URL.
    """
    if isinstance(source, Path):
        yield source
        return
    scratch = Path(tempfile.gettempdir())
    _sweep_scratch(scratch)
    with tempfile.TemporaryDirectory(prefix=_ASIDE, dir=scratch) as folder:
        lock = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
        try:
            fcntl.flock(lock, fcntl.LOCK_EX)
            copy = Path(folder) / source.name
            _fetch(source, copy)
            yield copy
        except WallscopeError as error:
            parts = (str(part).replace(str(copy), str(source)) for part in error.args)
            raise type(error)(*parts) from error
        finally:
            os.close(lock)


def load_or_analyze_source(  # noqa: PLR0913  # what is asked for
    source: Source,
    options: Options,
    progress: Progress,
    cache: Cache | None,
    *,
    with_page: bool = False,
    with_timeline: bool = False,
    with_details: bool = True,
) -> "RenderedAnalysis":
    """Return the answer for one export, wherever it is; it is fetched only if its answer is not kept.

    Raises:
        WallscopeError: one of its children, each with a line for the user.
    """
    from wallscope.jobs.answers import (  # noqa: PLC0415  # workers load it, not who starts them
        answer_key_of_version,
        load_or_analyze,
        load_or_analyze_copy,
    )

    if isinstance(source, Path):
        return load_or_analyze(
            source,
            options,
            progress,
            cache,
            with_page=with_page,
            with_timeline=with_timeline,
            with_details=with_details,
        )

    def name() -> str | None:
        version = url_version(source)
        return None if version is None else answer_key_of_version(source.name, version, options)

    def copied() -> AbstractContextManager[Path]:
        progress(f"fetching {source.name}")
        return fetch_source(source)

    return load_or_analyze_copy(
        name,
        copied,
        options,
        progress,
        cache,
        with_page=with_page,
        with_timeline=with_timeline,
        with_details=with_details,
    )


def _fetch(url: Url, copy: Path) -> None:
    with _explain_errors(url, "cannot be read"):
        system, root = _open_url(url)
        size_bytes = system.info(root).get("size")
        if size_bytes is not None:
            _check_room(url, copy.parent, int(size_bytes))
        system.get_file(root, str(copy))
    if size_bytes is not None and copy.stat().st_size != size_bytes:
        raise InputError(
            f"{url} — {size(copy.stat().st_size)} of {size(int(size_bytes))} arrived — try again"
        )


def _check_room(url: Url, folder: Path, size_bytes: int) -> None:
    free_bytes = shutil.disk_usage(folder).free
    if size_bytes > free_bytes:
        raise InputError(
            f"{url} — takes {size(size_bytes)} for as long as it is read, {size(free_bytes)} are left in"
            f" {folder.parent} — make room, or set TMPDIR"
        )


def _sweep_scratch(scratch: Path) -> None:
    """Remove leftovers of killed processes of this user: folders without a lock."""
    for folder in scratch.glob(f"{_ASIDE}*"):
        with suppress(OSError):
            status = folder.lstat()
            if (
                _LEFT.fullmatch(folder.name) is None
                or status.st_uid != os.geteuid()
                or time.time() - status.st_mtime < _GRACE_S
            ):
                continue
            lock = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                shutil.rmtree(folder)
            finally:
                os.close(lock)


def _open_url(url: Url) -> "tuple[AbstractFileSystem, str]":
    try:
        from fsspec.core import url_to_fs  # noqa: PLC0415  # an extra
    except ImportError as error:
        command = name_install_command("remote", "fsspec")
        raise InputError(f"{url} — an export behind a URL needs fsspec — {command}") from error
    system, root = url_to_fs(url.text)
    return system, str(root)


@contextmanager
def _explain_errors(url: Url, what: str) -> Iterator[None]:
    """Turn whatever a plugin raises into an error of one line."""
    try:
        yield
    except InputError:
        raise
    except Exception as error:  # plugins raise what the clients below them raise
        hint = "check the URL, your rights, and that its fsspec plugin is installed"
        raise InputError(f"{url} — {what}: {describe_failure(error, url.text)} — {hint}") from error


def is_many(paths: Sequence[Source]) -> bool:
    """Return whether several exports are asked for: several paths, a folder, a pattern, or answers."""
    (first, *others) = paths
    if others or is_answer(first):
        return True
    if isinstance(first, Url):
        return not _is_file(first)
    return _holds_exports(first) or _is_pattern(first) or _holds_records_alone(first)


def is_answer(source: Source) -> bool:
    """Return whether a name is that of an answer in JSON, and the file, if it is here, no trace."""
    if source.suffix not in _ANSWERS or _is_trace_name(source.name):
        return False
    return isinstance(source, Url) or not has_trace_keys(source)


def _is_trace_name(name: str) -> bool:
    return name.lower().endswith(_TRACES)


def find_exports(paths: Sequence[Source]) -> tuple[Source, ...]:
    """Return the exports, in the order given; those of a folder or pattern by name, numbers by value.

    A folder stands for the exports in it; where it has none for the reports, else for PyTorch's traces, else
    for the answers in JSON. The same file given twice counts once.

    Raises:
        InputError: a folder holds no export, a pattern matches nothing, or a URL cannot be listed.
    """
    found: dict[Source, Source] = {}
    for path in paths:
        for export in _url_exports(path) if isinstance(path, Url) else _exports(path):
            found.setdefault(export if isinstance(export, Url) else resolve_path(export), export)
    return tuple(found.values())


def list_input_files(paths: Sequence[Source]) -> list[Path]:
    """Return the paths of this machine that are meant, patterns as what fits them."""
    found: list[Path] = []
    for path in paths:
        if isinstance(path, Path):
            found += map(Path, glob.glob(str(path), recursive=True)) if _is_pattern(path) else [path]  # noqa: PTH207  # absolute patterns too
    return found


def _url_exports(url: Url) -> list[Url]:
    """Return the exports that a URL means: itself, what fits its pattern, or what lies in its folder."""
    if _is_file(url):
        return [url]
    entries = sorted(list_files(url), key=_natural_key)
    if url.is_pattern and not entries:
        raise InputError(f"{url} — matches no file — check the pattern")
    found = entries if url.is_pattern else _first_kind(entries)
    if not found:
        raise _explain_absence(url, entries)
    return found


def _is_file(url: Url) -> bool:
    is_known = url.suffix in (*_EXPORTS, *_REPORTS, *_ANSWERS) or _is_trace_name(url.name)
    return is_known and not url.is_pattern


def _exports(path: Path) -> Iterator[Path]:
    if _is_pattern(path):
        matches = sorted(map(Path, glob.glob(str(path), recursive=True)), key=_natural_key)  # noqa: PTH207  # absolute patterns too
        if not matches:
            raise InputError(f"{path} — matches no file — check the pattern")
        yield from matches
    elif _holds_exports(path):
        yield from _list_exports_in(path)
    elif path.is_dir() and not _is_export_folder(path):
        raise _explain_absence(path, path.iterdir())
    else:
        yield path


def _is_pattern(path: Path) -> bool:
    return glob.has_magic(str(path)) and not path.exists()


def _holds_exports(path: Path) -> bool:
    return path.is_dir() and not _is_export_folder(path) and bool(_list_exports_in(path))


def _holds_records_alone(path: Path) -> bool:
    """Whether a folder is that of a captured program which has no report."""
    return path.is_dir() and not _is_export_folder(path) and any(map(_is_record, path.iterdir()))


def _is_export_folder(path: Path) -> bool:
    return path.is_dir() and any(entry.suffix in _TABLES for entry in path.iterdir())


def _list_exports_in(folder: Path) -> list[Path]:
    entries = sorted(folder.iterdir(), key=_natural_key)
    exports = [entry for entry in entries if entry.suffix in _EXPORTS or _is_export_folder(entry)]
    return exports or _first_kind(entries)


def _first_kind(entries: Sequence[_Entry]) -> list[_Entry]:
    """Return the exports; where there are none the reports, else the traces, else the answers."""
    others = ([entry for entry in entries if entry.suffix in kind] for kind in (_EXPORTS, _REPORTS))
    found = next((kind for kind in others if kind), [])
    return (
        found
        or [entry for entry in entries if _is_trace(entry)]
        or [entry for entry in entries if entry.suffix in _ANSWERS and not _is_record(entry)]
    )


def _is_record(entry: _Entry) -> bool:
    """Whether a name is that of the record of a captured program."""
    return fnmatchcase(entry.name, CAPTURE_RECORDS.format(host="*"))


def _explain_absence(place: Source, entries: Iterable[_Entry]) -> InputError:
    """Return the error of a folder in which nothing can be analyzed."""
    if any(map(_is_record, entries)):
        return InputError(
            f"{place} — holds the record of a capture, and neither its report nor its trace — capture again;"
            " if there is a log of nsys in the folder, it may say why"
        )
    return InputError(f"{place} — holds no export — give a folder of .sqlite exports or PyTorch traces")


def _is_trace(entry: Source) -> bool:
    if isinstance(entry, Url) or _is_trace_name(entry.name):
        return _is_trace_name(entry.name)
    return entry.suffix in _ANSWERS and has_trace_keys(entry)


def _natural_key(path: Source) -> tuple[list[tuple[int, str]], str]:
    """Return names in order, the numbers in them by value.

    >>> sorted([Path("r10.sqlite"), Path("r9.sqlite")], key=_natural_key)[0].name
    'r9.sqlite'
    """
    parts = re.split(r"(\d+)", str(path))
    return [(int(part), "") if part.isdecimal() else (0, part) for part in parts], str(path)


def find_captures(named: str) -> tuple[Path, ...]:
    """The exports and answers that a path or a pattern names, in order of name.

    Raises:
        ComparisonError: there is none.
    """
    path = Path(strip_local(named))
    if is_url(named) and not path.exists():
        raise ComparisonError(
            f"{redact_url(named)} — is a URL, and files of this machine alone are compared — analyze it with"
            " --json, and give the answer"
        )
    if not path.exists() and glob.has_magic(named):
        anchor = Path(path.anchor)
        found = sorted(anchor.glob(str(path.relative_to(anchor))))
        if not found:
            raise ComparisonError(f"{named} — no file fits it — check the pattern")
        return tuple(found)
    if path.is_dir():
        entries = [
            entry
            for entry in sorted(path.iterdir())
            if (entry.suffix in _COMPARED or entry.name.endswith(".json.gz")) and not _is_record(entry)
        ]
        return _drop_repeated_captures(entries) or (path,)
    return (path,)


def _drop_repeated_captures(found: list[Path]) -> tuple[Path, ...]:
    """Of a capture that is there as answer, export and report, the first of these."""
    best = {entry.stem: entry for suffix in _COMPARED for entry in found if entry.name.endswith(suffix)}
    return tuple(entry for entry in found if best[entry.stem] == entry)


def resolve_runs(
    paths: tuple[Path, ...], options: Options, progress: Progress, cache: Cache | None = None
) -> "tuple[tuple[Profile, ...], ...]":
    """Return the runs of some captures, each with the profiles of its ranks.

    The captures of one rank are runs, in order of their start; those of different ranks belong together.
    Each profile has the recommendations for its capture.

    Raises:
        WallscopeError: a capture cannot be read, or some ranks have more runs than others.
    """
    from wallscope.jobs.answers import load_or_analyze  # noqa: PLC0415  # keeps --help fast
    from wallscope.profile.codec import read_profiles, unpack_profile  # noqa: PLC0415  # keeps --help fast
    from wallscope.profile.recorded_fixes import record_fixes  # noqa: PLC0415  # same

    by_rank: dict[tuple[int | None, int | None], list[Profile]] = defaultdict(list)
    for path in paths:
        if is_answer(path):
            found = read_profiles(path)
        else:
            analysis = load_or_analyze(path, options, progress, cache).analysis
            fixes = record_fixes(analysis.fixes or ())
            found = tuple(
                replace(unpack_profile(rank.profile, str(path)), fixes=fixes)
                for rank in analysis.ranks
                if rank.profile is not None
            )
        for number, profile in enumerate(found):
            rank = profile.header.rank
            by_rank[(rank, None) if rank is not None else (None, number)].append(profile)
    counts = {len(profiles) for profiles in by_rank.values()}
    if len(counts) > 1:
        spelled = ", ".join(
            f"rank {rank if rank is not None else number}: {len(profiles)}"
            for (rank, number), profiles in by_rank.items()
        )
        raise ComparisonError(
            f"{paths[0].parent} — ranks have different numbers of captures ({spelled}) — give as many of each"
        )
    ordered = [sorted(profiles, key=_session_start) for profiles in by_rank.values()]
    return tuple(zip(*ordered, strict=True))


def _session_start(profile: "Profile") -> tuple[int, str]:
    first = profile.header.inputs[0]
    return (first.session_start_utc_ns or 0, first.name)
