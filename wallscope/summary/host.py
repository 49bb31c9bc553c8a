"""The host's part in the typical step of a rank: drained queues, launches, how far it ran ahead.

Blocking calls that left a rank without work in its typical step: which, how often, where, at what cost.
"""

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from typing import get_args

import numpy as np
import polars as pl

from wallscope.attribution.attribute import Evidence
from wallscope.attribution.host_causes import DRAINED, Drained, HostActivity
from wallscope.attribution.totals import Sums, TypicalWork
from wallscope.columns import Flags, Rows, filled, place
from wallscope.grouping import runs
from wallscope.model.capture import Capture
from wallscope.model.events import HostKind
from wallscope.model.host import BlockingCall, CpuTime, HostAhead, HostDetails, LaunchCost, RepeatedUnit
from wallscope.model.kinds import CallRole, OperationClass
from wallscope.summary.serialization import serialisation
from wallscope.thresholds import FEWEST_CPU_SAMPLES_COUNT, LAUNCH_BOUND_SHARE, READY_NS
from wallscope.trace.intervals import Times, distinct, inside, length_ns, ordered, union
from wallscope.trace.kernel_classes import computes
from wallscope.trace.names import turns
from wallscope.trace.ranges import path_texts
from wallscope.trace.thread_timeline import are_outer

_IS_LAUNCHING = np.isin(list(CallRole), (CallRole.LAUNCH, CallRole.GRAPH))
_NOTHING = np.empty(0, np.int64)


def host_details(
    operations: pl.DataFrame, work: TypicalWork, sums: Sums, evidence: Evidence, capture: Capture
) -> HostDetails | None:
    """What the host of one rank did; `None` where the export has no call that issued its operations.

    Args:
        operations: `CLASSIFIED`, all of the rank.
        work: the same beside the steps of its typical step.
        sums: of the slices of those steps.
        evidence: what the slices were told from.
        capture: the whole export.
    """
    if not (operations["call"].to_numpy() >= 0).any():
        return None
    launched = _launched(work, capture.calls)
    ahead = _ahead(work, launched)
    drained = evidence.drained[operations["rank_id"][0]]
    return HostDetails(
        blocking_calls=blocking_calls(drained, sums, work, evidence),
        launches=_launch_cost(work, launched, ahead),
        ahead=ahead,
        cpu=_cpu_time(work, launched, capture),
        serialisation=serialisation(operations, work, evidence.waits, capture),
    )


@dataclass(frozen=True, slots=True)
class _Launched:
    """Calls that launched what begins in the steps: thread, end and length of each, and what it launched.

    `first_ns` is the start of the first operation, `work_ns` are added-up durations, `computes` whether any
    of it computes.
    """

    thread: Rows
    end_ns: Times
    call_ns: Times
    first_ns: Times
    work_ns: Times
    computes: Flags


def _launched(work: TypicalWork, calls: pl.DataFrame) -> _Launched:
    columns, call = work.columns, work.operations["call"].to_numpy()
    issued = np.flatnonzero(columns.begins & (call >= 0))
    issued = issued[np.argsort(call[issued], kind="stable")]
    first = np.flatnonzero(turns(call[issued]))
    of_calls = calls["thread", "role", "start_ns", "end_ns"][call[issued[first]]]
    is_launch = _IS_LAUNCHING[filled(of_calls["role"])]
    start_ns, end_ns = (of_calls[side].to_numpy() for side in ("start_ns", "end_ns"))
    ran_ns = columns.end_ns[issued] - columns.start_ns[issued]
    return _Launched(
        thread=of_calls["thread"].to_numpy()[is_launch],
        end_ns=end_ns[is_launch],
        call_ns=(end_ns - start_ns)[is_launch],
        first_ns=np.minimum.reduceat(columns.start_ns[issued], first)[is_launch],
        work_ns=np.add.reduceat(ran_ns, first)[is_launch],
        computes=np.logical_or.reduceat(computes(columns.of_class[issued]), first)[is_launch],
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
    """Of the thread with most launches; one that never left its CPU can't be told from an untraced one."""
    if launched.thread.size == 0:
        return None
    busiest = int(np.bincount(launched.thread).argmax())
    total_ns = length_ns(work.steps)
    events, samples = capture.host_events, capture.cpu_samples
    away = np.flatnonzero(
        (filled(events["thread"]) == busiest) & (filled(events["kind"]) == place(HostKind.SCHED))
    )
    if away.size:
        start_ns, end_ns = events["start_ns"].to_numpy()[away], events["end_ns"].to_numpy()[away]
        away_ns = work.all_covered_ns(union(ordered(start_ns, end_ns)))
        count = int(inside(work.steps, start_ns).sum())
        return CpuTime(1 - away_ns / total_ns, "switches", count)
    is_sample = (pl.col("thread") == busiest) & (pl.col("cpu_cycles") > 0)
    at_ns = samples.filter(is_sample)["at_ns"].drop_nulls().to_numpy() if len(samples) else _NOTHING
    at_ns = distinct(at_ns)
    count = int(inside(work.steps, at_ns).sum())
    if count < FEWEST_CPU_SAMPLES_COUNT:
        return None
    usual_ns = float(np.median(np.diff(at_ns)))
    return CpuTime(min(1.0, count * usual_ns / total_ns), "samples", count)


def blocking_calls(
    drained: Drained, sums: Sums, work: TypicalWork, evidence: Evidence
) -> tuple[BlockingCall, ...]:
    """The calls of each name, those behind which most time was lost first.

    `sums` are those of the slices of the steps of `work`. A call whose time is lost in a step may have
    ended before it.
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
    units = dict(_units(made, work, evidence.activity))
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
    """Blocking calls: the name of each, how long it waited, and the innermost range (-1: none)."""

    texts: list[str]
    waited_ns: Times
    range: Rows


def _in_steps(drained: Drained, work: TypicalWork, evidence: Evidence) -> _Made:
    """The calls that end in the steps.

    Of a runtime call and the driver call inside it the outer one counts.
    """
    calls = drained.draining()
    times = evidence.waits.calls
    start_ns, end_ns, thread = times.start_ns[calls], times.end_ns[calls], times.thread[calls]
    order = np.lexsort((-end_ns, start_ns, thread))
    calls, start_ns, end_ns, thread = calls[order], start_ns[order], end_ns[order], thread[order]
    is_outer = np.concatenate([np.empty(0, np.bool_), *(are_outer(end_ns[own]) for _, own in runs(thread))])
    rows = np.flatnonzero(is_outer & inside(work.steps, end_ns))
    return _Made(
        texts=drained.names(calls[rows]),
        waited_ns=end_ns[rows] - start_ns[rows],
        range=_ranges(thread[rows], start_ns[rows], evidence.activity),
    )


def _ranges(thread: Rows, at_ns: Rows, activity: HostActivity) -> Rows:
    """The innermost range at moments of threads; of a thread without one, that of who waits for it."""
    found = np.full(thread.size, -1, np.int64)
    for one, rows in runs(thread):
        found[rows] = activity.open_range(one, at_ns[rows])
    return found


def _commonest_paths(made: _Made, activity: HostActivity) -> dict[str, str]:
    """The path that most calls of a name stand in, of equal ones the first."""
    rows = np.flatnonzero(made.range >= 0)
    if rows.size == 0:
        return {}
    paths = activity.tree["path"].to_numpy()[made.range[rows]]
    counts = Counter((made.texts[row], path) for row, path in zip(rows.tolist(), paths.tolist(), strict=True))
    commonest: dict[str, int] = {}
    for text, path in sorted(counts, key=lambda key: (key[0], -counts[key], key[1])):
        commonest.setdefault(text, path)
    written = path_texts(activity.paths, activity.path_names, pl.Series(commonest.values(), dtype=pl.UInt32))
    return dict(zip(commonest, written, strict=True))


def _units(
    made: _Made, work: TypicalWork, activity: HostActivity
) -> Iterator[tuple[str, tuple[RepeatedUnit, float]]]:
    """Each name half of whose calls lie in units, with the unit and the calls in one of them.

    Layers come before microbatches. Of units of several names the one that holds most of the calls counts;
    it has to repeat inside a step, and every other one has to hold a call.
    """
    tree, label_of_path = activity.tree, activity.paths["name"].to_numpy()
    in_range = np.flatnonzero(made.range >= 0)
    told: set[str] = set()
    for unit in reversed(get_args(RepeatedUnit) if in_range.size else ()):
        outer = activity.outermost_units[unit]
        instances = np.flatnonzero(outer == np.arange(outer.size))
        begun = instances[inside(work.issued, tree["start_ns"].to_numpy()[instances])]
        path_of_range = tree["path"].to_numpy()
        counts = np.bincount(label_of_path[path_of_range[begun]], minlength=len(activity.path_names))
        rows = in_range[outer[made.range[in_range]] >= 0]
        labels = label_of_path[path_of_range[outer[made.range[rows]]]]  # in the order of their texts
        held: dict[str, Counter[int]] = {}
        for row, label in zip(rows.tolist(), labels.tolist(), strict=True):
            held.setdefault(made.texts[row], Counter())[label] += 1
        for text, of_units in held.items():
            label, count = max(of_units.items(), key=lambda one: (one[1], one[0]))
            instances_of_it = int(counts[label])
            repeats = work.steps.start_ns.size < instances_of_it <= 2 * count
            if repeats and 2 * count >= made.texts.count(text) and text not in told:
                told.add(text)
                yield text, (unit, count / instances_of_it)
