"""What each stream had been given at each moment, and what all of it waits for.

A stream does what it is given in order, so its tail at some moment of the host is the last operation
issued before, and the tails of the events that it was made to wait for since. Streams that only pass
a wait on take part: an event recorded there stands for what that stream waits for.
"""

from bisect import bisect_left
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import polars as pl

from wallscope.arrays.columns import Codes, Flags, Rows
from wallscope.arrays.groups import alike, firsts, grouped, runs
from wallscope.model.events import StreamFlag, SyncKind
from wallscope.timeline.producers import Pairs, Producers
from wallscope.timeline.spans import BEFORE_ALL, Numbers, Times, numbers
from wallscope.timeline.waits import ResolvedBy, Waits

UNRESOLVED = -1
"""Stands in a tail for a wait whose record was not found."""
_NOTHING, _SEVERAL = -2, -3
"""Stand for tails: an empty one, and one that is not a single operation or `UNRESOLVED`."""
_MOST_KEPT = 6
LONGEST_HAND_OVER_NS = 20_000
"""From the end of what was waited for to the start of what waited, at most."""
_NONE = np.empty(0, np.int64)

Tail = tuple[int, ...]
"""Operations that all have to end, the latest-ending ones, and perhaps `UNRESOLVED`."""


@dataclass(frozen=True, slots=True)
class _Stream:
    """Operations in order of start with the host's time of issue, and rows of waits in order of time."""

    ops: Numbers
    issued_ns: Numbers
    waited_ns: Numbers
    waits: Numbers

    def last(self, at_ns: Times) -> tuple[Rows, Times]:
        """The last operation issued before each moment (`_NOTHING` without one), and when that was."""
        count = np.searchsorted(np.asarray(self.issued_ns), at_ns, side="left")
        return np.append(self.ops, _NOTHING)[count - 1], np.append(self.issued_ns, BEFORE_ALL)[count - 1]

    def waited(self, from_ns: Times, until_ns: Times) -> Rows:
        """How often it was made to wait in each span."""
        waited_ns = np.asarray(self.waited_ns)
        first, behind = (np.searchsorted(waited_ns, at_ns, side="left") for at_ns in (from_ns, until_ns))
        return behind - first


_EMPTY = _Stream(*[numbers(_NONE)] * 4)


@dataclass(frozen=True, slots=True)
class _Marks:
    """Records, or waits of streams: when they were put into which stream."""

    at_ns: Times
    stream: Rows

    def by_stream(self) -> dict[int, Rows]:
        """The rows of each stream, in order of time."""
        order = np.lexsort((self.at_ns, self.stream))
        return {stream: order[own] for stream, own in runs(self.stream[order])}


class _LastStreams:
    """The stream of the last operation that each thread issued: exports may lack the rows that tell."""

    def __init__(self, of_stream: Codes, issued_ns: Times, issuer: Codes) -> None:
        order = np.lexsort((issued_ns, issuer))
        self._of_thread = {
            thread: (numbers(issued_ns[order[own]]), numbers(of_stream[order[own]]))
            for thread, own in runs(issuer[order])
        }

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
        self._of_stream, self._issuer = operations["stream"].to_numpy(), issuer.astype(np.int32)
        self.predecessor = np.full(issue_ns.size, -1, np.int32)
        self.issued_ns = issue_ns.copy()
        ops: dict[int, Codes] = {}
        for stream, rows in grouped(self._of_stream):
            self.predecessor[rows[1:]] = rows[:-1]
            # what a stream does later was issued later: clocks that say otherwise are overruled
            self.issued_ns[rows] = np.maximum.accumulate(issue_ns[rows])
            ops[stream] = rows.astype(np.int32)
        self._key: dict[tuple[int, int, int], int] = {
            (process, context, number): stream
            for stream, process, context, number in streams[
                "stream", "process", "context", "number"
            ].iter_rows()
        }
        self._of_context: dict[tuple[int, int], list[int]] = {}
        for (process, context, _), stream in self._key.items():
            self._of_context.setdefault((process, context), []).append(stream)
        self._producers = Producers(issue_ns.size)
        self._beside = _beside(streams)
        self._play(waits, ops)
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
        new = [op for op in set(ops) if UNRESOLVED not in self.producers(op)]
        self.waits_resolved -= len(new)
        self._producers.add(new, [UNRESOLVED] * len(new))

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
        since_ns = held.issued_ns[count - 1] if count else BEFORE_ALL
        first, behind = bisect_left(held.waited_ns, since_ns), bisect_left(held.waited_ns, at_ns)
        waited = (op for wait in held.waits[first:behind] for op in self._awaited(wait))
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
        return self._last_streams.before(thread, at_ns)

    def record(self, record: int) -> Tail:
        """What has to end before a recorded event is complete."""
        told = self._of_record[record]
        if told == _SEVERAL:
            return self._several[record]
        return () if told == _NOTHING else (told,)

    def producers(self, op: int) -> set[int]:
        """What an operation has to wait for beside the one before it in its stream; perhaps `UNRESOLVED`."""
        return self._producers.of(op)

    def pairs(self) -> Pairs:
        """Who waits for more than the one before it, and for whom."""
        return self._producers.pairs()

    def is_waiting(self) -> Flags:
        """Whether each operation waits for more than the one before it."""
        return self._producers.is_waiting()

    def follow(self, found: Iterable[tuple[int, Tail]]) -> None:
        """Let operations wait for others."""
        pairs = [(op, producer) for op, producers in found for producer in producers or (op,)]
        self._producers.add([op for op, _ in pairs], [producer for _, producer in pairs])

    def latest(self, ops: Iterable[int]) -> Tail:
        """The few that end last: whoever waits for them has waited for the others."""
        distinct = set(ops)
        if len(distinct) <= _MOST_KEPT:
            return tuple(distinct)
        ends = sorted(distinct - {UNRESOLVED}, key=lambda op: (-self._end_ns[op], op))[:_MOST_KEPT]
        return (*ends, *(distinct & {UNRESOLVED}))

    @cached_property
    def _last_streams(self) -> _LastStreams:
        return _LastStreams(self._of_stream, self.issued_ns, self._issuer)

    def _play(self, waits: Waits, ops: Mapping[int, Codes]) -> None:
        """Find the tails of records and what waits hold back.

        Most records stand for the last operation of their stream alone. Others depend on what their
        stream was made to wait for before; they are told one by one, in order of time.
        """
        held_back = _of_streams(waits.waits)
        recorded, waiting = self._marks(waits.records, held_back)
        by_stream = waiting.by_stream()
        self._streams: dict[int, _Stream] = {}
        for stream in ops.keys() | by_stream.keys():
            own, waited = ops.get(stream, _NONE), by_stream.get(stream, _NONE)
            columns = (own, self.issued_ns[own], waiting.at_ns[waited], waited)
            self._streams[stream] = _Stream(*map(numbers, columns))
        of_record = self._simple_tails(recorded)
        self._several: dict[int, Tail] = {}
        self._of_record = numbers(of_record)
        record = held_back["record"].to_numpy()
        is_before = record >= 0
        is_before[is_before] = recorded.at_ns[record[is_before]] <= waiting.at_ns[is_before]
        is_earlier = (held_back["how"] == ResolvedBy.BEFORE_CAPTURE).to_numpy()
        found = np.where(is_earlier, _NOTHING, UNRESOLVED)
        found[is_before] = of_record[record[is_before]]
        self._of_wait, self._record_of_wait = numbers(found), numbers(record)
        several = np.flatnonzero(of_record == _SEVERAL)
        for row in several[np.argsort(recorded.at_ns[several], kind="stable")].tolist():
            self._several[row] = self.mark(int(recorded.stream[row]), int(recorded.at_ns[row]))
        self._hold_back(by_stream, found)

    def _awaited(self, wait: int) -> Tail:
        """What has to end before a wait of a stream is over."""
        told = self._of_wait[wait]
        if told == _SEVERAL:
            return self._several[self._record_of_wait[wait]]
        return () if told == _NOTHING else (told,)

    def _marks(self, records: pl.DataFrame, held_back: pl.DataFrame) -> tuple[_Marks, _Marks]:
        """Records and waits of streams; streams without operations get their numbers in order of time."""
        recorded, waiting = self._named(records), self._named(held_back)
        turns = [
            (marks.at_ns[row], place, row)
            for place, marks in enumerate((recorded, waiting))
            for row in np.flatnonzero(marks.stream == _NOTHING).tolist()
        ]
        columns = ["process", "context", "stream", "thread"]
        told = ((records[columns], recorded), (held_back[columns], waiting))
        for at_ns, place, row in sorted(turns):
            names, marks = told[place]
            process, context, number, thread = names.row(row)
            if number is None:
                last = self.last_stream(thread, at_ns)
                marks.stream[row] = UNRESOLVED if last is None else last
            else:
                marks.stream[row] = self.stream(process, context or 0, number)
        return recorded, waiting

    def _named(self, rows: pl.DataFrame) -> _Marks:
        """The rows on the streams of their names, those on streams that are not known yet on `_NOTHING`."""
        names = rows["process", "context", "stream"]
        group = alike(names)
        streams = [
            self._key.get((process, context or 0, number), _NOTHING)
            for process, context, number in names[firsts(group)].iter_rows()
        ]
        return _Marks(rows["at_ns"].to_numpy(), np.array(streams, np.int64)[group])

    def _simple_tails(self, recorded: _Marks) -> Rows:
        """The tail of each record as one number: an operation, `UNRESOLVED`, `_NOTHING` or `_SEVERAL`."""
        found = np.full(recorded.at_ns.size, UNRESOLVED)
        together = np.fromiter(self._together, np.int64, len(self._together))
        for stream, rows in recorded.by_stream().items():
            if stream == UNRESOLVED:
                continue
            at_ns, held = recorded.at_ns[rows], self._streams.get(stream, _EMPTY)
            last, since_ns = held.last(at_ns)
            is_more = (held.waited(since_ns, at_ns) > 0) | np.isin(last, together)
            found[rows] = _SEVERAL if self._beside.get(stream) else np.where(is_more, _SEVERAL, last)
        return found

    def _hold_back(self, by_stream: Mapping[int, Rows], found: Rows) -> None:
        """Let operations wait for what their streams were told to before them (`found`, as of records)."""
        several = np.flatnonzero(found == _SEVERAL).tolist()
        self.waits_seen = found.size
        self.waits_resolved = int((found != UNRESOLVED).sum()) - sum(
            UNRESOLVED in self._awaited(wait) for wait in several
        )
        for stream, waits in by_stream.items():
            held = self._streams[stream]
            after = np.searchsorted(np.asarray(held.issued_ns), np.asarray(held.waited_ns), side="left")
            is_followed = after < len(held.ops)
            op, told = np.asarray(held.ops)[after[is_followed]], found[waits[is_followed]]
            if (told == _SEVERAL).any():
                each = zip(op.tolist(), waits[is_followed].tolist(), strict=True)
                self.follow((one, self._awaited(wait)) for one, wait in each)
            else:
                self._producers.add(op, np.where(told == _NOTHING, op, told))

    def _order(self, earlier: int, later: int) -> None:
        """Let each operation of one stream wait for what another was given before it."""
        first, second = (self._streams.get(stream, _EMPTY) for stream in (earlier, later))
        issued_ns = np.asarray(second.issued_ns)
        given = np.searchsorted(np.asarray(first.issued_ns), issued_ns, side="left")
        given += np.searchsorted(np.asarray(first.waited_ns), issued_ns, side="left")
        places = np.flatnonzero(np.diff(given, prepend=0)).tolist()
        self.follow((second.ops[place], self.tail(earlier, second.issued_ns[place])) for place in places)


def _of_streams(waits: pl.DataFrame) -> pl.DataFrame:
    """The waits of streams; one that names no stream holds none back."""
    is_wait = (waits["kind"] == SyncKind.WAIT).to_numpy()
    if is_wait.all() and not waits["context"].null_count() and not waits["stream"].null_count():
        return waits
    named = waits["context"].is_not_null().to_numpy() & waits["stream"].is_not_null().to_numpy()
    return waits[np.flatnonzero(is_wait & named)]


def _beside(streams: pl.DataFrame) -> dict[int, list[int]]:
    """The streams with which each keeps order: the null stream of a context with the blocking ones."""
    of_context: dict[tuple[int, int], dict[str | None, list[int]]] = {}
    for stream, process, context, flags in streams["stream", "process", "context", "flags"].iter_rows():
        of_context.setdefault((process, context), {}).setdefault(flags, []).append(stream)
    found: dict[int, list[int]] = {}
    for own in of_context.values():
        null, blocking = own.get(StreamFlag.NULL, []), own.get(StreamFlag.BLOCKING, [])
        found |= dict.fromkeys(null, blocking) | dict.fromkeys(blocking, null)
    return found
