"""Rows that are alike are found, numbered and summed as a dictionary of them would tell."""

import numpy as np
import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

from wallscope import columns as module
from wallscope.columns import (
    combine_codes,
    count_before_in_group,
    iterate_by_first,
    number_densely,
    number_groups,
    order_by_group,
    select_distinct_rows,
    split_by_rank,
    sum_by_group,
)

NUMBERS = st.lists(st.one_of(st.integers(-3, 9), st.integers(-(2**40), 2**40)), max_size=30)
SMALL = st.lists(st.integers(0, 9), max_size=20)
TABLES = st.lists(st.tuples(*[st.integers(0, 3)] * 3), max_size=20)


def array(values):
    return np.array(values, np.int64)


@given(NUMBERS, st.data())
def test_groups_are_in_order_of_what_is_alike(numbers, data):
    size = len(numbers)
    more = data.draw(st.lists(st.integers(0, 2), min_size=size, max_size=size))
    keys = list(zip(numbers, more, strict=True))
    expected = [sorted(set(keys)).index(key) for key in keys]

    found = number_groups(array(numbers), array(more))

    assert found.tolist() == expected
    assert count_before_in_group(found).tolist() == [
        expected[:row].count(one) for row, one in enumerate(expected)
    ]
    first_places = list(dict.fromkeys(expected))
    assert [one for one, _ in iterate_by_first(found)] == first_places
    assert [places.tolist() for _, places in iterate_by_first(found)] == [
        [row for row, one in enumerate(expected) if one == number] for number in first_places
    ]


@given(SMALL)
def test_ranks_have_their_rows_in_order(ranks):
    rows = pl.DataFrame(
        {"rank_id": ranks, "row": range(len(ranks))}, schema={"rank_id": pl.UInt32, "row": int}
    )

    found = split_by_rank(rows)

    assert sorted(found) == sorted(set(ranks))
    for rank, own in found.items():
        assert own["row"].to_list() == [row for row, of in enumerate(ranks) if of == rank]


@given(st.lists(st.tuples(st.integers(0, 3), st.integers(0, 400)), max_size=20))
def test_rows_are_ordered_as_their_keys_and_stay_in_order_where_these_are_equal(rows):
    first, second = array(rows).reshape(-1, 2).T

    assert order_by_group(first, second).tolist() == sorted(range(len(rows)), key=lambda row: rows[row])


@pytest.mark.parametrize("distance", [1, 1 << 40], ids=["close", "far from each other"])
@given(values=SMALL)
def test_ranks_are_places_among_the_distinct(distance, values):
    numbers = [distance * value for value in values]

    found, places = number_densely(array(numbers))

    assert found.tolist() == sorted(set(numbers))
    assert found[places].tolist() == numbers


@pytest.mark.parametrize("few", [0, module._FEW])
@given(rows=TABLES)
def test_distinct_rows_of_columns_are_in_order(few, rows):
    columns = array(rows).reshape(-1, 3).T
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(module, "_FEW", few)
        found, places = combine_codes((4, 4, 4), *columns)

    assert list(zip(*(column.tolist() for column in found), strict=True)) == sorted(set(rows))
    assert [column[places].tolist() for column in found] == columns.tolist()


@given(rows=TABLES)
def test_distinct_rows_are_in_order_of_their_columns(rows):
    found, places = select_distinct_rows(array(rows).reshape(-1, 3))

    assert [tuple(row) for row in found.tolist()] == sorted(set(rows))
    assert [tuple(row) for row in found[places].tolist()] == rows


@given(rows=st.lists(st.tuples(st.integers(0, 4), st.integers(-(2**58), 2**58)), max_size=20))
def test_sums_of_groups_are_exact(rows):
    group, values = array(rows).reshape(-1, 2).T

    assert sum_by_group(group, values, 5).tolist() == [
        sum(value for own, value in rows if own == number) for number in range(5)
    ]
