"""From dependencies to slices: one rank's time, each nanosecond with its wall and cause."""

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import polars as pl

from wallscope.model.frames import SLICES
from wallscope.timeline.dependencies import Dependencies
from wallscope.timeline.spans import Numbers
from wallscope.walls.causes import OperationCauses, caused
from wallscope.walls.drained import Drained
from wallscope.walls.gaps import chains
from wallscope.walls.host import HostActivity, on_threads
from wallscope.walls.slices import slices


@dataclass(frozen=True, slots=True)
class Evidence:
    """All that slices are told from, of the whole capture.

    Attributes:
        waits: who waits for whom.
        causes: of the operations.
        activity: ranges and waits of the threads.
        calls: `CALLS`.
        kinds_of_calls: what each call is as a link, as a place in `LINK_KINDS`, by number.
        names_of_calls: the name of each call, by number, as an enumeration.
        projected: `PROJECTION`.
        graph: number of the graph launch of each operation, -1 outside graphs.
        recomputed: numbers of the operations that repeat forward work.
        drained: blocking calls that left each rank without work, by id of the rank.
    """

    waits: Dependencies
    causes: OperationCauses
    activity: HostActivity
    calls: pl.DataFrame
    kinds_of_calls: Numbers
    names_of_calls: pl.Series
    projected: pl.DataFrame
    graph: pl.Series
    recomputed: pl.Series
    drained: Mapping[int, Drained]


def attributed(evidence: Evidence, operations: pl.DataFrame, windows: pl.DataFrame) -> pl.DataFrame:
    """The slices (`SLICES`) of one rank, from its operations (`CLASSIFIED`) and windows (`WINDOWS`)."""
    links = chains(operations, evidence.waits, evidence.kinds_of_calls)
    threads = links.filter(pl.col("thread") >= 0)["thread"].unique().to_list()
    drained = evidence.drained[operations["rank_id"][0]]
    moments = evidence.activity.moments(threads, drained.threads)
    pieces = slices(operations, links, windows, evidence.recomputed, moments)
    ranges, on_thread = on_threads(pieces, evidence.activity, drained)
    of_op = evidence.projected["range"].gather(pl.Series(pieces["op"].to_numpy().clip(0), dtype=pl.UInt32))
    is_on_thread = pieces["thread"].to_numpy() >= 0
    ranged = pieces.with_columns(
        pl.Series("range", np.where(is_on_thread, ranges, of_op.to_numpy())).set(
            pl.Series((pieces["op"].to_numpy() < 0) & ~is_on_thread), -1
        )
    )
    return caused(ranged, evidence.causes, on_thread, evidence.graph).select(SLICES.names()).cast(SLICES)
