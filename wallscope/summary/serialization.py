"""Kernels of different streams that run one behind the other though nothing orders them.

With one hardware queue (CUDA_DEVICE_MAX_CONNECTIONS=1), or more streams than queues, work waits behind
work of another stream that was issued before it, as if it depended on it: false serialisation.
"""

from dataclasses import dataclass

import numpy as np
import polars as pl

from wallscope.attribution.totals import TypicalWork
from wallscope.columns import Rows, beside, filled, flags, place, places
from wallscope.grouping import grouped
from wallscope.model.capture import Capture
from wallscope.model.events import SyncKind
from wallscope.model.host import Serialisation
from wallscope.model.kinds import OperationKind
from wallscope.summary.memory import calls_of_threads
from wallscope.thresholds import HELD_BEHIND_NS, HELD_LOOKED_BACK_COUNT, READY_NS
from wallscope.trace.dependencies import Dependencies
from wallscope.trace.intervals import AFTER_ALL, BEFORE_ALL, Times, ordered, union
from wallscope.trace.streams import UNRESOLVED

_CONNECTIONS = "CUDA_DEVICE_MAX_CONNECTIONS"


def serialisation(
    operations: pl.DataFrame, work: TypicalWork, waits: Dependencies, capture: Capture
) -> Serialisation | None:
    """What of one rank's kernels (`OPERATIONS`) waited without a reason; `None` where reasons may be unknown.

    Order between streams is unknown where the export does not say which of them order with the null
    stream, or has calls that make a stream wait but nothing of what they did. Kernels of CUDA graphs
    are left out: exports hold no edges.
    """
    kernels = _Kernels.of(operations)
    if _is_order_unknown(kernels, capture):
        return None
    ran_on = capture.ranks.filter(pl.col("rank_id") == operations["rank_id"][0])["gpu"]
    gpu = capture.export.gpu(ran_on[0])
    sm_count = None if gpu is None else gpu.sm_count
    before, held_ns = _held(kernels, work, waits)
    shape = places(kernels.op[before], capture.kernels["op"].to_numpy())
    blocks = beside(filled(capture.kernels["blocks"][shape[shape >= 0]]), shape >= 0)
    is_roomy = (blocks >= 0) & (blocks < (sm_count or 0))
    is_known = before.size == 0 or (sm_count is not None and bool((blocks >= 0).all()))
    steps = work.steps.start_ns.size
    connections = capture.export.environment.get(_CONNECTIONS)
    return Serialisation(
        max_connections=None if connections is None else int(connections),
        count=before.size / steps,
        held_ns=work.mean(int(held_ns.sum())),
        roomy_count=int(is_roomy.sum()) / steps if is_known else None,
        roomy_ns=work.mean(int(held_ns[is_roomy].sum())) if is_known else None,
        overlap_ns=_overlap_ns(kernels, work),
    )


@dataclass(frozen=True, slots=True)
class _Kernels:
    """Kernels of one rank in order of start; call is -1 where it is not known, and of kernels of graphs."""

    op: Rows
    stream: Rows
    start_ns: Times
    end_ns: Times
    call: Rows

    @classmethod
    def of(cls, operations: pl.DataFrame) -> "_Kernels":
        """Those among some operations (`OPERATIONS`)."""
        rows = np.flatnonzero(filled(operations["kind"]) == place(OperationKind.KERNEL))
        call = operations["call"].to_numpy()[rows]
        if operations["graph_node"].null_count() < len(operations):
            call = np.where(operations["graph_node"].is_null().to_numpy()[rows], call, -1)
        return cls(
            op=operations["op"].to_numpy()[rows].astype(np.int64),
            stream=operations["stream"].to_numpy()[rows],
            start_ns=operations["start_ns"].to_numpy()[rows],
            end_ns=operations["end_ns"].to_numpy()[rows],
            call=call,
        )


def _is_order_unknown(kernels: _Kernels, capture: Capture) -> bool:
    numbers = np.flatnonzero(np.bincount(kernels.stream))
    used = capture.streams[np.flatnonzero(np.isin(capture.streams["stream"].to_numpy(), numbers))]
    if len(used) < 2:
        return False
    if used["flags"].null_count():
        return True
    processes = used["process"].unique().to_list()
    waits = capture.syncs["process"].to_numpy()[filled(capture.syncs["kind"]) == place(SyncKind.WAIT)]
    if np.isin(waits, processes).any():
        return False
    is_waiting = capture.call_names["text"].str.contains("StreamWaitEvent").to_numpy()
    return bool(is_waiting.any()) and any(
        is_waiting[calls["name"].to_numpy()].any()
        for process in processes
        for calls in calls_of_threads(capture, process)
    )


def _held(kernels: _Kernels, work: TypicalWork, waits: Dependencies) -> tuple[Rows, Times]:
    """Of kernels that were held: the place of the one before, and how long each was ready while that ran."""
    op, stream, start_ns, end_ns = kernels.op, kernels.stream, kernels.start_ns, kernels.end_ns
    issued_ns, ready_ns = waits.issued_ns[op], _ready_in_stream_ns(kernels, waits)
    is_begun = flags(work.columns.op[work.columns.begins], waits.issued_ns.size)
    later = np.flatnonzero(is_begun[op] & (ready_ns < start_ns - READY_NS))
    by_end = np.argsort(end_ns, kind="stable")
    place = np.searchsorted(end_ns[by_end], start_ns[later], side="right") - 1
    earlier = np.full(later.size, -1, np.int64)
    for back in range(HELD_LOOKED_BACK_COUNT):
        row = by_end[(place - back).clip(0)]
        is_near = (place - back >= 0) & (end_ns[row] > start_ns[later] - HELD_BEHIND_NS)
        is_other = (stream[row] != stream[later]) & (issued_ns[row] < issued_ns[later])
        waited = is_near & is_other & (ready_ns[later] <= end_ns[row] - READY_NS)
        earlier = np.where((earlier < 0) & waited, row, earlier)
    later, earlier = later[earlier >= 0], earlier[earlier >= 0]
    full_ns = ready_ns[later]
    row, producer = waits.pairs(op[later])
    np.maximum.at(full_ns, row, np.where(producer == UNRESOLVED, AFTER_ALL, waits.end_ns[producer]))
    is_held = full_ns <= end_ns[earlier] - READY_NS
    held_ns = end_ns[earlier] - np.maximum(full_ns, start_ns[earlier])
    return earlier[is_held], held_ns[is_held]


def _ready_in_stream_ns(kernels: _Kernels, waits: Dependencies) -> Times:
    """When each kernel was issued and the one before it in its stream had ended; never, if not known."""
    before = waits.stream_before[kernels.op]
    ended_ns = np.where(before < 0, BEFORE_ALL, waits.end_ns[before])
    return np.where(kernels.call >= 0, np.maximum(waits.calls.end_ns[kernels.call], ended_ns), AFTER_ALL)


def _overlap_ns(kernels: _Kernels, work: TypicalWork) -> int:
    """Time of a step in which kernels of several streams ran together."""
    busy = [
        union(ordered(kernels.start_ns[rows], kernels.end_ns[rows])) for _, rows in grouped(kernels.stream)
    ]
    if len(busy) < 2:
        return 0
    edges_ns = np.concatenate([side for spans in busy for side in (spans.start_ns, spans.end_ns)])
    steps = np.concatenate([np.full(spans.start_ns.size, step) for spans in busy for step in (1, -1)])
    order = np.argsort(edges_ns, kind="stable")
    running = np.cumsum(steps[order])
    together = np.flatnonzero(running[:-1] > 1)
    both = union(ordered(edges_ns[order][together], edges_ns[order][together + 1]))
    return work.covered_ns(both)
