"""Threads and worker processes of data loaders are counted by their names; other names leave no trace."""

import sqlite3
from dataclasses import replace

import polars as pl
import pytest

from fixtures.export import ExportWriter
from tests.advice.runs import run
from tests.real.answers import NEEDS_TRACES, answer
from wallscope.advice.evidence import list_evidence
from wallscope.advice.measurements import MeasuredRun
from wallscope.model.advice import RunConfiguration
from wallscope.nsys import read_capture

LOADING = ("host/data-loading",)
PID = 1 << 24
_TABLE = "CREATE TABLE IF NOT EXISTS ThreadNames (nameId INTEGER, priority INTEGER, globalTid INTEGER)"


def counted(path, *threads):
    """The loader threads of an export with threads of these numbers and names."""
    with ExportWriter(path) as writer:
        writer.kernel("nvjet", 1, 2)
    connection = sqlite3.connect(path)
    connection.execute(_TABLE)
    for place, (tid, name) in enumerate(threads, start=9_000_000):
        connection.execute("INSERT INTO StringIds (id, value) VALUES (?, ?)", (place, name))
        connection.execute("INSERT INTO ThreadNames VALUES (?, 0, ?)", (place, PID + tid))
    connection.commit()
    connection.close()
    return dict(read_capture(path, lambda _: None).export.loader_threads)


@pytest.mark.parametrize(
    ("threads", "found"),
    [
        pytest.param(
            [(1, "pt_data_worker"), (2, "pt_data_worker"), (3, "pt_data_pin")],
            {"pt_data_worker": 2, "pt_data_pin": 1},
            id="PyTorch",
        ),
        pytest.param([(1, "pt_data_worker"), (1, "pt_data_worker")], {"pt_data_worker": 1}, id="named twice"),
        pytest.param(
            [(1, "[DALI][TP0]Executor"), (2, "[DALI][TP1]Executor"), (3, "[DALI][WT]CPU executor")],
            {"DALI executor": 2},
            id="DALI",
        ),
        pytest.param([(1, "kworker/3:1H-kblockd"), (2, "V8Worker"), (3, "python")], {}, id="others"),
    ],
)
def test_threads_are_counted_by_loader(tmp_path, threads, found):
    assert counted(tmp_path / "run.sqlite", *threads) == found


def evidence(framework, **loaders):
    analysis = run({LOADING[0]: 40})
    analysis = replace(analysis, inputs=(replace(analysis.inputs[0], loader_threads=loaders),))
    measured = MeasuredRun(analysis, RunConfiguration(), pl.Series([framework]))
    return [line for line in list_evidence(measured, LOADING) if "loader" in line]


def test_the_count_is_evidence_of_data_loading_and_its_lack_is_said_for_pytorch():
    assert evidence("aten::mm", pt_data_worker=2) == [
        "loader threads and worker processes by their names: 2 pt_data_worker"
    ]
    assert evidence("aten::mm") == [
        "no thread or process in the export has the name of a loader worker: their number is unknown"
    ]
    assert evidence("my_kernel") == []


@NEEDS_TRACES
def test_a_capture_counts_the_executors_of_dali_and_another_says_that_workers_are_unknown():
    assert answer("nersc_sc22_4gpu_base")["inputs"][0]["loader_threads"]["DALI executor"] == 16
    (fix,) = [one for one in answer("nersc_sc21_baseline")["fixes"] if one["id"] == "data-workers"]
    assert any("their number is unknown" in line for line in fix["evidence"])
