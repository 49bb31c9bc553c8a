"""The lags of each step as the other steps have them: what a replay may know without being told.

A lag is the time between a cause and its effect: launch latency, hand-over, return of a blocking call,
time of a thread outside calls. Lags of several steps are alike that belong to the same thing, counted
from the begin of its step.
"""

from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np

from wallscope.columns import Flags, Rows, at_places, filled
from wallscope.grouping import groups, ordinals
from wallscope.replay.graph import ReplayGraph, Role
from wallscope.replay.simulate import Run
from wallscope.replay.window import Stretch
from wallscope.trace.intervals import Times

_NO_PIECE = -2
_USUAL_HAND_OVER_NS = 1_000
"""Between kernels of one stream that wait for each other, on the GPUs of the last ten years."""


@dataclass(frozen=True, slots=True)
class OthersLags:
    """The graph with lags as the other steps have them.

    `unmatched_share` is the share of the lags in steady steps that have no like there.
    """

    graph: ReplayGraph
    unmatched_share: float


def others_lags(stretch: Stretch) -> OthersLags:
    """Return the graph with each lag of a steady step as the median of those like it in the other ones.

    A lag without a like keeps its own time.
    """
    graph = own_lags(stretch)
    step, thing = _operations(stretch)
    ordinal = ordinals(groups(step, thing))
    latency_ns, is_lone = _of_others(step, groups(thing, ordinal), graph.latency_ns)
    count = np.diff(graph.producer_ptr)
    waiting = np.arange(thing.size).repeat(count)
    number = np.arange(waiting.size) - graph.producer_ptr[waiting]
    producer = np.append(thing, -1)[np.minimum(graph.producer, thing.size)]
    like = groups(thing[waiting], ordinal[waiting], number, producer)
    lag_ns, is_lone_edge = _of_others(step[waiting], like, graph.lag_ns)
    outside, back = _outside(stretch), _returns(stretch)
    outside_ns, is_lone_segment = _of_others(outside.step, outside.like, outside.time_ns)
    return_ns, is_lone_return = _of_others(back.step, back.like, back.time_ns)
    is_released = graph.role[outside.row] == Role.RELEASED
    segment_ns, gap_ns = graph.segment_ns.copy(), graph.gap_ns.copy()
    segment_ns[outside.row[~is_released]] = outside_ns[~is_released]
    gap_ns[outside.row[is_released]] = outside_ns[is_released]
    gap_ns[back.row] = return_ns
    lone = np.concatenate((is_lone, is_lone_edge, is_lone_segment, is_lone_return))
    told = np.concatenate((step, step[waiting], outside.step, back.step)) >= 0
    return OthersLags(
        replace(graph, latency_ns=latency_ns, lag_ns=lag_ns, segment_ns=segment_ns, gap_ns=gap_ns),
        float(lone[told].mean()) if told.any() else 0.0,
    )


def own_lags(stretch: Stretch) -> ReplayGraph:
    """Return the graph with the lags of the capture, and what they would be where they were never critical.

    A call that had nothing to wait for would return as others mostly do; kernels of which none ever waited
    for another would follow each other as they do on most devices.
    """
    graph = stretch.graph
    is_blocking = graph.role == Role.BLOCKING
    waited = is_blocking & ~graph.is_idle & (np.diff(graph.awaited_ptr) > 0)
    usual_ns = int(np.median(graph.gap_ns[waited])) if waited.any() else 0
    return replace(
        graph,
        gap_ns=np.where(is_blocking & graph.is_idle, usual_ns, graph.gap_ns),
        lag_ns=graph.lag_ns if graph.dependency_latency_ns else _unseen_lags(stretch),
    )


def _unseen_lags(stretch: Stretch) -> Times:
    """Return the lags where those of the capture are all unknown: at most a usual one in a stream."""
    graph, waits = stretch.graph, stretch.waits
    before = waits.stream_before[graph.op]
    held = np.flatnonzero(before >= 0)
    held = held[graph.lag_ns[graph.producer_ptr[held]] == 0]  # the first producer is the one before
    idle_ns = waits.start_ns[graph.op[held]] - waits.end_ns[before[held]]
    lag_ns = graph.lag_ns.copy()
    lag_ns[graph.producer_ptr[held]] = np.clip(idle_ns, 0, _USUAL_HAND_OVER_NS)
    return lag_ns


def step_lengths(stretch: Stretch, run: Run, which: str) -> Times:
    """How long the steps of a kind (a column of the steps) are in a run, in ns."""
    begun_ns = run.start_ns[stretch.edges(which)]
    lengths_ns: Times = begun_ns[:, 1] - begun_ns[:, 0]
    return lengths_ns


def _step_of(stretch: Stretch, at_ns: Times) -> Rows:
    """The number of the steady step that the host was at work for at each moment; -1 outside those."""
    is_checked = stretch.steps["checked"].to_numpy()
    begun_ns, ends_ns = (
        stretch.steps[f"issue_{edge}_ns"].to_numpy()[is_checked] for edge in ("start", "end")
    )
    row = np.searchsorted(begun_ns, at_ns, side="right") - 1
    return np.where((row >= 0) & (at_ns < np.append(ends_ns, 0)[row]), row, -1)


def _operations(stretch: Stretch) -> tuple[Rows, Rows]:
    """The step of each operation that is played, and what it is, on which stream, as a number."""
    issued_ns = stretch.waits.calls.start_ns[stretch.played["call"].to_numpy()]
    known = stretch.played["rank_id", "stream", "kind", "name", "category", "bytes"]
    return _step_of(stretch, issued_ns), groups(*map(filled, known))


class _Lags(NamedTuple):
    """Lags of pieces: which, in which step, what they are alike with in others (`like`), and how long."""

    row: Rows
    step: Rows
    like: Rows
    time_ns: Times


def _outside(stretch: Stretch) -> _Lags:
    """Time outside calls; what is alike follows the same call and is followed by the same."""
    pieces, graph = stretch.pieces, stretch.graph
    name, thread = _call_names(stretch), np.asarray(pieces.thread)
    before, behind = (np.full(name.size, _NO_PIECE) for _ in range(2))
    goes_on = thread[1:] == thread[:-1]
    before[1:][goes_on], behind[:-1][goes_on] = name[:-1][goes_on], name[1:][goes_on]
    row = np.flatnonzero(np.asarray(pieces.call) < 0)
    time_ns = np.where(graph.role == Role.RELEASED, graph.gap_ns, graph.segment_ns)
    step = _step_of(stretch, np.asarray(pieces.end_ns)[row])
    same = groups(thread[row], before[row], behind[row])
    return _Lags(row, step, groups(same, ordinals(groups(step, same))), time_ns[row])


def _returns(stretch: Stretch) -> _Lags:
    """Returns of blocking calls; what is alike is of one name."""
    graph, pieces = stretch.graph, stretch.pieces
    row = np.flatnonzero((graph.role >= Role.BLOCKING) & ~graph.is_idle)
    step = _step_of(stretch, np.asarray(pieces.end_ns)[row])
    same = groups(np.asarray(pieces.thread)[row], _call_names(stretch)[row])
    return _Lags(row, step, groups(same, ordinals(groups(step, same))), graph.gap_ns[row])


def _call_names(stretch: Stretch) -> Rows:
    """The name of the call that each piece is in, as a number; -1 outside calls."""
    return at_places(filled(stretch.call_name), np.asarray(stretch.pieces.call), -1)


def _of_others(step: Rows, group: Rows, time_ns: Times) -> tuple[Times, Flags]:
    """The median time of the same in other steps, and whether there is none; `step` is -1 for no step."""
    lone = np.ones(time_ns.size, np.bool_)
    found = time_ns.copy()
    held = np.flatnonzero(step >= 0)
    order = held[np.lexsort((time_ns[held], group[held]))]
    if not order.size:
        return found, lone
    edge = np.flatnonzero(np.diff(group[order])) + 1
    begin, size = np.concatenate(([0], edge)), np.diff(np.concatenate(([0], edge, [order.size])))
    first, many = np.repeat(begin, size), np.repeat(size, size)
    rank = np.arange(order.size) - first
    others = many - 1
    low, high = np.maximum(others - 1, 0) // 2, others // 2
    in_order_ns = np.append(time_ns[order], 0)
    middle_ns = (
        in_order_ns[np.minimum(first + low + (low >= rank), order.size)]
        + in_order_ns[np.minimum(first + high + (high >= rank), order.size)]
    ) // 2
    has = others > 0
    found[order[has]] = middle_ns[has]
    lone[order] = ~has
    return found, lone
