"""Figures of the page as plotly reads them: plain traces and layouts, times in milliseconds."""

import re
from collections.abc import Sequence
from html import escape
from typing import Any

from wallscope import units
from wallscope.model.analysis import CauseTime, RangeWork, Rank, Step
from wallscope.model.kinds import Wall
from wallscope.render.colours import WALL_COLOURS
from wallscope.render.foreign import visible
from wallscope.views.blocks import Figure

_MOST_STEPS = 400
_MOST_CAUSES = 14
_MOST_RANGES = 150
ROW_PX = 26
_SHORT_NAME = 24
_STRIPES = "rgba(255,255,255,0.55)"
_ROOT = "<"  # no range has this id, theirs are escaped
Bar = tuple[str, int, int, Wall | None]
"""Name, base, length, wall."""
_PATTERNS = {
    Wall.COMPUTE: "",
    Wall.COMMUNICATION: "/",
    Wall.MEMORY: "x",
    Wall.HOST: ".",
    Wall.UNATTRIBUTED: "-",
}
"""A wall is told by its pattern too, not by its colour alone."""


def steps(shown: Sequence[Step], unit: str, *, leads: bool = False) -> Figure:
    """Steps stacked by wall; those that do not count are pale. Whether a click leads to the timeline."""
    listed = shown[:_MOST_STEPS]
    numbers = [step.index for step in listed]
    totals = [units.duration(step.end_ns - step.start_ns) for step in listed]
    traces: list[dict[str, Any]] = [
        {
            "type": "bar",
            "name": str(wall),
            "x": numbers,
            "y": [step.walls.parts()[place] / 1e6 for step in listed],
            "customdata": [
                [units.milliseconds(step.walls.parts()[place]), total, step.reason or "counts"]
                for step, total in zip(listed, totals, strict=True)
            ],
            "hovertemplate": f"{unit} %{{x}}: {wall} %{{customdata[0]}} of %{{customdata[1]}}"
            "<br>%{customdata[2]}<extra></extra>",
            "marker": {
                **marker(wall),
                "opacity": [1.0 if step.steady else 0.35 for step in listed],
            },
        }
        for place, wall in enumerate(Wall)
    ]
    layout = {
        "barmode": "stack",
        "bargap": 0.15,
        "xaxis": {"title": {"text": unit}, "dtick": None if len(listed) > 24 else 1, "type": "linear"},
        "yaxis": {"title": {"text": "ms"}, "rangemode": "tozero"},
        "legend": {"orientation": "h", "y": 1.12, "x": 0, "traceorder": "normal"},
    }
    left_out = "" if len(shown) <= _MOST_STEPS else f"; the first {_MOST_STEPS} of {len(shown)}"
    click = "; a click leads into the timeline" if leads else ""
    caption = f"Each {unit} by wall, in ms; pale ones do not count as steady{left_out}{click}"
    return Figure("steps", caption, tuple(traces), layout, 320)


def waterfall(rank: Rank, whole: str) -> Figure:
    """From compute alone to the measured step, a cause at a time."""
    lost = [entry for entry in rank.causes if entry.wall != Wall.COMPUTE and entry.typical_ns > 0]
    lost.sort(key=lambda entry: (-entry.typical_ns, entry.cause))
    named = lost[:_MOST_CAUSES]
    compute_ns = rank.typical.walls.compute
    bars: list[Bar] = [("compute alone", 0, compute_ns, Wall.COMPUTE), *_stacked(named, compute_ns)]
    reached_ns = bars[-1][1] + bars[-1][2]
    if reached_ns < rank.typical.step_ns:
        rest = f"{len(lost) - len(named)} smaller causes"
        bars.append((rest, reached_ns, rank.typical.step_ns - reached_ns, None))
    measured = (f"measured {whole}", 0, rank.typical.step_ns, None)
    traces = [_bars([bar for bar in (*bars, measured) if bar[3] == wall], wall) for wall in (*Wall, None)]
    layout = {
        "xaxis": {
            "title": {"text": "ms"},
            "rangemode": "tozero",
            "range": [0, rank.typical.step_ns / 1e6 * 1.16],
        },
        "yaxis": {
            "autorange": "reversed",
            "automargin": True,
            "showgrid": False,
            "categoryorder": "array",
            "categoryarray": [label(name) for name, *_ in (*bars, measured)],
        },
        "barmode": "overlay",
        "showlegend": False,
    }
    caption = f"From compute alone to the measured {whole}, what each cause adds; patterns tell walls"
    return Figure("waterfall", caption, tuple(traces), layout, ROW_PX * (len(bars) + 1) + 70)


def phases(ranges: Sequence[RangeWork]) -> Figure:
    """Ranges inside ranges, as wide as the work they issued; coloured by the wall that owns most."""
    listed = [entry for entry in ranges[:_MOST_RANGES] if entry.work_ns > 0]
    known = {entry.path for entry in listed}
    parents = [_parent(entry) for entry in listed]
    top_ns = sum(entry.work_ns for entry, parent in zip(listed, parents, strict=True) if parent not in known)
    trace = {
        "type": "icicle",
        "ids": [_ROOT, *(escape(entry.path) for entry in listed)],
        "parents": ["", *(escape(parent) if parent in known else _ROOT for parent in parents)],
        "labels": ["work inside ranges", *(_short(entry.name) for entry in listed)],
        "values": [0, *(entry.own_work_ns / 1e6 for entry in listed)],
        "branchvalues": "remainder",
        "customdata": [
            [units.milliseconds(top_ns), "work: durations added up", "", "all ranges"],
            *(
                [units.milliseconds(entry.work_ns), _owned(entry), str(_most(entry)), label(entry.name)]
                for entry in listed
            ),
        ],
        "hovertemplate": "%{customdata[3]}<br>work %{customdata[0]}<br>%{customdata[1]}<extra></extra>",
        "texttemplate": "%{label}<br>%{customdata[0]} %{customdata[2]}",
        "textposition": "middle center",
        "leaf": {"opacity": 1},
        "tiling": {"orientation": "v"},
        "pathbar": {"visible": True},
        "marker": {
            "colors": ["#d5d9dd", *(WALL_COLOURS[_most(entry)] for entry in listed)],
            "line": {"width": 1},
        },
        "maxdepth": 6,
    }
    caption = (
        "Ranges by the work issued inside them, coloured by the wall that owns most; a click goes into one"
    )
    layout = {"uniformtext": {"minsize": 9, "mode": "hide"}}
    return Figure("phases", caption, (trace,), layout, 420)


def _stacked(causes: Sequence[CauseTime], from_ns: int) -> list[Bar]:
    bars: list[Bar] = []
    for entry in causes:
        bars.append((entry.cause, from_ns, entry.typical_ns, entry.wall))
        from_ns += entry.typical_ns
    return bars


def _bars(bars: Sequence[Bar], wall: Wall | None) -> dict[str, Any]:
    """The bars of one wall, or the one that stands for all of them."""
    return {
        "type": "bar",
        "orientation": "h",
        "y": [label(name) for name, *_ in bars],
        "base": [base_ns / 1e6 for _, base_ns, *_ in bars],
        "x": [time_ns / 1e6 for _, _, time_ns, _ in bars],
        "text": [units.milliseconds(time_ns) for _, _, time_ns, _ in bars],
        "textposition": "outside",
        "cliponaxis": False,
        "hovertemplate": "%{y}: %{text}<extra></extra>",
        "marker": {"color": "rgba(128,128,128,0.35)"} if wall is None else marker(wall),
    }


def label(name: str) -> str:
    """A name as plotly may show it: it reads some markup."""
    return escape(visible(name, most=60))


def _short(name: str) -> str:
    """The end of a dotted name, which tells most of it.

    >>> _short("megatron.core.transformer.mlp"), _short("autograd::engine::evaluate_function: MulBackward0")
    ('mlp', 'MulBackward0')
    """
    parts = [part for part in re.split(r"::|[.:/ ]+", name) if part]
    tail = parts[-1] if parts else name
    return escape(visible(tail if len(name) > _SHORT_NAME else name, most=_SHORT_NAME))


def marker(wall: Wall) -> dict[str, Any]:
    """Colour and pattern of a wall."""
    pattern = {"shape": _PATTERNS[wall], "fgcolor": _STRIPES, "fillmode": "overlay", "size": 6}
    return {"color": WALL_COLOURS[wall], "pattern": pattern}


def _parent(entry: RangeWork) -> str:
    return entry.path[: -len(entry.name) - 3] if entry.path.endswith(f" / {entry.name}") else ""


def _most(entry: RangeWork) -> Wall:
    if entry.walls is None:
        return Wall.UNATTRIBUTED
    return max(zip(entry.walls.parts(), Wall, strict=True), key=lambda part: part[0])[1]


def _owned(entry: RangeWork) -> str:
    if entry.walls is None:
        return "walls unknown"
    parts = zip(Wall, entry.walls.parts(), strict=True)
    return ", ".join(f"{wall} {units.milliseconds(time_ns)}" for wall, time_ns in parts if time_ns)
