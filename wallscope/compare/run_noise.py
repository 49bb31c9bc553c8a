"""Confidence intervals of the difference of two sides, with the noise between runs.

Runs of one program differ by more than the variation of their steps. The noise between runs is measured for
each wall and each cause separately, as a share of its own time. The runs of both sides and records of other
runs measure it, and each run counts once. Where nothing is recorded, and the compared runs have fewer than
`FEWEST_DEGREES_OF_NOISE_COUNT` degrees of freedom, an assumption replaces what they show, unless they
contradict it. Recorded runs always count: k runs of one commit have k - 1 degrees of freedom. Student's t of
so many keeps the interval at its 95 %, however much runs differ. Arrays have one column for the
logarithm of the typical step and one for each wall and cause. Axes before run and column are separate
comparisons.
"""

from collections.abc import Sequence
from dataclasses import replace
from math import inf, sqrt

import numpy as np

from wallscope.columns import Flags
from wallscope.compare.confidence import Floats, Spread, normal_quantile, student_chance, student_quantile
from wallscope.model.profile import Noise, RecordedNoise
from wallscope.records import dataclass
from wallscope.thresholds.noise import (
    CONTRADICTED_VARIANCE_RATIO,
    FEWEST_DEGREES_OF_NOISE_COUNT,
    FEWEST_DEGREES_OF_PAIRS_COUNT,
    FEWEST_OWN_DEGREES_COUNT,
    MOST_RUNS_COUNT,
    UNLIKE_VARIANCE_RATIO,
)
from wallscope.thresholds.verdict import CONFIDENCE_SHARE, DETECTED_SHARE


@dataclass(frozen=True, slots=True)
class Runs:
    """Runs of one side.

    Attributes:
        mean: float64[..., run, column].
        error: the same, standard errors by the steps of the run alone.
        freedom: float64[..., run], degrees of freedom of `error`.
        steps: float64[..., run].
    """

    mean: Floats
    error: Floats
    freedom: Floats
    steps: Floats

    @property
    def count(self) -> int:
        """How many runs there are."""
        return int(self.mean.shape[-2])

    @property
    def center(self) -> Floats:
        """The mean over the runs."""
        found: Floats = self.mean.mean(axis=-2)
        return found

    @property
    def size(self) -> Floats:
        """What relative noise is multiplied by: 1 for the logarithm, else the mean itself."""
        found = np.abs(self.center)
        found[..., 0] = 1.0
        return found

    @property
    def within(self) -> Floats:
        """The mean square of the errors of its runs."""
        found: Floats = (self.error**2).mean(axis=-2)
        return found

    def spread_between(self) -> tuple[Floats, Floats]:
        """Return the relative variance between the runs, and its degrees of freedom, of each column."""
        size = self.size
        if self.count == 1:
            return np.zeros_like(size), np.zeros_like(size)
        known = size > 0
        variance = self.mean.var(axis=-2, ddof=1) / np.where(known, size, 1.0) ** 2
        return np.where(known, variance, 0.0), np.where(known, self.count - 1.0, 0.0)


def stack_runs(spreads: Sequence[Spread], steps: Sequence[int]) -> Runs:
    """Return the runs of one side as arrays."""
    return Runs(
        np.stack([one.mean for one in spreads]),
        np.stack([one.error for one in spreads]),
        np.array([one.freedom for one in spreads]),
        np.array(steps, np.float64),
    )


@dataclass(frozen=True, slots=True)
class Recorded:
    """Recorded noise as arrays: relative variance and degrees of freedom of each column, steps of a run."""

    variance: Floats
    freedom: Floats
    steps: float = inf


def pool_records(known: Sequence[RecordedNoise | None], names: Sequence[str]) -> Recorded:
    """Return recorded noise of the columns of these names, each estimate once."""
    kept: list[RecordedNoise] = []
    for one in known:
        if one is not None and one not in kept:
            kept.append(one)
    nothing = Noise(0.0, 0.0)
    parts = [[one.noise.get(name, nothing) for name in names] for one in kept]
    freedom = np.array([[noise.freedom for noise in row] for row in parts]).reshape(len(kept), len(names))
    squares = np.array([[noise.deviation**2 for noise in row] for row in parts]).reshape(freedom.shape)
    whole = freedom.sum(axis=0)
    variance = (squares * freedom).sum(axis=0) / np.where(whole > 0, whole, 1.0)
    steps = float(np.mean([one.steps for one in kept])) if kept else inf
    return Recorded(variance, whole, steps)


@dataclass(frozen=True, slots=True)
class Assumed:
    """What runs may be off by beyond what they show, each a share or a logarithm.

    Attributes:
        noise: standard deviation between runs of each column where too little is known.
        short: standard deviation of what runs as short as the shortest are off by; one for each comparison.
        bias: by how much the warm-up may lengthen one side; one for each comparison.
    """

    noise: Floats
    short: Floats | float = 0.0
    bias: Floats | float = 0.0


@dataclass(frozen=True, slots=True)
class Difference:
    """How sure the difference of two sides is, by column.

    Attributes:
        change: head less base.
        error: standard error, infinite where it is unknown.
        freedom: of the error.
        steps_error: the same by the steps of these runs alone, without what other runs may differ by.
        steps_freedom: of that.
        noise: relative standard deviation between runs.
        noise_freedom: of that; infinite where it is assumed.
        is_assumed: whether the noise is assumed.
        bias: what further runs do not reduce of the error of the step.
    """

    change: Floats
    error: Floats
    freedom: Floats
    steps_error: Floats
    steps_freedom: Floats
    noise: Floats
    noise_freedom: Floats
    is_assumed: Flags
    bias: Floats

    def half(self) -> Floats:
        """Return half the interval of the difference.

        An assumption never narrows what the steps alone leave open.
        """
        probability = (1 + CONFIDENCE_SHARE) / 2
        own: Floats = student_quantile(probability, self.freedom) * self.error
        if not self.is_assumed.any():
            return own
        return np.where(self.is_assumed, np.maximum(own, self.steps_half()), own)

    def steps_half(self) -> Floats:
        """Return half the interval by the steps of these runs alone."""
        return student_quantile((1 + CONFIDENCE_SHARE) / 2, self.steps_freedom) * self.steps_error

    def chance(self) -> Floats:
        """Return how likely a difference as large is without a change (two-sided)."""
        own = _chance(self.change, self.error, self.freedom)
        if not self.is_assumed.any():
            return own
        steps = _chance(self.change, self.steps_error, self.steps_freedom)
        return np.where(self.is_assumed, np.maximum(own, steps), own)

    def detectable(self, margin: float) -> float | None:
        """Return the change of the step that is past the margin, and found, in four of five comparisons."""
        half = float(self.half()[0])
        if not np.isfinite(half):
            return None
        return max(half, margin) + normal_quantile(DETECTED_SHARE) * float(self.error[0])


_FAR = 1e150
"""Differences in units of their error; larger ones are as certain."""


def _chance(change: Floats, error: Floats, freedom: Floats) -> Floats:
    exact = np.where(change == 0, 0.0, _FAR)  # without an error, each difference is a change
    ratio = np.divide(np.abs(change), error, out=exact, where=error > 1 / _FAR)
    return np.where(np.isfinite(error), student_chance(np.minimum(ratio, _FAR), freedom), 1.0)


def measure_difference(
    base: Runs,
    head: Runs,
    recorded: Recorded,
    assumed: Assumed,
    scales: tuple[float, float] = (1.0, 1.0),
) -> Difference:
    """Measure how sure the difference of two sides is.

    Args:
        base: runs of one side.
        head: runs of the other.
        recorded: what records know.
        assumed: what is not known of these runs.
        scales: what times of each side are multiplied by; the first column is a logarithm, and is not.
    """
    sides = (base, head)
    factors = [np.concatenate(([1.0], np.full(base.mean.shape[-1] - 1, scale))) for scale in scales]
    sizes = [side.size * factor for side, factor in zip(sides, factors, strict=True)]
    within = [side.within * factor**2 for side, factor in zip(sides, factors, strict=True)]
    steps_error, steps_freedom = _combine_steps(sides, factors)
    seen = [side.spread_between() for side in sides]
    measured = _combine_measured(sides, sizes, within, recorded, np.asarray(assumed.short)[..., None])
    freedom = seen[0][1] + seen[1][1] + recorded.freedom
    pooled = _pool((*seen, (np.broadcast_to(recorded.variance, freedom.shape), recorded.freedom)))
    known_error = np.isfinite(within[0]) & np.isfinite(within[1])
    relative = [part / np.where(size > 0, size, 1.0) ** 2 for part, size in zip(within, sizes, strict=True)]
    expected = assumed.noise**2 + np.where(known_error, np.maximum(*relative), 0.0)
    is_contradicted = pooled > CONTRADICTED_VARIANCE_RATIO * expected
    is_little = (recorded.freedom == 0) & (freedom < FEWEST_DEGREES_OF_NOISE_COUNT)
    is_assumed = is_little & ~((freedom > 0) & is_contradicted)
    prior_error, prior_freedom = _combine_assumed(sides, sizes, assumed.noise, factors)
    alone = [~np.isfinite(part) & (side.count == 1) for part, side in zip(within, sides, strict=True)]
    one_unknown = alone[0] | alone[1]
    is_assumed &= known_error | one_unknown | (freedom == 0)
    measured_error = _add_bias(measured[0], assumed.bias, sizes)
    error = np.where(is_assumed, prior_error, np.where(one_unknown, inf, measured_error))
    return Difference(
        change=head.center * factors[1] - base.center * factors[0],
        error=error,
        freedom=np.where(is_assumed, prior_freedom, measured[1]),
        steps_error=steps_error,
        steps_freedom=steps_freedom,
        noise=np.where(is_assumed, assumed.noise, np.sqrt(pooled)),
        noise_freedom=np.where(is_assumed, inf, freedom),
        is_assumed=is_assumed,
        bias=np.broadcast_to(np.asarray(assumed.bias, np.float64), error.shape[:-1]),
    )


def _add_bias(error: Floats, bias: Floats | float, sizes: Sequence[Floats]) -> Floats:
    """Return an error with what further runs do not reduce."""
    found: Floats = np.hypot(error, np.asarray(bias)[..., None] * (sizes[0] + sizes[1]) / 2)
    return found


def measure_pairs(
    base: Runs,
    head: Runs,
    assumed: Assumed,
    scales: tuple[float, float] = (1.0, 1.0),
) -> Difference:
    """Measure how sure the difference of two sides is whose runs belong together, one of each side.

    What drifts between pairs is the same on both sides of each, so the differences of pairs are what varies.
    Fewer than `FEWEST_DEGREES_OF_PAIRS_COUNT` degrees of freedom measure too little; then runs count singly.
    """
    columns = base.mean.shape[-1]
    unpaired = measure_difference(base, head, _no_records(columns), assumed, scales)
    freedom = base.count - 1.0
    if freedom < FEWEST_DEGREES_OF_PAIRS_COUNT:
        return unpaired
    factors = [np.concatenate(([1.0], np.full(columns - 1, scale))) for scale in scales]
    apart = head.mean * factors[1] - base.mean * factors[0]
    deviation: Floats = apart.std(axis=-2, ddof=1)
    sizes = (base.size * factors[0], head.size * factors[1])
    size, whole = sum(sizes) / 2, np.full_like(deviation, freedom)
    return replace(
        unpaired,
        error=_add_bias(deviation / np.sqrt(base.count), assumed.bias, sizes),
        freedom=whole,
        noise=deviation / np.sqrt(2) / np.where(size > 0, size, 1.0),
        noise_freedom=whole,
        is_assumed=np.zeros_like(unpaired.is_assumed),
    )


def _no_records(columns: int) -> Recorded:
    return Recorded(np.zeros(columns), np.zeros(columns))


def count_runs_to_decide(
    difference: Difference, recorded_freedom: float, runs: int, change: float, margin: float
) -> int | None:
    """Return how many runs a side would decide the verdict in half of all cases, if the change is as seen.

    `None` where more than `MOST_RUNS_COUNT` would be needed. `change` and `margin` are logarithms, `runs` is
    how many the smaller side has.
    """
    variance, bias = float(difference.noise[0]) ** 2, float(difference.bias)
    if difference.is_assumed[0]:
        variance += float(difference.steps_error[0]) ** 2 * runs / 2
    for count in range(runs + 1, MOST_RUNS_COUNT + 1):
        freedom = 2 * (count - 1) + recorded_freedom
        error = sqrt(2 * variance / count + bias**2)
        half = float(student_quantile((1 + CONFIDENCE_SHARE) / 2, freedom)) * error
        usual = normal_quantile(_THREE_QUARTERS) * error  # half of all changes of 0 are seen as larger
        if half < (abs(change) if abs(change) > margin else margin - abs(change) - usual):
            return count
    return None


_THREE_QUARTERS = 0.75


def _pool(parts: Sequence[tuple[Floats, Floats]]) -> Floats:
    whole = sum(freedom for _, freedom in parts)
    found: Floats = sum(variance * freedom for variance, freedom in parts) / np.where(whole > 0, whole, 1.0)
    return found


def _combine_measured(
    sides: Sequence[Runs],
    sizes: Sequence[Floats],
    within: Sequence[Floats],
    recorded: Recorded,
    short: Floats,
) -> tuple[Floats, Floats]:
    """Return the error by measured noise, and its degrees of freedom (Satterthwaite 1946).

    A side is measured by its own runs and the records; where these are too few, by the other side too. Each
    of the three variances is one term, however many sides rest on it. Runs of fewer steps than those that
    measure them differ by more, which their own steps show, or those of longer runs (`short`). A single run
    whose steps vary by far more than recorded runs differ is unlike them, and what its steps leave open
    is added. Few recorded runs may differ by little by chance, so this adds no degrees of freedom.
    """
    seen = [side.spread_between() for side in sides]
    shape = np.broadcast_shapes(sizes[0].shape, recorded.variance.shape)
    variances = (seen[0][0], seen[1][0], np.broadcast_to(recorded.variance, shape))
    freedoms = (seen[0][1], seen[1][1], np.broadcast_to(recorded.freedom, shape))
    weights = [np.zeros(shape), np.zeros(shape), np.zeros(shape)]
    extra = np.zeros(shape)
    parts = np.zeros(shape)
    for place, (side, size) in enumerate(zip(sides, sizes, strict=True)):
        own = freedoms[place] + freedoms[2]
        borrowed = np.where(own < FEWEST_OWN_DEGREES_COUNT, freedoms[1 - place], 0.0)
        whole = np.where(own + borrowed > 0, own + borrowed, 1.0)
        share = size**2 / side.count / whole
        for source, amount in ((place, freedoms[place]), (1 - place, borrowed), (2, freedoms[2])):
            weights[source] += share * amount
        known = np.where(np.isfinite(within[place]), within[place], 0.0) / side.count
        least = np.maximum(known, (short * size) ** 2 / side.count)
        length = side.steps.mean(axis=-1)
        others = (sides[1 - place].steps.mean(axis=-1), recorded.steps)
        fewer = [np.maximum(1 - length / other, 0.0)[..., None] for other in others]
        more = least * (fewer[0] * borrowed + fewer[1] * freedoms[2]) / whole
        freedom_of_steps = np.broadcast_to(side.freedom.sum(axis=-1)[..., None], shape)
        if side.count == 1:
            is_unlike = known > UNLIKE_VARIANCE_RATIO * size**2 * recorded.variance
            is_unlike &= freedoms[2] > 0
            more = np.where(is_unlike, np.maximum(known, more), more)
            is_measured_worse = is_unlike & (freedoms[2] < freedom_of_steps)
            freedom_of_steps = np.where(is_measured_worse, freedoms[2], freedom_of_steps)
        extra += more
        parts += more**2 / freedom_of_steps
    terms = [weight * variance for weight, variance in zip(weights, variances, strict=True)]
    square = sum(terms) + extra
    for term, freedom in zip(terms, freedoms, strict=True):
        parts = parts + term**2 / np.where(freedom > 0, freedom, 1.0)
    return np.sqrt(square), _satterthwaite(square, parts, np.maximum(sum(freedoms), 1.0))


def _satterthwaite(square: Floats, parts: Floats, default: Floats) -> Floats:
    known = np.isfinite(square) & (parts > 0)
    return np.where(known, np.maximum(square**2 / np.where(known, parts, 1.0), 1.0), default)


def _combine_steps(sides: Sequence[Runs], factors: Sequence[Floats]) -> tuple[Floats, Floats]:
    """Return the error by the steps of the runs alone, and its degrees of freedom."""
    square = sum(
        ((side.error * factor) ** 2).sum(axis=-2) / side.count**2
        for side, factor in zip(sides, factors, strict=True)
    )
    parts = sum(
        ((side.error * factor) ** 4 / side.freedom[..., None]).sum(axis=-2) / side.count**4
        for side, factor in zip(sides, factors, strict=True)
    )
    return np.sqrt(square), _satterthwaite(square, parts, np.ones_like(square))


def _combine_assumed(
    sides: Sequence[Runs], sizes: Sequence[Floats], assumed: Floats, factors: Sequence[Floats]
) -> tuple[Floats, Floats]:
    """Return the error by assumed noise and the steps, and its degrees of freedom: an assumption has any."""
    steps, freedom = _combine_steps(sides, factors)
    prior = sum((assumed * size) ** 2 / side.count for side, size in zip(sides, sizes, strict=True))
    square = steps**2 + prior
    return np.sqrt(square), _satterthwaite(square, steps**4 / freedom, np.full_like(square, 1e9))
