"""Decide the dominant wall of a rank, which rank shows it and what it covers; sort causes of losses.

Causes are sorted by upper bound on speedup.
"""

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace

import numpy as np

from wallscope.advice.evidence import assume_no_host_time
from wallscope.attribution.attribute import OperationFacts
from wallscope.attribution.host_causes import DRAINED
from wallscope.model.advice import Fix
from wallscope.model.analysis import Analysis, Anchor, CauseTime, Rank
from wallscope.model.cause_catalogue import (
    COMPUTE_UNRECOGNIZED,
    MEMORY_RECOMPUTE,
    REFILL,
    UNRECOGNIZED,
    WAIT,
    drop_detail,
    find_wall,
    is_part,
)
from wallscope.model.diagnosis import (
    ClaimStatus,
    CoveredTime,
    Dominant,
    Opportunity,
    Scope,
    StatedBound,
    UnknownWall,
    Walls,
    WallShare,
    WallShares,
)
from wallscope.model.enums import Axis, RecomputeSource, Wall
from wallscope.model.finding_codes import FindingCode
from wallscope.model.whatif import Answer, Question, Replayed
from wallscope.records import dataclass
from wallscope.replay.changes import LAUNCH, THINK
from wallscope.replay.what_if import UpperBounds
from wallscope.thresholds.steps import ENOUGH_STEPS_COUNT, WORKING_RANK_PARTS_COUNT
from wallscope.thresholds.verdict import (
    ASKED_CAUSE_SHARE,
    ASKED_CAUSES_COUNT,
    DOMINANT_LEAD_SHARE,
    DOMINANT_LED_SHARE,
    DOMINANT_SHARE,
    MATERIAL_SHARE,
    MIXED_SHARE,
    NEXT_WALL_SHARE,
    OVERALL_SHARE,
    SAME_STEP_SHARE,
    SHARE_ROUNDING,
    SHOWN_OVERLAP_TAX_SHARE,
    TOLD_UNRECOGNIZED_SHARE,
    UNKNOWN_SHARE,
)
from wallscope.trace.intervals import Times
from wallscope.trace.repeat_unit import Shares
from wallscope.trace.step_variation import measure_rare_excess
from wallscope.units import duration, percent

LOSSES = (Wall.MEMORY, Wall.COMMUNICATION, Wall.HOST)
_WALLS = list(Wall)
_UNRECOGNIZED_CAUSES = (UNRECOGNIZED, COMPUTE_UNRECOGNIZED)


@dataclass(frozen=True, slots=True)
class Decision:
    """The dominant wall, the runner-up, the margin, the number of steps it led, and the deciding shares.

    Shares are medians over the steps. They are shares of the total time (`is_mean`) where rare stalls take
    more than any loss of the usual step. `hinges` is set where unrecognized kernels leave the wall open: the
    wall if they compute, and the wall if they communicate.
    """

    dominant: Dominant
    runner_up: Wall
    margin: float
    led_steps: int
    step_count: int
    shares: Mapping[Wall, float]
    hinges: tuple[Dominant, Dominant] | None = None
    is_mean: bool = False


def decide_wall(walls: Times, unresolved: Times) -> Decision:
    """Return the dominant wall; unknown if counting unrecognized kernels as communication changes it.

    Args:
        walls: ns of each wall in each deciding step, columns in the order of `Wall`.
        unresolved: unattributed ns in each step: unattributed, communication, memory, and the part of the
            first in unrecognized kernels that may communicate.
    """
    own, kernels = unresolved[:, :3].copy(), unresolved[:, 3:].sum(axis=1)
    own[:, 0] -= kernels
    found = _decide_wall(walls, own)
    if not kernels.any() or found.dominant == "unknown":
        return found
    moved = walls.copy()
    moved[:, _WALLS.index(Wall.UNATTRIBUTED)] -= kernels
    moved[:, _WALLS.index(Wall.COMMUNICATION)] += kernels
    other = _decide_wall(moved, own).dominant
    if other != found.dominant:
        return replace(found, dominant="unknown", hinges=(found.dominant, other))
    is_open = found.dominant not in {"communication", "mixed"}
    if is_open and _decide_wall(walls, unresolved[:, :3]).dominant == "unknown":
        return replace(found, dominant="unknown")
    return found


def _decide_wall(walls: Times, unresolved: Times) -> Decision:
    """Return the dominant wall; the columns of `unresolved` are unattributed, communication, memory."""
    step_ns = np.maximum(walls.sum(axis=1, keepdims=True), 1)
    shares = walls / step_ns
    open_shares = unresolved / step_ns
    apart = [_WALLS.index(wall) for wall in (Wall.COMMUNICATION, Wall.MEMORY)]
    owned = shares[:, apart] - open_shares[:, 1:]
    of_steps = np.column_stack([shares, owned, open_shares.sum(axis=1)])
    is_mean = _is_by_rare_stalls(walls, shares)
    weights = step_ns[:, 0] / step_ns.sum()
    found = (weights @ of_steps if is_mean else np.median(of_steps, axis=0)).tolist()
    deciding = dict(zip(_WALLS, found, strict=False))
    communication, memory, unknown = found[len(_WALLS) :]
    resolved = {Wall.HOST: deciding[Wall.HOST], Wall.COMMUNICATION: communication, Wall.MEMORY: memory}
    by_share = sorted(LOSSES, key=lambda wall: (-deciding[wall], wall))
    first, second = by_share[:2]
    loss = walls[:, [_WALLS.index(wall) for wall in LOSSES]]
    led = int((loss.argmax(axis=1) == LOSSES.index(first)).sum())
    if _reaches(unknown, UNKNOWN_SHARE) and _reaches(unknown, max(resolved.values())):
        dominant: Dominant = "unknown"
    elif (
        _reaches(deciding[first], DOMINANT_SHARE)
        and _reaches(deciding[first] - deciding[second], DOMINANT_LEAD_SHARE)
        and (is_mean or led >= DOMINANT_LED_SHARE * len(walls))
    ):
        dominant = DOMINANT[first]
    elif _reaches(sum(deciding[wall] for wall in LOSSES), MIXED_SHARE):
        dominant = "mixed"
    else:
        dominant = "compute"
    leads = first if dominant != "compute" else Wall.COMPUTE
    runner_up = second if dominant != "compute" else first
    margin = deciding[leads] - deciding[runner_up]
    return Decision(dominant, runner_up, margin, led, len(walls), deciding, is_mean=is_mean)


def _is_by_rare_stalls(walls: Times, shares: Shares) -> bool:
    """Return whether a loss wall takes more on few steps alone than any does in the usual step."""
    if len(walls) < ENOUGH_STEPS_COUNT:
        return False
    length_ns = walls.sum(axis=1)
    places = [_WALLS.index(wall) for wall in LOSSES]
    rare_ns = max(int(measure_rare_excess(walls[:, place], length_ns).sum()) for place in places)
    usual_share = float(np.median(shares[:, places], axis=0).max())
    return rare_ns > 0 and rare_ns / max(int(length_ns.sum()), 1) > usual_share


def find_dominant_wall(walls: Times, unresolved: Times) -> Dominant:
    """Return only the dominant wall of `decide_wall`."""
    return decide_wall(walls, unresolved).dominant


def _reaches(share: float, least: float) -> bool:
    return share >= least - SHARE_ROUNDING


DOMINANT: dict[Wall, Dominant] = {
    Wall.MEMORY: "memory",
    Wall.COMMUNICATION: "communication",
    Wall.HOST: "host",
}
"""The loss walls by their name in a diagnosis."""


def find_overall_wall(rank: Rank) -> Dominant | None:
    """Return the loss that takes most of the capture, if the steps do not represent all of it."""
    if rank.whole_walls is None:
        return None
    parts = dict(zip(Wall, rank.whole_walls.parts(), strict=True))
    largest = max(LOSSES, key=lambda wall: parts[wall])
    return DOMINANT[largest] if parts[largest] > OVERALL_SHARE * sum(parts.values()) else None


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


def measure_wall_shares(walls: Times, typical: Walls, *, steady: bool) -> WallShares:
    """Return the deciding shares and the typical step; without a steady step there are no percentiles."""
    shares = walls / np.maximum(walls.sum(axis=1, keepdims=True), 1)
    found = {}
    of_walls = np.percentile(shares, [10, 50, 90], axis=0).T.tolist()
    means = (walls.sum(axis=0) / max(int(walls.sum()), 1)).tolist()
    for wall, typical_ns, (low, middle, high), mean in zip(
        _WALLS, typical.parts(), of_walls, means, strict=True
    ):
        found[str(wall)] = WallShare(
            typical_ns, middle, low if steady else None, high if steady else None, mean
        )
    return WallShares(**found)


_OF_HOST = (LAUNCH, THINK, "synchronisation")
"""Targets of questions that hold nothing but host time."""
_OF_OTHERS: tuple[ClaimStatus, str] = ("inferred", "replayed together with the other ranks of its export")


def measure_recoverable(
    entries: Iterable[CauseTime], ceilings: UpperBounds, most_host_ns: int | None = None
) -> dict[str, int]:
    """Return the upper bound on the gain of each material loss cause, in ns of the typical step.

    Causes that drain the queue always count, because the time that they delay is attributed to other causes.
    `most_host_ns` is the host time of a step that is longer only in the capture.
    """
    causes = [
        entry.cause
        for entry in entries
        if entry.wall in LOSSES
        and not entry.unresolved_ns
        and (entry.share >= ASKED_CAUSE_SHARE or entry.cause.startswith(DRAINED))
    ]
    found = {cause: ceilings.recoverable_ns([cause]) for cause in causes[:ASKED_CAUSES_COUNT]}
    limits = {cause: most_host_ns for cause in found if find_wall(cause) is Wall.HOST}
    return {
        cause: time_ns if (most_ns := limits.get(cause)) is None else min(time_ns, most_ns)
        for cause, time_ns in found.items()
        if time_ns is not None
    }


def limit_host_gains(found: Replayed, walls: Walls) -> Replayed:
    """Return answers about fixes that win no more host time than an unprofiled step has.

    Args:
        found: answers about the captured step.
        walls: of the typical step, with the time of the profiler apart.
    """
    answers = {fix: _limit_answer(answer, walls) for fix, answer in found.answers.items()}
    return replace(found, answers=answers)


def limit_to_rank(answer: Answer, rank: Rank | None, *, limits_host: bool) -> Answer:
    """Return an answer that wins no more than the upper bounds of a rank allow; all of it without a rank.

    Ranks that are matched divide communication into transfer and waiting, and each part has its own bound.
    Host time is limited if an unprofiled step is known.
    """
    if rank is None:
        return answer
    if len(answer.questions) == 1 and is_part(answer.questions[0].target):
        (question,) = answer.questions
        own = [one for one in rank.causes if one.cause == question.target]
        most_ns = max((one.recoverable_ns or 0 for one in own), default=0)
        return _reduce_gain(answer, max(answer.won_ns - round((1 - (question.share or 0)) * most_ns), 0))
    return _limit_answer(answer, rank.typical.walls) if limits_host else answer


def _reduce_gain(answer: Answer, surplus_ns: int) -> Answer:
    step_ns, won_ns = answer.step_ns + surplus_ns, answer.won_ns - surplus_ns
    return replace(answer, step_ns=step_ns, won_ns=won_ns, speedup=(step_ns + won_ns) / max(step_ns, 1))


def _limit_answer(answer: Answer, walls: Walls) -> Answer:
    """Return an answer whose gain in host time is limited; that of other walls is as replayed.

    Questions about host time alone win no time of other walls.
    """
    is_host = all(map(_is_about_host, answer.questions))
    places = [place for place, wall in enumerate(Wall) if wall not in {Wall.HOST, Wall.UNATTRIBUTED}]
    before, after = walls.parts(), answer.walls.parts()
    others_ns = 0 if is_host else sum(before[place] - after[place] for place in places)
    surplus_ns = max(answer.won_ns - max(others_ns, 0) - walls.host, 0)
    return _reduce_gain(answer, surplus_ns) if surplus_ns else answer


def _is_about_host(question: Question) -> bool:
    is_of_host = question.target.startswith((f"{Wall.HOST}/", WAIT, REFILL))
    return is_of_host or question.kind == "graph" or question.target in _OF_HOST


def _measure_parts(cause: str, ceilings: UpperBounds) -> tuple[int, int] | None:
    """Return the gains without a draining call, and without the host time behind it; `None` if unknown."""
    call = cause.removeprefix(f"{DRAINED}/")
    alone_ns, behind_ns = (ceilings.recoverable_ns([f"{part}{call}"]) for part in (WAIT, REFILL))
    return None if alone_ns is None or behind_ns is None else (alone_ns, behind_ns)


def rank_opportunities(
    rank: Rank, ceilings: UpperBounds, inferred: frozenset[str]
) -> tuple[Opportunity, ...]:
    """Return the causes of a rank that have an upper bound on their gain, the largest first."""
    error = percent(ceilings.error)
    played = (
        f"{ceilings.step_count} typical steps replayed; unchanged, the replay differs by {error} from the"
        " capture"
    )
    return _list_opportunities(
        _opportunity(
            rank,
            entry,
            ("inferred" if entry.cause in inferred else "trace-verified"),
            "; ".join([*_describe_refill(entry, ceilings), played]),
            _describe_assumption(rank, entry, ceilings),
        )
        for entry in rank.causes
        if entry.recoverable_ns and entry.recoverable_ns < rank.typical.step_ns
    )


def divide_opportunities(opportunities: Sequence[Opportunity], rank: Rank) -> tuple[Opportunity, ...]:
    """Return the opportunities of a rank after its causes were divided into parts."""
    of_whole = {drop_detail(entry.cause): (entry.status, entry.evidence[-1]) for entry in opportunities}
    assumed = {drop_detail(entry.cause): entry.assumes for entry in opportunities}
    return _list_opportunities(
        _opportunity(
            rank,
            entry,
            *of_whole.get(drop_detail(entry.cause), _OF_OTHERS),
            assumed.get(drop_detail(entry.cause)),
        )
        for entry in rank.causes
        if entry.recoverable_ns and entry.recoverable_ns < rank.typical.step_ns
    )


def _opportunity(
    rank: Rank, entry: CauseTime, status: ClaimStatus, played: str, assumes: str | None
) -> Opportunity:
    step_ns, won_ns = rank.typical.step_ns, entry.recoverable_ns or 0
    taken = f"{duration(entry.typical_ns)}, {percent(entry.share)} of the typical step"
    return Opportunity(
        id=entry.cause,
        wall=entry.wall,
        cause=entry.cause,
        recoverable_ns=won_ns,
        step_ceiling_ns=step_ns - won_ns,
        speedup_ceiling=step_ns / (step_ns - won_ns),
        status=status,
        evidence=(taken, *_describe_interference(rank, entry), played),
        assumes=assumes,
    )


def _describe_assumption(rank: Rank, entry: CauseTime, ceilings: UpperBounds) -> str | None:
    """Return what the bound of a cause rests on: what else must vanish, or how fast compute is without it.

    It is the host time behind a draining call, if the call alone wins less.
    """
    if entry.wall == Wall.COMMUNICATION and _has_unknown_tax(rank):
        return "overlapping compute is as fast as alone: no kernel ran often enough both ways to compare"
    if not entry.cause.startswith(DRAINED) or (parts := _measure_parts(entry.cause, ceilings)) is None:
        return None
    alone_ns, behind_ns = parts
    if behind_ns - alone_ns < MATERIAL_SHARE * rank.typical.step_ns:
        return None
    return assume_no_host_time(entry.typical_ns, rank.typical.step_ns, alone_ns)


def _describe_refill(entry: CauseTime, ceilings: UpperBounds) -> Iterator[str]:
    """Describe both costs of a call that drains the queue: the call itself, and the host time after it."""
    if entry.cause.startswith(DRAINED) and (parts := _measure_parts(entry.cause, ceilings)) is not None:
        yield (
            f"{duration(parts[0])} shorter without the call; {duration(parts[1])} shorter with the call but"
            " without the host time after it"
        )


def _describe_interference(rank: Rank, entry: CauseTime) -> Iterator[str]:
    """Describe the assumed gain of compute that overlaps communication, once that is removed."""
    tax = rank.communication.overlap_tax
    if entry.wall == Wall.COMMUNICATION and tax is not None and tax.ratio >= 1 + SHOWN_OVERLAP_TAX_SHARE:
        yield f"overlapping compute takes {tax.ratio:.2f} times as long as alone"


def _has_unknown_tax(rank: Rank) -> bool:
    """Return whether compute overlaps communication, and how much slower that makes it is unknown."""
    communication = rank.communication
    return communication.overlap_tax is None and (communication.hidden_share or 0) >= MATERIAL_SHARE


def _list_opportunities(found: Iterable[Opportunity]) -> tuple[Opportunity, ...]:
    return tuple(sorted(found, key=lambda entry: (-entry.recoverable_ns, entry.cause)))


def find_next_wall(rank: Rank, decision: Decision, ceilings: UpperBounds) -> str | None:
    """Return the next wall: a loss of at least a tenth of the remaining step, else compute."""
    if decision.dominant in {"unknown", "mixed", "compute"}:
        return None
    own = [entry for entry in rank.causes if entry.wall == decision.dominant]
    played = {name for entry in own if not entry.unresolved_ns for name in _list_parts(entry.cause)}
    won_ns = ceilings.recoverable_ns(sorted(played))
    if won_ns is None:
        return None
    left_ns = max(rank.typical.step_ns - won_ns, 1)
    losses = {wall: getattr(rank.typical.walls, wall) for wall in LOSSES if wall != decision.dominant}
    largest = max(losses, key=lambda wall: losses[wall])
    return str(largest if losses[largest] >= NEXT_WALL_SHARE * left_ns else Wall.COMPUTE)


def _list_parts(cause: str) -> tuple[str, ...]:
    """Return what a replay removes for a cause, if all of it goes."""
    if not cause.startswith(DRAINED):
        return (drop_detail(cause),)
    call = cause.removeprefix(f"{DRAINED}/")
    return f"{WAIT}{call}", f"{REFILL}{call}"


def find_wall_after(walls: Walls, wall: Wall, won_ns: int) -> Wall:
    """Return the largest loss of a step whose wall loses some time: a tenth of the rest, else compute.

    >>> find_wall_after(Walls(152, 0, 28, 3, 0), Wall.MEMORY, 27), find_wall_after(
    ...     Walls(7, 0, 0, 24, 0), Wall.HOST, 22
    ... )
    (<Wall.COMPUTE: 'compute'>, <Wall.HOST: 'host'>)
    """
    left_ns = max(sum(walls.parts()) - won_ns, 1)
    losses = {loss: getattr(walls, loss) - (won_ns if loss is wall else 0) for loss in LOSSES}
    largest = max(LOSSES, key=lambda loss: losses[loss])
    return largest if losses[largest] >= NEXT_WALL_SHARE * left_ns else Wall.COMPUTE


def find_stated_ceiling(
    rank: Rank, opportunities: Sequence[Opportunity], steps_wall: str | None, fixes: Sequence[Fix]
) -> StatedBound | None:
    """Return the bound on removing the cause that gains most, if it is material and the wall is known."""
    if not opportunities or steps_wall in {"unknown", None}:
        return None
    first = opportunities[0]
    if first.recoverable_ns < MATERIAL_SHARE * rank.typical.step_ns:
        return None
    return StatedBound(
        cause=first.cause,
        wall=first.wall,
        step_ceiling_ns=first.step_ceiling_ns,
        speedup_ceiling=first.speedup_ceiling,
        next_wall=_find_wall_without(rank, first, fixes),
        assumes=first.assumes,
    )


def _find_wall_without(rank: Rank, removed: Opportunity, fixes: Sequence[Fix]) -> str:
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


def explain_open_wall(rank: Rank, decision: Decision) -> UnknownWall | None:
    """Return why the wall of a rank is unknown; `None` if it is known."""
    if decision.hinges is not None:
        computing, communicating = decision.hinges
        return UnknownWall(
            "unrecognized-kernels",
            if_computing=computing,
            if_communicating=communicating,
            asks_for_names=True,
        )
    if decision.dominant != "unknown":
        return None
    owned = any(entry.cause == UNRECOGNIZED for entry in rank.causes)
    asks_for_names = owned and measure_unrecognized_share(rank) >= TOLD_UNRECOGNIZED_SHARE
    return UnknownWall("open-causes", asks_for_names=asks_for_names)


def measure_unrecognized_share(rank: Rank) -> float:
    """Return the share of the typical step in which only unrecognized kernels run."""
    return sum(entry.share for entry in rank.causes if entry.cause in _UNRECOGNIZED_CAUSES)


def is_mostly_outside(rank: Rank) -> bool:
    """Return whether more device time precedes the first window than all windows contain."""
    return rank.outside_ns > sum(step.end_ns - step.start_ns for step in rank.steps)


def list_inferred_causes(facts: OperationFacts) -> frozenset[str]:
    """Return the causes that are inferred: recomputed work without NVTX ranges."""
    sources = facts.recomputed["how"].unique().to_list()
    rests = bool(sources) and sources != [RecomputeSource.EXPLICIT]
    return frozenset({MEMORY_RECOMPUTE} if rests else ())


def find_scope(analysis: Analysis) -> Scope:
    """Return what the dominant wall is about: which time, which ranks, which files."""
    rank, job = analysis.ranks[analysis.diagnosis.rank_index], analysis.job
    is_matched = job is not None and job.collectives.matched > 0
    supplied = len(analysis.ranks)
    left_out = sum(one.code == FindingCode.EXPORT_LEFT_OUT for one in analysis.capture.findings)
    ranks = supplied if is_matched else 1
    return Scope(
        time=_find_time(analysis, rank, is_matched=is_matched),
        rank=rank.rank if ranks == 1 else None,
        ranks=ranks,
        of_ranks=max(analysis.capture.world_size or 1, supplied),
        files=len(analysis.inputs) if is_matched else 1,
        of_files=len(analysis.inputs) + left_out,
        is_one_stage=ranks == 1 and any(one.axis is Axis.PP for one in rank.communication.operations),
        covered_share=measure_covered_share(rank, analysis.anchor),
    )


def measure_covered_share(rank: Rank, anchor: Anchor) -> float | None:
    """Return the share of the time from first to last operation that the steady steps cover.

    `None` where ranges mark the steps, where the user selected time or steps, and without steady steps.
    """
    is_chosen = anchor.selected_time_ns is not None or anchor.selected_steps is not None
    steady_ns = sum(step.end_ns - step.start_ns for step in rank.steps if step.steady)
    if anchor.is_marked or is_chosen or not steady_ns:
        return None
    steps_ns = sum(step.end_ns - step.start_ns for step in rank.steps)
    return steady_ns / (rank.outside_ns + steps_ns + rank.after_ns)


def _find_time(analysis: Analysis, rank: Rank, *, is_matched: bool) -> CoveredTime:
    """Return the time that the verdict is about: that before the steps if they alone have another wall."""
    if analysis.anchor.kind == "whole-trace":
        return "capture" if analysis.anchor.selected_time_ns is None else "selected-time"
    dominant = analysis.diagnosis.dominant_wall
    if is_matched or rank.whole_walls is None or find_overall_wall(rank) != dominant:
        return "steps"
    of_steps = decide_steady_steps(rank)
    return "steps" if of_steps is not None and of_steps.dominant == dominant else "start-up"


def decide_steady_steps(rank: Rank) -> Decision | None:
    """Return what decides the wall of the steady steps alone; `None` without any."""
    walls = list_steady_walls(rank)
    return decide_wall(walls, np.zeros((len(walls), 3), np.int64)) if len(walls) else None


def list_steady_walls(rank: Rank) -> Times:
    """Return ns of each wall in each steady step, columns in the order of `Wall`."""
    return np.array([step.walls.parts() for step in rank.steps if step.steady], dtype=np.int64)
