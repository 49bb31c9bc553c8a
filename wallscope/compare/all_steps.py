"""Mean, p90 and slow steps of all steps that count: what the typical step leaves out, and throughput pays.

The typical step does not see that every fifth step takes twice as long. The mean of all steps does; it varies
more, and its interval is accordingly wider.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from math import comb, log, sqrt

import numpy as np
import numpy.typing as npt

from wallscope.compare.confidence import (
    Floats,
    Noise,
    Spread,
    draw_blocks,
    half_width,
    spread_of_runs,
)
from wallscope.thresholds import FEWEST_STEPS_FOR_QUARTILES_COUNT

_P90_PERCENT = 90


@dataclass(frozen=True, slots=True)
class AllSteps:
    """What all steps of one run take: logarithms of their mean and p90 with their errors."""

    mean: Spread
    p90: Spread


@dataclass(frozen=True, slots=True)
class Change:
    """The logarithm of a ratio of head by base, and half its interval, `None` where that is unknown."""

    change: float
    half: float | None


@dataclass(frozen=True, slots=True)
class AllStepsChange:
    """How mean and p90 changed."""

    mean: Change
    p90: Change


def measure_all_steps(length_ns: npt.NDArray[np.floating]) -> AllSteps:
    """Measure all steps of a run, in order of time: float64[steps], ns."""
    every: Floats = length_ns.astype(np.float64)
    return AllSteps(
        _spread(every, lambda drawn: drawn.mean(axis=-1)),
        _spread(every, lambda drawn: np.percentile(drawn, _P90_PERCENT, axis=-1)),
    )


def compare_all_steps(
    base: Sequence[AllSteps], head: Sequence[AllSteps], noise: tuple[Noise, Noise]
) -> AllStepsChange:
    """Compare all steps of the runs of both sides; `noise` is how much the step of runs of each differs."""

    def change(part: Callable[[AllSteps], Spread]) -> Change:
        ours, theirs = (
            _pool([part(one) for one in side], own) for side, own in zip((base, head), noise, strict=True)
        )
        return Change(theirs[0] - ours[0], half_width(ours, theirs))

    return AllStepsChange(change(lambda one: one.mean), change(lambda one: one.p90))


def _pool(runs: Sequence[Spread], noise: Noise) -> tuple[float, float, float]:
    """Return the mean over the runs of a side, its error, with what runs differ by, and degrees of freedom.

    Of all steps there are few that are slow: what runs are seen to differ by would rest on too little, so it
    is taken from the typical step.
    """
    means, errors, freedom = (np.array(one) for one in zip(*(run.of(0) for run in runs), strict=True))
    within = float(np.sqrt((errors**2).sum())) / len(runs)
    pooled = Spread(means.mean(keepdims=True), np.array([within]), float(freedom.sum()))
    return spread_of_runs([pooled], Noise(noise.deviation / sqrt(len(runs)), noise.freedom)).of(0)


def measure_chance(slow: Sequence[int], counts: Sequence[int]) -> float:
    """Measure how likely slow steps are spread as unevenly over both sides by chance (Fisher's exact test).

    Both directions count.

    >>> round(measure_chance([0, 4], [20, 20]), 3), measure_chance([0, 0], [20, 20])
    (0.106, 1.0)
    """
    of_head, marked, every = counts[1], sum(slow), sum(counts)
    ways = [
        comb(marked, one) * comb(every - marked, of_head - one) for one in range(min(marked, of_head) + 1)
    ]
    seen = ways[slow[1]]
    return sum(way for way in ways if way <= seen) / sum(ways)


def _spread(length_ns: Floats, measure: Callable[[Floats], Floats]) -> Spread:
    """Return the spread of the logarithm of what is measured, by blocks of steps that follow each other.

    Of so few steps that the typical one is the mean of all it is unknown.
    """
    middle = np.array([log(max(float(measure(length_ns)), 1e-9))])
    if length_ns.size < FEWEST_STEPS_FOR_QUARTILES_COUNT:
        return Spread(middle, np.full(1, np.inf), 1.0)
    blocks = draw_blocks(length_ns)
    error = np.log(np.maximum(measure(length_ns[blocks.drawn]), 1e-9)).std(ddof=1)
    return Spread(middle, np.array([error * blocks.widening]), blocks.freedom)
