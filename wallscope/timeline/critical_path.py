"""A simulated run from its end: which chain of constraints was critical, and the slack of operations."""

from enum import StrEnum
from typing import NamedTuple

import numpy as np

from wallscope.arrays.columns import Rows
from wallscope.kernels import latest_ends, views
from wallscope.timeline.replay_graph import ReplayGraph, Role
from wallscope.timeline.simulate import Run, host_times
from wallscope.timeline.spans import AFTER_ALL, Times


class Bound(StrEnum):
    """What a link of a critical path is."""

    OPERATION = "operation"
    HAND_OVER = "hand-over"  # from the end of an operation to the start of another
    LATENCY = "launch-latency"  # from the issue of an operation to its start
    PIECE = "piece"  # a thread in a call, or outside
    RETURN = "return"  # from the end of an operation to the return of the call that waited for it
    EARLIER = "earlier"  # before the window began, or on what is not in it


BOUNDS = tuple(Bound)


class Links(NamedTuple):
    """Links of a critical path, latest first, in columns (int64).

    `bound` counts in `BOUNDS`, `place` is the operation or the segment (index spaces of `ReplayGraph`),
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
        captured: the graph before it was changed. Calls that a change keeps from blocking still count as
            blocking here, which the answers published so far rest on.
    """

    def __init__(self, run: Run, captured: ReplayGraph) -> None:
        self._run, self._captured = run, captured
        self._is_plain = (captured.role == Role.PLAIN).view(np.uint8)
        self._links = np.empty((3 * run.graph.event.size + 2, 4), np.int64)

    def to(self, operation: int, from_ns: int) -> Links:
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
        return Links(edge_ns[1:], edge_ns[:-1], bound, place, next_place)


_KINDS = np.array(
    [
        *map(
            BOUNDS.index,
            (Bound.OPERATION, Bound.HAND_OVER, Bound.LATENCY, Bound.PIECE, Bound.RETURN, Bound.EARLIER),
        )
    ],
    np.int64,
)


def latest_ends_ns(run: Run, operation: int) -> Times:
    """Return how late each operation may end without holding up one that starts where it does, in ns.

    What that one does not wait for may end at any time: a number of about `AFTER_ALL`.
    """
    graph, host = run.graph, host_times(run.graph)
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
