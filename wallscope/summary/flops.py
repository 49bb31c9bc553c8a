"""Floating-point operations of the typical step from operator shapes, and the kernels that they cover.

Kernels that may multiply without known FLOPs are those of multiplying categories, opaque graphs, and
unrecognized kernels if material. The FLOPs that are known are then a lower bound.
"""

from typing import NamedTuple

import numpy as np
import polars as pl

from wallscope.attribution.totals import CATEGORIES, TypicalWork
from wallscope.columns import Rows, find_places, sum_by_group
from wallscope.model.enums import OperationClass
from wallscope.summary.leading_kernels import MULTIPLYING
from wallscope.thresholds.verdict import MATERIAL_SHARE
from wallscope.trace.unrecognized import mark_unknown_kernels

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
