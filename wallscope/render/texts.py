"""Raw values of a section as text: units, and names cut to the room that their column has."""

from collections.abc import Callable, Mapping
from typing import Any

from wallscope import units
from wallscope.model.section import Cell, Column, Grid, Medium, Row, Unit, Value
from wallscope.render.foreign import visible

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
}


def write_value(value: Value, column: Column) -> str:
    """A value in the unit of its column; what is text already stays as it is, but cut and harmless."""
    if value is None:
        return column.none
    if isinstance(value, tuple):
        return "\n".join(visible(line, column.most) for line in value)
    return visible(str(value) if isinstance(value, str) else _WRITERS[column.unit](value), column.most)


def as_cell(value: Value | Cell) -> Cell:
    """A value that nothing is added to, as a cell."""
    return value if isinstance(value, Cell) else Cell(value)


def select_columns(grid: Grid, medium: Medium) -> list[tuple[int, Column]]:
    """The columns that a medium shows, each with its place in the rows."""
    return [(place, column) for place, column in enumerate(grid.columns) if medium in column.media]


def select_rows(grid: Grid, medium: Medium) -> tuple[tuple[Row, ...], str]:
    """The rows that a medium shows, and what it says of the rest; that is empty where it shows all."""
    limit = grid.limits.get(medium)
    if limit is None or len(grid.rows) <= limit.most:
        return grid.rows, grid.rest
    left = len(grid.rows) - limit.most
    counted = units.plural(left, limit.noun) if limit.noun else f"{left} more"
    return grid.rows[: limit.most], f"{counted}{limit.where}"
