"""How walls and causes changed, each with its interval, and which changes are significant.

Each interval covers one wall or cause. Of thirty intervals, one or two exclude 0 by chance. The procedure of
Benjamini and Hochberg (1995) therefore decides which changes are significant, for all causes together.
Without a change, it calls any of them significant in at most 5 % of comparisons.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from math import sqrt

import numpy as np

from wallscope.columns import Flags
from wallscope.compare.confidence import Floats
from wallscope.compare.run_noise import Difference
from wallscope.compare.typical_steps import TypicalStep
from wallscope.model.cause_catalogue import find_wall
from wallscope.model.comparison import CauseDelta, NoiseSource, WallDelta
from wallscope.model.enums import Wall
from wallscope.thresholds.noise import ASSUMED_NOISE_RATIO, ASSUMED_OFF_SHARE, ENOUGH_STEPS_OF_RUN_COUNT
from wallscope.thresholds.verdict import CONFIDENCE_SHARE

STEP = "step"


def name_columns(causes: Sequence[str]) -> list[str]:
    """Return the names of the columns of noise: the step, the walls, the causes."""
    return [STEP, *map(str, Wall), *causes]


def assume_noise(
    names: Sequence[str], distance: float = 0.0, steps: int = ENOUGH_STEPS_OF_RUN_COUNT
) -> Floats:
    """Return what is assumed of the noise of each column where too little is known, relative.

    `distance` is that between levels of steps: runs at either level differ by as much. `steps` is how many
    the shortest run has.
    """
    off_share = ASSUMED_OFF_SHARE * sqrt(max(ENOUGH_STEPS_OF_RUN_COUNT / max(steps, 1), 1.0))
    close, least = {STEP, str(Wall.COMPUTE)}, max(off_share / sqrt(3), distance / 2)
    return np.array(
        [least if name.partition("/")[0] in close else max(ASSUMED_NOISE_RATIO, least) for name in names]
    )


def find_significant(chance: Floats) -> Flags:
    """Return which of several tests are significant together, at 5 % false discoveries.

    >>> find_significant(np.array([0.04, 0.001, 0.5])).tolist()
    [False, True, False]
    """
    order = np.argsort(chance, kind="stable")
    limits = (1 - CONFIDENCE_SHARE) * np.arange(1, chance.size + 1) / max(chance.size, 1)
    below = np.flatnonzero(chance[order] <= limits)
    found = np.zeros(chance.size, np.bool_)
    found[order[: below[-1] + 1 if below.size else 0]] = True
    return found


@dataclass(frozen=True, slots=True)
class _Columns:
    """The interval, noise and significance of each column, as lists."""

    half: list[float]
    steps_half: list[float]
    noise: list[float]
    source: list[NoiseSource]
    is_significant: list[bool]


def compare_walls(
    base: TypicalStep,
    head: TypicalStep,
    difference: Difference | None,
    causes: Sequence[str],
    runs: tuple[int, int],
) -> tuple[tuple[WallDelta, ...], tuple[CauseDelta, ...]]:
    """Return how all walls changed, and the causes that did; `difference` is `None` for one capture."""
    columns = None if difference is None else _list_columns(difference, runs)
    is_pair = max(runs) == 1

    def bounds(half: float | None, delta_ns: int) -> tuple[int | None, int | None]:
        if half is None:
            return 0, 0
        return (None, None) if not np.isfinite(half) else (delta_ns - round(half), delta_ns + round(half))

    walls, listed = [], []
    for number, wall in enumerate(Wall):
        base_ns, head_ns = base.walls[wall], head.walls[wall]
        at, delta_ns = 1 + number, head_ns - base_ns
        own = None if columns is None else columns.half[at]
        pair = None if columns is None else columns.steps_half[at]
        walls.append(
            WallDelta(
                wall,
                base_ns,
                head_ns,
                delta_ns,
                *bounds(own, delta_ns),
                *(bounds(pair, delta_ns) if is_pair else (None, None)),
                significant=columns is not None and delta_ns != 0 and columns.is_significant[at],
                run_noise=None if columns is None else columns.noise[at],
                run_noise_source=None if columns is None else columns.source[at],
            )
        )
    for number, cause in enumerate(causes):
        base_ns, head_ns = base.causes.get(cause, 0), head.causes.get(cause, 0)
        at, delta_ns = 1 + len(Wall) + number, head_ns - base_ns
        if delta_ns:
            low_ns, high_ns = bounds(None if columns is None else columns.half[at], delta_ns)
            listed.append(
                CauseDelta(
                    find_wall(cause),
                    cause,
                    base_ns,
                    head_ns,
                    delta_ns,
                    low_ns,
                    high_ns,
                    significant=columns is not None and columns.is_significant[at],
                    run_noise=None if columns is None else columns.noise[at],
                    run_noise_source=None if columns is None else columns.source[at],
                )
            )
    return tuple(walls), tuple(sorted(listed, key=lambda row: (-abs(row.delta_ns), row.cause)))


def _list_columns(difference: Difference, runs: tuple[int, int]) -> _Columns:
    chance, first_cause = difference.chance(), 1 + len(Wall)
    significant = [
        [bool(chance[0] <= 1 - CONFIDENCE_SHARE)],
        find_significant(chance[1:first_cause]).tolist(),
        find_significant(chance[first_cause:]).tolist(),
    ]
    measured: NoiseSource = "runs" if max(runs) > 1 else "recorded"
    return _Columns(
        difference.half().tolist(),
        difference.steps_half().tolist(),
        difference.noise.tolist(),
        ["assumed" if assumed else measured for assumed in difference.is_assumed.tolist()],
        [one for group in significant for one in group],
    )
