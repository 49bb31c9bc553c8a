"""What may hold launched work on an idle device although no row records it, besides other processes.

Some waits leave no row on the device. A stream may run a function of the host, or wait for a value in memory.
A collective may be missing in the capture, and nodes of CUDA graphs may run on the host. Work behind such
waits looks as if another process had the device.
"""

from collections.abc import Iterator

import numpy as np
import polars as pl

from wallscope.columns import Flags, as_integers, encode_member, iterate_runs
from wallscope.model.capture import Capture
from wallscope.model.enums import OperationClass
from wallscope.records import dataclass
from wallscope.thresholds.steps import LONGEST_UNEXPLAINED_LATENCY_NS
from wallscope.trace.dependencies import Dependencies
from wallscope.trace.inferred_waits import HELD_WHILE_IDLE
from wallscope.trace.intervals import Spans, Times, covered_ns, order_spans, union
from wallscope.trace.names import match_alike
from wallscope.trace.stream_holds import SilentWait

_COLLECTIVES = (
    r"(?i)^record_param_comms|^nccl:|^\W*p?(?:nccl|rccl)\w*(?:all|reduce|broadcast|send|recv)|^_?c10d::\w"
)
_OF_ALL = "record_param_comms"
"""The range that PyTorch puts around each collective, whatever its kind."""


@dataclass(frozen=True, slots=True)
class SilentlyHeld:
    """Operations that one kind of silent wait may have held.

    `held_ns` is the time in which each was issued and its device idle, for those that waited long, or longer
    than is usual in their capture: int64.
    `asked` is the name of the calls or ranges, and `count` their number; in graphs, that of the launches.
    """

    kind: SilentWait
    may_hold: Flags
    held_ns: Times
    asked: str
    count: int


def find_silent_waits(
    operations: pl.DataFrame, capture: Capture, waits: Dependencies
) -> tuple[SilentlyHeld, ...]:
    """Return the operations of a capture that may have waited for what no row records, by kind.

    Args:
        operations: `CLASSIFIED`, those of the selected ranks.
        capture: the capture; operations are those of all its ranks.
        waits: its dependencies.
    """
    found = [
        *((one.kind, one.may_hold, one.asked, one.count) for one in waits.stream_holds),
        *_find_collectives(operations, capture),
        *_find_graphs(capture, waits),
    ]
    if not found:
        return ()
    idle_ns = _measure_idle(capture.operations, waits)
    is_long = (idle_ns > LONGEST_UNEXPLAINED_LATENCY_NS) | (waits.inferred_producer == HELD_WHILE_IDLE)
    return tuple(
        SilentlyHeld(kind, may_hold, idle_ns[may_hold & is_long], asked, count)
        for kind, may_hold, asked, count in found
    )


@dataclass(frozen=True, slots=True)
class Neighbor:
    """Another process that ran on the GPU of a rank while launched work of the rank waited on it.

    `held_ns` is how long it ran in such waits, `waits` their number, `count` that of its operations.
    """

    pid: int | None
    held_ns: int
    waits: int
    count: int


def find_neighbors(rank_id: int, capture: Capture, waits: Dependencies) -> tuple[Neighbor, ...]:
    """Return the other processes whose operations fill waits of a rank on its GPU, the longest first."""
    ranks = capture.ranks
    (own,) = ranks.filter(pl.col("rank_id") == rank_id).iter_rows(named=True)
    if own["gpu"] is None:
        return ()
    others = ranks.filter((pl.col("gpu") == own["gpu"]) & (pl.col("process") != own["process"]))
    if others.is_empty():
        return ()
    of_rank = capture.operations["rank_id"].to_numpy()
    is_held = (waits.inferred_producer == HELD_WHILE_IDLE) & (of_rank == rank_id)
    until_ns, idle_ns = waits.start_ns[is_held], _measure_idle(capture.operations, waits)[is_held]
    held = union(order_spans(until_ns - idle_ns, until_ns))
    found = []
    for other, pid in others["rank_id", "pid"].iter_rows():
        rows = np.flatnonzero(of_rank == other)
        busy = union(order_spans(waits.start_ns[rows], waits.end_ns[rows]))
        filled_ns = covered_ns(busy, held)
        if filled_ns.any():
            is_inside = covered_ns(held, Spans(waits.start_ns[rows], waits.end_ns[rows])) > 0
            found.append(
                Neighbor(pid, int(filled_ns.sum()), int((filled_ns > 0).sum()), int(is_inside.sum()))
            )
    return tuple(sorted(found, key=lambda one: -one.held_ns))


_Found = tuple[SilentWait, Flags, str, int]


def _find_collectives(operations: pl.DataFrame, capture: Capture) -> Iterator[_Found]:
    """Yield all work of ranks that ask for collectives while no communication of theirs is recorded."""
    texts = capture.range_names["text"]
    is_asking = match_alike(capture.range_names, _COLLECTIVES)
    is_communication = as_integers(operations["class"]) == encode_member(OperationClass.COMMUNICATION)
    communicating = set(operations["rank_id"].filter(pl.Series(is_communication)).unique())
    silent = capture.ranks.filter(~pl.col("rank_id").is_in(communicating))
    if silent.is_empty() or not (is_asking.any() or len(capture.collective_calls)):
        return
    threads = capture.threads.filter(pl.col("process").is_in(silent["process"].implode()))["thread"]
    asked = capture.ranges.filter(
        pl.Series(is_asking[capture.ranges["name"].to_numpy()]) & pl.col("thread").is_in(threads.implode())
    )
    called = capture.collective_calls.filter(pl.col("thread").is_in(threads.implode()))
    if asked.is_empty() and called.is_empty():
        return
    may_hold = capture.operations["rank_id"].is_in(silent["rank_id"].implode()).to_numpy()
    if asked.is_empty():
        yield SilentWait.COLLECTIVE, may_hold, "calls of NCCL", len(called)
        return
    counts = dict(asked.select(pl.col("name").value_counts()).unnest("name").iter_rows())
    most = max(counts, key=lambda name: (texts[name] == _OF_ALL, counts[name], texts[name]))
    yield SilentWait.COLLECTIVE, may_hold, texts[most], counts[most]


def _find_graphs(capture: Capture, waits: Dependencies) -> Iterator[_Found]:
    """Yield the work of CUDA graphs, and what follows a graph on its stream."""
    is_node = capture.operations["graph_node"].is_not_null().to_numpy()
    if not is_node.any():
        return
    before = waits.stream_before
    is_behind = (before >= 0) & is_node[before]
    launches = len(np.unique(capture.operations["call"].to_numpy()[is_node]))
    yield SilentWait.GRAPH, is_node | is_behind, "CUDA graph", launches


def _measure_idle(operations: pl.DataFrame, waits: Dependencies) -> Times:
    """Return for how long each operation was issued while its rank ran nothing, right before it, in ns."""
    start_ns, issued_ns = operations["start_ns"].to_numpy(), waits.calls.end_ns[operations["call"].to_numpy()]
    found = np.zeros(start_ns.size, np.int64)
    for _, own in iterate_runs(operations["rank_id"].to_numpy()):
        reached_ns = np.append(start_ns[own.start], np.maximum.accumulate(waits.end_ns[own])[:-1])
        found[own] = start_ns[own] - np.maximum(reached_ns, issued_ns[own])
    return np.maximum(found, 0)
