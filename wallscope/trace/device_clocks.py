"""Compare the clock of each device with that of the CPU, and align it where both contradict each other.

No operation starts before its launch call begins, and work that a call waited for has ended when the call
returns. Both hold for every pair of rows, so together they bound from two sides what has to be added to the
times of a device. A third sign is softer: what starts on an idle device was launched microseconds before. The
work of a full queue may wait for seconds, but its latencies then differ by as much, and do not all have the
same smallest value.

Clocks that run at different rates drift apart by a line. Its slope is that of the smallest latencies over
time, as in Moon, Skelly and Towsley, "Estimation and Removal of Clock Skew from Network Delay Measurements".
"""

from dataclasses import replace
from typing import NamedTuple

import numpy as np
import polars as pl

from wallscope.columns import Flags, Rows, iterate_groups, iterate_runs
from wallscope.model.capture import Capture
from wallscope.model.enums import CallRole
from wallscope.model.schemas import SyncKind
from wallscope.records import dataclass
from wallscope.thresholds.causes import (
    CLOCK_ALIKE_NS,
    CLOCK_DRIFT_BINS_COUNT,
    CLOCK_EARLY_IDLE_SHARE,
    CLOCK_EARLY_NS,
    CLOCK_EARLY_SHARE,
    CLOCK_FEWEST_IDLE_COUNT,
    CLOCK_FEWEST_ON_LINE_COUNT,
    CLOCK_IDLE_NS,
    CLOCK_LATE_NS,
    CLOCK_LATE_SHARE,
    CLOCK_ON_LINE_SHARE,
    CLOCK_PROMPT_SHARE,
    CLOCK_UNKNOWN_LATENCY_NS,
    CLOCK_USUAL_LATENCY_NS,
    LARGEST_DRIFT_RATIO,
)
from wallscope.trace.blocking_calls import list_finished_copies
from wallscope.trace.intervals import Times

_BLOCKS_ALL = r"(Device|Ctx|Thread)Synchronize$"


@dataclass(frozen=True, slots=True)
class DeviceClock:
    """How a device's clock was aligned with that of the CPU, of a device whose rows contradict the calls.

    Attributes:
        rank_id: of the process and device.
        offset_ns: what was added to its times at `since_ns`; `None` if nothing restores the order.
        drift: what was added for each ns since then.
        since_ns: start of its first operation, as recorded.
        least_ns, most_ns: the constants that fit, without the drift; no upper bound without waits.
        early, launches: operations that started before their launch, of all with one.
        late, waits: operations that ended after the call that had waited for them, of all such.
    """

    rank_id: int
    offset_ns: int | None
    drift: float
    since_ns: int
    least_ns: int
    most_ns: int | None
    early: int
    launches: int
    late: int
    waits: int


class _Evidence(NamedTuple):
    """What bounds the correction of a device: the launches of its operations, and waits for them.

    Attributes:
        at_ns: when each launched operation started.
        latency_ns: since the beginning of its call; what is added is no less than its opposite.
        after_ns: since the end of its call.
        is_idle: whether nothing had run on the device right before.
        ended_ns: when work ended that a call waited for.
        spare_ns: until that call returned; no more is added.
    """

    at_ns: Times
    latency_ns: Times
    after_ns: Times
    is_idle: Flags
    ended_ns: Times
    spare_ns: Times

    def add(self, start_ns: Times, end_ns: Times) -> "_Evidence":
        """Return the evidence after something was added to starts, and ends, of operations."""
        return self._replace(
            latency_ns=self.latency_ns + start_ns,
            after_ns=self.after_ns + start_ns,
            spare_ns=self.spare_ns - end_ns,
        )


def align_device_clocks(capture: Capture) -> tuple[Capture, tuple[DeviceClock, ...]]:
    """Return the capture with the rows of each device on the clock of its calls, and what was off."""
    if capture.calls.is_empty():
        return capture, ()
    ended = _list_awaited_ends(capture)
    fitted = [
        (own, clock)
        for rank_id, own in iterate_runs(capture.operations["rank_id"].to_numpy())
        if (clock := _fit_clock(rank_id, _collect_evidence(capture, own, *ended))) is not None
    ]
    moved = [(own, clock) for own, clock in fitted if clock.offset_ns is not None]
    clocks = tuple(clock for _, clock in fitted)
    return (replace(capture, operations=_move(capture.operations, moved)) if moved else capture), clocks


def _move(operations: pl.DataFrame, moved: list[tuple[slice, DeviceClock]]) -> pl.DataFrame:
    columns = {name: operations[name].to_numpy().copy() for name in ("start_ns", "end_ns")}
    for own, clock in moved:
        for times in columns.values():
            times[own] += _correct(clock, times[own])
    return operations.with_columns(**{name: pl.Series(times) for name, times in columns.items()})


def _correct(clock: DeviceClock, at_ns: Times) -> Times:
    """Return what is to be added to some times of a device."""
    return _drift(clock.drift, at_ns, clock.since_ns) + (clock.offset_ns or 0)


def _drift(drift: float, at_ns: Times, since_ns: int) -> Times:
    drifted: Times = np.rint(drift * (at_ns - since_ns)).astype(np.int64)
    return drifted


def _collect_evidence(capture: Capture, own: slice, op: Rows, returned_ns: Times) -> _Evidence:
    """Return what bounds the clock of a device; `op` had ended when a call returned at `returned_ns`."""
    start_ns, end_ns, call = (
        capture.operations[name].to_numpy()[own] for name in ("start_ns", "end_ns", "call")
    )
    begun_ns, left_ns = (capture.calls[name].to_numpy() for name in ("start_ns", "end_ns"))
    busy_ns = np.maximum.accumulate(end_ns)
    is_idle = np.append(True, start_ns[1:] - busy_ns[:-1] >= CLOCK_IDLE_NS)
    is_first = np.append(True, call[1:] != call[:-1]) & (call >= 0)
    at_ns, call, is_idle = start_ns[is_first], call[is_first], is_idle[is_first]
    is_own = (op >= own.start) & (op < own.stop)
    ended_ns = end_ns[op[is_own] - own.start]
    return _Evidence(
        at_ns,
        at_ns - begun_ns[call],
        at_ns - left_ns[call],
        is_idle,
        ended_ns,
        returned_ns[is_own] - ended_ns,
    )


def _fit_clock(rank_id: int, evidence: _Evidence) -> DeviceClock | None:
    """Return the clock of a device whose times cannot be, `None` if they can."""
    if not evidence.at_ns.size:
        return None
    at_ns, latency_ns = evidence.at_ns[evidence.is_idle], evidence.latency_ns[evidence.is_idle]
    of_launches = -_estimate_slope(at_ns, latency_ns)
    if _is_possible(evidence) and (of_launches == 0 or evidence.spare_ns.size):
        return None
    drifts = (of_launches, _estimate_slope(evidence.ended_ns, evidence.spare_ns), 0.0)
    fits = [_fit_offset(rank_id, evidence, drift) for drift in dict.fromkeys(one or 0.0 for one in drifts)]
    return next((fit for fit in fits if fit.offset_ns is not None), fits[-1])


def _fit_offset(rank_id: int, evidence: _Evidence, drift: float) -> DeviceClock:
    """Return the clock of a device that drifts so much, with an offset if one restores the order."""
    since_ns = int(evidence.at_ns[0])
    both = evidence.at_ns, evidence.ended_ns
    drifted = evidence.add(*(_drift(drift, times, since_ns) for times in both))
    smallest_ns, is_shared = _find_smallest_latency(drifted)
    least_ns, most_ns = -smallest_ns, _find_least_spare(drifted)
    offset_ns = least_ns + CLOCK_USUAL_LATENCY_NS
    if most_ns is not None:
        nearest_ns = offset_ns if is_shared else most_ns - CLOCK_USUAL_LATENCY_NS
        offset_ns = max(min(nearest_ns, most_ns), least_ns)
    added = (np.full_like(times, offset_ns) for times in both)
    return DeviceClock(
        rank_id,
        offset_ns if _is_possible(drifted.add(*added)) else None,
        drift,
        since_ns,
        least_ns,
        most_ns,
        int((evidence.latency_ns < 0).sum()),
        evidence.at_ns.size,
        int((evidence.spare_ns < 0).sum()),
        evidence.spare_ns.size,
    )


def _is_possible(evidence: _Evidence) -> bool:
    """Return whether no more than a few operations start too early, end too late, or all start late."""
    is_early, is_idle = evidence.latency_ns < -CLOCK_EARLY_NS, evidence.is_idle
    idle_count, early = int(is_idle.sum()), int(is_early.sum())
    early_idle = int((is_early & is_idle).sum())
    if early >= min(2, is_early.size) and (
        early >= CLOCK_EARLY_SHARE * is_early.size or early_idle > CLOCK_EARLY_IDLE_SHARE * idle_count
    ):
        return False
    prompt, is_known = (
        (evidence.after_ns[is_idle] <= CLOCK_LATE_NS).sum(),
        idle_count >= CLOCK_FEWEST_IDLE_COUNT,
    )
    is_prompt = is_known and prompt >= CLOCK_PROMPT_SHARE * idle_count
    late, waits = int((evidence.spare_ns < -CLOCK_LATE_NS).sum()), evidence.spare_ns.size
    if late > CLOCK_LATE_SHARE * waits and (late > 1 or not is_prompt):
        return False
    if is_prompt:
        return True
    if is_known:
        return _find_dense_place(np.sort(evidence.latency_ns[is_idle])) is None
    return bool(waits) or int(evidence.after_ns.min()) <= CLOCK_UNKNOWN_LATENCY_NS


def _find_smallest_latency(evidence: _Evidence) -> tuple[int, bool]:
    """Return the smallest latency that several launches on an idle device share, else the smallest of all.

    Also returns whether it is shared.
    """
    idle_ns = np.sort(evidence.latency_ns[evidence.is_idle])
    place = _find_dense_place(idle_ns)
    return int(evidence.latency_ns.min() if place is None else idle_ns[place]), place is not None


def _find_dense_place(latency_ns: Times) -> int | None:
    """Return the place of the smallest of sorted latencies that is close to enough others."""
    count = max(3, int(CLOCK_PROMPT_SHARE * latency_ns.size))
    is_dense = latency_ns[count - 1 :] - latency_ns[: max(latency_ns.size - count + 1, 0)] <= CLOCK_ALIKE_NS
    is_sure = is_dense.any() and (is_dense[0] or latency_ns.size >= CLOCK_FEWEST_IDLE_COUNT)
    return int(is_dense.argmax()) if is_sure else None


def _find_least_spare(evidence: _Evidence) -> int | None:
    """Return the most that may be added by the waits, but for a few of them; `None` without any."""
    if not evidence.spare_ns.size:
        return None
    rest = int(CLOCK_PROMPT_SHARE * evidence.spare_ns.size)
    return int(np.partition(evidence.spare_ns, rest)[rest])


def _estimate_slope(at_ns: Times, distance_ns: Times) -> float:
    """Return how fast the smallest distances of parts of a capture grow, in ns for each ns.

    They lie on one level, or else most on one slope; those of deep queues do neither.
    """
    order = np.argsort(at_ns, kind="stable")
    at_ns, distance_ns = at_ns[order], distance_ns[order]
    parts = min(CLOCK_DRIFT_BINS_COUNT, at_ns.size)
    if parts < CLOCK_FEWEST_ON_LINE_COUNT:
        return 0.0
    first = np.arange(parts) * at_ns.size // parts
    low_ns = np.minimum.reduceat(distance_ns, first)
    is_low = distance_ns == np.repeat(low_ns, np.diff(first, append=at_ns.size))
    at = at_ns[is_low][np.searchsorted(np.flatnonzero(is_low), first)].astype(float)
    needed = max(CLOCK_ON_LINE_SHARE * parts, CLOCK_FEWEST_ON_LINE_COUNT)
    level_ns = np.sort(low_ns)
    alike = np.searchsorted(level_ns, level_ns + CLOCK_ALIKE_NS, side="right") - np.arange(parts)
    if alike.max() >= needed:
        return 0.0
    one, other = np.triu_indices(parts, 1)
    slope = (low_ns[other] - low_ns[one]) / np.maximum(at[other] - at[one], 1.0)
    is_usable = np.abs(slope) <= LARGEST_DRIFT_RATIO
    one, slope = one[is_usable], slope[is_usable]
    if not slope.size:
        return 0.0
    rest_ns = low_ns - low_ns[one, None] - slope[:, None] * (at - at[one, None])
    is_on_line = np.abs(rest_ns) <= CLOCK_ALIKE_NS / 2
    counts = is_on_line.sum(axis=1)
    best = int(counts.argmax())
    if counts[best] < needed:
        return 0.0
    rows = is_on_line[best]
    steepness = float(np.polyfit(at[rows] - at[0], low_ns[rows].astype(float), 1)[0])
    return steepness if abs(steepness) * (at[-1] - at[0]) > CLOCK_LATE_NS else 0.0


def _list_awaited_ends(capture: Capture) -> tuple[Rows, Times]:
    """Return operations that had ended when a call returned, the last of each, and when that was."""
    op, call = list_finished_copies(capture)
    found = [(op, capture.calls["end_ns"].to_numpy()[call]), *_list_synchronized(capture)]
    ops, returned_ns = zip(*found, strict=True)
    return np.concatenate(ops), np.concatenate(returned_ns)


def _list_synchronized(capture: Capture) -> list[tuple[Rows, Times]]:
    """Return what calls that synchronize a stream, or all of a device, had waited for."""
    operations, calls = capture.operations, capture.calls
    sync = calls.filter(pl.col("role") == CallRole.SYNC)
    if sync.is_empty():
        return []
    names = capture.call_names.filter(pl.col("text").str.contains(_BLOCKS_ALL))["name"]
    process = capture.threads["process"].to_numpy()
    streams = capture.streams.select("process", "context", "stream", number="number")
    named = capture.syncs.filter(pl.col("call") >= 0).unique("call", keep="first")
    known = (
        sync.select(pl.col("call").cast(pl.Int32), "start_ns", "end_ns", "name", "thread")
        .join(named.select("call", "kind", "context", number="stream"), on="call", how="left")
        .with_columns(process=pl.Series(process[sync["thread"].to_numpy()]).cast(pl.UInt32))
        .join(streams, on=["process", "context", "number"], how="left")
    )
    of_stream = known.filter((pl.col("kind") == SyncKind.STREAM) & pl.col("stream").is_not_null())
    alone = capture.ranks.filter(pl.len().over("process") == 1)
    of_all = known.filter(
        pl.col("name").is_in(names.implode()) & ~(pl.col("kind") == SyncKind.EVENT).fill_null(value=False)
    ).join(alone.select("process", "rank_id"), on="process")
    return [
        *_find_last(operations, calls, "stream", of_stream),
        *_find_last(operations, calls, "rank_id", of_all),
    ]


def _find_last(
    operations: pl.DataFrame, calls: pl.DataFrame, key: str, asked: pl.DataFrame
) -> list[tuple[Rows, Times]]:
    """Return the last to end of what a stream or rank had been given before some calls, and their ends."""
    if asked.is_empty():
        return []
    found = []
    call, end_ns, of = (operations[name].to_numpy() for name in ("call", "end_ns", key))
    issued_ns = calls["end_ns"].to_numpy()
    rows_of = dict(iterate_groups(asked[key].to_numpy().astype(np.int64)))
    for one, own in iterate_groups(of.astype(np.int64)):
        if one not in rows_of:
            continue
        ops = own[call[own] >= 0]
        ops = ops[np.argsort(issued_ns[call[ops]], kind="stable")]
        is_last = end_ns[ops] == np.maximum.accumulate(end_ns[ops])
        latest = ops[np.maximum.accumulate(np.where(is_last, np.arange(ops.size), 0))]
        begun_ns, returned_ns = (asked[name].to_numpy()[rows_of[one]] for name in ("start_ns", "end_ns"))
        place = np.searchsorted(issued_ns[call[ops]], begun_ns) - 1
        found.append((latest[place[place >= 0]], returned_ns[place >= 0]))
    return found
