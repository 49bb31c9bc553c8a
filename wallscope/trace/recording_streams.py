"""Infer the stream of each cudaEventRecord, in exports that have the order of these calls but no streams.

The call names no stream. By default it is that of the thread's last operation, which is wrong if a copy on
another stream came in between. So records are classified by what their thread does around them and by what
waits for them. All of one kind were made on one stream: the one whose work best explains the end of the
waits. Without an explanation, the wait stays unresolved.
"""

from bisect import bisect_left
from collections.abc import Iterable, Iterator, Mapping
from typing import NamedTuple

import numpy as np
import polars as pl

from wallscope.columns import as_integers, encode_member
from wallscope.model.schemas import SyncKind
from wallscope.thresholds.steps import (
    EXPLAINED_CANDIDATES_COUNT,
    EXPLAINED_CLOSE_NS,
    EXPLAINED_CLOSE_RATIO,
    EXPLAINED_LOOKED_BACK_COUNT,
    EXPLAINED_TOLERANCE_NS,
    FEWEST_EXPLAINED_COUNT,
    LONGEST_DEPENDENCY_LATENCY_NS,
)
from wallscope.trace.events import StreamBy, Waits
from wallscope.trace.streams import UNRESOLVED, StreamOrder
from wallscope.trace.thread_timeline import CallTimes

_HOST = -1


class _Waiter(NamedTuple):
    """An operation that waited for a record, or a call that was held up."""

    record: int
    began_ns: int
    free_ns: int  # nothing but producers held it from then on
    close_ns: int  # how soon it goes on when the record is complete
    stream: int
    op: int = -1
    call: int = -1


class _RecordTraits(NamedTuple):
    """What a record has in common with others that were made on the same stream."""

    process: int
    waiting: tuple[int, ...]
    recent: tuple[int, ...]
    following: int
    turn: int


class _StreamFit(NamedTuple):
    """How many waits a stream explains, and how many speak against it."""

    explained: int
    missed: int

    @property
    def points(self) -> int:
        """How well it fits."""
        return self.explained - self.missed


class _Uses:
    """The streams that one thread used, in order of time: for operations, or to let them wait."""

    def __init__(self, uses: list[tuple[int, bool, int]], records_ns: list[int]) -> None:
        self._at_ns = [at_ns for at_ns, _, _ in uses]
        self._stream = [stream for _, _, stream in uses]
        self._issued = [(at_ns, stream) for at_ns, is_issue, stream in uses if is_issue]
        self._issued_ns = [at_ns for at_ns, _ in self._issued]
        self._records_ns = records_ns

    def recent(self, at_ns: int) -> tuple[int, ...]:
        """The few streams used last before a moment, that of the last operation first."""
        place, behind = bisect_left(self._issued_ns, at_ns), bisect_left(self._at_ns, at_ns)
        last = [self._issued[place - 1][1]] if place else []
        used = self._stream[max(behind - EXPLAINED_LOOKED_BACK_COUNT, 0) : behind]
        return tuple(dict.fromkeys([*last, *reversed(used)]))[:EXPLAINED_CANDIDATES_COUNT]

    def following(self, at_ns: int) -> int:
        """The stream of the next operation."""
        place = bisect_left(self._issued_ns, at_ns)
        return self._issued[place][1] if place < len(self._issued) else _HOST

    def turn(self, at_ns: int) -> int:
        """How many records the thread has made since its last operation."""
        place = bisect_left(self._issued_ns, at_ns)
        since_ns = self._issued_ns[place - 1] if place else 0
        return bisect_left(self._records_ns, at_ns) - bisect_left(self._records_ns, since_ns)


class RecordingStreams:
    """Finds the streams of records that name none.

    Args:
        order: streams and waits, with each such record on the stream of the thread's last operation.
        waits: the waits and what they mean.
        operations: `OPERATIONS`.
        calls: times and threads of all calls.
    """

    def __init__(self, order: StreamOrder, waits: Waits, operations: pl.DataFrame, calls: CallTimes) -> None:
        self._order, self._waits, self._calls = order, waits, calls
        self._stream, self._call = operations["stream"].to_numpy(), operations["call"].to_numpy()
        self._start_ns = operations["start_ns"].to_numpy()
        self._guessed = {
            record: (process, thread, at_ns)
            for record, process, thread, at_ns in _select_guesses(waits.records).iter_rows()
        }
        self._waiters = self._alone(list(self._waiting())) if self._guessed else []

    def resolve(self) -> Waits:
        """The waits, with the streams of records as far as another than the last one explains them better."""
        if not self._waiters:
            return self._waits
        uses = self._uses()
        chosen: dict[int, int] = {}
        for kind, waiters in self._kinds(uses).items():
            stream = self._best(kind, waiters)
            if stream is not None:
                chosen |= {waiter.record: stream for waiter in waiters}
        records = self._update_records(chosen)
        return self._waits if records.equals(self._waits.records) else Waits(records, self._waits.waits)

    def find_unclear(self) -> tuple[set[int], set[int]]:
        """Operations and calls that waited for a record without a stream, and why they went on is unclear."""
        late = [waiter for waiter in self._waiters if self._is_unexplained(waiter)]
        return {one.op for one in late if one.op >= 0}, {one.call for one in late if one.call >= 0}

    def _is_unexplained(self, waiter: _Waiter) -> bool:
        done_ns = self._ends_ns(self._order.record(waiter.record))
        until_ns = waiter.began_ns + EXPLAINED_TOLERANCE_NS
        if any(end_ns > until_ns for end_ns in done_ns):
            return True
        others_ns = self._ends_ns(self._order.producers(waiter.op)) if waiter.op >= 0 else []
        known_ns = [waiter.free_ns, *(ns for ns in [*done_ns, *others_ns] if ns <= until_ns)]
        return waiter.began_ns - max(known_ns) > LONGEST_DEPENDENCY_LATENCY_NS

    def _waiting(self) -> Iterator[_Waiter]:
        """Who waited for records that name no stream."""
        close_ns, held_back = self._close_ns(), iter(self._order.next_op.tolist())
        columns = ["kind", "process", "context", "stream", "record", "call"]
        for kind, process, context, number, record, call in self._waits.waits.select(columns).iter_rows():
            is_held_back = kind == SyncKind.WAIT and context is not None and number is not None
            op = next(held_back) if is_held_back else -1
            if record not in self._guessed:
                continue
            if kind == SyncKind.EVENT and call >= 0:
                began_ns, free_ns = int(self._calls.end_ns[call]), int(self._calls.start_ns[call])
                yield _Waiter(record, began_ns, free_ns, LONGEST_DEPENDENCY_LATENCY_NS, _HOST, call=call)
            elif op >= 0:
                stream = self._order.stream(process, context, number)
                before = self._ends_ns([int(self._order.before[op])])
                free_ns = max([self._issued_ns(op), *before])
                yield _Waiter(record, int(self._start_ns[op]), free_ns, close_ns, stream, op=op)

    def _issued_ns(self, op: int) -> int:
        """When an operation had been issued; the start of a call that was still open when it began."""
        call = self._call[op]
        is_open = self._calls.end_ns[call] > self._start_ns[op]
        return int(self._calls.start_ns[call] if is_open else self._calls.end_ns[call])

    def _alone(self, waiters: list[_Waiter]) -> list[_Waiter]:
        """The waiters, those that wait for several records held by the others of them too."""
        together: dict[int, list[_Waiter]] = {}
        for waiter in waiters:
            together.setdefault(waiter.op, []).append(waiter)
        found = []
        for waiter in waiters:
            others = together[waiter.op] if waiter.op >= 0 else []
            ends_ns = [
                end_ns
                for other in others
                if other.record != waiter.record
                for end_ns in self._ends_ns(self._order.record(other.record))
                if end_ns <= waiter.began_ns + EXPLAINED_TOLERANCE_NS
            ]
            found.append(waiter._replace(free_ns=max([waiter.free_ns, *ends_ns])))
        return found

    def _close_ns(self) -> int:
        """How soon an operation follows what it waited for, in this capture."""
        before = self._order.before
        has_one = np.flatnonzero(before >= 0)
        done_ns = self._order.end_ns[before[has_one]]
        issued_ns = self._calls.end_ns[self._call[has_one]]
        lag_ns = (self._start_ns[has_one] - done_ns)[issued_ns < done_ns]
        middle_ns = int(np.median(lag_ns)) if lag_ns.size else 0
        return min(
            max(EXPLAINED_CLOSE_RATIO * middle_ns, EXPLAINED_CLOSE_NS),
            LONGEST_DEPENDENCY_LATENCY_NS,
        )

    def _uses(self) -> Mapping[int, _Uses]:
        """The uses of streams by each thread."""
        used: dict[int, list[tuple[int, bool, int]]] = {}
        columns = (self._calls.thread[self._call], self._calls.start_ns[self._call], self._stream)
        for thread, at_ns, stream in zip(*(column.tolist() for column in columns), strict=True):
            used.setdefault(thread, []).append((at_ns, True, stream))
        held = self._waits.waits.filter(pl.col("kind") == SyncKind.WAIT).drop_nulls(["context", "stream"])
        for thread, at_ns, *key in held.select("thread", "at_ns", "process", "context", "stream").iter_rows():
            used.setdefault(thread, []).append((at_ns, False, self._order.stream(*key)))
        records: dict[int, list[int]] = {}
        for thread, at_ns in self._waits.records.select("thread", "at_ns").iter_rows():
            records.setdefault(thread, []).append(at_ns)
        return {thread: _Uses(sorted(rows), sorted(records.get(thread, []))) for thread, rows in used.items()}

    def _kinds(self, uses: Mapping[int, _Uses]) -> Mapping[_RecordTraits, list[_Waiter]]:
        """The waiters by the kind of the record that they waited for."""
        of_record: dict[int, list[_Waiter]] = {}
        for waiter in self._waiters:
            of_record.setdefault(waiter.record, []).append(waiter)
        kinds: dict[_RecordTraits, list[_Waiter]] = {}
        for record, waiters in of_record.items():
            process, thread, at_ns = self._guessed[record]
            if thread in uses:
                own = uses[thread]
                waiting = tuple(sorted({waiter.stream for waiter in waiters}))
                kind = _RecordTraits(
                    process, waiting, own.recent(at_ns), own.following(at_ns), own.turn(at_ns)
                )
                kinds.setdefault(kind, []).extend(waiters)
        return kinds

    def _best(self, kind: _RecordTraits, waiters: list[_Waiter]) -> int | None:
        """The stream that explains what the last used one leaves open of the waits for one kind of record.

        No stream is made to wait for itself.
        """
        usual, *others = kind.recent or (_HOST,)
        best, found = self._fit(usual, waiters), None
        if best.missed < FEWEST_EXPLAINED_COUNT:
            return None
        for stream in others:
            fit = self._fit(stream, waiters)
            if (
                kind.waiting != (stream,)
                and fit.explained >= FEWEST_EXPLAINED_COUNT
                and fit.points > best.points
            ):
                best, found = fit, stream
        return found

    def _fit(self, stream: int, waiters: list[_Waiter]) -> _StreamFit:
        """How the work of a stream fits waits: they end when it does.

        It is missed by a wait that ended before it, and by one that went on long after it.
        """
        explained = missed = 0
        at_ns = np.array([self._guessed[waiter.record][2] for waiter in waiters])
        marks = self._order.marks(np.full(at_ns.size, stream), at_ns)
        for row, waiter in enumerate(waiters):
            done_ns = max(self._ends_ns(marks.of(row)), default=waiter.free_ns)
            lag_ns = waiter.began_ns - max(done_ns, waiter.free_ns)
            if lag_ns < -EXPLAINED_TOLERANCE_NS or lag_ns > LONGEST_DEPENDENCY_LATENCY_NS:
                missed += 1
            elif done_ns > waiter.free_ns and lag_ns <= waiter.close_ns:
                explained += 1
        return _StreamFit(explained, missed)

    def _ends_ns(self, ops: Iterable[int]) -> list[int]:
        return [int(self._order.end_ns[op]) for op in ops if op != UNRESOLVED]

    def _update_records(self, chosen: Mapping[int, int]) -> pl.DataFrame:
        """The records, those on a chosen stream with its context and number."""
        numbers = self._order.numbers()
        rows = [(record, *numbers[stream], StreamBy.HAND_OVER) for record, stream in chosen.items()]
        schema = {
            name: self._waits.records.schema[name] for name in ("record", "context", "stream", "stream_by")
        }
        streams = pl.DataFrame(rows, schema=schema, orient="row")
        return self._waits.records.update(streams, on="record", how="left")


def _select_guesses(records: pl.DataFrame) -> pl.DataFrame:
    """The records that name no stream: number, process, thread and time."""
    is_stated = as_integers(records["stream_by"]) == encode_member(StreamBy.STATED)
    held = records["record", "process", "thread", "at_ns"]
    if is_stated.all() and not records["stream"].null_count():
        return held.clear()
    by_hand_over = as_integers(records["stream_by"]) == encode_member(StreamBy.HAND_OVER)
    return held[np.flatnonzero(by_hand_over | records["stream"].is_null().to_numpy())]
