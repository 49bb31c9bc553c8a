"""The host's part in the typical step of a rank: drained queues, launches, how far it ran ahead."""

import numpy as np
import polars as pl

from wallscope.model.capture import Capture
from wallscope.model.events import HostKind
from wallscope.model.host import CpuTime, HostAhead, HostDetails, LaunchCost
from wallscope.model.kinds import CallRole, OperationClass, OperationKind
from wallscope.timeline.spans import Spans, inside, ordered, union
from wallscope.walls.attribution import Evidence
from wallscope.walls.blocking_calls import blocking_calls
from wallscope.walls.serialisation import READY_NS, serialisation
from wallscope.walls.typical import TypicalWork

_FEWEST_SAMPLES = 20
_LAUNCHING = [CallRole.LAUNCH, CallRole.GRAPH]


def host_details(
    operations: pl.DataFrame, work: TypicalWork, slices: pl.DataFrame, evidence: Evidence, capture: Capture
) -> HostDetails | None:
    """What the host of one rank did; `None` where the export has no call that issued its operations.

    Args:
        operations: `CLASSIFIED`, all of the rank.
        work: the same beside the steps of its typical step.
        slices: `SLICES` of those steps.
        evidence: what the slices were told from.
        capture: the whole export.
    """
    if not (operations["call"] >= 0).any():
        return None
    launched = _launched(work, capture.calls)
    ahead = _ahead(work, launched)
    drained = evidence.drained[operations["rank_id"][0]]
    return HostDetails(
        blocking_calls=blocking_calls(drained, slices, work, evidence),
        launches=_launch_cost(work, launched, ahead),
        ahead=ahead,
        cpu=_cpu_time(work, launched, capture),
        serialisation=serialisation(operations, work, evidence.waits, capture),
    )


def _launched(work: TypicalWork, calls: pl.DataFrame) -> pl.DataFrame:
    """The calls that launched what begins in the steps, with what they launched.

    Columns `call`, `thread`, `call_end_ns`, `call_ns`, the start of the first operation (`first_ns`), the
    added-up durations (`work_ns`), and whether any of it computes.
    """
    computes = pl.col("class").is_in([OperationClass.COMPUTE, OperationClass.OPAQUE_GRAPH])
    issued = (
        work.operations.filter("begins", pl.col("call") >= 0)
        .group_by("call")
        .agg(
            first_ns=pl.col("start_ns").min(),
            work_ns=(pl.col("end_ns") - pl.col("start_ns")).sum(),
            computes=computes.any(),
        )
        .sort("call")
    )
    made = calls.select("thread", "role", "start_ns", "end_ns")[issued["call"]]
    return (
        pl.concat([issued, made], how="horizontal")
        .filter(pl.col("role").is_in(_LAUNCHING))
        .select(
            "call",
            "thread",
            "first_ns",
            "work_ns",
            "computes",
            call_end_ns="end_ns",
            call_ns=pl.col("end_ns") - pl.col("start_ns"),
        )
    )


def _launch_cost(work: TypicalWork, launched: pl.DataFrame, ahead: HostAhead | None) -> LaunchCost | None:
    if launched.is_empty():
        return None
    call_ns = launched["call_ns"].to_numpy()
    is_kernel = (pl.col("kind") == OperationKind.KERNEL) & (pl.col("class") == OperationClass.COMPUTE)
    kernels = work.operations.filter("begins", is_kernel)
    kernel_ns = (kernels["end_ns"] - kernels["start_ns"]).to_numpy()
    outpaced_share = float((call_ns > launched["work_ns"].to_numpy()).mean())
    return LaunchCost(
        calls=work.mean(len(launched)),
        call_ns=work.mean(int(call_ns.sum())),
        median_ns=int(np.percentile(call_ns, 50)),
        p90_ns=int(np.percentile(call_ns, 90)),
        calls_per_s=len(launched) / _length_ns(work.steps) * 1e9,
        kernel_median_ns=int(np.percentile(kernel_ns, 50)) if kernel_ns.size else None,
        outpaced_share=outpaced_share,
        is_launch_bound=outpaced_share > 0.5 and ahead is not None and ahead.median_ns < READY_NS,
    )


def _ahead(work: TypicalWork, launched: pl.DataFrame) -> HostAhead | None:
    computing = launched.filter("computes")
    if computing.is_empty():
        return None
    ahead_ns = (computing["first_ns"] - computing["call_end_ns"]).to_numpy().clip(0)
    return HostAhead(
        median_ns=int(np.percentile(ahead_ns, 50)),
        p10_ns=int(np.percentile(ahead_ns, 10)),
        launches=work.mean(len(computing)),
    )


def _cpu_time(work: TypicalWork, launched: pl.DataFrame, capture: Capture) -> CpuTime | None:
    """Of the thread with most launches; one that never left its CPU can't be told from an untraced one."""
    if launched.is_empty():
        return None
    busiest = launched.group_by("thread").len().sort("len", "thread", descending=[True, False])["thread"][0]
    total_ns = _length_ns(work.steps)
    away = capture.host_events.filter(
        (pl.col("thread") == busiest) & (pl.col("kind") == HostKind.SCHED)
    ).select("start_ns", "end_ns")
    if len(away):
        start_ns, end_ns = away["start_ns"].to_numpy(), away["end_ns"].to_numpy()
        away_ns = work.all_covered_ns(union(ordered(start_ns, end_ns)))
        count = int(inside(work.steps, start_ns).sum())
        return CpuTime(1 - away_ns / total_ns, "switches", count)
    is_sample = (pl.col("thread") == busiest) & (pl.col("cpu_cycles") > 0)
    at_ns = capture.cpu_samples.filter(is_sample)["at_ns"].drop_nulls().unique().sort().to_numpy()
    count = int(inside(work.steps, at_ns).sum())
    if count < _FEWEST_SAMPLES:
        return None
    usual_ns = float(np.median(np.diff(at_ns)))
    return CpuTime(min(1.0, count * usual_ns / total_ns), "samples", count)


def _length_ns(steps: Spans) -> int:
    return int((steps.end_ns - steps.start_ns).sum())
