import sqlite3
from contextlib import closing
from dataclasses import replace
from itertools import pairwise

import pytest

from fixtures.simulation.names import GEMM, NORM
from fixtures.simulation.program import (
    NULL_STREAM,
    Acquire,
    Allocate,
    Copy,
    Free,
    Graph,
    GraphLaunch,
    HostThread,
    Latencies,
    Launch,
    Node,
    Park,
    Program,
    Query,
    Record,
    Release,
    Signal,
    Spin,
    SyncStream,
    Unrecorded,
    WaitEvent,
    Work,
)
from fixtures.simulation.random_programs import random_program
from fixtures.simulation.run import StuckError, run
from fixtures.simulation.stories import stories
from fixtures.simulation.story import CALL_NS, HAND_OVER_NS, LATENCY_NS, RETURN_NS, US, all_to_all, gemm
from fixtures.simulation.writing import write_run

SIDE, OTHER = 13, 14
PROGRAMS = [pytest.param(story.program, id=story.name) for story in stories()] + [
    pytest.param(random_program(seed), id=f"seed {seed}") for seed in range(12)
]


def alone(*actions):
    return Program(((HostThread("python", actions),),))


def played(*actions):
    return run(alone(*actions)).ranks[0]


def times(rank):
    return [(one.start_ns, one.end_ns) for one in rank.operations]


def notes(program):
    """Everything that a run notes of its operations and calls, as plain numbers."""
    return [
        [
            (one.name, one.stream, one.start_ns, one.end_ns, [c.at_ns for c in one.constraints], one.step)
            for one in rank.operations
        ]
        + [(call.name, call.start_ns, call.end_ns, call.drains) for call in rank.calls]
        for rank in run(program).ranks
    ]


@pytest.mark.parametrize("program", PROGRAMS)
def test_the_same_program_runs_the_same_way(program):
    assert notes(program) == notes(program)


@pytest.mark.parametrize("program", PROGRAMS)
def test_the_binding_constraint_is_the_latest_and_none_is_later_than_the_start(program):
    for rank in run(program).ranks:
        for operation in rank.operations:
            latest_ns = max(constraint.at_ns for constraint in operation.constraints)
            assert operation.binding.at_ns == latest_ns <= operation.start_ns
            assert operation.binding in operation.constraints


@pytest.mark.parametrize("program", PROGRAMS)
def test_an_operation_waits_only_for_what_was_issued_before(program):
    for rank in run(program).ranks:
        for operation in rank.operations:
            assert all(producer.number < operation.number for producer, _ in operation.producers)
            assert operation.call.start_ns < operation.start_ns


@pytest.mark.parametrize("program", PROGRAMS)
def test_the_segments_of_a_thread_follow_each_other_without_a_gap(program):
    for rank in run(program).ranks:
        for segments in rank.segments:
            ends = [segment.end_ns for segment in segments]
            assert [segment.start_ns for segment in segments][1:] == ends[:-1]


@pytest.mark.parametrize("program", PROGRAMS)
def test_operations_of_a_stream_do_not_overlap_unless_launched_programmatically(program):
    for rank in run(program).ranks:
        last_ns = {}
        for operation in rank.operations:
            if not operation.is_programmatic:
                assert operation.start_ns >= last_ns.get(operation.stream, 0)
            last_ns[operation.stream] = operation.end_ns


def test_participants_of_a_collective_end_together_once_the_last_has_come():
    def one(computed_us):
        met = all_to_all(50, participants=(0, 1))
        return (HostThread("python", (gemm(computed_us), Record("a"), WaitEvent(met.stream, "a"), met)),)

    first, second = (rank.operations for rank in run(Program((one(100), one(300)))).ranks)
    assert first[1].start_ns == first[0].end_ns + HAND_OVER_NS
    assert first[1].end_ns == second[1].end_ns == second[1].start_ns + 50 * US
    assert first[1].arrived_ns == second[1].start_ns


def test_a_collective_that_a_peer_never_joins_is_an_error():
    lonely = Program(
        (
            (HostThread("python", (all_to_all(50, participants=(0, 1)), SyncStream(20))),),
            (HostThread("python", (gemm(10),)),),
        )
    )
    with pytest.raises(StuckError, match=r"ranks \[0\]"):
        run(lonely)


def test_a_thread_that_parks_for_nobody_is_an_error():
    with pytest.raises(StuckError):
        run(alone(Park("never")))


@pytest.mark.parametrize(
    ("direction", "memory", "blocks"),
    [
        pytest.param("host-to-device", "pageable", True, id="from pageable"),
        pytest.param("device-to-host", "pageable", True, id="to pageable"),
        pytest.param("host-to-device", "pinned", False, id="from pinned"),
        pytest.param("device-to-host", "pinned", False, id="to pinned"),
    ],
)
def test_pageable_memory_holds_the_caller_in_both_directions(direction, memory, blocks):
    rank = played(Copy(direction, 1 << 20, 100 * US, host_memory=memory))
    copy, call = rank.operations[0], rank.calls[0]

    assert call.is_blocking == blocks
    assert (call.end_ns == copy.end_ns + RETURN_NS) == blocks


def test_a_free_waits_for_all_streams():
    rank = played(gemm(100, stream=SIDE), Free(50 * US))
    assert rank.calls[-1].end_ns == rank.operations[0].end_ns + 50 * US


def test_an_event_stands_for_its_latest_record():
    rank = played(
        gemm(300),
        Record("e"),
        gemm(10, stream=SIDE),
        Record("e", SIDE),
        WaitEvent(OTHER, "e"),
        gemm(10, stream=OTHER),
    )
    assert rank.operations[2].start_ns == rank.operations[1].end_ns + HAND_OVER_NS


def test_a_relay_through_an_empty_stream_passes_the_wait_on():
    rank = played(
        gemm(300),
        Record("e"),
        WaitEvent(SIDE, "e"),
        Record("f", SIDE),
        WaitEvent(OTHER, "f"),
        gemm(10, stream=OTHER),
    )
    assert rank.operations[1].start_ns == rank.operations[0].end_ns + HAND_OVER_NS
    assert rank.operations[1].binding.producer is rank.operations[0]


@pytest.mark.parametrize("is_ordered", [pytest.param(True, id="blocking"), pytest.param(False, id="not")])
def test_the_null_stream_orders_with_blocking_streams_alone(is_ordered):
    actions = (gemm(300, stream=SIDE), gemm(10, stream=NULL_STREAM), gemm(10, stream=SIDE))
    program = replace(alone(*actions), blocking_streams=frozenset({SIDE} if is_ordered else ()))
    side, null, again = run(program).ranks[0].operations

    assert (null.start_ns > side.end_ns) == is_ordered
    assert again.start_ns == (null if is_ordered else side).end_ns + HAND_OVER_NS


def test_the_branches_of_a_graph_join_where_an_edge_says_so():
    graph = Graph(
        (
            Node(GEMM, 10 * US),
            Node(GEMM, 50 * US, branch=1, after=(0,)),
            Node(GEMM, 20 * US),
            Node(GEMM, 10 * US, after=(1,)),
        ),
        branch_streams=(60,),
    )
    rank = played(GraphLaunch(graph), gemm(5))
    first, beside, second, join, behind = rank.operations

    assert len(rank.calls) == 2
    assert beside.start_ns == second.start_ns == first.end_ns + HAND_OVER_NS
    assert join.start_ns == beside.end_ns + HAND_OVER_NS
    assert behind.start_ns == join.end_ns + HAND_OVER_NS
    assert [one.stream for one in rank.operations] == [NULL_STREAM, 60, *[NULL_STREAM] * 3]


def test_a_programmatic_launch_starts_early_and_works_behind_its_predecessor():
    first, second = played(gemm(50), Launch(NORM, 30 * US, programmatic=True)).operations
    assert second.start_ns == first.end_ns - Latencies().programmatic_lead_ns
    assert second.end_ns == first.end_ns + 30 * US


def test_a_woken_thread_goes_on_behind_the_one_that_woke_it():
    main = HostThread("python", (Work(100 * US), Signal("go"), Park("done"), gemm(10)))
    other = HostThread("pt_autograd_0", (Park("go"), Work(50 * US), Signal("done")))
    rank = run(Program(((main, other),))).ranks[0]
    wake_ns = Latencies().wake_ns

    assert rank.calls[0].start_ns - rank.segments[0][0].start_ns == 150 * US + 2 * wake_ns


def test_a_kernel_starts_a_latency_behind_its_launch():
    rank = played(gemm(10))
    call = rank.calls[0]
    assert times(rank) == [
        (call.start_ns + CALL_NS + LATENCY_NS, call.start_ns + CALL_NS + LATENCY_NS + 10 * US)
    ]


def test_a_thread_waits_for_the_holder_of_a_lock_and_notes_who_that_was():
    holder = HostThread("holder", (Acquire("lock"), Allocate(100 * US), Release("lock")))
    waiter = HostThread("waiter", (Work(10 * US), Acquire("lock"), gemm(5), Release("lock")))
    rank = run(Program(((holder, waiter),))).ranks[0]
    (waited,) = (one for one in rank.segments[1] if one.os_call)

    assert (waited.start_ns, waited.signalled_ns) == (1_010 * US, 1_100 * US)
    assert (waited.signaller, waited.signaller_segment) == (0, 0)
    assert rank.calls[1].start_ns == waited.end_ns > waited.signalled_ns


def test_a_lock_that_nobody_holds_costs_nothing():
    threads = HostThread("first", (Acquire("lock"), Release("lock"))), HostThread("other", (Work(5 * US),))

    assert run(Program((threads,))).ranks[0].segments[0] == ()


def test_a_thread_that_asks_sleeps_between_questions_until_the_event_is_complete():
    rank = played(gemm(1_000), Record("done"), Spin("done", sleeps_ns=(300 * US, 100 * US)))
    asked = [call for call in rank.calls if "Query" in call.name]

    assert [call.return_value for call in asked] == [600] * (len(asked) - 1) + [0]
    assert asked[-1].waited_for is rank.operations[0]
    gaps = [after.start_ns - before.end_ns for before, after in pairwise(asked)]
    assert gaps == [300 * US, 100 * US] * 2 + [300 * US]


def test_a_question_is_answered_and_not_waited_for():
    rank = played(gemm(100), Record("done"), Query("done"), Work(200 * US), Query("done"))
    first, last = (call for call in rank.calls if "Query" in call.name)

    assert (first.return_value, last.return_value) == (600, 0)
    assert last.end_ns < 1_300 * US
    assert not any(call.is_blocking for call in rank.calls)


def test_what_has_no_row_holds_its_stream_all_the_same(tmp_path):
    program = alone(gemm(10), Unrecorded("cudaLaunchHostFunc_v10000", "host/callback", 50 * US), gemm(10))
    ran = run(program)
    first, function, last = ran.ranks[0].operations
    write_run(ran, tmp_path / "run.sqlite")
    with closing(sqlite3.connect(tmp_path / "run.sqlite")) as export:
        rows = export.execute("SELECT COUNT(*) FROM CUPTI_ACTIVITY_KIND_KERNEL").fetchall()

    assert last.start_ns - first.end_ns == 2 * HAND_OVER_NS + 50 * US
    assert (function.is_recorded, rows) == (False, [(2,)])
