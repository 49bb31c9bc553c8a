"""Sections and tables on a terminal: text without room is left out, wrapped or cut, numbers never."""

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Any

import polars as pl
from rich.cells import cell_len, set_cell_size
from rich.console import Console, ConsoleOptions, Group, RenderableType, RenderResult
from rich.containers import Lines as WrappedLines
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from wallscope import units
from wallscope.model.analysis import RangeWork, Step
from wallscope.model.diagnosis import Walls
from wallscope.model.enums import Wall
from wallscope.model.frame_rows import KernelRow, RangeOperationsRow, SpanRow
from wallscope.model.section import Cell, Column, Grid, Items, Line, Lines, Section, Span, Tone, Value
from wallscope.model.shown import Unit, list_fields
from wallscope.render.texts import (
    WALL_COLOURS,
    as_cell,
    select_columns,
    select_rows,
    shorten_kernel_name,
    spell_out,
    visible,
    write_value,
)

_BAR_CELLS = 24
_EIGHTHS = " ▏▎▍▌▋▊▉"
_MOST_ROWS = 40
_ROOMY = 100
_NARROW_TEXT = 14
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


class Cut(Enum):
    """Where text that does not fit is cut."""

    BEGINNING = "beginning"
    MIDDLE = "middle"
    END = "end"


@dataclass(frozen=True, slots=True)
class FrameColumn:
    """A column of a frame: heading, how a value reads, and where text is cut; numbers never are.

    It is left out on terminals of fewer columns than `least_width`, and `is_rare` where it is empty.
    """

    name: str
    heading: str
    write: Callable[[Any], str] = visible
    is_text: bool = False
    cut: Cut = Cut.END
    least_width: int = 0
    is_rare: bool = False


def _write_row_count(value: float) -> str:
    return units.number(round(value)) if value >= 10 or value == round(value) else f"{value:.1f}"


def _write_tera(rate_flops_per_s: float) -> str:
    return units.flops(rate_flops_per_s, is_bare=True)


def _write_milliseconds(time_ns: int) -> str:
    return units.milliseconds(time_ns, is_bare=True)


_WRITERS: Mapping[Unit, tuple[Callable[[Any], str], str]] = {
    "text": (visible, "{}"),
    "plain": (_write_row_count, "{}"),
    "count": (units.number, "{}"),
    "seconds": (units.seconds, "{} s"),
    "ms": (_write_milliseconds, "{} ms"),
    "duration": (units.duration, "{}"),
    "percent": (units.percent, "{}"),
    "flops": (_write_tera, "TFLOP/s"),
}
"""How values of a unit read below a heading that has the unit, and that heading."""


def _head_column(row: type, name: str, **settings: Any) -> FrameColumn:
    """Make a column of a field of a row as it declares it."""
    shown = list_fields(row)[name]
    write, heading = _WRITERS[shown.unit]
    title = heading.format(shown.title if shown.brief is None else shown.brief).strip()
    declared = {"heading": title, "write": write, "is_text": shown.unit == "text"}
    return FrameColumn(shown.column or name, **{**declared, **settings})


STEPS = (
    _head_column(Step, "index"),
    _head_column(SpanRow, "start_ns"),
    _head_column(SpanRow, "duration_ns"),
    *(_head_column(Walls, wall, heading=list_fields(Walls)[wall].brief or str(wall)) for wall in Wall),
    _head_column(Step, "steady", write=lambda steady: "yes" if steady else "no"),
)
KERNELS = (
    *(_head_column(KernelRow, name) for name in ("category", "count", "work_ns", "step_share", "median_ns")),
    _head_column(KernelRow, "most_ns", least_width=_ROOMY),
    _head_column(KernelRow, "flops_per_s", is_rare=True),
    _head_column(KernelRow, "peak_share", least_width=_ROOMY, is_rare=True),
    _head_column(KernelRow, "name", write=shorten_kernel_name),
)
RANGES = (
    *(_head_column(RangeWork, name) for name in ("count", "host_ns", "gpu_ns", "own_gpu_ns")),
    _head_column(RangeOperationsRow, "operations"),
    _head_column(RangeWork, "path", cut=Cut.BEGINNING),
)


def render_frame(frame: pl.DataFrame, columns: tuple[FrameColumn, ...]) -> RenderableType:
    """Render the first rows of each rank, one block a rank; what is left out is said.

    Args:
        frame: `rank`, `pid`, `device`, what the columns name, and `reason` where steps do not count.
        columns: in order.
    """
    blocks: list[RenderableType] = []
    for (rank, pid, device), rows in frame.group_by("rank", "pid", "device", maintain_order=True):
        place = f"process {_or_unknown(pid)}, device {_or_unknown(device)}"
        blocks += [Text()] if blocks else []
        blocks.append(Text(place if rank is None else f"rank {rank} ({place})", style="bold"))
        shown = rows.head(_MOST_ROWS)
        cells = [
            ["" if value is None else column.write(value) for value in shown[column.name].to_list()]
            for column in columns
        ]
        used = [place for place, column in enumerate(columns) if any(cells[place]) or not column.is_rare]
        blocks.append(
            _FittedRows(
                tuple(columns[place] for place in used),
                tuple(zip(*(cells[place] for place in used), strict=True)),
            )
        )
        if "reason" in rows.columns:
            reasons = shown.drop_nulls("reason").group_by("reason", maintain_order=True)
            blocks += [
                Text(f"{', '.join(map(str, steps['step']))}: {reason}", style="dim")
                for (reason,), steps in reasons
            ]
        if len(rows) > _MOST_ROWS:
            left_out = units.plural(len(rows) - _MOST_ROWS, "more row")
            blocks.append(Text(f"{left_out}: --csv FILE writes all", style="dim"))
    return Group(*blocks) if blocks else Text("nothing to list")


def _or_unknown(value: object) -> object:
    return "unknown" if value is None else value


@dataclass(frozen=True, slots=True)
class _FittedRows:
    """Rows in columns: numbers keep their width, the last column of text gets what is left of the line."""

    columns: tuple[FrameColumn, ...]
    cells: tuple[tuple[str, ...], ...]

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        kept = [place for place, column in enumerate(self.columns) if column.least_width <= options.max_width]
        columns = [self.columns[place] for place in kept]
        rows = [[row[place] for place in kept] for row in self.cells]
        widths = _fit_widths(columns, rows, options.max_width)
        yield Text(_join_row(columns, [column.heading for column in columns], widths), style="dim")
        yield from (Text(_join_row(columns, row, widths)) for row in rows)


def _fit_widths(columns: Sequence[FrameColumn], rows: Sequence[Sequence[str]], line: int) -> list[int]:
    by_column = zip(columns, zip(*rows, strict=True), strict=True)
    widths = [max(cell_len(text) for text in (column.heading, *texts)) for column, texts in by_column]
    *others, last = (index for index, column in enumerate(columns) if column.is_text)
    for index in others:
        widths[index] = min(widths[index], _NARROW_TEXT)
    rest = line - sum(widths) - len(_BETWEEN) * (len(widths) - 1) + widths[last]
    widths[last] = max(min(widths[last], rest), _NARROW_TEXT)
    return widths


def _join_row(columns: Sequence[FrameColumn], row: Sequence[str], widths: Sequence[int]) -> str:
    return _BETWEEN.join(map(fit_text, columns, row, widths)).rstrip()


def fit_text(column: FrameColumn, text: str, width: int) -> str:
    """Make the text as wide as its column: numbers to the right; text cut at its end, or where it begins."""
    length = cell_len(text)
    if length <= width:
        padding = " " * (width - length)
        return text + padding if column.is_text else padding + text
    head = {Cut.BEGINNING: 0, Cut.MIDDLE: width // 2, Cut.END: width - 1}[column.cut]
    room = width - 1 - head
    tail = next(text[at:] for at in range(len(text) + 1) if cell_len(text[at:]) <= room)
    # A wide letter that would not fit whole leaves a space.
    return set_cell_size(text, head) + "…" + " " * (room - cell_len(tail)) + tail
