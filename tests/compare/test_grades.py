"""How certain claims of a comparison are: as often right as their grade says."""

from collections import defaultdict

import numpy as np
import pytest

from benchmarks.graded_claims import Case, grade_pairs
from tests.conftest import slow
from wallscope.compare.grades import Measured, StepClaim, grade_part, grade_step
from wallscope.model.enums import Grade

SURE, LIKELY, POSSIBLE = Grade.SURE, Grade.LIKELY, Grade.POSSIBLE


def measured(change, half, *, found=True, surely=True, assumed=False):
    return Measured(change, half, found, surely, assumed)


@pytest.mark.parametrize(
    ("step", "grade"),
    [
        (measured(0.05, 0.02), SURE),
        (measured(-0.05, 0.02), SURE),
        (measured(0.05, 0.04, surely=False), LIKELY),
        (measured(0.05, 0.04, assumed=True), LIKELY),
        (measured(0.09, 0.04, assumed=True), SURE),
        (measured(0.05, 0.06), POSSIBLE),
        (measured(0.01, 0.005, found=False), None),
        (measured(0.0, 0.02, found=False), None),
    ],
)
def test_the_step_has_the_grade_that_its_runs_allow(step, grade):
    assert grade_step(step, 0.02) == grade


@pytest.mark.parametrize(
    ("part", "of_step", "grade"),
    [
        (measured(8.0, 2.0), SURE, SURE),
        (measured(8.0, 2.0), None, SURE),
        (measured(8.0, 9.0, found=False), SURE, LIKELY),
        (measured(8.0, 9.0, found=False), LIKELY, LIKELY),
        (measured(8.0, 9.0, found=False), POSSIBLE, None),
        (measured(4.0, 9.0, found=False), SURE, None),
        (measured(-8.0, 9.0, found=False), SURE, None),
        (measured(4.0, 3.0, surely=False), SURE, POSSIBLE),
        (measured(4.0, 3.0, surely=False, assumed=True), None, LIKELY),
        (measured(4.0, 3.0, found=False), SURE, POSSIBLE),
        (measured(0.0, 0.0, found=False), SURE, None),
    ],
)
def test_a_part_has_the_grade_of_its_own_runs_or_of_the_step_that_it_makes_up(part, of_step, grade):
    assert grade_part(part, StepClaim(10.0, of_step)) == grade


@pytest.mark.parametrize("pairs", [60, *slow(300)])
def test_claims_are_as_often_right_as_their_grade_says(pairs):
    rights = defaultdict(list)
    for case in (Case(1), Case(1, 3), Case(1, 10), Case(2), Case(3)):
        for key, held in grade_pairs(case, pairs).items():
            rights[key] += held

    for claim in ("step", "causes", "first cause"):
        assert np.mean(rights[claim, SURE]) >= 0.95
        assert np.mean(rights[claim, LIKELY]) >= 0.8
