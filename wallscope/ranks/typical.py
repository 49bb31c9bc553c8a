"""The steps that speak for a rank, and its sums over them."""

from dataclasses import dataclass
from fractions import Fraction

import numpy as np
import polars as pl

from wallscope.model.kinds import Wall
from wallscope.model.profile import Profile
from wallscope.model.walls import Walls
from wallscope.timeline.ordinary import is_ordinary
from wallscope.timeline.spans import Times

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
        """Median length, `None` without a steady step."""
        return round(float(np.median(self.length_ns))) if self.steady else None

    def mean_ns(self, rows: pl.DataFrame, column: str) -> int:
        """A sum over rows with `input` and `step`, of the typical step."""
        total = rows.join(self.ordinary, on=["input", "step"])[column].sum()
        return round(Fraction(int(total or 0), max(len(self.ordinary), 1)))

    def open_ns(self, profile: Profile) -> Times:
        """Time without an owner in the deciding steps: unattributed, communication, memory."""
        columns = []
        for begin in _OPEN:
            own = profile.causes.filter(pl.col("cause").str.starts_with(begin))
            sums = own.group_by("input", "step").agg(pl.col("ns").sum())
            beside = self.deciding.join(sums, on=["input", "step"], how="left", maintain_order="left")
            columns.append(beside["ns"].fill_null(0).to_numpy())
        return np.stack(columns, axis=1)

    def typical_walls(self, profile: Profile) -> Walls:
        """The mean walls of the ordinary steps."""
        own = profile.steps.join(self.ordinary, on=["input", "step"])
        return Walls(*(round(Fraction(int(own[name].sum()), max(len(own), 1))) for name in _WALLS))


def steps_of(profile: Profile) -> Steps:
    """The steps that speak for a rank."""
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
