"""Laws of the page reader: random tables, random damage, and every real export."""

import sqlite3
from contextlib import closing
from dataclasses import replace

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from polars.testing import assert_frame_equal

from tests.conftest import TRACES, run_part
from tests.nsys.page_files import EDGES, PAGE_SIZES, changed, check, database
from wallscope.demo.example import write_example
from wallscope.nsys.sources import open_tables
from wallscope.nsys.sqlite_file import read_columns
from wallscope.nsys.tables import Wanted

INTEGERS = st.one_of(st.none(), st.sampled_from(EDGES), st.integers(-(2**63), 2**63 - 1), st.integers(-5, 5))
TEXTS = st.one_of(
    st.none(), st.text(max_size=30), st.integers(0, 1_400).map("x".__mul__), st.sampled_from(["", "é" * 100])
)
BLOBS = st.integers(0, 2_000).map(bytes)
ANYTHING = st.one_of(INTEGERS, TEXTS, st.floats(allow_nan=False), BLOBS)
KINDS = {
    "INTEGER": INTEGERS,
    "": INTEGERS,
    "NUMERIC": INTEGERS,
    "TEXT": TEXTS,
    "REAL": st.floats(0, 9),
    "BLOB": BLOBS,
}
ADDED = {
    "": [],
    "null": [("late0", "INTEGER"), ("late1", "TEXT")],
    "number": [("late0", "INTEGER DEFAULT 7"), ("late1", "INT NOT NULL DEFAULT -3000000000")],
    "text": [("late0", "TEXT DEFAULT 'x'")],
}


@st.composite
def tables(draw):
    kinds = draw(st.lists(st.sampled_from(sorted(KINDS)), min_size=1, max_size=8))
    values = [draw(st.sampled_from([KINDS[kind]] * 12 + [ANYTHING])) for kind in kinds]
    pattern = draw(st.lists(st.tuples(*values), max_size=20))
    return kinds, pattern * draw(st.sampled_from([1, 1, 3, 40]))


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    table=tables(),
    layout=st.tuples(st.sampled_from([512, *PAGE_SIZES]), st.integers(0, 2), st.booleans()),
    deleted=st.sampled_from(["0", "rowid % 3 = 0", "rowid > 9", "rowid < 500", "1"]),
    added=st.sampled_from(sorted(ADDED)),
)
def test_pages_give_what_sqlite_gives(tmp_path, table, layout, deleted, added):
    (kinds, rows), (page_bytes, auto_vacuum, has_key) = table, layout
    columns = [(f"c{place}", kind) for place, kind in enumerate(kinds)]
    keys = [("key", "INTEGER PRIMARY KEY")] if has_key else []
    path = database(
        tmp_path / "t.sqlite",
        f"CREATE TABLE t ({', '.join(' '.join(column) for column in [*columns, *keys])})",
        "CREATE TABLE other (a)",
        page_bytes=page_bytes,
        auto_vacuum=auto_vacuum,
    )
    insert = (
        f"INSERT INTO t ({', '.join(name for name, _ in columns)}) VALUES ({', '.join('?' * len(kinds))})"
    )
    with closing(sqlite3.connect(path)) as connection, connection:
        connection.execute("PRAGMA synchronous = OFF")
        connection.executemany(insert, rows)
        connection.execute("INSERT INTO other VALUES (zeroblob(3000))")
        connection.execute(f"DELETE FROM t WHERE {deleted}")
        connection.execute("DROP TABLE other")
        for name, kind in ADDED[added]:
            connection.execute(f"ALTER TABLE t ADD COLUMN {name} {kind}")
        connection.executemany(insert, rows[:50])
    columns += keys + ADDED[added]
    integers = [name for name, kind in columns if kind not in {"TEXT", "BLOB", "TEXT DEFAULT 'x'"}]
    texts = [name for name, kind in columns if "TEXT" in kind]

    check(path, integers, texts)
    check(path, [columns[-1][0]])
    check(path, [name for name in integers if (dict(columns)[name] != "REAL")], texts)


@pytest.fixture(scope="module")
def sound(tmp_path_factory):
    """Files with a table of three levels, overflow, free pages and gaps, by page size."""
    folder = tmp_path_factory.mktemp("sound")
    files = {}
    for page_bytes in (512, 1_024):
        rows = [
            (row, None, EDGES[row % len(EDGES)], None if row % 5 else "t" * (row % 90), 1)
            for row in range(1_500)
        ]
        path = database(
            folder / f"{page_bytes}.sqlite",
            "CREATE TABLE t (a INTEGER NOT NULL, id INTEGER PRIMARY KEY, b INTEGER, c TEXT, d INT NOT NULL)",
            rows=rows,
            page_bytes=page_bytes,
        )
        changed(
            path,
            "UPDATE t SET c = printf('%.*c', 700 + a * 20, 'o') WHERE a % 100 = 7",
            "DELETE FROM t WHERE a BETWEEN 300 AND 420",
            "DELETE FROM t WHERE a % 11 = 3",
            "ALTER TABLE t ADD COLUMN e INTEGER DEFAULT 9",
        )
        assert check(path, ["a", "b", "d", "e", "id"], ["c"])
        files[page_bytes] = path
    return files


FLIPS = st.tuples(
    st.integers(0, 10_000), st.one_of(st.integers(0, 24), st.integers(0, 1_023)), st.integers(1, 255)
)


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    page_bytes=st.sampled_from([512, 1_024]),
    flips=st.lists(FLIPS, min_size=1, max_size=4),
    kept_share=st.sampled_from([1.0, 1.0, 1.0, 0.9, 0.4]),
)
def test_damage_never_gives_another_answer_than_sqlite_does(tmp_path, sound, page_bytes, flips, kept_share):
    content = bytearray(sound[page_bytes].read_bytes())
    for page, offset, bits in flips:
        content[page % (len(content) // page_bytes) * page_bytes + offset % page_bytes] ^= bits
    path = tmp_path / "damaged.sqlite"
    path.write_bytes(content[: int(len(content) * kept_share)])

    check(path, ["a", "b", "d", "e", "id"], ["c"])


def pages_that_lead(content, page_bytes, kind):
    return [
        at
        for at in range(page_bytes, len(content), page_bytes)
        if content[at] == kind and content[at + 4] > 1
    ]


@pytest.mark.parametrize("target", ["itself", "the root", "a sibling", "page 0", "page 1", "behind the end"])
def test_pages_that_lead_in_a_circle_are_left_to_sqlite(tmp_path, sound, target):
    content = bytearray(sound[512].read_bytes())
    root, *others = pages_that_lead(content, 512, 5)
    page = others[0]
    first_cell = page + int.from_bytes(content[page + 12 : page + 14], "big")
    number = {
        "itself": page // 512 + 1,
        "the root": root // 512 + 1,
        "a sibling": int.from_bytes(content[page + 8 : page + 12], "big"),
        "page 0": 0,
        "page 1": 1,
        "behind the end": len(content) // 512 + 1,
    }[target]
    content[first_cell : first_cell + 4] = number.to_bytes(4, "big")
    path = tmp_path / "damaged.sqlite"
    path.write_bytes(content)

    assert not check(path, ["a", "b", "d", "e", "id"], ["c"])


# real exports


def readable(tables, table):
    """Integer and text columns of a table."""
    stored = tables.connection.execute(f'PRAGMA table_info("{table}")').fetchall()
    kinds = [(name, kind.upper()) for _, name, kind, *_ in stored]
    return [name for name, kind in kinds if "INT" in kind], [name for name, kind in kinds if "TEXT" in kind]


def compared(path):
    """Tables that were read from their pages, each as SQLite reads it; and tables that were not."""
    read, left = [], []
    with open_tables(path) as tables, path.open("rb", buffering=0) as stream:
        slow = replace(tables, stream=None)
        for table in tables.columns:
            integers, texts = readable(tables, table)
            if not integers + texts:
                continue
            wanted = Wanted(table, integers, texts)
            found = read_columns(stream, tables.connection, wanted, lambda _: None)
            (left if found is None else read).append(table)
            if found is not None:
                assert_frame_equal(found, slow.read_frame(wanted, lambda _: None))
    return read, left


def test_the_example_is_read_from_its_pages(tmp_path):
    write_example(tmp_path / "moe.sqlite")

    read, left = compared(tmp_path / "moe.sqlite")

    assert {"CUPTI_ACTIVITY_KIND_KERNEL", "CUPTI_ACTIVITY_KIND_RUNTIME", "NVTX_EVENTS"} <= set(read)
    assert left == []


@pytest.mark.skipif(not TRACES.is_dir(), reason="no real exports here: ../shared/traces is absent")
@pytest.mark.parametrize("path", run_part(sorted(TRACES.glob("*.sqlite")), part=2, of=9))
def test_real_exports_are_read_as_sqlite_reads_them(path):
    _, left = compared(path)

    assert [table for table in left if not table.endswith("_CALLCHAINS")] == []  # of a key of two columns
