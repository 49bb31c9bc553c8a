import csv
import io
import json
import statistics
from fractions import Fraction
from pathlib import Path

import polars as pl
import pytest

from fixtures.export import ExportWriter, global_pid
from tests.answered_once import analyze_once
from tests.shipped_example import EXAMPLE
from wallscope.model.capture import Options
from wallscope.pipeline import analyze
from wallscope.preparation import read_trace, tabulate_steps
from wallscope.render.data import write_csv
from wallscope.summary.tables import WALL_COLUMNS, build_kernel_table, build_range_table


@pytest.fixture(scope="module")
def example() -> Path:
    return EXAMPLE


@pytest.fixture(scope="module")
def divided(example):
    return read_trace(example, Options(), lambda _: None)


def measured(spans: list[tuple[int, int]]) -> int:
    """Length of a union, by walking over the spans in order."""
    total, reached = 0, None
    for start, end in sorted(spans):
        if reached is None or start > reached:
            total, reached = total + end - start, end
        elif end > reached:
            total, reached = total + end - reached, end
    return total


def test_device_time_of_every_path_equals_brute_force(divided):
    windows = divided.windows.filter(pl.col("steady"))
    durations = sorted(windows["end_ns"] - windows["start_ns"])
    low, high = (statistics.quantiles(durations, n=4, method="inclusive")[index] for index in (0, 2))
    steps = [
        (row["start_ns"], row["end_ns"])
        for row in windows.iter_rows(named=True)
        if low <= row["end_ns"] - row["start_ns"] <= high
    ]
    path_of = dict(divided.range_tree.tree.select("range", "path").iter_rows())
    paths = divided.range_tree.paths.rows_by_key("path", named=True, unique=True)
    texts = dict(divided.range_tree.names.iter_rows())
    inclusive: dict[str, list[tuple[int, int]]] = {}
    alone: dict[str, list[tuple[int, int]]] = {}
    for op, held in zip(
        divided.operations.iter_rows(named=True), divided.projected.iter_rows(named=True), strict=True
    ):
        names = []
        at = path_of.get(held["range"], -1)
        while at >= 0:
            names.append(texts[paths[at]["name"]])
            at = paths[at]["parent"]
        span = (op["start_ns"], op["end_ns"])
        for depth in range(len(names)):
            inclusive.setdefault(" / ".join(reversed(names[depth:])), []).append(span)
        if names:
            alone.setdefault(" / ".join(reversed(names)), []).append(span)

    def per_step(spans: list[tuple[int, int]]) -> int:
        clipped = [
            (max(start, a), min(end, b))
            for a, b in steps
            for start, end in spans
            if max(start, a) < min(end, b)
        ]
        return round(Fraction(measured(clipped), len(steps)))

    found = {
        row["path"]: (row["gpu_ns"], row["own_gpu_ns"])
        for row in build_range_table(divided).iter_rows(named=True)
    }

    assert len(found) > 40
    assert found == {
        path: (per_step(inclusive.get(path, [])), per_step(alone.get(path, []))) for path in found
    }
    assert {path for path, spans in inclusive.items() if per_step(spans)} <= set(found)


def test_work_of_kernels_adds_up_to_that_of_the_answer(divided, example):
    (rank,) = analyze_once(example).ranks
    kernels = build_kernel_table(divided)

    for entry in rank.compute:
        own = kernels.filter(pl.col("class") == "compute", pl.col("category") == entry.category)
        assert abs(own["work_ns"].sum() - entry.work_ns) <= len(own)
        assert round(own["count"].sum()) == entry.kernels


def test_steps_are_those_of_the_answer(example):
    (rank,) = analyze_once(example).ranks
    table = tabulate_steps(example, Options(), lambda _: None)

    assert table.select("step", "start_ns", "end_ns", "idle_ns", "steady").rows() == [
        (step.index, step.start_ns, step.end_ns, step.budget.idle, step.steady) for step in rank.steps
    ]
    assert table.select(WALL_COLUMNS).rows() == [step.walls.parts() for step in rank.steps]
    assert (table.select(pl.sum_horizontal(WALL_COLUMNS)).to_series() == table["duration_ns"]).all()


@pytest.mark.parametrize(
    ("command", "heads"),
    [
        ("steps", "rank,pid,device,step,start_ns,end_ns,duration_ns,compute_ns"),
        ("kernels", "rank,pid,device,class,category,backend,count,work_ns,step_share"),
        ("ranges", "rank,pid,device,count,host_ns,gpu_ns,own_gpu_ns,work_ns,own_work_ns"),
    ],
)
def test_tables_are_written_as_csv_and_json_with_the_same_rows(command, heads, wallscope, example, tmp_path):
    ran = wallscope(command, example, "--csv", "t.csv", "--json", "t.json")
    rows = list(csv.DictReader(io.StringIO((tmp_path / "t.csv").read_text(encoding="utf-8"))))

    assert (ran.code, ran.err) == (0, "Wrote t.csv\nWrote t.json\n")
    assert (tmp_path / "t.csv").read_text(encoding="utf-8").startswith(heads)
    assert len(rows) == len(json.loads((tmp_path / "t.json").read_text(encoding="utf-8"))) > 0
    assert max(map(len, ran.out.split("\n"))) <= 80
    assert wallscope(command, example, "--csv", "-").out == (tmp_path / "t.csv").read_text(encoding="utf-8")


def test_text_that_a_spreadsheet_would_run_is_quoted():
    frame = pl.DataFrame({"name": ["=1+1", "-2", "@x", "plain", None], "count": [1, -2, 3, 4, 5]})

    assert write_csv(frame) == "name,count\n'=1+1,1\n'-2,-2\n'@x,3\nplain,4\n,5\n"


def test_an_export_without_ranges_lists_none(wallscope, tmp_path):
    with ExportWriter(tmp_path / "run.sqlite") as writer:
        writer.kernel("nvjet", 1, 2)
    ran = wallscope("ranges", "run.sqlite")

    assert (ran.code, ran.err) == (0, "")
    assert "nothing to list" in ran.out


def test_allocator_calls_and_peak_memory_are_those_of_the_rank(tmp_path):
    path = tmp_path / "run.sqlite"
    with ExportWriter(path, "3.25.0") as writer:
        writer.gpu()
        for index in range(4):
            at = 1_000_000 + 100_000 * index
            writer.range(f"training_step_{index}", at - 10, at + 90_000)
            number = writer.call("cudaLaunchKernel_v7000", at, at + 9)
            writer.kernel("nvjet", at + 500, at + 50_000, correlation=number)
            for part in range(2 * index):
                writer.call("cudaMalloc_v3020", at + 1_000 + 10 * part, at + 1_005 + 10 * part)
        for at, used, is_release in ((10, 700, 0), (20, 500, 0), (30, 700, 1)):
            writer.row(
                "CUDA_GPU_MEMORY_USAGE_EVENTS",
                start=at,
                globalPid=global_pid(1000),
                deviceId=0,
                bytes=used,
                memKind=2,
                memoryOperationType=is_release,
            )

    (rank,) = analyze(path, Options(), lambda _: None).ranks

    assert (rank.memory.peak_bytes, rank.memory.capacity_bytes) == (1_200, 85_520_809_984)
    assert rank.memory.allocator_calls == 2  # 0, 2 and 4 in the three steady steps
