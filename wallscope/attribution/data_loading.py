"""When a thread waits for the next batch: time without a launch, ended by a batch's copy to the device.

Loaders need not name themselves: the thread that launches reads from a queue of worker processes, or loads
the batch itself, and the first thing that it asks of the device then is to take the batch. Copies inside a
step, of weights or of offloaded state, have few kernels between them.
"""

from collections.abc import Mapping

import numpy as np
import polars as pl

from wallscope.columns import Flags, Rows, are_among, as_integers, encode_member, iterate_groups
from wallscope.model.enums import CopyCause, CopyDirection, OperationKind
from wallscope.thresholds import (
    BATCH_COPY_BYTES,
    DATA_WAIT_NS,
    FEWEST_BATCHES_COUNT,
    SHORTEST_UNIT_COUNT,
)
from wallscope.trace.dependencies import Dependencies
from wallscope.trace.intervals import Spans, Times, order_spans

_CAUSES = (CopyCause.STAGING, CopyCause.SMALL_COPY)


def find_loading_waits(
    operations: pl.DataFrame, copies: pl.DataFrame, causes: pl.DataFrame, waits: Dependencies
) -> Mapping[int, Spans]:
    """Return when each thread of a rank waits for a batch, by number of the thread.

    Args:
        operations: `OPERATIONS` of the rank.
        copies: `COPIES` of the capture.
        causes: `COPY_CAUSES`.
        waits: who waits for whom.
    """
    op, call = operations["op"].to_numpy(), operations["call"].to_numpy()
    is_large = operations["bytes"].fill_null(0).to_numpy() >= BATCH_COPY_BYTES
    is_batch = is_large & are_among(op, _find_batches(copies, causes))
    is_kernel = as_integers(operations["kind"]) != encode_member(OperationKind.COPY)
    held = np.flatnonzero(call >= 0)
    calls = np.unique(call[held])
    takes = are_among(calls, call[held[is_batch[held]]])
    launches = are_among(calls, call[held[is_kernel[held]]])
    found = {}
    for thread, own in iterate_groups(waits.calls.thread[calls].astype(np.int64)):
        spans = _find_spans(calls[own], takes[own], launches[own], thread, waits)
        if spans is not None:
            found[thread] = spans
    return found


def _find_batches(copies: pl.DataFrame, causes: pl.DataFrame) -> Rows:
    """Return the copies to the device, by number, that may be of a batch."""
    sent = copies.filter(pl.col("direction") == CopyDirection.HOST_TO_DEVICE)
    chosen = causes.filter(pl.col("cause").is_in(list(_CAUSES)))
    return np.intersect1d(sent["op"].to_numpy(), chosen["op"].to_numpy()).astype(np.int64)


def _find_spans(calls: Rows, takes: Flags, launches: Flags, thread: int, waits: Dependencies) -> Spans | None:
    """Return the long times before calls that take a batch; `None` where these are few, or kernels are.

    Args:
        calls: calls of the thread that issue operations.
        takes: whether each issues the copy of a batch.
        launches: whether each launches work.
        thread: the thread.
        waits: who waits for whom.
    """
    times = waits.calls
    order = np.argsort(times.start_ns[calls], kind="stable")
    calls, takes, launches = calls[order], takes[order], launches[order]
    begun_ns = times.start_ns[calls]
    done_ns = np.concatenate(([begun_ns[0]], np.maximum.accumulate(times.end_ns[calls])[:-1]))
    blocking = waits.blocking[times.thread[waits.blocking] == thread]
    since_ns = np.maximum(done_ns, _last_before(np.sort(times.end_ns[blocking]), begun_ns))
    rows = np.flatnonzero(takes & (begun_ns - since_ns >= DATA_WAIT_NS))
    if rows.size < FEWEST_BATCHES_COUNT:
        return None
    between = int(launches[rows[0] : rows[-1]].sum())
    if between < SHORTEST_UNIT_COUNT * (rows.size - 1):
        return None
    return order_spans(since_ns[rows], begun_ns[rows])


def _last_before(in_order_ns: Times, at_ns: Times) -> Times:
    """Return the last of some times up to each moment; the least number before all."""
    place = np.searchsorted(in_order_ns, at_ns, side="right") - 1
    least = np.iinfo(np.int64).min
    return np.where(place >= 0, np.append(in_order_ns, least)[place], least)
