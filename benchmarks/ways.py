"""One way to read an export, run alone in a fresh process; prints the seconds of the work without imports.

python -m benchmarks.ways WAY FILE
"""

import contextlib
import io
import sqlite3
import sys
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path

from wallscope.nsys.tables import CALLS, COPIES, FILLS, KERNELS, RANGES, CatalogTable

BESIDE = ((KERNELS, COPIES, FILLS), (CALLS, RANGES))  # as an analysis reads them, on two threads
TABLES = (*BESIDE[0], *BESIDE[1])


def raw_file(path: Path) -> Callable[[], object]:
    """The bytes of the file, which the system holds in memory: nothing that reads it all is faster."""

    def work() -> None:
        room = bytearray(1 << 20)
        with path.open("rb", buffering=0) as stream:
            while stream.readinto(room):
                pass

    return work


def scan_one(path: Path) -> Callable[[], object]:
    """Count the rows of each table and add up one column, by SQLite."""
    return _scan(path, {table.name: table.columns[:1] for table in TABLES})


def scan_all(path: Path) -> Callable[[], object]:
    """Count the rows of each table and add up each column that is read, by SQLite."""
    return _scan(path, {table.name: _columns(table) for table in TABLES})


def _scan(path: Path, columns: dict[str, tuple[str, ...]]) -> Callable[[], object]:
    connection = sqlite3.connect(f"{path.absolute().as_uri()}?mode=ro&immutable=1", uri=True)

    def work() -> None:
        for table, names in columns.items():
            sums = ", ".join(f'TOTAL("{name}")' for name in names)
            connection.execute(f"SELECT COUNT(*), {sums} FROM {table}").fetchall()

    return work


def _columns(table: CatalogTable) -> tuple[str, ...]:
    return (*table.columns, *table.texts)


def pages(path: Path) -> Callable[[], object]:
    """All columns as wallscope reads them."""
    return _tables(path, "pages")


def by_sqlite(path: Path) -> Callable[[], object]:
    """All columns as wallscope reads them with `--reader sqlite`."""
    return _tables(path, "sqlite")


def _tables(path: Path, reader: str) -> Callable[[], object]:
    from wallscope.model.enums import Reader  # noqa: PLC0415
    from wallscope.nsys.sources import open_tables  # noqa: PLC0415
    from wallscope.nsys.tables import Database, make_database, read_table  # noqa: PLC0415
    from wallscope.process_tuning import run_both  # noqa: PLC0415  # the other ways do without

    def work() -> object:
        with open_tables(path, reader=Reader(reader)) as tables:
            source = make_database(path, tables)
            first, second = (partial(read_all, source, own) for own in BESIDE)
            return run_both(first, second)

    def read_all(source: Database, own: tuple[CatalogTable, ...]) -> object:
        return [read_table(source, table, lambda _: None) for table in own]

    return work


def pandas(path: Path) -> Callable[[], object]:
    """All columns by `pandas.read_sql`."""
    from pandas import read_sql_query  # noqa: PLC0415

    connection = sqlite3.connect(f"{path.absolute().as_uri()}?mode=ro&immutable=1", uri=True)

    def work() -> object:
        named = {table.name: ", ".join(f'"{name}"' for name in _columns(table)) for table in TABLES}
        return [read_sql_query(f"SELECT {names} FROM {table}", connection) for table, names in named.items()]

    return work


def analyze(path: Path) -> Callable[[], object]:
    """`wallscope analyze FILE`."""
    return _analyze(path, "pages")


def analyze_by_sqlite(path: Path) -> Callable[[], object]:
    """`wallscope analyze FILE --reader sqlite`."""
    return _analyze(path, "sqlite")


def _analyze(path: Path, reader: str) -> Callable[[], object]:
    from wallscope.cli import app  # noqa: PLC0415

    def work() -> None:
        with contextlib.redirect_stdout(io.StringIO()):
            app(["analyze", str(path), "--no-cache", "--reader", reader], standalone_mode=False)

    return work


WAYS = {
    "read all bytes of the file": raw_file,
    "SQL: number of rows and sum of one column of each table": scan_one,
    "SQL: number of rows and sum of each column of each table": scan_all,
    "wallscope reads the pages of the database": pages,
    "wallscope reads through SQLite": by_sqlite,
    "pandas.read_sql, same columns": pandas,
    "wallscope analyze": analyze,
    "wallscope analyze --reader sqlite": analyze_by_sqlite,
}


if __name__ == "__main__":
    job = WAYS[sys.argv[1]](Path(sys.argv[2]))
    began_s = time.perf_counter()
    job()
    sys.stdout.write(f"{time.perf_counter() - began_s}\n")
