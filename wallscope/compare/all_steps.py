"""What the typical step of a run does not see: mean, p90 and slow steps of all steps; warm-up at its start.

The typical step does not see that every fifth step takes twice as long. The mean of all steps does; it varies
more, and its interval is accordingly wider.

Steps that `analyze` calls warm-up take much longer than the others. Here the decay is smaller, and it decides
what the typical step is: later steps of the same run are shorter. So these steps are left out, and the
comparison says how many. At most half of a run is left out (White 1997).
"""

from collections.abc import Callable, Iterator, Sequence
from math import comb, expm1, hypot, log, sqrt

import numpy as np
import numpy.typing as npt

from wallscope.columns import Flags
from wallscope.compare.confidence import (
    Blocks,
    Floats,
    Spread,
    draw_blocks_of_all,
    measure_wandering,
    student_quantile,
    usual_steps,
)
from wallscope.model.comparison import Mismatch
from wallscope.model.profile import Noise
from wallscope.records import dataclass
from wallscope.thresholds.noise import FEWEST_DEGREES_OF_NOISE_COUNT
from wallscope.thresholds.steps import FEWEST_STEPS_FOR_QUARTILES_COUNT
from wallscope.thresholds.verdict import (
    CONFIDENCE_SHARE,
    FEWEST_STEPS_FOR_SPREAD_COUNT,
    FEWEST_STEPS_FOR_WARM_UP_COUNT,
    SURE_WARM_UP_LIKELIHOOD,
    UNLIKE_SHIFT_LIKELIHOOD,
    WARM_UP_DECAY_SHARE,
    WARM_UP_REST_SHARE,
    WHITE_REST_RATIO,
)
from wallscope.units import percent

_P90_PERCENT = 90
_UPPER = (1 + CONFIDENCE_SHARE) / 2


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
    blocks = draw_blocks_of_all(every) if every.size >= FEWEST_STEPS_FOR_QUARTILES_COUNT else None
    return AllSteps(
        _spread(every, blocks, lambda drawn: drawn.mean(axis=-1)),
        _spread(every, blocks, lambda drawn: np.percentile(drawn, _P90_PERCENT, axis=-1)),
        every.size,
    )


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


def compare_all_steps(
    base: Sequence[AllSteps],
    head: Sequence[AllSteps],
    noise: Noise,
    short: float = 0.0,
    bias: float = 0.0,
) -> AllStepsChange:
    """Compare all steps of the runs of both sides.

    Args:
        base: runs of one side.
        head: runs of the other.
        noise: how much the step of runs differs.
        short: standard deviation of what runs as short as the shortest are off by, as a logarithm.
        bias: by how much more one side may still warm up, as a logarithm.
    """
    steps = [float(np.mean([run.steps for run in runs])) for runs in (base, head)]

    def change(part: Callable[[AllSteps], Spread]) -> Change:
        return _compare_spreads(
            [[part(one) for one in runs] for runs in (base, head)], steps, noise, short, bias
        )

    return AllStepsChange(change(lambda one: one.mean), change(lambda one: one.p90))


def _compare_spreads(
    runs_of: Sequence[Sequence[Spread]],
    steps: Sequence[float],
    noise: Noise,
    short: float,
    bias: float,
) -> Change:
    """Compare means over runs, with what runs differ by.

    Few steps are slow, so what runs are seen to differ by would rest on too little. It is taken from the
    typical step, and never narrows what the steps leave open. If these runs differ by more, their own
    difference counts. A side of few steps may have no slow step by chance. So its steps are taken to
    vary as those of the other side do, and its runs to be off by as much as windows of long runs are.
    """
    base, head = runs_of
    between = noise.deviation**2 * (1 / len(base) + 1 / len(head))
    within, of_within, means = 0.0, 0.0, []
    sides = [np.array([run.of(0) for run in runs]) for runs in runs_of]
    every = [count * len(found) for found, count in zip(sides, steps, strict=True)]
    of_step = [float((found[:, 1] ** 2).mean()) * count for found, count in zip(sides, steps, strict=True)]
    for place, (runs, found) in enumerate(zip(runs_of, sides, strict=True)):
        fewer = max(1 - every[place] / every[1 - place], 0.0)
        least = fewer * max(of_step[1 - place] / steps[place], short**2) if fewer else 0.0
        own = max(float((found[:, 1] ** 2).mean()), least) / len(runs)
        within += own
        of_within += own**2 / float(found[:, 2].sum()) if own else 0.0
        means.append(float(found[:, 0].mean()))
    if not np.isfinite(within + between):
        return Change(means[1] - means[0], None)
    of_between = between**2 / noise.freedom if between else 0.0
    half = max(
        _halve_interval(within + between + bias**2, of_within + of_between),
        _halve_interval(within, of_within),
    )
    return Change(means[1] - means[0], max(half, _measure_between(base, head)))


def _halve_interval(square: float, parts: float) -> float:
    """Return half the interval by a variance and the sum of its parts squared by their degrees of freedom."""
    return float(student_quantile(_UPPER, square**2 / parts if parts else 1.0)) * sqrt(square)


def _measure_between(base: Sequence[Spread], head: Sequence[Spread]) -> float:
    """Return half the interval by what these runs differ by alone; 0 if they are too few to measure it."""
    freedom = len(base) + len(head) - 2
    if freedom < FEWEST_DEGREES_OF_NOISE_COUNT:
        return 0.0
    sides = [np.array([run.of(0)[0] for run in runs]) for runs in (base, head)]
    variance = sum(float(((side - side.mean()) ** 2).sum()) for side in sides) / freedom
    return float(student_quantile(_UPPER, freedom)) * sqrt(variance * (1 / len(base) + 1 / len(head)))


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


_DECAYS = (0.5, 1.0, 1.5, 2.0, 3.0, 4.0, 6.0, 9.0, 13.0, 20.0, 30.0, 50.0)
"""Steps after which the excess is a third. Slower decays than half the run are as a line."""


@dataclass(frozen=True, slots=True)
class WarmUp:
    """The exponential decay that explains the steps of a run best.

    Attributes:
        share: by how much the first step that is not slow exceeds what steps decay to.
        rest_share: the same of the first step that is not left out.
        excess: median excess of the steps that are not left out, as a logarithm.
        left_out: how many of the first steps are left out: none if it is not sure.
        steps: how many the run has.
        is_sure: whether it is a warm-up, and not chance.
    """

    share: float
    rest_share: float
    excess: float
    left_out: int
    steps: int
    is_sure: bool


def find_warm_up(length_ns: npt.NDArray[np.int64]) -> WarmUp | None:
    """Return the warm-up of a run by the lengths of its steps, in order of time; `None` if there is none."""
    found = fit_warm_up(length_ns)
    return found if found.is_sure else None


def fit_warm_up(length_ns: npt.NDArray[np.int64]) -> WarmUp:
    """Return the decay that explains the steps of a run best, in order of time; without excess if none does.

    It is sure if it explains the steps surely, and better than a shift from one level to another does. What
    it leaves must not be correlated, as that of a random walk is. Slow steps do not count.
    """
    count = length_ns.size
    nothing = WarmUp(0.0, 0.0, 0.0, 0, count, is_sure=False)
    usual = usual_steps(length_ns)
    if usual.sum() < FEWEST_STEPS_FOR_WARM_UP_COUNT:
        return nothing
    place, lengths = np.flatnonzero(usual), np.log(np.maximum(length_ns[usual], 1))
    centered = lengths - lengths.mean()
    whole = float((centered**2).sum())
    decays = np.array([decay for decay in _DECAYS if 2 * decay <= count])
    shapes: Floats = np.exp((place[0] - place) / decays[:, None])
    shapes -= shapes.mean(axis=1, keepdims=True)
    heights = (shapes @ centered) / (shapes**2).sum(axis=1)
    rests = ((centered - heights[:, None] * shapes) ** 2).sum(axis=1)
    best = int(np.argmin(np.where(heights > 0, rests, np.inf)))
    height, decay, rest = float(heights[best]), float(decays[best]), float(rests[best])
    if height <= 0 or whole <= 0:
        return nothing
    left = np.diff(centered - height * shapes[best])
    of_shift = whole - _explain_by_shift(centered)
    least = rest + 1e-12 * whole
    is_high = height >= log(1 + WARM_UP_DECAY_SHARE)
    is_likely = lengths.size * log(whole / least) > SURE_WARM_UP_LIKELIHOOD
    is_decay = lengths.size * log(max(of_shift, least) / least) > UNLIKE_SHIFT_LIKELIHOOD
    is_white = float((left**2).sum()) >= WHITE_REST_RATIO * rest
    is_sure = is_high and is_likely and is_decay and is_white
    excess: Floats = height * np.exp(-np.maximum(np.arange(count) - place[0], 0) / decay)
    over = excess < log(1 + WARM_UP_REST_SHARE)
    most = count // 2 if is_sure and count - count // 2 >= FEWEST_STEPS_FOR_SPREAD_COUNT else 0
    left_out = min(int(np.argmax(over)) if over.any() else count, most)
    middle = float(np.median(excess[left_out:]))
    return WarmUp(expm1(height), expm1(float(excess[left_out])), middle, left_out, count, is_sure)


def measure_bias(base: Sequence[WarmUp], head: Sequence[WarmUp]) -> float:
    """Return by how much more the compared steps of one side still warm up, as a logarithm.

    If the steps of one run surely warm up, what the fit of each run says counts. In short runs it is often
    not sure, and none of their steps is left out. If both sides warm up over as many steps, they have as
    much left on average, so what fits differ by is chance.
    """
    are_sure = [any(one.is_sure for one in runs) for runs in (base, head)]
    if not any(are_sure):
        return 0.0
    ours, theirs = (sum(one.excess for one in runs) / len(runs) for runs in (base, head))
    fewer, more = sorted(sum(one.steps for one in runs) / len(runs) for runs in (base, head))
    return abs(ours - theirs) * (1 - fewer / more if all(are_sure) else 1.0)


def _explain_by_shift(centered: Floats) -> float:
    """Return how much of the squares the best shift at one step explains."""
    sums = np.cumsum(centered)[:-1]
    before = np.arange(1, centered.size)
    return float((sums**2 / before + sums**2 / (centered.size - before)).max())


def describe_warm_up(
    base: Sequence[npt.NDArray[np.int64]], head: Sequence[npt.NDArray[np.int64]]
) -> Iterator[Mismatch]:
    """Return a note where a run of a side warms up.

    Args:
        base: int64[step], ns, length of the steady steps of each run, in order of time.
        head: the same of the other side.
    """
    sides = [[found for run in runs if (found := find_warm_up(run)) is not None] for runs in (base, head)]
    if not any(sides):
        return
    rest_share = max(one.rest_share for side in sides for one in side)
    effect = (
        "capture later steps, which vary less"
        if rest_share > WARM_UP_REST_SHARE
        else "the rest of the run is compared"
    )
    yield Mismatch("warm-up", _describe_side(sides[0]), _describe_side(sides[1]), "note", effect, "either")


def _describe_side(found: Sequence[WarmUp]) -> str:
    if not found:
        return "none"
    longest = percent(max(one.share for one in found))
    if not any(one.left_out for one in found):
        return f"steps get {longest} shorter within the run"
    runs = ", ".join(f"{one.left_out} of {one.steps}" for one in found)
    return f"first {runs} steps left out, which take up to {longest} longer"
