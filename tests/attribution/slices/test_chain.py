import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.attribution import brute
from tests.attribution.brute_programs import SAME_EACH_TIME, jittered, possible, programmatic, stretched
from tests.attribution.brute_trace import Call, Op, Record, Sync, Trace, evidence, in_order, operations
from wallscope.attribution.slices import NO_SLACK, blame_gaps
from wallscope.model.enums import LINK_KINDS


def found(trace):
    links = blame_gaps(operations(trace), evidence(trace).constraints)
    rows = zip(*(column.tolist() for column in links.columns()), strict=True)
    return [
        brute.Link(*row)._replace(kind=LINK_KINDS[row[3]], slack=None if row[8] == NO_SLACK else row[8])
        for row in rows
    ]


@pytest.mark.parametrize("change", [lambda traces: traces, stretched], ids=["short", "long"])
@pytest.mark.parametrize(
    "traces", [possible(), programmatic(), jittered()], ids=["possible", "programmatic", "jittered"]
)
@SAME_EACH_TIME
@given(data=st.data())
def test_links_equal_those_of_the_dull_walk(traces, change, data):
    trace = data.draw(change(traces))

    assert brute.merged(found(trace)) == brute.merged(brute.links(trace))


def test_several_producers_tell_the_slack():
    calls = [Call(0, 10 * place, 10 * place + 1, "launch") for place in range(8)]
    ops = (
        Op(0, 100, 200, "communication", 0),
        Op(1, 100, 180, "communication", 1),
        Op(2, 100, 150, "compute", 2),
        Op(2, 210, 300, "compute", 7),
    )
    records = (Record(3, 0, 7, 5), Record(4, 1, 8, 6))
    syncs = (Sync(5, "wait", 2, 7, 5), Sync(6, "wait", 2, 8, 6))
    trace = in_order(Trace(ops, tuple(calls), records, syncs, {}))

    links = found(trace)

    assert [(link.start, link.end, link.kind, link.slack) for link in links][-2:] == [
        (150, 200, "operation", 20),
        (200, 210, "hand-over", 20),
    ]


def walked(*rows, records=(), syncs=(), flags=None):
    """Links of operations and calls written in any order, in short: from, to, kind and who."""
    ops = [row for row in rows if isinstance(row, Op)]
    calls = [row for row in rows if isinstance(row, Call)]
    trace = in_order(Trace(tuple(ops), tuple(calls), tuple(records), tuple(syncs), flags or {}))
    return [
        (link.start, link.end, link.kind, link.op if link.op >= 0 else f"thread {link.thread}")
        for link in found(trace)
    ]


def launch(thread, start, end):
    return Call(thread, start, end, "launch")


FIRST = (launch(0, 0, 5), Op(0, 10, 20, "compute", 0))


@pytest.mark.parametrize(
    ("links", "expected"),
    [
        pytest.param(
            walked(*FIRST, launch(0, 6, 9), Op(0, 25, 30, "compute", 1)),
            [(20, 25, "hand-over", 0)],
            id="queued",
        ),
        pytest.param(
            walked(*FIRST, launch(0, 22, 28), Op(0, 31, 40, "compute", 1)),
            [
                (20, 22, "outside-calls", "thread 0"),
                (22, 28, "launch-call", "thread 0"),
                (28, 31, "launch-latency", 1),
            ],
            id="launched late",
        ),
        pytest.param(
            walked(*FIRST, launch(0, 22, 28), Op(0, 26, 40, "compute", 1)),
            [(20, 22, "outside-calls", "thread 0"), (22, 26, "launch-call", 1)],
            id="begun inside its call",
        ),
        pytest.param(
            walked(*FIRST, launch(0, 12, 20), Op(0, 25, 30, "compute", 1)),
            [(20, 25, "hand-over", 0)],
            id="a tie goes to the producer",
        ),
        pytest.param(
            walked(*FIRST, launch(0, 12, 21), Op(0, 25, 30, "compute", 1)),
            [(20, 21, "launch-call", "thread 0"), (21, 25, "launch-latency", 1)],
            id="issued a nanosecond later",
        ),
        pytest.param(
            walked(
                *FIRST,
                launch(0, 5, 6),
                launch(0, 6, 7),
                launch(0, 7, 8),
                Op(0, 22, 80, "communication", 1),
                Op(0, 82, 84, "copy", 2),
                Op(0, 87, 90, "compute", 3),
            ),
            [
                (20, 22, "hand-over", 0),
                (22, 80, "operation", 1),
                (80, 82, "hand-over", 1),
                (82, 84, "operation", 2),
                (84, 87, "hand-over", 2),
            ],
            id="a fill behind a collective is a relay",
        ),
        pytest.param(
            walked(
                *FIRST,
                launch(0, 5, 6),
                launch(0, 6, 7),
                Op(0, 22, 80, "communication", 1),
                Op(0, 70, 90, "compute", 2),
            ),
            [(20, 22, "hand-over", 0), (22, 70, "operation", 1)],
            id="launched programmatically: its predecessor binds up to its start",
        ),
        pytest.param(
            walked(
                *FIRST,
                launch(1, 21, 30),
                launch(0, 40, 50),
                Op(2, 31, 33, "copy", 1),
                Op(1, 55, 60, "compute", 2),
            ),
            [
                (20, 21, "outside-calls", "thread 1"),
                (21, 30, "launch-call", "thread 1"),
                (30, 40, "outside-calls", "thread 0"),
                (40, 50, "launch-call", "thread 0"),
                (50, 55, "launch-latency", 2),
            ],
            id="a thread outside calls waits for the one that issues",
        ),
        pytest.param(
            walked(
                *FIRST,
                launch(1, 21, 30),
                Call(1, 32, 36, "other"),
                launch(0, 40, 50),
                Op(2, 31, 33, "copy", 1),
                Op(1, 55, 60, "compute", 3),
            ),
            [
                (20, 21, "outside-calls", "thread 1"),
                (21, 30, "launch-call", "thread 1"),
                (30, 32, "outside-calls", "thread 1"),
                (32, 36, "other-call", "thread 1"),
                (36, 40, "outside-calls", "thread 0"),
                (40, 50, "launch-call", "thread 0"),
                (50, 55, "launch-latency", 2),
            ],
            id="and for whatever that one called last",
        ),
        pytest.param(
            walked(*FIRST, Call(1, 20, 30, "other"), launch(0, 40, 50), Op(1, 55, 60, "compute", 2)),
            [
                (20, 40, "outside-calls", "thread 0"),
                (40, 50, "launch-call", "thread 0"),
                (50, 55, "launch-latency", 1),
            ],
            id="not for one that issues nothing",
        ),
        pytest.param(
            walked(*FIRST, Op(1, 40, 50, "compute")),
            [(20, 40, "unresolved", "thread -1")],
            id="nothing known of it",
        ),
        pytest.param(
            walked(*FIRST, Op(0, 40, 50, "compute")),
            [(20, 40, "hand-over", 0)],
            id="known is only what came before",
        ),
    ],
)
def test_what_bound_a_gap(links, expected):
    assert links == expected


@pytest.mark.parametrize(
    ("rows", "expected"),
    [
        pytest.param([Op(1, 12, 40, "copy")], [(20, 40, "operation", 1)], id="what runs owns its time"),
        pytest.param(
            [Op(1, 12, 40, "copy"), Op(2, 15, 60, "communication")],
            [(20, 40, "operation", 1), (40, 60, "operation", 2)],
            id="the earliest started first",
        ),
        pytest.param(
            [Call(0, 30, 35, "launch"), Op(1, 50, 60, "copy", 1)],
            [
                (20, 30, "outside-calls", "thread 0"),
                (30, 35, "launch-call", "thread 0"),
                (35, 50, "outside-calls", "thread 0"),
                (50, 60, "operation", 1),
            ],
            id="idle along the thread that issued last",
        ),
        pytest.param([], [], id="nothing behind the last compute"),
    ],
)
def test_time_behind_the_last_compute(rows, expected):
    assert walked(*FIRST, *rows) == expected


def test_without_any_call_idle_time_has_no_owner():
    assert walked(Op(0, 10, 20, "compute"), Op(1, 30, 40, "copy")) == [
        (20, 30, "unresolved", "thread -1"),
        (30, 40, "operation", 1),
    ]


@pytest.mark.parametrize(("lag", "kind"), [(20_000, "hand-over"), (20_001, "unresolved")])
def test_beside_something_unknown_a_producer_binds_if_it_ended_shortly_before(lag, kind):
    calls = (launch(0, 0, 5), launch(0, 8, 9), Call(0, 6, 7, "wait"), Call(0, 5, 6, "record"))

    links = walked(
        *calls,
        Op(0, 10, 20, "compute", 0),
        Op(1, 30, 40, "communication"),
        Op(0, 20 + lag, 99_999, "compute", 1),
        records=[Record(3, 1, 7, 5)],
        syncs=[Sync(2, "wait", 0, 7, 9)],
    )

    assert [link[:3] for link in links] == [(20, 20 + lag, kind)]


@pytest.mark.parametrize(("over", "who"), [(2_000, 1), (2_001, 0)])
def test_an_event_complete_long_after_what_waited_for_it_did_not_hold_it_back(over, who):
    calls = (
        launch(0, 0, 5),
        launch(0, 5, 6),
        Call(0, 6, 7, "record"),
        Call(0, 7, 8, "wait"),
        launch(0, 8, 9),
    )

    links = walked(
        *calls,
        Op(0, 10, 20, "compute", 0),
        Op(1, 12, 5_000 + over, "communication", 1),
        Op(0, 5_000, 99_999, "compute", 4),
        records=[Record(2, 1, 7, 5)],
        syncs=[Sync(3, "wait", 0, 7, 5)],
    )

    assert links[-1][3] == who


@pytest.mark.parametrize("at", [0, 10**15])
def test_behind_a_call_that_waits_for_something_unknown_all_is_unresolved_at_any_time(at):
    links = walked(
        launch(0, at, at + 5),
        Call(0, at + 6, at + 60_000, "event"),
        launch(0, at + 60_001, at + 60_005),
        Op(0, at + 10, at + 20, "compute", 0),
        Op(0, at + 60_006, at + 60_010, "compute", 2),
        syncs=[Sync(1, "event", None, 7, 5)],
    )

    assert [(start - at, end - at, kind) for start, end, kind, _ in links] == [
        (20, 60_000, "unresolved"),
        (60_000, 60_001, "outside-calls"),
        (60_001, 60_005, "launch-call"),
        (60_005, 60_006, "launch-latency"),
    ]


def test_of_two_that_end_together_the_first_binds():
    links = walked(
        *(launch(0, start, start + 1) for start in range(3)),
        Call(0, 4, 5, "record"),
        Call(0, 5, 6, "wait"),
        launch(0, 6, 7),
        Op(2, 8, 9, "compute", 0),
        Op(0, 10, 50, "copy", 1),
        Op(1, 11, 50, "communication", 2),
        Op(1, 53, 60, "compute", 5),
        records=[Record(3, 0, 7, 5)],
        syncs=[Sync(4, "wait", 1, 7, 5)],
    )

    assert links[-2:] == [(10, 50, "operation", 1), (50, 53, "hand-over", 1)]


@pytest.mark.parametrize(
    ("end", "expected"),
    [
        pytest.param(
            30, [(20, 30, "outside-calls", "thread 0"), (30, 50, "synchronisation", "thread 0")], id="before"
        ),
        pytest.param(31, [(20, 31, "operation", 1), (31, 50, "synchronisation", 1)], id="inside"),
    ],
)
def test_a_blocking_call_waits_for_what_ends_after_it_was_entered(end, expected):
    links = walked(
        *FIRST,
        launch(0, 6, 8),
        Call(0, 30, 50, "stream"),
        launch(0, 50, 55),
        Op(1, 12, end, "communication", 1),
        Op(0, 58, 60, "compute", 3),
        syncs=[Sync(2, "stream", 1)],
    )

    assert links[:-2] == expected


@pytest.mark.parametrize(
    ("copy", "expected"),
    [
        pytest.param(
            Op(0, 32, 45, "copy", 1, moves="device>pageable"),
            [(24, 32, "launch-call", 1), (32, 45, "operation", 1), (45, 50, "synchronisation", 1)],
            id="inside",
        ),
        pytest.param(
            Op(0, 32, 55, "copy", 1, moves="device>pageable"),
            [(24, 32, "launch-call", 1), (32, 50, "operation", 1)],
            id="ends after the call",
        ),
        pytest.param(
            Op(0, 51, 55, "copy", 1, moves="device>pageable"),
            [(24, 50, "synchronisation", "thread 0")],
            id="begins after the call, by a clock that is ahead",
        ),
        pytest.param(
            Op(0, 32, 55, "copy", 1, moves="device>pinned"),
            [(24, 50, "other-call", "thread 0")],
            id="holds nobody",
        ),
    ],
)
def test_the_time_of_a_call_that_its_copy_held_is_that_of_the_copy(copy, expected):
    calls = (launch(0, 0, 5), Call(0, 24, 50, "copy"), launch(0, 60, 65))
    links = walked(*calls, FIRST[1], copy, Op(1, 70, 80, "compute", 2))

    assert links == [
        (20, 24, "outside-calls", "thread 0"),
        *expected,
        (50, 60, "outside-calls", "thread 0"),
        (60, 65, "launch-call", "thread 0"),
        (65, 70, "launch-latency", 2),
    ]
