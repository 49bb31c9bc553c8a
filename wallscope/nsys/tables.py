"""Reading declared tables through sqlite3, and asking which tables and columns there are."""

import sqlite3
from array import array
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import chain
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl

from wallscope.errors import InputError
from wallscope.model.capture import Presence, Progress
from wallscope.nsys.catalog import Table
from wallscope.shipped import query

_ROWS_A_CHUNK = 100_000
_NULL = -(2**63)  # stands for NULL on the way; no time or id of an export is that small


@dataclass(frozen=True, slots=True)
class Database:
    """An open export and the columns of each of its tables."""

    path: Path
    connection: sqlite3.Connection
    columns: dict[str, tuple[str, ...]]

    def rows(self, query_name: str, *values: object) -> list[tuple[Any, ...]]:
        """All rows of a shipped query."""
        cursor = self.connection.execute(query(query_name), values)
        return cursor.fetchall()

    def has(self, table: str, *columns: str) -> bool:
        """Whether the export has the table, with these columns."""
        return table in self.columns and set(columns) <= set(self.columns[table])

    def presence(self, table: str) -> Presence:
        """Whether the table is absent, empty or holds rows."""
        if table not in self.columns:
            return Presence.ABSENT
        (has_rows,) = self.connection.execute(f"SELECT EXISTS (SELECT 1 FROM {_quoted(table)})").fetchone()
        return Presence.ROWS if has_rows else Presence.EMPTY

    def row_count(self, table: str) -> int | None:
        """Number of rows, `None` where there is no such table."""
        if table not in self.columns:
            return None
        (rows,) = self.connection.execute(f"SELECT COUNT(*) FROM {_quoted(table)}").fetchone()
        return int(rows)


def database(path: Path, connection: sqlite3.Connection) -> Database:
    """The tables of an open export; views and virtual tables do not count.

    Raises:
        InputError: the database is an nvprof profile or no Nsight export at all.
    """
    tables = [str(name) for (name,) in connection.execute(query("tables"))]
    columns = {
        table: tuple(str(name) for (name,) in connection.execute(query("columns"), (table,)))
        for table in tables
    }
    if "_id_" in columns.get("CUPTI_ACTIVITY_KIND_KERNEL", ()) or "CUPTI_ACTIVITY_KIND_DRIVER" in columns:
        raise InputError(
            f"{path} — is an nvprof profile — capture with Nsight Systems: nsys profile --trace=cuda,nvtx"
        )
    known = ("StringIds", "META_DATA_EXPORT", "EXPORT_META_DATA", "TARGET_INFO_SESSION_START_TIME")
    if not any(table in columns for table in known) and not any(t.startswith("CUPTI_") for t in tables):
        raise InputError(
            f"{path} — is an SQLite database but no Nsight Systems export — "
            "export a report: nsys export --type sqlite"
        )
    return Database(path, connection, columns)


def read(source: Database, table: Table, progress: Progress) -> pl.DataFrame:
    """The declared columns of a table in row order, int64 or text; a column the export lacks is all null.

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
    chunks = [pl.DataFrame(schema={column: declared[column] for column in there})]
    if there:
        chunks.extend(_chunks(source, table.name, integers, there[len(integers) :], progress))
    found = pl.concat(chunks)
    absent = [pl.lit(None, kind).alias(name) for name, kind in declared.items() if name not in there]
    return found.with_columns(absent).select(list(declared))


def _chunks(
    source: Database, table: str, integers: list[str], texts: list[str], progress: Progress
) -> Iterator[pl.DataFrame]:
    """One frame for each stretch of the table."""
    wanted = [f"IFNULL({_quoted(column)}, {_NULL + 1} - 1)" for column in integers] + [
        f"CAST({_quoted(column)} AS TEXT)" for column in texts
    ]
    cursor = source.connection.execute(f"SELECT {', '.join(wanted)} FROM {_quoted(table)}")
    row_count = 0
    while rows := cursor.fetchmany(_ROWS_A_CHUNK):
        try:
            yield _frame(rows, integers, texts)
        except (TypeError, OverflowError) as error:
            raise InputError(
                f"{source.path} — table {table} holds a value that is no integer, near row {row_count:,} —"
                " export the report again"
            ) from error
        row_count += len(rows)
        progress(f"reading {table}: {row_count:,} rows")


def _frame(rows: list[tuple[Any, ...]], integers: list[str], texts: list[str]) -> pl.DataFrame:
    if texts:
        by_column = list(zip(*rows, strict=True))
        flat = array("q", chain.from_iterable(by_column[: len(integers)]))
        numbers = np.frombuffer(flat, np.int64).reshape(len(integers), len(rows))
    else:
        by_column = []
        flat = array("q", chain.from_iterable(rows))
        numbers = np.frombuffer(flat, np.int64).reshape(len(rows), len(integers)).T
    columns = [pl.Series(name, column.copy()) for name, column in zip(integers, numbers, strict=True)]
    columns = [column.set(column == _NULL, None) if column.min() == _NULL else column for column in columns]
    columns.extend(
        pl.Series(name, column, dtype=pl.String)
        for name, column in zip(texts, by_column[len(integers) :], strict=True)
    )
    return pl.DataFrame(columns)


def _quoted(identifier: str) -> str:
    return '"' + identifier.replace('"', '""') + '"'
