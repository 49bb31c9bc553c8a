"""The sections of an answer, in the order of their questions; a page and a terminal show the same ones."""

from collections.abc import Iterator
from dataclasses import replace

from wallscope import units
from wallscope.model.analysis import Rank
from wallscope.model.diagnosis import RareStall
from wallscope.model.enums import Wall
from wallscope.model.report import Report
from wallscope.model.section import Section
from wallscope.views.sections.depth import build_walls_in_depth
from wallscope.views.sections.findings import build_limits
from wallscope.views.sections.job import build_clocks, build_job, build_ranks, build_survey
from wallscope.views.sections.light import build_light
from wallscope.views.sections.steps import build_phases, build_steps
from wallscope.views.sections.vision import build_vision
from wallscope.views.sections.walls import build_causes
from wallscope.views.verdict import choose_basis, find_deciding_stall
from wallscope.views.whatif import build_path

_OF_TYPICAL = frozenset({"causes", "light", "path", *map(str, Wall)})
"""Sections about the typical step alone."""


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
    yield build_causes(analysis, rank)
    yield build_light(analysis, rank)
    yield build_path(report, rank)
    yield from build_walls_in_depth(analysis, rank)
    yield build_vision(analysis, rank)
    yield build_phases(analysis, rank)
    yield build_survey(analysis)
    yield build_clocks(analysis)
    yield build_limits(analysis.capture.findings, analysis.capture_advice)


def _exclude_slow_steps(section: Section, slow: RareStall, unit: str) -> Section:
    """Say of a section of the typical step alone that the steps which decide the wall are not in it."""
    if section.key not in _OF_TYPICAL:
        return section
    count = units.plural(len(slow.steps), f"slow {unit}")
    note = f"The typical {unit} leaves out the {count}, which decide the dominant wall."
    return replace(section, answer=f"{section.answer} {note}")
