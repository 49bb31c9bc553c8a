"""The lags of each step as the other steps have them: what a replay may know without being told.

A lag is the time between a cause and its effect: launch latency, hand-over, return of a blocking call,
time of a thread outside calls. Lags of several steps are alike that belong to the same thing, counted
from the begin of its step.
"""

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from wallscope.arrays.columns import Flags, Rows, filled
from wallscope.arrays.groups import groups, ordinals
from wallscope.arrays.lookup import are_among, at_places
from wallscope.timeline.order import Order, Slack
from wallscope.timeline.play import Change, Others, Played
from wallscope.timeline.spans import Numbers, Times, numbers
from wallscope.timeline.stretch import Stretch

_NO_PIECE = -2
_USUAL_HAND_OVER_NS = 1_000
"""Between kernels of one stream that wait for each other, on the GPUs of the last ten years."""


@dataclass(frozen=True, slots=True)
class OthersLags:
    """Lags as the other steps have them, and the share of those in steady steps that have no like there."""

    change: Change
    slack: Slack
    unmatched_share: float


def others_lags(stretch: Stretch) -> OthersLags:
    """Each lag of a steady step as the median of those like it in the other steady steps.

    A lag without a like keeps its own time.
    """
    slack, order = own_lags(stretch), stretch.replay.order
    step, thing = _operations(stretch)
    ordinal = ordinals(groups(step, thing))
    latency_ns, is_lone = _of_others(step, groups(thing, ordinal), np.asarray(slack.latency_ns))
    edge = _edges(order, thing.size)
    producer = np.append(thing, -1)[np.minimum(edge.producer, thing.size)]
    like = groups(thing[edge.place], ordinal[edge.place], edge.number, producer)
    lag_ns = np.array(slack.lag_ns, np.int64)
    lag_ns[edge.lag], is_lone_edge = _of_others(step[edge.place], like, lag_ns[edge.lag])
    outside, back = _outside(stretch), _returns(stretch)
    outside_ns, is_lone_piece = _of_others(outside.step, outside.like, outside.time_ns)
    return_ns, is_lone_return = _of_others(back.step, back.like, back.time_ns)
    is_after = are_among(outside.row, np.fromiter(slack.after_ns, np.int64))
    after_ns = zip(outside.row[is_after].tolist(), outside_ns[is_after].tolist(), strict=True)
    lone = np.concatenate((is_lone, is_lone_edge, is_lone_piece, is_lone_return))
    told = np.concatenate((step, step[edge.place], outside.step, back.step)) >= 0
    return OthersLags(
        Change(pieces=Others(outside.row[~is_after], outside_ns[~is_after])),
        Slack(
            numbers(latency_ns),
            numbers(lag_ns),
            {**slack.return_ns, **dict(zip(back.row.tolist(), return_ns.tolist(), strict=True))},
            {**slack.after_ns, **dict(after_ns)},
        ),
        float(lone[told].mean()) if told.any() else 0.0,
    )


class _Edges(NamedTuple):
    """Who waits for whom, by place: where the lag stands, and the how-manieth producer it is."""

    lag: Rows
    place: Rows
    number: Rows
    producer: Rows


def _edges(order: Order, count: int) -> _Edges:
    first = np.asarray(order.first)
    own = np.flatnonzero(first != count)
    further = [
        (lag, place, number, producer)
        for place, more in order.more.items()
        for number, (producer, lag) in enumerate(more, start=1)
    ]
    firsts = np.column_stack((own, own, np.zeros(own.size, np.int64), first[own]))
    return _Edges(*np.concatenate((firsts, np.array(further, np.int64).reshape(-1, 4))).T)


def own_lags(stretch: Stretch) -> Slack:
    """The lags of the capture, and what they would be where they never bound.

    A call that had nothing to wait for would return as others mostly do; kernels of which none ever waited
    for another would follow each other as they do on most devices.
    """
    order = stretch.replay.order
    waited = [
        order.slack.return_ns[row]
        for row, one in order.awaited.items()
        if one.places and not one.is_idle and not one.is_releasing
    ]
    usual_ns = int(np.median(waited)) if waited else 0
    idle = {row: usual_ns for row, one in order.awaited.items() if one.is_idle and not one.is_releasing}
    told = order.slack._replace(return_ns={**order.slack.return_ns, **idle})
    return told if stretch.replay.hand_over_ns else told._replace(lag_ns=_unseen_hand_overs(stretch))


def _unseen_hand_overs(stretch: Stretch) -> Numbers:
    """The lags behind producers where those of the capture are all unknown: a usual one, if that is less."""
    replay, waits = stretch.replay, stretch.waits
    lag_ns = list(replay.order.slack.lag_ns)
    for place, op in enumerate(replay.ops):
        before = int(waits.order.predecessor[op])
        if not lag_ns[place] and before >= 0:
            lag_ns[place] = min(_USUAL_HAND_OVER_NS, max(waits.start_ns[op] - waits.end_ns[before], 0))
    return numbers(np.array(lag_ns, np.int64))


def step_lengths(stretch: Stretch, played: Played, which: str) -> Times:
    """How long the steps of a kind (a column of the steps) are in a run, in ns."""
    begun_ns = np.asarray(played.start_ns)[stretch.edges(which)]
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
    pieces, after_ns = stretch.pieces, stretch.replay.order.slack.after_ns
    name, thread = _call_names(stretch), np.asarray(pieces.thread)
    before, behind = (np.full(name.size, _NO_PIECE) for _ in range(2))
    goes_on = thread[1:] == thread[:-1]
    before[1:][goes_on], behind[:-1][goes_on] = name[:-1][goes_on], name[1:][goes_on]
    row = np.flatnonzero(np.asarray(pieces.call) < 0)
    time_ns = np.asarray(pieces.end_ns) - np.asarray(pieces.start_ns)
    time_ns[np.fromiter(after_ns, np.int64)] = np.fromiter(after_ns.values(), np.int64)
    step = _step_of(stretch, np.asarray(pieces.end_ns)[row])
    same = groups(thread[row], before[row], behind[row])
    return _Lags(row, step, groups(same, ordinals(groups(step, same))), time_ns[row])


def _returns(stretch: Stretch) -> _Lags:
    """Returns of blocking calls; what is alike is of one name."""
    order, pieces = stretch.replay.order, stretch.pieces
    return_ns = order.slack.return_ns
    row = np.array([row for row in return_ns if not order.awaited[row].is_idle], np.int64)
    step = _step_of(stretch, np.asarray(pieces.end_ns)[row])
    same = groups(np.asarray(pieces.thread)[row], _call_names(stretch)[row])
    time_ns = np.array([return_ns[one] for one in row.tolist()], np.int64)
    return _Lags(row, step, groups(same, ordinals(groups(step, same))), time_ns)


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
