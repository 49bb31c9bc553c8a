"""Where a time changed from commit to commit, or drifts slowly; and which commit to record next.

A permutation test finds changes, as in the E-divisive method (Matteson and James 2014). The statistic is the
largest difference between the means before and after any commit. It is a change if at most
`FALSE_ALARM_SHARE` of random orders of the same times reach it. Both parts are then tested in the same way.
A line and a line with one change are fitted too. The fit with the smallest Bayesian information criterion is
returned.

Of few commits after a change no order is rare enough, however large the change. So what remains is graded.
The largest difference of means, in standard errors, is compared with that of histories without a change and
with normal noise. A change that few of these show is likely or possible, with the later commits that would
settle it. Where none is named, it is stated which change would have been.

Between a good commit and a bad one, each commit is equally likely at first. The times of the recorded ones
make some more likely: the level before the commit and the level after it must fit, with the noise between
runs. Nothing separates commits between two recorded ones, so they share the probability equally.
"""

from functools import lru_cache
from hashlib import blake2b
from itertools import pairwise
from math import comb, log, sqrt

import numpy as np
import numpy.typing as npt

from wallscope.compare.confidence import Floats, normal_quantile, student_quantile
from wallscope.model.enums import Grade
from wallscope.model.profile import Noise
from wallscope.records import dataclass
from wallscope.thresholds.noise import (
    CHANGE_PERMUTATIONS_COUNT,
    FALSE_ALARM_SHARE,
    FEWEST_COMMITS_COUNT,
    FEWEST_GRADED_COMMITS_COUNT,
    FEWEST_LIKELY_COMMITS_COUNT,
    LIKELY_CHANCE_SHARE,
    MOST_SETTLING_COMMITS_COUNT,
    NULL_HISTORIES_COUNT,
    PARAMETERS_OF_DRIFT_RATIO,
    POSSIBLE_CHANCE_SHARE,
)
from wallscope.thresholds.verdict import CONFIDENCE_SHARE, DETECTED_SHARE


@dataclass(frozen=True, slots=True)
class ChangePoint:
    """A change of level.

    Attributes:
        at: place of the first value after it.
        earliest: the first place at which it may be, in 95 % of cases.
        latest: the last.
        before: level before it, ns.
        after: level after it, ns.
        chance: share of random orders in which a change as large is found; of a change that is not sure, the
            share of histories without a change.
        grade: how certain it is.
        settled_by: later commits at the level after it that would make it sure; `None` if it is sure, or if
            no number within reason would.
    """

    at: int
    earliest: int
    latest: int
    before: float
    after: float
    chance: float
    grade: Grade = Grade.SURE
    settled_by: int | None = None


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
    The level has sure changes alone. `suspected` is a change that is likely or possible, after the last sure
    one. `detectable` is, for each value, the share of the level that a change there must have to be named in
    four of five histories; NaN where that is not known.
    """

    changes: tuple[ChangePoint, ...]
    drift: Drift | None
    level: Floats
    noise: float
    is_enough: bool
    suspected: ChangePoint | None
    detectable: Floats


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
    if count < FEWEST_GRADED_COMMITS_COUNT or size <= 0:
        unknown = np.full(count, np.nan)
        return Course(
            (), None, np.full(count, size), 0.0, is_enough=False, suspected=None, detectable=unknown
        )
    scaled = values / size
    chances: dict[int, float] = {}
    _divide(scaled, runs, 0, count, chances)
    chosen = _fit(scaled, runs, tuple(sorted(chances)), has_slope=False)
    if chances:
        line = _fit(scaled, runs, (), has_slope=True)
        ends = _split_of_line(scaled, runs)
        both = _fit(scaled, runs, (ends,), has_slope=True)
        chosen = min((chosen, line, both), key=lambda fit: fit.criterion)
    return _describe_course(scaled, runs, chosen, chances, size)


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


def _describe_course(
    values: Floats, runs: Floats, fit: _Fit, chances: dict[int, float], size: float
) -> Course:
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
    suspected, detectable = None, np.full(values.size, np.nan)
    if not fit.has_slope:
        suspected = _suspect(values, runs, fit, size)
        for first, end in pairwise(borders):
            detectable[first + 1 : end] = _find_detectable(values[first:end], runs[first:end])
    return Course(
        tuple(changes),
        drift,
        fit.level * size,
        sqrt(variance),
        is_enough=values.size >= FEWEST_COMMITS_COUNT,
        suspected=suspected,
        detectable=detectable,
    )


def _suspect(values: Floats, runs: Floats, fit: _Fit, size: float) -> ChangePoint | None:
    """Return the largest change after the last sure one, if few histories without a change show it."""
    first = fit.ends[-1] if fit.ends else 0
    part, weights = values[first:], runs[first:]
    if part.size < FEWEST_GRADED_COMMITS_COUNT:
        return None
    shares, places = _measure_best_change(part[None], weights[None])
    share, place = float(shares[0]), int(places[0])
    null = _draw_null(tuple(weights.tolist()))
    chance = float(((null >= share * (1 - 1e-9)).sum() + 1) / (null.size + 1))
    if chance > POSSIBLE_CHANCE_SHARE or share <= 0:
        return None
    at = first + place
    moved = _fit(values, runs, (*fit.ends, at), has_slope=False)
    variance = float((runs * (values - moved.level) ** 2)[first:].sum()) / (part.size - 2)
    low, high = _locate(values, runs, moved, (first, at, values.size), variance)
    before, after = float(moved.level[at - 1]), float(moved.level[at])
    is_repeated = min(place, part.size - place) >= FEWEST_LIKELY_COMMITS_COUNT
    grade = Grade.LIKELY if is_repeated and chance <= LIKELY_CHANCE_SHARE else Grade.POSSIBLE
    limit = _find_limit(null, FALSE_ALARM_SHARE, part.size)
    settled_by = _count_settling(abs(after - before) / max(sqrt(variance), 1e-9), weights, place, limit)
    return ChangePoint(at, low, high, before * size, after * size, chance, grade, settled_by)


def _measure_best_change(values: Floats, weights: Floats) -> tuple[Floats, npt.NDArray[np.int64]]:
    """Return which share of the squares the best change explains, and its place, by row."""
    gains = _gains(values, weights)
    means = (values * weights).sum(axis=1) / weights.sum(axis=1)
    squares = (weights * (values - means[:, None]) ** 2).sum(axis=1)
    is_flat = squares <= 1e-18 * weights.sum(axis=1)
    shares: Floats = np.where(is_flat, 0.0, gains.max(axis=1) / np.where(is_flat, 1.0, squares))
    return shares, gains.argmax(axis=1) + 1


@lru_cache(maxsize=64)
def _draw_null(runs: tuple[float, ...]) -> Floats:
    """Return the share of the squares that the best change explains in histories without one."""
    weights = np.array(runs)
    drawn = np.random.default_rng(len(runs)).standard_normal((NULL_HISTORIES_COUNT, weights.size))
    return _measure_best_change(drawn / np.sqrt(weights), np.broadcast_to(weights, drawn.shape))[0]


def _find_limit(null: Floats, share: float, count: int) -> float:
    """Return the standard errors that a change has in so large a share of histories without one."""
    explained = min(float(np.quantile(null, 1 - share)), 1 - 1e-9)
    return sqrt((count - 2) * explained / (1 - explained))


def _find_detectable(values: Floats, runs: Floats) -> Floats:
    """Return what a change behind each value but the last must have of the level to be named."""
    if values.size < FEWEST_GRADED_COMMITS_COUNT:
        return np.full(values.size - 1, np.nan)
    share = float(_measure_best_change(values[None], runs[None])[0][0])
    level = float(np.average(values, weights=runs))
    squares = float((runs * (values - level) ** 2).sum()) * max(1 - share, 0.0)
    limit = _find_limit(_draw_null(tuple(runs.tolist())), POSSIBLE_CHANCE_SHARE, values.size)
    before = np.cumsum(runs)[:-1]
    error: Floats = np.sqrt(squares / (values.size - 2) * (1 / before + 1 / (runs.sum() - before)))
    return (limit + normal_quantile(DETECTED_SHARE)) * error / max(level, 1e-18)


def _count_settling(ratio: float, runs: Floats, place: int, limit: float) -> int | None:
    """Return how many later commits would make a change sure: enough orders, and a difference past the limit.

    `ratio` is the change by the noise between runs, `place` that of the first value after it.
    """
    before, after, late = float(runs[:place].sum()), float(runs[place:].sum()), runs.size - place
    for more in range(1, MOST_SETTLING_COMMITS_COUNT + 1):
        orders = comb(runs.size + more, late + more)
        is_rare = 2 / orders <= FALSE_ALARM_SHARE / 2  # the change and its mirror image
        if is_rare and ratio / sqrt(1 / before + 1 / (after + more)) >= limit:
            return more
    return None


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
