"""Numbers of distinct rows and calls in order of their threads, against dictionaries and sorted lists."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

NULL = -(2**63)
LARGE = [0, 1, -1, 2**31, 2**31 - 1, -(2**31), 2**62, 2**63 - 1, NULL]


@given(
    st.integers(0, 3).flatmap(lambda width: st.lists(st.tuples(*[st.sampled_from(LARGE)] * width))),
    st.integers(0, 9),
)
def test_distinct_rows_are_numbered_as_they_appear_until_there_is_no_room(kernel_of, rows, room):
    columns = np.array(rows, np.int64).reshape(len(rows), len(rows[0]) if rows else 1).T.copy()
    distinct, count = np.full((room, len(columns)), 7), np.zeros(1, np.int64)
    number = np.full(len(rows), 99, np.uint32)
    table = np.full(16, -1, np.int32)
    done = kernel_of("row_numbers").number_rows(columns, 0, distinct, count, table, number)
    known = list(dict.fromkeys(rows))
    new = next((at for at, row in enumerate(rows) if known.index(row) == room), len(rows))
    assert done == new
    assert number[:new].tolist() == [known.index(row) for row in rows[:new]]
    assert number[new:].tolist() == [99] * (len(rows) - new)
    assert [tuple(row) for row in distinct[: count[0]].tolist()] == known[:room]
    assert {place for place in table.tolist() if place >= 0} == set(range(count[0]))


calls = st.lists(st.tuples(st.integers(0, 3), st.integers(0, 9), st.integers(0, 5)), max_size=12)


@given(calls, st.permutations(range(4)), st.integers(-3, 3))
def test_calls_are_put_in_order_of_their_threads(kernel_of, rows, thread_of, shift_ns):
    caller, start_ns, correlation = np.array(rows, np.int64).reshape(-1, 3).T.copy()
    row = np.arange(len(rows))
    counts = np.bincount(np.array(thread_of)[caller], minlength=4)
    begin = np.cumsum(counts) - counts
    thread, named = (np.empty(row.size, np.uint32) for _ in range(2))
    times_ns, own = np.empty((2, row.size), np.int64), np.empty(row.size, np.int64)
    in_order = kernel_of("row_numbers").order_calls(
        *(caller.astype(np.uint32), start_ns, start_ns + 5, row.astype(np.uint32), correlation),
        *(np.array(thread_of), begin, shift_ns, begin.copy(), thread, times_ns, named, own),
    )
    expected = sorted(row.tolist(), key=lambda at: thread_of[caller[at]])
    assert named.tolist() == expected
    assert thread.tolist() == [thread_of[caller[at]] for at in expected]
    assert times_ns.tolist() == [
        (column[expected] - shift_ns).tolist() for column in (start_ns, start_ns + 5)
    ]
    assert own.tolist() == correlation[expected].tolist()
    starts = list(zip(thread.tolist(), times_ns[0].tolist(), strict=True))
    assert bool(in_order) == (starts == sorted(starts))


@given(st.lists(st.tuples(st.integers(0, 2), st.one_of(st.just(NULL), st.integers(4, 9))), max_size=12))
def test_the_first_call_of_each_id_of_a_process_is_found(kernel_of, rows):
    process, correlation = np.array(rows, np.int64).reshape(-1, 2).T.copy()
    first = np.full(3 * 6, -1, np.int32)
    kernel_of("row_numbers").find_first_calls(process, correlation, NULL, 4, 6, first)
    expected = [
        rows.index((one, number)) if (one, number) in rows else -1
        for one in range(3)
        for number in range(4, 10)
    ]
    assert first.tolist() == expected
