"""Records say what a step takes without the profiler, or why that is unknown; `analyze` uses them."""

import json
import os

import pytest

from tests.conftest import ROOT
from tests.shipped_example import EXAMPLE
from wallscope.capture.record import (
    CONFIGURATION,
    compare_times,
    describe_versions,
    find_records,
    find_sizes,
    measure_unprofiled_step,
    read_records,
    write_configuration,
)
from wallscope.model.capture import CAPTURE_RECORD_SCHEMA

MS = 1_000_000
CONTENT = {
    "schema": CAPTURE_RECORD_SCHEMA,
    "run": "one",
    "report": "rank-0",
    "rank": 0,
    "host": "node",
    "phase": "over",
    "is_early": False,
    "steps": 21,
    "captured_steps": 5,
    "skip": 10,
    "source": "optimizer",
    "optimizers": [{"class": "AdamW", "steps": 21, "ends_step": True}],
    "marks": "ProfilerStep",
    "skipped": [],
    "notes": [],
    "errors": [],
    "before_ns": [50 * MS] * 5,
    "during_ns": [52 * MS] * 5,
    "after_ns": [50 * MS] * 3,
    "durations_ns": {"start": 7},
    "versions": {"torch": "2.9.0", "cuda": "12.9"},
    "parallel": {"tensor": 2, "pipeline": 1, "world": 8},
    "environment": {"NCCL_DEBUG": "WARN"},
}


@pytest.fixture
def records(tmp_path):
    """Write records that differ so from a steady one, and read them."""

    def read(*changes):
        for number, change in enumerate(changes):
            path = tmp_path / f"hook-node-rank-{number}-{number}.json"
            path.write_text(json.dumps({**CONTENT, "rank": number, **change}))
        return read_records(tmp_path)

    return read


@pytest.mark.parametrize(
    ("changes", "ms", "reason"),
    [
        ([{}], 50, ""),
        ([{}, {"before_ns": [54 * MS] * 5, "after_ns": [54 * MS] * 3}], 52, ""),
        ([{"before_ns": [], "after_ns": [49 * MS] * 3}], 49, ""),
        ([{"before_ns": [], "after_ns": []}], None, "no step was measured without the profiler"),
        (  # the host runs ahead of the GPU: all but the step that waits are short
            [{"before_ns": [10 * MS] * 4 + [210 * MS]}],
            None,
            "the steps before the capture vary: median 10.0 ms, mean 50.0 ms",
        ),
        (
            [{"after_ns": [60 * MS] * 3}],
            None,
            "steps take 50.0 ms before the capture and 60.0 ms after it",
        ),
        ([], None, "no record was found"),
    ],
)
def test_the_unprofiled_step_is_known_if_the_run_was_steady(records, changes, ms, reason):
    found = measure_unprofiled_step(records(*changes))

    assert found.step_ns == (None if ms is None else ms * MS)
    assert found.reason == reason


def test_a_slow_profiler_is_named_with_what_slows_less(records):
    line = compare_times(records({}), "--light")
    assert line == "a step takes 52.0 ms in the capture and 50.0 ms without it"
    line = compare_times(records({"during_ns": [60 * MS] * 5}), "--light")
    assert line.endswith(
        "60.0 ms in the capture and 50.0 ms without it, 1.20 times as long; less with --light"
    )
    assert compare_times(records({"after_ns": [90 * MS]}), "--light") is None


def test_what_processes_disagree_on_is_left_out(records, tmp_path):
    found = records(
        {}, {"versions": {"torch": "2.8.0", "cuda": "12.9"}, "parallel": {"tensor": 2, "pipeline": 4}}
    )

    assert describe_versions(found) == "cuda 12.9; parallel sizes tensor 2"
    assert find_sizes(found) == {"tensor": 2}
    write_configuration(tmp_path, found)
    assert (tmp_path / CONFIGURATION).read_text().splitlines()[1:] == ["tensor_model_parallel_size: 2"]


@pytest.mark.parametrize(
    "change",
    [
        {"schema": "wallscope-capture-record-0"},
        {"steps": -1},
        {"steps": True},
        {"steps": 1 << 70},
        {"before_ns": ["1"]},
        {"before_ns": None},
        {"report": 7},
        {"versions": ["torch"]},
        {"optimizers": [{}]},
    ],
)
def test_a_file_that_is_not_a_record_is_left_out(records, change):
    assert records(change) == ()


@pytest.mark.parametrize("content", ["[" * 100_000, "7", "", "\0", "{}"])
def test_a_file_of_another_kind_is_left_out(tmp_path, content):
    (tmp_path / "hook-node-rank-0-1.json").write_text(content)

    assert read_records(tmp_path) == ()


def test_records_belong_to_the_report_that_they_name_and_the_newest_of_a_rank_counts(records, tmp_path):
    records(
        {"report": "report-node"}, {"report": "report-node", "rank": 0, "run": "two"}, {"report": "rank-2"}
    )
    os.utime(tmp_path / "hook-node-rank-0-0.json", (1, 1))

    (found,) = find_records([tmp_path / "report-node.sqlite"])
    assert found.run == "two"
    assert [one.rank for one in find_records([tmp_path / "rank-2.json.gz"])] == [2]
    assert find_records([tmp_path / "rank-3.json.gz"]) == ()


def test_a_record_of_a_run_that_captured_nothing_says_nothing(records, tmp_path):
    records({"captured_steps": 0})

    assert find_records([tmp_path / "rank-0.json.gz"]) == ()


@pytest.fixture
def example(tmp_path, records):
    """The example export under the name that a record has."""
    (tmp_path / "run.sqlite").write_bytes(EXAMPLE.read_bytes())
    records({"report": "run"})
    write_configuration(tmp_path, read_records(tmp_path))
    return tmp_path / "run.sqlite"


def read_throughput(ran) -> dict | None:
    return json.loads(ran.out)["diagnosis"]["throughput"]


def test_analyze_takes_the_unprofiled_step_and_the_sizes_of_the_record(wallscope, example):
    ran = wallscope("analyze", str(example), "--json", "-")

    assert read_throughput(ran)["unprofiled_step_ns"] == 50 * MS
    assert ran.err.startswith(
        "Recorded by wallscope capture: torch 2.9.0, cuda 12.9; parallel sizes tensor 2, pipeline 1, world 8;"
        " a step without the profiler takes 50.0 ms\n"
    )


def test_what_the_user_gives_comes_first(wallscope, example):
    ran = wallscope("analyze", str(example), "--unprofiled-step-ms", "49", "--json", "-")

    assert read_throughput(ran)["unprofiled_step_ns"] == 49 * MS
    assert "without the profiler" not in ran.err


def test_without_a_record_nothing_is_said(wallscope, example):
    for path in example.parent.glob("hook-*.json"):
        path.unlink()

    ran = wallscope("analyze", str(example), "--json", "-")
    assert ran.err == ""
    assert read_throughput(ran) is None


def test_the_analysis_of_a_record_alone_names_the_folder(tmp_path, called):
    path = tmp_path / "hook-node-rank-0-17.json"
    path.write_text(json.dumps(CONTENT))
    ran = called("analyze", path)

    assert ran.code == 2
    assert ran.err.endswith(" — is the record of a captured program — name the folder that it lies in\n")


def test_the_schema_is_that_of_the_hook():
    assert (
        f'SCHEMA = "{CAPTURE_RECORD_SCHEMA}"'
        in (ROOT / "wallscope/capture/hook/_wallscope_record.py").read_text()
    )
