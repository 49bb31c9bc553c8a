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
from wallscope.views.sections.findings import build_methods, has_unreplayed_bounds
from wallscope.views.sections.kernels import build_kernels
from wallscope.views.sections.report import build_sections
from wallscope.views.sections.steps import (
    build_job_timeline,
    build_timeline,
)
from wallscope.views.sections.walls import (
    describe_answer,
    describe_order,
    describe_unaddressed_compute,
)
from wallscope.views.sections.words import count_exports, name_rank
from wallscope.views.statement import Statement, state_analysis
from wallscope.views.verdict import count_typical_kinds, describe_kinds

_LARGEST_PAGE = 3_450_000
_MOST_LOSSES, _MOST_DOUBTS = 3, 3
_MOST_BARS = 120
_SEVERAL = 2
_TALLEST_RATIO = 2.5
"""How many times as high as the median step a bar can be; it is cut above."""
_STRIP_PX, _DIGIT_PX, _BETWEEN_LABELS_PX = 310, 6.5, 8
"""Width of the strip where it is narrowest, and of what stands below it."""
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
    strip = _list_step_bars(rank) if len(rank.steps) > 1 else ()
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
        note=f"{_name_shown_parts(told)} {told.shown_rank}." if told.shown_rank else "",
        strip=strip,
        strip_top=units.duration(_find_tallest(rank)) if strip else "",
        strip_title=", ".join(filter(None, (_count_bars(analysis, rank), "" if rank.modes else told.spread))),
        strip_note=_describe_bars(analysis, rank),
        chosen=report.timelines[0].step if report.timelines else None,
        brief=(told.subject[0], *told.subject[2:]),
        band_share=min(told.basis.total_ns / _find_scale(told), 1.0),
    )


def _name_shown_parts(told: Statement) -> str:
    """Name what shows one rank alone; of ranks that were matched, the bar shows all."""
    return "Steps and details show" if told.basis.kind == "job" else "This page shows"


def _list_step_bars(rank: Rank) -> tuple[StepBar, ...]:
    """List steps as bars of one scale, each with its number if the axis has room for it."""
    shown, tallest_ns = rank.steps[:_MOST_BARS], _find_tallest(rank)
    every = _space_labels(len(shown), max(step.index for step in shown))
    return tuple(_make_bar(step, tallest_ns, is_labeled=step.index % every == 0) for step in shown)


def _find_tallest(rank: Rank) -> int:
    """Return the time in ns that the tallest bar can stand for; steps far longer than most do not set it."""
    shown = rank.steps[:_MOST_BARS]
    steady_ns = [step.end_ns - step.start_ns for step in shown if step.steady]
    lengths_ns = steady_ns or [step.end_ns - step.start_ns for step in shown]
    return max(min(max(lengths_ns), round(_TALLEST_RATIO * median(lengths_ns))), 1)


def _space_labels(count: int, largest: int) -> int:
    """Return every how many bars a number fits below the strip: 1, 2 or 5 times a power of ten.

    Args:
        count: bars of the strip.
        largest: the largest number that stands below one.

    >>> _space_labels(10, 9), _space_labels(29, 28), _space_labels(100, 99), _space_labels(120, 98_765)
    (1, 2, 10, 20)
    """
    bar_px = _STRIP_PX / count
    label_px = _DIGIT_PX * len(str(largest)) + _BETWEEN_LABELS_PX
    scales = (int(10**power) for power in range(len(str(count)) + 1))
    spaces = (space * scale for scale in scales for space in (1, 2, 5))
    return next(space for space in spaces if space * bar_px >= label_px)


def _make_bar(step: Step, tallest_ns: int, *, is_labeled: bool) -> StepBar:
    """Make the bar of a step; one that is longer than the tallest is cut to it."""
    length_ns = step.end_ns - step.start_ns
    parts = tuple(
        (wall, part_ns / max(length_ns, tallest_ns))
        for wall, part_ns in zip(Wall, step.walls.parts(), strict=True)
        if part_ns
    )
    return StepBar(
        step.index,
        units.duration(length_ns),
        parts,
        step.steady,
        step.reason or "",
        is_cut=length_ns > tallest_ns,
        label=str(step.index) if is_labeled else "",
    )


def _find_scale(told: Statement) -> int:
    """Return the time in ns that the whole width stands for in the bars of all fixes.

    The bar above them has the same scale, except where it is the whole capture, and they are about a step.
    """
    whole_ns = 0 if told.basis.kind == "whole" else told.basis.total_ns
    return max(whole_ns, *(card.before_ns for card in told.cards), 1)


def _count_bars(analysis: Analysis, rank: Rank) -> str:
    """Say how many steps the strip shows."""
    unit, count = analysis.anchor.window, len(rank.steps)
    if count > _MOST_BARS:
        return f"First {_MOST_BARS} of {units.plural(count, unit)}"
    return f"All {units.plural(count, unit)}"


def _describe_bars(analysis: Analysis, rank: Rank) -> str:
    """Say which kinds of steps there are and make the typical one; of one kind, which do not count."""
    unit = analysis.anchor.window
    kinds = describe_kinds(rank, unit)
    if kinds:
        return f"{units.capitalize(kinds)}. Typical: mean of {', '.join(count_typical_kinds(rank))}."
    return "" if all(step.steady for step in rank.steps) else f"Pale {unit}s don't count."


def _list_details(analysis: Analysis, rank: Rank, told: Statement) -> dict[str, Any]:
    """List what the first screen shows below the answers, in addition to the statement."""
    basis, cards = told.basis, told.cards
    of_rank = f" of {name_rank(rank)}" if len(analysis.ranks) > 1 else ""
    return {
        "bars_of": "" if basis.kind in {"typical", "median"} else of_rank,
        "cards": cards[:FIRST_FIXES_COUNT],
        "more_cards": cards[FIRST_FIXES_COUNT:],
        "scale_ns": _find_scale(told),
        "most_doubts": _MOST_DOUBTS + has_unreplayed_bounds(analysis),
        "has_replay": any(card.parts for card in cards),
        "has_estimates": any(is_estimate(card.fix) for card in cards[:FIRST_FIXES_COUNT]),
        "has_badges": any(card.badge for card in cards),
        "has_bars": any(card.after_share is not None for card in cards),
        "order": describe_order([card.fix for card in cards[:FIRST_FIXES_COUNT]], analysis.job),
        "unaddressed": describe_unaddressed_compute(analysis, rank),
        "losses": () if cards else analysis.opportunities[:_MOST_LOSSES],
        "describe_answer": describe_answer,
    }
