"""What each stream had been given at each moment, and what all of it waits for.

A stream executes its work in order. Its tail at some moment of the host is the last operation issued before,
and the tails of the events that it has waited for since. Streams that only pass a wait on take part: an event
recorded there represents what that stream waits for.
"""

from collections.abc import Iterable, Mapping, Sequence
from functools import cached_property
from threading import Lock

import numpy as np
import numpy.typing as npt
import polars as pl

from wallscope.columns import (
    Codes,
    Rows,
    are_among,
    expand_counts,
    find_first_rows,
    number_alike_rows,
    sort_distinct,
    split_rows,
    take_or,
)
from wallscope.kernels import stream_order, views
from wallscope.model.schemas import StreamFlag, SyncKind
from wallscope.records import dataclass
from wallscope.thresholds.steps import TAIL_OPERATIONS_COUNT
from wallscope.trace.events import ResolvedBy, Waits
from wallscope.trace.intervals import Times

UNRESOLVED = -1
"""Stands in a set of operations for a wait whose record was not found."""
_UNKNOWN, _NOTHING = -1, -2
"""As the record of a wait: not found, and none needed."""

Tail = tuple[int, ...]
"""Operations that all have to end, the latest-ending ones, and perhaps `UNRESOLVED`."""


@dataclass(frozen=True, slots=True)
class OperationSets:
    """Sets of operations, perhaps with `UNRESOLVED`: `ptr` int64[n + 1] are the offsets into `op` int32."""

    ptr: Times
    op: npt.NDArray[np.int32]

    def of(self, row: int) -> Tail:
        """Return one of the sets."""
        return tuple(self.op[self.ptr[row] : self.ptr[row + 1]].tolist())

    def of_rows(self, rows: Codes) -> tuple[Rows, Codes]:
        """Return what some sets hold: the position of the set in `rows`, and the operation."""
        first = self.ptr[rows]
        position, nth = expand_counts(self.ptr[rows + 1] - first)
        return position, self.op[first[position] + nth]


@dataclass(frozen=True, slots=True)
class _Events:
    """Records, or waits of streams: when they were put into which stream."""

    at_ns: Times
    stream: npt.NDArray[np.int32]


class StreamOrder:
    """Tails of the streams of all processes.

    Args:
        operations: `OPERATIONS`.
        issue_ns: start of the call that issued each operation; where the export has none, before all.
        issuer: the thread of that call, -1 where there is none.
        streams: `DEVICE_STREAMS`.
        waits: the waits and what they mean.
        together: operations of other streams that have to end too before a stream is through with one.

    Attributes:
        before: int32[op], the operation before each in its stream, -1 without one.
        issued_ns: int64[op], when each was issued: not before what its stream did earlier.
        next_op: int32[wait of a stream for an event], the first operation behind it, -1 without one.
        waits_seen, waits_resolved: such waits, and those for what is known.
    """

    def __init__(  # noqa: PLR0913, PLR0917  # the inputs of the order
        self,
        operations: pl.DataFrame,
        issue_ns: Times,
        issuer: Rows,
        streams: pl.DataFrame,
        waits: Waits,
        together: Mapping[int, Tail],
    ) -> None:
        self._lock = Lock()
        self.end_ns: Times = operations["end_ns"].to_numpy()
        self._stream, self._issuer = operations["stream"].to_numpy().astype(np.int32), issuer.astype(np.int32)
        self._key: dict[tuple[int, int, int], int] = {
            (process, context, number): stream
            for stream, process, context, number in streams[
                "stream", "process", "context", "number"
            ].iter_rows()
        }
        self._count = max(int(self._stream.max(initial=-1)), *self._key.values(), -1) + 1
        held_back = _of_streams(waits.waits)
        record_of, wait_of = self._streams_of(waits.records), self._streams_of(held_back)
        self.before, self.issued_ns = (
            np.empty(issue_ns.size, np.int32),
            np.empty(issue_ns.size, np.int64),
        )
        stream_order.order_operations(
            *views(self._stream, issue_ns, np.full(self._count, -1, np.int32)),
            *views(self.before, self.issued_ns),
        )
        recorded = self._placed(waits.records, record_of)
        self._scopes = make_sets(_scopes(streams, self._count))
        self._settle(recorded, self._placed(held_back, wait_of), held_back, together)
        self._pairs = [self._pairs_of_waits(), self._pairs_of_streams()]

    def stream(self, process: int, context: int, number: int) -> int:
        """Return the dense number of a stream, -1 where it was never given anything."""
        return self._key.get((process, context, number), -1)

    def numbers(self) -> dict[int, tuple[int, int]]:
        """Return context and CUDA's number of each stream."""
        return {stream: (context, number) for (_, context, number), stream in self._key.items()}

    def context(self, process: int, context: int) -> list[int]:
        """Return the streams of a context."""
        return [stream for key, stream in self._key.items() if key[:2] == (process, context)]

    def process(self, process: int) -> list[int]:
        """Return the streams of a process."""
        return [stream for key, stream in self._key.items() if key[0] == process]

    def tails(self, groups: Sequence[Sequence[int]], asked: Codes, at_ns: Times) -> OperationSets:
        """Return what has to end before streams have finished all work that they were given before moments.

        Args:
            groups: streams that are waited for together.
            asked: integer[n], the group of each question.
            at_ns: int64[n], its moment.
        """
        return self._tails(make_sets(groups), asked, at_ns)

    def marks(self, stream: Codes, at_ns: Times) -> OperationSets:
        """Return what has to end before marks are reached that are put into streams: null streams wait too.

        Args:
            stream: integer[n], the stream of each mark.
            at_ns: int64[n], when it was put there.
        """
        return self._tails(self._scopes, stream, at_ns)

    def scope(self, stream: int) -> list[int]:
        """Return the streams that a mark waits for that is put into a stream."""
        return [*self._scopes.of(stream)] if stream >= 0 else []

    def last_streams(self, thread: Codes, at_ns: Times) -> Codes:
        """Return the stream of the last operation that threads issued before moments, -1 without one."""
        ptr, issued_ns, streams = self._issues
        row = np.empty(thread.size, np.int64)
        stream_order.find_latest(
            *views(ptr, issued_ns, thread.astype(np.int32), np.ascontiguousarray(at_ns), row)
        )
        return take_or(streams, row, UNRESOLVED)

    def record(self, record: int) -> Tail:
        """Return what has to end before a recorded event is complete."""
        return tuple(self._sets[self._record_first[record] : self._record_last[record]].tolist())

    def follow(self, pairs: Iterable[tuple[int, int]]) -> None:
        """Add dependencies; an operation paired with itself waits for nothing."""
        found = np.array([*pairs], np.int32).reshape(-1, 2)
        self._pairs.append((found[:, 0], found[:, 1]))
        self.__dict__.pop("producer_sets", None)

    def doubt(self, ops: Iterable[int]) -> None:
        """Let operations wait for something unknown too."""
        new = [op for op in set(ops) if UNRESOLVED not in self.producers(op)]
        self.waits_resolved -= len(new)
        self.follow((op, UNRESOLVED) for op in new)

    def clear(self, ops: Rows) -> None:
        """Let operations wait for nothing unknown."""
        for place, (op, producer) in enumerate(self._pairs):
            is_kept = (producer != UNRESOLVED) | ~are_among(op.astype(np.int64), ops)
            self._pairs[place] = op[is_kept], producer[is_kept]
        self.__dict__.pop("producer_sets", None)

    @cached_property
    def producer_sets(self) -> OperationSets:
        """Return each operation's dependencies except the one before it; itself: nothing delayed it."""
        count = self.issued_ns.size
        op, producer = (np.concatenate(side).astype(np.int64) for side in zip(*self._pairs, strict=True))
        op, producer = np.divmod(sort_distinct(op * (count + 1) + producer + 1), count + 1)
        ptr = np.concatenate(([0], np.cumsum(np.bincount(op, minlength=count))))
        return OperationSets(ptr, (producer - 1).astype(np.int32))

    def producers(self, op: int) -> set[int]:
        """What an operation has to wait for apart from the one before it in its stream."""
        return set(self.producer_sets.of(op)) - {op}

    @cached_property
    def _issues(self) -> tuple[Times, Times, Codes]:
        """When each thread issued operations into which stream: offsets by thread, times and streams."""
        order = np.lexsort((self.issued_ns, self._issuer))
        threads = np.arange(int(self._issuer.max(initial=-1)) + 2)
        ptr = np.searchsorted(self._issuer[order], threads)
        return ptr, self.issued_ns[order], self._stream[order]

    def _streams_of(self, rows: pl.DataFrame) -> npt.NDArray[np.int32]:
        """The stream of each row by its name, -1 where it has none."""
        names = rows["process", "context", "stream"]
        group = number_alike_rows(names)
        streams = []
        for process, context, number in names[find_first_rows(group)].iter_rows():
            if number is not None and (process, context or 0, number) not in self._key:
                self._key[process, context or 0, number] = self._count
                self._count += 1
            streams.append(-1 if number is None else self.stream(process, context or 0, number))
        return np.array(streams, np.int32)[group]

    def _placed(self, rows: pl.DataFrame, stream: npt.NDArray[np.int32]) -> _Events:
        """Records or waits; those without a stream are on that of the last operation of their thread."""
        at_ns = rows["at_ns"].to_numpy()
        unnamed = np.flatnonzero(stream < 0)
        if unnamed.size:
            stream[unnamed] = self.last_streams(rows["thread"].to_numpy()[unnamed], at_ns[unnamed])
        return _Events(at_ns, stream)

    def _settle(
        self, recorded: _Events, waiting: _Events, held_back: pl.DataFrame, together: Mapping[int, Tail]
    ) -> None:
        """Find what records and waits stand for."""
        order = np.lexsort((waiting.at_ns, waiting.stream))
        wait_ns, wait_stream = waiting.at_ns[order], waiting.stream[order]
        record, records = held_back["record"].to_numpy()[order], recorded.at_ns.size
        is_before = (record >= 0) & (take_or(recorded.at_ns, record, 0) <= wait_ns)
        is_earlier = (held_back["how"] == ResolvedBy.BEFORE_CAPTURE).to_numpy()[order]
        record = np.where(is_before, record, np.where(is_earlier, _NOTHING, _UNKNOWN)).astype(np.int32)
        wait_first, wait_last = np.empty(order.size, np.int64), np.empty(order.size, np.int64)
        self._record_first, self._record_last = np.empty(records, np.int64), np.empty(records, np.int64)
        self._sets = np.empty((TAIL_OPERATIONS_COUNT + 1) * (records + order.size), np.int32)
        next_op = np.empty(order.size, np.int32)
        joined = make_sets(together[op] for op in sorted(together))
        wait_ptr = np.searchsorted(wait_stream, np.arange(self._count + 1))
        self._streams = stream_order.Streams(
            views(self.issued_ns, self.end_ns),
            views(*split_rows(self._stream, self._count)),
            views(np.array(sorted(together), np.int32), joined.ptr, joined.op),
            views(wait_ptr, wait_ns, wait_stream, record),
            views(recorded.at_ns, self._scopes.ptr, self._scopes.op, recorded.stream),
            views(wait_first, wait_last, self._record_first, self._record_last, self._sets),
            *views(next_op, TAIL_OPERATIONS_COUNT),
        )
        self.waits_seen = order.size
        self.waits_resolved = stream_order.settle_events(
            self._streams,
            *views(np.argsort(recorded.at_ns, kind="stable"), np.argsort(wait_ns, kind="stable")),
        )
        self.next_op = np.empty(order.size, np.int32)
        self.next_op[order] = next_op

    def _tails(self, groups: OperationSets, asked: Codes, at_ns: Times) -> OperationSets:
        ptr, found = (
            np.empty(asked.size + 1, np.int64),
            np.empty((TAIL_OPERATIONS_COUNT + 1) * asked.size, np.int32),
        )
        with self._lock:  # ranks that are replayed at the same time ask for tails of the same streams
            stream_order.find_tails(
                self._streams, *views(groups.ptr, groups.op, asked.astype(np.int32), at_ns, ptr, found)
            )
        return OperationSets(ptr, found[: ptr[-1]])

    def _pairs_of_waits(self) -> tuple[Codes, Codes]:
        """Who waits for whom because streams were made to wait for events."""
        op, producer = (np.empty((TAIL_OPERATIONS_COUNT + 1) * self.waits_seen, np.int32) for _ in range(2))
        count = stream_order.pair_waits(self._streams, *views(op, producer))
        return op[:count].copy(), producer[:count].copy()

    def _pairs_of_streams(self) -> tuple[Codes, Codes]:
        """Who waits for whom because null streams keep order with the blocking ones of their context."""
        first = [(self.scope(later)[1:], later) for later in range(self._count)]
        keeps = np.array([(one, later) for others, later in first for one in others], np.int32).reshape(-1, 2)
        earlier, later = np.ascontiguousarray(keeps[:, 0]), np.ascontiguousarray(keeps[:, 1])
        room = 0
        while True:
            op, producer = np.empty(room, np.int32), np.empty(room, np.int32)
            count = stream_order.pair_streams(
                self._streams,
                *views(earlier, later, np.empty(TAIL_OPERATIONS_COUNT + 1, np.int32), op, producer),
            )
            if count <= room:
                return op, producer
            room = count


def make_sets(groups: Iterable[Sequence[int]]) -> OperationSets:
    """Return lists of numbers as offsets and one array."""
    held = [*groups]
    ptr = np.cumsum([0, *map(len, held)], dtype=np.int64)
    return OperationSets(ptr, np.array([one for group in held for one in group], np.int32))


def _of_streams(waits: pl.DataFrame) -> pl.DataFrame:
    """The waits of streams; one that names no stream holds none back."""
    is_wait = (waits["kind"] == SyncKind.WAIT).to_numpy()
    if is_wait.all() and not waits["context"].null_count() and not waits["stream"].null_count():
        return waits
    named = waits["context"].is_not_null().to_numpy() & waits["stream"].is_not_null().to_numpy()
    return waits[np.flatnonzero(is_wait & named)]


def _scopes(streams: pl.DataFrame, count: int) -> list[list[int]]:
    """Each stream with those it keeps order with: the null stream of a context with the blocking ones."""
    of_context: dict[tuple[int, int], dict[str | None, list[int]]] = {}
    for stream, process, context, flags in streams["stream", "process", "context", "flags"].iter_rows():
        of_context.setdefault((process, context), {}).setdefault(flags, []).append(stream)
    found = [[stream] for stream in range(count)]
    for own in of_context.values():
        null, blocking = own.get(StreamFlag.NULL, []), own.get(StreamFlag.BLOCKING, [])
        for stream in null:
            found[stream] += blocking
        for stream in blocking:
            found[stream] += null
    return found
