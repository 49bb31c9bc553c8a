"""The gaps of a rank, in which no compute ran, and the blame chain of each: the links that tile it."""

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import polars as pl

from wallscope.columns import Codes, filled, flags
from wallscope.kernels import views
from wallscope.kernels.blame_chain import Walk, find_gaps, walk_gaps
from wallscope.model.kinds import LINK_KINDS, LinkKind
from wallscope.thresholds import LONGEST_CHAIN_COUNT, LONGEST_DEPENDENCY_LATENCY_NS, PRODUCER_TOLERANCE_NS
from wallscope.trace.dependencies import Dependencies
from wallscope.trace.intervals import BEFORE_ALL, Times
from wallscope.trace.kernel_classes import computes

Columns = tuple[npt.NDArray[Any], ...]
NO_SLACK = BEFORE_ALL
_LINKS_OF_OPERATION = 4
"""Links for each operation that room is made for at first; where they are more, the walk is repeated."""
_KINDS = tuple(
    LINK_KINDS.index(kind)
    for kind in (
        LinkKind.OPERATION,
        LinkKind.HAND_OVER,
        LinkKind.LAUNCH_LATENCY,
        LinkKind.LAUNCH_CALL,
        LinkKind.SYNCHRONISATION,
        LinkKind.OUTSIDE_CALLS,
        LinkKind.UNRESOLVED,
    )
)


@dataclass(frozen=True, slots=True)
class Links:
    """The links of one rank, in order of time; they tile its gaps. Arrays of one length.

    Attributes:
        gap: int32, the operation that ends the gap, -1 behind the last compute.
        start_ns, end_ns: int64.
        kind: int8, place in `LINK_KINDS`.
        op: int32, the operation that ran, ended or was launched; -1 on a thread.
        next_op: int32, the operation that waited for it; -1 where a thread did.
        call: int32, the call, or the blocking call that waited; -1 without one.
        thread: int32, -1 on the device.
        slack_ns: int64, how much earlier the next constraint was over; `NO_SLACK` without one.
    """

    gap: Codes
    start_ns: Times
    end_ns: Times
    kind: Codes
    op: Codes
    next_op: Codes
    call: Codes
    thread: Codes
    slack_ns: Times

    def columns(self) -> Columns:
        """Return the arrays, in the order of the attributes."""
        return tuple(getattr(self, name) for name in self.__slots__)


@dataclass(frozen=True, slots=True)
class Constraints:
    """What operations and threads of a capture waited for, as `blame_chain.Walk` takes it."""

    operations: Columns
    producers: Columns
    calls: Columns
    awaited: Columns
    segments: Columns


def collect_constraints(waits: Dependencies, kinds_of_calls: Codes) -> Constraints:
    """Lay the dependencies of a capture out for the walk.

    Args:
        waits: the dependencies.
        kinds_of_calls: int8[call], the kind of link that each call is, as a place in `LINK_KINDS`.
    """
    segments = waits.activities
    return Constraints(
        operations=(waits.start_ns, waits.end_ns, waits.call, waits.stream_before),
        producers=(waits.producers.ptr, waits.producers.op),
        calls=(
            waits.calls.start_ns.told,
            waits.calls.end_ns.told,
            waits.calls.thread.told.astype(np.int32),
            kinds_of_calls,
            waits.blocked,
        ),
        awaited=(waits.awaited.ptr, waits.awaited.op),
        segments=(segments.ptr, segments.start_ns, segments.end_ns, segments.call),
    )


def blame_gaps(operations: pl.DataFrame, constraints: Constraints) -> Links:
    """Return the links of all gaps of one rank, given its operations (`CLASSIFIED`, by start)."""
    op = operations["op"].to_numpy().astype(np.int32)
    is_compute = computes(filled(operations["class"])).view(np.uint8)
    gaps = tuple(np.empty(2 * op.size, kind) for kind in (np.int64, np.int64, np.int32, np.int32))
    count = find_gaps(
        *views(op, operations["start_ns"].to_numpy(), operations["end_ns"].to_numpy(), is_compute, *gaps)
    )
    issuers = _issuers(operations["call"].to_numpy(), constraints)
    room = _LINKS_OF_OPERATION * op.size
    while True:
        links = _table(room)
        walk = Walk(
            views(*constraints.operations),
            views(*constraints.producers),
            views(*constraints.calls),
            views(*constraints.awaited),
            views(*constraints.segments),
            views(*issuers),
            _KINDS,
            (PRODUCER_TOLERANCE_NS, LONGEST_DEPENDENCY_LATENCY_NS, NO_SLACK),
            views(*links.columns()),
            LONGEST_CHAIN_COUNT,
        )
        used = walk_gaps(walk, count, *views(*gaps))
        if used <= room:
            return Links(*(column[room - used :] for column in links.columns()))
        room = used


def _table(rows: int) -> Links:
    """Return room for links, which costs memory only where it is written."""
    i8, i32, i64 = np.int8, np.int32, np.int64
    kinds: tuple[npt.DTypeLike, ...] = (i32, i64, i64, i8, i32, i32, i32, i32, i64)
    return Links(*(np.empty(rows, kind) for kind in kinds))


def _issuers(call: Codes, constraints: Constraints) -> Columns:
    """The ends of the calls that issued some operations, in order, and their threads."""
    _, ends_ns, threads, *_ = constraints.calls
    issuing = np.flatnonzero(flags(call[call >= 0].astype(np.int64), ends_ns.size))
    issuing = issuing[np.argsort(ends_ns[issuing], kind="stable")]
    return ends_ns[issuing], threads[issuing]
