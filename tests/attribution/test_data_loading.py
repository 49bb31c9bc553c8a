"""Data loading without NVTX: where the thread that launches waits, and a batch's copy ends the wait."""

import random

import pytest

from fixtures.simulation.program import Copy, SyncDevice, Work
from fixtures.simulation.run import run
from fixtures.simulation.story import US, alone, gemm
from fixtures.simulation.writing import write_run
from wallscope.model.options import Options
from wallscope.pipeline import analyze

MS = 1_000 * US
LOADING = "host/data-loading"
BATCH = Copy("host-to-device", 64 << 20, 3 * MS)
SEEDS = range(40)


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


def test_waits_that_a_batch_ends_are_data_loading(tmp_path):
    found = [share_of_loading(loader(seed), tmp_path / f"{seed}.sqlite") >= 0.3 for seed in SEEDS]

    assert sum(found) >= 0.95 * len(SEEDS)


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


@pytest.mark.parametrize("seed", range(3))
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
        found.fixes[0].evidence[0].startswith("the waits end with the copy of a batch: 1 host-to-device row")
    )
