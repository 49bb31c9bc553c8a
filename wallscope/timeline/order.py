"""Everything that a run of a stretch of time goes through, and what lies between causes and effects there."""

from collections.abc import Mapping
from typing import NamedTuple

from wallscope.timeline.legs import Legs
from wallscope.timeline.spans import Numbers


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

    latency_ns: Numbers
    lag_ns: Numbers
    return_ns: Mapping[int, int]
    after_ns: Mapping[int, int]


class Order(NamedTuple):
    """Everything that a run goes through; operations and pieces are called by their places.

    Attributes:
        legs: how pieces follow each other.
        settled_ns: when each piece has ended in the capture, but not before what it waits for has begun.
        begun_ns: when each operation started in the capture, in order; pieces settled by then come before.
        before: the piece before each piece of its thread; behind all pieces stand the starts of threads.
        thread_start_ns: those starts.
        piece_ns: how long each piece takes.
        released: pieces that go on after a piece of another thread, and which that is.
        awaited: pieces in which a call waits.
        ref: the piece at whose end each operation is issued, or rather `offset_ns` later.
        row: the piece that issues it, which `is_early` ones do not wait for.
        operation_ns: how long each operation takes; a matched collective from when all have come.
        first, more: what each operation waits for: places, the further ones with that of their lag.
        meets: the collective of each operation, -1 without partners.
        members: places of the partners of each collective.
        captured_end_ns: of all operations, those that are waited for and not played behind the others.
        slack: what lay between causes and effects in the capture.
    """

    legs: Legs
    settled_ns: Numbers
    begun_ns: Numbers
    before: Numbers
    thread_start_ns: list[int]
    piece_ns: Numbers
    released: Mapping[int, int]
    awaited: Mapping[int, Awaited]
    ref: Numbers
    row: Numbers
    is_early: Numbers
    offset_ns: Numbers
    operation_ns: Numbers
    first: Numbers
    more: Mapping[int, tuple[tuple[int, int], ...]]
    meets: Numbers
    members: list[list[int]]
    captured_end_ns: Numbers
    slack: Slack
