"""Open an untrusted export: an SQLite file, a folder of tables, or a report.

SQLite files are opened with `immutable`: SQLite then creates no journal, lock or shared-memory file next to
the export. `check_file` refuses files with a log, which that mode would ignore.

Folders come from `nsys export --type parquetdir` or `arrowdir`, with one file per table. Names equal those of
SQLite exports, with native types: ids are unsigned 64-bit numbers, which SQLite stores as signed ones. A
query runs in an SQLite database in memory that contains only the columns in the query, and is deleted
afterwards.

Reports are exported by the user's own `nsys`, once, into the user's cache. Nothing is written next to a
report, and no shell is started.
"""

import io
import json
import re
import shutil
import sqlite3
import subprocess
import sys
import tempfile
from array import array
from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, closing, contextmanager, nullcontext
from itertools import chain, islice
from pathlib import Path
from threading import Lock
from typing import Any

import numpy as np
import polars as pl

from wallscope import kernels
from wallscope.cache_folder import ASIDE, EntryKind, user_cache
from wallscope.errors import InputError
from wallscope.files import read_query
from wallscope.model.capture import Progress
from wallscope.model.enums import Reader
from wallscope.nsys.integrity import (
    check_file,
    content_size_bytes,
    fingerprint,
    is_folder,
    is_report,
    list_table_files,
    measure_table,
    refuse_oversize,
)
from wallscope.nsys.sqlite_file import HAS_OWN_PLACES, decode_text, read_columns
from wallscope.nsys.tables import NULL, Tables, Wanted, make_nullable, quote
from wallscope.records import dataclass

_PRAGMAS = ("query_only = ON", "trusted_schema = OFF", "cell_size_check = ON", "temp_store = MEMORY")
_LIMITS = {
    sqlite3.SQLITE_LIMIT_ATTACHED: 0,
    sqlite3.SQLITE_LIMIT_LENGTH: 64 << 20,
    sqlite3.SQLITE_LIMIT_TRIGGER_DEPTH: 1,
}
_ROWS_A_CHUNK, _ROWS_AT_ONCE = 100_000, 16
_FEW_BYTES, _MOST_TIMES = 64 << 20, 4  # a text may be named by several rows of a query
_SERIALIZED = 3  # by PEP 249: threads may share a connection
_WORD = re.compile(r"\w+")
_MOST_LETTERS = 200
_REST_OF_PATH = r"""[^\s'",;:()]*"""
_LOCAL_PATH = re.compile(
    r"""(?P<quote>['"])(?:[A-Za-z]:)?[\\/].*?(?P=quote)"""  # quoted, including spaces
    rf"""|(?<![\w.])(?:~|[A-Za-z]:)?[\\/]{_REST_OF_PATH}"""
)


def _silent(_what: str) -> None:
    """Progress without output."""


@contextmanager
def open_tables(
    path: Path, progress: Progress = _silent, *, reader: Reader = Reader.PAGES
) -> Iterator[Tables]:
    """Yield the tables of the export at `path`, open for reading inside the block.

    A report is first exported to the cache if there is an nsys. The page reader is only for SQLite files,
    with its loop compiled: interpreted, it is slower than SQLite.

    Raises:
        InputError: it is not an export, is damaged, or cannot be read.
    """
    place = resolve_export(path, progress)
    if is_folder(place):
        yield open_folder(place)
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
            yield _open_sqlite(path, connection, stream if by_pages else None)
        except (sqlite3.DatabaseError, sqlite3.DataError) as error:
            is_forbidden = getattr(error, "sqlite_errorcode", None) == sqlite3.SQLITE_AUTH
            fault = "a view is in the place of a table" if is_forbidden else error
            raise InputError(f"{path} — is damaged: {fault} — copy or export it again") from error
        finally:
            connection.close()


@dataclass(frozen=True, slots=True)
class SqliteTables:
    """Reads an open SQLite file; `stream` is the same file, if its pages may be read directly.

    Threads may call it at once: a lock separates them if SQLite does not.
    """

    path: Path
    connection: sqlite3.Connection
    columns: Mapping[str, tuple[str, ...]]
    stream: io.FileIO | None
    lock: AbstractContextManager[object]

    def select(self, sql: str, values: Sequence[object]) -> list[tuple[Any, ...]]:
        """Return all rows of a query."""
        with self.lock:
            return list(self._rows(self.connection.execute(sql, values)))

    def has_rows(self, table: str) -> bool:
        """Return whether the table has a row."""
        ((found,),) = self.select(f"SELECT EXISTS (SELECT 1 FROM {quote(table)})", ())
        return bool(found)

    def row_count(self, table: str) -> int:
        """Return the number of rows."""
        ((rows,),) = self.select(f"SELECT COUNT(*) FROM {quote(table)}", ())
        return int(rows)

    def read_frame(self, wanted: Wanted, progress: Progress) -> pl.DataFrame:
        """Return columns of a table, int64 or text, in row order: from pages, or by SQLite in blocks."""
        with self.lock:
            found = read_columns(self.stream, self.connection, wanted, progress) if self.stream else None
            return wanted.number(self._by_sqlite(wanted, progress)) if found is None else found

    def _by_sqlite(self, wanted: Wanted, progress: Progress) -> pl.DataFrame:
        nothing = {
            **dict.fromkeys(wanted.all_integers, pl.Int64()),
            **dict.fromkeys(wanted.texts, pl.String()),
        }
        return pl.concat([pl.DataFrame(schema=nothing), *self._chunks(wanted, progress)])

    def _chunks(self, wanted: Wanted, progress: Progress) -> Iterator[pl.DataFrame]:
        cursor = self.connection.execute(*_write_query(wanted))
        row_count, every = 0, self._rows(cursor) if wanted.texts else cursor
        while rows := list(islice(every, _ROWS_A_CHUNK)):
            try:
                yield _frame(rows, wanted.all_integers, wanted.texts)
            except (TypeError, OverflowError) as error:
                raise InputError(
                    f"{self.path} — table {wanted.table} has a value that is not an integer, near row"
                    f" {row_count:,} — export the report again"
                ) from error
            row_count += len(rows)
            progress(f"reading {wanted.table}: {row_count:,} rows")

    def _rows(self, cursor: sqlite3.Cursor) -> Iterator[tuple[Any, ...]]:
        """Yield rows until their texts are longer than a file of that size can contain.

        Records of a damaged file may share their bytes, which SQLite then copies for each of them.
        """
        ((page_bytes, page_count, _),) = self.connection.execute(read_query("pages"))
        left_bytes = _FEW_BYTES + _MOST_TIMES * page_bytes * page_count
        while rows := cursor.fetchmany(_ROWS_AT_ONCE):
            left_bytes -= sum(len(value) for row in rows for value in row if isinstance(value, str | bytes))
            if left_bytes < 0:
                raise sqlite3.DatabaseError("its texts are longer than the file")
            yield from rows


def _open_sqlite(path: Path, connection: sqlite3.Connection, stream: io.FileIO | None) -> SqliteTables:
    try:
        tables = [str(name) for (name,) in connection.execute(read_query("tables"))]
    except UnicodeDecodeError as error:  # SQLite's message about the schema quotes bytes of it
        raise InputError(f"{path} — is damaged: its schema is not text — copy or export it again") from error
    forbidden = {str(name).lower() for (name,) in connection.execute(read_query("not_tables"))}
    names = {
        table: tuple(str(name) for (name,) in connection.execute(read_query("columns"), (table,)))
        for table in tables
    }
    is_shareable = HAS_OWN_PLACES and sqlite3.threadsafety == _SERIALIZED
    if forbidden:
        _forbid(connection, forbidden)
        is_shareable = False
    return SqliteTables(path, connection, names, stream, nullcontext() if is_shareable else Lock())


def _forbid(connection: sqlite3.Connection, names: set[str]) -> None:
    """Let no query read these views and virtual tables, also where it joins them to a table.

    SQLite calls the function while it holds the connection, and Python needs its own lock to run it. A thread
    that passes a value to a query holds Python's lock and waits for the connection. So threads take turns.
    """

    def judge(action: int, first: str | None, _: str | None, __: str | None, inside: str | None) -> int:
        read = first if action == sqlite3.SQLITE_READ else None
        is_forbidden = any(name is not None and name.lower() in names for name in (read, inside))
        return sqlite3.SQLITE_DENY if is_forbidden else sqlite3.SQLITE_OK

    connection.set_authorizer(judge)


def _write_query(wanted: Wanted) -> tuple[str, tuple[str, ...]]:
    values = [f"IFNULL({quote(column)}, {NULL + 1} - 1)" for column in wanted.all_integers]
    values.extend(f"CAST({quote(column)} AS TEXT)" for column in wanted.texts)
    sql = f"SELECT {', '.join(values)} FROM {quote(wanted.table)} NOT INDEXED"
    if wanted.keys is None:
        return sql, ()
    names = ", ".join(quote(column) for column in wanted.keys.columns)
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
    series = [make_nullable(name, column.copy()) for name, column in zip(integers, numbers, strict=True)]
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


@dataclass(frozen=True, slots=True)
class FolderTables:
    """Reads the files of a folder; created by `folder_tables`."""

    path: Path
    files: Mapping[str, Path]
    columns: Mapping[str, tuple[str, ...]]

    def select(self, sql: str, values: Sequence[object]) -> list[tuple[Any, ...]]:
        """Return all rows of a query that spells each table and column as the export does."""
        words = set(_WORD.findall(sql))
        with closing(sqlite3.connect(":memory:")) as memory:
            try:
                for table in self.files.keys() & words:
                    self._load(memory, table, words)
                return memory.execute(sql, values).fetchall()
            except (sqlite3.Error, ValueError) as error:
                raise InputError(f"{self.path} — is damaged: {error} — export the report again") from error

    def has_rows(self, table: str) -> bool:
        """Return whether the table has a row."""
        return self.row_count(table) > 0

    def row_count(self, table: str) -> int:
        """Return the number of rows from the file's metadata."""
        file = self.files[table]
        with _errors_about(file):
            return measure_table(file).rows

    def read_frame(self, wanted: Wanted, progress: Progress) -> pl.DataFrame:
        """Return columns of a table, int64 or text, in row order."""
        progress(f"reading {wanted.table}")
        file = self.files[wanted.table]
        rows = _read(file, [*wanted.all_integers, *wanted.texts])
        with _errors_about(file):
            plain = rows.select(
                *(_to_int64(rows[column], file) for column in wanted.all_integers),
                *(rows[column].cast(pl.String) for column in wanted.texts),
            )
        keys = wanted.keys
        return wanted.number(plain if keys is None else plain.join(keys, on=keys.columns, how="semi"))

    def _load(self, memory: sqlite3.Connection, table: str, words: set[str]) -> None:
        """Copy the columns named among the words; a table without any keeps its row count."""
        columns = self.columns[table]
        rows = _read(self.files[table], [column for column in columns if column in words] or columns[:1])
        with _errors_about(self.files[table]):
            plain = rows.select(_to_sqlite_type(column) for column in rows)
        names = ", ".join(quote(column) for column in plain.columns)
        marks = ", ".join("?" * plain.width)
        memory.execute(f'CREATE TABLE "{table}" ({names})')
        memory.executemany(f'INSERT INTO "{table}" VALUES ({marks})', plain.iter_rows())
        if "id" in plain.columns:
            memory.execute(f'CREATE INDEX "{table} by id" ON "{table}" (id)')


def open_folder(path: Path) -> FolderTables:
    """Return the tables of a folder, whose files are complete by their first and last bytes.

    Raises:
        InputError: the folder is not an export, or a file is damaged.
    """
    files = list_table_files(path)
    return FolderTables(path, files, {table: _read_column_names(file) for table, file in files.items()})


def _read_column_names(file: Path) -> tuple[str, ...]:
    with _errors_about(file):
        if file.suffix == ".parquet":
            return tuple(_scan(file).collect_schema())
        return tuple(pl.read_ipc_stream(file.absolute(), n_rows=0).columns)


def _read(file: Path, columns: Sequence[str]) -> pl.DataFrame:
    with _errors_about(file):
        needed_bytes = measure_table(file).cost_bytes(columns)
        refuse_oversize(file, needed_bytes)
        if file.suffix == ".parquet":
            found = _scan(file).select(columns).collect()
        else:
            found = pl.read_ipc_stream(file.absolute(), columns=list(columns))
        texts = [column for column in found if column.dtype == pl.String]
        refuse_oversize(file, needed_bytes + sum(int(text.str.len_bytes().sum()) for text in texts))
        return found.select(columns)


def _scan(file: Path) -> pl.LazyFrame:
    """Return the file with polars' wildcards (~ and *) escaped."""
    return pl.scan_parquet(file.absolute(), glob=False, hive_partitioning=False)


def _to_sqlite_type(column: pl.Series) -> pl.Series:
    """Return the column in a type that SQLite has."""
    if column.dtype.is_integer() or column.dtype in (pl.Boolean, pl.Null):
        return column.cast(pl.Int64, wrap_numerical=True)
    if column.dtype.is_float() or column.dtype == pl.Binary:
        return column
    return column.cast(pl.String)


def _to_int64(column: pl.Series, file: Path) -> pl.Series:
    plain = _to_sqlite_type(column)
    if plain.dtype != pl.Int64:
        raise InputError(
            f"{file} — column {column.name} has a value that is not an integer — export the report again"
        )
    return plain


@contextmanager
def _errors_about(file: Path) -> Iterator[None]:
    """Report which file polars cannot read, without polars' message, which may quote the content."""
    try:
        yield
    except (pl.exceptions.PolarsError, pl.exceptions.PanicException, OSError, ValueError) as error:
        raise InputError(
            f"{file} — is damaged inside, or has text that is not UTF-8 — copy the folder again, or export"
            " the report as one file: nsys export --type sqlite"
        ) from error


def resolve_export(path: Path, progress: Progress) -> Path:
    """Return the file to read: the path itself, or the export that `nsys` made of a report.

    Without nsys, a report is returned as it is, and reading it fails with a hint to export it.

    Raises:
        InputError: nsys does not export the report, or the cache cannot be written.
    """
    found = shutil.which("nsys")
    if found is None or not is_report(path):
        return path
    nsys = Path(found).absolute()
    cache = user_cache()
    try:
        name = f"{fingerprint(path, content_size_bytes(path))}.sqlite"
        kept = cache.make_folder(EntryKind.EXPORTS) / name
        if not (cache.is_trustworthy(EntryKind.EXPORTS, name) and _is_complete_export(kept)):
            progress(f"exporting {_make_harmless(path.name)} with nsys")
            _export(nsys, path, kept)
            cache.trim(EntryKind.EXPORTS, name)
    except OSError as error:
        raise InputError(
            f"{path} — cannot be exported aside: {error.strerror} — export it: nsys export --type sqlite"
        ) from error
    cache.touch(EntryKind.EXPORTS, name)
    return kept


def _export(nsys: Path, report: Path, kept: Path) -> None:
    """Export under another name, check the result, then rename: the final name always has a complete file."""
    with tempfile.TemporaryDirectory(prefix=ASIDE, dir=kept.parent) as aside:
        made = Path(aside) / "export.sqlite"
        options = ("-q", "true", "-t", "sqlite", "-f", "true", "-o", str(made))
        ran = subprocess.run(  # noqa: S603  # no shell; nsys belongs to the user
            [nsys, "export", *options, str(report.absolute())],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            cwd=aside,
            check=False,
        )
        if ran.returncode != 0 or not _is_complete_export(made):
            reason = _find_reason(ran, report.absolute(), Path(aside))
            raise InputError(
                f"{report} — nsys cannot export it: {reason} — export it with the nsys that captured it:"
                " nsys export --type sqlite"
            )
        made.chmod(0o600)  # otherwise a umask of 002 lets others write it
        made.replace(kept)


def _is_complete_export(export: Path) -> bool:
    try:
        check_file(export)
    except InputError:
        return False
    return True


def _find_reason(ran: subprocess.CompletedProcess[bytes], *places: Path) -> str:
    """Return the first line that nsys wrote, without paths of this machine."""
    lines = ran.stderr.decode("utf-8", "replace").splitlines()
    line = next((shown for each in lines if (shown := each.strip())), None)
    if line is None:
        return f"it wrote no complete export and ended with code {ran.returncode}"
    for place in places:
        line = re.sub(re.escape(str(place)) + _REST_OF_PATH, "<path>", line)
    return _make_harmless(_LOCAL_PATH.sub("<path>", line).replace("—", "-").rstrip("."))


def _make_harmless(text: str) -> str:
    """Return the text on one line, without control characters, cut to 200 letters."""
    shown = "".join(letter if letter.isprintable() else "?" for letter in text)
    return shown if len(shown) <= _MOST_LETTERS else shown[: _MOST_LETTERS - 1] + "…"
