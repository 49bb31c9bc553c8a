"""Markdown for GitHub and GitLab: under 60 kB; names of a capture cannot become markup, links or mentions."""

import re
from collections.abc import Iterable

from wallscope.model.section import Cell, Column, Grid, Value
from wallscope.render.texts import as_cell, select_columns, select_rows, visible, write_value

MOST_BYTES = 60_000
_NOTHING = "\u200b"  # a space without width: GitHub mentions, links and runs nothing across it
_SPECIAL = str.maketrans(
    {letter: f"\\{letter}" for letter in "\\`*_{}[]<>#|!~&"}
    | {"@": f"@{_NOTHING}", ":": f":{_NOTHING}", "$": f"${_NOTHING}"}
)


_BARE_LINK = re.compile(r"\b(www)[.]", re.IGNORECASE)
_OTHER_ISSUE = re.compile(r"(#|\bGH-)(?=\d)", re.IGNORECASE)


def escape(text: str, most: int = 500) -> str:
    r"""Escape prose with foreign names in it: no markup, link, mention or workflow command comes of it.

    >>> escape("a|b `c` <i>"), escape("https://x.invalid").startswith("https:\u200b//")
    ('a\\|b \\`c\\` \\<i\\>', True)
    """
    shown = visible(text, most).translate(_SPECIAL).replace(f":{_NOTHING} ", ": ")
    return _OTHER_ISSUE.sub(rf"\1{_NOTHING}", _BARE_LINK.sub(rf"\1{_NOTHING}.", shown))


def code(text: str, most: int = 120) -> str:
    """Write a name as code, in tables too."""
    shown = visible(text, most).replace("`", "'").replace("|", "\\|")
    return f"`{shown}`" if shown.strip() else "` `"


def render_table(grid: Grid) -> list[str]:
    """Write a table, and an empty line; numbers stand to the right."""
    columns = select_columns(grid, "markdown")
    rows, _ = select_rows(grid, "markdown")
    return [
        _write_row(column.title for _, column in columns),
        _write_row("---" if column.is_text else "---:" for _, column in columns),
        *(_write_row(_write_markdown_cell(row[place], column) for place, column in columns) for row in rows),
        "",
    ]


def _write_markdown_cell(value: Value | Cell, column: Column) -> str:
    cell = as_cell(value)
    text = write_value(cell.value, column)
    if column.unit == "code" and cell.tone is None:
        text = code(text, column.most)
    elif column.unit == "text":
        text = escape(text, column.most)
    return f"**{text}**" if cell.tone == "strong" else text


def _write_row(cells: Iterable[str]) -> str:
    return f"| {' | '.join(cells)} |"


def join_blocks(blocks: Iterable[list[str]], left_out: str) -> str:
    """Join blocks of lines as long as they fit into `MOST_BYTES`; where one does not, `left_out` says so."""
    kept: list[str] = []
    left_bytes = MOST_BYTES - len(left_out.encode()) - 3
    for block in ("\n".join(lines).strip("\n") for lines in blocks if lines):
        left_bytes -= len(block.encode()) + 2
        if left_bytes < 0:
            return "\n\n".join([*kept, left_out]) + "\n"
        kept.append(block)
    return "\n\n".join(kept) + "\n"
