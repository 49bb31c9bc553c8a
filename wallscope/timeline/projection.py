"""From host ranges to the device: the range in which each operation was issued.

An operation belongs to the innermost range that is open on the thread that issued it, at the start of
the issuing call; where that thread has none, to that of the thread that waits for it. A CUDA graph
belongs to the range around its launch.
"""

import numpy as np
import numpy.typing as npt
import polars as pl

from wallscope.model.frames import PROJECTION
from wallscope.model.kinds import ProjectedBy
from wallscope.timeline.inheritance import HostThread, host_threads, of_the_one_that_waits
from wallscope.timeline.nesting import Rows

_NONE, _SAME_THREAD, _INHERITED = 0, 1, 2
_HOW = {_NONE: ProjectedBy.NONE, _SAME_THREAD: ProjectedBy.SAME_THREAD, _INHERITED: ProjectedBy.INHERITED}


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
    holders = host_threads(ranges, calls, ranges["parent"].to_numpy().astype(np.int64))
    for in_process in issued.partition_by("process"):
        members = threads.filter(pl.col("process") == in_process["process"][0])["thread"]
        own = {thread: holders[thread] for thread in members if thread in holders}
        _project_process(in_process, own, found, how)
    names = [str(_HOW[code]) for code in sorted(_HOW)]
    return pl.DataFrame(
        {
            "op": operations["op"],
            "range": pl.Series(found),
            "how": pl.Series(how).replace_strict(list(_HOW), names, return_dtype=PROJECTION["how"]),
        }
    ).cast(PROJECTION)


def _project_process(
    issued: pl.DataFrame, holders: dict[int, HostThread], found: Rows, how: npt.NDArray[np.uint8]
) -> None:
    """Fill in range and manner of the operations of one process."""
    for own in issued.partition_by("thread"):
        thread, op = own["thread"][0], own["op"].to_numpy()
        at_ns = own["start_ns"].to_numpy()
        row = holders[thread].open_range(at_ns) if thread in holders else np.full(at_ns.size, -1)
        found[op] = row
        how[op] = np.where(row >= 0, _SAME_THREAD, _NONE)
        orphan = np.flatnonzero(row < 0)
        waiting = [holder for other, holder in holders.items() if other != thread]
        if orphan.size and waiting:
            inherited = of_the_one_that_waits(waiting, at_ns[orphan])
            found[op[orphan]] = inherited
            how[op[orphan]] = np.where(inherited >= 0, _INHERITED, _NONE)
