"""A comparison in every medium: whether to revert in the first lines, then where the time went."""

from collections.abc import Iterator
from typing import Any

from rich.console import RenderableType

from wallscope import units
from wallscope.model.comparison import Comparison
from wallscope.model.enums import Wall
from wallscope.model.report import ComparisonReport
from wallscope.model.section import (
    Cell,
    Grid,
    Line,
    Lines,
    Section,
    Span,
    Tone,
    on_markdown,
    tabulate,
)
from wallscope.render.foreign import visible
from wallscope.render.grids import render_sections
from wallscope.render.markdown import code, escaped, render_table
from wallscope.render.offline import offline
from wallscope.thresholds import SHOWN_CHANGE_SHARE
from wallscope.views.comparison_phrases import (
    describe_change,
    describe_sureness,
    describe_testbeds,
    name_verdict,
)
from wallscope.views.sections import comparison as sections
from wallscope.views.sections.walls import build_bar_part

_MOST_EXPLANATIONS, _MOST_RANKS = 4, 8
_MOST_DIFFERENCES, _MOST_CAUSES_FIRST = 6, 5
_TONES: dict[str, Tone] = {
    "regression": "bad",
    "improvement": "best",
    "no-change": "strong",
    "inconclusive": "doubt",
    "incomparable": "doubt",
}


def comparison_summary(comparison: Comparison) -> RenderableType:
    """Render the whole comparison for a terminal."""
    return render_sections(build_summary(comparison))


def build_summary(comparison: Comparison) -> Iterator[Section | Grid]:
    """Make what a terminal shows: the verdict, then where the time went."""
    yield Section("head", "", "", (Lines(tuple(_describe_head(comparison))),))
    if comparison.explanations:
        lines = []
        for entry in comparison.explanations[:_MOST_EXPLANATIONS]:
            size = "" if entry.delta_ns is None else f"{units.signed_duration(entry.delta_ns)}  "
            lines.append(f"• {size}{visible(entry.message, most=300)}")
        yield Section("explanations", "", "", (Lines(tuple(lines)),))
    yield sections.sum_walls(comparison)
    if comparison.deltas.causes:
        yield sections.list_causes(comparison)
        yield sections.list_operations(comparison)
    if comparison.communication and any(row.delta_ns for row in comparison.communication):
        yield sections.tabulate_communication(comparison)
    if comparison.ranks:
        yield sections.tabulate_ranks(comparison, _MOST_RANKS)
    if comparison.mismatches:
        title = "Not only the time" if comparison.comparable else "Not comparable"
        yield Section("mismatches", title, "", (Lines(tuple(_describe_mismatches(comparison))),))
    if comparison.gates:
        gates: list[Line] = [
            (
                Span(
                    f"{'held  ' if gate.held else 'FAILED'}  {gate.gate}: {gate.evidence}",
                    None if gate.held else "bad",
                ),
            )
            for gate in comparison.gates
        ]
        yield Section("gates", "Gates", "", (Lines(tuple(gates)),))


def _describe_head(comparison: Comparison) -> Iterator[Line]:
    yield f"{visible(comparison.base.name, most=60)} → {visible(comparison.head.name, most=60)}"
    if describe_testbeds(comparison):
        yield (Span(describe_testbeds(comparison), "dim"),)
    verdict = Span(name_verdict(comparison), _TONES[comparison.verdict])
    yield verdict, f"  {describe_change(comparison)}"
    yield (Span(describe_sureness(comparison), "dim"),)


def _describe_mismatches(comparison: Comparison) -> Iterator[Line]:
    for entry in comparison.mismatches:
        values = f"{visible(entry.base)} → {visible(entry.head)}"
        if entry.base == entry.head:
            values = f"{visible(entry.base)} on both sides"
        yield (Span(f"{entry.what}: {values}", "strong" if entry.severity == "incomparable" else None),)


def comparison_markdown(comparison: Comparison) -> str:
    """Render it for pull requests and job summaries; foreign names can't make links or mentions."""
    lines = [
        f"### wallscope: {name_verdict(comparison).lower()}",
        "",
        f"{code(comparison.base.name)} → {code(comparison.head.name)}  ",
        *([f"{escaped(describe_testbeds(comparison))}  "] if describe_testbeds(comparison) else []),
        f"**{escaped(describe_change(comparison))}**",
        "",
        escaped(describe_sureness(comparison)),
        "",
    ]
    for entry in comparison.explanations:
        size = "" if entry.delta_ns is None else f"**{units.signed_duration(entry.delta_ns)}** "
        lines.append(f"- {size}{escaped(entry.message)}")
    lines += [""] if comparison.explanations else []
    lines += render_table(_tabulate_gates(comparison)) if comparison.gates else []
    lines += render_table(sections.sum_walls(comparison))
    if comparison.deltas.causes:
        lines += [
            "<details><summary>Causes and operations</summary>",
            "",
            *render_table(sections.sum_causes(comparison)),
            *render_table(sections.sum_operations(comparison)),
            "</details>",
            "",
        ]
    lines += render_table(sections.tabulate_mismatches(comparison)) if comparison.mismatches else []
    return "\n".join(lines).rstrip() + "\n"


def _tabulate_gates(comparison: Comparison) -> Grid:
    columns = (
        on_markdown("gate", "gate", "code", most=120),
        on_markdown(
            "held", "", "text", "", lambda gate: Cell("held") if gate.held else Cell("failed", tone="strong")
        ),
        on_markdown("evidence", "evidence", most=500),
    )
    return tabulate("Gates", columns, comparison.gates)


def comparison_page(report: ComparisonReport) -> str:
    """Render the whole page."""
    comparison = report.comparison
    names = f"{comparison.base.name} → {comparison.head.name}"
    shown = (
        sections.build_steps(report),
        sections.build_ranks(comparison),
        sections.build_causes(comparison),
        sections.build_operations(comparison),
        sections.build_communication(comparison),
        sections.build_comparability(report),
        sections.build_methods(report),
    )
    title = f"{names}: {name_verdict(comparison).lower()}"
    first = _build_first_screen(report, names)
    return offline("comparison.html.j2", title, shown, comparison=comparison, first=first)


def _build_first_screen(report: ComparisonReport, names: str) -> dict[str, Any]:
    """Make whether it got slower, how sure that is, by what, and whether gates held."""
    comparison, step = report.comparison, report.comparison.step
    longest_ns = max(step.base_typical_ns, step.head_typical_ns, 1)
    changed, walls = comparison.deltas.causes, comparison.deltas.walls
    least_ns = step.base_typical_ns * SHOWN_CHANGE_SHARE
    shown = max(sum(abs(row.delta_ns) >= least_ns for row in changed[:_MOST_CAUSES_FIRST]), 1)
    graded = sorted(comparison.gates, key=lambda gate: gate.held)
    return {
        "names": names,
        "origin": _describe_origin(report),
        "word": name_verdict(comparison),
        "headline": describe_change(comparison),
        "sureness": describe_sureness(comparison),
        "sides": (
            _build_side("base", step.base_typical_ns, [row.base_ns for row in walls], longest_ns),
            _build_side("head", step.head_typical_ns, [row.head_ns for row in walls], longest_ns),
        ),
        "walls": sections.sum_walls(comparison),
        "gates": graded,
        "failed": sum(not gate.held for gate in graded),
        "causes": changed[:shown],
        "rest": changed[shown:],
        "rest_ns": sum(row.delta_ns for row in changed[shown:]),
        "differences": comparison.mismatches[:_MOST_DIFFERENCES],
        "more_differences": max(len(comparison.mismatches) - _MOST_DIFFERENCES, 0),
    }


def _describe_origin(report: ComparisonReport) -> str:
    side = report.comparison.head
    rank = f"rank {side.rank}" if side.rank is not None else "one rank"
    taken = [
        f"{name} captured {units.utc(entry.inputs[0].session_start_utc_ns)}"
        for name, entry in (("base", report.base), ("head", report.head))
    ]
    return " · ".join((side.gpu or "GPU unknown", rank, *taken))


def _build_side(name: str, whole_ns: int, parts_ns: list[int], longest_ns: int) -> dict[str, Any]:
    """Make a bar as long as its step; what head or base has less of stays empty."""
    return {
        "name": name,
        "whole": units.milliseconds(whole_ns),
        "parts": [
            build_bar_part(wall, time_ns / longest_ns, units.milliseconds(time_ns))
            for wall, time_ns in zip(Wall, parts_ns, strict=True)
        ],
        "empty": f"{100 * (longest_ns - whole_ns) / longest_ns:.4f}",
    }
