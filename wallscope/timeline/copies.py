"""Why copies and fills run: offload, input, readback, or too small to be worth one.

Copies between devices communicate and are not told here.
"""

import polars as pl

from wallscope.model.frames import COPY_CAUSES
from wallscope.model.kinds import CopyCause, CopyDirection, Pass
from wallscope.timeline.spans import Spans, ordered, union

BULK_BYTES = 65_536
"""Copies between host and device below that move no bytes worth speaking of: they cost the call."""
_MOST_FRESH = 0.25

_CAUSE_OF_DIRECTION = {
    CopyDirection.HOST_TO_DEVICE: CopyCause.STAGING,
    CopyDirection.HOST_TO_HOST: CopyCause.STAGING,
    CopyDirection.DEVICE_TO_HOST: CopyCause.READBACK,
    CopyDirection.DEVICE_TO_DEVICE: CopyCause.DEVICE_COPY,
    CopyDirection.MIGRATION_TO_DEVICE: CopyCause.MIGRATION,
    CopyDirection.MIGRATION_TO_HOST: CopyCause.MIGRATION,
    CopyDirection.MIGRATION_BETWEEN_DEVICES: CopyCause.MIGRATION,
    CopyDirection.FILL: CopyCause.FILL,
}


def copy_causes(operations: pl.DataFrame, copies: pl.DataFrame, passes: pl.DataFrame) -> pl.DataFrame:
    """The cause of each copy and fill (`OPERATIONS`, `COPIES`, `PASSES` to `COPY_CAUSES`).

    Bulk copies from the device to the host are offload, where later a copy of the same size goes back to
    the same device of the same process, and so is that one; each is matched once, the earliest first.
    So are the bulk copies inside a range of the optimizer that holds both directions. A copy of unknown
    size is neither small nor offload. Copies between devices have no row.
    """
    direction = pl.col("direction")
    is_between = direction.is_in(
        [str(kind) for kind in (CopyDirection.HOST_TO_DEVICE, CopyDirection.DEVICE_TO_HOST)]
    )
    moved = (
        copies.select("op", "direction")
        .join(operations.select("op", "rank_id", "start_ns", "end_ns", "bytes"), on="op")
        .join(passes.select("op", "pass", "scope"), on="op", how="left")
        .filter(direction.is_null() | (direction != CopyDirection.PEER))
        .sort("op")
    )
    bulk = moved.filter(is_between & (pl.col("bytes") >= BULK_BYTES))
    offload = pl.concat([round_trips(bulk)["op"], _around_the_optimizer(bulk)]).unique()
    by_direction = direction.cast(pl.String).replace_strict(
        {str(kind): str(cause) for kind, cause in _CAUSE_OF_DIRECTION.items()},
        default=None,
        return_dtype=COPY_CAUSES["cause"],
    )
    return moved.select(
        "op",
        cause=pl.when(is_between & (pl.col("bytes") < BULK_BYTES))
        .then(pl.lit(CopyCause.SMALL_COPY, COPY_CAUSES["cause"]))
        .when(pl.col("op").is_in(offload.implode()))
        .then(pl.lit(CopyCause.OFFLOAD, COPY_CAUSES["cause"]))
        .otherwise(by_direction),
    ).cast(COPY_CAUSES)


def round_trips(moved: pl.DataFrame) -> pl.DataFrame:
    """Of copies between host and device those that go to the host and come back, or come back from there.

    A copy comes back when it starts no earlier than one of the same size ended that went to the host from
    the same rank, and that no other copy brought back; the earliest is brought back first. Sizes of which
    over a quarter of the later copies to the device bring nothing back are those of inputs and outputs
    that happen to be equal: none of that size is a return.

    Args:
        moved: columns `op`, `rank_id`, `direction`, `start_ns`, `end_ns`, `bytes`.

    Returns:
        The rows of `moved` that are matched, in some order.
    """
    key = ["rank_id", "bytes"]
    leaves = pl.col("direction") == CopyDirection.DEVICE_TO_HOST
    walked = (
        moved.with_columns(
            leaves=leaves,
            at_ns=pl.when(leaves).then("end_ns").otherwise("start_ns"),
            away=pl.when(leaves).then(1).otherwise(-1).cast(pl.Int64),
        )
        .sort(*key, "at_ns", pl.col("leaves").not_(), "op")
        .with_columns(balance=pl.col("away").cum_sum().over(key))
        .with_columns(least=pl.col("balance").cum_min().clip(upper_bound=0).over(key))
        .with_columns(before=pl.col("least").shift(1, fill_value=0).over(key))
    )
    returns = ~pl.col("leaves") & (pl.col("least") == pl.col("before"))  # else nothing was away
    return (
        walked.with_columns(returns=returns, nth=pl.col("leaves").cast(pl.Int64).cum_sum().over(key))
        .with_columns(
            matched=pl.col("returns").sum().over(key),
            later=(~pl.col("leaves") & (pl.col("nth") > 0)).sum().over(key),
        )
        .filter(pl.col("matched") >= (1 - _MOST_FRESH) * pl.col("later"))
        .filter(pl.col("returns") | (pl.col("leaves") & (pl.col("nth") <= pl.col("matched"))))
        .select(moved.columns)
    )


def _around_the_optimizer(bulk: pl.DataFrame) -> pl.Series:
    """Operations inside ranges of the optimizer that hold bulk copies in both directions."""
    inside = bulk.filter((pl.col("pass") == Pass.OPTIMIZER) & (pl.col("scope") >= 0))
    both = pl.col("direction").n_unique().over("rank_id", "scope") > 1
    return inside.filter(both)["op"]


def away(operations: pl.DataFrame, copies: pl.DataFrame, causes: pl.DataFrame) -> Spans:
    """When offloaded bytes of a rank were on the host alone (`OPERATIONS`, `COPIES`, `COPY_CAUSES`).

    From the end of an offload to the host to the start of the next copy, where that brings bytes back.
    """
    offloaded = causes.filter(pl.col("cause") == CopyCause.OFFLOAD)
    turns = (
        operations.join(offloaded.select("op"), on="op", how="semi")
        .join(copies.select("op", "direction"), on="op")
        .sort("start_ns", "op")
        .with_columns(back=pl.col("direction").shift(-1), back_ns=pl.col("start_ns").shift(-1))
        .filter(
            (pl.col("direction") == CopyDirection.DEVICE_TO_HOST)
            & (pl.col("back") == CopyDirection.HOST_TO_DEVICE)
        )
    )
    return union(ordered(turns["end_ns"].to_numpy(), turns["back_ns"].to_numpy()))
