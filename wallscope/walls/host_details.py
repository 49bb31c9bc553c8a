"""The host's part in the typical step of a rank: drained queues, launches, how far it ran ahead."""

from dataclasses import dataclass

import numpy as np
import polars as pl

from wallscope.arrays.columns import Flags, Rows, filled, place
from wallscope.model.capture import Capture
from wallscope.model.events import HostKind
from wallscope.model.host import CpuTime, HostAhead, HostDetails, LaunchCost
from wallscope.model.kinds import CallRole, OperationClass
from wallscope.thresholds import FEWEST_CPU_SAMPLES_COUNT, LAUNCH_BOUND_SHARE, READY_NS
from wallscope.timeline.computing import computes
from wallscope.timeline.sequences import turns
from wallscope.timeline.spans import Times, distinct, inside, length_ns, ordered, union
from wallscope.walls.attribution import Evidence
from wallscope.walls.blocking_calls import blocking_calls
from wallscope.walls.serialisation import serialisation
from wallscope.walls.totals import Sums
from wallscope.walls.typical import TypicalWork

_IS_LAUNCHING = np.isin(list(CallRole), (CallRole.LAUNCH, CallRole.GRAPH))
_NOTHING = np.empty(0, np.int64)


def host_details(
    operations: pl.DataFrame, work: TypicalWork, sums: Sums, evidence: Evidence, capture: Capture
) -> HostDetails | None:
    """What the host of one rank did; `None` where the export has no call that issued its operations.

    Args:
        operations: `CLASSIFIED`, all of the rank.
        work: the same beside the steps of its typical step.
        sums: of the slices of those steps.
        evidence: what the slices were told from.
        capture: the whole export.
    """
    if not (operations["call"].to_numpy() >= 0).any():
        return None
    launched = _launched(work, capture.calls)
    ahead = _ahead(work, launched)
    drained = evidence.drained[operations["rank_id"][0]]
    return HostDetails(
        blocking_calls=blocking_calls(drained, sums, work, evidence),
        launches=_launch_cost(work, launched, ahead),
        ahead=ahead,
        cpu=_cpu_time(work, launched, capture),
        serialisation=serialisation(operations, work, evidence.waits, capture),
    )


@dataclass(frozen=True, slots=True)
class _Launched:
    """Calls that launched what begins in the steps: thread, end and length of each, and what it launched.

    `first_ns` is the start of the first operation, `work_ns` are added-up durations, `computes` whether any
    of it computes.
    """

    thread: Rows
    end_ns: Times
    call_ns: Times
    first_ns: Times
    work_ns: Times
    computes: Flags


def _launched(work: TypicalWork, calls: pl.DataFrame) -> _Launched:
    columns, call = work.columns, work.operations["call"].to_numpy()
    issued = np.flatnonzero(columns.begins & (call >= 0))
    issued = issued[np.argsort(call[issued], kind="stable")]
    first = np.flatnonzero(turns(call[issued]))
    of_calls = calls["thread", "role", "start_ns", "end_ns"][call[issued[first]]]
    is_launch = _IS_LAUNCHING[filled(of_calls["role"])]
    start_ns, end_ns = (of_calls[side].to_numpy() for side in ("start_ns", "end_ns"))
    ran_ns = columns.end_ns[issued] - columns.start_ns[issued]
    return _Launched(
        thread=of_calls["thread"].to_numpy()[is_launch],
        end_ns=end_ns[is_launch],
        call_ns=(end_ns - start_ns)[is_launch],
        first_ns=np.minimum.reduceat(columns.start_ns[issued], first)[is_launch],
        work_ns=np.add.reduceat(ran_ns, first)[is_launch],
        computes=np.logical_or.reduceat(computes(columns.of_class[issued]), first)[is_launch],
    )


def _launch_cost(work: TypicalWork, launched: _Launched, ahead: HostAhead | None) -> LaunchCost | None:
    call_ns, columns = launched.call_ns, work.columns
    if call_ns.size == 0:
        return None
    computing = work.rows_of(OperationClass.COMPUTE)
    kernels = computing[columns.begins[computing]]
    kernel_ns = columns.end_ns[kernels] - columns.start_ns[kernels]
    median_ns, p90_ns = np.percentile(call_ns, (50, 90))
    outpaced_share = float((call_ns > launched.work_ns).mean())
    return LaunchCost(
        calls=work.mean(call_ns.size),
        call_ns=work.mean(int(call_ns.sum())),
        median_ns=int(median_ns),
        p90_ns=int(p90_ns),
        calls_per_s=call_ns.size / length_ns(work.steps) * 1e9,
        kernel_median_ns=int(np.percentile(kernel_ns, 50)) if kernel_ns.size else None,
        outpaced_share=outpaced_share,
        is_launch_bound=outpaced_share > LAUNCH_BOUND_SHARE
        and ahead is not None
        and ahead.median_ns < READY_NS,
    )


def _ahead(work: TypicalWork, launched: _Launched) -> HostAhead | None:
    ahead_ns = (launched.first_ns - launched.end_ns)[launched.computes].clip(0)
    if ahead_ns.size == 0:
        return None
    p10_ns, median_ns = np.percentile(ahead_ns, (10, 50))
    return HostAhead(
        median_ns=int(median_ns),
        p10_ns=int(p10_ns),
        launches=work.mean(ahead_ns.size),
    )


def _cpu_time(work: TypicalWork, launched: _Launched, capture: Capture) -> CpuTime | None:
    """Of the thread with most launches; one that never left its CPU can't be told from an untraced one."""
    if launched.thread.size == 0:
        return None
    busiest = int(np.bincount(launched.thread).argmax())
    total_ns = length_ns(work.steps)
    events, samples = capture.host_events, capture.cpu_samples
    away = np.flatnonzero(
        (filled(events["thread"]) == busiest) & (filled(events["kind"]) == place(HostKind.SCHED))
    )
    if away.size:
        start_ns, end_ns = events["start_ns"].to_numpy()[away], events["end_ns"].to_numpy()[away]
        away_ns = work.all_covered_ns(union(ordered(start_ns, end_ns)))
        count = int(inside(work.steps, start_ns).sum())
        return CpuTime(1 - away_ns / total_ns, "switches", count)
    is_sample = (pl.col("thread") == busiest) & (pl.col("cpu_cycles") > 0)
    at_ns = samples.filter(is_sample)["at_ns"].drop_nulls().to_numpy() if len(samples) else _NOTHING
    at_ns = distinct(at_ns)
    count = int(inside(work.steps, at_ns).sum())
    if count < FEWEST_CPU_SAMPLES_COUNT:
        return None
    usual_ns = float(np.median(np.diff(at_ns)))
    return CpuTime(min(1.0, count * usual_ns / total_ns), "samples", count)
