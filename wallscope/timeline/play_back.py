"""A run seen from its end: what bound each moment, and how much later everything could have been."""

from collections.abc import Iterator
from enum import StrEnum
from typing import NamedTuple

from wallscope.timeline.play import LEAST_WAIT_NS, Order, Played

_AFTER_ALL = 2**62


class Bound(StrEnum):
    """What a stretch of a played path is."""

    OPERATION = "operation"
    HAND_OVER = "hand-over"  # from the end of an operation to the start of another
    LATENCY = "launch-latency"  # from the issue of an operation to its start
    PIECE = "piece"  # a thread in a call, or outside
    RETURN = "return"  # from the end of an operation to the return of the call that waited for it
    EARLIER = "earlier"  # before the stretch began, or on what is not played


class Link(NamedTuple):
    """A stretch of a played path; `place` is that of the operation or piece, `next_place` who waited."""

    start_ns: int
    end_ns: int
    bound: Bound
    place: int
    next_place: int = -1


def played_path(order: Order, played: Played, place: int, from_ns: int) -> list[Link]:
    """What bound the start of an operation, back to a moment: links that tile that time, latest first."""
    walk = _Walk(order, played, from_ns, played.start_ns[place])
    following: int | None = place
    while following is not None and walk.at_ns > from_ns:
        following = walk.operation(following)
    walk.emit(Bound.EARLIER, from_ns, -1)
    return walk.links


class _Walk:
    """One walk back; where it stands, and what it passed."""

    def __init__(self, order: Order, played: Played, from_ns: int, at_ns: int) -> None:
        self._order, self._played = order, played
        self._from_ns, self.at_ns = from_ns, at_ns
        self.links: list[Link] = []

    def emit(self, bound: Bound, start_ns: int, place: int, next_place: int = -1) -> None:
        """Give the time from a moment on to a link, and stand there."""
        start_ns = max(start_ns, self._from_ns)
        if start_ns < self.at_ns:
            self.links.append(Link(start_ns, self.at_ns, bound, place, next_place))
            self.at_ns = start_ns

    def operation(self, place: int) -> int | None:
        """Go back from the start of an operation; returns the one to go on at."""
        order, played = self._order, self._played
        start_ns = played.start_ns[place]
        for producer, lag_ns in _producers(played, place):
            if played.end_ns[producer] + lag_ns == start_ns:
                if producer >= len(played.start_ns):
                    return None
                self.emit(Bound.HAND_OVER, played.end_ns[producer], producer, place)
                self.emit(Bound.OPERATION, played.start_ns[producer], producer, place)
                return producer
        row = order.ref[place]
        issued_ns = played.left_ns[row] + order.offset_ns[place]
        if order.is_early[place]:
            self.emit(Bound.PIECE, issued_ns, order.row[place])
        else:
            self.emit(Bound.LATENCY, issued_ns, place)
        return self._thread(row)

    def _thread(self, row: int) -> int | None:
        """Go back along threads from the end of a piece; returns the operation that a call waited for."""
        order, played = self._order, self._played
        while self.at_ns > self._from_ns and row < len(order.piece_ns):
            if row in order.released:
                other = order.released[row]
                self.emit(Bound.PIECE, played.left_ns[other], row)
                row = other
                continue
            awaited = order.awaited.get(row)
            if awaited is not None and awaited.places:
                last = max(awaited.places, key=lambda one: (played.end_ns[one], one))
                entered_ns = played.left_ns[order.before[row]]
                if played.end_ns[last] > entered_ns and last < len(played.start_ns):
                    self.emit(Bound.RETURN, played.end_ns[last], row)
                    self.emit(Bound.OPERATION, played.start_ns[last], last)
                    return last
            self.emit(Bound.PIECE, played.left_ns[order.before[row]], row)
            row = order.before[row]
        return None


def _producers(played: Played, place: int) -> Iterator[tuple[int, int]]:
    """What an operation waited for, and how long after that it could start."""
    if played.first[place] != len(played.start_ns):
        yield played.first[place], played.lag_ns[place]
    for producer, lag_place in played.more[place]:
        yield producer, played.lag_ns[lag_place]


def latest_ends_ns(order: Order, played: Played, place: int) -> list[int]:
    """How late each operation could end without holding up one that starts where it does, in ns.

    What it does not wait for could go on for ever: a very large number.
    """
    late_ns = [_AFTER_ALL] * len(played.end_ns)
    left_ns = [_AFTER_ALL] * len(played.left_ns)
    row_count = len(order.piece_ns)
    come_ns = [_AFTER_ALL] * len(order.members)
    for event in reversed(order.events):
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
