"""What limits the claims about a job: missing ranks, collectives without partners, clocks that do not fit."""

from collections.abc import Sequence

from wallscope.model.analysis import Analysis
from wallscope.model.capture import Finding, Severity
from wallscope.model.job import Job
from wallscope.thresholds import ENDS_FAR_APART_NS, UNMATCHED_COLLECTIVES_SHARE
from wallscope.units import duration, number, plural

_MOST_NAMED = 12
_OF_ONE = {"one-rank"}


def job_findings(job: Job) -> tuple[Finding, ...]:
    """Findings about the job as a whole, the gravest first."""
    return (*_missing(job), *_unmatched(job), *_clocks(job))


def merged_findings(analyses: Sequence[Analysis]) -> tuple[Finding, ...]:
    """The findings of all exports, those of a code together: the message of the first, and how many more.

    What one rank alone cannot tell is left out where there are more.
    """
    of_code: dict[str, list[Finding]] = {}
    for one in analyses:
        for finding in one.capture.findings:
            if finding.code not in _OF_ONE or len(analyses) == 1:
                of_code.setdefault(finding.code, []).append(finding)
    return tuple(_together(own, len(analyses)) for own in of_code.values())


def _together(findings: list[Finding], count: int) -> Finding:
    first = findings[0]
    covered = [finding.covers_ns for finding in findings if finding.covers_ns is not None]
    alike = f" (so or alike in {len(findings)} of {count} exports)" if len(findings) > 1 else ""
    return Finding(
        first.code, first.severity, f"{first.message}{alike}", first.cure, sum(covered) if covered else None
    )


def _missing(job: Job) -> tuple[Finding, ...]:
    if job.world_size is None or job.ranks >= job.world_size:
        return ()
    named = ", ".join(map(str, job.missing[:_MOST_NAMED])) + (" …" if len(job.missing) > _MOST_NAMED else "")
    which = f": {named} missing" if job.missing else ""
    return (
        Finding(
            "ranks-missing",
            Severity.WARNING,
            f"{job.ranks} of {plural(job.world_size, 'rank')} supplied{which}. Who is late among the"
            " others is not known, and collectives that lack a participant are not split.",
            "Capture all ranks.",
        ),
    )


def _unmatched(job: Job) -> tuple[Finding, ...]:
    own = job.collectives
    alone = own.unmatched + own.partial
    if job.ranks < 2 or not alone or alone < UNMATCHED_COLLECTIVES_SHARE * (own.matched + alone):
        return ()
    return (
        Finding(
            "collectives-unmatched",
            Severity.INFO,
            f"{number(own.unmatched)} collectives have no partner and {number(own.partial)} lack a"
            f" participant, beside {number(own.matched)} matched: there waiting is not told from transfer.",
            "Capture the same steps on all ranks, and export with --include-blobs=true.",
        ),
    )


def _clocks(job: Job) -> tuple[Finding, ...]:
    clock = job.clock
    if clock.method == "unaligned":
        loose = [host.hostname or "unknown host" for host in clock.hosts if host.offset_ns is None]
        return (
            Finding(
                "clocks-apart",
                Severity.WARNING,
                f"The clocks of {plural(len(loose), 'host')} cannot be tied to the others ({loose[0]}): no"
                " collective of both was matched.",
                "Capture the same steps on all ranks.",
            ),
        )
    low_ns, high_ns = clock.residual_p05_ns or 0, clock.residual_p95_ns or 0
    if max(-low_ns, high_ns) < ENDS_FAR_APART_NS:
        return ()
    return (
        Finding(
            "clocks-apart",
            Severity.INFO,
            f"Ends of one collective lie apart by {duration(low_ns)} to {duration(high_ns)} (p05 to p95): no"
            " lateness below that is claimed.",
        ),
    )
