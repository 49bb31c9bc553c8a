"""Holds of locks in the calls of threads, and when threads ask for them.

No row names a lock. A thread that waits for one shows that another one held it until some call ended. All
calls of the holder since the wait began lie in the hold, and its next call does not. So pauses between calls
of a holder are inside holds, or between them, as those that were seen next to the same two calls.

Once times change, a thread waits for the holds that were asked for before it came and that end later. If it
comes before the holder does, it does not wait.
"""

from collections import defaultdict
from collections.abc import Mapping
from typing import NamedTuple

import numpy as np

from wallscope.columns import Codes, Flags, Rows
from wallscope.records import dataclass
from wallscope.thresholds.steps import LONGEST_UNEXPLAINED_LATENCY_NS
from wallscope.trace.intervals import Times
from wallscope.trace.thread_timeline import ThreadSegments

Releases = Mapping[int, tuple[int, int]]
"""Segments in which a thread went on after another, the last segment of that one, and the ns since."""


class LockHolds(NamedTuple):
    """Holds of locks by the calls of threads, by lock and then in order of their ends; arrays int64.

    Segments and starts of threads are numbered as in `ReplayGraph`.

    Attributes:
        awaited: of each segment: the hold that it waited for in the capture, -1 without one.
        later_ns: of each segment: how long after the end of its call it began to wait, at least. Of a short
            pause of a holder, which may have waited or worked: until the end of the pause.
        thread: of each segment: its thread.
        begin: of each hold: the segment, or start of a thread, behind which its thread asked for the lock.
        last: of each hold: the segment at whose end the lock is free; -1 where another lock begins.
        holder: of each hold: its thread.
    """

    awaited: Rows
    later_ns: Times
    thread: Rows
    begin: Rows
    last: Rows
    holder: Rows


NO_HOLDS = LockHolds(*(np.empty(0, np.int64),) * 6)


class _Calls(NamedTuple):
    """Calls of a thread in order: the first and the last segment of each, and its name as a number."""

    first: Rows
    last: Rows
    name: Rows


class _Hold(NamedTuple):
    """A hold: its first segment in a call, its last one, and its thread."""

    first: int
    last: int
    thread: int


@dataclass(frozen=True, slots=True)
class _Waits:
    """Waits for locks.

    `holder_of` has the segments that waited, each with the last segment of the call that held the lock.
    `came_ns` (int64[segment], ns) is when the thread of each segment had ended its call before.
    """

    holder_of: Mapping[int, int]
    came_ns: Times


def find_lock_holds(
    segments: ThreadSegments, released: Releases, own_behind: Rows, let_go: Codes, name: Rows
) -> LockHolds:
    """Return the holds of all locks that threads waited for.

    Args:
        segments: the segments of threads.
        released: segments in which a thread went on after another.
        own_behind: int64[segments]; what each follows on its own thread.
        let_go: int32[call]; the call that held a lock until right before each call, -1 without one.
        name: int64[call]; the name of each call as a number.
    """
    holder_of = _list_waits(segments, released, let_go)
    if not holder_of:
        return NO_HOLDS
    start_ns, end_ns = np.asarray(segments.start_ns), np.asarray(segments.end_ns)
    waits = _Waits(holder_of, np.append(end_ns, start_ns[segments.first])[own_behind])
    thread = segments.thread
    rows_of: dict[int, list[int]] = defaultdict(list)
    for row, other in holder_of.items():
        rows_of[thread[other]].append(row)
    held: list[_Hold] = []
    for one, rows in rows_of.items():
        calls = _list_calls(segments, name, one)
        is_inside = _find_pauses_inside(calls, segments, waits, rows)
        held += _join_calls(calls, is_inside, {holder_of[row] for row in rows}, one)
    lock_of = _number_locks({(thread[row], thread[other]) for row, other in holder_of.items()})
    held.sort(key=lambda hold: (lock_of[hold.thread], end_ns[hold.last]))
    holds = _place_holds(held, lock_of, waits, segments, own_behind)
    for row, (_, since_ns) in released.items():
        pause_ns = int(end_ns[row] - waits.came_ns[row])
        if row not in holder_of and thread[row] in rows_of and pause_ns <= LONGEST_UNEXPLAINED_LATENCY_NS:
            holds.later_ns[row] = pause_ns - since_ns
    return holds


def _list_waits(segments: ThreadSegments, released: Releases, let_go: Codes) -> dict[int, int]:
    """Return the segments that waited for a lock, each with the last segment of the call that held it."""
    found = {}
    for row, (other, _) in released.items():
        behind, holder = _find_next_call(row, segments), segments.call[other]
        if behind >= 0 and holder >= 0 and let_go[segments.call[behind]] == holder:
            found[row] = other
    return found


def _find_next_call(row: int, segments: ThreadSegments) -> int:
    """Return the first segment in a call behind one outside calls, -1 without one on its thread."""
    rows = segments.rows_of[segments.thread[row]]
    return next((one for one in range(row + 1, rows.stop) if segments.call[one] >= 0), -1)


def _list_calls(segments: ThreadSegments, name: Rows, thread: int) -> _Calls:
    rows = segments.rows_of[thread]
    own = np.asarray(segments.call)[rows.start : rows.stop]
    edge = np.flatnonzero(np.diff(own)) + 1
    first, last = np.concatenate(([0], edge)), np.append(edge, own.size) - 1
    held = own[first] >= 0
    return _Calls(rows.start + first[held], rows.start + last[held], name[own[first[held]]])


def _find_pauses_inside(calls: _Calls, segments: ThreadSegments, waits: _Waits, rows: list[int]) -> Flags:
    """Return bool[pauses between calls]: whether a hold goes on; `rows` waited for holds of the thread."""
    ends_ns = np.asarray(segments.end_ns)[calls.last]
    pause_ns = np.asarray(segments.start_ns)[calls.first[1:]] - ends_ns[:-1]
    kind = list(zip(calls.name[:-1].tolist(), calls.name[1:].tolist(), strict=True))
    place_of = {last: place for place, last in enumerate(calls.last.tolist())}
    inside_ns: dict[tuple[int, int], list[int]] = defaultdict(list)
    outside_ns: dict[tuple[int, int], list[int]] = defaultdict(list)
    ended = [place_of[waits.holder_of[row]] for row in rows]
    for row, place in zip(rows, ended, strict=True):
        for one in range(int(np.searchsorted(ends_ns, waits.came_ns[row], side="right")), place):
            inside_ns[kind[one]].append(int(pause_ns[one]))
        if place < pause_ns.size:
            outside_ns[kind[place]].append(int(pause_ns[place]))
    longest_ns = {one: _find_longest_inside(own_ns, outside_ns[one]) for one, own_ns in inside_ns.items()}
    found: Flags = pause_ns <= np.array([longest_ns.get(one, -1) for one in kind], np.int64)
    found[[place for place in ended if place < found.size]] = False
    return found


def _find_longest_inside(inside_ns: list[int], outside_ns: list[int]) -> int:
    """Return how long a pause inside a hold is at most, -1 if most like it lie between holds."""
    if not outside_ns:
        return max(inside_ns)
    longest_ns, shortest_ns = np.median(inside_ns), np.median(outside_ns)
    if longest_ns < shortest_ns:
        return int(longest_ns + shortest_ns) // 2
    return max(inside_ns) if len(inside_ns) > len(outside_ns) else -1


def _join_calls(calls: _Calls, is_inside: Flags, seen: set[int], thread: int) -> list[_Hold]:
    """Return runs of calls that end with a call of a name at whose end others were seen to go on."""
    last = np.flatnonzero(np.append(~is_inside, np.True_))
    first = np.concatenate(([0], last[:-1] + 1))
    names = {int(calls.name[place]) for place, row in enumerate(calls.last.tolist()) if row in seen}
    return [
        _Hold(int(calls.first[begin]), int(calls.last[end]), thread)
        for begin, end in zip(first.tolist(), last.tolist(), strict=True)
        if int(calls.name[end]) in names
    ]


def _number_locks(pairs: set[tuple[int, int]]) -> dict[int, int]:
    """Return the lock of each thread: threads share one that wait for each other, also through others."""
    lock_of = {one: one for pair in pairs for one in pair}
    is_changed = True
    while is_changed:
        is_changed = False
        for pair in pairs:
            least = min(lock_of[one] for one in pair)
            for one in pair:
                is_changed |= lock_of[one] != least
                lock_of[one] = least
    return lock_of


def _place_holds(
    held: list[_Hold],
    lock_of: Mapping[int, int],
    waits: _Waits,
    segments: ThreadSegments,
    own_behind: Rows,
) -> LockHolds:
    """Return the holds as columns; one without a last segment precedes those of each lock."""
    before, count = segments.before, len(segments.call)
    end_ns = np.append(np.asarray(segments.end_ns), np.asarray(segments.start_ns)[segments.first])
    awaited, later_ns = np.full(count, -1, np.int64), np.zeros(count, np.int64)
    asked_of = {_find_next_call(row, segments): int(own_behind[row]) for row in waits.holder_of}
    rows: list[tuple[int, int, int]] = []
    place_of: dict[int, int] = {}
    lock = None
    for first, last, thread in held:
        if lock_of[thread] != lock:
            lock = lock_of[thread]
            rows.append((-1, -1, -1))
        place_of[last] = len(rows)
        rows.append((asked_of.get(first, int(before[first])), last, thread))
    begin, last_of, holder = np.ascontiguousarray(np.array(rows, np.int64).T)
    for row, other in waits.holder_of.items():
        awaited[row] = place_of[other]
        later_ns[row] = max(int(end_ns[begin[awaited[row]]] - waits.came_ns[row]), 0)
    return LockHolds(awaited, later_ns, np.array(segments.thread, np.int64), begin, last_of, holder)
