import random
import sqlite3
from pathlib import Path

import pytest

from fixtures.export import SCHEMAS, ExportWriter, global_pid
from wallscope.model.capture import Capture, Presence
from wallscope.nsys import read_capture, read_contents


def capture(path: Path) -> Capture:
    return read_capture(path, lambda _: None)


def write(path: Path, schema: str = "3.25.0", *, lazy: bool = True, shuffled: int | None = None) -> Path:
    """Two kernels, a copy and a fill; in any order of rows."""
    with ExportWriter(path, schema, lazy=lazy) as writer:
        rows = [
            lambda: writer.kernel("nvjet_tst_128x128", 1_000, 5_000, correlation=1),
            lambda: writer.kernel("ncclDevKernel_AllReduce_x(y)", 4_000, 8_000, stream=9, correlation=2),
            lambda: writer.copy("host-to-device", 8_500, 9_000, 100, correlation=3),
            lambda: writer.fill(8_900, 9_500, 10, correlation=4),
        ]
        if shuffled is not None:
            random.Random(shuffled).shuffle(rows)
        for row in rows:
            row()
    return path


def operations(path: Path) -> list[tuple]:
    found = capture(path)
    return (
        found.operations.join(found.names, on="name", how="left", maintain_order="left")
        .select("rank_id", "stream", "start_ns", "end_ns", "kind", "text", "bytes")
        .rows()
    )


EXPECTED = [
    (0, 0, 1_000, 5_000, "kernel", "nvjet_tst_128x128", None),
    (0, 1, 4_000, 8_000, "kernel", "ncclDevKernel_AllReduce_x(y)", None),
    (0, 0, 8_500, 9_000, "copy", None, 100),
    (0, 0, 8_900, 9_500, "fill", None, 10),
]


@pytest.mark.parametrize("lazy", [True, False], ids=["lazy", "all tables"])
@pytest.mark.parametrize("schema", SCHEMAS)
def test_every_schema_generation_gives_the_same_operations(schema, lazy, tmp_path):
    assert operations(write(tmp_path / "run.sqlite", schema, lazy=lazy)) == EXPECTED


@pytest.mark.parametrize("seed", range(5))
def test_the_order_of_rows_does_not_matter(seed, tmp_path):
    assert operations(write(tmp_path / "run.sqlite", shuffled=seed)) == EXPECTED


@pytest.mark.parametrize("page_bytes", [512, 1024, 65536])
def test_any_page_size_is_read(page_bytes, tmp_path):
    path = write(tmp_path / "run.sqlite")
    connection = sqlite3.connect(path)
    connection.execute(f"PRAGMA page_size = {page_bytes}")
    connection.execute("VACUUM")
    connection.close()

    assert operations(path) == EXPECTED


def test_an_empty_table_is_not_an_absent_one(tmp_path):
    lazy = capture(write(tmp_path / "lazy.sqlite", "3.24.0"))
    full = capture(write(tmp_path / "full.sqlite", "3.24.0", lazy=False))

    assert lazy.presence["CUPTI_ACTIVITY_KIND_GRAPH_TRACE"] is Presence.ABSENT
    assert full.presence["CUPTI_ACTIVITY_KIND_GRAPH_TRACE"] is Presence.EMPTY
    assert full.presence["CUPTI_ACTIVITY_KIND_KERNEL"] is Presence.ROWS


def test_a_kernel_table_of_thirteen_columns_is_enough(tmp_path):
    """The oldest and the made-up exports have neither processes nor contexts."""
    path = tmp_path / "run.sqlite"
    connection = sqlite3.connect(path)
    connection.executescript("""
        CREATE TABLE StringIds (id INTEGER NOT NULL PRIMARY KEY, value TEXT NOT NULL);
        INSERT INTO StringIds VALUES (3, 'gemm');
        CREATE TABLE CUPTI_ACTIVITY_KIND_KERNEL
            (start INTEGER, end INTEGER, deviceId INTEGER, shortName INTEGER);
        INSERT INTO CUPTI_ACTIVITY_KIND_KERNEL VALUES (0, 5, 0, 3), (7, 9, 0, 4), (7, 8, 1, NULL);
    """)
    connection.close()

    found = capture(path)

    assert found.ranks.select("pid", "device", "gpu").rows() == [(None, 0, None), (None, 1, None)]
    assert found.names.rows() == [(0, "#4"), (1, "(unnamed)"), (2, "gemm")]
    assert found.operations.select("rank_id", "start_ns", "end_ns", "name").rows() == [
        (0, 0, 5, 2),
        (0, 7, 9, 0),
        (1, 7, 8, 1),
    ]


def test_text_that_is_no_utf_8_does_not_stop_the_reader(tmp_path):
    path = tmp_path / "run.sqlite"
    with ExportWriter(path) as writer:
        writer.kernel("nvjet", 1, 2)
        writer.machine("node1", 5)
        writer.row("META_DATA_EXPORT", name="EXPORT_TIME_LOCAL", value="x")
        writer.connection.execute(
            "UPDATE META_DATA_EXPORT SET value = CAST(X'CCCEEDFF' AS TEXT) WHERE name = 'EXPORT_TIME_LOCAL'"
        )
        writer.connection.execute("INSERT INTO StringIds VALUES (99, CAST(X'6EFF76' AS TEXT))")
        writer.connection.execute("UPDATE CUPTI_ACTIVITY_KIND_KERNEL SET demangledName = 99")

    assert capture(path).names["text"].to_list() == ["n\ufffdv"]


def test_a_process_of_a_host_with_a_high_id_is_still_that_process(tmp_path):
    path = tmp_path / "run.sqlite"
    with ExportWriter(path) as writer:
        writer.kernel("nvjet", 1, 2)
        writer.connection.execute(
            "UPDATE CUPTI_ACTIVITY_KIND_KERNEL SET globalPid = ?", (global_pid(4_711, host=0xFE),)
        )

    assert capture(path).ranks["pid"].to_list() == [4_711]


def test_views_and_tables_of_others_are_ignored(tmp_path):
    path = write(tmp_path / "run.sqlite")
    connection = sqlite3.connect(path)
    connection.executescript("""
        CREATE VIEW CUPTI_ACTIVITY_KIND_GRAPH_TRACE AS SELECT 1 AS start, 99999999 AS "end", 0 AS deviceId;
        CREATE TABLE "odd ""table" (x);
        ALTER TABLE CUPTI_ACTIVITY_KIND_KERNEL ADD COLUMN name TEXT;
    """)
    connection.close()

    assert operations(path) == EXPECTED


def test_gpus_of_early_exports_stand_in_another_table(tmp_path):
    path = write(tmp_path / "run.sqlite", "2.7.1")
    connection = sqlite3.connect(path)
    connection.executescript("""
        CREATE TABLE TARGET_INFO_CUDA_GPU (deviceId INT NOT NULL, name TEXT NOT NULL,
            numMultiprocessors INT NOT NULL, computeCapabilityMajor INT NOT NULL,
            computeCapabilityMinor INT NOT NULL, globalMemorySize INT NOT NULL);
        INSERT INTO TARGET_INFO_CUDA_GPU VALUES (0, 'Tesla V100-SXM2-16GB', 80, 7, 0, 16160),
            (0, 'Tesla V100-SXM2-16GB', 80, 7, 0, 16160);
    """)
    connection.close()

    (gpu,) = capture(path).export.gpus
    assert (gpu.id, gpu.name, gpu.architecture, gpu.sm_count, gpu.memory_bytes) == (
        0,
        "Tesla V100-SXM2-16GB",
        "sm_70",
        80,
        16_160 << 20,
    )


def test_contents_of_an_export_without_device_operations(tmp_path):
    path = tmp_path / "run.sqlite"
    with ExportWriter(path, "3.7.2") as writer:
        writer.range("step", 1, 2)
        writer.capture_option("CAPTURE_EVENT_TYPE", "Cuda")
        writer.capture_option("CAPTURE_EVENT_TYPE", "NvtxEvents")
        writer.capture_option("PROCESS_0:CUDA_GRAPH_TRACE_OPTIONS:MODE", "Node")
        writer.row("ANALYSIS_DETAILS", duration=5_000_000_000)

    found = read_contents(path, lambda _: None)

    assert found.traced == ("Cuda", "NvtxEvents")
    assert found.graph_mode == "node"
    assert found.duration_ns == 5_000_000_000
    assert {entry.table: entry.row_count for entry in found.tables if entry.row_count is not None} == {
        "NVTX_EVENTS": 1
    }
