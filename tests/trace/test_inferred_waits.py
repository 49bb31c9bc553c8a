"""What operations and blocking calls are taken to have waited for where times alone tell it."""

import pytest

from tests.attribution.brute_trace import Call, Op, Sync
from tests.trace.walking import launch, waits_of, walk
from wallscope.trace.inferred_waits import HELD_WHILE_IDLE
from wallscope.trace.streams import UNRESOLVED

FIRST = Op(0, 10, 20, "compute", 0)


def behind_a_collective(start, *, end=100.0, call="wait", begun=15.0):
    """A kernel that was issued early, and a collective of another stream that ends before it begins."""
    return (
        launch(0, 0),
        launch(0, 2),
        Call(0, 4, 5, call),
        launch(0, 6),
        FIRST,
        Op(1, begun, end, "communication", 1),
        Op(0, start, start + 10, "compute", 3),
    )


@pytest.mark.parametrize(
    ("start", "end", "call", "found"),
    [
        pytest.param(104, 100, "wait", 1, id="right behind"),
        pytest.param(110, 100, "wait", 1, id="ten microseconds behind"),
        pytest.param(110.001, 100, "wait", -1, id="more"),
        pytest.param(104, 106, "wait", 1, id="two microseconds before"),
        pytest.param(104, 106.001, "wait", -1, id="more before"),
        pytest.param(104, 100, "other", -1, id="no call let a stream wait"),
        pytest.param(40.001, 38, "wait", 1, id="late"),
        pytest.param(40, 38, "wait", -1, id="no later than known constraints may be"),
    ],
)
def test_a_late_operation_behind_a_stream_wait_waited_for_what_ended_right_before(start, end, call, found):
    waits = waits_of(*behind_a_collective(start, end=end, call=call))

    assert waits.inferred_producer.tolist() == [-1, -1, found]


def test_the_links_from_an_inferred_wait_on_are_inferred():
    assert walk(*behind_a_collective(104)) == [
        (20, 100, "operation", True),
        (100, 104, "hand-over", True),
    ]


def test_what_has_not_begun_was_not_waited_for():
    waits = waits_of(*behind_a_collective(104, begun=104, end=105))

    assert waits.inferred_producer[1:].max() < 0


def test_pages_that_migrate_are_not_taken_for_what_was_waited_for():
    rows = (*behind_a_collective(104, end=60), Op(2, 95, 102, "copy"))

    assert (waits_of(*rows).inferred_producer < 0).all()


def test_a_stream_wait_before_the_launch_of_the_operation_before_tells_nothing():
    waits = waits_of(
        Call(0, 0, 1, "wait"),
        launch(0, 2),
        launch(0, 4),
        launch(0, 6),
        Op(0, 10, 20, "compute", 1),
        Op(1, 15, 100, "communication", 2),
        Op(0, 104, 110, "compute", 3),
    )

    assert waits.inferred_producer.tolist() == [-1, -1, -1]


def repeated(shown, other, *, name="late"):
    """Late kernels of one name, so many of them behind a collective, and no call that lets a stream wait."""
    rows = []
    for number in range(shown + other):
        at, call = 1_000 * number, 3 * number
        rows += [
            launch(0, at),
            launch(0, at + 2),
            launch(0, at + 4),
            Op(0, at + 10, at + 20, "compute", call),
        ]
        end = at + (100 if number < shown else 60)
        rows += [Op(1, at + 15, end, "communication", call + 1)]
        rows += [Op(0, at + 104, at + 110, "compute", call + 2, name=name)]
    return rows


@pytest.mark.parametrize(
    ("shown", "other", "count"),
    [
        pytest.param(3, 0, 3, id="three times"),
        pytest.param(2, 0, 0, id="twice"),
        pytest.param(3, 3, 3, id="half of them"),
        pytest.param(3, 4, 0, id="less than half"),
    ],
)
def test_a_pair_of_streams_that_recurs_tells_it_too(shown, other, count):
    assert (waits_of(*repeated(shown, other)).inferred_producer >= 0).sum() == count


def test_the_stream_that_explains_most_is_taken_and_not_what_ended_latest():
    rows = repeated(4, 0)
    rows += [launch(0, 1_900), Call(0, 2_003.2, 2_003.8, "wait")]
    rows += [Op(2, 2_015, 2_102, "communication", 12)]
    waits = waits_of(*rows)
    told = waits.inferred_producer[waits.inferred_producer >= 0]

    assert len(told) == 4
    assert {round(end / 1_000) % 1_000 for end in waits.end_ns[told].tolist()} == {100}


@pytest.mark.parametrize(
    ("start", "links"),
    [
        pytest.param(70, [(20, 70, "hand-over", False)], id="fifty microseconds"),
        pytest.param(70.001, [(20, 70.001, "unresolved", False)], id="more"),
    ],
)
def test_an_operation_held_while_nothing_ran_is_resolved_up_to_fifty_microseconds(start, links):
    assert walk(launch(0, 0), launch(0, 2), FIRST, Op(0, start, start + 5, "compute", 1)) == links


def test_the_walk_goes_on_at_the_constraint_behind_time_that_nothing_explains():
    rows = [launch(0, row) for row in range(3)]
    copy, late = Op(0, 21, 60, "copy", 1), Op(0, 200, 210, "compute", 2)

    waits, links = waits_of(*rows, FIRST, copy, late), walk(*rows, FIRST, copy, late)

    assert waits.inferred_producer.tolist() == [-1, -1, HELD_WHILE_IDLE]
    assert links == [
        (20, 21, "hand-over", False),
        (21, 60, "operation", False),
        (60, 200, "unresolved", False),
    ]


@pytest.mark.parametrize(
    ("pages", "kind"),
    [
        pytest.param([], "launch-latency", id="nothing ran: the issue binds"),
        pytest.param([Op(2, 60, 90, "copy")], "unresolved", id="pages migrated meanwhile"),
    ],
)
def test_an_operation_whose_issue_was_last(pages, kind):
    links = walk(launch(0, 0), launch(0, 30), FIRST, *pages, Op(0, 300, 310, "compute", 1))

    assert links == [
        (20, 30, "outside-calls", False),
        (30, 31, "launch-call", False),
        (31, 300, kind, False),
    ]


@pytest.mark.parametrize(
    ("start", "is_open"), [pytest.param(70, False, id="at most"), pytest.param(70.001, True, id="more")]
)
def test_beside_other_work_an_operation_that_waited_long_is_unresolved(start, is_open):
    rows = (launch(0, 0), launch(0, 2), launch(0, 4), FIRST, Op(1, 25, 45, "communication", 1))
    rows = (*rows, Op(0, start, start + 5, "compute", 2))
    kinds = ["unresolved"] if is_open else ["hand-over"]

    assert (UNRESOLVED in waits_of(*rows).producers.of(2)) == is_open
    assert [link[2] for link in walk(*rows)] == kinds


@pytest.mark.parametrize(
    ("start", "kind"),
    [
        pytest.param(70, "hand-over", id="fifty microseconds"),
        pytest.param(70.001, "launch-call", id="more"),
    ],
)
def test_what_begins_inside_its_call_long_behind_its_producer_was_held_by_the_call(start, kind):
    links = walk(launch(0, 0), launch(0, 15, 90), FIRST, Op(0, start, start + 30, "compute", 1))

    assert links == [(20, start, kind, False)]


@pytest.mark.parametrize(
    ("returned", "end", "awaited", "links"),
    [
        pytest.param(
            100, 90, {1}, [(30, 90, "operation", True), (90, 100, "synchronisation", True)], id="inside"
        ),
        pytest.param(
            140, 90, {1}, [(30, 90, "operation", True), (90, 140, "synchronisation", True)], id="50 us"
        ),
        pytest.param(140.001, 90, {UNRESOLVED}, [(30, 140.001, "unresolved", False)], id="more than 50 us"),
        pytest.param(88, 90, {1}, [(30, 88, "operation", True)], id="2 us behind"),
        pytest.param(87.999, 90, {UNRESOLVED}, [(30, 87.999, "unresolved", False)], id="more behind"),
        pytest.param(
            100,
            35,
            set(),
            [(30, 40, "outside-calls", False), (40, 100, "synchronisation", False)],
            id="all had ended",
        ),
    ],
)
def test_what_a_call_waited_for_that_blocked_for_an_unknown_event(returned, end, awaited, links):
    rows = (
        launch(0, 0),
        launch(0, 2),
        Call(0, 40, returned, "event"),
        launch(0, returned, returned + 1),
        Op(0, 10, 30, "compute", 0),
        Op(1, 15, end, "communication", 1),
        Op(0, returned + 3, returned + 9, "compute", 3),
    )
    syncs = [Sync(2, "event", None, 7, 5)]

    assert set(waits_of(*rows, syncs=syncs).list_awaited_by(2)) == awaited
    assert walk(*rows, syncs=syncs)[:-2] == links


def test_what_was_issued_after_a_call_began_was_not_waited_for_by_it():
    rows = (launch(0, 0), Call(0, 40, 100, "event"), launch(1, 50), launch(0, 110))
    ops = (Op(0, 10, 90, "compute", 0), Op(1, 52, 99, "compute", 2), Op(0, 120, 130, "compute", 3))

    assert waits_of(*rows, *ops, syncs=[Sync(1, "event", None, 7, 5)]).list_awaited_by(1) == (0,)


@pytest.mark.parametrize(
    ("latency", "count", "is_held"),
    [
        pytest.param(1_000.001, 3, True, id="longer than any launch latency, repeatedly"),
        pytest.param(1_000, 3, False, id="a long launch latency"),
        pytest.param(1_000.001, 2, False, id="twice"),
    ],
)
def test_a_launch_latency_of_milliseconds_is_no_cause(latency, count, is_held):
    rows = [launch(0, 3_000 * number) for number in range(count + 1)]
    ops = [
        Op(0, 3_000 * number + 1 + latency * (number > 0), 3_000 * number + 1_100, "compute", number)
        for number in range(count + 1)
    ]

    assert (waits_of(*rows, *ops).inferred_producer == HELD_WHILE_IDLE).sum() == (count if is_held else 0)
    kinds = [link[2] for link in walk(*rows, *ops) if round(link[1] - link[0], 3) == latency]
    assert kinds == [("unresolved" if is_held else "launch-latency")] * count


def run_apart(*apart):
    """Kernels that were all launched before the first one began, so many microseconds apart."""
    rows = [launch(0, 2 * number) for number in range(len(apart) + 1)]
    at = 1_000.0
    rows.append(Op(0, at, at + 10, "compute", 0))
    for number, gap in enumerate(apart, start=1):
        at += 10 + gap
        rows.append(Op(0, at, at + 10, "compute", number))
    return rows


def launch_on_idle(*latency):
    """Kernels that ended before the next was launched, which began so many microseconds after its launch."""
    rows = [launch(0, 0), Op(0, 4, 14, "compute", 0)]
    for number, late in enumerate(latency, start=1):
        at = 3_000 * number
        rows += [launch(0, at), Op(0, at + 1 + late, at + 11 + late, "compute", number)]
    return rows


@pytest.mark.parametrize(
    ("rows", "held"),
    [
        pytest.param(run_apart(*[1] * 19, 20.001), 1, id="a gap longer than usual, of 20"),
        pytest.param(run_apart(*[1] * 18, 20.001), 0, id="one of 19, which are too few"),
        pytest.param(run_apart(*[1] * 18, 50.001), 1, id="one of 19 that is longer than in any capture"),
        pytest.param(run_apart(*[1] * 19, 20), 0, id="a gap that needs no explanation in any capture"),
        pytest.param(run_apart(*[1] * 17, *[30] * 3), 0, id="gaps that are usual in this capture"),
        pytest.param(run_apart(*[30] * 19, 50.001), 1, id="a gap that is longer than in any capture"),
        pytest.param(launch_on_idle(*[2] * 57, *[50.001] * 3), 3, id="launch latencies longer than usual"),
        pytest.param(launch_on_idle(*[2] * 58, *[999] * 2), 0, id="two that may be the tail of latencies"),
        pytest.param(launch_on_idle(*[2] * 296, *[999] * 3), 3, id="one percent of them"),
        pytest.param(launch_on_idle(*[2] * 297, *[999] * 3), 0, id="less than one percent"),
        pytest.param(launch_on_idle(*[2] * 19, 1_000.001), 1, id="one that is longer than in any capture"),
        pytest.param(launch_on_idle(*[2] * 17, 1_000.001), 0, id="one of few launch latencies"),
        pytest.param(launch_on_idle(*[2] * 57, *[50] * 3), 0, id="latencies that need no explanation"),
        pytest.param(launch_on_idle(*[2] * 37, *[300] * 3), 0, id="launch latencies that are usual here"),
    ],
)
def test_what_is_longer_than_usual_in_this_capture_needs_a_cause(rows, held):
    assert (waits_of(*rows).inferred_producer == HELD_WHILE_IDLE).sum() == held


def test_the_first_operation_of_a_rank_may_begin_late_because_the_device_starts():
    rows = [launch(0, 0), Op(0, 2_001, 2_011, "compute", 0)]
    rows += [row._replace(start=row.start + 3_000, end=row.end + 3_000) for row in launch_on_idle(*[2] * 25)]
    rows = [
        row._replace(call=row.call + 1) if isinstance(row, Op) and row.start > 3_000 else row for row in rows
    ]

    assert (waits_of(*rows).inferred_producer != HELD_WHILE_IDLE).all()
