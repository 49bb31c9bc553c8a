"""Bounds where threads share a lock: who holds it, and who waits for it, may change with what is removed."""

import pytest

from fixtures.simulation.judged import account_ranks
from fixtures.simulation.random_threads import random_threads

ROUNDING = 0.005


def find_removal(seed, cause):
    (rank,) = account_ranks(seed, random_threads(seed))
    return next(one for one in rank.removals if one.cause == cause)


@pytest.mark.parametrize(
    ("seed", "cause"),
    [
        pytest.param(583484, "host/launch-call", id="comes before the holder"),
        pytest.param(659924, "host/launch-call", id="meets the hold before"),
        pytest.param(966984, "host/queue-drained/cudaStreamSynchronize", id="meets fewer holds"),
        pytest.param(939078, "host/queue-drained/cudaStreamSynchronize", id="another one issues meanwhile"),
        pytest.param(670206, "memory/staging", id="frees memory while less work is pending"),
    ],
)
def test_a_bound_is_at_least_what_a_thread_wins_that_waits_for_other_holds(seed, cause):
    removal = find_removal(seed, cause)

    assert removal.won > 0.1
    assert removal.recoverable >= removal.won - ROUNDING


@pytest.mark.parametrize(
    ("seed", "cause"),
    [
        pytest.param(966984, "memory/allocator", id="a holder that keeps its own pace"),
        pytest.param(998500, "memory/readback", id="copies of a thread with the lock"),
        pytest.param(681098, "host/synchronisation", id="memory is freed as slowly as before"),
        pytest.param(466989, "host/launch-call", id="memory is freed sooner, while less work is pending"),
    ],
)
def test_a_bound_is_what_the_step_wins_without_what_a_holder_does(seed, cause):
    removal = find_removal(seed, cause)

    assert removal.recoverable == pytest.approx(removal.won, abs=ROUNDING)
