"""Calls that do not wait by what they are for, and yet were held: by a full launch queue or a driver lock.

A launch returns only when the queue of its channel has room, and this queue holds about a thousand launches.
The host is then so far ahead that it waits for the device. A driver call may also wait for a lock that
another thread holds in its own call; the two return together.
"""

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import polars as pl

from wallscope.columns import Codes, Flags, Rows, as_integers, encode_member, iterate_groups
from wallscope.model.enums import CallRole
from wallscope.thresholds.dependencies import (
    FEWEST_USUAL_CALLS_COUNT,
    FULL_QUEUE_COUNT,
    LOCK_CANDIDATES_COUNT,
    LOCK_RETURN_NS,
    LOCKED_LENGTH_RATIO,
    LOCKED_SHARE,
    LOCKED_WORK_NS,
    SHORTEST_HELD_CALL_NS,
    USUAL_CALLS_SHARE,
)
from wallscope.trace.intervals import Times
from wallscope.trace.streams import UNRESOLVED, Tail
from wallscope.trace.thread_timeline import CallTimes

_LAUNCHING = (CallRole.LAUNCH, CallRole.GRAPH)


def find_full_queues(
    operations: pl.DataFrame, before: Codes, calls: CallTimes, roles: pl.Series
) -> dict[int, Tail]:
    """Return the launches that waited for a place in the queue, each with the operation that they waited for.

    A launch is taken for one that waited if it took long and about as many launches of its stream were
    pending when it returned as a queue holds. The start of the last operation that had begun then had made
    room, so what was waited for is the one before that.

    Args:
        operations: `OPERATIONS`.
        before: int32[op], the operation before each in its stream, -1 without one.
        calls: times and threads of all calls.
        roles: the `CallRole` of each call.
    """
    call, stream = operations["call"].to_numpy(), operations["stream"].to_numpy()
    start_ns = operations["start_ns"].to_numpy()
    is_launch = np.append(np.isin(as_integers(roles), [encode_member(one) for one in _LAUNCHING]), np.False_)
    long = np.flatnonzero(
        is_launch[call] & (calls.end_ns[call] - calls.start_ns[call] >= SHORTEST_HELD_CALL_NS)
    )
    found: dict[int, Tail] = {}
    if long.size == 0:
        return found
    for _, own in iterate_groups(stream):
        if own.size <= FULL_QUEUE_COUNT:
            continue
        place = np.flatnonzero(np.isin(own, long, assume_unique=True))
        returned_ns = calls.end_ns[call[own[place]]]
        begun = np.searchsorted(start_ns[own], returned_ns, side="right")
        is_new = np.append(True, (call[own[1:]] != call[own[:-1]]) | (call[own[1:]] < 0))
        launches = np.append(0, np.cumsum(is_new))  # those of graphs run several operations
        is_full = (launches[place + 1] - launches[begun] >= FULL_QUEUE_COUNT) & (begun > 1)
        awaited = before[own[begun[is_full] - 1]]
        held = call[own[place[is_full]]]
        found |= {one: (op,) for one, op in zip(held.tolist(), awaited.tolist(), strict=True) if op >= 0}
    return found


@dataclass(frozen=True, slots=True)
class LockedCalls:
    """Calls that waited for a lock: those of which is known what its holder waited for, and all holders.

    `holder` int32[call] is the call of another thread that held the lock, -1 without one.
    """

    awaited: dict[int, Tail]
    holder: npt.NDArray[np.int32]


def find_locked_calls(
    calls: CallTimes, roles: pl.Series, process_of_thread: Rows, blocking: Mapping[int, Tail]
) -> LockedCalls:
    """Return the calls that returned together with a long call of another thread of their process.

    A call no longer than usual ones with its purpose did not wait. The other call blocks, allocates or
    copies. It lasted for most of the time of the one that waited for it. The latter may return a little
    later, because it does its own work once it has the lock.

    Args:
        calls: times and threads of all calls.
        roles: the `CallRole` of each call.
        process_of_thread: int64[thread], the process of each thread.
        blocking: what calls waited for that block by themselves, or were held by a full queue.
    """
    start_ns, end_ns, thread = calls.start_ns.told, calls.end_ns.told, calls.thread.told
    holder = np.full(start_ns.size, -1, np.int32)
    is_long = end_ns - start_ns >= SHORTEST_HELD_CALL_NS
    blocks = np.zeros(start_ns.size, np.bool_)
    blocks[list(blocking)] = True
    of_role = as_integers(roles)
    holds = np.isin(of_role, [encode_member(one) for one in (CallRole.ALLOC, CallRole.COPY)])
    is_unusual = is_long & (end_ns - start_ns >= LOCKED_LENGTH_RATIO * _usual_ns(end_ns - start_ns, of_role))
    asked, holding = np.flatnonzero(is_unusual & ~blocks), np.flatnonzero(is_long & (blocks | holds))
    process = process_of_thread[thread]
    for one, own in iterate_groups(process[holding]):
        rows = asked[process[asked] == one]
        holder[rows] = _find_holders(calls, rows, holding[own])
    awaited = {
        call: blocking[by]
        for call, by in zip(asked.tolist(), holder[asked].tolist(), strict=True)
        if by >= 0 and UNRESOLVED not in blocking.get(by, (UNRESOLVED,))
    }
    return LockedCalls(awaited, holder)


def _usual_ns(length_ns: Codes, role: Codes) -> Times:
    """Return how long undisturbed calls of the role of each call take, 0 if there are too few."""
    found = np.zeros(role.size, np.float64)
    for _, own in iterate_groups(role.astype(np.int64)):
        if own.size >= FEWEST_USUAL_CALLS_COUNT:
            found[own] = np.quantile(length_ns[own], USUAL_CALLS_SHARE)
    return found.astype(np.int64)


def _find_holders(calls: CallTimes, asked: Rows, holding: Rows) -> Rows:
    """Return the call that blocked each given one, -1 without one: the longest one that overlapped it."""
    start_ns, end_ns, thread = calls.start_ns.told, calls.end_ns.told, calls.thread.told
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
