"""Kernels of different streams that run one behind the other though nothing orders them.

With one hardware queue (CUDA_DEVICE_MAX_CONNECTIONS=1), or more streams than queues, work waits behind
work of another stream that was issued before it, as if it depended on it: false serialisation.
"""

import numpy as np
import polars as pl

from wallscope.model.capture import Capture
from wallscope.model.events import SyncKind
from wallscope.model.host import Serialisation
from wallscope.model.kinds import OperationKind
from wallscope.timeline.dependencies import Dependencies
from wallscope.timeline.spans import Times, ordered, union
from wallscope.timeline.stream_order import UNRESOLVED
from wallscope.walls.typical import TypicalWork

READY_NS = 10_000
"""Work that has been ready for so long waits for more than the latency of its launch."""
_RIGHT_AFTER_NS = 5_000
_MOST_LOOKED_AT = 8
_CONNECTIONS = "CUDA_DEVICE_MAX_CONNECTIONS"
_NEVER = 2**62


def serialisation(
    operations: pl.DataFrame, work: TypicalWork, waits: Dependencies, capture: Capture
) -> Serialisation | None:
    """What of one rank's kernels (`OPERATIONS`) waited without a reason; `None` where reasons may be unknown.

    Order between streams is unknown where the export does not say which of them order with the null
    stream, or has calls that make a stream wait but nothing of what they did. Kernels of CUDA graphs
    are left out: exports hold no edges.
    """
    kernels = operations.filter(pl.col("kind") == OperationKind.KERNEL)
    if _is_order_unknown(kernels, capture):
        return None
    ran_on = capture.ranks.filter(pl.col("rank_id") == operations["rank_id"][0])["gpu"]
    gpu = capture.export.gpu(ran_on[0])
    sm_count = None if gpu is None else gpu.sm_count
    held = _held(kernels, work, waits)
    shaped = held.join(
        capture.kernels.select(before="op", blocks="blocks"), on="before", how="left", maintain_order="left"
    )
    roomy = shaped.filter(pl.col("blocks") < (sm_count or 0))
    is_known = held.is_empty() or (sm_count is not None and shaped["blocks"].null_count() == 0)
    steps = work.steps.start_ns.size
    connections = capture.export.environment.get(_CONNECTIONS)
    return Serialisation(
        max_connections=None if connections is None else int(connections),
        count=len(held) / steps,
        held_ns=work.mean(int(held["held_ns"].sum())),
        roomy_count=len(roomy) / steps if is_known else None,
        roomy_ns=work.mean(int(roomy["held_ns"].sum())) if is_known else None,
        overlap_ns=_overlap_ns(kernels, work),
    )


def _is_order_unknown(kernels: pl.DataFrame, capture: Capture) -> bool:
    used = capture.streams.filter(pl.col("stream").is_in(kernels["stream"].unique().implode()))
    if len(used) < 2:
        return False
    if used["flags"].null_count():
        return True
    processes = used["process"].unique()
    is_own = pl.col("process").is_in(processes.implode())
    if len(capture.syncs.filter(is_own & (pl.col("kind") == SyncKind.WAIT))):
        return False
    of_threads = capture.threads.filter(is_own)["thread"]
    called = capture.calls.filter(pl.col("thread").is_in(of_threads.implode()))["name"].unique()
    names = capture.call_names.filter(pl.col("name").is_in(called.implode()))["text"]
    return bool(names.str.contains("StreamWaitEvent").any())


def _held(kernels: pl.DataFrame, work: TypicalWork, waits: Dependencies) -> pl.DataFrame:
    """Kernels that were held: `op`, the kernel `before` it, `held_ns` (ready while that one ran)."""
    op, stream = kernels["op"].to_numpy().astype(np.int64), kernels["stream"].to_numpy()
    start_ns, end_ns = kernels["start_ns"].to_numpy(), kernels["end_ns"].to_numpy()
    issued_ns, ready_ns = waits.order.issued_ns[op], _ready_in_stream_ns(kernels, waits)
    begins = np.isin(op, work.operations.filter("begins")["op"].to_numpy())
    later = np.flatnonzero(begins & (ready_ns < start_ns - READY_NS))
    by_end = np.lexsort((op, end_ns))
    place = np.searchsorted(end_ns[by_end], start_ns[later], side="right") - 1
    earlier = np.full(later.size, -1, np.int64)
    for back in range(_MOST_LOOKED_AT):
        row = by_end[(place - back).clip(0)]
        is_near = (place - back >= 0) & (end_ns[row] > start_ns[later] - _RIGHT_AFTER_NS)
        is_other = (stream[row] != stream[later]) & (issued_ns[row] < issued_ns[later])
        waited = is_near & is_other & (ready_ns[later] <= end_ns[row] - READY_NS)
        earlier = np.where((earlier < 0) & waited, row, earlier)
    later, earlier = later[earlier >= 0], earlier[earlier >= 0]
    behind_ns = np.array([_producers_end_ns(one, waits) for one in op[later].tolist()], np.int64)
    full_ns = np.maximum(ready_ns[later], behind_ns)
    is_held = full_ns <= end_ns[earlier] - READY_NS
    held_ns = end_ns[earlier] - np.maximum(full_ns, start_ns[earlier])
    return pl.DataFrame(
        {"op": op[later][is_held], "before": op[earlier][is_held], "held_ns": held_ns[is_held]},
        schema={"op": pl.UInt32, "before": pl.UInt32, "held_ns": pl.Int64},
    )


def _ready_in_stream_ns(kernels: pl.DataFrame, waits: Dependencies) -> Times:
    """When each kernel was issued and the one before it in its stream had ended; never, if not known."""
    op, call = kernels["op"].to_numpy().astype(np.int64), kernels["call"].to_numpy()
    end_ns = np.append(np.asarray(waits.end_ns), np.iinfo(np.int64).min)
    is_known = (call >= 0) & kernels["graph_node"].is_null().to_numpy()
    return np.where(
        is_known, np.maximum(waits.calls.end_ns[call], end_ns[waits.order.predecessor[op]]), _NEVER
    )


def _producers_end_ns(op: int, waits: Dependencies) -> int:
    """When all else that an operation waits for had ended."""
    producers = waits.order.producers(op)
    if UNRESOLVED in producers:
        return _NEVER
    return max((waits.end_ns[producer] for producer in producers), default=-_NEVER)


def _overlap_ns(kernels: pl.DataFrame, work: TypicalWork) -> int:
    """Time of a step in which kernels of several streams ran together."""
    busy = [
        union(ordered(own["start_ns"].to_numpy(), own["end_ns"].to_numpy()))
        for own in kernels.partition_by("stream")
    ]
    if len(busy) < 2:
        return 0
    edges_ns = np.concatenate([side for spans in busy for side in (spans.start_ns, spans.end_ns)])
    turns = np.concatenate([np.full(spans.start_ns.size, turn) for spans in busy for turn in (1, -1)])
    order = np.argsort(edges_ns, kind="stable")
    running = np.cumsum(turns[order])
    together = np.flatnonzero(running[:-1] > 1)
    both = union(ordered(edges_ns[order][together], edges_ns[order][together + 1]))
    return work.covered_ns(both)
