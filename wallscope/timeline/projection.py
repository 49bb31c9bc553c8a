"""From host ranges to the device: the range in which each operation was issued.

An operation belongs to the innermost range that is open on the thread that issued it, at the start of
the issuing call; where that thread has none, to that of the thread that waits for it. A CUDA graph
belongs to the range around its launch.
"""

import numpy as np
import polars as pl

from wallscope.arrays.groups import grouped
from wallscope.model.frames import PROJECTION
from wallscope.model.kinds import ProjectedBy
from wallscope.timeline.inheritance import by_process, host_threads, of_the_one_that_waits

_NONE, _SAME_THREAD, _INHERITED = range(3)
_HOW = pl.Series([ProjectedBy.NONE, ProjectedBy.SAME_THREAD, ProjectedBy.INHERITED], dtype=PROJECTION["how"])


def projection(
    operations: pl.DataFrame, calls: pl.DataFrame, ranges: pl.DataFrame, threads: pl.DataFrame
) -> pl.DataFrame:
    """The range of each operation (`OPERATIONS`, `CALLS`, `NESTED`, `THREADS` to `PROJECTION`)."""
    call = operations["call"].to_numpy()
    issued = np.flatnonzero(call >= 0)
    call = call[issued]
    issued_ns = calls["start_ns"].to_numpy()[call]
    found = np.full(len(operations), -1, dtype=np.int32)
    how = np.zeros(len(operations), dtype=np.uint8)
    holders = host_threads(ranges, calls, ranges["parent"].to_numpy())
    of_process = by_process(holders, threads)
    process = dict(threads["thread", "process"].iter_rows())
    for thread, rows in grouped(calls["thread"].to_numpy()[call]):
        op, at_ns = issued[rows], issued_ns[rows]
        own = of_process.get(process[thread], {})
        row = own[thread].open_range(at_ns) if thread in own else np.full(rows.size, -1)
        found[op] = row
        how[op] = np.where(row >= 0, _SAME_THREAD, _NONE)
        orphan = np.flatnonzero(row < 0)
        waiting = [holder for other, holder in own.items() if other != thread]
        if orphan.size and waiting:
            inherited = of_the_one_that_waits(waiting, at_ns[orphan])
            found[op[orphan]] = inherited
            how[op[orphan]] = np.where(inherited >= 0, _INHERITED, _NONE)
    return pl.DataFrame({"op": operations["op"], "range": found, "how": _HOW[how]}, schema=PROJECTION)
