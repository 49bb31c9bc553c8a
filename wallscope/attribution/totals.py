"""Sums of a rank: the device budget, the time of walls and causes in each step, and the typical step.

Compute comes first, then opaque graphs, then communication, then copies. Each part is the length of a union
minus the union of the parts before it, so nothing counts twice.
"""

from collections import Counter
from collections.abc import Iterator, Sequence
from functools import cached_property
from typing import TypeVar

import numpy as np
import polars as pl

from wallscope import columns as grouping
from wallscope.columns import (
    Flags,
    Rows,
    as_integers,
    encode_column,
    find_places,
    list_members,
    match_rows,
    split_by_rank,
)
from wallscope.model.analysis import CauseTime, ComputeAbsent
from wallscope.model.capture import FOREVER_NS
from wallscope.model.cause_catalogue import (
    COMMUNICATION_UNRESOLVED,
    COMPUTE_UNRECOGNIZED,
    MEMORY_UNRESOLVED,
    UNATTRIBUTED_HELD_WHILE_IDLE,
    UNATTRIBUTED_OPAQUE_GRAPH,
    UNATTRIBUTED_PROFILER,
    UNATTRIBUTED_UNRESOLVED,
    UNRECOGNIZED,
)
from wallscope.model.diagnosis import Walls
from wallscope.model.enums import Absent, DeviceState, OperationClass, Wall
from wallscope.model.schemas import BUDGET_PARTS, BUDGETS, CATEGORY, SLICE_SUMS
from wallscope.process_tuning import run_side_by_side
from wallscope.records import dataclass
from wallscope.trace.intervals import Spans, Times, covered_ns, order_spans, union
from wallscope.trace.steps import is_ordinary


def measure_budgets(operations: pl.DataFrame, windows: pl.DataFrame) -> pl.DataFrame:
    """Return the device budget of each window (`CLASSIFIED`, `WINDOWS` to `BUDGETS`).

    Operations are clipped to the window. Further columns of the windows are kept.
    """
    own = split_by_rank(operations)
    nothing = operations[:0]
    parts = run_side_by_side(
        lambda rank: _measure_rank_budgets(own.get(rank[0], nothing), rank[1]), split_by_rank(windows).items()
    )
    return pl.concat(parts) if parts else BUDGETS.to_frame()


def _measure_rank_budgets(operations: pl.DataFrame, windows: pl.DataFrame) -> pl.DataFrame:
    bounds = Spans(windows["start_ns"].to_numpy(), windows["end_ns"].to_numpy())
    parts = list(_measure_budget_parts(operations, bounds))
    parts.append(bounds.end_ns - bounds.start_ns - np.sum(parts, axis=0))
    assert all((part >= 0).all() for part in parts), "a part of a budget is negative"  # noqa: S101  # an invariant
    return windows.hstack(
        [pl.Series(name, part, dtype=pl.Int64) for name, part in zip(BUDGET_PARTS, parts, strict=True)]
    )


def _measure_budget_parts(operations: pl.DataFrame, windows: Spans) -> Iterator[Times]:
    """Return the time of each class that no earlier class covers, in ns, one number per window."""
    so_far = Spans(np.empty(0, np.int64), np.empty(0, np.int64))
    counted = np.zeros(windows.start_ns.size, np.int64)
    start_ns, end_ns = operations["start_ns"].to_numpy(), operations["end_ns"].to_numpy()
    of_class = as_integers(operations["class"])
    for place in range(len(OperationClass)):
        rows = np.flatnonzero(of_class == place)
        if rows.size:
            so_far = union(so_far, order_spans(start_ns[rows], end_ns[rows]))
        covered = covered_ns(so_far, windows)
        yield covered - counted
        counted = covered


_WALLS = tuple(Wall)
_UNRESOLVED = {
    UNATTRIBUTED_UNRESOLVED,
    UNATTRIBUTED_HELD_WHILE_IDLE,
    COMMUNICATION_UNRESOLVED,
    MEMORY_UNRESOLVED,
}


@dataclass(frozen=True, slots=True)
class SliceSums:
    """Slices of one rank summed by step, wall, cause, reason and state, which are far fewer rows.

    `wall` are indices in `Wall`, `state` in `DeviceState`, `absent` in `Absent`, -1 where compute or an
    opaque graph ran.
    """

    step: Rows
    wall: Rows
    cause: tuple[str, ...]
    absent: Rows
    state: Rows
    ns: Times

    def of_steps(self, steps: pl.Series) -> "SliceSums":
        """Return those of some steps."""
        rows = np.flatnonzero(find_places(self.step, steps.to_numpy()) >= 0)
        causes = tuple(self.cause[row] for row in rows.tolist())
        of_rows = (column[rows] for column in (self.absent, self.state, self.ns))
        return SliceSums(self.step[rows], self.wall[rows], causes, *of_rows)

    def frame(self) -> pl.DataFrame:
        """Return them as `SLICE_SUMS`."""
        walls, absents, states = (list_members(one) for one in (Wall, Absent, DeviceState))
        columns = (self.step, walls[self.wall], self.cause, absents[self.absent], states[self.state], self.ns)
        return pl.DataFrame(dict(zip(SLICE_SUMS, columns, strict=True)), schema=SLICE_SUMS)

    def of_causes(self) -> Counter[tuple[int, str]]:
        """Return the time of each cause of each wall."""
        found: Counter[tuple[int, str]] = Counter()
        for wall, cause, time_ns in zip(self.wall.tolist(), self.cause, self.ns.tolist(), strict=True):
            found[wall, cause] += time_ns
        return found


def divide_profiled_host(sums: SliceSums, share: float) -> SliceSums:
    """Return the sums with host time attributed to the profiler: so much of each step, if it has as much.

    Args:
        sums: of all steps.
        share: of each step, by which the capture is longer than the step without the profiler.
    """
    host, unattributed = _WALLS.index(Wall.HOST), _WALLS.index(Wall.UNATTRIBUTED)
    rows = np.flatnonzero(sums.wall == host)
    count = int(sums.step.max(initial=-1)) + 1
    step_ns = np.bincount(sums.step, sums.ns, count)
    host_ns = np.bincount(sums.step[rows], sums.ns[rows], count)
    part = np.minimum(share * step_ns, host_ns) / np.maximum(host_ns, 1)
    taken_ns = np.rint(part[sums.step[rows]] * sums.ns[rows]).astype(np.int64)
    left_ns = sums.ns.copy()
    left_ns[rows] -= taken_ns
    return SliceSums(
        np.append(sums.step, sums.step[rows]),
        np.append(sums.wall, np.full(rows.size, unattributed)),
        (*sums.cause, *[UNATTRIBUTED_PROFILER] * rows.size),
        np.append(sums.absent, sums.absent[rows]),
        np.append(sums.state, sums.state[rows]),
        np.append(left_ns, taken_ns),
    )


def sum_slices(slices: pl.DataFrame) -> SliceSums:
    """Return slices (`SLICES`) summed."""
    step, (cause, texts) = slices["step"].to_numpy(), encode_column(slices["cause"])
    absent, state = (as_integers(slices[name]).astype(np.int64) + 1 for name in ("absent", "state"))
    sizes = (int(step.max(initial=0)) + 1, len(Wall), len(texts), len(Absent) + 1, len(DeviceState) + 1)
    (step, wall, cause, absent, state), group = grouping.combine_codes(
        sizes, step, as_integers(slices["wall"]), cause, absent, state
    )
    time_ns = slices["end_ns"].to_numpy() - slices["start_ns"].to_numpy()
    return SliceSums(
        step,
        wall,
        tuple(texts[one] for one in cause.tolist()),
        absent - 1,
        state - 1,
        grouping.sum_by_group(group, time_ns, step.size),
    )


def sum_walls_by_step(sums: SliceSums, steps: pl.Series) -> Times:
    """Return the time of each wall in each step, in ns: a row per step, a column per wall."""
    return _tabulate_by_step(sums, sums.wall, steps, len(_WALLS))


def sum_absence_by_step(sums: SliceSums, steps: pl.Series) -> Times:
    """Return why no compute ran, in ns: a row per step, columns as in `Absent`."""
    return _tabulate_by_step(sums, sums.absent, steps, len(Absent))


def sum_unresolved_by_step(sums: SliceSums, steps: pl.Series) -> Times:
    """Return time with unknown cause, in ns per step: unattributed, communication, memory, kernels.

    The last, unrecognized kernels that may communicate, is a part of the first.
    """
    walls = [_WALLS.index(wall) for wall in (Wall.UNATTRIBUTED, Wall.COMMUNICATION, Wall.MEMORY)]
    is_open = np.array([cause in _UNRESOLVED for cause in sums.cause], np.bool_) | (sums.wall == walls[0])
    found = _tabulate_by_step(sums, np.where(is_open, sums.wall, -1), steps, len(_WALLS))[:, walls]
    kernels = np.array([cause == UNRECOGNIZED for cause in sums.cause], np.bool_)
    return np.hstack([found, _tabulate_by_step(sums, np.where(kernels, 0, -1), steps, 1)])


def sum_unrecognized_by_step(sums: SliceSums, steps: pl.Series) -> Times:
    """Return the compute time of kernels with unrecognized names, in ns, one number per step."""
    is_unknown = np.array([cause == COMPUTE_UNRECOGNIZED for cause in sums.cause], np.bool_)
    return _tabulate_by_step(sums, np.where(is_unknown, 0, -1), steps, 1)[:, 0]


def sum_profiled_by_step(sums: SliceSums, steps: pl.Series) -> Times:
    """Return the time of the profiler, in ns, one number per step."""
    is_profiler = np.array([cause == UNATTRIBUTED_PROFILER for cause in sums.cause], np.bool_)
    return _tabulate_by_step(sums, np.where(is_profiler, 0, -1), steps, 1)[:, 0]


def _tabulate_by_step(sums: SliceSums, column: Rows, steps: pl.Series, width: int) -> Times:
    """Return a row per step, a column per value, without rows of other steps or value -1."""
    row = find_places(sums.step, steps.to_numpy())
    is_told = (row >= 0) & (column >= 0)
    table = np.zeros((len(steps), width), np.int64)
    np.add.at(table, (row[is_told], column[is_told]), sums.ns[is_told])
    return table


def sum_inferred_by_step(slices: pl.DataFrame, steps: pl.Series) -> Times:
    """Return time that was found through inferred waits, in ns, one number per step."""
    own = np.flatnonzero(slices["inferred"].to_numpy())
    row, held = match_rows(steps.to_numpy(), slices["step"].to_numpy()[own])
    time_ns = slices["end_ns"].to_numpy()[own[held]] - slices["start_ns"].to_numpy()[own[held]]
    return grouping.sum_by_group(row, time_ns, len(steps))


def make_walls(parts: Sequence[int]) -> Walls:
    """Return the walls from their times in the order of `Wall`."""
    return Walls(*(int(part) for part in parts))


def make_absence(parts: Sequence[int]) -> ComputeAbsent:
    """Return the reasons from their times in the order of `Absent`."""
    return ComputeAbsent(*(int(part) for part in parts))


def list_causes(
    sums: SliceSums, step_count: int, walls: Walls, recoverable: dict[str, int]
) -> list[CauseTime]:
    """Return the causes in the typical step, the largest first; those of one wall sum to its time.

    Args:
        sums: of the steps that make the typical one.
        step_count: the number of these steps.
        walls: the typical step.
        recoverable: upper bound on the gain of each cause, if known.
    """
    step_ns = sum(walls.parts())
    of_causes = sums.of_causes()
    listed = []
    for place, (wall, total_ns) in enumerate(zip(Wall, walls.parts(), strict=True)):
        own = sorted((-time_ns, cause) for (of, cause), time_ns in of_causes.items() if of == place)
        typical = apportion_means([-negative_ns for negative_ns, _ in own], step_count, total_ns)
        for (_, cause), time_ns in zip(own, typical, strict=True):
            is_open = cause in _UNRESOLVED or cause in {UNATTRIBUTED_OPAQUE_GRAPH, UNRECOGNIZED}
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


_Whole = TypeVar("_Whole", int, Times)
CATEGORIES: tuple[str, ...] = tuple(CATEGORY.categories)
"""In the order of their indices in `WorkColumns`."""


def select_typical_steps(windows: pl.DataFrame) -> pl.DataFrame:
    """Return the windows of one rank (`STEPS` and `selected`) that make its typical step.

    These are the steady ones whose duration lies within the interquartile range. They are all steady ones if
    there are fewer than eight, and all selected windows if none is steady.
    """
    steady = np.flatnonzero(windows["steady"].to_numpy())
    if steady.size == 0:
        return windows.filter(pl.col("selected"))
    duration_ns = windows["end_ns"].to_numpy()[steady] - windows["start_ns"].to_numpy()[steady]
    typical: pl.DataFrame = windows[steady[is_ordinary(duration_ns)]]
    return typical


def average_parts(parts: Times) -> list[int]:
    """Return the mean of each column over the rows, as integers that add up to the rounded total mean.

    The largest remainders are rounded up; of equal ones the first.

    >>> average_parts(np.array([[1, 1, 1], [2, 2, 1]]))
    [2, 1, 1]
    """
    count = parts.shape[0]
    sums = [int(column) for column in parts.sum(axis=0)]
    return apportion_means(sums, count, average_total(sum(sums), count))


def apportion_means(sums: Sequence[int], count: int, total: int) -> list[int]:
    """Return means of some sums as integers that add up to a total, the largest remainders rounded up.

    >>> apportion_means([3, 3, 2], 2, 4)
    [2, 1, 1]
    """
    whole = [value // count for value in sums]
    by_remainder = sorted(range(len(sums)), key=lambda part: (-(sums[part] % count), part))
    for part in by_remainder[: total - sum(whole)]:
        whole[part] += 1
    return whole


def average_total(total: _Whole, count: int) -> _Whole:
    """Return the mean of a total over several steps, rounded half to even.

    >>> average_total(7, 2), average_total(9, 2), average_total(-7, 3)
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
        inside_ns: the part inside the steps.
        begins: whether each starts in a step.
        name: number of the kernel's name, -1 without one.
        of_class: index in `OperationClass`.
        category: index in the categories of `CATEGORY`.
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
        """Return the spans of some rows, whole."""
        return order_spans(self.start_ns[rows], self.end_ns[rows])


@dataclass(frozen=True)
class TypicalWork:
    """Operations of one rank in the steps of its typical step, and the means over those.

    `operations` are `CLASSIFIED` with `inside_ns`, the part inside the steps, and `begins`, whether the
    operation starts in one; their own bounds are whole. `issued` is the host time of each step.
    `host_until_ns` is the latest end of the ranges that begin in it.
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
            name=as_integers(operations["name"]),
            of_class=as_integers(operations["class"]),
            category=as_integers(operations["category"]),
        )

    def rows_of(self, *classes: OperationClass) -> Rows:
        """Return the rows of the operations of some classes."""
        if classes not in self._rows_of:
            is_asked = np.isin(list(OperationClass), classes)
            self._rows_of[classes] = np.flatnonzero(is_asked[self.columns.of_class])
        return self._rows_of[classes]

    @cached_property
    def _rows_of(self) -> dict[tuple[OperationClass, ...], Rows]:
        """The rows of the classes that were asked for."""
        return {}

    def total_ns(self, rows: Rows) -> int:
        """Return the added-up time of some rows inside all steps."""
        return int(self.columns.inside_ns[rows].sum())

    def mean(self, total: int) -> int:
        """Return a total over the steps as the mean of one."""
        return average_total(total, self.steps.start_ns.size)

    def all_covered_ns(self, disjoint: Spans) -> int:
        """Return how much of all steps disjoint spans cover."""
        return int(covered_ns(disjoint, self.steps).sum())

    def covered_ns(self, disjoint: Spans) -> int:
        """Return how much of a step disjoint spans cover on average."""
        return self.mean(self.all_covered_ns(disjoint))


def make_typical_work(operations: pl.DataFrame, steps: pl.DataFrame) -> TypicalWork:
    """Return operations of one rank in some windows (`STEPS`; `host_until_ns` if a time is selected)."""
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
