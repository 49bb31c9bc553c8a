import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from wallscope.trace.intervals import Spans, common, covered_ns, length_ns, make_spans, order_spans, union

BOUNDS = st.lists(st.tuples(st.integers(0, 60), st.integers(0, 60)), max_size=12)


def instants(rows: list[tuple[int, int]]) -> set[int]:
    """The dull way: every nanosecond that a span holds."""
    return {instant for start, end in rows for instant in range(start, end)}


@pytest.mark.parametrize(
    ("rows", "expected"),
    [
        pytest.param([], [], id="nothing"),
        pytest.param([(1, 4)], [(1, 4)], id="one span"),
        pytest.param([(1, 4), (4, 6)], [(1, 6)], id="touching spans"),
        pytest.param([(1, 4), (5, 6)], [(1, 4), (5, 6)], id="a gap of one nanosecond"),
        pytest.param([(1, 10), (2, 3), (4, 5)], [(1, 10)], id="spans inside another"),
        pytest.param([(4, 5), (1, 2)], [(1, 2), (4, 5)], id="unordered"),
        pytest.param([(3, 3), (1, 2)], [(1, 2)], id="an empty span"),
        pytest.param([(7, 3)], [], id="an end before the start"),
        pytest.param([(-5, -1), (-2, 3)], [(-5, 3)], id="before session start"),
    ],
)
def test_union_of_spans(rows, expected):
    assert union(make_spans(*rows)).rows() == expected


@given(BOUNDS, BOUNDS)
def test_a_union_holds_the_instants_of_its_sides(left, right):
    assert instants(union(make_spans(*left), make_spans(*right)).rows()) == instants(left) | instants(right)


@given(BOUNDS, BOUNDS)
def test_what_is_common_holds_the_instants_of_both_sides(left, right):
    found = common(union(make_spans(*left)), union(make_spans(*right)))

    assert instants(found.rows()) == instants(left) & instants(right)
    assert (found.end_ns > found.start_ns).all()
    assert (found.start_ns[1:] >= found.end_ns[:-1]).all()


@given(BOUNDS)
def test_a_union_is_disjoint_and_its_own_union(rows):
    once = union(make_spans(*rows))

    assert (once.start_ns[1:] > once.end_ns[:-1]).all()
    assert union(once).rows() == once.rows()
    assert length_ns(once) == len(instants(rows))


@given(BOUNDS, BOUNDS)
def test_coverage_of_windows_counts_instants(rows, windows):
    windows = [(start, end) for start, end in windows if end >= start]
    bounds = np.array(windows, dtype=np.int64).reshape(-1, 2)

    covered = covered_ns(union(make_spans(*rows)), Spans(bounds[:, 0], bounds[:, 1]))

    assert covered.tolist() == [len(instants(rows) & set(range(*window))) for window in windows]


def test_spans_of_a_normalised_clock_stay_exact():
    epoch_ns = 1_795_219_236_607_348_906
    start_ns = np.array([epoch_ns, epoch_ns + 1], dtype=np.int64)

    assert length_ns(union(order_spans(start_ns, start_ns + 2))) == 3
