"""Warm-up that is not over within a run: its steps get shorter and shorter, ever more slowly.

The typical step of such a run depends on which steps were captured, so its interval is wide. The comparison
says why, as later steps of the same program would decide more.
"""

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from wallscope.compare.confidence import Floats, usual_steps
from wallscope.model.comparison import Mismatch
from wallscope.thresholds.comparison import (
    FEWEST_STEPS_FOR_WARM_UP_COUNT,
    WARM_UP_DECAY_SHARE,
    WARM_UP_EXPLAINED_SHARE,
)
from wallscope.units import percent

_RATES = (2.0, 3.0, 4.0, 6.0, 9.0)  # decays per run: slower ones are as a line, faster ones are over soon


def measure_warm_up(length_ns: npt.NDArray[np.int64]) -> float:
    """Return by which share the first step exceeds the last by an exponential decay; 0 if there is none.

    Slow steps do not count.
    """
    lengths = length_ns[usual_steps(length_ns)].astype(np.float64)
    if lengths.size < FEWEST_STEPS_FOR_WARM_UP_COUNT:
        return 0.0
    centered = lengths - lengths.mean()
    whole = float((centered**2).sum())
    place = np.arange(lengths.size) / lengths.size
    best, drop_ns = 0.0, 0.0
    for rate in _RATES:
        decay: Floats = np.exp(-rate * place)
        shape = decay - decay.mean()
        height_ns = float((shape * centered).sum() / (shape**2).sum())
        explained = height_ns**2 * float((shape**2).sum())
        if height_ns > 0 and explained > best:
            best, drop_ns = explained, height_ns * float(decay[0] - decay[-1])
    share = drop_ns / float(lengths.min())
    is_decay = best >= WARM_UP_EXPLAINED_SHARE * whole > 0 and share >= WARM_UP_DECAY_SHARE
    return share if is_decay else 0.0


def describe_warm_up(
    base: Sequence[npt.NDArray[np.int64]], head: Sequence[npt.NDArray[np.int64]]
) -> tuple[Mismatch, ...]:
    """Return a note where the steps of most runs of a side still warm up.

    Args:
        base: int64[step], ns, length of the steps of each run, in order of time.
        head: the same of the other side.
    """
    shares = [float(np.median([measure_warm_up(run) for run in runs])) for runs in (base, head)]
    if not any(shares):
        return ()
    told = [f"steps get {percent(share)} shorter within the run" if share else "none" for share in shares]
    effect = "capture later steps, which vary less"
    return (Mismatch("warm-up", told[0], told[1], "note", effect, "either"),)
