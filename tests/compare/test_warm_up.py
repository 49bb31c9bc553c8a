"""Warm-up within a run is recognized by its decay, left out, and said of the side that has it."""

import numpy as np
import pytest

from benchmarks.noise_laws import LAWS, OTHER_LAWS, STEP_NS
from tests.compare.test_compare import diff, steps
from tests.conftest import run_part
from tests.profile.random_profiles import profile_of
from wallscope.compare.all_steps import describe_warm_up, find_warm_up, fit_warm_up, measure_bias
from wallscope.compare.compare import CompareOptions, Side, compare_sides, comparison_report
from wallscope.compare.typical_steps import deciding_steps

WARM = "warm-up of 10 % within the run"


def draw(count, seed, decay=0.0, jitter=0.005, rate=3):
    random = np.random.default_rng(seed)
    place = np.arange(count) / count
    lengths = 1e8 * np.exp(decay * np.exp(-rate * place) + jitter * random.standard_normal(count))
    return np.round(lengths).astype(np.int64)


@pytest.mark.parametrize("count", [6, 10, 20, 100])
def test_a_decay_is_found_with_its_size(count):
    found = [find_warm_up(draw(count, seed, 0.1)) for seed in range(50)]
    shares = [one.share for one in found if one is not None]

    assert len(shares) >= 40
    assert np.median(shares) == pytest.approx(0.1, rel=0.3)


@pytest.mark.parametrize(
    "law", run_part([law for law in (*LAWS, *OTHER_LAWS) if law.name != WARM], name=lambda law: law.name)
)
def test_other_steps_do_not_warm_up(law):
    """One of a hundred runs at most. Three times as many would be found by chance in one of 2,000 tests."""
    for count in (10, 20):
        drawn = STEP_NS * law.factor(np.random.default_rng(count), 400, count)
        assert sum(find_warm_up(np.round(run).astype(np.int64)) is not None for run in drawn) <= 12


def test_neither_few_nor_slowing_steps_nor_a_shift_warm_up():
    shift = draw(20, 1)
    shift[:7] += 8_000_000

    assert find_warm_up(draw(20, 1, -0.1)) is None
    assert find_warm_up(draw(5, 1, 0.1)) is None
    assert find_warm_up(np.full(20, 10**8)) is None
    assert find_warm_up(shift) is None


def test_steps_are_left_out_until_the_decay_is_over_and_at_most_half():
    slow, fast = find_warm_up(draw(40, 1, 0.1)), find_warm_up(draw(40, 1, 0.1, rate=12))

    assert (slow.left_out, slow.steps) == (20, 40)
    assert slow.rest_share == pytest.approx(0.1 * np.exp(-1.5), rel=0.2)
    assert fast.left_out == pytest.approx(np.log(20) * 40 / 12, abs=2)
    assert fast.rest_share < 0.005
    assert find_warm_up(draw(8, 2, 0.1)).left_out == 0, "five steps must remain"


def test_a_slow_step_within_the_warm_up_changes_little():
    lengths = draw(40, 1, 0.1, rate=12)
    lengths[20] *= 2

    assert find_warm_up(lengths).left_out == pytest.approx(10, abs=2)


@pytest.mark.parametrize("slow", [3, 400])
def test_slow_first_steps_leave_the_excess_of_the_others_as_it_is(slow):
    """A fast decay, drawn out to many slow steps before it, would have no finite height."""
    lengths = np.concatenate([np.full(slow, 5 * 10**8), draw(4 * slow, 3, 0.05, rate=8 * slow)])
    found = fit_warm_up(lengths)

    assert 0 < found.share < 0.2
    assert 0 <= found.excess < 0.02


def test_the_side_that_warms_up_is_named():
    (note,) = describe_warm_up([draw(20, 1)], [draw(20, 2, 0.1)])

    assert (note.what, note.base, note.severity) == ("warm-up", "none", "note")
    assert note.head.startswith("first 10 of 20 steps left out, which take up to ")
    assert note.effect == "capture later steps, which vary less"
    assert not [*describe_warm_up([draw(20, 1)], [draw(20, 2)])]
    (note,) = describe_warm_up([draw(40, 1, 0.1, rate=12)], [draw(40, 2)])
    assert note.effect == "the rest of the run is compared"


def test_an_unsure_warm_up_has_its_size_and_leaves_nothing_out():
    fits = [fit_warm_up(draw(10, seed, 0.1, 0.01)) for seed in range(200)]
    unsure = [one for one in fits if not one.is_sure]

    assert len(unsure) > 20
    assert {one.left_out for one in unsure} == {0}
    assert np.median([one.excess for one in unsure]) == pytest.approx(0.1 * np.exp(-3 * 0.45), rel=0.35)
    assert fit_warm_up(draw(10, 1, -0.1)).excess == fit_warm_up(draw(5, 1, 0.1)).excess == 0


def fits(count, runs, decay=0.1):
    return [fit_warm_up(draw(count, 100 * count + seed, decay)) for seed in range(runs)]


def test_the_warm_up_that_is_left_of_one_side_is_a_bias():
    short, long, steady = fits(10, 10), fits(100, 10), fits(20, 10, 0.0)
    mean = [np.mean([one.excess for one in runs]) for runs in (short, long, steady)]

    assert (
        measure_bias(short, long) == measure_bias(long, short) == pytest.approx(0.9 * abs(mean[0] - mean[1]))
    )
    assert 0.003 < measure_bias(short, long) < 0.015
    assert measure_bias(long, steady) == measure_bias(steady, long) == pytest.approx(mean[1] - mean[2])
    assert mean[1] - mean[2] == pytest.approx(0.1 * np.exp(-3 * 0.75), abs=0.003)
    assert measure_bias(long[:1], steady[:1]) > 0.005


def test_sides_that_warm_up_over_as_many_steps_and_steady_ones_have_no_bias():
    runs, steady = fits(20, 10), fits(20, 10, 0.0)

    assert any(one.is_sure for one in runs[:5])
    assert any(one.is_sure for one in runs[5:])
    assert measure_bias(runs[:5], runs[5:]) == 0
    assert measure_bias(steady[:3], steady[3:]) == 0


def side(name, seed, factor=1.0, decay=0.1, count=40):
    warm = np.exp(decay * np.exp(-4 * np.arange(count) / count))
    drawn = np.array(steps(count, factor, seed, 0.003)) * warm[:, None]
    return profile_of(name, np.round(drawn).astype(int).tolist())


def test_a_slower_step_is_found_behind_the_warm_up_of_both_sides():
    found = diff(side("base", 1), side("head", 2, factor=1.05))
    (note,) = [entry for entry in found.mismatches if entry.what == "warm-up"]

    assert "left out" in note.base
    assert "left out" in note.head
    assert found.verdict == "regression"
    assert found.step.ratio == pytest.approx(1.05, abs=0.006)
    assert (found.step.base_steps, found.step.head_steps) == (20, 20)


def test_a_warm_up_of_one_side_is_no_regression():
    found = diff(side("base", 1, decay=0.0), side("head", 2))

    assert (found.step.base_steps, found.step.head_steps) == (40, 20)
    assert found.verdict != "regression"
    assert abs(found.step.ratio - 1) < 0.02
    assert found.step.base_mean_ns == pytest.approx(found.step.head_mean_ns, rel=0.02)


def test_steps_left_out_are_named_in_the_table_of_steps():
    base, head = (Side(name, ((side(name, seed),),)) for seed, name in enumerate(("base", "head"), 1))
    found = compare_sides(base, head, CompareOptions())
    table = comparison_report(found, base, head, None).base.steps

    assert len(deciding_steps(base.runs[0][0])) == table["counts"].sum() == 20
    assert set(table.filter(~table["counts"])["reason"]) == {"warm-up: longer than the later ones"}
