"""What is said of a recommendation that was applied, and of a gain beyond its bound."""

from dataclasses import replace

import pytest

from wallscope.model.comparison import AppliedFix
from wallscope.model.enums import Wall
from wallscope.views.applied_fixes import describe_applied_fix

MS = 1_000_000
APPLIED = AppliedFix(
    id="bf16",
    title="Train in BF16",
    wall=Wall.COMPUTE,
    evidence=("matrix multiplication went from TF32 to BF16",),
    alternatives=(),
    window="typical",
    base_ns=100 * MS,
    head_ns=60 * MS,
    bound_ns=50 * MS,
    replayed_ns=None,
    measured_ns=40 * MS,
    low_ns=38 * MS,
    high_ns=42 * MS,
    causes_ns=40 * MS,
    share=0.8,
    is_joint=False,
    assumption="assumes 25.0 % of today's time",
    expected_next_wall=Wall.MEMORY,
    next_wall=Wall.MEMORY,
    next_wall_ns=10 * MS,
)


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"bound_ns": 38 * MS, "share": 40 / 38}, "The bound assumes 25.0 % of today's time."),
        (
            {"bound_ns": 20 * MS, "share": 2.0, "assumption": "is 20.0 ms per step on average"},
            "The bound is 20.0 ms per step on average.",
        ),
        ({"bound_ns": 20 * MS, "share": 2.0, "assumption": ""}, "or the bound is too low."),
    ],
)
def test_a_gain_beyond_the_bound_is_explained(changes, said):
    one = replace(APPLIED, **changes)
    text = describe_applied_fix(one)

    assert f"{100 * one.share:.1f} % of its upper bound" in text.replace("\u202f", " ").replace("\xa0", " ")
    assert "The gain is more than the bound" in text
    assert said in text


def test_an_assumption_is_told_of_what_rests_on_it():
    assert "The bound assumes 25.0 % of today's time." in describe_applied_fix(APPLIED)
    expected = describe_applied_fix(replace(APPLIED, expected_ns=30 * MS))
    assert "The bound assumes" not in expected
    assert "The expected gain assumes 25.0 % of today's time." in expected


def test_another_precision_than_the_recommended_one_is_named():
    assert "Applied: Train in BF16. " in describe_applied_fix(APPLIED)
    assert "Applied: Train in BF16, here FP16. " in describe_applied_fix(
        replace(APPLIED, precisions=("fp16",))
    )


def test_a_gain_that_may_be_none_is_called_so():
    assert "chance" not in describe_applied_fix(APPLIED)
    assert "it may be chance" in describe_applied_fix(replace(APPLIED, low_ns=-MS))


@pytest.mark.parametrize("changes", [{}, {"share": 1.0}, {"share": None, "is_joint": True}])
def test_a_gain_within_the_bound_is_not(changes):
    assert "more than the bound" not in describe_applied_fix(replace(APPLIED, **changes))
