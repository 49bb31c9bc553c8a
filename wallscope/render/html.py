"""One HTML file that asks for nothing: no request leaves it, the same input makes the same bytes.

All pages share the first screen (`FirstScreen`), whose five answers are `KeyAnswer`s, and names of sections.
"""

import json
import re
from base64 import b64encode
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import replace
from hashlib import sha256
from html import escape as escape_quotes
from typing import TYPE_CHECKING, Any, Final

from markupsafe import Markup, escape

from wallscope import units
from wallscope.files import read_report as shipped
from wallscope.model.cause_catalogue import describe_cause, name_cause, write_cause_pattern
from wallscope.model.enums import Wall
from wallscope.model.section import Cell, Column, Figure, Grid, KeyAnswer, Section, Value
from wallscope.model.shown import Unit
from wallscope.records import dataclass
from wallscope.render.texts import (
    WALL_COLOURS,
    as_cell,
    select_columns,
    select_rows,
    shorten_names,
    visible,
    write_value,
)

if TYPE_CHECKING:
    from jinja2 import Environment

_LONGEST_TEXT, _LONGEST_IN_CARD = 2_000, 1_500
_SHOWN_ROWS = 10
"""Rows of a table that are shown before it is expanded."""
_NAME_KEYS = frozenset({"name", "path", "part", "ended_by", "operation", "kernel"})
"""Columns that hold names of kernels and paths of ranges."""
_HEAD_UNITS: Mapping[Unit, str] = {
    "ms": "ms", "signed_ms": "ms", "percent": "%", "signed_percent": "%", "seconds": "s",
}  # fmt: skip
"""Units that stand in the head of a column, not in its cells."""
_LEAST_MS_NS = 1_000_000
_BREAKS = re.compile(r"([/_.=:](?=[A-Za-z_])|[a-z0-9](?=[A-Z]))(?!\w*;)")
"""Separators and capitals inside names, outside character references."""
_CAUSES = re.compile(
    rf"(?<!explain )(?P<open> \()?(?<![\w/])(?P<cause>{write_cause_pattern()})(?![\w/])(?(open)\))"
)
_UNITS = re.compile(r"(?<=\d) (?=(?:%|[mµn]?s|min|[hd]|[KMGT]i?B)(?![\w/]))")
_LONG_NAMES = re.compile(r"(?<![\w-])\w{16,}")
_OPTIONS = re.compile(r"(?<![\w-])--[a-z][\w-]{2,40}(?:=[\w,]{1,40})?")
_CODE_BREAKS = re.compile(r"([,(=]|(?<=[A-Za-z)])\.)(?=[\w'*])")
_COMPARED = 60
_CARD = "font-family:sans-serif;max-width:60em;line-height:1.4"
_BAR = "display:flex;height:1.2em;margin:.4em 0;border-radius:3px;overflow:hidden"
_DOT = "display:inline-block;width:.8em;height:.8em;margin-right:.4em"
_TITLES: Final = {
    "timeline": "Timeline",
    "steps": "Steps",
    "ranks": "Ranks",
    "job": "Ranks and waits",
    "survey": "Similar ranks",
    "clocks": "Collectives and clocks",
    "causes": "Time breakdown",
    "path": "Critical path",
    "communication": "Communication",
    "memory": "Memory",
    "host": "Host",
    "compute": "Compute",
    "kernels": "Kernels",
    "phases": "Ranges",
    "light": "Speed of light",
    "limits": "Capture quality",
    "computed": "Method and definitions",
    "changes": "Changes",
    "sweep": "Sweep",
    "sureness": "Replay accuracy",
    "operations": "Operations",
    "comparable": "Comparability",
    "timed": "Step times on the host",
    "contents": "Contents",
}
"""What sections hold, by their keys; navigation and headings of all pages."""
_OVERVIEWS: Final = {
    "page.html.j2": frozenset({"timeline", "job", "light", "phases"}),
    "comparison.html.j2": frozenset({"steps", "causes"}),
    "whatif.html.j2": frozenset({"changes", "sweep"}),
    "host.html.j2": frozenset(),
}
"""Sections that a page shows at once, by its template; the others are tabs."""
_OF_ONE_RANK: Final = frozenset({"light", "phases"})
"""Sections on one rank, which are tabs where the page is about the ranks of a job."""


def render_page(
    template: str,
    first: "FirstScreen",
    sections: Iterable[Section | None],
    *,
    timelines: str = "",
    counts: Mapping[str, int] | None = None,
    **values: Any,
) -> str:
    """Fill in a template of `reports/`, with style and scripts inside.

    Args:
        template: its file name; it extends `frame.html.j2`.
        first: what the page begins with.
        sections: the questions, in order; those that are not asked here are `None`.
        timelines: a pack of timelines in base64, empty without any.
        counts: how many entries sections have, by their keys; the tabs show them.
        values: what else the template reads.
    """
    names = ("timeline_data.js", "timeline_view.js", "timeline.js") if timelines else ()
    scripts = [_strip_indents(shipped(name)) for name in (*names, "charts.js", "page.js")]
    shown = tuple(section for section in sections if section is not None)
    overview = _OVERVIEWS[template]
    if any(section.key == "job" for section in shown):
        overview -= _OF_ONE_RANK
    tabbed = tuple(section for section in shown if section.key not in overview)
    return (
        _make_environment()
        .get_template(template)
        .render(
            first=first,
            policy=_write_policy(scripts),
            style=Markup(shipped("page.css")),  # noqa: S704  # our own file
            scripts=[Markup(script) for script in scripts],  # noqa: S704  # our own files
            timelines=Markup(timelines),  # noqa: S704  # base64
            counts=counts or {},
            sections=shown,
            tabbed=tabbed,
            tabs={section.key for section in tabbed},
            titles=_TITLES,
            **values,
        )
    )


def _strip_indents(script: str) -> str:
    """Leave out what a browser does not need: indentation, and lines of comments."""
    lines = (line.strip() for line in script.splitlines())
    return "\n".join(line for line in lines if line and not line.startswith("//"))


def _make_environment() -> "Environment":
    from jinja2 import Environment, FunctionLoader, StrictUndefined  # noqa: PLC0415  # pages alone need it

    environment = Environment(
        loader=FunctionLoader(shipped),
        autoescape=True,
        optimized=False,  # templates hold no constant expressions worth folding; compiling is a tenth faster
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        finalize=_spell_out_value,
    )
    environment.globals["units"] = units
    environment.filters |= {
        "spec": _write_figure,
        "written": lambda cell: _write_html_cell(cell, Column("text", "")),
        "laid_out": lay_out,
        "meaning": describe_cause,
        "breakable": _mark_breaks,
        "joined": _join_units,
        "worded": name_causes,
        "code_breaks": _mark_code_breaks,
        "verbatim": lambda text: Markup(escape(text)),  # noqa: S704  # escaped here
    }
    return environment


def _mark_breaks(text: Any) -> Markup:
    """Let a long name without spaces break after its separators alone.

    >>> str(_mark_breaks("host/queue"))
    'host/<wbr>queue'
    """
    safe = text if isinstance(text, Markup) else escape(visible(str(text), _LONGEST_TEXT))
    return Markup(_BREAKS.sub(r"\1<wbr>", str(safe)))  # noqa: S704  # escaped before


def _mark_code_breaks(text: str) -> Markup:
    """Let a line of code break where no name is cut: after commas, brackets, equals signs and dots.

    >>> str(_mark_code_breaks("a.b_c(d=1)"))
    'a.<wbr>b_c(<wbr>d=<wbr>1)'
    """
    safe = str(escape(visible(text, _LONGEST_TEXT)))
    return Markup(_CODE_BREAKS.sub(r"\1<wbr>", safe))  # noqa: S704  # escaped before


def name_causes(text: str) -> str:
    """Name causes in words in a sentence; an identifier in parentheses after its words is left out.

    >>> name_causes("Without memory/staging, the step takes 2 ms. See wallscope explain memory/staging.")
    'Without H2D copies of 64 KiB or more, the step takes 2 ms. See wallscope explain memory/staging.'
    >>> name_causes("mostly for H2D copies of 64 KiB or more (memory/staging)")
    'mostly for H2D copies of 64 KiB or more'
    """

    def reword(found: re.Match[str]) -> str:
        words, is_set_off = describe_cause(found["cause"]), found["open"] is not None
        if is_set_off and found.string[: found.start()].endswith(words):
            return ""
        return f" ({words})" if is_set_off else words

    return _CAUSES.sub(reword, text)


def _join_units(text: str) -> Markup:
    r"""Keep a number with its unit, and an option whole, where a line may break.

    >>> str(_join_units("26 % with --trace=cuda"))
    '26\xa0% with <span class="unbroken">--trace=cuda</span>'
    """
    safe = _UNITS.sub("\N{NO-BREAK SPACE}", str(escape(visible(text, _LONGEST_TEXT))))
    safe = _LONG_NAMES.sub(lambda name: _BREAKS.sub(r"\1<wbr>", name[0]), safe)
    return Markup(_OPTIONS.sub(r'<span class="unbroken">\g<0></span>', safe))  # noqa: S704  # escaped before


def _spell_out_value(value: Any) -> Any:
    """Spell out letters of a text that can not be seen; escaping follows."""
    return value if isinstance(value, Markup) or not isinstance(value, str) else visible(value, _LONGEST_TEXT)


def lay_out(grid: Grid) -> dict[str, Any]:
    """Lay a table out as the template writes it: columns with units in their heads, cells as text."""
    rows, rest = select_rows(grid, "page")
    columns = [
        (place, column)
        for place, column in select_columns(grid, "page")
        if not rows or any(as_cell(row[place]).value not in {None, ""} for row in rows)
    ]
    heads = [
        _find_head_unit(column, [as_cell(row[place]).value for row in rows]) for place, column in columns
    ]
    shorts = {place: _shorten_column(column, [row[place] for row in rows]) for place, column in columns}
    named = {str(as_cell(value).value) for row in rows for value in row}
    return {
        "columns": [
            {"title": f"{column.title} ({unit})" if unit and column.title else column.title, "column": column}
            for (_, column), unit in zip(columns, heads, strict=True)
        ],
        "rows": [
            [
                _lay_out_cell(row[place], column, unit, shorts[place], named)
                for (place, column), unit in zip(columns, heads, strict=True)
            ]
            for row in rows
        ],
        "note": " ".join((*grid.notes, *([rest] if rest else []))),
        "shown": _SHOWN_ROWS,
    }


def _find_head_unit(column: Column, values: Sequence[Value]) -> str:
    """Find the unit that a whole column is written in; empty where each cell has its own, or none."""
    if column.unit not in {"duration", "signed_duration"}:
        return _HEAD_UNITS.get(column.unit, "")
    lengths_ns = [abs(value) for value in values if isinstance(value, int | float)]
    return "µs" if max(lengths_ns, default=0) < _LEAST_MS_NS else "ms"


def _find_full_name(cell: Cell, full: str) -> str:
    """Return the name that a cell shows: a path that was cut stands in its hint."""
    is_cut = full.startswith("… / ") and cell.hint.endswith(full.rpartition(" / ")[2])
    return cell.hint if is_cut else full


def _shorten_column(column: Column, values: Iterable[Value | Cell]) -> Mapping[str, str]:
    """Return the short names of a column of names; none of another column."""
    if column.key not in _NAME_KEYS:
        return {}
    cells = [as_cell(value) for value in values]
    return shorten_names(_find_full_name(cell, write_value(cell.value, column)) for cell in cells)


def _lay_out_cell(
    value: Value | Cell, column: Column, unit: str, shorts: Mapping[str, str], named: Collection[str]
) -> dict[str, Any]:
    """Write a cell without the unit of its head; a long name is short, with the full text next to it.

    A cause is named in words, unless they are in another cell: `named` has the texts of all cells.
    """
    cell = as_cell(value)
    if unit and isinstance(cell.value, int | float):
        full = text = _write_number(cell.value, column, unit)
    else:
        full = write_value(cell.value, column)
        text = shorts.get(_find_full_name(cell, full), full)
        if (words := name_cause(full)) != full and describe_cause(full) not in named:
            text = words
    hint = cell.hint or (full if text != full else "")
    is_hinted = bool(cell.hint) and text != full and cell.hint.startswith(full[:_COMPARED].rstrip("…"))
    return {
        "cell": replace(cell, value=Markup(escape(text)), hint=hint),  # noqa: S704  # escaped here
        "full": (cell.hint if is_hinted else full) if text != full or cell.parts else "",
        "search": full if column.key == "cause" and " " not in full and cell.step is None else "",
        "sort": f"{cell.value:.12g}"
        if isinstance(cell.value, float)
        else cell.value
        if isinstance(cell.value, int)
        else None,
    }


def _write_number(value: float, column: Column, unit: str) -> str:
    """Write a number in the unit of its column's head, without that unit.

    >>> _write_number(1_500, Column("", "", "duration"), "µs")
    '1.5'
    >>> _write_number(0.25, Column("", "", "percent"), "%")
    '25.0'
    """
    if unit == "µs":
        sign = "+" if column.unit == "signed_duration" and value > 0 else ""
        return f"{sign}{value / 1_000:,.1f}"
    if column.unit in {"duration", "signed_duration"}:
        write = units.signed_milliseconds if column.unit == "signed_duration" else units.milliseconds
        return write(int(value)).removesuffix(" ms")
    return write_value(value, column).removesuffix(f" {unit}")


def _write_html_cell(value: Value | Cell, column: Column) -> Cell:
    cell = as_cell(value)
    return replace(cell, value=Markup(escape(write_value(cell.value, column))))  # noqa: S704  # escaped here


def _write_figure(figure: Figure) -> Markup:
    """Write a figure as JSON that can stand in a script element."""
    text = json.dumps(
        {"traces": figure.traces, "layout": figure.layout},
        ensure_ascii=True,
        allow_nan=False,
        separators=(",", ":"),
    )
    safe = text.replace("<", "\\u003c").replace(">", "\\u003e").replace("&", "\\u0026")
    return Markup(safe)  # noqa: S704  # no letter of it means anything in HTML


def _write_policy(scripts: list[str]) -> str:
    """Write that nothing may be fetched, and no script may run but these."""
    digests = " ".join(f"'sha256-{b64encode(sha256(text.encode()).digest()).decode()}'" for text in scripts)
    return (
        f"default-src 'none'; script-src {digests}; style-src 'unsafe-inline'; img-src data: blob:;"
        " base-uri 'none'; form-action 'none'"
    )


def write_card(
    origin: str, sentences: Sequence[str], grid: Grid, parts: Mapping[Wall, int], items: Iterable[str]
) -> str:
    """Write a small answer as a notebook shows it, without script.

    Args:
        origin: what was analyzed.
        sentences: the verdict; the first is stressed.
        grid: the walls; the name of a wall stands to the left.
        parts: the walls as one bar, in any unit; empty without one.
        items: a list below, empty without one.
    """
    bar = "".join(
        f'<span style="flex:{size};background:{WALL_COLOURS[wall]}" title="{wall}"></span>'
        for wall, size in parts.items()
    )
    heads = "".join(f"<th>{column.title}</th>" for column in grid.columns)
    rows = "".join(
        f"<tr>{''.join(_write_card_cell(*one) for one in zip(row, grid.columns, strict=True))}</tr>"
        for row in grid.rows
    )
    listed = "".join(f"<li>{_escape_markup(item)}</li>" for item in items)
    drawn = f'<div style="{_BAR}">{bar}</div>' if bar else ""
    return (
        f'<div style="{_CARD}"><div>{_escape_markup(origin)}</div>'
        f"<div><b>{_escape_markup(sentences[0])}</b> {_escape_markup(' '.join(sentences[1:]))}</div>"
        f"{drawn}<table><tr>{heads}</tr>{rows}</table>{f'<ol>{listed}</ol>' if listed else ''}</div>"
    )


def _write_card_cell(value: Value | Cell, column: Column) -> str:
    cell, text = as_cell(value), write_value(as_cell(value).value, column)
    if column.unit != "text" or cell.tone == "dim":
        return f"<td>{text}</td>"
    dot = "" if cell.wall is None else f'<span style="{_DOT};background:{WALL_COLOURS[cell.wall]}"></span>'
    return f'<td style="text-align:left">{dot}{text}</td>'


def _escape_markup(text: str) -> str:
    return escape_quotes(visible(text, _LONGEST_IN_CARD))


@dataclass(frozen=True, slots=True)
class StepBar:
    """A step as a bar: its number and length, its walls as shares of the tallest bar, whether it counts.

    A bar that is cut stands for a longer time than the tallest one can. `label` is its number, if the axis
    has room for it.
    """

    index: int
    length: str
    parts: tuple[tuple[Wall, float], ...]
    is_steady: bool
    reason: str
    is_cut: bool
    label: str

    @property
    def whole(self) -> float:
        """How high the bar is, as a share of the tallest."""
        return sum(share for _, share in self.parts) or 1.0


@dataclass(frozen=True, slots=True)
class SideTime:
    """The time of a side as a bar: walls with their share of the longest side and label; what is left."""

    name: str
    length: str
    parts: tuple[tuple[Wall, float, str], ...]
    empty_share: float = 0.0


@dataclass(frozen=True, slots=True)
class FirstScreen:
    """What each page begins with: the verdict, the time in large or all steps, five answers, and bars.

    Args:
        title: what stands in the browser's tab.
        crumbs: what was analyzed, in parts.
        words: the verdict, after the wall if it is one.
        answers: wall, cause, action, bound and doubts; empty where the page says them in other parts.
        sides: one of a capture, two of a comparison.
        caption: what the time is.
        wall: the dominant one, in its color.
        verdict: of a comparison, whose color it has.
        scope: what the verdict covers, if that is not all.
        sentence: the verdict in a sentence.
        lines: what else stands below it.
        note: what the page shows of several ranks.
        strip: all steps as bars; empty without them.
        strip_top: the time that the tallest bar can stand for.
        strip_title: how many steps there are, and of which lengths.
        strip_note: which kinds of them there are, and which do not count.
        chosen: the step that the timeline shows first.
        brief: the most important of the crumbs, for the head of the page.
        band_share: how much of the width the bar takes, where bars below it stand for longer times.
    """

    title: str
    crumbs: tuple[str, ...]
    words: str
    answers: tuple[KeyAnswer, ...]
    sides: tuple[SideTime, ...]
    caption: str
    wall: Wall | None = None
    verdict: str = ""
    scope: str = ""
    sentence: str = ""
    lines: tuple[str, ...] = ()
    note: str = ""
    strip: tuple[StepBar, ...] = ()
    strip_top: str = ""
    strip_title: str = ""
    strip_note: str = ""
    chosen: int | None = None
    band_share: float = 1.0
    brief: tuple[str, ...] = ()

    @property
    def walls(self) -> tuple[Wall, ...]:
        """The walls that any bar has."""
        found = {wall for side in self.sides for wall, share, _ in side.parts if share}
        return tuple(wall for wall in Wall if wall in found)


def build_sides(
    times_ns: Mapping[str, Mapping[Wall, int]], write: Callable[[str, Wall], str]
) -> tuple[SideTime, ...]:
    """Make the bars of sides, of one scale; `write` labels the part of a wall."""
    lengths_ns = {name: sum(parts.values()) for name, parts in times_ns.items()}
    longest_ns = max(*lengths_ns.values(), 1)
    return tuple(
        SideTime(
            name,
            units.duration(lengths_ns[name]),
            tuple((wall, part_ns / longest_ns, write(name, wall)) for wall, part_ns in parts.items()),
            (longest_ns - lengths_ns[name]) / longest_ns,
        )
        for name, parts in times_ns.items()
    )
