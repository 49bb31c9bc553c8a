"""Calls that let a stream wait for the host or for memory, and the work that they may have held.

A function of the host that runs in a stream, and a wait for a value in memory, have no row on the device. The
next work of the stream begins late, and nothing else shows why.
"""

from enum import StrEnum

import numpy as np
import polars as pl

from wallscope.columns import Codes, Flags, Rows, iterate_runs
from wallscope.model.capture import Capture
from wallscope.records import dataclass
from wallscope.trace.intervals import BEFORE_ALL, Times
from wallscope.trace.thread_timeline import CallTimes, mark_calls

_CALLBACKS = r"LaunchHostFunc|StreamAddCallback"
_VALUE_WAITS = r"StreamWaitValue|StreamBatchMemOp|WaitExternalSemaphores"


class SilentWait(StrEnum):
    """What may have held an operation without a row of its own."""

    CALLBACK = "callback"
    VALUE = "value"
    COLLECTIVE = "collective"
    GRAPH = "graph"


@dataclass(frozen=True, slots=True)
class StreamHold:
    """Calls of one kind that hold streams: `may_hold` are the operations behind one, `asked` their names."""

    kind: SilentWait
    may_hold: Flags
    asked: str
    count: int


def find_stream_holds(capture: Capture, calls: CallTimes, before: Codes) -> tuple[StreamHold, ...]:
    """Return what was issued behind a call that holds a stream, after the work that ran before it.

    Args:
        capture: the capture.
        calls: times and threads of all calls.
        before: int32[op], the operation before each in its stream, -1 without one.
    """
    process_of_thread = capture.threads["process"].to_numpy()
    found = []
    for kind, pattern in ((SilentWait.CALLBACK, _CALLBACKS), (SilentWait.VALUE, _VALUE_WAITS)):
        rows = np.flatnonzero(mark_calls(capture, pattern))
        if not rows.size:
            continue
        since_ns, until_ns = _find_issue_spans(capture.operations, calls, before)
        of_call = process_of_thread[capture.calls["thread"].to_numpy()[rows]]
        of_op = _list_processes(capture)
        may_hold = np.zeros(until_ns.size, np.bool_)
        for process in np.unique(of_call).tolist():
            moments = np.sort(capture.calls["start_ns"].to_numpy()[rows[of_call == process]])
            own = np.flatnonzero(of_op == process)
            counts = [np.searchsorted(moments, times[own]) for times in (since_ns, until_ns)]
            may_hold[own] = counts[1] > counts[0]
        named = capture.call_names["text"].gather(capture.calls["name"].gather(rows)).unique().sort()
        found.append(StreamHold(kind, may_hold, ", ".join(named), rows.size))
    return tuple(found)


def _find_issue_spans(operations: pl.DataFrame, calls: CallTimes, before: Codes) -> tuple[Times, Times]:
    """Return from when until when what held each operation was issued, in ns.

    It was after the work that ran before it, on its stream or on its rank, and before its own call.
    """
    call, start_ns = operations["call"].to_numpy(), operations["start_ns"].to_numpy()
    issued_ns = calls.start_ns[call]
    own_ns = np.where(call >= 0, issued_ns, start_ns)
    rank = operations["rank_id"].to_numpy()
    of_stream = np.where(before >= 0, issued_ns[before], BEFORE_ALL)
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
