from dataclasses import replace

import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.attribution.brute_programs import FLAGS, Action, actions, played, seen
from tests.attribution.brute_trace import Call, Op, Record, Sync, Trace, capture, in_order
from tests.trace.waiting import awaited, producers
from wallscope.trace.dependencies import resolve_dependencies


def waited_for(*syncs, calls, ops, records=()):
    """What each blocking call waits for, by place of the call."""
    trace = Trace(tuple(ops), tuple(calls), tuple(records), tuple(syncs))
    return awaited(resolve_dependencies(capture(trace)))


LAUNCHES = (Call(0, 0, 5, "launch"), Call(0, 10, 15, "launch"))
OPS = (Op(0, 20, 100, "compute", 0), Op(1, 20, 200, "communication", 1))


@pytest.mark.parametrize(
    ("what", "sync", "expected"),
    [
        pytest.param("stream", ("stream", 0), {0}, id="a stream"),
        pytest.param("stream", ("stream", 1), {1}, id="another stream"),
        pytest.param("stream", ("stream", 7), set(), id="a stream without operations"),
        pytest.param("context", ("context",), {0, 1}, id="the device"),
        pytest.param("context", None, {0, 1}, id="the device, without a row"),
        pytest.param("stream", None, {1}, id="a stream without a row: that of the last launch"),
        pytest.param(
            "event", None, {1}, id="an event without a row: taken for the stream of the last launch"
        ),
        pytest.param(
            "event", ("event", None, 7, 5), {1}, id="an event without its record: what ended right before"
        ),
    ],
)
def test_what_a_blocking_call_waits_for(what, sync, expected):
    calls = (*LAUNCHES, Call(0, 30, 210, what))
    syncs = [Sync(2, *sync)] if sync else []

    assert waited_for(*syncs, calls=calls, ops=OPS) == {2: expected}


def test_a_blocking_call_waits_for_an_event_as_it_was_recorded():
    calls = (*LAUNCHES, Call(0, 16, 17, "record"), Call(0, 18, 19, "launch"), Call(0, 30, 210, "event"))
    ops = (*OPS, Op(0, 100, 900, "compute", 3))

    found = waited_for(Sync(4, "event", None, 7, 5), calls=calls, ops=ops, records=[Record(2, 0, 7, 5)])

    assert found == {4: {0}}


def test_an_event_recorded_before_the_capture_holds_nobody_up():
    calls = (*LAUNCHES, Call(0, 16, 17, "record"), Call(0, 30, 31, "event"))

    found = waited_for(Sync(3, "event", None, 7, 4), calls=calls, ops=OPS, records=[Record(2, 0, 7, 5)])

    assert found == {3: set()}


def test_what_another_thread_issued_counts_too():
    calls = (Call(0, 30, 210, "stream"), Call(1, 0, 5, "launch"), Call(1, 40, 45, "launch"))
    ops = (Op(0, 20, 100, "compute", 1), Op(0, 100, 200, "compute", 2))

    assert waited_for(Sync(0, "stream", 0), calls=calls, ops=ops) == {0: {0}}


@pytest.mark.parametrize(
    ("kind", "end", "expected"),
    [
        pytest.param("copy", 49, {0: {0}}, id="a copy that ended before its call"),
        pytest.param("copy", 50, {0: {0}}, id="at the end of its call"),
        pytest.param("copy", 51, {}, id="after its call"),
        pytest.param("compute", 49, {}, id="a kernel"),
    ],
)
def test_a_copy_that_ended_inside_its_call_held_the_caller(kind, end, expected):
    assert waited_for(calls=[Call(0, 10, 50, "copy")], ops=[Op(0, 20, end, kind, 0)]) == expected


US = 1_000
WHEN_HELD = [
    # what is called, the memory at both ends, start and end of the row (the call: 10 to 5,000 us), is held
    pytest.param("memcpy", "device>pageable", 4_000, 4_990, True, id="to the host, before the call returned"),
    pytest.param("memcpy", "device>pageable", 4_000, 5_030, True, id="shortly after"),
    pytest.param("memcpy", "device>pageable", 4_000, 5_100, False, id="long after: clocks tell nothing"),
    pytest.param("memcpy", "device>pinned", 4_000, 5_030, True, id="to pinned memory, without Async"),
    pytest.param("copy", "device>pageable", 4_000, 5_030, True, id="to pageable memory, with Async"),
    pytest.param("copy", "device>pinned", 4_000, 5_030, False, id="to pinned memory, with Async"),
    pytest.param("copy", "device>pinned", 4_000, 4_500, False, id="the same, that happened to end before"),
    pytest.param("memcpy", "pinned>device", 4_000, 5_030, True, id="from pinned memory, without Async"),
    pytest.param("copy", "pinned>device", 4_000, 4_500, False, id="from pinned memory, with Async"),
    pytest.param("memcpy", "pageable>device", 100, 4_990, True, id="from pageable memory, before"),
    pytest.param("memcpy", "pageable>device", 100, 5_030, True, id="from pageable memory, shortly after"),
    pytest.param("copy", "pageable>device", 100, 5_030, True, id="the same with Async"),
    pytest.param("copy", "pageable>device", 100, 5_900, True, id="a slow link: the last part is on its way"),
    pytest.param("memcpy", "pageable>device", 4_990, 5_030, False, id="a small one, staged at once"),
    pytest.param("copy", "pageable>device", 5_001, 5_003, False, id="a small one that begins behind"),
    pytest.param(
        "copy", "pageable>device", 4_900, 9_000, False, id="mostly behind: staged before it was sent"
    ),
    pytest.param("memcpy", "device>device", 100, 4_990, True, id="on the device, without Async, before"),
    pytest.param("memcpy", "device>device", 100, 5_001, False, id="on the device, without Async, after"),
    pytest.param("copy", "device>device", 100, 4_990, False, id="on the device, with Async"),
    pytest.param("copy", "managed>device", 100, 4_990, True, id="managed memory: its end tells"),
    pytest.param("memcpy", "", 100, 4_990, True, id="nothing is told: its end tells"),
    pytest.param("memcpy", "", 100, 5_030, False, id="nothing is told, after"),
]


@pytest.mark.parametrize(("what", "moves", "start", "end", "is_held"), WHEN_HELD)
def test_when_a_copy_held_its_caller(what, moves, start, end, is_held):
    copy = Op(0, start * US, end * US, "copy", 0, moves=moves)

    found = waited_for(calls=[Call(0, 10 * US, 5_000 * US, what)], ops=[copy])

    assert found == ({0: {0}} if is_held else {})


def test_of_several_copies_of_a_call_the_one_that_ended_last_held_the_caller():
    ends = [(200, 2_000), (2_000, 4_900), (300, 1_000), (4_999, 5_040)]  # the last was staged
    ops = [Op(0, start * US, end * US, "copy", 0, moves="pageable>device") for start, end in sorted(ends)]

    found = waited_for(calls=[Call(0, 10 * US, 5_000 * US, "memcpy")], ops=ops)

    assert [ops[op].end for op in found[0]] == [4_900 * US]


def test_a_copy_that_seems_to_begin_after_its_call_returned_stands_for_what_it_waited_for():
    calls = (Call(0, 0, 5 * US, "launch"), Call(0, 10 * US, 5_000 * US, "copy"))
    kernel = Op(0, 8 * US, 4_999 * US, "compute", 0)
    copy = Op(0, 5_001 * US, 5_003 * US, "copy", 1, moves="device>pageable")

    assert waited_for(calls=calls, ops=[kernel, copy]) == {1: {0}}


def test_a_fill_holds_nobody():
    held = capture(Trace((Op(0, 20, 40, "copy", 0),), (Call(0, 10, 50, "memcpy"),)))
    filled = held.operations.with_columns(kind=pl.lit("fill", held.operations.schema["kind"]))

    assert awaited(resolve_dependencies(replace(held, operations=filled))) == {}


def test_waits_are_counted_and_those_without_a_record_are_open():
    calls = (
        Call(0, 0, 5, "launch"),
        Call(0, 10, 11, "record"),
        Call(0, 20, 21, "wait"),
        Call(0, 30, 31, "wait"),
        Call(0, 40, 60, "stream"),
    )
    syncs = (Sync(2, "wait", 1, 7, 5), Sync(3, "wait", 2, 7, 9), Sync(4, "stream", 1))
    trace = Trace((Op(0, 8, 50, "compute", 0),), calls, (Record(1, 0, 7, 5),), syncs)

    found = resolve_dependencies(capture(trace))

    assert (found.waits_seen, found.waits_resolved, found.resolved_share) == (3, 2, pytest.approx(2 / 3))


def test_without_waits_there_is_no_share_of_them():
    found = resolve_dependencies(capture(Trace(OPS, LAUNCHES)))

    assert (found.waits_seen, found.waits_resolved, found.resolved_share) == (0, 0, None)


BEGUN = [
    Action("record", 0, 0, 1, event=2),
    *(Action("launch", 0, 0, 1, stream=stream) for stream in range(3)),
]


@given(st.integers(1, 3).flatmap(actions), FLAGS)
def test_operations_and_blocking_calls_wait_as_they_did_when_the_program_ran(program, flags):
    left = played([*BEGUN, *(replace(action, unseen=False) for action in program)], flags)
    trace = in_order(seen(left, flags, "number"))
    found = resolve_dependencies(capture(trace))

    order = sorted(range(len(left.ops)), key=lambda row: left.ops[row].start)
    assert [last_end(found, producers(found, op)) for op in range(len(order))] == [
        left.before[row] for row in order
    ]
    ended = {call: last_end(found, tail) for call, tail in awaited(found).items()}
    place = {call: row for row, call in enumerate(trace.calls)}
    assert {
        call: end
        for call, end in ended.items()
        if end is not None and trace.calls[call].what not in {"copy", "memcpy"}
    } == {place[left.calls[row]]: end for row, end in left.waited.items()}


def last_end(found, ops):
    return max((found.end_ns[op] for op in ops), default=None)
