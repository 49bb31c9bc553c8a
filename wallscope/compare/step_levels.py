"""Levels of steps: a run whose steps alternate between two clock frequencies, say.

Which level prevails differs from run to run, so the typical step of such runs differs by up to the distance
of the levels. The more often a run changes its level, the more alike runs are.
"""

from collections.abc import Sequence
from itertools import pairwise
from math import expm1, log, sqrt

import numpy as np
import numpy.typing as npt

from wallscope.compare.confidence import usual_steps
from wallscope.model.comparison import Mismatch
from wallscope.model.diagnosis import StepMode
from wallscope.records import dataclass
from wallscope.thresholds.verdict import (
    FEWEST_STEPS_OF_SHIFT_COUNT,
    SHARED_LEVELS_RATIO,
    SLOW_STEP_RATIO,
    SURE_SHIFT_ERRORS_COUNT,
)
from wallscope.trace.step_variation import find_step_modes
from wallscope.units import duration, percent


@dataclass(frozen=True, slots=True)
class RunLevels:
    """Levels of the steps of a run, the shortest first, and by how much they shift at one step.

    There are none where all steps have one level. `shift` is a logarithm, 0 where they do not surely shift.
    """

    modes: tuple[StepMode, ...]
    shift: float

    def distance(self, steps: int) -> float:
        """Return by how much runs of so many steps may differ: less where a run changes its level often."""
        if not self.modes:
            return self.shift
        ordered = sorted((step, place) for place, mode in enumerate(self.modes) for step in mode.steps)
        switches = sum(before[1] != after[1] for before, after in pairwise(ordered))
        apart = log(self.modes[-1].median_ns / self.modes[0].median_ns)
        return max(_lessen(apart, switches, len(ordered), steps), self.shift)


def find_levels(length_ns: npt.NDArray[np.int64]) -> RunLevels:
    """Return the levels of the steps of a run, in order of time.

    Slow steps are not a level: the typical step leaves them out.
    """
    modes = find_step_modes(np.arange(length_ns.size), length_ns)
    kept = tuple(mode for mode in modes if mode.median_ns <= SLOW_STEP_RATIO * modes[0].median_ns)
    return RunLevels(kept if len(kept) > 1 else (), measure_shift(length_ns))


@dataclass(frozen=True, slots=True)
class SharedLevels:
    """Levels of the steps of both sides together, where a run changes between them.

    A step of a run at the level of the other side shows that the sides may differ by their level alone.

    Attributes:
        median_ns: of each level, the shortest first; none where no run changes its level.
        base: how many steps of base are at each.
        head: the same of head.
        switches: how often a run changes its level, on average.
        runs: how many runs these are.
    """

    median_ns: tuple[int, ...] = ()
    base: tuple[int, ...] = ()
    head: tuple[int, ...] = ()
    switches: float = 0.0
    runs: int = 0

    def distance(self, steps: int) -> float:
        """Return by how much runs of so many steps may differ, as a logarithm; 0 without levels."""
        if not self.median_ns:
            return 0.0
        apart = log(self.median_ns[-1] / self.median_ns[0])
        return _lessen(apart, self.switches, sum((*self.base, *self.head)) / self.runs, steps)


def _lessen(apart: float, switches: float, seen: float, steps: int) -> float:
    """Return the distance of levels by the changes in a run of so many steps, if runs of `seen` are known."""
    return apart / sqrt(max(switches * min(steps / seen, 1.0), 1.0))


_NO_LEVELS = SharedLevels()


def find_shared_levels(
    base: Sequence[npt.NDArray[np.float64]], head: Sequence[npt.NDArray[np.float64]]
) -> SharedLevels:
    """Return the levels of the steps of the runs of both sides, each run float64[step], ns, in order of time.

    Slow steps do not count, nor does a step that is further from its level than most others: an outlier of
    one side may lie close to the other.
    """
    rounded = [np.rint(run).astype(np.int64) for run in (*base, *head)]
    runs = [run[usual_steps(run)] for run in rounded]
    every = np.concatenate(runs)
    modes = find_step_modes(np.arange(every.size), every, SHARED_LEVELS_RATIO)
    modes = tuple(mode for mode in modes if mode.median_ns <= SLOW_STEP_RATIO * modes[0].median_ns)
    if len(modes) < 2:
        return _NO_LEVELS
    level = np.full(every.size, _BETWEEN)
    for place, mode in enumerate(modes):
        own = np.array(mode.steps)
        low, high = np.percentile(every[own], [10, 90])
        level[own[np.abs(every[own] - mode.median_ns) <= high - low]] = place
    parts = [part[part != _BETWEEN] for part in np.split(level, np.cumsum([run.size for run in runs])[:-1])]
    switches = sum(int((np.diff(part) != 0).sum()) for part in parts)
    if not switches:
        return _NO_LEVELS
    sides = (np.concatenate(parts[: len(base)]), np.concatenate(parts[len(base) :]))
    counts = [tuple(np.bincount(side, minlength=len(modes)).tolist()) for side in sides]
    medians_ns = tuple(mode.median_ns for mode in modes)
    return SharedLevels(medians_ns, counts[0], counts[1], switches / len(runs), len(runs))


_BETWEEN = -1


def measure_distance(runs: Sequence[RunLevels], shared: SharedLevels, steps: int) -> float:
    """Return the largest distance by which runs of so many steps may differ, as a logarithm.

    It is 0 without levels or shifts.
    """
    return max((shared.distance(steps), *(run.distance(steps) for run in runs)))


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


def describe_levels(
    base: Sequence[RunLevels], head: Sequence[RunLevels], shared: SharedLevels
) -> tuple[Mismatch, ...]:
    """Return a note where steps have levels or shift within a run, or both sides share levels."""
    if any(run.modes or run.shift for run in (*base, *head)):
        ours, theirs = _describe_runs(base), _describe_runs(head)
    elif shared.median_ns:
        ours, theirs = (_describe_counts(counts, shared.median_ns) for counts in (shared.base, shared.head))
    else:
        return ()
    return (Mismatch("levels of steps", ours, theirs, "note"),)


def _describe_counts(counts: Sequence[int], median_ns: Sequence[int]) -> str:
    return ", ".join(
        f"{count} of {duration(own_ns)}" for count, own_ns in zip(counts, median_ns, strict=True) if count
    )


def _describe_runs(runs: Sequence[RunLevels]) -> str:
    parts = []
    for run in runs:
        kinds = (f"{len(mode.steps)} of {duration(mode.median_ns)}" for mode in run.modes)
        shift = f"one shift of {percent(expm1(run.shift))} within the run" if run.shift else "no shift"
        parts.append(", ".join(kinds) if run.modes else shift)
    return "; ".join(dict.fromkeys(parts))
