"""An open export as its readers see it: which tables and columns there are, and what they hold."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

import polars as pl

from wallscope.errors import InputError
from wallscope.model.capture import Presence, Progress
from wallscope.nsys.catalog import EXPORT_METADATA, STRINGS, CatalogTable
from wallscope.shipped import query

_KNOWN = (STRINGS, *EXPORT_METADATA, "TARGET_INFO_SESSION_START_TIME")


@dataclass(frozen=True, slots=True)
class Wanted:
    """What is asked of a table: columns of integers, columns of text, and which rows, else all.

    `keys` holds some of the integer columns; rows count whose values there are one of its rows.
    """

    table: str
    integers: Sequence[str]
    texts: Sequence[str] = ()
    keys: pl.DataFrame | None = None


class Tables(Protocol):
    """Where the tables are: in one SQLite file, or in a folder with a file for each."""

    @property
    def columns(self) -> Mapping[str, tuple[str, ...]]:
        """The columns of each table, in their order."""

    def select(self, sql: str, values: Sequence[object]) -> list[tuple[Any, ...]]:
        """All rows of a query."""

    def has_rows(self, table: str) -> bool:
        """Whether the table, which must be there, holds a row."""

    def row_count(self, table: str) -> int:
        """Number of rows of a table, which must be there."""

    def read_frame(self, wanted: Wanted, progress: Progress) -> pl.DataFrame:
        """Columns of a table, which must be there, int64 or text, in row order; threads may ask at once."""


@dataclass(frozen=True, slots=True)
class Database:
    """An open export: the path that the user named, and its tables."""

    path: Path
    tables: Tables

    @property
    def columns(self) -> Mapping[str, tuple[str, ...]]:
        """The columns of each table, in their order."""
        return self.tables.columns

    def rows(self, query_name: str, *values: object) -> list[tuple[Any, ...]]:
        """All rows of a shipped query."""
        return self.select(query(query_name), *values)

    def select(self, sql: str, *values: object) -> list[tuple[Any, ...]]:
        """All rows of a query, which names each table and column as the export spells it."""
        return self.tables.select(sql, values)

    def has(self, table: str, *columns: str) -> bool:
        """Whether the export has the table, with these columns."""
        return table in self.columns and set(columns) <= set(self.columns[table])

    def presence(self, table: str) -> Presence:
        """Whether the table is absent, empty or holds rows."""
        if table not in self.columns:
            return Presence.ABSENT
        return Presence.ROWS if self.tables.has_rows(table) else Presence.EMPTY

    def row_count(self, table: str) -> int | None:
        """Number of rows, `None` where there is no such table."""
        return self.tables.row_count(table) if table in self.columns else None


def make_database(path: Path, tables: Tables) -> Database:
    """The tables of an open export; views and virtual tables do not count.

    Raises:
        InputError: the tables are of an nvprof profile or of no Nsight export at all.
    """
    columns = tables.columns
    if "_id_" in columns.get("CUPTI_ACTIVITY_KIND_KERNEL", ()) or "CUPTI_ACTIVITY_KIND_DRIVER" in columns:
        raise InputError(
            f"{path} — is an nvprof profile — capture with Nsight Systems: nsys profile --trace=cuda,nvtx"
        )
    if not any(table in columns for table in _KNOWN) and not any(t.startswith("CUPTI_") for t in columns):
        raise InputError(
            f"{path} — is no Nsight Systems export: none of its tables is one of Nsight's — "
            "export a report: nsys export --type sqlite"
        )
    return Database(path, tables)


def read_table(
    source: Database, table: CatalogTable, progress: Progress, keys: pl.DataFrame | None = None
) -> pl.DataFrame:
    """The declared columns of a table in row order, int64 or text; a column the export lacks is all null.

    With `keys`, whose columns must be there, rows count whose values in them are one of its rows.

    Raises:
        InputError: a required column is missing, or a value is no integer where it must be one.
    """
    declared = {**dict.fromkeys(table.columns, pl.Int64()), **dict.fromkeys(table.texts, pl.String())}
    there = [column for column in declared if source.has(table.name, column)]
    if missing := [column for column in table.required if source.has(table.name) and column not in there]:
        raise InputError(
            f"{source.path} — table {table.name} has no column {missing[0]} — export the report again"
        )
    integers = [column for column in there if column in table.columns]
    if not there:
        return pl.DataFrame(schema=declared)
    found = source.tables.read_frame(Wanted(table.name, integers, there[len(integers) :], keys), progress)
    absent = [
        pl.Series(name, [None], kind).new_from_index(0, len(found))
        for name, kind in declared.items()
        if name not in there
    ]
    return found.hstack(absent)[list(declared)]


def quote(identifier: str) -> str:
    """The name as SQL spells it.

    >>> print(quote('an "odd" table'))
    "an ""odd"" table"
    """
    return '"' + identifier.replace('"', '""') + '"'
