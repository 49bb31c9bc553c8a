"""A table of the output: its name, the meaning of a row, and its columns with types and meanings.

Columns are declared as fields of rows (`Shown`); a table lists the rows that it takes them from.
"""

import inspect
from enum import Enum
from types import NoneType, UnionType
from typing import Any, Union, get_args, get_origin

import polars as pl

from wallscope.model.shown import list_fields
from wallscope.records import dataclass

_KINDS = {int: pl.Int64(), float: pl.Float64(), bool: pl.Boolean()}


@dataclass(frozen=True, slots=True)
class TableColumn:
    """A column: its name, type and content."""

    name: str
    kind: pl.DataType
    meaning: str


@dataclass(frozen=True, slots=True)
class Table:
    """A table by name: the meaning of a row, and its columns in order."""

    name: str
    row_is: str
    columns: tuple[TableColumn, ...]

    @property
    def schema(self) -> pl.Schema:
        """Names and types of the columns."""
        return pl.Schema({column.name: column.kind for column in self.columns})


def list_columns(row: type, *names: str, **words: str) -> tuple[TableColumn, ...]:
    """Return the columns of some fields of a row, without names of all; `words` stand in their meanings."""
    shown, hints = list_fields(row), inspect.get_annotations(row)
    return tuple(
        TableColumn(
            shown[name].column or name,
            getattr(pl, shown[name].kind)() if shown[name].kind else _find_column_type(hints, name),
            shown[name].describe(**words),
        )
        for name in names or shown
    )


def _find_column_type(hints: dict[str, Any], name: str) -> pl.DataType:
    """Return the type of a column: of `None` or another type the other; enumerations and lists are text."""
    hint = hints[name if name in hints else f"{name}_"].__origin__
    if get_origin(hint) in {Union, UnionType}:
        (hint,) = (one for one in get_args(hint) if one is not NoneType)
    is_text = hint is str or get_origin(hint) is not None or issubclass(hint, Enum)
    return pl.String() if is_text else _KINDS[hint]
