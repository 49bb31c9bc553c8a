"""Waits of the host that no dependency shows: for the next batch, and for the lock of the driver.

- Data loading: time without a launch, before a batch is copied to the device. Loaders often have no ranges.
  The launching thread reads from a queue of worker processes, or loads the batch itself, and then first
  copies the batch to the device. Copies inside a step, of weights or of offloaded state, have few kernels
  between them. A loader that runs its stages in its own threads names them. The copying thread waits for the
  previous stage, and the program's operations begin when the batch is ready.
- The driver's lock: a copy or synchronization that blocks its caller may keep the lock of the CUDA context
  meanwhile. Launches of other threads then wait, although nothing on the device delays them. The blame chain
  explains this time by what the holder waits for: without the lock, the launch would not have waited for it.
"""

from collections.abc import Mapping
from dataclasses import replace

import numpy as np
import polars as pl

from wallscope.attribution.slices import ChainLinks
from wallscope.columns import Flags, Rows, are_among, as_integers, encode_member, iterate_groups, list_numbers
from wallscope.model.cause_catalogue import MEMORY_DRIVER_LOCK
from wallscope.model.enums import LINK_KINDS, CallRole, CopyCause, CopyDirection, LinkKind, OperationKind
from wallscope.records import dataclass
from wallscope.thresholds.causes import BATCH_COPY_BYTES, DATA_WAIT_NS, FEWEST_BATCHES_COUNT, OFFLOAD_WORK_NS
from wallscope.thresholds.steps import SHORTEST_UNIT_COUNT
from wallscope.trace.dependencies import Dependencies
from wallscope.trace.intervals import Spans, Times, common, order_spans, union
from wallscope.trace.ranges import RangeTree

_CAUSES = (CopyCause.STAGING, CopyCause.SMALL_COPY)

_LOADER = r"^\[DALI\]"
_STAGE = r"^\[DALI\]\[(Executor\] Run(CPU|Mixed)|(CPU|Mixed) op\])"
"""The stages of a batch before it is on the device; the reader reads ahead all the time."""


@dataclass(frozen=True, slots=True)
class LoaderStages:
    """The stages of loaders that run in their own threads.

    Attributes:
        threads: those whose outermost ranges all belong to a loader, by number.
        work: when any stage was at work, by process.
        process: that of each thread, by number.
    """

    threads: Rows
    work: Mapping[int, Spans]
    process: Rows


def find_loader_stages(ranges: RangeTree, process: pl.Series) -> LoaderStages:
    """Return the threads and times of stages that loaders name; `process` is that of each thread."""
    processes = process.to_numpy().astype(np.int64)
    is_loaders = ranges.names["text"].str.contains(_LOADER).to_numpy()
    if not is_loaders.any():
        return LoaderStages(np.empty(0, np.int64), {}, processes)
    of_name = ranges.paths["name"].to_numpy()[ranges.tree["path"].to_numpy()]
    thread = as_integers(ranges.tree["thread"])
    is_loader, is_stage = (
        one[of_name] for one in (is_loaders, ranges.names["text"].str.contains(_STAGE).to_numpy())
    )
    is_top = ranges.tree["parent"].to_numpy() < 0
    threads = np.setdiff1d(thread[is_top & is_loader], thread[is_top & ~is_loader])
    own = np.flatnonzero(is_stage & (thread >= 0))
    start_ns, end_ns = (ranges.tree[side].to_numpy()[own] for side in ("start_ns", "end_ns"))
    work = {
        one: union(order_spans(start_ns[rows], end_ns[rows]))
        for one, rows in iterate_groups(processes[thread[own]])
    }
    return LoaderStages(threads[threads >= 0].astype(np.int64), work, processes)


def find_stage_waits(
    operations: pl.DataFrame, waits: Dependencies, stages: LoaderStages
) -> Mapping[int, Spans]:
    """Return when threads of a loader wait for its stages, and the program waits for them, by thread.

    These are times before a call of theirs, if the program's next operation begins as soon as their work is
    done. In a program that is late itself, the operation begins later.
    """
    if stages.threads.size == 0:
        return {}
    held = np.flatnonzero(operations["call"].to_numpy() >= 0)
    call = operations["call"].to_numpy()[held]
    thread = waits.calls.thread[call].astype(np.int64)
    is_loader = are_among(thread, stages.threads)
    start_ns, end_ns = (operations[side].to_numpy()[held] for side in ("start_ns", "end_ns"))
    begins_ns = np.sort(start_ns[~is_loader])
    issued_ns = waits.calls.start_ns[call[is_loader]]
    order = np.argsort(issued_ns, kind="stable")
    issued_ns, done_ns = issued_ns[order], np.maximum.accumulate(end_ns[is_loader][order])
    found = {}
    for one, own in iterate_groups(thread[is_loader]):
        calls = np.unique(call[is_loader][own])
        calls = calls[np.argsort(waits.calls.start_ns[calls], kind="stable")]
        begun_ns, left_ns = waits.calls.start_ns[calls][1:], waits.calls.end_ns[calls][:-1]
        next_ns = np.append(begins_ns, np.iinfo(np.int64).max)[np.searchsorted(begins_ns, begun_ns)]
        ready_ns = done_ns[np.searchsorted(issued_ns, next_ns) - 1]
        is_late = (begun_ns - left_ns >= DATA_WAIT_NS) & (next_ns < ready_ns + DATA_WAIT_NS)
        work = stages.work.get(int(stages.process[one]))
        if work is not None and is_late.any():
            found[one] = common(order_spans(left_ns[is_late], begun_ns[is_late]), work)
    return found


def find_loading_waits(operations: pl.DataFrame, batches: Rows, waits: Dependencies) -> Mapping[int, Spans]:
    """Return when each thread of a rank waits for a batch, by number of the thread.

    Args:
        operations: `OPERATIONS` of the rank.
        batches: the copies that may belong to a batch (`find_batches`).
        waits: the dependencies.
    """
    op, call = operations["op"].to_numpy(), operations["call"].to_numpy()
    is_large = as_integers(operations["bytes"], 0) >= BATCH_COPY_BYTES
    if not is_large.any():
        return {}
    is_batch = is_large & are_among(op, batches)
    is_kernel = as_integers(operations["kind"]) != encode_member(OperationKind.COPY)
    held = np.flatnonzero(call >= 0)
    of_thread = waits.calls.thread[call[held]].astype(np.int64)
    held = held[are_among(of_thread, np.unique(of_thread[is_batch[held]]))]
    calls = list_numbers(call[held])
    takes = are_among(calls, call[held[is_batch[held]]])
    launches = are_among(calls, call[held[is_kernel[held]]])
    found = {}
    for thread, own in iterate_groups(waits.calls.thread[calls].astype(np.int64)):
        spans = _find_spans(calls[own], takes[own], launches[own], thread, waits)
        if spans is not None:
            found[thread] = spans
    return found


def find_offload_work(
    operations: pl.DataFrame, brought_back: Rows, waits: Dependencies
) -> Mapping[int, Spans]:
    """Return when each thread of a rank works on offloaded bytes before it copies them back, by its number.

    Args:
        operations: `OPERATIONS` of the rank.
        brought_back: the offloaded copies to the device, by number (`find_brought_back`).
        waits: the dependencies.
    """
    op, call = operations["op"].to_numpy(), operations["call"].to_numpy()
    takes = np.unique(call[(call >= 0) & are_among(op, brought_back)])
    if not takes.size:
        return {}
    calls = list_numbers(call)
    found = {}
    of_thread = waits.calls.thread[calls].astype(np.int64)
    for thread in np.unique(waits.calls.thread[takes]).tolist():
        own = calls[of_thread == thread]
        rows, since_ns = _find_long_waits(own, are_among(own, takes), thread, waits, OFFLOAD_WORK_NS)
        found[thread] = order_spans(since_ns, waits.calls.start_ns[rows])
    return found


def find_brought_back(copies: pl.DataFrame, causes: pl.DataFrame) -> Rows:
    """Return the offloaded copies to the device, by number (`COPIES`, `COPY_CAUSES`)."""
    return _select_sent(copies, causes, (CopyCause.OFFLOAD,))


def find_batches(copies: pl.DataFrame, causes: pl.DataFrame) -> Rows:
    """Return the copies to the device, by number, that may belong to a batch (`COPIES`, `COPY_CAUSES`)."""
    return _select_sent(copies, causes, _CAUSES)


def _select_sent(copies: pl.DataFrame, causes: pl.DataFrame, wanted: tuple[CopyCause, ...]) -> Rows:
    is_sent = as_integers(copies["direction"]) == encode_member(CopyDirection.HOST_TO_DEVICE)
    may_belong = np.isin(as_integers(causes["cause"]), [encode_member(cause) for cause in wanted])
    chosen = causes["op"].to_numpy()[may_belong].astype(np.int64)
    return chosen[are_among(chosen, copies["op"].to_numpy()[is_sent].astype(np.int64))]


def _find_spans(calls: Rows, takes: Flags, launches: Flags, thread: int, waits: Dependencies) -> Spans | None:
    """Return the long times before calls that copy a batch; `None` if these or kernels are few.

    Args:
        calls: calls of the thread that issue operations.
        takes: whether each issues the copy of a batch.
        launches: whether each launches work.
        thread: the thread.
        waits: the dependencies.
    """
    order = np.argsort(waits.calls.start_ns[calls], kind="stable")
    calls, takes, launches = calls[order], takes[order], launches[order]
    late, since_ns = _find_long_waits(calls, takes, thread, waits, DATA_WAIT_NS)
    if late.size < FEWEST_BATCHES_COUNT:
        return None
    first, last = np.flatnonzero(are_among(calls, late[[0, -1]]))[[0, -1]]
    if int(launches[first:last].sum()) < SHORTEST_UNIT_COUNT * (late.size - 1):
        return None
    return order_spans(since_ns, waits.calls.start_ns[late])


def _find_long_waits(
    calls: Rows, takes: Flags, thread: int, waits: Dependencies, least_ns: int
) -> tuple[Rows, Times]:
    """Return the calls of a kind before which a thread makes no other call for long, and since when, in ns.

    Args:
        calls: calls of the thread that issue operations.
        takes: whether each belongs to that kind.
        thread: the thread.
        waits: the dependencies.
        least_ns: the shortest of such times.
    """
    times = waits.calls
    order = np.argsort(times.start_ns[calls], kind="stable")
    calls, takes = calls[order], takes[order]
    begun_ns = times.start_ns[calls]
    done_ns = np.concatenate((begun_ns[:1], np.maximum.accumulate(times.end_ns[calls])[:-1]))
    blocking = waits.blocking[times.thread[waits.blocking] == thread]
    since_ns = np.maximum(done_ns, _last_before(np.sort(times.end_ns[blocking]), begun_ns))
    rows = np.flatnonzero(takes & (begun_ns - since_ns >= least_ns))
    return calls[rows], since_ns[rows]


def _last_before(in_order_ns: Times, at_ns: Times) -> Times:
    """Return the last of some times up to each moment; the smallest number before all."""
    place = np.searchsorted(in_order_ns, at_ns, side="right") - 1
    least = np.iinfo(np.int64).min
    return np.where(place >= 0, np.append(in_order_ns, least)[place], least)


DRIVER_LOCK = MEMORY_DRIVER_LOCK
_HOLDING = (CallRole.COPY, CallRole.SYNC)
_KIND = LINK_KINDS.index(LinkKind.DRIVER_LOCK)


def list_locked_calls(waits: Dependencies, roles: pl.Series) -> Rows:
    """Return the calls that waited for the lock of a copy or synchronization of another thread, by number.

    Allocation and release wait for the device by themselves, and time behind them is that of the allocator.

    Args:
        waits: the dependencies.
        roles: the `CallRole` of each call.
    """
    role = as_integers(roles)
    asked = np.flatnonzero(waits.holder >= 0)
    is_holding = np.isin(role[waits.holder[asked]], [encode_member(one) for one in _HOLDING])
    found: Rows = asked[is_holding & (role[asked] != encode_member(CallRole.ALLOC))]
    return found


def mark_lock_waits(links: ChainLinks, waits: Dependencies, locked: Rows) -> ChainLinks:
    """Return the links with one of kind `DRIVER_LOCK` for each wait of a locked call on a blame chain.

    Args:
        links: of one rank.
        waits: the dependencies.
        locked: int64[n], calls that waited for a lock.
    """
    calls, spans = waits.calls, list[tuple[int, int, int, Rows]]()
    for call in locked.tolist():
        begun_ns, left_ns = int(calls.start_ns[call]), int(calls.end_ns[call])
        first = int(np.searchsorted(links.end_ns, begun_ns, side="right"))
        last = int(np.searchsorted(links.start_ns, left_ns, side="right"))
        near = slice(first, last)
        # the walk enters the call from its end, or from an operation that starts before it returns
        is_entered = (links.thread[near] == calls.thread[call]) & (links.start_ns[near] == left_ns)
        gaps = np.unique(links.gap[near][is_entered | (links.call[near] == call)])
        if gaps.size:
            until_ns = min(left_ns, int(calls.end_ns[waits.holder[call]]))
            spans.append((begun_ns, until_ns, call, gaps))
    if not spans:
        return links
    cuts = np.unique([side for begun_ns, until_ns, *_ in spans for side in (begun_ns, until_ns)])
    links = _cut_links(links, cuts)
    kind, op, next_op = links.kind.copy(), links.op.copy(), links.next_op.copy()
    of_call, thread, inferred = links.call.copy(), links.thread.copy(), links.inferred.copy()
    for begun_ns, until_ns, call, gaps in spans:
        inside = np.arange(*np.searchsorted(links.start_ns, (begun_ns, until_ns)))
        inside = inside[np.isin(links.gap[inside], gaps)]
        kind[inside], op[inside], next_op[inside] = _KIND, -1, -1
        of_call[inside], thread[inside], inferred[inside] = call, calls.thread[call], 1
    return replace(links, kind=kind, op=op, next_op=next_op, call=of_call, thread=thread, inferred=inferred)


def _cut_links(links: ChainLinks, cuts: Rows) -> ChainLinks:
    """Return the links, each cut at the moments that lie inside it."""
    first = np.searchsorted(cuts, links.start_ns, side="right")
    count = np.maximum(np.searchsorted(cuts, links.end_ns, side="left") - first, 0)
    row = np.arange(count.size).repeat(count + 1)
    nth = np.arange(row.size) - np.cumsum(count + 1).repeat(count + 1) + (count + 1).repeat(count + 1)
    place = first[row] + nth
    start_ns = np.where(nth > 0, np.append(cuts, 0)[place - 1], links.start_ns[row])
    end_ns = np.where(nth < count[row], np.append(cuts, 0)[np.minimum(place, cuts.size)], links.end_ns[row])
    columns = {name: getattr(links, name)[row] for name in ("gap", "kind", "op", "next_op", "call", "thread")}
    return ChainLinks(
        **columns,
        start_ns=start_ns,
        end_ns=end_ns,
        slack_ns=links.slack_ns[row],
        inferred=links.inferred[row],
    )
