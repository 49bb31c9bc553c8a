"""How sure a typical step is: the spread of its mean over blocks of steps, or over runs; quantiles.

Steps of one run follow each other: a slow one is followed by a slow one. Blocks of consecutive steps are
drawn with replacement (Künsch 1989, the moving-block bootstrap), as long as the correlation of neighbors asks
for. Of few steps that is still too narrow, so the spread is widened by what blocks of that length miss of an
autoregressive series, and the interval is Student's with as many degrees of freedom as there are steps that
are worth one. What runs differ by is added (`docs/diff.md` shows what that achieves).
"""

from collections.abc import Sequence
from dataclasses import dataclass
from hashlib import blake2b
from math import ceil, expm1, inf, pi, sqrt, tan
from statistics import NormalDist

import numpy as np
import numpy.typing as npt

from wallscope.columns import Flags
from wallscope.model.comparison import NoiseSource
from wallscope.thresholds import (
    ASSUMED_OFF_SHARE,
    CONFIDENCE_SHARE,
    DETECTED_SHARE,
    FEWEST_STEPS_FOR_QUARTILES_COUNT,
    FEWEST_STEPS_FOR_SPREAD_COUNT,
    MOST_CORRELATED_RATIO,
    OUTLYING_DEVIATIONS_COUNT,
    RESAMPLES_COUNT,
    SLOW_STEP_RATIO,
    USUAL_STEPS_SHARE,
)
from wallscope.trace.steps import is_ordinary


def normal_quantile(probability: float) -> float:
    """Return the quantile of the normal distribution.

    >>> round(normal_quantile(0.975), 4)
    1.96
    """
    return NormalDist().inv_cdf(probability)


def student_quantile(probability: float, freedom: float) -> float:
    """Return the quantile of Student's t above the median, also of broken degrees of freedom, not below 1.

    Hill's expansion (Communications of the ACM 13, 1970, algorithm 396).

    >>> [round(student_quantile(0.975, freedom), 3) for freedom in (1, 2, 5, 30)]
    [12.706, 4.303, 2.571, 2.042]
    """
    tails = 2 * (1 - probability)
    n = max(freedom, 1.0)
    if n == 1:
        return 1 / tan(tails * pi / 2)
    if n == 2:
        return sqrt(2 / (tails * (2 - tails)) - 2)
    a = 1 / (n - 0.5)
    b = 48 / a**2
    c = ((20700 * a / b - 98) * a - 16) * a + 96.36
    d = ((94.5 / (b + c) - 3) / b + 1) * sqrt(a * pi / 2) * n
    y = (d * tails) ** (2 / n)
    if y > 0.05 + a:
        x = normal_quantile(tails / 2)
        y = x * x
        if n < 5:
            c += 0.3 * (n - 4.5) * (x + 0.6)
        c = (((0.05 * d * x - 5) * x - 7) * x - 2) * x + b + c
        y = (((((0.4 * y + 6.3) * y + 36) * y + 94.5) / c - y - 3) / b + 1) * x
        y = expm1(a * y * y)
    else:
        y = ((1 / (((n + 6) / (n * y) - 0.089 * d - 0.822) * (n + 2) * 3) + 0.5 / (n + 4)) * y - 1) * (
            n + 1
        ) / (n + 2) + 1 / y
    return sqrt(n * y)


Floats = npt.NDArray[np.float64]

_NORMAL_DEVIATION = 1.4826  # one deviation in medians of the absolute difference


@dataclass(frozen=True, slots=True)
class Spread:
    """Means of some columns over the ordinary steps, their standard errors, and degrees of freedom.

    `error` is infinite where it is unknown. The first column is the logarithm of the mean length.
    """

    mean: Floats
    error: Floats
    freedom: float

    def of(self, column: int) -> tuple[float, float, float]:
        """Return mean, standard error and degrees of freedom of one column."""
        return float(self.mean[column]), float(self.error[column]), self.freedom


@dataclass(frozen=True, slots=True)
class Noise:
    """How much the logarithm of the typical step differs between runs, and from how many that is known."""

    deviation: float
    freedom: float


ASSUMED = Noise(ASSUMED_OFF_SHARE / sqrt(3), inf)
"""Where nothing is known of how runs differ: each is off by anything up to `ASSUMED_OFF_SHARE`, evenly."""


@dataclass(frozen=True, slots=True)
class BothSides:
    """Both sides as far as they tell of other runs (`base`, `head`), and of these alone (`steps`).

    `noise` is the larger difference between runs that was measured, and `source` where it comes from;
    `noise_of_sides` is what was taken for each side.
    """

    base: Spread
    head: Spread
    steps: tuple[Spread, Spread]
    noise: Noise
    source: NoiseSource
    noise_of_sides: tuple[Noise, Noise]

    def half(self, column: int = 0, scales: tuple[float, float] = (1.0, 1.0)) -> float | None:
        """Return half the interval of the difference of a column, each side times a scale.

        The first is the logarithm of the ratio of the typical steps. Noise between runs never narrows it,
        though more degrees of freedom come with it.
        """
        halves = [
            half_width(_scale(base.of(column), scales[0]), _scale(head.of(column), scales[1]))
            for base, head in ((self.base, self.head), self.steps)
        ]
        known = [half for half in halves if half is not None]
        return max(known) if len(known) == len(halves) else None

    @property
    def likeness(self) -> float | None:
        """Half the interval that must be inside the margin where nothing changed.

        An assumption about other runs keeps from calling a change; it keeps nobody from seeing that there
        is none in this pair.
        """
        return self.alone if self.source == "assumed" else self.half()

    @property
    def alone(self) -> float | None:
        """Half the interval of the steps of these runs, without what other runs may differ by."""
        return half_width(*(side.of(0) for side in self.steps))

    def detectable(self, margin: float) -> float | None:
        """Return the difference that is past the margin, and detected, in four of five comparisons."""
        half = self.half()
        error, _ = _combine(self.base.of(0), self.head.of(0))
        return None if half is None else max(half, margin) + normal_quantile(DETECTED_SHARE) * error


def _scale(measured: tuple[float, float, float], scale: float) -> tuple[float, float, float]:
    mean, error, freedom = measured
    return mean, error * scale, freedom


def combine_sides(
    base: Sequence[Spread], head: Sequence[Spread], known: tuple[Noise | None, Noise | None] = (None, None)
) -> BothSides:
    """Combine the runs of both sides; `known` is what is recorded of the noise between runs.

    A side of one run differs as recorded, else as the runs of the other side do, else as is assumed.
    """
    seen = noise_between_runs(base), noise_between_runs(head)
    measured = [noise for noise in (*seen, *known) if noise is not None]
    of_sides = _choose_noise(seen, known)
    widened = spread_of_runs(base, of_sides[0]), spread_of_runs(head, of_sides[1])
    source: NoiseSource = "runs" if any(seen) else "recorded" if any(known) else "assumed"
    return BothSides(
        widened[0],
        widened[1],
        (spread_of_runs(base, None), spread_of_runs(head, None)),
        max(measured, key=lambda noise: noise.deviation) if measured else ASSUMED,
        source,
        of_sides,
    )


def _choose_noise(
    seen: tuple[Noise | None, Noise | None], known: tuple[Noise | None, Noise | None]
) -> tuple[Noise, Noise]:
    """Return how runs of each side differ: as seen or recorded of it, else of the other, else as assumed."""
    return (
        seen[0] or known[0] or seen[1] or known[1] or ASSUMED,
        seen[1] or known[1] or seen[0] or known[0] or ASSUMED,
    )


def spread_of_steps(length_ns: npt.NDArray[np.int64], columns: npt.NDArray[np.int64]) -> Spread:
    """Return the spread over the steps of one run, in order of time; a row of `columns` is a step."""
    values = np.column_stack((length_ns, columns)).astype(np.float64)
    count = length_ns.size
    mean = _ordinary_means(values[None])[0]
    if count < FEWEST_STEPS_FOR_SPREAD_COUNT:
        return Spread(_log_ratios(mean), np.full(mean.size, np.inf), 1.0)
    kept = _usual(length_ns)
    length_ns, values = length_ns[kept], values[kept]
    blocks = draw_blocks(length_ns)
    means = _ordinary_means(values[blocks.drawn])
    error = _log_ratios(means).std(axis=0, ddof=1) if mean[0] > 0 else np.full(mean.size, np.inf)
    return Spread(_log_ratios(mean), error * blocks.widening, blocks.freedom)


@dataclass(frozen=True, slots=True)
class Blocks:
    """Steps drawn by blocks (`drawn`: int64[draws, steps]).

    `widening` is what errors are multiplied by for what such blocks miss, `freedom` as many degrees as there
    are steps that are worth one, less one.
    """

    drawn: npt.NDArray[np.int64]
    widening: float
    freedom: float


def draw_blocks(length_ns: npt.NDArray[np.int64] | Floats) -> Blocks:
    """Draw steps of a run, in order of time, by blocks; the same lengths give the same draws."""
    count, correlation = length_ns.size, _correlation(length_ns)
    block = _block_length(count, correlation)
    random = np.random.default_rng(list(blake2b(np.ascontiguousarray(length_ns).tobytes()).digest()[:16]))
    starts = random.integers(0, count - block + 1, (RESAMPLES_COUNT, ceil(count / block)))
    drawn = (starts[:, :, None] + np.arange(block)).reshape(RESAMPLES_COUNT, -1)[:, :count]
    whole = _inflation(count, correlation, count)
    missed = max(whole / _inflation(count, correlation, block), 1.0) * count / max(count - block, 1)
    return Blocks(drawn, sqrt(missed), max(count / whole - 1, 1.0))


def spread_of_runs(runs: Sequence[Spread], noise: Noise | None) -> Spread:
    """Return the spread of a side: over its runs; of one run over its steps, widened by noise between runs.

    Runs differ at least as much as their own steps let them, so few runs that agree by chance do not
    narrow it.
    """
    if len(runs) == 1:
        (only,) = runs
        if noise is None or not np.isfinite(only.error[0]):
            return only
        relative = np.full(only.mean.size, noise.deviation)
        relative[1:] *= np.abs(only.mean[1:])
        error = np.hypot(only.error, relative)
        inside, between = only.error[0] ** 2, noise.deviation**2
        parts = inside**2 / only.freedom + between**2 / noise.freedom
        return Spread(only.mean, error, max((inside + between) ** 2 / parts, 1.0) if parts else only.freedom)
    means = np.stack([run.mean for run in runs])
    within = np.stack([run.error for run in runs])
    within = np.where(np.isfinite(within), within, 0.0)
    between = means.std(axis=0, ddof=1)
    error = np.maximum(between, np.sqrt((within**2).mean(axis=0))) / sqrt(len(runs))
    return Spread(means.mean(axis=0), error, len(runs) - 1.0)


def noise_between_runs(runs: Sequence[Spread]) -> Noise | None:
    """Return how much the runs of one side differ."""
    if len(runs) < 2:
        return None
    return Noise(float(np.std([run.mean[0] for run in runs], ddof=1)), len(runs) - 1.0)


def half_width(base: tuple[float, float, float], head: tuple[float, float, float]) -> float | None:
    """Return half the interval of the difference of two means (mean, error, freedom), or `None`."""
    error, freedom = _combine(base, head)
    if not np.isfinite(error):
        return None
    return student_quantile((1 + CONFIDENCE_SHARE) / 2, freedom) * error


def _combine(base: tuple[float, float, float], head: tuple[float, float, float]) -> tuple[float, float]:
    """Return the error of the difference, and Welch's degrees of freedom."""
    left, right = base[1] ** 2, head[1] ** 2
    if not np.isfinite(left + right):
        return inf, 1.0
    parts = left**2 / base[2] + right**2 / head[2]
    return sqrt(left + right), (left + right) ** 2 / parts if parts else 1.0


def _usual(length_ns: npt.NDArray[np.int64]) -> Flags:
    """Return all steps but slow ones, which the typical step leaves out: drawn often, they would be in it."""
    median = float(np.median(length_ns))
    deviation = _NORMAL_DEVIATION * float(np.median(np.abs(length_ns - median)))
    usual: Flags = length_ns <= max(SLOW_STEP_RATIO * median, median + OUTLYING_DEVIATIONS_COUNT * deviation)
    is_left_out = (
        length_ns.size >= FEWEST_STEPS_FOR_QUARTILES_COUNT
        and usual.sum() > USUAL_STEPS_SHARE * length_ns.size
    )
    return usual if is_left_out else np.ones(length_ns.size, dtype=np.bool_)


def _ordinary_means(values: Floats) -> Floats:
    """Return means over the steps of ordinary length; the shape is draw, step, column."""
    kept = is_ordinary(values[:, :, 0])
    means: Floats = np.einsum("ds,dsc->dc", kept, values) / kept.sum(axis=1)[:, None]
    return means


def _log_ratios(means: Floats) -> Floats:
    logged = means.copy()
    logged[..., 0] = np.log(np.maximum(means[..., 0], 1e-9))
    return logged


def _correlation(length_ns: npt.NDArray[np.int64] | Floats) -> float:
    """Return how alike neighbours are, by rank, so that one slow step does not decide.

    In a short series they seem less alike than they are: the mean is its own. What that hides on average is
    put back (Kendall 1954).
    """
    order = np.argsort(np.argsort(length_ns, kind="stable"), kind="stable").astype(np.float64)
    order -= order.mean()
    seen = float((order[1:] * order[:-1]).sum() / (order**2).sum())
    found = (order.size * seen + 1) / max(order.size - 4, 1)
    return min(max(found, 0.0), MOST_CORRELATED_RATIO)


def _block_length(count: int, correlation: float) -> int:
    """Return the best block of an autoregressive series (Carlstein 1986), at most a third of it."""
    odds = 2 * correlation**2 / (1 - correlation**2) ** 2
    best = ceil(float(np.cbrt(count * odds)))
    return max(1, min(count // 3, best))


def _inflation(count: int, correlation: float, block: int) -> float:
    """Return how much more the mean of correlated steps varies than that of free ones, as blocks see it."""
    apart = 2 * correlation * (1 - correlation**block) / (block * (1 - correlation) ** 2)
    return max((1 + correlation) / (1 - correlation) - apart, 1 / count)
