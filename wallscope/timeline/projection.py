"""From host ranges to the device: the range in which each operation was issued.

An operation belongs to the innermost range that is open on the thread that issued it, at the start of
the issuing call. Where that thread has none, the range is inherited from the one other thread of the
process that holds an open range and is outside API calls: it waits, as the main thread does while
PyTorch's autograd thread issues the backward pass. A CUDA graph belongs to the range around its launch.
"""

import numpy as np
import numpy.typing as npt
import polars as pl

from wallscope.model.frames import PROJECTION
from wallscope.model.kinds import ProjectedBy
from wallscope.timeline.nesting import Rows, innermost
from wallscope.timeline.spans import Times

_NONE, _SAME_THREAD, _INHERITED = 0, 1, 2
_HOW = {_NONE: ProjectedBy.NONE, _SAME_THREAD: ProjectedBy.SAME_THREAD, _INHERITED: ProjectedBy.INHERITED}


class _Thread:
    """The ranges and calls of one thread, ready to be asked what is open at a moment."""

    def __init__(self, ranges: pl.DataFrame, calls: pl.DataFrame) -> None:
        self.rows = ranges["range"].to_numpy().astype(np.int64)
        self._start_ns, self._end_ns = ranges["start_ns"].to_numpy(), ranges["end_ns"].to_numpy()
        parent = ranges["parent"].to_numpy().astype(np.int64)
        self._parent = np.where(parent < 0, -1, np.searchsorted(self.rows, parent))
        self._call_start_ns = calls["start_ns"].to_numpy()
        self._call_end_ns = (
            np.maximum.accumulate(calls["end_ns"].to_numpy()) if len(calls) else np.empty(0, np.int64)
        )

    def open_range(self, at_ns: Times) -> Rows:
        """The innermost open range at each moment, -1 where there is none."""
        row = innermost(self._start_ns, self._end_ns, self._parent, at_ns)
        return np.where(row < 0, -1, self.rows[row])

    def is_in_call(self, at_ns: Times) -> npt.NDArray[np.bool_]:
        """Whether the thread is inside an API call at each moment."""
        row = np.searchsorted(self._call_start_ns, at_ns, side="right") - 1
        return (
            (row >= 0) & (self._call_end_ns[row] > at_ns)
            if self._call_end_ns.size
            else np.zeros(at_ns.size, bool)
        )


def projection(
    operations: pl.DataFrame, calls: pl.DataFrame, ranges: pl.DataFrame, threads: pl.DataFrame
) -> pl.DataFrame:
    """The range of each operation (`OPERATIONS`, `CALLS`, `NESTED`, `THREADS` to `PROJECTION`)."""
    issued = (
        operations.filter(pl.col("call") >= 0)
        .select("op", call=pl.col("call").cast(pl.UInt32))
        .join(calls.select("call", "thread", "start_ns"), on="call")
        .join(threads.select("thread", "process"), on="thread")
        .sort("op")
    )
    found = np.full(len(operations), -1, dtype=np.int64)
    how = np.zeros(len(operations), dtype=np.uint8)
    trees = ranges.filter(~pl.col("crosses"))
    for in_process in issued.partition_by("process"):
        members = threads.filter(pl.col("process") == in_process["process"][0])["thread"]
        _project_process(
            in_process, trees.filter(pl.col("thread").is_in(members.implode())), calls, found, how
        )
    names = [str(_HOW[code]) for code in sorted(_HOW)]
    return pl.DataFrame(
        {
            "op": operations["op"],
            "range": pl.Series(found),
            "how": pl.Series(how).replace_strict(list(_HOW), names, return_dtype=PROJECTION["how"]),
        }
    ).cast(PROJECTION)


def _project_process(
    issued: pl.DataFrame,
    ranges: pl.DataFrame,
    calls: pl.DataFrame,
    found: Rows,
    how: npt.NDArray[np.uint8],
) -> None:
    """Fill in range and manner of the operations of one process."""
    holders = {
        own["thread"][0]: _Thread(own, calls.filter(pl.col("thread") == own["thread"][0]))
        for own in ranges.partition_by("thread")
    }
    for own in issued.partition_by("thread"):
        thread, op = own["thread"][0], own["op"].to_numpy()
        at_ns = own["start_ns"].to_numpy()
        row = holders[thread].open_range(at_ns) if thread in holders else np.full(at_ns.size, -1)
        found[op] = row
        how[op] = np.where(row >= 0, _SAME_THREAD, _NONE)
        orphan = np.flatnonzero(row < 0)
        waiting = [holder for other, holder in holders.items() if other != thread]
        if orphan.size and waiting:
            inherited = _of_the_one_that_waits(waiting, at_ns[orphan])
            found[op[orphan]] = inherited
            how[op[orphan]] = np.where(inherited >= 0, _INHERITED, _NONE)


def _of_the_one_that_waits(threads: list[_Thread], at_ns: Times) -> Rows:
    """The open range of the only thread that has one and is in no call; -1 where none or several do."""
    count = np.zeros(at_ns.size, dtype=np.int64)
    row = np.full(at_ns.size, -1, dtype=np.int64)
    for thread in threads:
        own = np.where(thread.is_in_call(at_ns), -1, thread.open_range(at_ns))
        count += own >= 0
        row = np.where(own >= 0, own, row)
    return np.where(count == 1, row, -1)
