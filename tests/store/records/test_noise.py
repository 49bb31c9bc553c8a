"""What recorded runs differ by."""

from dataclasses import replace

import numpy as np
import pytest

from tests.store.test_records import BED, run
from wallscope.model.profile import RecordedRank
from wallscope.store import run_noise


def at(commit, *times_ns, testbed=BED, first=0):
    return [
        run(commit, typical_ns=time_ns, testbed=testbed, recorded_ns=first + number)[0]
        for number, time_ns in enumerate(times_ns)
    ]


def with_causes(record, **causes):
    (rank,) = record.ranks
    named = {cause.replace("__", "/").replace("_", "-"): time_ns for cause, time_ns in causes.items()}
    made = RecordedRank(rank.rank, rank.device, rank.object, sum(named.values()), rank.steps, named)
    return replace(record, ranks=(made,))


def test_the_noise_of_a_testbed_is_that_inside_its_commits():
    like = [*at("aaaa", 100, 102), *at("bbbb", 200, 204)]
    other = replace(BED, gpu="other")
    found = run_noise([*like, *at("cccc", 1, 99, testbed=other)], BED)

    assert found.noise["step"].freedom == 2
    assert found.noise["step"].deviation == pytest.approx(0.014, abs=0.0005)
    assert found.noise["compute/gemm"] == found.noise["step"]
    assert found.steps == 3


def test_walls_and_causes_have_noise_of_their_own():
    runs = [
        with_causes(record, compute__gemm=100_000 + number, host__framework=10_000 + 4_000 * (number % 2))
        for number, record in enumerate(at("aaaa", *range(1, 7)))
    ]
    found = run_noise(runs, BED)

    assert found.noise["host"].deviation == pytest.approx(0.183, abs=0.001)
    assert found.noise["compute"].deviation < 0.001
    assert {noise.freedom for noise in found.noise.values()} == {5}


def test_copies_do_not_count():
    assert run_noise([*at("aaaa", 100, 102), *at("cccc", 100, 100, 100)], BED).noise["step"].freedom == 1
    assert run_noise(at("aaaa", 100), BED) is None


def test_commits_of_one_run_each_teach_noise():
    random = np.random.default_rng(2)
    found = []
    for _ in range(200):
        times = 1e8 * (1 + random.normal(0, 0.02, 31))
        times[15:] *= 1.3  # a change is no noise
        records = [at(f"{n:04x}", int(t), first=n)[0] for n, t in enumerate(times)]
        found.append(run_noise(records, BED).noise["step"])

    assert np.sqrt(np.mean([one.deviation**2 for one in found])) == pytest.approx(0.02, rel=0.1)
    assert 17 <= np.median([one.freedom for one in found]) <= 20


def test_few_commits_of_one_run_teach_nothing():
    assert run_noise([at(f"{n:04x}", 100 + n, first=n)[0] for n in range(5)], BED) is None
