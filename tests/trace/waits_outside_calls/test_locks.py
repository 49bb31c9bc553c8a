"""Threads outside calls that wait for another one, and what the walk says of them."""

import pytest

from tests.attribution.brute_trace import Call, HostRow, Op
from tests.trace.walking import launch, waits_of, walk

APART = 2_000.0


def locking(*late, what="alloc", lengths=(60.0,), holder=1, meanwhile=(), locked=None):
    """One thread launches, waits and launches; another one is in a call that returns so long before that.

    In each of `meanwhile` rounds it goes on so long after, and waits for nothing. The system records waits
    for a lock that end so long after the call as `locked` says.
    """
    rows, ops = [], []
    for number, pause in enumerate([*late, *meanwhile]):
        at, length = APART * number, lengths[number % len(lengths)]
        begun = at + 10 + length + pause
        rows += [launch(0, at), launch(0, begun), Call(holder, at + 10, at + 10 + length, what)]
        ops += [Op(0, at + 4, at + 8, "compute", at), Op(0, begun + 5, begun + 9, "compute", begun)]
        if what == "launch":
            ops.append(Op(1, at + 15 + length, at + 18 + length, "communication", at + 10))
    rows.sort(key=lambda call: (call.thread, call.start))
    place = {call.start: row for row, call in enumerate(rows) if call.what == "launch"}
    waits = [
        HostRow(0, APART * number + 5, APART * number + 10 + lengths[0] + locked, "lock")
        for number in range(len(late) * (locked is not None))
    ]
    return [*rows, *(op._replace(call=place[op.call]) for op in ops), *waits]


LENGTHS = (60.0, 64.0, 70.0)
FOUND = [
    pytest.param({"late": [5] * 3}, 3, id="three times"),
    pytest.param({"late": [5] * 2}, 0, id="twice"),
    pytest.param({"late": [20] * 3}, 3, id="20 us later"),
    pytest.param({"late": [20, 20, 22]}, 0, id="later"),
    pytest.param({"late": [5] * 3, "meanwhile": [300] * 3}, 3, id="half of the times"),
    pytest.param({"late": [5] * 3, "meanwhile": [300] * 4}, 0, id="three of seven times"),
    pytest.param({"late": [5] * 3, "lengths": (20,), "meanwhile": [50] * 0}, 0, id="no long pause"),
    pytest.param({"late": [40] * 3, "lengths": (20, 22, 24)}, 3, id="an allocation of 20 us"),
    pytest.param({"late": [40] * 3, "lengths": (19.9, 19.8, 19)}, 0, id="a shorter one"),
    pytest.param({"late": [5] * 3, "what": "context", "lengths": (50,)}, 3, id="in a call of 50 us"),
    pytest.param({"late": [5] * 3, "what": "context", "lengths": (49.999,)}, 0, id="in a short call"),
    pytest.param({"late": [5] * 3, "what": "other"}, 0, id="in a call that does no work"),
    pytest.param({"late": [50, 49, 48], "lengths": LENGTHS}, 3, id="some work later, as long as the call"),
    pytest.param({"late": [50.001] * 3, "lengths": LENGTHS}, 0, id="more work later"),
    pytest.param({"late": [50, 45, 40], "lengths": LENGTHS}, 0, id="always after about the same time"),
    pytest.param({"late": [300] * 3, "locked": 8}, 3, id="the system records the wait, and work follows"),
    pytest.param({"late": [300] * 3, "locked": 80}, 0, id="the system records a wait for something else"),
]


@pytest.mark.parametrize(("rows", "count"), FOUND)
def test_a_thread_waits_for_a_lock_where_it_goes_on_right_behind_a_call_of_another_one(rows, count):
    waits = waits_of(*locking(*rows.pop("late"), **rows))

    assert (waits.outside.let_go >= 0).sum() == count
    assert set(waits.calls.thread[waits.outside.let_go[waits.outside.let_go >= 0]].tolist()) <= {1}


def test_the_walk_goes_on_in_the_call_that_held_the_lock():
    at = 2 * APART

    assert walk(*locking(5, 5, 5))[-5:] == [
        (at + 8, at + 10, "outside-calls", True),
        (at + 10, at + 70, "allocation", True),
        (at + 70, at + 75, "outside-calls", True),
        (at + 75, at + 76, "launch-call", False),
        (at + 76, at + 80, "launch-latency", False),
    ]


ALONE = [
    pytest.param([300, 310, 320], 3, id="long after the other one issued"),
    pytest.param([300, 310], 0, id="twice"),
    pytest.param([300] * 3, 0, id="always as long after it"),
    pytest.param([300] * 3 + [45] * 3, 0, id="as often right behind it"),
    pytest.param([300] * 4 + [45] * 3, 7, id="seldom right behind it"),
]


@pytest.mark.parametrize(("late", "count"), ALONE)
def test_a_thread_works_by_itself_that_seldom_goes_on_behind_one_that_issues(late, count):
    rows = locking(*late, what="launch", lengths=(30,))

    assert waits_of(*rows).outside.is_alone.sum() == count


def test_a_thread_that_the_system_says_waits_does_not_work_by_itself():
    rows = locking(300, 310, 320, what="launch", lengths=(45,), locked=290)

    assert not waits_of(*rows).outside.is_alone.any()


@pytest.mark.parametrize(
    ("late", "kinds"),
    [
        pytest.param(300, ["outside-calls"], id="by itself"),
        pytest.param(45, ["outside-calls", "launch-call", "outside-calls"], id="behind the other one"),
    ],
)
def test_the_walk_stays_on_a_thread_that_works_by_itself(late, kinds):
    links = walk(*locking(late - 2, late - 4, late, what="launch", lengths=(30,)))

    begun = 2 * APART + 10 + 30 + late
    before = [link for link in links if 2 * APART + 8 <= link[0] < begun]
    assert [link[2] for link in before] == kinds
    assert (before[0][0], before[-1][1]) == (2 * APART + 8, begun)


def test_a_thread_that_issues_no_more_than_the_other_one_keeps_its_pace():
    more = [launch(1, 4_500 + 10 * place) for place in range(3)]
    rows = locking(300, 310, 320, what="launch", lengths=(30,))
    count = sum(isinstance(row, Call) for row in rows)
    ops = [Op(1, 4_510 + 10 * place, 4_512 + 10 * place, "copy", count + place) for place in range(3)]

    assert not waits_of(*rows[:count], *more, *rows[count:], *ops).outside.is_alone.any()
