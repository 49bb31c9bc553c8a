from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.attribution.brute_programs import busy_hosts, jittered, possible, senseless, without_ties
from tests.attribution.brute_trace import in_order, shifted, slices

EVERYTHING = [
    *("start_ns", "end_ns", "state", "absent", "cause", "kind"),
    *("gap", "op", "next_op", "call", "thread", "range", "slack_ns"),
]


def told(trace, by=0):
    start, end = trace.ops[0].start, max(op.end for op in trace.ops)
    rows = slices(trace, [start, end]).select(EVERYTHING).rows()
    return [(start - by, end - by, *rest) for start, end, *rest in rows]


@pytest.mark.parametrize("traces", [busy_hosts(jittered()), senseless()], ids=["jittered", "senseless"])
@given(data=st.data(), by=st.one_of(st.integers(-30_000, 30_000), st.integers(-(10**17), 10**18)))
def test_all_times_shifted_shift_the_slices(traces, data, by):
    trace = data.draw(traces)

    assert told(shifted(trace, by), by) == told(trace)


@pytest.mark.parametrize("traces", [busy_hosts(possible()), senseless()], ids=["possible", "senseless"])
@given(data=st.data())
def test_names_of_streams_and_threads_and_the_order_of_rows_change_nothing(traces, data):
    trace = data.draw(without_ties(traces))
    streams, threads = (data.draw(st.permutations(range(3))) for _ in range(2))

    other, call_of = renamed(trace, streams, threads, data.draw(st.randoms(use_true_random=False)))

    back = [threads.index(number) for number in range(3)]
    rows = [
        (*rest, call_of[call], back[thread] if thread >= 0 else -1, slack)
        for *rest, call, thread, _, slack in told(other)
    ]
    assert rows == [(*rest, call, thread, slack) for *rest, call, thread, _, slack in told(trace)]


def renamed(trace, streams, threads, chance):
    """The trace with other names and its rows in another order, and the old number of each call."""
    calls = [call._replace(thread=threads[call.thread]) for call in trace.calls]
    order = list(range(len(calls)))
    chance.shuffle(order)
    place = {old: new for new, old in enumerate(order)} | {-1: -1}

    def moved(rows):
        found = [
            row._replace(call=place[row.call], stream=None if row.stream is None else streams[row.stream])
            for row in rows
        ]
        chance.shuffle(found)
        return tuple(found)

    def renamed_rows(rows):
        return tuple(row._replace(thread=threads[row.thread]) for row in rows)

    other = in_order(
        replace(
            trace,
            ops=moved(trace.ops),
            calls=tuple(calls[row] for row in order),
            records=moved(trace.records),
            syncs=moved(trace.syncs),
            flags={streams[stream]: flag for stream, flag in trace.flags.items()},
            host=renamed_rows(trace.host),
            ranges=renamed_rows(trace.ranges),
        )
    )
    old = {call: row for row, call in enumerate(trace.calls)}
    back = [threads.index(number) for number in range(3)]
    return other, {
        row: old[call._replace(thread=back[call.thread])] for row, call in enumerate(other.calls)
    } | {-1: -1}
