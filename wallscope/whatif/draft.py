"""A change of a replay graph while questions are put into it, one after the other."""

from collections.abc import Iterable, Mapping
from dataclasses import replace
from itertools import pairwise

import numpy as np

from wallscope.arrays.columns import Rows
from wallscope.arrays.lookup import are_among, flags
from wallscope.timeline.replay_graph import ReplayGraph, Role, pointers
from wallscope.timeline.spans import Times
from wallscope.timeline.stretch import ReplayWindow, Stretch


class Draft:
    """Copies of the columns of a graph that questions change; a second one scales what the first has left."""

    def __init__(self, graph: ReplayGraph) -> None:
        self.captured = graph
        self._operation_ns, self._segment_ns = graph.operation_ns.copy(), graph.segment_ns.copy()
        released = np.flatnonzero(graph.role == Role.RELEASED)
        self._segment_ns[released] = np.minimum(graph.gap_ns, graph.segment_ns)[released]
        self._is_unblocked = np.zeros(graph.role.size, np.bool_)
        self._waits: dict[int, tuple[int, ...]] = {}
        self._latency = self._dependency_latency = self._return = 1.0

    def graph(self) -> ReplayGraph:
        """Return the graph with all that was asked for."""
        graph, gap_ns = self.captured, self.captured.gap_ns
        if self._waits:
            graph = _rewired(graph, self._waits)
        lag_ns, unblocked, awaited_count = graph.lag_ns, self._is_unblocked, np.diff(graph.awaited_ptr)
        if self._dependency_latency != 1:
            lag_ns = np.where(lag_ns > 0, _scaled(lag_ns, self._dependency_latency), lag_ns)
        if self._return != 1:
            gap_ns = np.where(graph.role == Role.RELEASED, gap_ns, _scaled(gap_ns, self._return))
        return replace(
            graph,
            role=np.where(unblocked, np.int8(Role.PLAIN), graph.role),
            segment_ns=np.where(unblocked & (graph.role == Role.BLOCKING), 0, self._segment_ns),
            gap_ns=gap_ns,
            awaited_ptr=pointers(np.where(unblocked, 0, awaited_count)),
            awaited=graph.awaited[~unblocked.repeat(awaited_count)],
            latency_ns=graph.latency_ns if self._latency == 1 else _scaled(graph.latency_ns, self._latency),
            operation_ns=self._operation_ns.copy(),
            lag_ns=lag_ns,
        )

    def scale_operations(self, ops: Rows, share: float) -> None:
        """Let operations take a share of their time."""
        positions = self.captured.positions(ops)
        positions = positions[positions >= 0]
        self._operation_ns[positions] = _scaled(self._operation_ns[positions], share)

    def set_operations(self, ops: Rows, lengths_ns: Times) -> None:
        """Let operations take other times."""
        positions = self.captured.positions(ops)
        self._operation_ns[positions[positions >= 0]] = lengths_ns[positions >= 0]

    def scale_segments(self, rows: Rows, share: float) -> None:
        """Let segments take a share of their time, behind the thread that they wait for."""
        self._segment_ns[rows] = _scaled(self._segment_ns[rows], share)

    def set_segments(self, rows: range, first_ns: int) -> None:
        """Let the first of segments that stand together take another time, and the others none."""
        self._segment_ns[rows.start : rows.stop] = 0
        self._segment_ns[rows.start] = first_ns

    def unblock(self, calls: Iterable[int]) -> None:
        """Let calls that block or free memory wait for nothing."""
        graph = self.captured
        waits = np.flatnonzero(graph.role >= Role.BLOCKING)
        is_chosen = are_among(graph.call[waits], np.fromiter(calls, np.int64))
        self._is_unblocked[waits[is_chosen]] = True

    def scale_lags(self, *, latency: float = 1.0, dependency: float = 1.0, back: float = 1.0) -> None:
        """Let all launch latencies, dependency latencies and returns of calls take a share of their time."""
        self._latency *= latency
        self._dependency_latency *= dependency
        self._return *= back

    def producers(self, op: int) -> tuple[int, ...]:
        """Return what an operation waits for now, by number."""
        known = self._waits.get(op)
        return tuple(self.captured.producers(op)) if known is None else known

    def followers(self, ops: Rows) -> dict[int, list[int]]:
        """Return the operations that wait for some now, by number, each with which of those."""
        graph, chosen = self.captured, set(ops.tolist())
        positions = graph.positions(ops)
        is_chosen = flags(positions[positions >= 0], graph.end_ns.size)
        edges = np.flatnonzero(is_chosen[graph.producer])
        waiting = graph.op[np.searchsorted(graph.producer_ptr, edges, side="right") - 1]
        found: dict[int, list[int]] = {}
        for op, producer in zip(waiting.tolist(), graph.op[graph.producer[edges]].tolist(), strict=True):
            found.setdefault(op, []).append(producer)
        for op, producers in self._waits.items():
            found[op] = [one for one in producers if one in chosen]
        return {op: held_by for op, held_by in found.items() if held_by}

    def wait(self, op: int, producers: Iterable[int]) -> None:
        """Let an operation wait for these alone."""
        self._waits[op] = tuple(dict.fromkeys(producers))


def _scaled(times_ns: Times, share: float) -> Times:
    scaled: Times = np.rint(times_ns * share).astype(np.int64)
    return scaled


def _rewired(graph: ReplayGraph, waits: Mapping[int, tuple[int, ...]]) -> ReplayGraph:
    """Return the graph where some operations wait for others, new ones by the typical dependency latency."""
    positions = np.array([graph.position_of[op] for op in waits], np.int64)
    is_kept = ~flags(positions, graph.op.size).repeat(np.diff(graph.producer_ptr))
    waiting = np.arange(graph.op.size).repeat(np.diff(graph.producer_ptr))
    more: list[tuple[int, int, int]] = []
    for position, producers in zip(positions.tolist(), waits.values(), strict=True):
        own = slice(graph.producer_ptr[position], graph.producer_ptr[position + 1])
        lags = dict(zip(graph.producer[own].tolist(), graph.lag_ns[own].tolist(), strict=True))
        inside = (graph.position_of[op] for op in producers if op in graph.position_of)
        more += [(position, one, lags.get(one, graph.dependency_latency_ns)) for one in inside]
    changed = np.array(more, np.int64).reshape(-1, 3).T
    kept = (waiting[is_kept], graph.producer[is_kept], graph.lag_ns[is_kept])
    waiting, producer, lag_ns = map(np.concatenate, zip(kept, changed, strict=True))
    order = np.argsort(waiting, kind="stable")
    producer_ptr = pointers(np.bincount(waiting, minlength=graph.op.size))
    return replace(graph, producer_ptr=producer_ptr, producer=producer[order], lag_ns=lag_ns[order])


def thinking_before(window: ReplayWindow, calls: set[int]) -> Rows:
    """Return time outside calls right before segments of some calls, where another came right before."""
    found: list[int] = []
    for rows in window.pieces.rows_of.values():
        owners = [window.pieces.call[row] for row in rows]
        since: list[int] | None = None
        for row, call in zip(rows, owners, strict=True):
            if call in calls:
                found += since or []
                since = []
            elif call < 0 and since is not None:
                since.append(row)
            elif call >= 0:
                since = None
    return np.array(found, np.int64)


def next_in_stream(stretch: Stretch) -> dict[int, int]:
    """Return the operation behind each in its stream."""
    found: dict[int, int] = {}
    for own in stretch.operations.sort("start_ns", "op").partition_by("stream"):
        found |= dict(pairwise(own["op"].to_list()))
    return found
