"""Pieces of threads in legs: each piece of a leg but the first goes on right where the one before it ended.

Ends of pieces inside a leg are sums, taken of all at once; only where a leg begins something has to be waited
for.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass

import numpy as np

from wallscope.arrays.columns import Rows
from wallscope.timeline.spans import Times


@dataclass(frozen=True, slots=True)
class Legs:
    """The legs of some threads: one from the start of each, then one from each piece that waits.

    The last leg begins at 0 and goes nowhere: what is looked up before it is known counts as that.

    Attributes:
        leg: of each piece, of the start of each thread, and of nothing.
        place: how many pieces lie before the end of each of those.
        begin: the same of the begin of each leg.
        waiting: the pieces that begin a leg, in the order in which they come.
        behind: of each of those the piece it goes on after, in the numbers of `leg`.
        thread_count: how many legs begin with a thread.
    """

    leg: Rows
    place: Rows
    begin: Rows
    waiting: Rows
    behind: Rows
    thread_count: int

    def along_ns(self, piece_ns: Times) -> Times:
        """What all pieces before each take together, those that wait left out; one more at the end."""
        found = np.zeros(piece_ns.size + 1, np.int64)
        found[1:] = piece_ns
        found[self.waiting + 1] = 0
        return np.cumsum(found)

    def since_ns(self, along_ns: Times, of: Rows) -> Times:
        """How long after the begin of their legs pieces end, in the numbers of `leg`."""
        found: Times = along_ns[self.place[of]] - along_ns[self.begin[self.leg[of]]]
        return found

    def left_ns(self, along_ns: Times, leg_ns: Times) -> Times:
        """When each piece ends, and when threads start, once it is known when legs begin."""
        found: Times = leg_ns[self.leg] + along_ns[self.place] - along_ns[self.begin][self.leg]
        return found[:-1]


def legs(first: Rows, waiting: Mapping[int, int], turn: Callable[[int], tuple[int, ...]], count: int) -> Legs:
    """The legs of threads whose pieces stand in a row, one thread behind the other.

    Args:
        first: the first piece of each thread.
        waiting: pieces that begin a leg, each with the one it goes on after; starts of threads are counted on
            behind the pieces.
        turn: what tells the order in which two pieces come.
        count: how many pieces there are.
    """
    in_order = sorted(waiting, key=turn)
    nothing = count + first.size
    behind = [
        other if other >= count or turn(other) < turn(row) else nothing
        for row, other in ((row, waiting[row]) for row in in_order)
    ]
    rows = np.array(in_order, np.int64)
    number = np.full(count, -1, np.int64)
    number[first] = np.arange(first.size)
    number[rows] = first.size + np.arange(rows.size)
    opening = np.maximum.accumulate(np.where(number >= 0, np.arange(count), 0))
    return Legs(
        leg=np.concatenate((number[opening], np.arange(first.size), [first.size + rows.size])),
        place=np.concatenate((np.arange(1, count + 1), first, [0])),
        begin=np.concatenate((first, rows + 1, [0])),
        waiting=rows,
        behind=np.array(behind, np.int64),
        thread_count=first.size,
    )
