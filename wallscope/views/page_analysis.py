"""The page of an analysis: five answers at the top, the timeline, then sections that a reader can unfold."""

from collections.abc import Sequence
from typing import Any

from wallscope import units
from wallscope.model.analysis import Analysis, Rank
from wallscope.model.enums import Wall
from wallscope.model.report import Report
from wallscope.model.section import Section
from wallscope.render.html import FirstScreen, SideTime, render_page
from wallscope.render.texts import shorten_name
from wallscope.render.timeline_pack import MOST_CHARACTERS, pack_timelines
from wallscope.thresholds.verdict import FIRST_FIXES_COUNT
from wallscope.views.sections.findings import build_methods, shorten_message
from wallscope.views.sections.report import build_sections
from wallscope.views.sections.steps import (
    build_job_timeline,
    build_timeline,
)
from wallscope.views.sections.walls import (
    describe_answer,
    describe_unaddressed_compute,
)
from wallscope.views.sections.words import (
    count_exports,
    describe_pressure,
    name_rank,
)
from wallscope.views.statement import Statement, state_analysis

_LARGEST_PAGE = 3_450_000
_MOST_LOSSES = 3


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
    sections = (
        _build_timeline(report, packed.notes),
        *build_sections(report),
        build_methods(analysis, rank),
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
        _lay_out_first_screen(analysis, told),
        sections,
        timelines=packed.base64,
        counts=counts,
        analysis=analysis,
        told=told,
        more=_list_details(analysis, rank, told),
        version=analysis.wallscope_version,
    )


def _build_timeline(report: Report, notes: Sequence[str]) -> Section | None:
    """Make the timeline, with a short name of what ends the longest gap in its answer."""
    if not report.timelines:
        return None if report.overviews is None else build_job_timeline(report, notes)
    return build_timeline(report, notes, name_end=shorten_name)


def _lay_out_first_screen(analysis: Analysis, told: Statement) -> FirstScreen:
    """Lay out the verdict, the five answers and the bar."""
    shares = {one: told.basis.share(one) for one in Wall}
    parts = tuple((one, share, units.percent(share)) for one, share in shares.items())
    name = analysis.inputs[0].name if len(analysis.inputs) == 1 else count_exports(analysis)
    return FirstScreen(
        f"{name}: {units.capitalize(told.headline)}",
        (*told.subject, f"captured {units.utc(analysis.inputs[0].session_start_utc_ns)}"),
        told.words,
        told.answers,
        (SideTime("", units.duration(told.basis.total_ns), parts),),
        ", ".join(filter(None, (told.whole, told.spread))),
        wall=told.wall,
        scope=told.scope,
        lines=told.lines,
        note=f"This page shows {told.shown_rank}." if told.shown_rank else "",
    )


def _list_details(analysis: Analysis, rank: Rank, told: Statement) -> dict[str, Any]:
    """List what the first screen shows below the answers, in addition to the statement."""
    basis, cards = told.basis, told.cards
    of_rank = f" of {name_rank(rank)}" if len(analysis.ranks) > 1 else ""
    return {
        "bars_of": "" if basis.kind in {"typical", "median"} else of_rank,
        "pressure": describe_pressure(analysis.diagnosis.memory_pressure),
        "callouts": tuple((one, shorten_message(one)) for one in told.limits),
        "cards": cards[:FIRST_FIXES_COUNT],
        "more_cards": cards[FIRST_FIXES_COUNT:],
        "losses_of": told.whole if basis.kind == "mean" else analysis.anchor.typical,
        "has_bars": any(card.after_share is not None for card in cards),
        "unaddressed": describe_unaddressed_compute(analysis, rank),
        "losses": () if cards else analysis.opportunities[:_MOST_LOSSES],
        "describe_answer": describe_answer,
    }
