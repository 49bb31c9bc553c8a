"""The first screen of an analysis on a terminal: verdict, walls, recommendations, confidence, next commands.

It fits 30 lines of 80 columns. `--full` shows everything else (`views.analysis`).
"""

import re
from collections.abc import Iterator

import numpy as np
from rich.console import RenderableType
from rich.constrain import Constrain

from wallscope import units
from wallscope.model.advice import Fix
from wallscope.model.analysis import Analysis, Anchor, Job, Rank
from wallscope.model.capture import Profiler
from wallscope.model.cause_catalogue import describe_cause
from wallscope.model.diagnosis import StepMode
from wallscope.model.enums import Wall
from wallscope.model.finding_codes import FindingCode
from wallscope.model.section import Cell, Column, Grid, Items, Line, Lines, Section, Span, tabulate
from wallscope.ranks.job_sentences import describe_repairs, describe_unknown
from wallscope.render.terminal import render_sections
from wallscope.render.texts import visible
from wallscope.summary.diagnosis import LOSSES
from wallscope.thresholds.steps import FEWEST_STEPS_FOR_QUARTILES_COUNT, SLOWER_KERNELS_RATIO
from wallscope.thresholds.verdict import FIRST_FIXES_COUNT, SHOWN_LOSS_SHARE, SHOWN_WALL_SHARE
from wallscope.views.applied_fixes import describe_experience
from wallscope.views.cards import shorten_settings
from wallscope.views.headline import covers_all_ranks
from wallscope.views.light import describe_briefly, has_lines, write_worth
from wallscope.views.sections.findings import describe_confidence, list_caveats
from wallscope.views.sections.light import tabulate_light
from wallscope.views.sections.walls import (
    count_open_conditions,
    describe_obstacles,
    describe_unaddressed_compute,
    describe_unaddressed_loss,
    find_blocked_fixes,
    select_first_fixes,
    title_fixes,
)
from wallscope.views.sections.words import (
    count_exports,
    describe_pressure,
    shorten_anchor,
)
from wallscope.views.statement import Statement, state_analysis
from wallscope.views.verdict import count_typical_kinds, describe_kinds

_WIDEST = 100
_MOST_OBSTACLES = 2
_LONGEST_LINE, _LONGEST_COMMAND = 74, 66
_LONGEST_ANCHOR, _LONGEST_ASSUMPTION, _LONGEST_TEXTS = 30, 240, 320
_NAMES = {wall: "Host overhead" if wall is Wall.HOST else wall.capitalize() for wall in Wall}
_LABEL, _SMALL_NS = 11, 1_000_000
_MARGIN = "  "
_MOST_LIGHT = 8
_WORDS = re.compile(r"""--html run\.html|--step-range \w+|--config \w+|(?:'[^']*'|"[^"]*"|\S)+""")
"""What a command must not be broken in: quoted names, and an option with its value."""


def render_first_screen(
    analysis: Analysis, source: str = "", *, has_configuration: bool = False
) -> RenderableType:
    """Render the first screen for a terminal; see `build_first_screen`."""
    screen = build_first_screen(analysis, source, has_configuration=has_configuration)
    return Constrain(render_sections(screen), _WIDEST)


def build_first_screen(
    analysis: Analysis, source: str = "", *, has_configuration: bool = False
) -> Iterator[Section | Grid]:
    """Make the first screen; `source` is how the user named the input, for the commands to run next.

    `has_configuration` says that the run's configuration was given, so that no command asks for it.
    """
    rank, told = analysis.ranks[analysis.diagnosis.rank_index], state_analysis(analysis)
    yield Section("head", "", "", (Lines((describe_subject(analysis, rank),)),))
    yield build_opening(told, told.sentence)
    light = rank.speed_of_light
    if light is not None and told.dominant == Wall.COMPUTE and has_lines(light) and told.basis.kind != "job":
        yield tabulate_light(light, analysis.anchor.typical, most=_MOST_LIGHT)
    else:
        yield _tabulate_bars(analysis, told)
    yield _build_recommendations(analysis, rank, told)
    yield Section("facts", "", "", (Items(tuple(_list_run_facts(analysis, rank, told))),))
    named = source or visible(analysis.inputs[0].name, most=60)
    yield Section(
        "next",
        "",
        "",
        (Items(tuple(_list_commands(analysis, named, asks_configuration=not has_configuration))),),
    )


def build_opening(told: Statement, text: Line) -> Section:
    """Make the opening, in which the verdict is in capitals, with the text that explains it below."""
    head = Span(f"{told.wall or ''}{told.words}".upper(), told.wall or "doubt", is_strong=True)
    rest = told.opening.removeprefix(f"{told.wall or ''}{told.words}".capitalize())
    return Section("verdict", (head, rest), "", (Lines((text,) if text else ()),))


def describe_subject(analysis: Analysis, rank: Rank) -> str:
    """Say what was analyzed, on one line: file, GPU, ranks, steps."""
    anchor = analysis.anchor
    used = [analysis.inputs[one.input].gpu(one.gpu) for one in analysis.ranks]
    models = sorted({gpu.name.removeprefix("NVIDIA ") for gpu in used if gpu is not None and gpu.name})
    one_input = len(analysis.inputs) == 1
    steps = units.plural(sum(step.steady for step in rank.steps), f"steady {anchor.unit}")
    if anchor.kind == "whole-trace":
        steps = "no steps found" if anchor.selected_time_ns is None else "selected time"
    parts = [
        visible(analysis.inputs[0].name, most=60) if one_input else count_exports(analysis),
        ", ".join(models) or "GPU unknown",
        _count_ranks_and_processes(analysis) if covers_all_ranks(analysis) else "",
        steps,
    ]
    return visible(" · ".join(filter(None, parts)), most=300)


def _name_anchor(anchor: Anchor, profiler: Profiler) -> str:
    """Say by what steps were found."""
    if anchor.name:
        kind = "NVTX range" if profiler is Profiler.NSYS else "range"
        return f'marked by the {kind} "{visible(shorten_anchor(anchor.name), most=_LONGEST_ANCHOR)}"'
    if anchor.kind == "optimizer":
        return "ended by optimizer kernels"
    return "found from repeating kernel sequences"


def _count_ranks_and_processes(analysis: Analysis) -> str:
    """Count the ranks, and their processes if these are fewer; the headline says if it covers a part."""
    processes = {(one.input, one.pid) for one in analysis.ranks}
    supplied = len(analysis.ranks)
    many = f" in {units.plural(len(processes), 'process')}" if supplied not in {1, len(processes)} else ""
    return f"{units.plural(supplied, 'rank')}{many}"


def _tabulate_bars(analysis: Analysis, told: Statement) -> Grid:
    """Make a bar for each wall that takes time, the largest first."""
    basis, dominant, is_median = told.basis, told.dominant, told.basis.kind == "median"
    parts = zip(Wall, basis.walls.parts(), strict=True)
    least_ns = SHOWN_WALL_SHARE * basis.total_ns
    shown = [(wall, time_ns) for wall, time_ns in parts if time_ns > least_ns or str(wall) == dominant]
    shown.sort(key=lambda part: (part[0] is Wall.UNATTRIBUTED, -basis.share(part[0]), -part[1]))
    time = analysis.anchor.typical if is_median else "time"
    columns = (
        Column("name", ""),
        Column("bar", "", "bar"),
        Column("share", "median share" if is_median else "share", "percent"),
        Column("time", time, "ms" if basis.total_ns >= _SMALL_NS else "duration"),
        Column("mark", ""),
    )
    rows = tuple(
        (
            f"{'' if basis.title else _MARGIN}{_NAMES[wall]}",
            Cell(basis.share(wall), wall),
            basis.share(wall),
            time_ns,
            "◀" if str(wall) == dominant else "",
        )
        for wall, time_ns in shown
    )
    return Grid(basis.title, columns, rows, has_header=is_median)


def _build_recommendations(analysis: Analysis, rank: Rank, told: Statement) -> Section:
    """Make the first three fixes: title and upper bound, settings and preconditions."""
    shown = select_first_fixes(analysis.fixes or ())[:FIRST_FIXES_COUNT]
    if not shown:
        return Section("fixes", "Recommendations", "", tuple(_explain_no_fixes(analysis, rank, told)))
    has_bound = any(map(write_worth, shown))
    title = title_fixes(shown, analysis)
    rows = [
        row
        for number, fix in enumerate(shown, start=1)
        for row in _list_fix(f"{number}", fix.title, fix, has_bound)
    ]
    for fix in find_blocked_fixes(shown, analysis.fixes or ()):
        rows += _list_fix("-", f"Held back: {fix.title}", fix, has_bound)
    if has_bound and told.basis.kind == "whole":
        steps_ns = sum(step.end_ns - step.start_ns for step in rank.steps)
        taken = f"{units.duration(steps_ns)} of the {units.duration(told.basis.total_ns)} capture"
        unit = analysis.anchor.unit
        limit = f"These bounds are for one {unit}; all {unit}s together take {taken}."
        rows.append(("", (Span(limit, "dim"),), ""))
    for describe in (describe_unaddressed_compute, describe_unaddressed_loss):
        if unaddressed := describe(analysis, rank):
            rows.append(("", unaddressed, ""))
    return Section("fixes", title, "", (Items(tuple(rows), ("mark", "fold", "right")),))


def _list_fix(mark: str, title: str, fix: Fix, has_bound: bool) -> Iterator[tuple[Line, ...]]:  # noqa: FBT001  # one call
    worth = "not estimated" if has_bound else ""
    worth = write_worth(fix) or worth
    yield mark, (Span(title, fix.wall),), (Span(worth, "strong"),)
    settings, left = shorten_settings(fix.settings, _LONGEST_LINE)
    counts = (units.plural(left, "more setting") if left else "", count_open_conditions(fix))
    counted = " and ".join(filter(None, counts))
    counted += f": wallscope explain {fix.id}" if left else ""
    on_one_line = f"{settings}  # {counted}"
    if settings and counted and len(on_one_line) <= _LONGEST_LINE:
        yield "", (Span(on_one_line, "dim"),), ""
    else:
        yield from (("", (Span(line, "dim"),), "") for line in (settings, counted) if line)
    if assumed := describe_briefly(fix, is_first=mark == "1"):
        yield "", (Span(visible(assumed, most=_LONGEST_ASSUMPTION), "dim"),), ""
    if experience := describe_experience(fix):
        yield "", (Span(experience, "dim"),), ""
    for line in list(describe_obstacles(fix))[:_MOST_OBSTACLES]:
        yield "", line, ""


def _explain_no_fixes(analysis: Analysis, rank: Rank, told: Statement) -> Iterator[Grid | Lines]:
    """Say that no fix is known, and which causes take most."""
    least_ns = SHOWN_LOSS_SHARE * rank.typical.step_ns
    lost = [entry for entry in rank.causes if entry.wall in LOSSES and entry.typical_ns > least_ns]
    text = "No known fix applies to this capture."
    if told.dominant == "unknown":
        text = (
            "Nothing can be recommended until the wall is known. Capture the missing data first (see Next)."
        )
    unaddressed, losses = describe_unaddressed_compute(analysis, rank), " These are the largest losses:"
    yield Lines(tuple(filter(None, (unaddressed, text + (losses if lost else "")))))
    if lost:
        columns = (
            Column("margin", "", value=lambda _: ""),
            Column("cause", "", value=lambda one: Cell(describe_cause(one.cause), one.wall), wrap="words"),
            Column("share", "share", "percent"),
            Column("typical_ns", "time", "duration"),
        )
        largest = sorted(lost, key=lambda one: -one.typical_ns)[:FIRST_FIXES_COUNT]
        yield tabulate("", columns, largest, has_header=False)


def _list_run_facts(analysis: Analysis, rank: Rank, told: Statement) -> Iterator[tuple[Line, ...]]:
    """List steps, ranks, throughput, memory, and how sure the verdict is."""
    pressure, job = analysis.diagnosis.memory_pressure, analysis.job
    evidence = f": {pressure.evidence[0]}" if pressure.evidence else ""
    relief, command = told.relief
    shown = select_first_fixes(analysis.fixes or ())[:FIRST_FIXES_COUNT]
    is_full = len(told.sentence) + sum(len(fix.assumes or "") for fix in shown) > _LONGEST_TEXTS
    facts: dict[str, list[Line]] = {
        "Steps": [*_describe_steps(analysis, rank)],
        "Ranks": [*([] if job is None else _describe_ranks(job, analysis)), *told.absent],
        "Overlap": [*told.overlap],
        "Throughput": [*told.throughput],
        "GPU memory": [
            (Span(f"Memory pressure is {describe_pressure(pressure)}{evidence}", "warning"),),
            (Span(f"{relief} " if command else relief, "dim"), Span(command, "setting")),
        ],
        "How sure": [describe_confidence(analysis), *list_caveats(analysis, rank, is_brief=is_full)],
    }
    if pressure.level != "high":
        facts["GPU memory"].clear()
    for label, lines in facts.items():
        for place, line in enumerate(lines):
            yield (Span(f"{'' if place else label:<{_LABEL}}", "strong"),), line


def _describe_steps(analysis: Analysis, rank: Rank) -> Iterator[str]:
    """Say how step lengths vary, and which is the slowest, where there are several."""
    steady = sorted((step.end_ns - step.start_ns, step.index) for step in rank.steps if step.steady)
    if analysis.anchor.kind == "whole-trace":
        return
    unit = analysis.anchor.window
    counted = _count_steady(len(steady), len(rank.steps), analysis)
    if len(steady) < 2:
        yield counted
        return
    slowest_ns, index = steady[-1]
    mean = "interquartile mean" if len(steady) >= FEWEST_STEPS_FOR_QUARTILES_COUNT else "mean"
    typical = units.duration(rank.typical.step_ns)
    if mixed := count_typical_kinds(rank):
        mean += f" of {unit}s: {', '.join(mixed)}"
    lengths = f"The typical {unit} takes {typical} ({mean})"
    kinds = describe_kinds(rank, unit)
    if kinds and rank.mean_step_ns is not None:
        counted += f" {units.capitalize(kinds)}{_describe_level(rank.modes[-1])}."
        lengths += f", the mean of all {unit}s is {units.duration(rank.mean_step_ns)}"
    else:
        median = units.duration(round(float(np.median([length_ns for length_ns, _ in steady]))))
        lengths += "" if median == typical else f", the median is {median}"
    yield f"{counted} {lengths}, and the slowest takes {units.duration(slowest_ns)} ({unit} {index})."


def _count_steady(steady: int, found: int, analysis: Analysis) -> str:
    """Say in a sentence how many of the steps are steady, and how steps were found."""
    unit, marker = analysis.anchor.window, _name_anchor(analysis.anchor, analysis.inputs[0].profiler)
    if found == 1:
        return f"The only {unit} {marker} is {'' if steady else 'not '}steady."
    count = "None" if not steady else "All" if steady == found else f"{steady:,}"
    of = "" if count == "All" else " of the"
    return f"{count}{of} {units.plural(found, unit)} {marker} {'is' if steady < 2 else 'are'} steady."


def _describe_level(mode: StepMode) -> str:
    """Return that the kernels of a kind of steps are slower, if they are."""
    ratio = mode.kernel_ratio
    return "" if ratio is None or ratio < SLOWER_KERNELS_RATIO else f" (same kernels {ratio:.2f}x as long)"


def _describe_ranks(job: Job, analysis: Analysis) -> Iterator[str]:
    """Say what the step becomes with each repair; that nothing holds the job up, or that this is unknown."""
    if not job.collectives.matched:
        yield "No collective could be matched between ranks, so it is unknown which rank waits for which."
        return
    window = analysis.anchor.window
    if job.stragglers:
        yield describe_repairs(job, window)
    if job.replayed_step_ns is None:
        yield describe_unknown(job, window)
    elif not job.stragglers:
        waited = units.duration(job.collectives.jitter_ns)
        yield f"No rank, node, stage or link holds the job up; a rank waits {waited} per {window} on average."


def _list_commands(
    analysis: Analysis, source: str, *, asks_configuration: bool
) -> Iterator[tuple[Line, ...]]:
    """List what to run next, with what each is for where there is room."""
    for place, (command, reason) in enumerate(
        _suggest(analysis, source, asks_configuration=asks_configuration)
    ):
        label: Line = f"{'':<{_LABEL}}" if place else (Span(f"{'Next':<{_LABEL}}", "strong"),)
        text = f"wallscope {command}"
        has_room = len(text) + len(reason) <= _LONGEST_COMMAND
        for line in _break_command(text, _LONGEST_COMMAND):
            yield label, (Span(line, "setting"), Span(f"  {reason}" if has_room else "", "dim"))
            label = f"{'':<{_LABEL}}"


def _break_command(command: str, most: int) -> list[str]:
    r"""Break a command into lines that a shell reads as one.

    >>> _break_command("wallscope analyze a.sqlite --full", 28)
    ['wallscope analyze a.sqlite \\', '  --full']
    >>> _break_command("wallscope analyze 'my run.sqlite' --html run.html", 36)
    ["wallscope analyze 'my run.sqlite' \\", '  --html run.html']
    """
    if len(command) <= most:
        return [command]
    lines = [""]
    for word in _WORDS.findall(command):
        if len(lines[-1]) + len(word) + 3 > most and lines[-1]:
            lines.append(" ")
        lines[-1] += f" {word}" if lines[-1] else word
    return [f"{line} \\" for line in lines[:-1]] + lines[-1:]


def _suggest(analysis: Analysis, source: str, *, asks_configuration: bool) -> Iterator[tuple[str, str]]:
    codes = {finding.code for finding in analysis.capture.findings}
    shown = select_first_fixes(analysis.fixes or ())[:FIRST_FIXES_COUNT]
    if shown:
        yield f"explain {shown[0].id}", "why and how"
    if analysis.diagnosis.dominant_wall == "unknown" or FindingCode.NO_KERNELS in codes:
        yield f"capture-help {source}", "capture what is missing"
    elif FindingCode.NO_STEPS in codes:
        yield f"analyze {source} --step-range REGEX", "select the range that marks a step"
    has_checks = any(one.status == "unknown" for fix in shown for one in fix.preconditions)
    if (
        asks_configuration
        and has_checks
        and analysis.program is not None
        and analysis.program.framework == "megatron"
    ):
        yield f"analyze {source} --config FILE", "check preconditions"
    yield f"analyze {source} --full", "causes, kernels, host"
    yield f"analyze {source} --html run.html", "timeline"
