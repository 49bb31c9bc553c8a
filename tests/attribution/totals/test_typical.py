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


@pytest.mark.parametrize(
    ("lengths_ns", "expected"),
    [
        pytest.param([100, 130] * 4 + [100], [0, 2, 4, 6, 8], id="the more frequent kind"),
        pytest.param([100, 130] * 4, [1, 3, 5, 7], id="of equally frequent ones the longer"),
        pytest.param([100, 101, 102, 103, 104, 105, 106, 107], [2, 3, 4, 5], id="one kind, its middle half"),
        pytest.param([100, 130] * 3, [0, 1, 2, 3, 4, 5], id="too few steps to tell kinds"),
    ],
)
def test_the_typical_step_is_of_one_kind(lengths_ns, expected):
    ends_ns = np.cumsum(lengths_ns)
    windows = pl.DataFrame(
        {"step": range(len(lengths_ns)), "start_ns": ends_ns - lengths_ns, "end_ns": ends_ns}
    ).with_columns(steady=True, selected=True)

    assert select_typical_steps(windows)["step"].to_list() == expected


@given(total=st.integers(-(2**70), 2**70), count=st.integers(1, 12))
def test_a_mean_is_rounded_as_fractions_are(total, count):
    assert average_total(total, count) == round(Fraction(total, count))


@given(totals=st.lists(st.integers(-(2**60), 2**60)), count=st.integers(1, 12))
def test_means_of_several_are_those_of_each(totals, count):
    found = average_total(np.array(totals, np.int64), count)

    assert found.tolist() == [average_total(total, count) for total in totals]
