"""Latest ends against delays of one operation after the other, critical paths against what they claim."""

from random import Random
from unittest.mock import patch

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import wallscope.replay.simulate
from tests.kernels.graphs import array, random_graph
from wallscope.replay.edits import GraphEdit
from wallscope.replay.graph import Role
from wallscope.replay.simulate import BOUNDS, Bound, CriticalPaths, find_latest_ends, simulate
from wallscope.trace.intervals import AFTER_ALL

FOR_EVER_NS = 10**6
ONCE = settings(max_examples=100, suppress_health_check=[HealthCheck.function_scoped_fixture])


def delayed(graph, operation, more_ns):
    """The run where one operation takes longer."""
    draft = GraphEdit(graph)
    draft.set_operations(graph.op[[operation]], array([graph.operation_ns[operation] + more_ns]))
    return simulate(draft.graph())


@ONCE
@given(seed=st.integers(0, 2**32))
def test_an_operation_may_end_as_late_and_not_a_nanosecond_later(kernel_of, seed):
    random = Random(seed)
    graph = random_graph(random, in_order=True)
    run = simulate(graph)
    target = random.randrange(graph.op.size)
    with patch.object(wallscope.replay.simulate, "latest_ends", kernel_of("latest_ends")):
        latest_ns = find_latest_ends(run, target)

    for one in random.sample(range(graph.op.size), min(graph.op.size, 8)):
        if one == target:
            continue
        slack_ns = int(latest_ns[one] - run.end_ns[one])
        assert slack_ns >= 0
        if slack_ns > FOR_EVER_NS:
            assert delayed(graph, one, FOR_EVER_NS).start_ns[target] == run.start_ns[target]
        else:
            assert delayed(graph, one, slack_ns).start_ns[target] == run.start_ns[target]
            assert delayed(graph, one, slack_ns + 1).start_ns[target] > run.start_ns[target]
    assert latest_ns[target] > AFTER_ALL // 2 or latest_ns[target] >= run.end_ns[target]


@ONCE
@given(seed=st.integers(0, 2**32), is_whole=st.booleans())
def test_a_critical_path_tiles_its_time_with_what_was_critical(kernel_of, seed, is_whole):
    random = Random(seed)
    graph = random_graph(random, in_order=True)
    run = simulate(graph)
    target = random.randrange(graph.op.size)
    from_ns = -10_000 if is_whole else int(run.start_ns[target]) - random.randint(0, 20_000)
    with patch.object(wallscope.replay.simulate, "latest_ends", kernel_of("latest_ends")):
        links = CriticalPaths(run, graph).to(target, from_ns)

    starts_ns, ends_ns = links.start_ns.tolist(), links.end_ns.tolist()
    assert all(start_ns < end_ns for start_ns, end_ns in zip(starts_ns, ends_ns, strict=True))
    if run.start_ns[target] > from_ns:
        assert ends_ns == [int(run.start_ns[target]), *starts_ns[:-1]]
        assert starts_ns[-1] == from_ns
    else:
        assert not starts_ns
    for start_ns, end_ns, bound, place, next_place in zip(
        *(column.tolist() for column in links), strict=True
    ):
        kind = BOUNDS[bound]
        if start_ns == from_ns:
            continue
        if kind == Bound.OPERATION:
            assert start_ns == run.start_ns[place]
            assert end_ns <= run.end_ns[place]
        elif kind == Bound.HAND_OVER:
            own = slice(graph.producer_ptr[next_place], graph.producer_ptr[next_place + 1])
            assert start_ns == run.end_ns[place]
            assert run.start_ns[next_place] - start_ns in graph.lag_ns[own][graph.producer[own] == place]
        elif kind == Bound.LATENCY:
            assert start_ns == run.left_ns[graph.ref[place]] + graph.offset_ns[place]
        elif kind == Bound.RETURN:
            own = graph.awaited[graph.awaited_ptr[place] : graph.awaited_ptr[place + 1]]
            assert start_ns == run.end_ns[own].max()
        elif kind == Bound.PIECE:
            entered_ns = max(run.left_ns[graph.behind[place]], run.left_ns[graph.own_behind[place]])
            issued_ns = (run.left_ns[graph.ref] + graph.offset_ns)[graph.is_early & (graph.issuer == place)]
            assert start_ns == entered_ns or start_ns in issued_ns


def test_an_unblocked_call_is_left_at_once():
    graph = random_graph(Random(3), in_order=True)
    rows = [row for row in range(graph.role.size) if graph.role[row] == Role.BLOCKING]
    draft = GraphEdit(graph)
    draft.unblock(graph.call[rows].tolist())
    run = simulate(draft.graph())
    for row in rows:
        assert run.left_ns[row] == run.left_ns[graph.behind[row]]
