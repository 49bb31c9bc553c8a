"""The gaps of a rank with their blame chains, and every nanosecond of every step in one slice.

Time with compute belongs to compute; of concurrent kernels, to the one that started first. Recomputed forward
work counts where nothing else computes. Unrecognized kernels count where no recognized one ran, and opaque
graphs where no compute ran. The links of the blame chains tile the rest. All other results on time are sums
over slices.
"""

from collections.abc import Mapping
from typing import Any

import numpy as np
import numpy.typing as npt
import polars as pl

from wallscope.columns import Codes, Flags, Rows, are_among, as_integers, encode_member, number_densely
from wallscope.errors import InternalError
from wallscope.kernels import views
from wallscope.kernels.blame_chain import Walk, walk_gaps
from wallscope.kernels.slicing import cut_slices, find_gaps, find_owners
from wallscope.model.capture import FOREVER_NS
from wallscope.model.enums import LINK_KINDS, ComputeCategory, DeviceState, LinkKind, OperationClass
from wallscope.model.schemas import CATEGORY
from wallscope.records import dataclass
from wallscope.thresholds.steps import (
    LONGEST_CHAIN_COUNT,
    LONGEST_DEPENDENCY_LATENCY_NS,
    LONGEST_UNEXPLAINED_LATENCY_NS,
    PRODUCER_TOLERANCE_NS,
)
from wallscope.trace.dependencies import Dependencies
from wallscope.trace.intervals import BEFORE_ALL, Spans, Times, order_spans, union
from wallscope.trace.kernel_classes import is_compute

Columns = tuple[npt.NDArray[Any], ...]
NO_SLACK = BEFORE_ALL
_LINKS_OF_OPERATION = 4
"""Initial capacity of links per operation; if there are more, the walk is repeated."""
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
class ChainLinks:
    """The links of one rank, in order of time; they tile its gaps. Arrays of one length.

    Attributes:
        gap: int32, the operation that ends the gap, -1 after the last compute.
        start_ns, end_ns: int64.
        kind: int8, index in `LINK_KINDS`.
        op: int32, the operation that ran, ended or was launched; -1 on a thread.
        next_op: int32, the operation that waited for it; -1 if a thread did.
        call: int32, the call, or the blocking call that waited; -1 without one.
        thread: int32, -1 on the device.
        slack_ns: int64, how much earlier the next constraint was satisfied; `NO_SLACK` without one.
        inferred: uint8, whether it was found through a wait that is inferred from timing.
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
    inferred: npt.NDArray[np.uint8]

    def columns(self) -> Columns:
        """Return the arrays, in the order of the attributes."""
        return tuple(getattr(self, name) for name in self.__slots__)


@dataclass(frozen=True, slots=True)
class Constraints:
    """Dependencies of operations and threads of a capture, as input of `blame_chain.Walk`."""

    operations: Columns
    producers: Columns
    calls: Columns
    awaited: Columns
    segments: Columns


def collect_constraints(waits: Dependencies, kinds_of_calls: Codes) -> Constraints:
    """Convert the dependencies of a capture to the layout of the walk.

    Args:
        waits: the dependencies.
        kinds_of_calls: int8[call], the kind of link of each call, as an index in `LINK_KINDS`.
    """
    segments = waits.activities
    return Constraints(
        operations=(waits.start_ns, waits.end_ns, waits.call, waits.stream_before, waits.inferred_producer),
        producers=(waits.producers.ptr, waits.producers.op),
        calls=(
            waits.calls.start_ns.of_call,
            waits.calls.end_ns.of_call,
            waits.calls.thread.of_call.astype(np.int32),
            kinds_of_calls,
            waits.blocked,
            waits.holder,
            waits.outside.spun,
            waits.outside.let_go,
            waits.outside.is_alone.view(np.uint8),
        ),
        awaited=(
            waits.awaited.ptr,
            waits.awaited.op,
            waits.is_awaited_inferred.view(np.uint8),
            waits.entered_ns,
        ),
        segments=(segments.ptr, segments.start_ns, segments.end_ns, segments.call),
    )


def blame_gaps(
    operations: pl.DataFrame, constraints: Constraints, reach_ns: tuple[int, int] | None = None
) -> ChainLinks:
    """Return the links of all gaps of one rank, given its operations (`CLASSIFIED`, by start).

    `reach_ns` is from where until where its windows reach, if that may be beyond the operations.
    """
    op = operations["op"].to_numpy().astype(np.int32)
    computes = is_compute(as_integers(operations["class"])).view(np.uint8)
    gaps = tuple(np.empty(2 * op.size + 1, kind) for kind in (np.int64, np.int64, np.int32, np.int32))
    from_ns, until_ns = reach_ns or (FOREVER_NS, -FOREVER_NS)
    times_ns = operations["start_ns"].to_numpy(), operations["end_ns"].to_numpy()
    count = find_gaps(from_ns, until_ns, *views(op, *times_ns, computes, *gaps))
    issuers = _issuers(operations["call"].to_numpy(), constraints)
    room = _LINKS_OF_OPERATION * op.size
    while True:
        columns = _allocate_links(room).columns()
        walk = Walk(
            views(*constraints.operations),
            views(*constraints.producers),
            views(*constraints.calls),
            views(*constraints.awaited),
            views(*constraints.segments),
            views(*issuers),
            _KINDS,
            (
                PRODUCER_TOLERANCE_NS,
                LONGEST_DEPENDENCY_LATENCY_NS,
                LONGEST_UNEXPLAINED_LATENCY_NS,
                NO_SLACK,
            ),
            views(*columns),
            LONGEST_CHAIN_COUNT,
        )
        used = walk_gaps(walk, count, *views(*gaps))
        if used <= room:
            return ChainLinks(*(column[room - used :] for column in columns))
        room = used


def _allocate_links(rows: int) -> ChainLinks:
    """Return memory for links, which is committed only where it is written."""
    i8, i32, i64 = np.int8, np.int32, np.int64
    kinds: tuple[npt.DTypeLike, ...] = (i32, i64, i64, i8, i32, i32, i32, i32, i64, np.uint8)
    return ChainLinks(*(np.empty(rows, kind) for kind in kinds))


def _issuers(call: Codes, constraints: Constraints) -> Columns:
    """Return the ends of the calls that issued some operations, in order, and their threads."""
    _, ends_ns, threads, *_ = constraints.calls
    issuing, _ = number_densely(call[call >= 0].astype(np.int64))
    issuing = issuing[np.argsort(ends_ns[issuing], kind="stable")]
    return ends_ns[issuing], threads[issuing]


_KERNELS, _RECOMPUTED, _UNRECOGNIZED, _GRAPHS = range(4)
_STATES = np.array(
    [encode_member(one) for one in (*(3 * [DeviceState.COMPUTE]), DeviceState.OPAQUE_GRAPH)], np.int8
)
_COMPUTE, _COMMUNICATION, _COPY, _OPAQUE_GRAPH = (
    encode_member(one)
    for one in (
        OperationClass.COMPUTE,
        OperationClass.COMMUNICATION,
        OperationClass.COPY,
        OperationClass.OPAQUE_GRAPH,
    )
)
_NO_CATEGORY = list(CATEGORY.categories).index(ComputeCategory.UNRECOGNIZED)
_STATES_OF_LINKS = [
    encode_member(one)
    for one in (DeviceState.EXPOSED_COMMUNICATION, DeviceState.EXPOSED_COPY, DeviceState.IDLE)
]


@dataclass(frozen=True, slots=True)
class Slices:
    """Slices in order of time, as columns of `SLICES` in arrays.

    `window` is the row of each slice's window; `kind` and `state` are indices in their enumerations. Where
    compute ran, `kind`, `gap`, `next_op`, `call` and `thread` are -1. `slack_ns` is `NO_SLACK` if there is no
    other constraint. `inferred` marks slices found through a wait that is inferred from timing.
    """

    window: Codes
    start_ns: Times
    end_ns: Times
    state: Codes
    kind: Codes
    gap: Codes
    op: Rows
    next_op: Codes
    call: Codes
    thread: Codes
    slack_ns: Times
    inferred: Flags


def slice_windows(
    operations: pl.DataFrame,
    links: ChainLinks,
    windows: pl.DataFrame,
    recomputed: pl.Series,
    on_threads: Mapping[int, Times],
) -> Slices:
    """Return the slices of one rank, which tile its windows.

    Args:
        operations: `CLASSIFIED`, those of the rank.
        links: the links of the rank.
        windows: `WINDOWS` of the rank.
        recomputed: numbers of the operations that repeat forward work.
        on_threads: moments at which the time of a thread is cut, in order, by thread.

    Raises:
        InternalError: the links and the compute of the rank do not tile its time.
    """
    op, of_class = operations["op"].to_numpy().astype(np.int64), as_integers(operations["class"])
    start_ns, end_ns = operations["start_ns"].to_numpy(), operations["end_ns"].to_numpy()
    tier = np.full(op.size, -1, np.int8)
    tier[of_class == _OPAQUE_GRAPH] = _GRAPHS
    tier[of_class == _COMPUTE] = _KERNELS
    tier[(tier == _KERNELS) & (as_integers(operations["category"]) == _NO_CATEGORY)] = _UNRECOGNIZED
    tier[((tier == _KERNELS) | (tier == _UNRECOGNIZED)) & are_among(op, recomputed.to_numpy())] = _RECOMPUTED
    room, front = 2 * op.size, np.zeros(len(_STATES), np.int64)
    owned = (np.empty(room, np.int64), np.empty(room, np.int64), np.empty(room, np.int32))
    count = find_owners(*views(start_ns, end_ns, tier, front, *owned))
    owned_start_ns, owned_end_ns, owner = (column[:count] for column in owned)

    covers = [
        union(order_spans(start_ns[rows], end_ns[rows]))
        for rows in (of_class == _COMMUNICATION, of_class == _COPY)
    ]
    bounds = Spans(windows["start_ns"].to_numpy(), windows["end_ns"].to_numpy())
    moments = _by_thread(on_threads, int(links.thread.max(initial=-1)) + 1)
    spans = (bounds, *covers)
    room = owner.size + links.gap.size + moments[0].size + 2 * sum(one.start_ns.size for one in spans)
    kinds: tuple[npt.DTypeLike, ...] = (np.int32, np.int64, np.int64, np.int8, np.int32, np.int32)
    found: list[npt.NDArray[Any]] = [np.empty(room, kind) for kind in kinds]
    count = cut_slices(
        *views(
            owned_start_ns,
            owned_end_ns,
            _STATES[tier[owner]],
            links.start_ns,
            links.end_ns,
            links.thread,
            *(side for one in spans for side in (one.start_ns, one.end_ns)),
            *moments,
            *_STATES_OF_LINKS,
            *found,
        )
    )
    if count < 0:
        raise InternalError("the blame chains and the compute of a rank leave time out or count it twice")
    window, from_ns, until_ns, state, own, link = (column[:count] for column in found)
    gap, next_op, call, thread, of_link = (
        np.append(column, np.int32(-1)).take(link)
        for column in (links.gap, links.next_op, links.call, links.thread, links.op)
    )
    return Slices(
        window=window,
        start_ns=from_ns,
        end_ns=until_ns,
        state=state,
        kind=np.append(links.kind, np.int8(-1)).take(link),
        gap=gap,
        op=np.where(own >= 0, np.append(op[owner], -1).take(own), of_link),
        next_op=next_op,
        call=call,
        thread=thread,
        slack_ns=np.append(links.slack_ns, NO_SLACK).take(link),
        inferred=np.append(links.inferred, np.uint8(0)).take(link).view(np.bool_),
    )


def _by_thread(on_threads: Mapping[int, Times], threads: int) -> tuple[Times, Rows, Rows]:
    """Moments of all threads, thread by thread, with the first and last index of each."""
    empty = np.empty(0, np.int64)
    own = [on_threads.get(thread, empty) for thread in range(threads)]
    ends = np.cumsum([0, *map(len, own)])
    return np.concatenate([empty, *own]), ends[1:], ends[:-1].copy()
