"""One run of a stretch of time: everything in order, each thing as early as what it waits for allows."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

BEFORE_ALL = -(2**62)
LEAST_WAIT_NS = 2_000
"""What a blocking call takes that has nothing to wait for, at most."""


@dataclass(frozen=True, slots=True)
class Change:
    """What is played otherwise.

    Attributes:
        pieces: pieces of threads that take another time, and which, in ns.
        operations: operations that take another time, by number; a collective without any waits for nobody.
        unblocked: blocking calls that wait for nothing.
        launch_latency, hand_over, return_latency: what these take, as a share of what they took: from the
            issue of an operation to its start, from the end of what it waits for to its start, and from
            there to the return of a blocking call.
        waits: operations, by number, that wait for others than in the capture: the numbers of those.
    """

    pieces: Mapping[int, int] = field(default_factory=dict)
    operations: Mapping[int, int] = field(default_factory=dict)
    unblocked: frozenset[int] = frozenset()
    launch_latency: float = 1.0
    hand_over: float = 1.0
    return_latency: float = 1.0
    waits: Mapping[int, tuple[int, ...]] = field(default_factory=dict)


class Awaited(NamedTuple):
    """What a piece waits for at its end: places of operations, empty if it just takes its time.

    `return_ns` reaches from their end in the capture to the return of the call; of a call that gives memory
    back it is what that costs on an idle device. `is_idle`: they had ended before the call was entered.
    """

    call: int
    places: tuple[int, ...]
    is_releasing: bool
    is_idle: bool
    return_ns: int


class Slack(NamedTuple):
    """What lies between causes and effects, in ns.

    `latency_ns` of each operation from its issue to its start; `lag_ns` behind the first producer of each
    operation, then behind the further ones; `return_ns` by piece, `after_ns` of pieces that go on after one
    of another thread.
    """

    latency_ns: list[int]
    lag_ns: list[int]
    return_ns: Mapping[int, int]
    after_ns: Mapping[int, int]


class Order(NamedTuple):
    """Everything that a run goes through; operations and pieces are called by their places.

    Attributes:
        events: pieces, and operations counted on behind them, in the order in which they came.
        before: the piece before each piece of its thread; behind all pieces stand the starts of threads.
        thread_start_ns: those starts.
        piece_ns: how long each piece takes.
        released: pieces that go on after a piece of another thread, and which that is.
        awaited: pieces in which a call waits.
        is_special: whether a piece is one of either.
        ref: the piece at whose end each operation is issued, or rather `offset_ns` later.
        row: the piece that issues it, which `is_early` ones do not wait for.
        operation_ns: how long each operation takes; a matched collective from when all have come.
        first, more: what each operation waits for: places, the further ones with that of their lag.
        meets: the collective of each operation, -1 without partners.
        members: places of the partners of each collective.
        captured_end_ns: of all operations, those that are waited for and not played behind the others.
        slack: what lay between causes and effects in the capture.
    """

    events: list[int]
    before: list[int]
    thread_start_ns: list[int]
    piece_ns: list[int]
    released: Mapping[int, int]
    awaited: Mapping[int, Awaited]
    is_special: list[bool]
    ref: list[int]
    row: list[int]
    is_early: list[bool]
    offset_ns: list[int]
    operation_ns: list[int]
    first: list[int]
    more: list[tuple[tuple[int, int], ...]]
    meets: list[int]
    members: list[list[int]]
    captured_end_ns: list[int]
    slack: Slack


class Played(NamedTuple):
    """How a run went, by place: operations start and end, pieces are left.

    `since_ns` is what each operation comes after the end of the piece it refers to, if nothing else holds it;
    `lag_ns`, `return_ns` and `after_ns` lay between causes and effects, `first` and `more` tell who waited
    for whom.
    """

    start_ns: list[int]
    end_ns: list[int]
    left_ns: list[int]
    since_ns: list[int]
    latency_ns: list[int]
    operation_ns: list[int]
    piece_ns: list[int]
    lag_ns: list[int]
    return_ns: Mapping[int, int]
    after_ns: Mapping[int, int]
    first: list[int]
    more: list[tuple[tuple[int, int], ...]]


def play(order: Order, change: Change, operations: Mapping[int, int], slack: Slack) -> Played:
    """Go through an order once; `operations` are those of the change by place, its waits are the order's."""
    latency_ns = _scaled(slack.latency_ns, change.launch_latency)
    lag_ns = slack.lag_ns
    if change.hand_over != 1:
        lag_ns = [round(lag * change.hand_over) if lag > 0 else lag for lag in lag_ns]
    return_ns = slack.return_ns
    if change.return_latency != 1:
        return_ns = {row: round(ns * change.return_latency) for row, ns in return_ns.items()}
    operation_ns, piece_ns = list(order.operation_ns), list(order.piece_ns)
    for place, length_ns in operations.items():
        operation_ns[place] = length_ns
    for row, length_ns in change.pieces.items():
        piece_ns[row] = length_ns
    since_ns = [offset + latency for offset, latency in zip(order.offset_ns, latency_ns, strict=True)]
    played = Played(
        start_ns=[0] * len(order.ref),
        end_ns=list(order.captured_end_ns),
        left_ns=[0] * len(order.piece_ns) + order.thread_start_ns,
        since_ns=since_ns,
        latency_ns=latency_ns,
        operation_ns=operation_ns,
        piece_ns=piece_ns,
        lag_ns=lag_ns,
        return_ns=return_ns,
        after_ns=slack.after_ns,
        first=order.first,
        more=order.more,
    )
    _run(order, change.unblocked, played)
    return played


def _scaled(times_ns: list[int], share: float) -> list[int]:
    return times_ns if share == 1 else [round(time_ns * share) for time_ns in times_ns]


def _run(order: Order, unblocked: frozenset[int], played: Played) -> None:
    """Settle the times; nearly all of the time of an answer is spent here."""
    start_ns, end_ns, left_ns, since_ns, _, operation_ns, piece_ns, lag_ns, _, _, first, more = played
    ref, before, meets, is_special = order.ref, order.before, order.meets, order.is_special
    row_count = len(order.piece_ns)
    missing = [len(members) for members in order.members]
    for event in order.events:
        if event < row_count:
            if is_special[event]:
                left_ns[event] = _left_ns(event, order, unblocked, played)
            else:
                left_ns[event] = left_ns[before[event]] + piece_ns[event]
            continue
        place = event - row_count
        at_ns = left_ns[ref[place]] + since_ns[place]
        free_ns = end_ns[first[place]] + lag_ns[place]
        if free_ns > at_ns:  # noqa: PLR1730  # a call of max takes twice as long
            at_ns = free_ns
        for producer, lag_place in more[place]:
            free_ns = end_ns[producer] + lag_ns[lag_place]
            at_ns = max(at_ns, free_ns)
        start_ns[place] = at_ns
        end_ns[place] = at_ns + operation_ns[place]
        meeting = meets[place]
        if meeting >= 0:
            missing[meeting] -= 1
            if not missing[meeting]:
                _complete(order.members[meeting], played)


def _complete(members: list[int], played: Played) -> None:
    """End a collective whose last participant has come."""
    came_ns = max(played.start_ns[member] for member in members)
    for member in members:
        if played.operation_ns[member]:
            played.end_ns[member] = came_ns + played.operation_ns[member]


def _left_ns(row: int, order: Order, unblocked: frozenset[int], played: Played) -> int:
    """When a thread leaves a piece in which it waits."""
    length_ns = played.piece_ns[row]
    if row in order.released:
        return played.left_ns[order.released[row]] + min(played.after_ns[row], length_ns)
    entered_ns = played.left_ns[order.before[row]]
    call, places, is_releasing, is_idle, _ = order.awaited[row]
    if call in unblocked:
        return entered_ns + (length_ns if is_releasing else 0)
    if not places:
        return entered_ns + length_ns
    done_ns = max(played.end_ns[place] for place in places)
    return_ns = played.return_ns[row]
    if is_releasing:
        return max(entered_ns, done_ns) + return_ns
    if is_idle:
        return max(entered_ns + length_ns, done_ns + (return_ns if done_ns > entered_ns else 0))
    return max(entered_ns + min(length_ns, LEAST_WAIT_NS), done_ns + (return_ns if length_ns else 0))
