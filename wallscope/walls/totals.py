"""Sums over slices: what each wall, cause and reason owns of each step and of the typical one."""

from collections.abc import Sequence
from fractions import Fraction

import polars as pl

from wallscope.model.analysis import CauseTime, ComputeAbsent, Walls
from wallscope.model.kinds import Absent, Wall
from wallscope.timeline.spans import Times

_LENGTH = (pl.col("end_ns") - pl.col("start_ns")).sum()
_UNRESOLVED = ("unattributed/unresolved", "communication/unresolved", "memory/unresolved")


def walls_of_steps(slices: pl.DataFrame, steps: pl.Series) -> Times:
    """What each wall owns of each step, in ns: a row a step, a column a wall."""
    return _table(slices, "wall", steps, list(Wall))


def absent_of_steps(slices: pl.DataFrame, steps: pl.Series) -> Times:
    """Why no compute ran, in ns: a row a step, columns as in `Absent`."""
    return _table(slices.filter(pl.col("absent").is_not_null()), "absent", steps, list(Absent))


def unresolved_of_steps(slices: pl.DataFrame, steps: pl.Series) -> Times:
    """Time whose owner is not known, in ns: a row a step; unattributed, communication, memory."""
    is_open = (pl.col("wall") == Wall.UNATTRIBUTED) | pl.col("cause").is_in(_UNRESOLVED)
    walls = [Wall.UNATTRIBUTED, Wall.COMMUNICATION, Wall.MEMORY]
    return _table(slices.filter(is_open), "wall", steps, walls)


def _table(slices: pl.DataFrame, column: str, steps: pl.Series, values: Sequence[str]) -> Times:
    sums = slices.group_by("step", column).agg(ns=_LENGTH)
    rows = steps.to_frame("step").with_row_index("row")
    found = sums.join(rows, on="step")
    table = (
        pl.Series([0] * (len(steps) * len(values)), dtype=pl.Int64).to_numpy().reshape(-1, len(values)).copy()
    )
    place = {value: number for number, value in enumerate(values)}
    for row, value, time_ns in found.select("row", pl.col(column).cast(pl.String), "ns").iter_rows():
        table[row, place[value]] = time_ns
    return table


def walls_of(parts: Sequence[int]) -> Walls:
    """The walls from their times in the order of `Wall`."""
    return Walls(*(int(part) for part in parts))


def absent_of(parts: Sequence[int]) -> ComputeAbsent:
    """The reasons from their times in the order of `Absent`."""
    return ComputeAbsent(*(int(part) for part in parts))


def causes_of(
    slices: pl.DataFrame, step_count: int, walls: Walls, recoverable: dict[str, int]
) -> list[CauseTime]:
    """The causes in the typical step, the largest first; those of one wall sum to what it owns.

    Args:
        slices: `SLICES` of the steps that make the typical one.
        step_count: how many they are.
        walls: the typical step.
        recoverable: what each cause could win at most, as far as known.
    """
    step_ns = sum(walls.parts())
    sums = slices.group_by("wall", "cause").agg(ns=_LENGTH).sort("ns", "cause", descending=[True, False])
    listed = []
    for wall, total_ns in zip(Wall, walls.parts(), strict=True):
        own = sums.filter(pl.col("wall") == wall)
        typical = apportioned(own["ns"].to_list(), step_count, total_ns)
        for cause, time_ns in zip(own["cause"].to_list(), typical, strict=True):
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


def apportioned(sums: Sequence[int], count: int, total: int) -> list[int]:
    """Means of some sums as integers that add up to a total, the largest remainders rounded up.

    >>> apportioned([3, 3, 2], 2, 4)
    [2, 1, 1]
    """
    means = [Fraction(value, count) for value in sums]
    whole = [int(mean) for mean in means]
    by_remainder = sorted(range(len(sums)), key=lambda part: (whole[part] - means[part], part))
    for part in by_remainder[: total - sum(whole)]:
        whole[part] += 1
    return whole
