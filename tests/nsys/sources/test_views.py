"""Views and virtual tables under the names of tables: no query reads them, joined to a table or not."""

import os
import sqlite3
import subprocess
import sys
from contextlib import closing

import pytest

from fixtures.scenario import scenarios
from tests.conftest import ROOT, slow
from wallscope.errors import InputError
from wallscope.model.capture import Options
from wallscope.model.enums import Reader
from wallscope.pipeline import analyze

ENDLESS = (
    "CREATE VIEW {table} AS WITH RECURSIVE r(id, value) AS"
    " (SELECT 1, 'x' UNION ALL SELECT id + 1, value FROM r) SELECT * FROM r"
)
PLAIN = 'CREATE VIEW {table} AS SELECT * FROM "{table} kept"'
JOINED = 'CREATE VIEW {table} AS SELECT a.* FROM "{table} kept" a, "{table} kept" b, "{table} kept" c'
VIRTUAL = "CREATE VIRTUAL TABLE {table} USING fts5(id, value)"


@pytest.fixture
def export(tmp_path):
    path = tmp_path / "run.sqlite"
    next(one for one in scenarios() if one.name == "communication-partly-hidden").write(path)
    with closing(sqlite3.connect(path)) as connection, connection:
        connection.execute("CREATE TABLE ThreadNames (nameId INTEGER, priority INTEGER, globalTid INTEGER)")
        connection.execute("INSERT INTO ThreadNames VALUES (1, 0, 281474993486824)")
    return path


@pytest.mark.parametrize("reader", list(Reader))
@pytest.mark.parametrize(
    "sql", [ENDLESS, PLAIN, JOINED, VIRTUAL], ids=["endless", "plain", "joined", "virtual"]
)
@pytest.mark.parametrize(
    "table", ["StringIds", *slow("stringids", "PROCESSES", "NVTX_EVENTS", "TARGET_INFO_GPU")]
)
def test_what_is_no_table_is_never_read(export, table, sql, reader):
    connection = sqlite3.connect(export)
    found = connection.execute(
        "SELECT name FROM sqlite_master WHERE lower(name) = lower(?)", (table,)
    ).fetchone()
    connection.execute(
        f'ALTER TABLE {found[0]} RENAME TO "{table} kept"'
        if found
        else f'CREATE TABLE "{table} kept" (id, value)'
    )
    try:
        connection.execute(sql.format(table=table))
    except sqlite3.OperationalError:
        pytest.skip("this SQLite lacks the module")
    connection.commit()
    connection.close()
    before = export.read_bytes()
    try:
        analyze(export, Options(reader=reader), lambda _: None)
        said = "answered"
    except InputError as error:
        said = str(error)
    assert said == "answered" or said.count(" — ") == 2
    assert "authorized" not in said
    assert export.read_bytes() == before


TAKE_TURNS = """
import sys, threading
from pathlib import Path
from wallscope.nsys.sources import open_tables

with open_tables(Path(sys.argv[1])) as tables:
    def look_up():
        for key in range(2000):
            tables.select("SELECT value FROM StringIds WHERE id = ?", (key,))

    threads = [threading.Thread(target=look_up, daemon=True) for _ in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
print("ended")
"""


def test_threads_that_query_an_export_with_a_view_do_not_wait_for_each_other_forever(export):
    with closing(sqlite3.connect(export)) as connection, connection:
        connection.execute("CREATE VIEW busiest AS SELECT 1 AS id")

    ran = subprocess.run(
        [sys.executable, "-c", TAKE_TURNS, str(export)],
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )

    assert (ran.stdout, ran.stderr) == ("ended\n", "")
