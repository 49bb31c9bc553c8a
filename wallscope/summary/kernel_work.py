"""Single kernels of the typical step: the largest of each category, GEMMs by precision, FLOPs and rates.

Recommendations cite the largest kernels as evidence, and estimate the gain of another precision from theirs.

FLOPs are known from operator shapes. Kernels that may multiply without known FLOPs are those of multiplying
categories, opaque graphs, and unrecognized kernels if material. The FLOPs that are known are then a lower
bound.
"""

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np
import polars as pl

from wallscope.attribution.totals import CATEGORIES, TypicalWork
from wallscope.columns import Rows, combine_codes, find_places, sum_by_group
from wallscope.model.capture import Gpu
from wallscope.model.enums import ComputeCategory, OperationClass, Precision
from wallscope.model.rank_summaries import CategoryPrecision, KernelRate, LeadingKernel
from wallscope.thresholds.verdict import KERNEL_RATES_COUNT, LEADING_KERNELS_COUNT, MATERIAL_SHARE
from wallscope.trace.gpu_peaks import find_peak
from wallscope.trace.kernel_classes import infer_precisions, shorten_kernel
from wallscope.trace.unrecognized import mark_unknown_kernels

MULTIPLYING = (
    ComputeCategory.GEMM,
    ComputeCategory.GROUPED_GEMM,
    ComputeCategory.ATTENTION,
    ComputeCategory.CONVOLUTION,
)
_IS_MULTIPLYING = np.isin(CATEGORIES, MULTIPLYING)
_PRECISIONS = list(Precision)
ADDING = (
    r"(?i)split_?k_?reduce|epilogue::impl::globalKernel"
    r"|nchwToNhwc|nhwcToNchw|convertTensor|nhwcAddPadding|computeOffsets|im2col|col2im"
)
"""Kernels of a multiplication that only add what others multiplied, or a bias to it, or lay data out."""


def sum_category_precisions(
    work: TypicalWork, computing: Rows, precisions: Rows
) -> tuple[CategoryPrecision, ...]:
    """Return the work of each multiplying category by precision, the most work first.

    Args:
        work: the typical step of a rank.
        computing: rows of its compute kernels.
        precisions: index in `Precision` of each kernel name, by number: int64.
    """
    columns = work.columns
    total_ns = work.total_ns(computing)
    rows = computing[_IS_MULTIPLYING[columns.category[computing]] & (columns.name[computing] >= 0)]
    if not rows.size or not total_ns:
        return ()
    key = columns.category[rows].astype(np.int64) * len(_PRECISIONS) + precisions[columns.name[rows]]
    work_ns = sum_by_group(key, columns.inside_ns[rows], len(CATEGORIES) * len(_PRECISIONS))
    begun = np.bincount(key[columns.begins[rows]], minlength=work_ns.size)
    places = sorted(np.flatnonzero(work_ns).tolist(), key=lambda place: (-int(work_ns[place]), place))
    return tuple(
        CategoryPrecision(
            ComputeCategory(CATEGORIES[place // len(_PRECISIONS)]),
            _PRECISIONS[place % len(_PRECISIONS)],
            work.mean(int(work_ns[place])),
            int(work_ns[place]) / total_ns,
            work.mean(int(begun[place])),
        )
        for place in places
    )


def list_leading_kernels(
    work: TypicalWork, computing: Rows, names: pl.DataFrame, precisions: Rows
) -> tuple[LeadingKernel, ...]:
    """Return the first few kernels, by short name, of each category with a material part of the work.

    Args:
        work: the typical step of a rank.
        computing: rows of its compute kernels.
        names: `NAMES` of kernels.
        precisions: index in `Precision` of each of these, by number: int64.
    """
    columns = work.columns
    rows = computing[columns.name[computing] >= 0]
    total_ns = work.total_ns(computing)
    if not rows.size or not total_ns:
        return ()
    (category, name), place = combine_codes(
        (len(CATEGORIES), len(names)),
        columns.category[rows].astype(np.int64),
        columns.name[rows].astype(np.int64),
    )
    work_ns = sum_by_group(place, columns.inside_ns[rows], name.size)
    begun = np.bincount(place[columns.begins[rows]], minlength=name.size)
    texts = names["text"]
    found = pl.DataFrame(
        {
            "category": category,
            "name": [shorten_kernel(texts[each]) for each in name.tolist()],
            "precision": precisions[name],
            "kernels": begun,
            "work_ns": work_ns,
        }
    )
    return tuple(_list_first(found, work, total_ns))


def _list_first(found: pl.DataFrame, work: TypicalWork, total_ns: int) -> Iterator[LeadingKernel]:
    """Yield the first kernels of each category, the categories sorted by work."""
    together = (
        found.group_by("category", "name", "precision")
        .agg(pl.col("kernels", "work_ns").sum())
        .with_columns(whole_ns=pl.col("work_ns").sum().over("category"))
        .filter(pl.col("whole_ns") >= MATERIAL_SHARE * total_ns)
        .sort(
            *("whole_ns", "category", "work_ns", "name", "precision"),
            descending=[True, False, True, False, False],
        )
        .filter(pl.int_range(pl.len()).over("category") < LEADING_KERNELS_COUNT)
    )
    for row in together.iter_rows(named=True):
        yield LeadingKernel(
            row["name"],
            ComputeCategory(CATEGORIES[row["category"]]),
            _PRECISIONS[row["precision"]],
            work.mean(row["kernels"]),
            work.mean(row["work_ns"]),
        )


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
    rows, place = _match_flops(work, kernel_flops)
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
    rows, place = _match_flops(work, kernel_flops)
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
            & ~pl.col("text").str.contains(ADDING)
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
    peaks = {one: None if gpu is None else find_peak(gpu, one) for one in Precision}
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


def _match_flops(work: TypicalWork, kernel_flops: pl.DataFrame) -> tuple[Rows, Rows]:
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
