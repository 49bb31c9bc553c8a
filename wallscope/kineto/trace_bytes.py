"""The bytes of files: what a file is, and those of a trace, plain or gzip, in chunks.

Files are identified by their content, because traces have many names. A gzip stream that ends early or is
damaged yields its bytes up to that point; https://www.rfc-editor.org/rfc/rfc1952 has the format. Other
files that people give for a trace are described, with what to give instead.
"""

import json
import re
import stat
import zlib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import BinaryIO

from wallscope.errors import InputError
from wallscope.units import size

_GZIP_MAGIC = b"\x1f\x8b"
_GZIP_WINDOW = 31  # zlib's number for a gzip header with the largest window
PIECE_BYTES = 4 << 20
_HEAD_BYTES = 64 << 10
_FEW_BYTES, _RESERVE_BYTES, _ASKED_BYTES = 64 << 20, 128 << 20, 16 << 20
"""Up to where nothing is asked, what has to be left, and how often it is asked. Chosen."""
_MOST_TIMES = 100
"""How many times its size a trace may unpack to. Measured: 24 times."""
_IS_JSON = re.compile(rb"(?:\xef\xbb\xbf)?\s*[{\[]")
_IS_ANSWER = re.compile(rb'(?:\xef\xbb\xbf)?\s*\{\s*"schema"\s*:\s*"wallscope\.')
"""Answers of wallscope are also JSON, and begin with their schema."""
_KEYS = re.compile(
    rb'"(?:traceEvents|schemaVersion|deviceProperties|distributedInfo|baseTimeNanoseconds|ph)"\s*:'
)
_SQLITE_MAGIC = b"SQLite format 3"
_NSYS_TABLES = ("StringIds", "META_DATA_EXPORT", "CUPTI_ACTIVITY_KIND_KERNEL", "TARGET_INFO_SYSTEM_ENV")
_TORCH_HINT = "profile with torch.profiler and export_chrome_trace"
_SQLITE_HINT = "export the report again: nsys export --type sqlite"


class OversizeError(Exception):
    """Why a trace is not read to its end."""


class TraceBytes:
    """The unpacked bytes of an open file, in chunks; after reading, `fault` describes a damaged end.

    `free_bytes` returns how much memory is left, `None` if that is unknown.
    """

    def __init__(self, stream: BinaryIO, free_bytes: Callable[[], int | None] = lambda: None) -> None:
        self._stream = stream
        self._free_bytes = free_bytes
        self._packed_bytes = self._unasked_bytes = 0
        self.fault: str | None = None

    def pieces(self) -> Iterator[bytes]:
        """Yield non-empty chunks of at most some megabytes.

        Raises:
            OversizeError: the file unpacks to far more than its size, or memory runs out.
        """
        head = self._read()
        unpacked_bytes = 0
        for piece in self._unpack(head) if head.startswith(_GZIP_MAGIC) else self._copy(head):
            unpacked_bytes += len(piece)
            self._check_room(unpacked_bytes)
            yield piece

    def _read(self) -> bytes:
        piece = self._stream.read(PIECE_BYTES)
        self._packed_bytes += len(piece)
        return piece

    def _check_room(self, unpacked_bytes: int) -> None:
        if unpacked_bytes <= _FEW_BYTES:
            return
        if unpacked_bytes > _MOST_TIMES * self._packed_bytes:
            raise OversizeError(f"it unpacks to more than {_MOST_TIMES} times its size")
        if unpacked_bytes < self._unasked_bytes:
            return
        self._unasked_bytes = unpacked_bytes + _ASKED_BYTES
        left_bytes = self._free_bytes()
        if left_bytes is not None and left_bytes < _RESERVE_BYTES + unpacked_bytes // 2:
            raise OversizeError(
                f"{size(unpacked_bytes)} of it take all memory but {size(max(0, left_bytes))}"
            )

    def _copy(self, head: bytes) -> Iterator[bytes]:
        piece = head
        while piece:
            yield piece
            piece = self._read()

    def _unpack(self, head: bytes) -> Iterator[bytes]:
        packed, unpacker = head, zlib.decompressobj(_GZIP_WINDOW)
        while packed:
            try:
                piece = unpacker.decompress(packed, PIECE_BYTES)
            except zlib.error:
                self.fault = "its gzip data is damaged"
                return
            if piece:
                yield piece
            packed = unpacker.unconsumed_tail
            if unpacker.eof:
                packed = unpacker.unused_data or self._read()
                if not packed.startswith(_GZIP_MAGIC):
                    return
                unpacker = zlib.decompressobj(_GZIP_WINDOW)
            packed = packed or self._read()
        self.fault = "its gzip data is cut off"


def is_torch_trace(path: Path) -> bool:
    """Return whether a file has JSON, or JSON in gzip, that is not an answer of wallscope."""
    return _begins_trace(_read_head(path))


def has_trace_keys(path: Path) -> bool:
    """Return whether a file is certainly a trace: its beginning has members that only traces have."""
    head = _read_head(path)
    return _begins_trace(head) and _KEYS.search(head) is not None


def _begins_trace(head: bytes) -> bool:
    return _IS_JSON.match(head) is not None and _IS_ANSWER.match(head) is None


def _read_head(path: Path) -> bytes:
    """Return the first bytes of a file, unpacked; empty if it cannot be read."""
    head = _read_stored_head(path)
    if not head.startswith(_GZIP_MAGIC):
        return head
    try:
        return _unpack_head(head)
    except zlib.error:
        return b""


def _read_stored_head(path: Path) -> bytes:
    """Return the first bytes of a file as they are stored; empty if it cannot be read."""
    try:
        status = path.stat()
        if not stat.S_ISREG(status.st_mode) or not status.st_size:  # reading some of /proc waits
            return b""
        with path.open("rb") as stream:
            return stream.read(_HEAD_BYTES)
    except (OSError, ValueError):
        return b""


def _unpack_head(packed: bytes) -> bytes:
    """Return the first bytes that a gzip file has unpacked.

    Raises:
        zlib.error: the data is damaged.
    """
    return zlib.decompressobj(_GZIP_WINDOW).decompress(packed, _HEAD_BYTES)


def describe_other_json(content: bytes) -> str | None:
    """Return what a JSON file is that is neither a trace nor an answer, and a cure; `None` if unknown.

    >>> describe_other_json(b"")
    'is empty — copy or write the file again'
    """
    if not content.strip():
        return "is empty — copy or write the file again"
    first = content.lstrip()[:_HEAD_BYTES].split(b"\n", 1)[0]
    for text in (content, first):  # nsys writes an object per line
        try:
            found = json.loads(text)
        except (ValueError, RecursionError):
            continue
        return _describe_members(found) if isinstance(found, dict) else None
    return None


def _describe_members(members: dict[str, object]) -> str | None:
    from wallscope.model.capture import CAPTURE_RECORD_SCHEMA  # noqa: PLC0415  # rarely

    if "nodes" in members and "chakra" in str(members.get("schema")):
        return f"is an execution trace of PyTorch, which has no times of the GPU — {_TORCH_HINT}"
    if members.get("schema") == CAPTURE_RECORD_SCHEMA:
        return "is the record of a captured program — name the folder that it lies in"
    if isinstance(members.get("type"), int) or any(table in members for table in _NSYS_TABLES):
        return f"is a JSON export of Nsight Systems, which is not read — {_SQLITE_HINT}"
    return None


def refuse_other_gzip(path: Path) -> None:
    """Refuse a gzip file without a trace in it; other files pass.

    Raises:
        InputError: states what is in the file.
    """
    packed = _read_stored_head(path)
    if not packed.startswith(_GZIP_MAGIC):  # the reader of exports describes it
        return
    try:
        head = _unpack_head(packed)
    except zlib.error:
        raise InputError(f"{path} — is damaged: its gzip data cannot be read — copy it again") from None
    if head.startswith(_SQLITE_MAGIC):
        raise InputError(f"{path} — is an export compressed with gzip — decompress it first")
    if not head.strip():
        raise InputError(f"{path} — is a gzip file with nothing in it — copy or write the file again")
    raise InputError(
        f"{path} — is compressed with gzip and is not a trace of PyTorch's profiler — give a trace of"
        " torch.profiler, or decompress the file first"
    )
