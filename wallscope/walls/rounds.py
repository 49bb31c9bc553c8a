"""Gaps walked back all at once, as far as no blocking call is in the way.

In each round every gap takes the step that `chain.Walker` takes for one: from the operation at which it
stands to what that waited for last, then from call to call along the thread that launched it. Gaps that
lead into a blocking call or from thread to thread are left to the walker, and the few that take the most
rounds.
"""

from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt
import polars as pl

from wallscope.arrays.columns import Flags, Rows
from wallscope.arrays.groups import grouped
from wallscope.arrays.lookup import are_among
from wallscope.model.frames import LINKS
from wallscope.model.kinds import LINK_KINDS, LinkKind
from wallscope.timeline.dependencies import Dependencies
from wallscope.timeline.sequences import turns
from wallscope.timeline.spans import BEFORE_ALL, Spans, Times
from wallscope.timeline.stream_order import LONGEST_HAND_OVER_NS, UNRESOLVED
from wallscope.walls.chain import TOLERANCE_NS, Walker
from wallscope.walls.producers import waited_for

_FEWEST = 24
_MOST_ROUNDS = 64
_KINDS = pl.Series(LINK_KINDS, dtype=LINKS["kind"])
_OPERATION, _HAND_OVER, _LAUNCH_LATENCY, _LAUNCH_CALL, _OUTSIDE_CALLS, _UNRESOLVED = map(
    LINK_KINDS.index,
    (
        LinkKind.OPERATION,
        LinkKind.HAND_OVER,
        LinkKind.LAUNCH_LATENCY,
        LinkKind.LAUNCH_CALL,
        LinkKind.OUTSIDE_CALLS,
        LinkKind.UNRESOLVED,
    ),
)


@dataclass(frozen=True, slots=True)
class _Latest:
    """Of operations the producer that ended last (-1: none), its end, the end before that, and doubts."""

    producer: Rows
    done_ns: Times
    second_ns: Times
    is_open: Flags


@dataclass(frozen=True, slots=True)
class _Walk:
    """How far gaps have been walked back: where each stands, and which are left to the walker."""

    gaps: Spans
    at_ns: Times
    is_left: Flags
    links: list[npt.NDArray[np.int64]] = field(default_factory=list)

    def emit(self, gap: Rows, kind: Rows | int, start_ns: Times, bound: tuple[Rows | int, ...]) -> None:
        """Give the time of gaps from a moment on up to where the walk stands to a link, and stand there."""
        start_ns = np.maximum(start_ns, self.gaps.start_ns[gap])
        held = np.flatnonzero(start_ns < self.at_ns[gap])
        link = np.empty((9, held.size), np.int64)
        told = (gap, start_ns, self.at_ns[gap], kind, *bound)
        is_whole = held.size == gap.size
        for row, column in enumerate(told):
            link[row] = column if is_whole or not isinstance(column, np.ndarray) else column[held]
        self.links.append(link)
        self.at_ns[gap[held]] = start_ns[held]

    def open(self, gap: Rows) -> Flags:
        """Which gaps have time left that no link explains."""
        return self.at_ns[gap] > self.gaps.start_ns[gap]

    def frame(self, op: Rows) -> pl.DataFrame:
        """The links (`LINKS`) of the gaps that are not left, in order of time; `op` ends each gap."""
        found = np.concatenate([np.empty((9, 0), np.int64), *self.links], axis=1)
        held = np.flatnonzero(~self.is_left[found[0]])
        held = held[np.argsort(found[1][held], kind="stable")]
        gap, start_ns, end_ns, kind, *bound, slack_ns = (column[held] for column in found)
        columns = dict(zip(("op", "next_op", "call", "thread"), bound, strict=True))
        return pl.DataFrame(
            {
                "gap": op[gap].astype(np.int32),
                "start_ns": start_ns,
                "end_ns": end_ns,
                "kind": _KINDS[kind],
                **{name: column.astype(np.int32) for name, column in columns.items()},
                "slack_ns": pl.Series(slack_ns).set(pl.Series(slack_ns == BEFORE_ALL), None),
            },
            schema=LINKS,
        )


def walked_together(gaps: Spans, op: Rows, walker: Walker) -> tuple[pl.DataFrame, Rows]:
    """The links (`LINKS`) of gaps, each ended by an operation, and the rows of those left to the walker."""
    walk = _Walk(gaps, gaps.end_ns.copy(), np.zeros(op.size, np.bool_))
    launched: list[tuple[Rows, Rows]] = []
    gap, at = np.arange(op.size), op
    for _ in range(_MOST_ROUNDS):
        if gap.size < _FEWEST:
            break
        gap, at = _stepped(walk, gap, at, walker.waits, launched)
    walk.is_left[gap] = True
    if launched:
        gap, thread = (np.concatenate(parts) for parts in zip(*launched, strict=True))
        blocking = np.fromiter(walker.waits.blocking, np.int64, len(walker.waits.blocking))
        for _ in range(_MOST_ROUNDS):
            if gap.size < _FEWEST:
                break
            gap, thread = _along_threads(walk, gap, thread, walker, blocking)
        walk.is_left[gap] = True
    return walk.frame(op), np.flatnonzero(walk.is_left)


def _stepped(
    walk: _Walk, gap: Rows, op: Rows, waits: Dependencies, launched: list[tuple[Rows, Rows]]
) -> tuple[Rows, Rows]:
    """Go back from the operation at which each gap stands; returns the gaps to go on with, and from where.

    Gaps that go on along a thread are added to those that were launched, with their threads.
    """
    starts_ns, call = np.asarray(waits.start_ns), np.asarray(waits.call)[op]
    start_ns = np.minimum(starts_ns[op], walk.at_ns[gap])
    latest = _latest_producers(op, start_ns, waits)
    is_known, is_issued = latest.producer >= 0, call >= 0
    returned_ns = waits.calls.end_ns[call]
    is_late = returned_ns > start_ns
    issued_ns = np.where(is_late, waits.calls.start_ns[call], returned_ns)
    by_issue = is_issued & (~is_known | (issued_ns > latest.done_ns))
    bound_ns = np.where(by_issue, issued_ns, latest.done_ns)
    is_lost = latest.is_open & (start_ns - bound_ns > LONGEST_HAND_OVER_NS)
    is_lost |= ~is_issued & ~is_known

    lost = gap[is_lost]
    walk.emit(lost, _UNRESOLVED, walk.gaps.start_ns[lost], (-1, -1, -1, -1, BEFORE_ALL))

    own = np.flatnonzero(by_issue & ~is_lost)
    thread, before_ns = waits.calls.thread[call[own]], latest.done_ns[own]
    slack_ns = np.where(is_known[own], issued_ns[own] - before_ns, BEFORE_ALL)
    kind = np.where(is_late[own], _LAUNCH_CALL, _LAUNCH_LATENCY)
    walk.emit(gap[own], kind, issued_ns[own], (op[own], -1, call[own], thread, slack_ns))
    goes_on = walk.open(gap[own])
    launched.append((gap[own][goes_on], thread[goes_on]))

    own = np.flatnonzero(~by_issue & ~is_lost)
    producer, done_ns = latest.producer[own], latest.done_ns[own]
    second_ns = np.maximum(latest.second_ns[own], np.where(is_issued[own], issued_ns[own], BEFORE_ALL))
    slack_ns = np.where(second_ns > BEFORE_ALL, done_ns - second_ns, BEFORE_ALL)
    gap, bound = gap[own], (producer, op[own], -1, -1, slack_ns)
    walk.emit(gap, _HAND_OVER, done_ns, bound)
    walk.emit(gap, _OPERATION, starts_ns[producer], bound)
    goes_on = walk.open(gap)
    return gap[goes_on], producer[goes_on]


def _along_threads(walk: _Walk, gap: Rows, thread: Rows, walker: Walker, blocking: Rows) -> tuple[Rows, Rows]:
    """Go back over the call in which each gap stands, or to the one before; returns what is to go on."""
    at_ns = walk.at_ns[gap]
    start_ns, left_ns = np.full((2, gap.size), BEFORE_ALL)
    call = np.full(gap.size, -1)
    for one, own in grouped(thread):
        spans = walker.waits.spans.get(one)
        if spans is None or not len(spans.call):
            continue
        row = np.searchsorted(np.asarray(spans.start_ns), at_ns[own], side="left") - 1
        left_ns[own] = np.where(row >= 0, np.asarray(spans.end_ns)[row], BEFORE_ALL)
        is_inside = left_ns[own] >= at_ns[own]
        start_ns[own] = np.where(is_inside, np.asarray(spans.start_ns)[row], left_ns[own])
        call[own] = np.where(is_inside, np.asarray(spans.call)[row], -1)
    is_inside, issuers = call >= 0, walker.issuers
    last = np.searchsorted(np.asarray(issuers.end_ns), at_ns, side="left") - 1
    is_other = (last >= 0) & (np.asarray(issuers.end_ns)[last] > left_ns)
    is_other &= ~is_inside & (np.asarray(issuers.thread)[last] != thread)
    is_left = is_other | (is_inside & are_among(call, blocking))
    walk.is_left[gap[is_left]] = True
    own = np.flatnonzero(~is_left)
    kind = np.where(is_inside, np.asarray(walker.kinds)[call], _OUTSIDE_CALLS)[own]
    gap, thread = gap[own], thread[own]
    walk.emit(gap, kind, start_ns[own], (-1, -1, call[own], thread, BEFORE_ALL))
    goes_on = walk.open(gap)
    return gap[goes_on], thread[goes_on]


def _latest_producers(op: Rows, start_ns: Times, waits: Dependencies) -> _Latest:
    """What each operation waited for last, as seen from its start."""
    ends_ns = waits.order.end_ns
    producer = waits.order.predecessor[op].astype(np.int64)
    done_ns = np.where(producer >= 0, np.minimum(ends_ns[producer], start_ns), 0)
    second_ns = np.full(op.size, BEFORE_ALL)
    is_open = np.zeros(op.size, np.bool_)
    rows = np.flatnonzero(waits.order.is_waiting()[op])
    if rows.size == 0:
        return _Latest(producer, done_ns, second_ns, is_open)
    row, other = waited_for(op, waits)
    is_open[row[other == UNRESOLVED]] = True
    is_other = (other != UNRESOLVED) & (other != producer[row])
    row, other = row[is_other], other[is_other]
    # those that began before what they wait for ended: launched programmatically, or clocks that differ a bit
    is_late = ends_ns[other] > start_ns[row] + TOLERANCE_NS
    row, other = row[~is_late], other[~is_late]
    own = rows[producer[rows] >= 0]
    row, other = np.append(row, own), np.append(other, producer[own])
    end_ns = np.minimum(ends_ns[other], start_ns[row])
    order = np.lexsort((-other, end_ns, row))
    row, other, end_ns = row[order], other[order], end_ns[order]
    is_new = np.flatnonzero(turns(row, other))
    row, other, end_ns = row[is_new], other[is_new], end_ns[is_new]
    last = np.flatnonzero(np.append(row[1:] != row[:-1], True)[: row.size])
    producer[rows] = -1
    producer[row[last]], done_ns[row[last]] = other[last], end_ns[last]
    has_second = last[np.append(False, row[1:] == row[:-1])[last]]
    second_ns[row[has_second]] = end_ns[has_second - 1]
    return _Latest(producer, done_ns, second_ns, is_open)
