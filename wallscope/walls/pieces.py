"""Pieces of threads that are played again, as few as give the same: those of one cause together."""

from collections.abc import Collection

import numpy as np
import numpy.typing as npt
import polars as pl

from wallscope.timeline.dependencies import Dependencies
from wallscope.timeline.nesting import Rows
from wallscope.walls.attribution import Evidence

PIECES = pl.Schema(
    {
        "thread": pl.Int32(),
        "start_ns": pl.Int64(),
        "end_ns": pl.Int64(),
        "call": pl.Int32(),  # -1 outside calls
        "cause": pl.String(),
    }
)
"""What threads were in, without gaps between the pieces of one thread."""


def shortened(
    pieces: pl.DataFrame, operations: pl.DataFrame, evidence: Evidence, releasing: Collection[int]
) -> pl.DataFrame:
    """The pieces (`PIECES`) with those of one cause together between two calls that matter, by end.

    Between two calls that issue operations, or wait for them, it is of no matter what a thread was in first.
    Where another thread of its process left a piece meanwhile it stays as it was: one may have waited for
    the other.
    """
    start_ns, end_ns = pieces["start_ns"].to_numpy(), pieces["end_ns"].to_numpy()
    call, thread = pieces["call"].to_numpy(), pieces["thread"].to_numpy()
    waits = evidence.waits
    issuing = operations.filter(pl.col("call") >= 0)["call"].unique().to_numpy()
    waiting = [*waits.blocking, *releasing]
    matters = np.isin(call, np.concatenate((issuing, np.array(waiting, np.int64))))
    process = evidence.activity.process.gather(pieces["thread"].cast(pl.UInt32)).to_numpy()
    matters |= _holds_issue(pieces, issuing, waits)
    is_first = np.ones(call.size, np.bool_)
    is_first[1:] = matters[1:] | matters[:-1] | (thread[1:] != thread[:-1])
    first = np.flatnonzero(is_first)
    run = np.cumsum(is_first) - 1
    last = np.append(first[1:], call.size) - 1
    is_crowded = np.zeros(first.size, np.bool_)
    for one in np.unique(thread).tolist():
        others = np.sort(end_ns[(process == process[thread == one][0]) & (thread != one)])
        own = np.flatnonzero(thread[first] == one)
        begun = np.searchsorted(others, start_ns[first[own]], side="left")
        is_crowded[own] = begun < np.searchsorted(others, end_ns[last[own]], side="right")
    alone = np.where(is_crowded[run], np.arange(call.size), -1)
    together = (
        pieces.with_columns(
            pl.Series("run", run), pl.Series("alone", alone), pl.Series("run_ns", start_ns[first][run])
        )
        .group_by("run", "alone", pl.col("call") < 0, "cause", maintain_order=True)
        .agg(
            pl.col("thread", "run_ns").first(),
            pl.col("call").first().alias("of_call"),
            length_ns=(pl.col("end_ns") - pl.col("start_ns")).sum(),
        )
        .sort("run", maintain_order=True)
        .with_columns(end_ns=pl.col("run_ns") + pl.col("length_ns").cum_sum().over("run"))
    )
    return (
        together.select(
            "thread",
            "cause",
            "end_ns",
            call="of_call",
            start_ns=pl.col("end_ns") - pl.col("length_ns"),
        )
        .select(PIECES.names())
        .sort("end_ns", "start_ns", maintain_order=True)
    )


def _holds_issue(pieces: pl.DataFrame, issuing: Rows, waits: Dependencies) -> npt.NDArray[np.bool_]:
    """Whether an issuing call begins or ends in each piece: inner calls may own no piece."""
    end_ns, thread = pieces["end_ns"].to_numpy(), pieces["thread"].to_numpy()
    found = np.zeros(end_ns.size, np.bool_)
    for one in np.unique(thread).tolist():
        rows = np.flatnonzero(thread == one)
        own = issuing[waits.calls.thread[issuing] == one]
        for at_ns in (waits.calls.start_ns[own] + 1, waits.calls.end_ns[own]):
            place = np.searchsorted(end_ns[rows], at_ns)
            found[rows[place[place < rows.size]]] = True
    return found
