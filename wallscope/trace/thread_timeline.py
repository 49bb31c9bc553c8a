"""What each host thread was in at every moment: calls laid flat, without overlap.

Runtime calls contain driver calls: time is that of the outermost call, but where an allocation or a
synchronization stands inside another call, its time is its own.
"""

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import polars as pl

from wallscope.columns import Flags
from wallscope.kernels import call_flattening, views
from wallscope.model.kinds import CallRole
from wallscope.trace.intervals import BEFORE_ALL, Times

_WINS_INSIDE = (CallRole.ALLOC, CallRole.SYNC)


@dataclass(frozen=True, slots=True)
class OfCalls:
    """A column of `CALLS` as it is, to be asked by numbers of calls; -1 is no call."""

    told: npt.NDArray[np.integer]
    of_none: int

    def __getitem__(self, call: int | npt.NDArray[np.integer]) -> npt.NDArray[np.int64]:
        """What is told of some calls."""
        if not self.told.size:
            return np.full(np.shape(call), self.of_none, np.int64)
        return np.where(np.less(call, 0), np.int64(self.of_none), self.told[call])


@dataclass(frozen=True, slots=True)
class CallTimes:
    """Start, end and thread of each call; of none: before all, and no thread."""

    start_ns: OfCalls
    end_ns: OfCalls
    thread: OfCalls


def call_times(calls: pl.DataFrame) -> CallTimes:
    """The times and threads of calls (`CALLS`)."""
    return CallTimes(
        OfCalls(calls["start_ns"].to_numpy(), BEFORE_ALL),
        OfCalls(calls["end_ns"].to_numpy(), BEFORE_ALL),
        OfCalls(calls["thread"].to_numpy(), -1),
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


def are_outer(end_ns: Times) -> Flags:
    """Whether each call of a thread, by start and the longest first, ends behind all before it.

    >>> are_outer(np.array([9, 4, 12, 12])).tolist()
    [True, False, True, False]
    """
    found = np.ones(end_ns.size, np.bool_)
    found[1:] = end_ns[1:] > np.maximum.accumulate(end_ns)[:-1]
    return found
