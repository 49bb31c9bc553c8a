"""The steps that count for a rank, its sums over them, and rows of tables by their step."""

from dataclasses import dataclass
from fractions import Fraction

import numpy as np
import polars as pl

from wallscope.columns import Rows, rows_of
from wallscope.grouping import summed
from wallscope.model.kinds import Wall
from wallscope.model.profile import Profile
from wallscope.model.walls import Walls
from wallscope.profile.operation_keys import encode_pairs
from wallscope.trace.intervals import Times
from wallscope.trace.steadiness import is_ordinary

_WALLS = [f"{wall}_wall_ns" for wall in Wall]
_OPEN = ("unattributed/", "communication/unresolved", "memory/unresolved")


@dataclass(frozen=True, slots=True)
class Steps:
    """The steps of a rank (`input`, `step`): `deciding` are the steady ones, all if none is.

    `ordinary` are those of them that make its typical step; `length_ns` and `walls` (a column a wall) are
    of the deciding ones.
    """

    deciding: pl.DataFrame
    ordinary: pl.DataFrame
    length_ns: np.ndarray
    walls: np.ndarray
    steady: int

    @property
    def median_ns(self) -> int | None:
        """The median length, `None` without a steady step."""
        return round(float(np.median(self.length_ns))) if self.steady else None

    def mean_ns(self, rows: pl.DataFrame, column: str) -> int:
        """Return a sum of a column over rows with `input` and `step`, of the typical step."""
        return self.mean(int(rows[column][rows_in_steps(self.ordinary, rows)].sum()))

    def mean(self, total: int) -> int:
        """Return what a sum over the ordinary steps is in the typical step."""
        return round(Fraction(total, max(len(self.ordinary), 1)))

    def open_ns(self, profile: Profile) -> Times:
        """Return time without a cause in deciding steps, int64 ns: a row a step, a column each of `_OPEN`."""
        place, row = locate_steps(self.deciding, profile.causes)
        cause, ns = profile.causes["cause"][row], profile.causes["ns"][row].to_numpy()
        are_open = [cause.str.starts_with(begin).to_numpy() for begin in _OPEN]
        return np.stack([summed(place[own], ns[own], len(self.deciding)) for own in are_open], axis=1)

    def typical_walls(self, profile: Profile) -> Walls:
        """Return the mean walls of the ordinary steps."""
        own = profile.steps[rows_in_steps(self.ordinary, profile.steps)]
        return Walls(*(round(Fraction(int(own[name].sum()), max(len(own), 1))) for name in _WALLS))


def select_steps(profile: Profile) -> Steps:
    """Return the steps of a profile that count."""
    steady = profile.steps.filter("steady")
    counts = profile.steps if steady.is_empty() else steady
    length_ns = (counts["end_ns"] - counts["start_ns"]).to_numpy()
    ordinary = counts if steady.is_empty() else counts.filter(pl.Series(is_ordinary(length_ns)))
    return Steps(
        counts.select("input", "step"),
        ordinary.select("input", "step"),
        length_ns,
        counts.select(_WALLS).to_numpy(),
        len(steady),
    )


def rows_in_steps(steps: pl.DataFrame, rows: pl.DataFrame) -> Rows:
    """Return the indices of the rows with `input` and `step` that are of some steps, int64."""
    return locate_steps(steps, rows)[1]


def locate_steps(steps: pl.DataFrame, rows: pl.DataFrame) -> tuple[Rows, Rows]:
    """Return the index of the step of each row that is of some steps, and the index of that row, int64."""
    return rows_of(encode_pairs(steps, "step"), encode_pairs(rows, "step"))
