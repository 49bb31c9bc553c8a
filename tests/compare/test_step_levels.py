"""Levels of steps, as of two clock frequencies: described, and runs differ by as much."""

from math import log

import numpy as np
import pytest

from tests.compare.test_compare import diff, steps
from tests.profile.random_profiles import profile_of
from wallscope.compare.compare import CompareOptions
from wallscope.compare.step_levels import (
    SharedLevels,
    find_levels,
    find_shared_levels,
    measure_distance,
    measure_shift,
)

NO_LEVELS = SharedLevels()
RANDOM = np.random.default_rng(3)


def lengths(*levels, jitter=0.003):
    return np.round(1e8 * np.array(levels) * (1 + jitter * RANDOM.standard_normal(len(levels)))).astype(int)


def test_two_levels_are_found_and_stalls_are_none():
    levels = find_levels(lengths(*[1.0] * 9, *[1.08] * 7))

    assert [len(level.steps) for level in levels.modes] == [9, 7]
    assert find_levels(lengths(*[1.0] * 16)).modes == ()
    assert find_levels(lengths(*[1.0, 1.0, 1.0, 2.0] * 5)).modes == ()


def test_runs_that_change_their_level_often_are_more_alike():
    once = find_levels(lengths(*[1.0] * 8, *[1.08] * 8))
    often = find_levels(lengths(*[1.0, 1.0, 1.08, 1.08] * 4))

    assert measure_distance([once], NO_LEVELS, 16) == pytest.approx(log(1.08), rel=0.05)
    assert measure_distance([once, often], NO_LEVELS, 16) == measure_distance([once], NO_LEVELS, 16)
    assert measure_distance([often], NO_LEVELS, 16) == pytest.approx(log(1.08) / np.sqrt(7), rel=0.05)
    assert measure_distance([find_levels(lengths(*[1.0] * 16))] * 2, NO_LEVELS, 16) == 0
    assert measure_distance([], NO_LEVELS, 16) == 0


def test_a_run_at_two_levels_is_described_and_no_regression():
    def at(*factors):
        return [steps(1, factor, seed, 0.003)[0] for seed, factor in enumerate(factors)]

    base = profile_of("base", at(*[1.0] * 16))
    head = profile_of("head", at(*[1.0] * 5, *[1.06] * 11))
    found = diff(base, head, CompareOptions())

    (note,) = [entry for entry in found.mismatches if entry.what == "levels of steps"]
    assert (note.base, note.severity) == ("no shift", "note")
    assert note.head.startswith("5 of 100.")
    assert found.step.ratio > 1.04
    assert found.verdict == "inconclusive"
    assert not [row for row in diff(base, base).mismatches if row.what == "levels of steps"]


def test_a_shift_within_a_run_is_found_with_its_size():
    random = np.random.default_rng(3)
    shifted = 1e8 * np.exp(0.05 * (np.arange(10) >= 7) + 0.004 * random.standard_normal(10))
    assert measure_shift(shifted.astype(np.int64)) == pytest.approx(0.05, rel=0.15)


def test_steps_without_a_shift_have_none():
    random = np.random.default_rng(4)
    for count in (3, 6, 20):
        steady = 1e8 * np.exp(0.03 * random.standard_normal((300, count)))
        assert np.mean([measure_shift(run.astype(np.int64)) > 0 for run in steady]) < 0.05
    one_slow = np.array([100, 101, 100, 102, 190, 101, 100, 101, 100]) * 1_000_000
    assert measure_shift(one_slow) == 0


def test_one_step_at_the_level_of_the_other_side_shows_that_both_share_levels():
    base, head = lengths(*[1.0] * 9, 1.04), lengths(*[1.04] * 10)
    shared = find_shared_levels([base], [head])

    assert (shared.base, shared.head) == ((9, 1), (0, 10))
    assert shared.distance(10) == pytest.approx(log(1.04), rel=0.1)
    assert find_shared_levels([head], [base]).distance(10) == shared.distance(10)
    assert measure_distance([], shared, 10) == shared.distance(10)


def test_sides_that_are_each_at_one_level_share_none():
    assert find_shared_levels([lengths(*[1.0] * 10)], [lengths(*[1.04] * 10)]) == SharedLevels()
    assert find_shared_levels([lengths(*[1.0] * 10)], [lengths(*[1.0] * 10)]).distance(10) == 0


def test_an_outlier_toward_the_other_side_is_at_no_level():
    base, head = lengths(*[1.0] * 20), lengths(*[1.1] * 19, 1.04)

    assert find_shared_levels([base], [head]) == SharedLevels()


def test_shared_levels_that_change_often_are_closer():
    often = [lengths(*[1.0, 1.05] * 8)]

    assert find_shared_levels(often, often).distance(16) == pytest.approx(log(1.05) / np.sqrt(15), rel=0.1)


def test_levels_of_a_long_run_are_as_far_apart_as_a_short_run_shows_them():
    """Of 12 changes in 104 steps a run of 8 steps has one, and one of 32 has four."""
    long = lengths(*([1.0] * 8 + [1.08] * 8) * 6, *[1.0] * 8)
    found, shared = find_levels(long), find_shared_levels([long], [long])

    for steps_of_short, changes in ((8, 1), (32, 3.7), (104, 12), (200, 12)):
        expected = pytest.approx(log(1.08) / np.sqrt(changes), rel=0.05)
        assert found.distance(steps_of_short) == expected
        assert shared.distance(steps_of_short) == expected


def test_a_step_at_the_level_of_head_leaves_the_change_open_and_is_described():
    def at(*factors):
        return [steps(1, factor, seed, 0.003)[0] for seed, factor in enumerate(factors)]

    head = profile_of("head", at(*[1.06] * 16))
    surely = diff(profile_of("base", at(*[1.0] * 16)), head, CompareOptions())
    open_ = diff(profile_of("base", at(*[1.0] * 15, 1.06)), head, CompareOptions())
    (note,) = [entry for entry in open_.mismatches if entry.what == "levels of steps"]

    assert (surely.verdict, open_.verdict) == ("regression", "inconclusive")
    assert note.base.startswith("15 of 100.")
    assert ", 1 of 106." in note.base
    assert note.head.startswith("16 of 106.")
