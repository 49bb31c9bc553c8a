"""The dependency graph of a replay window, which is simulated and changed by what-if questions.

Threads continue from segment to segment. Operations start when the last of their dependencies has ended,
collectives end when the last participant has arrived, and blocking calls return when the awaited operations
have ended. The captured time between a cause and its effect stays between them. The unchanged simulation
reproduces the capture; the difference is the replay error.
"""

from collections.abc import Mapping
from enum import IntEnum
from functools import cached_property
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import polars as pl

from wallscope.columns import Flags, Places, Rows, are_among, list_numbers
from wallscope.records import dataclass
from wallscope.replay.lock_holds import LockHolds, find_lock_holds
from wallscope.thresholds.causes import USUAL_DEPENDENCY_LATENCY_NS
from wallscope.thresholds.steps import LONGEST_DEPENDENCY_LATENCY_NS, REPLAY_CLOCKS_APART_NS
from wallscope.trace.dependencies import Dependencies
from wallscope.trace.intervals import AFTER_ALL, BEFORE_ALL, Times
from wallscope.trace.streams import UNRESOLVED, Tail
from wallscope.trace.thread_timeline import ThreadSegments


class Role(IntEnum):
    """What a host segment waits for, in addition to the segment before it."""

    PLAIN = 0  # nothing
    RELEASED = 1  # a segment of another thread instead of the one before it
    BLOCKING = 2  # at its end the operations that a call waits for
    RELEASING = 3  # at its end an idle device: the call frees memory
    HELD = 4  # at its end room in a launch queue, or a lock, or a spin: an operation has to end


@dataclass(frozen=True)
class ReplayGraph:
    """Host segments and device operations of a replay window, and their dependencies.

    Arrays are int64 unless another type is given, times are in ns. Index spaces: a *segment* is a row of
    `ThreadSegments`; starts of threads are numbered after all segments. An *operation* is an index in `op`;
    operations outside the window are numbered after all of them. A pair `x_ptr`, `x` lists for each index its
    entries `x[x_ptr[i]:x_ptr[i + 1]]`.

    Attributes:
        event: int64[segments + operations]; segments, and operations counted on behind them, in the order
            of the capture.
        behind: of each segment: the segment, or start of a thread, that it follows.
        own_behind: of each segment: the same of its own thread. It differs where another thread let this one
            go on, which cannot have waited before that.
        role: int8, of each segment: its `Role`.
        call: of each segment: the call that it lies in, -1 outside calls.
        segment_ns: of each segment: its duration; what a blocking call waits for does not count where it
            ends later. Of a held call: what such a call mostly takes. 0 in a run of queries before its last
            one, which waits for all of it.
        gap_ns: of each segment: the time from the end of what it waits for to its end, by its role; 0 where
            it is plain.
        is_idle: bool, of each segment: what it waits for had ended before its call was entered.
        awaited_ptr, awaited: the operations that each segment waits for at its end.
        thread_start_ns: of each thread: its start.
        op: of each operation: its number in the capture, in order of start.
        ref: of each operation: the segment, or start of a thread, at whose end it is issued.
        issuer: of each operation: the segment that issues it.
        is_early: bool, of each operation: it starts before its call returns, and `ref` lies before `issuer`.
            One that was issued before the window counts as issued early by the first segment of its thread.
        offset_ns: of each operation: from the end of `ref` to its issue.
        latency_ns: of each operation: from its issue to its start.
        operation_ns: of each operation: its duration; of a matched collective from when all have come.
        producer_ptr, producer: the operations that each operation waits for.
        lag_ns: of each of those: from its end to the start of what waits for it.
        meeting: of each operation: its collective between ranks, -1 without.
        member_ptr, member: the operations of each collective.
        holds: what holds locks that threads wait for.
        end_ns: of each operation, then of those outside the window: its end in the capture.
        dependency_latency_ns: from the end of an operation to the start of what waits for it, as it mostly
            is; 0 where none waited.
    """

    event: Rows
    behind: Rows
    own_behind: Rows
    role: npt.NDArray[np.int8]
    call: Rows
    segment_ns: Times
    gap_ns: Times
    is_idle: Flags
    awaited_ptr: Rows
    awaited: Rows
    thread_start_ns: Times
    op: Rows
    ref: Rows
    issuer: Rows
    is_early: Flags
    offset_ns: Times
    latency_ns: Times
    operation_ns: Times
    producer_ptr: Rows
    producer: Rows
    lag_ns: Times
    meeting: Rows
    member_ptr: Rows
    member: Rows
    holds: LockHolds
    end_ns: Times
    dependency_latency_ns: int

    @cached_property
    def position_of(self) -> Mapping[int, int]:
        """The position of each operation by its number in the capture."""
        return {op: position for position, op in enumerate(self.op.tolist())}

    @cached_property
    def _positions(self) -> Places:
        return Places(self.op)

    def positions(self, ops: Rows) -> Rows:
        """Return the position of each operation by its number in the capture, -1 outside the window."""
        return self._positions.of(ops)

    def producers(self, op: int) -> list[int]:
        """Return the dependencies of one operation inside the window, by their numbers."""
        position, (begin, producers) = self.position_of[op], self._producers
        return producers[begin[position] : begin[position + 1]]

    @cached_property
    def _producers(self) -> tuple[list[int], list[int]]:
        """Pointers and dependencies inside the window, by number, as lists: they are read one by one."""
        is_inside = self.producer < self.op.size
        begin = np.concatenate(([0], np.cumsum(is_inside)))[self.producer_ptr]
        return begin.tolist(), self.op[self.producer[is_inside]].tolist()


class _Issued(NamedTuple):
    """Operations that a segment issues, in order of start, as in `ReplayGraph`.

    `offset_ns` is measured from the end of the issuer, for early ones from its start. `edge` (int64[edges,
    2]) are pairs: the waiting operation, as a position in `op`, and the number of its producer. `lag_ns` is
    the latency of each pair.
    """

    op: Rows
    issuer: Rows
    is_early: Flags
    offset_ns: Times
    start_ns: Times
    end_ns: Times
    latency_ns: Times
    edge: npt.NDArray[np.int64]
    lag_ns: Times


class _Blocked(NamedTuple):
    """Segments at whose end a call waits, with their roles, and the operations that each waits for."""

    row: Rows
    role: npt.NDArray[np.int8]
    is_idle: Flags
    return_ns: Times
    awaited_count: Rows
    op: Rows


class _Collectives(NamedTuple):
    """Collectives between ranks, as in `ReplayGraph`, and the duration of each operation."""

    meeting: Rows
    member_ptr: Rows
    member: Rows
    operation_ns: Times


def build_graph(  # noqa: PLR0913, PLR0917  # the parts of a graph
    operations: pl.DataFrame,
    waits: Dependencies,
    segments: ThreadSegments,
    releasing: Mapping[int, Tail],
    partners: pl.DataFrame,
    call_name: Rows,
) -> ReplayGraph:
    """Return the graph of a window of one or several ranks.

    Args:
        operations: `OPERATIONS` of the ranks that were issued in the window, or before it and start in it.
        waits: the dependencies of the capture.
        segments: the segments of the threads that issue to the ranks.
        releasing: calls that free memory, which wait for an idle device, and the last work before each.
        partners: operations of several ranks that are one collective (`PARTNERS`).
        call_name: int64[call], the name of each call as a number.
    """
    issued = _join_ranks([_issued(own, waits, segments) for own in operations.partition_by("rank_id")])
    blocked, count = _blocked(waits, segments, releasing), issued.op.size
    positions = Places(issued.op)
    found, outside = _with_outside(positions, np.concatenate((issued.edge[:, 1], blocked.op)), count)
    producer, awaited = np.split(found, [len(issued.edge)])
    before, segment_count = segments.before, len(segments.call)
    behind, role, gap_ns = before.copy(), np.zeros(segment_count, np.int8), np.zeros(segment_count, np.int64)
    role[blocked.row] = blocked.role
    gap_ns[blocked.row] = np.where(blocked.is_idle & (blocked.role != Role.RELEASING), 0, blocked.return_ns)
    issuing = operations["call"].to_numpy()
    paused = waits.outside
    releases = segments.find_releases(issuing, paused.let_go, paused.is_alone | (paused.spun >= 0))
    for row, (other, since_ns) in releases.items():
        behind[row], role[row], gap_ns[row] = other, Role.RELEASED, since_ns
    own_behind = np.where(role == Role.RELEASED, _find_before_pauses(segments), behind)
    is_idle, awaited_count = np.zeros(segment_count, np.bool_), np.zeros(segment_count, np.int64)
    is_idle[blocked.row], awaited_count[blocked.row] = blocked.is_idle, blocked.awaited_count
    start_ns, end_ns = np.array(segments.start_ns, np.int64), np.array(segments.end_ns, np.int64)
    settled_ns = _settled_ns(segments, blocked, awaited, issued.start_ns)
    segment_ns = end_ns - start_ns
    held = np.flatnonzero(role == Role.HELD)
    segment_ns[held] = np.minimum(segment_ns[held], _usual_ns(waits, segments, held))
    segment_ns[_list_asking(waits, segments, blocked)] = 0
    collectives = _collectives(partners, positions, issued)
    return ReplayGraph(
        event=np.lexsort(  # of equal ends first what began first, and operations after segments
            (
                np.concatenate((start_ns, np.full(count, AFTER_ALL))),
                np.concatenate((end_ns, np.full(count, AFTER_ALL))),
                np.concatenate((settled_ns, issued.start_ns)),
            )
        ),
        behind=behind,
        own_behind=own_behind,
        role=role,
        call=np.array(segments.call, np.int64),
        segment_ns=segment_ns,
        gap_ns=gap_ns,
        is_idle=is_idle,
        awaited_ptr=make_pointers(awaited_count),
        awaited=awaited,
        thread_start_ns=start_ns[segments.first],
        op=issued.op,
        ref=np.where(issued.is_early, before[issued.issuer], issued.issuer) if count else issued.issuer,
        issuer=issued.issuer,
        is_early=issued.is_early,
        offset_ns=issued.offset_ns,
        latency_ns=issued.latency_ns,
        operation_ns=collectives.operation_ns,
        producer_ptr=make_pointers(np.bincount(issued.edge[:, 0], minlength=count)),
        producer=producer,
        lag_ns=issued.lag_ns,
        meeting=collectives.meeting,
        member_ptr=collectives.member_ptr,
        member=collectives.member,
        holds=find_lock_holds(segments, releases, own_behind, paused.let_go, call_name),
        end_ns=np.concatenate((issued.end_ns, waits.end_ns[outside])),
        dependency_latency_ns=_typical_lags(operations, waits)[1],
    )


def _find_before_pauses(segments: ThreadSegments) -> Rows:
    """Return what precedes the pause around each segment outside calls: a segment or start of a thread."""
    is_first = np.asarray(segments.call) >= 0
    is_first[1:] |= is_first[:-1]
    is_first[segments.first] = True
    return segments.before[np.maximum.accumulate(np.where(is_first, np.arange(is_first.size), 0))]


def make_pointers(count: Rows) -> Rows:
    """Return the start index of each group in the concatenated rows, and the final end.

    >>> make_pointers(np.array([2, 0, 1])).tolist()
    [0, 2, 2, 3]
    """
    found = np.zeros(count.size + 1, np.int64)
    np.cumsum(count, out=found[1:])
    return found


def _issued(own: pl.DataFrame, waits: Dependencies, segments: ThreadSegments) -> _Issued:
    """Return the operations of one rank that segments issue.

    Latencies that were not critical are set to the typical critical ones, if those are smaller. A dependency
    latency is critical if it is the smallest. One of more than some tens of microseconds that is most of the
    launch latency is not: then the launch was late.
    """
    typical_latency_ns, typical_dependency_ns = _typical_lags(own, waits)
    call = own["call"].to_numpy()
    held = np.flatnonzero(call >= 0)
    call, op = call[held], own["op"].to_numpy()[held].astype(np.int64)
    start_ns, end_ns = own["start_ns"].to_numpy()[held], own["end_ns"].to_numpy()[held]
    is_held = are_among(call, waits.held)  # such a call issues at its end, after its wait
    is_early = (waits.calls.end_ns[call] > start_ns) & ~is_held
    issued_ns = np.where(is_early, waits.calls.start_ns[call], waits.calls.end_ns[call])
    thread = waits.calls.thread[call]
    issuer = segments.at(thread, issued_ns, is_early)
    for one, rows in segments.rows_of.items():
        is_pending = (thread == one) & (issued_ns < segments.start_ns[rows.start])
        issuer[is_pending], is_early[is_pending] = rows.start, True  # issued before the window
    held = np.flatnonzero(issuer >= 0)
    op, issuer, issued_ns, is_early = op[held], issuer[held], issued_ns[held], is_early[held]
    start_ns, end_ns, is_held = start_ns[held], end_ns[held], is_held[held]
    starts_ns, ends_ns = np.asarray(segments.start_ns), np.asarray(segments.end_ns)
    is_early |= (ends_ns[issuer] > start_ns) & ~is_held  # it starts while the enclosing call still lasts
    edge = _edges(op, waits)
    lag_ns = start_ns[edge[:, 0]] - waits.end_ns[edge[:, 1]]
    latency_ns = np.where(is_held, np.maximum(start_ns - issued_ns, 0), start_ns - issued_ns)
    least_ns = latency_ns.copy()
    is_known = (lag_ns <= LONGEST_DEPENDENCY_LATENCY_NS) | (2 * lag_ns <= latency_ns[edge[:, 0]])
    np.minimum.at(least_ns, edge[is_known, 0], np.maximum(lag_ns[is_known], 0))
    is_critical = is_known & (lag_ns <= least_ns[edge[:, 0]])
    return _Issued(
        op,
        issuer,
        is_early,
        issued_ns - np.where(is_early, starts_ns[issuer], ends_ns[issuer]),
        start_ns,
        end_ns,
        np.where(latency_ns > least_ns, np.minimum(latency_ns, typical_latency_ns), latency_ns),
        edge,
        np.where(is_critical, lag_ns, np.minimum(lag_ns, typical_dependency_ns)),
    )


def _edges(op: Rows, waits: Dependencies) -> npt.NDArray[np.int64]:
    """Return waiting operations, as positions in `op`, and the numbers of their producers, sorted.

    The previous operation of the stream comes first.
    """
    before = waits.stream_before[op]
    held = np.flatnonzero(before >= 0)
    position, producer = waits.pairs(op)
    is_more = np.flatnonzero((producer != UNRESOLVED) & (producer != before[position]))
    pairs = (np.concatenate((held, position[is_more])), np.concatenate((before[held], producer[is_more])))
    found: npt.NDArray[np.int64] = np.column_stack(pairs).astype(np.int64)
    return found[np.argsort(found[:, 0], kind="stable")]


def _join_ranks(parts: list[_Issued]) -> _Issued:
    """Return the operations of several ranks in order of start."""
    sizes = np.cumsum([0, *(part.op.size for part in parts)])
    edges = [part.edge + np.array([offset, 0]) for part, offset in zip(parts, sizes, strict=False)]
    if not parts:
        none = np.empty(0, np.int64)
        return _Issued(none, none, none > 0, none, none, none, none, none.reshape(0, 2), none)
    moved = (part._replace(edge=edge) for part, edge in zip(parts, edges, strict=True))
    whole = _Issued(*map(np.concatenate, zip(*moved, strict=True)))
    order = np.lexsort((whole.op, whole.start_ns))
    position = np.empty(order.size, np.int64)
    position[order] = np.arange(order.size)
    edge = np.column_stack([position[whole.edge[:, 0]], whole.edge[:, 1]])
    in_order = np.argsort(edge[:, 0], kind="stable")
    columns = (column[order] for column in whole[:-2])
    return _Issued._make([*columns, edge[in_order], whole.lag_ns[in_order]])


def _typical_lags(operations: pl.DataFrame, waits: Dependencies) -> tuple[int, int]:
    """Return the median launch latency and dependency latency where they are critical, in ns.

    Operations that wait for more than the one before them are excluded. If one was launched so late that its
    launch latency explains its start, the dependency was not critical, and its latency is at most that long.
    If no dependency was critical, the latency is the shortest one seen, but no longer than usual.
    """
    op, call = operations["op"].to_numpy(), operations["call"].to_numpy()
    start_ns, before = operations["start_ns"].to_numpy(), waits.stream_before[op]
    done_ns = np.where(before >= 0, waits.end_ns[before], BEFORE_ALL)
    issued_ns = waits.calls.end_ns[call]
    alone = ~waits.is_waiting(op)
    by_issue, by_producer = alone & (issued_ns > done_ns), alone & (done_ns >= issued_ns) & (before >= 0)

    latency_ns = _middle_ns((start_ns - issued_ns)[by_issue])
    by_producer &= start_ns >= done_ns
    lag_ns, ready_ns = (start_ns - done_ns)[by_producer], (done_ns - issued_ns)[by_producer]
    is_surely = ready_ns >= latency_ns
    if lag_ns.size and not is_surely.any():
        return latency_ns, min(int(lag_ns.min()), USUAL_DEPENDENCY_LATENCY_NS)
    return latency_ns, _middle_ns(lag_ns[is_surely])


def _middle_ns(times_ns: Times) -> int:
    """Return the median of the times from 0 on; 0 without any."""
    held = times_ns[times_ns >= 0]
    return int(np.median(held)) if held.size else 0


def _usual_ns(waits: Dependencies, segments: ThreadSegments, held: Rows) -> int:
    """Return the median duration of calls that issue without waiting, 0 without any."""
    if not held.size:
        return 0
    call = np.asarray(segments.call)
    made = list_numbers(call)
    free = made[are_among(made, waits.call) & ~are_among(made, call[held])]
    return int(np.median(waits.calls.end_ns[free] - waits.calls.start_ns[free])) if free.size else 0


def _blocked(waits: Dependencies, segments: ThreadSegments, releasing: Mapping[int, Tail]) -> _Blocked:
    """Return the segments at the end of calls that block or free memory, and of spins outside calls."""
    call = np.asarray(segments.call)
    freeing = np.fromiter(releasing, np.int64, len(releasing))
    chosen = np.concatenate((waits.blocking, waits.held, freeing))
    rows = np.flatnonzero((call >= 0) & are_among(call, chosen))
    rows = rows[waits.calls.end_ns[call[rows]] == np.asarray(segments.end_ns)[rows]]
    found, awaited = [], []
    for row, one, end_ns in zip(
        rows.tolist(), call[rows].tolist(), np.asarray(segments.end_ns)[rows].tolist(), strict=True
    ):
        is_releasing = one in releasing
        ops = [
            op for op in (releasing[one] if is_releasing else waits.list_awaited_by(one)) if op != UNRESOLVED
        ]
        done_ns = max((waits.end_ns[op] for op in ops), default=BEFORE_ALL)
        entered_ns = _entered_ns(waits, one)
        return_ns = end_ns - (max(done_ns, entered_ns) if is_releasing else done_ns)
        own = [] if is_releasing and done_ns > end_ns else ops  # this one did not wait
        found.append((row, is_releasing, done_ns <= entered_ns, return_ns, len(own)))
        awaited.append(own)
    spins = _find_spins(waits, segments)
    found += [(row, False, False, 0, 1) for row in spins]
    awaited += [[op] for op in spins.values()]
    order = sorted(range(len(found)), key=lambda place: found[place][0])
    rows, releases, idle, return_ns, count = (
        np.array([found[one] for one in order], np.int64).reshape(-1, 5).T
    )
    is_held = (call[rows] < 0) | are_among(call[rows], waits.held)
    role = np.where(is_held, Role.HELD, Role.BLOCKING)
    role[releases > 0] = Role.RELEASING
    awaited_ops = np.array([op for one in order for op in awaited[one]], np.int64)
    return _Blocked(rows, role.astype(np.int8), idle > 0, return_ns, count, awaited_ops)


def _find_spins(waits: Dependencies, segments: ThreadSegments) -> dict[int, int]:
    """Return the operation that each thread spun for, by the segment outside calls that ends with it."""
    spinning, op = waits.outside.spins
    done_ns = waits.end_ns[op]
    row = segments.at(waits.calls.thread[spinning], done_ns, np.zeros(op.size, np.bool_))
    held = np.flatnonzero((row >= 0) & (np.asarray(segments.call)[row] < 0))
    held = held[np.asarray(segments.end_ns)[row[held]] == done_ns[held]]
    return dict(zip(row[held].tolist(), op[held].tolist(), strict=True))


def _entered_ns(waits: Dependencies, call: int) -> int:
    """Return when a call began to wait; for several queries in a row, when the first was made."""
    row = waits.blocked[call]
    return int(waits.entered_ns[row] if row >= 0 else waits.calls.start_ns[call])


def _list_asking(waits: Dependencies, segments: ThreadSegments, blocked: _Blocked) -> Rows:
    """Return segments before the last query in runs of queries that have waited, and all of spins."""
    call = np.asarray(segments.call)[blocked.row[~blocked.is_idle]]
    spins = blocked.row[~blocked.is_idle][call < 0]
    call = call[call >= 0]
    start_ns = waits.calls.start_ns[call]
    entered_ns = np.array([_entered_ns(waits, one) for one in call.tolist()], np.int64)
    found = []
    for row in np.flatnonzero(entered_ns < start_ns).tolist():
        own = segments.rows_of[int(waits.calls.thread[call[row]])]
        starts_ns, ends_ns = (
            np.asarray(one)[own.start : own.stop] for one in (segments.start_ns, segments.end_ns)
        )
        first = int(np.searchsorted(starts_ns, entered_ns[row]))
        last = int(np.searchsorted(ends_ns, start_ns[row], side="right"))
        found.append(np.arange(own.start + first, own.start + last))
    return np.concatenate([np.empty(0, np.int64), *found, _list_outside_before(segments, spins)])


def _list_outside_before(segments: ThreadSegments, rows: Rows) -> Rows:
    """Return some segments outside calls, and those right before them that are outside calls too."""
    call, thread = np.asarray(segments.call), np.asarray(segments.thread)
    found: list[int] = []
    for last in rows.tolist():
        row = last
        while row >= 0 and call[row] < 0 and thread[row] == thread[last]:
            found.append(row)
            row -= 1
    return np.array(found, np.int64)


def _with_outside(positions: Places, ops: Rows, count: int) -> tuple[Rows, Rows]:
    """Return the positions of operations, those outside the window after all, and which those are."""
    position = positions.of(ops)
    is_outside = position < 0
    outside, row = np.unique(ops[is_outside], return_inverse=True)
    position[is_outside] = count + row
    return position, outside


def _settled_ns(segments: ThreadSegments, blocked: _Blocked, awaited: Rows, begun_ns: Times) -> Times:
    """Return when each segment ends, but not before its awaited operation begins: clocks differ slightly."""
    settled_ns = np.array(segments.end_ns, np.int64)
    last_ns = np.full(settled_ns.size, BEFORE_ALL)
    np.maximum.at(
        last_ns,
        blocked.row.repeat(blocked.awaited_count),
        np.append(begun_ns, BEFORE_ALL)[np.minimum(awaited, begun_ns.size)],
    )
    moved = np.flatnonzero((last_ns >= settled_ns) & (last_ns <= settled_ns + REPLAY_CLOCKS_APART_NS))
    settled_ns[moved] = last_ns[moved] + 1
    for thread in np.unique(np.asarray(segments.thread)[moved]).tolist():
        rows = segments.rows_of[thread]
        own_ns = settled_ns[rows.start : rows.stop]
        np.maximum.accumulate(own_ns, out=own_ns)
    return settled_ns


def _collectives(partners: pl.DataFrame, positions: Places, issued: _Issued) -> _Collectives:
    """Return the collectives of which all participants are in the window."""
    meeting, operation_ns = np.full(issued.op.size, -1, np.int64), issued.end_ns - issued.start_ns
    position, collective = positions.of(partners["op"].to_numpy()), partners["collective"].to_numpy()
    collective, number = np.unique(collective, return_inverse=True)
    is_whole = np.ones(collective.size, np.bool_)
    is_whole[number[position < 0]] = False
    order = np.argsort(number, kind="stable")
    member = position[order[is_whole[number[order]]]]
    size = np.bincount(number, minlength=collective.size)[is_whole]
    member_ptr = make_pointers(size)
    if size.size:
        come_ns = np.maximum.reduceat(issued.start_ns[member], member_ptr[:-1])
        operation_ns[member] = issued.end_ns[member] - come_ns.repeat(size)
        meeting[member] = np.arange(size.size).repeat(size)
    return _Collectives(meeting, member_ptr, member, operation_ns)
