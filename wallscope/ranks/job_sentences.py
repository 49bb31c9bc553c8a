"""What is said of a job: what holds it up and why, waiting ranks, its wall, and what is missing."""

from collections.abc import Iterable, Iterator

from wallscope.model.analysis import Job, RankWaits, Straggler, UnitKind
from wallscope.model.capture import Finding
from wallscope.model.finding_codes import FindingCode
from wallscope.ranks.rank_lists import join_numbers
from wallscope.thresholds.causes import CULPRIT_SHARE, REPORTED_JITTER_SHARE, REPORTED_WAIT_SHARE
from wallscope.units import capitalize, duration, percent, plural

_MOST_NAMED, _MOST_LEFT_OUT = 3, 2
_BOUND = {
    "compute": "compute-bound",
    "communication": "communication-bound",
    "memory": "memory-bound",
    "host": "host-bound",
    "mixed": "limited by several walls",
    "unknown": "limited by an unknown wall",
}


def list_job_sentences(job: Job, unit: str) -> tuple[str, ...]:
    """Return sentences: late units and causes, waiting ranks, the critical rank's wall, missing ranks."""
    critical = job.members[job.critical_place]
    sentences = [*_describe_late_units(job, unit), *_describe_waits(job, critical)]
    if job.collectives.matched:
        sentences += _describe_job_walls(job, critical)
    return (*sentences, *describe_missing(job))


def describe_missing(job: Job) -> Iterator[str]:
    """Yield a sentence on the ranks that were not supplied, if any is known."""
    if job.missing:
        size = job.world_size or f"at least {job.ranks + len(job.missing)}"
        yield (
            f"{plural(len(job.missing), 'rank')} of {size} not supplied ({join_numbers(job.missing)}), so the"
            " results cover only the others."
        )


def describe_left_out(findings: Iterable[Finding]) -> Iterator[str]:
    """Yield which exports of a job were left out and why, the first ones by name; nothing if none was."""
    own = [finding for finding in findings if finding.code == FindingCode.EXPORT_LEFT_OUT]
    yield from (finding.message for finding in own[:_MOST_LEFT_OUT])
    if len(own) > _MOST_LEFT_OUT:
        more = plural(len(own) - _MOST_LEFT_OUT, "more export")
        yield f"{more} {'is' if len(own) == _MOST_LEFT_OUT + 1 else 'are'} left out: see the limits."


def describe_late_unit(job: Job, unit: str, *, has_cost: bool = True) -> str:
    """Say which unit holds a job up most, since when and why, and what that costs; empty where none does."""
    if not job.stragglers:
        return ""
    saved_ns, step_ns = measure_leading_ns(job)
    lose = (
        f", and all {plural(job.ranks, 'rank')} lose {duration(saved_ns)} of the {duration(step_ns)} {unit}"
    )
    cost = lose if has_cost else ""
    first, *others = job.leading
    if not others:
        return f"{capitalize(first.name)} {_describe_steps(first, unit)}: {first.why}{cost}."
    each = "; ".join(f"{one.name}: {one.why}" for one in job.leading)
    return f"{capitalize(name_leading(job))} hide each other's delay{cost}. {capitalize(each)}."


def name_leading(job: Job) -> str:
    """Name what holds a job up most: a unit, or several that hide each other."""
    *before, last = (one.name for one in job.leading)
    return f"{', '.join(before)} and {last}" if before else last


def measure_leading_ns(job: Job) -> tuple[int, int]:
    """Return what the repair of the leading units saves, and the step before it, in ns."""
    saved_ns = sum(one.saved_ns for one in job.leading)
    return saved_ns, saved_ns + job.leading[-1].replayed_step_ns


def _describe_steps(late: Straggler, unit: str) -> str:
    """Say in which steps a unit is late, to follow its name."""
    verb = {UnitKind.JOB: "stall", UnitKind.LINK: "is slow"}.get(late.unit, "is late")
    if late.late_steps == late.replayed_steps:
        return f"{verb} in every {unit}"
    if late.since_step is not None:
        return f"{verb} in every {unit} from {unit} {late.since_step} on"
    return f"{verb} in {late.late_steps} of {plural(late.replayed_steps, unit)}"


def describe_repairs(job: Job, unit: str) -> str:
    """Say what the step of a job becomes as its units are repaired one after the other."""
    first = job.stragglers[0]
    chain = [first.replayed_step_ns + first.saved_ns, *(one.replayed_step_ns for one in job.stragglers)]
    named = ", then ".join(one.name for one in job.stragglers[:_MOST_NAMED])
    more = f", then {len(job.stragglers) - _MOST_NAMED} more" if len(job.stragglers) > _MOST_NAMED else ""
    if len(job.stragglers) == 1:
        return (
            f"If {named} kept up with the others, the {unit} would take {duration(first.replayed_step_ns)}."
        )
    went = " → ".join(map(duration, chain))
    return f"If {named}{more} kept up with the others, the {unit} time would go from {went}."


def _describe_late_units(job: Job, unit: str) -> Iterator[str]:
    """Yield what holds the job up, in the order of repair; that nothing does, where that is known."""
    if job.stragglers:
        yield describe_late_unit(job, unit)
        saved_ns, step_ns = measure_leading_ns(job)
        fixed_ns = step_ns - saved_ns
        yield f"With this fixed, the {unit} would take {duration(fixed_ns)} instead of {duration(step_ns)}."
    for late in job.stragglers[len(job.leading) : _MOST_NAMED]:
        step_ns = late.replayed_step_ns + late.saved_ns
        repair = f"{duration(late.replayed_step_ns)} instead of {duration(step_ns)}"
        yield f"With {late.name} fixed as well, the {unit} would take {repair}: {late.why}."
    if not job.collectives.matched:
        return
    if job.replayed_step_ns is None:
        yield describe_unknown(job, unit)
    elif not job.stragglers:
        yield (
            f"Nothing holds the job up: with any one rank, node, stage or link like its peers, the {unit}"
            f" would be at most {percent(CULPRIT_SHARE)} shorter."
        )


def describe_unknown(job: Job, unit: str) -> str:
    """Say why it is unknown what holds a job up, and which rank waits least for the others."""
    unknown = f"It is unknown what holds the job up: no {unit} could be replayed from a start of all ranks."
    waits_ns = {member.name: member.peer_wait_ns for member in job.members}
    known_ns = {name: ns for name, ns in waits_ns.items() if ns is not None}
    if len(known_ns) < max(len(waits_ns), 2):
        return unknown
    last, *_, most = sorted(known_ns, key=lambda name: known_ns[name])
    if known_ns[most] - known_ns[last] < REPORTED_JITTER_SHARE * sum(job.walls.parts()):
        return unknown
    return (
        f"{unknown} {capitalize(last)} comes last: it waits {duration(known_ns[last])} for the others, while"
        f" {most} waits {duration(known_ns[most])}."
    )


def _describe_waits(job: Job, critical: RankWaits) -> Iterator[str]:
    """Yield the rank that waits most, and the critical rank; then waits without a straggler."""
    if not job.collectives.matched:
        none = (
            "No rank runs communication kernels"
            if not job.collectives.unmatched
            else "No collective was matched"
        )
        yield f"{none}, so waits between ranks are unknown."
        return
    yield from _describe_unmatched(job)
    most = max(job.members, key=lambda member: (member.all_wait_ns or 0, -member.place))
    if most.all_residence_ns and (most.all_wait_ns or 0) >= REPORTED_WAIT_SHARE * most.all_residence_ns:
        yield (
            f"In the capture, {most.name} spends {duration(most.all_residence_ns)} in collectives, including"
            f" {duration(most.all_wait_ns or 0)} of waiting for peers"
            + (
                f", while {critical.name} waits least and is {_BOUND[job.critical_wall]}."
                if critical is not most
                else "."
            )
        )
    step_ns = sum(job.walls.parts())
    if not job.stragglers and step_ns and job.collectives.jitter_ns >= REPORTED_JITTER_SHARE * step_ns:
        yield (
            f"On average, a rank waits {duration(job.collectives.jitter_ns)} per step"
            f" ({percent(job.collectives.jitter_ns / step_ns)}) for other ranks."
        )
    if job.pipeline:
        worst = max(job.pipeline, key=lambda stage: (stage.bubble_share, -stage.stage))
        yield (
            f"Of {plural(len(job.pipeline), 'pipeline stage')}, stage {worst.stage} waits longest for the"
            f" others: {percent(worst.bubble_share)} of its step."
        )


def _describe_unmatched(job: Job) -> Iterator[str]:
    """Yield how many collectives were not matched, and the ranks whose waiting is therefore unknown."""
    apart = [member for member in job.members if member.unmatched_count]
    if not apart:
        return
    unknown = [member.name for member in apart if member.peer_wait_ns is None]
    count = sum(member.unmatched_count for member in apart)
    whose = f"{plural(count, 'operation')} of {plural(len(apart), 'rank')}"
    sentence = f"{whose} could not be matched with all their peers"
    if unknown:
        more = f" and {len(unknown) - _MOST_NAMED} more" if len(unknown) > _MOST_NAMED else ""
        sentence += f", so it is unknown how long {', '.join(unknown[:_MOST_NAMED])}{more} waited"
    yield f"{sentence}."


def _describe_job_walls(job: Job, critical: RankWaits) -> Iterator[str]:
    if job.dominant_wall == job.critical_wall:
        bound = _BOUND[job.dominant_wall]
        yield f"The job is {bound}, and so is {critical.name}, which waits least."
    else:
        yield (
            f"The job is {_BOUND[job.dominant_wall]}, while {critical.name}, which waits least, is"
            f" {_BOUND[job.critical_wall]}."
        )
    if any(straggler.cause_wall is not None for straggler in job.stragglers):
        yield "Time spent waiting for a late unit is attributed to what delays that unit."
