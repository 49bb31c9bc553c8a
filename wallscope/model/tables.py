"""A table of the output: its name, the meaning of a row, and its columns with types and meanings."""

from dataclasses import dataclass

import polars as pl


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


def find_table_columns(kind: pl.DataType, /, **meanings: str) -> tuple[TableColumn, ...]:
    """Return columns of one type, with the content of each."""
    return tuple(TableColumn(name, kind, meaning) for name, meaning in meanings.items())
