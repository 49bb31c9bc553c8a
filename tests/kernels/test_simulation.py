"""Simulated graphs, changed ones too, against a plain loop over the events of the capture."""

from itertools import pairwise
from random import Random
from unittest.mock import patch

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import wallscope.replay.simulate
from tests.kernels.graphs import array, random_graph
from wallscope.replay.edits import GraphEdit
from wallscope.replay.graph import Role
from wallscope.replay.simulate import LEAST_WAIT_NS, simulate


class Asked:
    """A random change, by segment and by operation."""

    def __init__(self, random, graph):
        segments, operations = range(graph.role.size), range(graph.op.size)
        self.segment_ns = {one: random.choice((0, 700, 3_000)) for one in segments if random.random() < 0.3}
        self.operation_ns = {
            one: random.choice((0, 700, 3_000)) for one in operations if random.random() < 0.3
        }
        self.unblocked = {call for call in range(4) if random.random() < 0.1}
        self.latency, self.dependency, self.back = (random.choice((1.0, 1.0, 0.0, 0.5)) for _ in range(3))
        self.waits = {
            one: [random.choice(operations) for _ in range(random.randint(0, 2))]
            for one in operations
            if random.random() < 0.1
        }

    def draft(self, graph):
        draft = GraphEdit(graph)
        for segment, time_ns in self.segment_ns.items():
            draft.set_segments(range(segment, segment + 1), time_ns)
        for operation, time_ns in self.operation_ns.items():
            draft.set_operations(graph.op[[operation]], array([time_ns]))
        draft.unblock(self.unblocked)
        draft.scale_lags(latency=self.latency, dependency=self.dependency, back=self.back)
        for operation, producers in self.waits.items():
            draft.wait(int(graph.op[operation]), graph.op[producers].tolist())
        return draft


def one_by_one(graph, asked):
    """Starts and ends of operations and ends of segments, each event in the order of the capture."""
    segments, operations = graph.role.size, graph.op.size
    start_ns, end_ns = [0] * operations, graph.end_ns.tolist()
    left_ns = [0] * segments + graph.thread_start_ns.tolist()
    members = [graph.member[slice(*edges)].tolist() for edges in pairwise(graph.member_ptr.tolist())]
    missing = list(map(len, members))
    length_ns = dict(enumerate(graph.operation_ns.tolist())) | asked.operation_ns
    for event in graph.event.tolist():
        if event < segments:
            left_ns[event] = _left_ns(event, graph, asked, left_ns, end_ns)
            continue
        one = event - segments
        latency_ns = round(graph.latency_ns[one] * asked.latency)
        since = [left_ns[graph.ref[one]] + graph.offset_ns[one] + latency_ns]
        since += [end_ns[producer] + lag_ns for producer, lag_ns in _producers(one, graph, asked)]
        start_ns[one] = max(since)
        end_ns[one] = start_ns[one] + length_ns[one]
        if graph.meeting[one] >= 0:
            missing[graph.meeting[one]] -= 1
            if not missing[graph.meeting[one]]:
                own = members[graph.meeting[one]]
                came_ns = max(start_ns[member] for member in own)
                for member in own:
                    if length_ns[member]:
                        end_ns[member] = came_ns + length_ns[member]
    return start_ns, end_ns, left_ns


def _producers(one, graph, asked):
    own = slice(graph.producer_ptr[one], graph.producer_ptr[one + 1])
    lags = list(zip(graph.producer[own].tolist(), graph.lag_ns[own].tolist(), strict=True))
    if one in asked.waits:
        known = dict(lags)
        lags = [
            (producer, known.get(producer, graph.dependency_latency_ns))
            for producer in dict.fromkeys(asked.waits[one])
        ]
    return [(producer, round(ns * asked.dependency) if ns > 0 else ns) for producer, ns in lags]


def _left_ns(row, graph, asked, left_ns, end_ns):  # noqa: PLR0911  # plain
    length_ns = asked.segment_ns.get(row, int(graph.segment_ns[row]))
    entered_ns = max(left_ns[graph.behind[row]], left_ns[graph.own_behind[row]])
    role = graph.role[row]
    if role == Role.RELEASED:
        return entered_ns + min(int(graph.gap_ns[row]), length_ns)
    if role == Role.PLAIN:
        return entered_ns + length_ns
    if graph.call[row] in asked.unblocked:
        return entered_ns + (0 if role == Role.BLOCKING else length_ns)
    awaited = graph.awaited[graph.awaited_ptr[row] : graph.awaited_ptr[row + 1]].tolist()
    if not awaited:
        return entered_ns + length_ns
    done_ns, gap_ns = max(end_ns[place] for place in awaited), round(graph.gap_ns[row] * asked.back)
    if role == Role.RELEASING:
        return max(entered_ns, done_ns) + int(graph.gap_ns[row])  # that is the time of freeing
    if graph.is_idle[row] or role == Role.HELD:
        return max(entered_ns + length_ns, done_ns + gap_ns)
    back_ns = gap_ns if length_ns else 0
    return max(entered_ns + min(length_ns, LEAST_WAIT_NS), done_ns + back_ns)


@settings(max_examples=200, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(seed=st.integers(0, 2**32))
def test_a_changed_graph_is_simulated_as_one_event_after_the_other(kernel_of, seed):
    random = Random(seed)
    graph = random_graph(random, in_order=False)
    asked = Asked(random, graph)

    with patch.object(wallscope.replay.simulate, "simulation", kernel_of("simulation")):
        run = simulate(asked.draft(graph).graph())

    found = tuple(times_ns.tolist() for times_ns in (run.start_ns, run.end_ns, run.left_ns))
    assert found == one_by_one(graph, asked)


def test_operations_that_wait_for_changed_ones_are_found():
    """Followers as they are, and once an operation waits for others."""
    for seed in range(50):
        random = Random(seed)
        graph = random_graph(random, in_order=False)
        asked = Asked(random, graph)
        asked.unblocked = set()
        draft = asked.draft(graph)
        chosen = set(random.sample(graph.op.tolist(), graph.op.size // 2))
        expected = {op: [one for one in draft.producers(op) if one in chosen] for op in graph.op.tolist()}
        expected = {op: held_by for op, held_by in expected.items() if held_by}
        assert draft.followers(array(chosen)) == expected


def test_a_graph_that_was_made_before_a_change_of_dependencies_is_made_again():
    """Each change counts, also one after the graph was asked for, and nothing else changes it."""
    for seed in range(50):
        random = Random(seed)
        graph = random_graph(random, in_order=False)
        late, at_once = GraphEdit(graph), GraphEdit(graph)
        for operation, producers in Asked(random, graph).waits.items():
            late.graph()
            for draft in (late, at_once):
                draft.wait(int(graph.op[operation]), graph.op[producers].tolist())
        late.graph()
        found, expected = late.graph(), at_once.graph()
        for name in ("producer_ptr", "producer", "lag_ns"):
            assert getattr(found, name).tolist() == getattr(expected, name).tolist()


def test_dependencies_inside_a_window_are_those_of_its_edges():
    for seed in range(50):
        graph = random_graph(Random(seed), in_order=False)
        for position, (begin, end) in enumerate(pairwise(graph.producer_ptr.tolist())):
            inside = [one for one in graph.producer[begin:end].tolist() if one < graph.op.size]
            assert graph.producers(int(graph.op[position])) == graph.op[inside].tolist()
