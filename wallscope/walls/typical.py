"""The typical step: the mean of the steady steps of ordinary length, rounded so that it adds up."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TypeVar

import numpy as np
import polars as pl

from wallscope.arrays.columns import Flags, Rows, filled
from wallscope.model.frames import CATEGORY
from wallscope.model.kinds import OperationClass
from wallscope.model.selection import FOREVER_NS
from wallscope.timeline.ordinary import is_ordinary
from wallscope.timeline.spans import Spans, Times, covered_ns, ordered

_Whole = TypeVar("_Whole", int, Times)
CATEGORIES: tuple[str, ...] = tuple(CATEGORY.categories)
"""In the order of their places in `WorkColumns`."""


def typical_steps(windows: pl.DataFrame) -> pl.DataFrame:
    """The windows of one rank (`STEPS` and `selected`) that make its typical step.

    The steady ones whose duration lies within the interquartile range; all steady ones, if they are
    fewer than eight; all selected windows, if none is steady.
    """
    steady = np.flatnonzero(windows["steady"].to_numpy())
    if steady.size == 0:
        return windows.filter(pl.col("selected"))
    duration_ns = windows["end_ns"].to_numpy()[steady] - windows["start_ns"].to_numpy()[steady]
    typical: pl.DataFrame = windows[steady[is_ordinary(duration_ns)]]
    return typical


def mean_parts(parts: Times) -> list[int]:
    """Mean of each column over the rows, as integers that add up to the rounded mean of the row sums.

    The largest remainders are rounded up; of equal ones the first.

    >>> mean_parts(np.array([[1, 1, 1], [2, 2, 1]]))
    [2, 1, 1]
    """
    count = parts.shape[0]
    sums = [int(column) for column in parts.sum(axis=0)]
    return apportioned(sums, count, mean_of(sum(sums), count))


def apportioned(sums: Sequence[int], count: int, total: int) -> list[int]:
    """Means of some sums as integers that add up to a total, the largest remainders rounded up.

    >>> apportioned([3, 3, 2], 2, 4)
    [2, 1, 1]
    """
    whole = [value // count for value in sums]
    by_remainder = sorted(range(len(sums)), key=lambda part: (-(sums[part] % count), part))
    for part in by_remainder[: total - sum(whole)]:
        whole[part] += 1
    return whole


def mean_of(total: _Whole, count: int) -> _Whole:
    """A total over some, or each of several, as the mean of one, rounded; of two as near the even one.

    >>> mean_of(7, 2), mean_of(9, 2), mean_of(-7, 3)
    (4, 4, -2)
    """
    whole, rest = divmod(total, count)
    found: _Whole = whole + ((2 * rest > count) | ((2 * rest == count) & (whole % 2 == 1)))
    return found


@dataclass(frozen=True, slots=True)
class WorkColumns:
    """Columns of operations as arrays, rows as in the frame.

    Attributes:
        op: their numbers.
        start_ns: whole, as `end_ns`.
        end_ns: whole.
        inside_ns: what lies inside the steps.
        begins: whether each starts in one.
        name: number of the kernel's name, -1 without one.
        of_class: place in `OperationClass`.
        category: place among the categories of `CATEGORY`.
    """

    op: Rows
    start_ns: Times
    end_ns: Times
    inside_ns: Times
    begins: Flags
    name: Rows
    of_class: Rows
    category: Rows

    def spans(self, rows: Rows) -> Spans:
        """The spans of some rows, whole."""
        return ordered(self.start_ns[rows], self.end_ns[rows])


@dataclass(frozen=True)
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

    @cached_property
    def columns(self) -> WorkColumns:
        """The operations as arrays."""
        operations = self.operations
        return WorkColumns(
            op=operations["op"].to_numpy(),
            start_ns=operations["start_ns"].to_numpy(),
            end_ns=operations["end_ns"].to_numpy(),
            inside_ns=operations["inside_ns"].to_numpy(),
            begins=operations["begins"].to_numpy(),
            name=filled(operations["name"]),
            of_class=filled(operations["class"]),
            category=filled(operations["category"]),
        )

    def rows_of(self, *classes: OperationClass) -> Rows:
        """The rows of the operations of some classes."""
        is_asked = np.isin(list(OperationClass), classes)
        return np.flatnonzero(is_asked[self.columns.of_class])

    def total_ns(self, rows: Rows) -> int:
        """Added-up time of some rows inside all steps."""
        return int(self.columns.inside_ns[rows].sum())

    def mean(self, total: int) -> int:
        """A total over the steps as the mean of one."""
        return mean_of(total, self.steps.start_ns.size)

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
    inside_ns = covered_ns(bounds, Spans(start_ns, end_ns))
    placed = operations.hstack([pl.Series("inside_ns", inside_ns), pl.Series("begins", begins)])
    issued = Spans(steps["issue_start_ns"].to_numpy(), steps["issue_end_ns"].to_numpy())
    touching = placed.filter(pl.Series(begins | (inside_ns > 0), dtype=pl.Boolean))
    has_end = "host_until_ns" in steps.columns
    until_ns = steps["host_until_ns"].to_numpy() if has_end else np.full(len(steps), FOREVER_NS)
    return TypicalWork(touching, bounds, issued, until_ns)
