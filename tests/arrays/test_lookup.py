import numpy as np
import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

from wallscope.arrays.columns import filled
from wallscope.arrays.groups import by_rank, ordered_by
from wallscope.arrays.lookup import places

NUMBERS = st.lists(st.integers(0, 12), max_size=12)


@given(NUMBERS, st.lists(st.integers(0, 12), max_size=12, unique=True))
def test_places_are_those_of_a_search_through_all(wanted, among):
    found = places(np.array(wanted, np.int64), np.array(among, np.int64))

    assert found.tolist() == [among.index(one) if one in among else -1 for one in wanted]


@given(st.lists(st.tuples(st.integers(0, 3), st.integers(0, 400)), max_size=20))
def test_rows_are_ordered_as_their_keys_and_stay_in_order_where_these_are_equal(rows):
    first, second = (np.array([row[column] for row in rows], np.int64) for column in (0, 1))

    assert ordered_by(first, second).tolist() == sorted(range(len(rows)), key=lambda row: rows[row])


@pytest.mark.parametrize(
    ("values", "dtype", "expected"),
    [
        pytest.param([3, None], pl.UInt32(), [3, -7], id="numbers"),
        pytest.param([None, None], pl.Int64(), [-7, -7], id="all unknown"),
        pytest.param(["b", None, "a"], pl.Enum(["a", "b"]), [1, -7, 0], id="an enumeration"),
        pytest.param([], pl.Enum(["a", "b"]), [], id="nothing"),
        pytest.param([2**62 + 1, None], pl.Int64(), [2**62 + 1, -7], id="exact beyond what a double holds"),
    ],
)
def test_null_is_another_number(values, dtype, expected):
    assert filled(pl.Series(values, dtype=dtype), -7).tolist() == expected


@given(NUMBERS)
def test_ranks_have_their_rows_in_order(ranks):
    rows = pl.DataFrame(
        {"rank_id": ranks, "row": range(len(ranks))}, schema={"rank_id": pl.UInt32, "row": int}
    )

    found = by_rank(rows)

    assert sorted(found) == sorted(set(ranks))
    for rank, own in found.items():
        assert own["row"].to_list() == [row for row, of in enumerate(ranks) if of == rank]
