"""A stretch of time of one or several ranks played again, with some durations changed.

Threads go from piece to piece, operations start when the last of what they wait for is done, collectives
end when the last participant has come, blocking calls return when what they wait for has ended; what lay
between a cause and its effect in the capture lies there again. Played with nothing changed it gives the
capture back: how far it does not, tells how little it can be believed.
"""

from bisect import bisect_left
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import IntEnum
from itertools import groupby

import numpy as np
import polars as pl

from wallscope.timeline.dependencies import Dependencies
from wallscope.timeline.stream_order import UNRESOLVED, Tail

_BEFORE_ALL = -(2**62)
_LEAST_WAIT_NS = 2_000
"""What a blocking call takes that has nothing to wait for, at most."""


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


@dataclass(frozen=True, slots=True)
class Change:
    """What is played otherwise.

    Attributes:
        pieces: pieces of threads that take no time.
        operations: operations that take no time.
        unblocked: blocking calls that wait for nothing.
        no_launch_latency: operations start at once when issued.
        no_hand_over: operations start at once when what they wait for ends.
        no_return_latency: blocking calls return at once when what they wait for ends.
    """

    pieces: frozenset[int] = frozenset()
    operations: frozenset[int] = frozenset()
    unblocked: frozenset[int] = frozenset()
    no_launch_latency: bool = False
    no_hand_over: bool = False
    no_return_latency: bool = False


@dataclass(frozen=True, slots=True)
class _Issue:
    """An operation, when it is issued and what it waits for; lags reach from there to its start."""

    op: int
    offset_ns: int  # from the edge of the piece that issues it
    latency_ns: int
    duration_ns: int
    producers: tuple[tuple[int, int], ...]  # number and lag


@dataclass(slots=True)
class _Course:
    """How far a run has come: clocks of threads, pieces left, operations issued, started and ended."""

    clock: dict[int, int]
    left_ns: list[int]
    issued_ns: dict[int, int]
    started: dict[int, int]
    ended: dict[int, int]
    missing: dict[int, int]  # participants of each collective that have not come yet


class _Event(IntEnum):
    """What happens in a run, in the order in which it does at one moment."""

    PIECE = 0
    EARLY_ISSUE = 1
    START = 2


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
        self._waits, self._pieces, self._releasing = waits, pieces, releasing
        self._rows_of: dict[int, list[int]] = {}
        for row, thread in enumerate(pieces.thread):
            self._rows_of.setdefault(thread, []).append(row)
        self._ends_of = {
            thread: [pieces.end_ns[row] for row in rows] for thread, rows in self._rows_of.items()
        }
        self._early: dict[int, list[_Issue]] = {}
        self._issued: dict[int, list[_Issue]] = {}
        self._placed: dict[int, _Issue] = {}
        for own in operations.partition_by("rank_id"):
            latency_ns, hand_over_ns = _typical_lags(own, waits)
            for op in own["op"].to_list():
                self._place(op, latency_ns, hand_over_ns)
        self._collective_of, self._participants = _placed_partners(partners, self._placed)
        self._released_by = self._released(set(operations["call"].to_list()))
        self._events = self._in_order()

    def run(self, change: Change) -> Mapping[int, int]:
        """Start of each operation that a piece issues, in ns, by number."""
        pieces = self._pieces
        missing = {one: len(members) for one, members in self._participants.items()}
        course = _Course({}, [0] * len(pieces.call), {}, {}, {}, missing)
        for kind, number in self._events:
            if kind == _Event.START:
                self._start(self._placed[number], change, course)
            elif kind == _Event.PIECE:
                self._pass(number, change, course)
            else:
                at_ns = course.clock.get(pieces.thread[number], pieces.start_ns[number])
                for issue in self._early[number]:
                    course.issued_ns[issue.op] = at_ns + issue.offset_ns
        return course.started

    def _in_order(self) -> list[tuple[_Event, int]]:
        """Everything that happens in a run: number of the piece or operation, in the order of the capture."""
        pieces, waits = self._pieces, self._waits
        events = [(end_ns, _Event.PIECE, row) for row, end_ns in enumerate(pieces.end_ns)]
        events += [(pieces.start_ns[row], _Event.EARLY_ISSUE, row) for row in self._early]
        events += [(waits.start_ns[op], _Event.START, op) for op in self._placed]
        return [(kind, number) for _, kind, number in sorted(events)]

    def _pass(self, row: int, change: Change, course: _Course) -> None:
        """Let a thread go through a piece, and issue what it issues at its end."""
        waits, pieces = self._waits, self._pieces
        thread, call = pieces.thread[row], pieces.call[row]
        at_ns = course.clock.get(thread, pieces.start_ns[row])
        length_ns = 0 if row in change.pieces else pieces.end_ns[row] - pieces.start_ns[row]
        if row in self._released_by:
            other, since_ns = self._released_by[row]
            at_ns = course.left_ns[other] + min(since_ns, length_ns)
        elif call in self._releasing and pieces.end_ns[row] == waits.call_end_ns[call]:
            at_ns = self._released_memory(call, at_ns, length_ns, change, course.ended)
        elif call in waits.blocking and pieces.end_ns[row] == waits.call_end_ns[call]:
            at_ns = self._returned(call, at_ns, length_ns, change, course.ended)
        else:
            at_ns += length_ns
        course.clock[thread] = course.left_ns[row] = at_ns
        for issue in self._issued.get(row, ()):
            course.issued_ns[issue.op] = at_ns + issue.offset_ns

    def _start(self, issue: _Issue, change: Change, course: _Course) -> None:
        start_ns = course.issued_ns[issue.op] + (0 if change.no_launch_latency else issue.latency_ns)
        ends_ns, ended = self._waits.end_ns, course.ended
        for producer, lag_ns in issue.producers:
            done_ns = ended.get(producer, ends_ns[producer])
            start_ns = max(start_ns, done_ns + (min(lag_ns, 0) if change.no_hand_over else lag_ns))
        course.started[issue.op] = start_ns
        ended[issue.op] = start_ns + (0 if issue.op in change.operations else issue.duration_ns)
        collective = self._collective_of.get(issue.op)
        if collective is not None:
            course.missing[collective] -= 1
            if not course.missing[collective]:
                self._complete(self._participants[collective], change, course)

    def _complete(self, members: Sequence[int], change: Change, course: _Course) -> None:
        """End a collective whose last participant has come: each as long after that as in the capture."""
        waits = self._waits
        came_ns = max(waits.start_ns[op] for op in members)
        now_came_ns = max(course.started[op] for op in members)
        for op in members:
            if op not in change.operations:
                course.ended[op] = now_came_ns + waits.end_ns[op] - came_ns

    def _returned(
        self, call: int, entered_ns: int, length_ns: int, change: Change, ended: dict[int, int]
    ) -> int:
        """When a blocking call returns that is entered at a moment."""
        waits = self._waits
        awaited = [op for op in waits.blocking[call] if op != UNRESOLVED]
        if call in change.unblocked or not awaited:
            return entered_ns + (0 if call in change.unblocked else length_ns)
        done_ns = max(waits.end_ns[op] for op in awaited)
        now_done_ns = max(ended.get(op, waits.end_ns[op]) for op in awaited)
        if done_ns <= waits.call_start_ns[call]:
            return max(entered_ns + length_ns, now_done_ns)
        return_ns = 0 if change.no_return_latency or not length_ns else waits.call_end_ns[call] - done_ns
        return max(entered_ns + min(length_ns, _LEAST_WAIT_NS), now_done_ns + return_ns)

    def _released_memory(
        self, call: int, entered_ns: int, length_ns: int, change: Change, ended: dict[int, int]
    ) -> int:
        """When a call that gives memory back returns: it costs what it cost once the device was idle."""
        waits = self._waits
        awaited = [op for op in self._releasing[call] if op != UNRESOLVED]
        if call in change.unblocked or not awaited:
            return entered_ns + length_ns
        done_ns = max(waits.end_ns[op] for op in awaited)
        if done_ns > waits.call_end_ns[call]:  # this one did not wait
            return entered_ns + length_ns
        cost_ns = waits.call_end_ns[call] - max(done_ns, waits.call_start_ns[call])
        return max(entered_ns, *(ended.get(op, waits.end_ns[op]) for op in awaited)) + cost_ns

    def _place(self, op: int, typical_latency_ns: int, typical_hand_over_ns: int) -> None:
        """Find the piece that issues an operation; what did not bind is taken as late as it mostly is."""
        waits = self._waits
        start_ns, call = waits.start_ns[op], waits.call[op]
        is_early = call >= 0 and waits.call_end_ns[call] > start_ns
        issued_ns = _BEFORE_ALL
        if call >= 0:
            issued_ns = waits.call_start_ns[call] if is_early else waits.call_end_ns[call]
        row = self._row(waits.call_thread[call], issued_ns, is_start=is_early) if call >= 0 else -1
        if row < 0:
            return
        producers = [producer for producer in waits.producers(op) if producer != UNRESOLVED]
        lags_ns = [start_ns - waits.end_ns[producer] for producer in producers]
        least_ns = min([start_ns - issued_ns, *(max(lag_ns, 0) for lag_ns in lags_ns)])
        latency_ns = start_ns - issued_ns
        if latency_ns > least_ns:
            latency_ns = min(latency_ns, typical_latency_ns)
        bound = tuple(
            (producer, lag_ns if lag_ns <= least_ns else min(lag_ns, typical_hand_over_ns))
            for producer, lag_ns in zip(producers, lags_ns, strict=True)
        )
        edge_ns = self._pieces.start_ns[row] if is_early else self._pieces.end_ns[row]
        issue = _Issue(op, issued_ns - edge_ns, latency_ns, waits.end_ns[op] - start_ns, bound)
        (self._early if is_early else self._issued).setdefault(row, []).append(issue)
        self._placed[op] = issue

    def _row(self, thread: int, at_ns: int, *, is_start: bool) -> int:
        """The piece of a thread that ends at a moment, contains it or starts there; -1 without one."""
        ends = self._ends_of.get(thread, [])
        place = bisect_left(ends, at_ns + is_start)
        if place == len(ends):
            return -1
        row = self._rows_of[thread][place]
        return row if self._pieces.start_ns[row] <= at_ns else -1

    def _released(self, issuing: set[int]) -> dict[int, tuple[int, int]]:
        """Pieces in which a thread outside calls went on after another: its last piece, and the time since.

        The thread waited for the other one of its process, which issued meanwhile and may have gone on after
        its last call.
        """
        pieces = self._pieces
        issuing_of: dict[int, list[int]] = {}
        for row, call in enumerate(pieces.call):
            if call >= 0 and call in issuing:
                issuing_of.setdefault(pieces.process[pieces.thread[row]], []).append(row)
        ends_of = {process: [pieces.end_ns[row] for row in rows] for process, rows in issuing_of.items()}
        found = {}
        for thread, rows in self._outside_calls():
            process = pieces.process[thread]
            begin_ns, until_ns = pieces.start_ns[rows[0]], pieces.end_ns[rows[-1]]
            place = bisect_left(ends_of.get(process, []), until_ns) - 1
            if place < 0 or ends_of[process][place] <= begin_ns:
                continue
            other = pieces.thread[issuing_of[process][place]]
            if other != thread:
                left = self._rows_of[other][bisect_left(self._ends_of[other], until_ns) - 1]
                row = next(row for row in rows if pieces.end_ns[row] > pieces.end_ns[left])
                found[row] = (left, pieces.end_ns[row] - pieces.end_ns[left])
        return found

    def _outside_calls(self) -> Iterator[tuple[int, list[int]]]:
        """The pieces between two calls of a thread, together."""
        call = self._pieces.call
        for thread, rows in self._rows_of.items():
            for is_outside, together in groupby(rows, key=lambda row: call[row] < 0):
                if is_outside:
                    yield thread, list(together)


def _placed_partners(
    partners: pl.DataFrame, placed: Mapping[int, _Issue]
) -> tuple[dict[int, int], dict[int, list[int]]]:
    """The collective of each operation, and its participants; those that are not all played are left out."""
    participants: dict[int, list[int]] = {}
    for op, collective in partners.iter_rows():
        participants.setdefault(collective, []).append(op)
    whole = {one: members for one, members in participants.items() if all(op in placed for op in members)}
    return {op: one for one, members in whole.items() for op in members}, whole


def _typical_lags(operations: pl.DataFrame, waits: Dependencies) -> tuple[int, int]:
    """Launch latency and hand-over as they mostly are where they bind, in ns."""
    op, call = operations["op"].to_numpy(), operations["call"].to_numpy()
    start_ns, before = operations["start_ns"].to_numpy(), waits.order.predecessor[op]
    done_ns = np.array([waits.end_ns[one] if one >= 0 else _BEFORE_ALL for one in before.tolist()], np.int64)
    issued_ns = waits.calls.end_ns[call]
    alone = ~np.isin(op, np.fromiter(waits.order.waiting(), np.int64))
    by_issue, by_hand_over = alone & (issued_ns > done_ns), alone & (done_ns >= issued_ns) & (before >= 0)

    def middle(lag_ns: np.ndarray[tuple[int], np.dtype[np.int64]]) -> int:
        held = lag_ns[lag_ns >= 0]
        return int(np.median(held)) if held.size else 0

    return middle((start_ns - issued_ns)[by_issue]), middle((start_ns - done_ns)[by_hand_over])
