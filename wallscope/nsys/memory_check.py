"""Whether an export fits into memory, checked before it is read.

A process that asks for more than there is gets killed without a word; a refusal says what is needed. Limits:
`getrlimit(2)`; `proc_meminfo(5)`, MemAvailable; https://docs.kernel.org/admin-guide/cgroup-v2.html,
"memory.max", and cgroup-v1/memory.html, "memory.limit_in_bytes". Where the system tells none of them, nothing
is refused.
"""

import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

from wallscope.errors import InputError
from wallscope.nsys import catalog
from wallscope.nsys.host_events import SAMPLES, SWITCHES
from wallscope.nsys.tables import Tables
from wallscope.units import size

_OPERATION_BYTES, _CALL_BYTES, _RANGE_BYTES = 230, 60, 70
"""What a row costs while it is accounted for, at the least: three quarters of what five million took."""
_SWITCH_BYTES, _SAMPLE_BYTES = 140, 55
"""What a row of the scheduler and a sample of the processor cost while they are read, likewise."""
_MOST_OF_A_FILE = 12
"""No export needs that many times its size: rows are counted only where there is less."""

_SYSTEM = Path("/")
_GROUPS = (
    ("sys/fs/cgroup/memory.max", "sys/fs/cgroup/memory.current", "sys/fs/cgroup/memory.stat"),
    (
        "sys/fs/cgroup/memory/memory.limit_in_bytes",
        "sys/fs/cgroup/memory/memory.usage_in_bytes",
        "sys/fs/cgroup/memory/memory.stat",
    ),
)
"""Limit, use, and what of the use can be given back, of a control group, by version."""
_RECLAIMABLE = (("inactive_file", "active_file"), ("total_inactive_file", "total_active_file"))


def check_memory(path: Path, tables: Tables, size_bytes: int) -> None:
    """Refuse an export that cannot fit; `size_bytes` is what it takes on disk.

    Raises:
        InputError: it needs more memory than this process can have.
    """
    left_bytes = min(list_free_bytes(_SYSTEM), default=None)
    if left_bytes is None or left_bytes > _MOST_OF_A_FILE * size_bytes:
        return
    needed_bytes = _needed_bytes(tables)
    if needed_bytes > left_bytes:
        raise InputError(
            f"{path} — needs at least {size(needed_bytes)} of memory, {size(max(left_bytes, 0))} are left —"
            " raise the limit, or capture fewer steps"
        )


def _needed_bytes(tables: Tables) -> int:
    """What rows of the host take while they are read, or the others while accounted for: what is more."""
    host = {SWITCHES.name: _SWITCH_BYTES, SAMPLES.name: _SAMPLE_BYTES}
    cost = {table.name: _OPERATION_BYTES for table in catalog.DEVICE_TABLES}
    cost |= {catalog.CALLS.name: _CALL_BYTES, catalog.RANGES.name: _RANGE_BYTES}
    return max(
        sum(tables.row_count(name) * each for name, each in own.items() if name in tables.columns)
        for own in (host, cost)
    )


def list_free_bytes(system: Path) -> Iterator[int]:
    """What each limit leaves to this process, in bytes; `system` is the root of the file system."""
    own = _read_words(system / "proc/self/statm")
    if own and sys.platform == "linux":
        import resource  # noqa: PLC0415  # other systems lack it

        most_bytes = resource.getrlimit(resource.RLIMIT_AS)[0]
        if most_bytes != resource.RLIM_INFINITY:
            yield most_bytes - int(own[0]) * resource.getpagesize()
    for (limit, use, stat), reclaimable in zip(_GROUPS, _RECLAIMABLE, strict=True):
        most, used = _read_words(system / limit), _read_words(system / use)
        if most and used and most[0].isdecimal():
            pairs = _parse_pairs(_read_words(system / stat))
            yield int(most[0]) - int(used[0]) + sum(pairs.get(name, 0) for name in reclaimable)
    pairs = _parse_pairs(_read_words(system / "proc/meminfo", without="kB"))
    if "MemAvailable:" in pairs:
        yield 1024 * (pairs["MemAvailable:"] + pairs.get("SwapFree:", 0))


def _read_words(path: Path, without: str = "") -> list[str]:
    """The words of a small file; none where it cannot be read."""
    try:
        return [word for word in path.read_text(encoding="ascii").split() if word != without]
    except OSError:
        return []


def _parse_pairs(words: Sequence[str]) -> dict[str, int]:
    return {name: int(value) for name, value in zip(words[::2], words[1::2], strict=False)}
