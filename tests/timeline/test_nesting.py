import numpy as np
import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

from wallscope.model.frames import NAMES, RANGES
from wallscope.timeline.nesting import innermost, nested, parents, path_texts

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


@given(SPANS, st.lists(st.integers(-2, 90), min_size=1, max_size=20))
def test_the_innermost_range_equals_a_plain_search_also_without_nesting(drawn, moments):
    rows = in_order(drawn)
    start_ns, end_ns = arrays(rows)

    found = innermost(start_ns, end_ns, parents(end_ns), np.array(moments))

    assert found.tolist() == [dull_innermost(rows, at) for at in moments]


def test_a_hundred_thousand_ranges_on_one_stack_are_climbed_by_leaps():
    count = 100_000
    start_ns, end_ns = np.arange(count), 10 * count - np.arange(count)

    found = innermost(start_ns, end_ns, parents(end_ns), np.array([count, 10 * count - 1, 10 * count]))

    assert found.tolist() == [count - 1, 0, -1]


def ranges(*rows: tuple[int, int, int, int]) -> pl.DataFrame:
    """(thread, start, end, name) in the order of reading."""
    return pl.DataFrame(
        [
            {
                "range": number,
                "thread": thread,
                "start_ns": start,
                "end_ns": end,
                "name": name,
                "crosses": False,
                "clipped": False,
            }
            for number, (thread, start, end, name) in enumerate(rows)
        ],
        schema=RANGES,
    )


def test_like_ranges_share_a_path_and_threads_do_not_nest_in_each_other():
    texts = ["step 1", "step 2", "aten::mm, op_id = 5", "aten::mm, op_id = 6"]
    names = pl.DataFrame(list(enumerate(texts)), schema=NAMES, orient="row")
    given_ranges = ranges((0, 0, 10, 0), (0, 2, 4, 2), (0, 10, 20, 1), (0, 12, 14, 3), (1, 3, 4, 3))

    tree, paths, labels = nested(given_ranges, names)

    written = path_texts(paths, labels)
    assert tree["parent"].to_list() == [-1, 0, -1, 2, -1]
    assert written.gather(tree["path"]).to_list() == [
        "step #",
        "step # / aten::mm",
        "step #",
        "step # / aten::mm",
        "aten::mm",
    ]


def test_a_range_that_ends_on_another_thread_holds_nothing():
    names = pl.DataFrame([(0, "a")], schema=NAMES, orient="row")
    crossing = ranges((0, 0, 10, 0), (0, 2, 4, 0)).with_columns(crosses=pl.Series([True, False]))

    tree, _, _ = nested(crossing, names)

    assert tree["parent"].to_list() == [-1, -1]


def test_of_a_deep_path_the_outside_is_left_out():
    names = pl.DataFrame([(0, "a")], schema=NAMES, orient="row")
    _, paths, labels = nested(ranges(*((0, start, 100 - start, 0) for start in range(5))), names)

    assert path_texts(paths, labels, most=3).to_list() == [
        "a",
        "a / a",
        "a / a / a",
        "… / a / a / a",
        "… / a / a / a",
    ]


@pytest.mark.parametrize("rows", [pytest.param((), id="no ranges")])
def test_no_ranges_make_an_empty_tree(rows):
    tree, paths, labels = nested(ranges(*rows), pl.DataFrame(schema=NAMES))

    assert (len(tree), len(paths), len(labels)) == (0, 0, 0)
