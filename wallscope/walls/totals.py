"""Sums over slices: what each wall, cause and reason owns of each step and of the typical one."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import polars as pl

from wallscope.arrays import groups
from wallscope.arrays.columns import Rows, coded, filled
from wallscope.arrays.lookup import places
from wallscope.model.analysis import CauseTime, ComputeAbsent, Walls
from wallscope.model.kinds import Absent, Wall
from wallscope.timeline.spans import Times
from wallscope.walls.typical import apportioned

_WALLS = tuple(Wall)
_UNRESOLVED = {"unattributed/unresolved", "communication/unresolved", "memory/unresolved"}


@dataclass(frozen=True, slots=True)
class Sums:
    """Slices of one rank summed by step, wall, cause and reason: hundreds of rows of hundreds of thousands.

    `wall` are places in `Wall`, `absent` in `Absent`, -1 where compute or an opaque graph ran.
    """

    step: Rows
    wall: Rows
    absent: Rows
    cause: tuple[str, ...]
    ns: Times

    def of_steps(self, steps: pl.Series) -> "Sums":
        """Those of some steps."""
        rows = np.flatnonzero(places(self.step, steps.to_numpy()) >= 0)
        causes = tuple(self.cause[row] for row in rows.tolist())
        return Sums(self.step[rows], self.wall[rows], self.absent[rows], causes, self.ns[rows])

    def of_causes(self) -> Counter[tuple[int, str]]:
        """The time of each cause of each wall."""
        found: Counter[tuple[int, str]] = Counter()
        for wall, cause, time_ns in zip(self.wall.tolist(), self.cause, self.ns.tolist(), strict=True):
            found[wall, cause] += time_ns
        return found


def summed(slices: pl.DataFrame) -> Sums:
    """Slices (`SLICES`) summed."""
    step, (cause, texts) = slices["step"].to_numpy(), coded(slices["cause"])
    columns = (step, filled(slices["wall"]), cause, filled(slices["absent"]).astype(np.int64) + 1)
    sizes = (int(step.max(initial=0)) + 1, len(Wall), len(texts), len(Absent) + 1)
    (step, wall, cause, absent), group = groups.combined(sizes, *columns)
    time_ns = slices["end_ns"].to_numpy() - slices["start_ns"].to_numpy()
    return Sums(
        step,
        wall,
        absent - 1,
        tuple(texts[one] for one in cause.tolist()),
        groups.summed(group, time_ns, step.size),
    )


def walls_of_steps(sums: Sums, steps: pl.Series) -> Times:
    """What each wall owns of each step, in ns: a row a step, a column a wall."""
    return _table(sums, sums.wall, steps, len(_WALLS))


def absent_of_steps(sums: Sums, steps: pl.Series) -> Times:
    """Why no compute ran, in ns: a row a step, columns as in `Absent`."""
    return _table(sums, sums.absent, steps, len(Absent))


def unresolved_of_steps(sums: Sums, steps: pl.Series) -> Times:
    """Time whose owner is not known, in ns: a row a step; unattributed, communication, memory."""
    told = [_WALLS.index(wall) for wall in (Wall.UNATTRIBUTED, Wall.COMMUNICATION, Wall.MEMORY)]
    is_open = np.array([cause in _UNRESOLVED for cause in sums.cause], np.bool_) | (sums.wall == told[0])
    return _table(sums, np.where(is_open, sums.wall, -1), steps, len(_WALLS))[:, told]


def _table(sums: Sums, column: Rows, steps: pl.Series, width: int) -> Times:
    """A row a step, a column a value; rows of other steps, and of value -1, are left out."""
    row = places(sums.step, steps.to_numpy())
    is_told = (row >= 0) & (column >= 0)
    table = np.zeros((len(steps), width), np.int64)
    np.add.at(table, (row[is_told], column[is_told]), sums.ns[is_told])
    return table


def walls_of(parts: Sequence[int]) -> Walls:
    """The walls from their times in the order of `Wall`."""
    return Walls(*(int(part) for part in parts))


def absent_of(parts: Sequence[int]) -> ComputeAbsent:
    """The reasons from their times in the order of `Absent`."""
    return ComputeAbsent(*(int(part) for part in parts))


def causes_of(sums: Sums, step_count: int, walls: Walls, recoverable: dict[str, int]) -> list[CauseTime]:
    """The causes in the typical step, the largest first; those of one wall sum to what it owns.

    Args:
        sums: of the steps that make the typical one.
        step_count: how many they are.
        walls: the typical step.
        recoverable: what each cause could win at most, as far as known.
    """
    step_ns = sum(walls.parts())
    of_causes = sums.of_causes()
    listed = []
    for place, (wall, total_ns) in enumerate(zip(Wall, walls.parts(), strict=True)):
        own = sorted((-time_ns, cause) for (of, cause), time_ns in of_causes.items() if of == place)
        typical = apportioned([-negative_ns for negative_ns, _ in own], step_count, total_ns)
        for (_, cause), time_ns in zip(own, typical, strict=True):
            is_open = cause in _UNRESOLVED or cause == "unattributed/opaque-graph"
            listed.append(
                CauseTime(
                    cause=cause,
                    wall=wall,
                    typical_ns=time_ns,
                    share=time_ns / step_ns if step_ns else 0.0,
                    recoverable_ns=recoverable.get(cause),
                    unresolved_ns=time_ns if is_open else 0,
                )
            )
    return sorted(listed, key=lambda entry: (-entry.typical_ns, entry.cause))
