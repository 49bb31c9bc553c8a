"""Who waits for whom, and why no compute ran, the dull way: as the contract says, one question at a time.

Nothing is prepared or shared between questions; every answer looks through all rows again. Times where
the contract is silent are the constants below.
"""

from dataclasses import dataclass
from typing import NamedTuple

from tests.attribution.brute_trace import BLOCKING, HOST_MEMORY, NULL, Call, Op, Sync, Trace

EARLY = -(10**30)
UNKNOWN = -1
"""Stands among what is waited for where nothing tells what that is."""
JITTER_NS = 2_000
"""An event that is complete this much after what waited for it: clocks that differ."""
LATE_COPY_NS = 50_000
"""A copy that is over when its call returns ends at most this much later: clocks that differ."""
HAND_OVER_NS = 20_000
"""Something known that is over this shortly before is believed to bind beside something unknown."""


class Link(NamedTuple):
    """A link; columns as in `slices.ChainLinks`."""

    gap: int
    start: int
    end: int
    kind: str
    op: int = -1
    next_op: int = -1
    call: int = -1
    thread: int = -1
    slack: int | None = None


@dataclass
class Model:
    """Answers questions about a trace."""

    trace: Trace

    # order of streams

    def on(self, stream: int) -> list[int]:
        """The operations of a stream in order."""
        return [row for row, op in enumerate(self.trace.ops) if op.stream == stream]

    def before(self, op: int) -> int | None:
        """The operation before it on its stream."""
        rows = self.on(self.trace.ops[op].stream)
        place = rows.index(op)
        return rows[place - 1] if place else None

    def issued(self, op: int) -> int:
        """When the host issued it: what a stream does later was issued later."""
        rows = self.on(self.trace.ops[op].stream)
        earlier = [self.trace.ops[row] for row in rows[: rows.index(op) + 1]]
        return max([self.trace.calls[one.call].start for one in earlier if one.call >= 0], default=EARLY)

    def last_given(self, stream: int, at: int) -> int | None:
        """The last operation that a stream had been given at a moment."""
        return max([row for row in self.on(stream) if self.issued(row) < at], default=None)

    def tail(self, stream: int, at: int) -> set[int]:
        """What has to end before a stream is through with what it was given before a moment."""
        last = self.last_given(stream, at)
        since = EARLY if last is None else self.issued(last)
        found = set() if last is None else {last}
        for wait in self.waits():
            if wait.stream == stream and since <= self.trace.calls[wait.call].start < at:
                found |= self.waited_for(wait)
        return found

    def mark(self, stream: int, at: int) -> set[int]:
        """What has to end before a mark is reached that is put into a stream: it waits as operations do."""
        others = (self.tail(other, at) for other in self._ordered_with(stream))
        return self.tail(stream, at).union(*others)

    # events

    def waits(self) -> list[Sync]:
        """Waits of streams."""
        return [row for row in self.trace.syncs if row.kind == "wait"]

    def waited_for(self, wait: Sync) -> set[int]:
        """What has to end before an event is complete, as a wait for it means it."""
        how, record = self.record_of(wait)
        if how == "before":
            return set()
        at = self.trace.calls[wait.call].start
        if record is None or (wait.kind == "wait" and record[0] > at):
            return {UNKNOWN}
        return {UNKNOWN} if record[1] is None else self.mark(record[1], record[0])

    def record_of(self, wait: Sync) -> tuple[str, tuple[int, int | None] | None]:
        """Moment and stream of the record that a wait means, and how it was found."""
        rows, calls = self.trace.records, self.trace.calls
        at = calls[wait.call].start
        numbers = {row.number: (calls[row.call].start, row.stream) for row in rows if row.number is not None}
        if numbers:
            if wait.number in numbers:
                return "number", numbers[wait.number]
            is_before = wait.number is not None and wait.number < min(numbers)
            return ("before" if is_before else "nothing"), None
        if rows:
            earlier = [(calls[row.call].start, row.stream) for row in rows if row.event == wait.event]
            earlier = [row for row in earlier if row[0] <= at]
            return ("handle", max(earlier)) if earlier else ("before", None)
        return "nothing", None

    def last_stream(self, thread: int, at: int) -> int | None:
        """The stream of the last operation that a thread issued before a moment."""
        own = [
            (self.issued(row), row, op.stream)
            for row, op in enumerate(self.trace.ops)
            if op.call >= 0 and self.trace.calls[op.call].thread == thread and self.issued(row) < at
        ]
        return max(own)[2] if own else None

    # what is waited for

    def producers(self, op: int) -> set[int]:
        """What an operation waits for on the device, as far as the one before it has not waited for it."""
        ops, before = self.trace.ops, self.before(op)
        found = set() if before is None else {before}
        since = EARLY if before is None else self.issued(before)
        for wait in self.waits():
            at = self.trace.calls[wait.call].start
            if wait.stream == ops[op].stream and since < at <= self.issued(op):
                found |= self.waited_for(wait)
        for stream in self._ordered_with(ops[op].stream):
            if self._given(stream, self.issued(op)) != self._given(stream, since):
                found |= self.tail(stream, self.issued(op))
        return found - {op}

    def _given(self, stream: int, at: int) -> tuple[int, int]:
        """How many operations and waits a stream had been given at a moment."""
        ops = sum(self.issued(row) < at for row in self.on(stream))
        starts = (self.trace.calls[row.call].start for row in self.waits() if row.stream == stream)
        return ops, sum(start < at for start in starts)

    def _ordered_with(self, stream: int) -> set[int]:
        flags = self.trace.flags
        streams = {op.stream for op in self.trace.ops}  # of others that ran nothing nothing is known
        streams |= {one for one, flag in flags.items() if flag == NULL}
        if stream not in streams:
            return set()
        if flags.get(stream) == NULL:
            return {other for other in streams if flags.get(other) == BLOCKING}
        if flags.get(stream) == BLOCKING:
            return {other for other in streams if flags.get(other) == NULL}
        return set()

    def blocking(self, call: int) -> set[int] | None:
        """What a call waits for, none if it waits for nothing."""
        made, trace = self.trace.calls[call], self.trace
        if made.what in {"copy", "memcpy"}:
            return self.copied(call)
        if made.what not in {"stream", "event", "context"}:
            return None
        told = next((row for row in trace.syncs if row.call == call), None)
        if told is not None and told.kind == "event":
            return self.waited_for(told)
        if told is not None and told.kind == "stream":
            return self.mark(told.stream, made.start)
        if made.what == "context":
            known = {op.stream for op in trace.ops} | {row.stream for row in self.waits()}
            return set().union(*(self.tail(stream, made.start) for stream in known))
        last = self.last_stream(made.thread, made.start)
        return {UNKNOWN} if last is None else self.mark(last, made.start)

    def copied(self, call: int) -> set[int] | None:
        """What a call waits for that asks for copies."""
        made, ops = self.trace.calls[call], self.trace.ops
        own = [(op.end, row) for row, op in enumerate(ops) if op.call == call and op.kind == "copy"]
        own = [(end, row) for end, row in own if holds(made, ops[row])]
        if not own:
            return None
        end, last = max(own)
        is_behind = ops[last].start >= made.end and end > made.end
        return self.producers(last) if is_behind else {last}

    # threads

    def owner(self, thread: int, at: int) -> int | None:
        """The call that a thread was in during the nanosecond before a moment."""
        calls = self.trace.calls
        around = [
            row for row, call in enumerate(calls) if call.thread == thread and call.start < at <= call.end
        ]
        around.sort(key=lambda row: (calls[row].start, -calls[row].end, row))
        inside = [row for row in around[1:] if calls[row].what in {"alloc", "stream", "event", "context"}]
        is_won = bool(around) and calls[around[0]].what in {"alloc", "stream", "event", "context"}
        if not around or is_won or not inside:
            return around[0] if around else None
        return inside[0]

    def entered(self, thread: int, at: int) -> int:
        """Since when the thread has been in what it was in before a moment, or outside of calls."""
        now = self.owner(thread, at)
        moments = {side for call in self.trace.calls for side in (call.start, call.end) if side < at}
        for moment in sorted(moments, reverse=True):
            if self.owner(thread, moment) != now:
                return moment
        return EARLY

    def taken_over(self, thread: int, since: int, at: int) -> tuple[int, int] | None:
        """The thread that issued last meanwhile, and when it had left its last call."""
        calls = self.trace.calls
        issuing = {op.call for op in self.trace.ops if op.call >= 0}
        ended = [(calls[row].end, row) for row in issuing if since < calls[row].end < at]
        if not ended or calls[max(ended)[1]].thread == thread:
            return None
        other = calls[max(ended)[1]].thread
        sides = {side for call in calls for side in (call.start, call.end) if side <= at}
        left = [side for side in sides if self.owner(other, side) not in {None, self.owner(other, side + 1)}]
        return max(left), other


def holds(call: Call, copy: Op) -> bool:
    """Whether a copy kept the thread in the call that asked for it."""
    source, _, destination = copy.moves.partition(">")
    late, is_told, is_free = copy.end - call.end, bool(copy.moves), call.what == "copy"
    comes, goes = is_told and destination in HOST_MEMORY, is_told and source in HOST_MEMORY
    if (comes and (destination == "pageable" or not is_free)) or (
        goes and source == "pinned" and not is_free
    ):
        return late <= LATE_COPY_NS
    if goes and not comes and source == "pageable":
        staging, sending = call.end - copy.start, late
        return late <= 0 or (staging > 0 and staging >= sending)
    return late <= 0 and not (is_told and is_free)


# the walk


@dataclass
class Walk:
    """One gap, walked back; `links` come out in reverse."""

    model: Model
    gap: int
    since: int
    at: int
    links: list[Link]

    def give(self, kind: str, start: int, **bound: int | None) -> None:
        """Give the time from a moment up to here to a link."""
        start = max(start, self.since)
        if start < self.at:
            self.links.append(Link(self.gap, start, self.at, kind, **bound))
            self.at = start

    def go(self, place: tuple[str, int] | None) -> None:
        """Walk from a place to the start of the gap."""
        seen = set()
        while place is not None and self.at > self.since and (place, self.at) not in seen:
            seen.add((place, self.at))
            what, number = place
            place = self.operation(number) if what == "op" else self.thread(number)
        self.give("unresolved", self.since)

    def operation(self, op: int) -> tuple[str, int] | None:
        """What bound the start of an operation."""
        model, made = self.model, self.model.trace.ops[op]
        start = min(made.start, self.at)
        waited = model.producers(op)
        done = {}
        for producer in waited - {UNKNOWN}:
            end = model.trace.ops[producer].end
            if producer == model.before(op) or end <= start + JITTER_NS:
                done[producer] = min(end, start)
        call = model.trace.calls[made.call] if made.call >= 0 else None
        issue = None if call is None else (call.end if call.end <= start else call.start)
        ends = sorted(done.values(), reverse=True)
        known = ends[:1] + ([] if issue is None else [issue])
        if not known or (issue is None and not ends):
            return None
        if UNKNOWN in waited and start - max(known) > HAND_OVER_NS:
            return None
        if issue is not None and (not ends or issue > ends[0]):
            slack = issue - ends[0] if ends else None
            kind = "launch-call" if call.end > start else "launch-latency"
            self.give(kind, issue, op=op, call=made.call, thread=call.thread, slack=slack)
            return "thread", call.thread
        others = ends[1:2] + ([] if issue is None else [issue])
        slack = ends[0] - max(others) if others else None
        producer = min(one for one, end in done.items() if end == ends[0])
        self.give("hand-over", ends[0], op=producer, next_op=op, slack=slack)
        self.give("operation", model.trace.ops[producer].start, op=producer, next_op=op, slack=slack)
        return "op", producer

    def thread(self, thread: int) -> tuple[str, int] | None:
        """What a thread did before."""
        model = self.model
        call, since = model.owner(thread, self.at), model.entered(thread, self.at)
        if call is None:
            other = model.taken_over(thread, since, self.at)
            self.give("outside-calls", since if other is None else other[0], thread=thread)
            return "thread", (thread if other is None else other[1])
        waited = model.blocking(call)
        if waited is None:
            kinds = {"launch": "launch-call", "graph": "launch-call", "alloc": "allocation"}
            self.give(kinds.get(model.trace.calls[call].what, "other-call"), since, call=call, thread=thread)
            return "thread", thread
        return self.blocked(call, thread, since, waited)

    def blocked(self, call: int, thread: int, since: int, waited: set[int]) -> tuple[str, int] | None:
        """What a blocking call waited for."""
        ops, entered = self.model.trace.ops, self.model.trace.calls[call].start
        last = min(waited - {UNKNOWN}, key=lambda op: (-ops[op].end, op), default=None)
        end = EARLY if last is None else ops[last].end
        if UNKNOWN in waited and not 0 <= self.at - end <= HAND_OVER_NS:
            return None
        if last is None or end <= max(entered, since):
            self.give("synchronisation", since, call=call, thread=thread)
            return "thread", thread
        self.give("synchronisation", end, op=last, call=call, thread=thread, slack=end - entered)
        self.give("operation", ops[last].start, op=last, call=call, slack=end - entered)
        return "op", last


def computes(op: Op) -> bool:
    """Whether it ends a gap."""
    return op.kind in {"compute", "opaque_graph"}


def links(trace: Trace) -> list[Link]:
    """The links of all gaps, in order of time."""
    model, found = Model(trace), []
    reached = trace.ops[0].start
    for row, op in enumerate(trace.ops):
        if computes(op):
            if op.start > reached:
                walk = Walk(model, row, reached, op.start, [])
                walk.go(("op", row))
                found += walk.links
            reached = max(reached, op.end)
    for row, op in enumerate(trace.ops):  # behind the last compute
        if op.end > reached:
            if op.start > reached:
                found += idle(model, reached, op.start)
            walk = Walk(model, -1, max(op.start, reached), op.end, [])
            walk.give("operation", op.start, op=row)
            found += walk.links
            reached = op.end
    return sorted(found, key=lambda link: link.start)


def idle(model: Model, since: int, at: int) -> list[Link]:
    """Idle time that no operation ends, along the thread that issued last."""
    calls = model.trace.calls
    issuing = {op.call for op in model.trace.ops if op.call >= 0}
    walk = Walk(model, -1, since, at, [])
    walk.go(
        ("thread", calls[max(issuing, key=lambda row: (calls[row].end, row))].thread) if issuing else None
    )
    return walk.links


def merged(rows: list[Link]) -> list[Link]:
    """Neighbours that say the same as one."""
    found: list[Link] = []
    for row in rows:
        before = found[-1] if found else None
        if (
            before
            and before.end == row.start
            and before._replace(start=0, end=0) == row._replace(start=0, end=0)
        ):
            found[-1] = before._replace(end=row.end)
        else:
            found.append(row)
    return found
