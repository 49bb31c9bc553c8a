"""What a file of an export is, before SQLite or polars opens it: its first and last bytes, its unpacked size.

A run of equal values takes a few bytes of Parquet whatever its length, and compressed zeros hardly more.
File formats: https://www.sqlite.org/fileformat.html, section 1.3 (the database header);
https://parquet.apache.org/docs/file-format and https://github.com/apache/parquet-format (FileMetaData in
Thrift's compact protocol); https://arrow.apache.org/docs/format/Columnar.html, "IPC Streaming Format" (a
stream of messages, each a FlatBuffer).
"""

import hashlib
import re
import stat
import struct
from collections.abc import Mapping, Sequence
from dataclasses import field
from pathlib import Path
from typing import Any, BinaryIO

from wallscope.cache_folder import fingerprint_file
from wallscope.errors import InputError
from wallscope.records import dataclass
from wallscope.units import plural, size

_HEADER_BYTES = 100
_SQLITE_MAGIC = b"SQLite format 3\x00"
_JOURNAL_MAGIC = b"\xd9\xd5\x05\xf9\x20\xa1\x63\xd7"
_EXPORT_HINT = "export it first: nsys export --type sqlite --output run.sqlite"
_INPUT_HINT = "give an export of Nsight Systems or a trace of torch.profiler"
_REPORT_MAGIC = b"NVIDIA Tegra Profiler Report"
_OTHER_FORMATS = (
    (b"version https://git-lfs", "is a Git LFS pointer, not the file itself", "fetch it: git lfs pull"),
    (_REPORT_MAGIC, "is an Nsight Systems report, not its export", _EXPORT_HINT),
    (b"PAR1", "is a single table as a Parquet file", "name the folder of nsys export --type parquetdir"),
    (b"\xff\xff\xff\xff", "is an Arrow stream", "name the folder of nsys export --type arrowdir"),
    (b"ARROW1", "is an Arrow file", _EXPORT_HINT),
    (b"\x89HDF", "is an HDF5 file", _EXPORT_HINT),
    (b"\x1f\x8b", "is compressed with gzip", "decompress it first"),
    *(
        (b"\x80" + bytes([version]), "is a Python pickle, for instance a snapshot of memory", _INPUT_HINT)
        for version in (2, 3, 4, 5)
    ),
    (b"\x28\xb5\x2f\xfd", "is compressed with zstd", "decompress it first"),
    (b"PK\x03\x04", "is a ZIP archive", "unpack it first"),
)
_SUFFIXES = {
    ".nsys-rep": ("is an Nsight Systems report, not its export", _EXPORT_HINT),
    ".qdrep": ("is an Nsight Systems report, not its export", _EXPORT_HINT),
    ".qdstrm": (
        "is an unfinished Nsight Systems capture",
        "import it with the nsys that made it (QdstrmImporter), then export it: nsys export --type sqlite",
    ),
}
_REPORT_SUFFIXES = (".nsys-rep", ".qdrep")
_TABLE_FORMATS = {
    ".parquet": ("a Parquet file", b"PAR1", b"PAR1"),
    ".arrow": ("an Arrow stream", b"\xff\xff\xff\xff", b"\xff\xff\xff\xff\x00\x00\x00\x00"),
}
"""Files with one table each: description, first bytes and last bytes."""

_TABLE_NAME = re.compile(r"[A-Za-z][A-Za-z0-9_]{0,99}")
_FOLDER_HINT = "name one export: a .sqlite file, or a folder of nsys export --type parquetdir"


def is_folder(path: Path) -> bool:
    """Return whether the path is a folder; `False` if it cannot be accessed."""
    try:
        return path.is_dir()
    except OSError:
        return False


def is_report(path: Path) -> bool:
    """Return whether the file is a report, by its first bytes or name, and not an SQLite database."""
    try:
        status = path.stat()
        if not stat.S_ISREG(status.st_mode) or not status.st_size:  # reading some of /proc waits
            return False
        with path.open("rb") as stream:
            header = stream.read(len(_REPORT_MAGIC))
    except (OSError, ValueError):
        return False
    by_name = path.suffix in _REPORT_SUFFIXES and any(header) and not header.startswith(_SQLITE_MAGIC)
    return header == _REPORT_MAGIC or by_name


def check_file(path: Path) -> int:
    """Refuse a file that is not an SQLite database of full length; return its size in bytes.

    Raises:
        InputError: states what the file is instead, and what to do.
    """
    size_bytes = _regular_size_bytes(path)
    try:
        with path.open("rb") as stream:
            header = stream.read(min(_HEADER_BYTES, size_bytes))
    except OSError as error:
        raise InputError(f"{path} — cannot be read: {error.strerror} — check its permissions") from error
    if not header.startswith(_SQLITE_MAGIC):
        raise InputError(
            f"{path} — {_describe_fault(path, header, f'is not an SQLite database — {_EXPORT_HINT}')}"
        )
    _check_length(path, header, size_bytes)
    _check_companions(path)
    return size_bytes


def _regular_size_bytes(path: Path) -> int:
    try:
        status = path.stat()
    except FileNotFoundError:
        raise InputError(f"{path} — there is no such file — check the path") from None
    except (OSError, ValueError) as error:
        reason = error.strerror if isinstance(error, OSError) else error
        raise InputError(f"{path} — cannot be read: {reason} — check the path") from error
    if not stat.S_ISREG(status.st_mode):
        raise InputError(f"{path} — is not a regular file — name one export, not a pipe or device")
    return status.st_size


def _describe_fault(path: Path, header: bytes, otherwise: str) -> str:
    """Return fault and cure of a file with the wrong first bytes."""
    if not header:
        return "is empty — copy or write the file again"
    for magic, what, cure in _OTHER_FORMATS:
        if header.startswith(magic):
            return f"{what} — {cure}"
    if path.suffix in _SUFFIXES:
        what, cure = _SUFFIXES[path.suffix]
        return f"{what} — {cure}"
    if not any(header):
        return "starts with zeros: the export was interrupted — export the report again"
    return otherwise


def _check_length(path: Path, header: bytes, size_bytes: int) -> None:
    if len(header) < _HEADER_BYTES:
        raise InputError(f"{path} — ends inside its header — copy or export it again")
    page_bytes = int.from_bytes(header[16:18], "big")
    page_bytes = 65_536 if page_bytes == 1 else page_bytes
    pages = int.from_bytes(header[28:32], "big")
    pages_are_valid = header[24:28] == header[92:96]  # the count is stale after a write by a very old SQLite
    if pages_are_valid and pages * page_bytes > size_bytes:
        raise InputError(
            f"{path} — is truncated: {size_bytes:,} of {pages * page_bytes:,} bytes — copy or export it again"
        )


def _check_companions(path: Path) -> None:
    """Refuse a file with a log next to it, because the log has content that the file lacks."""
    log = Path(f"{path}-wal")
    if log.exists() and log.stat().st_size > 0:
        raise InputError(
            f"{path} — has changes waiting in {log.name} — close the program that has it open, or copy the"
            " export without indexes again"
        )
    journal = Path(f"{path}-journal")
    if journal.is_file() and journal.stat().st_size:
        with journal.open("rb") as stream:
            if stream.read(len(_JOURNAL_MAGIC)) == _JOURNAL_MAGIC:
                raise InputError(
                    f"{path} — is half-written: {journal.name} is next to it — export the report again"
                )


def list_table_files(path: Path) -> dict[str, Path]:
    """Return the file of each table in a folder of `nsys export --type parquetdir` or `arrowdir`, by name.

    Each begins and ends as a complete file of its format. Other files in the folder are ignored.

    Raises:
        InputError: the folder has no tables, tables of both formats, other exports, or a damaged table.
    """
    files = _list_table_files(path)
    for file in files:
        _check_table(file)
    return {file.stem: file for file in files}


def _list_table_files(path: Path) -> list[Path]:
    try:
        entries = sorted(path.iterdir(), key=lambda entry: entry.name)
    except OSError as error:
        raise InputError(f"{path} — cannot be read: {error.strerror} — check its permissions") from error
    if not entries:
        raise InputError(f"{path} — is an empty folder — {_FOLDER_HINT}")
    others = [entry for entry in entries if entry.suffix in (".sqlite", *_REPORT_SUFFIXES)]
    if others:
        raise InputError(
            f"{path} — is a folder with {plural(len(others), 'whole export')}, which are read one at a time —"
            " name one of them"
        )
    files = [
        entry for entry in entries if entry.suffix in _TABLE_FORMATS and _TABLE_NAME.fullmatch(entry.stem)
    ]
    match len({file.suffix for file in files}):
        case 0:
            raise InputError(f"{path} — is a folder without a table of Nsight Systems — {_FOLDER_HINT}")
        case 1:
            return files
    raise InputError(
        f"{path} — is a folder with both .parquet and .arrow tables — export the report again, into a new"
        " folder"
    )


def _check_table(path: Path) -> None:
    size_bytes = _regular_size_bytes(path)
    what, beginning, end = _TABLE_FORMATS[path.suffix]
    try:
        with path.open("rb") as stream:
            header = stream.read(_HEADER_BYTES)
            stream.seek(max(0, size_bytes - len(end)))
            trailer = stream.read()
    except OSError as error:
        raise InputError(f"{path} — cannot be read: {error.strerror} — check its permissions") from error
    if not header.startswith(beginning):
        fault = _describe_fault(path, header, f"is not {what} — export the report again")
        raise InputError(f"{path} — {fault}")
    if trailer != end or size_bytes < len(beginning + end):
        raise InputError(f"{path} — is truncated: its end is missing — copy or export the folder again")


def content_size_bytes(path: Path) -> int:
    """Return the size of a file, or of all tables of a folder."""
    return sum(file.stat().st_size for file in (_list_table_files(path) if is_folder(path) else [path]))


def fingerprint(path: Path, size_bytes: int) -> str:
    """Return the name of the content, for a folder by its tables, by the method of `fingerprint_file`."""
    if not is_folder(path):
        return fingerprint_file(path, size_bytes)
    digest = hashlib.blake2b(size_bytes.to_bytes(8, "big"), digest_size=16)
    for file in _list_table_files(path):
        digest.update(f"{file.name} {fingerprint_file(file, file.stat().st_size)}\n".encode())
    return digest.hexdigest()


_FEW_BYTES = 1 << 30
_MOST_TIMES = 200
"""A table above one gibibyte and above 200 times its file size is refused. Measured: 20 times."""
_CELL_BYTES = 16  # a view of a text, or a number in two copies
_TAIL_BYTES, _MOST_FOOTER_BYTES = 8, 64 << 20
_DEEPEST, _MOST_PARTS = 16, 1 << 20


@dataclass(frozen=True, slots=True)
class TableSize:
    """Rows of a table, and the unpacked size of its columns; `unpacked_bytes` is that of unnamed columns."""

    rows: int
    of_columns: Mapping[str, int] = field(default_factory=dict)
    unpacked_bytes: int = 0

    def cost_bytes(self, columns: Sequence[str]) -> int:
        """Return the minimum size of some columns."""
        known = sum(self.of_columns.get(column, 0) for column in columns)
        return known + self.unpacked_bytes + self.rows * _CELL_BYTES * len(columns)


def measure_table(file: Path) -> TableSize:
    """Return the size by the metadata of a file.

    Raises:
        ValueError: the metadata is invalid.
        OSError: it cannot be read.
    """
    try:
        with file.open("rb") as stream:
            return _measure_parquet(stream) if file.suffix == ".parquet" else _measure_arrow(stream)
    except (KeyError, IndexError, TypeError, AttributeError, struct.error, OverflowError) as error:
        raise ValueError("no table of contents") from error


def refuse_oversize(file: Path, needed_bytes: int) -> None:
    """Refuse a file that expands to many times its size.

    Raises:
        InputError: it does.
    """
    file_bytes = file.stat().st_size
    if needed_bytes > max(_FEW_BYTES, _MOST_TIMES * file_bytes):
        raise InputError(
            f"{file} — needs {size(needed_bytes)} of memory, but its size is {size(file_bytes)}: tables"
            " of exports are not so compressed — export the report again"
        )


def _measure_parquet(stream: BinaryIO) -> TableSize:
    end = stream.seek(0, 2)
    stream.seek(end - _TAIL_BYTES)
    (length,) = struct.unpack("<I", stream.read(4))
    if length > min(_MOST_FOOTER_BYTES, end - _TAIL_BYTES):
        raise ValueError
    stream.seek(end - _TAIL_BYTES - length)
    about = _Thrift(stream.read(length)).struct()
    of_columns: dict[str, int] = {}
    for group in about.get(4, []):
        for chunk in group.get(1, []):
            metadata = chunk[3]
            name = metadata[3][0].decode("utf-8", "replace")
            of_columns[name] = of_columns.get(name, 0) + max(metadata[6], 0)
    rows = max(about[3], sum(group.get(3, 0) for group in about.get(4, [])), 0)
    return TableSize(rows, of_columns)


class _Thrift:
    """Values of Thrift's compact protocol: structs by number of field, lists, integers, bytes."""

    def __init__(self, content: bytes) -> None:
        self.content, self.place, self.parts = content, 0, 0

    def struct(self, depth: int = 0) -> dict[int, Any]:
        found: dict[int, Any] = {}
        number = 0
        while (head := self._byte()) != 0:
            number = number + (head >> 4) if head >> 4 else self._zigzag()
            found[number] = self._value(head & 15, depth + 1)
        return found

    def _value(self, kind: int, depth: int) -> Any:
        self.parts += 1
        if depth > _DEEPEST or self.parts > _MOST_PARTS * 16:
            raise ValueError
        match kind:
            case 1 | 2:
                return kind == 1
            case 3 | 4 | 5 | 6:
                return self._byte() if kind == 3 else self._zigzag()
            case 7 | 8:
                return self._bytes(8 if kind == 7 else self._varint())
            case 9 | 10:
                head = self._byte()
                count = head >> 4 if head >> 4 < 15 else self._varint()
                if count > _MOST_PARTS:
                    raise ValueError
                inner = head & 15
                return [
                    self._byte() == 1 if inner in {1, 2} else self._value(inner, depth + 1)
                    for _ in range(count)
                ]
            case 12:
                return self.struct(depth)
        raise ValueError

    def _byte(self) -> int:
        self.place += 1
        return self.content[self.place - 1]

    def _bytes(self, count: int) -> bytes:
        self.place += count
        if self.place > len(self.content):
            raise ValueError
        return self.content[self.place - count : self.place]

    def _varint(self) -> int:
        found = shift = 0
        while shift < 70:
            byte = self._byte()
            found |= (byte & 127) << shift
            if byte < 128:
                return found
            shift += 7
        raise ValueError

    def _zigzag(self) -> int:
        value = self._varint()
        return value >> 1 ^ -(value & 1)


_RECORDS = 3


def _measure_arrow(stream: BinaryIO) -> TableSize:
    end = stream.seek(0, 2)
    stream.seek(0)
    rows = unpacked_bytes = 0
    while stream.tell() < end:
        mark, length = struct.unpack("<iI", stream.read(8))
        if mark != -1 or length > _MOST_FOOTER_BYTES:
            raise ValueError
        if length == 0:
            break
        message = _Table.root(stream.read(length))
        body, body_bytes = stream.tell(), message.number(3, "<q", 0)
        if not 0 <= body_bytes <= end - body:
            raise ValueError
        if message.number(1, "<B", 0) == _RECORDS:
            batch = message.table(2)
            rows += max(batch.number(0, "<q", 0), 0)
            unpacked_bytes += _unpacked_bytes(stream, batch, body, body_bytes)
        stream.seek(body + body_bytes)
    return TableSize(rows, {}, unpacked_bytes)


def _unpacked_bytes(stream: BinaryIO, batch: "_Table", body: int, body_bytes: int) -> int:
    """Return the size of the buffers of a batch; compressed ones begin with it."""
    if not batch.has(3):
        return body_bytes
    found = 0
    for offset, length in batch.pairs(2):
        if length >= 8 and 0 <= offset <= body_bytes - 8:
            stream.seek(body + offset)
            (unpacked_bytes,) = struct.unpack("<q", stream.read(8))
            found += length if unpacked_bytes < 0 else unpacked_bytes
    return found


class _Table:
    """A table of a FlatBuffer, and its position."""

    def __init__(self, content: bytes, place: int) -> None:
        (back,) = struct.unpack_from("<i", content, place)
        self.content, self.place, self.fields = content, place, place - back
        (self.fields_bytes,) = struct.unpack_from("<H", content, self.fields)

    @classmethod
    def root(cls, content: bytes) -> "_Table":
        return cls(content, struct.unpack_from("<I", content)[0])

    def _at(self, number: int) -> int:
        slot = 4 + 2 * number
        if slot + 2 > self.fields_bytes:
            return 0
        offset: int = struct.unpack_from("<H", self.content, self.fields + slot)[0]
        return self.place + offset if offset else 0

    def has(self, number: int) -> bool:
        return self._at(number) > 0

    def number(self, number: int, kind: str, default: int) -> int:
        place = self._at(number)
        return int(struct.unpack_from(kind, self.content, place)[0]) if place else default

    def _behind(self, number: int) -> int:
        place = self._at(number)
        if not place:
            raise ValueError
        return place + int(struct.unpack_from("<I", self.content, place)[0])

    def table(self, number: int) -> "_Table":
        return _Table(self.content, self._behind(number))

    def pairs(self, number: int) -> list[tuple[int, int]]:
        place = self._behind(number)
        (count,) = struct.unpack_from("<I", self.content, place)
        if place + 4 + 16 * count > len(self.content):
            raise ValueError
        return [struct.unpack_from("<qq", self.content, place + 4 + 16 * one) for one in range(count)]
