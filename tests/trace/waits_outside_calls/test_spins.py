"""Threads that read what a kernel writes until it has ended, and what the walk says of them."""

import pytest

from tests.attribution.brute_trace import Call, Op
from tests.trace.walking import launch, waits_of, walk


def spinning(*lags, name="counts", pause=60.0, by=0):
    """Kernels of a name, and a thread that stays outside of calls until so long after each has ended."""
    rows, at = [], 0.0
    for number, lag in enumerate(lags):
        call = 2 * number
        length = pause[number] if isinstance(pause, list) else pause + number
        rows += [launch(by, at), Call(0, at + 2, at + 3, "other")]
        end = at + 3 + length - lag
        rows.append(Op(0, at + 5, end, "communication", call, name=name))
        at += 3 + length
    return [*rows, Call(0, at, at + 1, "other")], at


SPINS = [
    pytest.param(spinning(*[10] * 5), 5, id="five, within 10 us"),
    pytest.param(spinning(*[10] * 5, pause=[60] * 5), 0, id="pauses of one length, which host work may have"),
    pytest.param(spinning(*[10] * 4), 0, id="four"),
    pytest.param(spinning(*[10] * 4, 13), 0, id="five, one of them later"),
    pytest.param(
        spinning(50, 49, 48, 49, 50, pause=[80, 84, 90, 80, 84]), 5, id="behind some work of its own"
    ),
    pytest.param(spinning(51, 49, 48, 49, 50, pause=[80, 84, 90, 80, 84]), 0, id="behind more work"),
    pytest.param(
        spinning(50, 45, 40, 49, 50, pause=[80, 84, 90, 80, 84]), 0, id="pauses of much the same length"
    ),
    pytest.param(spinning(*[1] * 8, 20, 20), 8, id="eight of ten"),
    pytest.param(spinning(*[1] * 7, 20, 20), 0, id="seven of nine"),
    pytest.param(spinning(*[1] * 5, pause=50), 5, id="pauses of 50 us"),
    pytest.param(spinning(*[1] * 5, pause=[49.9, 49, 48, 47, 46]), 0, id="shorter pauses"),
    pytest.param(spinning(*[1] * 5, name=""), 0, id="not a kernel"),
    pytest.param(spinning(*[1] * 5, by=1), 0, id="of another thread"),
]


@pytest.mark.parametrize(("rows", "count"), SPINS)
def test_a_thread_spins_where_it_goes_on_right_behind_a_kernel_nearly_every_time(rows, count):
    assert (waits_of(*rows[0]).outside.spun >= 0).sum() == count


def test_the_walk_goes_on_at_what_a_thread_spun_for():
    rows, at = spinning(*[4] * 5)
    rows += [launch(0, 2), Op(1, 4, at - 50, "compute", 11)]
    rows += [launch(0, at + 1), Op(1, at + 7, at + 9, "compute", 12)]

    assert walk(*rows) == [
        (at - 50, at - 4, "operation", True),
        (at - 4, at, "outside-calls", True),
        (at, at + 1, "other-call", False),
        (at + 1, at + 2, "launch-call", False),
        (at + 2, at + 7, "launch-latency", False),
    ]
