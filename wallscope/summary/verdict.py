"""The diagnosis of a rank: its verdict as one paragraph, and how certain that is.

Certainty falls with inferred and unattributed shares, and with what the export lacks.
"""

from collections.abc import Iterator
from dataclasses import replace

import numpy as np

from wallscope import units
from wallscope.attribution.attribute import HELD_WHILE_IDLE
from wallscope.model.advice import Fix
from wallscope.model.analysis import Analysis, Anchor, Rank
from wallscope.model.cause_catalogue import (
    COMPUTE_UNRECOGNIZED,
    MEMORY_ALLOCATOR,
    MEMORY_DRIVER_LOCK,
    MEMORY_FILL,
    MEMORY_RECOMPUTE,
    PEER_WAIT,
    UNRECOGNIZED,
    describe_cause,
    is_part,
    name_cause,
)
from wallscope.model.diagnosis import Confidence, ConfidenceLevel, Diagnosis, Opportunity
from wallscope.model.enums import Wall
from wallscope.summary.diagnosis import (
    LOSSES,
    Decision,
    decide_wall,
    find_dominant_wall,
    find_next_wall,
    find_overall_wall,
    find_wall_after,
    measure_wall_shares,
)
from wallscope.summary.rank import RankSummary, lacks_kernels
from wallscope.summary.unusual_losses import describe_rare_stalls, describe_uneven_steps
from wallscope.thresholds.verdict import (
    HIGH_CONFIDENCE_SHARE,
    MATERIAL_SHARE,
    MEDIUM_CONFIDENCE_SHARE,
    MOSTLY_HIDDEN_SHARE,
    MOSTLY_WAITING_PARTS_COUNT,
    MUCH_COMMUNICATION_SHARE,
    NAMED_LOSS_SHARE,
    SAME_STEP_SHARE,
    SHARE_ROUNDING,
    SHARED_DEVICE_SHARE,
    TOLD_CAUSE_SHARE,
    TOLD_CAUSES_COUNT,
    TOLD_UNRECOGNIZED_SHARE,
)
from wallscope.trace.intervals import Times
from wallscope.trace.kernel_classes import shorten_kernel
from wallscope.units import duration, percent

_HOST_COLUMN, _UNATTRIBUTED_COLUMN = list(Wall).index(Wall.HOST), list(Wall).index(Wall.UNATTRIBUTED)

_WITHOUT_CALLS = {
    "compute": "short gaps between kernels count as compute",
    "host": "the host may have waited for calls that are not in the export",
}
_WAITS_UNKNOWN = "what the GPU waited for is partly unknown"
_MOST_NAMED_COUNT = 3
_HINGES = {"mixed": "no single wall"} | {str(wall): f"{wall} is the wall" for wall in Wall}
_KINDS_OF_MEMORY = {
    MEMORY_FILL: "memsets",
    MEMORY_ALLOCATOR: "memory allocation",
    MEMORY_DRIVER_LOCK: "memory allocation",
    MEMORY_RECOMPUTE: "recomputed forward work",
}
"""What a cause of memory time is, where it is not a copy."""
_UNRECOGNIZED_CAUSES = (UNRECOGNIZED, COMPUTE_UNRECOGNIZED)


def diagnose(
    account: RankSummary,
    anchor: Anchor,
    won: tuple[Opportunity, ...],
    rank_index: int = 0,
    *,
    is_incomplete: bool = False,
) -> Diagnosis:
    """Return the diagnosis of one rank; `won` are its opportunities, the largest first.

    `is_incomplete` is whether the capture ends early.
    """
    rank = account.rank
    decision = decide_wall(account.walls, account.unresolved)
    steady = sum(step.steady for step in rank.steps)
    if lacks_kernels(account):
        return _refuse_verdict(account, rank_index)
    following = find_next_wall(rank, decision, account.ceilings)
    confidence = judge_confidence(decision, account, anchor.typical, is_incomplete=is_incomplete)
    return Diagnosis(
        dominant_wall=find_overall_wall(rank) or decision.dominant,
        verdict=write_verdict(rank, anchor, decision, won, confidence),
        runner_up=str(decision.runner_up),
        margin=decision.margin,
        led_steps=decision.led_steps,
        steady_steps=steady,
        walls=measure_wall_shares(account.walls, rank.typical.walls, steady=steady > 0),
        next_wall=following,
        memory_pressure=account.pressure,
        rank_index=rank_index,
        confidence=confidence,
    )


def _refuse_verdict(account: RankSummary, rank_index: int) -> Diagnosis:
    """Return the diagnosis if there is no work to analyze."""
    share, elsewhere = percent(account.kernel_share), account.has_kernels_elsewhere
    there = f"Kernels ran for {share} of {'the analyzed time' if elsewhere else 'this capture'}"
    if not account.kernel_share:
        there = "No kernel ran in the analyzed time" if elsewhere else "This export has no kernel"
    cure = (
        "Analyze a time with kernels"
        if elsewhere
        else "Capture again, with --trace=cuda,nvtx, while the GPU trains"
    )
    return Diagnosis(
        dominant_wall="unknown",
        verdict=f"{there}: there is no verdict. {cure}.",
        memory_pressure=account.pressure,
        rank_index=rank_index,
        confidence=Confidence("low", 0.0, 0.0, ("there is no GPU work to analyze",)),
    )


def write_verdict(
    rank: Rank,
    anchor: Anchor,
    decision: Decision,
    opportunities: tuple[Opportunity, ...],
    confidence: Confidence | None,
) -> str:
    """Return the paragraph on one rank: the wall, its causes, hidden communication, and the worst step."""
    unit = anchor.window
    dominant = _add_unrecognized(rank, decision, unit, _dominant(rank, decision, anchor))
    sentences = [*_overall(rank, decision, unit), *_shared_device(rank, unit), dominant]
    sentences += describe_rare_stalls(rank, decision, anchor)
    sentences += [*_ask_for_names(rank, decision), *_inferred(confidence, unit)]
    sentences += () if decision.is_mean else _name_largest_causes(rank, decision)
    sentences += describe_memory_time(rank) if decision.dominant == "memory" else ()
    sentences += tell_hidden_communication(rank, unit)
    sentences += _write_upper_bound(rank, opportunities, decision.dominant, (), unit)
    sentences += describe_uneven_steps(rank, unit)
    sentences += _before(rank, unit)
    return " ".join(sentences)


def _overall(rank: Rank, decision: Decision, unit: str) -> Iterator[str]:
    """Yield the wall of the whole capture, if it is not that of the steps."""
    wall = find_overall_wall(rank)
    if wall is not None and wall != decision.dominant and rank.whole_walls is not None:
        whole_ns = sum(rank.whole_walls.parts())
        share = percent(getattr(rank.whole_walls, wall) / whole_ns)
        yield (
            f"{name_wall(Wall(wall))} is the largest loss of the whole capture: {share} of its"
            f" {duration(whole_ns)}. Most of this time passes before the first {unit}. In the {unit}s:"
        )


def _dominant(rank: Rank, decision: Decision, anchor: Anchor) -> str:
    steady = sum(step.steady for step in rank.steps)
    unit = anchor.window
    counted = units.plural(decision.step_count, f"steady {unit}")
    basis = f"{'mean' if decision.is_mean else 'median'} of {counted}" if decision.step_count > 1 else counted
    if not steady:
        basis = "no step was found" if anchor.kind == "whole-trace" else f"no {unit} is steady"
    share = {wall: percent(decision.shares[wall]) for wall in Wall}
    if decision.hinges is not None:
        computing, communicating = decision.hinges
        return (
            f"The wall is unknown: {percent(_unrecognized_share(rank))} of the {unit} is in kernels with"
            f" unrecognized names{_list_unrecognized(rank)}. If they communicate,"
            f" {_HINGES[communicating]}; if they compute, {_HINGES[computing]} ({basis})."
        )
    if decision.dominant == "unknown":
        open_shares = ", ".join(
            f"{percent(entry.share)} is {describe_cause(entry.cause)}"
            for entry in rank.causes
            if entry.unresolved_ns
        )
        return f"The wall is unknown: too much of the {unit} has no known cause: {open_shares} ({basis})."
    if decision.dominant == "mixed":
        losses = sorted(LOSSES, key=lambda wall: -decision.shares[wall])
        listed = ", ".join(f"{wall} {share[wall]}" for wall in losses if decision.shares[wall])
        return f"No single wall: {listed} of the {unit} ({basis})."
    if decision.dominant == "compute":
        return f"Compute takes {share[Wall.COMPUTE]} of the {unit} ({basis});" + (
            f" the largest loss is {decision.runner_up} with {share[decision.runner_up]}."
            if decision.shares[decision.runner_up] >= NAMED_LOSS_SHARE
            else f" no loss reaches {100 * NAMED_LOSS_SHARE:.0f} %."
            if decision.shares[decision.runner_up]
            else " there is no loss."
        )
    dominant = Wall(decision.dominant)
    is_waiting = dominant is Wall.COMMUNICATION and _is_waiting(rank)
    called = "Waiting for peers" if is_waiting else name_wall(dominant)
    reason = _name_deciding_stall(rank, dominant, unit) if decision.is_mean else ""
    sentences = [f"{called} is the largest loss: {share[dominant]} of the {unit} ({basis}{reason})."]
    if decision.shares[decision.runner_up] >= NAMED_LOSS_SHARE:
        sentences.append(f"{name_wall(decision.runner_up)} follows with {share[decision.runner_up]}.")
    else:
        sentences.append(f"No other loss reaches {100 * NAMED_LOSS_SHARE:.0f} %.")
    if steady > 1:
        only = "only " if 2 * decision.led_steps < decision.step_count else ""
        led = f"{only}{decision.led_steps} of these {decision.step_count} {unit}s"
        sentences.append(f"{called} is the largest loss in {led}.")
    return " ".join(sentences)


def _name_deciding_stall(rank: Rank, dominant: Wall, unit: str) -> str:
    """Say on what few steps lose so much that it decides the wall of the mean step."""
    stall = next((one for one in rank.rare_stalls if one.wall is dominant), None)
    if stall is None:
        return f", because a few {unit}s stall for long"
    return f", because {len(stall.steps)} of them stall on {name_cause(stall.cause)}"


def _shared_device(rank: Rank, unit: str) -> Iterator[str]:
    """Yield a sentence on launched work that waits on an idle device without a cause in this process."""
    idle = next((entry for entry in rank.causes if entry.cause == HELD_WHILE_IDLE), None)
    if idle is not None and idle.share >= SHARED_DEVICE_SHARE:
        yield (
            f"For {duration(idle.typical_ns)} ({percent(idle.share)} of the {unit}), launched kernels waited"
            " on an idle GPU, which is probably shared with another process."
        )


def _inferred(confidence: Confidence | None, unit: str) -> Iterator[str]:
    """Yield how much depends on waits that are inferred from timing."""
    if confidence is not None and confidence.inferred_share >= MATERIAL_SHARE:
        yield (
            "The capture does not record what some waits waited for: this is inferred from timing."
            f" {percent(confidence.inferred_share)} of the {unit} depends on it, so the confidence is"
            f" {confidence.level}."
        )


def _unrecognized_share(rank: Rank) -> float:
    """Return the share of the typical step in which only unrecognized kernels run."""
    return sum(entry.share for entry in rank.causes if entry.cause in _UNRECOGNIZED_CAUSES)


def _list_unrecognized(rank: Rank) -> str:
    """Return the largest unrecognized kernels in parentheses, with the share of their work."""
    named = [f"{shorten_kernel(one.name)} {percent(one.share)}" for one in rank.unmatched_kernels]
    more = f" and {len(named) - _MOST_NAMED_COUNT} more" if len(named) > _MOST_NAMED_COUNT else ""
    return f" ({', '.join(named[:_MOST_NAMED_COUNT])}{more})" if named else ""


def _add_unrecognized(rank: Rank, decision: Decision, unit: str, sentence: str) -> str:
    """Add the time in unrecognized kernels to the sentence, if it matters and is not mentioned yet."""
    share = _unrecognized_share(rank)
    if decision.hinges is not None or share < TOLD_UNRECOGNIZED_SHARE:
        return sentence
    return f"{sentence} Kernels with unrecognized names take {percent(share)} of the {unit}."


def _ask_for_names(rank: Rank, decision: Decision) -> Iterator[str]:
    """Yield what to do about unrecognized kernels that leave the wall open."""
    owned = any(entry.cause == UNRECOGNIZED for entry in rank.causes)
    if decision.hinges is not None or (
        decision.dominant == "unknown" and owned and _unrecognized_share(rank) >= TOLD_UNRECOGNIZED_SHARE
    ):
        yield "Classify them with --kernels FILE."


def _is_waiting(rank: Rank) -> bool:
    """Return whether waiting for other ranks takes at least half of the communication wall."""
    waiting_ns = sum(
        entry.typical_ns for entry in rank.causes if is_part(entry.cause) and entry.cause.endswith(PEER_WAIT)
    )
    return MOSTLY_WAITING_PARTS_COUNT * waiting_ns >= max(rank.typical.walls.communication, 1)


def _name_largest_causes(rank: Rank, decision: Decision) -> Iterator[str]:
    """Yield the causes that take most of the wall."""
    walls = {"unknown": (), "mixed": LOSSES}.get(decision.dominant, (decision.dominant,))
    own = [entry for entry in rank.causes if entry.wall in walls]
    total_ns = sum(entry.typical_ns for entry in own)
    large = [entry for entry in own if entry.typical_ns >= TOLD_CAUSE_SHARE * total_ns][:TOLD_CAUSES_COUNT]
    if large and total_ns:
        whole = "lost time" if len(walls) > 1 else f"{own[0].wall} time"
        listed = "; ".join(f"{duration(one.typical_ns)} is {describe_cause(one.cause)}" for one in large)
        if duration(large[0].typical_ns) == duration(total_ns):
            yield f"All {whole} ({duration(total_ns)}) is {describe_cause(large[0].cause)}."
        else:
            yield f"Of the {duration(total_ns)} of {whole}, {listed}."
    place = None if rank.host_details is None else rank.host_details.range
    if decision.dominant == "host" and place is not None:
        share = percent(place.host_ns / max(rank.typical.walls.host, 1))
        yield f"{duration(place.host_ns)} of the host time ({share}) is in the range {place.name}."


def describe_memory_time(rank: Rank) -> Iterator[str]:
    """Yield what time counts as memory: it is not the time of kernels that DRAM bandwidth limits."""
    if large := list_memory_kinds(rank):
        yield f"Memory time is {large}; kernels limited by DRAM bandwidth count as compute."


def list_memory_kinds(rank: Rank) -> str:
    """Return the kinds of memory time that take most: copies, memsets, allocation, recomputed work."""
    own = [entry for entry in rank.causes if entry.wall is Wall.MEMORY]
    parts_ns = dict.fromkeys(("copies", "memsets", "memory allocation", "recomputed forward work"), 0)
    for entry in own:
        parts_ns[_KINDS_OF_MEMORY.get(entry.cause, "copies")] += entry.typical_ns
    total_ns = sum(parts_ns.values())
    large = [kind for kind, time_ns in parts_ns.items() if time_ns >= max(TOLD_CAUSE_SHARE * total_ns, 1)]
    large.sort(key=lambda kind: -parts_ns[kind])
    return " and ".join(large[:2])


def tell_hidden_communication(rank: Rank, unit: str) -> Iterator[str]:
    """Yield how much communication compute hides, if there is much and most of it is hidden."""
    found, step_ns = rank.communication, rank.typical.step_ns
    is_much = found.union_ns >= MUCH_COMMUNICATION_SHARE * step_ns > 0
    if is_much and found.hidden_share is not None and found.hidden_share > MOSTLY_HIDDEN_SHARE:
        left, lost_ns = "", rank.typical.walls.communication
        if found.exposed_ns:
            left = f" The other {duration(found.exposed_ns)} runs without compute"
            if lost_ns < found.exposed_ns:
                left += f", and {duration(lost_ns) if lost_ns else 'none'} of it delays later work"
            left += "."
        yield (
            f"Compute hides {percent(found.hidden_share)} of the {duration(found.union_ns)} of communication"
            f" in the {unit}.{left}"
        )


def _write_upper_bound(
    rank: Rank, opportunities: tuple[Opportunity, ...], dominant: str, fixes: tuple[Fix, ...], unit: str
) -> Iterator[str]:
    """Yield the upper bound on removing the cause that gains most, and what limits the step then."""
    if not opportunities or dominant == "unknown":
        return
    first, step_ns = opportunities[0], rank.typical.step_ns
    if first.recoverable_ns < MATERIAL_SHARE * step_ns:
        return
    lead, without = "", f"Without {name_cause(first.cause)}"
    if dominant in set(LOSSES) and first.wall != dominant:
        lead = f"The largest possible gain in the typical {unit} is in {first.wall}: "
        without = f"without {name_cause(first.cause)}"
    following = find_wall_without(rank, first, fixes)
    then = "still be" if following == dominant else "then be"
    yield (
        f"{lead}{without}, the {unit} would take at least {duration(first.step_ceiling_ns)} (up to"
        f" {first.speedup_ceiling:.2f}x) and would {then} {following}-bound."
    )
    if first.assumes is not None:
        yield f"This bound assumes that {first.assumes}."


def find_wall_without(rank: Rank, removed: Opportunity, fixes: tuple[Fix, ...]) -> str:
    """Return what limits the step without a cause, as the fix says that was replayed with the same result.

    Without such a fix, the time saved is taken from the wall of the cause.
    """
    step_ns = rank.typical.step_ns
    for fix in fixes:
        answer = fix.replay
        if answer is not None and removed.cause in fix.causes:
            apart_ns = abs(answer.step_ns - removed.step_ceiling_ns)
            if apart_ns <= SAME_STEP_SHARE * step_ns:
                return str(answer.next_wall)
    return str(find_wall_after(rank.typical.walls, removed.wall, removed.recoverable_ns))


def restate_bounds(analysis: Analysis, before: tuple[Opportunity, ...]) -> Analysis:
    """Return the analysis whose verdict states the upper bound that it now has, instead of the one before.

    Its fixes were replayed since, so that the bound names the wall which they name.
    """
    diagnosis, unit = analysis.diagnosis, analysis.anchor.window
    rank = analysis.ranks[diagnosis.rank_index]
    dominant, now = diagnosis.dominant_wall, analysis.opportunities
    old = " ".join(_write_upper_bound(rank, before, dominant, (), unit))
    new = " ".join(_write_upper_bound(rank, now, dominant, analysis.fixes or (), unit))
    if not old or old == new:
        return analysis
    verdict = diagnosis.verdict.replace(old, new).replace("  ", " ").strip()
    return replace(analysis, diagnosis=replace(diagnosis, verdict=verdict))


def name_wall(wall: Wall) -> str:
    """Name the time of a wall, at the beginning of a sentence."""
    return "Host time" if wall is Wall.HOST else wall.capitalize()


def is_mostly_outside(rank: Rank) -> bool:
    """Return whether more device time precedes the first window than all windows contain."""
    return rank.outside_ns > sum(step.end_ns - step.start_ns for step in rank.steps)


def _before(rank: Rank, unit: str) -> Iterator[str]:
    """Yield what was excluded, if it is most of the capture."""
    if is_mostly_outside(rank):
        idle = percent(rank.outside_idle_ns / rank.outside_ns)
        yield (
            f"The breakdown leaves out the {duration(rank.outside_ns)} before the first {unit}, which are"
            f" longer than all {unit}s together; the GPU is idle for {idle} of them."
        )


def judge_confidence(
    decision: Decision, account: RankSummary, typical: str = "typical step", *, is_incomplete: bool = False
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
    """
    inferred_share = _median_share(account.inferred, account.walls)
    unresolved_share = _median_share(account.unresolved[:, :3].sum(axis=1), account.walls)
    at_risk = inferred_share + unresolved_share
    doubts = [*_list_doubts(decision, account), *_describe_few_steps(account, at_risk)]
    level: ConfidenceLevel = "high"
    if decision.dominant == "unknown" or is_incomplete or at_risk > MEDIUM_CONFIDENCE_SHARE + SHARE_ROUNDING:
        level = "low"
    elif at_risk > HIGH_CONFIDENCE_SHARE + SHARE_ROUNDING or doubts:
        level = "medium"
    reasons = [
        f"{percent(inferred_share)} of the time depends on waits inferred from timing"
        if inferred_share > 0
        else "no wait is inferred from timing",
        _describe_open_time(account, typical),
    ]
    if is_incomplete:
        reasons.append("idle time may be work that the incomplete trace lacks")
    return Confidence(level, inferred_share, unresolved_share, (*reasons, *doubts))


def _describe_open_time(account: RankSummary, typical: str) -> str:
    """Return the share of the typical step that has no known cause, or its only cause without a wall."""
    rank = account.rank
    opened = [one for one in rank.causes if one.unresolved_ns or one.wall is Wall.UNATTRIBUTED]
    total_ns = sum(one.typical_ns for one in opened)
    if not total_ns:
        is_any = bool(account.unresolved[:, :3].any())
        return f"all time of the {typical} has a known cause" if is_any else "all time has a known cause"
    share = f"{percent(total_ns / rank.typical.step_ns)} of the {typical}"
    if len(opened) == 1:
        return f"{share} is {describe_cause(opened[0].cause)}"
    return f"{share} has no known cause"


def _median_share(time_ns: Times, walls: Times) -> float:
    """Return the median over the steps of a time divided by the step."""
    return float(np.median(time_ns / np.maximum(walls.sum(axis=1), 1))) if time_ns.size else 0.0


def _describe_few_steps(account: RankSummary, median_share: float) -> Iterator[str]:
    """Yield the share of all time that is inferred or unattributed, if it is large on few steps alone."""
    open_ns = int(account.inferred.sum() + account.unresolved[:, :3].sum())
    share = open_ns / max(int(account.walls.sum()), 1)
    if median_share <= HIGH_CONFIDENCE_SHARE + SHARE_ROUNDING < share:
        yield f"with the slowest steps, {percent(share)} of all time is inferred or has an unknown cause"


def _list_doubts(decision: Decision, account: RankSummary) -> Iterator[str]:
    """Yield what the export lacks, or what recording cost, and what therefore could change the wall.

    Without launch calls, short gaps between kernels count as compute, whatever caused them, and the host
    may have waited for calls that are missing. Recomputed forward work that cannot be recognized counts as
    compute.
    """
    if not any(step.steady for step in account.rank.steps):
        yield "no steady step: shares cover all captured time"
    whole = account.walls.sum(axis=0, keepdims=True), account.unresolved.sum(axis=0, keepdims=True)
    if (mean_wall := find_dominant_wall(*whole)) != decision.dominant:
        wall = "the mean step has no single wall"
        if mean_wall != "mixed":
            wall = f"the wall of the mean step is {mean_wall}"
        yield f"{wall}, because some steps differ from the others"
    if find_overall_wall(account.rank) not in {None, decision.dominant}:
        yield f"most of the capture precedes the steps; the wall of the steps alone is {decision.dominant}"
    if account.hides_recompute and decision.dominant == "compute":
        yield (
            "no range names the backward pass, so that recomputed activations, if there are any, count as"
            " compute"
        )
    if account.lacks_calls:
        yield f"launch calls are missing: {_WITHOUT_CALLS.get(decision.dominant, _WAITS_UNKNOWN)}"
    if decision.dominant == "host" and find_dominant_wall(*_without_blocked_calls(account)) != "host":
        share = _median_share(account.blocked, account.walls)
        yield f"{percent(share)} is in calls that were blocked for a reason that the export does not contain"
    if decision.dominant == "host" and account.is_slowed_by_profiler:
        yield "the profiler slowed the host"


def _without_blocked_calls(account: RankSummary) -> tuple[Times, Times]:
    """Return walls and unresolved time with the time in blocked calls counted as unattributed."""
    walls, unresolved = account.walls.copy(), account.unresolved.copy()
    walls[:, _HOST_COLUMN] -= account.blocked
    walls[:, _UNATTRIBUTED_COLUMN] += account.blocked
    unresolved[:, 0] += account.blocked
    return walls, unresolved
