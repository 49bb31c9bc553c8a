"""What operations and calls waited for that the export does not tell, the dull way: by times alone."""

from collections import Counter
from collections.abc import Iterator
from itertools import pairwise
from typing import TYPE_CHECKING, NamedTuple

from tests.attribution.brute_trace import HOST_MEMORY, NAMES_OF_CALLS, ROLES, Call, Op

if TYPE_CHECKING:
    from tests.attribution.brute import Model

EARLY = -(10**30)
LATE_COPY_NS = 50_000
"""A copy that is over when its call returns ends at most this much later: clocks that differ."""
UNKNOWN = -1
"""Stands among what is waited for where nothing tells what that is."""
JITTER_NS = 2_000
"""An event that is complete this much after what waited for it: clocks that differ."""
HAND_OVER_NS = 20_000
"""Something known that is over this shortly before is believed to bind beside something unknown."""
LONGEST_NS = 50_000
"""And where nothing unknown is waited for."""
CLOSE_NS, CANDIDATES, FEWEST = 10_000, 4, 3
LONG_NS, LEAST_LONG_NS, FEWEST_FREE = 50_000, 20_000, 20
"""Calls so long may have been held. Where many were not, the limit is twice what most of those take."""
FEWEST_ALIKE = 8
"""With so many calls for one purpose, a held one takes thrice as long as the first quartile."""
TOGETHER_NS, HOLDERS = 20_000, 8
SHORT_ALLOCATION_NS, PARKED_PARTS = 20_000, 8
FULL_QUEUE, FEWEST_QUERIES, FEWEST_SPINS, FEWEST_LOCKS = 950, 3, 5, 3


class Inferred:
    """What times tell of the waits of operations.

    Attributes:
        producers: by operation, what it is taken to have waited for.
        unexplained: operations that waited for something that nothing tells.
        free: operations that no longer wait for something unknown.
        idle: those of them that were held although nothing ran.
    """

    def __init__(self, model: "Model") -> None:
        self.model, self.ops, self.calls = model, model.trace.ops, model.trace.calls
        known = {row: self._known(row) for row in range(len(self.ops))}
        self.known = {
            row: over
            for row, over in known.items()
            if over is not None
            and self._returned(row) <= self.ops[row].start
            and self.ops[row].start - over > HAND_OVER_NS
        }
        self.producers: dict[int, int] = {}
        self.unexplained, self.free, self.idle = set(), set(), set()
        for row in self.known:
            self._explain(row)

    def _returned(self, row: int) -> int:
        call = self.ops[row].call
        return self.calls[call].end if call >= 0 else EARLY

    def _done(self, row: int) -> list[int]:
        """When those were over that an operation is known to have waited for."""
        start, before = self.ops[row].start, self.model.before(row)
        producers = [
            (producer, self.ops[producer]) for producer in self.model.told_producers(row) - {UNKNOWN}
        ]
        return [
            min(op.end, start)
            for producer, op in producers
            if producer == before or (op.end <= start + JITTER_NS and op.start <= start)
        ]

    def _known(self, row: int) -> int | None:
        issued = [self._returned(row)] if self.ops[row].call >= 0 else []
        return max([*self._done(row), *issued], default=None)

    def _migrates(self, row: int) -> bool:
        return self.ops[row].kind == "copy" and self.ops[row].call < 0

    def _close(self, row: int) -> list[int]:
        """Operations of other streams that may have held it, those that ended last first."""
        ops, late = self.ops, self.ops[row]
        ended = [(op.end, other) for other, op in enumerate(ops) if op.end <= late.start + JITTER_NS]
        return [
            other
            for end, other in sorted(ended, reverse=True)[:CANDIDATES]
            if ops[other].stream != late.stream
            and end >= max(self.known[row], late.start - CLOSE_NS)
            and ops[other].start < late.start
            and not self._migrates(other)
        ]

    def _is_made_to_wait(self, row: int) -> bool:
        """Whether its thread let a stream wait between the launch before and this one."""
        if self.ops[row].call < 0:
            return False
        launch, before = self.calls[self.ops[row].call], self.model.before(row)
        earlier = -1 if before is None else self.ops[before].call
        since = self.calls[earlier].start if earlier >= 0 else EARLY
        return any(
            call.what == "wait" and call.thread == launch.thread and since < call.start < launch.start
            for call in self.calls
        )

    def _times(self, row: int, stream: int) -> tuple[int, int]:
        """How many late ones of this name and stream an operation of the other one precedes; of how many."""
        name, own = self.ops[row].name, self.ops[row].stream
        alike = [one for one in self.known if (self.ops[one].name, self.ops[one].stream) == (name, own)]
        shown = [one for one in alike if any(self.ops[other].stream == stream for other in self._close(one))]
        return len(shown), len(alike)

    def _explain(self, row: int) -> None:
        found = []
        for place, other in enumerate(self._close(row)):
            times, among = self._times(row, self.ops[other].stream)
            if self._is_made_to_wait(row) or (times >= FEWEST and 2 * times >= among):
                found.append((times, -place, other))
        if found:
            self.producers[row] = max(found)[2]
            self.free.add(row)
            return
        start, over = self.ops[row].start, self.known[row]
        ran = [other for other, op in enumerate(self.ops) if op.start < start and op.end > over]
        issue_was_last = self._returned(row) > max(self._done(row), default=EARLY)
        if all(self._migrates(other) for other in ran):
            self.free.add(row)
            if ran or not issue_was_last:
                self.idle.add(row)
        elif UNKNOWN in self.model.told_producers(row) or start - over > LONGEST_NS:
            self.unexplained.add(row)


def awaited_by_times(model: "Model", entered: int, returned: int) -> set[int]:
    """What a call waited for that blocked, but of which nothing is told."""
    ops = model.trace.ops
    ended = sorted((op.end, row) for row, op in enumerate(ops) if op.end <= returned + JITTER_NS)
    given = [(end, row) for end, row in ended[-CANDIDATES:] if model.issued(row) < entered]
    end, last = max(given, default=(EARLY, -1))
    if end > entered and returned - end <= LONGEST_NS:
        return {last}
    issued = [op.end for row, op in enumerate(ops) if model.issued(row) < entered]
    return {UNKNOWN} if any(end > entered for end in issued) else set()


class Asked(NamedTuple):
    """A run of queries: when the first began, when the one before the last did, and if it never paused."""

    since: int
    before: int
    is_close: bool


def find_asked(model: "Model", call: int) -> Asked | None:
    """The run of queries of which a call is the last, if they are a wait."""
    calls = model.trace.calls

    def is_passed(row: int) -> bool:
        one = calls[row]
        return one.what == "query" or (one.what == "other" and one.end - one.start < LONG_NS)

    def is_own(row: int) -> bool:
        one, before = calls[row], calls[row - 1] if row else None
        is_nested = before is not None and before.thread == one.thread and one.start < before.end
        return one.what == "query" and not (is_nested and is_passed(row - 1))

    asking = [row for row in range(len(calls)) if is_own(row) and calls[row].thread == calls[call].thread]
    if call not in asking:
        return None
    run = [call]
    for row in reversed(asking[: asking.index(call)]):
        if not all(map(is_passed, range(row, run[0]))):
            break
        run.insert(0, row)
    behind = asking[asking.index(call) + 1 :]
    goes_on = bool(behind) and all(map(is_passed, range(call, behind[0])))
    since = calls[run[0]].start
    if goes_on or len(run) < FEWEST_QUERIES or calls[call].end - since < LONG_NS:
        return None
    is_close = all(calls[other].start - calls[one].end <= 20_000 for one, other in pairwise(run))
    return Asked(since, calls[run[-2]].start, is_close)


def find_slept_for(model: "Model", call: int, asked: Asked) -> set[int]:
    """What a thread slept for between queries: the last work of a stream that ended between the last two."""
    ops, until = model.trace.ops, model.trace.calls[call].end + JITTER_NS
    ended = [(ops[row].end, row) for row in model.all_tails(asked.since) if row != UNKNOWN]
    meant = [(end, row) for end, row in ended if asked.before < end <= until]
    return {max(meant)[1]} if meant else set()


def queued_behind(model: "Model", call: int) -> set[int] | None:
    """What a launch waited for because its queue was full."""
    made, ops = model.trace.calls[call], model.trace.ops
    if made.what not in {"launch", "graph"}:
        return None
    calls = model.trace.calls
    launches = {row: calls[row].end - calls[row].start for row in {op.call for op in ops} if row >= 0}
    free = [
        length
        for row, length in launches.items()
        for op in ops
        if op.call == row and calls[row].what in {"launch", "graph"} and _find_room(model, row) is None
    ]
    return _find_room(model, call) if made.end - made.start >= _shortest_held(free) else None


def _shortest_held(free: list[int]) -> float:
    """From which length on a call is longer than those that nothing can have held."""
    if len(free) < FEWEST_FREE:
        return LONG_NS
    own = sorted(free)
    whole, rest = divmod(95 * (len(own) - 1), 100)
    usual = own[whole] + ((own[whole + 1] - own[whole]) * rest / 100 if rest else 0)
    return min(max(int(2 * usual), LEAST_LONG_NS), LONG_NS)


def _find_room(model: "Model", call: int) -> set[int] | None:
    """What made room for a launch whose queue was full."""
    made, ops = model.trace.calls[call], model.trace.ops
    found = None
    for row in [row for row, op in enumerate(ops) if op.call == call]:
        own = model.on(ops[row].stream)
        begun = [one for one in own if ops[one].start <= made.end]
        pending = [one for one in own if ops[one].start > made.end and one <= row]
        launches = len({ops[one].call for one in pending} - {-1}) + sum(ops[one].call < 0 for one in pending)
        if launches >= FULL_QUEUE and len(begun) > 1:
            found = {begun[-2]}
    return found


def holder(model: "Model", call: int) -> int | None:
    """The call of another thread whose lock a call waited for."""
    calls = model.trace.calls
    if not _may_be_held(model, call):
        return None
    kinds = [(one.thread, ROLES[one.what], one.end - one.start >= LONG_NS) for one in calls]
    alike = [row for row, kind in enumerate(kinds) if kind == kinds[call]]
    held = [_held_by(model, row) is not None for row in alike if _may_be_held(model, row)]
    return _held_by(model, call) if 2 * sum(held) >= len(held) else None


def _may_be_held(model: "Model", call: int) -> bool:
    """Whether a call is longer than usual ones, and does not block by itself."""
    calls = model.trace.calls
    asked = calls[call]
    if asked.end - asked.start < LEAST_LONG_NS or model.blocks(call):
        return False
    free = [
        one.end - one.start
        for row, one in enumerate(calls)
        if ROLES[one.what] == ROLES[asked.what]
        and not model.blocks(row)
        and not any(
            other.thread != one.thread and other.start < one.end and one.start < other.end
            for other, _ in _list_holding(model)
        )
    ]
    if asked.end - asked.start < _shortest_held(free):
        return False
    alike = sorted(one.end - one.start for one in calls if ROLES[one.what] == ROLES[asked.what])
    return len(alike) < FEWEST_ALIKE or asked.end - asked.start >= 3 * int(_quarter(alike))


def _held_by(model: "Model", call: int) -> int | None:
    """The call of another thread that returned with one."""
    calls = model.trace.calls
    asked = calls[call]
    ended = sorted(
        (other.end, row) for other, row in _list_holding(model) if other.end <= asked.end + TOGETHER_NS
    )
    found = []
    for end, row in ended[-HOLDERS:]:
        other = calls[row]
        beside = min(end, asked.end) - max(other.start, asked.start)
        if (
            end >= asked.end - TOGETHER_NS
            and other.start < asked.start
            and other.thread != asked.thread
            and 10 * beside >= 8 * (asked.end - asked.start)
        ):
            found.append((beside, end, row))
    return max(found)[2] if found else None


def _list_holding(model: "Model") -> list[tuple[Call, int]]:
    """Calls that may hold the lock of the driver, and their numbers."""
    return [
        (one, row)
        for row, one in enumerate(model.trace.calls)
        if one.end - one.start >= LEAST_LONG_NS
        and (ROLES[one.what] in {"alloc", "copy"} or model.blocks(row))
    ]


def _quarter(lengths: list[int]) -> float:
    """The first quartile of some lengths in order."""
    whole, rest = divmod(len(lengths) - 1, 4)
    return lengths[whole] + (lengths[whole + 1] - lengths[whole]) * rest / 4 if rest else lengths[whole]


def _pauses(model: "Model", thread: int) -> Iterator[tuple[int, int]]:
    """Long stretches that a thread was outside of calls, between two calls."""
    calls = [call for call in model.trace.calls if call.thread == thread and call.end > call.start]
    sides = sorted({side for call in calls for side in (call.start, call.end)})
    inside = [any(call.start < end <= call.end for call in calls) for _, end in pairwise(sides)]
    for (start, end), is_inside in zip(pairwise(sides), inside, strict=True):
        if not is_inside and end - start >= LONG_NS:
            yield start, end


def _recurring(ends: dict, kind: dict, times: Counter, late: dict, limits: tuple[int, int, float]):
    """By pause, what ended in it, where most pauses of the kind end right behind such an end."""
    found, (limit, fewest, share) = {}, limits
    for most in (limit, LONGEST_NS):
        close = [pause for pause in ends if late[pause] <= most]
        for one in {kind[pause] for pause in close}:
            own = [pause for pause in close if kind[pause] == one]
            lengths, lates = [begun - left for _, left, begun in own], [late[pause] for pause in own]
            follows = max(lengths) - min(lengths) >= max(2 * (max(lates) - min(lates)), 1)
            is_told = follows or (most == limit == TOGETHER_NS)
            if len(own) >= fewest and len(own) >= share * times[one] and is_told:
                found |= {pause: ends[pause] for pause in own}
    return {(thread, begun): what for (thread, _, begun), what in found.items()}


def _ready(model: "Model", thread: int, left: int, begun: int) -> int:
    """When a thread could go on: the end of its last long wait for a lock in a pause, else of the pause."""
    rows = [row for row in model.trace.host if row.thread == thread and row.kind == "lock"]
    ended = [row.end for row in rows if row.end - row.start >= LONG_NS and left < row.end <= begun]
    return max(ended, default=begun)


def spun_for(model: "Model") -> dict[tuple[int, int], int]:
    """By thread and moment at which it went on, the operation for which it had spun outside of calls."""
    ops, calls = model.trace.ops, model.trace.calls
    named = [row for row, op in enumerate(ops) if op.name and op.call >= 0]
    kind = {row: (ops[row].name, calls[ops[row].call].thread) for row in named}
    ends = {}
    for thread in sorted({call.thread for call in calls}):
        own = [row for row in named if kind[row][1] == thread]
        for left, begun in _pauses(model, thread):
            end, last = max(
                ((ops[row].end, row) for row in own if ops[row].end <= begun), default=(EARLY, -1)
            )
            if end > left >= calls[ops[last].call].end:
                ends[thread, left, begun] = last
    late = {pause: pause[2] - ops[row].end for pause, row in ends.items()}
    kinds = {pause: kind[row] for pause, row in ends.items()}
    return _recurring(ends, kinds, Counter(kind.values()), late, (CLOSE_NS, FEWEST_SPINS, 0.8))


def locked_by(model: "Model") -> dict[tuple[int, int], int]:
    """By thread and moment at which it went on, the call of another thread that held a lock until then."""
    calls = model.trace.calls
    holding = [
        (one.end, row)
        for row, one in enumerate(calls)
        if one.end - one.start >= (SHORT_ALLOCATION_NS if ROLES[one.what] == "alloc" else LONG_NS)
        and (ROLES[one.what] in {"alloc", "copy", "launch", "graph", "sync"} or model.blocks(row))
    ]
    ends = {}
    for thread in sorted({call.thread for call in calls}):
        for left, begun in _pauses(model, thread):
            ready = _ready(model, thread, left, begun)
            end, last = max((one for one in holding if one[0] <= ready), default=(EARLY, -1))
            if end > left and calls[last].thread != thread:
                ends[thread, left, begun] = last
    kind = {pause: (pause[0], calls[row].thread, ROLES[calls[row].what]) for pause, row in ends.items()}
    late = {pause: _ready(model, *pause) - calls[row].end for pause, row in ends.items()}
    return _recurring(ends, kind, Counter(kind.values()), late, (TOGETHER_NS, FEWEST_LOCKS, 0.5))


def working_alone(model: "Model") -> set[tuple[int, int]]:
    """By thread and moment at which it went on, pauses in which others issued, and it did not wait."""
    found = {}
    issued = Counter(model.trace.calls[op.call].thread for op in model.trace.ops if op.call >= 0)
    for thread in sorted({call.thread for call in model.trace.calls}):
        for left, begun in _pauses(model, thread):
            other = model.taken_over(thread, left, begun)
            if other is not None:
                late = begun - other[0]
                is_behind = late <= max(LONGEST_NS, (begun - left) // PARKED_PARTS)
                found[thread, left, begun] = other[1], is_behind, late
    kinds = Counter((pause[0], other) for pause, (other, *_) in found.items())
    behind = Counter((pause[0], other) for pause, (other, is_behind, _) in found.items() if is_behind)

    def follows(thread: int, other: int) -> bool:
        own = {pause: told[2] for pause, told in found.items() if (pause[0], told[0]) == (thread, other)}
        lengths = [begun - left for _, left, begun in own]
        return max(lengths) - min(lengths) >= 2 * (max(own.values()) - min(own.values()))

    return {
        (pause[0], pause[2])
        for pause, (other, *_) in found.items()
        if kinds[pause[0], other] >= FEWEST_LOCKS
        and issued[pause[0]] > issued[other]
        and not follows(pause[0], other)
        and 2 * behind[pause[0], other] < kinds[pause[0], other]
        and _ready(model, *pause) == pause[2]
    }


def working_as_usual(model: "Model") -> set[tuple[int, int]]:
    """The same of pauses no longer than most between calls of the same names in which nothing was issued."""
    calls = model.trace.calls
    issuing = {op.call for op in model.trace.ops if op.call >= 0}
    found = set()
    for thread in sorted({calls[call].thread for call in issuing}):
        pauses: dict[tuple[str, str], list[tuple[int, int, bool]]] = {}
        own = sorted(call for call in calls if call.thread == thread and call.end > call.start)
        for before, behind in pairwise(own):
            met = any(
                before.end < calls[call].end <= behind.start
                for call in issuing
                if calls[call].thread != thread
            )
            names = NAMES_OF_CALLS[before.what], NAMES_OF_CALLS[behind.what]
            pauses.setdefault(names, []).append((behind.start - before.end, behind.start, met))
        for listed in pauses.values():
            alone = sorted(length for length, _, met in listed if not met)
            if len(alone) < max(len(listed) - len(alone), FEWEST_LOCKS):
                continue
            place = 0.95 * (len(alone) - 1)
            low, high = alone[int(place)], alone[min(int(place) + 1, len(alone) - 1)]
            usual = low + (high - low) * (place - int(place))
            most = max(usual, min(2 * usual, LONGEST_NS))
            found |= {(thread, begun) for length, begun, met in listed if met and length <= most}
    return found


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
