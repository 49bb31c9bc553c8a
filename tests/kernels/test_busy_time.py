"""Time in which any operation of a group ran, and several streams at once, against single nanoseconds."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

PARENT = [-1, 0, 0, 1, -1]
SPANS = st.lists(
    st.tuples(st.integers(0, 30), st.integers(0, 9), st.integers(-1, len(PARENT) - 1)), max_size=10
)


def columns(rows: list[tuple[int, int, int]]) -> tuple[np.ndarray, ...]:
    """Start, end and group of spans (start, length, group), by start."""
    ordered = sorted((start, start + length, group) for start, length, group in rows)
    return tuple(
        np.array(column, np.int64) for column in (zip(*ordered, strict=True) if ordered else [()] * 3)
    )


def around(group: int) -> set[int]:
    """A group and all groups around it."""
    return set() if group < 0 else {group} | around(PARENT[group])


@given(rows=SPANS)
def test_each_nanosecond_of_a_group_counts_once(kernel_of, rows):
    busy_ns = np.zeros(len(PARENT), np.int64)
    reached_ns = np.full(len(PARENT), -1)
    kernel_of("busy_time").sum_busy_times(*columns(rows), np.array(PARENT), reached_ns, busy_ns)

    for group, found_ns in enumerate(busy_ns.tolist()):
        own = {at for start, length, of in rows for at in range(start, start + length) if group in around(of)}
        assert found_ns == len(own)


@given(rows=st.lists(st.tuples(st.integers(0, 30), st.integers(0, 9), st.integers(0, 3)), max_size=12))
def test_streams_run_at_once_where_two_of_them_cover_a_nanosecond(kernel_of, rows):
    start_ns, end_ns, stream = columns(rows)
    starts, ends = np.empty_like(start_ns), np.empty_like(end_ns)
    count = kernel_of("busy_time").find_concurrency(start_ns, end_ns, stream, starts, ends)

    streams_at = {
        at: {of for start, length, of in rows if start <= at < start + length} for at in range(-1, 45)
    }
    found = [at for start, end in zip(starts[:count], ends[:count], strict=True) for at in range(start, end)]
    assert found == [at for at, streams in streams_at.items() if len(streams) > 1]
    assert (starts[1:count] > ends[: max(count - 1, 0)]).all()
