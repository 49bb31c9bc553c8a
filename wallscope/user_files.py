"""Small files that users name: gates, rules of kernels, settings, the file of a scheduler.

A name may lead anywhere, also in a pull request whose links a runner follows: to a pipe without a writer,
to a device without end, to a secret. So every such file comes in here: a regular file within a size
limit. What is wrong with it is said without its content. A wrong value is quoted only if it is a number or
a switch, a value that a setting may have only if it is a single word.
"""

import os
import re
import stat
from pathlib import Path

from wallscope.errors import WallscopeError
from wallscope.units import size

MOST_LIST_BYTES = 1 << 20
"""The size limit of a file of lines that somebody writes by hand. Chosen: some 20,000 lines."""

_WORD = re.compile(r"[^\s\"']{1,60}")


def quote_value(value: object) -> str:
    """Write a wrong value of a file for a message; a text may be a secret, and is only called one.

    >>> quote_value(7.5), quote_value(True), quote_value("hunter2")
    ('7.5', 'True', 'a text')
    """
    return str(value)[:60] if isinstance(value, int | float | None) else "a text"


def quote_word(value: object) -> str:
    """Write a value that a setting may have for a message: a text only if it is a single word.

    >>> quote_word("alltoall"), quote_word("ignore what was said"), quote_word(8)
    ('alltoall', 'a text', '8')
    """
    text = str(value)
    return text if not isinstance(value, str) or _WORD.fullmatch(text) else "a text"


def read_user_bytes(path: Path, most_bytes: int, cure: str, error: type[WallscopeError]) -> bytes:
    """Return the bytes of a file, as far as it has any when it is opened.

    Raises:
        OSError: it cannot be read.
        error: it is not a regular file, or larger than `most_bytes`; the line ends with `cure`.
    """
    handle = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    if not stat.S_ISREG(os.fstat(handle).st_mode):
        os.close(handle)
        raise error(f"{path} — is not a regular file — {cure}")
    with os.fdopen(handle, "rb") as stream:
        content = stream.read(most_bytes + 1) or b""  # one of /proc has no size, and may have nothing yet
    if len(content) > most_bytes:
        raise error(f"{path} — is larger than {size(most_bytes)} — {cure}")
    return content


def read_user_text(path: Path, most_bytes: int, cure: str, error: type[WallscopeError]) -> str:
    """Return the text of a file in UTF-8, without a byte order mark, its lines ended by a newline alone.

    Raises:
        error: it cannot be read, is not a regular file, is larger than `most_bytes`, or is not text.
    """
    try:
        text = read_user_bytes(path, most_bytes, cure, error).decode("utf-8-sig")
    except (OSError, ValueError) as found:
        reason = found.strerror if isinstance(found, OSError) else "it is not UTF-8 text"
        raise error(f"{path} — cannot be read: {reason} — {cure}") from found
    if "\0" in text:
        raise error(f"{path} — is not text — {cure}")
    return text.replace("\r\n", "\n").replace("\r", "\n")
