"""What threads were in, piece by piece: what they do again when a window of time is simulated."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise

import numpy as np

from wallscope.columns import Flags, Rows, are_among
from wallscope.trace.intervals import Numbers, Times


@dataclass(frozen=True)
class Pieces:
    """Pieces of threads, one thread behind the other, in order of time: inside a call, or outside calls (-1).

    `process` is that of each thread.
    """

    process: Mapping[int, int]
    thread: Numbers
    start_ns: Numbers
    end_ns: Numbers
    call: Numbers

    @cached_property
    def first(self) -> Rows:
        """The first piece of each thread."""
        thread = np.asarray(self.thread)
        return np.flatnonzero(np.diff(thread, prepend=thread[:1] - 1))

    @cached_property
    def rows_of(self) -> Mapping[int, range]:
        """The pieces of each thread."""
        edges = [*self.first.tolist(), len(self.thread)]
        return {self.thread[begin]: range(begin, end) for begin, end in pairwise(edges)}

    @property
    def before(self) -> Rows:
        """The piece before each of its thread; starts of threads are counted on behind all pieces."""
        found = np.arange(len(self.thread)) - 1
        found[self.first] = len(self.thread) + np.arange(self.first.size)
        return found

    def turn(self, row: int, settled_ns: int) -> tuple[int, int, int, int]:
        """What tells the order of pieces of all threads, of which each has settled at a moment."""
        return settled_ns, self.end_ns[row], self.start_ns[row], row

    def at(self, thread: Rows, at_ns: Times, is_start: Flags) -> Rows:
        """The pieces of threads that end at a moment, contain it or start there; -1 without one."""
        found = np.full(thread.size, -1, np.int64)
        starts_ns, ends_ns = np.asarray(self.start_ns), np.asarray(self.end_ns)
        for one, rows in self.rows_of.items():
            own = np.flatnonzero(thread == one)
            place = np.searchsorted(ends_ns[rows.start : rows.stop], at_ns[own] + is_start[own])
            found[own] = np.where(place < len(rows), rows.start + place, -1)
        is_inside = (found >= 0) & (np.append(starts_ns, 0)[found] <= at_ns)
        return np.where(is_inside, found, -1)

    def inside(self, calls: Iterable[int]) -> Rows:
        """The pieces that lie in some calls."""
        return np.flatnonzero(are_among(np.asarray(self.call), np.fromiter(calls, np.int64)))

    def released(self, issuing: Rows) -> dict[int, tuple[int, int]]:
        """Pieces in which a thread outside calls went on after another: its last piece, and the time since.

        The thread waited for the other one of its process, which issued meanwhile and may have gone on after
        its last call.
        """
        call, ends_ns = np.asarray(self.call), np.asarray(self.end_ns)
        starts_ns, threads = np.asarray(self.start_ns), np.asarray(self.thread)
        issues = np.flatnonzero((call >= 0) & are_among(call, issuing))
        issues = issues[np.lexsort((starts_ns[issues], ends_ns[issues]))]
        process_of = np.zeros(max(self.rows_of, default=-1) + 1, np.int64)
        process_of[list(self.rows_of)] = [self.process[thread] for thread in self.rows_of]
        process = process_of[threads[issues]]
        found = {}
        for thread, rows in self.rows_of.items():
            issued = issues[process == self.process[thread]]
            if not issued.size or (threads[issued] == thread).all():
                continue
            first, last = _runs(call[rows.start : rows.stop] < 0)
            first, last = rows.start + first, rows.start + last
            place = np.searchsorted(ends_ns[issued], ends_ns[last]) - 1
            has_gone_on = (place >= 0) & (ends_ns[issued[place]] > starts_ns[first])
            has_gone_on &= threads[issued[place]] != thread
            for run in np.flatnonzero(has_gone_on).tolist():
                others = self.rows_of[int(threads[issued[place[run]]])]
                ends = ends_ns[others.start : others.stop]
                left = others.start + int(np.searchsorted(ends, ends_ns[last[run]])) - 1
                between = ends_ns[first[run] : last[run] + 1]
                row = int(first[run] + np.searchsorted(between, ends_ns[left], side="right"))
                found[row] = (left, int(ends_ns[row] - ends_ns[left]))
        return found


def _runs(is_so: Flags) -> tuple[Rows, Rows]:
    """The first and the last place of each run of what is so."""
    edge = np.diff(np.concatenate(([0], is_so.astype(np.int8), [0])))
    return np.flatnonzero(edge > 0), np.flatnonzero(edge < 0) - 1
