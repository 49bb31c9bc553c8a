"""A comparison as one HTML file: whether to revert in the first lines, then where the time went."""

from typing import Any

from wallscope import units
from wallscope.model.comparison import Comparison, WallDelta
from wallscope.model.kinds import Wall
from wallscope.model.report import ComparisonReport
from wallscope.render.offline import offline
from wallscope.thresholds import SHOWN_CHANGE_SHARE
from wallscope.views.blocks import Section
from wallscope.views.comparison_text import headline, sureness, verdict_word
from wallscope.views.sections.comparability import comparability, compared_how
from wallscope.views.sections.comparison import (
    both_sides,
    causes,
    communication,
    interval,
    operations,
    other_ranks,
)
from wallscope.views.words import WALL_WORDS

_MOST_DIFFERENCES = 6
_MOST_CAUSES = 5
_WIDE, _BROAD = 0.08, 0.3


def comparison_page(report: ComparisonReport) -> str:
    """The whole page."""
    comparison = report.comparison
    names = f"{comparison.base.name} → {comparison.head.name}"
    return offline(
        "comparison.html.j2",
        f"{names}: {verdict_word(comparison).lower()}",
        _sections(report),
        comparison=comparison,
        first=_first_screen(report, names),
    )


def _sections(report: ComparisonReport) -> tuple[Section | None, ...]:
    comparison = report.comparison
    return (
        both_sides(report),
        other_ranks(comparison),
        causes(comparison),
        operations(comparison),
        communication(comparison),
        comparability(report),
        compared_how(report),
    )


def _first_screen(report: ComparisonReport, names: str) -> dict[str, Any]:
    """Whether it got slower, how sure that is, by what, and whether gates held."""
    comparison, step = report.comparison, report.comparison.step
    longest_ns = max(step.base_typical_ns, step.head_typical_ns, 1)
    changed = comparison.deltas.causes
    least_ns = step.base_typical_ns * SHOWN_CHANGE_SHARE
    telling = max(sum(abs(row.delta_ns) >= least_ns for row in changed[:_MOST_CAUSES]), 1)
    causes_shown, rest = changed[:telling], changed[telling:]
    graded = sorted(comparison.gates, key=lambda gate: gate.held)
    return {
        "names": names,
        "origin": _origin(report),
        "word": verdict_word(comparison),
        "verdict": comparison.verdict,
        "headline": headline(comparison),
        "sureness": sureness(comparison),
        "window": comparison.window,
        "sides": (
            _side("base", step.base_typical_ns, [row.base_ns for row in comparison.deltas.walls], longest_ns),
            _side("head", step.head_typical_ns, [row.head_ns for row in comparison.deltas.walls], longest_ns),
        ),
        "walls": tuple(_wall(row, comparison) for row in comparison.deltas.walls),
        "step": (
            units.milliseconds(step.base_typical_ns),
            units.milliseconds(step.head_typical_ns),
            units.signed_milliseconds(step.head_typical_ns - step.base_typical_ns),
        ),
        "gates": graded,
        "failed": sum(not gate.held for gate in graded),
        "explanations": comparison.explanations,
        "causes": causes_shown,
        "more_causes": len(rest),
        "rest_ns": sum(row.delta_ns for row in rest),
        "differences": comparison.mismatches[:_MOST_DIFFERENCES],
        "more_differences": max(len(comparison.mismatches) - _MOST_DIFFERENCES, 0),
    }


def _origin(report: ComparisonReport) -> str:
    side = report.comparison.head
    rank = f"rank {side.rank}" if side.rank is not None else "one rank"
    taken = [
        f"{name} captured {units.utc(entry.inputs[0].session_start_utc_ns)}"
        for name, entry in (("base", report.base), ("head", report.head))
    ]
    return " · ".join((side.gpu or "GPU unknown", rank, *taken))


def _side(name: str, whole_ns: int, parts_ns: list[int], longest_ns: int) -> dict[str, Any]:
    """A bar as long as its step; what head or base has less of stays empty."""
    return {
        "name": name,
        "whole": units.milliseconds(whole_ns),
        "parts": [
            {
                "wall": str(wall),
                "width": f"{100 * time_ns / longest_ns:.4f}",
                "time": units.milliseconds(time_ns),
                "is_wide": time_ns / longest_ns >= _WIDE,
                "is_broad": time_ns / longest_ns >= _BROAD,
            }
            for wall, time_ns in zip(Wall, parts_ns, strict=True)
        ],
        "empty": f"{100 * (longest_ns - whole_ns) / longest_ns:.4f}",
    }


def _wall(row: WallDelta, comparison: Comparison) -> dict[str, Any]:
    largest_ns = max(abs(entry.delta_ns) for entry in comparison.deltas.walls)
    return {
        "name": str(row.wall),
        "meaning": WALL_WORDS[row.wall],
        "base": units.milliseconds(row.base_ns),
        "head": units.milliseconds(row.head_ns),
        "change": units.signed_milliseconds(row.delta_ns),
        "interval": interval(row.low_ns, row.high_ns),
        "is_largest": largest_ns > 0 and abs(row.delta_ns) == largest_ns,
    }
