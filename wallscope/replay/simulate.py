"""One simulation of a replay window, its critical chain, the slack of operations, and the time of its steps.

The steps of a window take what typical steps take in a replay if the steps before them are like them. The
difference of two starts also depends on how far the host was ahead of the device before the first step. A
change alters that, so steps could get shorter while their work gets longer. So paths are measured instead. On
each rank they lead from the first operation of adjacent steps to the first operation behind them, and between
the calls that issue the two. On the busiest streams they lead from an operation to the same one of the steps
behind. So work counts that crosses the border of steps on another stream, as parameters do that the next step
needs. Steps that repeat take as long as the longest of these paths. A path that leads from the host to the
device in one step and back in another consists of parts of both. No path gets shorter if
anything takes longer.
"""

from collections.abc import Iterator, Sequence
from dataclasses import replace
from enum import StrEnum
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from wallscope.columns import Rows, expand_counts
from wallscope.kernels import latest_ends, simulation, views
from wallscope.records import dataclass
from wallscope.replay.graph import ReplayGraph, Role
from wallscope.replay.lock_holds import NO_HOLDS, LockHolds
from wallscope.thresholds.causes import FOLLOWED_STREAMS_COUNT, REPLAYED_LENGTH_SHARE
from wallscope.trace.intervals import AFTER_ALL, BEFORE_ALL, Times
from wallscope.trace.repeat_unit import Shares

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
    spent_ns, return_ns = np.empty(graph.role.size, np.int64), np.empty(graph.role.size, np.int64)
    simulation.write_host_times(
        *views(
            graph.role,
            graph.segment_ns,
            graph.gap_ns,
            graph.is_idle.view(np.uint8),
            graph.awaited_ptr,
            (Role.RELEASED, Role.BLOCKING, Role.RELEASING, Role.HELD),
            LEAST_WAIT_NS,
            spent_ns,
            return_ns,
        )
    )
    return HostTimes(spent_ns, return_ns)


def simulate(graph: ReplayGraph, host: HostTimes | None = None) -> SimulatedRun:
    """Return when everything in a graph starts and ends; `host` is what `list_host_times` returns of it."""
    return _simulate(graph, host or list_host_times(graph), NO_HOLDS, graph.behind)


def follow_holds(graph: ReplayGraph) -> ReplayGraph:
    """Return the graph with threads that wait for the holds of locks that they meet in its run."""
    if not graph.holds.awaited.size:
        return graph
    behind = graph.behind.copy()
    _simulate(graph, list_host_times(graph), graph.holds, behind)
    return graph if np.array_equal(behind, graph.behind) else replace(graph, behind=behind)


def follow_frees(graph: ReplayGraph, before: Rows) -> ReplayGraph:
    """Return the graph with calls that free memory, which wait for what was issued before them in its run.

    Those that come earlier than in the capture, relative to other threads, wait for less.

    Args:
        graph: the graph.
        before: int64[operations]; the operation before each in its stream, -1 without one in the window.
    """
    rows = np.flatnonzero(graph.role == Role.RELEASING)
    count = np.diff(graph.awaited_ptr)[rows]
    if not count.any() or graph.thread_start_ns.size < 2:
        return graph
    run = simulate(graph)
    row, nth = expand_counts(count)
    place = graph.awaited_ptr[rows[row]] + nth
    entered_ns = run.left_ns[graph.own_behind[rows[row]]]
    awaited, operations = graph.awaited[place], graph.op.size
    issued_ns = np.append(run.left_ns[graph.ref] + graph.offset_ns, BEFORE_ALL)
    earlier = np.append(before, -1)
    while True:
        known = np.minimum(awaited, operations)
        is_late = (issued_ns[known] > entered_ns) & (earlier[known] >= 0)
        if not is_late.any():
            break
        awaited = np.where(is_late, earlier[known], awaited)
    if np.array_equal(awaited, graph.awaited[place]):
        return graph
    found = graph.awaited.copy()
    found[place] = awaited
    return replace(graph, awaited=found)


def _simulate(graph: ReplayGraph, host: HostTimes, holds: LockHolds, followed: Rows) -> SimulatedRun:
    """Return the run; `followed` is set to what each segment follows that waits for one of some holds."""
    left_ns = np.concatenate((np.zeros(graph.role.size, np.int64), graph.thread_start_ns))
    start_ns, end_ns = np.zeros(graph.op.size, np.int64), graph.end_ns.copy()
    none = np.empty(0, np.int64)
    _fill(graph, host, (*holds, followed, none, none, 1), (left_ns, start_ns, end_ns))
    return SimulatedRun(graph, left_ns, start_ns, end_ns)


def _fill(
    graph: ReplayGraph, host: HostTimes, runs: tuple[Rows | int, ...], filled: tuple[Times, ...]
) -> None:
    """Simulate a graph; locks, begins and the number of `runs`, and what is `filled`, are as in the loop."""
    simulation.simulate(
        *views(
            graph.event,
            graph.behind,
            graph.own_behind,
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
            *runs,
            *filled,
        )
    )


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
                graph.own_behind,
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
            graph.own_behind,
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


_SIDE_BY_SIDE_COUNT = 8
"""Runs that are simulated together: their times of one event fill a cache line."""
_APART_NS = 1 << 46
"""Between the moments at which runs of steps begin: 19 hours, more than a window takes. By definition."""


class _Runs(NamedTuple):
    """Runs of adjacent steps of one rank.

    Attributes:
        edge: int64[runs, 2], positions of the operations that begin each run and follow it; -1 without.
        step_count: int64[runs], the steps between these.
    """

    edge: npt.NDArray[np.int64]
    step_count: Rows


class OperationPairs(NamedTuple):
    """Of each run of steps an operation and the same one of the steps behind it, on one stream.

    Attributes:
        edge: int64[runs, 2], their positions; -1 without.
        share: float64[runs], the time between the ends of the run by that between them; 0 without.
    """

    edge: npt.NDArray[np.int64]
    share: Shares


@dataclass(frozen=True, slots=True, eq=False)
class RepeatedSteps:
    """Runs of adjacent steps of a replay window, whose length with a change is measured.

    `ranks` are first the one whose steps they are, then the others. `streams` are operations of the busiest
    streams that are as far apart as the ends of each run.
    """

    ranks: tuple[_Runs, ...]
    streams: tuple["OperationPairs", ...] = ()

    def measure_once_ns(self, run: SimulatedRun) -> Shares:
        """Return the mean ns of a step of each rank in a run, which begins as the capture did.

        It is 0 without steps.
        """
        lengths_ns = np.zeros(len(self.ranks))
        for place, rank in enumerate(self.ranks):
            first_ns, behind_ns = run.start_ns[rank.edge[rank.step_count > 0]].T
            lengths_ns[place] = (behind_ns - first_ns).sum() / max(int(rank.step_count.sum()), 1)
        return lengths_ns

    def measure_until_last_ns(self, run: SimulatedRun) -> Shares:
        """Return the time from the begin of the window to the end of the last step, of each rank, in ns."""
        begin_ns = int(run.graph.thread_start_ns.min(initial=AFTER_ALL))
        lasts = [rank.edge[rank.step_count > 0, 1].max(initial=-1) for rank in self.ranks]
        ends_ns = [int(run.start_ns[last]) if last >= 0 else begin_ns for last in lasts]
        return np.maximum(np.array(ends_ns, np.float64) - begin_ns, 0)

    def measure_ns(self, graph: ReplayGraph) -> Shares:
        """Return the mean ns of a step of each rank of a graph, as if each run repeated without end.

        It is 0 without steps.
        """
        behind = np.stack([rank.edge[:, 1] for rank in self.ranks])
        step_count = np.stack([rank.step_count for rank in self.ranks])
        longest_ns = np.zeros(step_count.shape)
        ways = [
            (rank.edge, rank.step_count.astype(np.float64), is_of_calls)
            for is_of_calls in (False, True)
            for rank in self.ranks
        ]
        ways += [
            (one.edge, self.ranks[0].step_count / np.where(one.share > 0, one.share, 1), False)
            for one in self.streams
        ]
        paths = []
        for edge, steps, is_of_calls in ways:
            held = np.flatnonzero((steps > 0) & (edge >= 0).all(axis=1))
            if held.size:
                paths.append(_Paths(held, edge[held], steps[held], is_of_calls))
        host = list_host_times(graph)
        for at in range(0, len(paths), _SIDE_BY_SIDE_COUNT):
            some = paths[at : at + _SIDE_BY_SIDE_COUNT]
            for one, of_step_ns in zip(some, _measure_paths(graph, host, some, behind), strict=True):
                longest_ns[:, one.run] = np.maximum(
                    longest_ns[:, one.run], step_count[:, one.run] * of_step_ns
                )
        found: Shares = longest_ns.sum(axis=1) / np.maximum(step_count.sum(axis=1), 1)
        return found


def find_repeated_steps(
    edges: Sequence[npt.NDArray[np.int64]], operations: "StreamOperations | None" = None
) -> RepeatedSteps:
    """Return the runs of adjacent steps.

    Args:
        edges: of each rank, first the one whose steps they are: int64[steps, 2], positions of the operations
            that begin each step and the next, in order of time; -1 without.
        operations: all operations, to follow streams too.

    >>> steps, other = np.array([[0, 4], [4, 9], [12, 17]]), np.array([[1, 5], [5, 5], [5, 16]])
    >>> [(runs.edge.tolist(), runs.step_count.tolist()) for runs in find_repeated_steps([steps, other]).ranks]
    [([[0, 9], [12, 17]], [2, 1]), ([[1, 5], [5, 16]], [1, 1])]
    >>> find_repeated_steps([steps[:0]]).ranks[0].step_count.tolist()
    []
    """
    own = edges[0]
    run = np.cumsum(np.append(False, own[1:, 0] != own[:-1, 1])[: len(own)])
    ranks = tuple(_join_adjacent(one, run, int(run.max(initial=-1)) + 1) for one in edges)
    if operations is None or not len(own) or not ranks[0].step_count.all():
        return RepeatedSteps(ranks)
    return RepeatedSteps(ranks, _follow_streams(ranks[0], operations))


class StreamOperations(NamedTuple):
    """The operations of a window by position: stream and identity (numbers), start and length in ns."""

    stream: Rows
    like: Rows
    start_ns: Times
    operation_ns: Times


def _follow_streams(runs: _Runs, operations: StreamOperations) -> tuple[OperationPairs, ...]:
    """Return the first operation of each of the busiest streams in each run, and the same one behind it.

    The latter is the like operation that starts most nearly as much later as the run lasts.
    """
    begin_ns, behind_ns = operations.start_ns[runs.edge].T
    length_ns = np.maximum(behind_ns - begin_ns, 1)
    busy_ns = np.bincount(operations.stream, operations.operation_ns)
    found = []
    for stream in np.argsort(-busy_ns, kind="stable")[:FOLLOWED_STREAMS_COUNT].tolist():
        held = np.flatnonzero(operations.stream == stream)
        starts_ns = operations.start_ns[held]
        edge, share = np.full(runs.edge.shape, -1), np.zeros(len(runs.edge))
        for row, first in enumerate(np.searchsorted(starts_ns, begin_ns).tolist()):
            if first == held.size:
                continue
            behind = (
                first + 1 + np.flatnonzero(operations.like[held[first + 1 :]] == operations.like[held[first]])
            )
            later_ns = starts_ns[behind] - starts_ns[first]
            if not behind.size:
                continue
            nearest = int(np.abs(later_ns - length_ns[row]).argmin())
            apart_ns = abs(int(later_ns[nearest] - length_ns[row]))
            if apart_ns * runs.step_count[row] <= REPLAYED_LENGTH_SHARE * length_ns[row]:
                edge[row] = held[first], held[behind[nearest]]
                share[row] = length_ns[row] / later_ns[nearest]
        if share.any() and not np.array_equal(edge, runs.edge):
            found.append(OperationPairs(edge, share))
    return tuple(found)


def _join_adjacent(edge: npt.NDArray[np.int64], run: Rows, count: int) -> _Runs:
    """Return the runs of a rank from its steps and the run of each."""
    held = np.flatnonzero((edge >= 0).all(axis=1) & (edge[:, 0] < edge[:, 1]))
    begin, behind = np.full(count, np.iinfo(np.int64).max), np.full(count, -1)
    np.minimum.at(begin, run[held], edge[held, 0])
    np.maximum.at(behind, run[held], edge[held, 1])
    joined = np.column_stack([np.minimum(begin, behind), behind])
    return _Runs(joined, np.bincount(run[held], minlength=count))


class _Paths(NamedTuple):
    """Paths from the first operation of some runs of steps to the one behind each, or between their calls.

    Attributes:
        run: int64[paths], the runs.
        edge: int64[paths, 2], the positions of both operations.
        steps: float64[paths], how many steps each path leads through.
        is_of_calls: whether they lead between the issues of these operations.
    """

    run: Rows
    edge: npt.NDArray[np.int64]
    steps: Shares
    is_of_calls: bool


def _measure_paths(
    graph: ReplayGraph, host: HostTimes, ways: Sequence[_Paths], behind: Rows
) -> Iterator[Shares]:
    """Yield the longest of each path by its steps, in ns: float64[ranks, paths] of each of some ways.

    It is 0 without a path to the operation `behind` the run of the rank (int64[ranks, runs]). Each run of
    steps begins at a moment so late that no path from elsewhere reaches its end.
    """
    segments, count = graph.role.size, len(ways)
    last_ns = max(graph.end_ns.max(initial=0), graph.thread_start_ns.max(initial=0))
    most = max(one.run.size for one in ways)
    moment_ns = int(last_ns) + (1 + np.arange(most, dtype=np.int64)) * _APART_NS
    left_ns = np.zeros((segments + graph.thread_start_ns.size, count), np.int64)
    left_ns[segments:] = graph.thread_start_ns[:, None]
    start_ns, end_ns = np.zeros((graph.op.size, count), np.int64), np.repeat(graph.end_ns, count)
    begins = np.full(graph.event.size, -1, np.int64)
    rows = []
    for place, one in enumerate(ways):
        first = graph.ref[one.edge[:, 0]] if one.is_of_calls else segments + one.edge[:, 0]
        is_thread = one.is_of_calls & (first >= segments)
        left_ns[first[is_thread], place] = moment_ns[: first.size][is_thread]
        begins[first[~is_thread]] = 0
        rows.append((first[~is_thread], moment_ns[: first.size][~is_thread]))
    begun = np.flatnonzero(begins == 0)
    begins[begun] = np.arange(begun.size)
    begin_ns = np.full((begun.size, count), -1, np.int64)
    for place, (first, at_ns) in enumerate(rows):
        begin_ns[begins[first], place] = at_ns
    runs = (*NO_HOLDS, graph.behind, begins, begin_ns.ravel(), count)
    _fill(graph, host, runs, (left_ns.ravel(), start_ns.ravel(), end_ns))
    for place, one in enumerate(ways):
        times_ns, edge = (left_ns, graph.ref[one.edge]) if one.is_of_calls else (start_ns, one.edge)
        begun_ns, ended_ns = times_ns[edge, place].T
        next_op = behind[:, one.run]
        is_reached = next_op >= 0
        is_reached &= np.minimum(ended_ns, start_ns[next_op, place]) >= moment_ns[: one.run.size]
        yield np.where(is_reached, (ended_ns - begun_ns) / one.steps, 0)
