"""The stream of a rank that carries most compute: steps are cut where it begins their work."""

from dataclasses import dataclass

import numpy as np
import polars as pl

from wallscope.columns import Rows, filled, place
from wallscope.model.frames import CATEGORY
from wallscope.model.kinds import ComputeCategory, OperationClass
from wallscope.trace.kernel_classes import computes
from wallscope.trace.steadiness import Host
from wallscope.trace.step_markers import AnchorRanges

_OPTIMIZER = list(CATEGORY.categories).index(ComputeCategory.OPTIMIZER)


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


def main_stream(own: pl.DataFrame, process: int, host: Host) -> MainStream:
    """The main stream of the operations of one rank (`CLASSIFIED`) and its process."""
    of_class = filled(own["class"])
    computing = np.flatnonzero(computes(of_class))
    start_ns, end_ns = own["start_ns"].to_numpy(), own["end_ns"].to_numpy()
    stream = own["stream"].to_numpy()[computing].astype(np.int64)
    work_ns = np.full(int(stream.max(initial=0)) + 1, -1)
    work_ns[stream] = 0
    np.add.at(work_ns, stream, end_ns[computing] - start_ns[computing])
    rows = computing[stream == work_ns.argmax()]
    is_graph = of_class[rows] == place(OperationClass.OPAQUE_GRAPH)
    name, category, call = (filled(own[column][rows]) for column in ("name", "category", "call"))
    is_issued, issue_ns = call >= 0, start_ns[rows]
    issue_ns[is_issued] = host.calls["start_ns"][call[is_issued]].to_numpy()
    timed = pl.DataFrame(
        {
            "start_ns": start_ns[rows],
            "end_ns": end_ns[rows],
            "symbol": np.where(is_graph, 0, name.astype(np.int64) + 1),
            "updates": category == _OPTIMIZER,
            "issue_ns": issue_ns,
        }
    )
    return MainStream(own["rank_id"][0], process, int(end_ns.max()), timed, bool(is_graph.any()))


def first_rows(main: MainStream, anchor: AnchorRanges) -> Rows:
    """Row of the first kernel issued inside each anchor range; ranges without one are passed over."""
    issue_ns = main.rows["issue_ns"].to_numpy()
    inside = np.searchsorted(anchor.start_ns, issue_ns, side="right") - 1
    within = (inside >= 0) & (issue_ns < anchor.end_ns[inside])
    rows = np.flatnonzero(within)
    return rows[np.unique(inside[rows], return_index=True)[1]]
