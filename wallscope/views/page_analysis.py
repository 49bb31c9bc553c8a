"""The page of an analysis: the first screen, then the timeline, then sections that a reader can unfold."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any, Final

from wallscope import units
from wallscope.model.analysis import Analysis, Rank
from wallscope.model.diagnosis import RareStall
from wallscope.model.enums import Wall
from wallscope.model.report import Report
from wallscope.model.section import Block, Cell, Column, Grid, Section, tabulate
from wallscope.render.html import render_page
from wallscope.render.texts import shorten_name, visible
from wallscope.render.timeline_pack import MOST_CHARACTERS, pack_timelines
from wallscope.views import page_overview as overview
from wallscope.views.headline import (
    choose_basis,
    describe_hidden_communication,
    find_deciding_stall,
    find_dominant,
    name_basis,
)
from wallscope.views.page_answers import build_key_answers
from wallscope.views.page_skeleton import title_sections
from wallscope.views.sections.depth import build_walls_in_depth
from wallscope.views.sections.findings import build_limits, build_methods
from wallscope.views.sections.fixes import (
    describe_answer,
    describe_program,
    describe_relief,
    describe_replay,
    describe_unaddressed_compute,
    describe_worthless_fixes,
    number_fixes,
)
from wallscope.views.sections.job import build_clocks, build_job, build_survey
from wallscope.views.sections.path import build_path
from wallscope.views.sections.steps import (
    build_job_timeline,
    build_phases,
    build_steps,
    build_timeline,
    find_longest_gap,
)
from wallscope.views.sections.walls import build_causes, build_ranks, tabulate_walls
from wallscope.views.sections.words import (
    count_exports,
    describe_capture,
    describe_pressure,
    describe_throughput,
    explain_choice,
    name_rank,
)

_LARGEST_PAGE = 3_450_000
_MOST_FIXES, _MOST_LOSSES = 3, 3
_OF_TYPICAL = frozenset({"causes", "path", *map(str, Wall)})
"""Sections about the typical step alone."""
_LONGEST_NAME = 120
"""As the section of the timeline cuts names."""
_WORDS: Final = {
    "confidence": "How sure the dominant wall is: high, medium or low. The confidence depends on the share"
    " of the step that is inferred or unattributed, and on findings about the capture.",
    "replay error": "The replay rebuilds a step from recorded dependencies, with latencies of other steps."
    " The error is the median difference from the recorded length.",
    "memory pressure": "How close the run is to the end of GPU memory, by allocator retries and peak use.",
}
"""Words of the first screen that the shared list of words lacks."""


_ACTIVITY = (
    "Activity is what the GPU did, and the time breakdown is what the step waited for. So short gaps between"
    " kernels are idle time here, and compute in the time breakdown."
)
_AFTER_CALLS = (
    "Host time after a blocking call, until the next launch, is in the row of that call; host/framework is"
    " the other host time outside CUDA calls."
)


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
    slow = find_deciding_stall(rank, choose_basis(analysis, rank), analysis.diagnosis.dominant_wall)
    if slow is not None:
        report = replace(
            report, timelines=tuple(sorted(report.timelines, key=lambda one: one.role != "worst"))
        )
    packed = pack_timelines(report.timelines, report.overviews, dict(enumerate(names)), most_characters)
    name = analysis.inputs[0].name if len(analysis.inputs) == 1 else count_exports(analysis)
    sections = (
        _build_timeline(report, packed.notes),
        build_job(report),
        build_ranks(analysis),
        build_steps(analysis, rank, report.timelines, report.drawn_steps),
        _build_breakdown(analysis, rank),
        build_path(report, rank),
        *build_walls_in_depth(analysis, rank),
        build_phases(analysis, rank),
        build_survey(analysis),
        build_clocks(analysis),
        _build_quality(analysis),
        anchor_words(build_methods(analysis, rank)),
    )
    if slow is not None:
        sections = tuple(_exclude_slow_steps(one, slow, analysis.anchor.window) for one in sections)
    wall, verdict = overview.name_verdict(analysis)
    title = f"{name}: {str(wall).capitalize() if wall else ''}{verdict}"
    counts = {
        "fixes": len(analysis.fixes or ()),
        "steps": len(rank.steps) if len(rank.steps) > 1 else 0,
        "ranks": len(analysis.ranks) if len(analysis.ranks) > 1 else 0,
        "phases": len(rank.ranges),
        "limits": len(analysis.capture.findings),
    }
    return render_page(
        "page.html.j2",
        title,
        title_sections(sections),
        packed.base64,
        counts,
        analysis=analysis,
        first=_build_first_screen(analysis, rank),
    )


def _exclude_slow_steps(section: Section | None, slow: RareStall, unit: str) -> Section | None:
    """Say of a section of the typical step alone that the steps which decide the wall are not in it."""
    if section is None or section.key not in _OF_TYPICAL:
        return section
    count = units.plural(len(slow.steps), f"slow {unit}")
    said = f"The typical {unit} leaves out the {count}, which decide the dominant wall."
    return replace(section, answer=f"{section.answer} {said}")


def _build_timeline(report: Report, notes: Sequence[str]) -> Section | None:
    """Make the timeline, with a short name of what ends the longest gap in its answer."""
    if not report.timelines:
        return None if report.overviews is None else build_job_timeline(report, notes)
    built = build_timeline(report, notes)
    longest = find_longest_gap(report)
    ended = None if longest is None else longest.row["ended_by"]
    name = shorten_name(ended or "")
    written = visible(ended or "", most=_LONGEST_NAME)
    return replace(
        built,
        answer=built.answer.replace(written, visible(name, most=_LONGEST_NAME)) if ended else built.answer,
    )


def _build_first_screen(analysis: Analysis, rank: Rank) -> dict[str, Any]:
    """Make verdict, bar, recommendations and what they rest on."""
    job, diagnosis = analysis.job, analysis.diagnosis
    wall, verdict = overview.name_verdict(analysis)
    basis = choose_basis(analysis, rank)
    found = analysis.fixes or ()
    fixes = number_fixes(found)
    cards = overview.build_cards(fixes, rank.typical.step_ns, basis)
    facts = overview.list_facts(analysis, rank)
    notes = [describe_replay(analysis.replay)] if analysis.replay is not None and cards else []
    notes += [describe_program(analysis.program)] if analysis.program is not None else []
    notes += [describe_worthless_fixes(analysis.dismissed)] if analysis.dismissed else []
    legend = overview.list_legend(analysis, basis)
    captured = units.utc(analysis.inputs[0].session_start_utc_ns)
    of_rank = ""
    if len(analysis.ranks) > 1:
        shown = f"This page shows 1 of {len(analysis.ranks)} ranks: {name_rank(rank)}"
        of_rank = f"{shown}, {explain_choice(analysis)}."
    return {
        "crumbs": [*describe_capture(analysis, 0).split(" · "), f"captured {captured}"],
        "wall": wall,
        "verdict": verdict,
        "answers": build_key_answers(analysis, rank, basis, cards, facts),
        "hidden": overview.describe_hidden(analysis, rank, basis),
        "in_full": (diagnosis.verdict,)
        if job is None
        else (f"{name_rank(rank)}: {diagnosis.verdict}", job.verdict),
        "job": "" if job is None else f"{job.verdict.partition('. ')[0].rstrip('.')}.",
        "bars_of": ""
        if basis.kind in {"typical", "median"}
        else f" of {name_rank(rank)}"
        if len(analysis.ranks) > 1
        else "",
        "of_rank": of_rank,
        "throughput": [
            *describe_hidden_communication(analysis, rank),
            *describe_throughput(diagnosis.throughput),
        ],
        "whole": name_basis(analysis, basis),
        "unit": analysis.anchor.window,
        "step": units.duration(basis.total_ns),
        "spread": overview.describe_spread(rank) if basis.kind == "median" else "",
        "basis": overview.describe_shares(analysis, rank, basis),
        "legend": legend,
        "bar": [(row.wall, basis.share(row.wall), row.share) for row in legend],
        "pressure": diagnosis.memory_pressure,
        "pressure_words": describe_pressure(diagnosis.memory_pressure),
        "relief": describe_relief(
            found, analysis.dismissed, basis.share(Wall.MEMORY), analysis.anchor.window
        ),
        "callouts": overview.list_callouts(analysis, rank),
        "cards": cards[:_MOST_FIXES],
        "more_cards": cards[_MOST_FIXES:],
        "has_steps": analysis.anchor.kind != "whole-trace",
        "has_bounds": bool(analysis.opportunities),
        "largest": () if basis.kind == "whole" else overview.list_losses(rank, fixes, basis),
        "losses_of": name_basis(analysis, basis) if basis.kind == "mean" else analysis.anchor.typical,
        "has_bars": any(card.after_share is not None for card in cards),
        "unaddressed": describe_unaddressed_compute(analysis, rank),
        "losses": () if cards else analysis.opportunities[:_MOST_LOSSES],
        "is_unknown": find_dominant(analysis) == "unknown",
        "describe_answer": describe_answer,
        "notes": notes,
        "facts": facts,
    }


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
    columns = tuple(replace(one, title=titles.get(one.key, one.title)) for one in walls.columns)
    drawn, *tables = causes.blocks
    if any(one.cause.startswith("host/queue-drained/") for one in rank.causes):
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


def anchor_words(methods: Section) -> Section:
    """Make each defined word a target of links, and add the words of the first screen."""
    blocks: list[Block] = []
    for block in methods.blocks:
        if isinstance(block, Grid) and not any(isinstance(one, Grid) for one in blocks):
            known = {str(_text(row[0])) for row in block.rows}
            more = tuple((word, text) for word, text in _WORDS.items() if word not in known)
            rows = tuple((_anchor(row[0]), *row[1:]) for row in (*block.rows, *more))
            blocks.append(replace(block, rows=rows))
        elif isinstance(block, Grid) and any(column.key == "state" for column in block.columns):
            blocks.append(replace(block, notes=(*block.notes, _ACTIVITY)))
        else:
            blocks.append(block)
    return replace(methods, blocks=tuple(blocks))


def _text(value: object) -> object:
    return value.value if isinstance(value, Cell) else value


def _anchor(value: Any) -> Cell:
    cell = value if isinstance(value, Cell) else Cell(value)
    slug = str(cell.value).replace(", ", "-").replace(" ", "-")
    return replace(cell, anchor=cell.anchor or f"word-{slug}")
