"""Compute of a rank: what its kernels calculate, and which of them no pattern knows."""

import numpy as np
import polars as pl

from wallscope.arrays.groups import summed
from wallscope.model.analysis import ComputeWork, KernelWork
from wallscope.model.kinds import ComputeCategory, OperationClass
from wallscope.thresholds import MATERIAL_SHARE
from wallscope.walls.typical import CATEGORIES, TypicalWork


def compute_work(work: TypicalWork) -> tuple[ComputeWork, ...]:
    """Added-up durations by category in the typical step, the largest first: work, not time."""
    rows = work.rows_of(OperationClass.COMPUTE)
    category = work.columns.category[rows]
    work_ns = summed(category, work.columns.inside_ns[rows], len(CATEGORIES))
    begun = np.bincount(category[work.columns.begins[rows]], minlength=len(CATEGORIES))
    all_ns = int(work_ns.sum())
    listed = [(-int(work_ns[place]), CATEGORIES[place], int(begun[place])) for place in np.unique(category)]
    return tuple(
        ComputeWork(
            ComputeCategory(category),
            work.mean(-negative_ns),
            -negative_ns / all_ns if all_ns else 0.0,
            work.mean(count),
        )
        for negative_ns, category, count in sorted(listed)
    )


def unmatched_kernels(work: TypicalWork, names: pl.DataFrame, step_ns: int) -> tuple[KernelWork, ...]:
    """Kernels that no pattern knows and whose work is over 1 % of the typical step, the largest first."""
    if not step_ns:
        return ()
    rows = np.flatnonzero(~work.operations["matched"].to_numpy())
    name = work.columns.name[rows]
    work_ns = summed(name, work.columns.inside_ns[rows], len(names))
    begun = np.bincount(name[work.columns.begins[rows]], minlength=len(names))
    texts = names["text"]
    listed = [
        (-int(work_ns[place]), KernelWork(texts[place], work.mean(int(begun[place])), mean_ns, share))
        for place in np.flatnonzero(work_ns).tolist()
        if (share := (mean_ns := work.mean(int(work_ns[place]))) / step_ns) > MATERIAL_SHARE
    ]
    return tuple(kernel for _, kernel in sorted(listed, key=lambda entry: (entry[0], entry[1].name)))
