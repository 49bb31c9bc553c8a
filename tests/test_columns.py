"""Columns become numbers that say what the columns say."""

import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

from wallscope.columns import as_integers, encode_column, encode_member, list_members
from wallscope.model.enums import Wall


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
    assert as_integers(pl.Series(values, dtype=dtype), -7).tolist() == expected


@given(st.lists(st.one_of(st.none(), st.sampled_from(Wall))))
def test_members_are_told_by_their_places(told):
    column = pl.Series(told, dtype=pl.Enum(Wall))
    number = as_integers(column)

    assert number.tolist() == [-1 if one is None else encode_member(one) for one in told]
    assert list_members(Wall)[number].equals(column)


@given(st.lists(st.one_of(st.none(), st.sampled_from("bca"))))
def test_texts_as_numbers_tell_the_texts(texts):
    for series in (pl.Series(texts, dtype=pl.String), pl.Series(texts, dtype=pl.Enum(["c", "b", "a"]))):
        number, known = encode_column(series)
        assert [None if one < 0 else known[one] for one in number.tolist()] == texts
