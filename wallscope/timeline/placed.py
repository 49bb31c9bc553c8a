"""Operations that threads issue in a stretch of time, with what lay between causes and effects there."""

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import polars as pl

from wallscope.arrays.columns import Flags, Rows
from wallscope.timeline.dependencies import Dependencies
from wallscope.timeline.spans import BEFORE_ALL, Times
from wallscope.timeline.stream_order import UNRESOLVED


@dataclass(frozen=True, slots=True)
class Placed:
    """Operations that a piece issues, in order of start, with what they wait for there.

    `offset_ns` reaches from the end of the piece `row` to the issue, or from its start (`is_early`).
    `edge` are pairs: who waits, as a place in `op`, and the number of its producer.
    """

    op: Rows
    row: Rows
    is_early: Flags
    offset_ns: Times
    start_ns: Times
    end_ns: Times
    latency_ns: Times
    edge: npt.NDArray[np.int64]
    lag_ns: Times


def edges_of(op: Rows, waits: Dependencies) -> npt.NDArray[np.int64]:
    """Pairs of who waits, as a place in `op`, and the number of its producer; in order of the first."""
    before = waits.order.predecessor[op]
    held = np.flatnonzero(before >= 0)
    pairs = [np.column_stack([held, before[held]])]
    more = [
        (place, producer)
        for place in np.flatnonzero(waits.order.is_waiting()[op]).tolist()
        for producer in waits.order.producers(int(op[place]))
        if producer not in {UNRESOLVED, before[place]}
    ]
    if more:
        pairs.append(np.array(more, np.int64))
    found: npt.NDArray[np.int64] = np.concatenate(pairs).astype(np.int64)
    return found[np.argsort(found[:, 0], kind="stable")]


def together(parts: list[Placed]) -> Placed:
    """What several ranks issue, in order of start."""
    sizes = np.cumsum([0, *(part.op.size for part in parts)])
    edge = [part.edge + np.array([offset, 0]) for part, offset in zip(parts, sizes, strict=False)]

    def joined(name: str) -> npt.NDArray[np.int64]:
        found: npt.NDArray[np.int64] = np.concatenate(
            [getattr(part, name) for part in parts] or [np.empty(0, np.int64)]
        )
        return found

    op, start_ns = joined("op"), joined("start_ns")
    order = np.lexsort((op, start_ns))
    place = np.empty(order.size, np.int64)
    place[order] = np.arange(order.size)
    edges = np.concatenate(edge or [np.empty((0, 2), np.int64)])
    edges[:, 0] = place[edges[:, 0]]
    in_order = np.argsort(edges[:, 0], kind="stable")
    return Placed(
        op[order],
        joined("row")[order],
        joined("is_early")[order].astype(np.bool_),
        joined("offset_ns")[order],
        start_ns[order],
        joined("end_ns")[order],
        joined("latency_ns")[order],
        edges[in_order],
        joined("lag_ns")[in_order],
    )


def is_further(placed: Placed) -> Flags:
    """Whether each edge is not the first of its operation."""
    waiting = placed.edge[:, 0]
    return np.append(False, waiting[1:] == waiting[:-1])[: waiting.size]


def first_lags(placed: Placed) -> Times:
    """The lag behind the first producer of each operation, 0 without one."""
    first = np.zeros(placed.op.size, np.int64)
    first[placed.edge[::-1, 0]] = placed.lag_ns[::-1]
    return first


def typical_lags(operations: pl.DataFrame, waits: Dependencies) -> tuple[int, int]:
    """Launch latency and hand-over as they mostly are where they bind, in ns.

    Left out are the operations that wait for more than the one before them.
    """
    op, call = operations["op"].to_numpy(), operations["call"].to_numpy()
    start_ns, before = operations["start_ns"].to_numpy(), waits.order.predecessor[op]
    done_ns = np.where(before >= 0, waits.order.end_ns[before], BEFORE_ALL)
    issued_ns = waits.calls.end_ns[call]
    alone = ~waits.order.is_waiting()[op]
    by_issue, by_hand_over = alone & (issued_ns > done_ns), alone & (done_ns >= issued_ns) & (before >= 0)

    def middle(lag_ns: Times) -> int:
        held = lag_ns[lag_ns >= 0]
        return int(np.median(held)) if held.size else 0

    return middle((start_ns - issued_ns)[by_issue]), middle((start_ns - done_ns)[by_hand_over])
