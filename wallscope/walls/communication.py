"""Communication of a rank: how long it ran, how much of that nothing hid, by operation and axis."""

from dataclasses import dataclass
from fractions import Fraction

import polars as pl

from wallscope.model.communication import Communication, CommunicationOperation
from wallscope.model.frames import AXES, COLLECTIVES, KERNELS, NAMES
from wallscope.model.kinds import Axis, Backend, Collective, LinkKind, OperationClass
from wallscope.timeline.spans import union
from wallscope.walls.budget import spans_of
from wallscope.walls.dispatcher import dispatcher
from wallscope.walls.overlap import overlap_tax
from wallscope.walls.typical import TypicalWork

_COVERING = (OperationClass.COMPUTE, OperationClass.OPAQUE_GRAPH)
_MOST_EVIDENCE = 3


@dataclass(frozen=True, slots=True)
class Traffic:
    """What is known beside the operations: `AXES`, `COLLECTIVES`, launch shapes (`KERNELS`), kernel names."""

    axes: pl.DataFrame
    collectives: pl.DataFrame
    kernels: pl.DataFrame
    names: pl.DataFrame


_NOTHING = Traffic(*(schema.to_frame() for schema in (AXES, COLLECTIVES, KERNELS, NAMES)))


def communication(work: TypicalWork, all_exposed_ns: int, traffic: Traffic = _NOTHING) -> Communication:
    """Volume and exposure of the communication in the typical step of one rank.

    `all_exposed_ns` is the exposed part of its budget.

    Exposed means: neither compute nor an opaque graph ran. Operations that overlap each other are
    each shown with all their exposed time, so the list may add up to more than the total. Bus bandwidth
    is as NCCL's tests define it, over all operations that begin in the steps: what a rank's link has to
    carry by the duration of the operation on this rank. One rank can't tell waiting for its peers from
    moving bytes, so it is a lower bound. It is unknown where that of any operation is.
    """
    own = _described(work.operations.filter(pl.col("class") == OperationClass.COMMUNICATION), traffic)
    computing = union(spans_of(work.operations.filter(pl.col("class").is_in(_COVERING))))
    computed_ns = work.all_covered_ns(computing)

    def exposed_ns(operations: pl.DataFrame) -> int:
        return work.all_covered_ns(union(computing, spans_of(operations))) - computed_ns

    ran_ns = work.all_covered_ns(union(spans_of(own)))
    hidden_ns = ran_ns - exposed_ns(own)
    listed = [
        CommunicationOperation(
            operation=Collective(operation),
            axis=Axis(axis),
            backend=Backend(backend),
            count=work.mean(int(group["begins"].sum())),
            work_ns=work.mean(int(group["inside_ns"].sum())),
            exposed_ns=work.mean(exposed_ns(group)),
            bytes=_bytes(work, group),
            bus_bandwidth_bytes_per_s=_bus_bandwidth_bytes_per_s(group),
            evidence=_evidence(group),
        )
        for (operation, axis, backend), group in own.group_by("operation", "axis", "backend")
    ]
    return Communication(
        union_ns=all_exposed_ns + work.mean(hidden_ns),
        exposed_ns=all_exposed_ns,
        blocking_ns=None,
        hidden_share=hidden_ns / ran_ns if ran_ns else None,
        operations=tuple(
            sorted(
                listed,
                key=lambda entry: (
                    -entry.exposed_ns,
                    -entry.work_ns,
                    entry.operation,
                    entry.axis,
                    entry.backend,
                ),
            )
        ),
        overlap_tax=overlap_tax(work, traffic.kernels),
        dispatcher=dispatcher(work, traffic.axes, traffic.names),
    )


def blocking_ns(slices: pl.DataFrame, communicating: pl.Series, step_count: int) -> int:
    """Communication on the binding chains, in ns of a step: the lower bound beside what is exposed.

    `slices` (`SLICES`) are those of the steps, `communicating` the numbers of communication operations.
    """
    on_chain = (pl.col("kind") == LinkKind.OPERATION) & pl.col("op").is_in(
        communicating.cast(pl.Int32).implode()
    )
    total_ns = slices.filter(on_chain).select((pl.col("end_ns") - pl.col("start_ns")).sum()).item()
    return round(Fraction(total_ns, step_count))


def _described(operations: pl.DataFrame, traffic: Traffic) -> pl.DataFrame:
    """Operations with their axis, evidence, and what NCCL counts; copies between devices count themselves."""
    counted = traffic.collectives.select("op", "bus_bytes", counted_bytes="bytes")
    is_peer_copy = pl.col("backend") == Backend.PEER_COPY
    return (
        operations.join(traffic.axes, on="op", how="left")
        .join(counted, on="op", how="left")
        .with_columns(
            operation=pl.coalesce("operation", pl.col("category").cast(AXES["operation"], strict=False)),
            axis=pl.col("axis").fill_null(Axis.UNKNOWN),
            bus_bytes=pl.when(is_peer_copy).then("bytes").otherwise("bus_bytes"),
            bytes=pl.coalesce("bytes", "counted_bytes"),
        )
        .sort("op")
    )


def _bytes(work: TypicalWork, operations: pl.DataFrame) -> int | None:
    begun = operations.filter(pl.col("begins"))["bytes"]
    return None if begun.null_count() else work.mean(int(begun.sum()))


def _bus_bandwidth_bytes_per_s(operations: pl.DataFrame) -> float | None:
    begun = operations.filter(pl.col("begins"))
    duration_ns = int((begun["end_ns"] - begun["start_ns"]).sum())
    if begun["bus_bytes"].null_count() or not duration_ns:
        return None
    return int(begun["bus_bytes"].sum()) / duration_ns * 1_000_000_000


def _evidence(operations: pl.DataFrame) -> tuple[str, ...]:
    """What told the axis of most of the operations."""
    told = operations.drop_nulls("evidence").group_by("evidence").agg(count=pl.len())
    return tuple(told.sort("count", "evidence", descending=[True, False])["evidence"].head(_MOST_EVIDENCE))
