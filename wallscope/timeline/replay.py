"""A stretch of time of one or several ranks played again, with some durations changed.

Threads go from piece to piece, operations start when the last of what they wait for is done, collectives
end when the last participant has come, blocking calls return when what they wait for has ended; what lay
between a cause and its effect in the capture lies there again. Played with nothing changed it gives the
capture back: how far it does not, tells how little it can be believed.
"""

from bisect import bisect_left
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import polars as pl

from wallscope.timeline.dependencies import Dependencies
from wallscope.timeline.nesting import Rows
from wallscope.timeline.placed import Placed, edges_of, first_lags, lags, together, typical_lags
from wallscope.timeline.play import BEFORE_ALL, Awaited, Change, Order, Played, Slack, play
from wallscope.timeline.spans import Times
from wallscope.timeline.stream_order import UNRESOLVED, Tail

_NOTHING = -1
_CLOCKS_APART_NS = 20_000


@dataclass(frozen=True, slots=True)
class Pieces:
    """What threads were in, in order of end: stretches inside a call, or outside calls (-1).

    `process` is that of each thread.
    """

    process: Mapping[int, int]
    thread: list[int]
    start_ns: list[int]
    end_ns: list[int]
    call: list[int]


class Replay:
    """A stretch of one or several ranks, ready to be played.

    Args:
        operations: `OPERATIONS` of the ranks that were issued in the stretch.
        waits: who waits for whom.
        pieces: what the threads that issue to the ranks were in.
        releasing: calls that give memory back, which wait for an idle device, and the last work before each.
        partners: operations of several ranks that are one collective (`PARTNERS`).
    """

    def __init__(
        self,
        operations: pl.DataFrame,
        waits: Dependencies,
        pieces: Pieces,
        releasing: Mapping[int, Tail],
        partners: pl.DataFrame,
    ) -> None:
        self._waits, self._pieces = waits, pieces
        self._rows_of = _rows_by_thread(pieces)
        self._ends_of = {
            thread: [pieces.end_ns[row] for row in rows] for thread, rows in self._rows_of.items()
        }
        placed = together([self._placed(own) for own in operations.partition_by("rank_id")])
        self.ops: list[int] = placed.op.tolist()
        """Numbers of the operations that are played, in order of start; places below are places here."""
        self._places = {op: place for place, op in enumerate(self.ops)}
        self.hand_over_ns = typical_lags(operations, waits)[1]
        """From the end of an operation to the start of what waits for it, mostly; 0 where none did."""
        self.order = self._ordered(placed, releasing, set(operations["call"].to_list()), partners)

    @property
    def places(self) -> Mapping[int, int]:
        """The place of each operation that is played, by number."""
        return self._places

    def run(self, change: Change) -> Mapping[int, int]:
        """Start of each operation that a piece issues, in ns, by number."""
        return dict(zip(self.ops, self.play(change).start_ns, strict=True))

    def play(self, change: Change, slack: Slack | None = None) -> Played:
        """Play the stretch; with other lags between cause and effect than those of the capture, if given."""
        operations = {self._places[op]: ns for op, ns in change.operations.items() if op in self._places}
        order, slack = self._rewired(change.waits, self.order.slack if slack is None else slack)
        return play(order, change, operations, slack)

    def producers(self, op: int) -> list[int]:
        """The operations that an operation that is played waits for, as far as they are played too."""
        order, place = self.order, self._places[op]
        found = [order.first[place], *(producer for producer, _ in order.more[place])]
        return [self.ops[one] for one in found if one < len(self.ops)]

    def _rewired(self, waits: Mapping[int, tuple[int, ...]], slack: Slack) -> tuple[Order, Slack]:
        """The order where some operations wait for others; what lies between is what mostly does."""
        if not waits:
            return self.order, slack
        first, more, lag_ns = list(self.order.first), list(self.order.more), list(slack.lag_ns)
        for op, producers in waits.items():
            place = self._places[op]
            known = {first[place]: lag_ns[place]} | {one: lag_ns[behind] for one, behind in more[place]}
            places = [self._places[one] for one in producers if one in self._places]
            lags = [known.get(one, self.hand_over_ns) for one in places]
            first[place], lag_ns[place] = (places[0], lags[0]) if places else (len(self.ops), 0)
            more[place] = tuple((one, len(lag_ns) + row) for row, one in enumerate(places[1:]))
            lag_ns += lags[1:]
        return self.order._replace(first=first, more=more), slack._replace(lag_ns=lag_ns)

    def _placed(self, own: pl.DataFrame) -> Placed:
        """The operations of one rank that pieces issue; what did not bind is as late as it mostly is."""
        waits = self._waits
        typical_latency_ns, typical_hand_over_ns = typical_lags(own, waits)
        own = own.filter(pl.col("call") >= 0)
        op, call = own["op"].to_numpy().astype(np.int64), own["call"].to_numpy()
        start_ns, end_ns = own["start_ns"].to_numpy(), own["end_ns"].to_numpy()
        is_early = waits.calls.end_ns[call] > start_ns
        issued_ns = np.where(is_early, waits.calls.start_ns[call], waits.calls.end_ns[call])
        row = self._rows(waits.calls.thread[call], issued_ns, is_early)
        held = np.flatnonzero(row >= 0)
        op, row, issued_ns, is_early = op[held], row[held], issued_ns[held], is_early[held]
        start_ns, end_ns = start_ns[held], end_ns[held]
        ends_ns = np.array(self._pieces.end_ns, np.int64)
        is_early |= ends_ns[row] > start_ns  # it starts while the call around its own still lasts
        edges_ns = np.where(is_early, np.array(self._pieces.start_ns, np.int64)[row], ends_ns[row])
        edge = edges_of(op, waits)
        lag_ns = start_ns[edge[:, 0]] - waits.order.end_ns[edge[:, 1]]
        latency_ns = start_ns - issued_ns
        least_ns = latency_ns.copy()
        np.minimum.at(least_ns, edge[:, 0], np.maximum(lag_ns, 0))
        return Placed(
            op,
            row,
            is_early,
            issued_ns - edges_ns,
            start_ns,
            end_ns,
            np.where(latency_ns > least_ns, np.minimum(latency_ns, typical_latency_ns), latency_ns),
            edge,
            np.where(lag_ns > least_ns[edge[:, 0]], np.minimum(lag_ns, typical_hand_over_ns), lag_ns),
        )

    def _rows(self, thread: Rows, at_ns: Times, is_start: npt.NDArray[np.bool_]) -> Rows:
        """The pieces of threads that end at a moment, contain it or start there; -1 without one."""
        found = np.full(thread.size, _NOTHING, np.int64)
        starts_ns = np.array(self._pieces.start_ns, np.int64)
        for one in np.unique(thread).tolist():
            rows = np.array([*self._rows_of.get(one, ()), _NOTHING], np.int64)
            own = np.flatnonzero(thread == one)
            place = np.searchsorted(
                np.array(self._ends_of.get(one, ()), np.int64), at_ns[own] + is_start[own]
            )
            found[own] = rows[place]
        is_inside = (found >= 0) & (np.append(starts_ns, 0)[found] <= at_ns)
        return np.where(is_inside, found, _NOTHING)

    def _ordered(
        self, placed: Placed, releasing: Mapping[int, Tail], issuing: set[int], partners: pl.DataFrame
    ) -> Order:
        """Everything that a run goes through, with places instead of numbers."""
        waits, pieces = self._waits, self._pieces
        count, row_count = len(self.ops), len(pieces.call)
        outside: dict[int, int] = {}
        place_of = _Places(self._places, outside, count + 1)
        first, more = _by_waiting(placed, place_of)
        before, first_ns = self._before()
        awaited = self._awaited(releasing, place_of)
        released = self._released(issuing)
        row = placed.row
        ref = np.where(placed.is_early, before[row], row) if count else row
        lengths_ns = placed.end_ns - placed.start_ns
        meets, members = _placed_partners(partners, self._places)
        for group in members:
            came_ns = max(waits.start_ns[self.ops[place]] for place in group)
            for place in group:
                lengths_ns[place] = waits.end_ns[self.ops[place]] - came_ns
        number = np.concatenate((np.arange(row_count), np.arange(count) + row_count))
        at_ns = np.concatenate((self._settled_ns(awaited, placed), placed.start_ns))
        tie = np.concatenate((np.arange(row_count), placed.op))
        return Order(
            events=number[np.lexsort((tie, number >= row_count, at_ns))].tolist(),
            before=before.tolist(),
            thread_start_ns=first_ns,
            piece_ns=(np.array(pieces.end_ns, np.int64) - np.array(pieces.start_ns, np.int64)).tolist(),
            released={row: other for row, (other, _) in released.items()},
            awaited=awaited,
            is_special=[place in released or place in awaited for place in range(row_count)],
            ref=ref.tolist(),
            row=row.tolist(),
            is_early=placed.is_early.tolist(),
            offset_ns=placed.offset_ns.tolist(),
            operation_ns=lengths_ns.tolist(),
            first=first,
            more=more,
            meets=meets,
            members=members,
            captured_end_ns=[*placed.end_ns.tolist(), BEFORE_ALL, *(waits.end_ns[op] for op in outside)],
            slack=Slack(
                placed.latency_ns.tolist(),
                [*first_lags(placed), *(lag for lag, is_more in lags(placed) if is_more)],
                {
                    row: 0 if one.is_idle and not one.is_releasing else one.return_ns
                    for row, one in awaited.items()
                },
                {row: since_ns for row, (_, since_ns) in released.items()},
            ),
        )

    def _settled_ns(self, awaited: Mapping[int, Awaited], placed: Placed) -> Times:
        """When each piece ends, but not before what it waits for has begun: clocks differ by a bit."""
        settled_ns = np.array(self._pieces.end_ns, np.int64)
        begun_ns, count = placed.start_ns.tolist(), len(self.ops)
        moved = []
        for row, one in awaited.items():
            last_ns = max((begun_ns[place] for place in one.places if place < count), default=BEFORE_ALL)
            if 0 <= last_ns - settled_ns[row] <= _CLOCKS_APART_NS:
                settled_ns[row] = last_ns + 1
                moved.append(self._pieces.thread[row])
        for thread in set(moved):
            rows = self._rows_of[thread]
            settled_ns[rows] = np.maximum.accumulate(settled_ns[rows])
        return settled_ns

    def _before(self) -> tuple[Rows, list[int]]:
        """The piece before each of its thread, or a place behind all pieces; when those threads begin."""
        pieces = self._pieces
        before = np.full(len(pieces.call), _NOTHING, np.int64)
        first_ns: list[int] = []
        for rows in self._rows_of.values():
            before[rows[1:]] = rows[:-1]
            before[rows[0]] = len(pieces.call) + len(first_ns)
            first_ns.append(pieces.start_ns[rows[0]])
        return before, first_ns

    def _awaited(self, releasing: Mapping[int, Tail], place_of: "_Places") -> dict[int, Awaited]:
        """What the pieces wait for in which a call blocks or gives memory back, at the end of the call."""
        waits, pieces = self._waits, self._pieces
        found = {}
        for row, (call, end_ns) in enumerate(zip(pieces.call, pieces.end_ns, strict=True)):
            if call < 0 or (call not in waits.blocking and call not in releasing):
                continue
            if end_ns != waits.call_end_ns[call]:
                continue
            is_releasing = call in releasing
            tail = releasing[call] if is_releasing else waits.blocking[call]
            ops = [op for op in tail if op != UNRESOLVED]
            done_ns = max((waits.end_ns[op] for op in ops), default=BEFORE_ALL)
            entered_ns = waits.call_start_ns[call]
            is_idle = done_ns <= entered_ns
            if is_releasing and done_ns > end_ns:  # this one did not wait
                ops = []
            found[row] = Awaited(
                call,
                tuple(place_of[op] for op in ops),
                is_releasing,
                is_idle,
                end_ns - (max(done_ns, entered_ns) if is_releasing else done_ns),
            )
        return found

    def _released(self, issuing: set[int]) -> dict[int, tuple[int, int]]:
        """Pieces in which a thread outside calls went on after another: its last piece, and the time since.

        The thread waited for the other one of its process, which issued meanwhile and may have gone on after
        its last call.
        """
        pieces = self._pieces
        call, ends_ns = np.array(pieces.call, np.int64), np.array(pieces.end_ns, np.int64)
        starts_ns, threads = np.array(pieces.start_ns, np.int64), np.array(pieces.thread, np.int64)
        process = np.array([pieces.process[thread] for thread in pieces.thread], np.int64)
        issues = np.flatnonzero((call >= 0) & np.isin(call, np.fromiter(issuing, np.int64)))
        found = {}
        for thread, rows in self._rows_of.items():
            issued = issues[process[issues] == pieces.process[thread]]
            if not issued.size or (threads[issued] == thread).all():
                continue
            own = np.array(rows, np.int64)
            first, last = _runs(call[own] < 0)
            place = np.searchsorted(ends_ns[issued], ends_ns[own[last]]) - 1
            has_gone_on = (place >= 0) & (ends_ns[issued[place]] > starts_ns[own[first]])
            has_gone_on &= threads[issued[place]] != thread
            for run in np.flatnonzero(has_gone_on).tolist():
                other = pieces.thread[int(issued[place[run]])]
                until_ns = int(ends_ns[own[last[run]]])
                left = self._rows_of[other][bisect_left(self._ends_of[other], until_ns) - 1]
                between = rows[first[run] : last[run] + 1]
                row = next(row for row in between if pieces.end_ns[row] > pieces.end_ns[left])
                found[row] = (left, pieces.end_ns[row] - pieces.end_ns[left])
        return found


def _runs(is_so: npt.NDArray[np.bool_]) -> tuple[Rows, Rows]:
    """The first and the last place of each run of what is so."""
    edge = np.diff(np.concatenate(([0], is_so.astype(np.int8), [0])))
    return np.flatnonzero(edge > 0), np.flatnonzero(edge < 0) - 1


class _Places:
    """Places of operations; those that are not played get one behind the others, where their end stands."""

    def __init__(self, played: Mapping[int, int], outside: dict[int, int], behind: int) -> None:
        self._played, self._outside, self._behind = played, outside, behind

    def __getitem__(self, op: int) -> int:
        place = self._played.get(op)
        return self._behind + self._outside.setdefault(op, len(self._outside)) if place is None else place


def _rows_by_thread(pieces: Pieces) -> dict[int, list[int]]:
    found: dict[int, list[int]] = {}
    for row, thread in enumerate(pieces.thread):
        found.setdefault(thread, []).append(row)
    return found


def _by_waiting(placed: Placed, place_of: _Places) -> tuple[list[int], list[tuple[tuple[int, int], ...]]]:
    """The first producer of each operation, and the others with the places of their lags."""
    count = placed.op.size
    first = [count] * count
    more: list[tuple[tuple[int, int], ...]] = [()] * count
    behind, last = count, -1
    for waiting, producer in placed.edge.tolist():
        place = place_of[producer]
        if waiting == last:
            more[waiting] += ((place, behind),)
            behind += 1
        else:
            first[waiting] = place
        last = waiting
    return first, more


def _placed_partners(partners: pl.DataFrame, places: Mapping[int, int]) -> tuple[list[int], list[list[int]]]:
    """The collective of each operation or -1, and its participants; those not all played are left out."""
    participants: dict[int, list[int]] = {}
    for op, collective in partners.iter_rows():
        participants.setdefault(collective, []).append(op)
    whole = [members for members in participants.values() if all(op in places for op in members)]
    members = [[places[op] for op in group] for group in whole]
    meets = [-1] * len(places)
    for number, group in enumerate(members):
        for place in group:
            meets[place] = number
    return meets, members
