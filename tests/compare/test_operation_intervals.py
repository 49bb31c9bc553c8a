"""Intervals of operations and axes: the same statistics as those of causes, on their own times."""

import numpy as np
import pytest

from tests.compare.test_compare import diff, steps
from tests.profile.random_profiles import OPERATIONS, profile_of
from wallscope.compare.compare import CompareOptions, Side, compare_sides


def side(name, seeds, factor=1.0, slower=None):
    """Return runs in which all operations vary, and one is slower."""
    runs = []
    for seed in seeds:
        drawn = np.array(steps(12, 1.0, seed, 0.01))
        if slower is not None:
            drawn[:, slower] = np.round(drawn[:, slower] * factor)
        runs.append((profile_of(f"{name}{seed}", drawn.tolist()),))
    return Side(name, tuple(runs))


def test_an_operation_alone_in_its_cause_has_the_interval_of_the_cause():
    found = compare_sides(side("base", (1, 2, 3)), side("head", (4, 5, 6)), CompareOptions())
    causes = {row.cause: (row.delta_ns, row.low_ns, row.high_ns) for row in found.deltas.causes}
    counts = {
        row.cause: sum(one.cause == row.cause for one in found.deltas.operations)
        for row in found.deltas.operations
    }
    alone = [row for row in found.deltas.operations if counts[row.cause] == 1]

    assert len(alone) >= 3
    for row in alone:
        assert (row.delta_ns, row.low_ns, row.high_ns) == pytest.approx(causes[row.cause], abs=2)


def test_the_operation_that_changed_is_the_significant_one():
    found = compare_sides(side("base", (1, 2, 3)), side("head", (4, 5, 6), 1.2, 1), CompareOptions())

    assert [row.name for row in found.deltas.operations if row.significant] == [OPERATIONS[1][2]]
    (row,) = [row for row in found.operations if row.significant]
    assert row.low_ns > 0
    assert row.low_ns <= row.delta_ns <= row.high_ns
    assert row.high_ns - row.low_ns < row.delta_ns


@pytest.mark.parametrize(("count", "most"), [(8, 2), pytest.param(40, 6, marks=pytest.mark.slow)])
def test_unchanged_operations_are_seldom_significant(count, most):
    random = np.random.default_rng(8)
    claimed = 0
    for _ in range(count):
        seeds = random.integers(10, 10_000_000, 6).tolist()
        found = compare_sides(side("base", seeds[:3]), side("head", seeds[3:]), CompareOptions())
        claimed += any(row.significant for row in (*found.deltas.operations, *found.operations))

    assert claimed <= most  # 5 % are 2 of 40; more than 6 in one of 70 series, more than 2 of 8 in one of 170


def test_communication_by_axis_has_the_interval_of_its_causes():
    found = compare_sides(side("base", (1, 2, 3)), side("head", (4, 5, 6), 1.3, 3), CompareOptions())
    (axis,) = found.communication
    (cause,) = [row for row in found.deltas.causes if row.cause == "communication/ep/unsplit"]

    assert (axis.low_ns, axis.high_ns) == pytest.approx((cause.low_ns, cause.high_ns), abs=2)
    assert axis.significant


def test_too_few_steps_have_no_interval_and_one_capture_no_operations():
    few = [profile_of(name, steps(4, 1.0, seed)) for seed, name in enumerate("ab")]
    found = diff(*few)

    assert found.deltas.operations
    assert {(row.low_ns, row.significant) for row in found.deltas.operations} == {(None, False)}
    assert diff(few[0], few[0]).operations == ()
