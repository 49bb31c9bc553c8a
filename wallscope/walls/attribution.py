"""From dependencies to slices: one rank's time, each nanosecond with its wall and cause."""

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import polars as pl

from wallscope.arrays.columns import members, numbered
from wallscope.model.frames import SLICES
from wallscope.model.kinds import Absent, DeviceState, LinkKind
from wallscope.timeline.dependencies import Dependencies
from wallscope.walls.causes import OperationCauses, caused
from wallscope.walls.drained import Drained
from wallscope.walls.gaps import NO_SLACK, Constraints, blame_gaps
from wallscope.walls.host import HostActivity, told_on_threads
from wallscope.walls.slices import slice_windows


@dataclass(frozen=True, slots=True)
class Evidence:
    """All that slices are told from, of the whole capture.

    Attributes:
        waits: who waits for whom.
        causes: of the operations.
        activity: ranges and waits of the threads.
        calls: `CALLS`.
        constraints: what operations and threads waited for, laid out for the blame chain.
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
    constraints: Constraints
    names_of_calls: pl.Series
    projected: pl.DataFrame
    graph: pl.Series
    recomputed: pl.Series
    drained: Mapping[int, Drained]


_ABSENT = {LinkKind.OPERATION: Absent.BLOCKING} | dict.fromkeys(
    (LinkKind.HAND_OVER, LinkKind.UNRESOLVED), Absent.DEPENDENCY_STALLED
)
_ABSENT_OF_KIND = pl.Series(
    [*(_ABSENT.get(kind, Absent.LAUNCH_STARVED) for kind in LinkKind), None], dtype=SLICES["absent"]
)
_KINDS, _STATES = members(LinkKind), members(DeviceState)


def attributed(evidence: Evidence, operations: pl.DataFrame, windows: pl.DataFrame) -> pl.DataFrame:
    """The slices (`SLICES`) of one rank, from its operations (`CLASSIFIED`) and windows (`WINDOWS`).

    Their causes are an enumeration of their own, in the order of the alphabet.
    """
    links = blame_gaps(operations, evidence.constraints)
    threads = np.unique(links.thread).tolist()
    rank_id = operations["rank_id"][0]
    drained = evidence.drained[rank_id]
    moments = evidence.activity.moments([one for one in threads if one >= 0], drained.threads)
    pieces = slice_windows(operations, links, windows, evidence.recomputed, moments)
    ranges, on_thread, told = told_on_threads(
        pieces.thread, pieces.start_ns, pieces.kind, evidence.activity, drained
    )
    of_op = evidence.projected["range"].to_numpy()[np.maximum(pieces.op, 0)]
    cause, texts = caused(pieces, evidence.causes, on_thread, told, evidence.graph.to_numpy())
    number, names = numbered(texts)
    cause = number[cause]
    walls = [name.split("/", 1)[0] for name in names]
    return pl.DataFrame(
        {
            "rank_id": np.full(cause.size, rank_id, np.uint32),
            "step": windows["step"].to_numpy()[pieces.window],
            "start_ns": pieces.start_ns,
            "end_ns": pieces.end_ns,
            "state": _STATES[pieces.state],
            "absent": _ABSENT_OF_KIND[pieces.kind],
            "wall": pl.Series(walls, dtype=SLICES["wall"])[cause],
            "cause": pl.Series(names, dtype=pl.Enum(names))[cause],
            "kind": _KINDS[pieces.kind],
            "gap": pieces.gap,
            "op": pieces.op.astype(np.int32),
            "next_op": pieces.next_op,
            "call": pieces.call,
            "thread": pieces.thread,
            "range": np.where(pieces.thread >= 0, ranges, np.where(pieces.op < 0, -1, of_op)).astype(
                np.int32
            ),
            "slack_ns": pl.Series(pieces.slack_ns).set(pl.Series(pieces.slack_ns == NO_SLACK), None),
        },
        schema={**SLICES, "cause": pl.Enum(names)},
    )
