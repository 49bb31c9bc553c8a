"""The largest kernels of each compute category, and the precision of its GEMMs.

Recommendations cite these kernels as evidence, and estimate the gain of another precision from theirs.
"""

from collections.abc import Iterator

import numpy as np
import polars as pl

from wallscope.attribution.totals import CATEGORIES, TypicalWork
from wallscope.columns import Rows, combine_codes, sum_by_group
from wallscope.model.enums import ComputeCategory, Precision
from wallscope.model.rank_summaries import CategoryPrecision, LeadingKernel
from wallscope.thresholds.verdict import LEADING_KERNELS_COUNT, MATERIAL_SHARE
from wallscope.trace.kernel_classes import shorten_kernel

MULTIPLYING = (
    ComputeCategory.GEMM,
    ComputeCategory.GROUPED_GEMM,
    ComputeCategory.ATTENTION,
    ComputeCategory.CONVOLUTION,
)
_EACH = list(Precision)


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
    is_asked = np.isin(CATEGORIES, MULTIPLYING)
    rows = computing[is_asked[columns.category[computing]] & (columns.name[computing] >= 0)]
    if not rows.size or not total_ns:
        return ()
    key = columns.category[rows].astype(np.int64) * len(_EACH) + precisions[columns.name[rows]]
    work_ns = sum_by_group(key, columns.inside_ns[rows], len(CATEGORIES) * len(_EACH))
    begun = np.bincount(key[columns.begins[rows]], minlength=work_ns.size)
    places = sorted(np.flatnonzero(work_ns).tolist(), key=lambda place: (-int(work_ns[place]), place))
    return tuple(
        CategoryPrecision(
            ComputeCategory(CATEGORIES[place // len(_EACH)]),
            _EACH[place % len(_EACH)],
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
            _EACH[row["precision"]],
            work.mean(row["kernels"]),
            work.mean(row["work_ns"]),
        )
