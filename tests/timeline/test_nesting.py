from unittest.mock import patch

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from wallscope.timeline import nesting
from wallscope.timeline.nesting import innermost, jumps, parents

SPANS = st.lists(st.tuples(st.integers(0, 40), st.integers(0, 40)), max_size=14)


def in_order(rows: list[tuple[int, int]]) -> list[tuple[int, int]]:
    """Ranges as they are read: by start, the longest first."""
    return sorted(((start, start + length) for start, length in rows), key=lambda row: (row[0], -row[1]))


def dull_parent(rows: list[tuple[int, int]], row: int) -> int:
    return max((other for other in range(row) if rows[other][1] >= rows[row][1]), default=-1)


def dull_innermost(rows: list[tuple[int, int]], at: int) -> int:
    return max((row for row, (start, end) in enumerate(rows) if start <= at < end), default=-1)


def arrays(rows: list[tuple[int, int]]):
    bounds = np.array(rows, dtype=np.int64).reshape(-1, 2)
    return bounds[:, 0], bounds[:, 1]


@given(SPANS)
def test_parents_of_overlapping_ranges_equal_a_plain_search(drawn):
    rows = in_order(drawn)

    assert parents(arrays(rows)[1]).tolist() == [dull_parent(rows, row) for row in range(len(rows))]


@given(SPANS, st.integers(0, 3))
def test_ranges_that_are_climbed_one_by_one_have_the_same_parents(drawn, turns):
    _, end_ns = arrays(in_order(drawn))

    with patch.object(nesting, "_MOST_TURNS", turns):
        found = parents(end_ns)

    assert found.tolist() == parents(end_ns).tolist()


@given(SPANS, st.lists(st.integers(-2, 90), min_size=1, max_size=20))
def test_the_innermost_range_equals_a_plain_search_also_without_nesting(drawn, moments):
    rows = in_order(drawn)
    start_ns, end_ns = arrays(rows)

    found = innermost(start_ns, end_ns, jumps(parents(end_ns)), np.array(moments))

    assert found.tolist() == [dull_innermost(rows, at) for at in moments]


def test_a_hundred_thousand_ranges_on_one_stack_are_climbed_by_leaps():
    count = 100_000
    start_ns, end_ns = np.arange(count), 10 * count - np.arange(count)

    found = innermost(start_ns, end_ns, jumps(parents(end_ns)), np.array([count, 10 * count - 1, 10 * count]))

    assert found.tolist() == [count - 1, 0, -1]
