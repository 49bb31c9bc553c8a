"""The answer of an analysis in every medium: what is wrong and what to do come first, then the details."""

from collections.abc import Iterator, Sequence

from rich.console import RenderableType
from rich.constrain import Constrain

from wallscope import units
from wallscope.model.advice import Fix
from wallscope.model.analysis import Analysis, Rank
from wallscope.model.capture import Finding
from wallscope.model.enums import Wall
from wallscope.model.section import Cell, Column, Grid, Line, Lines, Row, Section, Span, Tone, append_row
from wallscope.render.html import write_card
from wallscope.render.markdown import code, escape, join_blocks, render_table
from wallscope.render.terminal import render_sections
from wallscope.views.first_screen import build_first_screen
from wallscope.views.headline import build_headline, write_headline
from wallscope.views.sections.depth import build_details, tabulate_budget
from wallscope.views.sections.findings import build_findings, describe_confidence, sort_findings
from wallscope.views.sections.job import build_job_details, tabulate_ranks
from wallscope.views.sections.walls import (
    build_capture_quality,
    build_fixes,
    build_losses,
    count_left_out,
    count_preconditions,
    describe_answer,
    describe_replay,
    select_first_fixes,
    tabulate_losses,
    tabulate_walls,
    title_fixes,
)
from wallscope.views.sections.words import (
    describe_capture,
    describe_pressure,
    describe_steps,
    describe_throughput,
    explain_choice,
    name_rank,
)
from wallscope.views.verdict import (
    choose_basis,
    explain_verdict,
    list_explanation,
    list_job_verdict,
    list_verdict_sentences,
    name_basis,
)

_MOST_FIXES = 3
_MOST_SETTINGS, _MOST_UNMET, _MOST_UNKNOWN = 8, 6, 3
_MOST_FINDINGS = 12
_LONGEST_VERDICT, _LONGEST_NOTE = 1_500, 300
_WIDEST = 100


def render_analysis(
    analysis: Analysis, source: str = "", *, is_full: bool = False, has_configuration: bool = False
) -> RenderableType:
    """Render the first screen for a terminal, or the whole answer.

    Details are those of the rank that the diagnosis is about; `source` is how the user named the input, and
    `has_configuration` whether the run's configuration was given.
    """
    if is_full:
        return render_sections(_build_summary(analysis, _find_rank(analysis)))
    return Constrain(
        render_sections(build_first_screen(analysis, source, has_configuration=has_configuration)), _WIDEST
    )


def _find_rank(analysis: Analysis) -> Rank:
    return analysis.ranks[analysis.diagnosis.rank_index]


def _build_summary(analysis: Analysis, rank: Rank) -> Iterator[Section | Grid]:
    """Make everything that a terminal shows: verdict, walls, losses, fixes, limits, what they are made of."""
    job, diagnosis = analysis.job, analysis.diagnosis
    yield Section("head", "", "", (Lines(tuple(_describe_head(analysis, rank))),))
    own, of_job = list_verdict_sentences(analysis), list_job_verdict(analysis)
    verdicts = [own, of_job] if of_job else [own]
    if job is not None and job.collectives.matched:
        lead = list_explanation(analysis, rank, choose_basis(analysis, rank))
        of_rank = (f"{units.capitalize(name_rank(rank))} alone: {own[0]}", *own[1:])
        verdicts = [lead, of_job, of_rank]
    first, *others = map(stress_first, verdicts)
    yield build_headline(analysis, first)
    yield from (Section("verdict", "", "", (Lines((one,)),)) for one in others)
    walls, pressure = tabulate_walls(analysis, rank), diagnosis.memory_pressure
    evidence = f": {'; '.join(pressure.evidence)}" if pressure.evidence else ""
    lines = (
        (f"memory pressure {describe_pressure(pressure)}{evidence}",) if pressure.level != "unknown" else ()
    )
    if diagnosis.confidence is not None:
        lines = (f"confidence {describe_confidence(analysis, has_caveats=False)}", *lines)
    yield Section("walls", walls.title, "", (walls, Lines(lines)))
    losses = build_losses(analysis, rank)
    if losses is not None:
        yield losses
    if analysis.fixes:
        yield build_fixes(
            analysis.fixes,
            analysis.replay,
            analysis.program,
            analysis.dismissed,
            has_steps=analysis.anchor.kind != "whole-trace",
        )
    yield build_findings(analysis.capture.findings)
    if analysis.capture_advice:
        yield build_capture_quality(analysis.capture_advice)
    if job is not None and job.collectives.matched:
        yield from build_job_details(job)
    if len(analysis.ranks) > 1:
        yield tabulate_ranks(analysis, analysis.ranks)
    yield tabulate_budget(analysis, rank)
    yield from build_details(analysis, rank)


def _describe_head(analysis: Analysis, rank: Rank) -> Iterator[Line]:
    yield describe_capture(analysis, rank.input)
    tone: Tone | None = "warning" if analysis.anchor.kind == "whole-trace" else None
    yield from ((Span(line, tone),) for line in describe_steps(analysis.anchor, rank))
    if len(analysis.ranks) > 1:
        yield units.capitalize(_name_shown_rank(analysis, rank))
    yield from describe_throughput(analysis.diagnosis.throughput)


def _name_shown_rank(analysis: Analysis, rank: Rank) -> str:
    """Say whose results are shown, of several ranks, and why."""
    ranks = len(analysis.ranks)
    return f"the results are those of one of {ranks} ranks: {name_rank(rank)}, {explain_choice(analysis)}"


def stress_first(sentences: Sequence[str]) -> Line:
    """Stress the first sentence of a paragraph."""
    first, *rest = sentences
    return Span(first, "strong"), f" {' '.join(rest)}" if rest else ""


def write_analysis_markdown(analysis: Analysis) -> str:
    """Write the first screen of the answer and what it rests on, for pull requests and job summaries."""
    rank = _find_rank(analysis)
    whole, step = Cell(analysis.anchor.typical, tone="strong"), Cell(rank.typical.step_ns, tone="strong")
    walls = append_row(tabulate_walls(analysis, rank), {"wall": whole, "time": step})
    losses = tabulate_losses(analysis, rank)
    return join_blocks(
        (
            _list_verdict(analysis, rank),
            _list_fixes(analysis),
            [f"#### {walls.title}", "", *render_table(walls)],
            [] if losses is None else _write_losses(losses),
            _list_findings(analysis.capture.findings),
            _list_capture_advice(analysis),
            [f"<sub>wallscope {analysis.wallscope_version}; shares of the {analysis.anchor.typical}</sub>"],
        ),
        "_The rest is left out: `wallscope analyze --full` shows it._",
    )


def _write_losses(losses: Grid) -> list[str]:
    """Write the causes with their bounds, and below them what the bounds assume."""
    notes = [line for note in losses.notes for line in (escape(note, _LONGEST_NOTE), "")]
    return [f"#### {losses.title}", "", *render_table(losses), *notes]


def _list_verdict(analysis: Analysis, rank: Rank) -> list[str]:
    """Say what wall it is, and by what steps; without steps that is said."""
    diagnosis, pressure = analysis.diagnosis, analysis.diagnosis.memory_pressure
    facts = [*describe_steps(analysis.anchor, rank)]
    if len(analysis.ranks) > 1:
        facts.append(_name_shown_rank(analysis, rank))
    facts += describe_throughput(diagnosis.throughput)
    if pressure.level != "unknown":
        evidence = "; ".join(pressure.evidence)
        facts.append(f"memory pressure {describe_pressure(pressure)}{': ' if evidence else ''}{evidence}")
    return [
        f"### wallscope: {write_headline(analysis)}",
        "",
        f"**{escape(explain_verdict(analysis, rank, choose_basis(analysis, rank)), _LONGEST_VERDICT)}**",
        "",
        escape(diagnosis.verdict, _LONGEST_VERDICT),
        "",
        escape(describe_capture(analysis, rank.input)),
        "",
        *([] if analysis.job is None else [escape(analysis.job.verdict, _LONGEST_VERDICT), ""]),
        *(f"- {escape(line)}" for line in facts),
    ]


def _list_fixes(analysis: Analysis) -> list[str]:
    """List the first fixes with settings, preconditions and ceilings."""
    found = analysis.fixes or ()
    shown = select_first_fixes(found)[:_MOST_FIXES]
    if not shown:
        return []
    title = title_fixes(shown, has_steps=analysis.anchor.kind != "whole-trace")
    lines = [f"#### {title}", ""]
    for number, fix in enumerate(shown, start=1):
        ceiling = (
            "speedup not estimated" if fix.speedup_ceiling is None else f"up to {fix.speedup_ceiling:.2f}x"
        )
        ceiling += "" if fix.recoverable_ns is None else f", {units.milliseconds(fix.recoverable_ns)}"
        lines.append(f"{number}. **{escape(fix.title)}** ({fix.wall}; {ceiling})")
        lines += [f"   - {line}" for line in _describe_fix(fix)]
    if analysis.replay is not None:
        lines += ["", escape(describe_replay(analysis.replay), 400)]
    if left := len(found) - len(shown):
        lines += ["", f"{left} more: `wallscope analyze --json FILE`."]
    return lines


def _list_capture_advice(analysis: Analysis) -> list[str]:
    """List what would let the capture say more."""
    if not analysis.capture_advice:
        return []
    lines = ["#### Capture quality: what to record for a better analysis", ""]
    for fix in analysis.capture_advice[:_MOST_FIXES]:
        settings = ", ".join(code(entry.write(), 200) for entry in fix.settings[:_MOST_SETTINGS])
        lines.append(f"- {escape(fix.title)}{f': {settings}' if settings else ''}")
    return lines


def _describe_fix(fix: Fix) -> Iterator[str]:
    yield from (f"{entry.system}: {code(entry.write(), 200)}" for entry in fix.settings[:_MOST_SETTINGS])
    if left := count_left_out(len(fix.settings) - _MOST_SETTINGS):
        yield f"{left.strip()} settings"
    for entry in [entry for entry in fix.preconditions if entry.status == "unmet"][:_MOST_UNMET]:
        cure = f" → {escape(entry.unblock)}" if entry.unblock else ""
        yield f"**blocked:** {escape(entry.text)}{cure}"
    if fix.replay is not None:
        yield escape(describe_answer(fix, fix.replay), 300)
    if fix.assumes:
        yield escape(fix.assumes, 300)
    yield from (f"evidence: {escape(line, 300)}" for line in fix.evidence)
    if fix.preconditions:
        unknown = [entry.text for entry in fix.preconditions if entry.status == "unknown"]
        yield f"preconditions: {count_preconditions(fix)}"
        yield from (f"to check: {escape(text)}" for text in unknown[:_MOST_UNKNOWN])


def _list_findings(findings: tuple[Finding, ...]) -> list[str]:
    """List the limits of the claims, errors first."""
    if not findings:
        return ["No limit of these claims was found."]
    lines = [f"<details><summary>{units.plural(len(findings), 'limit')} of these claims</summary>", ""]
    for entry in sort_findings(findings)[:_MOST_FINDINGS]:
        cure = f" → {escape(entry.cure)}" if entry.cure else ""
        lines.append(f"- {entry.severity}, {code(entry.code)}: {escape(entry.message)}{cure}")
    if len(findings) > _MOST_FINDINGS:
        lines.append(f"- {len(findings) - _MOST_FINDINGS} more: `wallscope analyze --json FILE`")
    return [*lines, "", "</details>"]


def _describe_worth(fix: Fix) -> str:
    """Write the upper bound on a fix with what it assumes; empty without one."""
    assumed = f"; {fix.assumes}" if fix.assumes else ""
    return "" if fix.speedup_ceiling is None else f" (up to {fix.speedup_ceiling:.2f}x{assumed})"


def write_analysis_card(analysis: Analysis) -> str:
    """Write what a notebook shows: the verdict, the walls as one bar and in numbers, the first fixes."""
    rank = _find_rank(analysis)
    basis = choose_basis(analysis, rank)
    parts = {wall: time_ns for wall, time_ns in zip(Wall, basis.walls.parts(), strict=True) if time_ns}
    columns = (
        Column("wall", "wall"),
        Column("time_ns", name_basis(analysis, basis), "ms"),
        Column("share", "median share" if basis.kind == "median" else "share", "percent"),
    )
    rows: tuple[Row, ...] = (
        *((Cell(str(wall), wall), time_ns, basis.share(wall)) for wall, time_ns in parts.items()),
        (Cell("all", tone="dim"), basis.total_ns, ""),
    )
    fixes = [
        f"{fix.title}{_describe_worth(fix)}" for fix in select_first_fixes(analysis.fixes or ())[:_MOST_FIXES]
    ]
    origin = describe_capture(analysis, rank.input)
    return write_card(
        origin,
        (f"{units.capitalize(write_headline(analysis))}.", *list_verdict_sentences(analysis)),
        Grid("", columns, rows),
        parts,
        fixes,
    )
