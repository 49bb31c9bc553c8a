"""Everything known of each rank, gathered into the nouns of the answer."""

from dataclasses import dataclass, replace
from typing import Any

import polars as pl

from wallscope.attribution.attribute import Evidence, OperationFacts, attributed
from wallscope.attribution.totals import (
    Sums,
    TypicalWork,
    absent_of,
    absent_of_steps,
    causes_of,
    mean_parts,
    summed,
    typical_steps,
    typical_work,
    unresolved_of_steps,
    walls_of,
    walls_of_steps,
)
from wallscope.cores import Once, side_by_side
from wallscope.grouping import by_rank
from wallscope.model.analysis import Budget, Rank, Step, Typical
from wallscope.model.capture import Capture
from wallscope.model.diagnosis import MemoryPressure
from wallscope.model.frames import BUDGET_PARTS, SLICES
from wallscope.model.selection import Selection
from wallscope.profile.build import ProfileTables, build_tables
from wallscope.profile.step_slices import OperationDescriptions, describe_operations
from wallscope.replay.rank_windows import RankWindows
from wallscope.replay.upper_bounds import Ceilings, ceilings
from wallscope.summary.communication import Traffic, blocking_ns, communication
from wallscope.summary.compute import compute_details, compute_work, unmatched_kernels
from wallscope.summary.diagnosis import recoverable
from wallscope.summary.host import host_details
from wallscope.summary.memory import (
    allocator_retries,
    memory,
    memory_pressure,
    memory_use,
    offload,
    recomputed_share,
)
from wallscope.summary.ranges import list_range_work
from wallscope.summary.utilization import gpu_metrics
from wallscope.trace.dependencies import Dependencies
from wallscope.trace.intervals import Times
from wallscope.trace.ranges import RangeTree
from wallscope.tuning import give_back

_OF_USUAL = ("start_ns", "end_ns", "wall", "kind", "op", "range")


@dataclass(frozen=True, slots=True)
class Divided:
    """A capture with its operations classified (`CLASSIFIED`), projected and divided into windows.

    `operations` are whole, and all those of the selected ranks; `waits` are those of all ranks; `windows`
    are what the selection leaves, with the columns of `STEPS` and `BUDGETS`, and those of
    `selected_windows`; `projected` follows `PROJECTION`. `unmarked` are the ids of ranks that lack what
    marks the steps of the others; `left_out` counts the ranks that have no selected window.
    """

    capture: Capture
    operations: pl.DataFrame
    waits: Dependencies
    windows: pl.DataFrame
    projected: pl.DataFrame
    range_tree: RangeTree
    selection: Selection
    unmarked: frozenset[int]
    left_out: int

    def unmarked_places(self) -> frozenset[int]:
        """The places of those ranks among the ranks that are accounted for, from 0."""
        numbers = enumerate(self.capture.ranks["rank_id"])
        return frozenset(place for place, number in numbers if number in self.unmarked)


@dataclass(frozen=True, slots=True)
class Account:
    """A rank with what its diagnosis is made from.

    `walls` and `unresolved` are of its deciding steps: the steady ones, all selected ones if none is;
    `tables` are what its profile is made from.
    """

    rank: Rank
    ceilings: Ceilings
    walls: Times
    unresolved: Times
    pressure: MemoryPressure
    tables: ProfileTables


@dataclass(frozen=True, slots=True)
class _Gathered:
    """What all ranks are told from."""

    divided: Divided
    facts: OperationFacts
    evidence: Evidence
    described: Once[OperationDescriptions]


def accounts(divided: Divided, facts: OperationFacts, evidence: Evidence) -> tuple[Account, ...]:
    """One account a rank."""
    written = divided.range_tree.texts[divided.range_tree.path_of_range[:-1]]
    known = Once(
        lambda: describe_operations(
            divided.capture, divided.projected, written, facts.axes, facts.collectives
        )
    )
    gathered = _Gathered(divided, facts, evidence, known)
    ranks = rank_windows(divided)
    held = ceilings(evidence, ranks, facts.partners)
    of_ranks = zip(divided.capture.ranks.iter_rows(named=True), ranks, held, strict=True)

    def accounted(own: tuple[dict[str, Any], RankWindows, Ceilings]) -> Account:
        found = _account(gathered, *own)
        give_back()
        return found

    return side_by_side(accounted, of_ranks, ahead=[*dict.fromkeys(own.stretch for own in held), known])


def rank_windows(divided: Divided) -> list[RankWindows]:
    """The ranks with their operations and windows."""
    operations, windows = by_rank(divided.operations), by_rank(divided.windows)
    return [
        RankWindows(rank_id, operations[rank_id], windows[rank_id], typical_steps(windows[rank_id]))
        for rank_id in divided.capture.ranks["rank_id"]
    ]


def windows_of(divided: Divided, rank_id: int) -> RankWindows:
    """One rank with its operations and windows."""
    windows = by_rank(divided.windows)[rank_id]
    return RankWindows(rank_id, by_rank(divided.operations)[rank_id], windows, typical_steps(windows))


def all_slices(divided: Divided, evidence: Evidence) -> pl.DataFrame:
    """The slices (`SLICES`) of all ranks."""
    of_ranks = (attributed(evidence, own.operations, own.windows) for own in rank_windows(divided))
    return pl.concat([SLICES.to_frame(), *(own.cast(SLICES) for own in of_ranks)])


def rank_work(divided: Divided, rank_id: int) -> TypicalWork:
    """The operations of a rank beside the steps of its typical step."""
    own = windows_of(divided, rank_id)
    return typical_work(own.operations, own.typical)


def _account(gathered: _Gathered, rank: dict[str, Any], own: RankWindows, ceiling: Ceilings) -> Account:
    divided, facts, evidence = gathered.divided, gathered.facts, gathered.evidence
    capture = divided.capture
    operations, windows, chosen = own.operations, own.windows, own.typical
    work = typical_work(operations, chosen)
    model = capture.export.gpu(rank["gpu"])
    capacity_bytes = None if model is None else model.memory_bytes
    slices = attributed(evidence, operations, windows)
    usual = slices[*_OF_USUAL].filter(slices["step"].is_in(chosen["step"].implode()))
    sums = summed(slices)
    usual_sums = sums.of_steps(chosen["step"])
    budget = Budget(*mean_parts(chosen.select(BUDGET_PARTS).to_numpy()))
    typical = Typical(
        step_ns=sum(budget.parts()),
        budget=budget,
        walls=walls_of(mean_parts(walls_of_steps(sums, chosen["step"]))),
    )
    listed = causes_of(usual_sums, len(chosen), typical.walls, {})
    traffic = Traffic(facts.axes, facts.collectives, capture.kernels, capture.names)
    account = Rank(
        rank=rank["rank"],
        rank_source=rank["rank_source"],
        input=0,
        pid=rank["pid"],
        device=rank["device"],
        gpu=rank["gpu"],
        outside_ns=_outside_ns(divided, operations, windows),
        steps=_steps(windows, sums),
        typical=typical,
        communication=replace(
            communication(work, budget.exposed_communication, traffic),
            blocking_ns=blocking_ns(usual, facts.axes["op"], len(chosen)),
        ),
        compute=compute_work(work),
        compute_details=compute_details(work, capture, model),
        memory=replace(
            memory(work, capture, rank, capacity_bytes),
            use=memory_use(capture, rank, windows, capacity_bytes),
            offload=offload(work, facts.copies),
        ),
        ranges=list_range_work(divided.range_tree, work, divided.projected, rank["process"], usual),
        unmatched_kernels=unmatched_kernels(work, capture.names, typical.step_ns),
        causes=tuple(causes_of(usual_sums, len(chosen), typical.walls, recoverable(listed, ceiling))),
        host_details=host_details(operations, work, usual_sums, evidence, capture),
        gpu_metrics=gpu_metrics(work.steps, capture, rank["rank_id"], rank["gpu"]),
    )
    deciding = windows.filter(pl.col("steady")) if windows["steady"].any() else chosen
    return Account(
        rank=account,
        ceilings=ceiling,
        walls=walls_of_steps(sums, deciding["step"]),
        unresolved=unresolved_of_steps(sums, deciding["step"]),
        pressure=memory_pressure(
            account.memory,
            recomputed_share(work, facts.recomputed),
            allocator_retries(windows, capture, rank["process"]),
        ),
        tables=build_tables(operations, windows, slices, gathered.described()),
    )


def _outside_ns(divided: Divided, operations: pl.DataFrame, windows: pl.DataFrame) -> int:
    """Time of the device before the first window, from the first operation or the selected time on."""
    first_ns = int(operations["start_ns"].to_numpy().min())
    begin_ns = first_ns if divided.selection.time_ns is None else max(first_ns, divided.selection.time_ns[0])
    return int(windows["start_ns"].to_numpy().min()) - begin_ns


def _steps(windows: pl.DataFrame, sums: Sums) -> tuple[Step, ...]:
    walls = walls_of_steps(sums, windows["step"])
    absent = absent_of_steps(sums, windows["step"])
    return tuple(
        Step(
            index=window["step"],
            start_ns=window["start_ns"],
            end_ns=window["end_ns"],
            steady=window["steady"],
            reason=window["reason"],
            budget=Budget(*(window[part] for part in BUDGET_PARTS)),
            compute_absent=absent_of(absent[row].tolist()),
            walls=walls_of(walls[row].tolist()),
        )
        for row, window in enumerate(windows.iter_rows(named=True))
    )
