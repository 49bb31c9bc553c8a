"""Which range stands inside which, also where ranges overlap without nesting.

Ranges of one thread are sorted by start, the longest first. The parent of a range is the latest one
before it that ends no sooner. Ends grow on the way up, so the innermost range around a moment is
found by jumping over ancestors that have ended, by powers of two.
"""

import numpy as np

from wallscope.arrays.columns import Flags, Rows
from wallscope.timeline.spans import Times

_MOST_TURNS = 64


def parents(end_ns: Times) -> Rows:
    """Row of the latest earlier range that ends no sooner, -1 without one; ranges in order of start.

    All ranges climb at once from the one before them, over what was found to be around that; where some
    lie so deep that this takes many turns, they are climbed one by one.

    >>> parents(np.array([100, 40, 30, 90, 60, 120])).tolist()
    [-1, 0, 1, 0, 3, -1]
    """
    ends = np.append(end_ns, np.iinfo(np.int64).max)  # row -1, the last entry, is around everything
    parent = np.arange(-1, end_ns.size - 1)
    climbing = np.arange(end_ns.size)
    for _ in range(_MOST_TURNS):
        climbing = climbing[ends[parent[climbing]] < ends[climbing]]
        if climbing.size == 0:
            return parent
        parent[climbing] = parent[parent[climbing]]
    return _climbed_one_by_one(end_ns)


def _climbed_one_by_one(end_ns: Times) -> Rows:
    """The same in linear time: what has ended before a later end is never climbed again."""
    found: list[int] = []
    around, ends = [-1], [*end_ns.tolist(), np.iinfo(np.int64).max]
    for row, end in enumerate(ends[:-1]):
        while ends[around[-1]] < end:
            around.pop()
        found.append(around[-1])
        around.append(row)
    return np.array(found, np.int64)


def innermost(start_ns: Times, end_ns: Times, leaps: list[Rows], at_ns: Times) -> Rows:
    """Row of the range with the latest start that is open at each moment, -1 where none is.

    A range is open from its start on and no longer at its end.

    >>> start, end = np.array([0, 10, 50]), np.array([100, 20, 60])
    >>> innermost(start, end, jumps(parents(end)), np.array([5, 15, 20, 55, 100])).tolist()
    [0, 1, 0, 2, -1]
    """
    reach = np.append(end_ns, np.iinfo(np.int64).max)  # row -1, the last entry, is around everything
    found = np.searchsorted(start_ns, at_ns, side="right") - 1
    has_ended = np.flatnonzero(reach[found] <= at_ns)
    row, since_ns = found[has_ended], at_ns[has_ended]
    for jump in reversed(leaps):
        over = jump[row]
        row = np.where(reach[over] <= since_ns, over, row)
    found[has_ended] = leaps[0][row]
    return found


def jumps(parent: Rows) -> list[Rows]:
    """The ancestor 1, 2, 4, … levels above each row, up to where all rows have left the tree."""
    found = [np.append(parent, -1)]
    while (found[-1] >= 0).any():
        found.append(found[-1][found[-1]])
    return found


def nearest(rows: Rows, parent: Rows, is_wanted: Flags) -> Rows:
    """Of each row the nearest one of those that are wanted, itself or around it; -1 without one."""
    return led_to(np.where(is_wanted, np.arange(parent.size), parent))[rows]


def farthest(parent: Rows, is_wanted: Flags) -> Rows:
    """Of each row the outermost one of those that are wanted, itself or around it; -1 without one.

    >>> farthest(np.array([-1, 0, 1, -1]), np.array([False, True, True, False])).tolist()
    [-1, 1, 1, -1]
    """
    found = np.where(is_wanted, np.arange(parent.size), -1)
    above = np.append(parent, -1)
    while (above >= 0).any():  # what lies twice as far above each time: ranges may lie a million deep
        farther = np.append(found, -1)[above[:-1]]
        found = np.where(farther >= 0, farther, found)
        above = above[above]
    return found


def led_to(step: Rows) -> Rows:
    """Where steps from each row to another lead in the end; -1 for nowhere, which stands behind the last.

    Each turn doubles the way gone: ranges may lie in each other a million deep.
    """
    gone = np.append(step, -1)
    while not np.array_equal(further := gone[gone], gone):
        gone = further
    return gone
