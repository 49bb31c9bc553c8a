"""Bulk exports: what benchmarks rely on holds in a small one."""

import sqlite3
from collections.abc import Iterator
from contextlib import closing
from itertools import groupby, pairwise
from pathlib import Path

import pytest
from polars.testing import assert_frame_equal

from fixtures.bulk import main, write_bulk
from fixtures.export import SCHEMAS
from fixtures.huge import write_huge
from wallscope.nsys import read_capture

KERNELS, RANKS, STEPS = 4_000, 2, 3
PID_MASK = ~0xFF_FFFF
TABLES = {
    "ANALYSIS_DETAILS",
    "CUPTI_ACTIVITY_KIND_CUDA_EVENT",
    "CUPTI_ACTIVITY_KIND_KERNEL",
    "CUPTI_ACTIVITY_KIND_MEMCPY",
    "CUPTI_ACTIVITY_KIND_MEMSET",
    "CUPTI_ACTIVITY_KIND_RUNTIME",
    "CUPTI_ACTIVITY_KIND_SYNCHRONIZATION",
    "META_DATA_CAPTURE",
    "META_DATA_EXPORT",
    "NVTX_EVENTS",
    "OSRT_API",
    "PROCESSES",
    "StringIds",
    "TARGET_INFO_CUDA_CONTEXT_INFO",
    "TARGET_INFO_CUDA_DEVICE",
    "TARGET_INFO_CUDA_STREAM",
    "TARGET_INFO_GPU",
    "TARGET_INFO_SESSION_START_TIME",
    "TARGET_INFO_SYSTEM_ENV",
    "ThreadNames",
}
NAMES = {
    "kernel": "SELECT demangledName FROM CUPTI_ACTIVITY_KIND_KERNEL",
    "call": "SELECT nameId FROM CUPTI_ACTIVITY_KIND_RUNTIME",
    "OS call": "SELECT nameId FROM OSRT_API",
}
LAUNCHES = f"""
    SELECT kernel.start, call.start, call.end, name.value, kernel.graphNodeId
    FROM CUPTI_ACTIVITY_KIND_{{table}} AS kernel
    LEFT JOIN CUPTI_ACTIVITY_KIND_RUNTIME AS call
        ON (call.globalTid & {PID_MASK}) = kernel.globalPid AND call.correlationId = kernel.correlationId
    LEFT JOIN StringIds AS name ON name.id = call.nameId
"""


@pytest.fixture(scope="module")
def path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A small bulk export."""
    path = tmp_path_factory.mktemp("bulk") / "bulk.sqlite"
    write_bulk(path, kernels=KERNELS, ranks=RANKS, steps=STEPS)
    return path


@pytest.fixture
def export(path: Path) -> Iterator[sqlite3.Connection]:
    with closing(sqlite3.connect(path)) as connection:
        yield connection


def contents(path: Path) -> dict[str, list[tuple]]:
    with closing(sqlite3.connect(path)) as connection:
        return {
            table: connection.execute(f"SELECT * FROM {table}").fetchall()
            for (table,) in connection.execute(
                "SELECT name FROM sqlite_master WHERE type = 'table'"
            ).fetchall()
        }


def rows(export: sqlite3.Connection, table: str) -> int:
    return export.execute(f"SELECT COUNT(*) FROM {table}").fetchone()[0]


def share(export: sqlite3.Connection, table: str) -> float:
    """Rows of a table per kernel."""
    return rows(export, table) / rows(export, "CUPTI_ACTIVITY_KIND_KERNEL")


def spans(export: sqlite3.Connection, table: str, lane: str) -> list[list[tuple[int, int]]]:
    """Start and end of the rows of a table, longest first where starts are equal, for each lane."""
    found = export.execute(f"SELECT {lane}, start, end FROM {table} ORDER BY {lane}, start, end DESC")
    return [[row[-2:] for row in group] for _, group in groupby(found, key=lambda row: row[:-2])]


def test_the_same_arguments_give_the_same_rows(path, tmp_path):
    again = tmp_path / "again.sqlite"

    write_bulk(again, kernels=KERNELS, ranks=RANKS, steps=STEPS)

    assert contents(again) == contents(path)


def test_another_seed_gives_other_times(path, tmp_path):
    other = tmp_path / "other.sqlite"

    write_bulk(other, kernels=KERNELS, ranks=RANKS, steps=STEPS, seed=8)

    assert contents(other)["CUPTI_ACTIVITY_KIND_KERNEL"] != contents(path)["CUPTI_ACTIVITY_KIND_KERNEL"]


@pytest.mark.parametrize(
    ("kernels", "ranks", "steps"),
    [
        pytest.param(KERNELS, RANKS, STEPS, id="a remainder"),
        pytest.param(2_000, 4, 5, id="the smallest steps"),
        pytest.param(1_999, 1, 1, id="one rank, one step"),
    ],
)
def test_there_are_as_many_kernels_as_asked_for_within_a_hundredth(tmp_path, kernels, ranks, steps):
    path = tmp_path / "bulk.sqlite"

    write_bulk(path, kernels=kernels, ranks=ranks, steps=steps)

    found = contents(path)
    assert len(found["CUPTI_ACTIVITY_KIND_KERNEL"]) == pytest.approx(kernels, rel=0.01)
    assert len(found["TARGET_INFO_GPU"]) == ranks


def test_too_few_kernels_are_refused(tmp_path):
    with pytest.raises(ValueError, match="1000 kernels are too few"):
        write_bulk(tmp_path / "bulk.sqlite", kernels=1_000, ranks=8, steps=20)


def test_the_export_has_the_tables_of_a_capture(export):
    found = {name for (name,) in export.execute("SELECT name FROM sqlite_master WHERE type = 'table'")}

    assert found == TABLES
    assert all(rows(export, table) for table in found)


@pytest.mark.parametrize("schema", SCHEMAS)
def test_every_schema_generation_can_be_asked_for(tmp_path, schema):
    path = tmp_path / "bulk.sqlite"

    write_bulk(path, kernels=200, ranks=2, steps=1, schema=schema)

    assert len(contents(path)["CUPTI_ACTIVITY_KIND_KERNEL"]) == 200


@pytest.mark.parametrize("query", NAMES.values(), ids=NAMES)
def test_every_name_is_in_the_string_table(export, query):
    strings = {number for (number,) in export.execute("SELECT id FROM StringIds")}

    assert {number for (number,) in export.execute(query)} <= strings


@pytest.mark.parametrize(
    ("table", "expected", "slack"),
    [
        pytest.param("CUPTI_ACTIVITY_KIND_RUNTIME", 3.2, 0.3, id="calls"),
        pytest.param("CUPTI_ACTIVITY_KIND_MEMCPY", 0.05, 0.005, id="copies"),
        pytest.param("CUPTI_ACTIVITY_KIND_CUDA_EVENT", 0.07, 0.03, id="records of events"),
        pytest.param("NVTX_EVENTS", 0.55, 0.08, id="ranges"),
        pytest.param("OSRT_API", 0.2, 0.01, id="OS calls"),
    ],
)
def test_rows_per_kernel(export, table, expected, slack):
    assert share(export, table) == pytest.approx(expected, abs=slack)


def test_a_kernel_outside_of_graphs_has_one_launch_which_starts_before_it(export):
    found = export.execute(LAUNCHES.format(table="KERNEL")).fetchall()
    launches = [row for row in found if row[4] is None]

    assert len(found) == rows(export, "CUPTI_ACTIVITY_KIND_KERNEL")
    assert {name for *_, name, _ in launches} == {
        "cudaLaunchKernel_v7000",
        "cudaLaunchKernelExC_v11060",
        "cuLaunchKernelEx",
    }
    assert all(call_start_ns < kernel_start_ns for kernel_start_ns, call_start_ns, *_ in launches)


@pytest.mark.parametrize(
    ("table", "call"),
    [
        pytest.param("MEMCPY", "cudaMemcpyAsync_v3020", id="copy"),
        pytest.param("MEMSET", "cudaMemsetAsync_v3020", id="fill"),
    ],
)
def test_a_copy_or_fill_has_one_call_which_starts_before_it(export, table, call):
    found = export.execute(LAUNCHES.format(table=table)).fetchall()

    assert len(found) == rows(export, f"CUPTI_ACTIVITY_KIND_{table}")
    assert {name for *_, name, _ in found} == {call}
    assert all(call_start_ns < start_ns for start_ns, call_start_ns, *_ in found)


def test_the_kernels_of_a_graph_share_the_launch_of_their_replay(export):
    replays = export.execute(
        """
        SELECT COUNT(*), COUNT(DISTINCT graphNodeId) FROM CUPTI_ACTIVITY_KIND_KERNEL
        WHERE graphNodeId IS NOT NULL GROUP BY globalPid, correlationId
        """
    ).fetchall()
    calls = {row[1:4] for row in export.execute(LAUNCHES.format(table="KERNEL")) if row[4] is not None}

    assert replays == [(33, 33)] * RANKS * STEPS
    assert [name for *_, name in calls] == ["cudaGraphLaunch_v10000"] * RANKS * STEPS


def test_operations_of_one_stream_do_not_overlap(export):
    export.execute(
        """
        CREATE TEMP VIEW operations AS
        SELECT globalPid, streamId, start, end FROM CUPTI_ACTIVITY_KIND_KERNEL
        UNION ALL SELECT globalPid, streamId, start, end FROM CUPTI_ACTIVITY_KIND_MEMCPY
        UNION ALL SELECT globalPid, streamId, start, end FROM CUPTI_ACTIVITY_KIND_MEMSET
        """
    )
    streams = spans(export, "operations", "globalPid, streamId")

    assert len(streams) == 5 * RANKS
    assert all(start < end for stream in streams for start, end in stream)
    assert all(left[1] <= right[0] for stream in streams for left, right in pairwise(stream))


def test_streams_overlap(export):
    (first_rank, _) = spans(export, "CUPTI_ACTIVITY_KIND_KERNEL", "globalPid")

    assert any(left[1] > right[0] for left, right in pairwise(first_rank))


def test_a_collective_ends_on_all_ranks_at_once(export):
    found = export.execute(
        """
        SELECT deviceId, end FROM CUPTI_ACTIVITY_KIND_KERNEL
        WHERE streamId IN (22, 26) ORDER BY deviceId, end
        """
    ).fetchall()
    first, second = ([end for device, end in found if device == rank] for rank in range(RANKS))

    assert len(first) == 13 * STEPS
    assert first == second


@pytest.mark.parametrize("table", ["CUPTI_ACTIVITY_KIND_RUNTIME", "OSRT_API"])
def test_a_thread_is_in_one_call_at_a_time(export, table):
    threads = spans(export, table, "globalTid")

    assert all(left[1] <= right[0] for thread in threads for left, right in pairwise(thread))


def test_ranges_nest_in_each_thread(export):
    threads = spans(export, "NVTX_EVENTS", "globalTid")

    assert len(threads) == 2 * RANKS
    for thread in threads:
        open_ends: list[int] = []
        for start, end in thread:
            while open_ends and open_ends[-1] <= start:
                open_ends.pop()
            assert start < end
            assert not open_ends or end < open_ends[-1]
            open_ends.append(end)


def test_every_launch_is_in_a_range_of_its_thread(export):
    (outside,) = export.execute(
        """
        SELECT COUNT(*) FROM CUPTI_ACTIVITY_KIND_RUNTIME AS call
        WHERE NOT EXISTS (
            SELECT 1 FROM NVTX_EVENTS AS range
            WHERE range.globalTid = call.globalTid AND range.start < call.start AND call.end < range.end
        )
        """
    ).fetchone()

    assert outside == 0


def test_each_rank_has_every_step_with_its_phases_and_layers(export):
    counts = dict(
        export.execute(
            "SELECT text, COUNT(*) FROM NVTX_EVENTS WHERE text NOT LIKE '%op_id = %' GROUP BY text"
        )
    )

    assert counts == {
        **{f"training_step_{step}": RANKS for step in range(STEPS)},
        **dict.fromkeys(("forward", "backward", "optimizer"), RANKS * STEPS),
        **{f"layer_{n}.{phase}": RANKS * STEPS for n in range(32) for phase in ("forward", "backward")},
    }


def test_backward_runs_in_the_autograd_thread(export):
    found = export.execute(
        """
        SELECT DISTINCT range.text, name.value FROM NVTX_EVENTS AS range
        JOIN ThreadNames AS thread ON thread.globalTid = range.globalTid
        JOIN StringIds AS name ON name.id = thread.nameId
        WHERE range.text IN ('forward', 'backward', 'optimizer') ORDER BY range.text
        """
    ).fetchall()

    assert found == [("backward", "pt_autograd_0"), ("forward", "python"), ("optimizer", "python")]


def test_correlation_ids_collide_between_processes_but_not_within(export):
    found = export.execute(
        f"SELECT globalTid & {PID_MASK}, correlationId FROM CUPTI_ACTIVITY_KIND_RUNTIME"
    ).fetchall()
    shared = set.intersection(
        *({number for pid, number in found if pid == one} for one in {pid for pid, _ in found})
    )

    assert len(set(found)) == len(found)
    assert len(shared) > len(found) / RANKS / 4


def test_a_wait_names_an_event_that_was_recorded_before(export):
    found = export.execute(
        """
        SELECT wait.syncType, wait.streamId, event.streamId, wait.eventId = event.eventId
        FROM CUPTI_ACTIVITY_KIND_SYNCHRONIZATION AS wait
        LEFT JOIN CUPTI_ACTIVITY_KIND_CUDA_EVENT AS event
            ON event.globalPid = wait.globalPid AND event.eventSyncId = wait.eventSyncId
            AND event.correlationId < wait.correlationId
        WHERE wait.eventId <> 4294967295
        """
    ).fetchall()

    assert len(found) == rows(export, "CUPTI_ACTIVITY_KIND_CUDA_EVENT")
    assert {row[:3] for row in found} == {
        *((2, stream, 7) for stream in (22, 26, 30, 34)),
        *((2, 7, stream) for stream in (22, 26, 30, 34)),
    }
    assert all(is_same for *_, is_same in found)


def test_each_step_of_a_rank_ends_with_the_device_idle(export):
    found = export.execute(
        """
        SELECT wait.syncType, wait.streamId, wait.eventId, COUNT(*),
            SUM(EXISTS (
                SELECT 1 FROM CUPTI_ACTIVITY_KIND_KERNEL AS kernel
                WHERE kernel.globalPid = wait.globalPid AND kernel.start < wait.end AND kernel.end > wait.end
            ))
        FROM CUPTI_ACTIVITY_KIND_SYNCHRONIZATION AS wait WHERE wait.eventId = 4294967295
        """
    ).fetchall()

    assert found == [(4, 4_294_967_295, 4_294_967_295, RANKS * STEPS, 0)]


@pytest.mark.parametrize(
    "table", ["CUPTI_ACTIVITY_KIND_KERNEL", "CUPTI_ACTIVITY_KIND_RUNTIME", "NVTX_EVENTS", "OSRT_API"]
)
def test_rows_are_not_sorted_by_time(export, table):
    starts = [start for (start,) in export.execute(f"SELECT start FROM {table}")]

    assert starts != sorted(starts)
    assert min(starts) > 59_999_000_000


def test_the_command_line_says_in_one_line_how_big_the_export_is(tmp_path, capsys, monkeypatch):
    path = tmp_path / "bulk.sqlite"
    monkeypatch.setattr(
        "sys.argv",
        ["bulk", str(path), "--kernels", "200", "--ranks", "1", "--steps", "2", "--schema", "3.7.2"],
    )

    main()

    (line,) = capsys.readouterr().out.splitlines()
    assert line.startswith(f"{path}: 0.")
    assert " MB, 200 kernels, " in line


def test_a_huge_export_is_the_bulk_export_with_what_else_the_machine_did(tmp_path):
    bulk, huge = tmp_path / "bulk.sqlite", tmp_path / "huge.sqlite"
    write_bulk(bulk, kernels=KERNELS, ranks=RANKS, steps=STEPS)
    write_huge(bulk, huge, 0.01, switches=2_000, samples=900)
    first, again = (read_capture(path, lambda _: None) for path in (bulk, huge))

    assert huge.stat().st_size > 10_000_000
    assert_frame_equal(again.operations, first.operations)
    assert (len(first.cpu_samples), len(again.cpu_samples)) == (0, 900)
    assert len(again.host_events) > len(first.host_events)
    with closing(sqlite3.connect(huge)) as connection:
        assert connection.execute("PRAGMA integrity_check").fetchall() == [("ok",)]
        assert connection.execute("SELECT COUNT(*) FROM SCHED_EVENTS").fetchall() == [(2_000,)]
