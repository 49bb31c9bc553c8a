"""The answer of an analysis in every medium: what is wrong and what to do come first, then the details."""

from collections.abc import Iterator, Sequence

from rich.console import RenderableType

from wallscope import units
from wallscope.model.analysis import Analysis, Rank
from wallscope.model.capture import Finding
from wallscope.model.enums import Wall
from wallscope.model.report import Report
from wallscope.model.section import (
    Cell,
    Column,
    Grid,
    Items,
    KeyAnswer,
    Line,
    Lines,
    Row,
    Section,
    Span,
    Tone,
    append_row,
)
from wallscope.render.html import write_card
from wallscope.render.markdown import code, escape, join_blocks, render_table
from wallscope.render.terminal import render_sections
from wallscope.thresholds.verdict import FIRST_FIXES_COUNT
from wallscope.views.cards import build_recommendations, list_card_lines
from wallscope.views.first_screen import build_opening, render_first_screen
from wallscope.views.sections.depth import tabulate_budget
from wallscope.views.sections.findings import build_findings, describe_confidence, sort_findings
from wallscope.views.sections.report import build_sections
from wallscope.views.sections.walls import (
    build_capture_quality,
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
from wallscope.views.statement import Statement, state_analysis
from wallscope.views.verdict import list_job_verdict, list_verdict_sentences

_MOST_SETTINGS = 8
_MOST_FINDINGS = 12
_LONGEST_VERDICT, _LONGEST_NOTE = 1_500, 300


def render_analysis(
    analysis: Analysis, source: str = "", *, is_full: bool = False, has_configuration: bool = False
) -> RenderableType:
    """Render the first screen for a terminal, or the whole answer.

    Details are those of the rank that the diagnosis is about; `source` is how the user named the input, and
    `has_configuration` whether the run's configuration was given.
    """
    if is_full:
        return render_sections(_build_full_analysis(analysis, _find_rank(analysis)))
    return render_first_screen(analysis, source, has_configuration=has_configuration)


def _find_rank(analysis: Analysis) -> Rank:
    return analysis.ranks[analysis.diagnosis.rank_index]


def _build_full_analysis(analysis: Analysis, rank: Rank) -> Iterator[Section | Grid]:
    """Make everything that a terminal shows: verdict, walls, losses, fixes, limits, what they are made of."""
    job, diagnosis, told = analysis.job, analysis.diagnosis, state_analysis(analysis)
    yield Section("head", "", "", (Lines(tuple(_describe_capture_head(analysis, rank))),))
    own, of_job = list_verdict_sentences(analysis), list_job_verdict(analysis)
    verdicts = [own, of_job] if of_job else [own]
    if job is not None and job.collectives.matched:
        of_rank = (f"{units.capitalize(name_rank(rank))} alone: {own[0]}", *own[1:])
        verdicts = [told.sentences, of_job, of_rank]
    first, *others = map(stress_first, verdicts)
    yield build_opening(told, first)
    yield from (Section("verdict", "", "", (Lines((one,)),)) for one in others)
    pressure = diagnosis.memory_pressure
    evidence = f": {'; '.join(pressure.evidence)}" if pressure.evidence else ""
    lines = (
        (f"memory pressure {describe_pressure(pressure)}{evidence}",) if pressure.level != "unknown" else ()
    )
    if diagnosis.confidence is not None:
        lines = (describe_confidence(analysis, has_caveats=False), *lines)
    yield Section("answers", "", "", (Items(tuple(map(_write_answer, told.answers[1:]))),))
    sections = {one.key: one for one in build_sections(Report(analysis, (), ()))}
    answer, walls, *causes = unfold_section(sections.pop("causes"))
    yield from (walls, Section("sure", "", "", (Lines(lines),)), answer, *causes)
    if told.cards:
        fixes = tuple(card.fix for card in told.cards)
        title = title_fixes(select_first_fixes(fixes), analysis)
        yield build_recommendations(told.cards, told.notes, title)
    yield build_findings(analysis.capture.findings)
    if analysis.capture_advice:
        yield build_capture_quality(analysis.capture_advice)
    del sections["limits"]
    yield tabulate_budget(analysis, rank)
    for section in sections.values():
        yield from unfold_section(section)


def _write_answer(answer: KeyAnswer) -> tuple[Line, ...]:
    """Write one of the five answers: its label, its few words, and what explains them."""
    return (Span(answer.label, "strong"),), (Span(answer.head, answer.wall), *_list_explanation(answer))


def _list_explanation(answer: KeyAnswer) -> Iterator[str]:
    if answer.predicted:
        yield f", {units.join_ends(*answer.predicted[:2], ' → ')}"
    yield from (f"{'. ' if not place else ' '}{line}" for place, line in enumerate(answer.lines))
    if answer.command:
        yield f" {answer.command}"


def unfold_section(section: Section) -> Iterator[Section | Grid]:
    """Show a section of a page on a terminal: its answer with its sentences, then each of its tables."""
    lines = tuple(block for block in section.blocks if isinstance(block, Lines))
    yield Section(section.key, section.title, "", (Lines((section.answer,)), *lines))
    yield from (block for block in section.blocks if isinstance(block, Grid) and block.rows)


def _describe_capture_head(analysis: Analysis, rank: Rank) -> Iterator[Line]:
    yield describe_capture(analysis, rank.input)
    tone: Tone | None = "warning" if analysis.anchor.kind == "whole-trace" else None
    yield from ((Span(line, tone),) for line in describe_steps(analysis.anchor, rank))
    if len(analysis.ranks) > 1:
        yield units.capitalize(_explain_shown_rank(analysis, rank))
    yield from describe_throughput(analysis.diagnosis.throughput)


def _explain_shown_rank(analysis: Analysis, rank: Rank) -> str:
    """Say whose results are shown, of several ranks, and why."""
    ranks = len(analysis.ranks)
    return f"the results are those of one of {ranks} ranks: {name_rank(rank)}, {explain_choice(analysis)}"


def stress_first(sentences: Sequence[str]) -> Line:
    """Stress the first sentence of a paragraph."""
    first, *rest = sentences
    return Span(first, "strong"), f" {' '.join(rest)}" if rest else ""


def write_analysis_markdown(analysis: Analysis) -> str:
    """Write the first screen of the answer and what it rests on, for pull requests and job summaries."""
    rank, told = _find_rank(analysis), state_analysis(analysis)
    whole, step = Cell(analysis.anchor.typical, tone="strong"), Cell(rank.typical.step_ns, tone="strong")
    walls = append_row(tabulate_walls(analysis, rank), {"wall": whole, "time": step})
    losses = tabulate_losses(analysis, rank)
    return join_blocks(
        (
            _list_verdict(analysis, rank, told),
            _list_fixes(analysis, told),
            [f"#### {walls.title}", "", *render_table(walls)],
            [] if losses is None else _write_losses(losses),
            _list_limits_of_claims(analysis.capture.findings),
            _list_capture_advice(analysis),
            _list_paragraphs(told),
            [f"<sub>wallscope {analysis.wallscope_version}; shares of the {analysis.anchor.typical}</sub>"],
        ),
        "_The rest is left out: `wallscope analyze --full` shows it._",
    )


def _write_losses(losses: Grid) -> list[str]:
    """Write the causes with their bounds, and below them what the bounds assume."""
    notes = [line for note in losses.notes for line in (escape(note, _LONGEST_NOTE), "")]
    return [f"#### {losses.title}", "", *render_table(losses), *notes]


def _list_verdict(analysis: Analysis, rank: Rank, told: Statement) -> list[str]:
    """Say what wall it is, and by what steps; without steps that is said."""
    pressure = analysis.diagnosis.memory_pressure
    facts = [*describe_steps(analysis.anchor, rank)]
    if told.shown_rank:
        facts.append(f"the results are those of {told.shown_rank}")
    facts += describe_throughput(analysis.diagnosis.throughput)
    if pressure.level != "unknown":
        evidence = "; ".join(pressure.evidence)
        facts.append(f"memory pressure {describe_pressure(pressure)}{': ' if evidence else ''}{evidence}")
    return [
        f"### wallscope: {escape(told.opening, _LONGEST_VERDICT)}",
        "",
        *((escape(told.sentence, _LONGEST_VERDICT), "") if told.sentence else ()),
        escape(" · ".join(told.subject)),
        "",
        *(f"- {escape(''.join(_list_answer(one)), _LONGEST_NOTE)}" for one in told.answers[1:]),
        *(f"- {escape(line)}" for line in facts),
    ]


def _list_answer(answer: KeyAnswer) -> Iterator[str]:
    yield f"{answer.label}: {answer.head}"
    yield from _list_explanation(answer)


def _list_fixes(analysis: Analysis, told: Statement) -> list[str]:
    """List the first fixes with settings, preconditions and ceilings."""
    shown = select_first_fixes(tuple(card.fix for card in told.cards))[:FIRST_FIXES_COUNT]
    if not shown:
        return []
    title = title_fixes(shown, analysis)
    lines = [f"#### {title}", ""]
    for number, card in enumerate(told.cards[: len(shown)], start=1):
        worth = card.badge or "speedup not estimated"
        lines.append(f"{number}. **{escape(card.fix.title)}** ({card.fix.wall}; {worth})")
        for kind, text in list_card_lines(card):
            lines.append(f"   - {code(text, 200) if kind == 'setting' else escape(text, _LONGEST_NOTE)}")
    if left := len(told.cards) - len(shown):
        lines += ["", f"{left} more: `wallscope analyze --json FILE`."]
    return lines


def _list_paragraphs(told: Statement) -> list[str]:
    """Write the verdict in full, and what the recommendations rest on, folded."""
    lines = [
        line for text in (*told.paragraphs, *told.notes) for line in (escape(text, _LONGEST_VERDICT), "")
    ]
    summary = "Verdict in full, and what the recommendations rest on"
    return [f"<details><summary>{summary}</summary>", "", *lines, "</details>"]


def _list_capture_advice(analysis: Analysis) -> list[str]:
    """List what would let the capture say more."""
    if not analysis.capture_advice:
        return []
    lines = ["#### Capture quality: what to record for a better analysis", ""]
    for fix in analysis.capture_advice[:FIRST_FIXES_COUNT]:
        settings = ", ".join(code(entry.write(), 200) for entry in fix.settings[:_MOST_SETTINGS])
        lines.append(f"- {escape(fix.title)}{f': {settings}' if settings else ''}")
    return lines


def _list_limits_of_claims(findings: tuple[Finding, ...]) -> list[str]:
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


def write_analysis_card(analysis: Analysis) -> str:
    """Write what a notebook shows: the verdict, the walls as one bar and in numbers, the first fixes."""
    told = state_analysis(analysis)
    basis = told.basis
    parts = {wall: time_ns for wall, time_ns in zip(Wall, basis.walls.parts(), strict=True) if time_ns}
    columns = (
        Column("wall", "wall"),
        Column("time_ns", told.whole, "ms"),
        Column("share", "median share" if basis.kind == "median" else "share", "percent"),
    )
    rows: tuple[Row, ...] = (
        *((Cell(str(wall), wall), time_ns, basis.share(wall)) for wall, time_ns in parts.items()),
        (Cell("all", tone="dim"), basis.total_ns, ""),
    )
    fixes = []
    for card in told.cards[:FIRST_FIXES_COUNT]:
        worth = "; ".join(filter(None, (card.badge, card.fix.assumes if card.badge else "")))
        fixes.append(f"{card.fix.title}{f' ({worth})' if worth else ''}")
    origin = " · ".join(told.subject)
    return write_card(
        origin,
        (told.opening, *told.sentences),
        Grid("", columns, rows),
        parts,
        fixes,
    )
