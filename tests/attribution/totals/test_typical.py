from fractions import Fraction

import numpy as np
import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

from wallscope.attribution.totals import average_total, select_typical_steps


@pytest.mark.parametrize(
    ("steady", "selected", "expected"),
    [
        pytest.param([0, 1, 1, 0], [1, 1, 1, 1], [1, 2], id="the steady ones"),
        pytest.param([0, 0, 0, 0], [1, 1, 1, 1], [0, 1, 2, 3], id="all, where none is steady"),
        pytest.param([0, 0, 0, 0], [1, 0, 0, 0], [0], id="of them those that are selected"),
    ],
)
def test_the_typical_step_is_made_of(steady, selected, expected):
    windows = pl.DataFrame(
        {
            "step": [0, 1, 2, 3],
            "start_ns": [0, 10, 20, 30],
            "end_ns": [10, 20, 30, 40],
            "steady": [bool(value) for value in steady],
            "selected": [bool(value) for value in selected],
        }
    )

    assert select_typical_steps(windows)["step"].to_list() == expected


@given(total=st.integers(-(2**70), 2**70), count=st.integers(1, 12))
def test_a_mean_is_rounded_as_fractions_are(total, count):
    assert average_total(total, count) == round(Fraction(total, count))


@given(totals=st.lists(st.integers(-(2**60), 2**60)), count=st.integers(1, 12))
def test_means_of_several_are_those_of_each(totals, count):
    found = average_total(np.array(totals, np.int64), count)

    assert found.tolist() == [average_total(total, count) for total in totals]
