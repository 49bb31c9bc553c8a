"""What may hold launched work on an idle device although no row records it, besides other processes.

Some waits leave no row on the device. A stream may run a function of the host, or wait for a value in memory.
A collective may be missing in the capture, and nodes of CUDA graphs may run on the host. Work behind such
waits looks as if another process had the device.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from enum import StrEnum

import numpy as np
import polars as pl

from wallscope.columns import Flags, Rows, as_integers, encode_member, iterate_runs
from wallscope.model.capture import Capture
from wallscope.model.enums import OperationClass
from wallscope.thresholds.steps import LONGEST_UNEXPLAINED_LATENCY_NS
from wallscope.trace.dependencies import Dependencies
from wallscope.trace.intervals import BEFORE_ALL, Times
from wallscope.trace.thread_timeline import mark_calls

_CALLBACKS = r"LaunchHostFunc|StreamAddCallback"
_VALUE_WAITS = r"StreamWaitValue|StreamBatchMemOp|WaitExternalSemaphores"
_COLLECTIVES = (
    r"(?i)^record_param_comms|^nccl:|^\W*p?(?:nccl|rccl)\w*(?:all|reduce|broadcast|send|recv)|^_?c10d::\w"
)
_OF_ALL = "record_param_comms"
"""The range that PyTorch puts around each collective, whatever its kind."""


class SilentWait(StrEnum):
    """What may have held an operation without a row of its own."""

    CALLBACK = "callback"
    VALUE = "value"
    COLLECTIVE = "collective"
    GRAPH = "graph"


@dataclass(frozen=True, slots=True)
class SilentlyHeld:
    """Operations that one kind of silent wait may have held.

    `held_ns` is the time in which each was issued and its device idle, for those that waited long: int64.
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
        *_find_behind_calls(capture, waits),
        *_find_collectives(operations, capture),
        *_find_graphs(capture, waits),
    ]
    if not found:
        return ()
    idle_ns = _measure_idle(capture.operations, waits)
    return tuple(
        SilentlyHeld(kind, may_hold, own[own > LONGEST_UNEXPLAINED_LATENCY_NS], asked, count)
        for kind, may_hold, asked, count in found
        for own in (idle_ns[may_hold],)
    )


_Found = tuple[SilentWait, Flags, str, int]


def _find_behind_calls(capture: Capture, waits: Dependencies) -> Iterator[_Found]:
    """Yield what was issued behind a call that holds a stream, after the work that ran before it."""
    process_of_thread = capture.threads["process"].to_numpy()
    for kind, pattern in ((SilentWait.CALLBACK, _CALLBACKS), (SilentWait.VALUE, _VALUE_WAITS)):
        calls = np.flatnonzero(mark_calls(capture, pattern))
        if not calls.size:
            continue
        since_ns, until_ns = _find_issue_spans(capture.operations, waits)
        of_call = process_of_thread[capture.calls["thread"].to_numpy()[calls]]
        of_op = _list_processes(capture)
        may_hold = np.zeros(until_ns.size, np.bool_)
        for process in np.unique(of_call).tolist():
            moments = np.sort(capture.calls["start_ns"].to_numpy()[calls[of_call == process]])
            rows = np.flatnonzero(of_op == process)
            counts = [np.searchsorted(moments, times[rows]) for times in (since_ns, until_ns)]
            may_hold[rows] = counts[1] > counts[0]
        named = capture.call_names["text"].gather(capture.calls["name"].gather(calls)).unique().sort()
        yield kind, may_hold, ", ".join(named), calls.size


def _find_issue_spans(operations: pl.DataFrame, waits: Dependencies) -> tuple[Times, Times]:
    """Return from when until when what held each operation was issued, in ns.

    It was after the work that ran before it, on its stream or on its rank, and before its own call.
    """
    call, start_ns = operations["call"].to_numpy(), operations["start_ns"].to_numpy()
    issued_ns = waits.calls.start_ns[call]
    own_ns = np.where(call >= 0, issued_ns, start_ns)
    rank = operations["rank_id"].to_numpy()
    of_stream = np.where(waits.stream_before >= 0, issued_ns[waits.stream_before], BEFORE_ALL)
    of_rank = np.append(BEFORE_ALL, issued_ns[:-1])
    of_rank[np.append(True, rank[1:] != rank[:-1])] = BEFORE_ALL
    return np.minimum(of_stream, of_rank), own_ns


def _list_processes(capture: Capture) -> Rows:
    """Return the process of each operation, -1 on ranks that are not selected."""
    process_of_rank = dict(capture.ranks.select("rank_id", "process").iter_rows())
    rank = capture.operations["rank_id"].to_numpy()
    found = np.full(rank.size, -1)
    for rank_id, own in iterate_runs(rank):
        found[own] = process_of_rank.get(rank_id, -1)
    return found


def _find_collectives(operations: pl.DataFrame, capture: Capture) -> Iterator[_Found]:
    """Yield all work of ranks that ask for collectives while no communication of theirs is recorded."""
    texts = capture.range_names["text"]
    is_asking = texts.str.contains(_COLLECTIVES).to_numpy()
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
