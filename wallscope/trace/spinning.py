"""Threads that spin until the device has done something: their time is a wait, whatever they do meanwhile.

A thread may query an event or a stream repeatedly, or read host memory that a kernel writes, outside of CUDA
calls. The first appears as a run of queries. The second appears as time outside calls that nearly always ends
right after the same kernel of the same thread.
"""

import numpy as np
import numpy.typing as npt
import polars as pl

from wallscope.columns import Rows, are_among, as_integers, number_groups
from wallscope.thresholds.dependencies import (
    FEWEST_QUERIES_COUNT,
    FEWEST_SPINS_COUNT,
    INFERRED_CLOSE_NS,
    QUERIES_APART_NS,
    SHORTEST_HELD_CALL_NS,
    SPINS_SHARE,
)
from wallscope.trace.intervals import Times
from wallscope.trace.thread_timeline import Activities, CallTimes


def find_query_runs(calls: CallTimes, is_query: npt.NDArray[np.bool_]) -> tuple[Rows, Times]:
    """Return the last call of each run of queries on a thread, and when the run began.

    A run holds several queries, nothing else, and lasts longer than a query ever does.

    Args:
        calls: times and threads of all calls, by thread and start.
        is_query: bool[call], whether a call asks for an event or a stream.
    """
    rows = np.flatnonzero(is_query)
    if rows.size == 0:
        return rows, np.empty(0, np.int64)
    start_ns, end_ns, thread = (one[rows] for one in (calls.start_ns, calls.end_ns, calls.thread))
    goes_on = (rows[1:] == rows[:-1] + 1) & (thread[1:] == thread[:-1])
    goes_on &= start_ns[1:] - end_ns[:-1] <= QUERIES_APART_NS
    edges = np.flatnonzero(np.concatenate(([True], ~goes_on, [True])))
    first, last = edges[:-1], edges[1:] - 1
    is_run = (last - first + 1 >= FEWEST_QUERIES_COUNT) & (
        end_ns[last] - start_ns[first] >= SHORTEST_HELD_CALL_NS
    )
    return rows[last[is_run]], start_ns[first[is_run]]


def find_spins(
    operations: pl.DataFrame, end_ns: Times, calls: CallTimes, segments: Activities
) -> npt.NDArray[np.int32]:
    """Return the operation that a thread spun for right before each call began, -1 without one: int32[call].

    Args:
        operations: `OPERATIONS`.
        end_ns: int64[op], ns.
        calls: times and threads of all calls.
        segments: what each thread was in at every moment.
    """
    found = np.full(calls.start_ns.told.size, -1, np.int32)
    call, name = operations["call"].to_numpy(), as_integers(operations["name"])
    kernels = np.flatnonzero((call >= 0) & operations["name"].is_not_null().to_numpy())
    thread = calls.thread[call[kernels]]
    pairs: list[tuple[Rows, Rows]] = []
    for one in np.unique(thread).tolist():
        own = segments.of(one)
        left_ns, begun_ns = segments.end_ns[own][:-1], segments.start_ns[own][1:]
        gaps = np.flatnonzero(begun_ns - left_ns >= SHORTEST_HELD_CALL_NS)
        ops = kernels[thread == one]
        ops = ops[np.argsort(end_ns[ops], kind="stable")]
        last = np.searchsorted(end_ns[ops], begun_ns[gaps], side="right") - 1
        op = ops[np.maximum(last, 0)]
        is_close = (last >= 0) & (begun_ns[gaps] - end_ns[op] <= INFERRED_CLOSE_NS)
        is_close &= calls.end_ns[call[op]] <= left_ns[gaps]
        pairs.append((segments.call[own][1:][gaps[is_close]], op[is_close]))
    waiting = np.concatenate([np.empty(0, np.int64), *(calls_of for calls_of, _ in pairs)])
    op = np.concatenate([np.empty(0, np.int64), *(ops_of for _, ops_of in pairs)])
    if not op.size:
        return found
    like = kernels[are_among(name[kernels].astype(np.int64), np.unique(name[op]).astype(np.int64))]
    kind = number_groups(calls.thread[call[like]], name[like])
    group = kind[np.searchsorted(like, op)]
    times, spun = np.bincount(kind), np.bincount(group, minlength=int(kind.max(initial=0)) + 1)
    recurs = (spun[group] >= FEWEST_SPINS_COUNT) & (spun[group] >= SPINS_SHARE * times[group])
    found[waiting[recurs]] = op[recurs]
    return found
