"""The communication operations of a rank, with who paid for its time between them and while they ran."""

import numpy as np
import polars as pl

from wallscope.model.frames import COLLECTIVES
from wallscope.model.kinds import Axis, Collective, LinkKind, OperationClass, OperationKind, Wall
from wallscope.model.profile import BEFORE, INSIDE, RANK_COLLECTIVES
from wallscope.timeline.spans import Times

_MOST = 12_000
_OPERATION = pl.Enum(Collective)


def rank_collectives(
    operations: pl.DataFrame,
    windows: pl.DataFrame,
    slices: pl.DataFrame,
    axes: pl.DataFrame,
    counted: pl.DataFrame,
) -> pl.DataFrame:
    """The collectives of one rank (`RANK_COLLECTIVES`).

    Of very many the first steps' worth is kept, so that ranks of one job keep the same.

    Args:
        operations: `CLASSIFIED`, those of the rank.
        windows: `WINDOWS` of the rank.
        slices: `SLICES` of the rank.
        axes: `AXES`, with the `key` of each operation.
        counted: `COLLECTIVES`, as far as they are known.
    """
    is_wanted = (pl.col("class") == OperationClass.COMMUNICATION) & (pl.col("kind") == OperationKind.KERNEL)
    own = operations.filter(is_wanted).sort("start_ns", "op").head(_MOST)
    if own.is_empty():
        return RANK_COLLECTIVES.to_frame()
    told = (
        own.select("op", "stream", "start_ns", "end_ns", "category")
        .join(axes.select("op", "operation", "axis", "key"), on="op", how="left", maintain_order="left")
        .join(_facts(counted), on="op", how="left", maintain_order="left")
        .join(_blocking(slices), on="op", how="left", maintain_order="left")
        .with_columns(
            operation=pl.coalesce("operation", pl.col("category").cast(_OPERATION, strict=False)).fill_null(
                pl.lit(Collective.OTHER, _OPERATION)
            ),
            axis=pl.col("axis").fill_null(Axis.UNKNOWN),
            blocking_ns=pl.col("blocking_ns").fill_null(0),
            step=_steps(own["start_ns"], windows),
            input=pl.lit(0, pl.UInt32),
        )
        .with_row_index("place")
    )
    kind = [pl.col("communicator"), *(_unless_known(column) for column in ("operation", "axis", "stream"))]
    before, inside = _walls(told["start_ns"].to_numpy(), told["end_ns"].to_numpy(), slices)
    return (
        told.with_columns(
            pl.int_range(pl.len()).over(kind).alias("sequence"),
            *(pl.Series(name, before[:, column]) for column, name in enumerate(BEFORE)),
            *(pl.Series(name, inside[:, column]) for column, name in enumerate(INSIDE)),
        )
        .select(RANK_COLLECTIVES.names())
        .cast(RANK_COLLECTIVES)
    )


def _facts(counted: pl.DataFrame) -> pl.DataFrame:
    names = ("op", "communicator", "participants", "bytes", "bus_bytes")
    return counted.select(
        pl.col(name) if name in counted.columns else pl.lit(None, COLLECTIVES[name]).alias(name)
        for name in names
    )


def _unless_known(column: str) -> pl.Expr:
    return pl.when(pl.col("communicator").is_null()).then(column)


def _blocking(slices: pl.DataFrame) -> pl.DataFrame:
    """What each operation owns on the chain."""
    is_bound = (pl.col("kind") == LinkKind.OPERATION) & (pl.col("op") >= 0)
    return (
        slices.filter(is_bound)
        .group_by(pl.col("op").cast(pl.UInt32))
        .agg(blocking_ns=(pl.col("end_ns") - pl.col("start_ns")).sum())
    )


def _steps(start_ns: pl.Series, windows: pl.DataFrame) -> pl.Series:
    bounds = windows.sort("start_ns")
    at_ns = start_ns.to_numpy()
    row = np.searchsorted(bounds["start_ns"].to_numpy(), at_ns, side="right") - 1
    is_inside = (row >= 0) & (at_ns < bounds["end_ns"].to_numpy()[row])
    step = bounds["step"].gather(pl.Series(row.clip(0), dtype=pl.UInt32))
    return step.to_frame("step").select(pl.when(pl.Series(is_inside)).then("step"))["step"]


def _walls(start_ns: Times, end_ns: Times, slices: pl.DataFrame) -> tuple[Times, Times]:
    """Time of each wall from the previous start to each start, and from each start to its end."""
    at_start, at_end = (_owned_until(at_ns, slices) for at_ns in (start_ns, end_ns))
    begin_ns = slices["start_ns"].to_numpy().min(initial=start_ns[0])
    first = _owned_until(np.array([begin_ns]), slices)
    return np.diff(at_start, axis=0, prepend=first), at_end - at_start


def _owned_until(at_ns: Times, slices: pl.DataFrame) -> Times:
    """What each wall has owned of the rank until some moments: a row a moment, a column a wall."""
    ordered = slices.sort("start_ns")
    start_ns, end_ns = ordered["start_ns"].to_numpy(), ordered["end_ns"].to_numpy()
    found = np.zeros((at_ns.size, len(Wall)), np.int64)
    if not start_ns.size:
        return found
    length_ns = end_ns - start_ns
    wall = ordered["wall"].to_physical().to_numpy()
    row = np.searchsorted(start_ns, at_ns, side="right") - 1
    part_ns = np.where(row >= 0, np.minimum(at_ns, end_ns[row]) - start_ns[row], 0)
    for column in range(len(Wall)):
        is_own = wall == column
        total_ns = np.concatenate(([0], np.cumsum(np.where(is_own, length_ns, 0))))
        found[:, column] = np.where(row >= 0, total_ns[row.clip(0)] + np.where(is_own[row], part_ns, 0), 0)
    return found
