"""Threads outside calls that wait for a lock of the program, and what the walk says of them."""

import pytest

from tests.attribution.brute_trace import Call, Op
from tests.trace.walking import launch, waits_of, walk

APART = 1_000.0


def locking(*late, what="alloc", length=60.0, holder=1, meanwhile=()):
    """One thread launches, waits and launches; another one is in a call that returns so long before that.

    In each of `meanwhile` rounds it goes on so long after, and waits for nothing.
    """
    calls, ops = [], []
    for number, pause in enumerate([*late, *meanwhile]):
        at = APART * number
        begun = at + 10 + length + pause
        calls += [launch(0, at), launch(0, begun), Call(holder, at + 10, at + 10 + length, what)]
        ops += [Op(0, at + 4, at + 8, "compute", at), Op(0, begun + 5, begun + 9, "compute", begun)]
    rows = sorted(calls, key=lambda call: (call.thread, call.start))
    place = {call.start: row for row, call in enumerate(rows) if call.what == "launch"}
    return [*rows, *(op._replace(call=place[op.call]) for op in ops)]


FOUND = [
    pytest.param({"late": [5] * 3}, 3, id="three times"),
    pytest.param({"late": [5] * 2}, 0, id="twice"),
    pytest.param({"late": [20] * 3}, 3, id="20 us later"),
    pytest.param({"late": [20, 20, 20.001]}, 0, id="later"),
    pytest.param({"late": [5] * 3, "meanwhile": [300] * 3}, 3, id="half of the times"),
    pytest.param({"late": [5] * 3, "meanwhile": [300] * 4}, 0, id="three of seven times"),
    pytest.param({"late": [5] * 3, "length": 50}, 3, id="in a call of 50 us"),
    pytest.param({"late": [5] * 3, "length": 49.999}, 0, id="in a short call"),
    pytest.param({"late": [5] * 3, "what": "other"}, 0, id="in a call that does no work"),
    pytest.param({"late": [5] * 3, "what": "context"}, 3, id="in a synchronization"),
]


@pytest.mark.parametrize(("rows", "count"), FOUND)
def test_a_thread_waits_for_a_lock_where_it_goes_on_right_behind_a_call_of_another_one(rows, count):
    waits = waits_of(*locking(*rows.pop("late"), **rows))

    assert (waits.let_go >= 0).sum() == count
    assert set(waits.calls.thread[waits.let_go[waits.let_go >= 0]].tolist()) <= {1}


def test_the_walk_goes_on_in_the_call_that_held_the_lock():
    at = 2 * APART

    assert walk(*locking(5, 5, 5))[-5:] == [
        (at + 8, at + 10, "outside-calls", True),
        (at + 10, at + 70, "allocation", True),
        (at + 70, at + 75, "outside-calls", True),
        (at + 75, at + 76, "launch-call", False),
        (at + 76, at + 80, "launch-latency", False),
    ]
