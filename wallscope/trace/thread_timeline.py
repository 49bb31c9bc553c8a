"""The call that each host thread was in at each moment; in a simulated window, its time cut into segments.

Runtime calls contain driver calls: time is that of the outermost call, but where an allocation or a
synchronization stands inside another call, its time is its own.
"""

from collections.abc import Iterable, Mapping
from functools import cached_property
from itertools import pairwise

import numpy as np
import numpy.typing as npt
import polars as pl

from wallscope.columns import Codes, Flags, Rows, are_among
from wallscope.kernels import call_flattening, views
from wallscope.model.capture import Capture
from wallscope.model.enums import CallRole
from wallscope.records import dataclass
from wallscope.trace.intervals import BEFORE_ALL, Numbers, Times

_WINS_INSIDE = (CallRole.ALLOC, CallRole.SYNC)


@dataclass(frozen=True, slots=True)
class FlattenedCalls:
    """A column of `CALLS` for lookup by numbers of calls; -1 means no call."""

    of_call: npt.NDArray[np.integer]
    of_none: int

    def __getitem__(self, call: int | npt.NDArray[np.integer]) -> npt.NDArray[np.int64]:
        """Values of some calls."""
        if not self.of_call.size:
            return np.full(np.shape(call), self.of_none, np.int64)
        found = np.asarray(self.of_call[call], np.int64)
        found[np.less(call, 0)] = self.of_none
        return found


@dataclass(frozen=True, slots=True)
class CallTimes:
    """Start, end and thread of each call; of none: before all, and no thread."""

    start_ns: FlattenedCalls
    end_ns: FlattenedCalls
    thread: FlattenedCalls


def measure_call_times(calls: pl.DataFrame) -> CallTimes:
    """The times and threads of calls (`CALLS`)."""
    return CallTimes(
        FlattenedCalls(calls["start_ns"].to_numpy(), BEFORE_ALL),
        FlattenedCalls(calls["end_ns"].to_numpy(), BEFORE_ALL),
        FlattenedCalls(calls["thread"].to_numpy(), -1),
    )


@dataclass(frozen=True, slots=True)
class Activities:
    """Host segments: disjoint spans of each thread inside calls, by thread, then by time.

    Attributes:
        ptr: int64[thread + 1], where the segments of each thread begin.
        start_ns, end_ns: int64[segment], ns.
        call: int32[segment], the call that the thread is in.
    """

    ptr: Times
    start_ns: Times
    end_ns: Times
    call: npt.NDArray[np.int32]

    def of(self, thread: int) -> slice:
        """Return the segments of a thread."""
        return slice(int(self.ptr[thread]), int(self.ptr[thread + 1]))


def mark_calls(capture: Capture, pattern: str) -> Flags:
    """Return whether the name of each call of a capture matches a regular expression: bool[call]."""
    is_meant = capture.call_names["text"].str.contains(pattern).to_numpy()
    found: Flags = is_meant[capture.calls["name"].to_numpy()]
    return found


def flatten_calls(calls: pl.DataFrame, threads: int) -> Activities:
    """Return the host segments of so many threads (`CALLS`)."""
    thread, call = (calls[name].to_numpy().view(np.int32) for name in ("thread", "call"))
    start_ns, end_ns = calls["start_ns"].to_numpy(), calls["end_ns"].to_numpy()
    is_neighbor = thread[1:] == thread[:-1]
    if not (is_neighbor & (start_ns[1:] < end_ns[:-1])).any() and (end_ns > start_ns).all():
        ptr = np.searchsorted(thread, np.arange(threads + 1, dtype=np.int32))
        return Activities(ptr, start_ns, end_ns, call)  # calls that do not nest, without a copy
    wins = calls["role"].is_in(_WINS_INSIDE).to_numpy()
    if (is_neighbor & (start_ns[1:] == start_ns[:-1]) & (end_ns[1:] > end_ns[:-1])).any():
        order = np.lexsort((-end_ns, start_ns, thread))
        thread, start_ns, end_ns, call, wins = (
            column[order] for column in (thread, start_ns, end_ns, call, wins)
        )
    room = thread.size + int(wins.sum())
    ptr, starts_ns, ends_ns = (np.empty(size, np.int64) for size in (threads + 1, room, room))
    own = np.empty(room, np.int32)
    count = call_flattening.flatten_calls(
        *views(thread, start_ns, end_ns, np.ascontiguousarray(wins).view(np.uint8), call),
        *views(ptr, starts_ns, ends_ns, own),
    )
    return Activities(ptr, starts_ns[:count], ends_ns[:count], own[:count])


def is_outer(end_ns: Times) -> Flags:
    """Whether each call of a thread, by start and the longest first, ends behind all before it.

    >>> is_outer(np.array([9, 4, 12, 12])).tolist()
    [True, False, True, False]
    """
    found = np.ones(end_ns.size, np.bool_)
    found[1:] = end_ns[1:] > np.maximum.accumulate(end_ns)[:-1]
    return found


@dataclass(frozen=True, slots=True)
class HostCalls:
    """Calls with their names and threads: `CALLS`, `NAMES`, `THREADS`."""

    calls: pl.DataFrame
    names: pl.DataFrame
    threads: pl.DataFrame

    def moments(self, process: int, pattern: str) -> Times:
        """Starts of the calls of a process whose name the pattern finds, in order."""
        names = self.names.filter(pl.col("text").str.contains(pattern))["name"]
        if names.is_empty():
            return np.empty(0, np.int64)
        threads = self.threads.filter(pl.col("process") == process)["thread"]
        own = self.calls.filter(
            pl.col("name").is_in(names.implode()) & pl.col("thread").is_in(threads.implode())
        )
        return np.sort(own["start_ns"].to_numpy())


@dataclass(frozen=True)
class ThreadSegments:
    """Segments of threads, thread by thread, in order of time: inside a call, or outside calls (-1).

    `process` is that of each thread.
    """

    process: Mapping[int, int]
    thread: Numbers
    start_ns: Numbers
    end_ns: Numbers
    call: Numbers

    @cached_property
    def first(self) -> Rows:
        """The first segment of each thread."""
        thread = np.asarray(self.thread)
        return np.flatnonzero(np.diff(thread, prepend=thread[:1] - 1))

    @cached_property
    def rows_of(self) -> Mapping[int, range]:
        """The segments of each thread."""
        edges = [*self.first.tolist(), len(self.thread)]
        return {self.thread[begin]: range(begin, end) for begin, end in pairwise(edges)}

    @property
    def before(self) -> Rows:
        """The segment before each of its thread; starts of threads are counted on behind all segments."""
        found = np.arange(len(self.thread)) - 1
        found[self.first] = len(self.thread) + np.arange(self.first.size)
        return found

    def turn(self, row: int, settled_ns: int) -> tuple[int, int, int, int]:
        """The order of segments of all threads, each with its settled moment."""
        return settled_ns, self.end_ns[row], self.start_ns[row], row

    def at(self, thread: Rows, at_ns: Times, is_start: Flags) -> Rows:
        """The segments of threads that end at a moment, contain it or start there; -1 without one."""
        found = np.full(thread.size, -1, np.int64)
        starts_ns, ends_ns = np.asarray(self.start_ns), np.asarray(self.end_ns)
        for one, rows in self.rows_of.items():
            own = np.flatnonzero(thread == one)
            place = np.searchsorted(ends_ns[rows.start : rows.stop], at_ns[own] + is_start[own])
            found[own] = np.where(place < len(rows), rows.start + place, -1)
        is_inside = (found >= 0) & (np.append(starts_ns, 0)[found] <= at_ns)
        return np.where(is_inside, found, -1)

    def inside(self, calls: Iterable[int]) -> Rows:
        """The segments that lie in some calls."""
        return np.flatnonzero(are_among(np.asarray(self.call), np.fromiter(calls, np.int64)))

    def find_releases(self, issuing: Rows, let_go: Codes, is_alone: Flags) -> dict[int, tuple[int, int]]:
        """Segments in which a thread outside calls went on after another: its last one, and the time since.

        The thread waited for a lock that the other one held in a call. Or it waited for the other one of its
        process, which issued meanwhile and may have gone on after its last call.

        Args:
            issuing: the calls that issue operations.
            let_go: int32[call], the call that held a lock until right before each call, -1 without one.
            is_alone: bool[call], whether its thread waited for no other one before each call.
        """
        call, ends_ns = np.asarray(self.call), np.asarray(self.end_ns)
        starts_ns, threads = np.asarray(self.start_ns), np.asarray(self.thread)
        issues = np.flatnonzero((call >= 0) & are_among(call, issuing))
        issues = issues[np.lexsort((starts_ns[issues], ends_ns[issues]))]
        process_of = np.zeros(max(self.rows_of, default=-1) + 1, np.int64)
        process_of[list(self.rows_of)] = [self.process[thread] for thread in self.rows_of]
        process, holders = process_of[threads[issues]], self._find_holders(let_go)
        behind = np.fromiter(holders, np.int64)
        found = {}
        for thread, rows in self.rows_of.items():
            first, last = _find_runs(call[rows.start : rows.stop] < 0)
            first, last = rows.start + first, rows.start + last
            held = np.flatnonzero(np.isin(last + 1, behind))
            left_of = {
                run: holders[row] for run, row in zip(held.tolist(), (last[held] + 1).tolist(), strict=True)
            }
            issued = issues[process == self.process[thread]]
            if issued.size and not (threads[issued] == thread).all():
                next_call = np.append(call[rows.start : rows.stop], -1)[last + 1 - rows.start]
                place = np.searchsorted(ends_ns[issued], ends_ns[last]) - 1
                has_gone_on = (place >= 0) & (ends_ns[issued[place]] > starts_ns[first])
                has_gone_on &= threads[issued[place]] != thread
                has_gone_on &= ~np.append(is_alone, False)[next_call]
                for run in np.flatnonzero(has_gone_on).tolist():
                    others = self.rows_of[int(threads[issued[place[run]]])]
                    ends = ends_ns[others.start : others.stop]
                    left = others.start + int(np.searchsorted(ends, ends_ns[last[run]])) - 1
                    locked = left_of.get(run, left)
                    if threads[locked] == threads[left]:  # it may have issued since it held the lock
                        left_of[run] = max(left, locked)
            for run, left in left_of.items():
                between = ends_ns[first[run] : last[run] + 1]
                row = int(first[run] + np.searchsorted(between, ends_ns[left], side="right"))
                if row <= last[run]:
                    found[row] = (left, int(ends_ns[row] - ends_ns[left]))
        return found

    def _find_holders(self, let_go: Codes) -> dict[int, int]:
        """The last segment of the call that held a lock, by the first one of the call behind the wait for it.

        Where the window begins meanwhile, the call is not in it.
        """
        call, before = np.asarray(self.call), self.before
        is_outside = np.append(call < 0, np.zeros(self.first.size, np.bool_))
        begins = np.flatnonzero((call >= 0) & is_outside[before])
        holder = let_go[call[begins]]
        rows = np.flatnonzero(are_among(call, holder[holder >= 0]))
        last_of = dict(zip(call[rows].tolist(), rows.tolist(), strict=True))
        held = zip(begins[holder >= 0].tolist(), holder[holder >= 0].tolist(), strict=True)
        return {row: last_of[one] for row, one in held if one in last_of}


def _find_runs(is_so: Flags) -> tuple[Rows, Rows]:
    """The first and the last place of each run of what is so."""
    edge = np.diff(np.concatenate(([0], is_so.astype(np.int8), [0])))
    return np.flatnonzero(edge > 0), np.flatnonzero(edge < 0) - 1
