"""Summarize the memory of a rank: copies and memsets, use, and how close it is to the GPU's capacity.

Memory pressure takes no time by itself. It shows which fixes have no memory left. Evidence is the headroom by
recorded allocations, recompute of forward work, offload copies, and retries of PyTorch's allocator. A retry
releases all cached memory to the driver and allocates again.
"""

import re
from collections.abc import Iterator
from typing import Any

import numpy as np
import numpy.typing as npt
import polars as pl

from wallscope.attribution.totals import CATEGORIES, TypicalWork
from wallscope.columns import Rows, as_integers, encode_member, expand, find_places, match_rows
from wallscope.model.capture import Capture
from wallscope.model.diagnosis import MemoryPressure, Pressure
from wallscope.model.enums import (
    CallRole,
    CopyCause,
    CopyDirection,
    MemoryKind,
    OperationClass,
    RecomputeSource,
)
from wallscope.model.rank_summaries import CopyWork, Memory, MemoryUse, Offload
from wallscope.thresholds.causes import (
    AMPLE_HEADROOM_SHARE,
    BULK_COPY_BYTES,
    HIGH_HEADROOM_SHARE,
    NEAR_HEADROOM_SHARE,
    OFFLOADED_BYTES,
)
from wallscope.thresholds.verdict import MATERIAL_SHARE
from wallscope.trace.intervals import Spans, common, covered_ns, is_inside, order_spans, union
from wallscope.trace.names import TextMemo
from wallscope.trace.thread_timeline import is_outer
from wallscope.units import percent, plural, size

_DIRECTIONS = tuple(CopyDirection)
_TO_DEVICE, _TO_HOST, _FILL = map(
    _DIRECTIONS.index, (CopyDirection.HOST_TO_DEVICE, CopyDirection.DEVICE_TO_HOST, CopyDirection.FILL)
)
_IS_ISSUING = np.isin(list(CallRole), (CallRole.LAUNCH, CallRole.GRAPH, CallRole.COPY))
_IS_PINNED = {MemoryKind.PINNED: 1, MemoryKind.PAGEABLE: 0}
_PINNED = np.array([*(_IS_PINNED.get(kind, -1) for kind in MemoryKind), -1])
"""Whether the host memory of a copy is pinned, by its kind; the last entry is for all other kinds: -1."""


def summarize_memory(
    work: TypicalWork, capture: Capture, rank: dict[str, Any], capacity_bytes: int | None
) -> Memory:
    """Return copy traffic by direction and host memory in a typical step, the peak, and allocator calls.

    `rank` is its row of `RANKS`. The peak covers the whole capture. Memory allocated before the capture
    counts as far as its release was recorded.
    """
    columns, rows = work.columns, work.rows_of(OperationClass.COPY)
    copy = find_places(columns.op[rows], capture.copies["op"].to_numpy())
    of_copies = capture.copies["direction", "source", "destination"][copy[copy >= 0]]
    direction, source, destination = (
        expand(as_integers(column).astype(np.int64), copy >= 0) for column in of_copies
    )
    host_end = np.where(direction == _TO_DEVICE, source, np.where(direction == _TO_HOST, destination, -1))
    pinned = _PINNED[host_end]
    working = union(columns.spans(np.flatnonzero(columns.of_class != encode_member(OperationClass.COPY))))
    worked = common(working, work.steps)
    allocating = _allocating(work, capture, rank["process"])
    return Memory(
        peak_bytes=find_peak_bytes(capture.memory, rank),
        capacity_bytes=capacity_bytes,
        allocator_calls=None if allocating is None else allocating[0],
        allocator_ns=None if allocating is None else allocating[1],
        copies=tuple(
            sorted(
                (
                    _summarize_copies(work, rows[(direction == way) & (pinned == kind)], way, kind, worked)
                    for way, kind in sorted(set(zip(direction.tolist(), pinned.tolist(), strict=True)))
                ),
                key=lambda entry: (-entry.exposed_ns, -entry.work_ns, entry.direction, str(entry.pinned)),
            )
        ),
    )


def _summarize_copies(work: TypicalWork, rows: Rows, direction: int, pinned: int, worked: Spans) -> CopyWork:
    """Return copies of one direction and memory; `worked` is when something else ran in the steps."""
    columns, running = work.columns, union(work.columns.spans(rows))
    begun = rows[columns.begins[rows]]
    size = as_integers(work.operations["bytes"][begun], 0)
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


def find_offload(work: TypicalWork, causes: pl.DataFrame) -> Offload:
    """Return copies of one rank (`COPY_CAUSES`) that offload to the host and that come back."""
    columns = work.columns
    offloaded = causes["op"].to_numpy()[as_integers(causes["cause"]) == encode_member(CopyCause.OFFLOAD)]
    moved, _ = match_rows(columns.op, offloaded)
    begun = moved[columns.begins[moved]]
    size, category = as_integers(work.operations["bytes"][begun], 0), columns.category[begun]
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


def find_peak_bytes(used: pl.DataFrame, rank: dict[str, Any]) -> int | None:
    """Return the peak use of a rank, a row of `RANKS` (`MEMORY`); `None` if nothing recorded it."""
    own = select_memory_of_rank(used, rank)["bytes_used"]
    return None if own.is_empty() else int(own.to_numpy().max())


def select_memory_of_rank(used: pl.DataFrame, rank: dict[str, Any]) -> pl.DataFrame:
    """Return the rows of `MEMORY` of one rank, a row of `RANKS`."""
    if used.is_empty():
        return used
    return used.filter([pl.col(name).eq_missing(pl.lit(rank[name])) for name in ("process", "device")])


def _allocating(work: TypicalWork, capture: Capture, process: int) -> tuple[int, int] | None:
    """Return calls that allocate or release memory in the host's time of a step, and the time in them.

    Time is that of the threads that issue work. Nested calls count once. `None` without any call rows.
    """
    if capture.calls.is_empty():
        return None
    count = spent_ns = 0
    for calls in split_calls_by_thread(capture, process):
        role = as_integers(calls["role"])
        rows = np.flatnonzero(role == encode_member(CallRole.ALLOC))
        if rows.size == 0:
            continue
        start_ns, end_ns = calls["start_ns"].to_numpy()[rows], calls["end_ns"].to_numpy()[rows]
        count += int(is_inside(work.issued, start_ns).sum())
        if _IS_ISSUING[role].any():
            spent_ns += int(covered_ns(union(order_spans(start_ns, end_ns)), work.issued).sum())
    return work.mean(count), work.mean(spent_ns)


def split_calls_by_thread(capture: Capture, process: int) -> Iterator[pl.DataFrame]:
    """Yield the calls (`CALLS`) of each thread of a process that has any."""
    is_own = capture.threads["process"].to_numpy() == process
    thread = capture.calls["thread"].to_numpy()
    threads = capture.threads["thread"].to_numpy()[is_own].astype(thread.dtype)
    bounds = (np.searchsorted(thread, threads, side).tolist() for side in ("left", "right"))
    for first, last in zip(*bounds, strict=True):
        if last > first:
            yield capture.calls[first:last]


_LEVELS: tuple[Pressure, ...] = ("unknown", "none", "near", "high")
_CALLS = (
    ("M", r"^((cuda|hip)Malloc(Pitch|3D)?|cuMemAlloc(Pitch)?|(cu|hip)MemCreate)$"),
    ("F", r"^((cuda|hip)Free|cuMemFree|(cu|hip)MemUnmap|(cu|hip)MemRelease)$"),
    ("", r"Synchronize$|Event|Stream(Query|IsCapturing|GetCapture)|GetLastError|PeekAtLastError|MemGetInfo"),
    (
        "",
        r"^(cuda|hip)[GS]etDevice|^(cu|hip)Mem(Map|SetAccess|Address\w+)|^cuCtx|ThreadExchangeStreamCaptureMode",
    ),
    ("", r"^hip(Stream(GetDevice|IsCapturing)|PointerGetAttribute|DeviceGetAttribute|DriverGetVersion)"),
)
_RETRY = re.compile(rb"MF{2,}(?=M)")


def measure_memory_use(
    capture: Capture, rank: dict[str, Any], windows: pl.DataFrame, capacity_bytes: int | None
) -> MemoryUse | None:
    """Return what recorded allocations show of one rank, a row of `RANKS`; `None` if none was recorded.

    `windows` follow `STEPS` and are those of the rank. The level of a step is that at the end of its host
    time.
    """
    own = select_memory_of_rank(capture.memory, rank)
    if own.is_empty():
        return None
    at_ns, used_bytes = own["at_ns"].to_numpy(), own["bytes_used"].to_numpy()
    steady = windows.filter("steady").sort("step")
    ends = steady["issue_end_ns"].to_numpy()[[0, -1]] if len(steady) > 1 else np.empty(0, np.int64)
    event = np.searchsorted(at_ns, ends, side="right") - 1
    growth: int | None = None
    if event.size and event[0] >= 0:
        steps = int(steady["step"][-1]) - int(steady["step"][0])
        growth = round(int(used_bytes[event[1]] - used_bytes[event[0]]) / steps)
    is_own = capture.operations["rank_id"].to_numpy() == rank["rank_id"]
    began_ns = capture.operations["start_ns"].to_numpy()[is_own]
    return MemoryUse(
        headroom_bytes=None if capacity_bytes is None else capacity_bytes - int(used_bytes.max()),
        growth_bytes_per_step=growth,
        from_the_start=bool(at_ns[0] <= began_ns.min(initial=np.iinfo(np.int64).max)),
    )


def measure_recomputed_share(work: TypicalWork, recompute: pl.DataFrame) -> tuple[float, bool] | None:
    """Return the share of recomputed forward work in the compute work of a typical step (`RECOMPUTE`).

    Returns:
        The share and whether it is only a lower bound; `None` without compute work.
    """
    computing = work.rows_of(OperationClass.COMPUTE)
    total_ns = work.total_ns(computing)
    place = find_places(work.columns.op[computing], recompute["op"].to_numpy())
    is_bound = bool((recompute["how"][place[place >= 0]] == RecomputeSource.LOWER_BOUND).any())
    return (work.total_ns(computing[place >= 0]) / total_ns, is_bound) if total_ns else None


def count_allocator_retries(windows: pl.DataFrame, capture: Capture, process: int) -> int | None:
    """Count allocator retries in the host time of the steady steps of one rank.

    A retry is an allocation, two releases or more and an allocation, with no other call between them except
    synchronization and similar calls. This happens when memory runs out, not when a program frees and
    allocates between steps. `None` without call rows or steady steps.

    Args:
        windows: `STEPS` of the rank.
        capture: its calls, with names.
        process: dense number of the rank's process.
    """
    steady = windows.filter("steady").sort("issue_start_ns")
    if capture.calls.is_empty() or steady.is_empty():
        return None
    letter = _LETTERS.of(capture.call_names["text"]).astype(np.uint8)
    steps = Spans(steady["issue_start_ns"].to_numpy(), steady["issue_end_ns"].to_numpy())
    return sum(
        _retries(letter[calls["name"].to_numpy()], calls, steps)
        for calls in split_calls_by_thread(capture, process)
    )


def _match_memory_calls(texts: pl.Series) -> npt.NDArray[np.int64]:
    """Return `M` for calls that allocate device memory, `F` for releases, 0 for ignored ones, else `x`."""
    letter = np.full(len(texts), ord("x"), np.int64)
    for code, pattern in reversed(_CALLS):
        letter[texts.str.contains(pattern).to_numpy()] = ord(code or "\0")
    return letter


_LETTERS = TextMemo(_match_memory_calls)


def _retries(letter: npt.NDArray[np.uint8], calls: pl.DataFrame, steps: Spans) -> int:
    """Count retries among the calls of a thread, by their letters; nested calls do not count."""
    if (letter == ord("M")).sum() < 2 or (letter == ord("F")).sum() < 2:
        return 0
    rows = np.flatnonzero(is_outer(calls["end_ns"].to_numpy()) & (letter > 0))
    found = np.array([match.end() for match in _RETRY.finditer(letter[rows].tobytes())], np.int64)
    return int(is_inside(steps, calls["start_ns"].to_numpy()[rows[found]]).sum())


def judge_memory_pressure(
    memory: Memory, recomputed: tuple[float, bool] | None, retries: int | None
) -> MemoryPressure:
    """Return the pressure level and its evidence; `unknown` without evidence.

    High: less than 5 % of the capacity is left, or the allocator retried in steady steps. Near: less than 15
    % is left, or there is recompute (1 % of compute work) or offload (64 MiB per step) without ample headroom
    (30 %). None: more is left, recorded from the start.
    """
    found = [*_by_headroom(memory), *_by_retries(retries)]
    share = _headroom_share(memory)
    is_ample = share is not None and share >= AMPLE_HEADROOM_SHARE
    traded: Pressure = "unknown" if is_ample else "near"
    if recomputed is not None and recomputed[0] >= MATERIAL_SHARE:
        at_least = "at least " if recomputed[1] else ""
        found.append((traded, f"recompute takes {at_least}{percent(recomputed[0])} of compute work"))
    offload = memory.offload
    if offload is not None and offload.to_host_bytes + offload.to_device_bytes >= OFFLOADED_BYTES:
        moved = f"{size(offload.to_host_bytes)} to the host and {size(offload.to_device_bytes)} back"
        found.append((traded, f"offload copies {moved} per step"))
    level = max((_LEVELS.index(level) for level, _ in found), default=0)
    return MemoryPressure(_LEVELS[level], tuple(text for _, text in found))


def _headroom_share(memory: Memory) -> float | None:
    """Return the share of the capacity that the peak leaves; `None` if it may be less and that matters."""
    use, capacity_bytes = memory.use, memory.capacity_bytes
    if use is None or use.headroom_bytes is None or not capacity_bytes:
        return None
    share = max(use.headroom_bytes, 0) / capacity_bytes
    return share if use.from_the_start or share < NEAR_HEADROOM_SHARE else None


def _by_headroom(memory: Memory) -> list[tuple[Pressure, str]]:
    use, share = memory.use, _headroom_share(memory)
    if use is None or memory.capacity_bytes is None or memory.peak_bytes is None:
        return []
    peak = f"peak use {size(memory.peak_bytes)} of {size(memory.capacity_bytes)}"
    if share is None:
        return [("unknown", f"{peak}, without allocations before the capture")]
    level: Pressure = (
        "high" if share < HIGH_HEADROOM_SHARE else "near" if share < NEAR_HEADROOM_SHARE else "none"
    )
    return [(level, f"{peak}: {percent(share)} left")]


def _by_retries(retries: int | None) -> list[tuple[Pressure, str]]:
    if not retries:
        return []
    times = plural(retries, "allocator retry")
    return [("high", f"{times} (cudaFree, then cudaMalloc) in steady steps")]
