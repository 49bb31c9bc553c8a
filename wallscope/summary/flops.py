"""Floating-point operations of the typical step from operator shapes; all of them or none."""

import numpy as np
import polars as pl

from wallscope.attribution.totals import CATEGORIES, TypicalWork
from wallscope.columns import Rows, find_places
from wallscope.model.enums import OperationClass
from wallscope.summary.leading_kernels import MULTIPLYING
from wallscope.thresholds.verdict import MATERIAL_SHARE
from wallscope.trace.unrecognized import mark_unknown_kernels

_IS_MULTIPLYING = np.isin(CATEGORIES, MULTIPLYING)


def count_category_flops(work: TypicalWork, kernel_flops: pl.DataFrame | None) -> dict[str, int]:
    """Return the FLOPs of each multiplying category, over all steps of the typical step.

    A category is excluded if any of its kernels has no FLOPs.

    Args:
        work: the typical step of a rank.
        kernel_flops: `KERNEL_FLOPS`, `None` where shapes are unknown.
    """
    if kernel_flops is None or kernel_flops.is_empty():
        return {}
    rows, place = _place(work, kernel_flops)
    category = work.columns.category[rows]
    lacking = set(category[place < 0].tolist())
    carriers, flops = _carry(work, rows, place, kernel_flops)
    own = work.columns.category[carriers]
    return {
        CATEGORIES[one]: sum(flops[own == one].tolist())
        for one in np.unique(own).tolist()
        if _IS_MULTIPLYING[one] and one not in lacking
    }


def count_step_flops(work: TypicalWork, kernel_flops: pl.DataFrame | None) -> int | None:
    """Return the FLOPs of the typical step; `None` if a kernel that may multiply has none.

    Such kernels are those of a multiplying category, opaque graphs, and unrecognized kernels if material.
    """
    if kernel_flops is None or kernel_flops.is_empty():
        return None
    rows, place = _place(work, kernel_flops)
    category = work.columns.category[rows]
    is_lacking = place < 0
    is_unknown = mark_unknown_kernels(work.operations)[rows]
    unknown_ns = work.total_ns(rows[is_lacking & is_unknown])
    is_partial = (
        bool((is_lacking & _IS_MULTIPLYING[category]).any())
        or unknown_ns > MATERIAL_SHARE * work.total_ns(rows)
        or bool(work.rows_of(OperationClass.OPAQUE_GRAPH).size)
    )
    carriers, flops = _carry(work, rows, place, kernel_flops)
    return None if is_partial or not carriers.size else work.mean(sum(flops.tolist()))


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
