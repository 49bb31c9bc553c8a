"""Figures of a job: who waits in which step, and how ranks met while one made a step."""

from html import escape
from typing import Any

import polars as pl

from wallscope import units
from wallscope.model.analysis import Analysis
from wallscope.model.job import Job
from wallscope.model.kinds import Wall
from wallscope.render.colours import WALL_COLOURS
from wallscope.render.foreign import visible
from wallscope.views.blocks import Figure

_MOST_CELLS, _MOST_STEPS = 40_000, 200
_ROW_PX, _THIN_PX, _TALL_PX, _FRAME_PX = 16, 2, 1_600, 110
_LANE_PX = 26
_WAITING, _UNMATCHED = "#F6D58A", "rgba(128,128,128,0.45)"
_STRIPES = "rgba(90,60,0,0.55)"


def heat(analysis: Analysis, found: Job) -> Figure:
    """Communication of each rank in each step: who waits is dark, whom all wait for is pale."""
    names = [label(one.name) for one in found.members]
    most = max(min(_MOST_STEPS, _MOST_CELLS // max(len(names), 1)), 1)
    every = sorted({step.index for rank in analysis.ranks for step in rank.steps})
    steps = every[:most]
    owned = [{step.index: step.walls.communication for step in rank.steps} for rank in analysis.ranks]
    trace = {
        "type": "heatmap",
        "x": steps,
        "y": names,
        "z": [[round(own[step] / 1e6, 3) if step in own else None for step in steps] for own in owned],
        "colorscale": [[0, "#fff6e0"], [1, "#8a4b00"]],
        "colorbar": {"title": {"text": "ms"}},
        "hovertemplate": f"%{{y}}, {analysis.anchor.window} %{{x}}: %{{z:.3f}} ms<extra></extra>",
    }
    layout = {
        "xaxis": {"title": {"text": analysis.anchor.window}, "type": "category"},
        "yaxis": {"autorange": "reversed", "automargin": True, "type": "category"},
    }
    left_out = f"; the first {len(steps)} of {len(every)}" if len(steps) < len(every) else ""
    caption = (
        f"Communication by rank and {analysis.anchor.window}: those that wait are dark, a late one is"
        f" pale{left_out}"
    )
    row_px = min(max(_TALL_PX // len(names), _THIN_PX), _ROW_PX)
    return Figure("job", caption, (trace,), layout, row_px * len(names) + _FRAME_PX)


def label(name: str) -> str:
    """What a rank is called, as plotly may show it."""
    return escape(visible(name, most=20))


def meeting(lanes: pl.DataFrame, found: Job) -> Figure | None:
    """A lane a rank: when it came to each collective, what it waited, when bytes moved."""
    if lanes.is_empty():
        return None
    names = [label(found.members[place].name) for place in lanes["member"].unique().sort()]
    is_pipeline = pl.col("is_pipeline")
    matched = lanes.filter(pl.col("wait_ns").is_not_null())
    moving = matched.with_columns(start_ns=pl.col("end_ns") - pl.col("transfer_ns"))
    parts = (
        ("waits for peers", matched.filter(~is_pipeline & (pl.col("wait_ns") > 0)), "wait_ns", _hatched("/")),
        (
            "waits for the pipeline",
            matched.filter(is_pipeline & (pl.col("wait_ns") > 0)),
            "wait_ns",
            _hatched("."),
        ),
        ("bytes move", moving, "transfer_ns", {"color": WALL_COLOURS[Wall.COMMUNICATION]}),
        ("not matched", lanes.filter(pl.col("wait_ns").is_null()), None, {"color": _UNMATCHED}),
    )
    order = {
        "type": "bar", "orientation": "h", "y": names, "x": [0] * len(names), "base": [0] * len(names),
        "showlegend": False, "hoverinfo": "skip", "marker": {"color": _UNMATCHED},
    }  # fmt: skip
    traces = [_bars(name, rows, column, marker, found) for name, rows, column, marker in parts if len(rows)]
    layout = {
        "barmode": "overlay",
        "bargap": 0.3,
        "xaxis": {"title": {"text": "ms, on one clock"}, "rangemode": "tozero"},
        "yaxis": {"autorange": "reversed", "automargin": True, "type": "category", "showgrid": False},
        "legend": {"orientation": "h", "y": 1.06, "yanchor": "bottom", "x": 0, "traceorder": "normal"},
    }
    more = found.ranks - len(names)
    left_out = f"; {units.plural(more, 'more rank')} not drawn" if more else ""
    caption = f"How ranks met in one step: a bar begins when its rank came in, and shows who waits{left_out}"
    return Figure("meetings", caption, (order, *traces), layout, _LANE_PX * len(names) + _FRAME_PX)


def _hatched(shape: str) -> dict[str, Any]:
    return {
        "color": _WAITING,
        "pattern": {"shape": shape, "fgcolor": _STRIPES, "fillmode": "overlay", "size": 5, "solidity": 0.2},
    }


def _bars(
    name: str, rows: pl.DataFrame, column: str | None, marker: dict[str, Any], found: Job
) -> dict[str, Any]:
    width = pl.col("end_ns") - pl.col("start_ns") if column is None else pl.col(column)
    told = rows.with_columns(width=width)
    return {
        "type": "bar",
        "orientation": "h",
        "name": name,
        "y": [label(found.members[place].name) for place in told["member"]],
        "base": [round(at / 1e6, 4) for at in told["start_ns"]],
        "x": [round(width_ns / 1e6, 4) for width_ns in told["width"]],
        "customdata": [
            [_what(row), _last(row, found), units.duration(row["width"])]
            for row in told.iter_rows(named=True)
        ],
        "hovertemplate": f"%{{y}}: %{{customdata[0]}}<br>{name} %{{customdata[2]}}%{{customdata[1]}}"
        "<extra></extra>",
        "marker": marker,
    }


def _what(row: dict[str, Any]) -> str:
    axis = "" if row["axis"] == "unknown" else f"{row['axis']} "
    ranks = "" if row["ranks"] is None else f" of {units.plural(row['ranks'], 'rank')}"
    return f"{axis}{row['operation']}{ranks}"


def _last(row: dict[str, Any], found: Job) -> str:
    return "" if row["last"] is None else f"<br>last to come: {label(found.members[row['last']].name)}"
