import random
from contextlib import contextmanager

import polars as pl
import pytest

from fixtures.export import ExportWriter, global_pid
from wallscope.errors import InputError
from wallscope.model.schemas import MEMORY_EVENTS
from wallscope.nsys.gpu_counters import read_memory
from wallscope.nsys.identity import number_threads, process_of
from wallscope.nsys.sources import open_tables
from wallscope.nsys.tables import make_database

TABLE = "CUDA_GPU_MEMORY_USAGE_EVENTS"
HOST = 200  # its global ids are negative
ALLOCATED, FREED = 0, 1
OLD_TABLE = f"""CREATE TABLE {TABLE} (
    start INTEGER NOT NULL, globalPid INTEGER NOT NULL, deviceId INTEGER NOT NULL,
    contextId INTEGER, address INTEGER, pc INTEGER, bytes INTEGER NOT NULL, memKind INTEGER NOT NULL,
    memoryOperationType INTEGER NOT NULL, name TEXT, correlationId INTEGER)"""


def peaks(found: pl.DataFrame) -> dict[tuple[int, int], int]:
    """The most bytes in use of each process and device."""
    return {
        (process, device): own["bytes_used"].max()
        for (process, device), own in found.group_by("process", "device")
    }


def quiet(_):
    pass


@contextmanager
def export(path):
    with open_tables(path) as tables:
        yield make_database(path, tables)


def used(path, shift_ns=0, pids=(1000, 2000)):
    tids = pl.Series("globalTid", [global_pid(pid, host=HOST) + pid for pid in pids], pl.Int64)
    processes = tids.to_frame().select(globalPid=process_of("globalTid")).sort("globalPid")
    with export(path) as source:
        numbered = number_threads(source, tids, processes.with_row_index("process"))
        rows = read_memory(source, numbered, shift_ns, quiet)
    assert rows.schema == MEMORY_EVENTS
    return rows


def write(path, rows, schema="3.25.0"):
    """Rows of time, operation and bytes, then whatever is unlike an ordinary one."""
    with ExportWriter(path, schema) as writer:
        writer.call("cudaMalloc_v3020", 1, 2)
        if not writer.has(TABLE):
            writer._ddl[TABLE] = OLD_TABLE
        for start, operation, size, *more in rows:
            row = {"globalPid": global_pid(1000, host=HOST), "deviceId": 0, "memKind": 2}
            row |= {"start": start, "memoryOperationType": operation, "bytes": size}
            writer.row(TABLE, **{**row, **(more[0] if more else {})})
    return path


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("schema", ["2.7.1", "3.24.0", "3.28.1"])
def test_allocations_add_up_and_releases_take_away_in_order_of_time(schema, seed, tmp_path):
    rows = [(100, ALLOCATED, 1_000), (200, ALLOCATED, 500), (300, FREED, 1_000), (400, ALLOCATED, 200)]
    random.Random(seed).shuffle(rows)

    found = used(write(tmp_path / "run.sqlite", rows, schema), shift_ns=50)
    assert found.rows() == [(0, 0, 50, 1_000), (0, 0, 150, 1_500), (0, 0, 250, 500), (0, 0, 350, 700)]
    assert peaks(found) == {(0, 0): 1_500}


def test_each_process_and_device_has_a_sum_of_its_own(tmp_path):
    other = {"globalPid": global_pid(2000, host=HOST)}
    rows = [
        (100, ALLOCATED, 10),
        (110, ALLOCATED, 20, other),
        (120, ALLOCATED, 40, {"deviceId": 1}),
        (130, ALLOCATED, 80, other),
        (140, ALLOCATED, 1),
    ]

    found = used(write(tmp_path / "run.sqlite", rows))
    assert found.rows() == [
        (0, 0, 100, 10),
        (0, 0, 140, 11),
        (0, 1, 120, 40),
        (1, 0, 110, 20),
        (1, 0, 130, 100),
    ]
    assert peaks(found) == {(0, 0): 11, (0, 1): 40, (1, 0): 100}


def test_what_was_allocated_before_the_capture_counts_as_far_as_its_release_shows(tmp_path):
    rows = [(100, ALLOCATED, 10), (200, FREED, 300), (300, ALLOCATED, 5)]

    assert used(write(tmp_path / "run.sqlite", rows))["bytes_used"].to_list() == [300, 0, 5]


def test_a_pool_tells_how_much_of_it_is_used(tmp_path):
    one, two = ({"localMemoryPoolAddress": address, "bytes": 7} for address in (111, 222))
    rows = [
        (100, ALLOCATED, 1_000),
        (200, ALLOCATED, 7, {**one, "localMemoryPoolUtilizedSize": 50}),
        (300, ALLOCATED, 7, {**two, "localMemoryPoolUtilizedSize": 400}),
        (400, FREED, 7, {**one, "localMemoryPoolUtilizedSize": 20}),
        (500, ALLOCATED, 1),
        (600, FREED, 7, {**two, "localMemoryPoolUtilizedSize": 0}),
    ]

    found = used(write(tmp_path / "run.sqlite", rows))
    assert found["bytes_used"].to_list() == [1_000, 1_050, 1_450, 1_420, 1_421, 1_021]


@pytest.mark.parametrize(
    "row",
    [
        pytest.param((150, ALLOCATED, 99, {"memKind": 1}), id="pinned memory"),
        pytest.param((150, ALLOCATED, 99, {"memKind": 4}), id="managed memory"),
        pytest.param((150, 7, 99), id="neither allocated nor freed"),
        pytest.param((150, ALLOCATED, -99), id="fewer than no bytes"),
        pytest.param((150, ALLOCATED, 2**62), id="more bytes than there are"),
        pytest.param((150, FREED, 2**63 - 1), id="more bytes freed than there are"),
        pytest.param((150, ALLOCATED, 1, {"localMemoryPoolUtilizedSize": 2**62}), id="a pool as large"),
    ],
)
def test_other_memory_and_impossible_sizes_do_not_count(row, tmp_path):
    rows = [(100, ALLOCATED, 10), row, (200, ALLOCATED, 5)]

    assert used(write(tmp_path / "run.sqlite", rows)).rows() == [(0, 0, 100, 10), (0, 0, 200, 15)]


def test_what_is_known_of_neither_process_nor_device_is_null(tmp_path):
    rows = [(100, ALLOCATED, 10, {"globalPid": 5 << 24, "deviceId": 2**40})]

    assert used(write(tmp_path / "run.sqlite", rows)).rows() == [(None, None, 100, 10)]


def test_of_equal_peaks_the_first_counts(tmp_path):
    rows = [(100, ALLOCATED, 10), (200, FREED, 10), (300, ALLOCATED, 10)]

    assert peaks(used(write(tmp_path / "run.sqlite", rows))) == {(0, 0): 10}


def test_an_export_without_the_table_gives_an_empty_frame(tmp_path):
    found = used(write(tmp_path / "run.sqlite", []))

    assert found.is_empty()


def test_a_word_for_a_size_is_refused(tmp_path):
    with pytest.raises(InputError, match="not an integer"):
        used(write(tmp_path / "run.sqlite", [(100, ALLOCATED, "much")]))


def test_real_exports_with_an_empty_table_have_no_memory_rows(traces):
    assert used(traces / "pipit_saxpy_mpi.sqlite").is_empty()
