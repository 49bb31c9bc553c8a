"""Arithmetic on half-open spans of integer nanoseconds, whole parts of sums, and lanes to draw in."""

from collections.abc import Mapping, Sequence
from fractions import Fraction
from typing import Any, TypeVar

import numpy as np
import numpy.typing as npt

from wallscope.columns import Flags, Rows
from wallscope.kernels import intervals, views
from wallscope.records import dataclass

Times = npt.NDArray[np.int64]
Numbers = Sequence[int]
BEFORE_ALL, AFTER_ALL = -(2**62), 2**62
"""Moments, in ns, before and after all of an export."""
"""Integers to be looked up one by one: no more than eight bytes each, where a list takes forty."""


def as_times(values: npt.NDArray[np.integer]) -> Numbers:
    """The values of an array as Python's integers, made when looked at; an array of them is signed."""
    kept = np.ascontiguousarray(values)
    if kept.dtype == np.uint32 and kept.max(initial=0) < 2**31:
        kept = kept.view(np.int32)
    elif kept.dtype.kind == "u":
        kept = kept.astype(np.int64)
    return memoryview(kept.data)


@dataclass(frozen=True, slots=True)
class Spans:
    """Spans `[start_ns[i], end_ns[i])`, sorted by start; they may overlap, none is empty."""

    start_ns: Times
    end_ns: Times

    def rows(self) -> list[tuple[int, int]]:
        """The spans as plain tuples."""
        return list(zip(self.start_ns.tolist(), self.end_ns.tolist(), strict=True))


def order_spans(start_ns: Times, end_ns: Times) -> Spans:
    """Spans from bounds in any order; empty ones (`end <= start`) are left out.

    >>> order_spans(np.array([5, 1, 3]), np.array([6, 4, 3])).rows()
    [(1, 4), (5, 6)]
    """
    held = end_ns > start_ns
    if not held.all():
        start_ns, end_ns = start_ns[held], end_ns[held]
    if (start_ns[1:] < start_ns[:-1]).any():
        order = np.argsort(start_ns, kind="stable")
        start_ns, end_ns = start_ns[order], end_ns[order]
    return Spans(start_ns, end_ns)


def make_spans(*rows: tuple[int, int]) -> Spans:
    """Spans written out.

    >>> make_spans((8, 12), (0, 10)).rows()
    [(0, 10), (8, 12)]
    """
    bounds = np.array(rows, dtype=np.int64).reshape(-1, 2)
    return order_spans(bounds[:, 0], bounds[:, 1])


def number_spans(moments_ns: Times) -> Times:
    """The moments in order, each once; sorting beats numpy's hashing for times.

    >>> number_spans(np.array([5, 1, 5, 3])).tolist()
    [1, 3, 5]
    """
    in_order = np.sort(moments_ns)
    found: Times = in_order[np.diff(in_order, prepend=in_order[:1] - 1) != 0]
    return found


def union(*sides: Spans) -> Spans:
    """What any of the sides covers, as disjoint spans that do not touch.

    >>> union(make_spans((0, 2), (1, 5)), make_spans((5, 6), (9, 10))).rows()
    [(0, 6), (9, 10)]
    """
    if len(sides) == 1:
        (together,) = sides
    else:
        together = order_spans(
            np.concatenate([side.start_ns for side in sides]),
            np.concatenate([side.end_ns for side in sides]),
        )
    size = together.start_ns.size
    if size == 0:
        return together
    start_ns, end_ns = np.empty(size, np.int64), np.empty(size, np.int64)
    count = intervals.merge(*_view_bounds(together), *views(start_ns, end_ns))
    return Spans(start_ns[:count], end_ns[:count])


def common(one: Spans, other: Spans) -> Spans:
    """What two sides of disjoint spans both cover.

    >>> common(make_spans((0, 4), (6, 9)), make_spans((1, 2), (3, 7), (9, 12))).rows()
    [(1, 2), (3, 4), (6, 7)]
    """
    room = one.start_ns.size + other.start_ns.size
    start_ns, end_ns = np.empty(room, np.int64), np.empty(room, np.int64)
    count = intervals.intersect(*_view_bounds(one), *_view_bounds(other), *views(start_ns, end_ns))
    return Spans(start_ns[:count], end_ns[:count])


def _view_bounds(side: Spans) -> tuple[Any, ...]:
    """Starts and ends as a kernel takes them."""
    return views(np.ascontiguousarray(side.start_ns), np.ascontiguousarray(side.end_ns))


def covered_ns(disjoint: Spans, windows: Spans) -> Times:
    """How much of each window the disjoint spans cover, in ns; one number a window.

    >>> covered_ns(make_spans((0, 4), (6, 9)), make_spans((0, 5), (2, 7), (20, 30))).tolist()
    [4, 3, 0]
    """
    return passed_ns(disjoint, windows.end_ns) - passed_ns(disjoint, windows.start_ns)


def passed_ns(disjoint: Spans, at_ns: Times) -> Times:
    """How much of the disjoint spans lies before each moment, in ns.

    >>> passed_ns(make_spans((0, 4), (6, 9)), np.array([-1, 2, 5, 7, 20])).tolist()
    [0, 2, 4, 5, 7]
    """
    if disjoint.start_ns.size == 0:
        return np.zeros(at_ns.size, np.int64)
    lengths_ns = disjoint.end_ns - disjoint.start_ns
    found = np.empty(at_ns.size, np.int64)
    at_ns = np.ascontiguousarray(at_ns, np.int64)
    intervals.sum_before(*_view_bounds(disjoint), *views(np.cumsum(lengths_ns) - lengths_ns, at_ns, found))
    return found


def length_ns(disjoint: Spans) -> int:
    """Added-up length of disjoint spans.

    >>> length_ns(union(make_spans((0, 4), (2, 6), (10, 11))))
    7
    """
    return int((disjoint.end_ns - disjoint.start_ns).sum())


def is_inside(disjoint: Spans, at_ns: Times) -> Flags:
    """Whether disjoint spans hold each moment.

    >>> is_inside(make_spans((0, 4), (6, 9)), np.array([0, 3, 4, 8, 9])).tolist()
    [True, True, False, True, False]
    """
    if disjoint.start_ns.size == 0:
        return np.zeros(at_ns.size, np.bool_)
    row = np.searchsorted(disjoint.start_ns, at_ns, side="right") - 1
    held: Flags = (row >= 0) & (at_ns < disjoint.end_ns[row])
    return held


_Name = TypeVar("_Name")


def apportion(parts: Mapping[_Name, Fraction], whole: int) -> dict[_Name, int]:
    """Broken times as whole ones that add up, the largest remainders rounded up, ties by name."""
    floors = {name: int(value) for name, value in parts.items()}
    order = sorted(parts, key=lambda name: (floors[name] - parts[name], repr(name)))
    for name in order[: whole - sum(floors.values())]:
        floors[name] += 1
    return floors


def lay_side_by_side(start_ns: Times, end_ns: Times) -> Rows:
    """The lane of each slice, sorted by start: none overlaps another of its lane.

    >>> lay_side_by_side(np.array([0, 5, 8]), np.array([6, 8, 9])).tolist()
    [0, 1, 0]
    """
    lanes = np.zeros(start_ns.size, np.int64)
    if not (start_ns[1:] < end_ns[:-1]).any():
        return lanes
    reached_ns: list[int] = []
    for row, (start, end) in enumerate(zip(start_ns.tolist(), end_ns.tolist(), strict=True)):
        lane = next((lane for lane, reached in enumerate(reached_ns) if reached <= start), len(reached_ns))
        if lane == len(reached_ns):
            reached_ns.append(end)
        reached_ns[lane] = end
        lanes[row] = lane
    return lanes


def lay_inside(start_ns: Times, end_ns: Times) -> tuple[Rows, Rows]:
    """Lane and depth of each slice, sorted by start, longest first: in a lane slices nest or lie apart.

    >>> lanes, depths = lay_inside(np.array([0, 2, 5, 8]), np.array([9, 6, 7, 9]))
    >>> lanes.tolist(), depths.tolist()
    ([0, 0, 1, 0], [0, 1, 0, 1])
    """
    lanes, depths = np.zeros(start_ns.size, np.int64), np.zeros(start_ns.size, np.int64)
    if not (start_ns[1:] < end_ns[:-1]).any():
        return lanes, depths
    open_ns: list[list[int]] = []  # ends of what is open in each lane, outermost first
    for row, (start, end) in enumerate(zip(start_ns.tolist(), end_ns.tolist(), strict=True)):
        lane = next((lane for lane, ends in enumerate(open_ns) if _has_room(ends, start, end)), len(open_ns))
        if lane == len(open_ns):
            open_ns.append([])
        lanes[row], depths[row] = lane, len(open_ns[lane])
        open_ns[lane].append(end)
    return lanes, depths


def _has_room(ends: list[int], start_ns: int, end_ns: int) -> bool:
    """Whether a slice fits into what is open in a lane; what ends before it is closed."""
    while ends and ends[-1] <= start_ns:
        ends.pop()
    return not ends or end_ns <= ends[-1]


def list_edges(start_ns: Times, end_ns: Times, depths: Rows) -> tuple[Rows, Flags]:
    """In which order the slices of one lane begin and end: their rows, and whether each is a beginning.

    >>> rows, begins = list_edges(np.array([0, 0, 4, 4]), np.array([4, 2, 4, 5]), np.array([0, 1, 0, 0]))
    >>> [f"{'+' if begin else '-'}{row}" for row, begin in zip(rows.tolist(), begins.tolist())]
    ['+0', '+1', '-1', '-0', '+2', '-2', '+3', '-3']
    """
    size = start_ns.size
    rows = np.repeat(np.arange(size), 2)
    begins = np.tile([True, False], size)
    if not (start_ns[1:] < end_ns[:-1]).any():
        return rows, begins
    at_ns = np.where(begins, start_ns[rows], end_ns[rows])
    ends_others = (
        ~begins & (end_ns > start_ns)[rows]
    )  # before anything begins at that moment, innermost first
    rank = np.where(ends_others, -1 - depths[rows], rows)
    order = np.lexsort((~begins, rank, ~ends_others, at_ns))
    return rows[order], begins[order]
