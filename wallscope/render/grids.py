"""The shapes that sections of the terminal are made of."""

from rich.console import Group, RenderableType
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

BAR_CELLS = 24
_EIGHTHS = " ▏▎▍▌▋▊▉"


def grid(*columns: str) -> Table:
    """A table of one column of text and others of numbers."""
    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), header_style="dim", show_edge=False)
    for index, column in enumerate(columns):
        table.add_column(column, justify="left" if index == 0 else "right", no_wrap=index > 0)
    return table


def titled(title: str, body: RenderableType) -> Group:
    """A section: its title, and its body set in."""
    return Group(Text(title, style="bold"), Padding(body, (0, 0, 0, 2)))


def bar(share: float, colour: str) -> Text:
    """A bar of eighths of a cell; any share above 0 shows."""
    eighths = max(round(share * BAR_CELLS * 8), 1 if share > 0 else 0)
    cells = "█" * (eighths // 8) + _EIGHTHS[eighths % 8].strip()
    return Text(cells.ljust(BAR_CELLS), style=colour)
