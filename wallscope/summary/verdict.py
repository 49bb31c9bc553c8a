"""The diagnosis of a rank as data, and how certain it is; `views.verdict` writes its sentences.

Certainty falls with inferred and unattributed shares, and with what the export lacks.
"""

from collections.abc import Iterator
from dataclasses import replace

import numpy as np

from wallscope.model.analysis import Anchor
from wallscope.model.cause_catalogue import describe_cause
from wallscope.model.diagnosis import Confidence, ConfidenceLevel, Diagnosis, Throughput, UnknownWall
from wallscope.model.enums import Wall
from wallscope.summary.diagnosis import (
    Decision,
    decide_wall,
    explain_open_wall,
    find_dominant_wall,
    find_next_wall,
    find_overall_wall,
    measure_covered_share,
    measure_wall_shares,
)
from wallscope.summary.rank import RankSummary, lacks_kernels
from wallscope.thresholds.verdict import (
    HIGH_CONFIDENCE_COVERED_SHARE,
    HIGH_CONFIDENCE_SHARE,
    MEDIUM_CONFIDENCE_SHARE,
    NO_NAMES_SHARE,
    SHARE_ROUNDING,
)
from wallscope.trace.intervals import Times
from wallscope.units import percent

_COMPUTE_COLUMN, _COMMUNICATION_COLUMN, _HOST_COLUMN, _UNATTRIBUTED_COLUMN = (
    list(Wall).index(wall) for wall in (Wall.COMPUTE, Wall.COMMUNICATION, Wall.HOST, Wall.UNATTRIBUTED)
)

_WITHOUT_CALLS = {
    "compute": "so short gaps between kernels count as compute",
    "host": "so the host may have waited for calls that the export lacks",
}
_WAITS_UNKNOWN = "so it is partly unknown what the GPU waited for"
_BOUND = {"mixed": "not limited by a single wall", "unknown": "limited by an unknown wall"}
"""What steps are, where no wall is the largest loss."""


def diagnose(
    account: RankSummary,
    anchor: Anchor,
    rank_index: int = 0,
    throughput: Throughput | None = None,
    *,
    is_incomplete: bool = False,
) -> Diagnosis:
    """Return the diagnosis of one rank, without the bound that its fixes decide, and without sentences.

    `is_incomplete` is whether the capture ends early.
    """
    rank = account.rank
    deciding = _without_profiler(account)
    decision = decide_wall(deciding.walls, deciding.unresolved)
    steady = sum(step.steady for step in rank.steps)
    if lacks_kernels(account):
        return Diagnosis(
            dominant_wall="unknown",
            verdict="",
            memory_pressure=account.pressure,
            rank_index=rank_index,
            throughput=throughput,
            confidence=Confidence("low", 0.0, 0.0, ("there is no GPU work to analyze",)),
            unknown=UnknownWall("no-kernels", account.kernel_share, account.has_kernels_elsewhere),
        )
    return Diagnosis(
        dominant_wall=find_overall_wall(rank) or decision.dominant,
        verdict="",
        runner_up=str(decision.runner_up),
        margin=decision.margin,
        led_steps=decision.led_steps,
        steady_steps=steady,
        walls=measure_wall_shares(account.walls, rank.typical.walls, steady=steady > 0),
        next_wall=find_next_wall(rank, decision, account.ceilings),
        memory_pressure=account.pressure,
        rank_index=rank_index,
        throughput=throughput,
        confidence=judge_confidence(
            decision,
            deciding,
            anchor.typical,
            is_incomplete=is_incomplete,
            covered_share=measure_covered_share(rank, anchor),
        ),
        steps_wall=decision.dominant,
        decided_steps=decision.step_count,
        is_mean=decision.is_mean,
        unknown=explain_open_wall(rank, decision),
    )


def judge_confidence(
    decision: Decision,
    account: RankSummary,
    typical: str = "typical step",
    *,
    is_incomplete: bool = False,
    covered_share: float | None = None,
) -> Confidence:
    """Return how certain the decision on a rank is.

    The confidence falls with the share of the step that may belong to another wall. This is unattributed
    time, and time found through inferred waits, part of which may be wrong. It is never high where few
    steps have much such time, or where something that the export lacks could change the wall.

    Args:
        decision: the dominant wall.
        account: the rank.
        typical: what its typical step is called.
        is_incomplete: whether the capture ends early, so that idle time may be missing work.
        covered_share: share of the GPU's time that steps without marks cover; `None` with marks.
    """
    inferred_share = _median_share(account.inferred, account.walls)
    unresolved_share = _median_share(account.unresolved[:, :3].sum(axis=1), account.walls)
    at_risk = inferred_share + unresolved_share
    doubts = [*_list_doubts(decision, account), *_describe_few_steps(account, at_risk)]
    if covered_share is not None and covered_share < HIGH_CONFIDENCE_COVERED_SHARE:
        doubts.append(f"the analysis covers only {percent(covered_share)} of the GPU's time")
    level: ConfidenceLevel = "high"
    is_unnamed = _has_no_names(account) and _may_communicate(decision, account)
    is_open = decision.dominant == "unknown" or is_incomplete or is_unnamed
    if is_open or at_risk > MEDIUM_CONFIDENCE_SHARE + SHARE_ROUNDING:
        level = "low"
    elif at_risk > HIGH_CONFIDENCE_SHARE + SHARE_ROUNDING or doubts:
        level = "medium"
    reasons = [
        f"{percent(inferred_share)} of the time depends on waits inferred from timing"
        if inferred_share > 0
        else "no wait was inferred from timing",
        _describe_open_time(account, typical),
    ]
    if is_incomplete:
        reasons.append("the trace is incomplete, so idle time may be missing work")
    return Confidence(level, inferred_share, unresolved_share, (*reasons, *doubts))


def _describe_open_time(account: RankSummary, typical: str) -> str:
    """Return the share of the typical step that has no known cause, or its only cause without a wall."""
    rank = account.rank
    opened = [one for one in rank.causes if one.unresolved_ns or one.wall is Wall.UNATTRIBUTED]
    total_ns = sum(one.typical_ns for one in opened)
    if not total_ns:
        is_any = bool(account.unresolved[:, :3].any())
        return f"all of the {typical if is_any else 'time'} is accounted for"
    share = f"{percent(total_ns / rank.typical.step_ns)} of the {typical}"
    if len(opened) == 1:
        return f"{share} goes to {describe_cause(opened[0].cause)}"
    return f"{share} is unexplained"


def _median_share(time_ns: Times, walls: Times) -> float:
    """Return the median over the steps of a time divided by the step."""
    return float(np.median(time_ns / np.maximum(walls.sum(axis=1), 1))) if time_ns.size else 0.0


def _describe_few_steps(account: RankSummary, median_share: float) -> Iterator[str]:
    """Yield the share of all time that is inferred or unattributed, if it is large on few steps alone."""
    open_ns = int(account.inferred.sum() + account.unresolved[:, :3].sum())
    share = open_ns / max(int(account.walls.sum()), 1)
    if median_share <= HIGH_CONFIDENCE_SHARE + SHARE_ROUNDING < share:
        yield f"counting the slowest steps, {percent(share)} of all time is inferred or unexplained"


def _list_doubts(decision: Decision, account: RankSummary) -> Iterator[str]:
    """Yield what the export lacks, or what recording cost, and what therefore could change the wall.

    Without launch calls, short gaps between kernels count as compute, whatever caused them, and the host
    may have waited for calls that are missing. Recomputed forward work that cannot be recognized counts as
    compute.
    """
    if not any(step.steady for step in account.rank.steps):
        yield "no step is steady, so shares cover all captured time"
    whole = account.walls.sum(axis=0, keepdims=True), account.unresolved.sum(axis=0, keepdims=True)
    if (mean_wall := find_dominant_wall(*whole)) != decision.dominant:
        yield f"the mean step is {_BOUND.get(mean_wall, f'{mean_wall}-bound')}, unlike the median step"
    if find_overall_wall(account.rank) not in {None, decision.dominant}:
        bound = _BOUND.get(decision.dominant, f"{decision.dominant}-bound")
        yield f"most of the capture precedes the steps, which are {bound} themselves"
    if account.hides_recompute and decision.dominant == "compute":
        yield "no range marks the backward pass, so any recomputed activations count as compute"
    if _may_communicate(decision, account):
        share = _median_share(account.unrecognized, account.walls)
        yield (
            f"the verdict changes if kernels with unrecognized names ({percent(share)} of the time)"
            " communicate"
        )
    if account.lacks_calls:
        yield f"launch calls are missing, {_WITHOUT_CALLS.get(decision.dominant, _WAITS_UNKNOWN)}"
    if _rests_on(decision, account, account.blocked):
        share = _median_share(account.blocked, account.walls)
        yield f"{percent(share)} of the time is spent in calls that were blocked for an unrecorded reason"
    if _rests_on(decision, account, account.beside):
        share = _median_share(account.beside, account.walls)
        yield (
            f"{percent(share)} of the time is host time outside CUDA calls while other threads are in calls,"
            " and only system calls (`--trace=osrt`) would show whether it waits for them"
        )
    if _rests_on(decision, account, account.unseen):
        share = _median_share(account.unseen, account.walls)
        waited = f"{percent(share)} of the time is spent waiting for a lock"
        yield f"{waited}, and the capture shows no thread with CUDA calls releasing it"
    yield from _list_recording_doubts(decision, account)


def _has_no_names(account: RankSummary) -> bool:
    """Return whether almost no compute kernel has a known name."""
    computed_ns = int(account.walls[:, _COMPUTE_COLUMN].sum())
    return int(account.unrecognized.sum()) >= NO_NAMES_SHARE * max(computed_ns, 1)


def _may_communicate(decision: Decision, account: RankSummary) -> bool:
    """Return whether the wall is another one if kernels with unrecognized names communicate."""
    if not account.unrecognized.any():
        return False
    walls = account.walls.copy()
    walls[:, _COMPUTE_COLUMN] -= account.unrecognized
    walls[:, _COMMUNICATION_COLUMN] += account.unrecognized
    return find_dominant_wall(walls, account.unresolved) != decision.dominant


def _list_recording_doubts(decision: Decision, account: RankSummary) -> Iterator[str]:
    """Yield what the recording of times changed."""
    if account.has_unknown_clock:
        yield "the clocks of GPU and CPU contradict each other, so host causes and waits are unknown"
    if account.profiled.any():
        yield "the step takes longer with the profiler than without it"
    if decision.dominant == "host" and account.is_slowed_by_profiler:
        yield "the profiler slowed down the host"


def _without_profiler(account: RankSummary) -> RankSummary:
    """Return a rank whose steps are as long as without the profiler, where that length is known."""
    walls, unresolved = account.walls.copy(), account.unresolved.copy()
    walls[:, _UNATTRIBUTED_COLUMN] -= account.profiled
    unresolved[:, 0] -= account.profiled
    return replace(account, walls=walls, unresolved=unresolved)


def _rests_on(decision: Decision, account: RankSummary, host_ns: Times) -> bool:
    """Return whether the wall is host time, and another one without some of it, in ns for each step."""
    walls, unresolved = account.walls.copy(), account.unresolved.copy()
    walls[:, _HOST_COLUMN] -= host_ns
    walls[:, _UNATTRIBUTED_COLUMN] += host_ns
    unresolved[:, 0] += host_ns
    return decision.dominant == "host" and find_dominant_wall(walls, unresolved) != "host"
