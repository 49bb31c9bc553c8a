"""Build the summary of each rank from its parts."""

from collections.abc import Mapping
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any, TypedDict

import numpy as np
import polars as pl

from wallscope.attribution.attribute import Evidence, attribute_rank
from wallscope.attribution.prepared import (
    Prepared,
    RankWindows,
    Trace,
    list_rank_windows,
)
from wallscope.attribution.totals import (
    SliceSums,
    average_parts,
    average_total,
    divide_profiled_host,
    list_causes,
    make_absence,
    make_typical_work,
    make_walls,
    sum_absence_by_step,
    sum_inferred_by_step,
    sum_profiled_by_step,
    sum_slices,
    sum_unrecognized_by_step,
    sum_unresolved_by_step,
    sum_walls_by_step,
)
from wallscope.columns import Flags, are_among, as_integers, encode_member, is_within
from wallscope.model.analysis import Budget, Rank, Step, Typical
from wallscope.model.capture import Capture
from wallscope.model.diagnosis import MemoryPressure, RareStall, StepFacts, StepMode, Walls
from wallscope.model.enums import CopyDirection, OperationKind
from wallscope.model.planned_work import PlanMismatch, PlannedWork
from wallscope.model.rank_summaries import OverlapTax
from wallscope.model.schemas import BUDGET_PARTS, WINDOWS
from wallscope.process_tuning import Once, release_memory, run_side_by_side
from wallscope.profile.build import ProfileTables, build_profile_tables
from wallscope.profile.step_slices import OperationDescriptions, describe_operations
from wallscope.records import dataclass
from wallscope.replay.what_if import UpperBounds, estimate_upper_bounds
from wallscope.summary.communication import (
    CommunicationSummary,
    measure_blocking,
    measure_overlap_tax,
    summarize_communication,
)
from wallscope.summary.compute import (
    average_gpu_metrics,
    find_training_kernels,
    find_unmatched_kernels,
    sum_compute_work,
    summarize_compute,
)
from wallscope.summary.diagnosis import measure_recoverable
from wallscope.summary.host import summarize_host
from wallscope.summary.link_traffic import measure_link_traffic
from wallscope.summary.memory import (
    count_allocator_retries,
    find_offload,
    judge_memory_pressure,
    measure_memory_use,
    measure_recomputed_share,
    summarize_memory,
)
from wallscope.summary.ranges import (
    find_host_range,
    find_unfused_attention,
    list_range_work,
    sum_range_walls,
)
from wallscope.summary.speed_of_light import build_ledger
from wallscope.summary.unseen_holders import sum_unseen_holds_by_step
from wallscope.summary.unusual_losses import (
    KernelLengths,
    compare_kernel_lengths,
    find_kinds_of_steps,
    find_rare_stalls,
    find_slower_kernels,
    measure_longest_gap,
    sum_beside_calls_by_step,
    sum_blocked_by_step,
)
from wallscope.thresholds.verdict import MATERIAL_SHARE, NO_KERNEL_SHARE, WORK_OUTSIDE_SHARE
from wallscope.trace.intervals import (
    Spans,
    Times,
    common,
    covered_ns,
    length_ns,
    make_spans,
    order_spans,
    union,
)

if TYPE_CHECKING:
    from wallscope.advice.model_work import PlannedRun

_MIGRATIONS = [encode_member(one) for one in CopyDirection if one.startswith("migration")]
_OF_TAX = ("op", "start_ns", "end_ns", "kind", "class", "category", "name")
_OF_USUAL = ("start_ns", "end_ns", "wall", "kind", "gap", "op", "range")


@dataclass(frozen=True, slots=True)
class RankSummary:
    """A rank with the inputs of its diagnosis.

    `walls`, `unresolved`, `inferred` and `blocked` cover its deciding steps: the steady ones, or all selected
    ones if none is steady. `blocked` is host time in calls that were blocked for an unknown reason, and
    `beside` that in which a thread may have waited for calls of another one. `unseen` is that in waits for
    locks that no thread with calls is seen to release. `unrecognized` is the compute time of kernels with
    unrecognized names.
    `kernel_share` is the time of kernels and graphs within the windows divided by that of the windows, and
    `has_kernels_elsewhere` whether they ran at other times.
    `hides_recompute` is set if the rank trains and no range names its backward pass. `lacks_calls` is set if
    a material part of the operations of those steps lacks its launch calls. `is_slowed_by_profiler` is set if
    a warning says so of the host, `has_unknown_clock` if clocks contradict each other.
    `profiled` is the time of its deciding steps by which they are longer than the unprofiled step.
    `most_host_ns` is the host time of a step that is longer only in the capture; `None` of all others.
    `tables` are the inputs of its profile, if they are asked for.
    """

    rank: Rank
    ceilings: UpperBounds
    walls: Times
    unresolved: Times
    inferred: Times
    blocked: Times
    beside: Times
    unseen: Times
    unrecognized: Times
    kernel_share: float
    has_kernels_elsewhere: bool
    hides_recompute: bool
    lacks_calls: bool
    is_slowed_by_profiler: bool
    has_unknown_clock: bool
    profiled: Times
    pressure: MemoryPressure
    most_host_ns: int | None
    tables: ProfileTables | None

    def measure_bounds(self) -> "RankSummary":
        """Return the rank with upper bounds on the gains of its causes, as far as they are known."""
        found = measure_recoverable(self.rank.causes, self.ceilings, self.most_host_ns)
        causes = tuple(replace(one, recoverable_ns=found.get(one.cause)) for one in self.rank.causes)
        return replace(self, rank=replace(self.rank, causes=causes))


def lacks_kernels(account: RankSummary) -> bool:
    """Return whether almost no kernel ran and no step was found, so that there is no work to analyze."""
    return account.kernel_share < NO_KERNEL_SHARE and not any(step.steady for step in account.rank.steps)


def summarize_ranks(
    prepared: Prepared,
    step_facts: StepFacts | None = None,
    plan: "PlannedRun | PlanMismatch | None" = None,
    *,
    with_tables: bool = True,
) -> tuple[RankSummary, ...]:
    """Return one summary per rank; with tables of profiles only if they are asked for.

    `plan` is what a configuration plans for the ranks, or why it does not; `None` without any.

    Of a step that is longer than an unprofiled one of the user, so much host time is that of the profiler.
    """
    trace, facts = prepared.trace, prepared.facts
    written = trace.range_tree.texts[trace.range_tree.path_of_range[:-1]]
    described = Once(
        lambda: describe_operations(trace.capture, trace.projected, written, facts.axes, facts.collectives)
    )
    whole = prepared.whole or prepared
    everyone = list_rank_windows(whole.trace)
    taxes = {own.rank_id: Once(partial(_measure_tax, own, trace.capture.kernels)) for own in everyone}

    def tax_ratio(rank_id: int) -> float | None:
        tax = taxes[rank_id]()
        return None if tax is None else tax.ratio

    of_everyone = zip(everyone, estimate_upper_bounds(whole, everyone, tax_ratio), strict=True)
    asked = frozenset(trace.capture.ranks["rank_id"])
    ranks, bounds = zip(*(own for own in of_everyone if own[0].rank_id in asked), strict=True)
    of_ranks = zip(trace.capture.ranks.iter_rows(named=True), ranks, bounds, strict=True)

    def summarize(own: tuple[dict[str, Any], RankWindows, UpperBounds]) -> RankSummary:
        found = _summarize_rank(
            prepared, described if with_tables else None, taxes, step_facts or StepFacts(), plan, *own
        )
        release_memory()
        return found

    return run_side_by_side(summarize, of_ranks, ahead=(described,) if with_tables else ())


def _measure_tax(own: RankWindows, kernels: pl.DataFrame) -> OverlapTax | None:
    """Return the slowdown of compute that overlaps communication, `None` if unknown."""
    return measure_overlap_tax(make_typical_work(own.operations[*_OF_TAX], own.typical), kernels)


def _summarize_rank(  # noqa: PLR0913, PLR0917  # what is shared between ranks, and what belongs to this one
    prepared: Prepared,
    described: Once[OperationDescriptions] | None,
    taxes: Mapping[int, Once[OverlapTax | None]],
    step_facts: StepFacts,
    plan: "PlannedRun | PlanMismatch | None",
    rank: dict[str, Any],
    own: RankWindows,
    ceiling: UpperBounds,
) -> RankSummary:
    trace, facts, evidence = prepared.trace, prepared.facts, prepared.evidence
    capture = trace.capture
    operations, windows, chosen = own.operations, own.windows, own.typical
    work = make_typical_work(operations, chosen)
    model = capture.export.gpu(rank["gpu"])
    capacity_bytes = None if model is None else model.memory_bytes
    slices = prepared.slices_of_rank(own)
    is_usual = are_among(slices["step"].to_numpy().astype(np.int64), chosen["step"].to_numpy())
    usual = slices[*_OF_USUAL].filter(pl.Series(is_usual))
    sums = sum_slices(slices)
    profiled_share = _measure_profiled_share(
        chosen, step_facts.unprofiled_step_ns if trace.steps.unit == "step" else None
    )
    if profiled_share:
        sums = divide_profiled_host(sums, profiled_share)
    usual_sums = sums.of_steps(chosen["step"])
    budget = Budget(*average_parts(np.column_stack([chosen[part].to_numpy() for part in BUDGET_PARTS])))
    typical = Typical(
        step_ns=sum(budget.parts()),
        budget=budget,
        walls=make_walls(average_parts(sum_walls_by_step(sums, chosen["step"]))),
    )
    host = summarize_host(operations, work, usual_sums, evidence, capture)
    path_walls = sum_range_walls(trace.range_tree, usual, len(chosen))
    place = find_host_range(trace.range_tree, path_walls, typical.walls)
    details = summarize_compute(work, capture, model)
    longest_ns, longest_share = measure_longest_gap(usual)
    steady = windows.filter("steady")
    lengths = compare_kernel_lengths(operations, steady, capture.kernels)
    traffic = CommunicationSummary(facts.axes, facts.collectives, capture.names)
    account = Rank(
        rank=rank["rank"],
        rank_source=rank["rank_source"],
        input=0,
        pid=rank["pid"],
        device=rank["device"],
        gpu=rank["gpu"],
        outside_ns=_outside_ns(trace, operations, windows),
        steps=_build_steps(windows, sums),
        typical=typical,
        communication=replace(
            summarize_communication(work, budget.exposed_communication, traffic, taxes[own.rank_id]()),
            blocking_ns=measure_blocking(usual, facts.axes["op"], len(chosen)),
            traffic=measure_link_traffic(work, capture, rank["gpu"]),
        ),
        compute=sum_compute_work(work, capture.kernel_flops),
        compute_details=None
        if details is None
        else replace(
            details, unfused_attention=find_unfused_attention(trace.range_tree, work, trace.projected)
        ),
        memory=replace(
            summarize_memory(work, capture, rank, capacity_bytes),
            use=measure_memory_use(capture, rank, windows, capacity_bytes),
            offload=find_offload(work, facts.copies),
        ),
        ranges=list_range_work(
            trace.range_tree, work, trace.projected, rank["process"], path_walls, capture.autograd_ranges
        ),
        unmatched_kernels=find_unmatched_kernels(work, capture.names, typical.step_ns),
        causes=tuple(list_causes(usual_sums, len(chosen), typical.walls)),
        host_details=None
        if host is None
        else replace(host, range=place, longest_gap_ns=longest_ns, longest_gap_share=longest_share),
        gpu_metrics=average_gpu_metrics(work.steps, capture, rank["rank_id"], rank["gpu"]),
        outside_idle_ns=_outside_idle_ns(trace, operations, windows),
        after_ns=_after_ns(trace, operations, windows),
        whole_walls=_measure_whole(trace, evidence, operations, windows),
        slower_kernels=find_slower_kernels(lengths, steady, capture, rank["gpu"]),
        speed_of_light=build_ledger(
            work,
            usual_sums,
            capture,
            facts.recomputed["op"].to_numpy(),
            details,
            model,
            step_facts.flops,
            _plan_rank(plan, rank["rank"]),
            is_step=trace.steps.unit == "step",
        ),
        **_measure_steadiness(steady, sums, lengths),
    )
    deciding = chosen if steady.is_empty() else steady
    spans = Spans(windows["start_ns"].to_numpy(), windows["end_ns"].to_numpy())
    kernel_ns, inside_ns = _sum_kernels(operations, spans)
    whole_ns = int((spans.end_ns - spans.start_ns).sum())
    return RankSummary(
        rank=account,
        ceilings=ceiling,
        walls=sum_walls_by_step(sums, deciding["step"]),
        unresolved=sum_unresolved_by_step(sums, deciding["step"]),
        inferred=sum_inferred_by_step(slices, deciding["step"]),
        blocked=sum_blocked_by_step(slices, capture.calls, evidence.waits, deciding["step"]),
        beside=sum_beside_calls_by_step(slices, capture, evidence.waits, deciding["step"]),
        unseen=sum_unseen_holds_by_step(slices, capture, evidence.activity, deciding["step"]),
        unrecognized=sum_unrecognized_by_step(sums, deciding["step"]),
        kernel_share=inside_ns / max(whole_ns, 1),
        has_kernels_elsewhere=inside_ns < kernel_ns,
        hides_recompute=rank["rank_id"] not in facts.backward_ranks
        and find_training_kernels(work, capture.names),
        lacks_calls=_lacks_calls(operations, deciding, capture.copies),
        is_slowed_by_profiler=capture.is_slowed_by_profiler,
        has_unknown_clock=capture.has_unknown_clock,
        profiled=sum_profiled_by_step(sums, deciding["step"]) * (profiled_share > 0),
        pressure=judge_memory_pressure(
            account.memory,
            measure_recomputed_share(work, facts.recomputed),
            count_allocator_retries(windows, capture, rank["process"]),
        ),
        most_host_ns=typical.walls.host if profiled_share else None,
        tables=None
        if described is None
        else build_profile_tables(operations, windows, slices, sums.frame(), described()),
    )


def _plan_rank(
    plan: "PlannedRun | PlanMismatch | None", rank: int | None
) -> PlannedWork | PlanMismatch | None:
    """Return what a configuration plans for a rank, or why it does not."""
    if plan is None or isinstance(plan, PlanMismatch):
        return plan
    return plan.plan_rank(rank) or PlanMismatch.STAGE_UNKNOWN


def _measure_profiled_share(chosen: pl.DataFrame, unprofiled_step_ns: int | None) -> float:
    """Return the share of the typical step that is longer than without the profiler.

    It is 0 if the unprofiled step is unknown, or shorter than what runs on the device in the typical step.
    """
    step_ns = float((chosen["end_ns"] - chosen["start_ns"]).mean() or 0)  # type: ignore[arg-type]  # of integers
    if unprofiled_step_ns is None or not step_ns:
        return 0.0
    compute_ns = float(chosen["compute_ns"].mean() or 0)  # type: ignore[arg-type]  # of integers
    return max(1 - unprofiled_step_ns / step_ns, 0.0) if unprofiled_step_ns >= compute_ns else 0.0


def _lacks_calls(operations: pl.DataFrame, windows: pl.DataFrame, copies: pl.DataFrame) -> bool:
    """Return whether a material part of the operations of some windows has no launch call in the export."""
    start_ns = operations["start_ns"].to_numpy()
    inside = is_within(start_ns, windows["start_ns"].to_numpy(), windows["end_ns"].to_numpy())
    call = operations["call"].to_numpy()[inside & _may_have_calls(operations, copies)]
    return bool((call < 0).sum() > MATERIAL_SHARE * call.size)


def measure_launch_correlation(capture: Capture) -> float | None:
    """Return the share of device operations whose issuing call is known; `None` if none has one to have."""
    call = capture.operations["call"].to_numpy()[_may_have_calls(capture.operations, capture.copies)]
    return int((call >= 0).sum()) / call.size if call.size else None


def _may_have_calls(operations: pl.DataFrame, copies: pl.DataFrame) -> Flags:
    """Return whether a call issues each operation; pages of unified memory migrate by themselves."""
    moved = copies["op"].to_numpy()[np.isin(as_integers(copies["direction"]), _MIGRATIONS)]
    return ~are_among(operations["op"].to_numpy().astype(np.int64), moved.astype(np.int64))


def _sum_kernels(operations: pl.DataFrame, windows: Spans) -> tuple[int, int]:
    """Return the added-up time of kernels and graphs in ns: of all, and of their parts within windows."""
    kind = as_integers(operations["kind"])
    runs = np.isin(kind, [encode_member(one) for one in (OperationKind.KERNEL, OperationKind.GRAPH)])
    kernels = Spans(operations["start_ns"].to_numpy()[runs], operations["end_ns"].to_numpy()[runs])
    return int((kernels.end_ns - kernels.start_ns).sum()), int(covered_ns(windows, kernels).sum())


class _Steadiness(TypedDict):
    mean_step_ns: int | None
    median_step_ns: int | None
    modes: tuple[StepMode, ...]
    rare_stalls: tuple[RareStall, ...]


def _measure_steadiness(steady: pl.DataFrame, sums: SliceSums, lengths: KernelLengths | None) -> _Steadiness:
    """Return how the steady windows of a rank vary."""
    duration_ns = (steady["end_ns"] - steady["start_ns"]).to_numpy()
    return _Steadiness(
        mean_step_ns=average_total(int(duration_ns.sum()), duration_ns.size) if duration_ns.size else None,
        median_step_ns=round(float(np.median(duration_ns))) if duration_ns.size else None,
        modes=find_kinds_of_steps(lengths, steady),
        rare_stalls=find_rare_stalls(sums, steady),
    )


def _outside_ns(trace: Trace, operations: pl.DataFrame, windows: pl.DataFrame) -> int:
    """Return the device time before the first window, from the first operation or the selected time on."""
    begin_ns, end_ns = _bound_time_before_steps(trace, operations, windows)
    return end_ns - begin_ns


def _after_ns(trace: Trace, operations: pl.DataFrame, windows: pl.DataFrame) -> int:
    """Return the device time after the last window, to the last operation or the end of the selected time."""
    end_ns = int(operations["end_ns"].to_numpy().max())
    if trace.selection.time_ns is not None:
        end_ns = min(end_ns, trace.selection.time_ns[1])
    return max(end_ns - int(windows["end_ns"].to_numpy().max()), 0)


def _bound_time_before_steps(
    trace: Trace, operations: pl.DataFrame, windows: pl.DataFrame
) -> tuple[int, int]:
    first_ns = int(operations["start_ns"].to_numpy().min())
    begin_ns = first_ns if trace.selection.time_ns is None else max(first_ns, trace.selection.time_ns[0])
    window_ns = int(windows["start_ns"].to_numpy().min())  # a mark may begin before all work
    return min(begin_ns, window_ns), window_ns


def _outside_idle_ns(trace: Trace, operations: pl.DataFrame, windows: pl.DataFrame) -> int:
    """Return the part of that time in which no operation of the rank ran."""
    outside = _bound_time_before_steps(trace, operations, windows)
    start_ns, end_ns = operations["start_ns"].to_numpy(), operations["end_ns"].to_numpy()
    earlier = start_ns < outside[1]
    busy = union(order_spans(start_ns[earlier], end_ns[earlier]))
    return outside[1] - outside[0] - length_ns(common(busy, make_spans(outside)))


def _measure_whole(
    trace: Trace, evidence: Evidence, operations: pl.DataFrame, windows: pl.DataFrame
) -> Walls | None:
    """Return the walls of the whole time of a rank, if much of its work and most time precede its steps."""
    begin_ns, first_ns = _bound_time_before_steps(trace, operations, windows)
    last_ns = int(windows["end_ns"].to_numpy().max())
    if first_ns - begin_ns <= last_ns - first_ns:
        return None
    start_ns = operations["start_ns"].to_numpy()
    length_ns = operations["end_ns"].to_numpy() - start_ns
    if int(length_ns[start_ns < first_ns].sum()) < WORK_OUTSIDE_SHARE * int(length_ns.sum()):
        return None
    columns = {"rank_id": operations["rank_id"][:1], "step": [0], "start_ns": [begin_ns], "end_ns": [last_ns]}
    whole = pl.DataFrame(columns, schema=WINDOWS)
    slices = attribute_rank(evidence, operations, whole)
    return make_walls(sum_walls_by_step(sum_slices(slices), whole["step"])[0].tolist())


def _build_steps(windows: pl.DataFrame, sums: SliceSums) -> tuple[Step, ...]:
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
