"""What the typical step leaves out: the mean, p90 and slow steps of all steps that count."""

import re
from itertools import product
from math import log, sqrt

import numpy as np
import pytest

from tests.compare.test_compare import diff, steps
from tests.conftest import slow
from tests.profile.random_profiles import profile_of
from wallscope.compare.all_steps import (
    AllSteps,
    compare_all_steps,
    measure_all_steps,
    measure_chance,
    measure_slow_chance,
)
from wallscope.compare.compare import CompareOptions, Side, compare_sides
from wallscope.compare.confidence import Spread
from wallscope.compare.gates import parse_gate
from wallscope.errors import OptionError
from wallscope.model.profile import Noise
from wallscope.views.comparison_words import describe_doubt, write_reason_of_change

PAIRS, COUNT = 120, 20
KNOWN = Noise(0.01, 10.0)
ASKED = CompareOptions(gates=tuple(map(parse_gate, ("step>3%", "mean>3%", "p90>5%", "slow-steps>2"))))


def doubled(every, count=COUNT, seed=3):
    """Steps of which one in so many takes twice as long."""
    return [
        [2 * time_ns for time_ns in step] if number % every == every - 1 else step
        for number, step in enumerate(steps(count, seed=seed))
    ]


def test_every_fifth_step_doubled_is_slower_though_the_typical_one_is_not():
    found = diff(profile_of("base", steps(COUNT)), profile_of("head", doubled(5)), ASKED)

    assert abs(found.step.ratio - 1) < 0.02
    assert found.step.head_mean_ns / found.step.base_mean_ns == pytest.approx(1.2, abs=0.02)
    assert found.verdict == "regression"
    held = {gate.gate: gate.held for gate in found.gates}
    assert held == {"step>3%": False, "mean>3%": False, "p90>5%": False, "slow-steps>2": True}
    of_step, of_mean = found.gates[:2]
    assert of_step.value == pytest.approx(of_mean.value)
    assert of_step.evidence.startswith("mean step ")
    reason = write_reason_of_change(found)
    assert re.match(r"the mean step rose from [\d.]+ to [\d.]+ ms \(\+(1[89]|2[01])\.\d %\)", reason)
    slow = f"0 of {found.step.base_steps} in base, {found.step.head_slow_steps} of"
    assert any(slow in one.message for one in found.explanations)
    assert_adds_up(found)


def assert_adds_up(found):
    """Walls and causes of the compared step sum to its lengths and to its change."""
    step, deltas = found.step, found.deltas
    assert sum(row.base_ns for row in deltas.walls) == step.base_ns
    assert sum(row.head_ns for row in deltas.walls) == step.head_ns
    for rows in (deltas.walls, deltas.causes, deltas.operations):
        assert sum(row.delta_ns for row in rows) == step.change_ns


def test_slow_steps_of_three_runs_are_no_chance():
    base, head = (
        Side(name, tuple((profile_of(f"{name} {seed}", made(seed)),) for seed in range(3)))
        for name, made in (
            ("base", lambda seed: steps(COUNT, seed=seed)),
            ("head", lambda seed: doubled(5, seed=10 + seed)),
        )
    )
    found = compare_sides(base, head, ASKED)

    assert found.step.slow_steps_chance < 0.01
    assert {gate.gate for gate in found.gates if not gate.held} == {gate.text for gate in ASKED.gates}


@pytest.mark.parametrize(("runs", "count"), [(1, 40), (2, 20), (3, 20)])
def test_every_fifth_step_doubled_fails_the_gate_on_the_mean_and_is_the_headline(runs, count):
    base, head = (
        Side(name, tuple((profile_of(f"{name} {seed}", made(seed)),) for seed in range(runs)))
        for name, made in (
            ("base", lambda seed: steps(count, seed=seed)),
            ("head", lambda seed: doubled(5, count, seed=10 + seed)),
        )
    )
    found = compare_sides(base, head, ASKED)

    assert found.verdict == "regression"
    assert "mean>3%" in {gate.gate for gate in found.gates if not gate.held}
    assert found.step.compared == "mean"
    assert_adds_up(found)
    mirrored = compare_sides(head, base, ASKED)
    assert (mirrored.verdict, mirrored.step.compared) == ("improvement", "mean")
    assert mirrored.step.change_ns == -found.step.change_ns
    assert {row.wall: -row.delta_ns for row in mirrored.deltas.walls} == {
        row.wall: row.delta_ns for row in found.deltas.walls
    }


def test_one_slow_step_more_may_be_chance():
    found = diff(profile_of("base", steps(COUNT)), profile_of("head", doubled(COUNT - 4)), ASKED)

    assert found.step.head_slow_steps == 1
    assert found.verdict != "regression"
    assert all(gate.held for gate in found.gates)


def test_typical_and_mean_that_change_in_opposite_directions_have_no_verdict():
    head = [
        [time_ns * 5 for time_ns in step] if number % 8 == 3 else step
        for number, step in enumerate(steps(80, factor=0.9, seed=5))
    ]
    found = diff(profile_of("base", steps(80)), profile_of("head", head), CompareOptions())

    assert found.step.ratio_high < 1 < found.step.mean_ratio_low
    assert found.verdict == "inconclusive"
    assert found.step.compared == "mean"
    assert describe_doubt(found) == "Slow steps decide the mean, while the typical step went the other way."


def test_the_same_capture_has_the_same_steps():
    profile = profile_of("base", steps(COUNT))
    found = diff(profile, profile, CompareOptions())

    assert (found.step.mean_ratio_low, found.step.mean_ratio_high) == (1.0, 1.0)
    assert found.step.slow_steps_chance == 1.0


def all_ways(slow, counts):
    """Fisher's test the dull way: every way to hand out slow steps to head's places."""
    places = [0] * counts[0] + [1] * counts[1]
    ways = [sum(place for place, marked in zip(places, marks, strict=True) if marked)
            for marks in product((0, 1), repeat=len(places)) if sum(marks) == sum(slow)]  # fmt: skip
    often = [ways.count(one) for one in range(max(ways) + 1)]
    return sum(count for count in often if count <= often[slow[1]]) / len(ways)


@pytest.mark.parametrize(
    ("slow", "counts"),
    [((0, 2), (5, 5)), ((1, 3), (6, 4)), ((2, 0), (3, 7)), ((0, 0), (4, 4)), ((2, 2), (5, 6))],
)
def test_the_chance_of_slow_steps_is_that_of_all_ways(slow, counts):
    assert measure_chance(slow, counts) == pytest.approx(all_ways(slow, counts))


def lengths(random, law, count=COUNT):
    spikes = {"free": 0.0, "rare": 0.05, "often": 0.2}[law]
    usual_ns = 1e7 * np.exp(random.normal(0, 0.05, count))
    return (
        usual_ns * np.where(random.random(count) < spikes, 2, 1) * np.exp(random.normal(0, KNOWN.deviation))
    )


def is_sure(change):
    """Whether the interval excludes no change."""
    return change.half is not None and abs(change.change) > change.half


@pytest.mark.parametrize("law", ["free", "rare", "often"])
@pytest.mark.parametrize("runs", [1, *slow(3)])
def test_intervals_of_the_mean_hold_where_nothing_changed(law, runs):
    random = np.random.default_rng(7)
    found = []
    for _ in range(PAIRS):
        sides = [[measure_all_steps(lengths(random, law)) for _ in range(runs)] for _ in range(2)]
        found.append(compare_all_steps(*sides, KNOWN).mean)

    # measured over 100 pairs of nine laws each: 92 to 100 %
    assert np.mean([not is_sure(one) for one in found]) >= 0.92
    assert np.mean([is_sure(one) and one.change > log(1.02) for one in found]) <= 0.05


@pytest.mark.parametrize(("runs", "at_least"), [(1, 0.6), (3, 0.95)])
def test_more_runs_find_more(runs, at_least):
    random = np.random.default_rng(9)
    found = []
    for _ in range(PAIRS):
        base, head = ([lengths(random, "free") for _ in range(runs)] for _ in range(2))
        for one in head:
            one[random.integers(5) :: 5] *= 2
        sides = [[measure_all_steps(one) for one in side] for side in (base, head)]
        found.append(compare_all_steps(*sides, KNOWN).mean)

    assert np.mean([is_sure(one) and one.change > 0 for one in found]) >= at_least


@pytest.mark.parametrize("text", ["slow-steps>2%", "slow-steps>2ms", "p95>3%", "mean"])
def test_what_is_no_gate_on_all_steps_is_refused(text):
    with pytest.raises(OptionError, match="is not a gate"):
        parse_gate(text)


def test_slow_steps_that_follow_each_other_count_once():
    steady, every_fifth, burst = (np.zeros(20, bool) for _ in range(3))
    every_fifth[::5] = True
    burst[3:10] = True

    assert measure_slow_chance([steady, every_fifth]) == pytest.approx(measure_chance([0, 4], [20, 20]))
    assert measure_slow_chance([steady, burst]) == pytest.approx(measure_chance([0, 1], [20, 14]))


def draw_bursts(random):
    """A hundred steps; bursts of three of them take half as much again."""
    begins = random.random(102) < 1 / 30
    inside = begins[2:] | begins[1:-1] | begins[:-2]
    return 1e8 * np.exp(0.4 * inside + 0.01 * random.standard_normal(100))


def test_the_error_of_the_mean_counts_a_burst_of_slow_steps_as_one():
    random = np.random.default_rng(30)
    runs = [draw_bursts(random) for _ in range(60)]
    seen = np.std([np.log(run.mean()) for run in runs], ddof=1)
    errors = [measure_all_steps(run).mean.of(0)[1] for run in runs]

    assert np.sqrt(np.mean(np.square(errors))) >= 0.85 * seen


def test_runs_that_differ_by_more_than_their_steps_widen_the_interval():
    def run(mean):
        return AllSteps(*(Spread(np.array([mean]), np.array([0.001]), 20.0) for _ in range(2)), 20)

    alike = [run(18.42), run(18.421), run(18.419)]
    apart = [run(18.42), run(18.52), run(18.32)]
    nothing = Noise(0.0, 1.0)

    assert compare_all_steps(alike, alike, nothing).mean.half < 0.003
    assert compare_all_steps(alike, apart, nothing).mean.half == pytest.approx(
        2.776 * np.sqrt(0.020002 / 4 * (2 / 3)), rel=0.01
    )
    assert compare_all_steps(alike[:2], apart[:2], nothing).mean.half < 0.003


def test_a_short_run_without_slow_steps_is_as_uncertain_as_a_longer_one_shows():
    def run(error, steps):
        return AllSteps(*(Spread(np.array([18.42]), np.array([error]), 20.0) for _ in range(2)), steps)

    nothing = Noise(0.0, 1.0)
    short, long = [run(0.0, 10)], [run(0.02, 100)]
    alone = compare_all_steps(long, long, nothing).mean.half

    assert compare_all_steps(short, long, nothing).mean.half > 2 * alone
    assert compare_all_steps(short, long, nothing) == compare_all_steps(long, short, nothing)
    assert compare_all_steps([run(0.0, 100)], long, nothing).mean.half < alone


def test_a_short_run_may_rest_at_one_level_and_a_bias_widens_both():
    def run(steps):
        return AllSteps(*(Spread(np.array([18.42]), np.array([0.001]), 1e4) for _ in range(2)), steps)

    nothing = Noise(0.0, 1.0)
    both = compare_all_steps([run(10)], [run(100)], nothing, short=0.025)
    alike = compare_all_steps([run(100)], [run(100)], nothing, short=0.025)
    biased = compare_all_steps([run(100)], [run(100)], nothing, bias=0.005)

    for found in (both.mean, both.p90):
        assert found.half == pytest.approx(1.96 * sqrt(0.9 * 0.025**2 + 0.001**2), rel=0.01)
    assert alike.p90.half == pytest.approx(1.96 * sqrt(2) * 0.001, rel=0.01)
    assert biased.mean.half == pytest.approx(1.96 * sqrt(2 * 0.001**2 + 0.005**2), rel=0.01)


def test_a_side_of_one_run_without_bursts_is_as_uncertain_as_the_other_one_shows():
    """One run against three; bursts of three slow steps begin at one of 30."""
    random, pairs = np.random.default_rng(5), 150

    def runs(count):
        begins = random.random((count, COUNT + 2)) < 1 / 30
        inside = begins[:, 2:] | begins[:, 1:-1] | begins[:, :-2]
        lengths = 1e8 * np.exp(0.4 * inside + 0.008 * random.standard_normal(inside.shape))
        return [measure_all_steps(run) for run in lengths]

    found = [compare_all_steps(runs(1), runs(3), Noise(0.0, np.inf)).p90 for _ in range(pairs)]

    assert np.mean([one.change > max(one.half, log(1.05)) for one in found]) < 0.05


@pytest.mark.parametrize("count", [12, 16, 24])
def test_the_error_of_correlated_steps_is_that_of_the_mean_of_many_runs(count):
    """Blocks vary around the mean of their run, which itself is off."""
    random, runs = np.random.default_rng(9), 400
    drawn = random.standard_normal((runs, count))
    for step in range(1, count):
        drawn[:, step] = 0.8 * drawn[:, step - 1] + 0.6 * drawn[:, step]
    lengths = 1e8 * np.exp(0.01 * drawn)
    errors = [measure_all_steps(run).mean.error[0] for run in lengths]

    assert np.median(errors) == pytest.approx(np.log(lengths.mean(axis=1)).std(), rel=0.12)


def test_what_is_assumed_never_narrows_what_the_steps_leave_open_of_the_mean():
    random = np.random.default_rng(10)
    for error, freedom in zip(random.uniform(0, 0.2, 50), random.uniform(1, 9, 50), strict=True):
        run = AllSteps(*[Spread(np.zeros(1), np.full(1, error), freedom)] * 2, 10)
        alone, assumed = (
            compare_all_steps([run], [run], Noise(deviation, np.inf)).mean.half for deviation in (0.0, 0.0144)
        )

        assert assumed >= alone
