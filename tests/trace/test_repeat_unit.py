"""The outermost range of a unit around each range."""

import polars as pl
from hypothesis import given
from hypothesis import strategies as st

from wallscope.trace.repeat_unit import find_outermost_units

SCHEMA = {"parent": pl.Int32, "name": pl.UInt32, "text": pl.String, "crosses": pl.Boolean}


@st.composite
def trees(draw):
    rows = draw(st.lists(st.tuples(st.integers(0, 10**6), st.booleans(), st.booleans()), max_size=30))
    return [(chosen % (row + 1) - 1, named, crosses) for row, (chosen, named, crosses) in enumerate(rows)]


def expected(rows, row):
    found = -1
    while row >= 0:
        parent, named, crosses = rows[row]
        found = row if named and not crosses else found
        row = parent
    return found


def frame(rows):
    texts = ("x", "microbatch 3")
    named = [(parent, int(is_unit), texts[is_unit], crosses) for parent, is_unit, crosses in rows]
    return pl.DataFrame(named, schema=SCHEMA, orient="row")


@given(rows=trees())
def test_it_is_the_last_one_on_the_way_up(rows):
    found = find_outermost_units(frame(rows))["microbatch"]

    assert found.tolist() == [expected(rows, row) for row in range(len(rows))]


def test_ranges_a_million_deep_are_no_trouble():
    count = 1_000_000
    parent = pl.int_range(-1, count - 1, eager=True, dtype=pl.Int32)
    text = pl.Series(["microbatch 3"]).new_from_index(0, count)
    tree = pl.DataFrame(
        {
            "parent": parent,
            "name": pl.repeat(0, count, eager=True, dtype=pl.UInt32),
            "text": text,
            "crosses": pl.repeat(value=False, n=count, eager=True),
        }
    )

    assert not find_outermost_units(tree)["microbatch"].any()
