"""Warm-up within a run: its first steps get shorter and shorter, ever more slowly.

Steps that `analyze` calls warm-up take much longer than the others. Here the decay is smaller, and it decides
what the typical step is: later steps of the same run are shorter. So these steps are left out, and the
comparison says how many. At most half of a run is left out (White 1997).
"""

from collections.abc import Sequence
from dataclasses import dataclass
from math import exp, expm1, log

import numpy as np
import numpy.typing as npt

from wallscope.compare.confidence import Floats, usual_steps
from wallscope.model.comparison import Mismatch
from wallscope.thresholds.verdict import (
    FEWEST_STEPS_FOR_SPREAD_COUNT,
    FEWEST_STEPS_FOR_WARM_UP_COUNT,
    SURE_WARM_UP_LIKELIHOOD,
    UNLIKE_SHIFT_LIKELIHOOD,
    WARM_UP_DECAY_SHARE,
    WARM_UP_REST_SHARE,
    WHITE_REST_RATIO,
)
from wallscope.units import percent

_DECAYS = (0.5, 1.0, 1.5, 2.0, 3.0, 4.0, 6.0, 9.0, 13.0, 20.0, 30.0, 50.0)
"""Steps after which the excess is a third. Slower decays than half the run are as a line."""


@dataclass(frozen=True, slots=True)
class WarmUp:
    """The warm-up of a run.

    Attributes:
        share: by how much the first step exceeds what steps decay to.
        rest_share: the same of the first step that is not left out.
        left_out: how many of the first steps are left out.
        steps: how many the run has.
    """

    share: float
    rest_share: float
    left_out: int
    steps: int


def find_warm_up(length_ns: npt.NDArray[np.int64]) -> WarmUp | None:
    """Return the warm-up of a run by the lengths of its steps, in order of time; `None` if there is none.

    It is an exponential decay that explains the steps surely, and better than a shift from one level to
    another does. What it leaves must not be correlated, as that of a random walk is. Slow steps do not count.
    """
    usual = usual_steps(length_ns)
    if usual.sum() < FEWEST_STEPS_FOR_WARM_UP_COUNT:
        return None
    place, lengths = np.flatnonzero(usual), np.log(np.maximum(length_ns[usual], 1))
    centered = lengths - lengths.mean()
    whole = float((centered**2).sum())
    decays = np.array([decay for decay in _DECAYS if 2 * decay <= length_ns.size])
    shapes: Floats = np.exp(-place / decays[:, None])
    shapes -= shapes.mean(axis=1, keepdims=True)
    heights = (shapes @ centered) / (shapes**2).sum(axis=1)
    rests = ((centered - heights[:, None] * shapes) ** 2).sum(axis=1)
    best = int(np.argmin(np.where(heights > 0, rests, np.inf)))
    height, decay, rest = float(heights[best]), float(decays[best]), float(rests[best])
    if height < log(1 + WARM_UP_DECAY_SHARE) or whole <= 0:
        return None
    left = np.diff(centered - height * shapes[best])
    of_shift = whole - _explain_by_shift(centered)
    least = rest + 1e-12 * whole
    is_sure = lengths.size * log(whole / least) > SURE_WARM_UP_LIKELIHOOD
    is_decay = lengths.size * log(max(of_shift, least) / least) > UNLIKE_SHIFT_LIKELIHOOD
    is_white = float((left**2).sum()) >= WHITE_REST_RATIO * rest
    if not (is_sure and is_decay and is_white):
        return None
    count = length_ns.size
    over = height * np.exp(-np.arange(count) / decay) < log(1 + WARM_UP_REST_SHARE)
    most = count // 2 if count - count // 2 >= FEWEST_STEPS_FOR_SPREAD_COUNT else 0
    left_out = min(int(np.argmax(over)) if over.any() else count, most)
    return WarmUp(expm1(height), expm1(height * exp(-left_out / decay)), left_out, count)


def _explain_by_shift(centered: Floats) -> float:
    """Return how much of the squares the best shift at one step explains."""
    sums = np.cumsum(centered)[:-1]
    before = np.arange(1, centered.size)
    return float((sums**2 / before + sums**2 / (centered.size - before)).max())


def describe_warm_up(
    base: Sequence[npt.NDArray[np.int64]], head: Sequence[npt.NDArray[np.int64]]
) -> tuple[Mismatch, ...]:
    """Return a note where a run of a side warms up.

    Args:
        base: int64[step], ns, length of the steady steps of each run, in order of time.
        head: the same of the other side.
    """
    sides = [[found for run in runs if (found := find_warm_up(run)) is not None] for runs in (base, head)]
    if not any(sides):
        return ()
    rest_share = max(one.rest_share for side in sides for one in side)
    effect = (
        "capture later steps, which vary less"
        if rest_share > WARM_UP_REST_SHARE
        else "the rest of the run is compared"
    )
    return (
        Mismatch("warm-up", _describe_side(sides[0]), _describe_side(sides[1]), "note", effect, "either"),
    )


def _describe_side(found: Sequence[WarmUp]) -> str:
    if not found:
        return "none"
    longest = percent(max(one.share for one in found))
    if not any(one.left_out for one in found):
        return f"steps get {longest} shorter within the run"
    runs = ", ".join(f"{one.left_out} of {one.steps}" for one in found)
    return f"first {runs} steps left out, which take up to {longest} longer"
