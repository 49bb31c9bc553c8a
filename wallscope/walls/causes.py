"""Which wall pays for a slice, and the cause: `wall/cause[/detail]`.

Device operations have one cause each, whoever waits for them; links on threads are told by the call, by
the ranges and waits of the thread, and by whether a blocking call had left the device without work.
"""

from dataclasses import dataclass

import numpy as np
import polars as pl

from wallscope.model.kinds import CopyCause, DeviceState, LinkKind, OperationClass, Wall
from wallscope.timeline.numbered import by_operation

FRAMEWORK = "host/framework"
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
_CAUSE_OF_KIND = pl.Series([_OF_KIND.get(kind) for kind in LinkKind], dtype=pl.String)
_OF_STATE = pl.Series([_UNRESOLVED.get(state, "unattributed/unresolved") for state in DeviceState])
_COMPUTING = (OperationClass.COMPUTE, OperationClass.OPAQUE_GRAPH)
_TOLD_BY = ["class", "category", "axis", "copied", "again"]


@dataclass(frozen=True, slots=True)
class OperationCauses:
    """What each operation stands for when it owns time; lists by number of the operation.

    `cause` is its cause, `before` that of the time between its end and the start of what it held back,
    `chain` what it is in order with: operations of one stream or one graph launch share it (-1: none).
    """

    cause: pl.Series
    before: pl.Series
    chain: pl.Series
    computes: pl.Series


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
    again = np.zeros(count, np.bool_)
    again[recomputed.to_numpy()] = True
    own = {column: by_operation(operations, column, count) for column in ("stream", "class", "category")}
    known = pl.DataFrame(
        {
            **own,
            "axis": by_operation(axes, "axis", count),
            "copied": by_operation(copies, "cause", count),
            "again": again,
        }
    )
    told = known.join(
        _told(known.select(_TOLD_BY).unique()),
        on=_TOLD_BY,
        how="left",
        nulls_equal=True,
        maintain_order="left",
    )
    return OperationCauses(
        told["cause"],
        told["before"],
        told["stream"],
        told["class"].cast(pl.String).is_in([str(kind) for kind in _COMPUTING]).fill_null(value=False),
    )


def _told(kinds: pl.DataFrame) -> pl.DataFrame:
    """The kinds of operations, told apart by `_TOLD_BY`, with the `cause` and that `before` the next one."""
    text = kinds.with_columns(pl.col("class", "category").cast(pl.String))
    axis = pl.col("axis").cast(pl.String).fill_null("unknown")
    is_class = {kind: pl.col("class") == str(kind) for kind in OperationClass}
    moved = pl.col("copied").cast(pl.String)
    copied = (
        pl.when(moved == str(CopyCause.SMALL_COPY))
        .then(pl.format("host/{}", moved))
        .otherwise(pl.format("memory/{}", moved.fill_null("unknown-copy")))
    )
    cause = (
        pl.when(pl.col("class").is_null())
        .then(pl.lit(PEER))
        .when(is_class[OperationClass.COMMUNICATION])
        .then(pl.format("communication/{}/unsplit", axis))
        .when(is_class[OperationClass.COPY])
        .then(copied)
        .when(is_class[OperationClass.OPAQUE_GRAPH])
        .then(pl.lit("unattributed/opaque-graph"))
        .when("again")
        .then(pl.lit("memory/recompute"))
        .otherwise(pl.format("compute/{}", "category"))
    )
    before = (
        pl.when(is_class[OperationClass.COMMUNICATION])
        .then(pl.format("communication/{}/hand-over", axis))
        .when(is_class[OperationClass.COPY])
        .then(pl.format("{}/hand-over", pl.col("cause").str.split("/").list.first()))
        .otherwise(pl.lit("compute/hand-over"))
    )
    found = text.with_columns(cause=cause).with_columns(before=before)
    return kinds.with_columns(found["cause", "before"])


def caused(
    pieces: pl.DataFrame, causes: OperationCauses, on_thread: pl.Series, in_graph: pl.Series
) -> pl.DataFrame:
    """The pieces with `wall` and `cause`.

    Args:
        pieces: rows of `SLICES` without both.
        causes: of the operations.
        on_thread: the cause of each piece if it is time outside calls on a thread.
        in_graph: number of the graph launch of each operation, -1 outside graphs.
    """
    op, next_op = (pl.Series(pieces[name].to_numpy().clip(0), dtype=pl.UInt32) for name in ("op", "next_op"))
    of_op, handing_over = causes.cause.gather(op), causes.before.gather(op)
    same_graph = (in_graph.gather(op) == in_graph.gather(next_op)) & (in_graph.gather(op) >= 0)
    in_order = (causes.chain.gather(op) == causes.chain.gather(next_op)) | same_graph
    both = causes.computes.gather(op) & causes.computes.gather(next_op)
    kind = pieces["kind"]
    told = pl.DataFrame(
        {
            "kind": kind,
            "of_op": of_op,
            "handing_over": handing_over,
            "unresolved": _OF_STATE.gather(pieces["state"].to_physical()),
            "of_kind": _CAUSE_OF_KIND.gather(kind.to_physical()),
            "is_gap": in_order & both,
            "is_peer": causes.computes.gather(op) & (kind == str(LinkKind.OPERATION)),
            "on_thread": on_thread,
        }
    )
    cause = (
        pl.when(pl.col("is_peer"))
        .then(pl.lit(PEER))
        .when(pl.col("kind").is_null() | (pl.col("kind") == str(LinkKind.OPERATION)))
        .then("of_op")
        .when(pl.col("kind") == str(LinkKind.HAND_OVER))
        .then(pl.when("is_gap").then(pl.lit(KERNEL_GAP)).otherwise("handing_over"))
        .when(pl.col("kind") == str(LinkKind.UNRESOLVED))
        .then("unresolved")
        .when(pl.col("on_thread").is_not_null())
        .then("on_thread")
        .otherwise("of_kind")
    )
    found = told.select(cause=cause)["cause"]
    each = found.unique()
    walls = each.str.split("/").list.first().cast(pl.Enum(Wall))
    wall = found.replace_strict(each, walls, return_dtype=pl.Enum(Wall)).alias("wall")
    return pieces.with_columns(wall, found.alias("cause"))
