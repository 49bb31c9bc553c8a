"""The device budget: what the GPU did in each window, in five parts that sum to it.

Compute goes first, then graphs whose inside is not in the export, then communication, then copies;
each part is the measure of a union less the union of those before it, so nothing counts twice.
"""

from collections.abc import Iterator

import numpy as np
import polars as pl

from wallscope.model.frames import BUDGET_PARTS, BUDGETS
from wallscope.model.kinds import OperationClass
from wallscope.timeline.spans import Spans, Times, covered_ns, ordered, union


def spans_of(operations: pl.DataFrame) -> Spans:
    """The spans of some operations."""
    return ordered(operations["start_ns"].to_numpy(), operations["end_ns"].to_numpy())


def budgets(operations: pl.DataFrame, windows: pl.DataFrame) -> pl.DataFrame:
    """Device budget of each window (`CLASSIFIED`, `WINDOWS` to `BUDGETS`); operations are clipped to it.

    Further columns of the windows stay beside it.
    """
    parts = [_of_rank(operations, windows, rank) for rank in windows["rank_id"].unique(maintain_order=True)]
    return pl.concat(parts) if parts else BUDGETS.to_frame()


def _of_rank(operations: pl.DataFrame, windows: pl.DataFrame, rank_id: int) -> pl.DataFrame:
    own = operations.filter(pl.col("rank_id") == rank_id)
    own_windows = windows.filter(pl.col("rank_id") == rank_id)
    bounds = Spans(own_windows["start_ns"].to_numpy(), own_windows["end_ns"].to_numpy())
    parts = list(_parts(own, bounds))
    parts.append(bounds.end_ns - bounds.start_ns - np.sum(parts, axis=0))
    assert all((part >= 0).all() for part in parts), "a part of a budget is negative"  # noqa: S101  # our belief
    return own_windows.with_columns(
        pl.Series(name, part, dtype=pl.Int64) for name, part in zip(BUDGET_PARTS, parts, strict=True)
    )


def _parts(operations: pl.DataFrame, windows: Spans) -> Iterator[Times]:
    """Time of each class that no class before it covers, in ns, one number a window."""
    so_far = Spans(np.empty(0, np.int64), np.empty(0, np.int64))
    counted = np.zeros(windows.start_ns.size, np.int64)
    for operation_class in OperationClass:
        of_class = operations.filter(pl.col("class") == operation_class)
        if not of_class.is_empty():
            so_far = union(so_far, spans_of(of_class))
        covered = covered_ns(so_far, windows)
        yield covered - counted
        counted = covered
