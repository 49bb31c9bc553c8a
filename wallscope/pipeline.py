"""The pipeline: an export is read, its operations are named, its time is divided and accounted for."""

from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import polars as pl

from wallscope._version import __version__
from wallscope.attribution.prepared import (
    Prepared,
    Trace,
    list_rank_windows,
    measure_rank_work,
    select_rank_windows,
)
from wallscope.errors import NothingToAnalyzeError
from wallscope.finding_texts import adapt_cures
from wallscope.model.advice import Program, RunConfiguration
from wallscope.model.analysis import SCHEMA, Analysis, Anchor, CaptureQuality, Job, Rank
from wallscope.model.capture import Capture, Finding, Options, Progress
from wallscope.model.finding_codes import FindingCode
from wallscope.model.profile import Profile
from wallscope.model.rank_summaries import OverlapTax
from wallscope.model.report import MEETING_LANES, SHOWN_PATH, Report, StepOverviews
from wallscope.model.schemas import SLICES
from wallscope.model.whatif import WHATIF_SCHEMA, Asked, Replayed, WhatIf
from wallscope.preparation import prepare
from wallscope.process_tuning import run_both
from wallscope.profile.build import build_profiles, pack_profiles
from wallscope.profile.codec import EncodedTables, encode_tables
from wallscope.records import dataclass
from wallscope.replay.what_if import (
    RankReplays,
    UpperBounds,
    answer_questions,
    estimate_upper_bounds,
    require_player,
)
from wallscope.summary.communication import measure_overlap_tax
from wallscope.summary.compute import measure_throughput
from wallscope.summary.diagnosis import (
    find_dominant_wall,
    find_least_computing,
    limit_host_gains,
    limit_to_rank,
    list_inferred_causes,
    rank_opportunities,
    select_working_ranks,
)
from wallscope.summary.findings import (
    describe_anchor,
    find_accounting_limits,
    find_attribution_limits,
    find_throughput_limits,
)
from wallscope.summary.rank import (
    RankSummary,
    lacks_kernels,
    measure_launch_correlation,
    summarize_ranks,
)
from wallscope.summary.verdict import diagnose
from wallscope.trace.names import list_unlike
from wallscope.views.verdict import choose_basis, find_deciding_stall

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from wallscope.advice.model_work import PlannedRun
    from wallscope.model.planned_work import PlanMismatch
    from wallscope.ranks.job import MatchedJob
    from wallscope.summary.tables import TableBuilder

_MOST_GAPS = 12


@dataclass(frozen=True, slots=True)
class AnalyzedCapture:
    """The answer with what it was made from; `place` is that of the rank that the diagnosis is about.

    `matched` is what its ranks show together, `None` of one alone.
    """

    analysis: Analysis
    prepared: Prepared
    place: int
    replays: RankReplays
    matched: "MatchedJob | None" = None


def analyze(path: Path, options: Options, progress: Progress) -> Analysis:
    """Read one export and account for the time of each of its ranks.

    Raises:
        WallscopeError: one of its children, each with a line for the user.
    """
    return analyze_capture(path, options, progress).analysis


def analyze_capture(
    path: Path,
    options: Options,
    progress: Progress,
    *,
    keeps_slices: bool = False,
    with_details: bool = True,
) -> AnalyzedCapture:
    """Read one export and account for the time of each of its ranks; all that was made on the way is kept.

    Args:
        path: the export.
        options: what the user asks.
        progress: is called with the name of each stage.
        keeps_slices: whether slices are held for tables and tracks that show them, at 60 bytes each.
        with_details: whether the ranks have profiles, and upper bounds those that the diagnosis is not about:
            what files show, and no terminal.

    Raises:
        WallscopeError: one of its children, each with a line for the user.
    """
    configuration, findings, read_plan = _read_configuration(options.configuration)
    prepared, _ = run_both(
        lambda: prepare(path, options, progress, keeps_slices=keeps_slices), _load_fix_rules
    )
    from wallscope.advice.recommend import add_experience, match_rules, recommend  # noqa: PLC0415
    from wallscope.advice.trace_facts import collect_trace_facts  # noqa: PLC0415
    from wallscope.summary.light_bounds import limit_fixes  # noqa: PLC0415
    from wallscope.views.opening import state_answer  # noqa: PLC0415

    capture, facts = prepared.trace.capture, prepared.facts
    names = _list_names(capture)
    program = _detect_program(capture, configuration)
    progress("attributing time to causes")
    about = _AboutRun(configuration, findings, program, read_plan(capture.world_size))
    concluded = _conclude(prepared, options, about, with_details=with_details)
    answer, place = concluded.analysis, concluded.place
    shown = collect_trace_facts(answer, list_unlike(capture.range_names), facts.axes, facts.collectives)
    matched = match_rules(answer, configuration, shown, names)
    replays = RankReplays(prepared, place, concluded.bounds)
    if matched.questions:
        progress("replaying steps")
        replayed, ranks = run_both(lambda: replays.answer_fixes(matched.questions), concluded.pack_profiles)
    else:
        replayed, ranks = Replayed(None, {}), concluded.pack_profiles()
    if _limits_host_time(answer):
        replayed = limit_host_gains(replayed, answer.ranks[place].typical.walls)
    settled = add_experience(limit_fixes(recommend(matched, replayed, ranks)), options.experience)
    return AnalyzedCapture(state_answer(settled), prepared, place, replays, concluded.matched)


def build_report(found: AnalyzedCapture, progress: Progress) -> Report:
    """Return the answer with timelines, longest gaps and critical path of the rank of the diagnosis."""
    from wallscope.summary.lookups import GapLookup  # noqa: PLC0415  # for pages alone
    from wallscope.summary.step_timeline import build_step_timelines  # noqa: PLC0415  # same

    trace, place = found.prepared.trace, found.place
    shown = replace(trace.capture, ranks=trace.capture.ranks.slice(place, 1))
    own = select_rank_windows(trace, shown.ranks["rank_id"][0])
    slices = found.prepared.slices_of_rank(own).cast(SLICES)
    gaps = GapLookup(replace(trace, capture=shown), slices).groups(_MOST_GAPS)
    progress("seeking what bounds the step")
    path = found.replays.path
    find_path = (lambda _: SHOWN_PATH.to_frame()) if isinstance(path, str) else found.replays.find_path
    progress("drawing timelines")
    rank, dominant = found.analysis.ranks[place], found.analysis.diagnosis.dominant_wall
    is_slow = find_deciding_stall(rank, choose_basis(found.analysis, rank), dominant) is not None
    timelines = build_step_timelines(trace, slices, place, rank, find_path)
    return Report(
        found.analysis,
        timelines[::-1] if is_slow else timelines,  # what decides the wall comes first
        gaps,
        path,
        _list_meeting_lanes(found.matched),
        _build_overviews(found, slices),
    )


def _list_meeting_lanes(matched: "MatchedJob | None") -> pl.DataFrame:
    """Return the collectives of several ranks, for the timeline of them all."""
    if matched is None:
        return MEETING_LANES.to_frame()
    from wallscope.ranks.tables import collective_lanes  # noqa: PLC0415  # for several ranks alone

    return collective_lanes(matched)


def build_timeline_of_part(found: AnalyzedCapture, progress: Progress) -> bytes:
    """Return all steps of the ranks at low detail, for the page of a job that the export is a part of."""
    from wallscope.summary.step_timeline import encode_overviews  # noqa: PLC0415  # for pages alone

    progress("drawing timelines")
    return encode_overviews(_build_overviews(found, None))


def _build_overviews(found: AnalyzedCapture, slices: pl.DataFrame | None) -> StepOverviews:
    """Return all steps at low detail; `slices` are those of the rank of the diagnosis, `None` in a part."""
    from wallscope.summary.step_timeline import build_step_overviews  # noqa: PLC0415  # for pages alone

    trace = found.prepared.trace

    def find_slices(one: int) -> pl.DataFrame:
        if one == found.place and slices is not None:
            return slices
        rank_id = trace.capture.ranks["rank_id"][one]
        return found.prepared.slices_of_rank(select_rank_windows(trace, rank_id)).cast(SLICES)

    return build_step_overviews(trace, found.analysis.ranks, found.place, find_slices, is_part=slices is None)


def build_tables(found: AnalyzedCapture) -> "TableBuilder":
    """Return the tables behind the answer, each made when it is asked for."""
    from wallscope.summary.tables import TableBuilder  # noqa: PLC0415  # for tables alone

    return TableBuilder(found.analysis, found.prepared, found.replays.path_to_show)


def ask_what_if(path: Path, options: Options, asked: Asked, progress: Progress) -> WhatIf:
    """Read one export and simulate the steps of a rank with changes, and those that it communicates with.

    Of several ranks it is the one that `analyze` is about.

    Raises:
        WallscopeError: one of its children, each with a line for the user.
    """
    prepared = prepare(path, options, progress)
    trace = prepared.trace
    if trace.capture.is_cut_off:
        raise NothingToAnalyzeError(
            "is incomplete: a replay would take missing work for idle time",
            "copy the file again, or profile fewer steps",
            str(path),
        )
    progress("replaying steps")
    chosen = _choose_replayed(prepared, options, interference=asked.interference)
    try:
        player = require_player(chosen.bounds)
        found = answer_questions(player, asked, trace.range_tree.texts)
    except NothingToAnalyzeError as error:
        raise NothingToAnalyzeError(error.what, error.cure, str(path), error.because) from error
    window, own, tax = player.window, chosen.trace.capture.ranks.row(chosen.place, named=True), chosen.tax
    limit = partial(limit_to_rank, rank=chosen.rank, limits_host=chosen.limits_host)
    return WhatIf(
        schema=WHATIF_SCHEMA,
        wallscope_version=__version__,
        inputs=(trace.capture.export,),
        rank=own["rank"],
        device=own["device"],
        unit=trace.steps.unit,
        step_ns=player.step_ns,
        played_steps=player.step_count,
        played_operations=window.graph.op.size,
        played_ranks=window.operations["rank_id"].n_unique(),
        overlap_tax=None if tax is None else tax.ratio,
        interference=asked.interference,
        check=found.check,
        path=found.path,
        walls=found.walls,
        wall=found.wall,
        answers=tuple(map(limit, found.answers)),
        sweep=tuple(map(limit, found.sweep)),
    )


class _Replayed(NamedTuple):
    """The rank that what-if questions are about, and its answer if that limits what they win.

    `place` is its index among the ranks of `trace`, all those of the capture.
    """

    trace: Trace
    place: int
    bounds: UpperBounds
    tax: OverlapTax | None
    rank: Rank | None
    limits_host: bool


def _choose_replayed(prepared: Prepared, options: Options, *, interference: bool) -> _Replayed:
    """Choose the rank that `analyze` is about; of several, that takes all that they show together.

    It is replayed with ranks that the user does not select too, as `analyze` does.
    """
    whole = prepared.whole or prepared
    trace = whole.trace
    ranks = list_rank_windows(trace)
    place, rank, bounds, limits_host = 0, None, None, False
    if len(ranks) > 1 or options.step_facts.unprofiled_step_ns is not None:
        about = _AboutRun(RunConfiguration(), (), _detect_program(trace.capture, RunConfiguration()))
        selected = prepared.trace.capture.ranks["rank_id"]
        own = selected[0]
        if 1 < len(selected) < len(ranks):
            own = selected[_conclude(prepared, options, about, with_details=False).place]
        only = None if prepared is whole else trace.capture.ranks["rank_id"].index_of(own)
        concluded = _conclude(whole, options, about, with_details=False, only=only)
        place, bounds = concluded.place, concluded.bounds
        rank, limits_host = concluded.analysis.ranks[place], _limits_host_time(concluded.analysis)
    work = measure_rank_work(trace, trace.capture.ranks["rank_id"][place])
    tax = measure_overlap_tax(work, trace.capture.kernels)
    if bounds is None or not interference:
        ratio = None if tax is None or not interference else tax.ratio
        bounds = estimate_upper_bounds(whole, ranks, lambda _: ratio)[place]
    return _Replayed(trace, place, bounds, tax, rank, limits_host)


def _list_names(capture: Capture) -> pl.Series:
    """Names of kernels, and one of the ranges that are alike."""
    return pl.concat([capture.names["text"], list_unlike(capture.range_names)])


def _detect_program(capture: Capture, configuration: RunConfiguration) -> Program:
    from wallscope.advice.trace_facts import ProgramTraces, detect_program  # noqa: PLC0415

    return detect_program(
        ProgramTraces(_list_names(capture), capture.libraries, capture.interpreter), configuration
    )


def _limits_host_time(analysis: Analysis) -> bool:
    """Return whether the unprofiled step is known and shorter: host time is then limited to what it has."""
    limits = [one for one in analysis.capture.findings if one.code == FindingCode.UNPROFILED_STEP]
    return any(one.covers_ns is not None for one in limits)


def _read_configuration(
    path: Path | None,
) -> tuple[RunConfiguration, tuple[Finding, ...], "Callable[[int | None], PlannedRun | PlanMismatch | None]"]:
    """Return what the file of the user states, what is odd about it, and what it plans for so many GPUs."""
    if path is None:
        return RunConfiguration(), (), lambda _: None
    from wallscope.advice.configuration import read_configuration  # noqa: PLC0415
    from wallscope.advice.planned_runs import describes_model, read_run  # noqa: PLC0415

    if describes_model(path):  # nothing about the run
        return RunConfiguration(), (), partial(read_run, path, None)
    read = read_configuration(path)
    return read.configuration, read.findings, partial(read_run, path, read)


def _load_fix_rules() -> None:
    """Read what fixes are found by, while the export is read."""
    import wallscope.advice.recommend  # noqa: PLC0415
    import wallscope.advice.trace_facts  # noqa: F401, PLC0415
    from wallscope.advice.preconditions import features  # noqa: PLC0415
    from wallscope.advice.rules import fix_rules  # noqa: PLC0415

    fix_rules()
    features()


@dataclass(frozen=True, slots=True)
class _AboutRun:
    """What is known of a run besides its time: its configuration, what is odd about that, its program.

    `plan` is what its ranks multiply by the configuration, or why that is unknown; `None` without any.
    """

    configuration: RunConfiguration
    findings: tuple[Finding, ...]
    program: Program
    plan: "PlannedRun | PlanMismatch | None" = None


@dataclass(frozen=True, slots=True)
class _Conclusion:
    """The answer without fixes and packed profiles, its rank with upper bounds, and the profiles of all.

    `profiles` are those to pack, without any if none is asked for. `encoded` is what is encoded of each
    already, if anything is.
    """

    analysis: Analysis
    place: int
    bounds: UpperBounds
    profiles: tuple[Profile, ...] = ()
    encoded: tuple[EncodedTables, ...] = ()
    matched: "MatchedJob | None" = None

    def pack_profiles(self) -> tuple[Rank, ...]:
        """Return the ranks with their profiles, if any is asked for."""
        if not self.profiles:
            return self.analysis.ranks
        of_capture = self.analysis.capture.findings
        return pack_profiles(self.analysis.ranks, self.profiles, self.place, self.encoded, of_capture)


def _conclude(
    prepared: Prepared,
    options: Options,
    about: _AboutRun,
    *,
    with_details: bool,
    only: int | None = None,
) -> _Conclusion:
    """Summarize the ranks, match them by their profiles, and diagnose the one that stands for them.

    `only` is the index of the one that does in any case.
    """
    trace = prepared.trace
    is_alone = len(trace.capture.ranks) == 1
    anchor = describe_anchor(trace)
    has_bounds = not trace.capture.is_cut_off
    found = summarize_ranks(
        prepared,
        options.step_facts,
        about.plan,
        with_tables=with_details or not is_alone,
    )
    if is_alone and has_bounds:
        found = (found[0].measure_bounds(),)
    place = only
    if place is None:
        place = find_least_computing(tuple(own.rank for own in found), trace.places_without_marker())
    diagnose_rank = partial(_diagnose, prepared, anchor, options, about)
    ranks = tuple(own.rank for own in found)
    tables = tuple(own.tables for own in found if own.tables is not None)
    profiles = build_profiles(ranks, tables, anchor, options.step_facts, trace.capture, about.configuration)
    if is_alone:
        return _Conclusion(diagnose_rank(found, place), place, found[place].ceilings, profiles)
    from wallscope.ranks.job import match_ranks  # noqa: PLC0415  # for several ranks alone

    known, encoded = run_both(
        lambda: match_ranks(profiles, find_dominant_wall, trace.capture.world_size),
        lambda: tuple(encode_tables(profile) for profile in profiles) if with_details else (),
    )
    is_matched = known.job.collectives.matched > 0
    if only is None and is_matched and _can_represent(trace, ranks, known.job.critical_place):
        place = known.job.critical_place
    if has_bounds:
        found = tuple(_measure_bounds(found, place, of_all=with_details))
    if is_matched:
        split = known.split_ranks(tuple(own.rank for own in found), [len(found)] * len(found))
        found = tuple(replace(each, rank=rank) for each, rank in zip(found, split, strict=True))
        profiles = known.profiles
    answer = diagnose_rank(found, place, known.job)
    bounds = found[place].ceilings
    return _Conclusion(answer, place, bounds, profiles if with_details else (), encoded, known)


def _measure_bounds(found: tuple[RankSummary, ...], place: int, *, of_all: bool) -> "Iterator[RankSummary]":
    """Yield ranks with the upper bounds of all of them, or of the one at `place`, whose replay is kept.

    They are measured one after the other, because each window takes much memory.
    """
    for index, own in enumerate(found):
        yield own.measure_bounds() if of_all or index == place else own
        if index != place:
            own.ceilings.forget()


def _can_represent(trace: Trace, ranks: tuple[Rank, ...], place: int) -> bool:
    """Whether a rank works, and by steps that are known."""
    is_working = any(ranks[place] is one for one in select_working_ranks(ranks))
    return is_working and place not in trace.places_without_marker()


def _diagnose(  # noqa: PLR0913, PLR0917  # all that was found out before
    prepared: Prepared,
    anchor: Anchor,
    options: Options,
    about: _AboutRun,
    found: tuple[RankSummary, ...],
    place: int,
    job: Job | None = None,
) -> Analysis:
    """Return the answer about all ranks with the diagnosis of the one at `place`; fixes come later."""
    trace, waits, facts = prepared.trace, prepared.evidence.waits, options.step_facts
    shown, ranks = found[place], tuple(own.rank for own in found)
    export, is_incomplete = trace.capture.export, trace.capture.is_cut_off
    won = (
        ()
        if lacks_kernels(shown) or is_incomplete
        else rank_opportunities(shown.rank, shown.ceilings, list_inferred_causes(prepared.facts))
    )
    gpu = export.gpu(shown.rank.gpu)
    throughput = None if is_incomplete else measure_throughput(shown.rank, anchor, facts, gpu)
    return Analysis(
        schema=SCHEMA,
        wallscope_version=__version__,
        inputs=(export,),
        capture=CaptureQuality(
            findings=adapt_cures(
                (
                    *find_accounting_limits(ranks, anchor, trace),
                    *find_throughput_limits(anchor, facts, shown.rank),
                    *find_attribution_limits(shown, waits, trace, anchor),
                    *about.findings,
                    *trace.capture.findings,
                ),
                export,
                about.program.framework,
            ),
            launch_correlation_share=measure_launch_correlation(trace.capture),
            resolved_dependency_share=waits.resolved_share,
            cuda_graphs=trace.capture.graphs,
            ranks_supplied=len(ranks),
            world_size=trace.capture.world_size,
        ),
        anchor=anchor,
        ranks=ranks,
        diagnosis=diagnose(shown, anchor, place, throughput, is_incomplete=is_incomplete),
        opportunities=won,
        job=job,
        program=about.program,
    )
