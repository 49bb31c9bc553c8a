"""What each device operation and each blocking call had to wait for.

An operation waits for its issue, for the one before it in its stream, and for the events that its
stream was made to wait for. A blocking call waits for the tail of a stream, for an event, for all
streams of its context, or for its own copy.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import polars as pl

from wallscope.arrays.columns import Flags, filled, place
from wallscope.model.capture import Capture
from wallscope.model.events import SyncKind
from wallscope.model.kinds import CallRole, OperationKind
from wallscope.thresholds import EXPLAINED_ROUNDS_COUNT
from wallscope.timeline.call_spans import (
    Activities,
    CallSpans,
    CallTimes,
    by_thread,
    call_times,
    flatten_calls,
)
from wallscope.timeline.graph_order import GraphLaunches
from wallscope.timeline.recording_streams import RecordingStreams
from wallscope.timeline.spans import Numbers, numbers
from wallscope.timeline.stream_order import UNRESOLVED, StreamOrder, Tail
from wallscope.timeline.waits import ResolvedBy, Waits, resolved_waits

_BLOCKS_ALL = re.compile(r"(Device|Ctx|Context|Thread)Synchronize\Z")


@dataclass(frozen=True, slots=True)
class Dependencies:
    """Who waits for whom, over all ranks of a capture; numbers are by number of the operation or call.

    Attributes:
        start_ns, end_ns, call: of each operation, as in `OPERATIONS`.
        order: streams and what operations wait for in them.
        waits: what waits mean, and how that and the streams of their records were found.
        call_start_ns, call_end_ns, call_thread: of each call, as in `CALLS`.
        calls: the same, to be asked of many calls at once.
        activities: what each thread was in at every moment.
        spans: the same, by thread.
        blocking: what each blocking call waited for; empty where there was nothing to wait for.
        waits_seen, waits_resolved: waits of streams and blocking waits, and those whose cause was found.
    """

    start_ns: Numbers
    end_ns: Numbers
    call: Numbers
    order: StreamOrder
    waits: Waits
    call_start_ns: Numbers
    call_end_ns: Numbers
    call_thread: Numbers
    calls: CallTimes
    activities: Activities
    spans: Mapping[int, CallSpans]
    blocking: Mapping[int, Tail]
    waits_seen: int
    waits_resolved: int

    def producers(self, op: int) -> set[int]:
        """What an operation has to wait for on the device; perhaps `UNRESOLVED`."""
        before = int(self.order.predecessor[op])
        return self.order.producers(op) | {before} if before >= 0 else self.order.producers(op)

    @property
    def resolved_share(self) -> float | None:
        """Share of the waits whose cause was found, `None` without any."""
        return self.waits_resolved / self.waits_seen if self.waits_seen else None


def dependencies(capture: Capture) -> Dependencies:
    """Who waits for whom in a capture."""
    calls, operations = capture.calls, capture.operations
    call = operations["call"].to_numpy()
    times = call_times(calls)
    waits = resolved_waits(capture.syncs, capture.events, calls, capture.call_names, capture.threads)
    graphs = GraphLaunches(operations, calls)
    order, waits, unexplained = _ordered(capture, waits, times, graphs)
    graphs.order(order)
    blocking = _synchronising(capture, order, waits) | _copying(operations, calls)
    blocking |= {one: (*blocking[one], UNRESOLVED) for one in unexplained if one in blocking}
    activities = flatten_calls(calls, len(capture.threads))
    return Dependencies(
        start_ns=numbers(operations["start_ns"].to_numpy()),
        end_ns=numbers(operations["end_ns"].to_numpy()),
        call=numbers(call),
        order=order,
        waits=waits,
        call_start_ns=numbers(times.start_ns.told),
        call_end_ns=numbers(times.end_ns.told),
        call_thread=numbers(times.thread.told),
        calls=times,
        activities=activities,
        spans=by_thread(activities),
        blocking=blocking,
        waits_seen=order.waits_seen + len(blocking),
        waits_resolved=order.waits_resolved + sum(UNRESOLVED not in tail for tail in blocking.values()),
    )


def _ordered(
    capture: Capture, waits: Waits, times: CallTimes, graphs: GraphLaunches
) -> tuple[StreamOrder, Waits, set[int]]:
    """The order of streams, the waits by the streams of their records, and calls whose waiting is unclear.

    Each time that more is known of where records were made, it can be told better what explains a wait.
    """
    operations, streams = capture.operations, capture.streams
    call, together = operations["call"].to_numpy(), graphs.together()

    def order_by(known: Waits) -> StreamOrder:
        return StreamOrder(operations, times.start_ns[call], times.thread[call], streams, known, together)

    order = order_by(waits)
    recording = RecordingStreams(order, waits, operations, times)
    for _ in range(EXPLAINED_ROUNDS_COUNT):
        told = recording.found()
        if told is waits:
            break
        waits, order = told, order_by(told)
        recording = RecordingStreams(order, waits, operations, times)
    ops, calls = recording.unexplained()
    order.doubt(ops)
    return order, waits, calls


def _synchronising(capture: Capture, order: StreamOrder, waits: Waits) -> dict[int, Tail]:
    """What the blocking synchronisations wait for, by number of the call."""
    calls, texts = capture.calls, capture.call_names["text"].to_list()
    is_blocking = filled(calls["role"]) == place(CallRole.SYNC)
    blocking = np.flatnonzero(is_blocking)
    columns = (blocking, *(calls[name].to_numpy()[blocking] for name in ("thread", "start_ns", "name")))
    process = capture.threads["process"].to_list()
    told = _told_of_calls(capture.syncs, is_blocking)
    means = _records_of_calls(waits.waits)
    found: dict[int, Tail] = {}
    asked: list[tuple[int, int, int]] = []
    unnamed: list[tuple[int, int, int]] = []
    groups: dict[tuple[int, ...], int] = {}
    for call, thread, at_ns, name in zip(*(one.tolist() for one in columns), strict=True):
        if "Synchronize" not in texts[name]:
            continue
        kind, context, stream = told.get(call, (None, None, None))
        held = process[thread]
        if kind == SyncKind.EVENT:
            record, how = means.get(call, (-1, ResolvedBy.NOTHING))
            nothing: Tail = () if how == ResolvedBy.BEFORE_CAPTURE else (UNRESOLVED,)
            found[call] = order.record(record) if record >= 0 else nothing
            continue
        if kind == SyncKind.STREAM and stream is not None:
            streams = order.scope(order.stream(held, context or 0, stream))
        elif kind == SyncKind.CONTEXT or _BLOCKS_ALL.search(texts[name]):
            streams = order.process(held) if context is None else order.context(held, context)
        else:
            unnamed.append((call, thread, at_ns))
            continue
        asked.append((call, groups.setdefault(tuple(streams), len(groups)), at_ns))
    if unnamed:
        last = order.last_streams(*np.array([row[1:] for row in unnamed]).T)
        found |= {call: (UNRESOLVED,) for (call, *_), stream in zip(unnamed, last, strict=True) if stream < 0}
        asked += [
            (call, groups.setdefault(tuple(order.scope(stream)), len(groups)), at_ns)
            for (call, _, at_ns), stream in zip(unnamed, last.tolist(), strict=True)
            if stream >= 0
        ]
    call_of, group_of, moments = np.array(asked, np.int64).reshape(-1, 3).T
    tails = order.tails([*groups], group_of, np.ascontiguousarray(moments))
    return found | {call: tails.of(row) for row, call in enumerate(call_of.tolist())}


def _told_of_calls(
    syncs: pl.DataFrame, is_asked: Flags
) -> dict[int, tuple[str | None, int | None, int | None]]:
    """Kind, context and stream of what some calls waited for, by number; the first row of a call counts."""
    call = syncs["call"].to_numpy()
    rows = np.flatnonzero((call >= 0) & np.append(is_asked, np.False_)[call])
    told = syncs["call", "kind", "context", "stream"][rows[::-1]]
    return {call: (kind, context, stream) for call, kind, context, stream in told.iter_rows()}


def _records_of_calls(waits: pl.DataFrame) -> dict[int, tuple[int, str]]:
    """The record that the wait of each call means, and how that was found."""
    rows = np.flatnonzero(filled(waits["kind"]) == place(SyncKind.EVENT))
    return {call: (record, how) for call, record, how in waits["call", "record", "how"][rows].iter_rows()}


def _copying(operations: pl.DataFrame, calls: pl.DataFrame) -> dict[int, Tail]:
    """Copies that held their caller: they ended before it returned; of several the one that ended last."""
    call, end_ns = operations["call"].to_numpy(), operations["end_ns"].to_numpy()
    copies = np.flatnonzero((filled(operations["kind"]) == place(OperationKind.COPY)) & (call >= 0))
    is_copying = filled(calls["role"]) == place(CallRole.COPY)
    held = copies[is_copying[call[copies]] & (end_ns[copies] <= calls["end_ns"].to_numpy()[call[copies]])]
    held = held[np.lexsort((end_ns[held], call[held]))]
    return {one: (op,) for one, op in zip(call[held].tolist(), held.tolist(), strict=True)}
