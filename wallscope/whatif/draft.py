"""A change while questions are put into it, one after the other."""

from collections.abc import Iterable
from itertools import pairwise

import numpy as np

from wallscope.arrays.columns import Rows
from wallscope.timeline.play import Change, Others
from wallscope.timeline.spans import Times
from wallscope.timeline.stretch import Stretch


class Draft:
    """What questions change in a stretch; a second one scales what the first has left."""

    def __init__(self, stretch: Stretch) -> None:
        order = stretch.replay.order
        self.stretch = stretch
        self._operation_ns = np.array(order.operation_ns, np.int64)
        self._piece_ns = np.array(order.piece_ns, np.int64)
        for row, after_ns in order.slack.after_ns.items():
            self._piece_ns[row] = min(after_ns, self._piece_ns[row])
        self._operation_changes = np.zeros(self._operation_ns.size, np.bool_)
        self._piece_changes = np.zeros(self._piece_ns.size, np.bool_)
        self._unblocked: set[int] = set()
        self._waits: dict[int, tuple[int, ...]] = {}
        self._latency = self._hand_over = self._return = 1.0

    def change(self) -> Change:
        """All that was asked for."""
        places, rows = np.flatnonzero(self._operation_changes), np.flatnonzero(self._piece_changes)
        return Change(
            Others(rows, self._piece_ns[rows]),
            Others(self.stretch.replay.op[places], self._operation_ns[places]),
            frozenset(self._unblocked),
            self._latency,
            self._hand_over,
            self._return,
            self._waits,
        )

    def scale_operations(self, ops: Rows, share: float) -> None:
        """Let operations take a share of their time."""
        places = self.stretch.replay.places_of(ops)
        places = places[places >= 0]
        self._operation_ns[places] = np.rint(self._operation_ns[places] * share)
        self._operation_changes[places] = True

    def set_operations(self, ops: Rows, lengths_ns: Times) -> None:
        """Let operations take other times."""
        places = self.stretch.replay.places_of(ops)
        self._operation_ns[places[places >= 0]] = lengths_ns[places >= 0]
        self._operation_changes[places[places >= 0]] = True

    def scale_pieces(self, rows: Rows, share: float) -> None:
        """Let pieces of threads take a share of their time, behind the thread that they wait for."""
        self._piece_ns[rows] = np.rint(self._piece_ns[rows] * share)
        self._piece_changes[rows] = True

    def set_pieces(self, rows: range, first_ns: int) -> None:
        """Let the first of pieces that stand together take another time, and the others none."""
        self._piece_ns[rows.start : rows.stop] = 0
        self._piece_ns[rows.start] = first_ns
        self._piece_changes[rows.start : rows.stop] = True

    def unblock(self, calls: Iterable[int]) -> None:
        """Let blocking calls wait for nothing."""
        self._unblocked |= set(calls)

    def scale_lags(self, *, latency: float = 1.0, hand_over: float = 1.0, back: float = 1.0) -> None:
        """Let all lags of a kind take a share of their time."""
        self._latency *= latency
        self._hand_over *= hand_over
        self._return *= back

    def producers(self, op: int) -> tuple[int, ...]:
        """What an operation waits for now."""
        known = self._waits.get(op)
        return tuple(self.stretch.replay.producers(op)) if known is None else known

    def followers(self, ops: set[int]) -> dict[int, list[int]]:
        """The operations that wait for some now, by number, each with which of those."""
        found: dict[int, list[int]] = {}
        for op in self.stretch.replay.ops:
            for producer in self.producers(op):
                if producer in ops:
                    found.setdefault(op, []).append(producer)
        return found

    def wait(self, op: int, producers: Iterable[int]) -> None:
        """Let an operation wait for these alone."""
        self._waits[op] = tuple(dict.fromkeys(producers))


def thinking_before(stretch: Stretch, calls: set[int]) -> Rows:
    """Time outside calls right before pieces of some calls, where another of them came right before."""
    found: list[int] = []
    for rows in stretch.pieces.rows_of.values():
        owners = [stretch.pieces.call[row] for row in rows]
        since: list[int] | None = None
        for row, call in zip(rows, owners, strict=True):
            if call in calls:
                found += since or []
                since = []
            elif call < 0 and since is not None:
                since.append(row)
            elif call >= 0:
                since = None
    return np.array(found, np.int64)


def next_in_stream(stretch: Stretch) -> dict[int, int]:
    """The operation behind each in its stream."""
    found: dict[int, int] = {}
    for own in stretch.operations.sort("start_ns", "op").partition_by("stream"):
        found |= dict(pairwise(own["op"].to_list()))
    return found
