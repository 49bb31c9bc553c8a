"""Memory of a rank: what was copied and filled, from where to where, and what of it stood alone."""

from typing import Any

import numpy as np
import polars as pl

from wallscope.model.capture import Capture
from wallscope.model.kinds import CallRole, CopyCause, CopyDirection, MemoryKind, OperationClass
from wallscope.model.memory import CopyWork, Memory, Offload
from wallscope.timeline.copies import BULK_BYTES
from wallscope.timeline.spans import covered_ns, ordered, union
from wallscope.walls.budget import spans_of
from wallscope.walls.typical import TypicalWork

_HOST_END = {CopyDirection.HOST_TO_DEVICE: "source", CopyDirection.DEVICE_TO_HOST: "destination"}
_ISSUING = [CallRole.LAUNCH, CallRole.GRAPH, CallRole.COPY]
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
            bulk_bandwidth_bytes_per_s=_bulk_bandwidth(group),
        )
        for (direction, is_pinned), group in pinned.group_by("direction", "pinned")
    ]
    return Memory(
        peak_bytes=peak_bytes(capture.memory, rank),
        capacity_bytes=capacity_bytes,
        allocator_calls=_allocator_calls(work, capture, rank["process"]),
        allocator_ns=_allocator_ns(work, capture, rank["process"]),
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


def offload(work: TypicalWork, causes: pl.DataFrame) -> Offload:
    """The copies to the host that come back, and those that bring them, of one rank (`COPY_CAUSES`)."""
    moved = work.operations.join(causes.filter(pl.col("cause") == CopyCause.OFFLOAD), on="op")
    begun = moved.filter("begins")
    to_host = begun.filter(pl.col("category") == CopyDirection.DEVICE_TO_HOST)["bytes"]
    to_device = begun.filter(pl.col("category") == CopyDirection.HOST_TO_DEVICE)["bytes"]
    return Offload(
        to_host=work.mean(len(to_host)),
        to_host_bytes=work.mean(int(to_host.sum())),
        to_device=work.mean(len(to_device)),
        to_device_bytes=work.mean(int(to_device.sum())),
        work_ns=work.mean(int(moved["inside_ns"].sum())),
    )


def _bulk_bandwidth(copies: pl.DataFrame) -> float | None:
    """Bytes by time of the copies of 64 KiB and more that begin in the steps, while they ran."""
    is_bulk = pl.col("begins") & (pl.col("bytes") >= BULK_BYTES)
    bulk = copies.filter(is_bulk & (pl.col("direction") != CopyDirection.FILL))
    ran_ns = int((bulk["end_ns"] - bulk["start_ns"]).sum())
    return int(bulk["bytes"].sum()) * 1_000_000_000 / ran_ns if ran_ns else None


def peak_bytes(used: pl.DataFrame, rank: dict[str, Any]) -> int | None:
    """The most that a rank, a row of `RANKS`, had in use (`MEMORY`); `None` where nothing recorded it."""
    own = used_by(used, rank)["bytes_used"]
    return None if own.is_empty() else int(own.to_numpy().max())


def used_by(used: pl.DataFrame, rank: dict[str, Any]) -> pl.DataFrame:
    """The rows of `MEMORY` of one rank, a row of `RANKS`."""
    return used.filter([pl.col(name).eq_missing(pl.lit(rank[name])) for name in ("process", "device")])


def _allocator_calls(work: TypicalWork, capture: Capture, process: int) -> int | None:
    """Calls that allocate or release memory in the host's time of a step; `None` without any call rows."""
    if capture.calls.is_empty():
        return None
    threads = capture.threads.filter(pl.col("process") == process)["thread"]
    is_own = pl.col("thread").is_in(threads.implode()) & (pl.col("role") == CallRole.ALLOC)
    at_ns = capture.calls.filter(is_own)["start_ns"].to_numpy()
    step = np.searchsorted(work.issued.start_ns, at_ns, side="right") - 1
    return work.mean(int(((step >= 0) & (at_ns < work.issued.end_ns[step])).sum()))


def _allocator_ns(work: TypicalWork, capture: Capture, process: int) -> int | None:
    """Time in allocation and release calls of the threads that issue work; calls inside calls count once."""
    if capture.calls.is_empty():
        return None
    threads = capture.threads.filter(pl.col("process") == process)["thread"]
    own = capture.calls.filter(pl.col("thread").is_in(threads.implode()))
    issuing = own.filter(pl.col("role").is_in(_ISSUING))["thread"].unique()
    allocating = own.filter(pl.col("thread").is_in(issuing.implode()) & (pl.col("role") == CallRole.ALLOC))
    spent_ns = 0
    for calls in allocating.partition_by("thread"):
        spent = union(ordered(calls["start_ns"].to_numpy(), calls["end_ns"].to_numpy()))
        spent_ns += int(covered_ns(spent, work.issued).sum())
    return work.mean(spent_ns)
