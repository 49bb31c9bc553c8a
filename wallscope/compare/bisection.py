"""Which commit between a good and a bad one changed a time, by the recorded commits among them.

Each commit after the good one is equally likely at first. The times of the recorded commits make some of them
more likely: the level before the commit and the level after it must fit, with the noise between runs. Nothing
separates commits between two recorded ones, so they share the probability equally.
"""

from dataclasses import dataclass

import numpy as np

from wallscope.compare.confidence import Floats, student_quantile
from wallscope.model.profile import Noise
from wallscope.thresholds.verdict import CONFIDENCE_SHARE


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
    likely = np.exp(-(left - left.min()) / (2 * sigma**2))
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
