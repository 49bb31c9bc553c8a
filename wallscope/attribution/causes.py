"""Which wall pays for a slice, and the cause: `wall/cause[/detail]`.

Device operations have one cause each, whoever waits for them; links on threads are told by the call, by
the ranges and waits of the thread, and by whether a blocking call had left the device without work.
"""

from dataclasses import dataclass
from functools import cached_property

import numpy as np
import polars as pl

from wallscope.attribution.slices import Slices
from wallscope.columns import Codes, Flags, Rows, filled, flags, place
from wallscope.model.frames import CATEGORY
from wallscope.model.kinds import Axis, CopyCause, DeviceState, LinkKind, OperationClass
from wallscope.trace.kernel_classes import computes

KERNEL_GAP = "compute/kernel-gap"
PEER = "communication/unknown/peer-wait"
_OF_KIND = {
    LinkKind.LAUNCH_LATENCY: "host/launch-latency",
    LinkKind.LAUNCH_CALL: "host/launch-call",
    LinkKind.OTHER_CALL: "host/other-call",
    LinkKind.SYNCHRONISATION: "host/synchronisation",
    LinkKind.ALLOCATION: "memory/allocator",
}
_UNRESOLVED = {
    DeviceState.EXPOSED_COMMUNICATION: "communication/unresolved",
    DeviceState.EXPOSED_COPY: "memory/unresolved",
}
_BY_KIND: tuple[str | None, ...] = (*(_OF_KIND.get(kind) for kind in LinkKind), PEER)
_BY_STATE = tuple(_UNRESOLVED.get(state, "unattributed/unresolved") for state in DeviceState)
_FIXED = (*_BY_KIND, *_BY_STATE, KERNEL_GAP)
"""What is told without operations and threads: the kind of link, what the device did, a gap of kernels."""
_OF_CATEGORY = (*CATEGORY.categories, None)
_OF_AXIS = (*Axis, None)
_OF_COPY = (*CopyCause, None)
_OF_CLASS = (*OperationClass, None)
_KINDS = (len(_OF_CLASS), len(_OF_CATEGORY), len(_OF_AXIS), len(_OF_COPY), 2)


@dataclass(frozen=True)
class OperationCauses:
    """What each operation stands for when it owns time; arrays by number of the operation.

    `causes` is its cause, `befores` that of the time between its end and the start of what it held back,
    both as places in `texts`; `chain` what it is in order with: operations of one stream share it.
    """

    texts: tuple[str, ...]
    causes: Codes
    befores: Codes
    chain: Codes
    computes: Flags

    @cached_property
    def cause(self) -> pl.Series:
        """The cause of each operation, written out."""
        return pl.Series(self.texts, dtype=pl.String)[self.causes]

    @cached_property
    def before(self) -> pl.Series:
        """The cause of what lies behind each operation, written out."""
        return pl.Series(self.texts, dtype=pl.String)[self.befores]


def operation_causes(
    operations: pl.DataFrame, count: int, axes: pl.DataFrame, copies: pl.DataFrame, recomputed: pl.Series
) -> OperationCauses:
    """The causes of all operations of a capture; those of ranks that are not accounted for are peers.

    Args:
        operations: `CLASSIFIED`, of the ranks that are accounted for.
        count: how many operations the capture has.
        axes: `AXES`.
        copies: `COPY_CAUSES`.
        recomputed: numbers of the operations that repeat forward work.
    """
    op = operations["op"].to_numpy()
    of_class = _beside(op, filled(operations["class"]), count)
    told_by = (
        of_class,
        _beside(op, filled(operations["category"]), count),
        _beside(axes["op"].to_numpy(), filled(axes["axis"]), count),
        _beside(copies["op"].to_numpy(), filled(copies["cause"]), count),
        flags(recomputed.to_numpy(), count),
    )
    kind = np.ravel_multi_index(told_by, _KINDS, mode="wrap")  # -1 is the last
    kinds = np.flatnonzero(np.bincount(kind))
    told = [_told(*map(int, one)) for one in zip(*np.unravel_index(kinds, _KINDS), strict=True)]
    texts = tuple(dict.fromkeys(text for pair in told for text in pair))
    found = np.zeros((2, int(np.prod(_KINDS))), np.uint16)
    found[:, kinds] = np.array([[texts.index(text) for text in pair] for pair in told]).reshape(-1, 2).T
    causes, befores = found[:, kind]
    return OperationCauses(
        texts,
        causes,
        befores,
        _beside(op, operations["stream"].to_numpy(), count),
        computes(of_class),
    )


def _beside(op: Rows, values: Codes, count: int) -> Codes:
    """Values of some operations beside all of them, -1 for the others."""
    found = np.full(count, -1, np.int32)
    found[op] = values
    return found


def _told(of_class: int, category: int, axis: int, copied: int, again: int) -> tuple[str, str]:
    """The cause of a kind of operation, told by places, and that of the time before the next one."""
    kind, of_axis, moved = _OF_CLASS[of_class], _OF_AXIS[axis] or "unknown", _OF_COPY[copied]
    if kind is None:
        return PEER, "compute/hand-over"
    if kind is OperationClass.COMMUNICATION:
        return f"communication/{of_axis}/unsplit", f"communication/{of_axis}/hand-over"
    if kind is OperationClass.COPY:
        wall = "host" if moved is CopyCause.SMALL_COPY else "memory"
        return f"{wall}/{moved or 'unknown-copy'}", f"{wall}/hand-over"
    if kind is OperationClass.OPAQUE_GRAPH:
        return "unattributed/opaque-graph", "compute/hand-over"
    return "memory/recompute" if again else f"compute/{_OF_CATEGORY[category]}", "compute/hand-over"


def caused(
    pieces: Slices, causes: OperationCauses, on_thread: Rows, texts: list[str], in_graph: Rows
) -> tuple[Rows, list[str | None]]:
    """The cause of each piece, as a place in the texts that come with it.

    Args:
        pieces: the slices.
        causes: of the operations.
        on_thread: the cause of each piece if it is time outside calls on a thread, -1 if it is not.
        texts: what those places mean.
        in_graph: number of the graph launch of each operation, -1 outside graphs.
    """
    first_of_op, first_of_thread = len(_FIXED), len(_FIXED) + len(causes.texts)
    kind = pieces.kind
    found = np.where(on_thread >= 0, first_of_thread + on_thread, kind)
    rows = np.flatnonzero(kind == place(LinkKind.UNRESOLVED))
    found[rows] = len(_BY_KIND) + pieces.state[rows]

    rows = np.flatnonzero(kind == place(LinkKind.HAND_OVER))
    op, next_op = pieces.op[rows], pieces.next_op[rows]
    same_graph = (in_graph[op] == in_graph[next_op]) & (in_graph[op] >= 0)
    in_order = (causes.chain[op] == causes.chain[next_op]) | same_graph
    is_gap = in_order & causes.computes[op] & causes.computes[next_op]
    found[rows] = np.where(is_gap, len(_FIXED) - 1, first_of_op + causes.befores[op])

    rows = np.flatnonzero((kind < 0) | (kind == place(LinkKind.OPERATION)))
    op = pieces.op[rows]
    is_gap = (kind[rows] >= 0) & causes.computes[op]
    found[rows] = np.where(is_gap, len(LinkKind), first_of_op + causes.causes[op])
    return found, [*_FIXED, *causes.texts, *texts]
