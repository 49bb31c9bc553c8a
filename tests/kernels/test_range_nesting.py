"""Trees of ranges against searches that look through all rows for each answer."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

SPANS = st.lists(st.tuples(st.integers(0, 40), st.integers(0, 40)), max_size=14)


def in_order(rows):
    """Ranges as they are read: by start, the longest first."""
    return sorted(((start, start + length) for start, length in rows), key=lambda row: (row[0], -row[1]))


def arrays(rows):
    bounds = np.array(rows, np.int64).reshape(-1, 2)
    return np.ascontiguousarray(bounds[:, 0]), np.ascontiguousarray(bounds[:, 1])


def nested(kernel_of, end_ns, thread=None, is_apart=None):
    parent = np.full(end_ns.size, -9, np.int32)
    thread = np.zeros(end_ns.size, np.int32) if thread is None else thread
    is_apart = np.zeros(end_ns.size, np.uint8) if is_apart is None else is_apart
    kernel_of("range_nesting").nest(thread, end_ns, is_apart, parent)
    return parent


def innermost(kernel_of, rows, moments):
    start_ns, end_ns = arrays(rows)
    found = np.full(len(moments), -9, np.int32)
    parent = nested(kernel_of, end_ns)
    kernel_of("range_nesting").innermost(start_ns, end_ns, parent, np.array(moments, np.int64), found)
    return found


@given(st.lists(st.tuples(SPANS, st.lists(st.booleans(), min_size=14, max_size=14)), max_size=3))
def test_parents_are_the_latest_earlier_ranges_of_the_thread_that_end_no_sooner(kernel_of, threads):
    rows = [
        (thread, *span, apart)
        for thread, (spans, flags) in enumerate(threads)
        for span, apart in zip(in_order(spans), flags, strict=False)
    ]
    thread, _, end_ns, is_apart = np.array(rows, np.int64).reshape(-1, 4).T

    parent = nested(
        kernel_of, np.ascontiguousarray(end_ns), thread.astype(np.int32), is_apart.astype(np.uint8)
    )

    def search(row):
        may_be = (
            other
            for other in range(row)
            if thread[other] == thread[row] and end_ns[other] >= end_ns[row] and not is_apart[other]
        )
        return -1 if is_apart[row] else max(may_be, default=-1)

    assert parent.tolist() == [search(row) for row in range(len(rows))]


@given(SPANS, st.lists(st.integers(-2, 90), max_size=20))
def test_the_innermost_range_is_the_open_one_with_the_latest_start(kernel_of, drawn, moments):
    rows, moments = in_order(drawn), sorted(moments)

    assert innermost(kernel_of, rows, moments).tolist() == [
        max((row for row, (start, end) in enumerate(rows) if start <= at < end), default=-1) for at in moments
    ]


def test_a_hundred_thousand_ranges_on_one_stack_take_linear_time(kernel_of):
    count = 100_000
    rows = [(row, 10 * count - row) for row in range(count)]
    moments = [count, *range(9 * count, 10 * count + 1)]

    found = innermost(kernel_of, rows, moments)

    assert found[0] == found[1] == count - 1
    assert found[-2:].tolist() == [0, -1]


@st.composite
def forests(draw):
    """The parent of each row, an earlier one or none, and whether each row is wanted."""
    count = draw(st.integers(0, 12))
    parent = [draw(st.integers(-1, row - 1)) for row in range(count)]
    return parent, draw(st.lists(st.booleans(), min_size=count, max_size=count))


def ways_up(parent):
    """Each row, its parent, and so on to the top."""
    for row in range(len(parent)):
        way = [row]
        while parent[way[-1]] >= 0:
            way.append(parent[way[-1]])
        yield way


def nearest(way, is_wanted):
    return next((row for row in way if is_wanted[row]), -1)


def farthest(way, is_wanted):
    return nearest(way[::-1], is_wanted)


def chain_top(way, is_wanted):
    unwanted = next((place for place, row in enumerate(way) if place and not is_wanted[row]), len(way))
    return way[unwanted - 1]


@pytest.mark.parametrize("search", [nearest, farthest, chain_top])
@given(forest=forests())
def test_what_lies_above_each_row_is_found_on_its_way_up(kernel_of, search, forest):
    parent, is_wanted = forest
    found = np.full(len(parent), -9, np.int32)

    getattr(kernel_of("range_nesting"), search.__name__)(
        np.array(parent, np.int32), np.array(is_wanted, np.uint8), found
    )

    assert found.tolist() == [search(way, is_wanted) for way in ways_up(parent)]


@given(st.data())
def test_paths_are_chains_of_labels_in_order_of_their_first_rows(kernel_of, data):
    count = data.draw(st.integers(0, 12))
    order = data.draw(st.permutations(range(count)))
    around = [data.draw(st.integers(-1, count - 1)) for _ in range(count)]
    label = data.draw(st.lists(st.integers(0, 2), min_size=count, max_size=count))
    path, table = np.full(count, -1, np.int32), np.full(16, -1, np.int32)
    parent, name, depth = (np.empty(count, np.int32) for _ in range(3))

    paths = kernel_of("range_nesting").number_paths(
        *(np.array(order, np.int64), np.array(around, np.int32), np.array(label, np.int32)),
        *(table, path, parent, name, depth),
    )

    chains = {}
    for row in order:
        chains[row] = (*chains.get(around[row], ()), label[row])
    distinct = list(dict.fromkeys(chains[row] for row in order))
    assert path.tolist() == [distinct.index(chains[row]) for row in range(count)]
    assert paths == len(distinct)
    assert name[:paths].tolist() == [chain[-1] for chain in distinct]
    assert depth[:paths].tolist() == [len(chain) - 1 for chain in distinct]
    assert parent[:paths].tolist() == [distinct.index(chain[:-1]) if chain[:-1] else -1 for chain in distinct]


@given(threads=st.lists(st.lists(st.tuples(st.integers(0, 30), st.integers(0, 30)), max_size=12), max_size=3))
def test_ends_beyond_an_enclosing_range_by_a_little_are_cut_to_its_end(kernel_of, threads):
    """The oracle searches all earlier ranges of the thread for the innermost open one."""
    rows = [
        (thread, start, start + length)
        for thread, own in enumerate(threads)
        for start, length in sorted(own, key=lambda span: (span[0], -span[1]))
    ]
    expected = []
    for row, (thread, start, end) in enumerate(rows):
        opened = [
            expected[other] for other in range(row) if rows[other][0] == thread and expected[other] > start
        ]
        around = opened[-1] if opened else end
        expected.append(around if around < end <= around + 5 else end)
    columns = [np.array(column, np.int64) for column in zip(*rows, strict=True)] or [
        np.empty(0, np.int64)
    ] * 3
    thread, start_ns, end_ns = columns
    kernel_of("range_nesting").hold_ends(thread.astype(np.int32), start_ns, 5, end_ns, np.empty_like(end_ns))

    assert end_ns.tolist() == expected
