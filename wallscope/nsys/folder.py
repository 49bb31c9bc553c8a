"""The tables of a folder that `nsys export --type parquetdir` or `arrowdir` wrote, a file for each.

Tables and columns are named as in SQLite and have real types: ids are unsigned 64-bit numbers, which
SQLite spells as signed ones. A query runs in an SQLite database in memory that holds the columns which
the query names, and lives no longer: nothing else is copied, nothing is kept.
"""

import re
import sqlite3
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import polars as pl

from wallscope.errors import InputError
from wallscope.model.capture import Progress
from wallscope.nsys.integrity import table_files
from wallscope.nsys.tables import Wanted, quoted

_WORD = re.compile(r"\w+")


@dataclass(frozen=True, slots=True)
class FolderTables:
    """Answers from the files of a folder; `folder_tables` makes it."""

    path: Path
    files: Mapping[str, Path]
    columns: Mapping[str, tuple[str, ...]]

    def selected(self, sql: str, values: Sequence[object]) -> list[tuple[Any, ...]]:
        """All rows of a query that names each table and column as the export spells it."""
        words = set(_WORD.findall(sql))
        with closing(sqlite3.connect(":memory:")) as memory:
            try:
                for table in self.files.keys() & words:
                    self._load(memory, table, words)
                return memory.execute(sql, values).fetchall()
            except (sqlite3.Error, ValueError) as error:
                raise InputError(f"{self.path} — is damaged: {error} — export the report again") from error

    def has_rows(self, table: str) -> bool:
        """Whether the table holds a row."""
        return not _read(self.files[table], self.columns[table][:1], most_rows=1).is_empty()

    def row_count(self, table: str) -> int:
        """Number of rows; a Parquet file tells it without being read."""
        file = self.files[table]
        if file.suffix == ".parquet":
            with _blamed_on(file):
                return int(_scanned(file).select(pl.len()).collect().item())
        return len(_read(file, self.columns[table][:1]))

    def frame(self, wanted: Wanted, progress: Progress) -> pl.DataFrame:
        """Columns of a table, int64 or text, in row order."""
        progress(f"reading {wanted.table}")
        file = self.files[wanted.table]
        rows = _read(file, [*wanted.integers, *wanted.texts])
        with _blamed_on(file):
            plain = rows.select(
                *(_integers(rows[column], file) for column in wanted.integers),
                *(rows[column].cast(pl.String) for column in wanted.texts),
            )
        return plain if wanted.keys is None else plain.join(wanted.keys, on=wanted.keys.columns, how="semi")

    def _load(self, memory: sqlite3.Connection, table: str, words: set[str]) -> None:
        """Copy the columns that are named among the words; a table without one keeps its row count."""
        columns = self.columns[table]
        rows = _read(self.files[table], [column for column in columns if column in words] or columns[:1])
        with _blamed_on(self.files[table]):
            plain = rows.select(_plain(column) for column in rows)
        names = ", ".join(quoted(column) for column in plain.columns)
        marks = ", ".join("?" * plain.width)
        memory.execute(f'CREATE TABLE "{table}" ({names})')
        memory.executemany(f'INSERT INTO "{table}" VALUES ({marks})', plain.iter_rows())
        if "id" in plain.columns:
            memory.execute(f'CREATE INDEX "{table} by id" ON "{table}" (id)')


def folder_tables(path: Path) -> FolderTables:
    """The tables of a folder, each file whole by its first and last bytes.

    Raises:
        InputError: the folder is no export, or a file is damaged.
    """
    files = table_files(path)
    return FolderTables(path, files, {table: _columns(file) for table, file in files.items()})


def _columns(file: Path) -> tuple[str, ...]:
    with _blamed_on(file):
        if file.suffix == ".parquet":
            return tuple(_scanned(file).collect_schema())
        return tuple(pl.read_ipc_stream(file.absolute(), n_rows=0).columns)


def _read(file: Path, columns: Sequence[str], most_rows: int | None = None) -> pl.DataFrame:
    with _blamed_on(file):
        if file.suffix == ".parquet":
            return _scanned(file, most_rows).select(columns).collect()
        found = pl.read_ipc_stream(file.absolute(), columns=list(columns), n_rows=most_rows)
        return found.select(columns)


def _scanned(file: Path, most_rows: int | None = None) -> pl.LazyFrame:
    """The file by its name as it stands: polars would take ~ for the home folder and * for any letters."""
    return pl.scan_parquet(file.absolute(), n_rows=most_rows, glob=False, hive_partitioning=False)


def _plain(column: pl.Series) -> pl.Series:
    """The column in a type that SQLite has."""
    if column.dtype.is_integer() or column.dtype in (pl.Boolean, pl.Null):
        return column.cast(pl.Int64, wrap_numerical=True)
    if column.dtype.is_float() or column.dtype == pl.Binary:
        return column
    return column.cast(pl.String)


def _integers(column: pl.Series, file: Path) -> pl.Series:
    plain = _plain(column)
    if plain.dtype != pl.Int64:
        raise InputError(
            f"{file} — column {column.name} holds a value that is no integer — export the report again"
        )
    return plain


@contextmanager
def _blamed_on(file: Path) -> Iterator[None]:
    """Say which file polars cannot make sense of; its own words may quote the content and are left out."""
    try:
        yield
    except (pl.exceptions.PolarsError, pl.exceptions.PanicException, OSError, ValueError) as error:
        if re.search(r"utf-?8", str(error), re.IGNORECASE):
            fault = "holds text that is no UTF-8 — export the report as one file: nsys export --type sqlite"
        else:
            fault = "is damaged inside — copy or export the folder again"
        raise InputError(f"{file} — {fault}") from error
