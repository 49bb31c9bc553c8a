"""Data loading without NVTX: where the thread that launches waits, and a batch's copy ends the wait."""

import random
from dataclasses import replace

import pytest

from fixtures.simulation.noise import add_noise
from fixtures.simulation.program import (
    NULL_STREAM,
    Copy,
    HostThread,
    Park,
    Pop,
    Program,
    Push,
    Record,
    Signal,
    SyncDevice,
    WaitEvent,
    Work,
)
from fixtures.simulation.run import run
from fixtures.simulation.story import STEPS, US, alone, gemm, stepped
from fixtures.simulation.writing import write_run
from tests.conftest import slow
from wallscope.model.capture import Options
from wallscope.pipeline import analyze

MS = 1_000 * US
LOADING = "host/data-loading"
BATCH = Copy("host-to-device", 64 << 20, 3 * MS)
SEEDS = pytest.mark.parametrize(
    "seeds", [range(4), pytest.param(range(40), marks=pytest.mark.slow)], ids=["few", "many"]
)


def share_of_loading(one, path):
    """What data loading takes of the typical step of a program."""
    write_run(run(alone(one)), path, has_events=True)
    (rank,) = analyze(path, Options(), lambda _: None).ranks
    return sum(cause.share for cause in rank.causes if cause.cause == LOADING)


def work(noise, kernels=24):
    return tuple(gemm(noise.uniform(20, 60)) for _ in range(kernels))


def loader(seed):
    """Steps that wait 3 to 20 ms for a batch, more on some; the loss is read at their ends."""
    noise = random.Random(seed)
    usual_ms, spread = noise.uniform(3, 20), noise.uniform(0, 0.2)

    def one(_):
        wait_ns = round(usual_ms * noise.uniform(1 - spread, 1 + spread) * MS)
        copied = Copy("host-to-device", round(noise.uniform(0.1, 64) * 1e6), 2 * MS)
        return (Work(wait_ns), copied, *work(noise), SyncDevice())

    return one


@SEEDS
def test_waits_that_a_batch_ends_are_data_loading(tmp_path, seeds):
    found = [share_of_loading(loader(seed), tmp_path / f"{seed}.sqlite") >= 0.3 for seed in seeds]

    assert sum(found) >= 0.95 * len(seeds)


NEAR_MISSES = {
    "a kernel ends the wait": lambda noise: (Work(8 * MS), *work(noise), BATCH, *work(noise), SyncDevice()),
    "the batch is there at once": lambda noise: (Work(800 * US), BATCH, *work(noise), SyncDevice()),
    "a scalar is copied": lambda noise: (
        Work(8 * MS),
        Copy("host-to-device", 8, 2 * US),
        *work(noise),
        SyncDevice(),
    ),
    "results are copied to the host": lambda noise: (
        Work(8 * MS),
        Copy("device-to-host", 64 << 20, 3 * MS),
        *work(noise),
        SyncDevice(),
    ),
    "weights are copied for each of few kernels": lambda noise: 6 * (Work(2 * MS), BATCH, *work(noise, 3)),
}


@pytest.mark.parametrize("seed", [0, *slow(1, 2)])
@pytest.mark.parametrize("name", NEAR_MISSES)
def test_near_misses_are_no_data_loading(name, seed, tmp_path):
    noise = random.Random(seed)

    assert share_of_loading(lambda _: NEAR_MISSES[name](noise), tmp_path / "run.sqlite") == 0


def test_the_recommendation_is_more_workers_and_no_larger_batch(tmp_path):
    path = tmp_path / "run.sqlite"
    write_run(run(alone(loader(1))), path, has_events=True)
    found = analyze(path, Options(), lambda _: None)
    ids = [fix.id for fix in found.fixes]

    assert ids[0] == "data-workers"
    assert "larger-microbatch" not in ids
    assert (
        found.fixes[0].evidence[0].startswith("the waits end with the copy of a batch: 1 host-to-device copy")
    )


def dali(noise, usual_ms, between):
    """Batches that stages of DALI prepare, one ahead, in threads of their own; `between` is a step's own."""

    def one(number):
        taken = (
            Signal(f"free {number}"),
            Park(f"batch {number}"),
            WaitEvent(NULL_STREAM, f"copied {number}"),
        )
        return (*taken, *between(noise), *work(noise, 60), SyncDevice())

    def carry_out(stages):
        return tuple(action for number in range(STEPS) for action in stages(number))

    def load(number):
        wait_ns = round(usual_ms * noise.uniform(0.8, 1.2) * MS)
        own = (Push("[DALI][Executor] RunCPU"), Work(wait_ns), Pop(), Signal(f"loaded {number}"))
        return (Park(f"free {number - 1}"), *own) if number else own

    def copy(number):
        copied = replace(BATCH, stream=13)
        return (
            Park(f"loaded {number}"),
            *(Push("[DALI][Executor] RunMixed"), copied, Record(f"copied {number}", 13), Pop()),
            Signal(f"batch {number}"),
        )

    threads = (
        HostThread("python", stepped(STEPS, one)),
        HostThread("cpu stage", carry_out(load)),
        HostThread("mixed stage", carry_out(copy)),
    )
    return Program((threads,))


def causes_of_dali(program, seed, path):
    """What causes take of the typical step, by name."""
    write_run(run(add_noise(program, seed)), path, has_events=True)
    (rank,) = analyze(path, Options(), lambda _: None).ranks
    return {cause.cause: cause.share for cause in rank.causes}


@SEEDS
def test_late_stages_of_a_loader_are_data_loading(tmp_path, seeds):
    found = []
    for seed in seeds:
        noise = random.Random(seed)
        program = dali(noise, noise.uniform(12, 25), lambda _: ())
        causes = causes_of_dali(program, seed, tmp_path / f"{seed}.sqlite")
        found.append(causes.get(LOADING, 0) >= 0.3 and causes.get("host/framework", 0) < 0.1)

    assert sum(found) >= 0.95 * len(seeds)


def test_a_slow_program_beside_a_loader_in_time_is_no_data_loading(tmp_path):
    for seed in range(5):
        program = dali(random.Random(seed), 2, lambda noise: (Work(round(noise.uniform(8, 20) * MS)),))
        causes = causes_of_dali(program, seed, tmp_path / f"{seed}.sqlite")

        assert causes.get(LOADING, 0) < 0.02
        assert sum(share for cause, share in causes.items() if cause.startswith("host/")) > 0.3
