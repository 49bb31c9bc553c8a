"""Who waits for whom, and why no compute ran, the dull way: as the contract says, one question at a time.

Nothing is prepared or shared between questions; every answer looks through all rows again. Times where
the contract is silent are the constants below.
"""

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import Any, NamedTuple

from tests.attribution import brute_waits
from tests.attribution.brute_trace import BLOCKING, NULL, Op, Sync, Trace
from tests.attribution.brute_waits import EARLY, HAND_OVER_NS, JITTER_NS, LONGEST_NS, UNKNOWN, Inferred

MOST_HOLDERS = 8
"""Calls that wait for a lock at one moment, each for the next, that are followed."""
KINDS_OF_CALLS = {"launch": "launch-call", "graph": "launch-call", "alloc": "allocation"}


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
    inferred: int = 0


def remembered(question: Callable[..., Any]) -> Callable[..., Any]:
    """Answer a question about a model once: it is asked over and over."""

    def ask(model: "Model", *about: int) -> Any:
        key = (question.__name__, *about)
        if key not in model.answers:
            model.answers[key] = question(model, *about)
        return model.answers[key]

    return ask


@dataclass
class Model:
    """Answers questions about a trace."""

    trace: Trace

    @cached_property
    def answers(self) -> dict[tuple[Any, ...], Any]:
        """Answers that were given."""
        return {}

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

    def all_tails(self, at: int) -> set[int]:
        """The same for all streams."""
        known = {op.stream for op in self.trace.ops} | {row.stream for row in self.waits()}
        return set().union(*(self.tail(stream, at) for stream in known))

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

    @cached_property
    def inferred(self) -> Inferred:
        """What times tell of the waits of operations."""
        return Inferred(self)

    def producers(self, op: int) -> set[int]:
        """What an operation waits for on the device, with what times tell."""
        found, told = set(self.told_producers(op)), self.inferred
        if op in told.free:
            found -= {UNKNOWN}
        if op in told.unexplained:
            found |= {UNKNOWN}
        return found | ({told.producers[op]} if op in told.producers else set())

    @remembered
    def told_producers(self, op: int) -> set[int]:
        """What it is told to wait for, as far as the one before it has not waited for it."""
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

    @remembered
    def waits_for(self, call: int) -> tuple[set[int], bool] | None:
        """What a call waits for, and whether times alone tell that; none if it waits for nothing."""
        found = self._waits_alone(call)
        held_by = brute_waits.holder(self, call) if found is None else None
        held = None if held_by is None else self._waits_alone(held_by)
        return found if held is None or UNKNOWN in held[0] else (held[0], True)

    def holder(self, call: int) -> int | None:
        """The call whose lock a call waits for, if not known is what that waits for."""
        return brute_waits.holder(self, call) if self.waits_for(call) is None else None

    def blocks(self, call: int) -> bool:
        """Whether a call waits by itself, or for a place in a queue."""
        return self._waits_alone(call) is not None

    @remembered
    def _waits_alone(self, call: int) -> tuple[set[int], bool] | None:
        """The same without what holds a lock."""
        found = self.by_itself(call)
        queued = brute_waits.queued_behind(self, call) if found is None else None
        return (queued, True) if queued else found

    @remembered
    def by_itself(self, call: int) -> tuple[set[int], bool] | None:
        """The same without full queues."""
        made, found = self.trace.calls[call], self.blocking(call)
        if found is not None and UNKNOWN in found and made.what in {"stream", "event", "context"}:
            by_times = brute_waits.awaited_by_times(self, made.start, made.end)
            return (found, False) if UNKNOWN in by_times else (by_times, True)
        if found is None and (asked := self.asked(call)) is not None:
            if asked.is_close:
                found = brute_waits.awaited_by_times(self, asked.since, made.end) - {UNKNOWN}
            else:
                found = brute_waits.find_slept_for(self, call, asked)
            return (found, True) if found else None
        return None if found is None else (found, False)

    def asks_since(self, call: int) -> int | None:
        """When the queries began of which a call is the last one."""
        asked = self.asked(call)
        return None if asked is None else asked.since

    @remembered
    def asked(self, call: int) -> "brute_waits.Asked | None":
        """The queries of which a call is the last one."""
        return brute_waits.find_asked(self, call)

    @cached_property
    def spins(self) -> dict[tuple[int, int], int]:
        """What threads spun for until a moment."""
        return brute_waits.spun_for(self)

    @cached_property
    def locks(self) -> dict[tuple[int, int], int]:
        """The call that held a lock for which a thread waited outside of calls until a moment."""
        return brute_waits.locked_by(self)

    @cached_property
    def alone(self) -> set[tuple[int, int]]:
        """Until which moments threads worked by themselves while others issued."""
        return brute_waits.working_alone(self) | brute_waits.working_as_usual(self)

    def locked(self, thread: int, at: int) -> int | None:
        """The same of one moment, if its thread has issued nothing since."""
        calls, held_by = self.trace.calls, self.locks.get((thread, at))
        issued = [(calls[op.call].end, op.call) for op in self.trace.ops if op.call >= 0]
        last = max((one for one in issued if one[0] < at), default=None)
        if held_by is None or last is None or calls[last[1]].thread != calls[held_by].thread:
            return held_by
        return held_by if last[0] <= calls[held_by].end else None

    def blocking(self, call: int) -> set[int] | None:
        """What a call is told to wait for, none if it waits for nothing."""
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
            return self.all_tails(made.start)
        last = self.last_stream(made.thread, made.start)
        return {UNKNOWN} if last is None else self.mark(last, made.start)

    def copied(self, call: int) -> set[int] | None:
        """What a call waits for that asks for copies."""
        made, ops = self.trace.calls[call], self.trace.ops
        own = [(op.end, row) for row, op in enumerate(ops) if op.call == call and op.kind == "copy"]
        own = [(end, row) for end, row in own if brute_waits.holds(made, ops[row])]
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


# the walk


@dataclass
class Walk:
    """One gap, walked back; `links` come out in reverse."""

    model: Model
    gap: int
    since: int
    at: int
    links: list[Link]
    inferred: int = 0

    def give(self, kind: str, start: int, **bound: int | None) -> None:
        """Give the time from a moment up to here to a link."""
        start = max(start, self.since)
        if start < self.at:
            self.links.append(Link(self.gap, start, self.at, kind, inferred=self.inferred, **bound))
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
            is_over = end <= start + JITTER_NS and model.trace.ops[producer].start <= made.start
            if producer == model.before(op) or is_over:
                done[producer] = min(end, start)
        call = model.trace.calls[made.call] if made.call >= 0 else None
        issue = None if call is None else (call.end if call.end <= start else call.start)
        ends = sorted(done.values(), reverse=True)
        known = ends[:1] + ([] if issue is None else [issue])
        if not known or (issue is None and not ends):
            return None
        if UNKNOWN in waited and start - max(known) > HAND_OVER_NS:
            return None
        is_inside = call is not None and call.end > start
        if issue is not None and (not ends or issue > ends[0]):
            slack = issue - ends[0] if ends else None
            if op in model.inferred.idle and not is_inside:
                self.give("unresolved", issue, next_op=op, slack=slack)
            kind = "launch-call" if is_inside else "launch-latency"
            self.give(kind, issue, op=op, call=made.call, thread=call.thread, slack=slack)
            return "thread", call.thread
        others = ends[1:2] + ([] if issue is None else [issue])
        slack = ends[0] - max(others) if others else None
        producer = min(one for one, end in done.items() if end == ends[0])
        return self.producer(op, producer, (start, ends[0]), is_inside=is_inside, slack=slack)

    def producer(
        self, op: int, producer: int, side: tuple[int, int], *, is_inside: bool, slack: int | None
    ) -> tuple[str, int] | None:
        """What an operation waited for, up to its start, on another one that was over at a moment."""
        (start, end), told = side, self.model.inferred
        made = self.model.trace.ops[op]
        if producer == told.producers.get(op):
            self.inferred = 1
        if start - end <= LONGEST_NS:
            self.give("hand-over", end, op=producer, next_op=op, slack=slack)
        elif is_inside:
            thread = self.model.trace.calls[made.call].thread
            self.give(self.kind_of(made.call), end, op=op, call=made.call, thread=thread, slack=slack)
        elif op in told.idle:
            self.give("unresolved", end, next_op=op, slack=slack)
        else:
            return None
        self.give("operation", self.model.trace.ops[producer].start, op=producer, next_op=op, slack=slack)
        return "op", producer

    def thread(self, thread: int) -> tuple[str, int] | None:
        """What a thread did before."""
        model = self.model
        for _ in range(MOST_HOLDERS):
            call, since = model.owner(thread, self.at), model.entered(thread, self.at)
            holder = None if call is None else model.holder(call)
            if holder is None or self.at <= self.since:
                break
            held_by, kind = model.trace.calls[holder], self.kind_of(call)
            if held_by.start >= self.at or held_by.end <= since:
                self.give(kind, since, call=call, thread=thread)
                continue
            self.inferred = 1
            self.give(kind, held_by.end, call=call, thread=thread)
            thread = held_by.thread
        call, since = model.owner(thread, self.at), model.entered(thread, self.at)
        if call is None:
            return self.outside(thread, since)
        waited = model.waits_for(call)
        if waited is None:
            self.give(self.kind_of(call), since, call=call, thread=thread)
            return "thread", thread
        return self.blocked(call, thread, since, waited)

    def outside(self, thread: int, since: int) -> tuple[str, int]:
        """Why a thread was outside of calls."""
        spun = self.model.spins.get((thread, self.at))
        if spun is not None:
            op = self.model.trace.ops[spun]
            self.inferred = 1
            self.give("outside-calls", op.end, thread=thread)
            self.give("operation", op.start, op=spun)
            return "op", spun
        held_by = self.model.locked(thread, self.at)
        if held_by is not None:
            holder = self.model.trace.calls[held_by]
            self.inferred = 1
            self.give("outside-calls", holder.end, thread=thread)
            return "thread", holder.thread
        begins = [call.start for call in self.model.trace.calls if call.thread == thread]
        begun = min((start for start in begins if start >= self.at), default=None)
        is_alone = (thread, begun) in self.model.alone
        other = None if is_alone else self.model.taken_over(thread, since, self.at)
        self.give("outside-calls", since if other is None else other[0], thread=thread)
        return "thread", (thread if other is None else other[1])

    def kind_of(self, call: int) -> str:
        """The kind of time that goes into a call."""
        return KINDS_OF_CALLS.get(self.model.trace.calls[call].what, "other-call")

    def blocked(
        self, call: int, thread: int, since: int, found: tuple[set[int], bool]
    ) -> tuple[str, int] | None:
        """What a blocking call waited for."""
        waited, is_by_times = found
        ops, asks_since = self.model.trace.ops, self.model.asks_since(call)
        entered = self.model.trace.calls[call].start if asks_since is None else asks_since
        kind = "launch-call" if self.kind_of(call) == "launch-call" else "synchronisation"
        last = min(waited - {UNKNOWN}, key=lambda op: (-ops[op].end, op), default=None)
        end = EARLY if last is None else ops[last].end
        if UNKNOWN in waited and not 0 <= self.at - end <= HAND_OVER_NS:
            return None
        if last is not None and is_by_times:
            self.inferred = 1
        if last is None or end <= (max(entered, since) if asks_since is None else entered):
            self.give(kind, since, call=call, thread=thread)
            return "thread", thread
        self.give(kind, end, op=last, call=call, thread=thread, slack=end - entered)
        self.give("operation", ops[last].start, op=last, call=call, slack=end - entered)
        return "op", last


def computes(op: Op) -> bool:
    """Whether it ends a gap."""
    return op.kind in {"compute", "opaque_graph"}


def links(trace: Trace, reach: tuple[int, int] | None = None) -> list[Link]:
    """The links of all gaps, in order of time; those of windows may reach beyond the operations."""
    model, found = Model(trace), []
    since, until = reach or (trace.ops[0].start, trace.ops[0].start)
    reached = min(trace.ops[0].start, since)
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
    if until > reached:
        found += idle(model, reached, until)
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
