"""Memory of a rank: what was copied and filled, from where to where, and what of it stood alone."""

from collections.abc import Iterator
from typing import Any

import numpy as np
import polars as pl

from wallscope.arrays.columns import Rows, filled, place
from wallscope.arrays.lookup import beside, places, rows_of
from wallscope.model.capture import Capture
from wallscope.model.kinds import CallRole, CopyCause, CopyDirection, MemoryKind, OperationClass
from wallscope.model.memory import CopyWork, Memory, Offload
from wallscope.thresholds import BULK_COPY_BYTES
from wallscope.timeline.spans import Spans, common, covered_ns, inside, ordered, union
from wallscope.walls.typical import CATEGORIES, TypicalWork

_DIRECTIONS = tuple(CopyDirection)
_TO_DEVICE, _TO_HOST, _FILL = map(
    _DIRECTIONS.index, (CopyDirection.HOST_TO_DEVICE, CopyDirection.DEVICE_TO_HOST, CopyDirection.FILL)
)
_IS_ISSUING = np.isin(list(CallRole), (CallRole.LAUNCH, CallRole.GRAPH, CallRole.COPY))
_IS_PINNED = {MemoryKind.PINNED: 1, MemoryKind.PAGEABLE: 0}
_PINNED = np.array([*(_IS_PINNED.get(kind, -1) for kind in MemoryKind), -1])
"""By place of the memory of a copy's host end, whether it is pinned; behind the last, and of others -1."""


def memory(work: TypicalWork, capture: Capture, rank: dict[str, Any], capacity_bytes: int | None) -> Memory:
    """Traffic in the typical step of one rank by direction and host memory, its peak, allocator calls.

    `rank` is its row of `RANKS`. The peak is that of the whole capture; memory that was there before it
    counts as far as its release shows.
    """
    columns, rows = work.columns, work.rows_of(OperationClass.COPY)
    copy = places(columns.op[rows], capture.copies["op"].to_numpy())
    told = capture.copies["direction", "source", "destination"][copy[copy >= 0]]
    direction, source, destination = (beside(filled(column).astype(np.int64), copy >= 0) for column in told)
    host_end = np.where(direction == _TO_DEVICE, source, np.where(direction == _TO_HOST, destination, -1))
    pinned = _PINNED[host_end]
    working = union(columns.spans(np.flatnonzero(columns.of_class != place(OperationClass.COPY))))
    worked = common(working, work.steps)
    allocating = _allocating(work, capture, rank["process"])
    return Memory(
        peak_bytes=peak_bytes(capture.memory, rank),
        capacity_bytes=capacity_bytes,
        allocator_calls=None if allocating is None else allocating[0],
        allocator_ns=None if allocating is None else allocating[1],
        copies=tuple(
            sorted(
                (
                    _copies(work, rows[(direction == way) & (pinned == kind)], way, kind, worked)
                    for way, kind in sorted(set(zip(direction.tolist(), pinned.tolist(), strict=True)))
                ),
                key=lambda entry: (-entry.exposed_ns, -entry.work_ns, entry.direction, str(entry.pinned)),
            )
        ),
    )


def _copies(work: TypicalWork, rows: Rows, direction: int, pinned: int, worked: Spans) -> CopyWork:
    """Copies of one direction and memory; `worked` is when something else ran in the steps."""
    columns, running = work.columns, union(work.columns.spans(rows))
    begun = rows[columns.begins[rows]]
    size = filled(work.operations["bytes"][begun], 0)
    bulk = begun[size >= BULK_COPY_BYTES]
    ran_ns = int((columns.end_ns[bulk] - columns.start_ns[bulk]).sum())
    has_bandwidth = ran_ns and direction != _FILL
    bulk_bytes = int(size[size >= BULK_COPY_BYTES].sum())
    exposed_ns = work.all_covered_ns(running) - int(covered_ns(worked, running).sum())
    return CopyWork(
        direction=_DIRECTIONS[direction],
        count=work.mean(begun.size),
        bytes=work.mean(int(size.sum())),
        work_ns=work.mean(work.total_ns(rows)),
        exposed_ns=work.mean(exposed_ns),
        pinned=None if pinned < 0 else bool(pinned),
        bulk_bandwidth_bytes_per_s=bulk_bytes * 1_000_000_000 / ran_ns if has_bandwidth else None,
    )


def offload(work: TypicalWork, causes: pl.DataFrame) -> Offload:
    """The copies to the host that come back, and those that bring them, of one rank (`COPY_CAUSES`)."""
    columns = work.columns
    offloaded = causes["op"].to_numpy()[filled(causes["cause"]) == place(CopyCause.OFFLOAD)]
    moved, _ = rows_of(columns.op, offloaded)
    begun = moved[columns.begins[moved]]
    size, category = filled(work.operations["bytes"][begun], 0), columns.category[begun]
    to_host, to_device = (
        size[category == CATEGORIES.index(way)]
        for way in (CopyDirection.DEVICE_TO_HOST, CopyDirection.HOST_TO_DEVICE)
    )
    return Offload(
        to_host=work.mean(to_host.size),
        to_host_bytes=work.mean(int(to_host.sum())),
        to_device=work.mean(to_device.size),
        to_device_bytes=work.mean(int(to_device.sum())),
        work_ns=work.mean(work.total_ns(moved)),
    )


def peak_bytes(used: pl.DataFrame, rank: dict[str, Any]) -> int | None:
    """The most that a rank, a row of `RANKS`, had in use (`MEMORY`); `None` where nothing recorded it."""
    own = used_by(used, rank)["bytes_used"]
    return None if own.is_empty() else int(own.to_numpy().max())


def used_by(used: pl.DataFrame, rank: dict[str, Any]) -> pl.DataFrame:
    """The rows of `MEMORY` of one rank, a row of `RANKS`."""
    if used.is_empty():
        return used
    return used.filter([pl.col(name).eq_missing(pl.lit(rank[name])) for name in ("process", "device")])


def _allocating(work: TypicalWork, capture: Capture, process: int) -> tuple[int, int] | None:
    """Calls that allocate or release memory in the host's time of a step, and the time in them.

    Time is that of the threads that issue work; calls inside calls count once. `None` without any call rows.
    """
    if capture.calls.is_empty():
        return None
    count = spent_ns = 0
    for calls in calls_of_threads(capture, process):
        role = filled(calls["role"])
        rows = np.flatnonzero(role == place(CallRole.ALLOC))
        if rows.size == 0:
            continue
        start_ns, end_ns = calls["start_ns"].to_numpy()[rows], calls["end_ns"].to_numpy()[rows]
        count += int(inside(work.issued, start_ns).sum())
        if _IS_ISSUING[role].any():
            spent_ns += int(covered_ns(union(ordered(start_ns, end_ns)), work.issued).sum())
    return work.mean(count), work.mean(spent_ns)


def calls_of_threads(capture: Capture, process: int) -> Iterator[pl.DataFrame]:
    """The calls (`CALLS`) of each thread of a process that made any."""
    is_own = capture.threads["process"].to_numpy() == process
    threads, thread = capture.threads["thread"].to_numpy()[is_own], capture.calls["thread"]
    bounds = (thread.search_sorted(threads, side).to_numpy() for side in ("left", "right"))
    for first, last in zip(*(bound.tolist() for bound in bounds), strict=True):
        if last > first:
            yield capture.calls[first:last]
