import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from wallscope.compare.confidence import (
    Noise,
    Spread,
    combine_sides,
    half_width,
    noise_between_runs,
    spread_of_runs,
    spread_of_steps,
    student_quantile,
)
from wallscope.trace.steps import is_ordinary


def spread(*length_ns):
    return spread_of_steps(np.array(length_ns), np.empty((len(length_ns), 0), np.int64))


@pytest.mark.parametrize(
    ("freedom", "quantile"),
    [(1, 12.7062), (2, 4.3027), (2.2, 3.9487), (3, 3.1824), (4.4, 2.6797), (7, 2.3646), (20, 2.0860)],
)
def test_quantiles_of_student_are_those_of_the_tables(freedom, quantile):
    assert student_quantile(0.975, freedom) == pytest.approx(quantile, rel=2e-4)


@given(st.floats(1, 2))
def test_below_two_degrees_quantiles_err_on_the_wide_side(freedom):
    assert student_quantile(0.975, freedom) >= student_quantile(0.975, 2) * 0.999


def test_fewer_than_five_steps_tell_nothing():
    few, enough = spread(10, 11, 12, 10), spread(10, 11, 12, 10, 11)

    assert half_width(few.of(0), enough.of(0)) is None
    assert half_width(enough.of(0), enough.of(0)) is not None


def test_the_same_steps_give_the_same_interval_on_either_side():
    one, other = spread(*range(100, 130)), spread(*range(200, 221))

    assert half_width(one.of(0), other.of(0)) == half_width(other.of(0), one.of(0))


def test_slow_steps_that_the_typical_step_leaves_out_do_not_widen_it():
    usual = (1000 + np.random.default_rng(3).integers(-9, 9, 20)).tolist()
    slow = [2 * value if number % 5 == 0 else value for number, value in enumerate(usual)]

    assert spread(*slow).error[0] < 3 * spread(*usual).error[0]


def test_steps_that_follow_each_other_are_worth_fewer():
    random = np.random.default_rng(5).integers(900, 1100, 24)

    assert spread(*np.sort(random).tolist()).freedom < spread(*random.tolist()).freedom
    assert spread(*np.sort(random).tolist()).error[0] > spread(*random.tolist()).error[0]


def side(mean, error, freedom=9.0):
    return Spread(np.array([mean]), np.array([error]), freedom)


def test_runs_that_agree_by_chance_differ_as_much_as_their_steps_let_them():
    found = spread_of_runs([side(1.0, 0.1), side(1.0, 0.1), side(1.0, 0.1), side(1.0, 0.1)], None)

    assert found.of(0) == (1.0, pytest.approx(0.05), 3.0)
    assert noise_between_runs([side(1.0, 0.1)]) is None


def test_noise_between_runs_widens_one_run():
    found = spread_of_runs([side(1.0, 0.03)], Noise(0.04, 4.0))

    assert found.error[0] == pytest.approx(0.05)
    assert 4 <= found.freedom <= 13


@given(st.lists(st.integers(1, 1_000), min_size=8, max_size=30))
def test_ordinary_steps_are_those_within_the_quartiles(length_ns):
    kept = np.array(length_ns)[is_ordinary(np.array(length_ns))]
    low, high = np.percentile(length_ns, [25, 75])

    assert sorted(kept.tolist()) == [value for value in sorted(length_ns) if low <= value <= high]


@given(st.floats(0, 0.2), st.floats(1, 40), st.floats(1, 40))
def test_noise_between_runs_never_narrows_an_interval(error, freedom, other):
    both = combine_sides([side(1.0, error, freedom)], [side(1.1, 0.02, other)])

    assert both.half() >= both.alone


def test_the_correlation_that_short_series_hide_is_put_back():
    random = np.random.default_rng(11)
    found = []
    for _ in range(200):
        drawn = random.standard_normal(12)
        for step in range(1, drawn.size):
            drawn[step] = 0.8 * drawn[step - 1] + 0.6 * drawn[step]
        found.append(spread(*np.round(1e6 * np.exp(0.05 * drawn)).astype(int).tolist()).freedom)

    assert np.median(found) < 3
