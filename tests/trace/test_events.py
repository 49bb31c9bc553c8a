import polars as pl
import pytest

from tests.attribution.brute_trace import Call, Op, Record, Sync, Trace, capture
from wallscope.trace.events import RECORDS, WAITS, resolve_waits


def resolved(trace):
    held = capture(trace)
    found = resolve_waits(held.syncs, held.events, held.calls, held.call_names, held.threads)
    assert found.records.schema == RECORDS
    assert found.waits.schema == WAITS
    at_ns = dict(found.records.select("record", "at_ns").iter_rows())
    return [
        (at, at_ns.get(record), how)
        for at, record, how in found.waits.select("at_ns", "record", "how").iter_rows()
    ]


def made(*calls, records=(), syncs=()):
    """Calls written as moment and kind, all of thread 0 and 1 ns long."""
    told = tuple(Call(0, at, at + 1, what) for at, what in calls)
    return Trace((Op(0, 0, 1, "compute"),), told, tuple(records), tuple(syncs))


def by_number(number, *, event=7, recorded=((0, 7, 5), (1, 7, 6))):
    """Two records at 10 and 20, a wait at 30."""
    records = [Record(call, 0, handle, name) for call, handle, name in recorded]
    return made(
        (10, "record"),
        (20, "record"),
        (30, "wait"),
        records=records,
        syncs=[Sync(2, "wait", 1, event, number)],
    )


@pytest.mark.parametrize(
    ("trace", "expected"),
    [
        pytest.param(by_number(5), (30, 10, "event_id"), id="by number, not the latest of that handle"),
        pytest.param(by_number(6), (30, 20, "event_id"), id="by number, the latest"),
        pytest.param(by_number(6, event=8), (30, 20, "event_id"), id="the handle does not matter"),
        pytest.param(by_number(4), (30, None, "before_capture"), id="a number below all"),
        pytest.param(by_number(7), (30, None, "none"), id="a number above all"),
        pytest.param(by_number(None), (30, None, "none"), id="no number beside records with numbers"),
        pytest.param(
            by_number(5, recorded=((0, 7, 4), (1, 7, 6))), (30, None, "none"), id="a number between two"
        ),
        pytest.param(
            by_number(6, recorded=((0, 7, None), (1, 7, None))),
            (30, 20, "handle"),
            id="the latest of the handle",
        ),
        pytest.param(
            by_number(6, recorded=((0, 7, None), (1, 8, None))), (30, 10, "handle"), id="that of the handle"
        ),
        pytest.param(
            by_number(None, event=9, recorded=((0, 7, None), (1, 8, None))),
            (30, None, "before_capture"),
            id="a handle without a record",
        ),
        pytest.param(
            by_number(None, event=None, recorded=((0, 7, None), (1, 8, None))),
            (30, None, "none"),
            id="neither handle nor number",
        ),
    ],
)
def test_the_record_that_a_wait_means(trace, expected):
    assert resolved(trace) == [expected]


def test_a_handle_recorded_again_after_the_wait_means_the_earlier_record():
    records = [Record(0, 0, 7, None), Record(2, 0, 7, None)]
    trace = made(
        (10, "record"), (20, "wait"), (30, "record"), records=records, syncs=[Sync(1, "wait", 1, 7, None)]
    )

    assert resolved(trace) == [(20, 10, "handle")]


def in_order(*calls):
    """Calls written as moment and number: a record without one, a wait with one; no rows of records."""
    named = [(at, "record" if number is None else "wait") for at, number in calls]
    syncs = [Sync(row, "wait", 1, 7, number) for row, (_, number) in enumerate(calls) if number is not None]
    return made(*named, syncs=syncs)


@pytest.mark.parametrize(
    ("trace", "expected"),
    [
        pytest.param(
            in_order((10, None), (20, 41), (30, None), (40, 42)),
            [(20, 10, "record_order"), (40, 30, "record_order")],
            id="each right after its record",
        ),
        pytest.param(
            in_order((10, None), (20, None), (30, 41), (40, 42)),
            [(30, 10, "record_order"), (40, 20, "record_order")],
            id="an earlier record among later ones",
        ),
        pytest.param(
            in_order((5, 39), (10, None), (20, 40), (30, None), (40, 41)),
            [(5, None, "before_capture"), (20, 10, "record_order"), (40, 30, "record_order")],
            id="one from before the capture",
        ),
        pytest.param(
            in_order((10, None), (20, 41), (30, None), (40, 41)),
            [(20, 10, "record_order"), (40, 10, "record_order")],
            id="waited for twice",
        ),
        pytest.param(in_order((20, 41)), [(20, None, "none")], id="no records"),
    ],
)
def test_the_order_of_records_tells_where_they_have_no_rows(trace, expected):
    assert resolved(trace) == expected


def test_waits_without_numbers_or_records_stay_open():
    trace = made((10, "record"), (20, "wait"), syncs=[Sync(1, "wait", 1, 7, None)])

    assert resolved(trace) == [(20, None, "none")]


def test_blocking_waits_for_events_are_resolved_alike_and_other_blocking_calls_are_none():
    records = [Record(0, 0, 7, 5)]
    syncs = [Sync(1, "event", None, 7, 5), Sync(2, "stream", 0, None, 0), Sync(3, "context", None, None, 0)]
    calls = [(10, "record"), (20, "event"), (30, "stream"), (40, "context")]

    assert resolved(made(*calls, records=records, syncs=syncs)) == [(20, 10, "event_id")]


def test_processes_do_not_share_numbers_or_handles():
    trace = by_number(5)
    held = capture(trace)
    syncs = held.syncs.with_columns(process=pl.lit(1, pl.UInt32))

    found = resolve_waits(syncs, held.events, held.calls, held.call_names, held.threads)

    assert found.waits.select("record", "how").rows() == [(-1, "none")]


def test_a_capture_without_waits_has_none():
    assert resolved(made((10, "record"))) == []


@pytest.mark.parametrize(
    ("name", "is_record"),
    [
        ("cudaEventRecord", True),
        ("cudaEventRecordWithFlags", True),
        ("cuEventRecord", True),
        ("cuCtxRecordEvent", True),
        ("cudaExecutionCtxRecordEvent", True),
        pytest.param("cudaGraphAddEventRecordNode", False, id="a node of a graph records nothing yet"),
        ("cudaGraphExecEventRecordNodeSetEvent", False),
        ("cudaStreamWaitEvent", False),
    ],
)
def test_calls_that_record_an_event_count_as_records(name, is_record):
    held = capture(made((10, "other"), (20, "record")))
    renamed = held.call_names.with_columns(text=pl.col("text").replace({"cudaGetDevice": name}))

    found = resolve_waits(held.syncs, held.events, held.calls, renamed, held.threads)

    assert found.records["at_ns"].to_list() == ([10, 20] if is_record else [20])
