"""Write the verdict of a rank as one paragraph."""

from collections.abc import Collection, Iterator
from dataclasses import replace

import numpy as np

from wallscope import units
from wallscope.attribution.attribute import HELD_WHILE_IDLE
from wallscope.model.analysis import Analysis, Anchor, Rank, Step
from wallscope.model.cause_catalogue import PEER_WAIT, UNRECOGNIZED, describe_cause, is_part
from wallscope.model.diagnosis import Confidence, Diagnosis, Opportunity, RareStall
from wallscope.model.enums import Wall
from wallscope.summary.confidence import judge_confidence
from wallscope.summary.diagnosis import (
    LOSSES,
    Decision,
    decide_wall,
    find_next_wall,
    find_overall_wall,
    measure_wall_shares,
)
from wallscope.summary.rank import RankSummary, lacks_kernels
from wallscope.summary.unusual_losses import explain_slower_kernels
from wallscope.thresholds.steps import MEAN_ABOVE_MEDIAN_RATIO, WORKING_RANK_PARTS_COUNT
from wallscope.thresholds.verdict import (
    MATERIAL_SHARE,
    MOSTLY_HIDDEN_SHARE,
    MOSTLY_WAITING_PARTS_COUNT,
    MUCH_COMMUNICATION_SHARE,
    SHARED_DEVICE_SHARE,
    STALLED_STEP_RATIO,
    TOLD_CAUSE_SHARE,
    TOLD_CAUSES_COUNT,
    TOLD_UNRECOGNIZED_SHARE,
)
from wallscope.trace.kernel_classes import shorten_kernel
from wallscope.units import duration, percent

_MOST_NAMED_COUNT = 3
_NAMES = {Wall.UNATTRIBUTED: "unattributed time"}


def select_working_ranks(ranks: tuple[Rank, ...]) -> tuple[Rank, ...]:
    """Return the ranks with at least a tenth of the compute of the busiest one; all ranks if none computes.

    A process may have an unused context on a device that it does not train on.
    """
    computed_ns = [
        sum(step.budget.compute + step.budget.opaque_graph for step in rank.steps) for rank in ranks
    ]
    busiest_ns = max(computed_ns, default=0)
    return tuple(
        rank
        for rank, time_ns in zip(ranks, computed_ns, strict=True)
        if WORKING_RANK_PARTS_COUNT * time_ns >= busiest_ns
    )


def find_least_computing(ranks: tuple[Rank, ...], unmarked: Collection[int] = ()) -> int:
    """Return the index of the rank that computed for the smallest share of its step; the first of equals.

    It is one of the working ranks. Ranks whose steps are unknown (`unmarked`, indices in `ranks`) count only
    if the steps of no working rank are known.
    """
    at_work = [
        place
        for place, rank in enumerate(ranks)
        if any(rank is other for other in select_working_ranks(ranks))
    ]
    marked = [place for place in at_work if place not in unmarked]

    def computed_share(place: int) -> float:
        typical = ranks[place].typical
        return typical.budget.compute / max(typical.step_ns, 1)

    return min(marked or at_work, key=computed_share)


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
    confidence = judge_confidence(decision, account, is_incomplete=is_incomplete)
    return Diagnosis(
        dominant_wall=find_overall_wall(rank) or decision.dominant,
        verdict=write_verdict(rank, anchor, decision, won, following, confidence),
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


def write_verdict(  # noqa: PLR0913, PLR0917  # the inputs of a verdict
    rank: Rank,
    anchor: Anchor,
    decision: Decision,
    opportunities: tuple[Opportunity, ...],
    next_wall: str | None,
    confidence: Confidence | None,
) -> str:
    """Return the paragraph on one rank: the wall, its causes, hidden communication, and the worst step."""
    unit = anchor.window
    dominant = _add_unrecognized(rank, decision, unit, _dominant(rank, decision, anchor))
    sentences = [*_overall(rank, decision, unit), *_shared_device(rank, unit), dominant]
    sentences += _rare(rank, decision, anchor)
    sentences += [*_ask_for_names(rank, decision), *_inferred(confidence, unit)]
    sentences += () if decision.is_mean else _name_largest_causes(rank, decision)
    sentences += tell_hidden_communication(rank, unit)
    sentences += _write_upper_bound(rank.typical.step_ns, opportunities, decision.dominant, next_wall, unit)
    sentences += _worst(rank, unit)
    sentences += _modes(rank, unit)
    sentences += _slower(rank, unit)
    sentences += _before(rank, unit)
    return " ".join(sentences)


def _overall(rank: Rank, decision: Decision, unit: str) -> Iterator[str]:
    """Yield the wall of the whole capture, if it is not that of the steps."""
    wall = find_overall_wall(rank)
    if wall is not None and wall != decision.dominant and rank.whole_walls is not None:
        whole_ns = sum(rank.whole_walls.parts())
        share = percent(getattr(rank.whole_walls, wall) / whole_ns)
        yield (
            f"{wall.capitalize()} is the wall of the whole capture: {share} of its {duration(whole_ns)}."
            f" Most of this is before the first {unit}. In the {unit}s:"
        )


def _dominant(rank: Rank, decision: Decision, anchor: Anchor) -> str:
    steady = sum(step.steady for step in rank.steps)
    unit = anchor.window
    counted = units.plural(decision.step_count, f"steady {unit}")
    basis = f"{'mean' if decision.is_mean else 'median'} of {counted}" if decision.step_count > 1 else counted
    if decision.is_mean:
        basis += "; rare stalls take more than any usual loss"
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
            f"{percent(entry.share)} {describe_cause(entry.cause)}"
            for entry in rank.causes
            if entry.unresolved_ns
        )
        is_open = any(one.unresolved_ns and one.wall is not Wall.UNATTRIBUTED for one in rank.causes)
        lack = "has no known cause" if is_open else "is unattributed"
        return f"The wall is unknown: too much of the {unit} {lack}: {open_shares} ({basis})."
    if decision.dominant == "mixed":
        losses = sorted(LOSSES, key=lambda wall: -decision.shares[wall])
        listed = ", ".join(f"{wall} {share[wall]}" for wall in losses)
        return f"No single wall: {listed} of the {unit} ({basis})."
    if decision.dominant == "compute":
        return f"Compute is the wall: {share[Wall.COMPUTE]} of the {unit} ({basis});" + (
            f" the largest loss is {decision.runner_up} with {share[decision.runner_up]}."
            if decision.shares[decision.runner_up]
            else " there is no loss."
        )
    dominant = Wall(decision.dominant)
    called = (
        "Waiting for peers" if dominant is Wall.COMMUNICATION and _is_waiting(rank) else dominant.capitalize()
    )
    return (
        f"{called} is the wall: {share[dominant]} of the {unit} ({basis}),"
        f" {units.points(decision.margin)} more than {decision.runner_up}"
        + (f", and the largest loss in {decision.led_steps} of {counted}." if steady else ".")
    )


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
            f"{percent(confidence.inferred_share)} of the {unit} depends on waits that are inferred from"
            f" timing, because the export lacks them: {confidence.level} confidence."
        )


_HINGES = {"mixed": "no single wall"} | {str(wall): f"{wall} is the wall" for wall in Wall}
_UNRECOGNIZED_CAUSES = (UNRECOGNIZED, "compute/unrecognized")


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
    return (
        f"{sentence.removesuffix('.')}; {percent(share)} of the {unit} is in kernels with unrecognized names."
    )


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
        whole = "these losses" if len(walls) > 1 else f"the {own[0].wall} time"
        listed = "; ".join(f"{duration(entry.typical_ns)} {describe_cause(entry.cause)}" for entry in large)
        parts = "parts" if len(large) > 1 else "part"
        yield f"Largest {parts} of {whole} ({duration(total_ns)}): {listed}."
    place = None if rank.host_details is None else rank.host_details.range
    if decision.dominant == "host" and place is not None:
        share = percent(place.host_ns / max(rank.typical.walls.host, 1))
        yield f"{duration(place.host_ns)} of the host time ({share}) is in the range {place.name}."


def tell_hidden_communication(rank: Rank, unit: str) -> Iterator[str]:
    """Yield how much communication compute hides, if there is much and most of it is hidden."""
    found, step_ns = rank.communication, rank.typical.step_ns
    is_much = found.union_ns >= MUCH_COMMUNICATION_SHARE * step_ns > 0
    if is_much and found.hidden_share is not None and found.hidden_share > MOSTLY_HIDDEN_SHARE:
        left, lost_ns = "none runs without compute", rank.typical.walls.communication
        if found.exposed_ns:
            left = f"{duration(found.exposed_ns)} runs without compute"
            if lost_ns < found.exposed_ns:
                left += f", and {duration(lost_ns) if lost_ns else 'none'} of that adds to the {unit}"
        yield (
            f"Compute hides {percent(found.hidden_share)} of the {duration(found.union_ns)} of communication"
            f" in the {unit}; {left}."
        )


def _write_upper_bound(
    step_ns: int,
    opportunities: tuple[Opportunity, ...],
    dominant: str,
    next_wall: str | None,
    unit: str,
) -> Iterator[str]:
    """Yield the upper bound on removing the first-ranked loss, and the next wall."""
    if not opportunities or dominant == "unknown":
        return
    first = opportunities[0]
    if first.recoverable_ns < MATERIAL_SHARE * step_ns:
        return
    then = f", and would then be {next_wall}-bound" if next_wall is not None else ""
    yield (
        f"Without {first.cause}, the {unit} would take at least {duration(first.step_ceiling_ns)} (up to"
        f" {first.speedup_ceiling:.2f}x){then}."
    )
    if first.assumes is not None:
        yield f"This bound assumes that {first.assumes}."


def restate_bounds(analysis: Analysis, before: tuple[Opportunity, ...]) -> Analysis:
    """Return the analysis whose verdict states the upper bound that it now has, instead of the one before."""
    diagnosis, unit = analysis.diagnosis, analysis.anchor.window
    step_ns = analysis.ranks[diagnosis.rank_index].typical.step_ns
    old, new = (
        " ".join(
            _write_upper_bound(step_ns, opportunities, diagnosis.dominant_wall, diagnosis.next_wall, unit)
        )
        for opportunities in (before, analysis.opportunities)
    )
    if not old or old == new:
        return analysis
    verdict = diagnosis.verdict.replace(old, new).replace("  ", " ").strip()
    return replace(analysis, diagnosis=replace(diagnosis, verdict=verdict))


def _worst(rank: Rank, unit: str) -> Iterator[str]:
    """Yield a sentence on the longest steady step if it is an outlier."""
    steady = [step for step in rank.steps if step.steady]
    if not steady:
        return
    middle_ns = float(np.median([_length(step) for step in steady]))
    worst = max(steady, key=_length)
    over_ns = _length(worst) - middle_ns
    if _length(worst) <= STALLED_STEP_RATIO * middle_ns or worst.walls is None:
        return
    usual = np.median([step.walls.parts() for step in steady if step.walls is not None], axis=0)
    excess = np.array(worst.walls.parts()) - usual
    wall = list(Wall)[int(excess.argmax())]
    yield (
        f"The slowest steady {unit} ({worst.index}) takes {duration(round(over_ns))} more than the median;"
        f" {duration(round(float(excess.max())))} of this is {_NAMES.get(wall, f'{wall} time')}."
    )


def _rare(rank: Rank, decision: Decision, anchor: Anchor) -> Iterator[str]:
    """Yield the losses of a few steps, the largest first, and the largest usual loss."""
    stalls = [_describe_stall(rank, stall, anchor) for stall in rank.rare_stalls[:TOLD_CAUSES_COUNT]]
    if stalls:
        yield f"Not in the {anchor.typical}: {'; '.join(stalls)}."
    usual = next((entry for entry in rank.causes if entry.wall in LOSSES), None)
    if decision.is_mean and usual is not None and usual.share >= MATERIAL_SHARE:
        yield (
            f"The largest loss of the {anchor.typical} itself is {describe_cause(usual.cause)}:"
            f" {duration(usual.typical_ns)}, {percent(usual.share)}."
        )


def _describe_stall(rank: Rank, stall: RareStall, anchor: Anchor) -> str:
    steady = sum(step.steady for step in rank.steps)
    often = _describe_period(stall, anchor)
    verb = "takes" if len(stall.steps) == 1 else "take"
    return (
        f"{len(stall.steps)} of {units.plural(steady, f'steady {anchor.window}')}{often} {verb}"
        f" {_from_to(stall.least_ns, stall.most_ns)} more for {describe_cause(stall.cause)},"
        f" together {percent(stall.share)} of the time of all {anchor.window}s"
    )


def _describe_period(stall: RareStall, anchor: Anchor) -> str:
    """Return how often a stall occurs; not all of its steps may follow the period."""
    if stall.period is None:
        return ""
    is_all = (stall.steps[-1] - stall.steps[0]) == (len(stall.steps) - 1) * stall.period
    return f" ({'' if is_all else 'the longest '}every {stall.period} {anchor.window}s)"


def _from_to(least_ns: int, most_ns: int) -> str:
    least, most = duration(least_ns), duration(most_ns)
    return least if least == most else f"{least} to {most}"


def _modes(rank: Rank, unit: str) -> Iterator[str]:
    """Yield the mean step if it differs from the usual one."""
    mean_ns, median_ns = rank.mean_step_ns, rank.median_step_ns
    if mean_ns is None or median_ns is None:
        return
    if rank.modes:
        steady = sum(step.steady for step in rank.steps)
        counts = [
            f"{len(mode.steps)}{'' if place else f' of {steady}'}" for place, mode in enumerate(rank.modes)
        ]
        lengths = [duration(mode.median_ns) for mode in rank.modes]
        listed = ", ".join(
            f"{count}{'' if place else ' take'} about {length}"
            for place, (count, length) in enumerate(zip(counts, lengths, strict=True))
        )
        kinds = {2: "two", 3: "three"}.get(len(rank.modes), str(len(rank.modes)))
        yield (
            f"{unit.capitalize()}s fall into {kinds} kinds: {listed}. The mean, which determines throughput,"
            f" is {duration(mean_ns)}."
        )
    elif mean_ns > MEAN_ABOVE_MEDIAN_RATIO * median_ns:
        yield (
            f"The median {unit} takes {duration(median_ns)}. The mean, which determines throughput, is"
            f" {duration(mean_ns)}."
        )


def _slower(rank: Rank, unit: str) -> Iterator[str]:
    """From which step on kernels are slower."""
    slower = rank.slower_kernels
    if slower is not None:
        yield (
            f"From {unit} {slower.since_step} on the same compute kernels take {slower.ratio:.2f} times as"
            f" long: {explain_slower_kernels(slower)}."
        )


def is_mostly_outside(rank: Rank) -> bool:
    """Return whether more device time precedes the first window than all windows contain."""
    return rank.outside_ns > sum(_length(step) for step in rank.steps)


def _before(rank: Rank, unit: str) -> Iterator[str]:
    """Yield what was excluded, if it is most of the capture."""
    if is_mostly_outside(rank):
        idle = percent(rank.outside_idle_ns / rank.outside_ns)
        yield (
            f"The {unit}s are the smaller part of the capture: {duration(rank.outside_ns)} before the"
            f" first {unit} are excluded; the device is idle for {idle} of this time."
        )


def _length(step: Step) -> int:
    return step.end_ns - step.start_ns
