"""All gaps of the slices in one frame, with the cause that owns most of each."""

import polars as pl

from wallscope.walls.accounting import Divided
from wallscope.walls.named import Named
from wallscope.walls.proof import numbered

_LENGTH = pl.col("end_ns") - pl.col("start_ns")
_GAP = ("rank_id", "number")


def gaps(slices: pl.DataFrame, parts: Divided, named: Named) -> pl.DataFrame:
    """Each gap of `slices` (`SLICES`), with `rank_id`; columns as the table `gaps` declares them."""
    inside = numbered(slices).filter(pl.col("number").is_not_null())
    bounds = inside.group_by(_GAP, maintain_order=True).agg(
        pl.col("step", "start_ns").first(), pl.col("end_ns", "gap").last(), links=pl.len()
    )
    owners = (
        inside.group_by(*_GAP, "wall", "cause")
        .agg(cause_ns=_LENGTH.sum())
        .sort(*_GAP, "cause_ns", "cause", descending=[False, False, True, False])
        .unique(_GAP, keep="first", maintain_order=True)
    )
    found = bounds.join(owners, on=_GAP, how="left", maintain_order="left")
    operations = parts.capture.operations
    op = pl.select(pl.when(found["gap"] >= 0).then(found["gap"])).to_series()
    ends = operations["start_ns"].gather(op) <= found["end_ns"]
    ender = pl.select(pl.when(ends).then(op)).to_series()
    return found.with_columns(
        duration_ns=_LENGTH,
        ended_by_op=ender,
        ended_by=named.operations(ender),
        path=named.paths(parts.projected["range"].gather(ender)),
        call_start_ns=named.call_starts(operations["call"].gather(ender)),
    )
