"""The stream of a rank that carries most compute: steps are cut where it begins their work."""

from dataclasses import dataclass

import numpy as np
import polars as pl

from wallscope.model.kinds import ComputeCategory, OperationClass
from wallscope.timeline.anchors import AnchorRanges
from wallscope.timeline.nesting import Rows
from wallscope.timeline.steadiness import Host


@dataclass(frozen=True, slots=True)
class MainStream:
    """Compute kernels and opaque graphs of a rank's main stream, in order of time.

    Columns `start_ns`, `end_ns`, `symbol`, `updates` (whether it is optimizer work) and `issue_ns`, the
    start of the issuing call (its own start where that is not known).
    """

    rank_id: int
    process: int
    last_ns: int
    rows: pl.DataFrame
    has_graphs: bool


def main_stream(operations: pl.DataFrame, rank: dict[str, int], host: Host) -> MainStream:
    """The main stream of one rank, a row of `RANKS`, from `CLASSIFIED` operations."""
    own = operations.filter(pl.col("rank_id") == rank["rank_id"])
    computing = own.filter(pl.col("class").is_in([OperationClass.COMPUTE, OperationClass.OPAQUE_GRAPH]))
    by_work = (
        computing.group_by("stream")
        .agg(work_ns=(pl.col("end_ns") - pl.col("start_ns")).sum())
        .sort("work_ns", "stream", descending=[True, False])
    )
    rows = computing.filter(pl.col("stream") == by_work["stream"][0]) if len(by_work) else computing
    is_graph = pl.col("class") == OperationClass.OPAQUE_GRAPH
    timed = rows.select(
        "start_ns",
        "end_ns",
        symbol=pl.when(is_graph).then(0).otherwise(pl.col("name").cast(pl.Int64) + 1),
        updates=pl.col("category") == ComputeCategory.OPTIMIZER,
        issue_ns=pl.coalesce(host.call_start_ns(rows["call"]), pl.col("start_ns")),
    )
    last_ns = own["end_ns"].max()
    assert isinstance(last_ns, int)  # noqa: S101  # every rank has an operation
    return MainStream(
        rank["rank_id"], rank["process"], last_ns, timed, bool(rows.select(is_graph.any()).item())
    )


def first_rows(main: MainStream, anchor: AnchorRanges) -> Rows:
    """Row of the first kernel issued inside each anchor range; ranges without one are passed over."""
    issue_ns = main.rows["issue_ns"].to_numpy()
    inside = np.searchsorted(anchor.start_ns, issue_ns, side="right") - 1
    within = (inside >= 0) & (issue_ns < anchor.end_ns[inside])
    rows = np.flatnonzero(within)
    return rows[np.unique(inside[rows], return_index=True)[1]]
