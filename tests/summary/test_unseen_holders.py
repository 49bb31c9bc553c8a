"""Waits for a lock of whose holder the export has no calls: host is the wall, but less surely."""

import pytest

from fixtures.simulation import names
from fixtures.simulation.program import (
    Acquire,
    Allocate,
    HostThread,
    Launch,
    Park,
    Program,
    Release,
    Signal,
    SyncStream,
    Work,
    stepped,
)
from fixtures.simulation.run import run
from fixtures.simulation.story import COPIES, US
from fixtures.simulation.wait_story import STEPS
from fixtures.simulation.writing import write_run
from tests.simulation.test_missing_tables import judge_ranks

KERNEL, SMALL = Launch(names.GEMM, 150 * US), Launch(names.ELEMENTWISE, 4 * US, COPIES)
HELD_US = (700, 900, 1_100)


def repeat(one):
    """The actions of a thread next to the main one, in all steps."""
    return tuple(action for number in range(STEPS) for action in one(number))


def asking(*waits):
    """The main thread: it tells that it will wait, waits, and launches."""
    return lambda number: [KERNEL, Signal(f"step {number}"), Work(30 * US), *waits, KERNEL, SyncStream()]


def waiting(number):
    return asking(Park(f"done {number}"))(number)


def holding(*after):
    """A thread that works while it holds the lock."""
    return lambda number: [
        Park(f"step {number}"),
        Acquire("state"),
        Work(HELD_US[number % len(HELD_US)] * US),
        Release("state"),
        *after,
    ]


def working(number):
    """A thread that wakes others when it has worked."""
    held = Work(HELD_US[number % len(HELD_US)] * US)
    return [Park(f"step {number}"), held, Signal(f"done {number}")]


def allocating(number):
    """A thread that allocates at the same time without the lock."""
    return [Park(f"step {number}"), Work(200 * US), Allocate((100 + 50 * (number % 3)) * US)]


def woken(number):
    return [Park(f"done {number}"), SMALL]


LOCKED = asking(Acquire("state"), Work(2 * US), Release("state"))
CASES = {
    "a holder without calls": (LOCKED, (holding(),), "medium"),
    "a holder without calls, and another thread with calls": (LOCKED, (holding(), allocating), "medium"),
    "a thread that was woken too": (waiting, (working, woken), "medium"),
    "a holder that launches as it lets go": (LOCKED, (holding(SMALL),), "high"),
    "a holder that launches, and a thread without calls": (LOCKED, (holding(SMALL), working), "high"),
}


@pytest.mark.parametrize("case", CASES)
def test_a_lock_wait_is_sure_only_if_a_thread_with_calls_lets_go(tmp_path, case):
    main, others, level = CASES[case]
    threads = [HostThread(f"other {place}", repeat(one)) for place, one in enumerate(others)]
    path = tmp_path / "run.sqlite"
    write_run(
        run(Program(((HostThread("python", stepped(STEPS, main)), *threads),))), path, has_os_calls=True
    )

    assert judge_ranks(path) == [("host", level)]
