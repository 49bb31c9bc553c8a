"""The kernels that operators with known FLOPs issue."""

import polars as pl

from wallscope.model.schemas import KERNEL_FLOPS


def find_operator_kernels(issued: pl.DataFrame, operators: pl.DataFrame) -> pl.DataFrame:
    """Return the kernels of operators with known FLOPs (`KERNEL_FLOPS`); of nested ones the outermost counts.

    Args:
        issued: the kernels (`op`) with the thread and start of the call that issued each (`called_ns`), by
            this start.
        operators: `thread`, `start_ns`, `end_ns`, `until_ns`, which is the latest end, and the columns of
            `KERNEL_FLOPS` about operators, sorted by thread and start, the longest first.
    """
    return (
        issued.join_asof(
            _keep_outermost(operators.drop_nulls("flops")).sort("start_ns"),
            left_on="called_ns",
            right_on="start_ns",
            by="thread",
            strategy="backward",
            check_sortedness=False,
        )
        .filter(pl.col("called_ns") < pl.col("until_ns"))
        .sort("op")
        .select(KERNEL_FLOPS.names())
        .cast(KERNEL_FLOPS)
    )


def _keep_outermost(operators: pl.DataFrame) -> pl.DataFrame:
    """Return the operators inside no other, numbered (`operator`)."""
    before = pl.col("end_ns").cum_max().shift(1).over("thread").fill_null(pl.col("start_ns"))
    return operators.filter(pl.col("start_ns") >= before).with_columns(
        operator=pl.int_range(pl.len(), dtype=pl.UInt32)
    )
