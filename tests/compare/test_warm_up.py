"""Warm-up within a run is recognized by its decay, and said of the side that has it."""

import numpy as np
import pytest

from tests.compare.test_compare import diff, steps
from tests.profile.random_profiles import profile_of
from wallscope.compare.warm_up import describe_warm_up, measure_warm_up


def draw(count, seed, decay=0.0, jitter=0.005):
    random = np.random.default_rng(seed)
    place = np.arange(count) / count
    lengths = 1e8 * np.exp(decay * np.exp(-3 * place) + jitter * random.standard_normal(count))
    return np.round(lengths).astype(np.int64)


@pytest.mark.parametrize("count", [6, 10, 20, 100])
def test_a_decay_is_found_with_its_size(count):
    found = [measure_warm_up(draw(count, seed, 0.1)) for seed in range(50)]

    assert np.mean([share > 0 for share in found]) >= 0.9
    assert np.median(found) == pytest.approx(0.1, rel=0.3)


def test_steady_and_slowing_steps_do_not_warm_up():
    for count in (6, 10, 20, 100):
        steady = [measure_warm_up(draw(count, seed, jitter=0.03)) for seed in range(300)]
        assert np.mean([share > 0 for share in steady]) < 0.05
    assert measure_warm_up(draw(20, 1, -0.1)) == 0
    assert measure_warm_up(draw(5, 1, 0.1)) == 0
    assert measure_warm_up(np.full(20, 10**8)) == 0


def test_the_side_that_warms_up_is_named():
    (note,) = describe_warm_up([draw(20, 1)], [draw(20, 2, 0.1)])

    assert (note.what, note.base, note.severity) == ("warm-up", "none", "note")
    assert note.head.endswith("shorter within the run")
    assert describe_warm_up([draw(20, 1)], [draw(20, 2)]) == ()


def test_a_comparison_of_warming_runs_says_so():
    warm = np.exp(0.1 * np.exp(-3 * np.arange(20) / 20))

    def side(name, seed):
        drawn = np.array(steps(20, 1.0, seed, 0.002)) * warm[:, None]
        return profile_of(name, np.round(drawn).astype(int).tolist())

    found = diff(side("base", 1), side("head", 2))
    (note,) = [entry for entry in found.mismatches if entry.what == "warm-up"]
    assert "shorter" in note.base
    assert "shorter" in note.head
