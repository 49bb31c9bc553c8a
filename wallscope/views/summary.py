"""The answer on a terminal: what is wrong and what to do on the first screen, then the details."""

from collections.abc import Iterator

from rich.console import RenderableType

from wallscope.model.analysis import Analysis
from wallscope.model.section import Grid, Line, Lines, Section, Span, Tone
from wallscope.render.grids import render_sections
from wallscope.views.phrases import (
    describe_capture,
    describe_steps,
    describe_throughput,
    explain_choice,
    name_rank,
)
from wallscope.views.sections.depth import build_details
from wallscope.views.sections.findings import build_findings
from wallscope.views.sections.fixes import build_fixes
from wallscope.views.sections.job import build_job_details
from wallscope.views.sections.walls import build_losses, tabulate_budget, tabulate_ranks, tabulate_walls

_MOST_LIMITS = 3


def summary(analysis: Analysis) -> RenderableType:
    """Render the whole answer; the details are those of the rank that the diagnosis is about."""
    return render_sections(build_summary(analysis))


def build_summary(analysis: Analysis) -> Iterator[Section | Grid]:
    """Make the first screen: verdict, walls, losses, limits; then what they are made of."""
    rank, job, diagnosis = analysis.ranks[analysis.diagnosis.rank_index], analysis.job, analysis.diagnosis
    yield Section("head", "", "", (Lines(tuple(_describe_head(analysis))),))
    verdicts = [diagnosis.verdict]
    if job is not None:
        verdicts.insert(0 if job.collectives.matched else 1, job.verdict)
    yield from (Section("verdict", "", "", (Lines((stress_first(one),)),)) for one in verdicts)
    walls, pressure = tabulate_walls(analysis, rank), diagnosis.memory_pressure
    evidence = f": {'; '.join(pressure.evidence)}" if pressure.evidence else ""
    lines = (f"memory pressure {pressure.level}{evidence}",) if pressure.level != "unknown" else ()
    yield Section("walls", walls.title, "", (walls, Lines(lines)))
    losses = build_losses(analysis, rank)
    if losses is not None:
        yield losses
    if analysis.fixes:
        yield build_fixes(analysis.fixes, analysis.anchor.typical, analysis.replay)
    yield build_findings(analysis.capture.findings, _MOST_LIMITS)
    if job is not None and job.collectives.matched:
        yield from build_job_details(job)
    if len(analysis.ranks) > 1:
        yield tabulate_ranks(analysis, analysis.ranks)
    yield tabulate_budget(analysis, rank)
    yield from build_details(analysis, rank)


def _describe_head(analysis: Analysis) -> Iterator[Line]:
    rank = analysis.ranks[analysis.diagnosis.rank_index]
    yield describe_capture(analysis, rank.input)
    tone: Tone | None = "warning" if analysis.anchor.kind == "whole-trace" else None
    yield from ((Span(line, tone),) for line in describe_steps(analysis.anchor, rank))
    if len(analysis.ranks) > 1:
        yield f"Of {len(analysis.ranks)} ranks this is {name_rank(rank)}, {explain_choice(analysis)}"
    yield from describe_throughput(analysis.diagnosis.throughput)


def stress_first(paragraph: str) -> Line:
    """Stress the first sentence of a paragraph."""
    first, point, rest = paragraph.partition(". ")
    return Span(f"{first}{point.strip()}", "strong"), f" {rest}" if rest else ""
