"""Describe files that people give for a trace: what they are, and what to give instead."""

import json
import zlib
from pathlib import Path

from wallscope.errors import InputError
from wallscope.kineto.trace_bytes import GZIP_MAGIC, HEAD_BYTES, read_stored_head, unpack_head

_SQLITE_MAGIC = b"SQLite format 3"
_NSYS_TABLES = ("StringIds", "META_DATA_EXPORT", "CUPTI_ACTIVITY_KIND_KERNEL", "TARGET_INFO_SYSTEM_ENV")
_TORCH_HINT = "profile with torch.profiler and export_chrome_trace"
_SQLITE_HINT = "export the report again: nsys export --type sqlite"


def describe_other_json(content: bytes) -> str | None:
    """Return what a JSON file is that is neither a trace nor an answer, and a cure; `None` if unknown.

    >>> describe_other_json(b"")
    'is empty — copy or write the file again'
    """
    if not content.strip():
        return "is empty — copy or write the file again"
    first = content.lstrip()[:HEAD_BYTES].split(b"\n", 1)[0]
    for text in (content, first):  # nsys writes an object per line
        try:
            found = json.loads(text)
        except (ValueError, RecursionError):
            continue
        return _describe_members(found) if isinstance(found, dict) else None
    return None


def _describe_members(members: dict[str, object]) -> str | None:
    if "nodes" in members and "chakra" in str(members.get("schema")):
        return f"is an execution trace of PyTorch, which has no times of the GPU — {_TORCH_HINT}"
    if isinstance(members.get("type"), int) or any(table in members for table in _NSYS_TABLES):
        return f"is a JSON export of Nsight Systems, which is not read — {_SQLITE_HINT}"
    return None


def refuse_other_gzip(path: Path) -> None:
    """Refuse a gzip file without a trace in it; other files pass.

    Raises:
        InputError: states what is in the file.
    """
    packed = read_stored_head(path)
    if not packed.startswith(GZIP_MAGIC):  # the reader of exports describes it
        return
    try:
        head = unpack_head(packed)
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
