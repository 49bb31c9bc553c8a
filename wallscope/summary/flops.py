"""Floating-point operations of the typical step from operator shapes, and the kernels that they cover.

Kernels that may multiply without known FLOPs are those of multiplying categories, opaque graphs, and
unrecognized kernels if material. The FLOPs that are known are then a lower bound.
"""

from typing import NamedTuple

import numpy as np
import polars as pl

from wallscope.attribution.totals import CATEGORIES, TypicalWork
from wallscope.columns import Rows, find_places, sum_by_group
from wallscope.model.capture import Gpu
from wallscope.model.enums import OperationClass, Precision
from wallscope.model.rank_summaries import KernelRate
from wallscope.summary.leading_kernels import MULTIPLYING
from wallscope.thresholds.verdict import KERNEL_RATES_COUNT, MATERIAL_SHARE
from wallscope.trace.gpu_limits import find_peak
from wallscope.trace.kernel_classes import infer_precisions, shorten_kernel
from wallscope.trace.unrecognized import mark_unknown_kernels

_ADDING = r"(?i)split_?k_?reduce"
"""Kernels of a multiplication that only add what others multiplied."""
_IS_MULTIPLYING = np.isin(CATEGORIES, MULTIPLYING)


class CountedFlops(NamedTuple):
    """FLOPs of kernels, the work of these kernels in ns, and its share of that of all that may multiply."""

    flops: int
    work_ns: int
    share: float


def count_category_flops(work: TypicalWork, kernel_flops: pl.DataFrame | None) -> dict[str, CountedFlops]:
    """Return the known FLOPs of each multiplying category, over all steps of the typical step.

    Args:
        work: the typical step of a rank.
        kernel_flops: `KERNEL_FLOPS`, `None` where shapes are unknown.
    """
    if kernel_flops is None or kernel_flops.is_empty():
        return {}
    rows, place = _place(work, kernel_flops)
    category, inside_ns = work.columns.category[rows], work.columns.inside_ns[rows]
    all_ns = sum_by_group(category, inside_ns, len(CATEGORIES))
    known_ns = sum_by_group(category[place >= 0], inside_ns[place >= 0], len(CATEGORIES))
    carriers, flops = _carry(work, rows, place, kernel_flops)
    own = work.columns.category[carriers]
    return {
        CATEGORIES[one]: CountedFlops(
            sum(flops[own == one].tolist()), int(known_ns[one]), int(known_ns[one]) / int(all_ns[one])
        )
        for one in np.unique(category).tolist()
        if _IS_MULTIPLYING[one] and all_ns[one]
    }


def count_step_flops(work: TypicalWork, kernel_flops: pl.DataFrame | None) -> CountedFlops | None:
    """Return the known FLOPs of the typical step; `None` if none are known."""
    if kernel_flops is None or kernel_flops.is_empty():
        return None
    rows, place = _place(work, kernel_flops)
    is_unknown = mark_unknown_kernels(work.operations)[rows]
    may_multiply = _IS_MULTIPLYING[work.columns.category[rows]]
    if work.total_ns(rows[is_unknown & (place < 0)]) > MATERIAL_SHARE * work.total_ns(rows):
        may_multiply |= is_unknown
    carriers, flops = _carry(work, rows, place, kernel_flops)
    if not carriers.size:
        return None
    known_ns = work.total_ns(rows[(may_multiply | is_unknown) & (place >= 0)])
    lacking_ns = work.total_ns(rows[may_multiply & (place < 0)])
    lacking_ns += work.total_ns(work.rows_of(OperationClass.OPAQUE_GRAPH))
    all_ns = known_ns + lacking_ns
    return CountedFlops(
        work.mean(sum(flops.tolist())), work.mean(known_ns), known_ns / all_ns if all_ns else 1.0
    )


def rate_kernels(
    operations: pl.DataFrame, kernel_flops: pl.DataFrame, names: pl.DataFrame, gpu: Gpu | None
) -> pl.DataFrame:
    """Return the rate of each kernel name with known FLOPs, as `name`, `flops_per_s` and `peak_share`.

    Only operators whose multiplying kernels have one name count: how others divide their FLOPs is unknown.
    The rate covers the runs with known FLOPs that begin in the steps. The peak is that of the precision in
    the name.

    Args:
        operations: device operations in the steps of the typical step, with `begins`.
        kernel_flops: `KERNEL_FLOPS`.
        names: `NAMES` of kernels.
        gpu: of the rank.
    """
    counted = (
        kernel_flops.join(operations, on="op")
        .join(names, on="name")
        .with_columns(
            is_multiplying=pl.col("category").cast(pl.String).is_in(list(map(str, MULTIPLYING)))
            & ~pl.col("text").str.contains(_ADDING)
        )
        .filter(pl.col("is_multiplying") | ~pl.col("is_multiplying").any().over("operator"))
        .filter(pl.col("name").n_unique().over("operator") == 1, pl.col("begins").all().over("operator"))
        .with_columns(taken_ns=pl.col("end_ns") - pl.col("start_ns"))
    )
    by_operator = counted.group_by("operator").agg(pl.col("name", "flops").first(), pl.col("taken_ns").sum())
    by_name = by_operator.group_by("name").agg(
        pl.col("flops").cast(pl.Float64).sum(), pl.col("taken_ns").sum()
    )
    rates = by_name.filter(pl.col("taken_ns") > 0).select(
        "name", flops_per_s=pl.col("flops") * 1e9 / pl.col("taken_ns")
    )
    found = rates.join(infer_precisions(names), on="name", how="left", maintain_order="left")
    peaks = {one: None if gpu is None else find_peak(gpu.name, one) for one in Precision}
    most = {str(one): None if peak is None else peak.flops_per_s for one, peak in peaks.items()}
    return found.select(
        "name",
        "flops_per_s",
        peak_share=pl.col("flops_per_s")
        / pl.col("precision").cast(pl.String).replace_strict(most, return_dtype=pl.Float64),
    )


def list_kernel_rates(
    work: TypicalWork, kernel_flops: pl.DataFrame | None, names: pl.DataFrame, gpu: Gpu | None
) -> tuple[KernelRate, ...]:
    """Return the kernels with known FLOPs and most work in the typical step."""
    if kernel_flops is None or kernel_flops.is_empty():
        return ()
    rows = (
        work.operations.group_by("name")
        .agg(kernels=pl.col("begins").sum(), work_ns=pl.col("inside_ns").sum())
        .join(rate_kernels(work.operations, kernel_flops, names, gpu), on="name")
        .join(names, on="name")
        .sort("work_ns", "text", descending=[True, False])
        .head(KERNEL_RATES_COUNT)
    )
    return tuple(
        KernelRate(
            shorten_kernel(row["text"]),
            work.mean(row["kernels"]),
            work.mean(row["work_ns"]),
            row["flops_per_s"],
            row["peak_share"],
        )
        for row in rows.iter_rows(named=True)
    )


def _place(work: TypicalWork, kernel_flops: pl.DataFrame) -> tuple[Rows, Rows]:
    """Return the rows of compute, and the row of each in `kernel_flops`, -1 if it has none."""
    rows = work.rows_of(OperationClass.COMPUTE)
    return rows, find_places(work.columns.op[rows], kernel_flops["op"].to_numpy())


def _carry(work: TypicalWork, rows: Rows, place: Rows, kernel_flops: pl.DataFrame) -> tuple[Rows, Rows]:
    """Return the row of each operator in a step (its longest multiplying kernel) and its FLOPs."""
    rows, place = rows[place >= 0], place[place >= 0]
    columns = work.columns
    operator = kernel_flops["operator"].to_numpy()[place]
    length_ns = columns.end_ns[rows] - columns.start_ns[rows]
    order = np.lexsort((-length_ns, ~_IS_MULTIPLYING[columns.category[rows]], operator))
    first = np.unique(operator[order], return_index=True)[1]
    chosen = order[first]
    chosen = chosen[columns.begins[rows[chosen]]]
    return rows[chosen], kernel_flops["flops"].to_numpy()[place[chosen]]
