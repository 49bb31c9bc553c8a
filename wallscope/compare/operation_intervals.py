"""Confidence intervals of operations and of communication by axis, as those of walls and causes.

The times of each run come from its profile, step by step. What runs differ by is taken from these runs, from
records of the cause or wall that an operation belongs to, or from the assumption about it.
"""

from collections import defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Generic, TypeVar

import numpy as np
import numpy.typing as npt
import polars as pl

from wallscope.compare.confidence import Floats, spread_of_steps
from wallscope.compare.run_noise import (
    Difference,
    Runs,
    measure_difference,
    measure_pairs,
    pool_records,
    stack_runs,
)
from wallscope.compare.typical_steps import Key, deciding_steps, lengths_ns
from wallscope.compare.wall_deltas import STEP, find_significant
from wallscope.model.comparison import CommunicationChange, OperationChange, OperationDelta
from wallscope.model.profile import OPERATION_KEYS, Profile, RecordedNoise

Row = TypeVar("Row", OperationDelta, OperationChange, CommunicationChange)
Part = tuple[str, Key]
"""A cause, and an operation that time is attributed to by it."""


@dataclass(frozen=True, slots=True)
class TracedRow(Generic[Row]):
    """A row of a comparison and the parts of both sides that it adds up; `name` is whose noise it has."""

    row: Row
    name: str
    parts: frozenset[Part]


@dataclass(frozen=True, slots=True)
class ComparedRuns:
    """The runs of both sides and what is known of others.

    Attributes:
        base: profiles of one side, one for each run.
        head: profiles of the other side.
        scales: what times of each side are multiplied by.
        known: what records of each side know of other runs.
        assume: returns the assumed noise of columns by name.
        is_paired: whether the runs of both sides belong together in their order.
    """

    base: Sequence[Profile]
    head: Sequence[Profile]
    scales: tuple[float, float]
    known: tuple[RecordedNoise | None, ...]
    assume: Callable[[Sequence[str]], Floats]
    is_paired: bool

    def measure(self, names: Sequence[str], base: Runs, head: Runs) -> Difference:
        """Measure how sure the difference of columns of these names is."""
        assumed = self.assume(names)
        if self.is_paired:
            return measure_pairs(base, head, assumed, self.scales)
        return measure_difference(base, head, pool_records(self.known, names), assumed, self.scales)

    def add_intervals(self, traced: Sequence[TracedRow[Row]]) -> tuple[Row, ...]:
        """Return the rows with the interval of each, and whether it is significant among all of them."""
        if not traced:
            return ()
        names = [STEP, *(one.name for one in traced)]
        columns_of: dict[Part, list[int]] = defaultdict(list)
        for column, one in enumerate(traced):
            for part in one.parts:
                columns_of[part].append(column)
        base, head = (_measure_runs(profiles, columns_of, len(traced)) for profiles in (self.base, self.head))
        found = self.measure(names, base, head)
        significant = find_significant(found.chance()[1:]).tolist()
        halves = found.half()[1:].tolist()
        rows = []
        for one, half, is_significant in zip(traced, halves, significant, strict=True):
            delta_ns = one.row.delta_ns
            low, high = (
                (delta_ns - round(half), delta_ns + round(half)) if np.isfinite(half) else (None, None)
            )
            rows.append(
                replace(one.row, low_ns=low, high_ns=high, significant=is_significant and delta_ns != 0)
            )
        return tuple(rows)


def _measure_runs(profiles: Sequence[Profile], columns_of: dict[Part, list[int]], count: int) -> Runs:
    steps = [deciding_steps(profile) for profile in profiles]
    spreads = [
        spread_of_steps(lengths_ns(chosen), _tabulate_steps(profile, chosen, columns_of, count))
        for profile, chosen in zip(profiles, steps, strict=True)
    ]
    return stack_runs(spreads, [len(chosen) for chosen in steps])


def _tabulate_steps(
    profile: Profile, steps: pl.DataFrame, columns_of: dict[Part, list[int]], count: int
) -> npt.NDArray[np.int64]:
    """Return the time of each column in each step, int64 ns; one row for each step."""
    key_of = {Key(*values): key for key, *values in profile.keys.select("key", *_KEY).iter_rows()}
    pairs = [
        (cause, key_of[key], column)
        for (cause, key), columns in columns_of.items()
        if key in key_of
        for column in columns
    ]
    found = np.zeros((len(steps), count), np.int64)
    wanted = pl.DataFrame(
        pairs, schema={"cause": pl.String, "key": pl.UInt32, "column": pl.Int64}, orient="row"
    )
    place = steps.select("input", "step").with_row_index("row")
    sums = (
        profile.owned.join(place, on=["input", "step"])
        .join(wanted, on=["cause", "key"])
        .group_by("row", "column")
        .agg(pl.col("owned_ns").sum())
    )
    found[sums["row"].to_numpy(), sums["column"].to_numpy()] = sums["owned_ns"].to_numpy()
    return found


_KEY = [name for name in OPERATION_KEYS.names() if name != "key"]
