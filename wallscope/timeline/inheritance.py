"""What a thread without a range of its own works for: the one thread of its process that waits for it.

PyTorch's autograd thread issues the backward pass while the main thread waits inside `backward`. The
thread that waits holds an open range and is outside API calls.
"""

from collections.abc import Mapping
from functools import cached_property

import numpy as np
import polars as pl

from wallscope.arrays.columns import Flags, Rows, filled
from wallscope.arrays.groups import runs
from wallscope.model.kinds import CallRole
from wallscope.timeline.nesting import Parents, innermost
from wallscope.timeline.spans import Times

_MOST_THREADS = 64
"""Of more threads than that none is the one that waits; and the question would take the square of them."""
_ISSUING = [CallRole.LAUNCH, CallRole.GRAPH, CallRole.COPY]


class HostThread:
    """The ranges and calls of one thread, ready to be asked what was open or made at a moment."""

    def __init__(self, ranges: pl.DataFrame, calls: pl.DataFrame, parent: Parents) -> None:
        self.rows = ranges["range"].to_numpy().astype(np.int64)
        self.start_ns, self.end_ns = ranges["start_ns"].to_numpy(), ranges["end_ns"].to_numpy()
        self._parent, self._calls = parent, calls
        self._call_start_ns = calls["start_ns"].to_numpy()

    @cached_property
    def issues(self) -> bool:
        """Whether a call of the thread gave the device work."""
        return bool(self._calls["role"].is_in(_ISSUING).any())

    @cached_property
    def _own_parent(self) -> Parents:
        """The row of the parent among the ranges of the thread."""
        parent = self._parent[self.rows]
        return np.where(parent < 0, -1, np.searchsorted(self.rows, parent)).astype(np.int32)

    @cached_property
    def _call_end_ns(self) -> Times:
        ends_ns = self._calls["end_ns"].to_numpy()
        return ends_ns if (ends_ns[1:] >= ends_ns[:-1]).all() else np.maximum.accumulate(ends_ns)

    def open_range(self, at_ns: Times) -> Rows:
        """The innermost open range at each moment, -1 where there is none."""
        row = innermost(self.start_ns, self.end_ns, self._own_parent, at_ns)
        return np.where(row < 0, -1, np.append(self.rows, -1)[row])

    def call_sides(self) -> tuple[Times, Times]:
        """When API calls begin, and when they end, each in order."""
        return self._call_start_ns, self._call_end_ns

    def is_in_call(self, at_ns: Times) -> Flags:
        """Whether the thread is inside an API call at each moment."""
        if self._call_end_ns.size == 0:
            return np.zeros(at_ns.size, dtype=bool)
        row = np.searchsorted(self._call_start_ns, at_ns, side="right") - 1
        is_open: Flags = (row >= 0) & (self._call_end_ns[row] > at_ns)
        return is_open

    def is_quiet(self, start_ns: Times, end_ns: Times) -> Flags:
        """Whether the thread neither calls nor opens a range during each span."""
        made = _count_between(self._call_start_ns, start_ns, end_ns) + _count_between(
            self.start_ns, start_ns, end_ns
        )
        is_quiet: Flags = (made == 0) & ~self.is_in_call(start_ns)
        return is_quiet


def _count_between(moments: Times, start_ns: Times, end_ns: Times) -> Rows:
    return np.searchsorted(moments, end_ns, side="left") - np.searchsorted(moments, start_ns, side="left")


def host_threads(ranges: pl.DataFrame, calls: pl.DataFrame, parent: Parents) -> dict[int, HostThread]:
    """The threads that hold ranges, by number; ranges that end on another thread do not count.

    `ranges` follow `RANGES`, `calls` follow `CALLS`, `parent` is the row of the range around each.
    """
    held = ranges if not ranges["crosses"].any() else ranges[np.flatnonzero(~ranges["crosses"].to_numpy())]
    calls_of = dict(runs(calls["thread"].to_numpy()))
    nothing = slice(0, 0)
    return {
        thread: HostThread(held[rows], calls[calls_of.get(thread, nothing)], parent)
        for thread, rows in runs(filled(held["thread"]))
        if thread >= 0
    }


def by_process(holders: Mapping[int, HostThread], threads: pl.DataFrame) -> dict[int, dict[int, HostThread]]:
    """Such threads of each process (`THREADS`), by its number."""
    found: dict[int, dict[int, HostThread]] = {}
    for thread, process in threads["thread", "process"].iter_rows():
        if thread in holders:
            found.setdefault(process, {})[thread] = holders[thread]
    return found


def of_the_one_that_waits(threads: list[HostThread], at_ns: Times) -> Rows:
    """The open range of the only thread that has one and is in no call; -1 where none or several do."""
    if not 0 < len(threads) <= _MOST_THREADS:
        return np.full(at_ns.size, -1)
    return _only([np.where(thread.is_in_call(at_ns), -1, thread.open_range(at_ns)) for thread in threads])


def around_whole(threads: list[HostThread], start_ns: Times, end_ns: Times) -> Rows:
    """The range of the only issuing thread that waits in it during all of each span; else -1."""
    issuing = [thread for thread in threads if thread.issues]
    found = []
    for thread in issuing if len(issuing) <= _MOST_THREADS else []:
        row = thread.open_range(start_ns)
        until_ns = np.append(thread.end_ns, 0)[np.searchsorted(thread.rows, row)]
        waits = (row >= 0) & (until_ns >= end_ns) & thread.is_quiet(start_ns, end_ns)
        found.append(np.where(waits, row, -1))
    return _only(found) if found else np.full(start_ns.size, -1)


def _only(candidates: list[Rows]) -> Rows:
    """Of several candidates a row the one that is not -1, if there is exactly one."""
    stacked = np.array(candidates)
    return np.where((stacked >= 0).sum(axis=0) == 1, stacked.max(axis=0), -1)
