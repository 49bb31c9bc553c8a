"""Everything known of each rank, gathered into the nouns of the answer and into tables."""

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import polars as pl

from wallscope.attribution.attribute import Evidence, OperationFacts, attribute_rank
from wallscope.attribution.totals import (
    SliceSums,
    TypicalWork,
    average_parts,
    list_causes,
    make_absence,
    make_typical_work,
    make_walls,
    select_typical_steps,
    sum_absence_by_step,
    sum_slices,
    sum_unresolved_by_step,
    sum_walls_by_step,
)
from wallscope.columns import split_by_rank
from wallscope.model.analysis import Budget, Rank, Step, Typical
from wallscope.model.capture import Capture
from wallscope.model.diagnosis import MemoryPressure
from wallscope.model.enums import OperationKind, Wall
from wallscope.model.options import Selection
from wallscope.model.schemas import BUDGET_PARTS, SLICES
from wallscope.parallel import Once, run_side_by_side
from wallscope.process_tuning import release_memory
from wallscope.profile.build import ProfileTables, build_tables
from wallscope.profile.step_slices import OperationDescriptions, describe_operations
from wallscope.replay.what_if import UpperBounds, estimate_upper_bounds
from wallscope.replay.windows import RankWindows
from wallscope.summary.communication import CommunicationSummary, measure_blocking, summarize_communication
from wallscope.summary.compute import (
    average_gpu_metrics,
    find_unmatched_kernels,
    sum_compute_work,
    summarize_compute,
)
from wallscope.summary.diagnosis import measure_recoverable
from wallscope.summary.host import summarize_host
from wallscope.summary.memory import (
    count_allocator_retries,
    find_offload,
    judge_memory_pressure,
    measure_memory_use,
    measure_recomputed_share,
    summarize_memory,
)
from wallscope.summary.ranges import build_range_work, list_range_work
from wallscope.trace.dependencies import Dependencies
from wallscope.trace.intervals import Times
from wallscope.trace.ranges import RangeTree

_OF_USUAL = ("start_ns", "end_ns", "wall", "kind", "op", "range")


@dataclass(frozen=True, slots=True)
class Trace:
    """A capture with its operations classified (`CLASSIFIED`), projected and divided into windows.

    `operations` are whole, and all those of the selected ranks; `waits` are those of all ranks; `windows`
    are what the selection leaves, with the columns of `STEPS` and `BUDGETS`, and those of
    `select_windows`; `projected` follows `PROJECTION`. `unmarked` are the ids of ranks that lack what
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
class RankSummary:
    """A rank with what its diagnosis is made from.

    `walls` and `unresolved` are of its deciding steps: the steady ones, all selected ones if none is;
    `tables` are what its profile is made from.
    """

    rank: Rank
    ceilings: UpperBounds
    walls: Times
    unresolved: Times
    pressure: MemoryPressure
    tables: ProfileTables


@dataclass(frozen=True, slots=True)
class _Gathered:
    """What all ranks are told from."""

    divided: Trace
    facts: OperationFacts
    evidence: Evidence
    described: Once[OperationDescriptions]


def summarize_ranks(divided: Trace, facts: OperationFacts, evidence: Evidence) -> tuple[RankSummary, ...]:
    """One account a rank."""
    written = divided.range_tree.texts[divided.range_tree.path_of_range[:-1]]
    known = Once(
        lambda: describe_operations(
            divided.capture, divided.projected, written, facts.axes, facts.collectives
        )
    )
    gathered = _Gathered(divided, facts, evidence, known)
    ranks = list_rank_windows(divided)
    held = estimate_upper_bounds(evidence, ranks, facts.partners)
    of_ranks = zip(divided.capture.ranks.iter_rows(named=True), ranks, held, strict=True)

    def accounted(own: tuple[dict[str, Any], RankWindows, UpperBounds]) -> RankSummary:
        found = _account(gathered, *own)
        release_memory()
        return found

    return run_side_by_side(accounted, of_ranks, ahead=[*dict.fromkeys(own.stretch for own in held), known])


def list_rank_windows(divided: Trace) -> list[RankWindows]:
    """The ranks with their operations and windows."""
    operations, windows = split_by_rank(divided.operations), split_by_rank(divided.windows)
    return [
        RankWindows(rank_id, operations[rank_id], windows[rank_id], select_typical_steps(windows[rank_id]))
        for rank_id in divided.capture.ranks["rank_id"]
    ]


def select_rank_windows(divided: Trace, rank_id: int) -> RankWindows:
    """One rank with its operations and windows."""
    windows = split_by_rank(divided.windows)[rank_id]
    return RankWindows(
        rank_id, split_by_rank(divided.operations)[rank_id], windows, select_typical_steps(windows)
    )


def attribute_all_ranks(divided: Trace, evidence: Evidence) -> pl.DataFrame:
    """The slices (`SLICES`) of all ranks."""
    of_ranks = (attribute_rank(evidence, own.operations, own.windows) for own in list_rank_windows(divided))
    return pl.concat([SLICES.to_frame(), *(own.cast(SLICES) for own in of_ranks)])


def measure_rank_work(divided: Trace, rank_id: int) -> TypicalWork:
    """The operations of a rank beside the steps of its typical step."""
    own = select_rank_windows(divided, rank_id)
    return make_typical_work(own.operations, own.typical)


def _account(
    gathered: _Gathered, rank: dict[str, Any], own: RankWindows, ceiling: UpperBounds
) -> RankSummary:
    divided, facts, evidence = gathered.divided, gathered.facts, gathered.evidence
    capture = divided.capture
    operations, windows, chosen = own.operations, own.windows, own.typical
    work = make_typical_work(operations, chosen)
    model = capture.export.gpu(rank["gpu"])
    capacity_bytes = None if model is None else model.memory_bytes
    slices = attribute_rank(evidence, operations, windows)
    usual = slices[*_OF_USUAL].filter(slices["step"].is_in(chosen["step"].implode()))
    sums = sum_slices(slices)
    usual_sums = sums.of_steps(chosen["step"])
    budget = Budget(*average_parts(chosen.select(BUDGET_PARTS).to_numpy()))
    typical = Typical(
        step_ns=sum(budget.parts()),
        budget=budget,
        walls=make_walls(average_parts(sum_walls_by_step(sums, chosen["step"]))),
    )
    listed = list_causes(usual_sums, len(chosen), typical.walls, {})
    traffic = CommunicationSummary(facts.axes, facts.collectives, capture.kernels, capture.names)
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
            summarize_communication(work, budget.exposed_communication, traffic),
            blocking_ns=measure_blocking(usual, facts.axes["op"], len(chosen)),
        ),
        compute=sum_compute_work(work),
        compute_details=summarize_compute(work, capture, model),
        memory=replace(
            summarize_memory(work, capture, rank, capacity_bytes),
            use=measure_memory_use(capture, rank, windows, capacity_bytes),
            offload=find_offload(work, facts.copies),
        ),
        ranges=list_range_work(divided.range_tree, work, divided.projected, rank["process"], usual),
        unmatched_kernels=find_unmatched_kernels(work, capture.names, typical.step_ns),
        causes=tuple(
            list_causes(usual_sums, len(chosen), typical.walls, measure_recoverable(listed, ceiling))
        ),
        host_details=summarize_host(operations, work, usual_sums, evidence, capture),
        gpu_metrics=average_gpu_metrics(work.steps, capture, rank["rank_id"], rank["gpu"]),
    )
    deciding = windows.filter(pl.col("steady")) if windows["steady"].any() else chosen
    return RankSummary(
        rank=account,
        ceilings=ceiling,
        walls=sum_walls_by_step(sums, deciding["step"]),
        unresolved=sum_unresolved_by_step(sums, deciding["step"]),
        pressure=judge_memory_pressure(
            account.memory,
            measure_recomputed_share(work, facts.recomputed),
            count_allocator_retries(windows, capture, rank["process"]),
        ),
        tables=build_tables(operations, windows, slices, gathered.described()),
    )


def _outside_ns(divided: Trace, operations: pl.DataFrame, windows: pl.DataFrame) -> int:
    """Time of the device before the first window, from the first operation or the selected time on."""
    first_ns = int(operations["start_ns"].to_numpy().min())
    begin_ns = first_ns if divided.selection.time_ns is None else max(first_ns, divided.selection.time_ns[0])
    return int(windows["start_ns"].to_numpy().min()) - begin_ns


def _steps(windows: pl.DataFrame, sums: SliceSums) -> tuple[Step, ...]:
    walls = sum_walls_by_step(sums, windows["step"])
    absent = sum_absence_by_step(sums, windows["step"])
    return tuple(
        Step(
            index=window["step"],
            start_ns=window["start_ns"],
            end_ns=window["end_ns"],
            steady=window["steady"],
            reason=window["reason"],
            budget=Budget(*(window[part] for part in BUDGET_PARTS)),
            compute_absent=make_absence(absent[row].tolist()),
            walls=make_walls(walls[row].tolist()),
        )
        for row, window in enumerate(windows.iter_rows(named=True))
    )


_WHO = ("rank", "pid", "device")
WALL_COLUMNS = tuple(f"{wall}_wall_ns" for wall in Wall)


def build_step_table(divided: Trace, slices: pl.DataFrame) -> pl.DataFrame:
    """Each window with its bounds, duration, budget, walls, steadiness and reason; `slices` follow `SLICES`.

    A window that the selected time cuts has the bounds that are left of it.
    """
    walled = [
        windows.hstack(_walls(windows, slices))
        for windows in divided.windows.partition_by("rank_id", maintain_order=True)
    ]
    ranks = divided.capture.ranks.select("rank_id", *_WHO)
    return (
        pl.concat(walled)
        .join(ranks, on="rank_id", how="left", maintain_order="left")
        .with_columns(duration_ns=pl.col("end_ns") - pl.col("start_ns"))
        .select(
            *(*_WHO, "step", "start_ns", "end_ns", "duration_ns", *BUDGET_PARTS, *WALL_COLUMNS),
            *("steady", "reason"),
        )
    )


def _walls(windows: pl.DataFrame, slices: pl.DataFrame) -> pl.DataFrame:
    """What each wall owns of the windows of one rank."""
    own = slices.filter(pl.col("rank_id") == windows["rank_id"][0])
    return pl.DataFrame(
        sum_walls_by_step(sum_slices(own), windows["step"]), schema=list(WALL_COLUMNS), orient="row"
    )


def build_kernel_table(divided: Trace) -> pl.DataFrame:
    """Each kernel name in the typical step, the most work first.

    `count`, the kernels that begin in a step, and `work_ns`, what lies inside it, are means over the steps
    of the typical step; `step_share` is work over the step, null where that has no length. `median_ns`,
    `least_ns` and `most_ns` are durations of the kernels that begin in those steps, whole also where one
    reaches beyond its step or the selected time.
    """
    return _of_each_rank(divided, _kernels)


def build_range_table(divided: Trace) -> pl.DataFrame:
    """Each range path in the typical step, the most device time first (`RANGE_WORK`, `name`, `path`)."""
    return _of_each_rank(divided, _ranges)


def _of_each_rank(divided: Trace, table: Callable[[Trace, int, int], pl.DataFrame]) -> pl.DataFrame:
    frames = []
    for row in divided.capture.ranks.iter_rows(named=True):
        who = [pl.lit(row[name], pl.Int32).alias(name) for name in _WHO]
        found = table(divided, row["rank_id"], row["process"])
        frames.append(found.select(*who, *found.columns))
    return pl.concat(frames)


def _kernels(divided: Trace, rank_id: int, _: int) -> pl.DataFrame:
    work = measure_rank_work(divided, rank_id)
    step_count = work.steps.start_ns.size
    step_ns = int((work.steps.end_ns - work.steps.start_ns).sum())
    duration = (pl.col("end_ns") - pl.col("start_ns")).filter("begins")
    return (
        work.operations.filter(pl.col("kind") == OperationKind.KERNEL)
        .group_by("name", "class", "category", "backend")
        .agg(
            count=pl.col("begins").sum() / step_count,
            work_ns=(pl.col("inside_ns").sum() / step_count).round().cast(pl.Int64),
            step_share=pl.col("inside_ns").sum() / (step_ns or None),
            median_ns=duration.median().round().cast(pl.Int64),
            least_ns=duration.min(),
            most_ns=duration.max(),
        )
        .join(divided.capture.names, on="name", how="left")
        .sort("work_ns", "text", descending=[True, False])
        .select(
            pl.col("class").cast(pl.String),
            pl.col("category").cast(pl.String),
            pl.col("backend").cast(pl.String),
            "count",
            "work_ns",
            "step_share",
            "median_ns",
            "least_ns",
            "most_ns",
            name="text",
        )
    )


def _ranges(divided: Trace, rank_id: int, process: int) -> pl.DataFrame:
    found = build_range_work(
        divided.range_tree, measure_rank_work(divided, rank_id), divided.projected, process
    )
    return found.drop("path").rename({"text": "path"})
