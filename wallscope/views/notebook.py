"""Answers as a notebook shows them: small cards of HTML without script, and figures by name."""

from collections.abc import Callable, Mapping
from html import escape
from typing import Final

from wallscope import units
from wallscope.model.advice import Fix, select_first_fixes
from wallscope.model.analysis import Analysis, Rank
from wallscope.model.comparison import Comparison
from wallscope.model.enums import Wall
from wallscope.model.section import Figure
from wallscope.render import figures
from wallscope.render.colours import WALL_COLOURS
from wallscope.render.foreign import visible
from wallscope.views.comparison_phrases import describe_change, name_verdict
from wallscope.views.phrases import describe_capture

_MOST_FIXES = 3
_LONGEST = 1_500
_CARD = "font-family:sans-serif;max-width:60em;line-height:1.4"
_BAR = "display:flex;height:1.2em;margin:.4em 0;border-radius:3px;overflow:hidden"
_LEFT = "text-align:left"
_DOT = "display:inline-block;width:.8em;height:.8em;margin-right:.4em"

FIGURES: Final[Mapping[str, Callable[[Analysis, Rank], Figure]]] = {
    "steps": lambda analysis, rank: figures.draw_steps(rank.steps, analysis.anchor.window),
    "waterfall": lambda analysis, rank: figures.draw_waterfall(rank, analysis.anchor.typical),
    "phases": lambda _, rank: figures.draw_phases(rank.ranges),
}
"""Figures of the rank that the diagnosis speaks of."""


def card(analysis: Analysis) -> str:
    """The verdict, the walls as one bar and in numbers, the first fixes."""
    rank = analysis.ranks[analysis.diagnosis.rank_index]
    step_ns = rank.typical.step_ns
    lead, _, rest = analysis.diagnosis.verdict.partition(". ")
    parts = [
        (wall, time_ns) for wall, time_ns in zip(Wall, rank.typical.walls.parts(), strict=True) if time_ns
    ]
    bar = "".join(
        f'<span style="flex:{time_ns};background:{WALL_COLOURS[wall]}" title="{wall}"></span>'
        for wall, time_ns in parts
    )
    rows = "".join(
        f'<tr><td style="{_LEFT}"><span style="{_DOT};background:{WALL_COLOURS[wall]}"></span>{wall}</td>'
        f"<td>{units.milliseconds(time_ns)}</td><td>{units.percent(time_ns / step_ns)}</td></tr>"
        for wall, time_ns in parts
    )
    fixes = "".join(f"<li>{_text(fix.title)}{_ceiling(fix.speedup_ceiling)}</li>" for fix in _first(analysis))
    return (
        f'<div style="{_CARD}"><div>{_text(describe_capture(analysis, rank.input))}</div>'
        f"<div><b>{_text(lead.rstrip('.'))}.</b> {_text(rest)}</div>"
        f'<div style="{_BAR}">{bar}</div>'
        f"<table><tr><th>wall</th><th>{analysis.anchor.typical}</th><th>share</th></tr>{rows}"
        f"<tr><td>all</td><td>{units.milliseconds(step_ns)}</td><td></td></tr></table>"
        f"{f'<ol>{fixes}</ol>' if fixes else ''}</div>"
    )


def comparison_card(comparison: Comparison) -> str:
    """The verdict, and walls of both sides with their difference."""
    step = comparison.step
    rows = [
        *((str(row.wall), row.base_ns, row.head_ns) for row in comparison.deltas.walls),
        ("all", step.base_typical_ns, step.head_typical_ns),
    ]
    body = "".join(
        f'<tr><td style="{_LEFT}">{name}</td><td>{units.milliseconds(base_ns)}</td>'
        f"<td>{units.milliseconds(head_ns)}</td><td>{units.signed_milliseconds(head_ns - base_ns)}</td></tr>"
        for name, base_ns, head_ns in rows
    )
    return (
        f'<div style="{_CARD}"><div>{_text(comparison.base.name)} → {_text(comparison.head.name)}</div>'
        f"<div><b>{name_verdict(comparison)}.</b> {_text(describe_change(comparison))}</div>"
        f"<table><tr><th>wall</th><th>base</th><th>head</th><th>change</th></tr>{body}</table></div>"
    )


def _first(analysis: Analysis) -> tuple[Fix, ...]:
    return select_first_fixes(analysis.fixes or ())[:_MOST_FIXES]


def _ceiling(ratio: float | None) -> str:
    return "" if ratio is None else f" (up to {ratio:.2f}x)"


def _text(text: str) -> str:
    return escape(visible(text, _LONGEST))
