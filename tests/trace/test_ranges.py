import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

from wallscope.model.schemas import CALLS, NAMES, RANGES, THREADS
from wallscope.trace.names import bring_together
from wallscope.trace.ranges import nest_ranges, write_paths


def tree_of(given_ranges: pl.DataFrame, names: pl.DataFrame, calls: pl.DataFrame | None = None):
    """The tree of ranges whose threads are all of one process."""
    numbers = given_ranges["thread"].unique().sort()
    threads = pl.DataFrame([{"thread": number, "process": 0} for number in numbers], schema=THREADS)
    return nest_ranges(
        given_ranges, bring_together(names), CALLS.to_frame() if calls is None else calls, threads
    )


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

    tree, paths, labels = tree_of(given_ranges, names)

    written = write_paths(paths, labels, tree["path"])
    assert tree["parent"].to_list() == [-1, 0, -1, 2, -1]
    assert written.to_list() == [
        "step #",
        "step # / aten::mm",
        "step #",
        "step # / aten::mm",
        "aten::mm",
    ]


def test_a_range_that_ends_on_another_thread_holds_nothing():
    names = pl.DataFrame([(0, "a")], schema=NAMES, orient="row")
    crossing = ranges((0, 0, 10, 0), (0, 2, 4, 0)).with_columns(crosses=pl.Series([True, False]))

    tree, _, _ = tree_of(crossing, names)

    assert tree["parent"].to_list() == [-1, -1]


@given(
    st.lists(
        st.tuples(st.integers(0, 1), st.integers(0, 20), st.integers(1, 9), st.integers(0, 2)), max_size=30
    )
)
def test_a_path_is_the_chain_of_names_around_a_range_in_the_order_of_their_first(drawn):
    rows = sorted(drawn, key=lambda row: (row[0], row[1], -row[2]))
    names = pl.DataFrame([(number, text) for number, text in enumerate("abc")], schema=NAMES, orient="row")
    given_ranges = ranges(*((thread, start, start + ns, name) for thread, start, ns, name in rows))

    tree, paths, labels = tree_of(given_ranges, names)

    parent, chains = tree["parent"].to_list(), []
    for row, (*_, name) in enumerate(rows):
        chains.append((*chains[parent[row]], "abc"[name]) if parent[row] >= 0 else ("abc"[name],))
    written = write_paths(paths, labels, tree["path"], most=50).to_list()
    assert written == [" / ".join(chain) for chain in chains]
    in_order = tree.sort("start_ns", maintain_order=True)["path"].unique(maintain_order=True)
    assert in_order.to_list() == paths["path"].to_list() == list(range(len(set(chains))))
    assert paths["depth"].to_list() == [
        len(chains[tree["path"].index_of(path)]) - 1 for path in paths["path"]
    ]


def test_of_a_deep_path_the_outside_is_left_out():
    names = pl.DataFrame([(0, "a")], schema=NAMES, orient="row")
    _, paths, labels = tree_of(ranges(*((0, start, 100 - start, 0) for start in range(5))), names)

    assert write_paths(paths, labels, paths["path"], most=3).to_list() == [
        "a",
        "a / a",
        "a / a / a",
        "… / a / a / a",
        "… / a / a / a",
    ]


@pytest.mark.parametrize("rows", [pytest.param((), id="no ranges")])
def test_no_ranges_make_an_empty_tree(rows):
    tree, paths, labels = tree_of(ranges(*rows), pl.DataFrame(schema=NAMES))

    assert (len(tree), len(paths), len(labels)) == (0, 0, 0)


def test_paths_may_be_deeper_than_any_sixteen_bit_number():
    count = 70_000
    names = pl.DataFrame([(0, "a")], schema=NAMES, orient="row")

    _, paths, _ = tree_of(ranges(*((0, start, 10 * count - start, 0) for start in range(count))), names)

    assert paths["depth"].max() == count - 1


def launches(*rows: tuple[int, int, int]) -> pl.DataFrame:
    """(thread, start, end) of calls that launch kernels."""
    made = [
        {"thread": thread, "start_ns": start, "end_ns": end, "role": "launch"} for thread, start, end in rows
    ]
    return pl.DataFrame(made, schema=CALLS)


@pytest.mark.parametrize(
    ("calls", "expected"),
    [
        pytest.param([(0, 5, 6), (1, 25, 26)], "backward / autograd", id="the main thread waits"),
        pytest.param([(0, 5, 6), (0, 25, 26)], "autograd", id="it calls meanwhile"),
        pytest.param([(0, 15, 40)], "autograd", id="it is inside a call"),
        pytest.param([(1, 25, 26)], "autograd", id="it never issues work"),
    ],
)
def test_outermost_ranges_continue_the_path_of_the_thread_that_waits(calls, expected):
    names = pl.DataFrame([(0, "backward"), (1, "autograd")], schema=NAMES, orient="row")

    tree, paths, labels = tree_of(ranges((0, 10, 50, 0), (1, 20, 30, 1)), names, launches(*calls))

    assert write_paths(paths, labels, tree["path"]).to_list() == ["backward", expected]
    assert tree["parent"].to_list() == [-1, -1]


def test_a_range_that_outlasts_the_wait_is_not_continued():
    names = pl.DataFrame([(0, "backward"), (1, "autograd")], schema=NAMES, orient="row")

    tree, paths, labels = tree_of(ranges((0, 10, 50, 0), (1, 20, 51, 1)), names, launches((0, 5, 6)))

    assert write_paths(paths, labels, tree["path"]).to_list() == ["backward", "autograd"]
