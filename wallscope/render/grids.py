"""The shapes that sections of the terminal are made of."""

from collections.abc import Iterable, Iterator, Mapping

from rich.console import Console, ConsoleOptions, Group, RenderableType, RenderResult
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from wallscope.model.section import (
    Cell,
    Column,
    Grid,
    Items,
    Line,
    Lines,
    Section,
    Span,
    Tone,
    Value,
)
from wallscope.render.colours import WALL_COLOURS
from wallscope.render.foreign import spelled
from wallscope.render.texts import as_cell, select_columns, select_rows, write_value

BAR_CELLS = 24
_EIGHTHS = " ▏▎▍▌▋▊▉"


def grid(*columns: str) -> Table:
    """A table of one column of text and others of numbers."""
    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), header_style="dim", show_edge=False)
    for index, column in enumerate(columns):
        table.add_column(column, justify="left" if index == 0 else "right", no_wrap=index > 0)
    return table


def titled(title: Line, body: RenderableType) -> Group:
    """A section: its title, and its body set in."""
    head = Text(title, style="bold") if isinstance(title, str) else write_line(title)
    return Group(head, Padding(body, (0, 0, 0, 2)))


def bar(share: float, colour: str) -> Text:
    """A bar of eighths of a cell; any share above 0 shows."""
    eighths = max(round(share * BAR_CELLS * 8), 1 if share > 0 else 0)
    cells = "█" * (eighths // 8) + _EIGHTHS[eighths % 8].strip()
    return Text(cells.ljust(BAR_CELLS), style=colour)


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
    """Sections and tables, each with its title, and an empty line between them."""
    return Group(*_separate(parts))


def _separate(parts: Iterable[Section | Grid]) -> Iterator[RenderableType]:
    for place, part in enumerate(parts):
        if place:
            yield Text()
        yield render_section(part)


def render_section(part: Section | Grid) -> Group:
    """A title with what it is of, set in; without a title all stands at the margin."""
    if isinstance(part, Grid):
        return titled(part.brief or part.title, DrawnGrid(part))
    beneath = [block for block in part.blocks if isinstance(block, Lines) and not block.is_set_in]
    body = Group(*(shown for block in part.blocks if block not in beneath for shown in _draw(block)))
    set_in = titled(part.title, body) if part.title else body
    return Group(set_in, *(shown for block in beneath for shown in _draw(block))) if beneath else set_in


def _draw(block: object) -> Iterator[RenderableType]:
    if isinstance(block, Section):
        yield render_section(block)
    elif isinstance(block, Grid):
        yield DrawnGrid(block)
    elif isinstance(block, Items):
        yield _draw_items(block)
    elif isinstance(block, Lines):
        yield from (write_line(line, block.tone) for line in block.lines)


def _draw_items(items: Items) -> Table:
    table = Table(box=None, pad_edge=False, padding=(0, 1, 0, 0), show_header=False)
    for shape in items.shape:
        table.add_column(
            justify="right" if shape == "right" else "left",
            no_wrap=shape in {"mark", "right"},
            overflow="fold" if shape == "fold" else "ellipsis",
        )
    for row in items.rows:
        table.add_row(*map(write_line, row))
    return table


def write_line(line: Line, tone: Tone | None = None) -> Text:
    """Write a line with its tone and those of its parts; no letter of it is obeyed."""
    listed = (line,) if isinstance(line, str) else line
    parts = [part if isinstance(part, Span) else Span(part) for part in listed]
    if len(parts) == 1:
        return Text(spelled(parts[0].text), style=_STYLES[parts[0].tone or tone])
    whole = "dim" if parts[0].tone == "dim" else tone
    return Text.assemble(*((spelled(part.text), _STYLES[part.tone]) for part in parts), style=_STYLES[whole])


class DrawnGrid:
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
        yield table
        yield from map(Text, grid.notes)
        if rest:
            yield Text(rest, style="dim")


def _draw_cell(value: Value | Cell, column: Column) -> Text:
    cell = as_cell(value)
    style = _STYLES[cell.wall if cell.tone is None else cell.tone]
    if column.unit == "bar" and isinstance(cell.value, float):
        return bar(cell.value, style or "default")
    shown = Text(write_value(cell.value, column), style=style)
    if column.wrap == "cut":
        shown.overflow, shown.no_wrap = "ellipsis", True
    return shown
