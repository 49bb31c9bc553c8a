"""How steps of a rank vary: several kinds of steps, and time that a cause takes on few of them.

Kinds are groups of lengths that lie far apart relative to their spread. Lengths are compared by their ratio.
There is no step between two kinds, and their medians differ by more than the sum of both widths. Two halves
of one distribution therefore do not count as kinds.
"""

import numpy as np
import numpy.typing as npt

from wallscope.model.diagnosis import StepMode
from wallscope.thresholds.steps import (
    FEWEST_FOR_PERIOD_COUNT,
    FEWEST_MODE_STEPS_COUNT,
    FEWEST_STEPS_FOR_MODES_COUNT,
    MODES_APART_RATIO,
    RARE_DEVIATIONS_COUNT,
    RARE_EXCESS_SHARE,
    RARE_LONG_PARTS_COUNT,
    RARE_STALL_SHARE,
    RARE_STEPS_PARTS_COUNT,
    REGULAR_PERIOD_SHARE,
    SMALLEST_MODE_SHARE,
    SPLIT_MODES_RATIO,
    SPLIT_MODES_STEPS_COUNT,
    WIDEST_MODE_GAP_PARTS_COUNT,
)
from wallscope.thresholds.verdict import SHARE_ROUNDING
from wallscope.trace.intervals import Times

Lengths = npt.NDArray[np.float64]


def find_step_modes(
    number: Times, duration_ns: Times, apart_ratio: float = MODES_APART_RATIO
) -> tuple[StepMode, ...]:
    """Return the kinds of steps, the shortest first; empty if there is one kind.

    Args:
        number: int64[step], the numbers of the steady steps.
        duration_ns: int64[step], ns, length of each.
        apart_ratio: median of a kind by that of the next shorter one, at least.
    """
    if duration_ns.size < FEWEST_STEPS_FOR_MODES_COUNT or int(duration_ns.min()) <= 0:
        return ()
    order = np.argsort(duration_ns, kind="stable")
    least = max(FEWEST_MODE_STEPS_COUNT, int(np.ceil(SMALLEST_MODE_SHARE * duration_ns.size)))
    groups = _split_modes(np.log(duration_ns[order]), 0, least, float(np.log(apart_ratio)))
    if len(groups) < 2:
        return ()
    return tuple(
        StepMode(
            steps=tuple(np.sort(number[order[first:end]]).tolist()),
            median_ns=round(float(np.median(duration_ns[order[first:end]]))),
        )
        for first, end in groups
    )


def _split_modes(lengths: Lengths, offset: int, least: int, least_apart: float) -> list[tuple[int, int]]:
    """Return the bounds of the groups of lengths (logarithms, ascending), by index."""
    ends = np.arange(least, lengths.size - least + 1)
    widest = (lengths[ends] - lengths[ends - 1]).max(initial=0.0)
    if WIDEST_MODE_GAP_PARTS_COUNT * widest >= least_apart:
        scores = _measure_splits(lengths, ends, least_apart)
        best = scores.size - 1 - int(np.argmax(scores[::-1]))
        if scores[best] >= SPLIT_MODES_RATIO + SPLIT_MODES_STEPS_COUNT / lengths.size:
            end = int(ends[best])
            return [
                *_split_modes(lengths[:end], offset, least, least_apart),
                *_split_modes(lengths[end:], offset + end, least, least_apart),
            ]
    return [(offset, offset + lengths.size)]


def _measure_splits(lengths: Lengths, ends: Times, least_apart: float) -> Lengths:
    """Return the distance of the medians divided by the width of both groups, for each end of the first one.

    It is 0 if no gap separates the groups.
    """
    starts, count = np.zeros_like(ends), np.full_like(ends, lengths.size)
    apart = _middles(lengths, ends, count) - _middles(lengths, starts, ends)
    gap = lengths[ends] - lengths[ends - 1]
    width = _widths(lengths, starts, ends) + _widths(lengths, ends, count)
    is_apart = (apart >= least_apart) & (WIDEST_MODE_GAP_PARTS_COUNT * gap >= apart)
    found: Lengths = np.where(is_apart, apart / np.maximum(width, 1e-9), 0.0)
    return found


def _middles(lengths: Lengths, starts: Times, ends: Times) -> Lengths:
    """Return the medians of parts of ascending lengths."""
    last = ends - starts - 1
    found: Lengths = (lengths[starts + last // 2] + lengths[starts + (last + 1) // 2]) / 2
    return found


def _widths(lengths: Lengths, starts: Times, ends: Times) -> Lengths:
    """Width is from the 10th to the 90th percentile, so one outlier does not count."""
    last = ends - starts - 1
    low, high = (starts + np.rint(share * last).astype(np.int64) for share in (0.1, 0.9))
    found: Lengths = lengths[high] - lengths[low]
    return found


def measure_rare_excess(time_ns: Times, length_ns: Times) -> Times:
    """Return the excess of each step over the median if it is a rare stall, else 0 for all steps.

    A rare stall exceeds the usual level, affects less than half of the steps, and takes a material part of
    all their time.

    >>> length_ns = np.array([100, 100, 100, 140, 100])
    >>> measure_rare_excess(np.array([5, 6, 5, 45, 5]), length_ns).tolist()
    [0, 0, 0, 40, 0]
    >>> measure_rare_excess(np.array([5, 45, 5, 45, 45]), length_ns).tolist()
    [0, 0, 0, 0, 0]
    """
    nothing = np.zeros(time_ns.size, np.int64)
    if time_ns.size == 0:
        return nothing
    middle_ns = int(np.median(time_ns))
    excess_ns = time_ns - middle_ns
    usual_ns = float(np.median(np.abs(excess_ns)))
    least_ns = max(RARE_EXCESS_SHARE * float(np.median(length_ns)), RARE_DEVIATIONS_COUNT * usual_ns)
    stands_out: npt.NDArray[np.bool_] = (excess_ns > 0) & (excess_ns >= least_ns)
    total_ns = int(excess_ns[stands_out].sum())
    is_rare = RARE_STEPS_PARTS_COUNT * int(stands_out.sum()) < time_ns.size
    is_material = total_ns >= (RARE_STALL_SHARE - SHARE_ROUNDING) * int(length_ns.sum())
    return np.where(stands_out, excess_ns, 0) if is_rare and is_material else nothing


def select_longest(excess_ns: Times, rows: Times) -> Times:
    """Return the steps with most of a stall's time: those over a quarter of the longest."""
    longest_ns = int(excess_ns.max())
    return rows[RARE_LONG_PARTS_COUNT * excess_ns[rows] >= longest_ns]


def find_stall_period(steps: Times) -> int | None:
    """Return the period of a stall in steps, if most of its steps are that far apart; `None` if irregular.

    Consecutive steps have no period.

    >>> find_stall_period(np.array([3, 7, 11, 15])), find_stall_period(np.array([3, 7])) is None
    (4, True)
    """
    if steps.size < FEWEST_FOR_PERIOD_COUNT:
        return None
    distances, counts = np.unique(np.diff(steps), return_counts=True)
    most = int(counts.argmax())
    is_regular = counts[most] >= REGULAR_PERIOD_SHARE * counts.sum() - SHARE_ROUNDING
    return int(distances[most]) if is_regular and distances[most] > 1 else None
