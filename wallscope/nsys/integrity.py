"""What a file is, told from its first bytes, before SQLite touches it.

File format: https://www.sqlite.org/fileformat.html, section 1.3 (the database header).
"""

import hashlib
import os
import stat
from pathlib import Path

from wallscope.errors import InputError

_HEADER_BYTES = 100
_SQLITE_MAGIC = b"SQLite format 3\x00"
_JOURNAL_MAGIC = b"\xd9\xd5\x05\xf9\x20\xa1\x63\xd7"
_EXPORT_HINT = "export it first: nsys export --type sqlite --output run.sqlite"
_OTHER_FORMATS = (
    (b"version https://git-lfs", "is a Git LFS pointer, not the file itself", "fetch it: git lfs pull"),
    (b"NVIDIA Tegra Profiler Report", "is an Nsight Systems report, not its export", _EXPORT_HINT),
    (b"PAR1", "is a Parquet file", _EXPORT_HINT),
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


def check_file(path: Path) -> int:
    """Refuse what is no SQLite database of full length; returns its size in bytes.

    Raises:
        InputError: says what the file is instead, and what to do.
    """
    size_bytes = _regular_size_bytes(path)
    try:
        with path.open("rb") as stream:
            header = stream.read(_HEADER_BYTES)
    except OSError as error:
        raise InputError(f"{path} — cannot be read: {error.strerror} — check its permissions") from error
    if not header.startswith(_SQLITE_MAGIC):
        raise InputError(f"{path} — {_what_it_is(path, header)}")
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
    if stat.S_ISDIR(status.st_mode):
        raise InputError(f"{path} — is a folder — name one .sqlite export")
    if not stat.S_ISREG(status.st_mode):
        raise InputError(f"{path} — is no regular file — name one .sqlite export, not a pipe or device")
    return status.st_size


def _what_it_is(path: Path, header: bytes) -> str:
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
    return f"is no SQLite database — {_EXPORT_HINT}"


def _check_length(path: Path, header: bytes, size_bytes: int) -> None:
    if len(header) < _HEADER_BYTES:
        raise InputError(f"{path} — ends inside its header — copy or export it again")
    page_bytes = int.from_bytes(header[16:18], "big")
    page_bytes = 65_536 if page_bytes == 1 else page_bytes
    pages = int.from_bytes(header[28:32], "big")
    pages_are_valid = header[24:28] == header[92:96]  # the count is stale after a very old SQLite wrote
    if pages_are_valid and pages * page_bytes > size_bytes:
        raise InputError(
            f"{path} — is truncated: {size_bytes:,} of {pages * page_bytes:,} bytes — copy or export it again"
        )


def _check_companions(path: Path) -> None:
    """A log beside the file holds what the file does not: reading without it would be wrong."""
    log = Path(f"{path}-wal")
    if log.exists() and log.stat().st_size > 0:
        raise InputError(
            f"{path} — has changes waiting in {log.name} — close the program that has it open, or copy the"
            " export without indexes again"
        )
    journal = Path(f"{path}-journal")
    if journal.is_file():
        with journal.open("rb") as stream:
            if stream.read(len(_JOURNAL_MAGIC)) == _JOURNAL_MAGIC:
                raise InputError(
                    f"{path} — was left half-written, {journal.name} lies beside it — export the report again"
                )


def fingerprint(path: Path, size_bytes: int) -> str:
    """Name of the content: BLAKE2 of the size and of up to 64 evenly spaced blocks of 64 KiB.

    The first block holds SQLite's change counter, which every write to the database moves.
    """
    block_bytes, most_blocks = 65_536, 64
    digest = hashlib.blake2b(size_bytes.to_bytes(8, "big"), digest_size=16)
    blocks = -(-size_bytes // block_bytes)
    with path.open("rb") as stream:
        for index in range(min(blocks, most_blocks)):
            block = index if blocks <= most_blocks else index * (blocks - 1) // (most_blocks - 1)
            stream.seek(block * block_bytes, os.SEEK_SET)
            digest.update(stream.read(block_bytes))
    return digest.hexdigest()
