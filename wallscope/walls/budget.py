"""The device budget: what the GPU did in each window, in five parts that sum to it.

Compute goes first, then graphs whose inside is not in the export, then communication, then copies;
each part is the measure of a union less the union of those before it, so nothing counts twice.
"""

from collections.abc import Iterator

import numpy as np
import polars as pl

from wallscope.arrays.columns import filled
from wallscope.arrays.groups import by_rank
from wallscope.cores import side_by_side
from wallscope.model.frames import BUDGET_PARTS, BUDGETS
from wallscope.model.kinds import OperationClass
from wallscope.timeline.spans import Spans, Times, covered_ns, ordered, union


def budgets(operations: pl.DataFrame, windows: pl.DataFrame) -> pl.DataFrame:
    """Device budget of each window (`CLASSIFIED`, `WINDOWS` to `BUDGETS`); operations are clipped to it.

    Further columns of the windows stay beside it.
    """
    own = by_rank(operations)
    nothing = operations[:0]
    parts = side_by_side(lambda rank: _of_rank(own.get(rank[0], nothing), rank[1]), by_rank(windows).items())
    return pl.concat(parts) if parts else BUDGETS.to_frame()


def _of_rank(operations: pl.DataFrame, windows: pl.DataFrame) -> pl.DataFrame:
    bounds = Spans(windows["start_ns"].to_numpy(), windows["end_ns"].to_numpy())
    parts = list(_parts(operations, bounds))
    parts.append(bounds.end_ns - bounds.start_ns - np.sum(parts, axis=0))
    assert all((part >= 0).all() for part in parts), "a part of a budget is negative"  # noqa: S101  # our belief
    return windows.hstack(
        [pl.Series(name, part, dtype=pl.Int64) for name, part in zip(BUDGET_PARTS, parts, strict=True)]
    )


def _parts(operations: pl.DataFrame, windows: Spans) -> Iterator[Times]:
    """Time of each class that no class before it covers, in ns, one number a window."""
    so_far = Spans(np.empty(0, np.int64), np.empty(0, np.int64))
    counted = np.zeros(windows.start_ns.size, np.int64)
    start_ns, end_ns = operations["start_ns"].to_numpy(), operations["end_ns"].to_numpy()
    of_class = filled(operations["class"])
    for place in range(len(OperationClass)):
        rows = np.flatnonzero(of_class == place)
        if rows.size:
            so_far = union(so_far, ordered(start_ns[rows], end_ns[rows]))
        covered = covered_ns(so_far, windows)
        yield covered - counted
        counted = covered
