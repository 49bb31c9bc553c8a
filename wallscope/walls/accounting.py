"""Everything known of each rank, gathered into the nouns of the answer."""

from typing import Any

import polars as pl

from wallscope.model.analysis import Budget, Rank, Step, Typical
from wallscope.model.capture import Capture
from wallscope.model.frames import BUDGET_PARTS
from wallscope.walls.communication import communication
from wallscope.walls.compute import compute_work, unmatched_kernels
from wallscope.walls.memory import memory
from wallscope.walls.typical import mean_parts, typical_steps, typical_work


def accounts(capture: Capture, operations: pl.DataFrame, windows: pl.DataFrame) -> tuple[Rank, ...]:
    """One account a rank, from `CLASSIFIED` operations and windows with `STEPS` and `BUDGETS`."""
    return tuple(
        _account(
            capture,
            operations.filter(pl.col("rank_id") == row["rank_id"]),
            windows.filter(pl.col("rank_id") == row["rank_id"]),
            row,
        )
        for row in capture.ranks.iter_rows(named=True)
    )


def _account(capture: Capture, operations: pl.DataFrame, windows: pl.DataFrame, rank: dict[str, Any]) -> Rank:
    chosen = typical_steps(windows)
    budget = Budget(*mean_parts(chosen.select(BUDGET_PARTS).to_numpy()))
    typical = Typical(sum(budget.parts()), budget)
    work = typical_work(operations, chosen)
    capacities = {gpu.id: gpu.memory_bytes for gpu in capture.export.gpus}
    return Rank(
        rank=rank["rank"],
        rank_source=rank["rank_source"],
        input=0,
        pid=rank["pid"],
        device=rank["device"],
        gpu=rank["gpu"],
        outside_ns=int(windows["start_ns"].to_numpy().min() - operations["start_ns"].to_numpy().min()),
        steps=tuple(_step(window) for window in windows.iter_rows(named=True)),
        typical=typical,
        communication=communication(work, budget.exposed_communication),
        compute=compute_work(work),
        memory=memory(work, capture.copies, capacities.get(rank["gpu"])),
        unmatched_kernels=unmatched_kernels(work, capture.names, typical.step_ns),
    )


def _step(window: dict[str, Any]) -> Step:
    return Step(
        index=window["step"],
        start_ns=window["start_ns"],
        end_ns=window["end_ns"],
        steady=window["steady"],
        reason=window["reason"],
        budget=Budget(*(window[part] for part in BUDGET_PARTS)),
    )
