"""The uncertainty of the typical step of one run: the spread of its mean over blocks of steps; quantiles.

Step times of a run are correlated: a slow step often follows a slow one. Blocks of consecutive steps are
drawn with replacement (Künsch 1989, the moving-block bootstrap). Their length follows from the correlation of
adjacent steps. With few steps this interval is too narrow. It is widened by the variance that blocks of this
length miss of an autoregressive series. The interval uses Student's t, with the effective number of steps as
degrees of freedom. `run_noise` adds the difference between runs (`docs/diff.md` shows the measured coverage).
"""

from hashlib import blake2b
from math import ceil, lgamma, pi, sqrt, tan
from statistics import NormalDist

import numpy as np
import numpy.typing as npt
from numpy.lib.stride_tricks import sliding_window_view

from wallscope.columns import Flags
from wallscope.records import dataclass
from wallscope.thresholds.noise import FEWEST_STEPS_FOR_MIDDLE_COUNT
from wallscope.thresholds.steps import FEWEST_STEPS_FOR_QUARTILES_COUNT
from wallscope.thresholds.verdict import (
    FEWEST_STEPS_FOR_SPREAD_COUNT,
    FEWEST_STEPS_OF_BLOCK_COUNT,
    MOST_CORRELATED_RATIO,
    MOST_WANDERING_RATIO,
    OUTLYING_DEVIATIONS_COUNT,
    RESAMPLES_COUNT,
    SLOW_STEP_RATIO,
    USUAL_STEPS_SHARE,
    WANDERING_BLOCKS_COUNT,
)
from wallscope.trace.steps import is_ordinary


def normal_quantile(probability: float) -> float:
    """Return the quantile of the normal distribution.

    >>> round(normal_quantile(0.975), 4)
    1.96
    """
    return NormalDist().inv_cdf(probability)


Floats = npt.NDArray[np.float64]


def student_quantile(probability: float, freedom: Floats | float) -> Floats:
    """Return the quantile of Student's t above the median, also of broken degrees of freedom, not below 1.

    Hill's expansion (Communications of the ACM 13, 1970, algorithm 396).

    >>> student_quantile(0.975, np.array([1, 2, 5, 30])).round(3).tolist()
    [12.706, 4.303, 2.571, 2.042]
    """
    tails, x = 2 * (1 - probability), -normal_quantile(probability)
    n = np.clip(np.asarray(freedom, np.float64), 1.0, _AS_GOOD_AS_NORMAL)
    a = 1 / (n - 0.5)
    b = 48 / a**2
    c = ((20700 * a / b - 98) * a - 16) * a + 96.36
    d = ((94.5 / (b + c) - 3) / b + 1) * np.sqrt(a * pi / 2) * n
    y = (d * tails) ** (2 / n)
    inner = (n + 6) / (n * y) - 0.089 * d - 0.822
    far = ((1 / (inner * (n + 2) * 3) + 0.5 / (n + 4)) * y - 1) * (n + 1) / (n + 2) + 1 / y
    square = x * x
    c = c + np.where(n < 5, 0.3 * (n - 4.5) * (x + 0.6), 0.0)
    c = (((0.05 * d * x - 5) * x - 7) * x - 2) * x + b + c
    near = (((((0.4 * square + 6.3) * square + 36) * square + 94.5) / c - square - 3) / b + 1) * x
    found: Floats = np.sqrt(n * np.where(y > 0.05 + a, np.expm1(np.minimum(a * near**2, 700.0)), far))
    found = np.where(n == 2, sqrt(2 / (tails * (2 - tails)) - 2), found)
    return np.where(n == 1, 1 / tan(tails * pi / 2), found)


def student_chance(ratio: Floats, freedom: Floats) -> Floats:
    """Return how likely Student's t is as far from 0, in either direction.

    By the incomplete beta function (Abramowitz and Stegun 1964, 26.7.1).

    >>> student_chance(np.array([12.706, 4.303, 1.96]), np.array([1, 2, 1e9])).round(3).tolist()
    [0.05, 0.05, 0.05]
    """
    n = np.clip(np.asarray(freedom, np.float64), 1.0, _AS_GOOD_AS_NORMAL)
    x = n / (n + np.minimum(ratio, 1e100) ** 2)
    is_far = x <= (n / 2 + 1) / (n / 2 + 2.5)
    first, second = np.where(is_far, n / 2, 0.5), np.where(is_far, 0.5, n / 2)
    found = _incomplete_beta(np.where(is_far, x, 1 - x), first, second)
    return np.where(is_far, found, 1 - found)


def _incomplete_beta(x: Floats, a: Floats, b: Floats) -> Floats:
    """Return the regularized incomplete beta function, by its continued fraction (26.5.8, by Lentz)."""
    upper, lower = np.ones_like(x), 1 / (1 - (a + b) * x / (a + 1))
    found = lower
    for n in range(1, _MOST_TERMS):
        for part in (
            n * (b - n) * x / ((a + 2 * n - 1) * (a + 2 * n)),
            -(a + n) * (a + b + n) * x / ((a + 2 * n) * (a + 2 * n + 1)),
        ):
            upper, lower = 1 + part / upper, 1 / (1 + part * lower)
            found = found * upper * lower
        if np.all(np.abs(upper * lower - 1) < 1e-10):
            break
    log_gamma = np.vectorize(lgamma, otypes=[np.float64])
    front = log_gamma(a + b) - log_gamma(a) - log_gamma(b) + a * np.log(np.maximum(x, 1e-300))
    whole: Floats = np.exp(front + b * np.log1p(-np.minimum(x, 1 - 1e-16))) * found / a
    return np.where(x > 0, whole, 0.0)


_MOST_TERMS = 1_000
_AS_GOOD_AS_NORMAL = 1e4
_FREEDOM_OF_WALK = 6.0  # two thirds of the differences between neighbors
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


def spread_of_steps(length_ns: npt.NDArray[np.int64], columns: npt.NDArray[np.int64]) -> Spread:
    """Return the spread over the steps of one run, in order of time; a row of `columns` is a step."""
    values = np.column_stack((length_ns, columns)).astype(np.float64)
    count = length_ns.size
    mean = typical_means(values[None])[0]
    if count < FEWEST_STEPS_FOR_SPREAD_COUNT:
        return Spread(log_first(mean), np.full(mean.size, np.inf), 1.0)
    kept = usual_steps(length_ns)
    length_ns, values = length_ns[kept], values[kept]
    blocks = draw_blocks(length_ns, correlate_by_rank(length_ns))
    means = _average_drawn(values, blocks.drawn, is_typical(length_ns[blocks.drawn]))
    error = log_first(means).std(axis=0, ddof=1) if mean[0] > 0 else np.full(mean.size, np.inf)
    error = error * blocks.widening
    wandering = measure_wandering(values)
    if wandering is None or not error[0] > 0:
        return Spread(log_first(mean), error, blocks.freedom)
    square = error**2 + wandering**2
    freedom = square[0] ** 2 / (error[0] ** 4 / blocks.freedom + wandering[0] ** 4 / _FREEDOM_OF_WALK)
    return Spread(log_first(mean), np.sqrt(square), max(freedom, 1.0))


def measure_wandering(values: Floats) -> Floats | None:
    """Return the standard error of columns of a run whose level wanders; `None` if it does not.

    Blocks of steps cannot show how far a random walk may be from where other runs are. It is recognized by
    `WANDERING_BLOCKS_COUNT` means of consecutive steps that differ less from their neighbor than from each
    other (von Neumann 1941). The mean of a walk varies by a third of its variance at the end. Columns wander
    with the length as far as they follow it.
    """
    size = len(values) // WANDERING_BLOCKS_COUNT
    if size < FEWEST_STEPS_OF_BLOCK_COUNT:
        return None
    last = values[len(values) - size * WANDERING_BLOCKS_COUNT :]
    means = last.reshape(WANDERING_BLOCKS_COUNT, size, -1).mean(axis=1)
    length = means[:, 0] - means[:, 0].mean()
    variance = float((length**2).sum()) / (WANDERING_BLOCKS_COUNT - 1)
    apart = float((np.diff(length) ** 2).mean())
    if not 0 < apart < 2 * MOST_WANDERING_RATIO * variance:
        return None
    error_ns = sqrt(apart * WANDERING_BLOCKS_COUNT / 2)
    slope = (length[:, None] * means).sum(axis=0) / (length**2).sum()
    found: Floats = np.abs(slope) * error_ns
    found[0] = error_ns / float(means[:, 0].mean())
    return found


def spread_of_all_steps(length_ns: npt.NDArray[np.int64], columns: npt.NDArray[np.int64]) -> Spread:
    """Return the same as `spread_of_steps` of the mean over all steps, slow ones included."""
    values = np.column_stack((length_ns, columns)).astype(np.float64)
    mean = log_first(values.mean(axis=0))
    if length_ns.size < FEWEST_STEPS_FOR_QUARTILES_COUNT:
        return Spread(mean, np.full(mean.size, np.inf), 1.0)
    blocks = draw_blocks_of_all(values[:, 0])
    means = _average_drawn(values, blocks.drawn, np.ones(blocks.drawn.shape, np.bool_))
    error = log_first(means).std(axis=0, ddof=1) * blocks.widening
    wandering = measure_wandering(values)
    return Spread(mean, error if wandering is None else np.hypot(error, wandering), blocks.freedom)


def _average_drawn(values: Floats, drawn: npt.NDArray[np.int64], kept: Flags) -> Floats:
    """Return means of the kept steps of each draw; as sums with weights, many columns take little memory."""
    count = values.shape[0]
    place = (np.arange(len(drawn))[:, None] * count + drawn)[kept]
    weights = np.bincount(place, minlength=len(drawn) * count).reshape(-1, count).astype(np.float64)
    means: Floats = weights @ values / weights.sum(axis=1)[:, None]
    return means


@dataclass(frozen=True, slots=True)
class Blocks:
    """Steps drawn by blocks (`drawn`: int64[draws, steps]).

    `widening` is what errors are multiplied by for what such blocks miss, `freedom` as many degrees as there
    are steps that are worth one, less one.
    """

    drawn: npt.NDArray[np.int64]
    widening: float
    freedom: float


def draw_blocks(length_ns: npt.NDArray[np.int64] | Floats, correlation: float) -> Blocks:
    """Draw steps of a run, in order of time, by blocks; the same lengths give the same draws.

    `correlation` is that of adjacent steps. Blocks vary around the mean of the run, and miss what this mean
    itself is off by, which grows with the correlation.
    """
    count = length_ns.size
    block = _block_length(count, correlation)
    random = np.random.default_rng(list(blake2b(np.ascontiguousarray(length_ns).tobytes()).digest()[:16]))
    starts = random.integers(0, count - block + 1, (RESAMPLES_COUNT, ceil(count / block)))
    drawn = (starts[:, :, None] + np.arange(block)).reshape(RESAMPLES_COUNT, -1)[:, :count]
    whole = _inflation(count, correlation, count)
    seen = _inflation(count, correlation, block) - whole * block / count
    return Blocks(drawn, sqrt(max(whole / seen, 1.0)), max(count / whole - 1, 1.0))


def draw_blocks_of_all(length_ns: Floats) -> Blocks:
    """Draw from all steps: slow ones in a row are few by rank, and yet decide the mean."""
    return draw_blocks(length_ns, max(correlate_by_rank(length_ns), correlate_by_length(length_ns)))


def usual_steps(length_ns: npt.NDArray[np.int64]) -> Flags:
    """Return all steps but slow ones, which the typical step leaves out: drawn often, they would be in it."""
    median = _find_median(length_ns)
    deviation = _NORMAL_DEVIATION * _find_median(np.abs(length_ns - median))
    usual: Flags = length_ns <= max(SLOW_STEP_RATIO * median, median + OUTLYING_DEVIATIONS_COUNT * deviation)
    is_left_out = (
        length_ns.size >= FEWEST_STEPS_FOR_SPREAD_COUNT and usual.sum() > USUAL_STEPS_SHARE * length_ns.size
    )
    return usual if is_left_out else np.ones(length_ns.size, dtype=np.bool_)


def _find_median(values: npt.NDArray[np.int64] | Floats) -> float:
    """Return the median, as NumPy's does, which takes several times as long for few values."""
    ordered, half = np.sort(values), values.size // 2
    return float(ordered[half] if values.size % 2 else (ordered[half - 1] + ordered[half]) / 2)


def is_typical(length_ns: npt.NDArray[np.int64] | Floats) -> Flags:
    """Whether each step is one of those that make the typical step: between the quartiles of its row."""
    return is_ordinary(length_ns, FEWEST_STEPS_FOR_MIDDLE_COUNT)


def typical_means(values: Floats) -> Floats:
    """Return means over the steps of ordinary length; the shape is draw, step, column."""
    kept = is_typical(values[:, :, 0])
    means: Floats = np.einsum("ds,dsc->dc", kept, values) / kept.sum(axis=1)[:, None]
    return means


def measure_windows(length_ns: Floats, steps: int) -> float:
    """Return the relative standard deviation of the typical step of windows of so many steps of a run.

    It is 0 if the run has no more steps. It shows by how much a short run of the same program may be off.
    """
    if not 0 < steps <= length_ns.size or length_ns.min() <= 0:
        return 0.0
    windows = sliding_window_view(length_ns, steps)[:: max(steps // _WINDOWS_OF_LENGTH, 1)]
    if len(windows) < 2:
        return 0.0
    deviation: Floats = log_first(typical_means(windows[..., None])).std(ddof=1)
    return float(deviation)


_WINDOWS_OF_LENGTH = 4  # windows that begin within the length of one


def log_first(means: Floats) -> Floats:
    """Return means with the logarithm of the first column, which is the length."""
    logged = means.copy()
    logged[..., 0] = np.log(np.maximum(means[..., 0], 1e-9))
    return logged


def correlate_by_rank(length_ns: npt.NDArray[np.int64] | Floats) -> float:
    """Return the correlation of adjacent steps, by rank, so that one slow step does not decide."""
    return _correlate(np.argsort(np.argsort(length_ns, kind="stable"), kind="stable"))


def correlate_by_length(length_ns: npt.NDArray[np.int64] | Floats) -> float:
    """Return the correlation of adjacent steps by their length, which slow steps decide."""
    return _correlate(length_ns) if length_ns.min() < length_ns.max() else 0.0


def _correlate(values: npt.NDArray[np.int64] | Floats) -> float:
    """Return the correlation of adjacent values.

    A short series underestimates it, because its own mean is subtracted. The average bias is added back
    (Kendall 1954). An underestimate does more harm than an overestimate, so of the standard error of the
    rest (Bartlett 1946) the correlated share is added too.
    """
    apart: Floats = values - values.mean()
    seen = float((apart[1:] * apart[:-1]).sum() / (apart**2).sum())
    found = min(max((apart.size * seen + 1) / max(apart.size - 4, 1), 0.0), 1.0)
    return min(found + found * (1 - found**2) / sqrt(apart.size), MOST_CORRELATED_RATIO)


def _block_length(count: int, correlation: float) -> int:
    """Return the best block of an autoregressive series (Carlstein 1986), at most a third of it."""
    odds = 2 * correlation**2 / (1 - correlation**2) ** 2
    best = ceil(float(np.cbrt(count * odds)))
    return max(1, min(count // 3, best))


def _inflation(count: int, correlation: float, block: int) -> float:
    """Return how much more the mean of correlated steps varies than that of free ones, as blocks see it."""
    apart = 2 * correlation * (1 - correlation**block) / (block * (1 - correlation) ** 2)
    return max((1 + correlation) / (1 - correlation) - apart, 1 / count)
