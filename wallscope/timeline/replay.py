"""A stretch of time of one or several ranks played again, with some durations changed.

Threads go from piece to piece, operations start when the last of what they wait for is done, collectives
end when the last participant has come, blocking calls return when what they wait for has ended; what lay
between a cause and its effect in the capture lies there again. Played with nothing changed it gives the
capture back: how far it does not, tells how little it can be believed.
"""

from collections.abc import Mapping
from functools import cached_property
from itertools import islice

import numpy as np
import numpy.typing as npt
import polars as pl

from wallscope.arrays.columns import Rows
from wallscope.arrays.lookup import Places, are_among
from wallscope.thresholds import REPLAY_CLOCKS_APART_NS
from wallscope.timeline.dependencies import Dependencies
from wallscope.timeline.legs import legs
from wallscope.timeline.order import Awaited, Order, Slack
from wallscope.timeline.pieces import Pieces
from wallscope.timeline.placed import Placed, edges_of, first_lags, is_further, together, typical_lags
from wallscope.timeline.play import Change, Lengths, Played, lengths, play, starts
from wallscope.timeline.runs import Runs, runs
from wallscope.timeline.spans import BEFORE_ALL, Times, numbers
from wallscope.timeline.stream_order import UNRESOLVED, Tail


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
        self._waits, self._pieces, self._operations = waits, pieces, operations
        placed = together([self._placed(own) for own in operations.partition_by("rank_id")])
        self.op = placed.op
        """Numbers of the operations that are played, in order of start; places below are places here."""
        self.ops: list[int] = placed.op.tolist()
        """The same one by one."""
        self._place_of = Places(placed.op)
        self.order = self._ordered(placed, releasing, partners)
        self._runs = runs(self.order)

    @cached_property
    def places(self) -> Mapping[int, int]:
        """The place of each operation that is played, by number."""
        return {op: place for place, op in enumerate(self.ops)}

    @cached_property
    def hand_over_ns(self) -> int:
        """From the end of an operation to the start of what waits for it, mostly; 0 where none did."""
        return typical_lags(self._operations, self._waits)[1]

    def places_of(self, ops: Rows) -> Rows:
        """The place of each operation by its number, -1 where it is not played."""
        return self._place_of.of(ops)

    def starts(self, change: Change, places: Rows) -> list[int]:
        """When operations at some places start in a run, in ns."""
        return starts(*self._told(change, self.order.slack), change.unblocked, places)

    def play(self, change: Change, slack: Slack | None = None) -> Played:
        """Play the stretch; with other lags between cause and effect than those of the capture, if given."""
        return play(*self._told(change, self.order.slack if slack is None else slack), change.unblocked)

    def producers(self, op: int) -> list[int]:
        """The operations that an operation that is played waits for, as far as they are played too."""
        order, place = self.order, self.places[op]
        found = [order.first[place], *(producer for producer, _ in order.more.get(place, ()))]
        return [self.ops[one] for one in found if one < len(self.ops)]

    def _told(self, change: Change, slack: Slack) -> tuple[Order, Runs, Lengths]:
        """What is gone through with a change, and how long everything takes."""
        order, own_runs = self.order, self._runs
        if change.waits:
            order, slack = self._rewired(change.waits, slack)
            own_runs = runs(order)
        return order, own_runs, lengths(order, change, self.places_of(change.operations.which), slack)

    def _rewired(self, waits: Mapping[int, tuple[int, ...]], slack: Slack) -> tuple[Order, Slack]:
        """The order where some operations wait for others; what lies between is what mostly does."""
        first, more, lag_ns = list(self.order.first), dict(self.order.more), list(slack.lag_ns)
        for op, producers in waits.items():
            place = self.places[op]
            known = {first[place]: lag_ns[place]}
            known |= {one: lag_ns[behind] for one, behind in more.get(place, ())}
            places = [self.places[one] for one in producers if one in self.places]
            lags = [known.get(one, self.hand_over_ns) for one in places]
            first[place], lag_ns[place] = (places[0], lags[0]) if places else (len(self.ops), 0)
            more[place] = tuple((one, len(lag_ns) + row) for row, one in enumerate(places[1:]))
            lag_ns += lags[1:]
        order = self.order._replace(first=numbers(np.array(first, np.int64)), more=more)
        return order, slack._replace(lag_ns=numbers(np.array(lag_ns, np.int64)))

    def _placed(self, own: pl.DataFrame) -> Placed:
        """The operations of one rank that pieces issue; what did not bind is as late as it mostly is."""
        waits = self._waits
        typical_latency_ns, typical_hand_over_ns = typical_lags(own, waits)
        call = own["call"].to_numpy()
        issued = np.flatnonzero(call >= 0)
        call, op = call[issued], own["op"].to_numpy()[issued].astype(np.int64)
        start_ns, end_ns = own["start_ns"].to_numpy()[issued], own["end_ns"].to_numpy()[issued]
        is_early = waits.calls.end_ns[call] > start_ns
        issued_ns = np.where(is_early, waits.calls.start_ns[call], waits.calls.end_ns[call])
        row = self._pieces.at(waits.calls.thread[call], issued_ns, is_early)
        held = np.flatnonzero(row >= 0)
        op, row, issued_ns, is_early = op[held], row[held], issued_ns[held], is_early[held]
        start_ns, end_ns = start_ns[held], end_ns[held]
        starts_ns, ends_ns = np.asarray(self._pieces.start_ns), np.asarray(self._pieces.end_ns)
        is_early |= ends_ns[row] > start_ns  # it starts while the call around its own still lasts
        edges_ns = np.where(is_early, starts_ns[row], ends_ns[row])
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

    def _ordered(self, placed: Placed, releasing: Mapping[int, Tail], partners: pl.DataFrame) -> Order:
        """Everything that a run goes through, with places instead of numbers."""
        waits, pieces = self._waits, self._pieces
        count = placed.op.size
        tails = self._tails(releasing)
        awaited_ops = np.array([op for _, ops in tails.values() for op in ops], np.int64)
        place, outside = self._with_outside(np.concatenate((placed.edge[:, 1], awaited_ops)))
        first, more = _by_waiting(placed, place[: len(placed.edge)])
        awaited = _awaited(tails, place[len(placed.edge) :].tolist())
        released = pieces.released(self._operations["call"].to_numpy())
        before, settled_ns = pieces.before, self._settled_ns(awaited, placed)
        settled = numbers(settled_ns)
        waiting = {row: before[row] for row in awaited} | {row: other for row, (other, _) in released.items()}
        meets, members, lengths_ns = self._meeting(partners, placed)
        further = is_further(placed)
        return Order(
            legs=legs(pieces.first, waiting, lambda row: pieces.turn(row, settled[row]), len(pieces.call)),
            settled_ns=settled,
            begun_ns=numbers(placed.start_ns),
            before=numbers(before),
            thread_start_ns=np.asarray(pieces.start_ns)[pieces.first].tolist(),
            piece_ns=numbers(np.asarray(pieces.end_ns) - np.asarray(pieces.start_ns)),
            released={row: other for row, (other, _) in released.items()},
            awaited=awaited,
            ref=numbers(np.where(placed.is_early, before[placed.row], placed.row) if count else placed.row),
            row=numbers(placed.row),
            is_early=numbers(placed.is_early.astype(np.int64)),
            offset_ns=numbers(placed.offset_ns),
            operation_ns=numbers(lengths_ns),
            first=numbers(first),
            more=more,
            meets=numbers(meets),
            members=members,
            captured_end_ns=numbers(
                np.concatenate((placed.end_ns, [BEFORE_ALL], waits.order.end_ns[outside]))
            ),
            slack=Slack(
                numbers(placed.latency_ns),
                numbers(np.concatenate((first_lags(placed), placed.lag_ns[further]))),
                {
                    row: 0 if one.is_idle and not one.is_releasing else one.return_ns
                    for row, one in awaited.items()
                },
                {row: since_ns for row, (_, since_ns) in released.items()},
            ),
        )

    def _with_outside(self, ops: Rows) -> tuple[Rows, Rows]:
        """The places of operations; those not played get one behind the others, where their end stands."""
        place = self.places_of(ops)
        is_outside = place < 0
        outside, row = np.unique(ops[is_outside], return_inverse=True)
        place[is_outside] = len(self.ops) + 1 + row
        return place, outside

    def _settled_ns(self, awaited: Mapping[int, Awaited], placed: Placed) -> Times:
        """When each piece ends, but not before what it waits for has begun: clocks differ by a bit."""
        settled_ns = np.array(self._pieces.end_ns, np.int64)
        begun_ns, count = numbers(placed.start_ns), len(self.ops)
        moved = []
        for row, one in awaited.items():
            last_ns = max((begun_ns[place] for place in one.places if place < count), default=BEFORE_ALL)
            if 0 <= last_ns - settled_ns[row] <= REPLAY_CLOCKS_APART_NS:
                settled_ns[row] = last_ns + 1
                moved.append(self._pieces.thread[row])
        for thread in set(moved):
            rows = self._pieces.rows_of[thread]
            own_ns = settled_ns[rows.start : rows.stop]
            np.maximum.accumulate(own_ns, out=own_ns)
        return settled_ns

    def _tails(self, releasing: Mapping[int, Tail]) -> dict[int, tuple[Awaited, list[int]]]:
        """What the pieces wait for in which a call blocks or gives memory back, at the end of the call.

        The numbers of operations stand beside it, for they have no places yet.
        """
        waits, pieces = self._waits, self._pieces
        call = np.asarray(pieces.call)
        chosen = np.fromiter((*waits.blocking, *releasing), np.int64)
        rows = np.flatnonzero((call >= 0) & are_among(call, chosen))
        rows = rows[waits.calls.end_ns[call[rows]] == np.asarray(pieces.end_ns)[rows]]
        found = {}
        for row in rows.tolist():
            one, end_ns = pieces.call[row], pieces.end_ns[row]
            is_releasing = one in releasing
            ops = [op for op in (releasing if is_releasing else waits.blocking)[one] if op != UNRESOLVED]
            done_ns = max((waits.end_ns[op] for op in ops), default=BEFORE_ALL)
            entered_ns = waits.call_start_ns[one]
            return_ns = end_ns - (max(done_ns, entered_ns) if is_releasing else done_ns)
            told = Awaited(one, (), is_releasing, done_ns <= entered_ns, return_ns)
            found[row] = told, [] if is_releasing and done_ns > end_ns else ops  # this one did not wait
        return found

    def _meeting(self, partners: pl.DataFrame, placed: Placed) -> tuple[Rows, list[list[int]], Times]:
        """The collective of each operation or -1, its participants, and how long each operation takes.

        Collectives whose participants are not all played are left out.
        """
        meets, lengths_ns = np.full(placed.op.size, -1, np.int64), placed.end_ns - placed.start_ns
        if partners.is_empty():
            return meets, [], lengths_ns
        place = self.places_of(partners["op"].to_numpy())
        collective = partners["collective"].to_numpy()
        in_order = np.argsort(collective, kind="stable")
        edges = np.flatnonzero(np.diff(collective[in_order], prepend=-1, append=-1))
        whole = np.flatnonzero(np.minimum.reduceat(place[in_order], edges[:-1]) >= 0)
        members = [place[in_order[edges[one] : edges[one + 1]]] for one in whole.tolist()]
        for number, group in enumerate(members):
            meets[group] = number
            lengths_ns[group] = placed.end_ns[group] - placed.start_ns[group].max()
        return meets, [group.tolist() for group in members], lengths_ns


def _awaited(tails: Mapping[int, tuple[Awaited, list[int]]], places: list[int]) -> dict[int, Awaited]:
    """What pieces wait for, with the places of all operations one after the other."""
    at = iter(places)
    return {row: told._replace(places=tuple(islice(at, len(ops)))) for row, (told, ops) in tails.items()}


def _by_waiting(
    placed: Placed, producer: npt.NDArray[np.int64]
) -> tuple[Rows, dict[int, tuple[tuple[int, int], ...]]]:
    """The first producer of each operation, and the others with the places of their lags."""
    count, waiting = placed.op.size, placed.edge[:, 0]
    further = is_further(placed)
    first = np.full(count, count, np.int64)
    first[waiting[~further]] = producer[~further]
    more: dict[int, tuple[tuple[int, int], ...]] = {}
    others = zip(waiting[further].tolist(), producer[further].tolist(), strict=True)
    for behind, (place, other) in enumerate(others, start=count):
        more[place] = (*more.get(place, ()), (other, behind))
    return first, more
