"""Whether compute kernels become slower from some step on: a lower clock, or contention for the GPU.

Kernels of one name and launch shape do the same work in each step, so their mean length is compared from step
to step. Kernels that overlap communication are left out: how much of them does so varies.
"""

from dataclasses import dataclass
from heapq import heappush, heappushpop

import numpy as np
import numpy.typing as npt
import polars as pl

from wallscope.columns import Rows, as_integers, combine_codes, encode_member, sum_by_group
from wallscope.model.analysis import Rank
from wallscope.model.capture import Capture, Finding, Severity
from wallscope.model.diagnosis import SlowerKernels
from wallscope.model.enums import OperationClass, OperationKind
from wallscope.summary.communication import number_shapes
from wallscope.thresholds.steps import (
    CLOCK_EXPLAINS_SHARE,
    COMPARED_WORK_SHARE,
    FEWEST_STEPS_EACH_SIDE_COUNT,
    SLOWER_KERNELS_RATIO,
)
from wallscope.trace.intervals import Spans, covered_ns, order_spans, union
from wallscope.units import percent, plural

CLOCK_METRIC = "gpc clock frequency"
_Ratios = npt.NDArray[np.float64]


def find_slower_kernels(
    operations: pl.DataFrame, steady: pl.DataFrame, capture: Capture, gpu: int | None
) -> SlowerKernels | None:
    """Return from which steady step on the compute kernels of a rank are slower; `None` if from none on.

    Args:
        operations: `CLASSIFIED`, all of the rank.
        steady: its steady windows (`STEPS`), in order.
        capture: the whole export.
        gpu: Nsight's id of the GPU of the rank, if known.
    """
    if len(steady) < 2 * FEWEST_STEPS_EACH_SIDE_COUNT:
        return None
    lengths = _measure_lengths(operations, steady, capture.kernels)
    if lengths is None:
        return None
    usual = np.median(lengths.mean_ns, axis=1, keepdims=True)
    of_step = np.array([_weigh_median(column, lengths.work_ns) for column in (lengths.mean_ns / usual).T])
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


@dataclass(frozen=True, slots=True)
class _Lengths:
    """Mean lengths of the shapes that are in each step: float64[shape, step], and the work of each shape."""

    mean_ns: _Ratios
    work_ns: Rows
    share: float


def _measure_lengths(
    operations: pl.DataFrame, steady: pl.DataFrame, kernels: pl.DataFrame
) -> _Lengths | None:
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
    return _Lengths(means_ns[is_everywhere], work_ns, float(work_ns.sum() / total_ns))


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
    if apart < np.log(SLOWER_KERNELS_RATIO) or apart <= _spread(before) + _spread(after):
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


def _spread(values: _Ratios) -> float:
    """Return the distance of the tenth from the ninetieth percentile, of values that there are."""
    low, high = np.percentile(values, [10, 90], method="nearest")
    return float(high - low)


def _compare_clocks(steady: pl.DataFrame, first: int, capture: Capture, gpu: int | None) -> float | None:
    """Return the sampled clock from a step on by that before it; `None` where it was not sampled."""
    own = capture.samples.filter((pl.col("gpu") == gpu) & pl.col("at_ns").is_not_null()).join(
        capture.metric_names.filter(pl.col("text") == CLOCK_METRIC), left_on="metric", right_on="name"
    )
    turn_ns = steady["start_ns"][first]
    inside = own.filter(pl.col("at_ns").is_between(steady["start_ns"][0], steady["end_ns"][-1]))
    before = inside.filter(pl.col("at_ns") < turn_ns)["value"].mean()
    after = inside.filter(pl.col("at_ns") >= turn_ns)["value"].mean()
    if not isinstance(before, float) or not isinstance(after, float) or before <= 0:
        return None
    return after / before


def report_slower_kernels(rank: Rank, unit: str) -> tuple[Finding, ...]:
    """Report that the same kernels take longer from some step on."""
    slower = rank.slower_kernels
    if slower is None:
        return ()
    return (
        Finding(
            "slower-kernels",
            Severity.WARNING,
            f"Compute kernels of equal name and launch shape take {slower.ratio:.2f} times as long in the"
            f" {plural(slower.steps_after, f'steady {unit}')} from {unit} {slower.since_step} on as in the"
            f" {slower.steps_before} before: {explain_slower_kernels(slower)}.",
            ""
            if slower.clock_ratio is not None
            else "Sample the clocks: --gpu-metrics-devices=all. Look for throttling:"
            " nvidia-smi -q -d CLOCK,PERFORMANCE.",
        ),
    )


def explain_slower_kernels(slower: SlowerKernels) -> str:
    """Return the reason for slower kernels: the clock, where its samples show it."""
    if slower.clock_ratio is None:
        return "lower GPU clocks, or contention for the GPU"
    if slower.clock_ratio * slower.ratio <= 1 + CLOCK_EXPLAINS_SHARE * (slower.ratio - 1):
        return f"the GPU clock falls to {percent(slower.clock_ratio)} of before"
    return f"contention for the GPU, as its clock stays at {percent(slower.clock_ratio)} of before"
