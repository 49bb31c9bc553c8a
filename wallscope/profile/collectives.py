"""The communication operations of a rank, with who paid for its time between them and while they ran."""

import numpy as np
import polars as pl

from wallscope.arrays.columns import Rows, filled
from wallscope.arrays.groups import summed
from wallscope.arrays.lookup import places, rows_of
from wallscope.model.kinds import Axis, Collective, LinkKind, OperationClass, OperationKind, Wall
from wallscope.model.profile import BEFORE, INSIDE, RANK_COLLECTIVES
from wallscope.timeline.spans import Times

_MOST = 12_000
_OPERATION = pl.Enum(Collective)
_OTHER = pl.lit(Collective.OTHER, _OPERATION)


def rank_collectives(  # noqa: PLR0913, PLR0917  # all that is told of them
    operations: pl.DataFrame,
    keys: Rows,
    windows: pl.DataFrame,
    slices: pl.DataFrame,
    axes: pl.DataFrame,
    counted: pl.DataFrame,
) -> pl.DataFrame:
    """The collectives of one rank (`RANK_COLLECTIVES`).

    Of very many the first steps' worth is kept, so that ranks of one job keep the same.

    Args:
        operations: `CLASSIFIED`, those of the rank.
        keys: the key of each operation, -1 without one.
        windows: `WINDOWS` of the rank.
        slices: `SLICES` of the rank.
        axes: `AXES`.
        counted: `COLLECTIVES`, as far as they are known.
    """
    rows = _communicating(operations)
    if not rows.size:
        return RANK_COLLECTIVES.to_frame()
    own = operations["op", "stream", "start_ns", "end_ns", "category"][rows]
    op, start_ns, end_ns = (own[name].to_numpy() for name in ("op", "start_ns", "end_ns"))
    told = own.hstack(
        [
            *_beside(op, axes, "operation", "axis"),
            *_beside(op, counted, "communicator", "participants", "bytes", "bus_bytes"),
        ]
    ).with_columns(
        operation=pl.coalesce("operation", pl.col("category").cast(_OPERATION, strict=False)).fill_null(
            _OTHER
        ),
        axis=pl.col("axis").fill_null(Axis.UNKNOWN),
    )
    kind = [pl.col("communicator"), *(_unless_known(column) for column in ("operation", "axis", "stream"))]
    before, inside = _walls(start_ns, end_ns, slices)
    key = keys[rows]
    columns = {
        **told.to_dict(),
        "input": np.zeros(rows.size, np.uint32),
        "place": np.arange(rows.size),
        "step": _steps(start_ns, windows),
        "key": pl.Series(key).set(pl.Series(key < 0), None),
        "sequence": told.select(pl.int_range(pl.len()).over(kind)).to_series(),
        "blocking_ns": _blocking_ns(op, slices),
        **{name: before[:, column] for column, name in enumerate(BEFORE)},
        **{name: inside[:, column] for column, name in enumerate(INSIDE)},
    }
    return pl.DataFrame({name: columns[name] for name in RANK_COLLECTIVES}, schema=RANK_COLLECTIVES)


def _communicating(operations: pl.DataFrame) -> Rows:
    """The rows of those that are kept, by start."""
    is_wanted = (pl.col("class") == OperationClass.COMMUNICATION) & (pl.col("kind") == OperationKind.KERNEL)
    rows = np.flatnonzero(operations.select(is_wanted).to_series().to_numpy())
    order = np.lexsort((operations["op"].to_numpy()[rows], operations["start_ns"].to_numpy()[rows]))
    return rows[order[:_MOST]]


def _beside(op: Rows, told: pl.DataFrame, *names: str) -> list[pl.Series]:
    """What rows with an `op` each tell of some operations; null where none does."""
    row = places(op, told["op"].to_numpy())
    at = pl.Series(row).set(pl.Series(row < 0), None)
    return told.select(pl.col(names).gather(at)).get_columns()


def _unless_known(column: str) -> pl.Expr:
    return pl.when(pl.col("communicator").is_null()).then(column)


def _blocking_ns(op: Rows, slices: pl.DataFrame) -> Times:
    """What each operation owns on the chain."""
    is_bound = pl.col("kind") == LinkKind.OPERATION
    own = slices.select("op", ns=pl.when(is_bound).then(pl.col("end_ns") - pl.col("start_ns")).otherwise(0))
    row, held = rows_of(op, own["op"].to_numpy())
    return summed(row, own["ns"].to_numpy()[held], op.size)


def _steps(start_ns: Times, windows: pl.DataFrame) -> pl.Series:
    """The step that each begins in; null outside of all."""
    order = np.argsort(windows["start_ns"].to_numpy(), kind="stable")
    begin_ns, end_ns = (windows[name].to_numpy()[order] for name in ("start_ns", "end_ns"))
    row = np.searchsorted(begin_ns, start_ns, side="right") - 1
    is_outside = (row < 0) | (start_ns >= end_ns[row])
    return windows["step"][order[row]].set(pl.Series(is_outside), None)


def _walls(start_ns: Times, end_ns: Times, slices: pl.DataFrame) -> tuple[Times, Times]:
    """Time of each wall from the previous start to each start, and from each start to its end."""
    begin_ns = slices["start_ns"].to_numpy().min(initial=start_ns[0])
    owned = _owned_until(np.concatenate(([begin_ns], start_ns, end_ns)), slices)
    first, at_start, at_end = np.split(owned, (1, 1 + start_ns.size))
    return np.diff(at_start, axis=0, prepend=first), at_end - at_start


def _owned_until(at_ns: Times, slices: pl.DataFrame) -> Times:
    """What each wall has owned of the rank until some moments: a row a moment, a column a wall."""
    found = np.zeros((at_ns.size, len(Wall)), np.int64)
    if slices.is_empty():
        return found
    start_ns, end_ns = slices["start_ns"].to_numpy(), slices["end_ns"].to_numpy()
    wall = filled(slices["wall"])
    if (start_ns[1:] < start_ns[:-1]).any():
        order = np.argsort(start_ns, kind="stable")
        start_ns, end_ns, wall = start_ns[order], end_ns[order], wall[order]
    row = np.searchsorted(start_ns, at_ns, side="right") - 1
    part_ns = np.where(row >= 0, np.minimum(at_ns, end_ns[row]) - start_ns[row], 0)
    length_ns = end_ns - start_ns
    for column in range(len(Wall)):
        own = np.flatnonzero(wall == column)
        total_ns = np.concatenate(([0], np.cumsum(length_ns[own])))
        found[:, column] = total_ns[np.searchsorted(own, row)]
    found[np.arange(row.size), wall[row]] += part_ns
    return found
