"""What each device operation and each blocking call had to wait for, also inside CUDA graphs.

Exports contain no graph edges. The branches of a launch begin after the earlier work of their stream, and
later work in that stream waits for all of them. Edges between branches are inferred if an operation begins
right after the end of the same node of another branch in most replays.

An operation waits for its issue, for the one before it in its stream, and for the events that its
stream was made to wait for. A blocking call waits for the tail of a stream, for an event, for all
streams of its context, or for its own copy.
"""

import re
from collections import Counter
from collections.abc import Mapping, Sequence

import numpy as np
import numpy.typing as npt
import polars as pl

from wallscope.columns import Codes, Flags, Rows, as_integers, encode_member, iterate_groups
from wallscope.model.capture import Capture
from wallscope.model.enums import CallRole
from wallscope.model.finding_codes import FindingCode
from wallscope.model.schemas import SyncKind
from wallscope.records import dataclass
from wallscope.thresholds.steps import (
    EXPLAINED_ROUNDS_COUNT,
    FEWEST_REPLAYS_COUNT,
    GRAPH_EDGE_NS,
    GRAPH_EDGE_SHARE,
    PRODUCER_TOLERANCE_NS,
    SHORTEST_HELD_CALL_NS,
)
from wallscope.trace.blocking_calls import (
    QueryRuns,
    find_blocking_copies,
    find_full_queues,
    find_locked_calls,
    find_query_runs,
)
from wallscope.trace.events import ResolvedBy, Waits, resolve_waits
from wallscope.trace.inferred_waits import (
    HELD_WHILE_IDLE,
    NOTHING_PENDING,
    infer_producers,
    infer_tails,
)
from wallscope.trace.intervals import BEFORE_ALL, Times
from wallscope.trace.recording_streams import RecordingStreams
from wallscope.trace.stream_holds import StreamHold, find_stream_holds
from wallscope.trace.streams import UNRESOLVED, OperationSets, StreamOrder, Tail, make_sets
from wallscope.trace.thread_timeline import (
    Activities,
    CallTimes,
    flatten_calls,
    mark_calls,
    measure_call_times,
)
from wallscope.trace.waits_outside_calls import OutsideWaits, find_waits_outside_calls


@dataclass(frozen=True, slots=True)
class Branches:
    """The first and last operation of each branch of a launch, those of the launching stream first."""

    heads: tuple[int, ...]
    tails: tuple[int, ...]


class GraphLaunches:
    """The launches of graphs of several branches that were traced by node.

    Args:
        operations: `OPERATIONS`.
        calls: `CALLS`.
    """

    def __init__(self, operations: pl.DataFrame, calls: pl.DataFrame) -> None:
        self._launches = _list_graph_launches(operations, calls)
        self._branches = [_branches(own) for own in self._launches]

    def together(self) -> dict[int, Tail]:
        """The tails of the other branches, by the last operation that a launch runs in its own stream."""
        return {branches.tails[0]: branches.tails[1:] for branches in self._branches}

    def order(self, order: StreamOrder) -> None:
        """Let the operations of the launches wait for each other, and what follows wait for all branches."""
        follower = np.full(order.before.size, -1, np.int64)
        held = np.flatnonzero(order.before >= 0)
        follower[order.before[held]] = held
        pairs: list[tuple[int, int]] = []
        for branches in self._branches:
            before, behind = int(order.before[branches.heads[0]]), int(follower[branches.tails[0]])
            pairs += [(head, before if before >= 0 else head) for head in branches.heads[1:]]
            pairs += [(behind, tail) for tail in branches.tails[1:] if behind >= 0]
        order.follow([*pairs, *_joins(self._launches)])


def _list_graph_launches(operations: pl.DataFrame, calls: pl.DataFrame) -> list[pl.DataFrame]:
    """The nodes of each launch of a graph that runs in several streams, in order of start."""
    node = operations["graph_node"]
    if node.null_count() == len(node):
        return []
    call, stream = operations["call"].to_numpy(), operations["stream"].to_numpy()
    rows = np.flatnonzero(node.is_not_null().to_numpy() & (call >= 0))
    rows = rows[(as_integers(calls["role"]) == encode_member(CallRole.GRAPH))[call[rows]]]
    launches = sorted((rows[own] for _, own in iterate_groups(call[rows])), key=_first)
    return [operations[own] for own in launches if (stream[own] != stream[own[0]]).any()]


def _branches(launch: pl.DataFrame) -> Branches:
    op = launch["op"].to_numpy()
    branches = sorted((rows for _, rows in iterate_groups(launch["stream"].to_numpy())), key=_first)
    return Branches(
        tuple(int(op[branch[0]]) for branch in branches), tuple(int(op[branch[-1]]) for branch in branches)
    )


def _first(rows: Rows) -> int:
    return int(rows[0])


def _joins(launches: list[pl.DataFrame]) -> list[tuple[int, int]]:
    """Operations of graphs with one of another branch that ended right before them, replay after replay."""
    found: list[tuple[int, int, tuple[int, int]]] = []
    replays: Counter[int] = Counter()
    for own in launches:
        by_end = own.sort("end_ns")
        ends = by_end["end_ns"].to_numpy()
        latest = np.searchsorted(ends, own["start_ns"].to_numpy(), side="right") - 1
        nodes, streams, ops = (by_end[name].to_list() for name in ("graph_node", "stream", "op"))
        for row, at in zip(
            own.select("op", "graph_node", "stream", "start_ns").iter_rows(), latest, strict=True
        ):
            op, node, stream, start_ns = row
            replays[node] += 1
            for other in range(int(at), -1, -1):
                if start_ns - ends[other] > GRAPH_EDGE_NS:
                    break
                if streams[other] != stream:
                    found.append((op, ops[other], (nodes[other], node)))
                    break
    pairs = Counter(pair for _, _, pair in found)
    return [
        (op, producer)
        for op, producer, pair in found
        if replays[pair[1]] >= FEWEST_REPLAYS_COUNT and pairs[pair] >= GRAPH_EDGE_SHARE * replays[pair[1]]
    ]


_BLOCKS_ALL = re.compile(r"(Device|Ctx|Context|Thread)Synchronize\Z")


@dataclass(frozen=True, slots=True)
class Dependencies:
    """Who waits for whom, over all ranks of a capture. Index spaces: op, call and thread of the capture.

    Attributes:
        start_ns, end_ns: int64[op], as in `OPERATIONS`.
        call: int32[op], the call that issued it, -1 without one.
        issued_ns: int64[op], when it was issued: not before what its stream did earlier.
        stream_before: int32[op], the operation before it in its stream, -1 without one.
        producers: for each op, int32, the other operations that it waits for, each once; `UNRESOLVED`:
            something unknown; the op itself: a wait that nothing delayed.
        told_producers: the same without dependencies inferred from timing.
        inferred_producer: int32[op], the one of those that is inferred from timing, -1 without one;
            `HELD_WHILE_IDLE`: nothing ran between the last known one and the start.
        calls: start, end and thread of each call.
        blocking: int64[row], the calls that block.
        held: int64[row], calls that do not block, and yet waited: for room in a launch queue, or for a lock.
        holder: int32[call], the call of another thread whose lock it waited for, -1 without one.
        outside: what its thread waited for, outside of calls, right before each call.
        is_delayed: bool[call], whether it took several times as long as usual calls of its role.
        blocked: int32[call], the row of a blocking or held call, held ones after the others; -1 for others.
        awaited: for each row, int32, the operations that the call waited for, perhaps with `UNRESOLVED`.
        is_awaited_inferred: bool[row], whether that is inferred from timing.
        entered_ns: int64[row], when the call began to wait; for the last of several queries, the first did.
        longest_launch_ns: the longest launch latency that is usual in this capture.
        stream_holds: calls that let a stream wait for the host or for memory, and what they may have held.
        activities: the activity of each thread at every moment.
        order: the work of streams at any moment.
        waits: the meaning of waits, and how that and the streams of their records were found.
        waits_seen, waits_resolved: waits of streams and blocking waits, and those with a known cause.
    """

    start_ns: Times
    end_ns: Times
    call: npt.NDArray[np.int32]
    issued_ns: Times
    stream_before: npt.NDArray[np.int32]
    producers: OperationSets
    told_producers: OperationSets
    inferred_producer: npt.NDArray[np.int32]
    calls: CallTimes
    blocking: Rows
    held: Rows
    holder: npt.NDArray[np.int32]
    outside: OutsideWaits
    is_delayed: Flags
    blocked: npt.NDArray[np.int32]
    awaited: OperationSets
    is_awaited_inferred: Flags
    entered_ns: Times
    longest_launch_ns: int
    stream_holds: tuple[StreamHold, ...]
    activities: Activities
    order: StreamOrder
    waits: Waits
    waits_seen: int
    waits_resolved: int

    def is_waiting(self, op: Codes) -> Flags:
        """Return whether operations wait for more than the one before them in their streams."""
        found: Flags = self.producers.ptr[op + 1] > self.producers.ptr[op]
        return found

    def pairs(self, op: Codes) -> tuple[Rows, Codes]:
        """Return producers of operations, each but itself: the position in `op`, and the producer."""
        return _without_themselves(self.producers, op)

    def list_pairs_of_export(self, op: Codes) -> tuple[Rows, Codes]:
        """Return the pairs that the export contains, without those inferred from timing."""
        return _without_themselves(self.told_producers, op)

    def list_awaited_by(self, call: int) -> Tail:
        """Return what a blocking call waited for."""
        return self.awaited.of(int(self.blocked[call]))

    def mark_late_launches(self) -> Flags:
        """Return which operations began later than a launch latency of this capture explains: bool[op]."""
        issued_ns = self.calls.end_ns[self.call]
        was_issued = issued_ns > np.where(
            self.stream_before >= 0, self.end_ns[self.stream_before], BEFORE_ALL
        )
        is_held: Flags = self.inferred_producer == HELD_WHILE_IDLE
        return is_held & was_issued & (self.start_ns - issued_ns > self.longest_launch_ns)

    @property
    def resolved_share(self) -> float | None:
        """Share of the waits whose cause was found, `None` without any."""
        return self.waits_resolved / self.waits_seen if self.waits_seen else None


def _without_themselves(producers: OperationSets, op: Codes) -> tuple[Rows, Codes]:
    position, producer = producers.of_rows(op)
    is_other = np.flatnonzero(producer != op[position])
    return position[is_other], producer[is_other]


def resolve_dependencies(capture: Capture) -> Dependencies:
    """Return who waits for whom in a capture."""
    calls, operations = capture.calls, capture.operations
    times = measure_call_times(calls)
    waits = resolve_waits(capture.syncs, capture.events, calls, capture.call_names, capture.threads)
    graphs = GraphLaunches(operations, calls)
    order, waits, unexplained = _order_streams(capture, waits, times, graphs)
    graphs.order(order)
    told_producers = order.producer_sets
    holds = find_stream_holds(capture, times, order.before)
    inferred_producer, longest_launch_ns = _infer_producers(capture, order, times, holds)
    tails = _synchronising(capture, order, waits)
    tails |= {one: (*tails[one], UNRESOLVED) for one in unexplained if one in tails}
    runs = _find_asked(capture, times)
    slept = _find_slept(capture, order, times, runs)
    asked_ns = dict(zip(runs.call.tolist(), runs.since_ns.tolist(), strict=True))
    close_ns = {call: asked_ns[call] for call in runs.call[runs.is_close].tolist()}
    inferred = _infer_awaited(capture, order, times, tails, close_ns) | slept
    tails = dict(sorted((tails | inferred).items())) | find_blocking_copies(capture, order)
    activities = flatten_calls(calls, len(capture.threads))
    queued = find_full_queues(operations, order.before, times, calls["role"])
    queued = {call: tail for call, tail in queued.items() if call not in tails}
    process_of_thread = capture.threads["process"].to_numpy().astype(np.int64)
    locked = find_locked_calls(times, calls["role"], process_of_thread, tails | queued)
    held = queued | locked.awaited
    blocking, holding = (np.fromiter(one, np.int64, len(one)) for one in (tails, held))
    blocked = np.full(len(calls), -1, np.int32)
    blocked[np.concatenate((blocking, holding))] = np.arange(blocking.size + holding.size)
    return Dependencies(
        start_ns=operations["start_ns"].to_numpy(),
        end_ns=order.end_ns,
        call=operations["call"].to_numpy(),
        issued_ns=order.issued_ns,
        stream_before=order.before,
        producers=order.producer_sets,
        told_producers=told_producers,
        inferred_producer=inferred_producer,
        calls=times,
        blocking=blocking,
        held=holding,
        holder=locked.holder,
        outside=find_waits_outside_calls(capture, order.end_ns, times, activities, tails | queued),
        is_delayed=locked.is_delayed,
        blocked=blocked,
        awaited=make_sets([*tails.values(), *held.values()]),
        is_awaited_inferred=np.array([one in inferred or one in held for one in [*tails, *held]], np.bool_),
        entered_ns=_find_entered(np.concatenate((blocking, holding)), times, asked_ns),
        longest_launch_ns=longest_launch_ns,
        stream_holds=holds,
        activities=activities,
        order=order,
        waits=waits,
        waits_seen=order.waits_seen + len(tails),
        waits_resolved=order.waits_resolved + sum(UNRESOLVED not in tail for tail in tails.values()),
    )


def _order_streams(
    capture: Capture, waits: Waits, times: CallTimes, graphs: GraphLaunches
) -> tuple[StreamOrder, Waits, set[int]]:
    """The order of streams, the waits by the streams of their records, and calls whose waiting is unclear.

    With more known record streams, the explanation of waits improves.
    """
    operations, streams = capture.operations, capture.streams
    call, together = operations["call"].to_numpy(), graphs.together()

    def order_by(known: Waits) -> StreamOrder:
        return StreamOrder(operations, times.start_ns[call], times.thread[call], streams, known, together)

    order = order_by(waits)
    recording = RecordingStreams(order, waits, operations, times)
    for _ in range(EXPLAINED_ROUNDS_COUNT):
        known = recording.resolve()
        if known is waits:
            break
        waits, order = known, order_by(known)
        recording = RecordingStreams(order, waits, operations, times)
    ops, calls = recording.find_unclear()
    order.doubt(ops)
    return order, waits, calls


_INCOMPLETE = {
    FindingCode.DEVICE_CLOCK_UNKNOWN,
    FindingCode.TRACE_FILTERED,
    FindingCode.TRACE_CUT_OFF,
    FindingCode.TRACE_EVENTS_LOST,
    FindingCode.NO_API_CALLS,
}
"""Findings that say that operations may be missing, or that it is unknown when they were launched."""
_WAIT_CALL, _QUERY = r"StreamWaitEvent", r"(Event|Stream)Query"
_ISSUING = r"LaunchHostFunc|AddCallback|Graph|(Begin|End)Capture"
"""Calls without a role of their own that issue work or record it."""


def _infer_producers(
    capture: Capture, order: StreamOrder, calls: CallTimes, holds: Sequence[StreamHold]
) -> tuple[npt.NDArray[np.int32], int]:
    """Add dependencies that are inferred from timing, and return that of each operation, -1 without one.

    Also returns the longest launch latency that is usual in this capture, in ns.
    """
    wait_calls = np.flatnonzero(mark_calls(capture, _WAIT_CALL))
    behind_hold = np.logical_or.reduce(
        [one.may_hold for one in holds] or [np.zeros(order.before.size, np.bool_)]
    )
    inferred = infer_producers(
        capture.operations, order.end_ns, order.before, order.producer_sets, calls, wait_calls, behind_hold
    )
    order.clear(np.concatenate((inferred.free, inferred.op)))
    order.follow((op, UNRESOLVED) for op in inferred.unexplained.tolist())
    order.follow(zip(inferred.op.tolist(), inferred.producer.tolist(), strict=True))
    found = np.full(order.before.size, -1, np.int32)
    found[inferred.op] = inferred.producer
    if not any(finding.code in _INCOMPLETE for finding in capture.findings):
        found[inferred.held] = HELD_WHILE_IDLE
    else:
        order.follow((op, UNRESOLVED) for op in inferred.idle.tolist())
    return found, inferred.longest_launch_ns


def _find_asked(capture: Capture, calls: CallTimes) -> QueryRuns:
    """Return the runs of queries of a capture; short calls that neither issue nor wait may lie between."""
    is_cheap: Flags = as_integers(capture.calls["role"]) == encode_member(CallRole.OTHER)
    is_cheap &= ~mark_calls(capture, _ISSUING)
    is_cheap &= calls.end_ns.of_call - calls.start_ns.of_call < SHORTEST_HELD_CALL_NS
    return find_query_runs(calls, mark_calls(capture, _QUERY), is_cheap)


def _find_slept(capture: Capture, order: StreamOrder, calls: CallTimes, runs: QueryRuns) -> dict[int, Tail]:
    """Return what threads waited for that sleep between queries, by the last query of each run.

    It is the last operation of a stream that ended between the last two queries. Where none did, the thread
    did its own work and only looked.
    """
    rows = np.flatnonzero(~runs.is_close)
    call, since_ns = runs.call[rows], runs.since_ns[rows]
    process = capture.threads["process"].to_numpy()[calls.thread[call]]
    names, group = np.unique(process, return_inverse=True)
    if not rows.size:
        return {}
    tails = order.tails([order.process(one) for one in names.tolist()], group, since_ns)
    position, op = tails.of_rows(np.arange(rows.size))
    is_told = op >= 0
    position, op = position[is_told], op[is_told]
    done_ns = order.end_ns[op]
    is_meant = (done_ns > runs.asked_ns[rows][position]) & (
        done_ns <= calls.end_ns[call][position] + PRODUCER_TOLERANCE_NS
    )
    position, op, done_ns = position[is_meant], op[is_meant], done_ns[is_meant]
    by_end = np.lexsort((done_ns, position))
    return {int(call[position[one]]): (int(op[one]),) for one in by_end.tolist()}


def _find_entered(waiting: Rows, calls: CallTimes, asked_ns: Mapping[int, int]) -> Times:
    """Return when some calls began to wait."""
    starts_ns = calls.start_ns[waiting].tolist()
    return np.array(
        [asked_ns.get(call, ns) for call, ns in zip(waiting.tolist(), starts_ns, strict=True)], np.int64
    )


def _infer_awaited(
    capture: Capture,
    order: StreamOrder,
    calls: CallTimes,
    tails: Mapping[int, Tail],
    asked_ns: Mapping[int, int],
) -> dict[int, Tail]:
    """Return what is inferred from timing for calls whose awaited operation the export lacks.

    Runs of queries are among them: the last one returns when what was asked for has ended.
    """
    open_calls = np.array(
        [*(call for call, tail in tails.items() if UNRESOLVED in tail), *asked_ns], np.int64
    )
    entered_ns = _find_entered(open_calls, calls, asked_ns)
    thread_process = capture.threads["process"].to_numpy()
    found: dict[int, Tail] = {}
    if not open_calls.size:
        return found
    stream = capture.streams["stream"].to_numpy()
    process_of_stream = np.zeros(int(stream.max(initial=0)) + 1, np.int64)
    process_of_stream[stream] = capture.streams["process"].to_numpy()
    process = process_of_stream[capture.operations["stream"].to_numpy()]
    for one, rows in iterate_groups(thread_process[calls.thread[open_calls]]):
        own = open_calls[rows]
        ops = np.flatnonzero(process == one)
        tail_op = infer_tails(order.end_ns, ops, order.issued_ns, entered_ns[rows], calls.end_ns[own])
        found |= {
            call: () if op == NOTHING_PENDING else (op,)
            for call, op in zip(own.tolist(), tail_op.tolist(), strict=True)
            if op != UNRESOLVED and (op >= 0 or call in tails)
        }
    return found


def _synchronising(capture: Capture, order: StreamOrder, waits: Waits) -> dict[int, Tail]:
    """Return the awaited operations of blocking synchronizations, by number of the call."""
    calls, texts = capture.calls, capture.call_names["text"].to_list()
    is_blocking = as_integers(calls["role"]) == encode_member(CallRole.SYNC)
    blocking = np.flatnonzero(is_blocking)
    columns = (blocking, *(calls[name].to_numpy()[blocking] for name in ("thread", "start_ns", "name")))
    process = capture.threads["process"].to_list()
    waited_for = _read_synchronisations(capture.syncs, is_blocking)
    means = _records_of_calls(waits.waits)
    found: dict[int, Tail] = {}
    asked: list[tuple[int, int, int]] = []
    unnamed: list[tuple[int, int, int]] = []
    groups: dict[tuple[int, ...], int] = {}
    for call, thread, at_ns, name in zip(*(one.tolist() for one in columns), strict=True):
        kind, context, stream = waited_for.get(call, (None, None, None))
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
    return dict(sorted((found | {call: tails.of(row) for row, call in enumerate(call_of.tolist())}).items()))


def _read_synchronisations(
    syncs: pl.DataFrame, is_asked: Flags
) -> dict[int, tuple[str | None, int | None, int | None]]:
    """Kind, context and stream of what some calls waited for, by number; the first row of a call counts."""
    call = syncs["call"].to_numpy()
    rows = np.flatnonzero((call >= 0) & np.append(is_asked, np.False_)[call])
    first_rows = syncs["call", "kind", "context", "stream"][rows[::-1]]
    return {call: (kind, context, stream) for call, kind, context, stream in first_rows.iter_rows()}


def _records_of_calls(waits: pl.DataFrame) -> dict[int, tuple[int, str]]:
    """The record that the wait of each call means, and how that was found."""
    rows = np.flatnonzero(as_integers(waits["kind"]) == encode_member(SyncKind.EVENT))
    return {call: (record, how) for call, record, how in waits["call", "record", "how"][rows].iter_rows()}
