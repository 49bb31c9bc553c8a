"""Memory of a rank: what was copied and filled, from where to where, and what of it stood alone."""

from typing import Any

import numpy as np
import polars as pl

from wallscope.model.analysis import CopyWork, Memory
from wallscope.model.capture import Capture
from wallscope.model.kinds import CallRole, CopyDirection, MemoryKind, OperationClass
from wallscope.timeline.spans import union
from wallscope.walls.budget import spans_of
from wallscope.walls.typical import TypicalWork

_HOST_END = {CopyDirection.HOST_TO_DEVICE: "source", CopyDirection.DEVICE_TO_HOST: "destination"}
_IS_PINNED = {MemoryKind.PINNED: True, MemoryKind.PAGEABLE: False}


def memory(work: TypicalWork, capture: Capture, rank: dict[str, Any], capacity_bytes: int | None) -> Memory:
    """Traffic in the typical step of one rank by direction and host memory, its peak, allocator calls.

    `rank` is its row of `RANKS`. The peak is that of the whole capture; memory that was there before it
    counts as far as its release shows.
    """
    is_copy = pl.col("class") == OperationClass.COPY
    moved = work.operations.filter(is_copy).join(capture.copies, on="op", how="left")
    working = union(spans_of(work.operations.filter(~is_copy)))
    worked_ns = work.all_covered_ns(working)
    pinned = moved.with_columns(pinned=_pinned())
    listed = [
        CopyWork(
            direction=CopyDirection(direction),
            count=work.mean(int(group["begins"].sum())),
            bytes=work.mean(int(group.filter("begins")["bytes"].sum())),
            work_ns=work.mean(int(group["inside_ns"].sum())),
            exposed_ns=work.mean(work.all_covered_ns(union(working, spans_of(group))) - worked_ns),
            pinned=is_pinned,
        )
        for (direction, is_pinned), group in pinned.group_by("direction", "pinned")
    ]
    return Memory(
        peak_bytes=_peak_bytes(capture.memory, rank),
        capacity_bytes=capacity_bytes,
        allocator_calls=_allocator_calls(work, capture, rank["process"]),
        copies=tuple(
            sorted(
                listed,
                key=lambda entry: (-entry.exposed_ns, -entry.work_ns, entry.direction, str(entry.pinned)),
            )
        ),
    )


def _pinned() -> pl.Expr:
    """Whether the host's end of a copy is pinned; null where there is none or it is not told."""
    host_end = pl.coalesce(
        pl.when(pl.col("direction") == direction).then(pl.col(column))
        for direction, column in _HOST_END.items()
    )
    return host_end.cast(pl.String).replace_strict(
        {str(kind): pinned for kind, pinned in _IS_PINNED.items()}, default=None, return_dtype=pl.Boolean
    )


def _peak_bytes(used: pl.DataFrame, rank: dict[str, Any]) -> int | None:
    """The most that was in use, `None` where the capture did not record it."""
    is_own = [pl.col(name).eq_missing(pl.lit(rank[name])) for name in ("process", "device")]
    own = used.filter(is_own)["bytes_used"]
    return None if own.is_empty() else int(own.to_numpy().max())


def _allocator_calls(work: TypicalWork, capture: Capture, process: int) -> int | None:
    """Calls that allocate or release memory in the host's time of a step; `None` without any call rows."""
    if capture.calls.is_empty():
        return None
    threads = capture.threads.filter(pl.col("process") == process)["thread"]
    is_own = pl.col("thread").is_in(threads.implode()) & (pl.col("role") == CallRole.ALLOC)
    at_ns = capture.calls.filter(is_own)["start_ns"].to_numpy()
    step = np.searchsorted(work.issued.start_ns, at_ns, side="right") - 1
    return work.mean(int(((step >= 0) & (at_ns < work.issued.end_ns[step])).sum()))
