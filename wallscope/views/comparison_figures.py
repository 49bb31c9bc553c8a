"""Figures of the comparison's page: steps of both sides, and the way from base to head."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import polars as pl

from wallscope import units
from wallscope.model.catalogue import meaning
from wallscope.model.comparison import CauseDelta, Comparison
from wallscope.model.kinds import Wall
from wallscope.model.report import ComparisonReport
from wallscope.views.blocks import Figure
from wallscope.views.figures import ROW_PX, label, marker

_MOST_STEPS = 200
_MOST_CAUSES = 14
_SPACE = 1.5
_ROOM = 0.18
"""Of the axis, on either side, for the numbers beside bars."""


def both_steps(report: ComparisonReport) -> Figure:
    """The steps of base beside those of head, stacked by wall; those that do not count are pale."""
    unit = report.comparison.window
    base, head = report.base.steps.head(_MOST_STEPS), report.head.steps.head(_MOST_STEPS)
    places = [*range(len(base)), *(len(base) + _SPACE + number for number in range(len(head)))]
    both = pl.concat([base.with_columns(side=pl.lit("base")), head.with_columns(side=pl.lit("head"))])
    said = [_step(row, unit) for row in both.iter_rows(named=True)]
    traces = tuple(
        {
            "type": "bar",
            "name": str(wall),
            "x": places,
            "y": [time_ns / 1e6 for time_ns in both[f"{wall}_wall_ns"]],
            "customdata": [
                [units.milliseconds(time_ns), step]
                for time_ns, step in zip(both[f"{wall}_wall_ns"], said, strict=True)
            ],
            "hovertemplate": f"%{{customdata[1]}}<br>{wall} %{{customdata[0]}}<extra></extra>",
            "marker": {**marker(wall), "opacity": [1.0 if counts else 0.35 for counts in both["counts"]]},
        }
        for wall in Wall
    )
    middles = [(len(base) - 1) / 2, len(base) + _SPACE + (len(head) - 1) / 2]
    layout = {
        "barmode": "stack",
        "bargap": 0.15,
        "xaxis": {
            "tickmode": "array",
            "tickvals": middles,
            "ticktext": [f"base: {len(base)}", f"head: {len(head)}"],
            "showgrid": False,
            "zeroline": False,
        },
        "yaxis": {"title": {"text": "ms"}, "rangemode": "tozero"},
        "legend": {"orientation": "h", "y": 1.12, "x": 0, "traceorder": "normal"},
    }
    caption = f"Each {unit} of both sides by wall, in ms; pale ones do not count"
    if max(len(report.base.steps), len(report.head.steps)) > _MOST_STEPS:
        caption += f"; the first {_MOST_STEPS} of a side"
    return Figure("both-steps", caption, traces, layout, 320)


def _step(row: Mapping[str, Any], unit: str) -> str:
    counts = "counts" if row["counts"] else label(f"does not count: {row['reason']}")
    return (
        f"{row['side']}, run {row['run']}, {unit} {row['step']}: {units.duration(row['length_ns'])}, {counts}"
    )


@dataclass(frozen=True, slots=True)
class _Bar:
    """A bar of the waterfall from one time to another."""

    name: str
    from_ns: int
    to_ns: int
    wall: Wall | None
    text: str
    hint: str


def way(comparison: Comparison) -> Figure:
    """From base's typical step to head's, what each cause adds or takes; it ends where head is."""
    bars = list(_bars(comparison))
    traces = tuple(
        _trace([bar for bar in bars if bar.wall == wall], wall)
        for wall in (*Wall, None)
        if any(bar.wall == wall for bar in bars)
    )
    reached = [time_ns for bar in bars for time_ns in (bar.from_ns, bar.to_ns) if time_ns]
    low_ns, high_ns = min(reached, default=0), max(reached, default=1)
    room_ns = max((high_ns - low_ns) * _ROOM, high_ns * 0.005)
    is_cut = low_ns - room_ns > high_ns * 0.1
    layout = {
        "xaxis": {
            "title": {"text": "ms"},
            "range": [(low_ns - room_ns) / 1e6 if is_cut else 0, (high_ns + room_ns) / 1e6],
        },
        "yaxis": {
            "autorange": "reversed",
            "automargin": True,
            "showgrid": False,
            "categoryorder": "array",
            "categoryarray": [label(bar.name) for bar in bars],
        },
        "barmode": "overlay",
        "showlegend": False,
    }
    caption = "From base to head, what each cause adds or takes; patterns tell walls"
    if is_cut:
        caption += "; the axis does not begin at 0"
    return Figure("way", caption, traces, layout, ROW_PX * (len(bars) + 1) + 70)


def _bars(comparison: Comparison) -> Iterator[_Bar]:
    step, causes = comparison.step, comparison.deltas.causes
    yield _whole(f"base {comparison.window}", step.base_typical_ns)
    at_ns = step.base_typical_ns
    for row in causes[:_MOST_CAUSES]:
        yield _Bar(
            row.cause,
            at_ns,
            at_ns + row.delta_ns,
            row.wall,
            units.signed_milliseconds(row.delta_ns),
            _hint(row),
        )
        at_ns += row.delta_ns
    rest = causes[_MOST_CAUSES:]
    if rest:
        left_ns = sum(row.delta_ns for row in rest)
        text = units.signed_milliseconds(left_ns)
        yield _Bar(units.plural(len(rest), "smaller cause"), at_ns, at_ns + left_ns, None, text, text)
    yield _whole(f"head {comparison.window}", step.head_typical_ns)


def _whole(name: str, time_ns: int) -> _Bar:
    text = units.milliseconds(time_ns)
    return _Bar(name, 0, time_ns, None, text, text)


def _hint(row: CauseDelta) -> str:
    return (
        f"{label(meaning(row.cause))}: {units.milliseconds(row.base_ns)} → {units.milliseconds(row.head_ns)}"
    )


def _trace(bars: Sequence[_Bar], wall: Wall | None) -> dict[str, Any]:
    return {
        "type": "bar",
        "orientation": "h",
        "y": [label(bar.name) for bar in bars],
        "base": [bar.from_ns / 1e6 for bar in bars],
        "x": [(bar.to_ns - bar.from_ns) / 1e6 for bar in bars],
        "text": [bar.text for bar in bars],
        "customdata": [[bar.hint, bar.to_ns - bar.from_ns] for bar in bars],
        "textposition": "outside",
        "cliponaxis": False,
        "hovertemplate": "%{y}: %{text}<br>%{customdata[0]}<extra></extra>",
        "marker": {"color": "rgba(128,128,128,0.35)"} if wall is None else marker(wall),
    }
