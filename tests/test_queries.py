"""SQL that recomputes what wallscope prints, run against what it prints."""

import sqlite3
from contextlib import closing

import polars as pl
import pytest

from fixtures.example import write_example
from wallscope.analysis import Options, analyze, proven
from wallscope.shipped import query


@pytest.fixture(scope="module")
def example(tmp_path_factory):
    path = tmp_path_factory.mktemp("queries") / "moe.sqlite"
    write_example(path)
    return path


def gaps(path, step):
    bounds = {
        "start_ns": step.start_ns,
        "end_ns": step.end_ns,
        "time_shift_ns": 0,
        "communication": "nccl*",
    }
    with closing(sqlite3.connect(path)) as connection:
        return [row[2:] for row in connection.execute(query("compute_gaps"), bounds)]


def test_gaps_of_compute_sum_to_the_time_without_compute(example):
    (rank,) = analyze(example, Options(), lambda _: None).ranks

    for step in rank.steps:
        absent = step.compute_absent
        assert sum(length_ns for *_, length_ns in gaps(example, step)) == (
            absent.launch_starved + absent.blocking + absent.dependency_stalled
        )


def test_gaps_of_compute_are_those_that_are_listed(example):
    (rank,) = analyze(example, Options(), lambda _: None).ranks
    listed = pl.DataFrame([gap.row for gap in proven(example, Options(), lambda _: None).gaps(100_000)])

    for step in rank.steps[1:3]:
        own = listed.filter(pl.col("step") == step.index).sort("start_ns")
        assert own.select("start_ns", "duration_ns").rows() == sorted(
            (start_ns, length_ns) for start_ns, _, length_ns in gaps(example, step)
        )
