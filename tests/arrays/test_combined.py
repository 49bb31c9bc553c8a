"""Numbers in the place of keys say what the keys say."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from wallscope.arrays import groups
from wallscope.arrays.groups import combined, distinct_rows, ranked, summed
from wallscope.arrays.lookup import at_places, rows_of

SMALL = st.lists(st.integers(0, 9), max_size=20)
TABLES = st.lists(st.tuples(*[st.integers(0, 3)] * 3), max_size=20)


def array(values):
    return np.array(values, np.int64)


@pytest.mark.parametrize("count", [10, 1 << 40], ids=["few", "far more than there are"])
@given(values=SMALL)
def test_ranks_are_places_among_the_distinct(count, values):
    found, places = ranked(array(values), count)

    assert found.tolist() == sorted(set(values))
    assert found[places].tolist() == values


@pytest.mark.parametrize("few", [0, groups._FEW])
@given(rows=TABLES)
def test_groups_are_the_distinct_rows_in_order(few, rows):
    columns = array(rows).reshape(-1, 3).T
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(groups, "_FEW", few)
        found, places = combined((4, 4, 4), *columns)

    assert list(zip(*(column.tolist() for column in found), strict=True)) == sorted(set(rows))
    assert [column[places].tolist() for column in found] == columns.tolist()


@given(rows=TABLES)
def test_distinct_rows_are_in_order_of_their_columns(rows):
    found, places = distinct_rows(array(rows).reshape(-1, 3))

    assert [tuple(row) for row in found.tolist()] == sorted(set(rows))
    assert [tuple(row) for row in found[places].tolist()] == rows


@given(known=st.sets(st.integers(0, 20)), wanted=st.lists(st.integers(-1, 22), max_size=20))
def test_rows_of_operations_are_where_they_stand(known, wanted):
    op = array(sorted(known))
    rows, held = rows_of(op, array(wanted))

    assert held.tolist() == [place for place, number in enumerate(wanted) if number in known]
    assert op[rows].tolist() == [number for number in wanted if number in known]


@given(places=st.lists(st.integers(-1, 4), max_size=20))
def test_values_of_no_place_are_nothing(places):
    found = at_places(array([10, 11, 12, 13, 14]), array(places), 7)

    assert found.tolist() == [10 + place if place >= 0 else 7 for place in places]


@given(rows=st.lists(st.tuples(st.integers(0, 4), st.integers(-(2**58), 2**58)), max_size=20))
def test_sums_of_groups_are_exact(rows):
    group, values = array(rows).reshape(-1, 2).T

    assert summed(group, values, 5).tolist() == [
        sum(value for own, value in rows if own == number) for number in range(5)
    ]
