"""Slices laid into lanes so that each lane can be drawn, and the order in which they begin and end."""

import numpy as np

from wallscope.arrays.columns import Flags, Rows
from wallscope.timeline.spans import Times


def side_by_side(start_ns: Times, end_ns: Times) -> Rows:
    """The lane of each slice, sorted by start: none overlaps another of its lane.

    >>> side_by_side(np.array([0, 5, 8]), np.array([6, 8, 9])).tolist()
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


def nested_lanes(start_ns: Times, end_ns: Times) -> tuple[Rows, Rows]:
    """Lane and depth of each slice, sorted by start, longest first: in a lane slices nest or lie apart.

    >>> lanes, depths = nested_lanes(np.array([0, 2, 5, 8]), np.array([9, 6, 7, 9]))
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


def edges(start_ns: Times, end_ns: Times, depths: Rows) -> tuple[Rows, Flags]:
    """In which order the slices of one lane begin and end: their rows, and whether each is a beginning.

    >>> rows, begins = edges(np.array([0, 0, 4, 4]), np.array([4, 2, 4, 5]), np.array([0, 1, 0, 0]))
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
