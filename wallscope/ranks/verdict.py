"""What the ranks of a job say together, in a paragraph."""

from collections.abc import Iterator

from wallscope.model.job import Job, RankWaits
from wallscope.thresholds import TOLD_JITTER_SHARE, TOLD_WAIT_SHARE
from wallscope.units import duration, percent, plural

_MOST_NAMED = 3
_BOUND = {
    "compute": "compute-bound",
    "communication": "bound by communication",
    "memory": "memory-bound",
    "host": "host-bound",
    "mixed": "bound by no single wall",
    "unknown": "bound by what the capture does not tell",
}


def verdict(job: Job) -> str:
    """The paragraph: who is late and why, who waits, what bounds the critical rank, what is missing."""
    critical = job.members[job.critical_place]
    sentences = [*_late(job), *_waits(job, critical)]
    if job.collectives.matched:
        sentences += _walls(job, critical)
    if job.missing:
        named = ", ".join(map(str, job.missing[:8])) + (" …" if len(job.missing) > 8 else "")
        sentences.append(
            f"{plural(len(job.missing), 'rank')} of {job.world_size} not supplied ({named}): this speaks of"
            " the others alone."
        )
    return " ".join(sentences)


def _late(job: Job) -> Iterator[str]:
    repeated = [one for one in job.stragglers if one.repeated]
    in_turn = [one for one in job.stragglers if not one.repeated]
    for one in repeated[:_MOST_NAMED]:
        yield (
            f"{_capital(one.name)} is late on {one.late_steps} of {one.steps} steps, by"
            f" {duration(one.late_ns_median)}: {one.why}."
        )
    if len(repeated) > _MOST_NAMED:
        yield f"{plural(len(repeated) - _MOST_NAMED, 'more rank')} are late too."
    if in_turn and not repeated:
        worst = max(in_turn, key=lambda one: (one.late_ns_median * one.late_steps, -one.place))
        names = ", ".join(one.name for one in in_turn[:_MOST_NAMED])
        more = f" and {len(in_turn) - _MOST_NAMED} more" if len(in_turn) > _MOST_NAMED else ""
        yield (
            f"No rank is always late; {names}{more} {'is' if len(in_turn) == 1 else 'take turns'}:"
            f" {worst.name} on {worst.late_steps} of {worst.steps} steps, by"
            f" {duration(worst.late_ns_median)}: {worst.why}."
        )
    if not job.stragglers and job.collectives.matched:
        yield "No rank is late again and again."


def _waits(job: Job, critical: RankWaits) -> Iterator[str]:
    """Who waits most, beside the critical rank; then what is left of waiting without a straggler."""
    if not job.collectives.matched:
        none = (
            "No rank communicates by kernels"
            if not job.collectives.unmatched
            else "No collective was matched"
        )
        yield f"{none}: who waits for whom is unknown."
        return
    most = max(job.members, key=lambda one: (one.all_wait_ns, -one.place))
    if most.all_residence_ns and most.all_wait_ns >= TOLD_WAIT_SHARE * most.all_residence_ns:
        yield (
            f"In the capture {most.name} waits for peers {duration(most.all_wait_ns)} of the"
            f" {duration(most.all_residence_ns)} that its collectives last"
            + (
                f"; {critical.name}, which waits least, is {_BOUND[job.critical_wall]}."
                if critical is not most
                else "."
            )
        )
    step_ns = sum(job.walls.parts())
    if not job.stragglers and step_ns and job.collectives.jitter_ns >= TOLD_JITTER_SHARE * step_ns:
        yield (
            f"All wait for each other now and then: {duration(job.collectives.jitter_ns)} a step and rank"
            f" in the mean ({percent(job.collectives.jitter_ns / step_ns)})."
        )
    if job.pipeline:
        worst = max(job.pipeline, key=lambda stage: (stage.bubble_share, -stage.stage))
        yield (
            f"{plural(len(job.pipeline), 'pipeline stage')}: stage {worst.stage} waits most for the others,"
            f" {percent(worst.bubble_share)} of its step."
        )


def _walls(job: Job, critical: RankWaits) -> Iterator[str]:
    charged = ", waiting charged to what made ranks late" if _is_charged(job) else ""
    if job.dominant_wall == job.critical_wall:
        both = f"The job and its critical rank ({critical.name})"
        yield f"{both} are {_BOUND[job.dominant_wall]}{charged}."
    else:
        yield (
            f"The job is {_BOUND[job.dominant_wall]}{charged}; its critical rank ({critical.name}) is"
            f" {_BOUND[job.critical_wall]}."
        )


def _capital(text: str) -> str:
    return text[:1].upper() + text[1:]


def _is_charged(job: Job) -> bool:
    return any(one.cause_wall is not None for one in job.stragglers)
