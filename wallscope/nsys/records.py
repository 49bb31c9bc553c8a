"""Columns of a table, taken straight out of its records in an SQLite file.

The numbers beside the steps are sections of https://www.sqlite.org/fileformat2.html. `columns` gives `None`
for a table that SQLite has to read: one that is not plain, or a damaged one.
"""

import io
import mmap
import re
import sqlite3
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import polars as pl

from wallscope.model.capture import Progress
from wallscope.nsys.pages import SPARE_BYTES, Numbers, Pages, UnusualError, leaves, pages_of, records
from wallscope.nsys.tables import Wanted
from wallscope.nsys.values import NULL, Layout, Stored, decoded
from wallscope.shipped import query

_MOST_COLUMNS = 126
"""Their types and the length itself fit in a record header whose length is one byte."""
_ROWS_A_REPORT = 100_000
_LARGE_ROWS = 500_000
"""From 4 MiB on numpy asks for huge pages."""

_REALS = ("REAL", "FLOA", "DOUB")
_INTEGER = re.compile(r"[+-]?\d{1,18}")


@dataclass(slots=True)
class _Growing:
    """The wanted columns as they grow: integers in their final place, texts in parts."""

    numbers: dict[str, Numbers]
    texts: dict[str, list[pl.Series]]
    row_count: int = 0

    def append(self, found: Mapping[str, Numbers | pl.Series], read_share: float) -> None:
        """Add the values of some rows, with which this share of the table has been read."""
        start, self.row_count = self.row_count, self.row_count + len(next(iter(found.values())))
        for name, values in found.items():
            if isinstance(values, pl.Series):
                self.texts[name].append(values)
                continue
            if self.row_count > len(self.numbers[name]):
                room = _room(int(self.row_count / read_share * 1.1))
                room[:start] = self.numbers[name][:start]
                self.numbers[name] = room
            self.numbers[name][start : self.row_count] = values

    def frame(self) -> pl.DataFrame:
        """All that was added, which is no longer here then."""
        numbers = [nullable(name, self.numbers.pop(name)[: self.row_count]) for name in list(self.numbers)]
        none = pl.Series([], dtype=pl.String)
        texts = [pl.concat([none, *parts], rechunk=True).alias(name) for name, parts in self.texts.items()]
        return pl.DataFrame([*numbers, *texts])


def _room(row_count: int) -> Numbers:
    """Room for integers, in small pages of memory: the huge ones that numpy asks for take longer to get."""
    if row_count < _LARGE_ROWS:
        return np.empty(row_count, np.int64)
    return np.frombuffer(mmap.mmap(-1, 8 * row_count, access=mmap.ACCESS_COPY), np.int64)


def columns(
    stream: io.FileIO, connection: sqlite3.Connection, wanted: Wanted, progress: Progress
) -> pl.DataFrame | None:
    """Columns of a table, int64 or text, in row order; `None` where SQLite has to read it.

    The connection is open on the same file as the stream, and tells what the schema says.
    """
    table = wanted.table
    progress(f"reading {table}")
    growing = _Growing(
        {name: np.empty(0, np.int64) for name in wanted.integers}, {name: [] for name in wanted.texts}
    )
    try:
        layout = _layout(connection, wanted)
        pages = _pages(connection, stream)
        of_table = leaves(pages, _root(connection, table))
        read_bytes, reported = 0, _ROWS_A_REPORT
        for flat in pages.chunks(of_table):
            read_bytes += len(flat) - SPARE_BYTES
            found = decoded(records(pages, flat), layout)
            if wanted.keys is not None:
                found = _kept(found, wanted.keys)
            growing.append(found, read_bytes / (len(of_table) * pages.page_bytes))
            if growing.row_count >= reported:
                reported = growing.row_count + _ROWS_A_REPORT
                progress(f"reading {table}: {growing.row_count:,} rows")
    except UnusualError as reason:
        progress(f"reading {table} row by row: {reason}")
        return None
    except OSError as reason:
        progress(f"reading {table} row by row: {reason.strerror}")
        return None
    return growing.frame()


def nullable(name: str, numbers: Numbers) -> pl.Series:
    """The numbers as a column, with `NULL` as null."""
    column = pl.Series(name, numbers)
    return column.set(column == NULL, None) if column.min() == NULL else column


def _layout(connection: sqlite3.Connection, wanted: Wanted) -> Layout:
    """Where the wanted columns are in a record (2.3), if the table's tree is keyed by row numbers (2.4)."""
    if connection.execute(query("key_indexes"), (wanted.table,)).fetchone():
        raise UnusualError("its key is kept in an index")
    by_place: dict[int, Stored] = {}
    stored = connection.execute(query("stored_columns"), (wanted.table,)).fetchall()
    for place, (name, declared_type, is_key, is_computed, default_sql) in enumerate(stored):
        # a REAL column stores whole numbers as integers; its values are none
        is_real = name in wanted.integers and any(word in declared_type for word in _REALS)
        if is_computed or is_real:
            raise UnusualError(f"column {name} is not stored as it reads")
        if name in wanted.integers or name in wanted.texts:
            is_number = default_sql is not None and "INT" in declared_type and _INTEGER.fullmatch(default_sql)
            by_place[place] = Stored(
                name,
                is_text=name in wanted.texts,
                is_row_number=bool(is_key),
                default=int(default_sql) if is_number else None,
                is_default_known=default_sql is None or bool(is_number),
            )
    asked = len(wanted.integers) + len(wanted.texts)
    if not by_place or len(by_place) < asked or max(by_place) >= _MOST_COLUMNS:
        raise UnusualError("it has very many columns, or others than it had")
    return Layout(by_place, len(stored))


def _pages(connection: sqlite3.Connection, stream: io.FileIO) -> Pages:
    ((page_bytes, page_count, encoding),) = connection.execute(query("pages"))
    if encoding != "UTF-8":
        raise UnusualError("its texts are no UTF-8")
    return pages_of(stream, page_bytes, page_count)


def _root(connection: sqlite3.Connection, table: str) -> int:
    match connection.execute(query("root_page"), (table,)).fetchall():
        case [(int(root),)]:
            return root
    raise UnusualError("it does not begin in the file")


def _kept(found: Mapping[str, Numbers | pl.Series], keys: pl.DataFrame) -> dict[str, Numbers | pl.Series]:
    """The values of the rows whose keys are among these."""
    told = pl.DataFrame({name: found[name] for name in keys.columns}).with_row_index("row")
    rows = np.sort(told.join(keys, on=keys.columns, how="semi")["row"].to_numpy())
    return {
        name: values.gather(rows) if isinstance(values, pl.Series) else values[rows]
        for name, values in found.items()
    }
