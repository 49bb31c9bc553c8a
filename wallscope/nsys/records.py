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
from wallscope.nsys.pages import (
    SPARE_BYTES,
    Flat,
    Numbers,
    Pages,
    Records,
    UnusualError,
    leaves,
    long_varints,
    pages_of,
    records,
    varints,
    view,
)
from wallscope.nsys.tables import Wanted
from wallscope.shipped import query

NULL = -(2**63)
"""Stands for NULL among integers on the way; no time or id of an export is that small."""

_MOST_COLUMNS = 126
"""Their types and the length itself fit in a record header whose length is one byte."""
_ROWS_A_REPORT = 100_000
_LARGE_ROWS = 500_000
"""From 4 MiB on numpy asks for huge pages."""

_ONE_BYTE = np.arange(128)
_WIDTHS = np.where(
    _ONE_BYTE < 12, np.resize([0, 1, 2, 3, 4, 6, 8, 8, 0, 0, 0, 0], 128), (_ONE_BYTE - 12) // 2
)
"""Bytes of a value, for the serial types that fit in one byte (2.1)."""
_NULL_TYPE, _REAL_TYPE, _ONE_TYPE, _SHORTEST_TEXT = 0, 7, 9, 13
_SHIFTS = (64 - 8 * _WIDTHS[: _ONE_TYPE + 1]) % 64
_CONSTANTS = np.array([NULL, 0, 0, 0, 0, 0, 0, 0, 0, 1])
"""The values of integer types that take no byte: NULL, zero, one."""

_REALS = ("REAL", "FLOA", "DOUB")
_INTEGER = re.compile(r"[+-]?\d{1,18}")


@dataclass(frozen=True, slots=True)
class _Stored:
    """A wanted column as the schema tells: whether it is text or the row's number, what old rows have."""

    name: str
    is_text: bool
    is_row_number: bool
    default: int | None
    is_default_known: bool


@dataclass(frozen=True, slots=True)
class _Layout:
    """The wanted columns by their places in a record, and how many columns the table has (2.3)."""

    wanted: Mapping[int, _Stored]
    width: int


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
            found = _decoded(records(pages, flat), layout)
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


def text(raw: bytes) -> str:
    """Text of an export; those made on Windows hold bytes that are no UTF-8."""
    return raw.decode("utf-8", "replace")


def _layout(connection: sqlite3.Connection, wanted: Wanted) -> _Layout:
    """Where the wanted columns are in a record (2.3), if the table's tree is keyed by row numbers (2.4)."""
    if connection.execute(query("key_indexes"), (wanted.table,)).fetchone():
        raise UnusualError("its key is kept in an index")
    by_place: dict[int, _Stored] = {}
    stored = connection.execute(query("stored_columns"), (wanted.table,)).fetchall()
    for place, (name, declared_type, is_key, is_computed, default_sql) in enumerate(stored):
        # a REAL column stores whole numbers as integers; its values are none
        is_real = name in wanted.integers and any(word in declared_type for word in _REALS)
        if is_computed or is_real:
            raise UnusualError(f"column {name} is not stored as it reads")
        if name in wanted.integers or name in wanted.texts:
            is_number = default_sql is not None and "INT" in declared_type and _INTEGER.fullmatch(default_sql)
            by_place[place] = _Stored(
                name,
                is_text=name in wanted.texts,
                is_row_number=bool(is_key),
                default=int(default_sql) if is_number else None,
                is_default_known=default_sql is None or bool(is_number),
            )
    asked = len(wanted.integers) + len(wanted.texts)
    if not by_place or len(by_place) < asked or max(by_place) >= _MOST_COLUMNS:
        raise UnusualError("it has very many columns, or others than it had")
    return _Layout(by_place, len(stored))


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


def _decoded(found: Records, layout: _Layout) -> dict[str, Numbers | pl.Series]:
    """The values of records, of the wanted columns."""
    flat, starts, ends = found.flat, found.starts, found.ends
    header_bytes = flat.take(starts)
    if not 2 <= header_bytes.min() <= header_bytes.max() <= 127:
        raise UnusualError("a record has a long header, or an empty one, which SQLite takes for damage")
    # 2.1: the types stand in the header, one behind the other, and so do the values behind it
    header_ends = starts + header_bytes
    type_at, value_at = starts + 1, header_ends.copy()
    may_be_short = header_bytes.min() <= layout.width  # a type takes a byte or more, the length itself one
    words = view(flat, ">i8")
    values: dict[str, Numbers | pl.Series] = {}
    for place in range(max(layout.wanted) + 1):
        types, behind = varints(flat, type_at)
        absent = type_at >= header_ends if may_be_short else None
        if absent is not None and absent.any():
            types, behind = np.where(absent, _NULL_TYPE, types), np.where(absent, type_at, behind)
        widths = _widths(types)
        if column := layout.wanted.get(place):
            values[column.name] = (
                _texts(flat, value_at, widths, types) if column.is_text else _integers(words, value_at, types)
            )
            if column.is_row_number:
                values[column.name] = _row_numbers(found, types, column)
            elif absent is not None:
                _set_default(values[column.name], absent, column)
        type_at, value_at = behind, value_at + widths
        if types.max() > 127 and (value_at > ends).any():
            raise UnusualError("a value reaches out of its record")
    goes_on = (type_at < header_ends) & (value_at <= ends)
    is_complete = (type_at == header_ends) & (value_at == ends)
    if not (goes_on | is_complete).all():
        raise UnusualError("a record is not as long as it says")
    return values


def _kept(found: Mapping[str, Numbers | pl.Series], keys: pl.DataFrame) -> dict[str, Numbers | pl.Series]:
    """The values of the rows whose keys are among these."""
    told = pl.DataFrame({name: found[name] for name in keys.columns}).with_row_index("row")
    rows = np.sort(told.join(keys, on=keys.columns, how="semi")["row"].to_numpy())
    return {
        name: values.gather(rows) if isinstance(values, pl.Series) else values[rows]
        for name, values in found.items()
    }


def _row_numbers(found: Records, types: Numbers | Flat, column: _Stored) -> Numbers:
    """The numbers of the rows, for which a record holds NULL (2.3)."""
    if column.is_text or types.any():
        raise UnusualError(f"column {column.name} is no row number")
    return long_varints(found.flat, found.row_numbers_at)


def _set_default(values: Numbers | pl.Series, absent: np.typing.NDArray[np.bool_], column: _Stored) -> None:
    """Rows from before a column was added hold nothing for it, and read as its default (2.3)."""
    if not column.is_default_known and absent.any():
        raise UnusualError(f"column {column.name} was added later")
    if column.default is not None and isinstance(values, np.ndarray):
        values[absent] = column.default


def _integers(words: Numbers, at: Numbers, types: Numbers | Flat) -> Numbers:
    """Integers of up to eight bytes: the first of eight bytes, shifted down (2.1)."""
    low, high = int(types.min()), int(types.max())
    if high > _ONE_TYPE or (low <= _REAL_TYPE <= high and (types == _REAL_TYPE).any()):
        raise UnusualError("a value is no integer")
    if low == high and not _WIDTHS[low]:
        return np.full(len(at), _CONSTANTS[low])
    numbers = words[at].astype(np.int64)
    numbers >>= _SHIFTS[low] if low == high else _SHIFTS.take(types)
    if low == _NULL_TYPE or high > _REAL_TYPE:
        bare = np.flatnonzero((types == _NULL_TYPE) | (types > _REAL_TYPE))
        numbers[bare] = _CONSTANTS.take(types[bare])
    return numbers


def _texts(flat: Flat, at: Numbers, widths: Numbers | int, types: Numbers | Flat) -> pl.Series:
    """Texts, each as long as its type tells (2.1)."""
    is_null = types == _NULL_TYPE
    if is_null.all():
        return pl.Series([None], dtype=pl.String).new_from_index(0, len(at))
    if (~is_null & ((types < _SHORTEST_TEXT) | (types % 2 == 0))).any():
        raise UnusualError("a value is no text")
    raw = flat.tobytes()
    characters = raw.decode("latin-1")  # of one byte each, and those of ASCII are what they should be
    spans = zip(at.tolist(), (at + widths).tolist(), is_null.tolist(), strict=True)
    return pl.Series(
        [
            None if null else plain if (plain := characters[start:end]).isascii() else text(raw[start:end])
            for start, end, null in spans
        ],
        dtype=pl.String,
    )


def _widths(types: Numbers | Flat) -> Numbers | int:
    """Bytes of values by their serial types (2.1)."""
    low, high = int(types.min()), int(types.max())
    if high > 127:
        return np.where(types < 12, _WIDTHS.take(np.minimum(types, 11)), (types.astype(np.int64) - 12) // 2)
    return int(_WIDTHS[low]) if low == high else _WIDTHS.take(types)
