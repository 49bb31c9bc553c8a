"""Values as text for people: units, names made harmless and cut to their room, one color per wall.

Names in an export are chosen by whoever wrote the program. The palette is that of Okabe and Ito (2008),
https://jfly.uni-koeln.de/color/: people with color vision deficiency can distinguish them.
"""

import unicodedata
from collections.abc import Callable, Mapping
from typing import Any

from wallscope import units
from wallscope.model.enums import Wall
from wallscope.model.section import Cell, Column, Grid, Medium, Row, Unit, Value

WALL_COLOURS = {
    Wall.COMPUTE: "#0072B2",
    Wall.COMMUNICATION: "#E69F00",
    Wall.MEMORY: "#CC79A7",
    Wall.HOST: "#009E73",
    Wall.UNATTRIBUTED: "#8A8A8A",
}
_MOST_NAME, _LONGEST_PATH = 40, 120
_UNSAFE = {"Cc", "Cf", "Cs", "Co", "Cn", "Zl", "Zp"}
_WRITERS: Mapping[Unit, Callable[[Any], str]] = {
    "text": str,
    "code": str,
    "plain": str,
    "count": units.number,
    "rounded": "{:,.0f}".format,
    "ms": units.milliseconds,
    "signed_ms": units.signed_milliseconds,
    "duration": units.duration,
    "signed_duration": units.signed_duration,
    "seconds": lambda time_ns: f"{units.seconds(time_ns)} s",
    "percent": units.percent,
    "signed_percent": units.signed_percent,
    "speedup": "{:.2f}x".format,
    "exact_speedup": "{:.3f}x".format,
    "size": units.size,
    "rate": units.rate,
    "flops": units.flops,
}


def spell_out(text: str) -> str:
    """Return all of the text, with the letters spelled out that cannot be seen."""
    if text.isprintable():
        return text
    return "".join(
        letter.encode("unicode_escape").decode("ascii") if unicodedata.category(letter) in _UNSAFE else letter
        for letter in text
    )


def visible(text: str, most: int = 200) -> str:
    r"""Return the text with control, bidirectional and other invisible characters spelled out, cut to `most`.

    >>> visible("ncclDevKernel\x1b[31m"), visible("a\u202eb"), visible("abcdef", most=4)
    ('ncclDevKernel\\x1b[31m', 'a\\u202eb', 'abc…')
    """
    return spell_out(text if len(text) <= most else text[: most - 1] + "…")


def shorten_path(path: str) -> str:
    """Keep the end of a written path of ranges, which says most.

    >>> shorten_path("train_step / forward / layer_#"), shorten_path("a" * 30 + " / " + "b" * 30 + " / c")
    ('train_step / forward / layer_#', '… / bbbbbbbbbbbbbbbbbbbbbbbbbbbbbb / c')
    """
    names = path.split(" / ")
    kept = names[-1]
    for name in reversed(names[:-1]):
        if len(kept) + len(name) > _MOST_NAME:
            return visible(f"… / {kept}", most=_LONGEST_PATH)
        kept = f"{name} / {kept}"
    return visible(kept, most=_LONGEST_PATH)


def write_value(value: Value, column: Column) -> str:
    """Write a value in the unit of its column; what is text already stays as it is, but cut and harmless."""
    if value is None:
        return column.none
    if isinstance(value, tuple):
        return "\n".join(visible(line, column.most) for line in value)
    return visible(str(value) if isinstance(value, str) else _WRITERS[column.unit](value), column.most)


def as_cell(value: Value | Cell) -> Cell:
    """Return a value that nothing is added to as a cell."""
    return value if isinstance(value, Cell) else Cell(value)


def select_columns(grid: Grid, medium: Medium) -> list[tuple[int, Column]]:
    """Select the columns that a medium shows, each with its place in the rows."""
    return [(place, column) for place, column in enumerate(grid.columns) if medium in column.media]


def select_rows(grid: Grid, medium: Medium) -> tuple[tuple[Row, ...], str]:
    """Select the rows that a medium shows; and what it says of the rest, empty where it shows all."""
    limit = grid.limits.get(medium)
    if limit is None or len(grid.rows) <= limit.most:
        return grid.rows, grid.rest
    left = len(grid.rows) - limit.most
    counted = units.plural(left, limit.noun) if limit.noun else f"{left} more"
    return grid.rows[: limit.most], f"{counted}{limit.where}"
