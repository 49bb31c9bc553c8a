"""Edits of a replay graph: a copy that questions change in turn, and capture into CUDA graphs.

A range captured into a CUDA graph needs one launch for all launches of a thread in it.
"""

import re
from collections.abc import Iterable, Mapping
from dataclasses import replace

import numpy as np

from wallscope.columns import Flags, Rows, are_among, encode_member, mark_numbers, take_or
from wallscope.model.enums import CallRole
from wallscope.replay.graph import ReplayGraph, Role, make_pointers
from wallscope.replay.windows import ReplayWindow, SimulatedSteps
from wallscope.trace.intervals import Times
from wallscope.trace.ranges import find_farthest
from wallscope.trace.repeat_unit import Shares
from wallscope.units import duration, number

_GOLDEN_SHARE = 0.6180339887498949
"""Multiples of it, without their whole part, are spread evenly over 0 to 1 however many there are."""


def leave_out_share(calls: set[int], share: float) -> set[int]:
    """Leave out a share of calls, evenly spread; what a smaller share leaves out, a larger one does too."""
    listed = np.array(sorted(calls), np.int64)
    place = np.arange(1, len(listed) + 1) * _GOLDEN_SHARE % 1
    return set(listed[place >= share].tolist())


class GraphEdit:
    """Copies of the columns of a graph that questions change; edits apply one after the other."""

    def __init__(self, graph: ReplayGraph) -> None:
        self.captured = graph
        self._operation_ns, self._segment_ns = graph.operation_ns.copy(), graph.segment_ns.copy()
        released = np.flatnonzero(graph.role == Role.RELEASED)
        self._segment_ns[released] = np.minimum(graph.gap_ns, graph.segment_ns)[released]
        self._is_unblocked = np.zeros(graph.role.size, np.bool_)
        self._waits: dict[int, tuple[int, ...]] = {}
        self._rewired = graph
        self._latency = self._dependency_latency = self._return = 1.0

    def graph(self) -> ReplayGraph:
        """Return the edited graph."""
        if self._waits and self._rewired is self.captured:
            self._rewired = _rewire(self.captured, self._waits)
        graph, gap_ns = self._rewired, self.captured.gap_ns
        segment_ns = self._segment_ns.copy()
        if self._return != 1:
            stays = np.isin(graph.role, (Role.RELEASED, Role.RELEASING))  # others go on, or memory is freed
            stays |= gap_ns < 0  # these return before their copies end
            gap_ns = np.where(stays, gap_ns, _scale(gap_ns, self._return))
        if self._is_unblocked.any():
            segment_ns[self._is_unblocked & (graph.role == Role.BLOCKING)] = 0
            graph = _unblock(graph, self._is_unblocked)
        return replace(
            graph,
            segment_ns=segment_ns,
            gap_ns=gap_ns,
            latency_ns=_scale_positive(graph.latency_ns, self._latency),
            operation_ns=self._operation_ns.copy(),
            lag_ns=_scale_positive(graph.lag_ns, self._dependency_latency),
        )

    def scale_operations(self, ops: Rows, share: float | Shares) -> None:
        """Scale the time of operations, by one share or one share each."""
        positions = self.captured.positions(ops)
        is_there = positions >= 0
        positions = positions[is_there]
        shares = np.broadcast_to(share, ops.shape)[is_there]
        self._operation_ns[positions] = _scale(self._operation_ns[positions], shares)

    def set_operations(self, ops: Rows, lengths_ns: Times) -> None:
        """Set the times of operations."""
        positions = self.captured.positions(ops)
        self._operation_ns[positions[positions >= 0]] = lengths_ns[positions >= 0]

    def scale_segments(self, rows: Rows, share: float) -> None:
        """Scale the time of segments, except time that waits for a thread."""
        self._segment_ns[rows] = _scale(self._segment_ns[rows], share)

    def set_segments(self, rows: range, first_ns: int) -> None:
        """Set the time of the first of adjacent segments, and remove the others."""
        self._segment_ns[rows.start : rows.stop] = 0
        self._segment_ns[rows.start] = first_ns

    def unblock(self, calls: Iterable[int]) -> None:
        """Remove the waits of calls that block or free memory."""
        graph = self.captured
        waits = np.flatnonzero(graph.role >= Role.BLOCKING)
        is_chosen = are_among(graph.call[waits], np.fromiter(calls, np.int64))
        self._is_unblocked[waits[is_chosen]] = True

    def scale_lags(self, *, latency: float = 1.0, dependency: float = 1.0, back: float = 1.0) -> None:
        """Scale all launch latencies, dependency latencies and return latencies of calls."""
        self._latency *= latency
        self._dependency_latency *= dependency
        self._return *= back

    def producers(self, op: int) -> tuple[int, ...]:
        """Return the current dependencies of an operation, by number."""
        known = self._waits.get(op)
        return tuple(self.captured.producers(op)) if known is None else known

    def followers(self, ops: Rows) -> dict[int, list[int]]:
        """Return the operations that now depend on some, by number, each with these dependencies."""
        graph, chosen = self.captured, set(ops.tolist())
        positions = graph.positions(ops)
        is_chosen = mark_numbers(positions[positions >= 0], graph.end_ns.size)
        edges = np.flatnonzero(is_chosen[graph.producer])
        waiting = graph.op[np.searchsorted(graph.producer_ptr, edges, side="right") - 1]
        found: dict[int, list[int]] = {}
        for op, producer in zip(waiting.tolist(), graph.op[graph.producer[edges]].tolist(), strict=True):
            found.setdefault(op, []).append(producer)
        for op, producers in self._waits.items():
            found[op] = [one for one in producers if one in chosen]
        return {op: held_by for op, held_by in found.items() if held_by}

    def wait(self, op: int, producers: Iterable[int]) -> None:
        """Replace the dependencies of an operation."""
        self._waits[op] = tuple(dict.fromkeys(producers))
        self._rewired = self.captured


def _scale(times_ns: Times, share: float | Shares) -> Times:
    scaled: Times = np.rint(times_ns * share).astype(np.int64)
    return scaled


def _scale_positive(times_ns: Times, share: float) -> Times:
    """Return scaled times; those of clocks that differ, before zero, stay."""
    return times_ns if share == 1 else np.where(times_ns > 0, _scale(times_ns, share), times_ns)


def _unblock(graph: ReplayGraph, is_unblocked: Flags) -> ReplayGraph:
    """Return the graph with some segments that wait for nothing."""
    awaited_count = np.diff(graph.awaited_ptr)
    return replace(
        graph,
        role=np.where(is_unblocked, np.int8(Role.PLAIN), graph.role),
        awaited_ptr=make_pointers(np.where(is_unblocked, 0, awaited_count)),
        awaited=graph.awaited[~is_unblocked.repeat(awaited_count)],
    )


def _rewire(graph: ReplayGraph, waits: Mapping[int, tuple[int, ...]]) -> ReplayGraph:
    """Return the graph with replaced dependencies; new ones have the typical dependency latency."""
    positions = np.array([graph.position_of[op] for op in waits], np.int64)
    is_kept = ~mark_numbers(positions, graph.op.size).repeat(np.diff(graph.producer_ptr))
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
    producer_ptr = make_pointers(np.bincount(waiting, minlength=graph.op.size))
    return replace(graph, producer_ptr=producer_ptr, producer=producer[order], lag_ns=lag_ns[order])


def find_thinking_before(window: ReplayWindow, calls: set[int]) -> Rows:
    """Return time outside calls directly before segments of some calls, after another call."""
    found: list[int] = []
    for rows in window.segments.rows_of.values():
        owners = [window.segments.call[row] for row in rows]
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


def find_next_in_stream(window: SimulatedSteps) -> dict[int, int]:
    """Return the next operation of each in its stream."""
    op, start_ns, stream = (window.operations[name].to_numpy() for name in ("op", "start_ns", "stream"))
    order = np.lexsort((op, start_ns, stream))
    follows = np.flatnonzero(stream[order[1:]] == stream[order[:-1]])
    return dict(zip(op[order[follows]].tolist(), op[order[follows + 1]].tolist(), strict=True))


_NEVER_CAPTURED = (CallRole.SYNC, CallRole.ALLOC)


_OUTSIDE = -2


def capture_graphs(
    name: str, window: SimulatedSteps, draft: GraphEdit, folded: Mapping[str, str]
) -> tuple[str, ...]:
    """Combine the launches in the ranges of a name, up to each call that waits.

    The first launch takes the time of a graph launch. All segments up to the last launch take no time: calls
    and time outside them. `folded` are the names of ranges, each without its running numbers.
    """
    inside = _inside(window, name, folded)
    cost_ns, source = _cost(window)
    call = np.asarray(window.segments.call)
    is_closed = np.isin(window.role, [encode_member(role) for role in _NEVER_CAPTURED])
    is_closed |= window.graph.role >= Role.BLOCKING
    issues = are_among(call, window.operations["call"].to_numpy()) & (call >= 0)
    graphs = launches = 0
    for rows in window.segments.rows_of.values():
        own = slice(rows.start, rows.stop)
        turns = rows.start + np.flatnonzero(is_closed[own] | issues[own])
        run: list[int] = []
        together = _OUTSIDE
        for row in [*turns.tolist(), -1]:
            is_open = row >= 0 and not is_closed[row]
            of = inside.get(window.segments.call[row], _OUTSIDE) if row >= 0 else _OUTSIDE
            if run and (not is_open or of != together):
                count = len({window.segments.call[one] for one in run})
                if count > 1:
                    graphs += 1
                    launches += count
                    draft.set_segments(range(run[0], run[-1] + 1), cost_ns)
                run = []
            if is_open and of != _OUTSIDE:
                together = of
                run.append(row)
    if not graphs:
        return (f"{name} has no two adjacent launches",)
    steps = max(len(window.steps), 1)
    before, after = (number(round(count / steps)) for count in (launches, graphs))
    made = f"{before} launches per step become {after} graphs"
    return (
        f"{made}, {duration(cost_ns)} each ({source})",
        "assumes static shapes, and no wait for the device inside",
    )


def _inside(window: SimulatedSteps, name: str, folded: Mapping[str, str]) -> dict[int, int]:
    """Return the calls that issue operations inside ranges of a name, each with its range, -1 if unclear.

    A name with `*` matches all that fit it; `*` alone is the whole step, whose number is returned.
    """
    own = window.operations
    call = own["call"].to_numpy()
    held = np.flatnonzero((call >= 0) & (window.graph.positions(own["op"].to_numpy()) >= 0))
    call, inside = call[held], own["range"].to_numpy()[held]
    if name == "*":
        begun_ns = np.sort(window.steps["issue_start_ns"].to_numpy())
        of = np.searchsorted(begun_ns, window.waits.calls.start_ns[call], side="right")
        return dict(zip(call.tolist(), of.tolist(), strict=True))
    tree = window.ranges
    tree = tree[np.argsort(tree["range"].to_numpy(), kind="stable")]
    wanted = re.compile(".*".join(map(re.escape, name.split("*"))))
    named = [text for text in folded if wanted.fullmatch(text) or wanted.fullmatch(folded[text])]
    is_named = tree["text"].is_in(named).fill_null(value=bool(wanted.fullmatch(""))).to_numpy()
    found = find_farthest(tree["parent"].to_numpy(), is_named)
    path = tree["path"].to_numpy()
    by_path = np.append(_under(window, path[is_named])[path], False)[inside]
    of = take_or(found, inside, -1)
    is_held = (of >= 0) | by_path
    return dict(zip(call[is_held].tolist(), of[is_held].tolist(), strict=True))


def _under(window: SimulatedSteps, paths: Rows) -> Flags:
    """Return which paths of ranges are some or inside them, also by work of another thread."""
    number_of, parent = (window.paths[name].to_numpy() for name in ("path", "parent"))
    found = mark_numbers(paths, int(number_of.max(initial=0)) + 1)
    for row in np.argsort(number_of, kind="stable").tolist():
        found[number_of[row]] |= parent[row] >= 0 and found[parent[row]]
    return found


def _cost(window: SimulatedSteps) -> tuple[int, str]:
    """Return the host time of a graph launch, and its source."""
    calls, own = window.waits.calls, np.asarray(window.segments.call)
    graphs, launches = (
        np.unique(own[window.role == encode_member(role)]) for role in (CallRole.GRAPH, CallRole.LAUNCH)
    )
    if graphs.size:
        lengths_ns = calls.end_ns[graphs] - calls.start_ns[graphs]
        return int(np.median(lengths_ns)), "median of the graph launches in this capture"
    lengths_ns = calls.end_ns[launches] - calls.start_ns[launches]
    return 2 * int(np.median(lengths_ns)) if launches.size else 0, "assumed as two launches"
