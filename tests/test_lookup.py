"""Numbers are found among others where a search through all finds them."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from wallscope.columns import Places, are_among, find_places, mark_numbers, match_rows, take_or

NUMBERS = st.lists(st.one_of(st.integers(-3, 9), st.integers(-(2**40), 2**40)), max_size=30)
SMALL = st.lists(st.integers(0, 12), max_size=12)
DISTINCT = st.lists(st.integers(0, 12), max_size=12, unique=True)


def array(values):
    return np.array(values, np.int64)


def searched(wanted, among):
    return [among.index(one) if one in among else -1 for one in wanted]


@given(SMALL, DISTINCT)
def test_places_are_those_of_a_search_through_all(wanted, among):
    assert find_places(array(wanted), array(among)).tolist() == searched(wanted, among)


@given(NUMBERS, st.lists(st.integers(0, 90), unique=True))
def test_places_in_a_list_are_those_of_a_search_through_all(wanted, listed):
    assert Places(array(listed)).of(array(wanted)).tolist() == searched(wanted, listed)


@given(st.lists(st.integers(-1, 40)), st.lists(st.integers(-5, 60)))
def test_numbers_are_among_some(wanted, chosen):
    assert are_among(array(wanted), array(chosen)).tolist() == [one in chosen for one in wanted]


@given(DISTINCT, SMALL)
def test_rows_of_operations_are_where_they_stand(known, wanted):
    rows, held = match_rows(array(known), array(wanted))

    assert held.tolist() == [place for place, number in enumerate(wanted) if number in known]
    assert array(known)[rows].tolist() == [number for number in wanted if number in known]


@given(st.lists(st.integers(-1, 4), max_size=20))
def test_values_of_no_place_are_nothing(chosen):
    found = take_or(array([10, 11, 12, 13, 14]), array(chosen), 7)

    assert found.tolist() == [10 + place if place >= 0 else 7 for place in chosen]


@given(SMALL)
def test_flags_tell_which_numbers_there_are(numbers):
    assert np.flatnonzero(mark_numbers(array(numbers), 13)).tolist() == sorted(set(numbers))
