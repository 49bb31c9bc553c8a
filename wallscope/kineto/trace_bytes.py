"""Read the bytes of a trace, plain or gzip, in chunks; and detect whether a file is a trace.

Files are identified by their content, because traces have many names. A gzip stream that ends early or is
damaged yields its bytes up to that point; https://www.rfc-editor.org/rfc/rfc1952 has the format.
"""

import re
import stat
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO

GZIP_MAGIC = b"\x1f\x8b"
_GZIP_WINDOW = 31  # zlib's number for a gzip header with the largest window
PIECE_BYTES = 4 << 20
_HEAD_BYTES = 64 << 10
_IS_JSON = re.compile(rb"(?:\xef\xbb\xbf)?\s*[{\[]")
_IS_ANSWER = re.compile(rb'(?:\xef\xbb\xbf)?\s*\{\s*"schema"\s*:\s*"wallscope\.')
"""Answers of wallscope are also JSON, and begin with their schema."""
_KEYS = re.compile(
    rb'"(?:traceEvents|schemaVersion|deviceProperties|distributedInfo|baseTimeNanoseconds|ph)"\s*:'
)


class TraceBytes:
    """The unpacked bytes of an open file, in chunks; after reading, `fault` describes a damaged end."""

    def __init__(self, stream: BinaryIO) -> None:
        self._stream = stream
        self.fault: str | None = None

    def pieces(self) -> Iterator[bytes]:
        """Yield non-empty chunks of at most some megabytes."""
        head = self._stream.read(PIECE_BYTES)
        yield from self._unpack(head) if head.startswith(GZIP_MAGIC) else self._copy(head)

    def _copy(self, head: bytes) -> Iterator[bytes]:
        piece = head
        while piece:
            yield piece
            piece = self._stream.read(PIECE_BYTES)

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
                packed = unpacker.unused_data or self._stream.read(PIECE_BYTES)
                if not packed.startswith(GZIP_MAGIC):
                    return
                unpacker = zlib.decompressobj(_GZIP_WINDOW)
            packed = packed or self._stream.read(PIECE_BYTES)
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
    try:
        if not stat.S_ISREG(path.stat().st_mode):
            return b""
        with path.open("rb") as stream:
            head = stream.read(_HEAD_BYTES)
        if head.startswith(GZIP_MAGIC):
            head = zlib.decompressobj(_GZIP_WINDOW).decompress(head, _HEAD_BYTES)
    except (OSError, ValueError, zlib.error):
        return b""
    return head
