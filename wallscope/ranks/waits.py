"""The residence of collectives split into moving bytes and waiting: for peers, or for the pipeline.

The last one in does not wait; from then on all move bytes. Where all give and all take, the shortest
residence is what moving takes, whatever the clocks say; of messages and of collectives with a root, clocks
tell when the last one came. What an operation owns of its rank's binding chain is taken to be its tail: a
chain walks backwards from what the end of the operation let go.
"""

import polars as pl

from wallscope.model.kinds import Axis
from wallscope.ranks.clocks import SYMMETRIC
from wallscope.thresholds import EARLY_RECEIVER_NS

_NS = pl.Int64()
SPLIT = pl.Schema(
    {
        "row": pl.UInt32(),
        "is_whole": pl.Boolean(),  # all participants are there, as far as known
        "joined_ns": _NS,  # when the last participant began
        "is_last": pl.Boolean(),
        "is_pipeline": pl.Boolean(),
        "residence_ns": _NS,
        "wait_ns": _NS,
        "transfer_ns": _NS,
        "blocking_wait_ns": _NS,
    }
)
"""What was added to each row of a meeting; null where participants lack."""


def split(rows: pl.DataFrame) -> pl.DataFrame:
    """Aligned collectives (`clocks.Aligned.rows`) with the columns of `SPLIT`.

    Operations of one meeting that never ran at one moment were matched in error, or on clocks that do not
    fit: they are not split.
    """
    joined = pl.col("start_ns").max().over("meeting")
    meets = joined < pl.col("end_ns").min().over("meeting") + _tolerance()
    has_all = (pl.col("participants").is_null() | (pl.col("participants") <= pl.len())).all()
    is_whole = (
        pl.col("meeting").is_not_null()
        & pl.col("is_tied").all().over("meeting")
        & meets
        & has_all.over("meeting")
    )
    last = pl.col("row").filter(pl.col("start_ns") == pl.col("start_ns").max()).first().over("meeting")
    return (
        rows.with_columns(
            is_whole=is_whole.fill_null(value=False),
            is_pipeline=pl.col("axis") == Axis.PP,
            residence_ns=pl.col("end_ns") - pl.col("start_ns"),
        )
        .with_columns(
            joined_ns=pl.when("is_whole").then(joined),
            is_last=pl.when("is_whole").then(pl.col("row") == last),
        )
        .with_columns(transfer_ns=pl.when("is_whole").then(_transfer_ns()))
        .with_columns(wait_ns=pl.col("residence_ns") - pl.col("transfer_ns"))
        .with_columns(
            blocking_wait_ns=(pl.col("blocking_ns") - pl.col("transfer_ns")).clip(0, pl.col("blocking_ns"))
        )
    )


def _transfer_ns() -> pl.Expr:
    shortest = pl.col("residence_ns").min().over("meeting")
    since_last = (pl.col("end_ns") - pl.col("joined_ns")).clip(0, pl.col("residence_ns"))
    return (
        pl.when(pl.col("operation").is_in([str(kind) for kind in SYMMETRIC]))
        .then(shortest)
        .otherwise(since_last)
    )


def _tolerance() -> pl.Expr:
    """Senders may be through a little before a receiver's clock says that it began."""
    return pl.lit(EARLY_RECEIVER_NS, _NS)
