"""Read columns of a table directly from the pages of an SQLite file.

SQLite returns values one by one. Here a compiled loop reads the wanted columns from many pages at once. The
numbers in comments are sections of https://www.sqlite.org/fileformat2.html.

Nothing is repaired or guessed. Anything that breaks a rule that SQLite checks, or that is rare, is unusual.
`read_columns` then returns `None`, and SQLite reads that table or reports the damage.
"""

import io
import os
import re
import sqlite3
from collections.abc import Iterator, Mapping
from itertools import pairwise
from typing import Any

import numpy as np
import polars as pl
from numpy.typing import NDArray

from wallscope.files import read_query
from wallscope.kernels import sqlite_records, views
from wallscope.model.capture import Progress
from wallscope.nsys.tables import NULL, DistinctRows, Numbers, Wanted, make_nullable
from wallscope.records import dataclass

Flat = NDArray[np.uint8]
Column = NDArray[np.integer[Any]]

HAS_OWN_PLACES = hasattr(os, "preadv")
"""Whether several threads can read one open file at different positions."""

_FILE_HEADER_BYTES = 100
_LEAF = 13
_MOST_LEVELS = 16
_CHUNK_BYTES = 1 << 20
_MOST_OVERFLOW_BYTES = 64 << 20
_LEAST_USABLE_BYTES = 480

_MOST_COLUMNS = 126
"""Types and length of the header fit in a record header whose length is one byte."""
_ROWS_A_REPORT = 100_000

_REALS = ("REAL", "FLOA", "DOUB")
_INTEGER = re.compile(r"[+-]?\d{1,18}")
_WANTED_INTEGER, _WANTED_TEXT, _WANTED_ROW_NUMBER = 1, 2, 3
_SEPARATOR = 0
"""A byte that is rare in texts."""

_REASONS = {
    -2: "a page has another kind, or too many or no cells",
    -3: "a cell or a record exceeds its page",
    -4: "a record does not have its stated length, or its header is long or empty",
    -5: "a value does not have the type of its column",
    -6: "a column was added later",
    -7: "a page number in its tree is wrong",
}
"""Faults that the loops detect, by the numbers that they return."""


class UnusualError(Exception):
    """Why SQLite has to read the table."""


@dataclass(frozen=True, slots=True)
class _Pages:
    """An open file of pages, counted from one (1.2, 1.3), and the pages already read.

    Pages are read, not mapped: if a mapped file shrinks, the program crashes.
    """

    stream: io.FileIO
    page_bytes: int
    usable_bytes: int
    seen: Flat

    def visit(self, numbers: Numbers) -> None:
        """Count the pages as read: in one table, each is read once."""
        lock_page = 2**30 // self.page_bytes + 1
        _check_count(sqlite_records.visit(*views(numbers, lock_page, self.seen)))

    def chunks(self, numbers: Numbers) -> Iterator[Flat]:
        """Yield the pages in chunks that fit into a processor cache.

        Each chunk reuses the memory of the previous one.
        """
        stride = max(1, min(len(numbers), _CHUNK_BYTES // self.page_bytes))
        flat = np.empty(stride * self.page_bytes, np.uint8)
        for start in range(0, len(numbers), stride):
            chunk = numbers[start : start + stride]
            edges = [0, *(np.flatnonzero(np.diff(chunk) != 1) + 1).tolist(), len(chunk)]
            for first, past in pairwise(edges):
                place = (int(chunk[first]) - 1) * self.page_bytes
                _read_into(self.stream, place, flat[first * self.page_bytes : past * self.page_bytes])
            yield flat[: len(chunk) * self.page_bytes]

    def read_overflow(self, number: int, wanted_bytes: int) -> Iterator[Flat]:
        """Yield the rest of a record: each overflow page begins with the number of the next (1.6)."""
        while wanted_bytes > 0:
            self.visit(np.array([number]))
            page = np.empty(self.usable_bytes, np.uint8)
            _read_into(self.stream, (number - 1) * self.page_bytes, page)
            content = page[4 : 4 + wanted_bytes]
            number = int.from_bytes(page[:4].tobytes(), "big")
            wanted_bytes -= len(content)
            yield content


@dataclass(frozen=True, slots=True)
class _RecordLayout:
    """The wanted columns in a record for the loops, and which rows of the values each fills.

    Columns whose rows are numbered together fill rows that follow one another.
    """

    wanted: Numbers
    filled_rows: int
    integers: Mapping[str, int]
    texts: Mapping[str, int]
    numbered: Mapping[str, tuple[slice, DistinctRows]]


@dataclass(slots=True)
class _Growing:
    """The wanted columns while they grow: integers in their final place, texts in parts."""

    numbers: dict[str, Column]
    texts: dict[str, list[pl.Series]]
    row_count: int = 0

    def append(self, found: Mapping[str, Column | pl.Series], read_share: float) -> None:
        """Add the values of some rows, with which this share of the table has been read."""
        start, self.row_count = self.row_count, self.row_count + len(next(iter(found.values())))
        for name, values in found.items():
            if isinstance(values, pl.Series):
                self.texts[name].append(values)
                continue
            if self.row_count > len(self.numbers[name]):
                room = np.empty(int(self.row_count / read_share * 1.1), values.dtype)
                room[:start] = self.numbers[name][:start]
                self.numbers[name] = room
            self.numbers[name][start : self.row_count] = values

    def frame(self) -> pl.DataFrame:
        """Return everything added, and forget it."""
        numbers = [make_nullable(name, self.numbers.pop(name)[: self.row_count]) for name in [*self.numbers]]
        none = pl.Series([], dtype=pl.String)
        texts = [pl.concat([none, *parts], rechunk=True).alias(name) for name, parts in self.texts.items()]
        return pl.DataFrame([*numbers, *texts])


def read_columns(
    stream: io.FileIO, connection: sqlite3.Connection, wanted: Wanted, progress: Progress
) -> pl.DataFrame | None:
    """Return columns of a table, int64, text or numbers, in row order; `None` if SQLite has to read it.

    The connection is open on the same file as the stream, and provides the schema.
    """
    table = wanted.table
    progress(f"reading {table}")
    types = dict.fromkeys(wanted.integers, np.int64) | dict.fromkeys(wanted.numbered, np.uint32)
    growing = _Growing(
        {name: np.empty(0, dtype) for name, dtype in types.items()}, {name: [] for name in wanted.texts}
    )
    try:
        layout = _describe_columns(connection, wanted)
        pages = _open_pages(connection, stream)
        leaves = _find_leaves(pages, _find_root(connection, table))
        read_bytes, reported = 0, _ROWS_A_REPORT
        for flat in pages.chunks(leaves):
            read_bytes += len(flat)
            found = _decode_records(pages, flat, layout)
            if wanted.keys is not None:
                found = _filter(found, wanted.keys)
            growing.append(found, read_bytes / (len(leaves) * pages.page_bytes))
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


def decode_text(raw: bytes) -> str:
    """Return text of an export; exports from Windows have bytes that are not UTF-8."""
    return raw.decode("utf-8", "replace")


def _describe_columns(connection: sqlite3.Connection, wanted: Wanted) -> _RecordLayout:
    """Return the positions of the wanted columns in a record (2.3), if row numbers key the tree (2.4)."""
    if connection.execute(read_query("key_indexes"), (wanted.table,)).fetchone():
        raise UnusualError("its key is kept in an index")
    stored = connection.execute(read_query("stored_columns"), (wanted.table,)).fetchall()
    columns = np.zeros((len(stored), 4), np.int64)
    integers = {name: row for row, name in enumerate(wanted.all_integers)}
    texts = {name: len(integers) + 2 * nth for nth, name in enumerate(wanted.texts)}
    missing, last = len(integers) + len(texts), -1
    for place, (name, declared_type, is_key, is_computed, default_sql) in enumerate(stored):
        is_text, is_integer = name in texts, name in integers
        # a REAL column stores whole numbers as integers, so its values are not used
        if is_computed or (is_integer and any(word in declared_type for word in _REALS)):
            raise UnusualError(f"column {name} is not stored as it reads")
        if not is_text and not is_integer:
            continue
        if is_text and is_key:
            raise UnusualError(f"column {name} is not a row number")
        target = (texts if is_text else integers)[name]
        kind = _WANTED_TEXT if is_text else _WANTED_ROW_NUMBER if is_key else _WANTED_INTEGER
        is_number = default_sql is not None and "INT" in declared_type and _INTEGER.fullmatch(default_sql)
        default = int(default_sql) if is_number else NULL
        columns[place] = kind, target, default_sql is None or bool(is_number and not is_text), default
        missing, last = missing - 1, place
    if last < 0 or missing or last >= _MOST_COLUMNS:
        raise UnusualError("it has very many columns, or others than it had")
    return _RecordLayout(
        wanted=columns[: last + 1],
        filled_rows=len(integers) + 2 * len(texts),
        integers={name: integers[name] for name in wanted.integers},
        texts=texts,
        numbered=wanted.place_groups(),
    )


def _open_pages(connection: sqlite3.Connection, stream: io.FileIO) -> _Pages:
    """Return the pages by the file's header (1.3), if SQLite agrees."""
    ((page_bytes, page_count, encoding),) = connection.execute(read_query("pages"))
    if encoding != "UTF-8":
        raise UnusualError("its texts are not UTF-8")
    header = np.zeros(_FILE_HEADER_BYTES, np.uint8)
    _read_into(stream, 0, header)
    written_bytes = int.from_bytes(header[16:18].tobytes(), "big")
    usable_bytes = page_bytes - int(header[20])
    if (65_536 if written_bytes == 1 else written_bytes) != page_bytes or usable_bytes < _LEAST_USABLE_BYTES:
        raise UnusualError("its header is not what it was")
    return _Pages(stream, page_bytes, usable_bytes, np.zeros(page_count + 1, np.uint8))


def _find_root(connection: sqlite3.Connection, table: str) -> int:
    match connection.execute(read_query("root_page"), (table,)).fetchall():
        case [(int(root),)]:
            return root
    raise UnusualError("it does not begin in the file")


def _read_into(stream: io.FileIO, at: int, room: Flat) -> None:
    """Fill the buffer from a position of the file."""
    if HAS_OWN_PLACES:
        count = os.preadv(stream.fileno(), [room.data], at)
    else:
        stream.seek(at)
        count = stream.readinto(room.data)
    if count != len(room):
        raise UnusualError("the file ends inside a page")


def _find_leaves(pages: _Pages, root: int) -> Numbers:
    """Return the leaf pages of the table that begins at this page, in row order (1.6)."""
    level = np.array([root])
    for depth in range(_MOST_LEVELS):
        pages.visit(level)
        first = next(pages.chunks(level[:1]))
        if first[0] == _LEAF:
            is_empty = depth == 0 and not first[3:5].any()
            return level[:0] if is_empty else level
        level = np.concatenate([_list_children(pages, flat) for flat in pages.chunks(level)])
    raise UnusualError("its tree is too deep")


def _list_children(pages: _Pages, flat: Flat) -> Numbers:
    """Return the pages that interior pages point to, in order."""
    children = np.empty(_count_cells(pages, flat) + len(flat) // pages.page_bytes, np.int64)
    count = _check_count(
        sqlite_records.list_children(*views(flat, pages.page_bytes, pages.usable_bytes, children))
    )
    return children[:count]


def _count_cells(pages: _Pages, flat: Flat) -> int:
    return _check_count(sqlite_records.count_cells(*views(flat, pages.page_bytes)))


def _check_count(count: int) -> int:
    """Return the result of a loop, unless it reported a fault."""
    if count < 0:
        raise UnusualError(_REASONS[count])
    return count


def _decode_records(pages: _Pages, flat: Flat, layout: _RecordLayout) -> dict[str, Column | pl.Series]:
    """Return the wanted columns of the records of leaf pages."""
    row_count = _count_cells(pages, flat)
    values = np.empty((layout.filled_rows, row_count), np.int64)
    overflowing = np.empty((row_count, 5), np.int64)
    count = _check_count(
        sqlite_records.decode_leaves(
            *views(flat, pages.page_bytes, pages.usable_bytes, layout.wanted, NULL, values, overflowing)
        )
    )
    if count:
        flat, places = _gather_overflow(pages, flat, overflowing[:count])
        _check_count(sqlite_records.decode_records(*views(flat, places, layout.wanted, NULL, values)))
    found: dict[str, Column | pl.Series] = {name: values[row] for name, row in layout.integers.items()}
    found |= {name: distinct.number(values[own]) for name, (own, distinct) in layout.numbered.items()}
    for name, row in layout.texts.items():
        found[name] = _make_texts(flat, values[row], values[row + 1])
    return found


def _gather_overflow(pages: _Pages, flat: Flat, overflowing: Numbers) -> tuple[Flat, Numbers]:
    """Return the bytes of pages, followed by their overflowing records, and their positions."""
    places = overflowing.copy()
    if places[:, 2].sum() > _MOST_OVERFLOW_BYTES:
        raise UnusualError("records are very long")
    parts, end = [flat], len(flat)
    for record, (_, start, size, _, here) in enumerate(overflowing.tolist()):
        following = int.from_bytes(flat[start + here : start + here + 4].tobytes(), "big")
        parts.append(flat[start : start + here])
        parts.extend(pages.read_overflow(following, size - here))
        places[record, 1] = end
        end += size
    return np.concatenate(parts), places


def _make_texts(flat: Flat, start: Numbers, length: Numbers) -> pl.Series:
    """Return texts with the given numbers of bytes, null where that is -1.

    They are read together and split by polars at a separator.
    """
    is_there = length >= 0
    count = np.count_nonzero(is_there)
    if not count:
        return pl.Series([None], dtype=pl.String).new_from_index(0, len(start))
    joined = np.empty(int(length.sum(where=is_there)) + count, np.uint8)
    inside = _check_count(sqlite_records.join_texts(*views(flat, start, length, _SEPARATOR, joined)))
    found = _split_texts(joined) if not inside else None
    if found is None:  # a text contains the separator, or is not UTF-8
        raw = flat.tobytes()
        rows = np.flatnonzero(is_there)
        spans = zip(start[rows].tolist(), length[rows].tolist(), strict=True)
        found = pl.Series([decode_text(raw[at : at + size]) for at, size in spans], dtype=pl.String)
    if count == len(start):
        return found
    place = np.cumsum(is_there) - 1
    return found.gather(pl.Series(place).set(pl.Series(~is_there), None))


def _split_texts(joined: Flat) -> pl.Series | None:
    """Return texts that follow each other, each with a separator after it; `None` if not in UTF-8."""
    try:
        text = str(joined[:-1].data, "utf-8")
    except UnicodeDecodeError:
        return None
    return pl.Series([text]).str.split(chr(_SEPARATOR)).explode()


def _filter(found: Mapping[str, Column | pl.Series], keys: pl.DataFrame) -> dict[str, Column | pl.Series]:
    """Return the values of the rows whose keys are among these."""
    own = pl.DataFrame({name: found[name] for name in keys.columns}).with_row_index("row")
    rows = np.sort(own.join(keys, on=keys.columns, how="semi")["row"].to_numpy())
    return {
        name: values.gather(rows) if isinstance(values, pl.Series) else values[rows]
        for name, values in found.items()
    }
