"""What is read from the pages of an SQLite file is what SQLite reads, or is left to SQLite."""

import os
import sqlite3
from contextlib import closing
from dataclasses import fields

import polars as pl
import pytest

from tests.nsys.page_files import EDGES, PAGE_SIZES, changed, check, database, paged, plain
from wallscope import kernels
from wallscope.demo.example import write_example
from wallscope.model.enums import Reader
from wallscope.nsys import read_capture
from wallscope.nsys.sources import open_tables
from wallscope.nsys.sqlite_file import read_columns
from wallscope.nsys.tables import Wanted

# plain tables are read from their pages


@pytest.mark.parametrize("page_bytes", PAGE_SIZES)
@pytest.mark.parametrize("row_count", [0, 1, 300, 4_000], ids="{} rows".format)
def test_tables_of_every_page_size_and_length_are_read_from_their_pages(tmp_path, page_bytes, row_count):
    rows = [(row, EDGES[row % len(EDGES)], f"range {row % 7}", None) for row in range(row_count)]
    path = database(
        tmp_path / "t.sqlite",
        "CREATE TABLE t (start INTEGER NOT NULL, wide INTEGER, text TEXT, bare INTEGER)",
        rows=rows,
        page_bytes=page_bytes,
        auto_vacuum=row_count % 3,
    )

    assert check(path, ["wide", "start", "bare"], ["text"])
    assert paged(path, ["start"])["start"].to_list() == list(range(row_count))


def test_trees_of_several_levels_keep_the_order_of_rows(tmp_path):
    rows = [(row, "x" * (row % 60)) for row in range(20_000)]
    path = database(tmp_path / "t.sqlite", "CREATE TABLE t (a INTEGER, b TEXT)", rows=rows, page_bytes=512)

    assert paged(path, ["a"], ["b"]).rows() == rows


def test_texts_may_be_empty_long_foreign_or_broken(tmp_path):
    texts = ["", "a" * 57, "b" * 58, "c" * 3_900, "größer", "\0", "a\0b", "🚀" * 20, None]
    path = database(tmp_path / "t.sqlite", "CREATE TABLE t (a INTEGER, b TEXT)", rows=list(enumerate(texts)))
    changed(path, "INSERT INTO t VALUES (9, CAST(x'ff41c3' AS TEXT))")

    assert check(path, ["a"], ["b"])
    assert paged(path, [], ["b"])["b"].to_list() == [*texts, "\ufffdA\ufffd"]


@pytest.mark.parametrize("page_bytes", PAGE_SIZES)
def test_records_that_go_on_in_other_pages_are_read_whole(tmp_path, page_bytes):
    lengths = [0, 40, page_bytes - 36, page_bytes - 35, page_bytes, 3 * page_bytes + 7, 200_000]
    rows = [
        (number, "ab" * (length // 2), b"\x07" * length, -number) for number, length in enumerate(lengths * 3)
    ]
    path = database(
        tmp_path / "t.sqlite",
        "CREATE TABLE t (a INTEGER, b TEXT, c BLOB, d INTEGER)",
        rows=rows,
        page_bytes=page_bytes,
    )

    assert check(path, ["a", "d"], ["b"])
    assert paged(path, ["d"], ["b"]).rows() == [(d, b) for _, b, _, d in rows]


@pytest.mark.parametrize(
    "key", ["a INTEGER PRIMARY KEY", "a integer primary key not null", "a INTEGER, b, c"]
)
@pytest.mark.parametrize("number", [-(2**63), -1, 0, 127, 128, 2**35, 2**56, 2**63 - 1])
def test_rows_may_have_any_number(tmp_path, number, key):
    path = database(tmp_path / "t.sqlite", f"CREATE TABLE t ({key})")
    name = "a" if "key" in key.lower() else "rowid"
    changed(path, f"INSERT INTO t ({name}) VALUES (1), ({number})" if number != 1 else "")

    assert check(path, ["a"])


def test_the_key_is_the_number_of_the_row(tmp_path):
    path = database(tmp_path / "t.sqlite", "CREATE TABLE t (id INTEGER PRIMARY KEY, value TEXT)")
    ids = [1, 2, 127, 128, 16_384, 2**31, 2**48, 2**62]
    changed(path, *(f"INSERT INTO t VALUES ({number}, 'text {number}')" for number in ids))

    assert paged(path, ["id"], ["value"]).rows() == [(number, f"text {number}") for number in ids]


def test_rows_older_than_a_column_have_its_default(tmp_path):
    path = database(tmp_path / "t.sqlite", "CREATE TABLE t (a INTEGER)", rows=[(1,), (2,)])
    changed(path, "ALTER TABLE t ADD COLUMN b INTEGER DEFAULT -5", "INSERT INTO t VALUES (3, 4)")
    changed(path, "ALTER TABLE t ADD COLUMN c INTEGER", "ALTER TABLE t ADD COLUMN d TEXT")
    changed(path, "INSERT INTO t VALUES (5, NULL, 6, 'x')")

    assert check(path, ["a", "b", "c"], ["d"])
    assert paged(path, ["b", "c"]).rows() == [(-5, None), (-5, None), (4, None), (None, 6)]


def test_an_index_does_not_change_the_order_of_rows(tmp_path):
    rows = [(row * 7_919 % 1_000, 1) for row in range(1_000)]
    path = database(
        tmp_path / "t.sqlite", "CREATE TABLE t (a INTEGER, b INTEGER)", "CREATE INDEX i ON t (a)", rows=rows
    )

    assert check(path, ["a"])
    assert plain(path, ["a"])["a"].to_list() == [a for a, _ in rows]


ALIKE = [[7, 0.5, "four", None, 2**40, 1], [8, 1.5, "five", None, 2**41, 1]]


@pytest.mark.parametrize(
    "row", [[9, 2.5, "six!", None, 2**42, 1], [9, 2, "six", 6, 3, 0], [9, None, "x" * 60, None, 2**42, 1]]
)
def test_columns_are_read_by_the_types_that_rows_have_in_them(tmp_path, row):
    rows = [*ALIKE, row, *ALIKE]
    path = database(
        tmp_path / "t.sqlite",
        "CREATE TABLE t (a INTEGER, b REAL, c TEXT, d INTEGER, e INTEGER, f INTEGER)",
        rows=rows,
    )

    found = paged(path, ["a", "d", "e", "f"], ["c"])

    assert found.rows() == [(a, d, e, f, c) for a, _, c, d, e, f in rows]


def test_columns_behind_the_last_wanted_one_do_not_matter(tmp_path):
    rows = [(row, 0.5, b"\x00\xff", "later") for row in range(100)]
    path = database(tmp_path / "t.sqlite", "CREATE TABLE t (a INTEGER, b REAL, c BLOB, d TEXT)", rows=rows)
    changed(path, "ALTER TABLE t ADD COLUMN e INTEGER DEFAULT 0x10")

    assert check(path, ["a"], ["d"])


def test_reserved_bytes_at_the_end_of_pages_are_no_content(tmp_path):
    path = database(tmp_path / "t.sqlite", "PRAGMA user_version = 1", page_bytes=1_024)
    content = bytearray(path.read_bytes())
    content[20] = 32
    content[105:107] = (1_024 - 32).to_bytes(2, "big")  # where the cells of page 1, which has none, begin
    path.write_bytes(content)
    rows = [(row, "x" * (row % 1_100)) for row in range(3_000)]
    changed(path, "CREATE TABLE t (a INTEGER, b TEXT)")
    with closing(sqlite3.connect(path)) as connection, connection:
        connection.executemany("INSERT INTO t VALUES (?, ?)", rows)
        assert connection.execute("PRAGMA integrity_check").fetchall() == [("ok",)]

    assert path.read_bytes()[20] == 32
    assert check(path, ["a"], ["b"])
    assert paged(path, ["a"], ["b"]).rows() == rows


@pytest.mark.parametrize("reader", Reader)
def test_rows_are_told_by_their_keys(tmp_path, reader):
    rows = [(row % 5 - 2 if row % 7 else None, row % 3, row, f"text {row}") for row in range(60_000)]
    path = database(
        tmp_path / "t.sqlite", "CREATE TABLE t (a INTEGER, b INTEGER, c INTEGER, d TEXT)", rows=rows
    )
    keys = pl.DataFrame({"a": [-2, 1, 99], "b": [0, 2, 0]})

    found = plain(path, ["a", "b", "c"], ["d"], keys, reader)

    assert found.rows() == [row for row in rows if row[:2] in {(-2, 0), (1, 2)}]
    assert check(path, ["a", "b", "c"], ["d"], keys)
    assert check(path, ["a", "b"], keys=keys.clear())


# everything else is left to SQLite

NUMBERS = [(1, 2), (3, None)]
UNUSUAL = {
    "no row numbers": (["CREATE TABLE t (a INTEGER, b INTEGER, PRIMARY KEY (a)) WITHOUT ROWID"], NUMBERS),
    "a key of two columns": (["CREATE TABLE t (a INTEGER, b INTEGER, PRIMARY KEY (a, b))"], [(1, 2), (3, 4)]),
    "a key that goes down": (["CREATE TABLE t (a INTEGER PRIMARY KEY DESC, b INTEGER)"], NUMBERS),
    "a text for an integer": (["CREATE TABLE t (a INTEGER, b INTEGER)"], [(1, "two")]),
    "a blob for an integer": (["CREATE TABLE t (a INTEGER, b INTEGER)"], [(1, b"2")]),
    "a fraction for an integer": (["CREATE TABLE t (a INTEGER, b INTEGER)"], [(1, 2.5)]),
    "whole numbers of a real column": (["CREATE TABLE t (a INTEGER, b REAL)"], [(1, 2.0)]),
    "doubles": (["CREATE TABLE t (a INTEGER, b double precision)"], [(1, 2.0), (1, 2.5)]),
    "a computed column": (["CREATE TABLE t (a INTEGER, b INTEGER AS (a + 1))"], []),
    "a stored computed column": (["CREATE TABLE t (a INTEGER, b INTEGER AS (a + 1) STORED)"], []),
    "a default that is computed": (
        [
            "CREATE TABLE t (a INTEGER)",
            "INSERT INTO t VALUES (1)",
            "ALTER TABLE t ADD b INTEGER DEFAULT 0x10",
        ],
        [],
    ),
    "a default that its column turns into text": (
        ["CREATE TABLE t (a INTEGER)", "INSERT INTO t VALUES (1)", "ALTER TABLE t ADD b TEXT DEFAULT 1"],
        [],
    ),
    "very many columns": (
        [f"CREATE TABLE t ({', '.join(f'c{n}' for n in range(130))}, a, b)"],
        [tuple(range(132))],
    ),
}


@pytest.mark.parametrize(("statements", "rows"), UNUSUAL.values(), ids=UNUSUAL.keys())
def test_what_is_not_plain_is_left_to_sqlite(tmp_path, statements, rows):
    path = database(tmp_path / "t.sqlite", *statements, rows=rows)
    if not rows:
        changed(path, "INSERT INTO t (a) VALUES (7)")

    assert not check(path, ["a", "b"])


@pytest.mark.parametrize("value", [1, 2.5, b"blob"], ids=["integer", "fraction", "blob"])
def test_what_is_no_text_is_left_to_sqlite(tmp_path, value):
    path = database(tmp_path / "t.sqlite", "CREATE TABLE t (a INTEGER, b)", rows=[(1, value)])

    assert not check(path, ["a"], ["b"])


def test_a_text_that_rows_from_before_its_column_read_is_left_to_sqlite(tmp_path):
    path = database(tmp_path / "t.sqlite", "CREATE TABLE t (a INTEGER)", rows=[(1,)])
    changed(path, "ALTER TABLE t ADD COLUMN b TEXT DEFAULT 'old'")

    assert not check(path, ["a"], ["b"])


@pytest.mark.parametrize("encoding", ["UTF-16le", "UTF-16be"])
def test_other_encodings_are_left_to_sqlite(tmp_path, encoding):
    path = database(
        tmp_path / "t.sqlite", "CREATE TABLE t (a INTEGER, b TEXT)", rows=[(1, "ü")], encoding=encoding
    )

    assert not check(path, ["a"], ["b"])


def test_a_file_that_shrinks_while_it_is_read_is_left_to_sqlite(tmp_path):
    path = database(
        tmp_path / "t.sqlite", "CREATE TABLE t (a INTEGER)", rows=[(row,) for row in range(9_000)]
    )
    with open_tables(path) as tables, path.open("rb", buffering=0) as stream:
        os.truncate(path, path.stat().st_size - 8_192)

        assert read_columns(stream, tables.connection, Wanted("t", ["a"]), lambda _: None) is None


def test_a_schema_that_is_no_text_is_told(tmp_path):
    path = database(tmp_path / "t.sqlite", "CREATE TABLE t (a INTEGER, b INTEGER)")
    path.write_bytes(path.read_bytes().replace(b"(a INTEGER", b"\xc5" * 10))

    assert "damaged: its schema is not text" in paged(path, ["a"])


@pytest.mark.parametrize("is_compiled", [True, False])
@pytest.mark.parametrize("reader", Reader)
def test_pages_are_read_by_compiled_loops_alone(tmp_path, monkeypatch, reader, is_compiled):
    path = database(tmp_path / "t.sqlite", "CREATE TABLE t (a INTEGER)", rows=[(1,)])
    monkeypatch.setattr(kernels, "is_compiled", lambda: is_compiled)
    with open_tables(path, reader=reader) as tables:
        assert (tables.stream is not None) == (reader is Reader.PAGES and is_compiled)


def test_an_answer_does_not_depend_on_the_reader(tmp_path):
    write_example(tmp_path / "moe.sqlite")

    plain_way, pages = (
        read_capture(tmp_path / "moe.sqlite", lambda _: None, reader)
        for reader in (Reader.SQLITE, Reader.PAGES)
    )

    for field in fields(pages):
        found, expected = getattr(pages, field.name), getattr(plain_way, field.name)
        assert found.equals(expected) if isinstance(found, pl.DataFrame) else found == expected
