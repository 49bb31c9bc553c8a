"""One simulation of a replay window, its critical chain, and the slack of operations."""

from enum import StrEnum
from typing import NamedTuple

import numpy as np

from wallscope.columns import Rows
from wallscope.kernels import latest_ends, simulation, views
from wallscope.replay.graph import ReplayGraph, Role
from wallscope.trace.intervals import AFTER_ALL, Times

LEAST_WAIT_NS = 2_000
"""The longest time of a blocking call without anything to wait for."""


class SimulatedRun(NamedTuple):
    """A simulated run, in ns; arrays int64.

    Attributes:
        graph: the simulated graph.
        left_ns: of each segment: its end; then the starts of threads.
        start_ns: of each operation: its start.
        end_ns: of each operation: its end; then the ends of those outside the window.
    """

    graph: ReplayGraph
    left_ns: Times
    start_ns: Times
    end_ns: Times


class HostTimes(NamedTuple):
    """How segments follow their dependencies, as input of the compiled loops.

    Attributes:
        spent_ns: int64[segments], ns; the least time from the end of the segment that each follows.
        return_ns: int64[segments], ns; from the end of the awaited operations to the end of each.
    """

    spent_ns: Times
    return_ns: Times


def list_host_times(graph: ReplayGraph) -> HostTimes:
    """Return how the segments of a graph follow their dependencies.

    A blocking call that waits takes at most `LEAST_WAIT_NS` of its own. One that did not wait in the capture
    takes its duration. A call that frees memory takes its time on an idle device.
    """
    role, segment_ns, gap_ns = graph.role, graph.segment_ns, graph.gap_ns
    has_awaited = graph.awaited_ptr[1:] > graph.awaited_ptr[:-1]
    spent_ns, return_ns = segment_ns.copy(), np.zeros(role.size, np.int64)
    released = np.flatnonzero(role == Role.RELEASED)
    spent_ns[released] = np.minimum(gap_ns, segment_ns)[released]
    releasing = np.flatnonzero(has_awaited & (role == Role.RELEASING))
    spent_ns[releasing] = return_ns[releasing] = gap_ns[releasing]
    held = np.flatnonzero(has_awaited & (role == Role.HELD))
    return_ns[held] = gap_ns[held]
    blocking = np.flatnonzero(has_awaited & (role == Role.BLOCKING))
    idle, busy = blocking[graph.is_idle[blocking]], blocking[~graph.is_idle[blocking]]
    return_ns[idle] = gap_ns[idle]
    return_ns[busy] = np.where(segment_ns[busy] > 0, gap_ns[busy], np.minimum(gap_ns[busy], 0))
    spent_ns[busy] = np.minimum(segment_ns[busy], LEAST_WAIT_NS)
    return HostTimes(spent_ns, return_ns)


def simulate(graph: ReplayGraph) -> SimulatedRun:
    """Return when everything in a graph starts and ends."""
    host, segments, operations = list_host_times(graph), graph.role.size, graph.op.size
    left_ns = np.concatenate((np.zeros(segments, np.int64), graph.thread_start_ns))
    start_ns, end_ns = np.zeros(operations, np.int64), graph.end_ns.copy()
    simulation.simulate(
        *views(
            graph.event,
            graph.behind,
            host.spent_ns,
            host.return_ns,
            graph.awaited_ptr,
            graph.awaited,
            graph.ref,
            graph.offset_ns + graph.latency_ns,
            graph.operation_ns,
            graph.producer_ptr,
            graph.producer,
            graph.lag_ns,
            graph.meeting,
            graph.member_ptr,
            graph.member,
            np.diff(graph.member_ptr),
            left_ns,
            start_ns,
            end_ns,
        )
    )
    return SimulatedRun(graph, left_ns, start_ns, end_ns)


class Bound(StrEnum):
    """The kind of a link of a critical path."""

    OPERATION = "operation"
    HAND_OVER = "hand-over"  # from the end of an operation to the start of another
    LATENCY = "launch-latency"  # from the issue of an operation to its start
    PIECE = "piece"  # a thread in a call, or outside
    RETURN = "return"  # from the end of an operation to the return of the call that waited for it
    EARLIER = "earlier"  # before the window began, or on something outside it


BOUNDS = tuple(Bound)


class CriticalLinks(NamedTuple):
    """Links of a critical path, latest first, in columns (int64).

    `bound` is an index in `BOUNDS`. `place` is the operation or the segment (index spaces of `ReplayGraph`),
    `next_place` the operation that waited for another, -1 elsewhere.
    """

    start_ns: Times
    end_ns: Times
    bound: Rows
    place: Rows
    next_place: Rows


class CriticalPaths:
    """Finds critical paths in a run.

    Args:
        run: the run.
        captured: the graph before changes. Calls that no longer block after a change still count as
            blocking here, as in the answers published so far.
    """

    def __init__(self, run: SimulatedRun, captured: ReplayGraph) -> None:
        self._run, self._captured = run, captured
        self._is_plain = (captured.role == Role.PLAIN).view(np.uint8)
        self._links = np.empty((3 * run.graph.event.size + 2, 4), np.int64)

    def to(self, operation: int, from_ns: int) -> CriticalLinks:
        """Return the links that tile the time from a moment to the start of an operation."""
        run, graph = self._run, self._run.graph
        count = latest_ends.walk_critical_path(
            *views(
                operation,
                from_ns,
                graph.behind,
                self._is_plain,
                self._captured.awaited_ptr,
                self._captured.awaited,
                graph.ref,
                graph.offset_ns,
                graph.is_early.view(np.uint8),
                graph.issuer,
                graph.producer_ptr,
                graph.producer,
                graph.lag_ns,
                run.left_ns,
                run.start_ns,
                run.end_ns,
                _KINDS,
                self._links,
            )
        )
        edge_ns = self._links[: count + 1, 0].copy()
        bound, place, next_place = self._links[1 : count + 1, 1:].T.copy()
        return CriticalLinks(edge_ns[1:], edge_ns[:-1], bound, place, next_place)


_KINDS = np.array(
    [
        *map(
            BOUNDS.index,
            (Bound.OPERATION, Bound.HAND_OVER, Bound.LATENCY, Bound.PIECE, Bound.RETURN, Bound.EARLIER),
        )
    ],
    np.int64,
)


def find_latest_ends(run: SimulatedRun, operation: int) -> Times:
    """Return how late each operation may end without delaying one that starts at that moment, in ns.

    Operations without an effect on it may end at any time: a number of about `AFTER_ALL`.
    """
    graph, host = run.graph, list_host_times(run.graph)
    found_ns = np.full(run.end_ns.size, AFTER_ALL, np.int64)
    latest_ends.find_latest_ends(
        *views(
            operation,
            int(run.start_ns[operation]),
            graph.event,
            graph.behind,
            host.spent_ns,
            host.return_ns,
            graph.awaited_ptr,
            graph.awaited,
            graph.ref,
            graph.offset_ns + graph.latency_ns,
            graph.operation_ns,
            graph.producer_ptr,
            graph.producer,
            graph.lag_ns,
            graph.meeting,
            graph.member_ptr,
            graph.member,
            AFTER_ALL,
            np.full(graph.member_ptr.size - 1, AFTER_ALL, np.int64),
            np.full(run.left_ns.size, AFTER_ALL, np.int64),
            found_ns,
        )
    )
    return found_ns[: graph.op.size]
