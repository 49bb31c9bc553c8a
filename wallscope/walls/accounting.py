"""Everything known of each rank, gathered into the nouns of the answer."""

from typing import Any

import polars as pl

from wallscope.model.analysis import Budget, Rank, Step, Typical
from wallscope.model.capture import Capture
from wallscope.model.frames import BUDGET_PARTS
from wallscope.walls.communication import communication
from wallscope.walls.compute import compute_work, unmatched_kernels
from wallscope.walls.memory import memory

_NOT_STEADY = "the whole capture, not a step"


def accounts(capture: Capture, operations: pl.DataFrame, windows: pl.DataFrame) -> tuple[Rank, ...]:
    """One account a rank, from `CLASSIFIED` operations and the `BUDGETS` of the whole capture."""
    rows = capture.ranks.join(windows, on="rank_id").sort("rank_id").iter_rows(named=True)
    return tuple(_account(capture, operations, row) for row in rows)


def _account(capture: Capture, operations: pl.DataFrame, row: dict[str, Any]) -> Rank:
    own = operations.filter(pl.col("rank_id") == row["rank_id"])
    budget = Budget(*(row[part] for part in BUDGET_PARTS))
    window_ns = row["end_ns"] - row["start_ns"]
    capacities = {gpu.id: gpu.memory_bytes for gpu in capture.export.gpus}
    return Rank(
        rank=row["rank"],
        rank_source=row["rank_source"],
        input=0,
        pid=row["pid"],
        device=row["device"],
        gpu=row["gpu"],
        steps=(
            Step(
                row["step"], row["start_ns"], row["end_ns"], steady=False, reason=_NOT_STEADY, budget=budget
            ),
        ),
        typical=Typical(window_ns, budget),
        communication=communication(own),
        compute=compute_work(own),
        memory=memory(own, capture.copies, capacities.get(row["gpu"])),
        unmatched_kernels=unmatched_kernels(own, capture.names, window_ns),
    )
