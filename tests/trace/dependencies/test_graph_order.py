import pytest

from tests.attribution.brute_trace import Call, Op, Sync, Trace, capture
from tests.trace.waiting import producers
from wallscope.trace.dependencies import resolve_dependencies


def ordered(*launches, before=(), behind=(), last=()):
    """Graph launches written as operations: stream, start, end, node; what each waits for, by start."""
    calls, ops = [], []

    def issue(rows, what):
        calls.append(Call(0, 2 * len(calls), 2 * len(calls) + 1, what))
        ops.extend(
            Op(stream, start, end, "compute", len(calls) - 1, node=node[0] if node else None)
            for stream, start, end, *node in rows
        )

    for row in before:
        issue([row], "launch")
    for rows in launches:
        issue(rows, "graph")
    for row in behind:
        issue([row], "launch")
    syncs = [Sync(len(calls) + number, *row) for number, row in enumerate(last)]
    calls += [
        Call(0, 10_000_000 + 10 * row, 10_000_009 + 10 * row, kind) for row, (kind, *_) in enumerate(last)
    ]
    ops.sort(key=lambda op: op.start)
    return resolve_dependencies(capture(Trace(tuple(ops), tuple(calls), (), tuple(syncs))))


def waits(found):
    return {op: producers(found, op) for op in range(len(found.start_ns)) if producers(found, op)}


def replay(at_ns, *rows):
    return [(stream, at_ns + start, at_ns + end, node) for stream, start, end, node in rows]


FORK = ((0, 0, 100, 1), (1, 2, 150, 2))
JOIN = (*FORK, (0, 152, 200, 3))
PERIOD_NS = 15_000


@pytest.mark.parametrize(
    ("found", "expected"),
    [
        pytest.param(ordered(replay(0, (0, 0, 100, 1), (0, 100, 200, 2))), {1: {0}}, id="one stream"),
        pytest.param(ordered(replay(50, *FORK)), {}, id="two branches"),
        pytest.param(
            ordered(replay(50, *FORK), before=[(0, 0, 40)]),
            {1: {0}, 2: {0}},
            id="both behind what came before",
        ),
        pytest.param(
            ordered(replay(50, *FORK), before=[(1, 0, 40)]), {2: {0}}, id="before, in the other stream"
        ),
        pytest.param(
            ordered(replay(50, *FORK), behind=[(0, 900, 950)]), {2: {0, 1}}, id="what follows waits for both"
        ),
        pytest.param(
            ordered(replay(50, *FORK), behind=[(1, 900, 950)]),
            {2: {1}},
            id="what follows in the other stream",
        ),
        pytest.param(
            ordered(replay(0, *JOIN), replay(PERIOD_NS, *JOIN)),
            {2: {0, 1}, 3: {1, 2}, 4: {1, 2}, 5: {3, 4}},
            id="a join, in both replays",
        ),
        pytest.param(ordered(replay(0, *JOIN)), {2: {0}}, id="a join seen once is none"),
        pytest.param(
            ordered(
                *(replay(PERIOD_NS * row, *JOIN) for row in range(9)),
                replay(PERIOD_NS * 9, *FORK, (0, 9_000, 9_100, 3)),
            ),
            None,
            id="a join in nine of ten",
        ),
    ],
)
def test_operations_of_graphs_wait_for_each_other(found, expected):
    if expected is None:  # nine joins of ten: they hold where they were seen
        assert [producers(found, op) for op in (2, 5, 29)] == [{0, 1}, {3, 4}, {27}]
    else:
        assert waits(found) == expected


def test_a_join_in_eight_of_ten_replays_is_chance():
    late = (*FORK, (0, 9_000, 9_100, 3))
    launches = [replay(PERIOD_NS * row, *(JOIN if row < 8 else late)) for row in range(10)]

    assert producers(ordered(*launches), 2) == {0}


@pytest.mark.parametrize(("lag_ns", "joins"), [(0, True), (5_000, True), (5_001, False)])
def test_a_join_is_at_once(lag_ns, joins):
    rows = (*FORK, (0, 150 + lag_ns, 9_000, 3))

    found = ordered(replay(0, *rows), replay(PERIOD_NS, *rows))

    assert producers(found, 2) == ({0, 1} if joins else {0})


def test_operations_of_ordinary_launches_are_no_graph():
    rows = [(0, 0, 100), (1, 2, 150), (0, 152, 200), (0, 1_000, 1_100), (1, 1_002, 1_150), (0, 1_152, 1_200)]

    assert waits(ordered(before=rows)) == {2: {0}, 3: {2}, 4: {1}, 5: {3}}


def test_a_synchronisation_behind_a_graph_waits_for_all_branches():
    found = ordered(replay(50, *FORK), last=[("stream", 0)])

    assert set(found.list_awaited_by(1)) == {0, 1}
