"""Host segments against the search for the call that a thread is in, one nanosecond at a time."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from tests.attribution.brute import Model
from tests.attribution.brute_trace import Call, Trace

WINNING = {"alloc", "stream", "event", "context"}


@st.composite
def nests(draw, thread):
    """Calls of a thread that nest as runtime and driver calls do, some without length."""
    found = []

    def fill(start, end, depth):
        sides = sorted(draw(st.lists(st.integers(start, end), max_size=4)))
        for begin, finish in zip(sides[::2], sides[1::2], strict=False):
            found.append(Call(thread, begin, finish, draw(st.sampled_from(["launch", "stream", "alloc"]))))
            if depth < 2 and begin < finish:
                fill(begin, finish, depth + 1)

    fill(0, 30, 0)
    return found


@st.composite
def overlapping(draw, thread):
    """Calls of a thread that overlap in any way."""
    sides = st.tuples(st.integers(0, 20), st.integers(0, 9), st.sampled_from(["launch", "event", "alloc"]))
    return [Call(thread, at, at + length, what) for at, length, what in draw(st.lists(sides, max_size=7))]


def in_order(calls):
    """Calls as the kernel takes them: by thread and start, the longest first."""
    return sorted(calls, key=lambda call: (call.thread, call.start, -call.end))


def segments(kernel_of, calls, threads):
    """Thread, start, end and call of each segment."""
    columns = np.array([(call.thread, call.start, call.end) for call in calls], np.int64).reshape(-1, 3).T
    wins = np.array([call.what in WINNING for call in calls], np.uint8)
    room = len(calls) + int(wins.sum())
    ptr, starts, ends = (np.empty(size, np.int64) for size in (threads + 1, room, room))
    own = np.empty(room, np.int32)
    count = kernel_of("call_flattening").flatten_calls(
        *(columns[0].astype(np.int32), *map(np.ascontiguousarray, columns[1:]), wins),
        *(np.arange(len(calls), dtype=np.int32), ptr, starts, ends, own),
    )
    assert ptr[0] == 0
    assert ptr[-1] == count
    thread = np.repeat(np.arange(threads), np.diff(ptr))
    columns = (thread, starts[:count], ends[:count], own[:count])
    return list(zip(*(column.tolist() for column in columns), strict=True))


@given(st.tuples(nests(0), nests(2)))
def test_nested_calls_are_the_owners_of_each_nanosecond(kernel_of, threads):
    calls = in_order([*threads[0], *threads[1]])
    model = Model(Trace((), tuple(calls)))

    found = segments(kernel_of, calls, 4)

    in_call = {(thread, at): call for thread, start, end, call in found for at in range(start, end)}
    assert in_call == {
        (thread, at): owner
        for thread in range(4)
        for at in range(31)
        if (owner := model.owner(thread, at + 1)) is not None
    }


@given(st.tuples(overlapping(1), overlapping(2)))
def test_overlapping_calls_are_covered_by_disjoint_segments_of_their_own(kernel_of, threads):
    calls = in_order([*threads[0], *threads[1]])

    found = segments(kernel_of, calls, 3)

    moments = [(thread, at) for thread, start, end, _ in found for at in range(start, end)]
    assert moments == sorted({(call.thread, at) for call in calls for at in range(call.start, call.end)})
    assert all(start < end for _, start, end, _ in found)
    assert all(
        calls[call].thread == thread and calls[call].start <= start and end <= calls[call].end
        for thread, start, end, call in found
    )
