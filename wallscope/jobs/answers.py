"""Kept answers: out of the cache, or computed and kept with the same bytes; or from a user's file.

The key of an answer holds all that decides it: all files of the program, the libraries that it uses and the
export. It also holds the options, with the content of the files that they name.
"""

import hashlib
import json
import os
import shutil
import stat
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import asdict, field, fields, is_dataclass
from enum import Enum
from functools import cache, cached_property, partial
from pathlib import Path
from types import NoneType, UnionType
from typing import TYPE_CHECKING, Any, Literal, Union, get_args, get_origin, get_type_hints

from wallscope._version import __version__
from wallscope.cache_folder import Cache, EntryKind, fingerprint_file
from wallscope.errors import InputError, NothingToAnalyzeError
from wallscope.files import check_json, read_json_bytes, state_schema
from wallscope.kineto.trace_bytes import describe_other_json
from wallscope.model.advice import Framework
from wallscope.model.analysis import SCHEMA, Analysis
from wallscope.model.capture import Finding, Options, Progress, Severity
from wallscope.model.finding_codes import FindingCode
from wallscope.records import dataclass

if TYPE_CHECKING:
    from pydantic import TypeAdapter

    from wallscope.pipeline import AnalyzedCapture


_SQLITE = b"SQLite format 3\x00"
_COMPANIONS = ("-wal", "-journal")
_LIBRARIES = ("jinja2", "msgspec", "numpy", "polars", "pydantic", "pyyaml")
_MOST_TABLES, _LARGEST_TEXT = 1_000, 64 << 20


def answer_key(path: Path, options: Options) -> str | None:
    """Return the key of the answer to `options` about the export at `path`; `None` without a readable file.

    The key of a file includes base name, size, time of change to the nanosecond, up to 64 blocks of the
    content, and a log or journal next to it. Its folder is not included. A change that keeps size, time and
    those blocks is not noticed. Neither SQLite nor nsys writes in this way. Anyone who patches bytes and
    resets the time must use --no-cache.
    """
    try:
        return _hash_inputs(path.name, _describe_folder(path) if path.is_dir() else _file(path), options)
    except (OSError, ValueError):
        return None


def answer_key_of_version(name: str, version: list[str], options: Options) -> str | None:
    """Return the same for an export that is not on this machine, with the version that its URL has."""
    try:
        return _hash_inputs(name, version, options)
    except (OSError, ValueError):
        return None


def _hash_inputs(name: str, content: Sequence[object], options: Options) -> str:
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
        [asdict(one) for one in options.experience],
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


def _describe_folder(path: Path) -> list[object]:
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
    package = Path(__file__).resolve().parents[1]
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


_Reader = Callable[[Any], Any]


def decode_analysis(text: str) -> Analysis:
    """Return the answer that the text spells, which this very program wrote: nothing is checked."""
    found: Analysis = _reader(Analysis)(json.loads(text))
    return found


@cache
def _reader(kind: Any) -> _Reader:
    """Return what makes a value of a type from its JSON.

    >>> _reader(tuple[int, ...])([1, 2]), _reader(tuple[int, str] | None)(None)
    ((1, 2), None)
    """
    if is_dataclass(kind):
        return _of_dataclass(kind)
    origin, parts = get_origin(kind), get_args(kind)
    if origin in (Union, UnionType):
        (known,) = (_reader(part) for part in parts if part is not NoneType)
        return lambda plain: None if plain is None else known(plain)
    if origin is tuple:
        return _of_tuple(parts)
    if origin is Mapping:
        inner = _reader(parts[1])
        return lambda plain: {key: inner(value) for key, value in plain.items()}
    if isinstance(kind, type) and issubclass(kind, Enum):
        return kind
    if origin is Literal or kind in (str, int, float, bool):
        return lambda plain: plain
    raise TypeError(kind)


def _of_dataclass(kind: Any) -> _Reader:
    hints = get_type_hints(kind)
    readers = [(field.name, _reader(hints[field.name])) for field in fields(kind)]
    return lambda plain: kind(*(read(plain[name]) for name, read in readers))


def _of_tuple(parts: tuple[Any, ...]) -> _Reader:
    if parts[-1] is Ellipsis:
        each = _reader(parts[0])
        return lambda plain: tuple(map(each, plain))
    readers = [_reader(part) for part in parts]
    return lambda plain: tuple(read(value) for read, value in zip(readers, plain, strict=True))


@dataclass(frozen=True)
class RenderedAnalysis:
    """An analysis, and where asked for its page or its part of a job's timeline.

    `stored` is its JSON text if it came from the cache.
    """

    analysis: Analysis
    page: str | None = None
    timeline: bytes | None = None
    stored: str | None = field(default=None, compare=False, repr=False)

    @cached_property
    def text(self) -> str:
        """The analysis as JSON text."""
        from wallscope.render.data import write_json  # noqa: PLC0415  # what is printed alone needs none

        return self.stored or write_json(self.analysis)

    @property
    def outline(self) -> str:
        """The analysis as compact JSON text, for this program alone."""
        from wallscope.render.data import write_compact_json  # noqa: PLC0415  # as above

        return write_compact_json(self.analysis)


def load_or_analyze(  # noqa: PLR0913  # what is asked for
    path: Path,
    options: Options,
    progress: Progress,
    cache: Cache | None,
    *,
    with_page: bool = False,
    with_timeline: bool = False,
    with_details: bool = True,
) -> RenderedAnalysis:
    """Return the answer for one export, from the cache or worked out and kept; the page only if asked for.

    Inputs that changed meanwhile, or that cannot be analyzed, are not cached. Without details, as
    `analyze_capture` has them, an answer is kept apart, for others that ask for none.

    Raises:
        WallscopeError: one of its children, each with a line for the user.
    """
    return load_or_analyze_copy(
        partial(answer_key, path, options),
        lambda: nullcontext(path),
        options,
        progress,
        cache,
        with_page=with_page,
        with_timeline=with_timeline,
        with_details=with_details,
    )


def load_limits(
    path: Path, progress: Progress, cache: Cache | None
) -> tuple[tuple[Finding, ...], Framework | None]:
    """Return the findings of an export, and the framework of its program if known.

    An export that holds nothing to analyze has findings too. The answer comes from the cache if it is there.

    Raises:
        WallscopeError: one of its children, each with a line for the user.
    """
    try:
        analysis = load_or_analyze(path, Options(), progress, cache, with_details=False).analysis
    except NothingToAnalyzeError:
        from wallscope.kineto.any_capture import read_any_contents  # noqa: PLC0415  # only what has no answer needs it

        what = "It holds no GPU operation with a valid start and end."
        nothing = Finding(FindingCode.NO_DEVICE_OPERATIONS, Severity.ERROR, what)
        return (nothing, *read_any_contents(path, progress).findings), None
    return analysis.capture.findings, None if analysis.program is None else analysis.program.framework


def load_or_analyze_copy(  # noqa: PLR0913  # as above, and how the copy is named and got
    key_of_input: Callable[[], str | None],
    copied: Callable[[], AbstractContextManager[Path]],
    options: Options,
    progress: Progress,
    cache: Cache | None,
    *,
    with_page: bool = False,
    with_timeline: bool = False,
    with_details: bool = True,
) -> RenderedAnalysis:
    """Return the answer for an export elsewhere: it is copied only if its answer is not in the cache.

    The answer is kept if its key is the same afterwards.

    Raises:
        WallscopeError: one of its children, each with a line for the user.
    """
    name = None if cache is None else key_of_input()
    if cache is not None and name is not None:
        found = _load_kept(
            cache, name, with_page=with_page, with_timeline=with_timeline, with_details=with_details
        )
        if found is not None:
            progress("the answer is in the cache")
            return found
    with copied() as path:
        from wallscope.pipeline import analyze_capture  # noqa: PLC0415  # an answer in the cache needs none

        made = build_answer(
            analyze_capture(path, options, progress, with_details=with_details),
            progress,
            with_page=with_page,
            with_timeline=with_timeline,
        )
    if cache is not None and name is not None and key_of_input() == name:
        if with_details:
            cache.write(EntryKind.ANSWERS, name, made.text.encode())
        else:
            cache.write(EntryKind.OUTLINES, name, made.outline.encode())
        if made.page is not None:
            cache.write(EntryKind.PAGES, name, made.page.encode())
        if made.timeline is not None:
            cache.write(EntryKind.TIMELINES, name, made.timeline)
    return made


def _load_kept(
    cache: Cache, name: str, *, with_page: bool, with_timeline: bool, with_details: bool
) -> RenderedAnalysis | None:
    page = cache.read(EntryKind.PAGES, name) if with_page else None
    timeline = cache.read(EntryKind.TIMELINES, name) if with_timeline else None
    if (with_page and page is None) or (with_timeline and timeline is None):
        return None
    content = cache.read(EntryKind.ANSWERS, name)
    if content is not None:
        text = content.decode()
        return RenderedAnalysis(
            decode_analysis(text), None if page is None else page.decode(), timeline, text
        )
    outline = None if with_details else cache.read(EntryKind.OUTLINES, name)
    return None if outline is None else RenderedAnalysis(decode_analysis(outline.decode()))


def build_answer(
    made: "AnalyzedCapture", progress: Progress, *, with_page: bool, with_timeline: bool = False
) -> RenderedAnalysis:
    """Return the answer that was worked out, with its page or part of a timeline where one is asked for."""
    from wallscope.pipeline import build_report, build_timeline_of_part  # noqa: PLC0415  # cached answers need none

    if not with_page:
        part = build_timeline_of_part(made, progress) if with_timeline else None
        return RenderedAnalysis(made.analysis, timeline=part)
    from wallscope.views.page_analysis import write_analysis_page  # noqa: PLC0415  # only the page needs it

    return RenderedAnalysis(made.analysis, write_analysis_page(build_report(made, progress)))


_NEITHER = "is neither a trace of PyTorch's profiler nor a JSON answer of analyze"
_AGAIN = "make it with `wallscope analyze … --json`"


def read_answer(path: Path) -> Analysis:
    """Return the answer about one export that a file holds.

    Raises:
        InputError: it cannot be read, is none of this version, or is about a job already.
        ProfileError: the profile of a rank is damaged, or of another version.
    """
    try:
        content = read_json_bytes(path, _AGAIN, InputError)
    except OSError as error:
        raise InputError(f"{path} — cannot be read: {error.strerror} — check the path") from error
    return parse_answer(content, str(path), _AGAIN)


@cache
def _analyses() -> "TypeAdapter[Analysis]":
    from pydantic import TypeAdapter  # noqa: PLC0415  # as in `parse_answer`

    return TypeAdapter(Analysis)


def parse_answer(content: bytes, name: str, cure: str) -> Analysis:
    """Return the answer about one export that bytes of somebody else spell.

    Args:
        content: the JSON.
        name: what errors name.
        cure: what errors advise.

    Raises:
        InputError: it is none of this version, or is about a job already.
        ProfileError: the profile of a rank is damaged, or of another version.
    """
    from pydantic import ValidationError  # noqa: PLC0415  # heavy, and only answers need it

    from wallscope.profile.codec import Allowance, unpack_profile  # noqa: PLC0415  # same

    check_json(content, name, cure, InputError)
    try:
        schema = json.loads(content)["schema"]
        if schema != SCHEMA:
            other = describe_other_json(content)
            raise InputError(f"{name} — {other or f'{state_schema(schema, SCHEMA)} — {cure}'}")
        found: Analysis = _analyses().validate_json(content)
    except ValidationError as error:
        where = ".".join(map(str, error.errors(include_url=False, include_input=False)[0]["loc"]))
        raise InputError(
            f"{name} — is not a complete answer: {where[:100]} is not as it should be — {cure}"
        ) from error
    except (ValueError, KeyError, TypeError, RecursionError) as error:
        raise InputError(f"{name} — {describe_other_json(content) or f'{_NEITHER} — {cure}'}") from error
    if len(found.inputs) != 1:
        raise InputError(
            f"{name} — is about {len(found.inputs)} exports — give the answers about each of them"
        )
    if not found.ranks:
        raise InputError(f"{name} — is about no rank — {cure}")
    allowance = Allowance()
    for rank in found.ranks:
        if rank.profile is None:
            raise InputError(f"{name} — lacks the profile of a rank — {cure}")
        unpack_profile(rank.profile, name, allowance)
    return found
