"""Compute of a rank: what its kernels calculate, and which of them no pattern knows."""

import polars as pl

from wallscope.model.analysis import ComputeWork, KernelWork
from wallscope.model.kinds import ComputeCategory, OperationClass
from wallscope.walls.typical import TypicalWork

_MATERIAL_SHARE = 0.01
_TOTALS = (pl.col("inside_ns").sum().alias("work_ns"), pl.col("begins").sum().alias("count"))


def compute_work(work: TypicalWork) -> tuple[ComputeWork, ...]:
    """Added-up durations by category in the typical step, the largest first: work, not time."""
    totals = (
        work.operations.filter(pl.col("class") == OperationClass.COMPUTE)
        .group_by("category")
        .agg(*_TOTALS)
        .with_columns(pl.col("category").cast(pl.String))
        .sort("work_ns", "category", descending=[True, False])
    )
    all_ns = int(totals["work_ns"].sum())
    return tuple(
        ComputeWork(
            ComputeCategory(category),
            work.mean(work_ns),
            work_ns / all_ns if all_ns else 0.0,
            work.mean(count),
        )
        for category, work_ns, count in totals.iter_rows()
    )


def unmatched_kernels(work: TypicalWork, names: pl.DataFrame, step_ns: int) -> tuple[KernelWork, ...]:
    """Kernels that no pattern knows and whose work is over 1 % of the typical step, the largest first."""
    totals = (
        work.operations.filter(~pl.col("matched"))
        .group_by("name")
        .agg(*_TOTALS)
        .join(names, on="name", how="left")
        .sort("work_ns", "text", descending=[True, False])
    )
    listed = (
        KernelWork(text, work.mean(count), work.mean(work_ns), work.mean(work_ns) / step_ns)
        for text, count, work_ns in totals.select("text", "count", "work_ns").iter_rows()
        if step_ns
    )
    return tuple(kernel for kernel in listed if kernel.share > _MATERIAL_SHARE)
