from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.attribution.brute_trace import BLOCKING, NONBLOCKING, NULL, Call, Op, Record, Sync, Trace, capture
from tests.trace.waiting import awaited, producers
from wallscope.trace.dependencies import resolve_dependencies
from wallscope.trace.streams import UNRESOLVED


class Program:
    """Calls of thread 0 in turn, each 1 ns long, ten apart; operations take what they are told to take."""

    def __init__(self, **flags):
        self.flags = {int(stream.removeprefix("s")): flag for stream, flag in flags.items()}
        self.ops, self.calls, self.records, self.syncs = [], [], [], []

    def call(self, what, thread=0):
        at = 10 * (len(self.calls) + 1)
        self.calls.append(Call(thread, at, at + 1, what))
        return len(self.calls) - 1

    def run(self, stream, start, end, *, thread=0):
        self.ops.append(Op(stream, start, end, "compute", self.call("launch", thread)))
        return self

    def record(self, stream, number, event=7):
        self.records.append(Record(self.call("record"), stream, event, number))
        return self

    def wait(self, stream, number, event=7):
        self.syncs.append(Sync(self.call("wait"), "wait", stream, event, number))
        return self

    def order(self):
        """Who waits for whom, and the numbers of the operations in order of issue."""
        rows = sorted(range(len(self.ops)), key=lambda row: self.ops[row].start)
        trace = Trace(
            tuple(self.ops[row] for row in rows),
            tuple(self.calls),
            tuple(self.records),
            tuple(self.syncs),
            self.flags,
        )
        return resolve_dependencies(capture(trace)), [rows.index(row) for row in range(len(rows))]


def waits_of_the_last(program):
    """What the operation issued last waits for, by order of issue."""
    found, place = program.order()
    return {UNRESOLVED if op == UNRESOLVED else place.index(op) for op in producers(found, place[-1])}


@pytest.mark.parametrize(
    ("program", "expected"),
    [
        pytest.param(Program().run(0, 100, 200), set(), id="alone"),
        pytest.param(Program().run(0, 100, 200).run(0, 200, 300), {0}, id="in order"),
        pytest.param(Program().run(0, 100, 200).run(1, 200, 300), set(), id="on another stream"),
        pytest.param(
            Program().run(0, 100, 200).record(0, 5).wait(1, 5).run(1, 200, 300), {0}, id="behind an event"
        ),
        pytest.param(
            Program().run(0, 100, 200).record(0, 5).run(0, 200, 900).wait(1, 5).run(1, 201, 300),
            {0},
            id="not for what came after the record",
        ),
        pytest.param(
            Program().run(0, 100, 200).record(0, 5).run(1, 101, 900).wait(1, 5).run(1, 901, 902),
            {0, 1},
            id="for the event and the one before it",
        ),
        pytest.param(
            Program().run(0, 100, 200).record(0, 5).record(1, 6).wait(1, 5).run(1, 300, 400).wait(2, 6),
            {0},
            id="not for what is waited for later",
        ),
        pytest.param(
            Program().run(0, 100, 200).record(0, 5).wait(3, 5).record(3, 6).wait(1, 6).run(1, 200, 300),
            {0},
            id="relayed by a stream without operations",
        ),
        pytest.param(
            Program()
            .run(0, 100, 200)
            .record(0, 5)
            .wait(3, 5)
            .record(3, 6)
            .wait(4, 6)
            .record(4, 7)
            .wait(1, 7)
            .run(1, 200, 300),
            {0},
            id="relayed twice",
        ),
        pytest.param(
            Program().record(3, 6).run(0, 100, 200).record(0, 5).wait(3, 5).wait(1, 6).run(1, 200, 300),
            set(),
            id="not relayed by a record made before",
        ),
        pytest.param(
            Program()
            .run(0, 100, 200)
            .record(0, 5)
            .run(2, 102, 180)
            .record(2, 6)
            .wait(3, 5)
            .wait(3, 6)
            .record(3, 8)
            .wait(1, 8)
            .run(1, 200, 300),
            {0, 1},
            id="two relayed together",
        ),
        pytest.param(
            Program().run(0, 100, 200).record(0, 5).wait(1, 5).run(1, 200, 210).run(1, 210, 300),
            {1},
            id="a wait holds back the next one alone: that one has waited for all behind it",
        ),
        pytest.param(Program().record(0, 9).wait(1, 5).run(1, 200, 300), set(), id="before the capture"),
        pytest.param(Program().record(0, 4).wait(1, 5).run(1, 200, 300), {UNRESOLVED}, id="unknown"),
        pytest.param(
            Program().record(0, 4).wait(3, 5).record(3, 6).wait(1, 6).run(1, 200, 300),
            {UNRESOLVED},
            id="unknown, relayed",
        ),
        pytest.param(
            Program().run(0, 100, 200).run(1, 100, 300).record(0, 5).record(1, 5).wait(2, 5).run(2, 300, 301),
            {1},
            id="a number given twice is that of the later record",
        ),
    ],
)
def test_what_an_operation_waits_for(program, expected):
    assert waits_of_the_last(program) == expected


@pytest.mark.parametrize(
    ("program", "expected"),
    [
        pytest.param(
            Program(s0=NULL, s1=BLOCKING).run(1, 100, 200).run(0, 200, 300), {0}, id="null behind blocking"
        ),
        pytest.param(
            Program(s0=NULL, s1=BLOCKING).run(0, 100, 200).run(1, 200, 300), {0}, id="blocking behind null"
        ),
        pytest.param(
            Program(s0=NULL, s1=NONBLOCKING).run(0, 100, 200).run(1, 150, 300),
            set(),
            id="not a non-blocking one",
        ),
        pytest.param(Program(s0=NULL).run(0, 100, 200).run(1, 150, 300), set(), id="not one without flags"),
        pytest.param(
            Program(s1=BLOCKING, s2=BLOCKING).run(1, 100, 200).run(2, 150, 300),
            set(),
            id="not two blocking ones",
        ),
        pytest.param(
            Program(s0=NULL, s1=BLOCKING, s2=BLOCKING).run(1, 100, 200).run(2, 100, 300).run(0, 300, 301),
            {0, 1},
            id="null behind all of them",
        ),
        pytest.param(
            Program(s0=NULL, s1=BLOCKING).run(1, 100, 200).run(1, 200, 250).run(0, 250, 300).run(0, 300, 301),
            {2},
            id="once",
        ),
        pytest.param(
            Program(s0=NULL, s1=BLOCKING, s2=NONBLOCKING)
            .run(1, 100, 110)
            .run(2, 101, 900)
            .record(2, 5)
            .wait(1, 5)
            .run(0, 900, 901),
            {0, 1},
            id="null behind what a blocking one waits for",
        ),
        pytest.param(
            Program(s0=NULL, s1=BLOCKING)
            .run(0, 90, 95)
            .run(1, 100, 200)
            .record(0, 5)
            .wait(2, 5)
            .run(2, 200, 201),
            {0, 1},
            id="an event of the null stream stands for the blocking ones too",
        ),
        pytest.param(
            Program(s0=NULL, s1=BLOCKING)
            .run(1, 90, 95)
            .run(0, 100, 200)
            .record(1, 5)
            .wait(2, 5)
            .run(2, 200, 201),
            {0, 1},
            id="an event of a blocking stream stands for the null stream too",
        ),
    ],
)
def test_the_null_stream_keeps_order_with_the_blocking_ones(program, expected):
    assert waits_of_the_last(program) == expected


def test_a_record_without_a_row_is_made_in_the_stream_of_the_last_launch_of_its_thread():
    program = Program().run(0, 100, 200).run(1, 110, 300, thread=1).run(2, 120, 150).record(9, 5).wait(3, 5)
    program.records.clear()

    assert waits_of_the_last(program.run(3, 150, 160)) == {2}


def test_a_late_clock_does_not_turn_a_stream_around():
    program = Program().run(0, 300, 400)  # issued first
    program.run(0, 100, 200).record(0, 5).wait(1, 5).run(1, 500, 600)

    found, place = program.order()

    assert producers(found, place[0]) == {place[1]}
    assert producers(found, place[2]) == {place[0]}


def test_of_many_that_have_to_end_the_latest_are_kept():
    program = Program()
    for stream in range(9):
        program.run(stream, 1_000 + stream, 2_000 + 10 * stream).record(stream, stream, event=stream)
    for stream in range(9):
        program.wait(20, stream, event=stream)
    program.record(20, 30).wait(21, 30).run(21, 5_000, 5_001)

    assert waits_of_the_last(program) == {3, 4, 5, 6, 7, 8}


@pytest.mark.parametrize("streams", [(0, 1), (1, 0)], ids=["last first", "last last"])
def test_of_one_launch_into_several_streams_the_last_to_start_tells_the_stream(streams):
    calls = (Call(0, 0, 5, "graph"), Call(0, 20, 400, "stream"))
    ops = tuple(Op(stream, 100 + row, 300 - row, "compute", 0) for row, stream in enumerate(streams))

    found = resolve_dependencies(capture(Trace(ops, calls)))

    assert awaited(found) == {1: {1}}


def test_a_null_stream_without_operations_relays_what_the_blocking_ones_do():
    program = Program(s0=NULL, s1=BLOCKING).run(1, 100, 200).record(0, 5).wait(2, 5).run(2, 200, 201)

    assert waits_of_the_last(program) == {0}


ACTIONS = st.lists(
    st.tuples(st.sampled_from(["run", "record", "wait"]), st.integers(0, 3), st.integers(1, 6)), max_size=24
)
FLAGS = st.dictionaries(st.sampled_from(["s0", "s1"]), st.sampled_from([NULL, BLOCKING, NONBLOCKING]))


@given(actions=ACTIONS, flags=FLAGS)
def test_a_record_stands_for_what_its_stream_had_been_given(actions, flags):
    program = Program(**flags).run(0, 100, 110)
    for place, (what, stream, number) in enumerate(actions):
        if what == "run":
            program.run(stream, 200 + 20 * place, 230 + 20 * place)
        else:
            getattr(program, what)(stream, number)
    found, _ = program.order()
    records = found.waits.records.select("record", "process", "context", "stream", "at_ns")
    for record, process, context, number, at_ns in records.iter_rows():
        stream = found.order.stream(process, context, number)
        mark = found.order.marks(np.array([stream]), np.array([at_ns])).of(0)
        assert set(found.order.record(record)) == set(mark)


def test_several_threads_may_ask_for_tails_at_the_same_time():
    program = Program()
    for number in range(300):
        program.run(number % 3, 100 * number + 100, 100 * number + 150)
    order = program.order()[0].order
    moments = np.linspace(0, 3_500, 40_000).astype(np.int64)
    questions = [([[0, 1]], moments), ([[2]], moments[::-1].copy()), ([[0, 1, 2]], moments)]

    def ask(number):
        groups, at_ns = questions[number % len(questions)]
        tails = order.tails(groups, np.zeros(at_ns.size, np.int64), at_ns)
        return tails.ptr.tolist(), tails.op.tolist()

    alone = [ask(number) for number in range(len(questions))]
    with ThreadPoolExecutor(4) as pool:
        together = list(pool.map(ask, range(24)))

    assert together == [alone[number % len(questions)] for number in range(24)]
