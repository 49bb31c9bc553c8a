"""Figures of a step played again: what its critical path is made of, and what it would take with fixes."""

from collections.abc import Sequence
from typing import Any

from wallscope import units
from wallscope.model.analysis import Rank
from wallscope.model.fixes import Fix
from wallscope.model.kinds import Wall
from wallscope.model.walls import Walls
from wallscope.model.whatif import Answer, CriticalPath, PathPart, WhatIf
from wallscope.render.foreign import visible
from wallscope.views.blocks import Figure
from wallscope.views.figures import ROW_PX, label, marker

_NO_WALL = {"color": "rgba(128,128,128,0.45)"}
_ON_WALL = {Wall.COMPUTE: "#fff"}
"""Colours of letters on a wall's colour; black where none is named."""
_MOST_NAME, _LONGEST_PATH = 40, 120


def composition(path: CriticalPath, whole: str) -> Figure:
    """The path four times, a bar each: by wall, cause, range, operation; each sums to the step."""
    kinds = {
        "walls": path.walls,
        "causes": path.causes,
        "ranges": path.ranges,
        "operations": path.operations,
    }
    traces = [trace for kind, parts in kinds.items() for trace in _stacked(kind, parts)]
    layout = {
        "barmode": "stack",
        "bargap": 0.25,
        "xaxis": {"title": {"text": "ms"}, "range": [0, path.step_ns / 1e6]},
        "yaxis": {"autorange": "reversed", "automargin": True, "showgrid": False},
        "showlegend": False,
        "uniformtext": {"minsize": 10, "mode": "hide"},
    }
    caption = f"The critical path of the {whole} by wall, cause, range and operation; each bar is the {whole}"
    return Figure("path", caption, tuple(traces), layout, 4 * 2 * ROW_PX + 70)


def with_fixes(rank: Rank, fixes: Sequence[Fix], whole: str) -> Figure | None:
    """What the step takes as it is and with each fix that was replayed, by wall; `None` without any."""
    won = [(fix.title, fix.replay) for fix in fixes if fix.replay is not None]
    if not won:
        return None
    caption = f"The {whole} played again with all that each fix is for come true, by wall, in ms"
    return _played("fixes", caption, (rank.typical.step_ns, rank.typical.walls), won)


def with_changes(found: WhatIf, answers: Sequence[Answer], name: str) -> Figure:
    """What the step takes as it is and with each change, by wall."""
    caption = f"The typical {found.unit} as captured, and played again with each change, by wall, in ms"
    return _played(name, caption, (found.step_ns, found.walls), [(changed(one), one) for one in answers])


def changed(answer: Answer) -> str:
    """What was changed, in few words."""
    return " + ".join(one.text for one in answer.questions)


def _played(
    name: str, caption: str, captured: tuple[int, Walls], answers: Sequence[tuple[str, Answer]]
) -> Figure:
    """A bar for the captured step and one for each answer, stacked by wall."""
    names = ["as captured", *(label(title) for title, _ in answers)]
    steps = [captured[0], *(answer.step_ns for _, answer in answers)]
    owned = [captured[1].parts(), *(answer.walls.parts() for _, answer in answers)]
    asked = ["", *(" and ".join(label(one.text) for one in answer.questions) for _, answer in answers)]
    traces: list[dict[str, Any]] = [
        {
            "type": "bar",
            "orientation": "h",
            "name": str(wall),
            "y": names,
            "x": [parts[place] / 1e6 for parts in owned],
            "customdata": [
                [units.milliseconds(parts[place]), units.milliseconds(step_ns), told]
                for parts, step_ns, told in zip(owned, steps, asked, strict=True)
            ],
            "hovertemplate": f"{wall} %{{customdata[0]}} of %{{customdata[1]}}"
            "<br>%{customdata[2]}<extra></extra>",
            "marker": marker(wall),
        }
        for place, wall in enumerate(Wall)
    ]
    layout = {
        "barmode": "stack",
        "bargap": 0.25,
        "xaxis": {"title": {"text": "ms"}, "range": [0, max(steps) / 1e6]},
        "yaxis": {
            "autorange": "reversed",
            "automargin": True,
            "showgrid": False,
            "categoryorder": "array",
            "categoryarray": names,
        },
        "legend": {"orientation": "h", "y": 1.12, "x": 0, "traceorder": "normal"},
    }
    return Figure(name, caption, tuple(traces), layout, ROW_PX * (len(names) + 1) + 100)


def inner(path: str) -> str:
    """The end of a written path of ranges, which tells most of it.

    >>> inner("train_step / forward / layer_#"), inner("a" * 30 + " / " + "b" * 30 + " / c")
    ('train_step / forward / layer_#', '… / bbbbbbbbbbbbbbbbbbbbbbbbbbbbbb / c')
    """
    names = path.split(" / ")
    kept = names[-1]
    for name in reversed(names[:-1]):
        if len(kept) + len(name) > _MOST_NAME:
            return visible(f"… / {kept}", most=_LONGEST_PATH)
        kept = f"{name} / {kept}"
    return visible(kept, most=_LONGEST_PATH)


def _stacked(kind: str, parts: Sequence[PathPart]) -> list[dict[str, Any]]:
    """One bar, a trace for each part of it."""
    return [
        {
            "type": "bar",
            "orientation": "h",
            "y": [kind],
            "x": [part.time_ns / 1e6],
            "customdata": [
                [label(_named(part)), units.milliseconds(part.time_ns), units.percent(part.share)]
            ],
            "hovertemplate": "%{customdata[0]}<br>%{customdata[1]}, %{customdata[2]}<extra></extra>",
            "text": [label(_named(part))],
            "textposition": "inside",
            "insidetextanchor": "start",
            "textangle": 0,
            "marker": (_NO_WALL if part.wall is None else marker(part.wall))
            | {"line": {"width": 1, "color": "rgba(255,255,255,0.8)"}},
        }
        | ({} if part.wall is None else {"insidetextfont": {"color": _ON_WALL.get(part.wall, "#000")}})
        for part in parts
    ]


def _named(part: PathPart) -> str:
    return inner(part.name) or "no range or call"
