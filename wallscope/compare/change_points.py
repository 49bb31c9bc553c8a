"""Where a time changed from commit to commit, or drifts slowly; and which commit to record next.

A permutation test finds changes, as in the E-divisive method (Matteson and James 2014). The statistic is the
largest difference between the means before and after any commit. It is a change if at most
`FALSE_ALARM_SHARE` of random orders of the same times reach it. Both parts are then tested in the same way.
A line and a line with one change are fitted too. The fit with the smallest Bayesian information criterion is
returned.

Between a good commit and a bad one, each commit is equally likely at first. The times of the recorded ones
make some more likely: the level before the commit and the level after it must fit, with the noise between
runs. Nothing separates commits between two recorded ones, so they share the probability equally.
"""

from dataclasses import dataclass
from hashlib import blake2b
from math import log, sqrt

import numpy as np

from wallscope.compare.confidence import Floats, student_quantile
from wallscope.model.profile import Noise
from wallscope.thresholds.noise import (
    CHANGE_PERMUTATIONS_COUNT,
    FALSE_ALARM_SHARE,
    FEWEST_COMMITS_COUNT,
    PARAMETERS_OF_DRIFT_RATIO,
)
from wallscope.thresholds.verdict import CONFIDENCE_SHARE


@dataclass(frozen=True, slots=True)
class ChangePoint:
    """A change of level.

    Attributes:
        at: place of the first value after it.
        earliest: the first place at which it may be, in 95 % of cases.
        latest: the last.
        before: level before it, ns.
        after: level after it, ns.
        chance: share of random orders in which a change as large is found.
    """

    at: int
    earliest: int
    latest: int
    before: float
    after: float
    chance: float


@dataclass(frozen=True, slots=True)
class Drift:
    """A steady change from value to value: by so much of the first level each, with its 95 % interval."""

    ratio: float
    low: float
    high: float


@dataclass(frozen=True, slots=True)
class Course:
    """How a time went: changes of level in order, or a drift; `level` is what remains without noise.

    `noise` is the relative standard deviation around it. `is_enough` is false where there are too few values.
    """

    changes: tuple[ChangePoint, ...]
    drift: Drift | None
    level: Floats
    noise: float
    is_enough: bool


@dataclass(frozen=True, slots=True)
class _Fit:
    """An account of the values: changes, whether there is a slope, and the level."""

    ends: tuple[int, ...]
    has_slope: bool
    level: Floats
    criterion: float


def find_changes(values: Floats, runs: Floats) -> Course:
    """Find changes and drift.

    Args:
        values: float64[commit], ns, in the order of commits, each the mean of its runs.
        runs: float64[commit], how many runs that is.
    """
    count = values.size
    size = float(values.mean()) if count else 0.0
    if count < FEWEST_COMMITS_COUNT or size <= 0:
        return Course((), None, np.full(count, size), 0.0, is_enough=False)
    scaled = values / size
    chances: dict[int, float] = {}
    _divide(scaled, runs, 0, count, chances)
    chosen = _fit(scaled, runs, tuple(sorted(chances)), has_slope=False)
    if chances:
        line = _fit(scaled, runs, (), has_slope=True)
        ends = _split_of_line(scaled, runs)
        both = _fit(scaled, runs, (ends,), has_slope=True)
        chosen = min((chosen, line, both), key=lambda fit: fit.criterion)
    return _describe(scaled, runs, chosen, chances, size)


def _divide(values: Floats, runs: Floats, first: int, end: int, found: dict[int, float]) -> None:
    """Find changes between two places and put them, by place, with their chances."""
    part, weights = values[first:end], runs[first:end]
    if part.size < FEWEST_COMMITS_COUNT:
        return
    seed = blake2b(np.ascontiguousarray(part).tobytes()).digest()[:16]
    random = np.random.default_rng(list(seed))
    orders = np.argsort(random.random((CHANGE_PERMUTATIONS_COUNT, part.size)), axis=1)
    seen = _gains(part[None], weights[None])
    drawn = _gains(part[orders], weights[orders]).max(axis=1)
    at = int(seen[0].argmax())
    chance = float(((drawn >= seen[0, at] * (1 - 1e-9)).sum() + 1) / (CHANGE_PERMUTATIONS_COUNT + 1))
    if chance > FALSE_ALARM_SHARE or seen[0, at] <= 0:
        return
    found[first + at + 1] = chance
    _divide(values, runs, first, first + at + 1, found)
    _divide(values, runs, first + at + 1, end, found)


def _gains(values: Floats, weights: Floats) -> Floats:
    """Return how much a change behind each value but the last explains of the squares, by row."""
    ours = np.cumsum(weights, axis=1)
    sums = np.cumsum(weights * values, axis=1)
    whole, total = ours[:, -1:], sums[:, -1:]
    before, after = ours[:, :-1], whole - ours[:, :-1]
    apart = sums[:, :-1] / before - (total - sums[:, :-1]) / after
    gains: Floats = apart**2 * before * after / whole
    return gains


def _design(count: int, ends: tuple[int, ...], *, has_slope: bool) -> Floats:
    place = np.arange(count, dtype=np.float64)
    columns = [np.ones(count), *((place >= end).astype(np.float64) for end in ends)]
    if has_slope:
        columns.append(place)
    return np.stack(columns, axis=1)


def _fit(values: Floats, runs: Floats, ends: tuple[int, ...], *, has_slope: bool) -> _Fit:
    design, root = _design(values.size, ends, has_slope=has_slope), np.sqrt(runs)
    solved, *_ = np.linalg.lstsq(design * root[:, None], values * root, rcond=None)
    level: Floats = design @ solved
    squares = max(float((runs * (values - level) ** 2).sum()), 1e-18)
    parameters = 1 + 2 * len(ends) + has_slope * (PARAMETERS_OF_DRIFT_RATIO + bool(ends))
    criterion = values.size * log(squares / values.size) + parameters * log(values.size)
    return _Fit(ends, has_slope, level, criterion)


def _split_of_line(values: Floats, runs: Floats) -> int:
    """Return the place of the change that, with a line, leaves least."""
    fits = [_fit(values, runs, (end,), has_slope=True) for end in range(1, values.size)]
    return fits.index(min(fits, key=lambda fit: fit.criterion)) + 1


def _describe(values: Floats, runs: Floats, fit: _Fit, chances: dict[int, float], size: float) -> Course:
    design, root = _design(values.size, fit.ends, has_slope=fit.has_slope), np.sqrt(runs)
    freedom = max(values.size - design.shape[1], 1)
    variance = float((runs * (values - fit.level) ** 2).sum()) / freedom
    drift = None
    if fit.has_slope:
        spread = np.linalg.pinv((design * root[:, None]).T @ (design * root[:, None]))
        solved = np.linalg.lstsq(design * root[:, None], values * root, rcond=None)[0]
        half = float(student_quantile((1 + CONFIDENCE_SHARE) / 2, freedom)) * sqrt(variance * spread[-1, -1])
        slope, first = float(solved[-1]), float(solved[0])
        drift = Drift(slope / first, (slope - half) / first, (slope + half) / first)
    borders = (0, *fit.ends, values.size)
    changes = []
    for number, at in enumerate(fit.ends, 1):
        first, end = borders[number - 1], borders[number + 1]
        low, high = _locate(values, runs, fit, (first, at, end), variance)
        before, after = float(fit.level[at - 1]) * size, float(fit.level[at]) * size
        changes.append(ChangePoint(at, low, high, before, after, chances.get(at, FALSE_ALARM_SHARE)))
    return Course(tuple(changes), drift, fit.level * size, sqrt(variance), is_enough=True)


def _locate(
    values: Floats, runs: Floats, fit: _Fit, place: tuple[int, int, int], variance: float
) -> tuple[int, int]:
    """Return the first and last place of a change that leave 95 % of the likelihood between them."""
    first, at, end = place
    left = []
    for other in range(first + 1, end):
        ends = tuple(other if one == at else one for one in fit.ends)
        moved = _fit(values, runs, ends, has_slope=fit.has_slope)
        left.append(float((runs * (values - moved.level) ** 2).sum()))
    loss = (np.array(left) - min(left)) / max(variance, 1e-18)
    likely = np.exp(-loss / 2)
    order = np.argsort(-likely, kind="stable")
    enough = int(np.searchsorted(np.cumsum(likely[order]) / likely.sum(), CONFIDENCE_SHARE)) + 1
    kept = order[:enough]
    return first + 1 + int(kept.min()), first + 1 + int(kept.max())


@dataclass(frozen=True, slots=True)
class Bisection:
    """Where a change is.

    Attributes:
        shares: float64[commit], the probability that a commit is the first with the changed time.
        first: the first commit of those that have 95 % of the probability together.
        last: the last one.
        proposed: the commit to record next, or to record again; `None` where one commit is left.
        change: bad less good, ns.
        half: half its 95 % interval, ns.
    """

    shares: Floats
    first: int
    last: int
    proposed: int | None
    change: float
    half: float

    @property
    def is_certain(self) -> bool:
        """Whether good and bad differ at all."""
        return abs(self.change) > self.half


def bisect_times(times: Floats, runs: Floats, noise: Noise) -> Bisection:
    """Locate a change between the first commit and the last one, both recorded.

    Args:
        times: float64[commit], ns, the mean of the runs of each commit; NaN where none is recorded.
        runs: float64[commit], how many runs that is.
        noise: relative noise between runs.
    """
    places = np.flatnonzero(np.isfinite(times))
    values, weights = times[places], runs[places]
    sigma = max(noise.deviation * float(values.mean()), 1e-9)
    left = np.array([_squares(values, weights, at) for at in range(1, places.size)])
    known = noise.freedom * sigma**2  # the noise is an estimate itself: its likelihood is integrated over
    odds = (noise.freedom + places.size - 2) / 2 * np.log1p((left - left.min()) / (known + left.min()))
    likely = np.exp(-odds)
    shares = np.zeros(times.size)
    for chance, before, after in zip(likely, places[:-1], places[1:], strict=True):
        shares[before + 1 : after + 1] = chance
    shares /= shares.sum()
    tail = (1 - CONFIDENCE_SHARE) / 2
    whole = np.cumsum(shares)
    first = int(np.searchsorted(whole, tail, side="right"))
    last = int(np.searchsorted(whole, 1 - tail))
    change = float(values[-1] - values[0])
    error = sigma * float(np.sqrt(1 / weights[0] + 1 / weights[-1]))
    half = float(student_quantile((1 + CONFIDENCE_SHARE) / 2, noise.freedom)) * error
    proposed = None if first == last else _propose(whole, times, first, last)
    return Bisection(shares, first, last, proposed, change, half)


def _squares(values: Floats, weights: Floats, at: int) -> float:
    """Return the squares that two levels leave, the second from a place on."""
    found = 0.0
    for part, weight in ((values[:at], weights[:at]), (values[at:], weights[at:])):
        found += float((weight * (part - np.average(part, weights=weight)) ** 2).sum())
    return found


def _propose(whole: Floats, times: Floats, first: int, last: int) -> int:
    """Return the commit that divides the probability best; one without a record if there is any."""
    candidates = np.arange(first, last)
    missing = candidates[~np.isfinite(times[candidates])]
    kept = missing if missing.size else candidates
    return int(kept[np.abs(whole[kept] - 0.5).argmin()])
