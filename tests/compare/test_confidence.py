import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from wallscope.compare.confidence import (
    measure_wandering,
    measure_windows,
    spread_of_steps,
    student_chance,
    student_quantile,
    typical_means,
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


@pytest.mark.parametrize(
    ("ratio", "freedom", "chance"),
    [
        (12.706, 1, 0.05),
        (4.303, 2, 0.05),
        (3.169, 10, 0.01),
        (0.0, 3, 1.0),
        (4.587, 10, 0.001),
        (2.576, 1e9, 0.01),
    ],
)
def test_chances_of_student_are_those_of_the_tables(ratio, freedom, chance):
    assert student_chance(np.array(ratio), freedom) == pytest.approx(chance, rel=2e-3)


@given(st.floats(0.0005, 0.49), st.floats(2, 60))
def test_chances_and_quantiles_agree(share, freedom):
    ratio = student_quantile(1 - share, freedom)

    assert student_chance(np.maximum(ratio, 0), freedom) == pytest.approx(2 * share, abs=2e-3)


def test_the_typical_step_is_estimated_alike_at_every_number_of_steps():
    usual, slow = [100.0] * 30, 200.0
    for count in range(3, 30):
        lengths = np.array([*usual[: count - 1], slow])[None, :, None]

        assert typical_means(lengths)[0, 0] == 100.0


def test_slow_steps_that_the_typical_step_leaves_out_do_not_widen_it():
    usual = (1000 + np.random.default_rng(3).integers(-9, 9, 20)).tolist()
    slow = [2 * value if number % 5 == 0 else value for number, value in enumerate(usual)]

    assert spread(*slow).error[0] < 3 * spread(*usual).error[0]


def test_steps_that_follow_each_other_are_worth_fewer():
    random = np.random.default_rng(5).integers(900, 1100, 24)

    assert spread(*np.sort(random).tolist()).freedom < spread(*random.tolist()).freedom
    assert spread(*np.sort(random).tolist()).error[0] > spread(*random.tolist()).error[0]


@given(st.lists(st.integers(1, 1_000), min_size=8, max_size=30))
def test_ordinary_steps_are_those_within_the_quartiles(length_ns):
    kept = np.array(length_ns)[is_ordinary(np.array(length_ns))]
    low, high = np.percentile(length_ns, [25, 75])

    assert sorted(kept.tolist()) == [value for value in sorted(length_ns) if low <= value <= high]


def test_the_correlation_that_short_series_hide_is_put_back():
    random = np.random.default_rng(11)
    found = []
    for _ in range(200):
        drawn = random.standard_normal(12)
        for step in range(1, drawn.size):
            drawn[step] = 0.8 * drawn[step - 1] + 0.6 * drawn[step]
        found.append(spread(*np.round(1e6 * np.exp(0.05 * drawn)).astype(int).tolist()).freedom)

    assert np.median(found) < 3


def test_a_run_that_wanders_is_as_unsure_as_its_walk_is_far():
    random = np.random.default_rng(5)
    walks = 1e8 * np.exp(0.003 * np.cumsum(random.standard_normal((200, 100)), axis=1))
    errors = [float(spread(*walk.astype(np.int64)).error[0]) for walk in walks]
    seen = np.log(typical_means(walks[:, :, None])[:, 0]).std()

    assert np.median(errors) == pytest.approx(seen, rel=0.35)


def test_independent_steps_hardly_ever_wander():
    random = np.random.default_rng(6)
    steady = 1e8 * np.exp(0.03 * random.standard_normal((1_000, 40)))
    assert np.mean([measure_wandering(run[:, None]) is not None for run in steady]) < 0.025
    assert measure_wandering(steady[0][:19, None]) is None


def test_a_wall_wanders_as_far_as_it_follows_the_step():
    random = np.random.default_rng(7)
    walk = 1e8 * np.exp(0.01 * np.cumsum(random.standard_normal(100)))
    found = measure_wandering(np.column_stack([walk, 0.4 * walk, np.full(100, 1e7)]))

    assert found is not None
    assert found[1] == pytest.approx(0.4 * found[0] * walk.mean(), rel=1e-6)
    assert found[2] == pytest.approx(0, abs=1)


def test_windows_of_a_long_run_vary_as_short_runs_do():
    assert measure_windows(np.array([10.0, 10, 10, 11, 12, 12, 12]), 3) == pytest.approx(
        np.log([10.0, 10.0, 11.0, 12.0, 12.0]).std(ddof=1)
    )
    assert measure_windows(np.array([10.0, 11, 12, 12]), 1) == pytest.approx(
        np.log([10.0, 11.0, 12.0, 12.0]).std(ddof=1)
    )
    assert measure_windows(np.full(9, 7.0), 3) == 0
    assert measure_windows(np.array([10.0, 11, 12]), 3) == 0, "one window shows nothing"
    assert measure_windows(np.array([10.0, 11, 12]), 4) == 0


def test_windows_show_what_runs_that_rest_at_one_level_are_off_by():
    """Levels last 25 steps: runs of 10 mostly rest, and the blocks of their own steps show nothing of it."""
    random = np.random.default_rng(12)

    def level(count):
        changes = random.random(count) < 1 / 25
        return (random.integers(0, 2) + np.cumsum(changes)) % 2

    short = [np.log(typical_means((1e8 * 1.05 ** level(10))[None, :, None])[0, 0]) for _ in range(2_000)]
    shown = [measure_windows(1e8 * 1.05 ** level(400), 10) for _ in range(100)]

    assert np.mean(shown) == pytest.approx(np.std(short), rel=0.1)
