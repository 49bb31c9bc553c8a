"""Compute of a rank: what its kernels calculate, and which of them no pattern knows."""

import polars as pl

from wallscope.model.analysis import ComputeWork, KernelWork
from wallscope.model.kinds import ComputeCategory, OperationClass

_MATERIAL_SHARE = 0.01


def _work() -> pl.Expr:
    return (pl.col("end_ns") - pl.col("start_ns")).sum().alias("work_ns")


def compute_work(operations: pl.DataFrame) -> tuple[ComputeWork, ...]:
    """Added-up durations by category of one rank (`CLASSIFIED`), the largest first: work, not time."""
    totals = (
        operations.filter(pl.col("class") == OperationClass.COMPUTE)
        .group_by("category")
        .agg(_work(), pl.len().alias("kernels"))
        .with_columns(pl.col("category").cast(pl.String))
        .sort("work_ns", "category", descending=[True, False])
    )
    all_ns = int(totals["work_ns"].sum())
    return tuple(
        ComputeWork(ComputeCategory(category), work_ns, work_ns / all_ns if all_ns else 0.0, kernels)
        for category, work_ns, kernels in totals.select("category", "work_ns", "kernels").iter_rows()
    )


def unmatched_kernels(
    operations: pl.DataFrame, names: pl.DataFrame, window_ns: int
) -> tuple[KernelWork, ...]:
    """Kernels that no pattern knows and whose work is over 1 % of the window, the largest first."""
    totals = (
        operations.filter(~pl.col("matched"))
        .group_by("name")
        .agg(_work(), pl.len().alias("count"))
        .filter(pl.col("work_ns") > _MATERIAL_SHARE * window_ns)
        .join(names, on="name", how="left")
        .sort("work_ns", "text", descending=[True, False])
    )
    return tuple(
        KernelWork(text, count, work_ns, work_ns / window_ns)
        for text, count, work_ns in totals.select("text", "count", "work_ns").iter_rows()
    )
