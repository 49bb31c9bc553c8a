"""The windows of each rank: how they are cut, which are steady, which are selected.

Ranges on the host end before their work does, so windows are cut on the device. Where ranges mark the steps,
a window begins when its range does and all work that was issued before has ended. The first compute kernel or
opaque graph that the range issued to the stream with most compute is the latest begin. So the host's work
before that kernel belongs to the step. The last window ends with its range, or with the last operation issued
there. Without ranges, windows begin with kernels of the stream with most compute, and the last ends with the
rank's last operation. Windows tile the time between.

The whole capture is divided first, so that a step has the same number whatever is selected; then windows
are left out or cut.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import field, replace
from typing import Final

import numpy as np
import numpy.typing as npt
import polars as pl

from wallscope.columns import Flags, Rows, as_integers, iterate_runs, split_by_rank, take_or
from wallscope.errors import SelectionError, StepRangeError
from wallscope.model.analysis import AnchorKind, AnchorUnit
from wallscope.model.capture import FOREVER_NS, Selection
from wallscope.model.schemas import STEPS
from wallscope.process_tuning import run_side_by_side
from wallscope.records import dataclass
from wallscope.thresholds.steps import (
    ENOUGH_STEPS_COUNT,
    FEWEST_BETWEEN_UPDATES_COUNT,
    FEWEST_STEPS_FOR_QUARTILES_COUNT,
    FEWEST_UNITS_COUNT,
    FEWEST_UPDATES_COUNT,
    MARKED_COMPUTE_SHARE,
    REGULAR_UNITS_SHARE,
    SHORTEST_GRAPH_UNIT_COUNT,
    SHORTEST_UNIT_COUNT,
    SPLIT_BURST_PARTS_COUNT,
    TOLD_RANGES_COUNT,
    WARM_UP_RATIO,
)
from wallscope.trace.intervals import BEFORE_ALL, Times
from wallscope.trace.recurring_ranges import (
    RecurringRange,
    find_recurring_steps,
    is_finer,
    select_by_name,
)
from wallscope.trace.repeat_unit import (
    MainStream,
    Period,
    Symbols,
    find_first_compute,
    find_main_stream,
    find_period,
    find_repetition,
    is_alike,
)
from wallscope.trace.step_markers import MarkerRanges, find_markers, select_marker_ranges
from wallscope.trace.thread_timeline import HostCalls
from wallscope.units import seconds, write_range

_PROFILER = r"Profiler(Start|Stop)"


_GRAPH_CAPTURE = r"Stream(Begin|End)(Rec|C)apture|GraphInstantiate"


_LOADING = r"(Module|Library|Func)Load"


_LAST = "ends with the capture"


_TOUCHED = (
    (_PROFILER, "the profiler was started or stopped in it"),
    (_GRAPH_CAPTURE, "a CUDA graph was captured in it"),
)


def judge_steadiness(windows: pl.DataFrame, process: int, host: HostCalls) -> pl.DataFrame:
    """The windows of one rank with steadiness and reason (`STEPS` without them to `STEPS`).

    What the host did for a window lies between its `issue_start_ns` and its `issue_end_ns`. The leading
    windows that load modules, or take over 1.25 times the median of all later ones, are warm-up. A program
    that captures CUDA graphs in each step does so always: this makes no step unsteady.
    """
    reasons: list[str | None] = [None] * len(windows)
    issue_ns = windows["issue_start_ns"].to_numpy()
    for pattern, touched in _TOUCHED:
        held = _windows_of(host.moments(process, pattern), issue_ns)
        is_usual = pattern == _GRAPH_CAPTURE and set(range(len(windows) - 1)) <= set(held)
        for window in () if is_usual else held:
            reasons[window] = touched
    loading = set(_windows_of(host.moments(process, _LOADING), issue_ns))
    duration_ns = (windows["end_ns"] - windows["start_ns"]).to_numpy()
    for window in range(len(windows) - 2):
        later_ns = float(np.median(duration_ns[window + 1 : -1]))
        if window in loading:
            reasons[window] = reasons[window] or "warm-up: it loads modules"
        elif later_ns and duration_ns[window] > WARM_UP_RATIO * later_ns:
            ratio = duration_ns[window] / later_ns
            reasons[window] = reasons[window] or f"warm-up: {ratio:.1f} times the median of the later windows"
        elif reasons[window] is None:
            break
    reasons[-1] = _LAST
    reason = pl.Series("reason", reasons, dtype=pl.String)
    return windows.with_columns(reason, reason.is_null().alias("steady")).select(STEPS.names()).cast(STEPS)


def _windows_of(moments: Times, issue_ns: Times) -> list[int]:
    """The windows that moments of the host fall into."""
    window = np.searchsorted(issue_ns, moments, side="right") - 1
    return [int(index) for index in np.unique(window[window >= 0])]


def is_ordinary(
    length_ns: npt.NDArray[np.int64] | npt.NDArray[np.float64],
    fewest: int = FEWEST_STEPS_FOR_QUARTILES_COUNT,
) -> Flags:
    """Whether each length lies within the quartiles of its row; all do, where a row has fewer than `fewest`.

    Rows are along the last axis.

    >>> is_ordinary(np.array([1, 2, 3, 4, 5, 6, 7, 8])).tolist()
    [False, False, True, True, True, True, False, False]
    >>> is_ordinary(np.array([1, 99])).tolist()
    [True, True]
    """
    if length_ns.shape[-1] < fewest:
        return np.ones(length_ns.shape, dtype=np.bool_)
    low, high = np.percentile(length_ns, [25, 75], axis=-1, keepdims=True)
    within: Flags = (length_ns >= low) & (length_ns <= high)
    return within


Span = tuple[int, int]
_WHOLE: Final = "whole-trace"
NO_STEP = "the whole capture, not a step"


@dataclass(frozen=True, slots=True)
class Steps:
    """How a capture was divided: kind of anchor, unit, name of the anchor, windows (`STEPS`).

    `kind` and `name` refer to the rank with most kernels, `busiest`, `steps` and `check` to that of the ranks
    that the user selects. `steps` is the number of its windows, `check` the number by the kernel sequence if
    another marker is used. `unmarked` are the ids of the ranks without the marker: their whole time is one
    window. `recurring` are names of other ranges that recur and issue work, with their counts. Known names
    are not searched if a range with a known name marks the steps.
    """

    kind: AnchorKind
    unit: AnchorUnit
    name: str | None
    windows: pl.DataFrame
    busiest: MainStream
    steps: int
    check: int | None
    unmarked: frozenset[int]
    recurring: tuple[tuple[str, int], ...] = ()
    is_inferred: bool = False

    def marks_any(self, ranks: pl.Series) -> bool:
        """Return whether any of some ranks, given by their ids, has steps."""
        return self.kind != _WHOLE and not self.unmarked.issuperset(ranks)


@dataclass(frozen=True, slots=True)
class _Cut:
    """Rows of each rank's main stream at which windows begin, and by what.

    `marks` are the ranges of each rank that is cut by ranges.
    """

    kind: AnchorKind
    unit: AnchorUnit
    name: str | None
    rows: dict[int, Rows]
    marks: dict[int, MarkerRanges] = field(default_factory=dict)
    recurring: tuple[tuple[str, int], ...] = ()
    is_inferred: bool = False


def split_steps(  # noqa: PLR0913, PLR0917  # what is divided, by what, and what of it the user selects
    operations: pl.DataFrame,
    ranks: pl.DataFrame,
    host: HostCalls,
    ranges: pl.DataFrame,
    pattern: str | None,
    shown: pl.Series,
) -> Steps:
    """Windows of all ranks, by the first kind of anchor that gives the busiest rank two windows or more.

    A rank that lacks this anchor, and all ranks where there is none, have one window: all they did. A range
    with a known name marks a step also if there is only one and it issued most of the compute time. The
    user's own pattern may find any single step, and ranges of other names in another rank.

    Args:
        operations: `CLASSIFIED`.
        ranks: `RANKS`.
        host: calls and threads.
        ranges: `NESTED` with the columns `process`, `text` and `folded`.
        pattern: the user's pattern for the ranges that are steps; `None` looks for known ones.
        shown: the ids of the ranks that the user selects.

    Raises:
        StepRangeError: the ranges that the pattern finds issued no work.
    """
    of_ranks = split_by_rank(operations)
    mains = run_side_by_side(
        lambda rank: find_main_stream(of_ranks[rank[0]], rank[1], host),
        ranks["rank_id", "process"].iter_rows(),
    )
    busiest = max(mains, key=_count_kernels)
    unit = _repeating(busiest, find_period)
    cut = next(
        (found for found in _cut_by_ranges(mains, busiest, ranges, pattern) if _is_enough(found, busiest)),
        None,
    )
    if cut is None and pattern is not None:
        raise StepRangeError(
            f"--step-range {pattern!r} — its ranges issued no work of the main stream — name ranges around"
            " kernel launches"
        )
    if cut is None:
        nothing_found = _Cut(_WHOLE, "window", None, {})
        recurring = _list_recurring(busiest, ranges)
        unmarked = (
            *_by_recurring(mains, busiest, ranges, recurring, unit),
            *_cut_without_ranges(mains, busiest),
        )
        cut = next((found for found in unmarked if _is_enough(found, busiest)), nothing_found)
        cut = replace(cut, recurring=_name_others(recurring, cut))
    nothing = np.empty(0, np.int64)
    windows = {
        main.rank_id: _divide(
            main,
            cut.rows.get(main.rank_id, nothing),
            cut.marks.get(main.rank_id),
            of_ranks[main.rank_id],
            host,
        )
        for main in mains
    }
    named = max((main for main in mains if main.rank_id in shown), key=_count_kernels)
    is_checked = cut.kind not in {_WHOLE, "kernel-sequence"} and not _is_single(cut, named)
    unit = unit if named is busiest or not is_checked else _repeating(named, find_period)
    check = len(unit.starts) if unit is not None and is_checked else None
    lacking = {main.rank_id for main in mains if not cut.rows.get(main.rank_id, nothing).size}
    return Steps(
        kind=cut.kind,
        unit=cut.unit,
        name=cut.name,
        windows=pl.concat([STEPS.to_frame(), *windows.values()]),
        busiest=named,
        steps=len(windows[named.rank_id]),
        check=check,
        unmarked=frozenset() if cut.kind == _WHOLE else frozenset(lacking),
        recurring=cut.recurring,
        is_inferred=cut.is_inferred,
    )


def _count_kernels(main: MainStream) -> tuple[int, int]:
    """Return by what a rank is busier than others: kernels, then a lower number."""
    return len(main.rows), -main.rank_id


def _is_enough(cut: _Cut, busiest: MainStream) -> bool:
    if cut.kind == "user" or len(cut.rows[busiest.rank_id]) >= 2:
        return len(cut.rows[busiest.rank_id]) >= 1
    if not _is_single(cut, busiest):
        return False
    mark = cut.marks[busiest.rank_id]
    issued = (int(mark.start_ns[0]), int(mark.end_ns[0]))
    return _share_of_compute(busiest, issued) >= MARKED_COMPUTE_SHARE


def _is_single(cut: _Cut, main: MainStream) -> bool:
    """Return whether a rank has one mark, which issued work."""
    mark = cut.marks.get(main.rank_id)
    return mark is not None and mark.start_ns.size == 1 and cut.rows[main.rank_id].size == 1


def _share_of_compute(main: MainStream, issued: Span) -> float:
    """Return how much of the time of the main stream's kernels was issued within a span of the host."""
    run_ns = (main.rows["end_ns"] - main.rows["start_ns"]).to_numpy()
    issue_ns = main.rows["issue_ns"].to_numpy()
    within = (issue_ns >= issued[0]) & (issue_ns < issued[1])
    return float(run_ns[within].sum() / max(int(run_ns.sum()), 1))


def _cut_by_ranges(
    mains: Sequence[MainStream], busiest: MainStream, ranges: pl.DataFrame, pattern: str | None
) -> Iterator[_Cut]:
    """Cuts by the anchors of the busiest rank, each with what the others have of that name.

    What the user's pattern finds needs no like name; ranges of several names are called by the pattern.
    """
    ranges = select_marker_ranges(ranges, pattern)
    rows = dict(iterate_runs(as_integers(ranges["process"])))  # threads are numbered process by process
    of_process = {main.process: ranges[rows.get(main.process, slice(0))] for main in mains}
    for chosen in find_markers(of_process[busiest.process], pattern):
        begins, marks, names = {}, {}, {chosen.name}
        for main in mains:
            same = (
                own
                for own in find_markers(of_process[main.process], pattern)
                if pattern is not None or own.name == chosen.name
            )
            own = chosen if main.process == busiest.process else next(same, None)
            if own is not None:
                begins[main.rank_id] = find_first_compute(main, own)
                names.add(own.name)
                marks[main.rank_id] = own
        yield _Cut(chosen.kind, "step", chosen.name if len(names) == 1 else pattern, begins, marks)


def _list_recurring(busiest: MainStream, ranges: pl.DataFrame) -> list[RecurringRange]:
    own = ranges.filter(pl.col("process") == busiest.process)
    return find_recurring_steps(own, busiest) if len(own) and len(busiest.rows) else []


def _name_others(recurring: list[RecurringRange], cut: _Cut) -> tuple[tuple[str, int], ...]:
    """Ranges that recur otherwise than the steps of the busiest rank, those first that could be steps."""
    of_steps = [one.count for one in recurring if one.marker.name == cut.name]
    others = {one.marker.name: one.count for one in recurring if one.count not in of_steps}
    return tuple(others.items())[:TOLD_RANGES_COUNT]


def _by_recurring(
    mains: Sequence[MainStream],
    busiest: MainStream,
    ranges: pl.DataFrame,
    recurring: list[RecurringRange],
    unit: Period | None,
) -> Iterator[_Cut]:
    """Cuts by ranges of any name; those that recur within what must be a step are none.

    A step has one burst of updates, and one unit of the kernel sequence where that holds layers.
    """
    bursts = len(_behind_updates(busiest))
    layered = len(unit.starts) if unit is not None and unit.is_layered else 0
    for one in recurring:
        if not one.is_step or is_finer(one, bursts) or is_finer(one, layered):
            continue
        if one.count < ENOUGH_STEPS_COUNT <= bursts:
            continue
        marks = {busiest.rank_id: one.marker}
        for main in mains:
            own = select_by_name(ranges.filter(pl.col("process") == main.process), one.marker.name, main)
            if main is not busiest and own is not None:
                marks[main.rank_id] = own
        begins = {
            main.rank_id: find_first_compute(main, marks[main.rank_id])
            for main in mains
            if main.rank_id in marks
        }
        yield _Cut("nvtx", "step", one.marker.name, begins, marks, is_inferred=True)


def _cut_without_ranges(mains: Sequence[MainStream], busiest: MainStream) -> Iterator[_Cut]:
    """Cuts without ranges."""
    yield _by_optimizer(mains)
    unit = _repeating(busiest, find_repetition)
    if unit is not None:
        yield _by_sequence(mains, busiest, unit)


def _by_optimizer(mains: Sequence[MainStream]) -> _Cut:
    """Steps that begin behind a burst of optimizer kernels."""
    return _Cut("optimizer", "step", None, {main.rank_id: _behind_updates(main) for main in mains})


def _behind_updates(main: MainStream) -> Rows:
    """Row behind each burst of optimizer kernels, with many others before the next one.

    A fused optimizer is one kernel a step: single kernels are bursts where nearly all bursts are such. Where
    an optimizer runs much else between its kernels, so that windows are unlike each other, only what lies
    between the widest apart counts, if that makes them alike.
    """
    updates = np.flatnonzero(main.rows["updates"].to_numpy())
    found = _behind_bursts(updates, FEWEST_BETWEEN_UPDATES_COUNT, len(main.rows))
    symbols = main.rows["symbol"].to_numpy()
    if found.size < FEWEST_UNITS_COUNT or is_alike(symbols, found):
        return found
    between = np.diff(updates)
    widest = np.sort(between)[-FEWEST_UNITS_COUNT]  # an evaluation or two may be wider than a step
    joined = _behind_bursts(updates, int(widest) // SPLIT_BURST_PARTS_COUNT, len(main.rows))
    is_better = joined.size >= FEWEST_UNITS_COUNT and is_alike(symbols, joined)
    return joined if is_better else found


def _behind_bursts(updates: Rows, between: int, row_count: int) -> Rows:
    if updates.size == 0:
        return updates
    ends = np.append(np.flatnonzero(np.diff(updates) > between), updates.size - 1)
    kernels = np.diff(ends, prepend=-1)
    is_fused = kernels.size >= FEWEST_UNITS_COUNT and (kernels == 1).mean() >= REGULAR_UNITS_SHARE
    behind: Rows = updates[ends[kernels >= (1 if is_fused else FEWEST_UPDATES_COUNT)]] + 1
    return np.extract(behind < row_count, behind)


def _by_sequence(mains: Sequence[MainStream], busiest: MainStream, unit: Period) -> _Cut:
    """Steps or windows that begin where the unit of the busiest rank does, and those of the others."""
    units = run_side_by_side(
        lambda main: unit if main is busiest else _repeating(main, find_repetition), mains
    )
    is_step = unit.is_layered or busiest.has_graphs
    rows = {main.rank_id: own.starts for main, own in zip(mains, units, strict=True) if own is not None}
    return _Cut("kernel-sequence", "step" if is_step else "window", None, rows)


def _repeating(main: MainStream, find: Callable[[Symbols, Rows, int], Period | None]) -> Period | None:
    """The unit of the kernel sequence of the main stream."""
    start_ns, end_ns = main.rows["start_ns"].to_numpy(), main.rows["end_ns"].to_numpy()
    if start_ns.size == 0:
        return None
    gap_ns = np.concatenate(([0], np.maximum(start_ns[1:] - end_ns[:-1], 0)))
    shortest = SHORTEST_GRAPH_UNIT_COUNT if main.has_graphs else SHORTEST_UNIT_COUNT
    return find(main.rows["symbol"].to_numpy(), gap_ns, shortest)


def _divide(
    main: MainStream, rows: Rows, marks: MarkerRanges | None, own: pl.DataFrame, host: HostCalls
) -> pl.DataFrame:
    """Return the windows of a rank that begin with rows of its main stream, or in their ranges."""
    if rows.size == 0:
        whole = own.select(
            "rank_id", pl.lit(0, pl.UInt32).alias("step"), pl.col("start_ns").min(), end_ns=main.last_ns
        )
        window = whole.head(1).with_columns(
            issue_start_ns=-FOREVER_NS,
            issue_end_ns=FOREVER_NS,
            steady=pl.lit(False),
            reason=pl.lit(NO_STEP),
        )
        return window.select(STEPS.names()).cast(STEPS)
    if marks is None:
        begin_ns = np.append(np.sort(main.rows["start_ns"].to_numpy()[rows]), main.last_ns)
        issue_ns = np.append(main.rows["issue_ns"].to_numpy()[rows], FOREVER_NS)
    else:
        begin_ns, issue_ns = _find_bounds_of_marks(main, rows, marks, own, host)
    hosted = pl.DataFrame(
        {
            "rank_id": np.full(rows.size, main.rank_id, np.uint32),
            "step": np.arange(rows.size, dtype=np.uint32),
            "start_ns": begin_ns[:-1],
            "end_ns": begin_ns[1:],
            "issue_start_ns": issue_ns[:-1],
            "issue_end_ns": issue_ns[1:],
        },
        schema={name: STEPS[name] for name in STEPS.names()[:6]},
    )
    if marks is not None and rows.size == 1:
        return hosted.with_columns(steady=pl.lit(value=True), reason=pl.lit(None)).cast(STEPS)
    return judge_steadiness(hosted, main.process, host)


def _find_bounds_of_marks(
    main: MainStream, rows: Rows, marks: MarkerRanges, own: pl.DataFrame, host: HostCalls
) -> tuple[Times, Times]:
    """Return where windows of marked steps begin on the device and on the host, and where the last one ends.

    `rows` are the first kernels of the main stream in each range that issued any.
    """
    chosen = np.searchsorted(marks.start_ns, main.rows["issue_ns"].to_numpy()[rows], side="right") - 1
    mark_ns, mark_end_ns = marks.start_ns[chosen], marks.end_ns[chosen]
    call = own["call"].to_numpy()
    start_ns, end_ns = own["start_ns"].to_numpy(), own["end_ns"].to_numpy()
    issue_ns = np.where(call >= 0, take_or(host.calls["start_ns"].to_numpy(), call, 0), start_ns)
    order = np.argsort(issue_ns, kind="stable")
    ended_ns = np.concatenate(([BEFORE_ALL], np.maximum.accumulate(end_ns[order])))
    ended_ns = ended_ns[np.searchsorted(issue_ns[order], mark_ns)]
    first_ns = main.rows["start_ns"].to_numpy()[rows]
    begin_ns = np.sort(np.minimum(first_ns, np.maximum(mark_ns, ended_ns)))
    is_last = (issue_ns >= mark_ns[-1]) & (issue_ns < mark_end_ns[-1])
    last_ns = max(int(mark_end_ns[-1]), int(end_ns[is_last].max()))
    return np.append(begin_ns, last_ns), np.append(mark_ns, mark_end_ns[-1])


def select_ranks(ranks: pl.DataFrame, selection: Selection) -> pl.DataFrame:
    """The ranks (`RANKS`) of that number and device.

    Raises:
        SelectionError: there is none; says which there are.
    """
    found = ranks
    for column in ("rank", "device"):
        wanted = getattr(selection, column)
        if wanted is None:
            continue
        found = found.filter(pl.col(column) == wanted)
        if found.is_empty():
            there = ", ".join(map(str, ranks[column].unique().drop_nulls().sort()))
            said = f"it has {column} {there}" if there else f"it has no {column} number"
            raise SelectionError(f"--{column} {wanted} — is not in this export — {said}")
    return found


def select_windows(windows: pl.DataFrame, selection: Selection) -> pl.DataFrame:
    """Windows (`STEPS`) that have a part inside the selected time, cut to it, with more columns.

    `selected` is true of the chosen steps; of those that the time cuts only where it leaves the rank no
    chosen one whole. A window that is not chosen, or is cut, is not steady. Ranks without a selected
    window are left out. With a time, `host_until_ns` is where ranges of the host end at the latest.

    The host time of a window (`issue_start_ns`, `issue_end_ns`) stays whole with the window, even if it
    precedes the selected time. It is cut to that time if the window is, or if it has no bound.

    Raises:
        SelectionError: no window has a part in the time, or none of the steps is there.
    """
    if selection.steps is None and selection.time_ns is None:
        return windows.with_columns(selected=pl.lit(value=True))
    marked = _chosen(_in_time(windows, selection.time_ns), selection)
    is_whole = pl.col("chosen") & ~pl.col("cut")
    is_selected = is_whole | (pl.col("chosen") & ~is_whole.any().over("rank_id"))
    return (
        marked.with_columns(selected=is_selected)
        .filter(pl.col("selected").any().over("rank_id"))
        .drop("chosen", "cut")
    )


def _in_time(windows: pl.DataFrame, time_ns: tuple[int, int] | None) -> pl.DataFrame:
    """The windows cut to the time, with the columns `cut` and, if there is a time, `host_until_ns`."""
    if time_ns is None:
        return windows.with_columns(cut=pl.lit(value=False))
    begin_ns, end_ns = time_ns
    start, end = pl.col("start_ns"), pl.col("end_ns")
    inside = windows.filter((start < end_ns) & ((end > begin_ns) | (start >= begin_ns)))
    if inside.is_empty():
        first, last = windows["start_ns"].to_numpy().min(), windows["end_ns"].to_numpy().max()
        raise SelectionError(
            f"--time {seconds(begin_ns)}-{seconds(end_ns)} — holds no part of a step — the windows are"
            f" between {seconds(int(first))} and {seconds(int(last))} s"
        )
    is_cut = (start < begin_ns) | (end > end_ns)
    issue_start, issue_end = pl.col("issue_start_ns"), pl.col("issue_end_ns")
    return inside.with_columns(
        cut=is_cut,
        start_ns=start.clip(lower_bound=begin_ns),
        end_ns=end.clip(upper_bound=end_ns),
        issue_start_ns=pl.when(is_cut | (issue_start == -FOREVER_NS))
        .then(issue_start.clip(begin_ns, end_ns))
        .otherwise(issue_start),
        issue_end_ns=pl.when(is_cut | (issue_end == FOREVER_NS))
        .then(issue_end.clip(begin_ns, end_ns))
        .otherwise(issue_end),
        host_until_ns=pl.when(is_cut | (issue_end == FOREVER_NS)).then(end_ns).otherwise(FOREVER_NS),
        steady=pl.col("steady") & ~is_cut,
        reason=pl.when(is_cut).then(pl.lit("cut by --time")).otherwise("reason"),
    )


def _chosen(windows: pl.DataFrame, selection: Selection) -> pl.DataFrame:
    """The windows with the column `chosen`: whether each is among the selected steps."""
    if selection.steps is None:
        return windows.with_columns(chosen=pl.lit(value=True))
    is_chosen = pl.col("step").is_between(*selection.steps)
    spelled = write_range(*selection.steps)
    if windows.filter(is_chosen).is_empty():
        where = "in this export" if selection.time_ns is None else "in the time of --time"
        step = windows["step"].to_numpy()
        there = write_range(int(step.min()), int(step.max()))
        raise SelectionError(f"--steps {spelled} — are not {where} — it has steps {there}")
    return windows.with_columns(
        chosen=is_chosen,
        steady=pl.col("steady") & is_chosen,
        reason=pl.when(is_chosen).then("reason").otherwise(pl.lit(f"not among --steps {spelled}")),
    )
