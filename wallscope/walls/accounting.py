"""Everything known of each rank, gathered into the nouns of the answer."""

from dataclasses import dataclass
from typing import Any

import polars as pl

from wallscope.model.analysis import Budget, Rank, Step, Typical
from wallscope.model.capture import Capture
from wallscope.model.frames import BUDGET_PARTS
from wallscope.walls.communication import communication
from wallscope.walls.compute import compute_work, unmatched_kernels
from wallscope.walls.memory import memory
from wallscope.walls.phases import Phases
from wallscope.walls.typical import TypicalWork, mean_parts, typical_steps, typical_work


@dataclass(frozen=True, slots=True)
class Divided:
    """A capture with its operations classified (`CLASSIFIED`), projected and divided into windows.

    `windows` have the columns of `STEPS` and `BUDGETS`, `projected` follows `PROJECTION`.
    """

    capture: Capture
    operations: pl.DataFrame
    windows: pl.DataFrame
    projected: pl.DataFrame
    phases: Phases


def accounts(divided: Divided) -> tuple[Rank, ...]:
    """One account a rank."""
    return tuple(_account(divided, row) for row in divided.capture.ranks.iter_rows(named=True))


def rank_work(divided: Divided, rank_id: int) -> TypicalWork:
    """The operations of a rank beside the steps of its typical step."""
    is_own = pl.col("rank_id") == rank_id
    return typical_work(divided.operations.filter(is_own), typical_steps(divided.windows.filter(is_own)))


def _account(divided: Divided, rank: dict[str, Any]) -> Rank:
    capture = divided.capture
    is_own = pl.col("rank_id") == rank["rank_id"]
    operations, windows = divided.operations.filter(is_own), divided.windows.filter(is_own)
    chosen = typical_steps(windows)
    budget = Budget(*mean_parts(chosen.select(BUDGET_PARTS).to_numpy()))
    typical = Typical(sum(budget.parts()), budget)
    work = typical_work(operations, chosen)
    model = capture.export.gpu(rank["gpu"])
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
        memory=memory(work, capture, rank, None if model is None else model.memory_bytes),
        ranges=divided.phases.listed(work, divided.projected, rank["process"]),
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
