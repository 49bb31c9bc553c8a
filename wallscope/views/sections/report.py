"""The sections of an answer, in the order of their questions; a page and a terminal show the same ones."""

from collections.abc import Iterator
from dataclasses import replace

from wallscope import units
from wallscope.model.analysis import Analysis, Rank
from wallscope.model.cause_catalogue import DRAINED
from wallscope.model.diagnosis import RareStall
from wallscope.model.enums import Wall
from wallscope.model.report import Report
from wallscope.model.section import PAGE, Column, Grid, Section, tabulate
from wallscope.views.sections.depth import build_walls_in_depth
from wallscope.views.sections.findings import build_limits
from wallscope.views.sections.job import build_clocks, build_job, build_ranks, build_survey
from wallscope.views.sections.steps import build_phases, build_steps
from wallscope.views.sections.walls import build_causes, tabulate_walls
from wallscope.views.verdict import choose_basis, find_deciding_stall
from wallscope.views.whatif import build_path

_OF_TYPICAL = frozenset({"causes", "path", *map(str, Wall)})
"""Sections about the typical step alone."""
_AFTER_CALLS = (
    "Host time between a blocking call and the next launch is in the row of that call. The rest of the time"
    " outside calls is in the row host/framework."
)


def build_sections(report: Report) -> tuple[Section, ...]:
    """Make all sections but the timeline; those that are not asked here are left out.

    A report without timelines, gaps, path and lanes, as a terminal has, has the sections without these.
    """
    analysis = report.analysis
    rank = analysis.ranks[analysis.diagnosis.rank_index]
    slow = find_deciding_stall(rank, choose_basis(analysis, rank), analysis.diagnosis.dominant_wall)
    found = _list_sections(report, rank)
    unit = analysis.anchor.window
    return tuple(
        one if slow is None else _exclude_slow_steps(one, slow, unit) for one in found if one is not None
    )


def _list_sections(report: Report, rank: Rank) -> Iterator[Section | None]:
    analysis = report.analysis
    yield build_job(report)
    yield build_ranks(analysis)
    yield build_steps(analysis, rank, report.timelines, report.drawn_steps)
    yield _build_breakdown(analysis, rank)
    yield build_path(report, rank)
    yield from build_walls_in_depth(analysis, rank)
    yield build_phases(analysis, rank)
    yield build_survey(analysis)
    yield build_clocks(analysis)
    yield _build_quality(analysis)


def _exclude_slow_steps(section: Section, slow: RareStall, unit: str) -> Section:
    """Say of a section of the typical step alone that the steps which decide the wall are not in it."""
    if section.key not in _OF_TYPICAL:
        return section
    count = units.plural(len(slow.steps), f"slow {unit}")
    note = f"The typical {unit} leaves out the {count}, which decide the dominant wall."
    return replace(section, answer=f"{section.answer} {note}")


def _build_breakdown(analysis: Analysis, rank: Rank) -> Section:
    """Make the walls of the step, then its causes with the step without each."""
    causes, walls, whole = (
        build_causes(analysis, rank),
        tabulate_walls(analysis, rank),
        analysis.anchor.typical,
    )
    titles = {
        "part": f"share of the {whole}",
        "median": f"median share of steady {analysis.anchor.unit}s",
        "spread": f"p10 to p90 of steady {analysis.anchor.unit}s",
    }
    columns = tuple(
        replace(one, title=titles.get(one.key, one.title)) if one.media == PAGE else one
        for one in walls.columns
    )
    drawn, *tables = causes.blocks
    if any(one.cause.startswith(DRAINED) for one in rank.causes):
        tables = [replace(one, notes=(*one.notes, _AFTER_CALLS)) for one in tables if isinstance(one, Grid)]
    return replace(causes, blocks=(drawn, replace(walls, columns=columns), *tables))


def _build_quality(analysis: Analysis) -> Section:
    """Make what limits the claims, and what the next capture should record."""
    limits = build_limits(analysis.capture.findings)
    if not analysis.capture_advice:
        return limits
    columns = (
        Column("title", "for the next capture"),
        Column("settings", "settings", value=lambda fix: " ".join(one.write() for one in fix.settings)),
    )
    table = tabulate("What the next capture should record", columns, analysis.capture_advice, is_wordy=True)
    return replace(limits, blocks=(*limits.blocks, table))
