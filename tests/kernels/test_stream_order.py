"""Tails of streams, records and producers against the model that looks through the whole trace each time."""

from itertools import pairwise

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.attribution.brute import Model
from tests.attribution.brute_trace import BLOCKING, NONBLOCKING, NULL, Call, Op, Record, Sync, Trace

STREAMS = 4
UNKNOWN, NOTHING = -1, -2
BEFORE_ALL = -(2**62)


@st.composite
def traces(draw):
    """Calls that launch, record and wait, some at the same moment, and what streams did in between."""
    at, ops, calls, records, syncs = 0, [], [], [], []
    for _ in range(draw(st.integers(0, 14))):
        at += draw(st.integers(0, 2))
        what = draw(st.sampled_from(["launch", "record", "wait"]))
        stream, number = draw(st.integers(0, STREAMS - 1)), draw(st.integers(2, 5))
        calls.append(Call(0, at, at + 1, what))
        if what == "launch":
            start = draw(st.integers(0, 40))
            call = draw(st.sampled_from([len(calls) - 1] * 4 + [-1]))
            ops.append(Op(stream, start, start + draw(st.integers(0, 20)), "compute", call))
        elif what == "record" and number not in {row.number for row in records}:
            records.append(Record(len(calls) - 1, stream, 7, number))
        elif what == "wait":
            syncs.append(Sync(len(calls) - 1, "wait", stream, 7, number))
    flags = draw(st.dictionaries(st.integers(0, STREAMS - 1), st.sampled_from([NULL, BLOCKING, NONBLOCKING])))
    ops.sort(key=lambda op: op.start)
    return Trace(tuple(ops), tuple(calls), tuple(records), tuple(syncs), flags)


def integers(values, kind=np.int32):
    return np.array(list(values), kind)


def ragged(groups):
    return integers(np.cumsum([0, *map(len, groups)]), np.int64), integers(
        one for group in groups for one in group
    )


def issue_ns(trace):
    starts = (trace.calls[op.call].start if op.call >= 0 else BEFORE_ALL for op in trace.ops)
    return integers(starts, np.int64)


def record_of(model, wait):
    """The row of the record that a wait means."""
    how, record = model.record_of(wait)
    at = model.trace.calls[wait.call].start
    if record is None:
        return NOTHING if how == "before" else UNKNOWN
    made = [(model.trace.calls[row.call].start, row.stream) for row in model.trace.records]
    return made.index(record) if record[0] <= at else UNKNOWN


class Settled:
    """A trace as the kernel takes it, with all events settled."""

    def __init__(self, kernel, trace, most=99):
        model = Model(trace)
        stream = integers(op.stream for op in trace.ops)
        waits = sorted(model.waits(), key=lambda row: (row.stream, trace.calls[row.call].start))
        wait_ns = integers((trace.calls[row.call].start for row in waits), np.int64)
        record_ns = integers((trace.calls[row.call].start for row in trace.records), np.int64)
        self.before, self.issued_ns = np.empty(stream.size, np.int32), np.empty(stream.size, np.int64)
        kernel.order_operations(
            stream, issue_ns(trace), np.full(STREAMS, -1, np.int32), self.before, self.issued_ns
        )
        self.kernel, self.most = kernel, most
        self.scopes = [[one, *model._ordered_with(one)] for one in range(STREAMS)]
        self.record_first, self.record_last = (np.empty(record_ns.size, np.int64) for _ in range(2))
        self.sets = np.empty((most + 1) * (len(waits) + record_ns.size), np.int32)
        self.streams = kernel.Streams(
            (self.issued_ns, integers((op.end for op in trace.ops), np.int64)),
            ragged([np.flatnonzero(stream == one) for one in range(STREAMS)]),
            (integers([]), integers([0], np.int64), integers([])),
            (
                integers((sum(row.stream < one for row in waits) for one in range(STREAMS + 1)), np.int64),
                wait_ns,
                integers(row.stream for row in waits),
                integers(record_of(model, row) for row in waits),
            ),
            (record_ns, *ragged(self.scopes), integers(row.stream for row in trace.records)),
            (
                *(np.empty(len(waits), np.int64) for _ in range(2)),
                *(self.record_first, self.record_last, self.sets),
            ),
            np.empty(len(waits), np.int32),
            most,
        )
        self.known = kernel.settle_events(
            self.streams, np.argsort(record_ns, kind="stable"), np.argsort(wait_ns, kind="stable")
        )
        self.waits = waits

    def tails(self, groups, at_ns):
        """The tail of each group at a moment of its own."""
        ptr, found = np.empty(len(groups) + 1, np.int64), np.empty((self.most + 1) * len(groups), np.int32)
        self.kernel.find_tails(
            self.streams, *ragged(groups), np.arange(len(groups), dtype=np.int32), at_ns, ptr, found
        )
        return [found[first:last].tolist() for first, last in pairwise(ptr)]

    def pairs(self):
        """Who waits for whom."""
        room = (self.most + 1) * len(self.waits)
        op, producer = np.empty(room, np.int32), np.empty(room, np.int32)
        count = self.kernel.pair_waits(self.streams, op, producer)
        keeps = [(other, one) for one, scope in enumerate(self.scopes) for other in scope[1:]]
        earlier, later = (integers(row[side] for row in keeps) for side in (0, 1))
        room, tail = 0, np.empty(self.most + 1, np.int32)
        for _ in range(2):
            more = np.empty(room, np.int32), np.empty(room, np.int32)
            room = self.kernel.pair_streams(self.streams, earlier, later, tail, *more)
        ops, producers = [*op[:count], *more[0]], [*producer[:count], *more[1]]
        return list(zip(map(int, ops), map(int, producers), strict=True))


@given(traces(), st.lists(st.integers(0, 30), min_size=1, max_size=4))
def test_streams_are_through_with_what_the_model_says(kernel_of, trace, moments):
    settled, model = Settled(kernel_of("stream_order"), trace), Model(trace)
    asked = [(stream, at) for stream in range(STREAMS) for at in moments]
    at_ns = integers((at for _, at in asked), np.int64)

    tails = settled.tails([[stream] for stream, _ in asked], at_ns)
    marks = settled.tails([settled.scopes[stream] for stream, _ in asked], at_ns)

    assert [sorted(found) for found in tails] == [sorted(model.tail(*one)) for one in asked]
    assert [sorted(found) for found in marks] == [sorted(model.mark(*one)) for one in asked]


@given(traces())
def test_records_stand_for_what_the_model_says(kernel_of, trace):
    settled, model = Settled(kernel_of("stream_order"), trace), Model(trace)

    found = [
        sorted(settled.sets[first:last].tolist())
        for first, last in zip(settled.record_first, settled.record_last, strict=True)
    ]

    assert found == [sorted(model.mark(row.stream, trace.calls[row.call].start)) for row in trace.records]
    assert settled.known == sum(UNKNOWN not in model.waited_for(wait) for wait in settled.waits)


@given(traces())
def test_operations_wait_for_what_the_model_says(kernel_of, trace):
    settled, model = Settled(kernel_of("stream_order"), trace), Model(trace)
    waited_for = [{before} - {-1} for before in settled.before.tolist()]
    for op, producer in settled.pairs():
        waited_for[op].add(producer)

    ops = range(len(trace.ops))
    assert [found - {op} for op, found in zip(ops, waited_for, strict=True)] == list(
        map(model.producers, ops)
    )
    assert [None if before < 0 else before for before in settled.before] == list(map(model.before, ops))
    assert settled.issued_ns.tolist() == [max(model.issued(op), BEFORE_ALL) for op in ops]


@settings(max_examples=50)
@given(traces(), st.integers(0, 30), st.integers(1, 3))
def test_of_many_operations_those_that_end_last_are_kept(kernel_of, trace, at, most):
    groups, at_ns = [list(range(STREAMS))], integers([at], np.int64)
    (whole,) = Settled(kernel_of("stream_order"), trace).tails(groups, at_ns)

    (found,) = Settled(kernel_of("stream_order"), trace, most).tails(groups, at_ns)

    in_order = sorted({*whole} - {UNKNOWN}, key=lambda op: (-trace.ops[op].end, op))
    assert sorted(found) == sorted([*in_order[:most], *({*whole} & {UNKNOWN})])


@given(st.lists(st.tuples(st.integers(0, 2), st.integers(0, 9))), st.integers(-1, 3), st.integers(-1, 11))
def test_the_latest_row_of_a_group_before_a_moment(kernel_of, drawn, group, at):
    rows = sorted(drawn)
    ptr = integers((sum(one < number for one, _ in rows) for number in range(4)), np.int64)
    found = np.empty(1, np.int64)

    kernel_of("stream_order").find_latest(
        *(ptr, integers((time for _, time in rows), np.int64), integers([group]), integers([at], np.int64)),
        found,
    )

    expected = [row for row, (one, time) in enumerate(rows) if one == group and time < at]
    assert found[0] == max(expected, default=-1)
