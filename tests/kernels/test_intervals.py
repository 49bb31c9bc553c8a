"""Union and intersection of spans against one nanosecond at a time."""

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

BOUNDS = st.lists(st.tuples(st.integers(0, 40), st.integers(1, 12)), max_size=12)
ONCE = settings(suppress_health_check=[HealthCheck.function_scoped_fixture])


def sorted_spans(rows: list[tuple[int, int]]) -> tuple[np.ndarray, np.ndarray]:
    """Spans (start, length) as arrays of starts and ends, by start."""
    ordered = sorted((start, start + length) for start, length in rows)
    bounds = np.array(ordered, np.int64).reshape(-1, 2)
    return np.ascontiguousarray(bounds[:, 0]), np.ascontiguousarray(bounds[:, 1])


def moments(start_ns: np.ndarray, end_ns: np.ndarray) -> set[int]:
    """Every nanosecond that spans cover."""
    return {at for start, end in zip(start_ns, end_ns, strict=True) for at in range(start, end)}


@given(rows=BOUNDS)
def test_the_union_covers_the_same_nanoseconds_in_spans_that_do_not_touch(kernel_of, rows):
    start_ns, end_ns = sorted_spans(rows)
    starts, ends = np.empty_like(start_ns), np.empty_like(end_ns)
    count = kernel_of("intervals").merge(start_ns, end_ns, starts, ends)
    assert moments(starts[:count], ends[:count]) == moments(start_ns, end_ns)
    assert (starts[1:count] > ends[: max(count - 1, 0)]).all()


@given(one=BOUNDS, other=BOUNDS)
def test_the_intersection_covers_what_both_sides_cover(kernel_of, one, other):
    kernels = kernel_of("intervals")
    sides = []
    for rows in (one, other):
        start_ns, end_ns = sorted_spans(rows)
        starts, ends = np.empty_like(start_ns), np.empty_like(end_ns)
        count = kernels.merge(start_ns, end_ns, starts, ends)
        sides.append((starts[:count], ends[:count]))
    room = sides[0][0].size + sides[1][0].size
    starts, ends = np.empty(room, np.int64), np.empty(room, np.int64)
    count = kernels.intersect(*sides[0], *sides[1], starts, ends)
    assert moments(starts[:count], ends[:count]) == moments(*sides[0]) & moments(*sides[1])
    assert (starts[:count] < ends[:count]).all()
    assert (starts[1:count] >= ends[: max(count - 1, 0)]).all()


@pytest.mark.parametrize("near", [1, 16])
@given(rows=BOUNDS, at=st.lists(st.integers(-3, 60), max_size=30))
@ONCE
def test_the_passed_part_is_that_before_each_moment(kernel_of, monkeypatch, near, rows, at):
    kernels = kernel_of("intervals")
    if hasattr(kernels, "NEAR"):  # a constant in the compiled form
        monkeypatch.setattr(kernels, "NEAR", near)
    bounds = sorted_spans(rows)
    starts, ends = (np.empty_like(side) for side in bounds)
    count = kernels.merge(*bounds, starts, ends)
    starts, ends = starts[:count], ends[:count]
    at_ns, passed_ns = np.array(at, np.int64), np.empty(len(at), np.int64)
    kernels.sum_before(starts, ends, np.cumsum(ends - starts) - (ends - starts), at_ns, passed_ns)
    assert passed_ns.tolist() == [sum(one < moment for one in moments(starts, ends)) for moment in at]


def test_bounds_are_checked_in_the_form_that_tests_use(kernel_of):
    with pytest.raises(IndexError):
        kernel_of("intervals").merge(*sorted_spans([(0, 1)]), np.empty(0, np.int64), np.empty(0, np.int64))
