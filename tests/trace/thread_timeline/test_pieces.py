import numpy as np
import pytest

from wallscope.trace.intervals import as_times
from wallscope.trace.thread_timeline import ThreadSegments

OUTSIDE, ISSUING = -1, 7


def pieces(*rows, processes=(0, 0)):
    """Pieces written as thread, start, end, call."""
    columns = (as_times(np.array(column, np.int64)) for column in zip(*rows, strict=True))
    return ThreadSegments(dict(enumerate(processes)), *columns)


TWO_THREADS = (
    (0, 0, 10, OUTSIDE),
    (0, 10, 12, 3),
    (1, 0, 4, OUTSIDE),
    (1, 4, 6, ISSUING),
    (1, 6, 9, OUTSIDE),
)


def test_pieces_of_a_thread_follow_each_other():
    told = pieces(*TWO_THREADS)

    assert told.first.tolist() == [0, 2]
    assert dict(told.rows_of) == {0: range(2), 1: range(2, 5)}
    assert told.before.tolist() == [5, 0, 6, 2, 3]
    assert told.inside([3, ISSUING]).tolist() == [1, 3]


@pytest.mark.parametrize(
    ("thread", "at_ns", "is_start", "expected"),
    [
        pytest.param(0, 11, False, 1, id="inside"),
        pytest.param(0, 10, False, 0, id="at its end"),
        pytest.param(0, 10, True, 1, id="at its start"),
        pytest.param(1, 10, False, -1, id="behind the last"),
        pytest.param(2, 5, False, -1, id="of no known thread"),
    ],
)
def test_the_piece_at_a_moment(thread, at_ns, is_start, expected):
    found = pieces(*TWO_THREADS).at(np.array([thread]), np.array([at_ns]), np.array([is_start]))

    assert found.tolist() == [expected]


@pytest.mark.parametrize(
    ("rows", "processes", "expected"),
    [
        pytest.param(TWO_THREADS, (0, 0), {0: (4, 1)}, id="one that waited for another that issued"),
        pytest.param(TWO_THREADS, (0, 1), {}, id="not for one of another process"),
        pytest.param(((0, 0, 3, OUTSIDE), *TWO_THREADS[1:]), (0, 0), {}, id="nor for what it did later"),
        pytest.param(
            ((0, 0, 5, OUTSIDE), (0, 5, 10, OUTSIDE), *TWO_THREADS[1:4]),
            (0, 0),
            {1: (4, 4)},
            id="in the piece in which the other one ended",
        ),
    ],
)
def test_pieces_that_go_on_after_those_of_another_thread(rows, processes, expected):
    nobody = np.full(ISSUING + 1, -1)

    def find(is_alone):
        never = np.full(ISSUING + 1, is_alone)
        return pieces(*rows, processes=processes).find_releases(np.array([ISSUING]), nobody, never)

    assert find(False) == expected
    assert find(True) == {}


@pytest.mark.parametrize(
    ("issuing", "rows", "expected"),
    [
        pytest.param(99, TWO_THREADS, {0: (3, 4)}, id="behind the call that held the lock"),
        pytest.param(ISSUING, TWO_THREADS, {0: (4, 1)}, id="of which it may have issued since"),
        pytest.param(99, TWO_THREADS[:3], {}, id="not behind one outside of the window"),
        pytest.param(99, (TWO_THREADS[1], *TWO_THREADS[2:]), {}, id="not where it did nothing before"),
    ],
)
def test_pieces_that_go_on_where_another_thread_lets_go_of_a_lock(issuing, rows, expected):
    holder = np.full(ISSUING + 1, -1)
    holder[3] = ISSUING

    assert pieces(*rows).find_releases(np.array([issuing]), holder, holder < -1) == expected
