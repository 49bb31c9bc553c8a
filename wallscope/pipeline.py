"""The pipeline: an export is read, its operations are named, its time is divided and accounted for."""

from dataclasses import dataclass, replace
from pathlib import Path

import polars as pl

from wallscope._version import __version__
from wallscope.attribution.attribute import Evidence, OperationFacts, identify_operations
from wallscope.attribution.attribute import collect_evidence as evidence_of
from wallscope.attribution.totals import measure_budgets
from wallscope.errors import NothingToAnalyzeError
from wallscope.model.advice import RunConfiguration, select_first_fixes
from wallscope.model.analysis import SCHEMA, Analysis, CaptureQuality, Rank
from wallscope.model.capture import Capture, Finding, Progress
from wallscope.model.options import Options
from wallscope.model.profile import Profile
from wallscope.model.report import MEETING_LANES, Report
from wallscope.model.whatif import WHATIF_SCHEMA, Asked, WhatIf
from wallscope.nsys import read_capture
from wallscope.parallel import run_both
from wallscope.process_tuning import release_memory
from wallscope.profile.build import add_profiles, build_profiles
from wallscope.profile.codec import EncodedTables, encode_tables
from wallscope.ranks.job import MatchedJob, match_ranks
from wallscope.ranks.tables import collective_lanes
from wallscope.replay.engine import ASKED
from wallscope.replay.what_if import answer_questions
from wallscope.replay.windows import find_longest_waiting, select_replay_window
from wallscope.replays import RankReplays
from wallscope.summary.communication import measure_overlap_tax
from wallscope.summary.compute import measure_throughput
from wallscope.summary.diagnosis import find_dominant_wall, list_inferred_causes, rank_opportunities
from wallscope.summary.findings import (
    describe_anchor,
    find_accounting_limits,
    find_attribution_limits,
    find_throughput_limits,
)
from wallscope.summary.rank import (
    Trace,
    attribute_all_ranks,
    build_step_table,
    list_rank_windows,
    measure_rank_work,
    summarize_ranks,
)
from wallscope.summary.verdict import diagnose, find_least_computing, select_working_ranks
from wallscope.trace.dependencies import resolve_dependencies
from wallscope.trace.kernel_classes import classify_kernels, classify_operations, load_kernel_rules
from wallscope.trace.parallel_axes import RangePaths
from wallscope.trace.ranges import RangeTree, nest_ranges, project_ranges, write_paths
from wallscope.trace.step_markers import check_pattern, label_ranges
from wallscope.trace.steps import Steps, select_ranks, select_windows, split_steps
from wallscope.trace.thread_timeline import HostCalls
from wallscope.views.gaps import GapLookup
from wallscope.views.step_timeline import build_step_timelines
from wallscope.views.tables import TableBuilder

__all__ = [
    "Accounted",
    "Options",
    "accounted",
    "analyze",
    "divide",
    "exported",
    "gathered",
    "proven",
    "report_of",
    "stepped",
]

_MOST_GAPS = 12


@dataclass(frozen=True, slots=True)
class Accounted:
    """The answer with what it was made from; `place` is that of the rank that the diagnosis speaks of.

    `together` is what its ranks tell together, `None` of one alone.
    """

    analysis: Analysis
    parts: Trace
    evidence: Evidence
    facts: OperationFacts
    place: int
    replays: RankReplays
    together: MatchedJob | None = None


def analyze(path: Path, options: Options, progress: Progress) -> Analysis:
    """Read one export and account for the time of each of its ranks.

    Raises:
        WallscopeError: one of its children, each with a line for the user.
    """
    return accounted(path, options, progress).analysis


def report_of(found: Accounted, progress: Progress) -> Report:
    """The answer with timelines, longest gaps and critical path of the rank that the diagnosis speaks of."""
    progress("drawing timelines")
    parts, place = found.parts, found.place
    shown = replace(parts.capture, ranks=parts.capture.ranks.slice(place, 1))
    slices = attribute_all_ranks(replace(parts, capture=shown), found.evidence)
    proof = GapLookup(shown, parts.range_tree, parts.projected, slices)
    timelines = build_step_timelines(parts, slices, place, found.analysis.ranks[place])
    progress("seeking what bounds the step")
    path = found.replays.path
    if not isinstance(path, str):
        steps = path.steps
        timelines = tuple(replace(one, path=steps.filter(pl.col("step") == one.step)) for one in timelines)
    met = MEETING_LANES.to_frame() if found.together is None else collective_lanes(found.together)
    return Report(found.analysis, timelines, proof.gaps(_MOST_GAPS), path, met)


def exported(found: Accounted) -> TableBuilder:
    """The tables behind the answer, each made when it is asked for."""
    return TableBuilder(found.analysis, found.parts, found.evidence, found.facts, found.replays.shown_path)


def accounted(path: Path, options: Options, progress: Progress) -> Accounted:
    """Read one export and account for the time of each of its ranks; the parts are kept.

    Raises:
        WallscopeError: one of its children, each with a line for the user.
    """
    configuration = RunConfiguration()
    odd: tuple[Finding, ...] = ()
    if options.configuration is not None:
        from wallscope.advice.configuration import read_configuration  # noqa: PLC0415

        read = read_configuration(options.configuration)
        configuration, odd = read.configuration, read.findings
    (parts, division), _ = run_both(lambda: divide(path, options, progress), _have_rules)
    parts = replace(parts, capture=replace(parts.capture, findings=(*odd, *parts.capture.findings)))
    release_memory()
    facts, evidence = gathered(parts, division, options, progress)
    release_memory()
    progress("accounting for time")
    spoken = _spoken(parts, division, facts, evidence, options, configuration)
    analysis, own = spoken.analysis, spoken.profiles

    from wallscope.advice.advise import add_fixes, replay_questions  # noqa: PLC0415
    from wallscope.advice.trace_facts import collect_trace_facts  # noqa: PLC0415

    trace = collect_trace_facts(analysis, parts.capture.range_names["text"], facts.axes, facts.collectives)
    names = pl.concat([parts.capture.names["text"], parts.capture.range_names["text"]])
    fixed = add_fixes(analysis, configuration, trace, names)
    replays = RankReplays(parts, facts, evidence, spoken.place, analysis.ranks[spoken.place])
    asked = {fix.id: replay_questions(fix) for fix in select_first_fixes(fixed.fixes or ())}
    if any(asked.values()):
        progress("playing steps again")
        answer, packed = run_both(
            lambda: replays.with_answers(fixed, asked), lambda: add_profiles(analysis, own, spoken.written)
        )
        answer = replace(answer, ranks=packed.ranks)
    else:
        answer = add_profiles(fixed, own, spoken.written)
    return Accounted(answer, parts, evidence, facts, spoken.place, replays, spoken.together)


def _have_rules() -> None:
    """Read the rules for fixes before they are asked; they need pydantic, which takes long to load."""
    from wallscope.advice.rules import fix_rules  # noqa: PLC0415

    fix_rules()


@dataclass(frozen=True, slots=True)
class _Spoken:
    """The answer without fixes and packed profiles, the profiles, and the place of the rank that speaks.

    `written` is what is written of each profile, if anything is.
    """

    analysis: Analysis
    profiles: tuple[Profile, ...]
    written: tuple[EncodedTables, ...]
    place: int
    together: MatchedJob | None


def _spoken(  # noqa: PLR0913, PLR0917  # all that was found out before
    parts: Trace,
    division: Steps,
    facts: OperationFacts,
    evidence: Evidence,
    options: Options,
    configuration: RunConfiguration,
) -> _Spoken:
    """The ranks accounted for, and the one that speaks for them; what accounts are made from is let go."""
    found, anchor = run_both(
        lambda: summarize_ranks(parts, facts, evidence), lambda: describe_anchor(parts, division)
    )
    ranks = tuple(account.rank for account in found)
    place = find_least_computing(ranks, parts.unmarked_places())
    issued_share = _launch_correlation_share(parts.capture)

    def speaking(place: int) -> Analysis:
        shown = found[place]
        won = rank_opportunities(shown.rank, shown.ceilings, list_inferred_causes(facts))
        gpu = parts.capture.export.gpu(shown.rank.gpu)
        achieved = measure_throughput(shown.rank, anchor, options.step_facts, gpu)
        return Analysis(
            schema=SCHEMA,
            wallscope_version=__version__,
            inputs=(parts.capture.export,),
            capture=CaptureQuality(
                findings=(
                    *find_accounting_limits(ranks, anchor, parts),
                    *find_throughput_limits(anchor, options.step_facts),
                    *find_attribution_limits(shown, evidence.waits, parts, anchor),
                    *parts.capture.findings,
                ),
                launch_correlation_share=issued_share,
                resolved_dependency_share=evidence.waits.resolved_share,
                cuda_graphs=parts.capture.graphs,
                ranks_supplied=len(ranks),
                world_size=parts.capture.world_size,
            ),
            anchor=anchor,
            ranks=ranks,
            diagnosis=replace(diagnose(shown, anchor, won, place), throughput=achieved),
            opportunities=won,
        )

    analysis = speaking(place)
    tables = tuple(account.tables for account in found)
    own = build_profiles(analysis, tables, options.step_facts, configuration)
    if len(ranks) == 1:
        return _Spoken(analysis, own, (), place, None)
    known, already = run_both(
        lambda: match_ranks(own, find_dominant_wall, parts.capture.world_size),
        lambda: tuple(encode_tables(profile) for profile in own),
    )
    if known.job.collectives.matched:
        ranks = known.split_ranks(ranks, [len(ranks)] * len(ranks))
        found = tuple(replace(each, rank=rank) for each, rank in zip(found, ranks, strict=True))
        if _may_speak(parts, ranks, known.job.critical_place):
            place = known.job.critical_place
        analysis = speaking(place)
        own = known.profiles
    return _Spoken(replace(analysis, job=known.job), own, already, place, known)


def _may_speak(parts: Trace, ranks: tuple[Rank, ...], place: int) -> bool:
    """Whether a rank works, and by steps that are known."""
    return (
        any(ranks[place] is one for one in select_working_ranks(ranks))
        and place not in parts.unmarked_places()
    )


def gathered(
    parts: Trace, division: Steps, options: Options, progress: Progress
) -> tuple[OperationFacts, Evidence]:
    """What is known of the operations of a divided capture, and what their time is told from."""
    progress("naming what operations are for")
    ranges = parts.range_tree
    around = RangePaths(parts.projected, ranges.tree, ranges.paths, ranges.names)
    capture, operations = parts.capture, parts.operations
    facts = identify_operations(operations, division.windows, capture, around, options.streams)
    return facts, evidence_of(operations, capture, parts.waits, facts, ranges, parts.projected)


def proven(path: Path, options: Options, progress: Progress) -> GapLookup:
    """Read one export and attribute its time, ready to be asked for gaps and moments.

    Raises:
        WallscopeError: one of its children, each with a line for the user.
    """
    parts, division = divide(path, options, progress)
    _, evidence = gathered(parts, division, options, progress)
    progress("accounting for time")
    return GapLookup(parts.capture, parts.range_tree, parts.projected, attribute_all_ranks(parts, evidence))


def stepped(path: Path, options: Options, progress: Progress) -> pl.DataFrame:
    """Read one export and list the steps of all ranks with their device budget and walls.

    Raises:
        WallscopeError: one of its children, each with a line for the user.
    """
    parts, division = divide(path, options, progress)
    _, evidence = gathered(parts, division, options, progress)
    progress("accounting for time")
    return build_step_table(parts, attribute_all_ranks(parts, evidence))


def what_if(path: Path, options: Options, asked: Asked, progress: Progress) -> WhatIf:
    """Read one export and play the steps of a rank again with changes.

    Of several ranks it is the one that computes for the smallest share of its typical step.

    Raises:
        WallscopeError: one of its children, each with a line for the user.
    """
    parts, division = divide(path, options, progress)
    facts, evidence = gathered(parts, division, options, progress)
    progress("playing steps again")
    ranks = list_rank_windows(parts)
    place = find_longest_waiting(ranks, parts.unmarked_places())
    own = parts.capture.ranks.row(place, named=True)
    work = measure_rank_work(parts, own["rank_id"])
    step_ns = round(float((work.steps.end_ns - work.steps.start_ns).mean()))
    tax = measure_overlap_tax(work, parts.capture.kernels)
    texts = write_paths(parts.range_tree.paths, parts.range_tree.names, parts.range_tree.paths["path"])
    try:
        stretch = select_replay_window(
            evidence,
            ranks,
            facts.partners,
            parts.range_tree,
            parts.capture.names,
            place,
            ASKED.most_operations,
        )
        found = answer_questions(stretch, asked, step_ns, None if tax is None else tax.ratio, texts)
    except NothingToAnalyzeError as error:
        raise NothingToAnalyzeError(f"{path} — {error}") from error
    return WhatIf(
        schema=WHATIF_SCHEMA,
        wallscope_version=__version__,
        inputs=(parts.capture.export,),
        rank=own["rank"],
        device=own["device"],
        unit=division.unit,
        step_ns=step_ns,
        played_steps=int(stretch.steps["typical"].sum()),
        played_operations=stretch.graph.op.size,
        played_ranks=stretch.operations["rank_id"].n_unique(),
        overlap_tax=None if tax is None else tax.ratio,
        interference=asked.interference,
        check=found.check,
        path=found.path,
        walls=found.walls,
        wall=found.wall,
        answers=found.answers,
        sweep=found.sweep,
    )


def divide(path: Path, options: Options, progress: Progress) -> tuple[Trace, Steps]:
    """Read an export, name its operations, find the range of each, and divide the capture into windows.

    Steps are sought in the selected ranks, over the whole capture; then the windows are selected. A rank
    that has none of those is left out.

    Raises:
        WallscopeError: one of its children, each with a line for the user.
    """
    rules = load_kernel_rules(options.kernels)
    capture = read_capture(path, progress, options.reader)

    progress("naming kernels")
    operations = classify_operations(
        capture.operations, capture.copies, classify_kernels(capture.names, rules)
    )

    progress("nesting ranges, resolving dependencies")
    (tree, paths, names), waits = run_both(
        lambda: nest_ranges(capture.ranges, capture.range_names, capture.calls, capture.threads),
        lambda: resolve_dependencies(capture),
    )
    ranges = label_ranges(tree, capture.range_names, capture.threads, paths, names)
    check_pattern(options.step_range, ranges)

    progress("finding steps")
    capture = replace(capture, ranks=select_ranks(capture.ranks, options.selection))
    is_selected = operations["rank_id"].is_in(capture.ranks["rank_id"].implode())
    operations = operations if is_selected.all() else operations.filter(is_selected)

    def in_windows() -> tuple[Steps, pl.DataFrame]:
        host = HostCalls(capture.calls, capture.call_names, capture.threads)
        division = split_steps(operations, capture.ranks, host, ranges, options.step_range)
        return division, measure_budgets(operations, select_windows(division.windows, options.selection))

    (division, windows), projected = run_both(
        in_windows, lambda: project_ranges(capture.operations, capture.calls, tree, capture.threads)
    )
    kept = capture.ranks.filter(pl.col("rank_id").is_in(windows["rank_id"].implode()))
    divided_capture = Trace(
        capture=replace(capture, ranks=kept),
        operations=operations,
        waits=waits,
        windows=windows,
        projected=projected,
        range_tree=RangeTree(ranges, paths, names),
        selection=options.selection,
        unmarked=division.unmarked,
        left_out=len(capture.ranks) - len(kept),
    )
    return divided_capture, division


def _launch_correlation_share(capture: Capture) -> float | None:
    """Share of the device operations whose issuing call is in the export; `None` where none has one to have.

    Pages of unified memory migrate by themselves.
    """
    migrations = capture.copies.filter(pl.col("direction").cast(pl.String).str.starts_with("migration"))
    operations = capture.operations
    if not migrations.is_empty():
        operations = operations.join(migrations, on="op", how="anti")
    issued = operations["call"]
    return None if issued.is_empty() else int((issued >= 0).sum()) / len(issued)
