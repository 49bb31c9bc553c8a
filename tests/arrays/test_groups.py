import numpy as np
import polars as pl
from hypothesis import given
from hypothesis import strategies as st

from wallscope.arrays.columns import coded
from wallscope.arrays.groups import groups, ordinals, parts
from wallscope.arrays.lookup import Places, are_among

NUMBERS = st.lists(st.one_of(st.integers(-3, 9), st.integers(-(2**40), 2**40)), max_size=30)


@given(st.lists(st.integers(0, 90), unique=True), NUMBERS)
def test_places_are_those_of_a_list(listed, wanted):
    expected = [listed.index(one) if one in listed else -1 for one in wanted]

    assert Places(np.array(listed, np.int64)).of(np.array(wanted, np.int64)).tolist() == expected


@given(st.lists(st.integers(-1, 40)), st.lists(st.integers(-5, 60)))
def test_numbers_are_among_some(wanted, chosen):
    found = are_among(np.array(wanted, np.int64), np.array(chosen, np.int64))

    assert found.tolist() == [one in chosen for one in wanted]


@given(NUMBERS, st.data())
def test_groups_are_in_order_of_what_is_alike(numbers, data):
    size = len(numbers)
    more = data.draw(st.lists(st.integers(0, 2), min_size=size, max_size=size))
    keys = list(zip(numbers, more, strict=True))
    expected = [sorted(set(keys)).index(key) for key in keys]

    found = groups(np.array(numbers, np.int64), np.array(more, np.int64))

    assert found.tolist() == expected
    assert ordinals(found).tolist() == [expected[:row].count(one) for row, one in enumerate(expected)]
    first_places = list(dict.fromkeys(expected))
    assert [one for one, _ in parts(found)] == first_places
    assert [places.tolist() for _, places in parts(found)] == [
        [row for row, one in enumerate(expected) if one == number] for number in first_places
    ]


@given(st.lists(st.one_of(st.none(), st.sampled_from("bca"))))
def test_texts_as_numbers_tell_the_texts(texts):
    for series in (pl.Series(texts, dtype=pl.String), pl.Series(texts, dtype=pl.Enum(["c", "b", "a"]))):
        number, known = coded(series)
        assert [None if one < 0 else known[one] for one in number.tolist()] == texts
