"""Threads that ask until the device has done something, and what the walk says of them."""

import pytest

from tests.attribution.brute_trace import Call, Op
from tests.trace.walking import launch, waits_of, walk

KERNEL = Op(0, 10, 20, "compute", 0)


def asking(*queries, end=95.0):
    """A collective, queries of a thread, and the kernel that it launches behind them."""
    returned = queries[-1][1]
    return (
        launch(0, 0),
        launch(0, 2),
        *(Call(0, *query, "query") for query in queries),
        launch(0, returned, returned + 1),
        KERNEL,
        Op(1, 15, end, "communication", 1),
        Op(0, returned + 5, returned + 9, "compute", 2 + len(queries)),
    )


RUNS = [
    pytest.param([(50, 52), (70, 72), (92, 100)], True, id="three"),
    pytest.param([(50, 60), (92, 100)], False, id="two"),
    pytest.param([(50, 52), (72, 74), (92, 100)], True, id="20 us apart"),
    pytest.param([(50, 52), (73, 75), (93.001, 100)], True, id="farther apart"),
    pytest.param([(30, 31), (50, 51), (94, 100)], True, id="with longer and longer sleeps"),
    pytest.param([(50, 52), (70, 72), (92, 100)], True, id="50 us long"),
    pytest.param([(50.001, 52), (70, 72), (92, 100)], False, id="shorter"),
]


@pytest.mark.parametrize(("queries", "is_wait"), RUNS)
def test_the_last_of_some_queries_in_a_row_waits(queries, is_wait):
    waits = waits_of(*asking(*queries))
    last = 1 + len(queries)

    assert waits.blocking.tolist() == ([last] if is_wait else [])
    if is_wait:
        assert waits.list_awaited_by(last) == (1,)
        assert waits.entered_ns.tolist() == [queries[0][0] * 1_000]


@pytest.mark.parametrize(("what", "is_wait"), [("record", False), ("other", True)])
def test_a_call_between_queries_ends_the_run_unless_it_only_looks(what, is_wait):
    rows = asking((50, 52), (60, 62), (64, 66), (80, 82), (92, 100))
    between = rows[4]
    rows = tuple(row._replace(what=what) if row == between else row for row in rows)

    assert bool(waits_of(*rows).blocking.size) is is_wait


@pytest.mark.parametrize(
    "end", [pytest.param(45, id="before the first one"), pytest.param(60, id="long before the last one")]
)
def test_a_thread_that_works_between_queries_only_looks(end):
    """The answer was yes before the last query: a thread that waits would have gone on then."""
    assert waits_of(*asking((50, 52), (120, 122), (190, 192), end=end)).blocking.tolist() == []


@pytest.mark.parametrize("apart", [30, 100, 2_000, 20_000])
def test_a_wait_with_sleeps_of_any_length_ends_with_what_was_asked_for(apart):
    queries = [(50 + apart * nth, 51 + apart * nth) for nth in range(4)]
    returned = queries[-1][1]

    assert walk(*asking(*queries, end=returned - apart / 2)) == [
        (20, returned - apart / 2, "operation", True),
        (returned - apart / 2, returned, "synchronisation", True),
        (returned, returned + 1, "launch-call", False),
        (returned + 1, returned + 5, "launch-latency", False),
    ]


def test_queries_of_which_nothing_ended_inside_are_no_wait():
    assert waits_of(*asking((50, 52), (70, 72), (92, 100), end=45)).blocking.tolist() == []


@pytest.mark.parametrize(
    "end", [pytest.param(95, id="in the last one"), pytest.param(80, id="between two of them")]
)
def test_the_walk_goes_on_at_what_was_asked_for(end):
    assert walk(*asking((50, 52), (70, 72), (92, 100), end=end)) == [
        (20, end, "operation", True),
        (end, 100, "synchronisation", True),
        (100, 101, "launch-call", False),
        (101, 105, "launch-latency", False),
    ]
