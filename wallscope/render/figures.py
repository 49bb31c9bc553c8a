"""Figures as plotly takes them: traces and layouts, times in ms, names without markup.

Notebooks draw them with plotly, pages with `reports/charts.js`, which knows the parts that are used here.
"""

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from html import escape
from itertools import accumulate
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from wallscope import units
from wallscope.model.advice import Fix
from wallscope.model.analysis import Analysis, Job, RangeWork, Rank, RankWaits, Step
from wallscope.model.cause_catalogue import describe_cause, name_cause
from wallscope.model.diagnosis import Walls
from wallscope.model.enums import Wall
from wallscope.model.section import Figure
from wallscope.model.whatif import Answer, CriticalPath, PathPart, WhatIf
from wallscope.render.texts import WALL_COLOURS, shorten_name, visible

if TYPE_CHECKING:
    import polars as pl

    from wallscope.model.comparison import CauseDelta, Comparison
    from wallscope.model.report import ComparisonReport

_MOST_STEPS, _MOST_STEPS_OF_A_SIDE, _MOST_STEPS_OF_RANKS = 400, 200, 200
_MOST_CAUSES, _MOST_RANGES, _MOST_CELLS = 14, 150, 40_000
_ROW_PX, _LANE_PX, _FRAME_PX = 26, 26, 110
_HEAT_ROW_PX = 16
_MAP_ROW_PX, _BUTTONS_PX, _RANKS_OF_ROW = 22, 60, 8
_WALLS_OF_MAP = (Wall.COMPUTE, Wall.COMMUNICATION, Wall.MEMORY, Wall.HOST)
_SHORT_NAME = 24
_SHOWN_CHANGE = 0.002
"""Share of the largest change that a change needs for a bar of its own; the others are one bar."""
_SPACE = 1.5
_ROOM = 0.18
"""Share of the axis on either side that the numbers next to bars need."""
_ROOT = "<"  # no range has this id, theirs are escaped
_PATTERNS = dict(zip(Wall, ("", "/", "x", ".", "-"), strict=True))
"""Patterns of the five walls in their order: color alone does not mark a wall."""
_STRIPES, _DARK_STRIPES = "rgba(255,255,255,0.55)", "rgba(90,60,0,0.55)"
_SEVERAL = "#b9c0c7"  # a part that lies on several walls
_WAITING, _UNMATCHED, _NO_WALL = "#F6D58A", "rgba(128,128,128,0.45)", "rgba(128,128,128,0.35)"
_LEGEND = {"orientation": "h", "y": 1.12, "x": 0, "traceorder": "normal"}
_MS, _ROWS = {"text": "ms"}, {"autorange": "reversed", "automargin": True, "showgrid": False}


def label(name: str, most: int = 60) -> str:
    """Write a name as plotly may show it: it reads some markup."""
    return escape(visible(name, most=most))


def _mark(wall: Wall | None) -> dict[str, Any]:
    """Return color and pattern of a wall, or of a bar for all walls."""
    if wall is None:
        return {"color": _NO_WALL}
    pattern = {"shape": _PATTERNS[wall], "fgcolor": _STRIPES, "fillmode": "overlay", "size": 6}
    return {"color": WALL_COLOURS[wall], "pattern": pattern}


def _stack(
    wall: Wall, parts_ns: Sequence[int], steps: Sequence[tuple[float, bool, tuple[str, ...]]], hover: str
) -> dict[str, Any]:
    """Make the part of a wall of upright bars: of steps by place, whether they count, and notes.

    `WALL` stands for its name in what is shown over a bar.
    """
    parts = zip(parts_ns, steps, strict=True)
    return {
        "type": "bar",
        "name": str(wall),
        "x": [place for place, _, _ in steps],
        "y": [time_ns / 1e6 for time_ns in parts_ns],
        "customdata": [[units.milliseconds(time_ns), *notes] for time_ns, (_, _, notes) in parts],
        "hovertemplate": f"{hover.replace('WALL', wall)}<extra></extra>",
        "marker": {**_mark(wall), "opacity": [1.0 if counts else 0.35 for _, counts, _ in steps]},
    }


def _stacked_layout(xaxis: Mapping[str, Any]) -> dict[str, Any]:
    yaxis = {"title": _MS, "rangemode": "tozero"}
    return {"barmode": "stack", "bargap": 0.15, "xaxis": xaxis, "yaxis": yaxis, "legend": _LEGEND}


def draw_steps(shown: Sequence[Step], unit: str, *, leads: bool = False) -> Figure:
    """Draw steps stacked by wall; those that do not count are pale. Whether a click leads to the timeline."""
    listed = shown[:_MOST_STEPS]
    described = [
        (step.index, step.steady, (units.duration(step.end_ns - step.start_ns), step.reason or "counts"))
        for step in listed
    ]
    hover = "%{x}: WALL %{customdata[0]} of %{customdata[1]}<br>%{customdata[2]}"
    traces = tuple(
        _stack(wall, [getattr(step.walls, wall) for step in listed], described, f"{unit} {hover}")
        for wall in Wall
    )
    axis = {"title": {"text": unit}, "dtick": None if len(listed) > 24 else 1, "type": "linear"}
    left_out = "" if len(shown) <= _MOST_STEPS else f"; the first {_MOST_STEPS} of {len(shown)}"
    click = f". Click a {unit} to see it in the timeline" if leads else ""
    caption = f"Time of each {unit} by wall, in ms; pale {unit}s are not steady{left_out}{click}"
    return Figure("steps", caption, traces, _stacked_layout(axis), 320)


def draw_both_steps(report: "ComparisonReport") -> Figure:
    """Draw the steps of base next to those of head, stacked by wall; pale ones are not steady."""
    import polars as pl  # noqa: PLC0415  # the first screen has no frames

    unit, most = report.comparison.window, _MOST_STEPS_OF_A_SIDE
    base, head = report.base.steps.head(most), report.head.steps.head(most)
    places = [*range(len(base)), *(len(base) + _SPACE + number for number in range(len(head)))]
    both = pl.concat([base.with_columns(side=pl.lit("base")), head.with_columns(side=pl.lit("head"))])
    described = [
        (place, row["counts"], (_describe_step(row, unit),))
        for place, row in zip(places, both.iter_rows(named=True), strict=True)
    ]
    hover = "%{customdata[1]}<br>WALL %{customdata[0]}"
    traces = tuple(_stack(wall, both[f"{wall}_wall_ns"].to_list(), described, hover) for wall in Wall)
    axis = {
        "tickmode": "array",
        "tickvals": [(len(base) - 1) / 2, len(base) + _SPACE + (len(head) - 1) / 2],
        "ticktext": [f"base: {len(base)}", f"head: {len(head)}"],
        "showgrid": False,
        "zeroline": False,
    }
    caption = f"Time of each {unit} of both sides by wall, in ms; pale {unit}s are not steady"
    if max(len(report.base.steps), len(report.head.steps)) > most:
        caption += f"; the first {most} of a side"
    return Figure("both-steps", caption, traces, _stacked_layout(axis), 320)


def _describe_step(row: Mapping[str, Any], unit: str) -> str:
    counts = "counts" if row["counts"] else label(f"does not count: {row['reason']}")
    return (
        f"{row['side']}, run {row['run']}, {unit} {row['step']}: {units.duration(row['length_ns'])}, {counts}"
    )


class _Bar(NamedTuple):
    """A bar of a waterfall, of a wall or of what stands for all."""

    name: str
    from_ns: int
    length_ns: int
    wall: Wall | None
    text: str
    hint: str | None = None


def _fall(bars: Sequence[_Bar], wall: Wall | None) -> dict[str, Any]:
    """Make the bars of one wall; where they have hints, these are shown over them."""
    has_hints = any(bar.hint for bar in bars)
    hinted = {"customdata": [[bar.hint, bar.length_ns] for bar in bars]} if has_hints else {}
    return {
        "type": "bar",
        "orientation": "h",
        "y": [label(bar.name) for bar in bars],
        "base": [bar.from_ns / 1e6 for bar in bars],
        "x": [bar.length_ns / 1e6 for bar in bars],
        "text": [bar.text for bar in bars],
        **hinted,
        "textposition": "outside",
        "cliponaxis": False,
        "hovertemplate": f"%{{y}}: %{{text}}{'<br>%{customdata[0]}' if hinted else ''}<extra></extra>",
        "marker": _mark(wall),
    }


def _fall_layout(bars: Sequence[_Bar], xaxis: Mapping[str, Any]) -> dict[str, Any]:
    names = [label(bar.name) for bar in bars]
    words = [label(name_cause(bar.name)) for bar in bars]
    order = {"categoryorder": "array", "categoryarray": names}
    if words != names:
        order |= {"tickmode": "array", "tickvals": names, "ticktext": words}
    return {
        "xaxis": {"title": _MS, "showgrid": False, "ticks": "outside", **xaxis},
        "yaxis": {**_ROWS, **order},
        "barmode": "overlay",
        "showlegend": False,
    }


def draw_waterfall(rank: Rank, whole: str) -> Figure:
    """Draw the way from compute alone to the measured step, a cause at a time."""
    lost = [entry for entry in rank.causes if entry.wall != Wall.COMPUTE and entry.typical_ns > 0]
    lost.sort(key=lambda entry: (-entry.typical_ns, entry.cause))
    step_ns, at_ns = rank.typical.step_ns, rank.typical.walls.compute
    bars = [_Bar("compute alone", 0, at_ns, Wall.COMPUTE, units.milliseconds(at_ns))]
    for entry in lost[:_MOST_CAUSES]:
        text = units.milliseconds(entry.typical_ns)
        hint = f"wallscope explain {label(entry.cause)}"
        bars.append(_Bar(entry.cause, at_ns, entry.typical_ns, entry.wall, text, hint))
        at_ns += entry.typical_ns
    if at_ns < step_ns:
        rest = f"{len(lost[_MOST_CAUSES:])} smaller causes"
        bars.append(_Bar(rest, at_ns, step_ns - at_ns, None, units.milliseconds(step_ns - at_ns)))
    bars.append(_Bar(f"measured {whole}", 0, step_ns, None, units.milliseconds(step_ns)))
    traces = tuple(_fall([bar for bar in bars if bar.wall == wall], wall) for wall in (*Wall, None))
    layout = _fall_layout(bars, {"rangemode": "tozero", "range": [0, step_ns / 1e6 * 1.16]})
    caption = (
        f"From compute alone to the measured {whole}, what each cause adds; color and pattern show the wall"
    )
    return Figure("waterfall", caption, traces, layout, _ROW_PX * len(bars) + 70)


def draw_way(comparison: "Comparison") -> Figure:
    """Draw the way from base's typical step to head's, what each cause adds or takes."""
    bars = _list_changes(comparison)
    own = {wall: [bar for bar in bars if bar.wall == wall] for wall in (*Wall, None)}
    traces = tuple(_fall(shown, wall) for wall, shown in own.items() if shown)
    reached = [at_ns for bar in bars for at_ns in (bar.from_ns, bar.from_ns + bar.length_ns) if at_ns]
    low_ns, high_ns = min(reached, default=0), max(reached, default=1)
    room_ns = max((high_ns - low_ns) * _ROOM, high_ns * 0.005)
    is_cut = low_ns - room_ns > high_ns * 0.1
    ends = [(low_ns - room_ns) / 1e6 if is_cut else 0, (high_ns + room_ns) / 1e6]
    caption = "What each cause adds or removes from base to head; color and pattern show the wall"
    caption += "; the axis does not begin at 0" if is_cut else ""
    title = {"text": f"ms; this axis begins at {ends[0]:,.1f} ms, not at 0"} if is_cut else _MS
    layout = _fall_layout(bars, {"range": ends, "title": title})
    return Figure("way", caption, traces, layout, _ROW_PX * (len(bars) + 1) + 70)


def _list_changes(comparison: "Comparison") -> list[_Bar]:
    step, causes = comparison.step, comparison.deltas.causes
    at_ns = step.base_ns
    ends = [
        _Bar(f"{side} {comparison.window}", 0, time_ns, None, *[units.milliseconds(time_ns)] * 2)
        for side, time_ns in (("base", step.base_ns), ("head", step.head_ns))
    ]
    bars = ends[:1]
    least_ns = _SHOWN_CHANGE * max((abs(row.delta_ns) for row in causes), default=0)
    shown = [row for row in causes if abs(row.delta_ns) >= least_ns][:_MOST_CAUSES]
    for row in shown:
        both = f"{units.milliseconds(row.base_ns)} → {units.milliseconds(row.head_ns)}"
        hint = f"{label(describe_cause(row.cause))}: {both}"
        text = f"{units.signed_milliseconds(row.delta_ns)}{_write_grade(row)}"
        bars.append(_Bar(row.cause, at_ns, row.delta_ns, row.wall, text, hint))
        at_ns += row.delta_ns
    if rest := [row for row in causes if row not in shown]:
        left_ns = sum(row.delta_ns for row in rest)
        text = units.signed_milliseconds(left_ns)
        bars.append(_Bar(units.plural(len(rest), "smaller cause"), at_ns, left_ns, None, text, text))
    return [*bars, *ends[1:]]


def _write_grade(row: "CauseDelta") -> str:
    """Write how certain a change is, after its amount; nothing where no interval is known."""
    if row.low_ns is None or row.high_ns is None or row.low_ns == row.high_ns:
        return ""
    return f", {row.grade or 'could be noise'}"


def draw_phases(ranges: Sequence[RangeWork]) -> Figure:
    """Draw ranges inside ranges, as wide as the work they issued, in the color of their largest wall."""
    listed = [entry for entry in ranges[:_MOST_RANGES] if entry.work_ns > 0]
    known = {entry.path for entry in listed}
    parents = [
        entry.path[: -len(entry.name) - 3] if entry.path.endswith(f" / {entry.name}") else ""
        for entry in listed
    ]
    walls = [_find_wall(entry) for entry in listed]
    top_ns = sum(entry.work_ns for entry, parent in zip(listed, parents, strict=True) if parent not in known)
    trace = {
        "type": "icicle",
        "ids": [_ROOT, *(escape(entry.path) for entry in listed)],
        "parents": ["", *(escape(parent) if parent in known else _ROOT for parent in parents)],
        "labels": ["work inside ranges", *(_keep_end(entry.name) for entry in listed)],
        "values": [0, *(entry.own_work_ns / 1e6 for entry in listed)],
        "branchvalues": "remainder",
        "customdata": [
            [units.milliseconds(top_ns), "work: durations added up", "", "all ranges"],
            *(
                [units.milliseconds(entry.work_ns), _list_wall_names(entry), str(wall), label(entry.name)]
                for entry, wall in zip(listed, walls, strict=True)
            ),
        ],
        "hovertemplate": "%{customdata[3]}<br>work %{customdata[0]}<br>%{customdata[1]}<extra></extra>",
        "texttemplate": "%{label}<br>%{customdata[0]} %{customdata[2]}",
        "textposition": "middle center",
        "leaf": {"opacity": 1},
        "tiling": {"orientation": "v"},
        "pathbar": {"visible": True},
        "marker": {"colors": ["#d5d9dd", *(WALL_COLOURS[wall] for wall in walls)], "line": {"width": 1}},
        "maxdepth": 6,
    }
    caption = (
        "GPU work launched in each range, in the color of its largest wall; click a range to zoom into it"
    )
    layout = {"uniformtext": {"minsize": 9, "mode": "hide"}}
    return Figure("phases", caption, (trace,), layout, 186)


def _keep_end(name: str) -> str:
    """Keep the end of a dotted name.

    >>> _keep_end("megatron.core.transformer.mlp"), _keep_end("autograd::engine::function: MulBackward0")
    ('mlp', 'MulBackward0')
    """
    parts = [part for part in re.split(r"::|[.:/ ]+", name) if part]
    tail = parts[-1] if parts else name
    return label(tail if len(name) > _SHORT_NAME else name, _SHORT_NAME)


def _find_wall(entry: RangeWork) -> Wall:
    """Return the wall that most time of a range is attributed to."""
    if entry.walls is None:
        return Wall.UNATTRIBUTED
    return max(zip(entry.walls.parts(), Wall, strict=True), key=lambda part: part[0])[1]


def _list_wall_names(entry: RangeWork) -> str:
    if entry.walls is None:
        return "walls unknown"
    parts = zip(Wall, entry.walls.parts(), strict=True)
    return ", ".join(f"{wall} {units.milliseconds(time_ns)}" for wall, time_ns in parts if time_ns)


def draw_path(path: CriticalPath, whole: str) -> Figure:
    """Draw the path four times, a bar each: by wall, cause, range, operation; each sums to the step."""
    placed = [
        (kind, part, from_ns)
        for kind in ("walls", "causes", "ranges", "operations")
        for part, from_ns in _place_parts(getattr(path, kind))
    ]
    own = {wall: [one for one in placed if one[1].wall == wall] for wall in (*Wall, None)}
    traces = tuple(_draw_parts(wall, parts) for wall, parts in own.items() if parts)
    kinds = ["walls", "causes", "ranges", "operations"]
    layout = {
        "barmode": "overlay",
        "bargap": 0.25,
        "xaxis": {"title": _MS, "range": [0, path.step_ns / 1e6]},
        "yaxis": {**_ROWS, "categoryorder": "array", "categoryarray": kinds},
        "showlegend": False,
        "uniformtext": {"minsize": 10, "mode": "hide"},
    }
    caption = f"The critical path of the {whole} by wall, cause, range and operation; each bar is the {whole}"
    return Figure("path", caption, traces, layout, 4 * 2 * _ROW_PX + 70)


def _place_parts(parts: Sequence[PathPart]) -> Iterator[tuple[PathPart, int]]:
    """Yield each part of a bar, and where it begins in ns."""
    ends = accumulate((part.time_ns for part in parts), initial=0)
    yield from zip(parts, ends, strict=False)  # one end more than there are parts


def _draw_parts(wall: Wall | None, placed: Sequence[tuple[str, PathPart, int]]) -> dict[str, Any]:
    """Make the parts of one wall: the bar, the part and where it begins in ns."""
    names = [label(name_cause(shorten_name(part.name)) or "no range or call") for _, part, _ in placed]
    colour = {"color": _SEVERAL} if wall is None else _mark(wall)
    return {
        "type": "bar",
        "orientation": "h",
        "y": [kind for kind, _, _ in placed],
        "base": [from_ns / 1e6 for _, _, from_ns in placed],
        "x": [part.time_ns / 1e6 for _, part, _ in placed],
        "customdata": [
            [name, units.milliseconds(part.time_ns), units.percent(part.share)]
            for name, (_, part, _) in zip(names, placed, strict=True)
        ],
        "hovertemplate": "%{customdata[0]}<br>%{customdata[1]}, %{customdata[2]}<extra></extra>",
        "text": names,
        "textposition": "inside",
        "insidetextanchor": "start",
        "textangle": 0,
        "insidetextfont": {"color": "#fff" if wall is Wall.COMPUTE else "#000"},
        "marker": colour | {"line": {"width": 1, "color": "rgba(255,255,255,0.8)"}},
    }


def draw_fixes(rank: Rank, fixes: Sequence[Fix], whole: str) -> Figure | None:
    """Draw what the step takes as it is and with each fix that was replayed; `None` without any."""
    won = [(fix.title, fix.replay) for fix in fixes if fix.replay is not None]
    caption = f"The {whole} in the replay of each fix, by wall, in ms"
    return _draw_answers("fixes", caption, rank.typical.step_ns, rank.typical.walls, won) if won else None


def draw_changes(found: WhatIf, answers: Sequence[Answer], name: str) -> Figure:
    """Draw what the step takes as it is and with each change, by wall."""
    caption = f"The typical {found.unit} as captured, and replayed with each change, by wall, in ms"
    won = [(name_changes(one), one) for one in answers]
    return _draw_answers(name, caption, found.step_ns, found.walls, won)


def name_changes(answer: Answer) -> str:
    """Say what was changed, in few words."""
    return " + ".join(one.text for one in answer.questions)


def _draw_answers(
    name: str, caption: str, step_ns: int, walls: Walls, answers: Sequence[tuple[str, Answer]]
) -> Figure:
    """Draw a bar for the captured step and one for each answer, stacked by wall."""
    names = ["as captured", *(label(title) for title, _ in answers)]
    steps = [step_ns, *(answer.step_ns for _, answer in answers)]
    owned = [walls, *(answer.walls for _, answer in answers)]
    labels = ["", *(" and ".join(label(one.text) for one in answer.questions) for _, answer in answers)]
    traces = tuple(
        {
            "type": "bar",
            "orientation": "h",
            "name": str(wall),
            "y": names,
            "x": [getattr(parts, wall) / 1e6 for parts in owned],
            "customdata": [
                [units.milliseconds(getattr(parts, wall)), units.milliseconds(whole_ns), question]
                for parts, whole_ns, question in zip(owned, steps, labels, strict=True)
            ],
            "hovertemplate": f"{wall} %{{customdata[0]}} of %{{customdata[1]}}"
            "<br>%{customdata[2]}<extra></extra>",
            "marker": _mark(wall),
        }
        for wall in Wall
    )
    layout = {
        "barmode": "stack",
        "bargap": 0.25,
        "xaxis": {"title": _MS, "range": [0, max(steps) / 1e6]},
        "yaxis": {**_ROWS, "categoryorder": "array", "categoryarray": names},
        "legend": _LEGEND,
    }
    return Figure(name, caption, traces, layout, _ROW_PX * (len(names) + 1) + 100)


def draw_rank_map(job: Job) -> Figure:
    """Draw all ranks by their nodes, else stages; buttons choose which share of the step the color shows."""
    rows: dict[str, list[int]] = {}
    has_nodes = len({one.hostname for one in job.members}) > 1
    for one in job.members:
        where = one.hostname or "unknown host" if has_nodes else f"stage {one.stage or 0}"
        rows.setdefault(label(where, 20), []).append(one.place)
    if len(rows) == 1:  # neither nodes nor stages
        places = next(iter(rows.values()))
        cut = [places[first : first + _RANKS_OF_ROW] for first in range(0, len(places), _RANKS_OF_ROW)]
        rows = {f"{job.members[own[0]].name} …": own for own in cut}
    column_of = _find_columns(job, list(rows.values()))
    width = max(column_of.values()) + 1
    whole_ns = {one.place: max(sum(one.walls.parts()), 1) for one in job.members}
    saved_ns = {place: one.saved_ns for one in reversed(job.stragglers) for place in one.places}
    step_ns = job.replayed_step_ns or max(whole_ns.values())
    shown: dict[str, dict[int, float | None]] = {
        "delays others": {place: saved_ns.get(place, 0) / step_ns for place in whole_ns},
        "waits for others": {
            one.place: None if one.peer_wait_ns is None else one.peer_wait_ns / whole_ns[one.place]
            for one in job.members
        },
        **{
            str(wall): {one.place: getattr(one.walls, wall) / whole_ns[one.place] for one in job.members}
            for wall in _WALLS_OF_MAP
        },
    }

    def lay_out(values: Mapping[int, object]) -> list[list[object]]:
        held = [{column_of[place]: values[place] for place in own} for own in rows.values()]
        return [[row.get(column) for column in range(width)] for row in held]

    grids = {
        name: lay_out({place: None if one is None else round(100 * one, 2) for place, one in values.items()})
        for name, values in shown.items()
    }
    first = next(iter(grids)) if job.stragglers else list(grids)[1]
    trace = {
        "type": "heatmap",
        "z": grids[first],
        "y": list(rows),
        "text": lay_out({one.place: _describe_member(one, whole_ns[one.place]) for one in job.members}),
        "colorscale": [[0, "#f4f1ea"], [1, "#b5510e"]],
        "colorbar": {"title": "% of step"},
        "hovertemplate": "%{text}<br>%{z:.1f} %<extra></extra>",
        "xgap": 1,
        "ygap": 1,
    }
    buttons = [
        {"label": name, "method": "restyle", "args": [{"z": [grid]}]}
        for name, grid in sorted(grids.items(), key=lambda entry: entry[0] != first)
    ]
    layout = {
        "xaxis": {"title": {"text": "place in the row"}, "dtick": 1},
        "yaxis": {"autorange": "reversed", "automargin": True, "type": "category"},
        "updatemenus": [
            {"type": "buttons", "direction": "right", "buttons": buttons, "x": 0, "y": 1, "yanchor": "bottom",
             "xanchor": "left", "pad": {"b": 8}}
        ],
    }  # fmt: skip
    by = "node" if has_nodes else "stage" if job.pipeline else "number"
    missing = "; empty places are missing ranks" if job.missing else ""
    caption = f"All ranks by {by}; a button chooses what is shown, in percent of the step{missing}"
    return Figure("rank-map", caption, (trace,), layout, _MAP_ROW_PX * len(rows) + _FRAME_PX + _BUTTONS_PX)


def _find_columns(job: Job, rows: list[list[int]]) -> dict[int, int]:
    """Return the column of each rank in its row, where rows are blocks of ranks that may lack some.

    In rows of another kind, and without numbers of ranks, ranks follow one another.
    """
    numbers = {one.place: one.rank for one in job.members if one.rank is not None}
    dense = {place: column for own in rows for column, place in enumerate(own)}
    if len(numbers) < len(dense):
        return dense
    held = [[numbers[place] for place in own] for own in rows]
    size = max(max(own) - min(own) + 1 for own in held)
    is_block = all(min(own) // size == max(own) // size for own in held)
    return {place: number % size for place, number in numbers.items()} if is_block else dense


def _describe_member(member: RankWaits, whole_ns: int) -> str:
    """Return the breakdown of a rank, for a tooltip."""
    parts = ", ".join(
        f"{wall} {units.percent(ns / whole_ns)}"
        for wall, ns in zip(Wall, member.walls.parts(), strict=True)
        if ns
    )
    return f"{label(member.name, 20)}: {units.duration(whole_ns)}, {parts}"


def draw_heat(analysis: Analysis, job: Job, places: Sequence[int]) -> Figure:
    """Draw communication of some ranks in each step: who waits is dark, whom all wait for is pale.

    Colors begin at the least time of the ranks that are drawn: what differs between ranks is who waits.
    """
    names = [label(job.members[place].name, 20) for place in places]
    unit, most = analysis.anchor.window, max(min(_MOST_STEPS_OF_RANKS, _MOST_CELLS // max(len(names), 1)), 1)
    every = sorted({step.index for rank in analysis.ranks for step in rank.steps})
    steps = every[:most]
    ranks = [analysis.ranks[place] for place in places]
    owned = [{step.index: step.walls.communication for step in rank.steps} for rank in ranks]
    rows = [[round(own[step] / 1e6, 3) if step in own else None for step in steps] for own in owned]
    trace = {
        "type": "heatmap",
        "x": steps,
        "y": names,
        "z": rows,
        "zmin": min((ms for row in rows for ms in row if ms is not None), default=0),
        "colorscale": [[0, "#fff6e0"], [1, "#8a4b00"]],
        "colorbar": {"title": _MS},
        "hovertemplate": f"%{{y}}, {unit} %{{x}}: %{{z:.3f}} ms<extra></extra>",
    }
    layout = {
        "xaxis": {"title": {"text": unit}, "type": "category"},
        "yaxis": {"autorange": "reversed", "automargin": True, "type": "category"},
    }
    left_out = f"; the first {len(steps)} of {len(every)}" if len(steps) < len(every) else ""
    more = job.ranks - len(places)
    left_out += f"; {units.plural(more, 'more rank')} not drawn" if more else ""
    caption = (
        f"Communication time by rank and {unit}: a rank that waits is dark, a late rank is pale{left_out}"
    )
    return Figure("job", caption, (trace,), layout, _HEAT_ROW_PX * len(names) + _FRAME_PX)


def draw_meeting(lanes: "pl.DataFrame", job: Job) -> Figure | None:
    """Draw a lane a rank: when it came to each collective, what it waited, when bytes moved."""
    import polars as pl  # noqa: PLC0415  # the first screen has no frames

    if lanes.is_empty():
        return None
    names = [label(job.members[place].name, 20) for place in lanes["member"].unique().sort()]
    matched, is_pipeline = lanes.filter(pl.col("wait_ns").is_not_null()), pl.col("is_pipeline")
    waiting = matched.filter(pl.col("wait_ns") > 0)
    moving = matched.with_columns(start_ns=pl.col("end_ns") - pl.col("transfer_ns"))
    parts = (
        ("waits for peers", waiting.filter(~is_pipeline), "wait_ns", _hatch("/")),
        ("waits for the pipeline", waiting.filter(is_pipeline), "wait_ns", _hatch(".")),
        ("bytes move", moving, "transfer_ns", {"color": WALL_COLOURS[Wall.COMMUNICATION]}),
        ("not matched", lanes.filter(pl.col("wait_ns").is_null()), None, {"color": _UNMATCHED}),
    )
    order = {
        "type": "bar", "orientation": "h", "y": names, "x": [0] * len(names), "base": [0] * len(names),
        "showlegend": False, "hoverinfo": "skip", "marker": {"color": _UNMATCHED},
    }  # fmt: skip
    traces = [_draw_lanes(name, rows, column, mark, job) for name, rows, column, mark in parts if len(rows)]
    layout = {
        "barmode": "overlay",
        "bargap": 0.3,
        "xaxis": {"title": {"text": "ms, on the clock that all ranks share"}, "rangemode": "tozero"},
        "yaxis": {"autorange": "reversed", "automargin": True, "type": "category", "showgrid": False},
        "legend": {"orientation": "h", "y": 1.06, "yanchor": "bottom", "x": 0, "traceorder": "normal"},
    }
    more = job.ranks - len(names)
    left_out = f"; {units.plural(more, 'more rank')} not drawn" if more else ""
    shown = "a bar begins when the rank enters and shows how long it waits"
    caption = f"Collectives of one step by rank: {shown}{left_out}"
    return Figure("meetings", caption, (order, *traces), layout, _LANE_PX * len(names) + _FRAME_PX)


def _hatch(shape: str) -> dict[str, Any]:
    pattern = {"shape": shape, "fgcolor": _DARK_STRIPES, "fillmode": "overlay", "size": 5, "solidity": 0.2}
    return {"color": _WAITING, "pattern": pattern}


def _draw_lanes(
    name: str, rows: "pl.DataFrame", column: str | None, mark: Mapping[str, Any], job: Job
) -> dict[str, Any]:
    import polars as pl  # noqa: PLC0415  # the first screen has no frames

    width = pl.col("end_ns") - pl.col("start_ns") if column is None else pl.col(column)
    listed = list(rows.with_columns(width=width).iter_rows(named=True))
    return {
        "type": "bar",
        "orientation": "h",
        "name": name,
        "y": [label(job.members[row["member"]].name, 20) for row in listed],
        "base": [round(row["start_ns"] / 1e6, 4) for row in listed],
        "x": [round(row["width"] / 1e6, 4) for row in listed],
        "customdata": [[*_describe_lane(row, job), units.duration(row["width"])] for row in listed],
        "hovertemplate": f"%{{y}}: %{{customdata[0]}}<br>{name} %{{customdata[2]}}%{{customdata[1]}}"
        "<extra></extra>",
        "marker": mark,
    }


def _describe_lane(row: Mapping[str, Any], job: Job) -> tuple[str, str]:
    """Name a collective, and who came last."""
    axis = "" if row["axis"] == "unknown" else f"{row['axis']} "
    ranks = "" if row["ranks"] is None else f" of {units.plural(row['ranks'], 'rank')}"
    last = "" if row["last"] is None else f"<br>last to come: {label(job.members[row['last']].name, 20)}"
    return f"{axis}{row['operation']}{ranks}", last


FIGURES: Final[Mapping[str, Callable[[Analysis, Rank], Figure]]] = {
    "steps": lambda analysis, rank: draw_steps(rank.steps, analysis.anchor.window),
    "waterfall": lambda analysis, rank: draw_waterfall(rank, analysis.anchor.typical),
    "phases": lambda _, rank: draw_phases(rank.ranges),
}
"""Figures of one rank by name."""


def make_waterfall(parts: Sequence[tuple[str, int, Wall, str]], whole: str) -> Figure:
    """Draw the lines from the ideal to the measured step: each bar begins where the one before it ends.

    `parts` are name, time, wall and note of each line.
    """
    names = [*(label(name) for name, *_ in parts), label(f"measured {whole}")]
    times = [time_ns / 1e6 for _, time_ns, *_ in parts]
    begins = [sum(times[:place]) for place in range(len(times))]
    notes = [label(note) for *_, note in parts]
    marks = [WALL_COLOURS[wall] for _, _, wall, _ in parts]
    shapes = [*(_PATTERNS[wall] for _, _, wall, _ in parts), ""]
    trace = {
        "type": "bar",
        "orientation": "h",
        "y": names,
        "x": [*times, sum(times)],
        "base": [*begins, 0],
        "marker": {
            "color": [*marks, _NO_WALL],
            "pattern": {"shape": shapes, "fgcolor": _STRIPES, "fillmode": "overlay", "size": 6},
        },
        "text": [units.duration(round(time_ms * 1e6)) for time_ms in (*times, sum(times))],
        "textposition": "outside",
        "cliponaxis": False,
        "customdata": [*notes, ""],
        "hovertemplate": "%{y}: %{text}<br>%{customdata}<extra></extra>",
        "showlegend": False,
    }
    layout = {"xaxis": {"title": _MS, "range": [0, (1 + _ROOM) * sum(times)]}, "yaxis": _ROWS}
    caption = f"From the ideal to the measured {whole}: each bar adds one loss."
    return Figure("light", caption, (trace,), layout, _FRAME_PX + _ROW_PX * len(names))
