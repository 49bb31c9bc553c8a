"""Threads without CUDA calls that hold what a launching thread waits for, as calls of the system tell."""

from types import SimpleNamespace

import polars as pl
import pytest

from wallscope.model.schemas import BYSTANDER_WAITS, HOST_EVENTS, NAMES, THREADS
from wallscope.trace.bystander_locks import find_bystander_holds

MAIN, BYSTANDER = 7, 4711
APART_NS, WAIT_NS = 1_000_000, 300_000
BEFORE_NS = 40_000


def capture(*turns, name="pthread_mutex_lock", process=0, wait_ns=WAIT_NS, extra=()):
    """A thread waits for a lock; a bystander wakes before and waits again, in ns from both ends of the wait.

    `extra` are further waits of the bystander, from the beginning of each wait.
    """
    asked, waits, woken_ns = [], [], 0
    for number, (woke_ns, late_ns) in enumerate(turns, start=1):
        at_ns = APART_NS * number
        asked.append((MAIN, at_ns, at_ns + wait_ns, "lock", 0))
        waits.append((process, BYSTANDER, woken_ns, at_ns + woke_ns))
        waits += [(process, BYSTANDER, at_ns + begin_ns, at_ns + end_ns) for begin_ns, end_ns in extra]
        woken_ns = at_ns + wait_ns + late_ns
    waits.append((process, BYSTANDER, woken_ns, woken_ns + 10 * APART_NS))
    return SimpleNamespace(
        host_events=pl.DataFrame(asked, schema=HOST_EVENTS, orient="row"),
        host_names=pl.DataFrame([(0, name)], schema=NAMES, orient="row"),
        bystander_waits=pl.DataFrame(sorted(waits), schema=BYSTANDER_WAITS, orient="row"),
        threads=pl.DataFrame({"process": [0] * (MAIN + 1)}, schema={"process": THREADS["process"]}),
    )


HELD = (-BEFORE_NS, 2_000)
BUSY = (-BEFORE_NS, 200_000)
"""A bystander that works on when the other thread goes on."""
EARLY = (-BEFORE_NS, -100_000)


def holds(count):
    return [(APART_NS * n - BEFORE_NS, APART_NS * n + WAIT_NS) for n in range(1, count + 1)]


@pytest.mark.parametrize(
    ("told", "expected"),
    [
        pytest.param(capture(*[HELD] * 3), holds(3), id="three times"),
        pytest.param(capture(*[HELD] * 2), [], id="twice"),
        pytest.param(capture(*[(-BEFORE_NS, 20_000)] * 3), holds(3), id="20 us after the thread goes on"),
        pytest.param(capture(*[(-BEFORE_NS, 20_001)] * 3), [], id="later"),
        pytest.param(capture(*[(-BEFORE_NS, -20_000)] * 3), holds(3), id="20 us before, as clocks differ"),
        pytest.param(capture(*[HELD] * 3, *[EARLY] * 3), holds(3), id="half of the waits that it works in"),
        pytest.param(capture(*[HELD] * 3, *[EARLY] * 4), [], id="less than half of them"),
        pytest.param(capture(*[HELD] * 3, *[BUSY] * 9), holds(3), id="it works beyond other waits"),
        pytest.param(capture(*[BUSY] * 9), [], id="it works beyond all of them"),
        pytest.param(capture(*[(1, 2_000)] * 9), [], id="it wakes in the wait"),
        pytest.param(capture(*[HELD] * 3, extra=[(100_000, 200_000)]), [], id="it waits itself meanwhile"),
        pytest.param(capture(*[HELD] * 3, process=1), [], id="of another process"),
        pytest.param(capture(*[HELD] * 3, name="pthread_cond_wait"), [], id="the thread waits for no lock"),
        pytest.param(capture(*[HELD] * 3, wait_ns=49_999), [], id="the thread waits briefly"),
    ],
)
def test_a_bystander_holds_a_lock_if_it_waits_again_as_the_other_thread_goes_on(told, expected):
    found = find_bystander_holds(told)

    assert (found[MAIN].rows() if found else []) == expected
