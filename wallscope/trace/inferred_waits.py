"""Infer from timing what operations and blocking calls waited for, where the export lacks it.

An operation that was issued long before, and whose known producers ended long before, waited for something
that is not recorded. This may be the operation of another stream that ended right before it began. It is if
the thread let a stream wait for an event between the previous launch and this one. It also is if the same
pair of streams repeats this. If nothing ran since the last known producer, the operation waited only for the
issue. Otherwise its dependency stays unresolved.
"""

import numpy as np
import numpy.typing as npt
import polars as pl

from wallscope.columns import Codes, Flags, Rows, as_integers, encode_member, iterate_runs, number_groups
from wallscope.model.enums import OperationKind
from wallscope.records import dataclass
from wallscope.thresholds.steps import (
    FEWEST_INFERRED_COUNT,
    FEWEST_USUAL_LATENCIES_COUNT,
    INFERRED_CANDIDATES_COUNT,
    INFERRED_CLOSE_NS,
    INFERRED_SHARE,
    LATE_STARTS_SHARE,
    LONGEST_DEPENDENCY_LATENCY_NS,
    LONGEST_LAUNCH_LATENCY_NS,
    LONGEST_UNEXPLAINED_LATENCY_NS,
    PRODUCER_TOLERANCE_NS,
    UNUSUAL_LATENCY_RATIO,
    USUAL_LATENCIES_SHARE,
)
from wallscope.trace.intervals import BEFORE_ALL, Times
from wallscope.trace.streams import UNRESOLVED, OperationSets
from wallscope.trace.thread_timeline import CallTimes

NOTHING_PENDING = -2
"""What a call waited for that began when nothing was left to wait for."""
HELD_WHILE_IDLE = -2
"""What an operation waited for that was ready to begin on a device that did nothing."""


@dataclass(frozen=True, slots=True)
class InferredWaits:
    """Dependencies of operations that are inferred from timing.

    Attributes:
        op, producer: int32[n], operations and their inferred dependencies.
        unexplained: operations with an unknown dependency.
        free: operations with an unresolved wait that was over, because no candidate ran.
        idle: operations that were delayed although nothing ran since their last known dependency, except
            page migrations. If that is their launch, they began later than is usual in this capture.
        held: those of them that were delayed by more than a latency.
        longest_launch_ns: the longest launch latency that is usual in this capture.
    """

    op: Codes
    producer: Codes
    unexplained: Rows
    free: Rows
    idle: Rows
    held: Rows
    longest_launch_ns: int


@dataclass(frozen=True, slots=True)
class _Late:
    """Operations that began long after all that is known to have held them, in order of number.

    `known_ns` is when the last known dependency ended; `was_issued` means that it was the issue. `usual` are
    the latencies that need no other explanation in this capture.
    """

    op: Rows
    known_ns: Times
    was_issued: Flags
    is_open: Flags
    usual: "_UsualLatencies"


@dataclass(frozen=True, slots=True)
class _UsualLatencies:
    """The longest usual latency behind a producer and behind an issue on an idle device, in ns.

    `launches_count` is how many of the latter the capture has.
    """

    hand_over_ns: int
    launch_ns: int
    launches_count: int


def infer_producers(  # noqa: PLR0913, PLR0917  # the inputs of the inference
    operations: pl.DataFrame,
    end_ns: Times,
    before: Codes,
    producers: OperationSets,
    calls: CallTimes,
    wait_calls: Rows,
    behind_hold: Flags,
) -> InferredWaits:
    """Return what operations are taken to have waited for.

    Args:
        operations: `OPERATIONS`.
        end_ns: int64[op], ns.
        before: int32[op], the operation before each in its stream, -1 without one.
        producers: what each operation is known to wait for.
        calls: times and threads of all calls.
        wait_calls: the calls that let a stream wait for an event.
        behind_hold: bool[op], whether each was issued behind a call that holds a stream without a row.
    """
    late = _find_late(operations, end_ns, before, producers, calls, behind_hold)
    close = _find_close(operations, end_ns, late)
    is_held = _follows_wait_call(operations, before, calls, wait_calls, late.op)
    found = _choose_producer(operations, late, close, is_held)
    untold = np.flatnonzero(found < 0)
    migrates = _is_migration(operations)
    ran = _ran_since(operations, np.where(migrates, BEFORE_ALL, end_ns), late)[untold]
    is_migrating = _ran_since(operations, np.where(migrates, end_ns, BEFORE_ALL), late)[untold]
    op, was_issued = late.op[untold], late.was_issued[untold]
    waited_ns = operations["start_ns"].to_numpy()[op] - late.known_ns[untold]
    is_beyond = waited_ns > late.usual.hand_over_ns
    is_long = late.is_open[untold] | is_beyond
    is_stalled = _find_stalled(operations, op, np.where(was_issued & ~ran, waited_ns, 0), late.usual)
    is_idle = ~ran & (~was_issued | is_migrating | behind_hold[op] | is_stalled)
    is_beyond |= behind_hold[op]
    rows = np.flatnonzero(found >= 0)
    return InferredWaits(
        op=late.op[rows].astype(np.int32),
        producer=found[rows].astype(np.int32),
        unexplained=op[ran & is_long],
        free=op[~ran],
        idle=op[is_idle],
        held=op[is_idle & is_beyond],
        longest_launch_ns=late.usual.launch_ns,
    )


def _find_late(  # noqa: PLR0913, PLR0917  # the inputs of the inference
    operations: pl.DataFrame,
    end_ns: Times,
    before: Codes,
    producers: OperationSets,
    calls: CallTimes,
    behind_hold: Flags,
) -> _Late:
    """Return the operations that began long after all that is known to have held them.

    Those that began inside the call that issued them are held by the call. Behind a call that holds a stream,
    all that is longer than usual in this capture is long.
    """
    start_ns, call = operations["start_ns"].to_numpy(), operations["call"].to_numpy()
    issued_ns = calls.end_ns[call]
    known_ns = np.where(before >= 0, np.minimum(end_ns[before], start_ns), BEFORE_ALL)
    position, producer = producers.of_rows(np.arange(start_ns.size))
    is_open = np.zeros(start_ns.size, np.bool_)
    is_open[position[producer == UNRESOLVED]] = True
    is_told = np.flatnonzero((producer != UNRESOLVED) & (producer != position))
    position, producer = position[is_told], producer[is_told]
    done_ns = end_ns[producer]
    is_before = np.flatnonzero(
        (done_ns <= start_ns[position] + PRODUCER_TOLERANCE_NS) & (start_ns[producer] <= start_ns[position])
    )
    np.maximum.at(
        known_ns, position[is_before], np.minimum(done_ns[is_before], start_ns[position[is_before]])
    )
    was_issued = issued_ns > known_ns
    known_ns = np.maximum(known_ns, issued_ns)
    is_known = (known_ns > BEFORE_ALL) & (issued_ns <= start_ns)
    latency_ns, is_free = start_ns - known_ns, is_known & ~behind_hold
    of_issue, of_producer = (latency_ns[is_free & (was_issued == one)] for one in (True, False))
    latest_ns = np.full(start_ns.size, LONGEST_DEPENDENCY_LATENCY_NS)
    for is_like, like_ns in ((was_issued, of_issue), (~was_issued, of_producer)):
        latest_ns[behind_hold & is_like] = _find_usual(like_ns, LONGEST_DEPENDENCY_LATENCY_NS)
    usual = _UsualLatencies(
        _find_longest(of_producer, LONGEST_DEPENDENCY_LATENCY_NS, LONGEST_UNEXPLAINED_LATENCY_NS, 1),
        _find_longest(
            of_issue, LONGEST_UNEXPLAINED_LATENCY_NS, LONGEST_LAUNCH_LATENCY_NS, FEWEST_INFERRED_COUNT
        ),
        of_issue.size,
    )
    late = np.flatnonzero(is_known & (latency_ns > latest_ns))
    return _Late(late, known_ns[late], was_issued[late], is_open[late], usual)


def _find_longest(latencies_ns: Times, least_ns: int, most_ns: int, fewest: int) -> int:
    """Return how long latencies are that need no other explanation in this capture, within two limits.

    Where less than `fewest` are longer, or a small share, these are their tail, and it is the larger limit.
    """
    usual_ns = min(max(UNUSUAL_LATENCY_RATIO * _find_usual(latencies_ns, most_ns), least_ns), most_ns)
    is_tail = np.count_nonzero(latencies_ns > usual_ns) < max(fewest, LATE_STARTS_SHARE * latencies_ns.size)
    return most_ns if is_tail else usual_ns


def _find_usual(latencies_ns: Times, most_ns: int) -> int:
    """Return up to which length latencies are usual here: at most, and where few are known, `most_ns`."""
    if latencies_ns.size < FEWEST_USUAL_LATENCIES_COUNT:
        return most_ns
    return min(int(np.quantile(latencies_ns, USUAL_LATENCIES_SHARE)), most_ns)


def _find_stalled(operations: pl.DataFrame, op: Rows, waited_ns: Times, usual: _UsualLatencies) -> Flags:
    """Return which operations began later after their launch than an idle device lets them.

    A single one counts in a capture with enough launch latencies.
    """
    found: Flags = waited_ns > usual.launch_ns
    if np.count_nonzero(found) < FEWEST_INFERRED_COUNT:
        found &= (usual.launches_count >= FEWEST_USUAL_LATENCIES_COUNT) & ~_is_first_of_rank(operations)[op]
    return found


def _is_first_of_rank(operations: pl.DataFrame) -> Flags:
    """Return which operations are the first of their rank: the device may be starting."""
    rank = operations["rank_id"].to_numpy()
    found: Flags = np.append(True, rank[1:] != rank[:-1])[: rank.size]
    return found


def _find_close(operations: pl.DataFrame, end_ns: Times, late: _Late) -> npt.NDArray[np.int64]:
    """Return the operations of other streams that ended right before late ones began: the latest first, -1.

    They ended behind all that is known to have held the late one, on its rank; a row for each late one.
    """
    found = np.full((late.op.size, INFERRED_CANDIDATES_COUNT), -1)
    start_ns, rank = operations["start_ns"].to_numpy(), operations["rank_id"].to_numpy()
    stream, migrates = operations["stream"].to_numpy(), _is_migration(operations)
    late_of = dict(iterate_runs(rank[late.op]))
    for one, of_rank in iterate_runs(rank):
        if one not in late_of:
            continue
        rows = late_of[one]
        own = of_rank.start + np.argsort(end_ns[of_rank], kind="stable")
        ends_ns, ops = end_ns[own], late.op[rows]
        place = np.searchsorted(ends_ns, start_ns[ops] + PRODUCER_TOLERANCE_NS, side="right") - 1
        least_ns = np.maximum(late.known_ns[rows], start_ns[ops] - INFERRED_CLOSE_NS)
        for nth in range(INFERRED_CANDIDATES_COUNT):
            at = np.maximum(place - nth, 0)
            is_close = (place >= nth) & (ends_ns[at] >= least_ns) & (stream[own[at]] != stream[ops])
            is_close &= ~migrates[own[at]] & (start_ns[own[at]] < start_ns[ops])
            found[rows, nth] = np.where(is_close, own[at], -1)
    return found


def _is_migration(operations: pl.DataFrame) -> Flags:
    """Return which operations may be pages that migrate by themselves: what made them do so is not known."""
    is_copy: Flags = as_integers(operations["kind"]) == encode_member(OperationKind.COPY)
    return is_copy & (operations["call"].to_numpy() < 0)


def _follows_wait_call(
    operations: pl.DataFrame, before: Codes, calls: CallTimes, wait_calls: Rows, op: Rows
) -> Flags:
    """Return whether threads let a stream wait between the launch of the operation before and this one."""
    call, earlier = operations["call"].to_numpy()[op], before[op]
    previous = np.where(earlier >= 0, operations["call"].to_numpy()[earlier], -1)
    thread, until_ns, since_ns = calls.thread[call], calls.start_ns[call], calls.start_ns[previous]
    found = np.zeros(op.size, np.bool_)
    waiting_thread, waiting_ns = calls.thread[wait_calls], calls.start_ns[wait_calls]
    for one in np.unique(waiting_thread).tolist():
        moments = np.sort(waiting_ns[waiting_thread == one])
        rows = np.flatnonzero((thread == one) & (call >= 0))
        last = np.searchsorted(moments, until_ns[rows]) - 1
        found[rows] = (last >= 0) & (np.append(moments, 0)[last] > since_ns[rows])
    return found


def _choose_producer(
    operations: pl.DataFrame, late: _Late, close: npt.NDArray[np.int64], is_held: Flags
) -> Rows:
    """Return the inferred dependency of each late operation, -1 if unknown.

    Of several candidates it is the one whose stream explains most operations of this name and stream.
    """
    stream, name = operations["stream"].to_numpy(), as_integers(operations["name"])
    kind = number_groups(stream[late.op], name[late.op])
    row, nth = np.nonzero(close >= 0)
    pair = number_groups(kind[row], stream[close[row, nth]])
    seen = number_groups(row, pair)
    _, once = np.unique(seen, return_index=True)  # of several candidates on one stream one counts
    times = np.bincount(pair[once], minlength=int(pair.max(initial=-1)) + 1)[pair]
    of_kind = np.bincount(kind)[kind[row]] if kind.size else times
    recurs = (times >= FEWEST_INFERRED_COUNT) & (times >= INFERRED_SHARE * of_kind)
    is_told = np.flatnonzero(is_held[row] | recurs)
    row, nth, times = row[is_told], nth[is_told], times[is_told]
    best = np.lexsort((nth, -times, row))
    first = np.unique(row[best], return_index=True)[1]
    found = np.full(late.op.size, -1)
    found[row[best][first]] = close[row[best][first], nth[best][first]]
    return found


def _ran_since(operations: pl.DataFrame, end_ns: Times, late: _Late) -> Flags:
    """Return whether anything of its rank ran between what held each late operation and its start."""
    start_ns, rank = operations["start_ns"].to_numpy(), operations["rank_id"].to_numpy()
    found = np.zeros(late.op.size, np.bool_)
    for one in np.unique(rank[late.op]).tolist():
        first, behind = np.searchsorted(rank, [one, one + 1])
        rows = np.flatnonzero(rank[late.op] == one)
        reached_ns = np.maximum.accumulate(end_ns[first:behind])
        place = np.searchsorted(start_ns[first:behind], start_ns[late.op[rows]]) - 1
        found[rows] = (place >= 0) & (np.append(reached_ns, BEFORE_ALL)[place] > late.known_ns[rows])
    return found


def infer_tails(
    end_ns: Times, ops: Rows, issued_ns: Times, start_ns: Times, return_ns: Times
) -> npt.NDArray[np.int64]:
    """Return what calls that block, but say not for what, are taken to have waited for.

    It is the operation that ended last before the call returned, among those issued when it began, if that
    was right before. `UNRESOLVED` means that it was not, and `NOTHING_PENDING` that nothing was left to wait
    for when the call began.

    Args:
        end_ns: int64[op], ns.
        ops: operations that the calls may have waited for.
        issued_ns: int64[op], when each operation was issued.
        start_ns: int64[calls], when the calls began.
        return_ns: int64[calls], when they returned.
    """
    own = ops[np.argsort(end_ns[ops], kind="stable")]
    ends_ns = end_ns[own]
    place = np.searchsorted(ends_ns, return_ns + PRODUCER_TOLERANCE_NS, side="right") - 1
    given_ns = np.append(issued_ns[own], BEFORE_ALL)
    for _ in range(INFERRED_CANDIDATES_COUNT - 1):  # back to one that had been issued when the call began
        place = np.where(given_ns[place] < start_ns, place, place - 1)
    last_ns = np.append(ends_ns, BEFORE_ALL)[place]
    is_close = (given_ns[place] < start_ns) & (last_ns > start_ns)
    is_close &= return_ns - last_ns <= LONGEST_UNEXPLAINED_LATENCY_NS
    by_issue = ops[np.argsort(issued_ns[ops], kind="stable")]
    reached_ns = np.maximum.accumulate(end_ns[by_issue]) if by_issue.size else ends_ns
    count = np.searchsorted(issued_ns[by_issue], start_ns)
    is_idle = np.append(reached_ns, BEFORE_ALL)[count - 1] <= start_ns
    is_idle |= count == 0
    return np.where(is_close, np.append(own, -1)[place], np.where(is_idle, NOTHING_PENDING, UNRESOLVED))
