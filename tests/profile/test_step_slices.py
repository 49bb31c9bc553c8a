"""A capture and a number in it are one number and come out of it again."""

import polars as pl
from hypothesis import given
from hypothesis import strategies as st

from wallscope.profile.step_slices import decode_pairs, encode_pairs

NUMBERS = st.one_of(st.integers(0, 3), st.integers(2**31 - 1, 2**32 - 1))


def coded(rows):
    return encode_pairs(
        pl.DataFrame(rows, schema={"input": pl.UInt32, "key": pl.UInt32}, orient="row"), "key"
    )


@given(st.lists(st.tuples(st.integers(0, 2**20), st.one_of(st.none(), NUMBERS))))
def test_numbers_are_in_order_of_captures_and_come_out_again(rows):
    found = coded(rows)
    known = [row for row in rows if row[1] is not None]
    told = decode_pairs(found[found >= 0], "key")

    assert [code == -1 for code in found.tolist()] == [number is None for _, number in rows]
    assert list(zip(told["input"].tolist(), told["key"].tolist(), strict=True)) == known
    assert coded(sorted(known)).tolist() == sorted(coded(known).tolist())
