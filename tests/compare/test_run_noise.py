"""What runs differ by: measured of each column by itself, each run once, or assumed."""

from dataclasses import replace
from math import sqrt

import numpy as np
import pytest

from wallscope.compare.confidence import Spread, spread_of_steps
from wallscope.compare.run_noise import (
    Assumed,
    Recorded,
    Runs,
    count_runs_to_decide,
    measure_difference,
    measure_pairs,
    pool_records,
    stack_runs,
)
from wallscope.compare.wall_deltas import assume_noise, find_significant
from wallscope.model.profile import Noise, RecordedNoise

ASSUMED = Assumed(np.array([0.0144, 0.2]))
NOTHING = Recorded(np.zeros(2), np.zeros(2))


def side(*means, error=0.001, steps=20):
    """Runs of a step and a wall: a row of (logarithm of the step, wall in ns)."""
    spreads = [Spread(np.array(mean), np.full(2, error) * [1, abs(mean[1])], 19.0) for mean in means]
    return stack_runs(spreads, [steps] * len(means))


def drawn(random, pairs, runs, noise, steps=20.0):
    """Pairs of sides whose steps leave nothing open, and whose runs differ by so much."""
    times = np.stack(
        [random.normal(0, noise[0], (pairs, runs)), 1e7 * (1 + random.normal(0, noise[1], (pairs, runs)))],
        axis=-1,
    )
    return Runs(times, np.full_like(times, 1e-9), np.full((pairs, runs), 19.0), np.full((pairs, runs), steps))


def recorded(random, pairs, runs, noise):
    found = drawn(random, pairs, runs, noise)
    return Recorded(*found.spread_between(), 20.0)


def covered(found):
    return (np.abs(found.change) <= found.half()).mean(axis=0)


@pytest.mark.parametrize(("ours", "theirs"), [(3, 3), (1, 4), (2, 6), (10, 10)])
@pytest.mark.parametrize("wall_noise", [0.05, 0.2])
def test_intervals_of_runs_hold_for_a_wall_that_varies_more_than_the_step(ours, theirs, wall_noise):
    random, noise = np.random.default_rng(3), (0.01, wall_noise)
    found = measure_difference(
        drawn(random, 4_000, ours, noise), drawn(random, 4_000, theirs, noise), NOTHING, ASSUMED
    )

    assert not found.is_assumed.any()
    assert covered(found) == pytest.approx([0.955, 0.955], abs=0.02)


@pytest.mark.parametrize("degrees", [1, 2, 3, 5, 10])
def test_records_that_both_sides_share_count_once(degrees):
    random, noise = np.random.default_rng(4), (0.03, 0.2)
    found = measure_difference(
        drawn(random, 6_000, 1, noise),
        drawn(random, 6_000, 1, noise),
        recorded(random, 6_000, degrees + 1, noise),
        ASSUMED,
    )

    assert found.freedom == pytest.approx(degrees)
    assert covered(found) == pytest.approx([0.95, 0.95], abs=0.015)


@pytest.mark.parametrize("known", [False, True])
@pytest.mark.parametrize("step_noise", [0.005, 0.01, 0.02])
def test_two_runs_find_no_less_than_one(known, step_noise):
    """With records the shares rise. Without them, three runs replace the assumption and what it tells."""
    random, noise, pairs = np.random.default_rng(5), (step_noise, 0.05), 4_000
    share = {}
    for runs in (1, 2, 3, 5):
        record = recorded(random, pairs, 6, noise) if known else NOTHING
        base, head = drawn(random, pairs, runs, noise), drawn(random, pairs, runs, noise)
        found = measure_difference(base, head, record, ASSUMED)
        share[runs] = (found.change[:, 0] + np.log(1.05) > found.half()[:, 0]).mean()

    assert share[1] <= share[2]
    assert share[3] <= share[5]
    assert share[2] <= share[3] or not known
    assert step_noise > 0.01 or (share[3] > 0.7 and share[5] > 0.95)


@pytest.mark.parametrize("steps", [(10.0, 100.0), (20.0, 30.0)])
def test_runs_of_few_steps_are_not_as_sure_as_the_longer_ones_that_measure_them(steps):
    """Two short runs against five long ones; runs differ by their steps alone."""
    random, pairs = np.random.default_rng(8), 4_000

    def of(runs, count):
        error = 0.05 / sqrt(count)
        times = np.stack([random.normal(0, error, (pairs, runs)), np.full((pairs, runs), 1e7)], axis=-1)
        errors = np.stack([np.full((pairs, runs), error), np.full((pairs, runs), 1.0)], axis=-1)
        return Runs(times, errors, np.full((pairs, runs), count - 1), np.full((pairs, runs), count))

    found = measure_difference(of(2, steps[0]), of(5, steps[1]), NOTHING, ASSUMED)

    assert 0.945 < covered(found)[0] < 0.985


@pytest.mark.parametrize("runs", [1, 2])
def test_short_runs_that_each_rest_at_one_level_are_as_unsure_as_longer_ones_show(runs):
    """They are off by 0.02 up or down, and their own steps show nothing of it; records are of long runs."""
    random, pairs = np.random.default_rng(13), 4_000
    record = replace(recorded(random, pairs, 10, (0.002, 0.02)), steps=100.0)
    short, long = (drawn(random, pairs, runs, (0.002, 0.02), count) for count in (10.0, 100.0))
    short.mean[..., 0] += random.choice((-0.02, 0.02), (pairs, runs))
    known, blind = (
        measure_difference(short, long, record, replace(ASSUMED, short=off)) for off in (0.02, 0.0)
    )
    alike = [
        measure_difference(long, long, record, replace(ASSUMED, short=off)).half() for off in (0.02, 0.0)
    ]

    assert covered(blind)[0] < 0.5
    assert covered(known)[0] > 0.95
    assert (alike[0] == alike[1]).all(), "they are as long as those that measure them"


@pytest.mark.parametrize("is_paired", [False, True])
@pytest.mark.parametrize("runs", [3, 10])
def test_more_runs_do_not_reduce_a_bias(runs, is_paired):
    random, pairs, bias = np.random.default_rng(14), 4_000, 0.005
    base, head = (drawn(random, pairs, runs, (0.001, 0.001)) for _ in range(2))
    head.mean[..., 0] += bias
    head.mean[..., 1] *= 1 + bias
    assumed = [replace(ASSUMED, bias=of_pair) for of_pair in (np.full(pairs, bias), 0.0)]
    found, blind = (
        measure_pairs(base, head, one) if is_paired else measure_difference(base, head, NOTHING, one)
        for one in assumed
    )

    assert (covered(blind) < 0.6).all()
    assert (covered(found) > 0.95).all()
    assert found.error == pytest.approx(np.hypot(blind.error, bias * np.array([1, 1e7])), rel=0.01)
    assert (found.freedom == blind.freedom).all()
    assert (found.chance() >= blind.chance()).all(), "a bias makes nothing surer"


def test_an_assumption_is_wide_enough_for_a_bias():
    ours = side((0.0, 1e7)), side((0.0, 1e7))

    assert measure_difference(*ours, NOTHING, replace(ASSUMED, bias=0.005)).half().tolist() == (
        measure_difference(*ours, NOTHING, ASSUMED).half().tolist()
    )


def test_no_number_of_runs_decides_a_change_smaller_than_the_bias():
    runs = side((0.0, 1e7), (0.01, 1e7), (0.02, 1e7)), side((0.03, 1e7), (0.04, 1e7), (0.05, 1e7))
    needed = [
        count_runs_to_decide(
            measure_difference(*runs, NOTHING, replace(ASSUMED, bias=bias)), 0.0, 3, 0.03, 0.02
        )
        for bias in (0.0, 0.012, 0.02)
    ]

    assert needed[0] < needed[1]
    assert needed[2] is None


def test_one_run_a_side_is_assumed_to_differ():
    found = measure_difference(side((0.0, 1e7)), side((0.0, 1e7)), NOTHING, ASSUMED)

    assert found.is_assumed.all()
    assert found.noise.tolist() == ASSUMED.noise.tolist()
    assert found.half()[0] == pytest.approx(1.96 * sqrt(2) * sqrt(0.0144**2 + 0.001**2), rel=0.01)
    assert found.half()[1] == pytest.approx(1.96 * sqrt(2) * 0.2e7, rel=0.01)


def test_what_is_assumed_never_narrows_what_the_steps_leave_open():
    random = np.random.default_rng(6)
    for error, freedom in zip(random.uniform(0, 0.2, 50), random.uniform(1, 40, 50), strict=True):
        ours = stack_runs([Spread(np.zeros(2), np.full(2, error), freedom)], [9])
        found = measure_difference(ours, side((0.1, 1e7)), NOTHING, ASSUMED)

        assert (found.half() >= found.steps_half()).all()


def test_two_runs_that_contradict_what_is_assumed_are_believed():
    like = measure_difference(side((0.0, 1e7), (0.01, 1e7)), side((0.0, 1e7), (0.01, 1e7)), NOTHING, ASSUMED)
    unlike = measure_difference(side((0.0, 1e7), (0.1, 1e7)), side((0.0, 1e7), (0.1, 1e7)), NOTHING, ASSUMED)

    assert like.is_assumed.tolist() == [True, True]
    assert unlike.is_assumed.tolist() == [False, True]
    assert unlike.half()[0] == pytest.approx(4.303 * sqrt(0.005), rel=0.01)


def test_one_run_of_fewer_than_five_steps_has_no_interval():
    few = spread_of_steps(np.array([10, 11, 12, 10]), np.array([[1], [2], [1], [2]]))
    record = Recorded(np.full(2, 0.01), np.full(2, 9.0), 20.0)
    for known in (NOTHING, record):
        found = measure_difference(stack_runs([few], [4]), side((0.0, 1e7)), known, ASSUMED)

        assert np.isinf(found.half()).all()


def test_fewer_steps_than_recorded_widen_an_interval():
    record = Recorded(np.full(2, 0.01), np.full(2, 9.0), 20.0)
    as_many, fewer = (side((0.0, 1e7), error=0.18, steps=steps) for steps in (20, 5))

    ours = measure_difference(as_many, as_many, record, ASSUMED).half()
    assert (measure_difference(fewer, fewer, record, ASSUMED).half() > 1.5 * ours).all()
    places = (0.0, 1e7), (0.001, 1e7)
    as_many, fewer = (side(*places, error=0.18, steps=steps) for steps in (20, 5))
    ours = measure_difference(as_many, as_many, record, ASSUMED).half()
    assert (measure_difference(fewer, fewer, record, ASSUMED).half() > 1.3 * ours).all()


def test_the_same_records_of_both_sides_are_one_source():
    known = RecordedNoise({"step": Noise(0.03, 6), "host": Noise(0.1, 4)}, 20)
    other = RecordedNoise({"step": Noise(0.01, 2)}, 10)
    once = pool_records((known, known), ["step", "host", "memory"])
    both = pool_records((known, other), ["step", "host", "memory"])

    assert (once.freedom.tolist(), once.steps) == ([6, 4, 0], 20)
    assert both.freedom.tolist() == [8, 4, 0]
    assert both.variance == pytest.approx([(6 * 0.03**2 + 2 * 0.01**2) / 8, 0.01, 0])


def test_nothing_changes_when_sides_are_swapped():
    ours, theirs = side((0.0, 1e7), (0.02, 2e7), (0.03, 1e7)), side((0.1, 3e7))
    there = measure_difference(ours, theirs, NOTHING, ASSUMED)
    back = measure_difference(theirs, ours, NOTHING, ASSUMED)

    assert there.half().tolist() == back.half().tolist()
    assert there.chance().tolist() == back.chance().tolist()


def significant(chances):
    """The procedure as it is written: the largest rank whose chance is within its share of 5 %."""
    ranked = sorted(chances)
    kept = [chance for rank, chance in enumerate(ranked, 1) if chance <= 0.05 * rank / len(chances)]
    return [chance <= max(kept, default=-1) for chance in chances]


def test_significance_among_several_is_that_of_the_procedure():
    random = np.random.default_rng(7)
    for _ in range(200):
        chances = (random.random(random.integers(1, 12)) ** 4).tolist()

        assert find_significant(np.array(chances)).tolist() == significant(chances)


def test_assumptions_are_of_the_wall():
    found = assume_noise(["step", "compute", "communication", "host", "compute/gemm", "host/framework"])

    assert found == pytest.approx([0.0144, 0.0144, 0.2, 0.2, 0.0144, 0.2], abs=1e-4)


def pairs_of_runs(random, pairs, runs, drift, noise=0.005):
    """Sides whose runs were captured in turn on a machine that drifts between the pairs."""
    drifted = random.normal(0, drift, (pairs, runs))
    made = []
    for _ in range(2):
        times = np.stack([drifted, 1e7 * np.exp(drifted)], axis=-1)
        times[..., 0] += random.normal(0, noise, (pairs, runs))
        times[..., 1] *= np.exp(random.normal(0, noise, (pairs, runs)))
        made.append(
            Runs(times, np.full_like(times, 1e-9), np.full((pairs, runs), 19.0), np.full((pairs, runs), 20.0))
        )
    return made


@pytest.mark.parametrize("runs", [3, 5, 10])
def test_pairs_cancel_what_drifts_between_them(runs):
    base, head = pairs_of_runs(np.random.default_rng(11), 3_000, runs, 0.05)
    paired = measure_pairs(base, head, ASSUMED)
    single = measure_difference(base, head, NOTHING, ASSUMED)

    assert covered(paired) == pytest.approx([0.95, 0.95], abs=0.015)
    assert np.median(paired.half()[:, 0]) < 0.5 * np.median(single.half()[:, 0])


def test_two_pairs_count_as_single_runs():
    base, head = pairs_of_runs(np.random.default_rng(12), 1, 2, 0.01)

    assert measure_pairs(base, head, ASSUMED).half().tolist() == (
        measure_difference(base, head, NOTHING, ASSUMED).half().tolist()
    )


@pytest.mark.parametrize(("change", "deviation"), [(0.03, 0.03), (0.0, 0.02), (0.05, 0.02)])
def test_as_many_runs_as_are_said_decide(change, deviation):
    """With as many runs a side about half of the comparisons are decided, with twice as many most."""
    random = np.random.default_rng(13)
    record = Recorded(np.full(2, deviation**2), np.full(2, 9.0), 20.0)
    found = measure_difference(side((0.0, 1e7)), side((change, 1e7)), record, ASSUMED)
    needed = count_runs_to_decide(found, 9.0, 1, change, np.log(1.02))
    margin, decided = np.log(1.02), []
    for runs in (needed, 2 * needed):
        base, head = (drawn(random, 1_000, runs, (deviation, deviation)) for _ in range(2))
        measured = measure_difference(base, head, record, ASSUMED)
        half, seen = measured.half()[:, 0], np.abs(measured.change[:, 0] + change)
        decided.append(((seen > np.maximum(half, margin)) | (seen + half < margin)).mean())

    assert 0.3 < decided[0] < decided[1]
    assert decided[1] > 0.6


def test_a_change_as_large_as_the_margin_is_never_decided():
    found = measure_difference(side((0.0, 1e7)), side((0.0198, 1e7)), NOTHING, ASSUMED)

    assert count_runs_to_decide(found, 0.0, 1, 0.0198, 0.0198) is None


def test_a_run_that_varies_far_more_than_recorded_ones_is_as_unsure_as_its_steps():
    record = Recorded(np.full(2, 0.0001), np.full(2, 9.0), 20.0)
    like, unlike = (side((0.0, 1e7), error=error, steps=20) for error in (0.015, 0.05))

    assert measure_difference(like, like, record, ASSUMED).error[0] == pytest.approx(sqrt(0.0002))
    assert measure_difference(unlike, unlike, record, ASSUMED).error[0] == pytest.approx(sqrt(0.0052))


@pytest.mark.parametrize("spread", [0.003, 0.01, 0.03, 0.1])
@pytest.mark.parametrize("runs", [2, 3, 4, 8])
@pytest.mark.parametrize("of_steps", [1e-6, 0.003])
def test_few_recorded_runs_keep_the_interval_at_any_spread(spread, runs, of_steps):
    random, between = np.random.default_rng(6), np.hypot(spread, of_steps)
    base, head, records = (drawn(random, 4_000, count, (between, between)) for count in (1, 1, runs))
    base, head = (replace(one, error=of_steps * np.abs(one.mean) ** [0, 1]) for one in (base, head))
    found = measure_difference(base, head, Recorded(*records.spread_between(), 20.0), ASSUMED)

    assert not found.is_assumed.any()
    assert (covered(found) >= 0.94).all()
    if spread > 3 * of_steps:
        assert (covered(found) <= 0.98).all()


def test_few_recorded_runs_are_as_few_degrees_of_freedom():
    runs = side((0.0, 1e7))
    halves = [
        measure_difference(runs, runs, Recorded(np.full(2, 1e-4), np.full(2, degrees), 20.0), ASSUMED).half()
        for degrees in (1.0, 2.0, 7.0)
    ]

    assert [half[0] for half in halves] == pytest.approx(
        [factor * 0.01 * sqrt(2) for factor in (12.706, 4.303, 2.365)], rel=1e-3
    )


def test_shorter_runs_are_taken_to_be_further_off():
    found = [assume_noise(["step", "host"], steps=steps).tolist() for steps in (100, 20, 5)]

    assert found[0] == found[1] == [pytest.approx(0.025 / sqrt(3)), 0.2]
    assert found[2] == [pytest.approx(0.025 * sqrt(10 / 5 / 3)), 0.2]
