"""Markdown as GitHub and GitLab read it, with foreign text that can make nothing but letters."""

from collections.abc import Iterable

from wallscope.model.section import Cell, Column, Grid, Value
from wallscope.render.foreign import visible
from wallscope.render.texts import as_cell, select_columns, select_rows, write_value

_NOTHING = "\u200b"  # a space without width: GitHub mentions, links and runs nothing across it
_SPECIAL = str.maketrans(
    {letter: f"\\{letter}" for letter in "\\`*_{}[]<>#|!~&"}
    | {"@": f"@{_NOTHING}", ":": f":{_NOTHING}", "$": f"${_NOTHING}"}
)


def escaped(text: str, most: int = 500) -> str:
    r"""Prose with foreign names in it: no markup, link, mention or workflow command comes of it.

    >>> escaped("a|b `c` <i>"), escaped("https://x.invalid").startswith("https:\u200b//")
    ('a\\|b \\`c\\` \\<i\\>', True)
    """
    return visible(text, most).translate(_SPECIAL).replace(f":{_NOTHING} ", ": ")


def code(text: str, most: int = 120) -> str:
    """A name as code, in tables too."""
    shown = visible(text, most).replace("`", "'").replace("|", "\\|")
    return f"`{shown}`" if shown.strip() else "` `"


def render_table(grid: Grid) -> list[str]:
    """Write a table, and an empty line; numbers stand to the right."""
    columns = select_columns(grid, "markdown")
    rows, _ = select_rows(grid, "markdown")
    return [
        _write_row(column.title for _, column in columns),
        _write_row("---" if column.is_text else "---:" for _, column in columns),
        *(_write_row(_write_cell(row[place], column) for place, column in columns) for row in rows),
        "",
    ]


def _write_cell(value: Value | Cell, column: Column) -> str:
    cell = as_cell(value)
    text = write_value(cell.value, column)
    if column.unit == "code" and cell.tone is None:
        text = code(text, column.most)
    elif column.is_text:
        text = escaped(text, column.most)
    return f"**{text}**" if cell.tone == "strong" else text


def _write_row(cells: Iterable[str]) -> str:
    return f"| {' | '.join(cells)} |"
