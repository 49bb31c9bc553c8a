"""The typical step: the mean of the steady steps of ordinary length, rounded so that it adds up."""

from dataclasses import dataclass
from fractions import Fraction

import numpy as np
import polars as pl

from wallscope.model.selection import FOREVER_NS
from wallscope.timeline.ordinary import is_ordinary
from wallscope.timeline.spans import Spans, Times, covered_ns


def typical_steps(windows: pl.DataFrame) -> pl.DataFrame:
    """The windows of one rank (`STEPS` and `selected`) that make its typical step.

    The steady ones whose duration lies within the interquartile range; all steady ones, if they are
    fewer than eight; all selected windows, if none is steady.
    """
    steady = windows.filter(pl.col("steady"))
    if steady.is_empty():
        return windows.filter(pl.col("selected"))
    return steady.filter(pl.Series(is_ordinary((steady["end_ns"] - steady["start_ns"]).to_numpy())))


def mean_parts(parts: Times) -> list[int]:
    """Mean of each column over the rows, as integers that add up to the rounded mean of the row sums.

    The largest remainders are rounded up; of equal ones the first.

    >>> mean_parts(np.array([[1, 1, 1], [2, 2, 1]]))
    [2, 1, 1]
    """
    count = parts.shape[0]
    sums = [int(column) for column in parts.sum(axis=0)]
    whole = [total // count for total in sums]
    missing = round(Fraction(sum(sums), count)) - sum(whole)
    by_remainder = sorted(range(len(sums)), key=lambda part: (-(sums[part] % count), part))
    for part in by_remainder[:missing]:
        whole[part] += 1
    return whole


@dataclass(frozen=True, slots=True)
class TypicalWork:
    """Operations of one rank beside the steps of its typical step, and the means over those.

    `operations` are `CLASSIFIED` with `inside_ns`, what lies inside the steps, and `begins`, whether
    the operation starts in one; their own bounds are whole. `issued` is the host's time for each step,
    `host_until_ns` where the ranges that begin in it end at the latest.
    """

    operations: pl.DataFrame
    steps: Spans
    issued: Spans
    host_until_ns: Times

    def mean(self, total: int) -> int:
        """A total over the steps as the mean of one."""
        return round(Fraction(total, self.steps.start_ns.size))

    def all_covered_ns(self, disjoint: Spans) -> int:
        """How much of all steps disjoint spans cover."""
        return int(covered_ns(disjoint, self.steps).sum())

    def covered_ns(self, disjoint: Spans) -> int:
        """How much of a step disjoint spans cover, in the mean."""
        return self.mean(self.all_covered_ns(disjoint))


def typical_work(operations: pl.DataFrame, steps: pl.DataFrame) -> TypicalWork:
    """Operations of one rank beside some of its windows (`STEPS`; `host_until_ns` if a time is selected)."""
    bounds = Spans(steps["start_ns"].to_numpy(), steps["end_ns"].to_numpy())
    start_ns, end_ns = operations["start_ns"].to_numpy(), operations["end_ns"].to_numpy()
    window = np.searchsorted(bounds.start_ns, start_ns, side="right") - 1
    is_at_the_end = (start_ns == bounds.end_ns[-1]) & (end_ns.max(initial=0) == bounds.end_ns[-1])
    begins = (window >= 0) & ((start_ns < bounds.end_ns[window]) | is_at_the_end)
    placed = operations.with_columns(
        pl.Series("inside_ns", covered_ns(bounds, Spans(start_ns, end_ns))), pl.Series("begins", begins)
    )
    issued = Spans(steps["issue_start_ns"].to_numpy(), steps["issue_end_ns"].to_numpy())
    touching = placed.filter(pl.col("begins") | (pl.col("inside_ns") > 0))
    forever = pl.repeat(FOREVER_NS, len(steps), dtype=pl.Int64, eager=True)
    until_ns = steps.get_column("host_until_ns", default=forever).to_numpy()
    return TypicalWork(touching, bounds, issued, until_ns)
