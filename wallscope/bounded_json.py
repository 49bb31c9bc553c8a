"""JSON from strangers: its elements are counted before it is parsed, as a letter may take 100 bytes then."""

import os
import stat
from pathlib import Path

from wallscope.errors import WallscopeError
from wallscope.units import size

MOST_BYTES = 1 << 30
"""What reading one text may take. Chosen: 100 times the largest profile of a capture known to us."""
_VALUE_BYTES, _CONTAINER_BYTES = 48, 300  # of CPython: an object in a list, an object of JSON
_COPIES = 3  # bytes, text, and the longest of its texts


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
