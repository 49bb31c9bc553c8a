"""Summarize the host in the typical step of a rank: launches, blocking calls, false serialization.

With one hardware queue (CUDA_DEVICE_MAX_CONNECTIONS=1), or with more streams than queues, work waits behind
earlier work of another stream as if it depended on it. This is false serialization.
"""

from collections import Counter
from collections.abc import Iterator
from typing import get_args

import numpy as np
import polars as pl

from wallscope.attribution.attribute import Evidence
from wallscope.attribution.host_causes import DRAINED, HostActivity, QueueDrains
from wallscope.attribution.totals import SliceSums, TypicalWork
from wallscope.columns import (
    Flags,
    Rows,
    as_integers,
    encode_member,
    expand,
    find_places,
    iterate_runs,
    mark_numbers,
)
from wallscope.kernels import views
from wallscope.kernels.busy_time import find_concurrency
from wallscope.model.capture import Capture
from wallscope.model.enums import CallRole, OperationClass, OperationKind
from wallscope.model.rank_summaries import (
    BlockingCall,
    CpuTime,
    HostAhead,
    HostDetails,
    LaunchCost,
    LockedCall,
    RepeatedUnit,
    Serialisation,
)
from wallscope.model.schemas import HostKind, SyncKind
from wallscope.records import dataclass
from wallscope.summary.memory import split_calls_by_thread
from wallscope.thresholds.causes import (
    FEWEST_CPU_SAMPLES_COUNT,
    HELD_BEHIND_NS,
    HELD_LOOKED_BACK_COUNT,
    LAUNCH_BOUND_SHARE,
    READY_NS,
)
from wallscope.trace.dependencies import Dependencies
from wallscope.trace.intervals import (
    AFTER_ALL,
    BEFORE_ALL,
    Spans,
    Times,
    is_inside,
    length_ns,
    number_spans,
    order_spans,
    union,
)
from wallscope.trace.kernel_classes import is_compute
from wallscope.trace.names import mark_changes
from wallscope.trace.ranges import write_paths
from wallscope.trace.streams import UNRESOLVED
from wallscope.trace.thread_timeline import is_outer

_CONNECTIONS = "CUDA_DEVICE_MAX_CONNECTIONS"


def find_serialisation(
    operations: pl.DataFrame, work: TypicalWork, waits: Dependencies, capture: Capture
) -> Serialisation | None:
    """Return how long kernels of one rank (`OPERATIONS`) waited without a dependency; `None` if unknown.

    Dependencies between streams are unknown in two cases. The export may not say which streams synchronize
    with the null stream, or may have stream waits without the awaited operations. Kernels of CUDA graphs are
    excluded, because exports do not contain graph edges.
    """
    kernels = _RankKernels.of(operations)
    if _is_order_unknown(kernels, capture):
        return None
    ran_on = dict(zip(capture.ranks["rank_id"], capture.ranks["gpu"], strict=True))
    gpu = capture.export.gpu(ran_on[operations["rank_id"][0]])
    sm_count = None if gpu is None else gpu.sm_count
    before, held_ns = _find_held_kernels(kernels, work, waits)
    shape = find_places(kernels.op[before], capture.kernels["op"].to_numpy())
    blocks = expand(as_integers(capture.kernels["blocks"][shape[shape >= 0]]), shape >= 0)
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
class _RankKernels:
    """Kernels of one rank sorted by start; `call` is -1 if unknown and for kernels of graphs."""

    op: Rows
    stream: Rows
    start_ns: Times
    end_ns: Times
    call: Rows

    @classmethod
    def of(cls, operations: pl.DataFrame) -> "_RankKernels":
        """Select them among some operations (`OPERATIONS`)."""
        rows = np.flatnonzero(as_integers(operations["kind"]) == encode_member(OperationKind.KERNEL))
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


def _is_order_unknown(kernels: _RankKernels, capture: Capture) -> bool:
    numbers = np.flatnonzero(np.bincount(kernels.stream))
    used = capture.streams[np.flatnonzero(np.isin(capture.streams["stream"].to_numpy(), numbers))]
    if len(used) < 2:
        return False
    if used["flags"].null_count():
        return True
    processes = used["process"].unique().to_list()
    waits = capture.syncs["process"].to_numpy()[
        as_integers(capture.syncs["kind"]) == encode_member(SyncKind.WAIT)
    ]
    if np.isin(waits, processes).any():
        return False
    is_waiting = capture.call_names["text"].str.contains("(Stream|Ctx)WaitEvent").to_numpy()
    return bool(is_waiting.any()) and any(
        is_waiting[calls["name"].to_numpy()].any()
        for process in processes
        for calls in split_calls_by_thread(capture, process)
    )


def _find_held_kernels(kernels: _RankKernels, work: TypicalWork, waits: Dependencies) -> tuple[Rows, Times]:
    """Return the previous kernel of each held kernel, and how long it was ready while that ran."""
    op, stream, start_ns, end_ns = kernels.op, kernels.stream, kernels.start_ns, kernels.end_ns
    issued_ns, ready_ns = waits.issued_ns[op], _ready_in_stream_ns(kernels, waits)
    is_begun = mark_numbers(work.columns.op[work.columns.begins], waits.issued_ns.size)
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
    row, producer = waits.list_pairs_of_export(op[later])
    np.maximum.at(full_ns, row, np.where(producer == UNRESOLVED, AFTER_ALL, waits.end_ns[producer]))
    is_held = full_ns <= end_ns[earlier] - READY_NS
    held_ns = end_ns[earlier] - np.maximum(full_ns, start_ns[earlier])
    return earlier[is_held], held_ns[is_held]


def _ready_in_stream_ns(kernels: _RankKernels, waits: Dependencies) -> Times:
    """Return when each kernel was issued and its stream free; never if unknown."""
    before = waits.stream_before[kernels.op]
    ended_ns = np.where(before < 0, BEFORE_ALL, waits.end_ns[before])
    return np.where(kernels.call >= 0, np.maximum(waits.calls.end_ns[kernels.call], ended_ns), AFTER_ALL)


def _overlap_ns(kernels: _RankKernels, work: TypicalWork) -> int:
    """Return the time per step in which kernels of several streams ran together."""
    size, stream = kernels.op.size, kernels.stream.astype(np.int64)
    start_ns, end_ns = np.empty(size, np.int64), np.empty(size, np.int64)
    count = find_concurrency(*views(kernels.start_ns, kernels.end_ns, stream, start_ns, end_ns))
    return work.covered_ns(Spans(start_ns[:count], end_ns[:count]))


_IS_LAUNCHING = np.isin(list(CallRole), (CallRole.LAUNCH, CallRole.GRAPH))
_NOTHING = np.empty(0, np.int64)


def summarize_host(
    operations: pl.DataFrame, work: TypicalWork, sums: SliceSums, evidence: Evidence, capture: Capture
) -> HostDetails | None:
    """Return what the host of one rank did; `None` if the export has no call that issued its operations.

    Args:
        operations: `CLASSIFIED`, all of the rank.
        work: the operations in the steps of its typical step.
        sums: sums of the slices of those steps.
        evidence: what the slices were computed from.
        capture: the whole export.
    """
    if not (operations["call"].to_numpy() >= 0).any():
        return None
    launched = _measure_launches(work, capture.calls)
    ahead = _ahead(work, launched)
    drained = evidence.drained[operations["rank_id"][0]]
    return HostDetails(
        blocking_calls=summarize_blocking_calls(drained, sums, work, evidence),
        launches=_launch_cost(work, launched, ahead),
        ahead=ahead,
        cpu=_cpu_time(work, launched, capture),
        serialisation=find_serialisation(operations, work, evidence.waits, capture),
        locked_calls=_summarize_locked_calls(drained, work, evidence),
    )


def _summarize_locked_calls(
    drained: QueueDrains, work: TypicalWork, evidence: Evidence
) -> tuple[LockedCall, ...]:
    """Return the calls of the rank's launching threads that wait for another thread in the driver."""
    calls, names, steps = evidence.waits.calls, evidence.names_of_calls, work.steps.start_ns.size
    locked = evidence.locked[np.isin(calls.thread[evidence.locked], drained.threads)]
    locked = locked[is_inside(work.steps, calls.end_ns[locked])]
    waited_ns, count = Counter[tuple[str, str]](), Counter[tuple[str, str]]()
    for call in locked.tolist():
        kind = (names[call], names[int(evidence.waits.holder[call])])
        waited_ns[kind] += int(calls.end_ns[call] - calls.start_ns[call])
        count[kind] += 1
    return tuple(
        LockedCall(*kind, count[kind] / steps, work.mean(waited_ns[kind]))
        for kind in sorted(count, key=lambda kind: (-waited_ns[kind], kind))
    )


@dataclass(frozen=True, slots=True)
class _Launched:
    """Calls that launched the operations of the steps: thread, end, length, and the launched operations.

    `first_ns` is the start of the first operation. `work_ns` are added-up durations. `computes` is whether
    any of them computes.
    """

    thread: Rows
    end_ns: Times
    call_ns: Times
    first_ns: Times
    work_ns: Times
    computes: Flags


def _measure_launches(work: TypicalWork, calls: pl.DataFrame) -> _Launched:
    columns, call = work.columns, work.operations["call"].to_numpy()
    issued = np.flatnonzero(columns.begins & (call >= 0))
    issued = issued[np.argsort(call[issued], kind="stable")]
    first = np.flatnonzero(mark_changes(call[issued]))
    of_calls = calls["thread", "role", "start_ns", "end_ns"][call[issued[first]]]
    is_launch = _IS_LAUNCHING[as_integers(of_calls["role"])]
    start_ns, end_ns = (of_calls[side].to_numpy() for side in ("start_ns", "end_ns"))
    ran_ns = columns.end_ns[issued] - columns.start_ns[issued]
    return _Launched(
        thread=of_calls["thread"].to_numpy()[is_launch],
        end_ns=end_ns[is_launch],
        call_ns=(end_ns - start_ns)[is_launch],
        first_ns=np.minimum.reduceat(columns.start_ns[issued], first)[is_launch],
        work_ns=np.add.reduceat(ran_ns, first)[is_launch],
        computes=np.logical_or.reduceat(is_compute(columns.of_class[issued]), first)[is_launch],
    )


def _launch_cost(work: TypicalWork, launched: _Launched, ahead: HostAhead | None) -> LaunchCost | None:
    call_ns, columns = launched.call_ns, work.columns
    if call_ns.size == 0:
        return None
    computing = work.rows_of(OperationClass.COMPUTE)
    kernels = computing[columns.begins[computing]]
    kernel_ns = columns.end_ns[kernels] - columns.start_ns[kernels]
    median_ns, p90_ns = np.percentile(call_ns, (50, 90))
    outpaced_share = float((call_ns > launched.work_ns).mean())
    return LaunchCost(
        calls=work.mean(call_ns.size),
        call_ns=work.mean(int(call_ns.sum())),
        median_ns=int(median_ns),
        p90_ns=int(p90_ns),
        calls_per_s=call_ns.size / length_ns(work.steps) * 1e9,
        kernel_median_ns=int(np.percentile(kernel_ns, 50)) if kernel_ns.size else None,
        outpaced_share=outpaced_share,
        is_launch_bound=outpaced_share > LAUNCH_BOUND_SHARE
        and ahead is not None
        and ahead.median_ns < READY_NS,
    )


def _ahead(work: TypicalWork, launched: _Launched) -> HostAhead | None:
    ahead_ns = (launched.first_ns - launched.end_ns)[launched.computes].clip(0)
    if ahead_ns.size == 0:
        return None
    p10_ns, median_ns = np.percentile(ahead_ns, (10, 50))
    return HostAhead(
        median_ns=int(median_ns),
        p10_ns=int(p10_ns),
        launches=work.mean(ahead_ns.size),
    )


def _cpu_time(work: TypicalWork, launched: _Launched, capture: Capture) -> CpuTime | None:
    """Return how much of the steps the thread that launches most was on a CPU; `None` if nothing shows it."""
    if launched.thread.size == 0:
        return None
    busiest = int(np.bincount(launched.thread).argmax())
    total_ns = length_ns(work.steps)
    events, samples = capture.host_events, capture.cpu_samples
    away = np.flatnonzero(
        (as_integers(events["thread"]) == busiest)
        & (as_integers(events["kind"]) == encode_member(HostKind.SCHED))
    )
    if away.size:
        start_ns, end_ns = events["start_ns"].to_numpy()[away], events["end_ns"].to_numpy()[away]
        away_ns = work.all_covered_ns(union(order_spans(start_ns, end_ns)))
        count = int(is_inside(work.steps, start_ns).sum())
        return CpuTime(1 - away_ns / total_ns, "switches", count)
    is_sample = (pl.col("thread") == busiest) & (pl.col("cpu_cycles") > 0)
    at_ns = samples.filter(is_sample)["at_ns"].drop_nulls().to_numpy() if len(samples) else _NOTHING
    at_ns = number_spans(at_ns)
    count = int(is_inside(work.steps, at_ns).sum())
    if count < FEWEST_CPU_SAMPLES_COUNT:
        return None
    usual_ns = float(np.median(np.diff(at_ns)))
    return CpuTime(min(1.0, count * usual_ns / total_ns), "samples", count)


def summarize_blocking_calls(
    drained: QueueDrains, sums: SliceSums, work: TypicalWork, evidence: Evidence
) -> tuple[BlockingCall, ...]:
    """Return the calls of each name, sorted by the time lost after them.

    `sums` are those of the slices of the steps of `work`. A call may have ended before the step in which its
    time is lost.
    """
    made = _in_steps(drained, work, evidence)
    prefix = f"{DRAINED}/"
    drained_ns, waited_ns = Counter[str](), Counter[str]()
    for (_, cause), time_ns in sums.of_causes().items():
        if cause.startswith(prefix):
            drained_ns[cause.removeprefix(prefix)] += time_ns
    for text, time_ns in zip(made.texts, made.waited_ns.tolist(), strict=True):
        waited_ns[text] += time_ns
    counts = Counter(made.texts)
    units = dict(_find_call_units(made, work, evidence.activity))
    paths = _commonest_paths(made, evidence.activity)
    found = []
    for text in sorted({*drained_ns, *counts}, key=lambda text: (-drained_ns[text], -waited_ns[text], text)):
        unit, per_unit = units.get(text, (None, None))
        found.append(
            BlockingCall(
                name=text,
                count=counts[text] / work.steps.start_ns.size,
                unit=unit,
                per_unit=per_unit,
                waited_ns=work.mean(waited_ns[text]),
                drained_ns=work.mean(drained_ns[text]),
                path=paths.get(text),
            )
        )
    return tuple(found)


@dataclass(frozen=True, slots=True)
class _Made:
    """Blocking calls: the name of each, its wait, and the innermost range (-1: none)."""

    texts: list[str]
    waited_ns: Times
    range: Rows


def _in_steps(drained: QueueDrains, work: TypicalWork, evidence: Evidence) -> _Made:
    """Return the calls that end in the steps.

    Of a runtime call and the driver call inside it, the outer one counts.
    """
    calls = drained.draining()
    times = evidence.waits.calls
    start_ns, end_ns, thread = times.start_ns[calls], times.end_ns[calls], times.thread[calls]
    order = np.lexsort((-end_ns, start_ns, thread))
    calls, start_ns, end_ns, thread = calls[order], start_ns[order], end_ns[order], thread[order]
    outer = np.concatenate(
        [np.empty(0, np.bool_), *(is_outer(end_ns[own]) for _, own in iterate_runs(thread))]
    )
    rows = np.flatnonzero(outer & is_inside(work.steps, end_ns))
    return _Made(
        texts=drained.names(calls[rows]),
        waited_ns=end_ns[rows] - start_ns[rows],
        range=_find_open_ranges(thread[rows], start_ns[rows], evidence.activity),
    )


def _find_open_ranges(thread: Rows, at_ns: Rows, activity: HostActivity) -> Rows:
    """Return the innermost range at given times; a thread without ranges takes that of its waiter."""
    found = np.full(thread.size, -1, np.int64)
    for one, rows in iterate_runs(thread):
        found[rows] = activity.open_range(one, at_ns[rows])
    return found


def _commonest_paths(made: _Made, activity: HostActivity) -> dict[str, str]:
    """Return the path in which most calls of a name lie, the first one of equal ones."""
    rows = np.flatnonzero(made.range >= 0)
    if rows.size == 0:
        return {}
    paths = activity.tree["path"].to_numpy()[made.range[rows]]
    counts = Counter((made.texts[row], path) for row, path in zip(rows.tolist(), paths.tolist(), strict=True))
    commonest: dict[str, int] = {}
    for text, path in sorted(counts, key=lambda key: (key[0], -counts[key], key[1])):
        commonest.setdefault(text, path)
    written = write_paths(activity.paths, activity.path_names, pl.Series(commonest.values(), dtype=pl.UInt32))
    return dict(zip(commonest, written, strict=True))


def _find_call_units(
    made: _Made, work: TypicalWork, activity: HostActivity
) -> Iterator[tuple[str, tuple[RepeatedUnit, float]]]:
    """Return each name half of whose calls lie in units, with the unit and the calls in one of them.

    Layers have precedence over microbatches. If units have several names, the one with most calls counts. It
    has to repeat inside a step, and at least every second one has to contain a call.
    """
    tree, label_of_path = activity.tree, activity.paths["name"].to_numpy()
    in_range = np.flatnonzero(made.range >= 0)
    found: set[str] = set()
    for unit in reversed(get_args(RepeatedUnit) if in_range.size else ()):
        outer, instances = activity.outermost_units[unit]
        begun = instances[is_inside(work.issued, tree["start_ns"].to_numpy()[instances])]
        path_of_range = tree["path"].to_numpy()
        counts = np.bincount(label_of_path[path_of_range[begun]], minlength=len(activity.path_names))
        rows = in_range[outer[made.range[in_range]] >= 0]
        labels = label_of_path[path_of_range[outer[made.range[rows]]]]  # in the order of their texts
        units_of_name: dict[str, Counter[int]] = {}
        for row, label in zip(rows.tolist(), labels.tolist(), strict=True):
            units_of_name.setdefault(made.texts[row], Counter())[label] += 1
        for text, of_units in units_of_name.items():
            label, count = max(of_units.items(), key=lambda one: (one[1], one[0]))
            instances_of_it = int(counts[label])
            repeats = work.steps.start_ns.size < instances_of_it <= 2 * count
            if repeats and 2 * count >= made.texts.count(text) and text not in found:
                found.add(text)
                yield text, (unit, count / instances_of_it)
