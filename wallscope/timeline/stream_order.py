"""What each stream had been given at each moment, and what all of it waits for.

A stream does what it is given in order, so its tail at some moment of the host is the last operation
issued before, and the tails of the events that it was made to wait for since. Streams that only pass
a wait on take part: an event recorded there stands for what that stream waits for.
"""

from bisect import bisect_left
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np
import polars as pl

from wallscope.model.events import StreamFlag, SyncKind
from wallscope.timeline.nesting import Rows
from wallscope.timeline.spans import Numbers, Times, numbers
from wallscope.timeline.waits import ResolvedBy, Waits

UNRESOLVED = -1
"""Stands in a tail for a wait whose record was not found."""
_MOST_KEPT = 6
_BEFORE_ALL = -(2**62)
_NONE = np.empty(0, np.int64)

Tail = tuple[int, ...]
"""Operations that all have to end, the latest-ending ones, and perhaps `UNRESOLVED`."""


@dataclass(frozen=True, slots=True)
class _Stream:
    """Operations in order of start with the host's time of issue, and waits in order of time."""

    ops: Numbers
    issued_ns: Numbers
    waited_ns: list[int] = field(default_factory=list)
    waited_for: list[Tail] = field(default_factory=list)


class _Record(NamedTuple):
    at_ns: int
    process: int
    thread: int
    context: int | None
    number: int | None

    @classmethod
    def rows(cls, records: pl.DataFrame) -> list["_Record"]:
        """The records in the order of their numbers."""
        columns = ["at_ns", "process", "thread", "context", "stream"]
        return [cls(*row) for row in records.sort("record").select(columns).iter_rows()]


class _Wait(NamedTuple):
    at_ns: int
    process: int
    context: int
    number: int
    record: int
    how: str

    @classmethod
    def rows(cls, waits: pl.DataFrame) -> list["_Wait"]:
        """The waits of streams; one that names no stream holds none back."""
        columns = ["at_ns", "process", "context", "stream", "record", "how"]
        of_streams = waits.filter(pl.col("kind") == SyncKind.WAIT).drop_nulls(["context", "stream"])
        return [cls(*row) for row in of_streams.select(columns).iter_rows()]


class _LastStreams:
    """The stream of the last operation that each thread issued: exports may lack the rows that tell."""

    def __init__(self, streams: dict[int, _Stream], issuer: Rows) -> None:
        ops = np.concatenate([_NONE, *(np.asarray(held.ops) for held in streams.values())])
        issued_ns = np.concatenate([_NONE, *(np.asarray(held.issued_ns) for held in streams.values())])
        of_stream = np.repeat(list(streams), [len(held.ops) for held in streams.values()])
        self._of_thread: dict[int, tuple[Numbers, Numbers]] = {}
        order = np.lexsort((ops, issued_ns, issuer[ops]))
        edges = np.flatnonzero(np.diff(issuer[ops][order])) + 1
        for own in np.split(order, edges) if order.size else []:
            self._of_thread[int(issuer[ops[own[0]]])] = (numbers(issued_ns[own]), numbers(of_stream[own]))

    def before(self, thread: int, at_ns: int) -> int | None:
        """The stream of the last operation that the thread issued before a moment."""
        issued_ns, streams = self._of_thread.get(thread, ([], []))
        count = bisect_left(issued_ns, at_ns)
        return streams[count - 1] if count else None


class StreamOrder:
    """Tails of the streams of all processes.

    Args:
        operations: `OPERATIONS`.
        issue_ns: start of the call that issued each operation; where the export has none, before all.
        issuer: the thread of that call, -1 where there is none.
        streams: `DEVICE_STREAMS`.
        waits: the waits and what they mean.
        together: operations of other streams that have to end too before a stream is through with one.
    """

    def __init__(  # noqa: PLR0913, PLR0917  # these tell the order together
        self,
        operations: pl.DataFrame,
        issue_ns: Times,
        issuer: Rows,
        streams: pl.DataFrame,
        waits: Waits,
        together: Mapping[int, Tail],
    ) -> None:
        self._together = together
        self.end_ns: Times = operations["end_ns"].to_numpy()
        self._end_ns = numbers(self.end_ns)
        self._streams: dict[int, _Stream] = {}
        of_stream, start_ns = operations["stream"].to_numpy(), operations["start_ns"].to_numpy()
        order = np.lexsort((np.arange(start_ns.size), start_ns, of_stream))
        edges = np.flatnonzero(np.diff(of_stream[order])) + 1
        self.predecessor = np.full(start_ns.size, -1, np.int64)
        self.issued_ns = issue_ns.copy()
        for rows in np.split(order, edges) if order.size else []:
            self.predecessor[rows[1:]] = rows[:-1]
            # what a stream does later was issued later: clocks that say otherwise are overruled
            in_order_ns = np.maximum.accumulate(issue_ns[rows])
            self.issued_ns[rows] = in_order_ns
            self._streams[int(of_stream[rows[0]])] = _Stream(numbers(rows), numbers(in_order_ns))
        self._key: dict[tuple[int, int, int], int] = {
            (process, context, number): stream
            for stream, process, context, number in streams.select(
                "stream", "process", "context", "number"
            ).iter_rows()
        }
        self._of_context: dict[tuple[int, int], list[int]] = {}
        for (process, context, _), stream in self._key.items():
            self._of_context.setdefault((process, context), []).append(stream)
        self._following: dict[int, set[int]] = {}
        self.waits_seen = self.waits_resolved = 0
        self._last = _LastStreams(self._streams, issuer)
        self._beside = _beside(streams)
        self._of_record = self._played(waits)
        for later, others in self._beside.items():
            for earlier in others:
                self._order(earlier, later)

    def stream(self, process: int, context: int, number: int) -> int:
        """The dense number of a stream, a new one where it never ran an operation."""
        key = (process, context, number)
        if key not in self._key:
            self._key[key] = 1 << 32 | len(self._key)
            self._of_context.setdefault(key[:2], []).append(self._key[key])
        return self._key[key]

    def numbers(self) -> dict[int, tuple[int, int]]:
        """Context and CUDA's number of each stream."""
        return {stream: (context, number) for (_, context, number), stream in self._key.items()}

    def doubt(self, ops: Iterable[int]) -> None:
        """Let operations wait for something unknown besides."""
        for op in set(ops):
            self.waits_resolved -= UNRESOLVED not in self.producers(op)
            self.follow(op, [UNRESOLVED])

    def next_operation(self, stream: int, at_ns: int) -> int:
        """The first operation that a stream was given from a moment of the host on, -1 without one."""
        held = self._streams.get(stream)
        place = bisect_left(held.issued_ns, at_ns) if held else 0
        return held.ops[place] if held and place < len(held.ops) else -1

    def context(self, process: int, context: int) -> list[int]:
        """The streams of a context."""
        return self._of_context.get((process, context), [])

    def process(self, process: int) -> list[int]:
        """The streams of a process."""
        return [stream for key, stream in self._key.items() if key[0] == process]

    def tail(self, stream: int, at_ns: int) -> Tail:
        """What has to end before a stream is through with what it was given before a moment of the host."""
        held = self._streams.get(stream)
        if held is None:
            return ()
        count = bisect_left(held.issued_ns, at_ns)
        since_ns = held.issued_ns[count - 1] if count else _BEFORE_ALL
        first, behind = bisect_left(held.waited_ns, since_ns), bisect_left(held.waited_ns, at_ns)
        waited = (op for tail in held.waited_for[first:behind] for op in tail)
        own = held.ops[count - 1 : count]
        beside = (op for last in own for op in self._together.get(last, ()))
        return self.latest([*own, *beside, *waited])

    def mark(self, stream: int, at_ns: int) -> Tail:
        """What has to end before a mark is reached that is put into a stream: the null stream waits too."""
        own = self.tail(stream, at_ns)
        others = self._beside.get(stream, ())
        return self.latest([*own, *(op for one in others for op in self.tail(one, at_ns))]) if others else own

    def last_stream(self, thread: int, at_ns: int) -> int | None:
        """The stream of the last operation that a thread issued before a moment."""
        return self._last.before(thread, at_ns)

    def record(self, record: int) -> Tail:
        """What has to end before a recorded event is complete."""
        return self._of_record[record]

    def producers(self, op: int) -> set[int]:
        """What an operation has to wait for beside the one before it in its stream; perhaps `UNRESOLVED`."""
        return self._following.get(op, set())

    def waiting(self) -> Iterable[int]:
        """The operations that wait for more than the one before them."""
        return self._following.keys()

    def follow(self, op: int, producers: Iterable[int]) -> None:
        """Let an operation wait for others."""
        self._following.setdefault(op, set()).update(producer for producer in producers if producer != op)

    def latest(self, ops: Iterable[int]) -> Tail:
        """The few that end last: whoever waits for them has waited for the others."""
        distinct = set(ops)
        if len(distinct) <= _MOST_KEPT:
            return tuple(distinct)
        ends = sorted(distinct - {UNRESOLVED}, key=lambda op: (-self._end_ns[op], op))[:_MOST_KEPT]
        return (*ends, *(distinct & {UNRESOLVED}))

    def _played(self, waits: Waits) -> dict[int, Tail]:
        """Go through records and waits in order of time; returns the tail of each record."""
        recorded = _Record.rows(waits.records)
        held_back = _Wait.rows(waits.waits)
        of_record: dict[int, Tail] = {}
        turns = [(record.at_ns, 0, row) for row, record in enumerate(recorded)]
        turns += [(wait.at_ns, 1, row) for row, wait in enumerate(held_back)]
        for at_ns, is_wait, row in sorted(turns):
            if is_wait:
                self._hold_back(held_back[row], of_record)
                continue
            record = recorded[row]
            if record.number is None:
                stream = self.last_stream(record.thread, at_ns)
            else:
                stream = self.stream(record.process, record.context or 0, record.number)
            of_record[row] = (UNRESOLVED,) if stream is None else self.mark(stream, at_ns)
        return of_record

    def _hold_back(self, wait: "_Wait", of_record: dict[int, Tail]) -> None:
        self.waits_seen += 1
        found: Tail = () if wait.how == ResolvedBy.BEFORE_CAPTURE else (UNRESOLVED,)
        if wait.record >= 0:
            found = of_record.get(wait.record, found)
        self.waits_resolved += UNRESOLVED not in found
        stream = self.stream(wait.process, wait.context, wait.number)
        held = self._streams.setdefault(stream, _Stream([], []))
        held.waited_ns.append(wait.at_ns)
        held.waited_for.append(found)
        after = bisect_left(held.issued_ns, wait.at_ns)
        if after < len(held.ops):
            self.follow(held.ops[after], found)

    def _order(self, earlier: int, later: int) -> None:
        """Let each operation of one stream wait for what another was given before it."""
        first, second = (self._streams.get(stream, _Stream([], [])) for stream in (earlier, later))
        issued_ns = np.array(second.issued_ns, np.int64)
        given = np.searchsorted(np.array(first.issued_ns, np.int64), issued_ns, side="left")
        given += np.searchsorted(np.array(first.waited_ns, np.int64), issued_ns, side="left")
        for place in np.flatnonzero(np.diff(given, prepend=0)).tolist():
            self.follow(second.ops[place], self.tail(earlier, second.issued_ns[place]))


def _beside(streams: pl.DataFrame) -> dict[int, list[int]]:
    """The streams with which each keeps order: the null stream of a context with the blocking ones."""
    found: dict[int, list[int]] = {}
    for _, own in streams.group_by("process", "context"):
        null = own.filter(pl.col("flags") == StreamFlag.NULL)["stream"].to_list()
        blocking = own.filter(pl.col("flags") == StreamFlag.BLOCKING)["stream"].to_list()
        found |= dict.fromkeys(null, blocking) | dict.fromkeys(blocking, null)
    return found
