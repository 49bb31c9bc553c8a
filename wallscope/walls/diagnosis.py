"""The dominant wall: which of memory, communication and host a rank loses most time to, and how surely."""

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from wallscope.model.analysis import Walls
from wallscope.model.diagnosis import Dominant, WallShare, WallShares
from wallscope.model.kinds import Wall
from wallscope.thresholds import (
    DOMINANT_LEAD_SHARE,
    DOMINANT_LED_SHARE,
    DOMINANT_SHARE,
    MIXED_SHARE,
    SHARE_ROUNDING,
    UNKNOWN_SHARE,
)
from wallscope.timeline.spans import Times

LOSSES = (Wall.MEMORY, Wall.COMMUNICATION, Wall.HOST)
_WALLS = list(Wall)


@dataclass(frozen=True, slots=True)
class Decision:
    """Which wall dominates, who comes next and by how much, on how many steps it led; the median shares."""

    dominant: Dominant
    runner_up: Wall
    margin: float
    led_steps: int
    step_count: int
    shares: Mapping[Wall, float]


def decided(walls: Times, unresolved: Times) -> Decision:
    """The dominant wall.

    Args:
        walls: ns of each wall in each deciding step, columns in the order of `Wall`.
        unresolved: ns without an owner in each: unattributed, communication, memory.
    """
    step_ns = np.maximum(walls.sum(axis=1, keepdims=True), 1)
    shares = walls / step_ns
    open_shares = unresolved / step_ns
    apart = [_WALLS.index(wall) for wall in (Wall.COMMUNICATION, Wall.MEMORY)]
    owned = shares[:, apart] - open_shares[:, 1:]
    medians = np.median(np.column_stack([shares, owned, open_shares.sum(axis=1)]), axis=0).tolist()
    median = dict(zip(_WALLS, medians, strict=False))
    communication, memory, unknown = medians[len(_WALLS) :]
    resolved = {Wall.HOST: median[Wall.HOST], Wall.COMMUNICATION: communication, Wall.MEMORY: memory}
    by_share = sorted(LOSSES, key=lambda wall: (-median[wall], wall))
    first, second = by_share[:2]
    loss = walls[:, [_WALLS.index(wall) for wall in LOSSES]]
    led = int((loss.argmax(axis=1) == LOSSES.index(first)).sum())
    if _reaches(unknown, UNKNOWN_SHARE) and _reaches(unknown, max(resolved.values())):
        dominant: Dominant = "unknown"
    elif (
        _reaches(median[first], DOMINANT_SHARE)
        and _reaches(median[first] - median[second], DOMINANT_LEAD_SHARE)
        and led >= DOMINANT_LED_SHARE * len(walls)
    ):
        dominant = _DOMINANT[first]
    elif _reaches(sum(median[wall] for wall in LOSSES), MIXED_SHARE):
        dominant = "mixed"
    else:
        dominant = "compute"
    leads = first if dominant != "compute" else Wall.COMPUTE
    runner_up = second if dominant != "compute" else first
    return Decision(dominant, runner_up, median[leads] - median[runner_up], led, len(walls), median)


def dominant_wall(walls: Times, unresolved: Times) -> Dominant:
    """What `decided` finds to be dominant."""
    return decided(walls, unresolved).dominant


def _reaches(share: float, least: float) -> bool:
    return share >= least - SHARE_ROUNDING


_DOMINANT: dict[Wall, Dominant] = {
    Wall.MEMORY: "memory",
    Wall.COMMUNICATION: "communication",
    Wall.HOST: "host",
}


def wall_shares(walls: Times, typical: Walls, *, steady: bool) -> WallShares:
    """The deciding shares beside the typical step; without a steady step there are no percentiles."""
    shares = walls / np.maximum(walls.sum(axis=1, keepdims=True), 1)
    found = {}
    of_walls = np.percentile(shares, [10, 50, 90], axis=0).T.tolist()
    for wall, typical_ns, (low, middle, high) in zip(_WALLS, typical.parts(), of_walls, strict=True):
        found[str(wall)] = WallShare(typical_ns, middle, low if steady else None, high if steady else None)
    return WallShares(**found)
