"""Detect several kinds of steps: groups of lengths that lie far apart relative to their spread.

Lengths are compared by their ratio. There is no step between two kinds, and their medians differ by more than
the sum of both widths. Two halves of one distribution therefore do not count as kinds.
"""

import numpy as np

from wallscope.model.diagnosis import StepMode
from wallscope.thresholds.steps import (
    FEWEST_MODE_STEPS_COUNT,
    FEWEST_STEPS_FOR_MODES_COUNT,
    MODES_APART_RATIO,
    SMALLEST_MODE_SHARE,
    SPLIT_MODES_RATIO,
    SPLIT_MODES_STEPS_COUNT,
    WIDEST_MODE_GAP_PARTS_COUNT,
)
from wallscope.trace.intervals import Times


def find_step_modes(number: Times, duration_ns: Times) -> tuple[StepMode, ...]:
    """Return the kinds of steps, the shortest first; empty if there is one kind.

    Args:
        number: int64[step], the numbers of the steady steps.
        duration_ns: int64[step], ns, length of each.
    """
    if duration_ns.size < FEWEST_STEPS_FOR_MODES_COUNT or int(duration_ns.min()) <= 0:
        return ()
    order = np.argsort(duration_ns, kind="stable")
    least = max(FEWEST_MODE_STEPS_COUNT, int(np.ceil(SMALLEST_MODE_SHARE * duration_ns.size)))
    groups = _split(np.log(duration_ns[order]), 0, least)
    if len(groups) < 2:
        return ()
    return tuple(
        StepMode(
            steps=tuple(np.sort(number[order[first:end]]).tolist()),
            median_ns=round(float(np.median(duration_ns[order[first:end]]))),
        )
        for first, end in groups
    )


def _split(lengths: np.ndarray, offset: int, least: int) -> list[tuple[int, int]]:
    """Return the bounds of the groups of lengths (logarithms, ascending), by index."""
    best, best_score = 0, SPLIT_MODES_RATIO + SPLIT_MODES_STEPS_COUNT / lengths.size
    for at in range(least, lengths.size - least + 1):
        score = _measure_split(lengths[:at], lengths[at:])
        if score >= best_score:
            best, best_score = at, score
    if best == 0:
        return [(offset, offset + lengths.size)]
    return [*_split(lengths[:best], offset, least), *_split(lengths[best:], offset + best, least)]


def _measure_split(low: np.ndarray, high: np.ndarray) -> float:
    """Return the distance of the medians divided by the width of both groups; 0 if no gap separates them."""
    apart = float(np.median(high) - np.median(low))
    gap = float(high[0] - low[-1])
    if apart < np.log(MODES_APART_RATIO) or WIDEST_MODE_GAP_PARTS_COUNT * gap < apart:
        return 0.0
    return apart / max(_width(low) + _width(high), 1e-9)


def _width(lengths: np.ndarray) -> float:
    """Width is from the 10th to the 90th percentile, so one outlier does not count."""
    low, high = np.percentile(lengths, [10, 90], method="nearest")
    return float(high - low)
