"""Levels of steps: a run whose steps alternate between two clock frequencies, say.

Which level prevails differs from run to run, so the typical step of such runs differs by up to the distance
of the levels. The more often a run changes its level, the more alike runs are.
"""

from collections.abc import Sequence
from itertools import pairwise
from math import log, sqrt

import numpy as np
import numpy.typing as npt

from wallscope.compare.confidence import usual_steps
from wallscope.model.diagnosis import StepMode
from wallscope.thresholds.comparison import (
    FEWEST_STEPS_OF_SHIFT_COUNT,
    SLOW_STEP_RATIO,
    SURE_SHIFT_ERRORS_COUNT,
)
from wallscope.trace.step_modes import find_step_modes
from wallscope.units import duration

Levels = tuple[StepMode, ...]


def find_levels(length_ns: npt.NDArray[np.int64]) -> Levels:
    """Return the levels of the steps of a run, the shortest first; none where they have one.

    Slow steps are not a level: the typical step leaves them out.
    """
    modes = find_step_modes(np.arange(length_ns.size), length_ns)
    kept = tuple(mode for mode in modes if mode.median_ns <= SLOW_STEP_RATIO * modes[0].median_ns)
    return kept if len(kept) > 1 else ()


def measure_distance(runs: Sequence[Levels]) -> float:
    """Return by how much runs may differ: the distance of levels, less where a run changes it often.

    It is a logarithm; 0 without levels.
    """
    found = [0.0]
    for levels in runs:
        if levels:
            ordered = sorted((step, place) for place, mode in enumerate(levels) for step in mode.steps)
            switches = sum(before[1] != after[1] for before, after in pairwise(ordered))
            found.append(log(levels[-1].median_ns / levels[0].median_ns) / sqrt(max(switches, 1)))
    return max(found)


def measure_shift(length_ns: npt.NDArray[np.int64]) -> float:
    """Return by how much the steps of a run shift at one step, as a logarithm; 0 if they do not surely.

    A run that shifts once shows how far another one may be off: at one clock frequency from its first step to
    its last. Slow steps do not count.
    """
    lengths = np.log(np.maximum(length_ns[usual_steps(length_ns)], 1))
    count = lengths.size
    ends = np.arange(FEWEST_STEPS_OF_SHIFT_COUNT, count - FEWEST_STEPS_OF_SHIFT_COUNT + 1)
    if not ends.size:
        return 0.0
    sums, squares = np.cumsum(lengths - lengths.mean()), np.cumsum((lengths - lengths.mean()) ** 2)
    before, whole = sums[ends - 1], sums[-1]
    gain = before**2 / ends + (whole - before) ** 2 / (count - ends)
    best = int(np.argmax(gain))
    end = int(ends[best])
    apart = float(abs(before[best] / end - (whole - before[best]) / (count - end)))
    variance = max(float(squares[-1] - gain[best]), 0.0) / (count - 2)
    error = sqrt(variance * (1 / end + 1 / (count - end)))
    return apart if apart > SURE_SHIFT_ERRORS_COUNT * error else 0.0


def describe_levels(runs: Sequence[Levels]) -> str:
    """Describe the levels of the runs of a side."""
    parts = []
    for levels in runs:
        kinds = (f"{len(mode.steps)} of {duration(mode.median_ns)}" for mode in levels)
        parts.append(", ".join(kinds) if levels else "one level")
    return "; ".join(dict.fromkeys(parts))
