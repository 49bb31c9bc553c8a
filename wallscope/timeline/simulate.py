"""Simulate a replay window once: everything in the order of the capture, each as early as it may be."""

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from wallscope.kernels import simulation, views
from wallscope.timeline.replay_graph import ReplayGraph, Role
from wallscope.timeline.spans import Times

LEAST_WAIT_NS = 2_000
"""The longest time that a blocking call takes where nothing is left to wait for."""


class Run(NamedTuple):
    """A simulated run, in ns; arrays int64.

    Attributes:
        graph: what was simulated.
        left_ns: of each segment: its end; then the starts of threads.
        start_ns: of each operation: its start.
        end_ns: of each operation: its end; then the ends of those outside the window.
    """

    graph: ReplayGraph
    left_ns: Times
    start_ns: Times
    end_ns: Times


class HostTimes(NamedTuple):
    """How segments follow what they wait for, as the kernels take it.

    Attributes:
        spent_ns: int64[segments], ns; the least time from the end of the segment that each follows.
        return_ns: int64[segments], ns; from the end of the awaited operations to the end of each.
        is_idle: uint8[segments]; whether that counts only where they end after the call is entered.
    """

    spent_ns: Times
    return_ns: Times
    is_idle: npt.NDArray[np.uint8]


def host_times(graph: ReplayGraph) -> HostTimes:
    """Return how the segments of a graph follow what they wait for.

    A blocking call that waits takes no more than `LEAST_WAIT_NS` of its own, one that did not wait in the
    capture takes its duration. A call that frees memory takes the time that it costs on an idle device.
    """
    role, segment_ns, gap_ns = graph.role, graph.segment_ns, graph.gap_ns
    has_awaited = graph.awaited_ptr[1:] > graph.awaited_ptr[:-1]
    spent_ns, return_ns = segment_ns.copy(), np.zeros(role.size, np.int64)
    released = np.flatnonzero(role == Role.RELEASED)
    spent_ns[released] = np.minimum(gap_ns, segment_ns)[released]
    releasing = np.flatnonzero(has_awaited & (role == Role.RELEASING))
    spent_ns[releasing] = return_ns[releasing] = gap_ns[releasing]
    blocking = np.flatnonzero(has_awaited & (role == Role.BLOCKING))
    idle, busy = blocking[graph.is_idle[blocking]], blocking[~graph.is_idle[blocking]]
    return_ns[idle] = gap_ns[idle]
    return_ns[busy] = np.where(segment_ns[busy] > 0, gap_ns[busy], 0)
    spent_ns[busy] = np.minimum(segment_ns[busy], LEAST_WAIT_NS)
    is_idle = np.zeros(role.size, np.uint8)
    is_idle[idle] = 1
    return HostTimes(spent_ns, return_ns, is_idle)


def simulate(graph: ReplayGraph) -> Run:
    """Return when everything in a graph starts and ends."""
    host, segments, operations = host_times(graph), graph.role.size, graph.op.size
    left_ns = np.concatenate((np.zeros(segments, np.int64), graph.thread_start_ns))
    start_ns, end_ns = np.zeros(operations, np.int64), graph.end_ns.copy()
    simulation.simulate(
        *views(
            graph.event,
            graph.behind,
            host.spent_ns,
            host.return_ns,
            host.is_idle,
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
    return Run(graph, left_ns, start_ns, end_ns)
