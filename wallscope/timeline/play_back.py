"""A run seen from its end: what bound each moment, and how much later everything could have been."""

from collections.abc import Iterator
from enum import StrEnum
from typing import NamedTuple

import numpy as np

from wallscope.arrays.columns import Rows
from wallscope.timeline.order import Order
from wallscope.timeline.play import LEAST_WAIT_NS, Played
from wallscope.timeline.runs import referred
from wallscope.timeline.spans import AFTER_ALL, Times


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
    """Stretches of a played path, latest first, in columns.

    `bound` counts in `BOUNDS`, `place` is that of the operation or the piece, `next_place` is who waited for
    an operation, -1 elsewhere.
    """

    start_ns: Times
    end_ns: Times
    bound: Rows
    place: Rows
    next_place: Rows


def held_by(played: Played) -> list[int]:
    """The operation that let each one start when it did, by place; -1 where that was the thread.

    Of several the first that it waits for.
    """
    start_ns, end_ns = np.asarray(played.start_ns), np.asarray(played.end_ns)
    first, lag_ns = np.asarray(played.first), played.lag_ns
    count = start_ns.size
    binds = (first != count) & (end_ns[first] + np.asarray(lag_ns)[:count] == start_ns)
    found: list[int] = np.where(binds, first, -1).tolist()
    for place, more in played.more.items():
        if found[place] < 0:
            binding = (one for one, lag in more if played.end_ns[one] + lag_ns[lag] == played.start_ns[place])
            found[place] = next(binding, -1)
    return found


def played_path(order: Order, played: Played, holders: list[int], place: int, from_ns: int) -> Links:
    """What bound the start of an operation, back to a moment: links that tile that time, latest first.

    `holders` are what let each operation start (`held_by`).
    """
    walk = _Walk(order, played, holders, from_ns, played.start_ns[place])
    following: int | None = place
    while following is not None and walk.at_ns > from_ns:
        following = walk.operation(following)
    walk.pass_by(_EARLIER, from_ns, -1)
    return walk.links(played.start_ns[place])


class _Walk:
    """One walk back; where it stands, and what it passed: each since when, the latest first."""

    def __init__(self, order: Order, played: Played, holders: list[int], from_ns: int, at_ns: int) -> None:
        self._order, self._played, self._holders = order, played, holders
        self._from_ns, self.at_ns = from_ns, at_ns
        self._left_ns = np.asarray(played.left_ns)
        self._passed: list[tuple[Rows, Times, Rows, Rows]] = []

    def pass_by(self, bound: int, start_ns: int, place: int, next_place: int = -1) -> None:
        """Give the time from a moment on to one thing, and stand there."""
        columns = (np.array([value], np.int64) for value in (bound, start_ns, place, next_place))
        self._passed.append(tuple(columns))  # type: ignore[arg-type]  # four of them
        self.at_ns = min(self.at_ns, start_ns)

    def links(self, until_ns: int) -> Links:
        """What was passed, cut to what is between the ends of the walk; what took no time is left out."""
        bound, start_ns, place, next_place = (
            np.concatenate(column) for column in zip(*self._passed, strict=True)
        )
        edges_ns = np.concatenate(([until_ns], np.maximum(start_ns, self._from_ns)))
        edges_ns = np.minimum.accumulate(edges_ns)
        held = np.flatnonzero(edges_ns[1:] < edges_ns[:-1])
        return Links(edges_ns[1:][held], edges_ns[:-1][held], bound[held], place[held], next_place[held])

    def operation(self, place: int) -> int | None:
        """Go back from the start of an operation to one that its thread let start, and along that thread.

        Returns the operation to go on at.
        """
        order, played, holders, count = self._order, self._played, self._holders, len(self._played.start_ns)
        chain, at_ns = [place], self.at_ns
        holder = holders[place]
        while 0 <= holder < count and at_ns > self._from_ns:
            chain.append(holder)
            at_ns = min(at_ns, played.start_ns[holder], played.end_ns[holder])
            holder = holders[holder]
        self._pass_chain(np.array(chain, np.int64))
        self.at_ns = at_ns
        if holder > count or at_ns <= self._from_ns:
            return None
        last = chain[-1]
        row = order.ref[last]
        issued_ns = played.left_ns[row] + order.offset_ns[last]
        if order.is_early[last]:
            self.pass_by(_PIECE, issued_ns, order.row[last])
        else:
            self.pass_by(_LATENCY, issued_ns, last)
        return self._thread(row)

    def _pass_chain(self, chain: Rows) -> None:
        """Give time to operations, each of which held the one before it, and to what lies between."""
        held, count = chain[1:], len(chain) - 1
        edges_ns = np.column_stack(
            [np.asarray(self._played.end_ns)[held], np.asarray(self._played.start_ns)[held]]
        )
        waiting = np.column_stack([chain[:-1], np.full(count, -1)])
        bound = np.tile([_HAND_OVER, _OPERATION], count)
        self._passed.append((bound, edges_ns.ravel(), held.repeat(2), waiting.ravel()))

    def _thread(self, row: int) -> int | None:
        """Go back along threads from the end of a piece; returns the operation that a call waited for."""
        order, legs, row_count = self._order, self._order.legs, len(self._order.piece_ns)
        while self.at_ns > self._from_ns and row < row_count:
            begin = int(legs.begin[legs.leg[row]])
            self._pass_leg(begin, row)
            row = begin - 1 if legs.leg[row] >= legs.thread_count else row_count
            if self.at_ns > self._from_ns and row < row_count:
                awaited = self._awaited(row)
                if awaited is not None:
                    return awaited
                following = order.released.get(row, order.before[row])
                self.pass_by(_PIECE, self._played.left_ns[following], row)
                row = following
        return None

    def _pass_leg(self, begin: int, row: int) -> None:
        """Give time to the pieces of a leg from one of them back to its begin, or to where the walk ends."""
        first = begin + int(np.searchsorted(self._left_ns[begin : row + 1], self._from_ns, side="right"))
        rows = np.arange(row, first - 1, -1)
        if rows.size:
            start_ns = self._left_ns[np.asarray(self._order.before)[rows]]
            nobody = np.full(rows.size, -1)
            self._passed.append((np.full(rows.size, _PIECE), start_ns, rows, nobody))
            self.at_ns = min(self.at_ns, int(start_ns[-1]))

    def _awaited(self, row: int) -> int | None:
        """The operation that a call waited for at the end of a piece, if it did."""
        order, played = self._order, self._played
        awaited = order.awaited.get(row)
        if row in order.released or awaited is None or not awaited.places:
            return None
        last = max(awaited.places, key=lambda one: (played.end_ns[one], one))
        if played.end_ns[last] <= played.left_ns[order.before[row]] or last >= len(played.start_ns):
            return None
        self.pass_by(_RETURN, played.end_ns[last], row)
        self.pass_by(_OPERATION, played.start_ns[last], last)
        return last


def _producers(played: Played, place: int) -> Iterator[tuple[int, int]]:
    """What an operation waited for, and how long after that it could start."""
    if played.first[place] != len(played.start_ns):
        yield played.first[place], played.lag_ns[place]
    for producer, lag_place in played.more.get(place, ()):
        yield producer, played.lag_ns[lag_place]


def _events(order: Order) -> list[int]:
    """Pieces that begin a leg, and operations counted on behind those, in the order in which they came."""
    settled_ns, begun_ns = np.asarray(order.settled_ns)[order.legs.waiting], np.asarray(order.begun_ns)
    number = np.arange(settled_ns.size + begun_ns.size)
    found: list[int] = np.lexsort(
        (number, number >= settled_ns.size, np.concatenate((settled_ns, begun_ns)))
    ).tolist()
    return found


def latest_ends_ns(order: Order, played: Played, place: int) -> list[int]:
    """How late each operation could end without holding up one that starts where it does, in ns.

    What it does not wait for could go on for ever: a very large number.
    """
    legs, refers = order.legs, referred(order)
    along_ns = legs.along_ns(np.asarray(played.piece_ns))
    leg = legs.leg[refers].tolist()
    since_ns = (legs.since_ns(along_ns, refers) + np.asarray(played.since_ns)).tolist()
    behind_leg = legs.leg[legs.behind].tolist()
    behind_ns = legs.since_ns(along_ns, legs.behind).tolist()
    late_ns = [AFTER_ALL] * len(played.end_ns)
    leg_ns = [AFTER_ALL] * legs.begin.size
    come_ns = [AFTER_ALL] * len(order.members)
    waiting = legs.waiting.tolist()
    for event in reversed(_events(order)):
        if event < len(waiting):
            left_ns = leg_ns[legs.thread_count + event]
            entered_ns = _loosened_ns(waiting[event], left_ns, order, played, late_ns) - behind_ns[event]
            leg_ns[behind_leg[event]] = min(leg_ns[behind_leg[event]], entered_ns)
            continue
        one = event - len(waiting)
        start_ns = late_ns[one] - played.operation_ns[one]
        meeting = order.meets[one]
        if meeting >= 0:
            if come_ns[meeting] == AFTER_ALL:
                members = order.members[meeting]
                come_ns[meeting] = min(late_ns[other] - played.operation_ns[other] for other in members)
            start_ns = come_ns[meeting]
        if one == place:
            start_ns = min(start_ns, played.start_ns[place])
        leg_ns[leg[one]] = min(leg_ns[leg[one]], start_ns - since_ns[one])
        for producer, lag_ns in _producers(played, one):
            late_ns[producer] = min(late_ns[producer], start_ns - lag_ns)
    return late_ns[: len(played.start_ns)]


def _loosened_ns(row: int, left_ns: int, order: Order, played: Played, late_ns: list[int]) -> int:
    """How late what a piece that waits goes on after could be, if it could be left at a moment."""
    length_ns = played.piece_ns[row]
    if row in order.released:
        return left_ns - min(played.after_ns[row], length_ns)
    awaited, spent_ns = order.awaited[row], length_ns
    if awaited.places:
        return_ns = played.return_ns[row]
        if not awaited.is_idle:
            spent_ns = min(length_ns, LEAST_WAIT_NS)
        if awaited.is_releasing:
            spent_ns = return_ns
        for place in awaited.places:
            late_ns[place] = min(late_ns[place], left_ns - return_ns)
    return left_ns - spent_ns
