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


@given(st.data(), st.sampled_from([pl.UInt8(), pl.UInt16(), pl.UInt32()]), st.integers(-(2**33), 2**33))
def test_narrow_numbers_are_exact_whatever_stands_for_null(data, dtype, unknown):
    most = 2 ** (8 * pl.Series([0], dtype=dtype).to_numpy().itemsize) - 1
    among = st.one_of(st.none(), st.integers(0, most), st.sampled_from([most // 2, most // 2 + 1, most]))
    values = data.draw(st.lists(among))
    unknown = data.draw(st.sampled_from([unknown, -1, 127, 128, -129]))

    found = as_integers(pl.Series(values, dtype=dtype), unknown)

    assert found.tolist() == [unknown if one is None else one for one in values]


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
