"""What is said of a job: what holds it up and why, waiting ranks, its wall, and what is missing."""

from collections.abc import Iterable, Iterator

from wallscope.model.analysis import Job, RankWaits, Straggler, UnitKind
from wallscope.model.capture import Finding
from wallscope.model.finding_codes import FindingCode
from wallscope.thresholds.causes import CULPRIT_SHARE, REPORTED_JITTER_SHARE, REPORTED_WAIT_SHARE
from wallscope.units import capitalize, duration, percent, plural

_MOST_NAMED = 3
_BOUND = {
    "compute": "compute-bound",
    "communication": "communication-bound",
    "memory": "memory-bound",
    "host": "host-bound",
    "mixed": "limited by several walls",
    "unknown": "limited by an unknown wall",
}


def list_job_sentences(job: Job, unit: str) -> tuple[str, ...]:
    """Return sentences: late ranks and causes, waiting ranks, the critical rank's wall, missing ranks."""
    critical = job.members[job.critical_place]
    sentences = [*_describe_late_ranks(job, unit), *_describe_waits(job, critical)]
    if job.collectives.matched:
        sentences += _describe_job_walls(job, critical)
    if job.missing:
        named = ", ".join(map(str, job.missing[:8])) + (" …" if len(job.missing) > 8 else "")
        sentences.append(
            f"{plural(len(job.missing), 'rank')} of {job.world_size} not supplied ({named}): the results"
            " cover only the others."
        )
    return tuple(sentences)


def describe_left_out(findings: Iterable[Finding]) -> str:
    """Say how many exports of a job were left out; empty if none was."""
    count = sum(finding.code == FindingCode.EXPORT_LEFT_OUT for finding in findings)
    return f"{plural(count, 'export')} left out: see the limits." if count else ""


def _describe_late_ranks(job: Job, unit: str) -> Iterator[str]:
    """Yield what holds the job up, in the order of repair; that nothing does, where that is known."""
    for place, straggler in enumerate(job.stragglers[:_MOST_NAMED]):
        yield _describe_straggler(straggler, unit, is_first=place == 0)
    if not job.collectives.matched:
        return
    if job.replayed_step_ns is None:
        yield f"What holds the job up is unknown: no {unit} of all ranks could be replayed."
    elif not job.stragglers:
        yield (
            f"Nothing holds the job up: with any rank, node, stage or link like its peers, the {unit} is at"
            f" most {percent(CULPRIT_SHARE)} shorter."
        )


def _describe_straggler(late: Straggler, unit: str, *, is_first: bool) -> str:
    step_ns = late.replayed_step_ns + late.late_ns_median
    begin = capitalize(late.name) if is_first else f"Then {late.name}"
    verb = "hold" if late.unit is UnitKind.JOB else "holds"
    return (
        f"{begin} {verb} the job up: repaired, the {unit} takes {duration(late.replayed_step_ns)} instead of"
        f" {duration(step_ns)} ({duration(late.late_ns_median)} less): {late.why}."
    )


def _describe_waits(job: Job, critical: RankWaits) -> Iterator[str]:
    """Yield the rank that waits most, and the critical rank; then waits without a straggler."""
    if not job.collectives.matched:
        none = (
            "No rank runs communication kernels"
            if not job.collectives.unmatched
            else "No collective was matched"
        )
        yield f"{none}: waits between ranks are unknown."
        return
    yield from _describe_unmatched(job)
    most = max(job.members, key=lambda member: (member.all_wait_ns or 0, -member.place))
    if most.all_residence_ns and (most.all_wait_ns or 0) >= REPORTED_WAIT_SHARE * most.all_residence_ns:
        yield (
            f"In the capture {most.name} spends {duration(most.all_residence_ns)} in collectives, of which"
            f" {duration(most.all_wait_ns or 0)} is waiting for peers"
            + (
                f"; {critical.name} waits least and is {_BOUND[job.critical_wall]}."
                if critical is not most
                else "."
            )
        )
    step_ns = sum(job.walls.parts())
    if not job.stragglers and step_ns and job.collectives.jitter_ns >= REPORTED_JITTER_SHARE * step_ns:
        yield (
            f"Each rank waits for others {duration(job.collectives.jitter_ns)} per step on"
            f" average ({percent(job.collectives.jitter_ns / step_ns)})."
        )
    if job.pipeline:
        worst = max(job.pipeline, key=lambda stage: (stage.bubble_share, -stage.stage))
        yield (
            f"{plural(len(job.pipeline), 'pipeline stage')}: stage {worst.stage} waits most for the others,"
            f" {percent(worst.bubble_share)} of its step."
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
        sentence += f": the waiting of {', '.join(unknown[:_MOST_NAMED])}{more} is unknown"
    yield f"{sentence}."


def _describe_job_walls(job: Job, critical: RankWaits) -> Iterator[str]:
    if job.dominant_wall == job.critical_wall:
        both = f"The job, and {critical.name}, which waits least,"
        yield f"{both} are {_BOUND[job.dominant_wall]}."
    else:
        yield (
            f"The job is {_BOUND[job.dominant_wall]}; {critical.name}, which waits least, is"
            f" {_BOUND[job.critical_wall]}."
        )
    if any(straggler.cause_wall is not None for straggler in job.stragglers):
        yield "A wait for a late rank counts as what delayed that rank."
