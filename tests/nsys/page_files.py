"""SQLite files for the tests of the page reader, and both ways to read them."""

import sqlite3
from contextlib import closing

from wallscope.errors import InputError
from wallscope.model.enums import Reader
from wallscope.nsys.sources import open_tables
from wallscope.nsys.sqlite_file import read_columns
from wallscope.nsys.tables import Wanted

PAGE_SIZES = [512, 1_024, 2_048, 4_096, 8_192, 16_384, 32_768, 65_536]
EDGES = sorted(
    {
        sign * 2**bits + more
        for bits in (0, 7, 8, 15, 23, 31, 47, 62)
        for sign in (-1, 1)
        for more in (-1, 0, 1)
    }
    | {-(2**63), 2**63 - 1, -(2**63) + 1}
)


def database(path, *statements, rows=(), page_bytes=4_096, auto_vacuum=0, encoding="UTF-8"):
    """A fresh database; the rows go into table `t`."""
    path.unlink(missing_ok=True)
    with closing(sqlite3.connect(path)) as connection, connection:
        connection.execute("PRAGMA journal_mode = MEMORY")
        connection.execute("PRAGMA synchronous = OFF")
        connection.execute(f"PRAGMA page_size = {page_bytes}")
        connection.execute(f"PRAGMA auto_vacuum = {auto_vacuum}")
        connection.execute(f"PRAGMA encoding = '{encoding}'")
        for statement in statements:
            connection.execute(statement)
        if rows:
            connection.executemany(f"INSERT INTO t VALUES ({', '.join('?' * len(rows[0]))})", rows)
    return path


def changed(path, *statements):
    with closing(sqlite3.connect(path)) as connection, connection:
        connection.execute("PRAGMA synchronous = OFF")
        for statement in statements:
            connection.execute(statement)
    return path


def paged(path, integers, texts=(), keys=None):
    """What the pages give: a frame, `None` where SQLite is left to read, or what is wrong with the file."""
    try:
        with open_tables(path) as tables, path.open("rb", buffering=0) as stream:
            return read_columns(stream, tables.connection, Wanted("t", integers, texts, keys), lambda _: None)
    except InputError as error:
        return str(error)


def plain(path, integers, texts=(), keys=None, reader=Reader.SQLITE):
    """What a reader gives: a frame, or what is wrong with the file."""
    try:
        with open_tables(path, reader=reader) as tables:
            return tables.read_frame(Wanted("t", integers, texts, keys), lambda _: None)
    except InputError as error:
        return str(error)


def same(found, expected):
    if isinstance(found, str) or isinstance(expected, str):
        return isinstance(found, str) and found == expected
    return found.schema == expected.schema and found.equals(expected)


def check(path, integers, texts=(), keys=None):
    """Whether the pages give an answer; it is that of SQLite, and so is what a user gets either way."""
    found, expected = paged(path, integers, texts, keys), plain(path, integers, texts, keys)
    assert found is None or same(found, expected)
    assert same(plain(path, integers, texts, keys, Reader.PAGES), expected)
    return found is not None
