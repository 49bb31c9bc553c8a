"""Mean, p90 and slow steps of all steps that count: time outside the typical step that costs throughput.

The typical step does not see that every fifth step takes twice as long. The mean of all steps does; it varies
more, and its interval is accordingly wider.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from math import comb, hypot, log, sqrt

import numpy as np
import numpy.typing as npt

from wallscope.columns import Flags
from wallscope.compare.confidence import (
    Blocks,
    Floats,
    Spread,
    correlate_by_length,
    correlate_by_rank,
    draw_blocks,
    measure_wandering,
    student_quantile,
)
from wallscope.model.profile import Noise
from wallscope.thresholds.noise import FEWEST_DEGREES_OF_NOISE_COUNT
from wallscope.thresholds.steps import FEWEST_STEPS_FOR_QUARTILES_COUNT
from wallscope.thresholds.verdict import CONFIDENCE_SHARE

_P90_PERCENT = 90


@dataclass(frozen=True, slots=True)
class AllSteps:
    """What all steps of one run take: logarithms of mean and p90 with their errors.

    `steps` is how many they are.
    """

    mean: Spread
    p90: Spread
    steps: int


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
    blocks = None  # slow steps in a row are few by rank, and yet decide the mean: both correlations count
    if every.size >= FEWEST_STEPS_FOR_QUARTILES_COUNT:
        blocks = draw_blocks(every, max(correlate_by_rank(every), correlate_by_length(every)))
    return AllSteps(
        _spread(every, blocks, lambda drawn: drawn.mean(axis=-1)),
        _spread(every, blocks, lambda drawn: np.percentile(drawn, _P90_PERCENT, axis=-1)),
        every.size,
    )


def compare_all_steps(base: Sequence[AllSteps], head: Sequence[AllSteps], noise: Noise) -> AllStepsChange:
    """Compare all steps of the runs of both sides; `noise` is how much the step of runs differs."""
    steps = [float(np.mean([run.steps for run in runs])) for runs in (base, head)]

    def change(part: Callable[[AllSteps], Spread]) -> Change:
        return _compare([part(one) for one in base], [part(one) for one in head], steps, noise)

    return AllStepsChange(change(lambda one: one.mean), change(lambda one: one.p90))


def _compare(base: Sequence[Spread], head: Sequence[Spread], steps: Sequence[float], noise: Noise) -> Change:
    """Compare means over runs, with what runs differ by.

    Of all steps there are few that are slow: what runs are seen to differ by would rest on too little, so it
    is taken from the typical step. If these runs differ by more, their own difference counts. A short run may
    have no slow step by chance, so its steps are taken to vary as those of a longer side do.
    """
    between = noise.deviation**2 * (1 / len(base) + 1 / len(head))
    within, parts, means = 0.0, between**2 / noise.freedom if between else 0.0, []
    sides = [np.array([run.of(0) for run in runs]) for runs in (base, head)]
    of_step = [float((found[:, 1] ** 2).mean()) * count for found, count in zip(sides, steps, strict=True)]
    for place, (runs, found) in enumerate(zip((base, head), sides, strict=True)):
        fewer = max(1 - steps[place] / steps[1 - place], 0.0)
        least = fewer * of_step[1 - place] / steps[place] if fewer else 0.0
        own = max(float((found[:, 1] ** 2).mean()), least) / len(runs)
        within += own
        parts += own**2 / float(found[:, 2].sum()) if own else 0.0
        means.append(float(found[:, 0].mean()))
    square = within + between
    if not np.isfinite(square):
        return Change(means[1] - means[0], None)
    freedom = square**2 / parts if parts else 1.0
    half = float(student_quantile(_UPPER, freedom)) * sqrt(square)
    return Change(means[1] - means[0], max(half, _measure_between(base, head)))


def _measure_between(base: Sequence[Spread], head: Sequence[Spread]) -> float:
    """Return half the interval by what these runs differ by alone; 0 if they are too few to measure it."""
    freedom = len(base) + len(head) - 2
    if freedom < FEWEST_DEGREES_OF_NOISE_COUNT:
        return 0.0
    sides = [np.array([run.of(0)[0] for run in runs]) for runs in (base, head)]
    variance = sum(float(((side - side.mean()) ** 2).sum()) for side in sides) / freedom
    return float(student_quantile(_UPPER, freedom)) * sqrt(variance * (1 / len(base) + 1 / len(head)))


_UPPER = (1 + CONFIDENCE_SHARE) / 2


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


def measure_slow_chance(sides: Sequence[Flags]) -> float:
    """Measure how likely slow steps are spread as unevenly over both sides by chance.

    Slow steps that follow each other count once, as what slows one also slows the next.

    Args:
        sides: bool[step] of each side, in order of time: whether a step is slow.
    """
    bursts = [int(is_slow[:1].sum() + (is_slow[1:] & ~is_slow[:-1]).sum()) for is_slow in sides]
    counts = [int((~is_slow).sum()) + burst for is_slow, burst in zip(sides, bursts, strict=True)]
    return measure_chance(bursts, counts)


def _spread(length_ns: Floats, blocks: Blocks | None, measure: Callable[[Floats], Floats]) -> Spread:
    """Return the spread of the logarithm of what is measured, by blocks of steps that follow each other.

    Of so few steps that the typical one is the mean of all it is unknown (`blocks` is `None`).
    """
    middle = np.array([log(max(float(measure(length_ns)), 1e-9))])
    if blocks is None:
        return Spread(middle, np.full(1, np.inf), 1.0)
    error = np.log(np.maximum(measure(length_ns[blocks.drawn]), 1e-9)).std(ddof=1)
    wandering = measure_wandering(length_ns[:, None])
    more = 0.0 if wandering is None else float(wandering[0])
    return Spread(middle, np.array([hypot(error * blocks.widening, more)]), blocks.freedom)
