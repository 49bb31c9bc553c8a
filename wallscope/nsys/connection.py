"""Opening an export that is not trusted: an SQLite file, a folder of tables, or a report.

`immutable` keeps SQLite from making a journal, a lock or a shared-memory file beside the export;
`check_file` has refused files with a log, which that mode would overlook.
"""

import io
import json
import sqlite3
import sys
from array import array
from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass
from itertools import chain
from pathlib import Path
from threading import Lock
from typing import Any

import numpy as np
import polars as pl

from wallscope import kernels
from wallscope.errors import InputError
from wallscope.model.capture import Progress
from wallscope.model.reader import Reader
from wallscope.nsys.folder import folder_tables
from wallscope.nsys.integrity import check_file, is_folder
from wallscope.nsys.report import located
from wallscope.nsys.sqlite_file import HAS_OWN_PLACES, NULL, decode_text, nullable, read_columns
from wallscope.nsys.tables import Tables, Wanted, quoted
from wallscope.shipped import query

_PRAGMAS = ("query_only = ON", "trusted_schema = OFF", "cell_size_check = ON", "temp_store = MEMORY")
_LIMITS = {
    sqlite3.SQLITE_LIMIT_ATTACHED: 0,
    sqlite3.SQLITE_LIMIT_LENGTH: 64 << 20,
    sqlite3.SQLITE_LIMIT_TRIGGER_DEPTH: 1,
}
_ROWS_A_CHUNK = 100_000
_SERIALIZED = 3  # by PEP 249: threads may share a connection


def _silent(_what: str) -> None:
    """Progress that nobody sees."""


@contextmanager
def opened(path: Path, progress: Progress = _silent, *, reader: Reader = Reader.PAGES) -> Iterator[Tables]:
    """The tables of the export at `path`, open for reading as long as the block lasts.

    A report is exported aside first, where there is an nsys to do it. The reader is for SQLite files alone;
    pages are read by a compiled loop: interpreted, it takes longer than SQLite.

    Raises:
        InputError: what is there is no export, is damaged, or cannot be read.
    """
    place = located(path, progress)
    if is_folder(place):
        yield folder_tables(place)
        return
    check_file(place)
    with place.open("rb", buffering=0) as stream:
        try:
            connection = sqlite3.connect(
                f"{place.absolute().as_uri()}?mode=ro&immutable=1", uri=True, check_same_thread=False
            )
        except sqlite3.Error as error:
            raise InputError(f"{path} — cannot be opened: {error} — check its permissions") from error
        try:
            _defend(connection)
            by_pages = reader is Reader.PAGES and kernels.is_compiled()
            yield _sqlite_tables(path, connection, stream if by_pages else None)
        except (sqlite3.DatabaseError, sqlite3.DataError) as error:
            raise InputError(f"{path} — is damaged: {error} — copy or export it again") from error
        finally:
            connection.close()


@dataclass(frozen=True, slots=True)
class SqliteTables:
    """Answers from an open SQLite file; `stream` is that file too, where its pages may be read directly.

    Threads may ask at once: where SQLite does not keep them apart, the lock does.
    """

    path: Path
    connection: sqlite3.Connection
    columns: Mapping[str, tuple[str, ...]]
    stream: io.FileIO | None
    lock: AbstractContextManager[object]

    def selected(self, sql: str, values: Sequence[object]) -> list[tuple[Any, ...]]:
        """All rows of a query."""
        with self.lock:
            return self.connection.execute(sql, values).fetchall()

    def has_rows(self, table: str) -> bool:
        """Whether the table holds a row."""
        ((found,),) = self.selected(f"SELECT EXISTS (SELECT 1 FROM {quoted(table)})", ())
        return bool(found)

    def row_count(self, table: str) -> int:
        """Number of rows."""
        ((rows,),) = self.selected(f"SELECT COUNT(*) FROM {quoted(table)}", ())
        return int(rows)

    def frame(self, wanted: Wanted, progress: Progress) -> pl.DataFrame:
        """Columns of a table, int64 or text, in row order: from pages, or by SQLite stretch by stretch."""
        with self.lock:
            found = read_columns(self.stream, self.connection, wanted, progress) if self.stream else None
            return self._by_sqlite(wanted, progress) if found is None else found

    def _by_sqlite(self, wanted: Wanted, progress: Progress) -> pl.DataFrame:
        nothing = {
            **dict.fromkeys(wanted.integers, pl.Int64()),
            **dict.fromkeys(wanted.texts, pl.String()),
        }
        return pl.concat([pl.DataFrame(schema=nothing), *self._chunks(wanted, progress)])

    def _chunks(self, wanted: Wanted, progress: Progress) -> Iterator[pl.DataFrame]:
        cursor = self.connection.execute(*_selection(wanted))
        row_count = 0
        while rows := cursor.fetchmany(_ROWS_A_CHUNK):
            try:
                yield _frame(rows, wanted.integers, wanted.texts)
            except (TypeError, OverflowError) as error:
                raise InputError(
                    f"{self.path} — table {wanted.table} holds a value that is no integer, near row"
                    f" {row_count:,} — export the report again"
                ) from error
            row_count += len(rows)
            progress(f"reading {wanted.table}: {row_count:,} rows")


def _sqlite_tables(path: Path, connection: sqlite3.Connection, stream: io.FileIO | None) -> SqliteTables:
    try:
        tables = [str(name) for (name,) in connection.execute(query("tables"))]
    except UnicodeDecodeError as error:  # SQLite's complaint about the schema quotes bytes of it
        raise InputError(f"{path} — is damaged: its schema is no text — copy or export it again") from error
    names = {
        table: tuple(str(name) for (name,) in connection.execute(query("columns"), (table,)))
        for table in tables
    }
    lock = nullcontext() if HAS_OWN_PLACES and sqlite3.threadsafety == _SERIALIZED else Lock()
    return SqliteTables(path, connection, names, stream, lock)


def _selection(wanted: Wanted) -> tuple[str, tuple[str, ...]]:
    values = [f"IFNULL({quoted(column)}, {NULL + 1} - 1)" for column in wanted.integers]
    values.extend(f"CAST({quoted(column)} AS TEXT)" for column in wanted.texts)
    sql = f"SELECT {', '.join(values)} FROM {quoted(wanted.table)} NOT INDEXED"
    if wanted.keys is None:
        return sql, ()
    names = ", ".join(quoted(column) for column in wanted.keys.columns)
    parts = ", ".join(f"json_extract(value, '$[{place}]')" for place in range(wanted.keys.width))
    return f"{sql} WHERE ({names}) IN (SELECT {parts} FROM json_each(?))", (json.dumps(wanted.keys.rows()),)


def _frame(rows: list[tuple[Any, ...]], integers: Sequence[str], texts: Sequence[str]) -> pl.DataFrame:
    if texts:
        by_column = list(zip(*rows, strict=True))
        flat = array("q", chain.from_iterable(by_column[: len(integers)]))
        numbers = np.frombuffer(flat, np.int64).reshape(len(integers), len(rows))
    else:
        by_column = []
        flat = array("q", chain.from_iterable(rows))
        numbers = np.frombuffer(flat, np.int64).reshape(len(rows), len(integers)).T
    series = [nullable(name, column.copy()) for name, column in zip(integers, numbers, strict=True)]
    series.extend(
        pl.Series(name, column, dtype=pl.String)
        for name, column in zip(texts, by_column[len(integers) :], strict=True)
    )
    return pl.DataFrame(series)


def _defend(connection: sqlite3.Connection) -> None:
    connection.text_factory = decode_text
    for category, limit in _LIMITS.items():
        connection.setlimit(category, limit)
    if sys.version_info >= (3, 12):
        connection.setconfig(sqlite3.SQLITE_DBCONFIG_DEFENSIVE, True)
    for pragma in _PRAGMAS:
        connection.execute(f"PRAGMA {pragma}").close()
