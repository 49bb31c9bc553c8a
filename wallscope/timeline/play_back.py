"""A run seen from its end: what bound each moment, and how much later everything could have been."""

from collections.abc import Iterator
from enum import StrEnum
from typing import NamedTuple

import numpy as np

from wallscope.timeline.order import Order
from wallscope.timeline.play import LEAST_WAIT_NS, Played

_AFTER_ALL = 2**62


class Bound(StrEnum):
    """What a stretch of a played path is."""

    OPERATION = "operation"
    HAND_OVER = "hand-over"  # from the end of an operation to the start of another
    LATENCY = "launch-latency"  # from the issue of an operation to its start
    PIECE = "piece"  # a thread in a call, or outside
    RETURN = "return"  # from the end of an operation to the return of the call that waited for it
    EARLIER = "earlier"  # before the stretch began, or on what is not played


BOUNDS = tuple(Bound)
_OPERATION, _HAND_OVER, _LATENCY, _PIECE, _RETURN, _EARLIER = range(len(BOUNDS))


class Links(NamedTuple):
    """Stretches of a played path, latest first, in columns: millions of rows would be slow to make.

    `bound` counts in `BOUNDS`, `place` is that of the operation or the piece, `next_place` is who waited for
    an operation, -1 elsewhere.
    """

    start_ns: list[int]
    end_ns: list[int]
    bound: list[int]
    place: list[int]
    next_place: list[int]


def played_path(order: Order, played: Played, place: int, from_ns: int) -> Links:
    """What bound the start of an operation, back to a moment: links that tile that time, latest first."""
    walk = _Walk(order, played, from_ns, played.start_ns[place])
    following: int | None = place
    while following is not None and walk.at_ns > from_ns:
        following = walk.operation(following)
    walk.emit(_EARLIER, from_ns, -1)
    return walk.links


class _Walk:
    """One walk back; where it stands, and what it passed."""

    def __init__(self, order: Order, played: Played, from_ns: int, at_ns: int) -> None:
        self._order, self._played = order, played
        self._from_ns, self.at_ns = from_ns, at_ns
        self._special = order.released.keys() | order.awaited.keys()
        self.links = Links([], [], [], [], [])

    def emit(self, bound: int, start_ns: int, place: int, next_place: int = -1) -> None:
        """Give the time from a moment on to a link, and stand there."""
        start_ns = max(start_ns, self._from_ns)
        if start_ns < self.at_ns:
            links = self.links
            links.start_ns.append(start_ns)
            links.end_ns.append(self.at_ns)
            links.bound.append(bound)
            links.place.append(place)
            links.next_place.append(next_place)
            self.at_ns = start_ns

    def operation(self, place: int) -> int | None:
        """Go back from the start of an operation; returns the one to go on at."""
        order, played = self._order, self._played
        start_ns, count = played.start_ns[place], len(played.start_ns)
        producer = played.first[place]
        if producer == count or played.end_ns[producer] + played.lag_ns[place] != start_ns:
            producer = -1
            for other, lag_place in played.more.get(place, ()):
                if played.end_ns[other] + played.lag_ns[lag_place] == start_ns:
                    producer = other
                    break
        if producer > count:
            return None
        if producer >= 0:
            self.emit(_HAND_OVER, played.end_ns[producer], producer, place)
            self.emit(_OPERATION, played.start_ns[producer], producer, place)
            return producer
        row = order.ref[place]
        issued_ns = played.left_ns[row] + order.offset_ns[place]
        if order.is_early[place]:
            self.emit(_PIECE, issued_ns, order.row[place])
        else:
            self.emit(_LATENCY, issued_ns, place)
        return self._thread(row)

    def _thread(self, row: int) -> int | None:
        """Go back along threads from the end of a piece; returns the operation that a call waited for."""
        order, left_ns = self._order, self._played.left_ns
        before, special, row_count = order.before, self._special, len(order.piece_ns)
        while self.at_ns > self._from_ns and row < row_count:
            if row in special:
                awaited = self._awaited(row)
                if awaited is not None:
                    return awaited
            following = order.released.get(row, before[row]) if row in special else before[row]
            self.emit(_PIECE, left_ns[following], row)
            row = following
        return None

    def _awaited(self, row: int) -> int | None:
        """The operation that a call waited for at the end of a piece, if it did."""
        order, played = self._order, self._played
        awaited = order.awaited.get(row)
        if row in order.released or awaited is None or not awaited.places:
            return None
        last = max(awaited.places, key=lambda one: (played.end_ns[one], one))
        if played.end_ns[last] <= played.left_ns[order.before[row]] or last >= len(played.start_ns):
            return None
        self.emit(_RETURN, played.end_ns[last], row)
        self.emit(_OPERATION, played.start_ns[last], last)
        return last


def _producers(played: Played, place: int) -> Iterator[tuple[int, int]]:
    """What an operation waited for, and how long after that it could start."""
    if played.first[place] != len(played.start_ns):
        yield played.first[place], played.lag_ns[place]
    for producer, lag_place in played.more.get(place, ()):
        yield producer, played.lag_ns[lag_place]


def _events(order: Order) -> list[int]:
    """Pieces, and operations counted on behind them, in the order in which they came in the capture."""
    settled_ns, begun_ns = np.asarray(order.settled_ns), np.asarray(order.begun_ns)
    number = np.arange(settled_ns.size + begun_ns.size)
    found: list[int] = np.lexsort(
        (number, number >= settled_ns.size, np.concatenate((settled_ns, begun_ns)))
    ).tolist()
    return found


def latest_ends_ns(order: Order, played: Played, place: int) -> list[int]:
    """How late each operation could end without holding up one that starts where it does, in ns.

    What it does not wait for could go on for ever: a very large number.
    """
    late_ns = [_AFTER_ALL] * len(played.end_ns)
    left_ns = [_AFTER_ALL] * len(played.left_ns)
    row_count = len(order.piece_ns)
    come_ns = [_AFTER_ALL] * len(order.members)
    for event in reversed(_events(order)):
        if event < row_count:
            _loosen_piece(event, order, played, late_ns, left_ns)
            continue
        one = event - row_count
        start_ns = late_ns[one] - played.operation_ns[one]
        meeting = order.meets[one]
        if meeting >= 0:
            if come_ns[meeting] == _AFTER_ALL:
                members = order.members[meeting]
                come_ns[meeting] = min(late_ns[other] - played.operation_ns[other] for other in members)
            start_ns = come_ns[meeting]
        if one == place:
            start_ns = min(start_ns, played.start_ns[place])
        ref = order.ref[one]
        left_ns[ref] = min(left_ns[ref], start_ns - played.since_ns[one])
        for producer, lag_ns in _producers(played, one):
            late_ns[producer] = min(late_ns[producer], start_ns - lag_ns)
    return late_ns[: len(played.start_ns)]


def _loosen_piece(row: int, order: Order, played: Played, late_ns: list[int], left_ns: list[int]) -> None:
    """How late what a piece goes on behind could be."""
    length_ns = played.piece_ns[row]
    if row in order.released:
        other = order.released[row]
        left_ns[other] = min(left_ns[other], left_ns[row] - min(played.after_ns[row], length_ns))
        return
    awaited = order.awaited.get(row)
    spent_ns = length_ns
    if awaited is not None and awaited.places:
        return_ns = played.return_ns[row]
        if not awaited.is_idle:
            spent_ns = min(length_ns, LEAST_WAIT_NS)
        if awaited.is_releasing:
            spent_ns = return_ns
        for place in awaited.places:
            late_ns[place] = min(late_ns[place], left_ns[row] - return_ns)
    before = order.before[row]
    left_ns[before] = min(left_ns[before], left_ns[row] - spent_ns)
