"""One run of a stretch of time: everything in order, each thing as early as what it waits for allows."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from itertools import islice
from typing import NamedTuple

import numpy as np

from wallscope.arrays.columns import Rows
from wallscope.timeline.order import Order, Slack
from wallscope.timeline.runs import Runs
from wallscope.timeline.spans import Numbers, Times, numbers

LEAST_WAIT_NS = 2_000
"""What a blocking call takes that has nothing to wait for, at most."""


class Others(NamedTuple):
    """Pieces or operations that take another time, and which, in ns."""

    which: Rows
    time_ns: Times

    @classmethod
    def of(cls, times_ns: Mapping[int, int]) -> "Others":
        """The same, written out."""
        count = len(times_ns)
        return cls(np.fromiter(times_ns, np.int64, count), np.fromiter(times_ns.values(), np.int64, count))


_NONE = Others.of({})


@dataclass(frozen=True, slots=True)
class Change:
    """What is played otherwise.

    Attributes:
        pieces: pieces of threads that take another time.
        operations: operations that take another time, by number; a collective without any waits for nobody.
        unblocked: blocking calls that wait for nothing.
        launch_latency, hand_over, return_latency: what these take, as a share of what they took: from the
            issue of an operation to its start, from the end of what it waits for to its start, and from
            there to the return of a blocking call.
        waits: operations, by number, that wait for others than in the capture: the numbers of those.
    """

    pieces: Others = _NONE
    operations: Others = _NONE
    unblocked: frozenset[int] = frozenset()
    launch_latency: float = 1.0
    hand_over: float = 1.0
    return_latency: float = 1.0
    waits: Mapping[int, tuple[int, ...]] = field(default_factory=dict)


class Lengths(NamedTuple):
    """How long everything takes in a run, by place.

    `since_ns` is what each operation comes after the end of the piece it refers to, if nothing else holds it;
    `lag_ns`, `return_ns` and `after_ns` lie between causes and effects.
    """

    since_ns: Times
    operation_ns: Times
    piece_ns: Times
    lag_ns: Times
    return_ns: Mapping[int, int]
    after_ns: Mapping[int, int]


class Played(NamedTuple):
    """How a run went, by place: operations start and end, pieces are left.

    The others are its `Lengths`, and who waited for whom.
    """

    start_ns: Numbers
    end_ns: Numbers
    left_ns: Numbers
    since_ns: Numbers
    operation_ns: Numbers
    piece_ns: Numbers
    lag_ns: Numbers
    return_ns: Mapping[int, int]
    after_ns: Mapping[int, int]
    first: Numbers
    more: Mapping[int, tuple[tuple[int, int], ...]]


class _Laid(NamedTuple):
    """Operations as `Runs` lay them out.

    `behind_ns` lies at least between the start of the first of a run and the start of each; `at_ns` is when
    each could start, less that, from the begin of its leg on; `whole_ns` reaches at least from the start of
    each run to its end.
    """

    behind_ns: Times
    at_ns: Times
    whole_ns: Times


class _Settled(NamedTuple):
    """When legs begin, when runs end, and when they would if their threads had come long before."""

    leg_ns: Times
    end_ns: Times
    free_ns: Times


def lengths(order: Order, change: Change, places: Rows, slack: Slack) -> Lengths:
    """What everything takes with a change, whose operations are at `places`; -1 for those not played."""
    latency_ns, lag_ns, return_ns = np.asarray(slack.latency_ns), np.asarray(slack.lag_ns), slack.return_ns
    if change.launch_latency != 1:
        latency_ns = _scaled(latency_ns, change.launch_latency)
    if change.hand_over != 1:
        lag_ns = np.where(lag_ns > 0, _scaled(lag_ns, change.hand_over), lag_ns)
    if change.return_latency != 1:
        return_ns = {row: round(ns * change.return_latency) for row, ns in return_ns.items()}
    operation_ns, piece_ns = np.array(order.operation_ns, np.int64), np.array(order.piece_ns, np.int64)
    operation_ns[places[places >= 0]] = change.operations.time_ns[places >= 0]
    piece_ns[change.pieces.which] = change.pieces.time_ns
    since_ns = np.asarray(order.offset_ns) + latency_ns
    return Lengths(since_ns, operation_ns, piece_ns, lag_ns, return_ns, slack.after_ns)


def _scaled(times_ns: Times, share: float) -> Times:
    scaled: Times = np.rint(times_ns * share).astype(np.int64)
    return scaled


def play(order: Order, runs: Runs, told: Lengths, unblocked: frozenset[int]) -> Played:
    """Go through an order once."""
    along_ns = order.legs.along_ns(told.piece_ns)
    laid = _laid(order, runs, told, along_ns)
    settled = _settled(order, runs, told, laid, along_ns, unblocked)
    least_ns = laid.at_ns + settled.leg_ns[runs.leg][runs.run]
    least_ns[runs.head] = np.maximum(least_ns[runs.head], settled.free_ns - laid.whole_ns)
    start_ns, end_ns = np.empty(runs.run.size, np.int64), np.array(order.captured_end_ns, np.int64)
    start_ns[runs.layout] = runs.latest(least_ns) + laid.behind_ns
    end_ns[: start_ns.size] = start_ns + told.operation_ns
    met = [run for members in runs.members for run in members]
    end_ns[runs.layout[runs.head[met]]] = settled.end_ns[met]
    return Played(
        numbers(start_ns),
        numbers(end_ns),
        numbers(order.legs.left_ns(along_ns, settled.leg_ns)),
        numbers(told.since_ns),
        numbers(told.operation_ns),
        numbers(told.piece_ns),
        numbers(told.lag_ns),
        told.return_ns,
        told.after_ns,
        order.first,
        order.more,
    )


def starts(order: Order, runs: Runs, told: Lengths, unblocked: frozenset[int], places: Rows) -> list[int]:
    """When operations at some places start, as `play` tells it of all."""
    along_ns = order.legs.along_ns(told.piece_ns)
    laid = _laid(order, runs, told, along_ns)
    settled = _settled(order, runs, told, laid, along_ns, unblocked)
    found = []
    for at in runs.position[places].tolist():
        run = runs.run[at]
        issued_ns = settled.leg_ns[runs.leg[run]] + laid.at_ns[runs.head[run] : at + 1].max()
        free_ns = settled.free_ns[run] - laid.whole_ns[run]
        found.append(int(max(issued_ns, free_ns) + laid.behind_ns[at]))
    return found


def _laid(order: Order, runs: Runs, told: Lengths, along_ns: Times) -> _Laid:
    layout, head = runs.layout, runs.head
    took_ns = told.operation_ns[layout]
    behind_ns = told.lag_ns[layout]
    behind_ns[1:] += took_ns[:-1]
    behind_ns[head] = 0
    behind_ns = np.cumsum(behind_ns)
    behind_ns -= behind_ns[head][runs.run]
    at_ns = order.legs.since_ns(along_ns, runs.refers) + told.since_ns[layout] - behind_ns
    last = np.append(head[1:], layout.size)[: head.size] - 1
    return _Laid(behind_ns, at_ns, behind_ns[last] + took_ns[last])


def _settled(  # noqa: PLR0913, PLR0917  # these settle it together
    order: Order, runs: Runs, told: Lengths, laid: _Laid, along_ns: Times, unblocked: frozenset[int]
) -> _Settled:
    """Settle legs and runs one after the other, in the order in which they came in the capture."""
    legs, count, whole_ns = order.legs, runs.head.size, laid.whole_ns
    leg_ns = [*order.thread_start_ns, *([0] * (len(legs.waiting) + 1))]
    end_ns, free_ns = [0] * count + runs.known_ns, [0] * count
    missing = [len(members) for members in runs.members]
    issued_ns = np.maximum.reduceat(laid.at_ns, runs.head) + whole_ns if count else whole_ns
    handed_ns = told.lag_ns[runs.layout[runs.head]] + whole_ns
    more_ns = told.lag_ns[runs.further_lag] + whole_ns[runs.further_run]
    further = zip(runs.further, more_ns.tolist(), strict=True)
    columns = (runs.first, handed_ns.tolist(), runs.further_count, runs.meets)
    turns = zip(range(count), runs.leg.tolist(), issued_ns.tolist(), *columns, strict=True)
    waiting = legs.waiting.tolist()
    behind_leg = legs.leg[legs.behind].tolist()
    behind_ns = legs.since_ns(along_ns, legs.behind).tolist()
    done = 0
    for place, until in enumerate([*runs.before_leg, count]):
        for run, leg, own_ns, source, lag_ns, further_count, meeting in islice(turns, until - done):
            free = end_ns[source] + lag_ns
            for one, ns in islice(further, further_count) if further_count else ():
                other = end_ns[one] + ns
                if other > free:  # noqa: PLR1730  # a call of max takes longer
                    free = other
            at_ns = leg_ns[leg] + own_ns
            free_ns[run] = free
            end_ns[run] = at_ns if at_ns > free else free  # noqa: FURB136
            if meeting >= 0:
                missing[meeting] -= 1
                if not missing[meeting]:
                    _complete(runs.members[meeting], end_ns, whole_ns)
        done = until
        if place < len(waiting):
            entered_ns = leg_ns[behind_leg[place]] + behind_ns[place]
            done_ns = max((end_ns[one] for one in runs.awaited[place]), default=None)
            leg_ns[legs.thread_count + place] = _left_ns(
                waiting[place], entered_ns, done_ns, order, told, unblocked
            )
    return _Settled(*(np.array(times_ns, np.int64) for times_ns in (leg_ns, end_ns, free_ns)))


def _complete(members: list[int], end_ns: list[int], whole_ns: Times) -> None:
    """End a collective whose last participant has come."""
    took_ns = whole_ns[members].tolist()
    came_ns = max(end_ns[member] - ns for member, ns in zip(members, took_ns, strict=True))
    for member, ns in zip(members, took_ns, strict=True):
        if ns:
            end_ns[member] = came_ns + ns


def _left_ns(  # noqa: PLR0913, PLR0917  # these tell it together
    row: int, behind_ns: int, done_ns: int | None, order: Order, told: Lengths, unblocked: frozenset[int]
) -> int:
    """When a thread leaves a piece in which it waits, behind another that ended at `behind_ns`.

    `done_ns` is the end of what a call waits for, `None` if that is nothing.
    """
    length_ns = int(told.piece_ns[row])
    if row in order.released:
        return behind_ns + min(told.after_ns[row], length_ns)
    call, _, is_releasing, is_idle, _ = order.awaited[row]
    if call in unblocked:
        return behind_ns + (length_ns if is_releasing else 0)
    if done_ns is None:
        return behind_ns + length_ns
    return_ns = told.return_ns[row]
    if is_releasing:
        return max(behind_ns, done_ns) + return_ns
    if is_idle:
        return max(behind_ns + length_ns, done_ns + (return_ns if done_ns > behind_ns else 0))
    return max(behind_ns + min(length_ns, LEAST_WAIT_NS), done_ns + (return_ns if length_ns else 0))
