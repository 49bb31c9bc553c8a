"""The page of an analysis: the verdict, all steps, recommendations, the timeline, then details in tabs."""

from collections.abc import Sequence
from dataclasses import replace
from statistics import median
from typing import Any

from wallscope import units
from wallscope.model.analysis import Analysis, Rank, Step
from wallscope.model.enums import Wall
from wallscope.model.report import Report
from wallscope.model.section import Section
from wallscope.ranks.job_sentences import describe_repairs
from wallscope.render.html import FirstScreen, SideTime, StepBar, render_page
from wallscope.render.texts import shorten_name
from wallscope.render.timeline_pack import MOST_CHARACTERS, pack_timelines
from wallscope.thresholds.verdict import FIRST_FIXES_COUNT
from wallscope.views.light import is_estimate
from wallscope.views.sections.findings import build_methods
from wallscope.views.sections.kernels import build_kernels
from wallscope.views.sections.report import build_sections
from wallscope.views.sections.steps import (
    build_job_timeline,
    build_timeline,
)
from wallscope.views.sections.walls import (
    describe_answer,
    describe_unaddressed_compute,
)
from wallscope.views.sections.words import count_exports, name_rank
from wallscope.views.statement import Statement, state_analysis

_LARGEST_PAGE = 3_450_000
_MOST_LOSSES = 3
_MOST_BARS = 120
_SEVERAL = 2
_TALLEST_RATIO = 2.5
"""How many times as high as the median step a bar can be; it is cut above."""
_FIRST = ("job", "timeline", "kernels", "compute", "causes", "communication", "host", "memory")
"""Sections that come first, whatever the wall is: a reader finds them at the same place on each page."""


def write_analysis_page(report: Report) -> str:
    """Write the answer as one HTML file: the first screen, the timeline, then all details."""
    page = _write_page(report, MOST_CHARACTERS)
    excess = len(page) - _LARGEST_PAGE
    return _write_page(report, max(MOST_CHARACTERS - excess, 0)) if excess > 0 else page


def _write_page(report: Report, most_characters: int) -> str:
    analysis = report.analysis
    job = analysis.job
    names = list(map(name_rank, analysis.ranks)) if job is None else [one.name for one in job.members]
    rank = analysis.ranks[analysis.diagnosis.rank_index]
    told = state_analysis(analysis)
    packed = pack_timelines(report.timelines, report.overviews, dict(enumerate(names)), most_characters)
    timeline = _build_timeline(report, packed.notes)
    sections = sorted(
        (
            _tell_repairs(one, analysis)
            for one in (
                timeline,
                build_kernels(report),
                *build_sections(report),
                build_methods(analysis, rank),
            )
            if one is not None
        ),
        key=_find_place,
    )
    counts = {
        "fixes": len(analysis.fixes or ()),
        "steps": len(rank.steps) if len(rank.steps) > 1 else 0,
        "ranks": len(analysis.ranks) if len(analysis.ranks) > 1 else 0,
        "phases": len(rank.ranges),
        "limits": len(analysis.capture.findings),
    }
    return render_page(
        "page.html.j2",
        _lay_out_first_screen(report, told),
        sections,
        timelines=packed.base64,
        counts=counts,
        analysis=analysis,
        told=told,
        more=_list_details(analysis, rank, told)
        | {"is_job": any(section.key == "job" for section in sections)},
        version=analysis.wallscope_version,
    )


def _tell_repairs(section: Section, analysis: Analysis) -> Section:
    """Return the section; that on a job says in its answer all that holds it up, as its table is folded."""
    job = analysis.job
    if section.key != "job" or job is None or len(job.stragglers) < _SEVERAL:
        return section
    return replace(section, answer=f"{section.answer} {describe_repairs(job, analysis.anchor.unit)}")


def _find_place(section: Section) -> int:
    """Return the place of a section: the ranks of a job come first, then the timeline, kernels and causes."""
    return _FIRST.index(section.key) if section.key in _FIRST else len(_FIRST)


def _build_timeline(report: Report, notes: Sequence[str]) -> Section | None:
    """Make the timeline, with a short name of what ends the longest gap in its answer."""
    if not report.timelines:
        return None if report.overviews is None else build_job_timeline(report, notes)
    return build_timeline(report, notes, name_end=shorten_name)


def _lay_out_first_screen(report: Report, told: Statement) -> FirstScreen:
    """Lay out the verdict, all steps, and the bar."""
    analysis = report.analysis
    rank = analysis.ranks[analysis.diagnosis.rank_index]
    counted = units.plural(len(rank.steps), analysis.anchor.window)
    total_ns = max(told.basis.total_ns, 1)
    times_ns = zip(Wall, told.basis.walls.parts(), strict=True)
    parts = tuple((wall, part_ns / total_ns, units.duration(part_ns)) for wall, part_ns in times_ns)
    name = analysis.inputs[0].name if len(analysis.inputs) == 1 else count_exports(analysis)
    return FirstScreen(
        f"{name}: {units.capitalize(told.headline)}",
        (*told.subject, f"captured {units.utc(analysis.inputs[0].session_start_utc_ns)}"),
        told.words,
        (),
        (SideTime("", units.duration(told.basis.total_ns), parts),),
        ", ".join(filter(None, (told.whole, told.spread))),
        wall=told.wall,
        scope=told.scope,
        lines=(" ".join(told.lead), *told.lines),
        note=f"This page shows {told.shown_rank}." if told.shown_rank else "",
        strip=_list_step_bars(rank) if len(rank.steps) > 1 else (),
        strip_title=", ".join(filter(None, (f"All {counted}", told.spread))),
        strip_note=_describe_left_out(analysis, rank),
        chosen=report.timelines[0].step if report.timelines else None,
        brief=(told.subject[0], *told.subject[2:]),
        band_share=told.basis.total_ns / _find_scale(told),
    )


def _list_step_bars(rank: Rank) -> tuple[StepBar, ...]:
    """List steps as bars of one scale; those far longer than most do not set it."""
    shown = rank.steps[:_MOST_BARS]
    steady_ns = [step.end_ns - step.start_ns for step in shown if step.steady]
    lengths_ns = steady_ns or [step.end_ns - step.start_ns for step in shown]
    tallest_ns = min(max(lengths_ns), round(_TALLEST_RATIO * median(lengths_ns)))
    return tuple(_make_bar(step, max(tallest_ns, 1)) for step in shown)


def _make_bar(step: Step, tallest_ns: int) -> StepBar:
    """Make the bar of a step; one that is longer than the tallest is cut to it."""
    length_ns = step.end_ns - step.start_ns
    parts = tuple(
        (wall, part_ns / max(length_ns, tallest_ns))
        for wall, part_ns in zip(Wall, step.walls.parts(), strict=True)
        if part_ns
    )
    is_cut = length_ns > tallest_ns
    return StepBar(step.index, units.duration(length_ns), parts, step.steady, step.reason or "", is_cut)


def _find_scale(told: Statement) -> int:
    """Return the time in ns that the whole width stands for, in the bar and in those of all fixes."""
    return max(told.basis.total_ns, *(card.before_ns for card in told.cards), 1)


def _describe_left_out(analysis: Analysis, rank: Rank) -> str:
    """Say which steps have no bar, and which do not count."""
    unit, count = analysis.anchor.window, len(rank.steps)
    parts = [f"The first {_MOST_BARS} of {count}."] if count > _MOST_BARS else []
    if not all(step.steady for step in rank.steps):
        parts.append(f"Pale {unit}s don't count.")
    return " ".join(parts)


def _list_details(analysis: Analysis, rank: Rank, told: Statement) -> dict[str, Any]:
    """List what the first screen shows below the answers, in addition to the statement."""
    basis, cards = told.basis, told.cards
    of_rank = f" of {name_rank(rank)}" if len(analysis.ranks) > 1 else ""
    return {
        "bars_of": "" if basis.kind in {"typical", "median"} else of_rank,
        "cards": cards[:FIRST_FIXES_COUNT],
        "more_cards": cards[FIRST_FIXES_COUNT:],
        "scale_ns": _find_scale(told),
        "has_replay": any(card.parts for card in cards),
        "has_estimates": any(is_estimate(card.fix) for card in cards[:FIRST_FIXES_COUNT]),
        "has_badges": any(card.badge for card in cards),
        "has_bars": any(card.after_share is not None for card in cards),
        "unaddressed": describe_unaddressed_compute(analysis, rank),
        "losses": () if cards else analysis.opportunities[:_MOST_LOSSES],
        "describe_answer": describe_answer,
    }
