"""Any table of an export may be empty: it is shown and analyzed, or refused with a line for the user."""

import sqlite3
from contextlib import closing

import pytest

from fixtures.simulation.names import GEMM
from fixtures.simulation.program import (
    Allocate,
    Copy,
    HostThread,
    Launch,
    Program,
    Record,
    SyncDevice,
    WaitEvent,
    Work,
    stepped,
)
from fixtures.simulation.run import run
from fixtures.simulation.writing import write_run
from wallscope.errors import NothingToAnalyzeError
from wallscope.kineto.any_capture import read_any_contents
from wallscope.model.capture import Options
from wallscope.pipeline import analyze

MS = 1_000_000
STEP = [
    Work(MS),
    Allocate(MS),
    Copy("host-to-device", 1 << 20, MS),
    Launch(GEMM, MS),
    Record("done"),
    WaitEvent(20, "done"),
    Launch(GEMM, MS, stream=20),
    SyncDevice(),
]


@pytest.fixture(scope="module")
def export(tmp_path_factory):
    path = tmp_path_factory.mktemp("run") / "run.sqlite"
    played = run(Program(((HostThread("main", stepped(6, lambda _: STEP)),),)))
    write_run(played, path, has_os_calls=True)
    return path


def list_tables(path):
    with closing(sqlite3.connect(path)) as connection:
        names = connection.execute("SELECT name FROM sqlite_master WHERE type = 'table'").fetchall()
        return [name for (name,) in names if connection.execute(f'SELECT 1 FROM "{name}" LIMIT 1').fetchone()]


def empty(path, to, tables):
    to.write_bytes(path.read_bytes())
    with closing(sqlite3.connect(to)) as connection, connection:
        for table in tables:
            connection.execute(f'DELETE FROM "{table}"')


def test_each_table_may_be_empty(export, tmp_path):
    tables = list_tables(export)
    assert len(tables) >= 10

    refused = []
    for table in tables:
        path = tmp_path / f"{table}.sqlite"
        empty(export, path, [table])
        assert read_any_contents(path, lambda _: None).tables
        try:
            analyze(path, Options(), lambda _: None)
        except NothingToAnalyzeError:
            refused.append(table)
    assert refused == []


def test_all_tables_may_be_empty(export, tmp_path):
    path = tmp_path / "run.sqlite"
    empty(export, path, list_tables(export))

    assert read_any_contents(path, lambda _: None).duration_ns is None
    with pytest.raises(NothingToAnalyzeError, match="contains no CUDA activity"):
        analyze(path, Options(), lambda _: None)
