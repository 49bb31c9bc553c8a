"""SQL that recomputes what wallscope prints, run against what it prints."""

import sqlite3
from contextlib import closing

import polars as pl
import pytest

from fixtures.scenario import scenarios
from tests.answered_once import analyze_once
from tests.shipped_example import EXAMPLE
from wallscope.files import read_query
from wallscope.model.capture import Options
from wallscope.preparation import look_up_gaps


@pytest.fixture(scope="module")
def example():
    return EXAMPLE


def gaps(path, step):
    bounds = {
        "start_ns": step.start_ns,
        "end_ns": step.end_ns,
        "time_shift_ns": 0,
        "communication": "nccl*",
    }
    with closing(sqlite3.connect(path)) as connection:
        return [row[2:] for row in connection.execute(read_query("compute_gaps"), bounds)]


def test_gaps_of_compute_sum_to_the_time_without_compute(example):
    (rank,) = analyze_once(example).ranks

    for step in rank.steps:
        absent = step.compute_absent
        assert sum(length_ns for *_, length_ns in gaps(example, step)) == (
            absent.launch_starved + absent.blocking + absent.dependency_stalled
        )


def test_gaps_of_compute_are_those_that_are_listed(example):
    (rank,) = analyze_once(example).ranks
    listed = pl.DataFrame([gap.row for gap in look_up_gaps(example, Options(), lambda _: None).gaps(100_000)])

    for step in rank.steps[1:3]:
        own = listed.filter(pl.col("step") == step.index).sort("start_ns")
        assert own.select("start_ns", "duration_ns").rows() == sorted(
            (start_ns, length_ns) for start_ns, _, length_ns in gaps(example, step)
        )


def rows_of(path, stem, step, **values):
    bounds = {"start_ns": step.start_ns, "end_ns": step.end_ns, "time_shift_ns": 0, **values}
    with closing(sqlite3.connect(path)) as connection:
        return connection.execute(read_query(stem), bounds).fetchall()


@pytest.fixture(scope="module")
def rank(example):
    (rank,) = analyze_once(example).ranks
    return rank


def test_calls_by_name_are_those_that_a_plain_loop_finds(example, rank):
    with closing(sqlite3.connect(example)) as connection:
        names = dict(connection.execute("SELECT id, value FROM StringIds"))
        calls = connection.execute(
            'SELECT globalTid, nameId, start, "end" FROM CUPTI_ACTIVITY_KIND_RUNTIME'
        ).fetchall()
    step = rank.steps[3]
    found = {}
    for thread, name, start_ns, end_ns in calls:
        if step.start_ns < end_ns <= step.end_ns and "Synchronize" in names[name]:
            count, in_call_ns = found.get((thread, names[name]), (0, 0))
            found[thread, names[name]] = (count + 1, in_call_ns + end_ns - start_ns)

    rows = rows_of(example, "calls_by_name", step, name="*Synchronize*")

    assert {row[:2]: row[2:] for row in rows} == found
    assert found


def test_kernels_by_name_count_the_kernels_of_a_step(example, rank):
    communicating = sum(entry.count for entry in rank.communication.operations)
    for step in rank.steps[2:4]:
        computed = rows_of(example, "kernels_by_name", step, name="*")
        own = rows_of(example, "kernels_by_name", step, name="nccl*")

        assert sum(row[3] for row in own) == communicating
        assert sum(row[3] for row in computed) == communicating + sum(entry.kernels for entry in rank.compute)


def test_copies_by_kind_are_those_of_the_memory_traffic(example, rank):
    kinds = {
        (2, 1): ("device-to-host", True),
        (2, 0): ("device-to-host", False),
        (1, 1): ("host-to-device", True),
    }
    listed = {(str(copy.direction), copy.pinned): (copy.count, copy.bytes) for copy in rank.memory.copies}
    for step in rank.steps[2:4]:
        for row in rows_of(example, "copies_by_kind", step):
            kind, host = row[2], row[4] if row[2] == 2 else row[3]
            assert (row[6], row[7]) == listed[kinds[kind, host]]


def test_the_rates_of_network_cards_are_those_that_are_shown(tmp_path):
    path = tmp_path / "run.sqlite"
    (scenario,) = [one for one in scenarios() if one.name == "network-counters"]
    scenario.write(path)
    (rank,) = analyze_once(path).ranks
    shown = [one for one in rank.communication.traffic if one.bytes_per_s is not None]

    assert rows_of(path, "network_traffic", rank.steps[0]) == [
        ("mlx5_0", "IB: Bytes sent", shown[0].bytes_per_s)
    ]
    assert len(shown) == 1
