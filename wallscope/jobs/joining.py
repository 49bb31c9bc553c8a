"""The answers about single exports put together: one job, what does not belong to it left out and said."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial

from wallscope.cache import Cache
from wallscope.errors import InputError, ProfileError, WallscopeError
from wallscope.jobs.cluster import outcomes_on
from wallscope.jobs.findings import job_findings, merged_findings
from wallscope.jobs.remote import Source
from wallscope.jobs.speaking import told_again
from wallscope.jobs.workers import Outcome, analysed, outcomes
from wallscope.model.analysis import Analysis
from wallscope.model.capture import Finding, Progress, Severity
from wallscope.model.job import Job
from wallscope.model.options import Options
from wallscope.model.profile import Profile
from wallscope.profile import profiled, unpacked
from wallscope.ranks.job import MatchedJob, match_ranks
from wallscope.thresholds import CAPTURES_APART_NS
from wallscope.units import plural
from wallscope.walls.diagnosis import dominant_wall


@dataclass(frozen=True, slots=True)
class _Given:
    path: Source
    analysis: Analysis
    profiles: tuple[Profile, ...]

    @property
    def numbers(self) -> frozenset[int]:
        return frozenset(rank.rank for rank in self.analysis.ranks if rank.rank is not None)

    @property
    def processes(self) -> frozenset[tuple[str | int | None, ...]]:
        """What one capture alone holds: processes on devices, with the host and start of the session."""
        export = self.analysis.inputs[0]
        if export.hostname is None or export.session_start_utc_ns is None:
            return frozenset()
        session = (export.hostname, export.session_start_utc_ns)
        return frozenset(
            (*session, rank.pid, rank.device) for rank in self.analysis.ranks if rank.pid is not None
        )


@dataclass(frozen=True, slots=True)
class JobAnswer:
    """The answer about a job, and what its ranks tell together."""

    analysis: Analysis
    known: MatchedJob


def analyzed_job(  # noqa: PLR0913  # what the user may ask for
    paths: Sequence[Source],
    options: Options,
    progress: Progress,
    *,
    jobs: int = 1,
    dask: str | None = None,
    keep_going: bool = False,
    cache: Cache | None = None,
) -> JobAnswer:
    """The answer about the job that some exports are of.

    They are analysed by `jobs` processes at once, or by the cluster at `dask`. Exports that tell a rank
    again, or are of another job than most, are left out and named.

    Raises:
        WallscopeError: an export cannot be analysed; with `keep_going` only if none can; no cluster.
    """
    one = partial(analysed, cache=cache)
    if dask is None:
        coming = outcomes(paths, options, jobs, progress, one)
    else:
        coming = outcomes_on(dask, paths, options, progress, one)
    read = {place: _read(paths[place], outcome) for place, outcome in coming}
    found = [read[place] for place in range(len(paths))]
    failed = [one for one in found if not isinstance(one, _Given)]
    if failed and (not keep_going or len(failed) == len(paths)):
        raise _with_hint(failed, len(paths), keep_going=keep_going)
    progress("matching collectives")
    left_out = [_left_out(path.name, _why(path, error)) for path, error in failed]
    kept, others = _of_one_job([one for one in found if isinstance(one, _Given)])
    kept, again = _once(kept)
    return _joined(kept, (*left_out, *others, *again))


def _read(path: Source, outcome: Outcome) -> _Given | tuple[Source, WallscopeError]:
    """An answer with its profiles, read while others are being worked out, or why there is none."""
    if isinstance(outcome, WallscopeError):
        return path, outcome
    try:
        packed = [rank.profile for rank in outcome.ranks if rank.profile is not None]
        return _Given(path, outcome, tuple(unpacked(one, str(path)) for one in packed))
    except ProfileError as error:
        return path, error


def _with_hint(
    failed: Sequence[tuple[Source, WallscopeError]], count: int, *, keep_going: bool
) -> WallscopeError:
    path, first = failed[0]
    named = str(first) if str(first).startswith(str(path)) else f"{path} — {first}"
    more = f"; {plural(len(failed) - 1, 'more export')} of {count} too" if len(failed) > 1 else ""
    hint = "" if keep_going else "; --keep-going analyses the others"
    return InputError(f"{named}{more}{hint}")


def _why(path: Source, error: WallscopeError) -> str:
    """What an error says of an export, without its name where it begins with it."""
    return str(error).removeprefix(f"{path} — ")


def _left_out(name: str, why: str) -> Finding:
    return Finding("export-left-out", Severity.WARNING, f"{name} is left out: {why}.")


def _of_one_job(given: Sequence[_Given]) -> tuple[list[_Given], list[Finding]]:
    """The exports of the job that most ranks are of, and findings about the others."""
    sizes: Counter[int] = Counter()
    for one in given:
        if one.analysis.capture.world_size:
            sizes[one.analysis.capture.world_size] += len(one.analysis.ranks)
    kept, findings = list(given), []
    if len(sizes) > 1:
        (size, _) = max(sizes.items(), key=lambda entry: (entry[1], entry[0]))
        for one in given:
            own = one.analysis.capture.world_size
            if own not in {None, size}:
                kept.remove(one)
                findings.append(_left_out(one.path.name, f"it is of a job of {own} ranks, not {size}"))
    starts = {id(one): start for one in kept if (start := one.analysis.inputs[0].session_start_utc_ns)}
    if starts:
        near = max(
            starts.values(),
            key=lambda at: (sum(abs(at - other) <= CAPTURES_APART_NS for other in starts.values()), -at),
        )
        for one in tuple(kept):
            start = starts.get(id(one))
            if start is not None and abs(start - near) > CAPTURES_APART_NS:
                kept.remove(one)
                minutes = round(abs(start - near) / 60e9)
                when = "after" if start > near else "before"
                findings.append(
                    _left_out(one.path.name, f"it was captured {minutes} minutes {when} the others")
                )
    return kept, findings


def _once(given: Sequence[_Given]) -> tuple[list[_Given], list[Finding]]:
    """The exports without those that tell a rank again: of two, that of more ranks stays, or the first."""
    kept: list[_Given] = []
    findings: list[Finding] = []
    for one in sorted(given, key=lambda one: -len(one.analysis.ranks)):
        print_of = one.analysis.inputs[0].fingerprint
        same = next((other for other in kept if other.analysis.inputs[0].fingerprint == print_of), None)
        taken = next((other for other in kept if one.numbers & other.numbers), None)
        again = next((other for other in kept if one.processes & other.processes), None)
        if same is not None:
            findings.append(_left_out(one.path.name, f"it has the content of {same.path.name}"))
        elif taken is not None:
            ranks = ", ".join(map(str, sorted(one.numbers & taken.numbers)))
            findings.append(_left_out(one.path.name, f"rank {ranks} is told by {taken.path.name} already"))
        elif again is not None:
            findings.append(_left_out(one.path.name, f"{again.path.name} is of the same capture"))
        else:
            kept.append(one)
    return [one for one in given if any(one is other for other in kept)], findings


def _joined(given: Sequence[_Given], findings: tuple[Finding, ...]) -> JobAnswer:
    """One answer out of those about the exports of one job; the diagnosis is that of the critical rank."""
    given = sorted(given, key=lambda one: _first_rank(one.analysis))
    ordered = [one.analysis for one in given]
    ranks = tuple(replace(rank, input=number) for number, one in enumerate(ordered) for rank in one.ranks)
    owner = [number for number, one in enumerate(ordered) for _ in one.ranks]
    first_place = [owner.index(number) for number in range(len(ordered))]
    world_size = max((one.capture.world_size or 0 for one in ordered), default=0) or None
    profiles = tuple(profile for one in given for profile in one.profiles)
    known = match_ranks(profiles, dominant_wall, world_size)
    job, ranks = known.job, known.split_ranks(ranks, [len(ordered[number].ranks) for number in owner])
    speaking = ordered[owner[job.critical_place]]
    place = first_place[owner[job.critical_place]] + speaking.diagnosis.rank_index
    found = replace(
        speaking,
        inputs=tuple(one.inputs[0] for one in ordered),
        capture=replace(
            speaking.capture,
            findings=(*findings, *job_findings(job), *merged_findings(ordered)),
            ranks_supplied=len(ranks),
            world_size=world_size,
        ),
        ranks=ranks,
        diagnosis=replace(speaking.diagnosis, rank_index=place),
        job=_limited(job, findings),
    )
    told = profiled(told_again(found, known), known.profiles) if job.collectives.matched else found
    return JobAnswer(told, known)


def _first_rank(one: Analysis) -> tuple[bool, int]:
    known = [rank.rank for rank in one.ranks if rank.rank is not None]
    return not known, min(known, default=0)


def _limited(job: Job, findings: tuple[Finding, ...]) -> Job:
    """The job with what was left out said in its verdict."""
    count = sum(finding.code == "export-left-out" for finding in findings)
    if not count:
        return job
    return replace(job, verdict=f"{job.verdict} {plural(count, 'export')} left out: see the limits.")
