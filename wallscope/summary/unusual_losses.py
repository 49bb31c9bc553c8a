"""Losses that the typical step does not show: rare stalls, one long gap, slower kernels, blocked threads.

Time may be lost on few steps alone, so that no median shows it. One gap with most of the host time, in a
capture whose steps are unknown, is start-up, compilation or input. The cause of other host time says little
of such a gap.

A long wait in a launch call looks like a cause in Nsight Systems. It is one only if the GPU runs out of work:
that time is the cause `memory/driver-lock`.

Compute kernels may become slower from some step on, by a lower clock or contention for the GPU. Kernels of
one name and launch shape do the same work in each step, so their mean length is compared from step to step.
Kernels that overlap communication are left out: how much of them does so varies.
"""

from collections.abc import Iterator, Mapping
from dataclasses import replace
from heapq import heappush, heappushpop
from itertools import pairwise

import numpy as np
import numpy.typing as npt
import polars as pl

from wallscope.attribution.totals import SliceSums
from wallscope.columns import (
    Rows,
    are_among,
    as_integers,
    combine_codes,
    encode_member,
    find_places,
    match_rows,
    sum_by_group,
)
from wallscope.finding_texts import make_finding
from wallscope.model.analysis import Anchor, Rank
from wallscope.model.capture import Capture, Finding
from wallscope.model.cause_catalogue import DRAINED, HOST_FRAMEWORK, MEMORY_DRIVER_LOCK
from wallscope.model.diagnosis import RareStall, SlowerKernels, StepMode
from wallscope.model.enums import CallRole, LinkKind, OperationClass, OperationKind, Wall
from wallscope.model.finding_codes import FindingCode
from wallscope.model.rank_summaries import LockedCall
from wallscope.model.schemas import HostKind
from wallscope.records import dataclass
from wallscope.summary.communication import number_shapes
from wallscope.thresholds.steps import (
    CLOCK_EXPLAINS_SHARE,
    COMPARED_WORK_SHARE,
    FEWEST_STEPS_EACH_SIDE_COUNT,
    FEWEST_STEPS_FOR_MODES_COUNT,
    MODES_APART_RATIO,
    SLOWER_KERNELS_RATIO,
)
from wallscope.thresholds.verdict import MATERIAL_SHARE, ONE_GAP_SHARE
from wallscope.trace.dependencies import Dependencies
from wallscope.trace.intervals import Spans, Times, covered_ns, order_spans, union
from wallscope.trace.step_variation import (
    find_stall_period,
    find_step_modes,
    measure_rare_excess,
    select_longest,
)
from wallscope.units import average, duration, percent, plural

_WALL_ORDER = tuple(Wall)
_NAME_OF_WALL = {Wall.UNATTRIBUTED: "unattributed time"}
_RETURNING = (CallRole.LAUNCH, CallRole.GRAPH, CallRole.COPY)
_IN_CALLS = (LinkKind.LAUNCH_CALL, LinkKind.OTHER_CALL)
_SYSTEM_KINDS = [encode_member(kind) for kind in (HostKind.OS, HostKind.LOCK, HostKind.IO)]
"""Rows that the tracing of system calls makes: without any, a thread was not traced."""
_LOCK = MEMORY_DRIVER_LOCK
_MOST_CALLS = 2
_UNIT_LENGTH = 1_000_000
"""Parts of the usual length of kernels in which levels are compared."""
_CLOCK_METRIC = "gpc clock frequency"
UNKNOWN_SLOWNESS = "lower GPU clocks, or contention for the GPU"
"""Why the same kernels may take longer."""
_Ratios = npt.NDArray[np.float64]


def find_rare_stalls(sums: SliceSums, steady: pl.DataFrame) -> tuple[RareStall, ...]:
    """Return the rare stalls of a rank, the largest first; `steady` are its steady windows (`STEPS`)."""
    length_ns = (steady["end_ns"] - steady["start_ns"]).to_numpy()
    number = steady["step"].to_numpy().astype(np.int64)
    found = []
    for (wall, cause), time_ns in _tabulate_cause_times(sums, steady["step"]).items():
        excess_ns = measure_rare_excess(time_ns, length_ns)
        total_ns = int(excess_ns.sum())
        if total_ns == 0:
            continue
        rows = np.flatnonzero(excess_ns)
        found.append(
            RareStall(
                cause=cause,
                wall=_WALL_ORDER[wall],
                steps=tuple(number[rows].tolist()),
                period=find_stall_period(number[select_longest(excess_ns, rows)]),
                total_ns=total_ns,
                share=total_ns / int(length_ns.sum()),
                least_ns=int(excess_ns[rows].min()),
                most_ns=int(excess_ns.max()),
            )
        )
    return tuple(sorted(found, key=lambda stall: (-stall.total_ns, stall.cause)))


def _tabulate_cause_times(sums: SliceSums, steps: pl.Series) -> Mapping[tuple[int, str], Times]:
    """Return the time of each cause of each wall in each step."""
    row = find_places(sums.step, steps.to_numpy())
    found: dict[tuple[int, str], Times] = {}
    for place, wall, cause, time_ns in zip(
        row.tolist(), sums.wall.tolist(), sums.cause, sums.ns.tolist(), strict=True
    ):
        if place >= 0:
            found.setdefault((wall, cause), np.zeros(len(steps), np.int64))[place] += time_ns
    return found


def measure_longest_gap(slices: pl.DataFrame) -> tuple[int, float]:
    """Return the most time of the host in one gap, in ns, and its share of all such time.

    Args:
        slices: those (`SLICES`) of the typical step. Calls that allocate memory count as time of the host.
    """
    is_host = as_integers(slices["wall"]) == encode_member(Wall.HOST)
    is_allocation = as_integers(slices["kind"]) == encode_member(LinkKind.ALLOCATION)
    rows = np.flatnonzero(is_host | is_allocation)
    spent_ns = (slices["end_ns"] - slices["start_ns"]).to_numpy()[rows]
    _, gap = np.unique(slices["gap"].to_numpy()[rows], return_inverse=True)
    longest_ns = int(np.bincount(gap, spent_ns).max(initial=0))
    return longest_ns, longest_ns / max(int(spent_ns.sum()), 1)


def find_one_gap(rank: Rank, anchor: Anchor) -> Iterator[Finding]:
    """Report that one gap has most of the host time of a capture without steps."""
    host = rank.host_details
    if anchor.kind != "whole-trace" or host is None or host.longest_gap_share < ONE_GAP_SHARE:
        return
    if host.longest_gap_ns < MATERIAL_SHARE * rank.typical.step_ns:
        return
    yield make_finding(
        FindingCode.ONE_GAP,
        covers_ns=host.longest_gap_ns,
        time=duration(host.longest_gap_ns),
        share=percent(host.longest_gap_share),
    )


def sum_blocked_by_step(
    slices: pl.DataFrame, calls: pl.DataFrame, waits: Dependencies, steps: pl.Series
) -> Times:
    """Return the host time in calls that were blocked for an unknown reason, in ns, one number per step.

    Launches and copies return within microseconds unless something blocks them. If no full queue and no
    call of another thread explains a long one, the thread that held the driver may be missing from the
    export.

    Args:
        slices: `SLICES` of one rank.
        calls: `CALLS`.
        waits: what calls waited for.
        steps: the numbers of the steps.
    """
    of_call = slices["call"].to_numpy()
    is_inside = np.isin(as_integers(slices["kind"]), [encode_member(one) for one in _IN_CALLS])
    is_inside &= (as_integers(slices["wall"]) == encode_member(Wall.HOST)) & (of_call >= 0)
    own = np.flatnonzero(is_inside)
    call = of_call[own]
    returns = np.isin(as_integers(calls["role"])[call], [encode_member(one) for one in _RETURNING])
    own = own[returns & waits.is_delayed[call] & (waits.holder[call] < 0)]
    row, held = match_rows(steps.to_numpy(), slices["step"].to_numpy()[own])
    blocked_ns = slices["end_ns"].to_numpy()[own[held]] - slices["start_ns"].to_numpy()[own[held]]
    return sum_by_group(row, blocked_ns, len(steps))


def sum_beside_calls_by_step(
    slices: pl.DataFrame, capture: Capture, waits: Dependencies, steps: pl.Series
) -> Times:
    """Return the host time in which a thread may have waited for another one, in ns, one number per step.

    It is outside calls, and nothing says what the thread did. Meanwhile another thread of the process was in
    a call in which it may have held a lock. If the holder worked outside calls before it released the lock,
    only rows of system calls show such a wait. A thread that has some is left out.

    Args:
        slices: `SLICES` of one rank.
        capture: the capture.
        waits: what calls waited for.
        steps: the numbers of the steps.
    """
    causes = slices["cause"].cast(pl.String)
    is_open = ((causes == HOST_FRAMEWORK) | causes.str.starts_with(DRAINED)).to_numpy()
    is_open &= as_integers(slices["kind"]) == encode_member(LinkKind.OUTSIDE_CALLS)
    is_system = np.isin(as_integers(capture.host_events["kind"]), _SYSTEM_KINDS)
    traced = capture.host_events["thread"].to_numpy().astype(np.int64)[is_system]
    is_open &= ~are_among(slices["thread"].to_numpy(), traced)
    row, place = match_rows(steps.to_numpy(), slices["step"].to_numpy()[is_open])
    own = slices[np.flatnonzero(is_open)[place]]
    spans = Spans(own["start_ns"].to_numpy(), own["end_ns"].to_numpy())
    process, calls = capture.threads["process"].to_numpy(), waits.calls
    holding = waits.outside.holding
    held_by, asked_by = process[calls.thread[holding]], process[own["thread"].to_numpy()]
    beside_ns = np.zeros(len(own), np.int64)
    for one in np.unique(asked_by).tolist():
        held = holding[held_by == one]  # never by the thread itself, which is outside calls
        rows = np.flatnonzero(asked_by == one)
        spans_of = Spans(spans.start_ns[rows], spans.end_ns[rows])
        beside_ns[rows] = covered_ns(union(order_spans(calls.start_ns[held], calls.end_ns[held])), spans_of)
    return sum_by_group(row, beside_ns, len(steps))


def find_hidden_locks(rank: Rank, anchor: Anchor) -> Iterator[Finding]:
    """Report waits for the driver that are material, while those on the critical path are not."""
    step_ns, host = rank.typical.step_ns, rank.host_details
    if host is None or any(stall.cause == _LOCK for stall in rank.rare_stalls):
        return
    waits = [call for call in host.locked_calls if call.waited_ns >= MATERIAL_SHARE * step_ns]
    lost_ns = sum(entry.typical_ns for entry in rank.causes if entry.cause == _LOCK)
    if not waits or lost_ns >= MATERIAL_SHARE * step_ns:
        return
    listed = "; ".join(_describe_wait(call, step_ns) for call in waits[:_MOST_CALLS])
    lost = (
        f"Only {duration(lost_ns)} of this time delays the GPU"
        if lost_ns
        else "None of this time delays the GPU"
    )
    yield make_finding(FindingCode.LOCK_HIDDEN, window=anchor.window, listed=listed, lost=lost)


def _describe_wait(call: LockedCall, step_ns: int) -> str:
    return (
        f"{average(call.count)} {call.name} wait {duration(call.waited_ns)}"
        f" ({percent(call.waited_ns / max(step_ns, 1))} of its length) for {call.holder} of another thread"
    )


@dataclass(frozen=True, slots=True)
class KernelLengths:
    """How long kernels take in each steady step of a rank, by their usual length: float64[step].

    Kernels are compared that every step has, so many by shape; `share` is theirs of the work of all.
    """

    of_step: _Ratios
    share: float


def compare_kernel_lengths(
    operations: pl.DataFrame, steady: pl.DataFrame, kernels: pl.DataFrame
) -> KernelLengths | None:
    """Return the lengths of compute kernels in the steady steps of a rank; `None` where too few compare.

    Args:
        operations: `CLASSIFIED`, all of the rank.
        steady: its steady windows (`STEPS`), in order.
        kernels: `KERNELS` of the capture.
    """
    if len(steady) < min(2 * FEWEST_STEPS_EACH_SIDE_COUNT, FEWEST_STEPS_FOR_MODES_COUNT):
        return None
    lengths = _measure_lengths(operations, steady, kernels)
    return None if lengths is None else KernelLengths(_compare_lengths(lengths), lengths.share)


def find_slower_kernels(
    lengths: KernelLengths | None, steady: pl.DataFrame, capture: Capture, gpu: int | None
) -> SlowerKernels | None:
    """Return from which steady step on the compute kernels of a rank are slower; `None` if from none on.

    Args:
        lengths: those of its kernels, if they compare.
        steady: its steady windows (`STEPS`), in order.
        capture: the whole export.
        gpu: Nsight's id of the GPU of the rank, if known.
    """
    if lengths is None or len(steady) < 2 * FEWEST_STEPS_EACH_SIDE_COUNT:
        return None
    of_step = lengths.of_step
    first = _find_rise(of_step)
    if first is None:
        return None
    return SlowerKernels(
        ratio=float(np.median(of_step[first:]) / np.median(of_step[:first])),
        since_step=int(steady["step"][first]),
        steps_before=first,
        steps_after=len(steady) - first,
        work_share=lengths.share,
        clock_ratio=_compare_clocks(steady, first, capture, gpu),
    )


def find_kinds_of_steps(lengths: KernelLengths | None, steady: pl.DataFrame) -> tuple[StepMode, ...]:
    """Return the kinds of the steady steps of a rank, the shortest first; empty if there is one kind.

    A GPU that changes between two clock levels makes two kinds of steps with the same kernels. Where other
    time varies so much that lengths of steps show no kinds, lengths of kernels may.

    Args:
        lengths: those of its kernels, if they compare.
        steady: its steady windows (`STEPS`), in order.
    """
    number, duration_ns = steady["step"].to_numpy(), (steady["end_ns"] - steady["start_ns"]).to_numpy()
    kinds = find_step_modes(number, duration_ns)
    if lengths is None or len(steady) < FEWEST_STEPS_FOR_MODES_COUNT:
        return kinds
    of_step = lengths.of_step
    if not kinds:
        kinds = _find_levels(number, duration_ns, of_step)
    levels = [float(np.median(of_step[np.isin(number, kind.steps)])) for kind in kinds]
    return tuple(
        replace(kind, kernel_ratio=level / levels[0]) for kind, level in zip(kinds, levels, strict=True)
    )


def _find_levels(number: Rows, duration_ns: Times, of_step: _Ratios) -> tuple[StepMode, ...]:
    """Return the kinds of steps by the length of their kernels, if the steps of each kind take longer too."""
    levels = find_step_modes(number, np.rint(of_step * _UNIT_LENGTH).astype(np.int64))
    medians_ns = [float(np.median(duration_ns[np.isin(number, level.steps)])) for level in levels]
    if any(longer < MODES_APART_RATIO * shorter for shorter, longer in pairwise(medians_ns)):
        return ()
    pairs = zip(levels, medians_ns, strict=True)
    return tuple(StepMode(level.steps, round(median_ns)) for level, median_ns in pairs)


def _compare_lengths(lengths: "_ShapeLengths") -> _Ratios:
    """Return the length of the kernels of each step by their usual length: float64[step]."""
    usual = np.median(lengths.mean_ns, axis=1, keepdims=True)
    return np.array([_weigh_median(column, lengths.work_ns) for column in (lengths.mean_ns / usual).T])


@dataclass(frozen=True, slots=True)
class _ShapeLengths:
    """Mean lengths of the shapes that are in each step: float64[shape, step], and the work of each shape."""

    mean_ns: _Ratios
    work_ns: Rows
    share: float


def _measure_lengths(
    operations: pl.DataFrame, steady: pl.DataFrame, kernels: pl.DataFrame
) -> _ShapeLengths | None:
    """Return the lengths by shape and step; `None` where too little work can be compared."""
    of_class, kind = as_integers(operations["class"]), as_integers(operations["kind"])
    start_ns, end_ns = operations["start_ns"].to_numpy(), operations["end_ns"].to_numpy()
    first_ns, last_ns = steady["start_ns"].to_numpy(), steady["end_ns"].to_numpy()
    step = np.searchsorted(first_ns, start_ns, side="right") - 1
    is_own = (step >= 0) & (start_ns < last_ns[step])
    is_own &= of_class == encode_member(OperationClass.COMPUTE)
    is_own &= kind == encode_member(OperationKind.KERNEL)
    rows = np.flatnonzero(is_own)
    total_ns = int((end_ns[rows] - start_ns[rows]).sum())
    moves = of_class == encode_member(OperationClass.COMMUNICATION)
    moving = union(order_spans(start_ns[moves], end_ns[moves]))
    rows = rows[covered_ns(moving, Spans(start_ns[rows], end_ns[rows])) == 0]
    if not rows.size:
        return None
    shape = number_shapes(operations["op"].to_numpy()[rows], as_integers(operations["name"])[rows], kernels)
    steps = len(steady)
    is_often = np.bincount(shape) >= steps
    if not is_often.any():
        return None
    rows, shape = rows[is_often[shape]], (np.cumsum(is_often) - 1)[shape[is_often[shape]]]
    shapes = int(np.count_nonzero(is_often))
    (of_shape, of_step), group = combine_codes((shapes, steps), shape, step[rows])
    sums_ns = sum_by_group(group, end_ns[rows] - start_ns[rows], of_shape.size)
    means_ns = np.zeros((shapes, steps))
    means_ns[of_shape, of_step] = sums_ns / np.bincount(group, minlength=of_shape.size)
    is_everywhere = (means_ns > 0).all(axis=1)
    work_ns = sum_by_group(of_shape, sums_ns, shapes)[is_everywhere]
    if work_ns.sum() < COMPARED_WORK_SHARE * total_ns or not work_ns.size:
        return None
    return _ShapeLengths(means_ns[is_everywhere], work_ns, float(work_ns.sum() / total_ns))


def _weigh_median(values: _Ratios, weights: Rows) -> float:
    """Return the value up to which half of the weight lies.

    >>> _weigh_median(np.array([3.0, 1.0, 2.0]), np.array([1, 1, 5]))
    2.0
    """
    order = np.argsort(values, kind="stable")
    so_far = np.cumsum(weights[order])
    return float(values[order][np.searchsorted(so_far, so_far[-1] / 2)])


def _find_rise(of_step: _Ratios) -> int | None:
    """Return the place from which on values are higher and stay so; `None` without one.

    The two sides divide the values with the least sum of distances from their medians. Together they spread
    less than their medians are apart, so a slow drift has no such place.

    >>> _find_rise(np.array([1.0, 1.01, 1.0, 1.0, 1.2, 1.21, 1.2]))
    4
    >>> _find_rise(np.linspace(1.0, 1.2, 20)) is None
    True
    """
    least = FEWEST_STEPS_EACH_SIDE_COUNT
    places = range(least, of_step.size - least + 1)
    from_begin, from_end = _sum_distances(of_step), _sum_distances(of_step[::-1])
    first = min(places, key=lambda place: from_begin[place] + from_end[of_step.size - place])
    before, after = np.log(of_step[:first]), np.log(of_step[first:])
    apart = float(np.median(after) - np.median(before))
    if apart < np.log(SLOWER_KERNELS_RATIO) or apart <= _measure_spread(before) + _measure_spread(after):
        return None
    return first


def _sum_distances(values: _Ratios) -> list[float]:
    """Return for no value, the first, the first two and so on, the sum of distances from their median.

    >>> _sum_distances(np.array([1.0, 3.0, 2.0, 7.0]))
    [0.0, 0.0, 2.0, 2.0, 7.0]
    """
    low: list[float] = []  # negated: a heap begins with its least
    high: list[float] = []
    low_sum = high_sum = 0.0
    found = [0.0]
    for value in values.tolist():
        if len(low) == len(high):
            moved = heappushpop(high, value)
            heappush(low, -moved)
            high_sum, low_sum = high_sum + value - moved, low_sum + moved
        else:
            moved = -heappushpop(low, -value)
            heappush(high, moved)
            low_sum, high_sum = low_sum + value - moved, high_sum + moved
        middle = -low[0] if len(low) > len(high) else 0.0
        found.append(high_sum - low_sum + middle)
    return found


def _measure_spread(values: _Ratios) -> float:
    """Return the distance of the tenth from the ninetieth percentile, of values that there are."""
    low, high = np.percentile(values, [10, 90], method="nearest")
    return float(high - low)


def _compare_clocks(steady: pl.DataFrame, first: int, capture: Capture, gpu: int | None) -> float | None:
    """Return the sampled clock from a step on by that before it; `None` where it was not sampled."""
    own = capture.samples.filter((pl.col("gpu") == gpu) & pl.col("at_ns").is_not_null()).join(
        capture.metric_names.filter(pl.col("text") == _CLOCK_METRIC), left_on="metric", right_on="name"
    )
    turn_ns = steady["start_ns"][first]
    inside = own.filter(pl.col("at_ns").is_between(steady["start_ns"][0], steady["end_ns"][-1]))
    before = inside.filter(pl.col("at_ns") < turn_ns)["value"].mean()
    after = inside.filter(pl.col("at_ns") >= turn_ns)["value"].mean()
    if not isinstance(before, float) or not isinstance(after, float) or before <= 0:
        return None
    return after / before


def report_slower_kernels(rank: Rank, unit: str) -> Iterator[Finding]:
    """Report that the same kernels take longer from some step on."""
    slower = rank.slower_kernels
    if slower is None:
        return
    yield make_finding(
        FindingCode.SLOWER_KERNELS,
        cure="" if slower.clock_ratio is not None else None,
        ratio=slower.ratio,
        steps=plural(slower.steps_after, f"steady {unit}"),
        unit=unit,
        since=slower.since_step,
        before=slower.steps_before,
        reason=explain_slower_kernels(slower),
    )


def explain_slower_kernels(slower: SlowerKernels) -> str:
    """Return the reason for slower kernels: the clock, where its samples show it."""
    if slower.clock_ratio is None:
        return UNKNOWN_SLOWNESS
    if slower.clock_ratio * slower.ratio <= 1 + CLOCK_EXPLAINS_SHARE * (slower.ratio - 1):
        return f"the GPU clock falls to {percent(slower.clock_ratio)} of before"
    return f"contention for the GPU, as its clock stays at {percent(slower.clock_ratio)} of before"
