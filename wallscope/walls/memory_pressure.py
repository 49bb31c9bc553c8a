"""How close a rank is to the end of its GPU's memory, and what tells it.

Pressure costs no time by itself; it says which fixes have no room. Evidence are the headroom that
recorded allocations leave, forward work that runs again, offloaded copies, and retries of PyTorch's
allocator, which hands everything back to the driver and asks again when an allocation fails.
"""

import re
from typing import Any

import numpy as np
import numpy.typing as npt
import polars as pl

from wallscope.arrays.lookup import places
from wallscope.model.capture import Capture
from wallscope.model.diagnosis import MemoryPressure, Pressure
from wallscope.model.kinds import OperationClass, RecomputeSource
from wallscope.model.memory import Memory, MemoryUse
from wallscope.text_memo import TextMemo
from wallscope.thresholds import (
    AMPLE_HEADROOM_SHARE,
    HIGH_HEADROOM_SHARE,
    MATERIAL_SHARE,
    NEAR_HEADROOM_SHARE,
    OFFLOADED_BYTES,
)
from wallscope.timeline.call_spans import are_outer
from wallscope.timeline.spans import Spans, inside
from wallscope.units import percent, plural, size
from wallscope.walls.memory import calls_of_threads, used_by
from wallscope.walls.typical import TypicalWork

_LEVELS: tuple[Pressure, ...] = ("unknown", "none", "near", "high")
_CALLS = (
    ("M", r"^(cudaMalloc(Pitch|3D)?|cuMemAlloc(Pitch)?|cuMemCreate)$"),
    ("F", r"^(cudaFree|cuMemFree|cuMemUnmap|cuMemRelease)$"),
    ("", r"Synchronize$|Event|Stream(Query|IsCapturing|GetCapture)|GetLastError|PeekAtLastError|MemGetInfo"),
    ("", r"^cuda[GS]etDevice|^cuMem(Map|SetAccess|Address\w+)|^cuCtx|ThreadExchangeStreamCaptureMode"),
)
_RETRY = re.compile(rb"MF{2,}(?=M)")


def memory_use(
    capture: Capture, rank: dict[str, Any], windows: pl.DataFrame, capacity_bytes: int | None
) -> MemoryUse | None:
    """What recorded allocations tell of one rank, a row of `RANKS`; `None` where none was recorded.

    `windows` follow `STEPS` and are those of the rank. The level of a step is that at the end of the
    host's time for it.
    """
    own = used_by(capture.memory, rank)
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


def recomputed_share(work: TypicalWork, recompute: pl.DataFrame) -> tuple[float, bool] | None:
    """Share of recomputed forward work in the compute work of a typical step (`RECOMPUTE`).

    Returns:
        The share and whether it is a lower bound alone; `None` without compute work.
    """
    computing = work.rows_of(OperationClass.COMPUTE)
    total_ns = work.total_ns(computing)
    place = places(work.columns.op[computing], recompute["op"].to_numpy())
    is_bound = bool((recompute["how"][place[place >= 0]] == RecomputeSource.LOWER_BOUND).any())
    return (work.total_ns(computing[place >= 0]) / total_ns, is_bound) if total_ns else None


def allocator_retries(windows: pl.DataFrame, capture: Capture, process: int) -> int | None:
    """How often an allocation was tried again in the host's time of the steady steps of one rank.

    A retry is an allocation, two releases or more and an allocation, with no other call between them but
    synchronisations and the like: as when memory runs out, not as when a program frees and allocates from
    step to step. `None` without call rows or steady steps.

    Args:
        windows: `STEPS` of the rank.
        capture: its calls, with names.
        process: dense number of the rank's process.
    """
    steady = windows.filter("steady").sort("issue_start_ns")
    if capture.calls.is_empty() or steady.is_empty():
        return None
    letter = _LETTERS.of(capture.call_names["text"].to_list()).astype(np.uint8)
    steps = Spans(steady["issue_start_ns"].to_numpy(), steady["issue_end_ns"].to_numpy())
    return sum(
        _retries(letter[calls["name"].to_numpy()], calls, steps)
        for calls in calls_of_threads(capture, process)
    )


def _asked(texts: pl.Series) -> npt.NDArray[np.int64]:
    """`M` for calls that allocate device memory, `F` that release it, 0 of no matter, `x` for others."""
    letter = np.full(len(texts), ord("x"), np.int64)
    for told, pattern in reversed(_CALLS):
        letter[texts.str.contains(pattern).to_numpy()] = ord(told or "\0")
    return letter


_LETTERS = TextMemo(_asked)


def _retries(letter: npt.NDArray[np.uint8], calls: pl.DataFrame, steps: Spans) -> int:
    """How many there are among the calls of a thread, by their letters; calls inside calls do not count."""
    if (letter == ord("M")).sum() < 2 or (letter == ord("F")).sum() < 2:
        return 0
    rows = np.flatnonzero(are_outer(calls["end_ns"].to_numpy()) & (letter > 0))
    found = np.array([match.end() for match in _RETRY.finditer(letter[rows].tobytes())], np.int64)
    return int(inside(steps, calls["start_ns"].to_numpy()[rows[found]]).sum())


def memory_pressure(
    memory: Memory, recomputed: tuple[float, bool] | None, retries: int | None
) -> MemoryPressure:
    """The level and what tells it; `unknown` where nothing does.

    High: under 5 % of the capacity is left, or the allocator retried in steady steps. Near: under 15 % is
    left, or forward work runs again (1 % of compute work) or 64 MiB a step are offloaded and there is no
    ample headroom (30 %). None: more is left, recorded from the start.
    """
    found = [*_by_headroom(memory), *_by_retries(retries)]
    share = _headroom_share(memory)
    is_ample = share is not None and share >= AMPLE_HEADROOM_SHARE
    traded: Pressure = "unknown" if is_ample else "near"
    if recomputed is not None and recomputed[0] >= MATERIAL_SHARE:
        at_least = "at least " if recomputed[1] else ""
        found.append((traded, f"forward work runs again: {at_least}{percent(recomputed[0])} of compute work"))
    offload = memory.offload
    if offload is not None and offload.to_host_bytes + offload.to_device_bytes >= OFFLOADED_BYTES:
        moved = f"{size(offload.to_host_bytes)} to the host and {size(offload.to_device_bytes)} back"
        found.append((traded, f"offload: {moved} in a step"))
    level = max((_LEVELS.index(level) for level, _ in found), default=0)
    return MemoryPressure(_LEVELS[level], tuple(text for _, text in found))


def _headroom_share(memory: Memory) -> float | None:
    """Share of the capacity that the peak leaves; `None` where it may leave less, and that matters."""
    use, capacity_bytes = memory.use, memory.capacity_bytes
    if use is None or use.headroom_bytes is None or not capacity_bytes:
        return None
    share = max(use.headroom_bytes, 0) / capacity_bytes
    return share if use.from_the_start or share < NEAR_HEADROOM_SHARE else None


def _by_headroom(memory: Memory) -> list[tuple[Pressure, str]]:
    use, share = memory.use, _headroom_share(memory)
    if use is None or memory.capacity_bytes is None or memory.peak_bytes is None:
        return []
    peak = f"{size(memory.peak_bytes)} of {size(memory.capacity_bytes)} in use at the peak"
    if share is None:
        return [("unknown", f"{peak}, without what was allocated before the capture")]
    level: Pressure = (
        "high" if share < HIGH_HEADROOM_SHARE else "near" if share < NEAR_HEADROOM_SHARE else "none"
    )
    return [(level, f"{peak}: {percent(share)} left")]


def _by_retries(retries: int | None) -> list[tuple[Pressure, str]]:
    if not retries:
        return []
    times = plural(retries, "allocation") + " tried again after releasing memory"
    return [("high", f"{times}, in steady steps")]
