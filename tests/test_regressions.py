"""Faults that were found once: each has its smallest export here."""

import json
import os
import sqlite3
import subprocess
import sys
import time

import numpy as np
import polars as pl
import pytest

from fixtures.export import ExportWriter
from fixtures.scenario import scenarios
from tests.conftest import ROOT
from wallscope.errors import NothingToAnalyzeError, StepRangeError
from wallscope.files import read_query
from wallscope.model.analysis import Anchor, CrossCheck
from wallscope.model.capture import Options
from wallscope.model.whatif import Asked
from wallscope.nsys import read_capture
from wallscope.pipeline import analyze, ask_what_if
from wallscope.replay.windows import NO_ISSUER
from wallscope.summary.findings import _disagreement
from wallscope.trace.repeat_unit import find_period

STEP_NS = 100_000


def answer(path, **options):
    return analyze(path, Options(**options), lambda _: None)


def train(  # noqa: PLR0913  # each tells one thing
    writer, *, pid=1000, device=0, count=6, ahead_ns=500, marks=("training_step_{}",)
):
    """Steps of ten kernels; each mark is a range around the launches of a step."""
    for index in range(count):
        at = 1_000_000 + STEP_NS * index
        issued = at - ahead_ns
        for mark in marks:
            writer.range(mark.format(index), issued - 10, issued + 95_000, pid=pid)
        for kernel in range(10):
            number = writer.call(
                "cudaLaunchKernel_v7000", issued + 9_000 * kernel, issued + 9_000 * kernel + 9, pid=pid
            )
            start_ns = at + 9_000 * kernel
            where = {"pid": pid, "device": device, "correlation": number}
            writer.kernel(f"nvjet_{kernel}", start_ns, start_ns + 5_000, **where)


def test_ranges_are_counted_by_the_hosts_time_however_far_it_runs_ahead(tmp_path):
    with ExportWriter(tmp_path / "run.sqlite") as writer:
        train(writer, ahead_ns=10 * STEP_NS, marks=("training_step_{}", "layer"))
        writer.range("whole run", -10 * STEP_NS, 10 * STEP_NS)

    found = {entry.path: entry for entry in answer(tmp_path / "run.sqlite").ranks[0].ranges}

    assert found["whole run / training_step_#"].count == 1
    assert found["whole run / training_step_#"].host_ns == 95_010
    assert (found["whole run"].count, found["whole run"].host_ns) == (None, None)


def test_the_first_kernel_of_the_next_step_does_not_count(tmp_path):
    with ExportWriter(tmp_path / "run.sqlite") as writer:
        train(writer, count=2)

    (rank,) = answer(tmp_path / "run.sqlite").ranks
    assert [entry.kernels for entry in rank.compute] == [10]


def test_a_stray_context_on_another_device_does_not_speak_for_the_run(tmp_path):
    with ExportWriter(tmp_path / "run.sqlite") as writer:
        train(writer, device=1)
        writer.fill(1_000, 1_010, 4, device=0)

    found = answer(tmp_path / "run.sqlite")

    assert found.anchor.steps == 6
    assert "few-steps" not in {finding.code for finding in found.capture.findings}
    assert found.ranks[1].typical.step_ns == 100_000
    assert found.diagnosis.verdict.startswith("Host time is the largest loss: 50.0 % of the step")
    assert found.diagnosis.steady_steps == 5


@pytest.mark.parametrize(
    "marks",
    [
        pytest.param(("optimizer_step",), id="an optimizer's step"),
        pytest.param(("lr_scheduler.step",), id="a scheduler's step"),
        pytest.param(("micro_step",), id="a microbatch"),
    ],
)
def test_ranges_called_step_that_are_none_do_not_divide_the_capture(marks, tmp_path):
    with ExportWriter(tmp_path / "run.sqlite") as writer:
        train(writer, marks=marks)

    assert answer(tmp_path / "run.sqlite").anchor.name not in marks or marks == ("optimizer_step",)


def test_a_range_that_issues_nothing_does_not_hide_the_next_best_mark(tmp_path):
    with ExportWriter(tmp_path / "run.sqlite") as writer:
        train(writer, marks=("forward",))
        for index in range(6):
            writer.range("step", 10_000_000 + 200_000 * index, 10_000_000 + 200_000 * index + 150_000)

    found = answer(tmp_path / "run.sqlite").anchor
    assert (found.kind, found.name, found.steps) == ("nvtx", "forward", 6)


def test_optimizer_ranges_inside_each_other_are_one(tmp_path):
    with ExportWriter(tmp_path / "run.sqlite") as writer:
        train(writer, count=8, marks=())
        for index in range(8):
            at = 1_000_000 + STEP_NS * index - 600
            for part in range(2):
                writer.range("forward", at + part * 30_000, at + part * 30_000 + 20_000)
            writer.range("optimizer", at + 70_000, at + 95_000)
            writer.range("optimizer", at + 75_000, at + 80_000)

    assert answer(tmp_path / "run.sqlite").anchor.steps == 8


def test_a_pattern_whose_ranges_issued_nothing_is_refused(tmp_path):
    with ExportWriter(tmp_path / "run.sqlite") as writer:
        train(writer)
        writer.range("empty", 1, 2)

    with pytest.raises(StepRangeError, match="its ranges issued no work"):
        answer(tmp_path / "run.sqlite", step_range="empty")


def test_a_pattern_finds_ranges_of_all_names_that_it_matches(tmp_path):
    with ExportWriter(tmp_path / "run.sqlite") as writer:
        train(writer, marks=())
        for index in range(6):
            name = "alpha" if index % 2 else "beta"
            writer.range(
                f"{name} {index}", 1_000_000 + STEP_NS * index - 600, 1_000_000 + STEP_NS * index + 90_000
            )

    assert answer(tmp_path / "run.sqlite", step_range="alpha|beta").anchor.steps == 6


def test_hidden_and_exposed_communication_make_up_the_union_also_when_rounded(tmp_path):
    with ExportWriter(tmp_path / "run.sqlite") as writer:
        train(writer, count=7)
        for index in range(7):
            at = 1_000_000 + STEP_NS * index
            writer.kernel("ncclDevKernel_SendRecv(x)", at + 6_000, at + 6_100 + index, stream=20)
            writer.kernel(
                "ncclDevKernel_AllGather_RING_LL(x)", at + 9_000, at + 9_050 + index // 2, stream=20
            )

    found = answer(tmp_path / "run.sqlite").ranks[0].communication

    assert 0 <= found.hidden_share <= 1
    assert found.exposed_ns <= found.union_ns
    assert all(entry.exposed_ns <= entry.work_ns for entry in found.operations)


def test_the_sql_knows_the_time_shift(tmp_path):
    path = tmp_path / "run.sqlite"
    next(scenario for scenario in scenarios() if scenario.name == "normalised-clock").write(path)
    found = answer(path)
    (step,) = found.ranks[0].steps
    connection = sqlite3.connect(path)
    for table in ("MEMCPY", "MEMSET", "GRAPH_TRACE"):
        columns = 'globalPid, deviceId, start, "end"'
        connection.execute(f"CREATE TEMP TABLE CUPTI_ACTIVITY_KIND_{table} ({columns})")
    bounds = {
        "start_ns": step.start_ns,
        "end_ns": step.end_ns,
        "time_shift_ns": found.inputs[0].time_shift_ns,
    }
    ((_, _, busy_ns, idle_ns),) = connection.execute(read_query("device_busy"), bounds).fetchall()
    connection.close()

    assert (busy_ns, idle_ns) == (step.budget.compute, step.budget.idle) == (1_001, 0)


def test_the_file_is_written_also_when_nobody_reads_the_terminal(tmp_path):
    with ExportWriter(tmp_path / "run.sqlite") as writer:
        train(writer)
    reading, writing = os.pipe()
    os.close(reading)
    subprocess.run(
        [sys.executable, "-m", "wallscope", "analyze", "run.sqlite", "--json", "run.json"],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        stdout=writing,
        check=False,
    )
    os.close(writing)

    assert json.loads((tmp_path / "run.json").read_text())["schema"] == "wallscope.analysis/1"


def test_a_result_never_lands_in_an_input_folder(wallscope, tmp_path):
    folder = tmp_path / "run_pqtdir"
    folder.mkdir()
    pl.DataFrame({"start": [1], "end": [5], "deviceId": [0], "shortName": [3]}).write_parquet(
        folder / "CUPTI_ACTIVITY_KIND_KERNEL.parquet"
    )
    pl.DataFrame({"id": [3], "value": ["nvjet"]}).write_parquet(folder / "StringIds.parquet")
    before = {path.name: path.read_bytes() for path in folder.iterdir()}

    ran = wallscope("analyze", folder, "--json", folder / "StringIds.parquet")

    assert (ran.code, ran.out) == (2, "")
    assert "lies in a folder that is an input" in ran.err
    assert {path.name: path.read_bytes() for path in folder.iterdir()} == before


@pytest.mark.parametrize(
    "statement",
    [
        pytest.param("UPDATE CUPTI_ACTIVITY_KIND_KERNEL SET deviceId = 1 << 40", id="a device of 41 bits"),
        pytest.param("UPDATE CUPTI_ACTIVITY_KIND_MEMCPY SET bytes = 1 << 62", id="copies of exabytes"),
        pytest.param("UPDATE CUPTI_ACTIVITY_KIND_MEMCPY SET bytes = -5", id="negative bytes"),
        pytest.param("UPDATE NVTX_EVENTS SET domainId = -1", id="a negative domain"),
        pytest.param("UPDATE NVTX_EVENTS SET domainId = 1 << 40", id="a domain of 41 bits"),
        pytest.param(
            "UPDATE CUPTI_ACTIVITY_KIND_KERNEL SET start = -9223372036854775807, end = 9223372036854775807"
            " WHERE rowid = 1",
            id="a kernel as long as time",
        ),
        pytest.param(
            "UPDATE CUPTI_ACTIVITY_KIND_RUNTIME SET end = 9223372036854775807", id="calls without end"
        ),
        pytest.param(
            "UPDATE NVTX_EVENTS SET start = -9223372036854775807", id="ranges from the beginning of time"
        ),
        pytest.param("UPDATE StringIds SET value = NULL", id="no names"),
        pytest.param(
            "UPDATE CUPTI_ACTIVITY_KIND_RUNTIME SET correlationId = 1", id="one correlation id for all"
        ),
        pytest.param("UPDATE CUPTI_ACTIVITY_KIND_RUNTIME SET globalTid = NULL", id="calls of nobody"),
        pytest.param("UPDATE NVTX_EVENTS SET globalTid = NULL", id="ranges of nobody"),
    ],
)
def test_numbers_that_cannot_be_true_do_no_harm(statement, tmp_path):
    with ExportWriter(tmp_path / "run.sqlite") as writer:
        writer.connection.execute("CREATE TABLE StringIds_ (id INTEGER PRIMARY KEY, value TEXT)")
        train(writer)
        writer.copy("host-to-device", 900_000, 910_000, 64, stream=15)
        writer.copy("host-to-device", 920_000, 930_000, 64, stream=15)
    connection = sqlite3.connect(tmp_path / "run.sqlite")
    if "StringIds" in statement:
        connection.executescript("""
            DROP TABLE StringIds_;
            CREATE TABLE fresh (id INTEGER PRIMARY KEY, value TEXT);
            INSERT INTO fresh SELECT id, value FROM StringIds;
            DROP TABLE StringIds;
            ALTER TABLE fresh RENAME TO StringIds;
        """)
    connection.execute(statement)
    connection.commit()
    connection.close()

    found = answer(tmp_path / "run.sqlite")

    for rank in found.ranks:
        assert all(sum(step.budget.parts()) == step.end_ns - step.start_ns for step in rank.steps)
        assert all(0 <= entry.bytes < 2**60 for entry in rank.memory.copies)


def test_a_name_that_the_string_table_leaves_empty_is_its_number(tmp_path):
    with ExportWriter(tmp_path / "run.sqlite") as writer:
        writer.kernel("nvjet", 1, 2)
        number = writer.string("nvjet")
    connection = sqlite3.connect(tmp_path / "run.sqlite")
    connection.execute("DROP TABLE StringIds")
    connection.execute("CREATE TABLE StringIds (id INTEGER PRIMARY KEY, value TEXT)")
    connection.execute("INSERT INTO StringIds VALUES (?, NULL)", (number,))
    connection.commit()
    connection.close()

    assert read_capture(tmp_path / "run.sqlite", lambda _: None).names["text"].to_list() == [f"#{number}"]


def test_long_periods_are_found_in_linear_time():
    symbols = np.tile(np.random.default_rng(1).integers(0, 50, 40_000), 20)
    started_s = time.process_time()

    found = find_period(symbols, np.zeros(symbols.size, np.int64))

    assert found is not None
    assert found.starts.size >= 19
    assert time.process_time() - started_s < 20


def test_pages_that_migrate_by_themselves_need_no_call(tmp_path):
    with ExportWriter(tmp_path / "run.sqlite") as writer:
        train(writer)
        for page in range(100):
            writer.copy("migration-to-device", 900_000 + 10 * page, 900_005 + 10 * page, 4_096)

    assert answer(tmp_path / "run.sqlite").capture.launch_correlation_share == 1


def test_a_pattern_finds_the_steps_of_each_rank_whatever_their_names(tmp_path):
    with ExportWriter(tmp_path / "run.sqlite") as writer:
        train(writer, pid=1000, marks=("alpha {}",))
        train(writer, pid=1001, device=1, marks=("beta {}",))

    found = answer(tmp_path / "run.sqlite", step_range="^(alpha|beta)")

    assert [len(rank.steps) for rank in found.ranks] == [6, 6]
    assert (found.anchor.kind, found.anchor.name) == ("user", "^(alpha|beta)")


def test_both_ways_to_find_steps_are_compared_on_one_rank(tmp_path):
    with ExportWriter(tmp_path / "run.sqlite") as writer:
        train(writer, pid=1000, count=4)
        train(writer, pid=1001, device=1, count=6)

    found = answer(tmp_path / "run.sqlite")

    assert (found.anchor.steps, found.anchor.cross_check.steps, found.anchor.cross_check.agrees) == (
        6,
        6,
        True,
    )
    assert [step.index for step in found.anchor.dropped] == [5]
    assert "anchors-disagree" not in codes(found)


def test_a_rank_that_lacks_what_marks_the_steps_of_the_others_is_told(tmp_path):
    with ExportWriter(tmp_path / "run.sqlite") as writer:
        train(writer, pid=1000, count=7)
        train(writer, pid=1001, device=1, count=6, marks=())

    found = answer(tmp_path / "run.sqlite")

    assert [len(rank.steps) for rank in found.ranks] == [7, 1]
    assert {"ranks-without-steps"} == codes(found) & {"ranks-without-steps", "few-steps", "no-steps"}


def codes(found):
    return {finding.code for finding in found.capture.findings}


def test_bursts_of_optimizer_kernels_divide_one_step_less_and_do_not_disagree(tmp_path):
    with ExportWriter(tmp_path / "run.sqlite") as writer:
        for index in range(9):
            for kernel in range(44):
                name = f"nvjet_{kernel}" if kernel < 40 else "multi_tensor_apply_kernel<AdamFunctor>"
                at = 1_000_000 + STEP_NS * index + 2_000 * kernel
                writer.kernel(name, at, at + 1_000)

    found = answer(tmp_path / "run.sqlite")
    said = {finding.code: finding.message for finding in found.capture.findings}

    assert (found.anchor.kind, found.anchor.steps, found.anchor.cross_check.steps) == ("optimizer", 8, 9)
    assert found.anchor.cross_check.agrees
    assert "anchors-disagree" not in said
    assert "after each burst of optimizer kernels" in said["unmarked-steps"]


def test_a_disagreement_names_what_disagrees():
    check = CrossCheck("kernel-sequence", 12, agrees=False)
    said = [
        next(_disagreement(Anchor(kind, "step", None, 6, cross_check=check))).message.partition(" 6 steps")[0]
        for kind in ("nvtx", "optimizer")
    ]

    assert said == ["The ranges suggest", "Bursts of optimizer kernels suggest"]


def test_steps_whose_calls_are_unknown_are_not_played(tmp_path):
    with ExportWriter(tmp_path / "run.sqlite") as writer:
        for index in range(9):
            for kernel in range(44):
                at = 1_000_000 + STEP_NS * index + 2_000 * kernel
                writer.kernel(f"nvjet_{kernel}", at, at + 1_000)

    with pytest.raises(NothingToAnalyzeError, match=f"sqlite — {NO_ISSUER} — capture with --trace=cuda"):
        ask_what_if(tmp_path / "run.sqlite", Options(), Asked(()), lambda _: None)
    replay = answer(tmp_path / "run.sqlite").replay
    assert replay is None or replay.refused == NO_ISSUER
