import sqlite3
from collections.abc import Callable
from contextlib import closing
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from fixtures.export import SCHEMAS, ExportWriter, global_pid
from wallscope.demo.example import write_example
from wallscope.demo.machine import (
    COPY_CALL_NS,
    DEPENDENCY_LATENCY_NS,
    LAUNCH_CALL_NS,
    LAUNCH_LATENCY_NS,
    NO_EVENT,
    NO_STREAM,
    RECORD_CALL_NS,
    RETURN_NS,
    SYNCHRONIZE_CALL_NS,
    WAIT_CALL_NS,
    WAKE_NS,
    SimulatedMachine,
    Thread,
)

LONG_NS = 1_000_000
SHORT_NS = 1_000
SIDE_STREAM = 13
FIRST_START_NS = LAUNCH_CALL_NS + LAUNCH_LATENCY_NS

Rows = list[tuple[Any, ...]]
Program = Callable[[Thread], None]


def rows(path: Path, sql: str) -> Rows:
    with closing(sqlite3.connect(path)) as connection:
        return connection.execute(sql).fetchall()


def spans(path: Path) -> dict[str, tuple[int, int]]:
    """Start and end of each kernel, by name."""
    kernels = rows(
        path,
        'SELECT string.value, kernel.start, kernel."end" FROM CUPTI_ACTIVITY_KIND_KERNEL AS kernel'
        " JOIN StringIds AS string ON string.id = kernel.demangledName",
    )
    return {name: (start_ns, end_ns) for name, start_ns, end_ns in kernels}


def calls(path: Path) -> Rows:
    """Name, start and end of each API call, in the order of the program."""
    return rows(
        path,
        'SELECT string.value, call.start, call."end" FROM CUPTI_ACTIVITY_KIND_RUNTIME AS call'
        " JOIN StringIds AS string ON string.id = call.nameId ORDER BY call.correlationId",
    )


@pytest.fixture
def ran(tmp_path: Path) -> Callable[[Program], Path]:
    """Run a program on the main thread of a machine; the export it leaves."""

    def run(program: Program) -> Path:
        path = tmp_path / "machine.sqlite"
        with ExportWriter(path) as writer:
            program(SimulatedMachine(writer).thread("python"))
        return path

    return run


@pytest.fixture(scope="module")
def example(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("example") / "example.sqlite"
    write_example(path)
    return path


def test_a_kernel_starts_when_its_launch_call_has_returned(ran: Callable[[Program], Path]) -> None:
    path = ran(lambda thread: thread.launch("kernel", LONG_NS))

    assert calls(path) == [("cudaLaunchKernel_v7000", 0, LAUNCH_CALL_NS)]
    assert spans(path) == {"kernel": (FIRST_START_NS, FIRST_START_NS + LONG_NS)}


def test_a_kernel_starts_when_its_stream_predecessor_has_ended(ran: Callable[[Program], Path]) -> None:
    def program(thread: Thread) -> None:
        thread.launch("first", LONG_NS)
        thread.launch("second", SHORT_NS)

    start_ns = FIRST_START_NS + LONG_NS + DEPENDENCY_LATENCY_NS
    assert spans(ran(program))["second"] == (start_ns, start_ns + SHORT_NS)


def test_streams_run_beside_each_other(ran: Callable[[Program], Path]) -> None:
    def program(thread: Thread) -> None:
        thread.launch("long", LONG_NS)
        thread.launch("beside", SHORT_NS, stream=SIDE_STREAM)

    start_ns = 2 * LAUNCH_CALL_NS + LAUNCH_LATENCY_NS
    assert spans(ran(program))["beside"] == (start_ns, start_ns + SHORT_NS)


def test_an_event_wait_delays_what_its_stream_gets_afterwards(ran: Callable[[Program], Path]) -> None:
    def program(thread: Thread) -> None:
        event = thread.machine.event()
        thread.launch("long", LONG_NS)
        thread.record(event)
        thread.launch("later than the record", LONG_NS)
        thread.launch("before the wait", SHORT_NS, stream=SIDE_STREAM)
        thread.wait_event(SIDE_STREAM, event)
        thread.launch("behind the wait", SHORT_NS, stream=SIDE_STREAM)

    kernels = spans(ran(program))
    assert kernels["before the wait"][0] < kernels["long"][1]
    assert kernels["behind the wait"][0] == kernels["long"][1] + DEPENDENCY_LATENCY_NS


def test_an_event_recorded_behind_a_wait_completes_with_what_was_waited_for(
    ran: Callable[[Program], Path],
) -> None:
    def program(thread: Thread) -> None:
        first, second = thread.machine.event(), thread.machine.event()
        thread.launch("long", LONG_NS)
        thread.record(first)
        thread.wait_event(SIDE_STREAM, first)
        thread.record(second, SIDE_STREAM)
        thread.synchronize_event(second)

    path = ran(program)
    assert calls(path)[-1][2] == spans(path)["long"][1] + RETURN_NS


def test_an_event_that_was_recorded_again_completes_with_the_last_record(
    ran: Callable[[Program], Path],
) -> None:
    def program(thread: Thread) -> None:
        event = thread.machine.event()
        thread.record(event)
        thread.launch("long", LONG_NS)
        thread.record(event)
        thread.wait_event(SIDE_STREAM, event)
        thread.launch("waiting", SHORT_NS, stream=SIDE_STREAM)

    path = ran(program)
    assert spans(path)["waiting"][0] == spans(path)["long"][1] + DEPENDENCY_LATENCY_NS
    assert rows(path, "SELECT eventId, eventSyncId FROM CUPTI_ACTIVITY_KIND_CUDA_EVENT") == [(1, 1), (1, 2)]
    assert rows(path, "SELECT eventId, eventSyncId FROM CUPTI_ACTIVITY_KIND_SYNCHRONIZATION") == [(1, 2)]


@pytest.mark.parametrize(
    "synchronize",
    [
        pytest.param(lambda thread: thread.synchronize(SIDE_STREAM), id="stream"),
        pytest.param(lambda thread: thread.synchronize_device(), id="device"),
    ],
)
def test_a_synchronisation_ends_after_the_tail_of_what_it_waits_for(
    ran: Callable[[Program], Path], synchronize: Program
) -> None:
    def program(thread: Thread) -> None:
        thread.launch("first", LONG_NS, stream=SIDE_STREAM)
        thread.launch("tail", LONG_NS, stream=SIDE_STREAM)
        synchronize(thread)

    path = ran(program)
    _, start_ns, end_ns = calls(path)[-1]
    assert start_ns == 2 * LAUNCH_CALL_NS
    assert end_ns == spans(path)["tail"][1] + RETURN_NS


def test_a_stream_synchronisation_does_not_wait_for_other_streams(ran: Callable[[Program], Path]) -> None:
    def program(thread: Thread) -> None:
        thread.launch("elsewhere", LONG_NS, stream=SIDE_STREAM)
        thread.synchronize()

    _, start_ns, end_ns = calls(ran(program))[-1]
    assert end_ns - start_ns == SYNCHRONIZE_CALL_NS


def test_a_copy_to_pageable_memory_holds_its_caller_and_one_to_pinned_memory_does_not(
    ran: Callable[[Program], Path],
) -> None:
    def program(thread: Thread) -> None:
        thread.copy("device-to-host", 8, LONG_NS)
        thread.copy("device-to-host", 8, SHORT_NS, host_memory="pageable")

    path = ran(program)
    (_, pinned_end_ns), (start_ns, end_ns) = rows(path, 'SELECT start, "end" FROM CUPTI_ACTIVITY_KIND_MEMCPY')
    assert start_ns == pinned_end_ns + DEPENDENCY_LATENCY_NS
    assert calls(path) == [
        ("cudaMemcpyAsync_v3020", 0, COPY_CALL_NS),
        ("cudaMemcpyAsync_v3020", COPY_CALL_NS, end_ns + RETURN_NS),
    ]


def test_freeing_memory_waits_for_the_device_and_allocating_does_not(ran: Callable[[Program], Path]) -> None:
    def program(thread: Thread) -> None:
        thread.launch("kernel", LONG_NS, stream=SIDE_STREAM)
        thread.allocate(SHORT_NS)
        thread.free(SHORT_NS)

    allocated_ns = LAUNCH_CALL_NS + SHORT_NS
    assert calls(ran(program))[1:] == [
        ("cudaMalloc_v3020", LAUNCH_CALL_NS, allocated_ns),
        ("cudaFree_v3020", allocated_ns, FIRST_START_NS + LONG_NS + SHORT_NS),
    ]


def test_a_thread_that_follows_another_goes_on_when_that_one_has_come_so_far(
    ran: Callable[[Program], Path],
) -> None:
    def program(main: Thread) -> None:
        other = main.machine.thread("pt_autograd_0")
        main.work(LONG_NS)
        other.follow(main)
        with other.range("backward"):
            other.launch("kernel", SHORT_NS)

    path = ran(program)
    start_ns = LONG_NS + WAKE_NS
    assert rows(path, 'SELECT text, start, "end", globalTid FROM NVTX_EVENTS') == [
        ("backward", start_ns, start_ns + LAUNCH_CALL_NS, global_pid(1000) + 1001)
    ]
    assert spans(path)["kernel"][0] == start_ns + FIRST_START_NS


def test_a_thread_that_is_already_further_does_not_wait_for_the_other(ran: Callable[[Program], Path]) -> None:
    def program(main: Thread) -> None:
        other = main.machine.thread("pt_autograd_0", start_ns=LONG_NS)
        other.follow(main)
        other.launch("kernel", SHORT_NS)

    assert calls(ran(program)) == [("cudaLaunchKernel_v7000", LONG_NS, LONG_NS + LAUNCH_CALL_NS)]


def test_synchronisation_rows_say_what_they_wait_for_and_lie_inside_their_calls(
    ran: Callable[[Program], Path],
) -> None:
    def program(thread: Thread) -> None:
        event = thread.machine.event()
        thread.record(event)
        thread.wait_event(SIDE_STREAM, event)
        thread.synchronize_event(event)
        thread.synchronize(SIDE_STREAM)
        thread.synchronize_device()

    path = ran(program)
    synchronisations = rows(
        path,
        "SELECT string.value, sync.syncType, sync.streamId, sync.eventId, sync.eventSyncId,"
        ' call.start < sync.start AND sync.start < sync."end" AND sync."end" < call."end"'
        " FROM CUPTI_ACTIVITY_KIND_SYNCHRONIZATION AS sync"
        " JOIN CUPTI_ACTIVITY_KIND_RUNTIME AS call USING (correlationId)"
        " JOIN StringIds AS string ON string.id = call.nameId ORDER BY sync.start",
    )
    assert synchronisations == [
        ("cudaStreamWaitEvent_v3020", 2, SIDE_STREAM, 1, 1, 1),
        ("cudaEventSynchronize_v3020", 1, NO_STREAM, 1, 1, 1),
        ("cudaStreamSynchronize_v3020", 3, SIDE_STREAM, NO_EVENT, 0, 1),
        ("cudaDeviceSynchronize_v3020", 4, NO_STREAM, NO_EVENT, 0, 1),
    ]


@pytest.mark.parametrize("schema", SCHEMAS)
def test_every_schema_generation_holds_what_a_machine_does(schema: str, tmp_path: Path) -> None:
    path = tmp_path / "machine.sqlite"
    with ExportWriter(path, schema, time_shift_ns=LONG_NS) as writer:
        thread = SimulatedMachine(writer).thread("python")
        event = thread.machine.event()
        thread.fill(8, SHORT_NS)
        thread.record(event)
        with thread.range("waiting"):
            thread.wait_event(SIDE_STREAM, event)

    ended_ns = LONG_NS + thread.now_ns
    assert calls(path)[-1] == ("cudaStreamWaitEvent_v3020", ended_ns - WAIT_CALL_NS, ended_ns)
    assert calls(path)[-2][2] - calls(path)[-2][1] == RECORD_CALL_NS
    assert rows(path, "SELECT streamId FROM CUPTI_ACTIVITY_KIND_SYNCHRONIZATION") == [(SIDE_STREAM,)]
    assert rows(path, "SELECT bytes FROM CUPTI_ACTIVITY_KIND_MEMSET") == [(8,)]
    assert rows(path, 'SELECT text, "end" FROM NVTX_EVENTS') == [("waiting", ended_ns)]


def test_two_runs_of_the_example_give_identical_tables(example: Path, tmp_path: Path) -> None:
    again = tmp_path / "again.sqlite"
    write_example(again)

    with closing(sqlite3.connect(example)) as first, closing(sqlite3.connect(again)) as second:
        assert list(first.iterdump()) == list(second.iterdump())


@pytest.mark.parametrize("kind", ["KERNEL", "MEMCPY", "MEMSET", "SYNCHRONIZATION", "CUDA_EVENT"])
def test_each_row_of_the_example_joins_one_call_of_its_process(example: Path, kind: str) -> None:
    numbers_of_calls = rows(
        example,
        "SELECT DISTINCT COUNT(call.correlationId) OVER (PARTITION BY own.rowid)"
        f" FROM CUPTI_ACTIVITY_KIND_{kind} AS own LEFT JOIN CUPTI_ACTIVITY_KIND_RUNTIME AS call"
        " ON call.correlationId = own.correlationId AND call.globalTid & ~0xFFFFFF = own.globalPid",
    )
    assert numbers_of_calls == [(1,)]


def test_operations_of_one_stream_of_the_example_do_not_overlap(example: Path) -> None:
    operations = rows(
        example,
        " UNION ALL ".join(
            f'SELECT streamId, start, "end" FROM CUPTI_ACTIVITY_KIND_{kind}'
            for kind in ("KERNEL", "MEMCPY", "MEMSET")
        )
        + " ORDER BY 1, 2",
    )
    overlaps = [
        (before, after)
        for before, after in pairwise(operations)
        if before[0] == after[0] and after[1] < before[2]
    ]
    assert overlaps == []


def test_no_operation_of_the_example_starts_before_it_was_issued(example: Path) -> None:
    early = rows(
        example,
        "SELECT COUNT(*) FROM CUPTI_ACTIVITY_KIND_KERNEL AS kernel JOIN CUPTI_ACTIVITY_KIND_RUNTIME AS call"
        ' USING (correlationId) WHERE kernel.start < call."end"',
    )
    assert early == [(0,)]


def test_each_wait_of_the_example_names_a_record_made_before_it(example: Path) -> None:
    waits = rows(
        example,
        "SELECT DISTINCT wait.eventId = event.eventId AND record.start < wait.start"
        " FROM CUPTI_ACTIVITY_KIND_SYNCHRONIZATION AS wait"
        " LEFT JOIN CUPTI_ACTIVITY_KIND_CUDA_EVENT AS event USING (eventSyncId)"
        " LEFT JOIN CUPTI_ACTIVITY_KIND_RUNTIME AS record ON record.correlationId = event.correlationId"
        " WHERE wait.syncType = 2",
    )
    assert waits == [(1,)]


def test_calls_and_ranges_of_each_thread_of_the_example_nest(example: Path) -> None:
    spans_of_threads = rows(
        example,
        'SELECT globalTid, start, "end" FROM NVTX_EVENTS UNION ALL'
        ' SELECT globalTid, start, "end" FROM CUPTI_ACTIVITY_KIND_RUNTIME ORDER BY 1, 2, 3 DESC',
    )
    open_spans: list[tuple[int, int]] = []
    crossing = 0
    for thread, start_ns, end_ns in spans_of_threads:
        while open_spans and (open_spans[-1][0] != thread or open_spans[-1][1] <= start_ns):
            open_spans.pop()
        crossing += bool(open_spans) and open_spans[-1][1] < end_ns
        open_spans.append((thread, end_ns))

    assert crossing == 0


def test_the_example_has_a_slow_first_step_eight_steady_ones_and_a_short_last_one(example: Path) -> None:
    steps = rows(
        example,
        'SELECT text, ("end" - start) / 1000000 FROM NVTX_EVENTS'
        " WHERE text LIKE 'megatron.bridge.training.train.train.training_step_%' ORDER BY start",
    )
    names, durations_ms = zip(*steps, strict=True)
    assert [int(name.rpartition("_")[2]) for name in names] == list(range(10))
    assert all(45 <= duration_ms <= 55 for duration_ms in durations_ms[1:-1])
    assert durations_ms[0] > max(durations_ms[1:-1])
    assert durations_ms[-1] < min(durations_ms[1:-1])
