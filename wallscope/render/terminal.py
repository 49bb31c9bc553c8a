"""Sections and tables on a terminal: text without room is left out, wrapped or cut, numbers never."""

import re
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from rich.cells import cell_len
from rich.console import Console, ConsoleOptions, Group, RenderableType, RenderResult
from rich.containers import Lines as WrappedLines
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from wallscope.model.section import Cell, Column, Grid, Items, Line, Lines, Section, Span, Tone, Value
from wallscope.records import dataclass
from wallscope.render.texts import (
    WALL_COLOURS,
    as_cell,
    select_columns,
    select_rows,
    spell_out,
    write_value,
)

_BAR_CELLS = 24
_EIGHTHS = " ▏▎▍▌▋▊▉"
_BETWEEN = "  "
_BEFORE_UNIT = re.compile(r"(?<=\d) (?=%|(?:ns|µs|ms|s|min|h|d|[kMGT]i?B|[MG]Hz)\b)")
_TIE = "\ue000"
"""Stands for a space at which a line must not break. It takes one cell, and `spell_out` leaves none of it."""

_STYLES: Mapping[str | None, str] = {
    None: "",
    "strong": "bold",
    "dim": "dim",
    "faint": "dim default",
    "wrong": "dim red",
    "good": "green",
    "best": "bold green",
    "doubt": "bold yellow",
    "warning": "yellow",
    "bad": "bold red",
    "setting": "cyan",
    **{str(wall): colour for wall, colour in WALL_COLOURS.items()},
}


def render_sections(parts: Iterable[Section | Grid]) -> Group:
    """Render sections and tables, each with its title, and an empty line between them."""
    shown = [line for part in parts for line in (Text(), render_section(part))]
    return Group(*shown[1:])


def render_section(part: Section | Grid) -> Group:
    """Render a title with its content indented; without a title all stands at the margin."""
    if isinstance(part, Grid):
        part = Section("", part.brief or part.title, "", (part,))
    body = Group(*(shown for block in part.blocks for shown in _draw(block)))
    if not part.title:
        return body
    head = Text(part.title, style="bold") if isinstance(part.title, str) else write_line(part.title)
    return Group(head, Padding(body, (0, 0, 0, 2)))


def _draw(block: object) -> Iterator[RenderableType]:
    match block:
        case Section():
            yield render_section(block)
        case Grid():
            yield _FittedGrid(block)
        case Items():
            yield _draw_items(block)
        case Lines():
            yield from (write_line(line, block.tone) for line in block.lines)


def _draw_items(items: Items) -> RenderableType:
    if items.shape[-1] == "right":
        return _SpreadRows(tuple(tuple(map(write_line, row)) for row in items.rows))
    table = Table(box=None, pad_edge=False, padding=(0, 1, 0, 0), show_header=False)
    for shape in items.shape:
        table.add_column(no_wrap=shape == "mark", overflow="fold" if shape == "fold" else "ellipsis")
    for row in items.rows:
        table.add_row(*map(write_line, row))
    return table


@dataclass(frozen=True, slots=True)
class _SpreadRows:
    """Rows of a mark, text that wraps, and text at the right edge that takes no more room than it needs."""

    rows: tuple[tuple[Text, ...], ...]

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        marks = max((mark.cell_len for mark, *_ in self.rows), default=0) + 1
        for mark, text, right in self.rows:
            taken = right.cell_len + len(_BETWEEN) if right.cell_len else 0
            room = max(options.max_width - marks - taken, 1)
            lines = text.wrap(console, room, overflow="fold") or [Text()]
            for place, line in enumerate(lines):
                line.rstrip()
                start = Text.assemble(Text() if place else mark)
                start.pad_right(marks - start.cell_len)
                shown = Text.assemble(start, line)
                if taken and not place:
                    shown.pad_right(options.max_width - right.cell_len - shown.cell_len)
                    shown.append_text(right)
                yield shown


class _Prose(Text):
    """Text that wraps, but never between a number and its unit."""

    def wrap(self, console: Console, width: int, **options: Any) -> WrappedLines:  # options of rich
        """Return lines of at most `width` cells."""
        tied = self.copy()
        tied.plain = _BEFORE_UNIT.sub(_TIE, self.plain)
        lines = tied.wrap(console, width, **options)
        for line in lines:
            line.plain = line.plain.replace(_TIE, " ")
        return lines


def write_line(line: Line, tone: Tone | None = None) -> Text:
    """Write a line with its tone and those of its parts; no letter of it is obeyed."""
    listed = (line,) if isinstance(line, str) else line
    parts = [part if isinstance(part, Span) else Span(part) for part in listed]
    if len(parts) == 1:
        return _Prose(spell_out(parts[0].text), style=_choose_style(parts[0], tone))
    whole = "dim" if parts[0].tone == "dim" else tone
    return _Prose.assemble(
        *((spell_out(part.text), _choose_style(part)) for part in parts), style=_STYLES[whole]
    )


def _choose_style(part: Span, tone: Tone | None = None) -> str:
    style = _STYLES[part.tone or tone]
    return f"bold {style}".strip() if part.is_strong else style


class _FittedGrid:
    """A table whose columns are those for which there is room."""

    def __init__(self, grid: Grid) -> None:
        self.grid = grid

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        grid, width = self.grid, options.max_width
        columns = [
            (place, column)
            for place, column in select_columns(grid, "terminal")
            if column.widths[0] <= width < column.widths[1]
        ]
        table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), header_style="dim")
        table.show_header = grid.has_header
        for index, (_, column) in enumerate(columns):
            is_first = index == 0 and not column.is_right
            is_left = is_first or column.is_text or (column.unit == "bar" and not column.is_right)
            table.add_column(
                column.title if column.brief is None else column.brief,
                justify="left" if is_left else "right",
                no_wrap=(column.wrap or ("fixed" if index or not grid.has_header else "words")) == "fixed",
                overflow="fold" if column.wrap == "fold" else "ellipsis",
                style=_STYLES[column.tone],
            )
        rows, rest = select_rows(grid, "terminal")
        for row in rows:
            table.add_row(*(_draw_cell(row[place], column) for place, column in columns))
        for (_, column), drawn in zip(columns, table.columns, strict=True):
            if not column.is_text:
                heads = str(drawn.header).split() if column.wrap == "words" else (str(drawn.header),)
                drawn.min_width = max(0, *map(cell_len, heads), *map(_measure_width, drawn.cells))
        yield table
        yield from map(Text, grid.notes)
        if rest:
            yield Text(rest, style="dim")


def _measure_width(cell: RenderableType) -> int:
    return cell.cell_len if isinstance(cell, Text) else 0


def _draw_cell(value: Value | Cell, column: Column) -> Text:
    cell = as_cell(value)
    style = _STYLES[cell.wall if cell.tone is None else cell.tone]
    if column.unit == "bar" and isinstance(cell.value, float):
        return _draw_bar(cell.value, style or "default")
    shown = Text(write_value(cell.value, column), style=style)
    if column.wrap == "cut":
        shown.overflow, shown.no_wrap = "ellipsis", True
    return shown


def _draw_bar(share: float, style: str) -> Text:
    """Draw a bar of eighths of a cell; any share above 0 shows."""
    eighths = max(round(share * _BAR_CELLS * 8), 1 if share > 0 else 0)
    cells = "█" * (eighths // 8) + _EIGHTHS[eighths % 8].strip()
    return Text(cells.ljust(_BAR_CELLS), style=style)
