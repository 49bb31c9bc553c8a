"""Identify a file or folder by its first and last bytes, before SQLite or polars opens it.

File formats: https://www.sqlite.org/fileformat.html, section 1.3 (the database header);
https://parquet.apache.org/docs/file-format; https://arrow.apache.org/docs/format/Columnar.html, "IPC
Streaming Format".
"""

import hashlib
import re
import stat
from pathlib import Path

from wallscope.cache_folder import fingerprint_file
from wallscope.errors import InputError
from wallscope.units import plural

_HEADER_BYTES = 100
_SQLITE_MAGIC = b"SQLite format 3\x00"
_JOURNAL_MAGIC = b"\xd9\xd5\x05\xf9\x20\xa1\x63\xd7"
_EXPORT_HINT = "export it first: nsys export --type sqlite --output run.sqlite"
_REPORT_MAGIC = b"NVIDIA Tegra Profiler Report"
_OTHER_FORMATS = (
    (b"version https://git-lfs", "is a Git LFS pointer, not the file itself", "fetch it: git lfs pull"),
    (_REPORT_MAGIC, "is an Nsight Systems report, not its export", _EXPORT_HINT),
    (b"PAR1", "is a single table as a Parquet file", "name the folder of nsys export --type parquetdir"),
    (b"\xff\xff\xff\xff", "is an Arrow stream", "name the folder of nsys export --type arrowdir"),
    (b"ARROW1", "is an Arrow file", _EXPORT_HINT),
    (b"\x89HDF", "is an HDF5 file", _EXPORT_HINT),
    (b"\x1f\x8b", "is compressed with gzip", "decompress it first"),
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
        return "is empty — the export was never written; export the report again"
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
    files = _list_tables(path)
    for file in files:
        _check_table(file)
    return {file.stem: file for file in files}


def _list_tables(path: Path) -> list[Path]:
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
    return sum(file.stat().st_size for file in (_list_tables(path) if is_folder(path) else [path]))


def fingerprint(path: Path, size_bytes: int) -> str:
    """Return the name of the content, for a folder by its tables, by the method of `fingerprint_file`."""
    if not is_folder(path):
        return fingerprint_file(path, size_bytes)
    digest = hashlib.blake2b(size_bytes.to_bytes(8, "big"), digest_size=16)
    for file in _list_tables(path):
        digest.update(f"{file.name} {fingerprint_file(file, file.stat().st_size)}\n".encode())
    return digest.hexdigest()
