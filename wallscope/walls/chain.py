"""Why no compute ran: each gap walked back along what bound it.

For every stretch of a rank without compute and opaque graphs the walk begins at the operation that ends
it and goes back to its start: from an operation to what it waited for last (a producer on the device,
or its own issue), along threads from call to call, through a blocking call to what it waited for. Each
nanosecond gets the link that bound it; where the trail is lost the rest is unresolved.
"""

from bisect import bisect_left, bisect_right
from dataclasses import dataclass
from typing import NamedTuple

from wallscope.model.kinds import LINK_KINDS, LinkKind
from wallscope.timeline.dependencies import Dependencies
from wallscope.timeline.spans import BEFORE_ALL, Numbers
from wallscope.timeline.stream_order import LONGEST_HAND_OVER_NS, UNRESOLVED, Tail

TOLERANCE_NS = 2_000
_MOST_LINKS = 100_000
_GO_ON, _LOST = -1, -2


@dataclass(frozen=True, slots=True)
class Issuers:
    """Ends of the calls that issued work to one device, in order of time, and their threads."""

    end_ns: Numbers
    thread: Numbers


class _Bound(NamedTuple):
    """The last columns of a link."""

    op: int = -1
    next_op: int = -1
    call: int = -1
    thread: int = -1
    slack_ns: int | None = None


class Walker:
    """Walks the gaps of one rank.

    Attributes:
        waits: who waits for whom.
        kinds: what each call is as a link, as a place in `LINK_KINDS`, by number.
        issuers: the calls that issued to the rank's device.
    """

    def __init__(self, waits: Dependencies, kinds: Numbers, issuers: Issuers) -> None:
        self.waits = waits
        self.kinds = kinds
        self.issuers = issuers
        self.rows: list[tuple[int | str | None, ...]] = []
        self._gap = -1
        self._from_ns = self._at_ns = 0

    def walk(self, op: int, from_ns: int, until_ns: int) -> None:
        """Account for a gap that an operation ends."""
        self._gap, self._from_ns, self._at_ns = op, from_ns, until_ns
        self._finish(self._operation(op))

    def walk_thread(self, from_ns: int, until_ns: int) -> None:
        """Account for idle time that no operation ends, along the thread that issued last."""
        self._gap, self._from_ns, self._at_ns = -1, from_ns, until_ns
        issuers = self.issuers.thread
        self._finish(self._thread(issuers[-1]) if issuers else None)

    def own(self, op: int, from_ns: int, until_ns: int) -> None:
        """Give time behind the last compute to an operation that ran in it."""
        self._gap, self._from_ns, self._at_ns = -1, from_ns, until_ns
        self._emit(LinkKind.OPERATION, from_ns, _Bound(op=op))

    def _finish(self, following: int | None) -> None:
        """Go from link to link; `following` is the operation to go on at, `None` where the walk has ended."""
        visited: set[tuple[int, int]] = set()
        while following is not None and self._at_ns > self._from_ns:
            if (following, self._at_ns) in visited or len(visited) > _MOST_LINKS:
                break
            visited.add((following, self._at_ns))
            following = self._operation(following)
        self._emit(LinkKind.UNRESOLVED, self._from_ns, _Bound())

    def _emit(self, kind: LinkKind, start_ns: int, bound: _Bound) -> None:
        """Give the time from a moment on up to where the walk stands to a link, and stand there."""
        start_ns = max(start_ns, self._from_ns)
        if start_ns < self._at_ns:
            self.rows.append((self._gap, start_ns, self._at_ns, str(kind), *bound))
            self._at_ns = start_ns

    def _operation(self, op: int) -> int | None:
        """Go back from the start of an operation; returns the operation to go on at."""
        waits = self.waits
        start_ns = min(waits.start_ns[op], self._at_ns)
        producer, done_ns, second_ns, is_open = self._latest_producer(op, start_ns)
        call = waits.call[op]
        if call >= 0:
            is_late = waits.call_end_ns[call] > start_ns
            issued_ns = waits.call_start_ns[call] if is_late else waits.call_end_ns[call]
            latest_ns = max(issued_ns, done_ns) if producer >= 0 else issued_ns
            if is_open and start_ns - latest_ns > LONGEST_HAND_OVER_NS:
                return None
            if producer < 0 or issued_ns > done_ns:
                slack_ns = issued_ns - done_ns if producer >= 0 else None
                kind = LinkKind.LAUNCH_CALL if is_late else LinkKind.LAUNCH_LATENCY
                thread = waits.call_thread[call]
                self._emit(kind, issued_ns, _Bound(op=op, call=call, thread=thread, slack_ns=slack_ns))
                return self._thread(thread)
            second_ns = issued_ns if second_ns is None else max(second_ns, issued_ns)
        elif producer < 0 or (is_open and start_ns - done_ns > LONGEST_HAND_OVER_NS):
            return None
        slack_ns = None if second_ns is None else done_ns - second_ns
        bound = _Bound(op=producer, next_op=op, slack_ns=slack_ns)
        self._emit(LinkKind.HAND_OVER, done_ns, bound)
        self._emit(LinkKind.OPERATION, waits.start_ns[producer], bound)
        return producer

    def _latest_producer(self, op: int, start_ns: int) -> tuple[int, int, int | None, bool]:
        """Who ended last of those that an operation waits for: number or -1, end, the end before that.

        The last part tells whether it waits for something unknown besides.
        """
        waits = self.waits
        before = int(waits.order.predecessor[op])
        producer, done_ns, second_ns, is_open = -1, 0, None, False
        for candidate in waits.producers(op):
            if candidate == UNRESOLVED:
                is_open = True
                continue
            end_ns = waits.end_ns[candidate]
            if end_ns > start_ns:
                # launched programmatically, or clocks that differ a bit
                if candidate != before and end_ns > start_ns + TOLERANCE_NS:
                    continue
                end_ns = start_ns
            if producer < 0 or (end_ns, -candidate) > (done_ns, -producer):
                if producer >= 0:
                    second_ns = done_ns
                producer, done_ns = candidate, end_ns
            elif second_ns is None or end_ns > second_ns:
                second_ns = end_ns
        return producer, done_ns, second_ns, is_open

    def _thread(self, thread: int) -> int | None:
        """Go back along a thread; returns the operation that a blocking call waited for."""
        waits = self.waits
        while self._at_ns > self._from_ns:
            spans = waits.spans.get(thread)
            row = bisect_left(spans.start_ns, self._at_ns) - 1 if spans else -1
            if spans is None or row < 0 or spans.end_ns[row] < self._at_ns:
                left_ns = spans.end_ns[row] if spans and row >= 0 else BEFORE_ALL
                thread = self._outside(thread, left_ns)
                continue
            call = spans.call[row]
            if call in waits.blocking:
                following = self._blocking(call, thread, spans.start_ns[row])
                if following != _GO_ON:
                    return None if following == _LOST else following
            else:
                self._emit(
                    LINK_KINDS[self.kinds[call]], spans.start_ns[row], _Bound(call=call, thread=thread)
                )
        return None

    def _outside(self, thread: int, left_ns: int) -> int:
        """Time since a thread left its last call; returns the thread to go on along.

        Where another one issued to the device meanwhile, this one waited for it.
        """
        issuers = self.issuers
        row = bisect_left(issuers.end_ns, self._at_ns) - 1
        if row >= 0 and issuers.end_ns[row] > left_ns and issuers.thread[row] != thread:
            other = issuers.thread[row]
            spans = self.waits.spans[other]
            place = bisect_right(spans.end_ns, self._at_ns)  # a call that took no time has no stretch there
            last_ns = spans.end_ns[place - 1] if place else BEFORE_ALL
            self._emit(LinkKind.OUTSIDE_CALLS, max(last_ns, issuers.end_ns[row]), _Bound(thread=thread))
            return other
        self._emit(LinkKind.OUTSIDE_CALLS, left_ns, _Bound(thread=thread))
        return thread

    def _blocking(self, call: int, thread: int, start_ns: int) -> int:
        """A blocking call: latency behind what it waited for, or all its own where that had ended before."""
        waits = self.waits
        tail: Tail = waits.blocking[call]
        known = [op for op in tail if op != UNRESOLVED]
        awaited = max(known, key=lambda op: (waits.end_ns[op], -op), default=-1)
        done_ns = waits.end_ns[awaited] if known else BEFORE_ALL
        entered_ns = waits.call_start_ns[call]
        if len(known) < len(tail) and not 0 <= self._at_ns - done_ns <= LONGEST_HAND_OVER_NS:
            return _LOST
        if known and done_ns > max(entered_ns, start_ns):
            bound = _Bound(op=awaited, call=call, thread=thread, slack_ns=done_ns - entered_ns)
            self._emit(LinkKind.SYNCHRONISATION, done_ns, bound)
            self._emit(LinkKind.OPERATION, waits.start_ns[awaited], bound._replace(thread=-1))
            return awaited
        self._emit(LinkKind.SYNCHRONISATION, start_ns, _Bound(call=call, thread=thread))
        return _GO_ON
