"""Calls that hold the thread that makes them: blocking copies, held calls and questions.

- Copies: whether a call blocks depends on its name and on the memory at both ends, as CUDA documents it. To
  pageable host memory, and from pinned memory without `Async`, the copy has ended when its call returns. From
  pageable memory the call returns when the last bytes are staged: a large copy blocks its caller for nearly
  all of its time, a small one not at all. With `Async`, between pinned memory and the device, or on the
  device, the call does not block. Others, such as on the device without `Async`, or with unknown memory,
  blocked if the copy ended before they returned.
- Held calls: a launch returns only when the queue of its channel has room, and this queue holds about a
  thousand launches. The host is then so far ahead that it waits for the device. A driver call may also wait
  for a lock that another thread holds in its own call; the two return together. Both take longer than calls
  of their role that nothing can have held: those with room in the queue, and without such a call of another
  thread at that time.
- Asking: a thread may query an event or a stream repeatedly. This appears as a run of queries.
"""

from collections.abc import Mapping

import numpy as np
import numpy.typing as npt
import polars as pl

from wallscope.columns import (
    Codes,
    Flags,
    Rows,
    as_integers,
    encode_member,
    iterate_groups,
    iterate_runs,
    number_groups,
)
from wallscope.model.capture import Capture
from wallscope.model.enums import CallRole, CopyDirection, MemoryKind, OperationKind
from wallscope.records import dataclass
from wallscope.thresholds.steps import (
    BLOCKING_COPY_INSIDE_SHARE,
    BLOCKING_COPY_LATE_NS,
    FEWEST_QUERIES_COUNT,
    FEWEST_USUAL_CALLS_COUNT,
    FEWEST_USUAL_LATENCIES_COUNT,
    FULL_QUEUE_COUNT,
    LEAST_HELD_CALL_NS,
    LOCK_CANDIDATES_COUNT,
    LOCK_RETURN_NS,
    LOCKED_LENGTH_RATIO,
    LOCKED_SHARE,
    LOCKED_WORK_NS,
    LOCKS_SHARE,
    QUERIES_APART_NS,
    SHORTEST_HELD_CALL_NS,
    UNUSUAL_LATENCY_RATIO,
    USUAL_CALLS_SHARE,
    USUAL_LATENCIES_SHARE,
)
from wallscope.trace.intervals import Times
from wallscope.trace.streams import UNRESOLVED, StreamOrder, Tail
from wallscope.trace.thread_timeline import CallTimes, FlattenedCalls, mark_calls

_ASYNCHRONOUS = r"Async"
_TO_HOST = (CopyDirection.DEVICE_TO_HOST, CopyDirection.HOST_TO_HOST)
_LASTING = (MemoryKind.PINNED, MemoryKind.DEVICE, MemoryKind.ARRAY, MemoryKind.DEVICE_STATIC)


@dataclass(frozen=True, slots=True)
class _Promises:
    """Whether each copy has ended when its call returns, is staged then, or is known only by its end."""

    is_through: Flags
    is_staged: Flags
    is_told_by_end: Flags


def find_blocking_copies(capture: Capture, order: StreamOrder) -> dict[int, Tail]:
    """Return what calls waited for that were held by a copy of theirs, of several by the one that ended last.

    That is the copy. One that begins after its call returned, as clocks differ, can't be followed back to
    the call: what it waited for itself stands for it.
    """
    op, call = _list_issued_copies(capture)
    start_ns, end_ns = (capture.operations[name].to_numpy()[op] for name in ("start_ns", "end_ns"))
    returned_ns = capture.calls["end_ns"].to_numpy()[call]
    promises = _tell_promises(capture, op, call)
    is_inside = returned_ns - start_ns >= BLOCKING_COPY_INSIDE_SHARE * (end_ns - start_ns)
    is_held = promises.is_through & (end_ns <= returned_ns + BLOCKING_COPY_LATE_NS)
    is_held |= promises.is_staged & (start_ns < returned_ns) & is_inside
    is_held |= promises.is_told_by_end & (end_ns <= returned_ns)
    held = np.flatnonzero(is_held)
    held = held[np.lexsort((end_ns[held], call[held]))]
    last = held[np.diff(call[held], append=-1) != 0]
    is_early = (start_ns < returned_ns) | (end_ns <= returned_ns)
    columns = (column[last].tolist() for column in (call, op, is_early))
    return {
        one: (copy,) if early else _list_before(copy, order)
        for one, copy, early in zip(*columns, strict=True)
    }


def list_finished_copies(capture: Capture) -> tuple[Rows, Rows]:
    """Return the copies that have ended when their call returns, and these calls, by number."""
    op, call = _list_issued_copies(capture)
    is_through = _tell_promises(capture, op, call).is_through
    return op[is_through], call[is_through]


def _list_issued_copies(capture: Capture) -> tuple[Rows, Rows]:
    """The copies that calls for copies issued, and those calls, by number."""
    operations, call = capture.operations, capture.operations["call"].to_numpy()
    is_copy = as_integers(operations["kind"]) == encode_member(OperationKind.COPY)
    rows = np.flatnonzero(is_copy & (call >= 0))
    is_copying = as_integers(capture.calls["role"]) == encode_member(CallRole.COPY)
    rows = rows[is_copying[call[rows]]]
    return rows, call[rows].astype(np.int64)


def _tell_promises(capture: Capture, op: Rows, call: Rows) -> _Promises:
    """Return the blocking behavior of copy calls, by their names and the memory of the copies."""
    waits = ~mark_calls(capture, _ASYNCHRONOUS)[call]
    copies = pl.DataFrame({"op": op}, schema={"op": capture.copies.schema["op"]}).join(
        capture.copies, on="op", how="left", maintain_order="left"
    )
    direction, source, destination = (as_integers(copies[name]) for name in copies.columns[1:])
    to_host, to_device = _is_among(direction, _TO_HOST), _is_among(direction, (CopyDirection.HOST_TO_DEVICE,))
    is_pageable = [_is_among(end, (MemoryKind.PAGEABLE,)) for end in (source, destination)]
    is_free = ~waits & _is_among(source, _LASTING) & _is_among(destination, _LASTING)
    is_through = to_host & (waits | is_pageable[1])
    is_through |= to_device & waits & _is_among(source, (MemoryKind.PINNED,))
    is_staged = to_device & ~is_through & (waits | is_pageable[0])
    return _Promises(is_through, is_staged, ~is_free)


def _is_among(codes: Codes, members: tuple[CopyDirection, ...] | tuple[MemoryKind, ...]) -> Flags:
    return np.isin(codes, [encode_member(member) for member in members])


def _list_before(op: int, order: StreamOrder) -> Tail:
    """What an operation waited for, the one before it in its stream first."""
    before = int(order.before[op])
    return (*((before,) if before >= 0 else ()), *(order.producers(op) - {before}))


_LAUNCHING = (CallRole.LAUNCH, CallRole.GRAPH)


def find_full_queues(
    operations: pl.DataFrame, before: Codes, calls: CallTimes, roles: pl.Series
) -> dict[int, Tail]:
    """Return the launches that waited for a place in the queue, each with the operation that they waited for.

    A launch is taken for one that waited if it took longer than those with room. When it returned, about as
    many launches of its stream were pending as a queue holds. The start of the last operation that had begun
    then had made room, so what was waited for is the one before that.

    Args:
        operations: `OPERATIONS`.
        before: int32[op], the operation before each in its stream, -1 without one.
        calls: times and threads of all calls.
        roles: the `CallRole` of each call.
    """
    call, stream = operations["call"].to_numpy(), operations["stream"].to_numpy()
    start_ns = operations["start_ns"].to_numpy()
    is_launch = np.isin(FlattenedCalls(as_integers(roles), -1)[call], [*map(encode_member, _LAUNCHING)])
    length_ns = calls.end_ns[call] - calls.start_ns[call]
    full, awaited = [np.empty(0, np.int64)], [np.empty(0, np.int64)]
    if not (is_launch & (length_ns >= LEAST_HELD_CALL_NS)).any():
        return {}
    for _, own in iterate_groups(stream):
        if own.size <= FULL_QUEUE_COUNT:
            continue
        place = np.flatnonzero(is_launch[own])
        returned_ns = calls.end_ns[call[own[place]]]
        begun = np.searchsorted(start_ns[own], returned_ns, side="right")
        is_new = np.append(True, (call[own[1:]] != call[own[:-1]]) | (call[own[1:]] < 0))
        launches = np.append(0, np.cumsum(is_new))  # those of graphs run several operations
        is_full = (launches[place + 1] - launches[begun] >= FULL_QUEUE_COUNT) & (begun > 1)
        full.append(own[place[is_full]])
        awaited.append(before[own[begun[is_full] - 1]].astype(np.int64))
    ops, behind = np.concatenate(full), np.concatenate(awaited)
    has_room = is_launch.copy()
    has_room[ops] = False
    is_held = (length_ns[ops] >= _find_shortest_held(length_ns[has_room])) & (behind >= 0)
    held, last = call[ops[is_held]].tolist(), behind[is_held].tolist()
    return {one: (op,) for one, op in zip(held, last, strict=True)}


def _find_shortest_held(unheld_ns: Times) -> int:
    """Return from which length on a call is longer than those of its role that nothing can have held."""
    if unheld_ns.size < FEWEST_USUAL_LATENCIES_COUNT:
        return SHORTEST_HELD_CALL_NS
    longest_ns = int(UNUSUAL_LATENCY_RATIO * np.quantile(unheld_ns, USUAL_LATENCIES_SHARE))
    return min(max(longest_ns, LEAST_HELD_CALL_NS), SHORTEST_HELD_CALL_NS)


@dataclass(frozen=True, slots=True)
class LockedCalls:
    """Calls that waited for a lock: those of which is known what its holder waited for, and all holders.

    `holder` int32[call] is the call of another thread that held the lock, -1 without one. `is_delayed`
    bool[call] marks calls that took several times as long as usual ones of their role. One below
    `SHORTEST_HELD_CALL_NS` may be so by chance, and is marked only with its holder.
    """

    awaited: dict[int, Tail]
    holder: npt.NDArray[np.int32]
    is_delayed: Flags


def find_locked_calls(
    calls: CallTimes, roles: pl.Series, process_of_thread: Rows, blocking: Mapping[int, Tail]
) -> LockedCalls:
    """Return the calls that returned together with a long call of another thread of their process.

    A call no longer than usual ones with its purpose did not wait. If most long ones of its thread do not
    return so, they are long by themselves; those below `SHORTEST_HELD_CALL_NS` are judged apart. The other
    call blocks, allocates or copies. It lasted for most of the time of the one that waited for it. The latter
    may return a little later, because it does its own work once it has the lock.

    Args:
        calls: times and threads of all calls.
        roles: the `CallRole` of each call.
        process_of_thread: int64[thread], the process of each thread.
        blocking: what calls waited for that block by themselves, or were held by a full queue.
    """
    start_ns, end_ns, thread = calls.start_ns.of_call, calls.end_ns.of_call, calls.thread.of_call
    holder = np.full(start_ns.size, -1, np.int32)
    length_ns = end_ns - start_ns
    long = np.flatnonzero(length_ns >= LEAST_HELD_CALL_NS)
    blocks = np.zeros(start_ns.size, np.bool_)
    blocks[list(blocking)] = True
    of_role = as_integers(roles)
    holds = np.isin(of_role[long], [encode_member(one) for one in (CallRole.ALLOC, CallRole.COPY)])
    holding = long[blocks[long] | holds]
    may_be_held = blocks | _mark_beside_others(calls, process_of_thread, holding)
    is_slow = _mark_delayed(length_ns, of_role, long, ~may_be_held)
    asked = np.flatnonzero(is_slow & ~blocks)
    of_asked, of_holding = (process_of_thread[thread[one]] for one in (asked, holding))
    for one, own in iterate_groups(of_holding):
        rows = asked[of_asked == one]
        holder[rows] = _find_holders(calls, rows, holding[own])
    is_longest = (length_ns[asked] >= SHORTEST_HELD_CALL_NS).astype(np.int64)
    kind = number_groups(thread[asked], of_role[asked], is_longest)
    held, all_long = np.bincount(kind, holder[asked] >= 0), np.bincount(kind)
    holder[asked[(held < LOCKS_SHARE * all_long)[kind]]] = -1
    awaited = {
        call: blocking[by]
        for call, by in zip(asked.tolist(), holder[asked].tolist(), strict=True)
        if by >= 0 and UNRESOLVED not in blocking.get(by, (UNRESOLVED,))
    }
    is_delayed = is_slow & ((holder >= 0) | (length_ns >= SHORTEST_HELD_CALL_NS))
    return LockedCalls(awaited, holder, is_delayed)


def _mark_beside_others(calls: CallTimes, process_of_thread: Rows, holding: Rows) -> Flags:
    """Return which calls overlapped holding calls of another thread of their process."""
    start_ns, end_ns, thread = calls.start_ns.of_call, calls.end_ns.of_call, calls.thread.of_call
    found = np.zeros(thread.size, np.bool_)
    holder = thread[holding]
    for one, own in iterate_runs(thread):
        held = holding[(process_of_thread[holder] == process_of_thread[one]) & (holder != one)]
        if held.size:
            begun = np.searchsorted(np.sort(start_ns[held]), end_ns[own], side="left")
            found[own] = begun > np.searchsorted(np.sort(end_ns[held]), start_ns[own], side="right")
    return found


def _mark_delayed(length_ns: Times, role: Codes, long: Rows, is_unheld: Flags) -> Flags:
    """Return which of the long calls took several times as long as undisturbed ones of their role.

    If a role has too few calls to know what is usual, each long one did. They are also longer than those that
    nothing can have held (`is_unheld`).
    """
    found = np.zeros(role.size, np.bool_)
    for one, own in iterate_groups(role[long].astype(np.int64)):
        alike = np.flatnonzero(role == one)
        is_known = alike.size >= FEWEST_USUAL_CALLS_COUNT
        usual_ns = int(np.quantile(length_ns[alike], USUAL_CALLS_SHARE)) if is_known else 0
        shortest_ns = _find_shortest_held(length_ns[alike[is_unheld[alike]]])
        found[long[own]] = length_ns[long[own]] >= max(LOCKED_LENGTH_RATIO * usual_ns, shortest_ns)
    return found


def _find_holders(calls: CallTimes, asked: Rows, holding: Rows) -> Rows:
    """Return the call that blocked each given one, -1 without one: the longest one that overlapped it."""
    start_ns, end_ns, thread = calls.start_ns.of_call, calls.end_ns.of_call, calls.thread.of_call
    by_end = holding[np.argsort(end_ns[holding], kind="stable")]
    last = np.searchsorted(end_ns[by_end], end_ns[asked] + LOCK_RETURN_NS, side="right") - 1
    found, longest_ns = np.full(asked.size, -1), np.zeros(asked.size, np.int64)
    for nth in range(LOCK_CANDIDATES_COUNT):
        other = by_end[np.maximum(last - nth, 0)]
        since_ns = np.maximum(start_ns[other], start_ns[asked])
        beside_ns = np.minimum(end_ns[other], end_ns[asked]) - since_ns
        is_holder: Flags = (
            (last >= nth)
            & (end_ns[other] >= end_ns[asked] - LOCKED_WORK_NS)
            & (start_ns[other] < start_ns[asked])
            & (thread[other] != thread[asked])
            & (beside_ns >= LOCKED_SHARE * (end_ns[asked] - start_ns[asked]))
            & (beside_ns > longest_ns)
        )
        found[is_holder], longest_ns[is_holder] = other[is_holder], beside_ns[is_holder]
    return found


@dataclass(frozen=True, slots=True)
class QueryRuns:
    """Runs of queries on a thread with nothing else between them that issues or blocks.

    Attributes:
        call: int64[run], the last query.
        since_ns: int64[run], when the first one began.
        asked_ns: int64[run], when the one before the last began: then the answer was still no.
        is_close: bool[run], whether the thread did nothing between them, not even sleep.
    """

    call: Rows
    since_ns: Times
    asked_ns: Times
    is_close: Flags


def find_query_runs(calls: CallTimes, is_query: Flags, is_cheap: Flags) -> QueryRuns:
    """Return the runs of queries of all threads, each as long as it can be, and longer than a query ever is.

    Args:
        calls: times and threads of all calls, by thread and start.
        is_query: bool[call], whether a call asks for an event or a stream.
        is_cheap: bool[call], whether a call may lie between two queries of a run.
    """
    start_ns, end_ns, thread = calls.start_ns.of_call, calls.end_ns.of_call, calls.thread.of_call
    asks = np.flatnonzero(is_query)
    if not asks.size:
        none = np.empty(0, np.int64)
        return QueryRuns(none, none, none, none > 0)
    before = np.maximum(asks - 1, 0)
    is_nested = (asks > 0) & (thread[before] == thread[asks]) & (start_ns[asks] < end_ns[before])
    rows = asks[~(is_nested & (is_query[before] | is_cheap[before]))]
    others = np.concatenate(([0], np.cumsum(~(is_query | is_cheap))))
    goes_on = (thread[rows[1:]] == thread[rows[:-1]]) & (others[rows[1:]] == others[rows[:-1]])
    apart_ns = start_ns[rows[1:]] - end_ns[rows[:-1]]
    edges = np.flatnonzero(np.concatenate(([True], ~goes_on, [True])))
    first, last = edges[:-1], edges[1:] - 1
    is_run = (last - first + 1 >= FEWEST_QUERIES_COUNT) & (
        end_ns[rows[last]] - start_ns[rows[first]] >= SHORTEST_HELD_CALL_NS
    )
    first, last = first[is_run], last[is_run]
    long_count = np.concatenate(([0], np.cumsum(apart_ns > QUERIES_APART_NS)))
    return QueryRuns(
        call=rows[last],
        since_ns=start_ns[rows[first]],
        asked_ns=start_ns[rows[last - 1]],
        is_close=long_count[last] == long_count[first],
    )
