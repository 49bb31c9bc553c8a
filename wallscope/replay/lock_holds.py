"""Holds of locks in the calls of threads, and which of them a thread waits for once the times change.

No row names a lock. A thread that waits for one shows that another one held it until some call ended. All calls
of the holder from the moment of waiting up to that one lie in the hold, and its next call does not. So pauses
between calls of the holder are inside holds or between them, as those that were seen with the same two calls.

In a changed run, a thread waits for the holds that were asked for before it came and that end later. If it comes
before the holder does, it does not wait.
"""

from collections import defaultdict
from collections.abc import Mapping
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from wallscope.columns import Codes, Rows
from wallscope.thresholds.steps import LONGEST_UNEXPLAINED_LATENCY_NS
from wallscope.trace.intervals import Times
from wallscope.trace.thread_timeline import ThreadSegments


class LockHolds(NamedTuple):
    """Holds of locks by the calls of threads; index spaces as in `ReplayGraph`, *holds* in order of their ends.

    Attributes:
        awaited: int64[segments]; the hold that each waited for in the capture, -1 without one.
        later_ns: int64[segments], ns; how long after the end of its call each began to wait, at least. Of a short
            pause of a holder, which may have waited or worked: until the end of the pause.
        thread: int64[segments]; the thread of each.
        begin: int64[holds]; the segment, or start of a thread, behind which its thread asked for the lock.
        last: int64[holds]; the segment at whose end the lock is free; -1 where other locks begin.
        holder: int64[holds]; the thread.
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


def find_lock_holds(
    segments: ThreadSegments, released: Mapping[int, tuple[int, int]], own_behind: Rows, let_go: Codes, name: Rows
) -> LockHolds:
    """Return the holds of all locks that threads waited for.

    Args:
        segments: the segments of threads.
        released: segments in which a thread went on after another, the last segment of that one, and the time
            since.
        own_behind: int64[segments]; what each follows on its own thread.
        let_go: int32[call]; the call that held a lock until right before each call, -1 without one.
        name: int64[call]; the name of each call as a number.
    """
    call, thread = np.asarray(segments.call), np.asarray(segments.thread)
    start_ns, end_ns = np.asarray(segments.start_ns), np.asarray(segments.end_ns)
    waits = _list_waits(segments, released, let_go)
    if not waits:
        return NO_HOLDS
    came_ns = np.append(end_ns, start_ns[segments.first])[own_behind]
    of_holder: dict[int, list[int]] = defaultdict(list)
    for row, other in waits.items():
        of_holder[int(thread[other])].append(row)
    held: list[tuple[int, int, int]] = []
    for one, rows in of_holder.items():
        own = _list_calls(call, name, segments.rows_of[one])
        is_inside = _find_boundaries_inside(own, start_ns, end_ns, [(came_ns[row], waits[row]) for row in rows])
        held += _join_calls(own, is_inside, {waits[row] for row in rows}, one)
    group_of = _group_threads({(int(thread[row]), int(thread[other])) for row, other in waits.items()})
    held.sort(key=lambda hold: (group_of[hold[2]], end_ns[hold[1]]))
    holds = _place_holds(held, group_of, waits, segments, own_behind, came_ns)
    for row, (_, since_ns) in released.items():
        pause_ns = int(end_ns[row] - came_ns[row])
        if row not in waits and int(thread[row]) in of_holder and pause_ns <= LONGEST_UNEXPLAINED_LATENCY_NS:
            holds.later_ns[row] = pause_ns - since_ns
    return holds


def _list_waits(
    segments: ThreadSegments, released: Mapping[int, tuple[int, int]], let_go: Codes
) -> dict[int, int]:
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


def _list_calls(call: Rows, name: Rows, rows: range) -> _Calls:
    own = call[rows.start : rows.stop]
    edge = np.flatnonzero(np.diff(own)) + 1
    first = np.concatenate(([0], edge))
    last = np.append(edge, own.size) - 1
    held = own[first] >= 0
    return _Calls(rows.start + first[held], rows.start + last[held], name[own[first[held]]])


def _find_boundaries_inside(
    calls: _Calls, start_ns: Times, end_ns: Times, waits: list[tuple[int, int]]
) -> npt.NDArray[np.bool_]:
    """Return of each two adjacent calls whether a hold goes on from the first to the second.

    `waits` are when threads began to wait, and the last segment of the call that ended it.
    """
    gap_ns = start_ns[calls.first[1:]] - end_ns[calls.last[:-1]]
    kind = list(zip(calls.name[:-1].tolist(), calls.name[1:].tolist(), strict=True))
    place_of = {last: place for place, last in enumerate(calls.last.tolist())}
    inside, outside = defaultdict[tuple[int, int], list[int]](list), defaultdict[tuple[int, int], list[int]](list)
    ends_ns = end_ns[calls.last]
    for came_ns, last in waits:
        place = place_of[last]
        first = int(np.searchsorted(ends_ns, came_ns, side="right"))
        for one in range(first, place):
            inside[kind[one]].append(int(gap_ns[one]))
        if place < gap_ns.size:
            outside[kind[place]].append(int(gap_ns[place]))
    longest_ns = {one: _find_longest_inside(gaps, outside.get(one, [])) for one, gaps in inside.items()}
    most_ns = np.array([longest_ns.get(one, -1) for one in kind], np.int64)
    found: npt.NDArray[np.bool_] = gap_ns <= most_ns
    ended = np.array([place_of[last] for _, last in waits], np.int64)
    found[ended[ended < found.size]] = False
    return found


def _find_longest_inside(inside_ns: list[int], outside_ns: list[int]) -> int:
    """Return how long a pause inside a hold is at most, where pauses between holds are known too."""
    if not outside_ns:
        return max(inside_ns)
    longest_ns, shortest_ns = np.quantile(inside_ns, 0.9), np.quantile(outside_ns, 0.1)
    if longest_ns < shortest_ns:
        return int(longest_ns + shortest_ns) // 2
    return max(inside_ns) if len(inside_ns) > len(outside_ns) else -1


def _join_calls(
    calls: _Calls, is_inside: npt.NDArray[np.bool_], seen: set[int], thread: int
) -> list[tuple[int, int, int]]:
    """Return first and last segment and thread of runs of calls that end as those that others waited for."""
    last = np.flatnonzero(np.append(~is_inside, True))
    first = np.concatenate(([0], last[:-1] + 1))
    names = {int(calls.name[place]) for place, row in enumerate(calls.last.tolist()) if row in seen}
    return [
        (int(calls.first[begin]), int(calls.last[end]), thread)
        for begin, end in zip(first.tolist(), last.tolist(), strict=True)
        if int(calls.name[end]) in names
    ]


def _group_threads(pairs: set[tuple[int, int]]) -> dict[int, int]:
    """Return a number of each thread that those share which wait for each other, also through others."""
    group_of = {one: one for pair in pairs for one in pair}
    changed = True
    while changed:
        changed = False
        for pair in pairs:
            least = min(group_of[one] for one in pair)
            for one in pair:
                changed |= group_of[one] != least
                group_of[one] = least
    return group_of


def _place_holds(  # noqa: PLR0913, PLR0917  # all that is known of waits and holds
    held: list[tuple[int, int, int]],
    group_of: Mapping[int, int],
    waits: Mapping[int, int],
    segments: ThreadSegments,
    own_behind: Rows,
    came_ns: Times,
) -> LockHolds:
    """Return the holds as columns; one without a last segment precedes those of each group."""
    before, count = segments.before, len(segments.call)
    end_ns = np.append(np.asarray(segments.end_ns), np.asarray(segments.start_ns)[segments.first])
    awaited, later_ns = np.full(count, -1, np.int64), np.zeros(count, np.int64)
    asked_of = {_find_next_call(row, segments): int(own_behind[row]) for row in waits}
    rows: list[tuple[int, int, int]] = []
    place_of: dict[int, int] = {}
    group = None
    for first, last, thread in held:
        if group_of[thread] != group:
            group = group_of[thread]
            rows.append((-1, -1, -1))
        place_of[last] = len(rows)
        rows.append((asked_of.get(first, int(before[first])), last, thread))
    begin, last, holder = np.ascontiguousarray(np.array(rows, np.int64).T)
    for row, other in waits.items():
        hold = place_of[other]
        awaited[row] = hold
        later_ns[row] = max(int(end_ns[begin[hold]] - came_ns[row]), 0)
    return LockHolds(awaited, later_ns, np.array(segments.thread, np.int64), begin, last, holder)
