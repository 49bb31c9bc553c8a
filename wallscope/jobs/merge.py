"""Merge the analyses of single exports into one job; exports of other jobs are left out and named.

The diagnosis is that of the critical rank, with its causes after waiting was split. Findings limit the
statements about the job. Reports and tables come only from the profiles of the ranks, the steps of the ranks
on one clock from what the analysis of each export kept at low detail.
"""

from bisect import bisect_left, bisect_right
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from functools import partial
from itertools import accumulate

import polars as pl

from wallscope.advice.recommend import recommend_again
from wallscope.cache_folder import Cache
from wallscope.errors import InputError, InternalError, ProfileError, WallscopeError
from wallscope.finding_texts import make_finding
from wallscope.jobs.inputs import Source
from wallscope.jobs.run import (
    DrawnAnalysis,
    Outcome,
    analyze_export,
    analyze_in_processes,
    analyze_on_cluster,
)
from wallscope.model.analysis import Analysis, Job
from wallscope.model.capture import Finding, Options, Progress
from wallscope.model.diagnosis import Diagnosis
from wallscope.model.finding_codes import FindingCode
from wallscope.model.profile import Profile
from wallscope.model.report import Report, StepOverviews
from wallscope.model.table_columns import JOB_TABLES, TABLES
from wallscope.model.tables import Table
from wallscope.profile.build import pack_profiles
from wallscope.profile.codec import unpack_profile
from wallscope.ranks.job import MatchedJob, match_ranks
from wallscope.ranks.job_sentences import describe_left_out
from wallscope.ranks.match_collectives import fit_line
from wallscope.ranks.other_runs import find_other_runs
from wallscope.ranks.tables import collective_lanes, job_table
from wallscope.records import dataclass
from wallscope.summary.diagnosis import (
    decide_wall,
    divide_opportunities,
    explain_open_wall,
    find_dominant_wall,
    find_scope,
    measure_wall_shares,
    select_working_ranks,
)
from wallscope.summary.light_bounds import limit_fixes
from wallscope.summary.step_timeline import decode_overviews, order_by_places
from wallscope.summary.tables import ANSWER_TABLES, build_answer_table
from wallscope.thresholds.verdict import CAPTURES_APART_NS, ENDS_FAR_APART_NS, UNMATCHED_COLLECTIVES_SHARE
from wallscope.units import duration, number, plural
from wallscope.views.opening import state_answer

_MOST_RANKS = 8
_MOST_NAMED = 12
_BETWEEN_RANGES = " / "
_OF_ONE = {FindingCode.ONE_RANK}


@dataclass(frozen=True, slots=True)
class RankClock:
    """What brings times of the session of a rank to the clock of the job: an offset, and a drift."""

    offset_ns: float
    drift: float

    def shift_ns(self, at_ns: int) -> int:
        """Return what to add to a time of the session."""
        return round(self.offset_ns + self.drift * at_ns)


def align_rank_clocks(known: MatchedJob) -> tuple[RankClock | None, ...]:
    """Return the clock of each rank, by matched collectives, else by the start of its session on one host.

    It is `None` where nothing ties the rank to the others.
    """
    of_member = known.rows_by_member()
    hosts = {profile.header.inputs[0].hostname for profile in known.profiles if profile.header.inputs}
    starts_ns = [_find_session(profile) for profile in known.profiles]
    first_ns = min((start_ns for start_ns in starts_ns if start_ns is not None), default=0)
    found: list[RankClock | None] = []
    for place, start_ns in enumerate(starts_ns):
        rows = of_member.get(place)
        tied = None if rows is None else rows.filter(pl.col("is_tied").fill_null(value=False))
        if tied is not None and len(tied):
            session_ns = tied["session_ns"].to_numpy()
            found.append(RankClock(*fit_line(session_ns, tied["start_ns"].to_numpy() - session_ns)))
            continue
        is_one_clock = len(hosts) == 1 and None not in hosts and start_ns is not None
        found.append(RankClock(float((start_ns or 0) - first_ns), 0.0) if is_one_clock else None)
    return tuple(found)


def _find_session(profile: Profile) -> int | None:
    inputs = profile.header.inputs
    return inputs[0].session_start_utc_ns if inputs else None


def join_timelines(
    parts: Sequence[tuple[int, bytes | None]], known: MatchedJob, place: int
) -> StepOverviews | None:
    """Return the steps of some ranks on the clock of the job; `None` where no export kept any.

    Args:
        parts: the place of the first rank of each export, and what the export kept (`encode_overviews`).
        known: the matched job.
        place: the rank of the diagnosis; its steps come first.
    """
    read = [(first, decode_overviews(content)) for first, content in parts if content is not None]
    if not read:
        return None
    moved = [
        [frame.with_columns(pl.col("place") + first) for frame in (one.steps, one.slices, one.operations)]
        for first, one in read
    ]
    steps, slices, operations = (pl.concat(frames) for frames in zip(*moved, strict=True))
    shown = _choose_places(steps["place"].unique().to_list(), known, place)
    clocks = align_rank_clocks(known)
    shifts = [
        None if (clock := clocks[one]) is None else clock.shift_ns(start_ns)
        for one, start_ns in steps.select("place", "start_ns").iter_rows()
    ]
    steps = steps.with_columns(pl.Series("shift_ns", shifts, pl.Int64))
    return order_by_places(StepOverviews(steps, slices, operations), shown)


def _choose_places(drawn: Sequence[int], known: MatchedJob, place: int) -> list[int]:
    """Choose the rank of the diagnosis, late ranks, the critical one, those that represent groups, others."""
    job = known.job
    wanted = [place, *(one.place for one in job.stragglers), job.critical_place]
    wanted += [group.representative for group in job.groups]
    return [one for one in dict.fromkeys([*wanted, *sorted(drawn)]) if one in set(drawn)][:_MOST_RANKS]


def merge_findings(analyses: Sequence[Analysis]) -> tuple[Finding, ...]:
    """Return the findings of all exports, one a code: the message of the first, and how many have it.

    What limits one rank alone is left out where there are more.
    """
    of_code: dict[str, list[Finding]] = {}
    for one in analyses:
        for finding in one.capture.findings:
            if finding.code not in _OF_ONE or len(analyses) == 1:
                of_code.setdefault(finding.code, []).append(finding)
    return tuple(_join_alike(own, len(analyses)) for own in of_code.values())


def _join_alike(findings: list[Finding], count: int) -> Finding:
    first = findings[0]
    covered = [finding.covers_ns for finding in findings if finding.covers_ns is not None]
    exports = f"all {count}" if len(findings) == count else f"{len(findings)} of {count}"
    alike = f" It is the same in {exports} exports." if len(findings) > 1 else ""
    return replace(first, message=f"{first.message}{alike}", covers_ns=sum(covered) if covered else None)


def _find_missing_ranks(job: Job) -> Iterator[Finding]:
    if not job.missing and job.ranks >= (job.world_size or 0):
        return
    named = ", ".join(map(str, job.missing[:_MOST_NAMED])) + (" …" if len(job.missing) > _MOST_NAMED else "")
    which = f": {named} missing" if job.missing else ""
    ranks = plural(job.world_size or job.ranks + len(job.missing), "rank")
    yield make_finding(
        FindingCode.RANKS_MISSING,
        supplied=job.ranks,
        ranks=ranks if job.world_size else f"at least {ranks}",
        which=which,
    )


def _find_unmatched(job: Job) -> Iterator[Finding]:
    own = job.collectives
    alone = own.unmatched + own.partial
    if job.ranks < 2 or not alone or alone < UNMATCHED_COLLECTIVES_SHARE * (own.matched + alone):
        return
    yield make_finding(
        FindingCode.COLLECTIVES_UNMATCHED,
        unmatched=number(own.unmatched),
        partial=number(own.partial),
        matched=number(own.matched),
    )


def _find_clocks_apart(job: Job) -> Iterator[Finding]:
    clock = job.clock
    low_ns, high_ns = clock.residual_p05_ns or 0, clock.residual_p95_ns or 0
    if clock.method == "unaligned":
        loose = [host.hostname or "unknown host" for host in clock.hosts if host.offset_ns is None]
        yield make_finding(
            FindingCode.CLOCKS_APART, "unaligned", hosts=plural(len(loose), "host"), first=loose[0]
        )
    elif max(-low_ns, high_ns) >= ENDS_FAR_APART_NS:
        yield make_finding(FindingCode.CLOCKS_APART, "residual", low=duration(low_ns), high=duration(high_ns))


def update_diagnosis(analysis: Analysis, known: MatchedJob) -> Analysis:
    """Return the answer about a job with verdict, ceilings and fixes by the causes that its ranks have now.

    It is that of the critical rank, even if an export of several chose another one. Then the next wall and
    memory pressure are unknown, and only fixes that also address the other rank are listed.
    """
    found = _diagnose_critical_rank(analysis, known)
    place = found.rank_index
    rank, profile, steps = analysis.ranks[place], known.profiles[place], known.steps[place]
    won = divide_opportunities(analysis.opportunities, rank)
    decision = decide_wall(steps.walls, steps.open_ns(profile))
    decided = replace(
        found,
        runner_up=str(decision.runner_up),
        margin=decision.margin,
        led_steps=decision.led_steps,
        steady_steps=steps.steady,
        walls=measure_wall_shares(steps.walls, rank.typical.walls, steady=steps.steady > 0),
        steps_wall=decision.dominant,
        decided_steps=decision.step_count,
        is_mean=decision.is_mean,
        unknown=explain_open_wall(rank, decision),
    )
    again = recommend_again(replace(analysis, diagnosis=decided, opportunities=won), _list_names(profile))
    return state_answer(limit_fixes(again))


def _diagnose_critical_rank(analysis: Analysis, known: MatchedJob) -> Diagnosis:
    """Return the diagnosis of the critical rank, if that one works; else that of the answer."""
    place = known.job.critical_place
    rank, steps = analysis.ranks[place], known.steps[place]
    if place == analysis.diagnosis.rank_index or not any(
        rank is one for one in select_working_ranks(analysis.ranks)
    ):
        return analysis.diagnosis
    decision = decide_wall(steps.walls, steps.open_ns(known.profiles[place]))
    return Diagnosis(dominant_wall=decision.dominant, verdict="", rank_index=place)


def _list_names(profile: Profile) -> pl.Series:
    """Return names of the kernels and ranges that a profile knows."""
    ranges = profile.keys["path"].unique().str.split(_BETWEEN_RANGES).explode()
    return pl.concat([profile.keys["name"], ranges.alias("name")]).unique().sort()


@dataclass(frozen=True, slots=True)
class _Analyzed:
    path: Source
    analysis: Analysis
    profiles: tuple[Profile, ...]
    timeline: bytes | None = None

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
    """The analysis of a job, its matched ranks, and their steps at low detail on one clock if asked for."""

    analysis: Analysis
    known: MatchedJob
    overviews: StepOverviews | None = None


def run_job(  # noqa: PLR0913  # what the user may ask for
    paths: Sequence[Source],
    options: Options,
    progress: Progress,
    *,
    jobs: int = 1,
    dask: str | None = None,
    keep_going: bool = False,
    cache: Cache | None = None,
    with_timeline: bool = False,
) -> JobAnswer:
    """Return the answer about the job of some exports.

    They are analyzed by `jobs` processes at once, or by the cluster at `dask`. Exports that repeat a rank, or
    belong to another job than most, are left out and named. A cluster sends answers alone: no timeline.

    Raises:
        WallscopeError: an export cannot be analyzed; with `keep_going` only if none can; no cluster.
    """
    one = partial(analyze_export, cache=cache, with_timeline=with_timeline and dask is None)
    if dask is None:
        coming = analyze_in_processes(paths, options, jobs, progress, one)
    else:
        coming = analyze_on_cluster(dask, paths, options, progress, one)
    read = {place: _read_outcome(paths[place], outcome) for place, outcome in coming}
    found = [read[place] for place in range(len(paths))]
    failed = [one for one in found if not isinstance(one, _Analyzed)]
    if failed and (not keep_going or len(failed) == len(paths)):
        for _, error in failed:
            if isinstance(error, InternalError):
                raise error
        raise _with_hint(failed, len(paths), keep_going=keep_going)
    progress("matching collectives")
    left_out = [_report_left_out(path.name, str(error).removeprefix(f"{path} — ")) for path, error in failed]
    kept, others = _keep_one_job([one for one in found if isinstance(one, _Analyzed)])
    kept, rivals, copies = _drop_duplicates(kept)
    unheard = (*left_out, *others, *rivals)
    return _merge_analyses(kept, (*unheard, *copies), len(unheard))


def _read_outcome(path: Source, outcome: Outcome) -> _Analyzed | tuple[Source, WallscopeError]:
    """Return an answer with its profiles, read while others are being worked out, or why there is none."""
    if isinstance(outcome, WallscopeError):
        return path, outcome
    analysis, timeline = (
        (outcome.analysis, outcome.timeline) if isinstance(outcome, DrawnAnalysis) else (outcome, None)
    )
    try:
        packed = [rank.profile for rank in analysis.ranks if rank.profile is not None]
        profiles = tuple(unpack_profile(one, str(path), is_checked=True) for one in packed)
        return _Analyzed(path, analysis, profiles, timeline)
    except ProfileError as error:
        return path, error


def _with_hint(
    failed: Sequence[tuple[Source, WallscopeError]], count: int, *, keep_going: bool
) -> WallscopeError:
    path, first = failed[0]
    named = str(first) if str(first).startswith((f"{path} ", f"{path}/")) else f"{path} — {first}"
    more = f"; {plural(len(failed) - 1, 'more export')} of {count} too" if len(failed) > 1 else ""
    hint = "" if keep_going or count == len(failed) else "; --keep-going analyzes the others"
    return InputError(f"{named}{more}{hint}")


def _report_left_out(name: str, why: str) -> Finding:
    return make_finding(FindingCode.EXPORT_LEFT_OUT, name=name, why=why)


def _keep_one_job(analyzed: Sequence[_Analyzed]) -> tuple[list[_Analyzed], list[Finding]]:
    """Return the exports of the job with most ranks, and findings about the others."""
    sizes: Counter[int] = Counter()
    for one in analyzed:
        if one.analysis.capture.world_size:
            sizes[one.analysis.capture.world_size] += len(one.analysis.ranks)
    kept, findings = list(analyzed), []
    if len(sizes) > 1:
        (size, _) = max(sizes.items(), key=lambda entry: (entry[1], entry[0]))
        for one in analyzed:
            own = one.analysis.capture.world_size
            if own not in {None, size}:
                kept.remove(one)
                findings.append(
                    _report_left_out(one.path.name, f"it belongs to a job of {own} ranks, not {size}")
                )
    starts = {id(one): start for one in kept if (start := one.analysis.inputs[0].session_start_utc_ns)}
    if starts:
        ordered = sorted(starts.values())
        near = max(
            ordered,
            key=lambda at: (
                bisect_right(ordered, at + CAPTURES_APART_NS) - bisect_left(ordered, at - CAPTURES_APART_NS),
                -at,
            ),
        )
        for one in tuple(kept):
            start = starts.get(id(one))
            if start is not None and abs(start - near) > CAPTURES_APART_NS:
                kept.remove(one)
                apart = duration(abs(start - near))
                when = "after" if start > near else "before"
                findings.append(_report_left_out(one.path.name, f"it was captured {apart} {when} the others"))
    world_size = max((one.analysis.capture.world_size or 0 for one in kept), default=0) or None
    others = [kept[place] for place in find_other_runs([one.profiles for one in kept], world_size)]
    for one in others:
        kept.remove(one)
        findings.append(
            _report_left_out(
                one.path.name, "it belongs to another run: others have none of its communicators"
            )
        )
    return kept, findings


def _drop_duplicates(
    analyzed: Sequence[_Analyzed],
) -> tuple[list[_Analyzed], list[Finding], list[Finding]]:
    """Drop exports that hold a rank again: of two, the one with more ranks stays, or the first.

    Findings about other captures of a rank come before those about copies, which say nothing new.
    """
    kept: list[_Analyzed] = []
    rivals: list[Finding] = []
    copies: list[Finding] = []
    of_content: dict[str, _Analyzed] = {}
    of_number: dict[int, int] = {}
    of_process: dict[tuple[str | int | None, ...], int] = {}
    for one in sorted(analyzed, key=lambda one: -len(one.analysis.ranks)):
        print_of, numbers, processes = one.analysis.inputs[0].fingerprint, one.numbers, one.processes
        same = of_content.get(print_of)
        taken = min((of_number[number] for number in numbers & of_number.keys()), default=None)
        again = min((of_process[process] for process in processes & of_process.keys()), default=None)
        if same is not None:
            copies.append(_report_left_out(one.path.name, f"it has the content of {same.path.name}"))
        elif taken is not None:
            ranks = ", ".join(map(str, sorted(numbers & kept[taken].numbers)))
            rivals.append(
                _report_left_out(one.path.name, f"rank {ranks} is already covered by {kept[taken].path.name}")
            )
        elif again is not None:
            copies.append(_report_left_out(one.path.name, f"{kept[again].path.name} has the same capture"))
        else:
            of_content[print_of] = one
            of_number |= dict.fromkeys(numbers, len(kept))
            of_process |= dict.fromkeys(processes, len(kept))
            kept.append(one)
    chosen = {id(one) for one in kept}
    return [one for one in analyzed if id(one) in chosen], rivals, copies


def _merge_analyses(
    analyzed: Sequence[_Analyzed], findings: tuple[Finding, ...], unheard_count: int
) -> JobAnswer:
    """Merge the analyses of the exports of one job; the diagnosis is that of the critical rank.

    `findings` are about the exports that were left out; `unheard_count` of these are other captures.
    """
    analyzed = sorted(analyzed, key=lambda one: _first_rank(one.analysis))
    ordered = [one.analysis for one in analyzed]
    ranks = tuple(replace(rank, input=number) for number, one in enumerate(ordered) for rank in one.ranks)
    export_of_rank = [number for number, one in enumerate(ordered) for _ in one.ranks]
    first_place = list(accumulate((len(one.ranks) for one in ordered), initial=0))
    world_size = max((one.capture.world_size or 0 for one in ordered), default=0) or None
    profiles = tuple(profile for one in analyzed for profile in one.profiles)
    known = match_ranks(profiles, find_dominant_wall, world_size)
    job = known.job
    ranks = known.split_ranks(ranks, [len(ordered[number].ranks) for number in export_of_rank])
    critical = ordered[export_of_rank[job.critical_place]]
    place = first_place[export_of_rank[job.critical_place]] + critical.diagnosis.rank_index
    found = replace(
        critical,
        inputs=tuple(one.inputs[0] for one in ordered),
        capture=replace(
            critical.capture,
            findings=(
                *findings,
                *_find_missing_ranks(job),
                *_find_unmatched(job),
                *_find_clocks_apart(job),
                *merge_findings(ordered),
            ),
            ranks_supplied=len(ranks),
            world_size=world_size,
        ),
        ranks=ranks,
        diagnosis=replace(critical.diagnosis, rank_index=place),
        job=_add_left_out(job, findings),
    )
    packed = found.ranks
    if job.collectives.matched:
        found = update_diagnosis(found, known)
        packed = pack_profiles(found.ranks, known.profiles, found.diagnosis.rank_index)
    found = _limit_confidence(replace(found, ranks=packed, scope=find_scope(found)), unheard_count)
    parts = [(first_place[number], one.timeline) for number, one in enumerate(analyzed)]
    return JobAnswer(found, known, join_timelines(parts, known, found.diagnosis.rank_index))


def _limit_confidence(found: Analysis, left_out: int) -> Analysis:
    """Return the answer about the exports that were kept; its confidence is not high if others were not."""
    confidence, kept = found.diagnosis.confidence, len(found.inputs)
    if not left_out or confidence is None:
        return found
    total = plural(kept + left_out, "export")
    reason = f"{left_out} of {total} {'was' if left_out == 1 else 'were'} left out"
    limited = replace(
        confidence,
        level="medium" if confidence.level == "high" else confidence.level,
        reasons=(*confidence.reasons, reason),
    )
    return state_answer(replace(found, diagnosis=replace(found.diagnosis, confidence=limited)))


def _first_rank(one: Analysis) -> tuple[bool, int]:
    known = [rank.rank for rank in one.ranks if rank.rank is not None]
    return not known, min(known, default=0)


def _add_left_out(job: Job, findings: tuple[Finding, ...]) -> Job:
    """Return the job with the exports that were left out in its verdict."""
    return replace(job, verdict=" ".join((job.verdict, *describe_left_out(findings))))


def rematch_ranks(analysis: Analysis) -> MatchedJob:
    """Match the ranks of an analysis again, from the profiles in it.

    Raises:
        ProfileError: one has another version.
    """
    profiles = [
        unpack_profile(rank.profile, analysis.inputs[rank.input].name)
        for rank in analysis.ranks
        if rank.profile is not None
    ]
    return match_ranks(profiles, find_dominant_wall, analysis.capture.world_size)


def list_job_tables(
    analysis: Analysis, known: MatchedJob
) -> tuple[tuple[Table, ...], Callable[[str], pl.DataFrame]]:
    """Return the tables of a job, and a function that makes each: of its analysis or of its matched ranks."""
    of_job = {table.name for table in JOB_TABLES}

    def frame(name: str) -> pl.DataFrame:
        return job_table(known, name) if name in of_job else build_answer_table(analysis, name)

    return (*(table for table in TABLES if table.name in ANSWER_TABLES), *JOB_TABLES), frame


def job_report(analysis: Analysis, known: MatchedJob, overviews: StepOverviews | None = None) -> Report:
    """Return the answer about a job with its collectives; steps in detail and gaps need a single export."""
    return Report(analysis, (), (), lanes=collective_lanes(known), overviews=overviews)
