"""Random programs, 6 a run, two hundred among the slow tests: are verdicts, walls and opportunities true?

6 have noise, sixty among the slow tests: durations spread by 12 %, launch latencies have heavy tails.

All seeds come from one base seed, which failures name: `WALLSCOPE_BASE_SEED=<n> pytest <this file>`
repeats them, and another base seed tries other programs.
"""

import os
from random import Random

import numpy as np
import pytest

from fixtures.simulation import names
from fixtures.simulation.judged import account_ranks, judged
from fixtures.simulation.program import (
    Acquire,
    Copy,
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
from fixtures.simulation.random_programs import random_program
from fixtures.simulation.random_threads import random_threads
from fixtures.simulation.story import COPIES, US

BASE_SEED = int(os.environ.get("WALLSCOPE_BASE_SEED", "1"))
PROGRAMS, THREADED_PROGRAMS = 6, 12
ALL_PROGRAMS = pytest.param(200, marks=pytest.mark.slow)
NOISY_PROGRAMS = pytest.param(60, marks=pytest.mark.slow)
SEEDS = Random(BASE_SEED).sample(range(1_000_000), 200)
REPEAT = f"repeat with WALLSCOPE_BASE_SEED={BASE_SEED}"
ROUNDING = 0.005
"""Verdicts nearer to a threshold than this may go either way."""


@pytest.fixture(scope="module", params=[PROGRAMS, ALL_PROGRAMS])
def judgement(request):
    print(f"base seed {BASE_SEED}")  # noqa: T201  # pytest shows it where a test fails
    return judged(SEEDS[: request.param])


@pytest.fixture(scope="module", params=[PROGRAMS, NOISY_PROGRAMS])
def noisy(request):
    print(f"base seed {BASE_SEED}")  # noqa: T201
    return judged(SEEDS[: request.param], noisy=True)


@pytest.fixture(scope="module", params=[THREADED_PROGRAMS, ALL_PROGRAMS])
def threaded(request):
    """Programs of two or three threads that share a lock."""
    print(f"base seed {BASE_SEED}")  # noqa: T201
    return judged(SEEDS[: request.param], make=random_threads)


@pytest.fixture
def with_events(judgement):
    return judgement.with_events


@pytest.fixture
def without_events(judgement):
    return judgement.without_events


@pytest.fixture(params=["with_events", "without_events"])
def ranks(request, judgement):
    return getattr(judgement, request.param)


def largest(found):
    """The worst five, for the message of a failure."""
    return [f"{where}: {size:.4f}" for size, where in sorted(found, reverse=True)[:5]]


def errors(ranks):
    """How far the ceiling of each cause is from what its removal wins, as a share of the step."""
    return [
        (abs(removal.recoverable - removal.won), f"{rank.where}, {removal.cause}")
        for rank in ranks
        for removal in rank.removals
        if removal.recoverable is not None
    ]


def missed(ranks):
    """Ranks with something to win whose first-ranked cause is not the one that wins most, within 1 %."""
    found = []
    for rank in with_something_to_win(ranks):
        told = [removal for removal in rank.removals if removal.recoverable]
        first = max(told, key=lambda removal: removal.recoverable, default=None)
        best = max(rank.removals, key=lambda removal: removal.won)
        if first is None or best.won - first.won > 0.01:
            found.append(f"{rank.where}: {first}, but {best}")
    return found


def wrong_verdicts(ranks, clearance=ROUNDING):
    """Ranks whose verdict is not the true one, where no threshold is near."""
    return [
        f"{rank.where}: {rank.dominant}, but {rank.truth}"
        for rank in ranks
        if rank.dominant != rank.truth.dominant and rank.truth.clearance >= clearance
    ]


def with_something_to_win(ranks):
    return [rank for rank in ranks if any(removal.won > 0.01 for removal in rank.removals)]


def test_walls_and_budgets_add_up_to_every_step(ranks):
    assert [rank.where for rank in ranks if rank.untold_ns] == [], REPEAT


def test_no_more_than_a_hundredth_of_a_step_is_on_a_wrong_wall(ranks):
    found = [(rank.wall_error, rank.where) for rank in ranks]

    # measured over 800 programs: 0 on every rank, without event records too
    assert np.percentile([error for error, _ in found], 95) <= 0.01, (REPEAT, largest(found))


def test_the_verdict_is_the_true_one_with_event_records(with_events):
    assert wrong_verdicts(with_events) == [], REPEAT


def test_the_verdict_is_nearly_always_the_true_one_without_event_records(without_events):
    wrong = wrong_verdicts(without_events)

    # measured over 800 programs: none is wrong; streams are inferred there, so one in a hundred may be
    assert len(wrong) <= 0.01 * len(without_events), (REPEAT, wrong)


def test_ceilings_are_what_the_step_wins(with_events):
    found = errors(with_events)

    assert len(found) > PROGRAMS
    assert np.percentile([error for error, _ in found], 95) <= 0.01, (REPEAT, largest(found))
    assert max(error for error, _ in found) <= 0.02, (REPEAT, largest(found))


@pytest.mark.parametrize(
    "seed",
    [
        pytest.param(242081, id="reductions of two ranks that end together and never meet"),
        pytest.param(460284, id="a host so late that no kernel waits for another"),
    ],
)
def test_ceilings_are_what_the_step_wins_in_hard_programs(seed):
    found = errors(account_ranks(seed, random_program(seed)))

    assert max(error for error, _ in found) <= 0.005, largest(found)


def test_the_first_opportunity_wins_most(with_events):
    assert len(with_something_to_win(with_events)) > PROGRAMS // 2
    assert missed(with_events) == [], REPEAT


def test_noise_moves_next_to_nothing_to_a_wrong_wall(noisy):
    for ranks in (noisy.with_events, noisy.without_events):
        found = [(rank.wall_error, rank.where) for rank in ranks]

        assert [rank.where for rank in ranks if rank.untold_ns] == [], REPEAT
        # measured over 80 programs: 0.6 % with event records and without, 1.6 % at most
        assert np.percentile([error for error, _ in found], 95) <= 0.01, (REPEAT, largest(found))
        assert wrong_verdicts(ranks, clearance=2 * ROUNDING) == [], REPEAT


def test_noise_does_not_hide_what_wins_most(noisy):
    found = errors(noisy.with_events)

    assert len(found) > PROGRAMS
    # measured over 60 programs with four noises each: 0.2 %, 1 % at most
    assert np.percentile([error for error, _ in found], 95) <= 0.01, (REPEAT, largest(found))
    assert max(error for error, _ in found) <= 0.02, (REPEAT, largest(found))
    assert missed(noisy.with_events) == [], REPEAT


@pytest.mark.parametrize("records", ["with_events", "without_events"])
def test_threads_that_share_a_lock_are_told_from_those_that_work_side_by_side(threaded, records):
    ranks = getattr(threaded, records)
    found = [(rank.wall_error, rank.where) for rank in ranks]

    wrong = sum(error > 0.01 for error, _ in found)
    assert wrong <= max(len(ranks) // 20, 1), (REPEAT, largest(found))
    assert wrong_verdicts(ranks) == [], REPEAT


def let_go_late(length_us):
    """A thread waits for a lock whose holder copies and then works; or it works itself, beside the copy."""

    def one(number):
        asked = [Acquire("state"), Work(3 * US), Release("state")]
        wait = [Work(20 * US), *asked] if length_us is None else [Work(length_us * US)]
        return [
            Signal(f"step {number}"),
            *wait,
            *(Launch(names.GEMM, 60 * US) for _ in range(8)),
            SyncStream(),
        ]

    def other(number):
        copy = Copy("host-to-device", 32 << 20, 900 * US, COPIES, host_memory="pageable")
        held = [copy, Work((400 + 30 * number) * US)]
        return [
            Park(f"step {number}"),
            *([Acquire("state"), *held, Release("state")] if length_us is None else held),
        ]

    steps = 9
    beside = tuple(action for number in range(steps) for action in other(number))
    return Program(((HostThread("python", stepped(steps, one)), HostThread("holder", beside)),))


@pytest.mark.parametrize(
    ("program", "true", "dominant", "level"),
    [
        pytest.param(random_threads(81042), "memory", "host", "medium", id="three threads"),
        pytest.param(let_go_late(None), "memory", "host", "medium", id="two threads"),
        pytest.param(let_go_late(2_500), "host", "host", "high", id="mostly work of its own"),
    ],
)
def test_host_time_that_may_be_a_wait_for_a_holder_that_works_is_not_sure(program, true, dominant, level):
    (found,) = account_ranks(0, program)

    assert (found.truth.dominant, found.dominant, found.level) == (true, dominant, level)


def test_system_calls_tell_that_a_holder_works_before_it_releases_a_lock():
    (found,) = judged([81042], make=random_threads, has_os_calls=True).with_events

    assert found.dominant == found.truth.dominant == "memory"
