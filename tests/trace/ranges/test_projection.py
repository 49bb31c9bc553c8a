import sqlite3
from pathlib import Path

import polars as pl
import pytest

from fixtures.export import ExportWriter
from tests.conftest import slow
from wallscope.nsys import read_capture
from wallscope.trace.ranges import nest_ranges, project_ranges, write_paths


def projected(path: Path) -> pl.DataFrame:
    """One row an operation: start, name of the innermost range, its path, and how it was found."""
    capture = read_capture(path, lambda _: None)
    tree, paths, labels = nest_ranges(capture.ranges, capture.range_names, capture.calls, capture.threads)
    found = project_ranges(capture.operations, capture.calls, tree, capture.threads)
    ranges = tree.join(capture.range_names, on="name").select(pl.col("range").cast(pl.Int32), "text", "path")
    written = write_paths(paths, labels, paths["path"])
    return (
        found.join(capture.operations.select("op", "rank_id", "start_ns", "kind"), on="op")
        .join(ranges, on="range", how="left", maintain_order="left")
        .with_columns(
            path=pl.col("path").replace_strict(paths["path"], written, default=None, return_dtype=pl.String)
        )
        .join(capture.ranks.select("rank_id", "pid", "device"), on="rank_id")
        .sort("op")
    )


def write(path: Path, *, other_ranges=(), waits_in_call=False) -> Path:
    """Forward on the main thread; backward on the autograd thread while the main thread waits."""
    with ExportWriter(path) as writer:
        writer.range("forward", 0, 100)
        writer.range("backward", 100, 300)
        launches = [(10, 1000, 1), (150, 1001, 2), (160, 1001, 3), (400, 1001, 4)]
        for at_ns, thread, number in launches:
            writer.call("cudaLaunchKernel_v7000", at_ns, at_ns + 2, thread=thread, correlation=number)
            writer.kernel("nvjet", 1_000 + at_ns, 1_001 + at_ns, correlation=number)
        writer.range("aten::mm, op_id = 5", 158, 165, thread=1001)
        if waits_in_call:
            writer.call("cudaDeviceSynchronize_v3020", 120, 290, thread=1000)
        for thread, start_ns, end_ns in other_ranges:
            writer.range("other", start_ns, end_ns, thread=thread)
    return path


def test_backward_work_inherits_the_range_of_the_thread_that_waits(tmp_path):
    found = projected(write(tmp_path / "run.sqlite"))

    assert found.select("start_ns", "text", "how").rows() == [
        (1_010, "forward", "same_thread"),
        (1_150, "backward", "inherited"),
        (1_160, "aten::mm, op_id = 5", "same_thread"),
        (1_400, None, "none"),
    ]


@pytest.mark.parametrize(
    ("other_ranges", "waits_in_call", "expected"),
    [
        pytest.param([(1002, 140, 170)], False, (None, "none"), id="two threads that could wait"),
        pytest.param([(1002, 10, 20)], False, ("backward", "inherited"), id="the other one's range is over"),
        pytest.param([], True, (None, "none"), id="the main thread is inside a call"),
    ],
)
def test_a_range_is_inherited_from_the_one_thread_that_waits_alone(
    other_ranges, waits_in_call, expected, tmp_path
):
    found = projected(write(tmp_path / "run.sqlite", other_ranges=other_ranges, waits_in_call=waits_in_call))

    assert found.select("text", "how").row(1) == expected


def test_a_graph_belongs_to_the_range_around_its_launch(tmp_path):
    with ExportWriter(tmp_path / "run.sqlite") as writer:
        writer.range("capture", 0, 10)
        writer.range("replay", 20, 30)
        writer.call("cudaGraphLaunch_v10000", 25, 26, correlation=9)
        for node in (1, 2, 3):
            writer.kernel("nvjet", 100 * node, 100 * node + 50, correlation=9, graph_node=node)

    assert projected(tmp_path / "run.sqlite")["text"].to_list() == ["replay"] * 3


def brute_force(path: Path) -> dict[tuple[int, int, int], str | None]:
    """(process, start, correlation) of each kernel to the innermost range on its launching thread."""
    connection = sqlite3.connect(f"{path.as_uri()}?mode=ro&immutable=1", uri=True)
    strings = dict(connection.execute("SELECT id, value FROM StringIds"))
    calls = {
        (thread >> 24, number): (start, thread)
        for start, thread, number in connection.execute(
            "SELECT start, globalTid, correlationId FROM CUPTI_ACTIVITY_KIND_RUNTIME"
        )
    }
    ranges: dict[int, list[tuple[int, int, str]]] = {}
    for start, end, text, text_id, thread in connection.execute(
        "SELECT start, end, text, textId, globalTid FROM NVTX_EVENTS WHERE eventType IN (59, 60)"
    ):
        ranges.setdefault(thread, []).append((start, end, text if text is not None else strings[text_id]))
    found = {}
    for start, process, number in connection.execute(
        "SELECT start, globalPid, correlationId FROM CUPTI_ACTIVITY_KIND_KERNEL"
    ):
        at, thread = calls.get((process >> 24, number), (0, None))
        holding = [row for row in ranges.get(thread, ()) if row[0] <= at < row[1]]
        innermost = max(holding, key=lambda row: (row[0], -row[1]), default=(0, 0, None))
        found[process >> 24 & 0xFFFFFF, start, number] = innermost[2]
    connection.close()
    return found


@pytest.mark.parametrize("stem", ["nsysai_mfu_after", *slow("nsysai_mfu_before")])
def test_the_projection_of_a_real_pair_equals_brute_force(stem, traces):
    path = traces / f"{stem}.sqlite"
    expected = brute_force(path)

    found = projected(path).filter(pl.col("kind") == "kernel", pl.col("how") != "inherited")

    assert sorted(found.select("pid", "start_ns", "text").rows(), key=repr) == sorted(
        ((process, start, text) for (process, start, _), text in expected.items()), key=repr
    )


def test_backward_kernels_of_a_real_run_are_inherited_from_the_main_thread(traces):
    found = projected(traces / "cs336_tianshi_result.sqlite").filter(pl.col("kind") == "kernel")
    backward = found.filter(pl.col("path") == "backward")

    assert backward["how"].value_counts().sort("how").rows() == [("same_thread", 40), ("inherited", 15_540)]
