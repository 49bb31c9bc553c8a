import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.attribution.brute_trace import Call, Op, Trace, capture, in_order
from wallscope.trace.thread_timeline import flatten_calls

SYNC, ALLOC, LAUNCH, OTHER = "stream", "alloc", "launch", "other"


def laid_flat(*calls):
    """Calls of one thread written as start, end, kind; stretches with the place of their call."""
    trace = Trace((Op(0, 0, 1, "compute"),), tuple(Call(0, *call) for call in calls))
    flat = flatten_calls(capture(trace).calls, 1)
    assert flat.ptr.tolist() == [0, flat.call.size]
    return list(zip(*(column.tolist() for column in (flat.start_ns, flat.end_ns, flat.call)), strict=True))


@pytest.mark.parametrize(
    ("calls", "expected"),
    [
        pytest.param([(0, 9, LAUNCH)], [(0, 9, 0)], id="one"),
        pytest.param([(0, 9, LAUNCH), (9, 12, LAUNCH)], [(0, 9, 0), (9, 12, 1)], id="touching"),
        pytest.param([(0, 9, LAUNCH), (2, 7, LAUNCH)], [(0, 9, 0)], id="the outermost counts"),
        pytest.param([(0, 9, LAUNCH), (0, 9, LAUNCH)], [(0, 9, 0)], id="of equal ones the first"),
        pytest.param(
            [(0, 9, LAUNCH), (2, 7, ALLOC)], [(0, 2, 0), (2, 7, 1), (7, 9, 0)], id="an allocation inside wins"
        ),
        pytest.param(
            [(0, 9, OTHER), (2, 9, SYNC)], [(0, 2, 0), (2, 9, 1)], id="a synchronisation inside, to its end"
        ),
        pytest.param(
            [(0, 9, OTHER), (0, 9, SYNC)], [(0, 9, 1)], id="a synchronisation that fills the call around it"
        ),
        pytest.param([(0, 9, SYNC), (2, 7, ALLOC)], [(0, 9, 0)], id="nothing wins inside a synchronisation"),
        pytest.param([(0, 9, ALLOC), (2, 7, ALLOC)], [(0, 9, 0)], id="runtime and driver allocate once"),
        pytest.param(
            [(0, 20, LAUNCH), (2, 18, OTHER), (4, 8, ALLOC)],
            [(0, 4, 0), (4, 8, 2), (8, 20, 0)],
            id="two levels down",
        ),
        pytest.param(
            [(0, 20, LAUNCH), (2, 18, ALLOC), (4, 8, SYNC)],
            [(0, 2, 0), (2, 18, 1), (18, 20, 0)],
            id="of those that win the outermost",
        ),
        pytest.param(
            [(0, 20, LAUNCH), (2, 5, ALLOC), (5, 9, SYNC), (12, 14, ALLOC)],
            [(0, 2, 0), (2, 5, 1), (5, 9, 2), (9, 12, 0), (12, 14, 3), (14, 20, 0)],
            id="several inside",
        ),
        pytest.param(
            [(0, 20, LAUNCH), (2, 8, ALLOC), (6, 12, ALLOC)],
            [(0, 2, 0), (2, 8, 1), (8, 12, 2), (12, 20, 0)],
            id="two inside that overlap by a hair",
        ),
        pytest.param([(0, 10, LAUNCH), (9, 15, LAUNCH)], [(0, 10, 0), (10, 15, 1)], id="overlap by a hair"),
        pytest.param(
            [(0, 10, LAUNCH), (8, 15, OTHER), (11, 13, ALLOC)],
            [(0, 10, 0), (10, 11, 1), (11, 13, 2), (13, 15, 1)],
            id="an allocation in one that overlaps",
        ),
        pytest.param([(0, 9, LAUNCH), (4, 4, LAUNCH)], [(0, 9, 0)], id="without length inside"),
        pytest.param([(3, 3, SYNC)], [], id="without length"),
    ],
)
def test_calls_laid_flat(calls, expected):
    assert laid_flat(*calls) == expected


def test_threads_stand_apart():
    calls = (Call(0, 0, 9, LAUNCH), Call(2, 3, 5, ALLOC))

    flat = flatten_calls(capture(Trace((Op(0, 0, 1, "compute"),), calls)).calls, 4)

    assert flat.ptr.tolist() == [0, 1, 1, 2, 2]
    assert (flat.start_ns.tolist(), flat.end_ns.tolist(), flat.call.tolist()) == ([0, 3], [9, 5], [0, 1])


SIDES = st.tuples(st.integers(0, 40), st.integers(0, 15), st.sampled_from([LAUNCH, ALLOC, SYNC, OTHER]))


@given(st.lists(SIDES, min_size=1, max_size=10))
def test_stretches_are_disjoint_and_cover_what_the_calls_cover(drawn):
    trace = in_order(Trace((), tuple(Call(0, start, start + length, what) for start, length, what in drawn)))
    calls = [call[1:] for call in trace.calls]

    flat = laid_flat(*calls)

    covered = [moment for start, end, _ in flat for moment in range(start, end)]
    assert covered == sorted({moment for start, end, _ in calls for moment in range(start, end)})
    assert all(calls[call][0] <= start < end <= calls[call][1] for start, end, call in flat)


@st.composite
def nests(draw):
    """Calls that nest as runtime and driver calls do."""
    found = []

    def fill(start, end, depth):
        sides = sorted(draw(st.lists(st.integers(start, end), max_size=4)))
        for begin, finish in zip(sides[::2], sides[1::2], strict=False):
            if finish > begin:
                found.append((begin, finish, draw(st.sampled_from([LAUNCH, ALLOC, SYNC, OTHER]))))
                if depth < 2:
                    fill(begin, finish, depth + 1)

    fill(0, 60, 0)
    return found


@given(nests())
def test_nested_calls_laid_flat_equal_the_dull_way(drawn):
    trace = in_order(Trace((Op(0, 0, 1, "compute"),), tuple(Call(0, *call) for call in drawn)))
    calls = [call[1:] for call in trace.calls]
    if not calls:
        return

    owner = {moment: call for start, end, call in laid_flat(*calls) for moment in range(start, end)}

    assert owner == dull(calls)


def dull(calls):
    """Nanosecond by nanosecond: of the calls around it the outermost that wins, else the outermost."""
    found = {}
    for moment in range(61):
        around = [row for row, (start, end, _) in enumerate(calls) if start <= moment < end]
        around.sort(key=lambda row: (calls[row][0], -calls[row][1], row))
        winning = [row for row in around if calls[row][2] in {ALLOC, SYNC}]
        if around:
            found[moment] = (winning or around)[0]
    return found
