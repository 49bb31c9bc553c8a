"""The loss causes of a rank, ranked by what the step could win at most without each."""

from collections.abc import Iterable, Sequence

from wallscope.model.analysis import CauseTime, Rank
from wallscope.model.catalogue import undivided
from wallscope.model.diagnosis import ClaimStatus, Opportunity
from wallscope.model.kinds import RecomputeSource, Wall
from wallscope.thresholds import ASKED_CAUSE_SHARE, ASKED_CAUSES_COUNT, NEXT_WALL_SHARE
from wallscope.units import duration, percent
from wallscope.walls.ceilings import Ceilings
from wallscope.walls.diagnosis import LOSSES, Decision
from wallscope.walls.evidence import OperationFacts
from wallscope.walls.host import DRAINED

_OF_OTHERS: tuple[ClaimStatus, str] = ("inferred", "played again with the other ranks of its export")


def recoverable(causes: Iterable[CauseTime], ceilings: Ceilings) -> dict[str, int]:
    """What each material cause of a loss wall could win at most, in ns of the typical step.

    Causes that drain the queue count whatever they own: what they hold up is owned by others.
    """
    asked = [
        entry.cause
        for entry in causes
        if entry.wall in LOSSES
        and not entry.unresolved_ns
        and (entry.share >= ASKED_CAUSE_SHARE or entry.cause.startswith(DRAINED))
    ]
    found = {cause: ceilings.recoverable_ns([cause]) for cause in asked[:ASKED_CAUSES_COUNT]}
    return {cause: time_ns for cause, time_ns in found.items() if time_ns is not None}


def opportunities(rank: Rank, ceilings: Ceilings, inferred: frozenset[str]) -> tuple[Opportunity, ...]:
    """The losses of a rank that could win something, the most first; `inferred` causes rest on inference."""
    error = percent(ceilings.error)
    played = f"{ceilings.step_count} typical steps played again, {error} off the capture when unchanged"
    return _listed(
        _opportunity(rank, entry, "inferred" if entry.cause in inferred else "trace-verified", played)
        for entry in rank.causes
        if entry.recoverable_ns and entry.recoverable_ns < rank.typical.step_ns
    )


def divided(opportunities: Sequence[Opportunity], rank: Rank) -> tuple[Opportunity, ...]:
    """Opportunities of a rank whose causes were divided since, by what its causes are now."""
    of_whole = {undivided(entry.cause): (entry.status, entry.evidence[-1]) for entry in opportunities}
    return _listed(
        _opportunity(rank, entry, *of_whole.get(undivided(entry.cause), _OF_OTHERS))
        for entry in rank.causes
        if entry.recoverable_ns and entry.recoverable_ns < rank.typical.step_ns
    )


def _opportunity(rank: Rank, entry: CauseTime, status: ClaimStatus, played: str) -> Opportunity:
    step_ns, won_ns = rank.typical.step_ns, entry.recoverable_ns or 0
    owned = f"owns {duration(entry.typical_ns)}, {percent(entry.share)} of the typical step"
    return Opportunity(
        id=entry.cause,
        wall=entry.wall,
        cause=entry.cause,
        recoverable_ns=won_ns,
        step_ceiling_ns=step_ns - won_ns,
        speedup_ceiling=step_ns / (step_ns - won_ns),
        status=status,
        evidence=(owned, played),
    )


def _listed(found: Iterable[Opportunity]) -> tuple[Opportunity, ...]:
    return tuple(sorted(found, key=lambda entry: (-entry.recoverable_ns, entry.cause)))


def next_wall(rank: Rank, decision: Decision, ceilings: Ceilings) -> str | None:
    """The wall that comes next without the dominant one: a loss of a tenth of what is left, else compute."""
    if decision.dominant in {"unknown", "mixed", "compute"}:
        return None
    own = [entry for entry in rank.causes if entry.wall == decision.dominant]
    played = {
        name for entry in own if not entry.unresolved_ns for name in (entry.cause, undivided(entry.cause))
    }
    won_ns = ceilings.recoverable_ns(sorted(played))
    if won_ns is None:
        return None
    left_ns = max(rank.typical.step_ns - won_ns, 1)
    losses = {wall: getattr(rank.typical.walls, wall) for wall in LOSSES if wall != decision.dominant}
    largest = max(losses, key=lambda wall: losses[wall])
    return str(largest if losses[largest] >= NEXT_WALL_SHARE * left_ns else Wall.COMPUTE)


def inferred_causes(facts: OperationFacts) -> frozenset[str]:
    """The causes that rest on inference: recomputed work that no range names."""
    sources = facts.recomputed["how"].unique().to_list()
    rests = bool(sources) and sources != [RecomputeSource.EXPLICIT]
    return frozenset({"memory/recompute"} if rests else ())
