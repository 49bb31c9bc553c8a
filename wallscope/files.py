"""Files: those that are shipped, JSON of others read within limits, results that are whole or not there.

Shipped are tables of the package, and the top-level folders `queries/` and `reports/`. A wheel holds those
folders inside the package; a checkout, editable installs too, has them next to it.

Elements of JSON from others are counted before it is parsed, as a letter may take 100 bytes then.
"""

import os
import stat
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import fields, is_dataclass
from functools import cache
from pathlib import Path
from typing import Any, TypeVar

from wallscope.errors import OutputError, WallscopeError
from wallscope.units import size

_PACKAGE = Path(__file__).resolve().parent
MOST_BYTES = 1 << 30
"""What reading one text may take. Chosen: 100 times the largest profile of a capture known to us."""
_VALUE_BYTES, _CONTAINER_BYTES = 48, 300  # of CPython: an object in a list, an object of JSON
_COPIES = 3  # bytes, text, and the longest of its texts
_Entry = TypeVar("_Entry")
_NEW = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC


@cache
def _find_folder(name: str) -> Path:
    packaged = _PACKAGE / name
    return packaged if packaged.is_dir() else _PACKAGE.parent / name


def is_of_package(path: object) -> bool:
    """Return whether a path, such as the one that an error of the system names, is that of a shipped file.

    >>> is_of_package(__file__), is_of_package("run.sqlite"), is_of_package(None)
    (True, False, False)
    """
    return isinstance(path, str) and path.startswith(str(_PACKAGE))


@cache
def read_query(name: str) -> str:
    """Return the text of `queries/<name>.sql`.

    Raises:
        FileNotFoundError: no such query is shipped.
    """
    return (_find_folder("queries") / f"{name}.sql").read_text(encoding="utf-8")


@cache
def read_toml(path: str) -> dict[str, Any]:
    """Return the content of a TOML file by its path in the package; not to be changed.

    Raises:
        FileNotFoundError: no such file is shipped.
    """
    import tomllib  # noqa: PLC0415  # keeps --help fast

    return tomllib.loads((_PACKAGE / path).read_text(encoding="utf-8"))


def make_entry(table: Mapping[str, Any], kind: type[_Entry]) -> _Entry:
    """Return a table of a shipped file as a dataclass, checked by the types of its fields.

    Raises:
        ValueError: a field is missing, unknown or wrong; the message names it.
    """
    import msgspec  # noqa: PLC0415  # keeps --help fast

    try:
        found = msgspec.convert(table, kind)
    except msgspec.ValidationError as error:
        raise ValueError(str(error)) from error
    _refuse_unknown(table, found)
    return found


def _refuse_unknown(table: Mapping[str, Any], entry: Any) -> None:
    """Refuse keys of a table, and of the tables in it, that their dataclasses do not have."""
    names = {field.name for field in fields(entry)}
    if unknown := sorted(set(table) - names):
        raise ValueError(f"unknown keys {unknown}")
    for name in names & set(table):
        if is_dataclass(getattr(entry, name)):
            _refuse_unknown(table[name], getattr(entry, name))


def list_toml_paths(folder: str) -> list[str]:
    """Return the paths in the package of the TOML files of a folder, in the order of their names."""
    names = sorted(entry.name for entry in (_PACKAGE / folder).iterdir())
    return [f"{folder}/{name}" for name in names if name.endswith(".toml")]


def read_report(name: str) -> str:
    """Return the text of the file `name` in `reports/`.

    Raises:
        FileNotFoundError: no such file is shipped.
    """
    return (_find_folder("reports") / name).read_text(encoding="utf-8")


def estimate_bytes(content: bytes) -> int:
    """Return what JSON takes at the most while it is parsed.

    >>> estimate_bytes(b"[1, 2]")
    366
    """
    containers = content.count(b"[") + content.count(b"{")
    return _COPIES * len(content) + _VALUE_BYTES * content.count(b",") + _CONTAINER_BYTES * containers


def check_json(content: bytes, name: str, cure: str, error: type[WallscopeError]) -> None:
    """Refuse JSON that takes too much.

    Raises:
        error: it would.
    """
    needed_bytes = estimate_bytes(content)
    if needed_bytes > MOST_BYTES:
        raise error(
            f"{name} — would take {size(needed_bytes)} of memory, {size(MOST_BYTES)} are allowed — {cure}"
        )


def read_json_bytes(path: Path, cure: str, error: type[WallscopeError]) -> bytes:
    """Return the bytes of a file of JSON that can be parsed.

    Raises:
        OSError: it cannot be read.
        error: it is not a regular file, or would take too much.
    """
    with os.fdopen(os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC), "rb") as stream:
        status = os.fstat(stream.fileno())
        if stat.S_ISDIR(status.st_mode):
            raise IsADirectoryError(21, os.strerror(21), str(path))
        if not stat.S_ISREG(status.st_mode):
            raise error(f"{path} — is not a regular file — {cure}")
        if _COPIES * status.st_size > MOST_BYTES:
            raise error(
                f"{path} — would take {size(_COPIES * status.st_size)} of memory, {size(MOST_BYTES)} are"
                f" allowed — {cure}"
            )
        content = stream.read()
    check_json(content, str(path), cure, error)
    return content


def state_schema(found: object, wanted: str) -> str:
    """Say that the schema of a file is not the wanted one.

    >>> state_schema("wallscope.tables/1", "wallscope.analysis/1"), state_schema(None, "wallscope.analysis/1")
    ('is wallscope.tables/1, not wallscope.analysis/1', 'names no schema, so it is not wallscope.analysis/1')
    """
    if not isinstance(found, str):
        return f"names no schema, so it is not {wanted}"
    return f"is {found[:60]}, not {wanted}"


def write_chunks(target: Path, chunks: Iterable[bytes]) -> None:
    """Write aside, chunk by chunk, then rename: all of the chunks, or what was there before.

    Raises:
        OutputError: the file cannot be written.
    """
    with replace_file(target) as aside, os.fdopen(os.open(aside, _NEW, 0o600), "wb") as stream:
        for chunk in chunks:
            stream.write(chunk)


@contextmanager
def replace_file(target: Path) -> Iterator[Path]:
    """Yield a new name to write to, then rename the file to the target; without it if the block fails.

    Raises:
        OutputError: the file cannot be written.
    """
    aside = name_aside(target)
    try:
        yield aside
        with aside.open("rb") as stream:
            os.fsync(stream.fileno())
        aside.chmod(_mode(target))
        aside.replace(target)
    except OSError as error:
        raise OutputError(f"{target} — cannot be written: {error.strerror} — name another file") from error
    finally:
        with suppress(OSError):
            aside.unlink()  # unless it is the target by now


@contextmanager
def defer_signals() -> Iterator[None]:
    """Let signals that end the process wait until the block is done."""
    import signal  # noqa: PLC0415  # keeps --help fast
    import threading  # noqa: PLC0415  # same

    if threading.current_thread() is not threading.main_thread():  # signals go to the main thread
        yield
        return
    waiting: list[int] = []
    ending = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
    former = {number: signal.signal(number, lambda got, _: waiting.append(got)) for number in ending}
    try:
        yield
    finally:
        for number, handler in former.items():
            signal.signal(number, handler)
        for first in waiting[:1]:
            signal.raise_signal(first)


def name_aside(target: Path) -> Path:
    """Return a new name next to a target; known before anything is created, so that it can be removed."""
    return target.parent / f".wallscope-{os.urandom(8).hex()}"


def resolve_path(path: Path) -> Path:
    """The path without links, as far as they lead anywhere."""
    return Path(os.path.realpath(path))  # Path.resolve raises RuntimeError for a link that leads to itself


def _mode(target: Path) -> int:
    """The permissions of the file that is replaced; else what the user's mask leaves of a new file."""
    if target.exists():
        return stat.S_IMODE(target.stat().st_mode)
    mask = os.umask(0)
    os.umask(mask)
    return 0o666 & ~mask
