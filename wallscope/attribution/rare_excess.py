"""Time that a cause takes on few steps: how much it is beyond its usual level, and how regular."""

import numpy as np
import numpy.typing as npt

from wallscope.thresholds.steps import (
    FEWEST_FOR_PERIOD_COUNT,
    RARE_DEVIATIONS_COUNT,
    RARE_EXCESS_SHARE,
    RARE_LONG_PARTS_COUNT,
    RARE_STALL_SHARE,
    RARE_STEPS_PARTS_COUNT,
    REGULAR_PERIOD_SHARE,
)
from wallscope.thresholds.verdict import SHARE_ROUNDING
from wallscope.trace.intervals import Times


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
