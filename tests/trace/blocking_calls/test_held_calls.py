"""Calls that a full queue or the lock of another thread held, and what the walk says of them."""

from unittest.mock import patch

import pytest

from tests.attribution.brute_trace import Call, Op, Sync
from tests.trace.walking import launch, waits_of, walk
from wallscope.trace import blocking_calls
from wallscope.trace.streams import UNRESOLVED

QUEUE = 950


def full_queue(pending, length):
    """Launches each a microsecond apart, kernels of ten, and one more launch that takes long.

    When that returns, three kernels have begun and so many have not.
    """
    count = pending + 3
    returned = 10 * (count + 10)
    at = returned + 5  # the third kernel runs
    calls = [launch(0, row) for row in range(count - 1)]
    calls.append(launch(0, at - length, at))
    ops = [Op(0, at - 25 + 10 * row, at - 16 + 10 * row, "compute", row) for row in range(count)]
    return (*calls, *ops), count - 1


@pytest.mark.parametrize(
    ("pending", "length", "is_held"),
    [
        pytest.param(QUEUE, 20, True, id="full"),
        pytest.param(QUEUE - 1, 50, False, id="one less"),
        pytest.param(QUEUE, 19.999, False, id="too short"),
    ],
)
def test_a_long_launch_waits_where_the_queue_is_full(pending, length, is_held):
    rows, call = full_queue(pending, length)

    waits = waits_of(*rows)

    assert waits.held.tolist() == ([call] if is_held else [])
    if is_held:
        assert waits.list_awaited_by(call) == (1,)  # the one before the last that had begun
        assert waits.is_awaited_inferred.tolist() == [True]


def test_the_launch_of_one_large_graph_is_no_full_queue():
    nodes = [Op(0, 100 + 10 * row, 109 + 10 * row, "compute", 1, node=row) for row in range(1_200)]

    waits = waits_of(launch(0, 0), Call(0, 10, 111, "graph"), Op(0, 2, 99, "compute", 0), *nodes)

    assert waits.held.tolist() == []


def test_the_walk_goes_on_at_what_a_full_queue_was_emptied_by():
    """The launch of the last kernel was held until the one before the last begun had ended."""
    rows = (
        *(launch(0, row) for row in range(3)),
        launch(0, 3, 103),
        Op(0, 10, 20, "compute", 0),
        Op(0, 22, 98, "communication", 1),
        Op(0, 99, 101, "copy", 2),
        Op(0, 120, 130, "compute", 3),
    )
    with patch.object(blocking_calls, "FULL_QUEUE_COUNT", 1):
        links = walk(*rows)

    assert links == [
        (20, 22, "hand-over", True),
        (22, 98, "operation", True),
        (98, 103, "launch-call", True),
        (103, 120, "launch-latency", False),
    ]


def locked(asked, holder, *, what="context", thread=1, syncs=()):
    """A call of a thread beside one of another that may hold a lock, and the kernel launched behind."""
    rows = (
        launch(0, 0),
        launch(0, 2),
        Call(0, *asked, "other"),
        launch(0, asked[1], asked[1] + 1),
        Call(thread, *holder, what),
        Op(0, 10, 20, "compute", 0),
        Op(1, 15, 195, "communication", 1),
        Op(0, asked[1] + 5, asked[1] + 9, "compute", 3),
    )
    return rows, syncs


LOCKS = [
    pytest.param((100, 200), (90, 200), True, id="together"),
    pytest.param((100, 200), (90, 220), True, id="20 us later"),
    pytest.param((100, 200), (90, 220.001), False, id="later"),
    pytest.param((100, 700), (90, 600), True, id="100 us earlier: its own work follows"),
    pytest.param((100, 700), (90, 599.999), False, id="earlier by more"),
    pytest.param((100, 200), (90, 180), True, id="80 percent beside, 20 us earlier"),
    pytest.param((100, 200), (90, 179.999), False, id="less beside, and earlier"),
    pytest.param((100, 180), (90, 163.999), False, id="less beside"),
    pytest.param((100, 200), (100, 200), False, id="begun together"),
    pytest.param((100, 200), (99.999, 200), True, id="begun before"),
    pytest.param((150, 200), (90, 200), True, id="of 50 us"),
    pytest.param((150.001, 200), (90, 200), False, id="short"),
    pytest.param((100, 160), (110, 160), False, id="begun behind"),
]


@pytest.mark.parametrize(("asked", "holder", "is_held"), LOCKS)
def test_a_call_waits_for_one_of_another_thread_that_returns_with_it(asked, holder, is_held):
    waits = waits_of(*locked(asked, holder)[0])

    assert waits.held.tolist() == ([2] if is_held else [])
    assert set(waits.list_awaited_by(2)) == ({0, 1} if is_held else set()) or not is_held


@pytest.mark.parametrize(
    ("usual", "count", "shortest"),
    [
        pytest.param(3, 20, 20, id="twice as long as usual is less than two calls that return together"),
        pytest.param(15, 20, 45, id="thrice the first quartile"),
        pytest.param(24, 20, 72, id="thrice the first quartile of long ones"),
        pytest.param(3, 19, 50, id="too few to know what is usual"),
    ],
)
def test_a_capture_with_enough_calls_has_its_own_shortest_held_call(usual, count, shortest):
    rows, _ = locked((200 - shortest, 200), (90, 200))
    short, _ = locked((200.001 - shortest, 200), (90, 200))
    alone = [Call(0, 1_000 + 100 * place, 1_000 + usual + 100 * place, "other") for place in range(count)]

    assert waits_of(*rows, *alone).held.tolist() == [2]
    assert waits_of(*short, *alone).held.tolist() == []


def test_calls_beside_one_that_may_hold_them_do_not_show_what_is_usual():
    """Ten of 30 calls wait for the same lock; the others take 4 us, and a quantile of all would be 30 us."""
    rows = [launch(0, 0), Op(0, 10, 20, "compute", 0)]
    for place in range(30):
        begun = 100 + 100 * place
        rows.append(Call(0, begun, begun + (30 if place < 10 else 4), "other"))
        if place < 10:
            rows.append(Call(1, begun - 5, begun + 30, "context"))

    assert waits_of(*rows).holder.tolist().count(-1) == 31


@pytest.mark.parametrize(
    ("what", "thread"),
    [pytest.param("other", 1, id="it does not block"), pytest.param("context", 0, id="its own thread")],
)
def test_some_calls_hold_nobody(what, thread):
    rows, _ = locked((100, 200), (90, 202), what=what, thread=thread)

    assert waits_of(*rows).holder.max() < 0


@pytest.mark.parametrize(("alone", "is_held"), [(1, True), (2, False)])
def test_calls_that_are_mostly_long_by_themselves_wait_for_no_lock(alone, is_held):
    rows, _ = locked((100, 200), (90, 202))
    long = [Call(0, 300 + 200 * number, 400 + 200 * number, "other") for number in range(alone)]

    assert bool(waits_of(*rows, *long).held.size) is is_held


def test_of_two_holders_the_one_that_lasted_longest_beside_it_counts():
    rows, _ = locked((100, 200), (90, 195))

    waits = waits_of(*rows, Call(2, 95, 200, "context"))

    assert waits.holder[2] == 5


def test_a_call_that_blocks_by_itself_waits_for_no_lock():
    rows, _ = locked((100, 200), (90, 200))
    rows = [row._replace(what="context") if row == Call(0, 100, 200, "other") else row for row in rows]

    assert waits_of(*rows).held.tolist() == []


def test_the_walk_goes_on_at_what_the_holder_of_a_lock_waited_for():
    rows, _ = locked((100, 200), (90, 202))

    assert walk(*rows) == [
        (20, 195, "operation", True),
        (195, 200, "synchronisation", True),
        (200, 201, "launch-call", False),
        (201, 205, "launch-latency", False),
    ]


def test_the_walk_goes_on_along_an_allocation_that_held_a_lock():
    rows, _ = locked((100, 200), (90, 190), what="alloc")

    assert walk(*rows) == [
        (20, 90, "outside-calls", True),
        (90, 190, "allocation", True),
        (190, 200, "other-call", True),
        (200, 201, "launch-call", False),
        (201, 205, "launch-latency", False),
    ]


def test_the_walk_goes_on_along_a_holder_of_which_is_not_known_what_it_waited_for():
    rows, syncs = locked((100, 300), (90, 290), what="event", syncs=[Sync(4, "event", None, 7, 5)])
    rows = (*rows, launch(1, 80, 85), Op(2, 295, 298, "communication", 5))
    waits = waits_of(*rows, syncs=syncs)

    assert waits.list_awaited_by(5) == (UNRESOLVED,)
    assert waits.held.tolist() == []
    assert walk(*rows, syncs=syncs)[:2] == [
        (20, 290, "unresolved", True),
        (290, 300, "other-call", True),
    ]
