"""The what-if engine: simulate a window unchanged and changed, with chosen latencies.

A latency is the time between a cause and its effect: launch latency, dependency latency, return of a blocking
call, host time outside calls. Latencies of several steps match if they belong to the same thing, counted from
the begin of its step.

It answers `wallscope whatif`, gains of fixes and upper bounds of causes, all of one window and with one
measure, so that one question has one answer. They differ only in the largest accepted error.
"""

from dataclasses import replace
from functools import cached_property
from threading import Lock
from typing import NamedTuple

import numpy as np
import polars as pl

from wallscope.columns import (
    Flags,
    Rows,
    as_integers,
    count_before_in_group,
    number_densely,
    number_groups,
    order_by_group,
    sum_by_group,
    take_or,
)
from wallscope.model.diagnosis import Walls
from wallscope.model.enums import OperationClass, Wall
from wallscope.model.whatif import Answer, Question, SelfCheck
from wallscope.records import dataclass
from wallscope.replay.changes import NO_TAX, Changes, OverlapTaxes
from wallscope.replay.critical_path import (
    NamedPath,
    PathColumns,
    build_path_frame,
    find_next_path_wall,
    measure_busy,
    name_path,
    sum_path_walls,
    sum_walls_of_run,
    trace_path,
    trace_single_path,
)
from wallscope.replay.edits import GraphEdit
from wallscope.replay.graph import ReplayGraph, Role
from wallscope.replay.simulate import (
    RepeatedSteps,
    SimulatedRun,
    StreamOperations,
    find_repeated_steps,
    follow_frees,
    follow_holds,
    simulate,
)
from wallscope.replay.windows import ReplayWindow, SimulatedSteps
from wallscope.thresholds.causes import (
    SIDE_BY_SIDE_RATIO,
    UNEXPLAINED_STEP_SHARE,
    USUAL_DEPENDENCY_LATENCY_NS,
)
from wallscope.trace.intervals import Spans, Times, covered_ns, order_spans, union
from wallscope.trace.repeat_unit import Shares
from wallscope.units import percent

_NO_SEGMENT = -2


@dataclass(frozen=True, slots=True)
class OtherStepLags:
    """The graph with the latencies of the other steps.

    `unmatched_share` is the share of the latencies in steady steps without a match there.
    """

    graph: ReplayGraph
    unmatched_share: float


def measure_lags_of_other_steps(window: SimulatedSteps) -> OtherStepLags:
    """Return the graph with each latency of a steady step set to the median of its matches in other steps.

    A latency without a match keeps its time.
    """
    graph = measure_own_lags(window)
    step, thing = _operations(window)
    ordinal = count_before_in_group(number_groups(step, thing))
    latency_ns, is_lone = _of_others(step, number_groups(thing, ordinal), graph.latency_ns)
    count = np.diff(graph.producer_ptr)
    waiting = np.arange(thing.size).repeat(count)
    number = np.arange(waiting.size) - graph.producer_ptr[waiting]
    producer = np.append(thing, -1)[np.minimum(graph.producer, thing.size)]
    like = number_groups(thing[waiting], ordinal[waiting], number, producer)
    lag_ns, is_lone_edge = _of_others(step[waiting], like, graph.lag_ns)
    outside, back = _outside(window), _returns(window)
    outside_ns, is_lone_segment = _of_others(outside.step, outside.like, outside.time_ns)
    return_ns, is_lone_return = _of_others(back.step, back.like, back.time_ns)
    is_released = graph.role[outside.row] == Role.RELEASED
    segment_ns, gap_ns = graph.segment_ns.copy(), graph.gap_ns.copy()
    segment_ns[outside.row[~is_released]] = outside_ns[~is_released]
    gap_ns[outside.row[is_released]] = outside_ns[is_released]
    gap_ns[back.row] = return_ns
    lone = np.concatenate((is_lone, is_lone_edge, is_lone_segment, is_lone_return))
    is_inside = np.concatenate((step, step[waiting], outside.step, back.step)) >= 0
    return OtherStepLags(
        replace(graph, latency_ns=latency_ns, lag_ns=lag_ns, segment_ns=segment_ns, gap_ns=gap_ns),
        float(lone[is_inside].mean()) if is_inside.any() else 0.0,
    )


def measure_own_lags(window: SimulatedSteps) -> ReplayGraph:
    """Return the graph with the latencies of the capture, and the typical ones where they were not critical.

    A call without a wait would return as others usually do, but not later than it did. Kernels that never
    waited for another would follow each other as on most devices.
    """
    graph = window.graph
    waiting = np.flatnonzero(np.diff(graph.awaited_ptr) > 0)
    done_ns = np.zeros(graph.role.size, np.int64)
    if waiting.size:
        done_ns[waiting] = np.maximum.reduceat(graph.end_ns[graph.awaited], graph.awaited_ptr[waiting])
    waiting = waiting[graph.role[waiting] == Role.BLOCKING]
    waited, idle = waiting[~graph.is_idle[waiting]], waiting[graph.is_idle[waiting]]
    usual_ns = max(int(np.median(graph.gap_ns[waited])), 0) if waited.size else 0
    gap_ns = graph.gap_ns.copy()
    gap_ns[idle] = np.clip(np.asarray(window.segments.end_ns)[idle] - done_ns[idle], 0, usual_ns)
    return replace(
        graph, gap_ns=gap_ns, lag_ns=graph.lag_ns if graph.dependency_latency_ns else _unseen_lags(window)
    )


def _unseen_lags(window: SimulatedSteps) -> Times:
    """Return the latencies where those of the capture are all unknown: at most the usual one in a stream."""
    graph, waits = window.graph, window.waits
    before = waits.stream_before[graph.op]
    held = np.flatnonzero(before >= 0)
    held = held[graph.lag_ns[graph.producer_ptr[held]] == 0]  # the first producer is the one before
    idle_ns = waits.start_ns[graph.op[held]] - waits.end_ns[before[held]]
    lag_ns = graph.lag_ns.copy()
    lag_ns[graph.producer_ptr[held]] = np.clip(idle_ns, 0, USUAL_DEPENDENCY_LATENCY_NS)
    return lag_ns


def measure_step_lengths(window: SimulatedSteps, run: SimulatedRun, which: str) -> Times:
    """Return the length of the steps of a kind (a column of the steps) in a run, in ns."""
    begun_ns = run.start_ns[window.edges(which)]
    lengths_ns: Times = begun_ns[:, 1] - begun_ns[:, 0]
    return lengths_ns


def _step_of(window: SimulatedSteps, at_ns: Times) -> Rows:
    """Return the number of the steady step that the host worked on at given times; -1 outside those."""
    is_checked = window.steps["checked"].to_numpy()
    begun_ns, ends_ns = (window.steps[f"issue_{edge}_ns"].to_numpy()[is_checked] for edge in ("start", "end"))
    row = np.searchsorted(begun_ns, at_ns, side="right") - 1
    return np.where((row >= 0) & (at_ns < np.append(ends_ns, 0)[row]), row, -1)


def _operations(window: SimulatedSteps) -> tuple[Rows, Rows]:
    """Return the step of each replayed operation, and its identity and stream as a number."""
    issued_ns = window.waits.calls.start_ns[window.replayed["call"].to_numpy()]
    known = window.replayed["rank_id", "stream", "kind", "name", "category", "bytes"]
    return _step_of(window, issued_ns), number_groups(*map(as_integers, known))


class _Lags(NamedTuple):
    """Latencies of host segments: their index, step, key to match in other steps (`like`), and length."""

    row: Rows
    step: Rows
    like: Rows
    time_ns: Times


def _outside(window: SimulatedSteps) -> _Lags:
    """Time outside calls; it matches between the same two calls."""
    segments, graph = window.segments, window.graph
    name, thread = _call_names(window), np.asarray(segments.thread)
    before, behind = (np.full(name.size, _NO_SEGMENT) for _ in range(2))
    goes_on = thread[1:] == thread[:-1]
    before[1:][goes_on], behind[:-1][goes_on] = name[:-1][goes_on], name[1:][goes_on]
    row = np.flatnonzero(np.asarray(segments.call) < 0)
    time_ns = np.where(graph.role == Role.RELEASED, graph.gap_ns, graph.segment_ns)
    step = _step_of(window, np.asarray(segments.end_ns)[row])
    same = number_groups(thread[row], before[row], behind[row])
    return _Lags(
        row, step, number_groups(same, count_before_in_group(number_groups(step, same))), time_ns[row]
    )


def _returns(window: SimulatedSteps) -> _Lags:
    """Returns of blocking calls; they match by name."""
    graph, segments = window.graph, window.segments
    row = np.flatnonzero((graph.role >= Role.BLOCKING) & ~graph.is_idle)
    step = _step_of(window, np.asarray(segments.end_ns)[row])
    same = number_groups(np.asarray(segments.thread)[row], _call_names(window)[row])
    return _Lags(
        row, step, number_groups(same, count_before_in_group(number_groups(step, same))), graph.gap_ns[row]
    )


def _call_names(window: SimulatedSteps) -> Rows:
    """Return the name of the call that each segment is in, as a number; -1 outside calls."""
    return take_or(as_integers(window.call_name), np.asarray(window.segments.call), -1)


def _of_others(step: Rows, group: Rows, time_ns: Times) -> tuple[Times, Flags]:
    """Return the median time of matches in other steps, and whether there is none; `step` -1: no step."""
    lone = np.ones(time_ns.size, np.bool_)
    found = time_ns.copy()
    held = np.flatnonzero(step >= 0)
    order = held[np.argsort(time_ns[held])]
    order = order[order_by_group(group[order])]
    if not order.size:
        return found, lone
    edge = np.flatnonzero(np.diff(group[order])) + 1
    begin, size = np.concatenate(([0], edge)), np.diff(np.concatenate(([0], edge, [order.size])))
    first, many = np.repeat(begin, size), np.repeat(size, size)
    rank = np.arange(order.size) - first
    others = many - 1
    low, high = np.maximum(others - 1, 0) // 2, others // 2
    in_order_ns = np.append(time_ns[order], 0)
    middle_ns = (
        in_order_ns[np.minimum(first + low + (low >= rank), order.size)]
        + in_order_ns[np.minimum(first + high + (high >= rank), order.size)]
    ) // 2
    has = others > 0
    found[order[has]] = middle_ns[has]
    lone[order] = ~has
    return found, lone


def explain_error(error: float, most: float) -> str:
    """Say in a clause what an error of a replay above its limit means."""
    return (
        f"steps vary too much to be replayed reliably (replay error {percent(error)}, limit {percent(most)})"
    )


def is_too_far_off(error: float, most: float) -> str:
    """Return why a replay is rejected, and how that was measured."""
    return (
        f"the replay error is {percent(error)}, above the limit of {percent(most)} (measured on each step,"
        " with the latencies of the other steps)"
    )


@dataclass(frozen=True)
class ChangedSteps:
    """Steps with some questions applied: the changed graph, and what was changed and assumed."""

    graph: ReplayGraph
    notes: tuple[str, ...]

    @cached_property
    def run(self) -> SimulatedRun:
        """The changed run."""
        return simulate(self.graph)


class MeasuredChange(NamedTuple):
    """How long a step of each rank takes with a change by without it, and how long operations do.

    `freed_shares` are as `shares`, where threads meet other holds of locks than in the capture, or free
    memory behind less work; `None` if they do not. Then the step may also end before the work of a thread
    that it no longer waits for.
    """

    shares: Shares
    freed_shares: Shares | None
    operation_ns: Times


Way = tuple[Question, ...]
"""Questions as they are applied: of several ways to remove a cause, one."""


class Engine:
    """Simulates a window unchanged once, then with questions applied; ranks of the window share it.

    Args:
        window: the window, with the steps that are measured.
        taxes: slowdown of each rank's compute that overlaps communication.

    Ranks are counted as in `SimulatedSteps`: first the one whose steps are measured, then the others.
    """

    def __init__(self, window: SimulatedSteps, taxes: OverlapTaxes) -> None:
        self.window, self._taxes = window, taxes
        self.graph = measure_own_lags(window)
        self._lock = Lock()
        self._measured: dict[Way, MeasuredChange] = {}
        self._places_of: dict[OperationClass, Rows] = {}

    @cached_property
    def unchanged(self) -> SimulatedRun:
        """The run of the unchanged window."""
        return simulate(self.graph)

    @cached_property
    def changes(self) -> Changes:
        """The possible targets of questions."""
        return Changes(self.window, self._taxes)

    @cached_property
    def _repeated(self) -> RepeatedSteps:
        edges = [self.window.edges("typical"), *self.window.edges_of_others()]
        return find_repeated_steps(edges, _list_stream_operations(self.window))

    @cached_property
    def repeated_ns(self) -> Shares:
        """The length of a step that repeats, of each rank of the window, in ns; 0 without steps.

        Paths through the steps do not explain all of it where threads wait for one that keeps its own pace.
        """
        return self._paths_ns + self._beyond_ns

    @cached_property
    def _paths_ns(self) -> Shares:
        return self._repeated.measure_ns(self.graph)

    @cached_property
    def _beyond_ns(self) -> Shares:
        """The part of a step that no path through it explains, of each rank."""
        beyond_ns = self._repeated.measure_once_ns(self.unchanged) - self._paths_ns
        is_much = (beyond_ns > UNEXPLAINED_STEP_SHARE * self._paths_ns) & (self._paths_ns > 0)
        return np.where(is_much, beyond_ns, 0)

    def _measure_repeated_ns(self, changed: ChangedSteps, *, is_whole: bool) -> Shares:
        """Return the length of a step that repeats with a change; `is_whole`: without a whole cause."""
        paths_ns = self._repeated.measure_ns(changed.graph)
        if not self._beyond_ns.any():
            return paths_ns
        once_ns = self._measure_once_ns(changed.run, is_whole=is_whole)
        return paths_ns + np.clip(once_ns - paths_ns, 0, self._beyond_ns)

    def _measure_once_ns(self, run: SimulatedRun, *, is_whole: bool) -> Shares:
        """Return how long a step takes in a run: changed as the time up to the end of the last one is.

        That time gets no longer if anything takes less. Without a whole cause it is what steps take in the
        run, if that is less: the time before the first step may keep its length.
        """
        before_ns, after_ns = map(self._repeated.measure_until_last_ns, (self.unchanged, run))
        scaled_ns = self.repeated_ns * after_ns / np.maximum(before_ns, 1)
        return np.minimum(scaled_ns, self._repeated.measure_once_ns(run)) if is_whole else scaled_ns

    def change(self, way: Way) -> ChangedSteps:
        """Return the steps with some questions applied."""
        draft = GraphEdit(self.graph)
        notes = [note for one in way for note in self.changes.put(one, draft)]
        if any(one.kind in {"overlap", "hide"} for one in way):
            notes.append(self._slow_overlapping(draft))
        return ChangedSteps(draft.graph(), tuple(dict.fromkeys(notes)))

    def measure(self, way: Way, changed: ChangedSteps | None = None) -> MeasuredChange:
        """Return the length of a step that repeats with some questions applied; `changed` if it is known."""
        with self._lock:  # ranks that are summarized at the same time share the engine
            if way not in self._measured:
                self._measured[way] = self._measure_change(way, changed or self.change(way))
            return self._measured[way]

    def _measure_change(self, way: Way, changed: ChangedSteps) -> MeasuredChange:
        """Measure a change; without a whole cause, also as threads wait for locks and free memory then.

        Half of a cause may win more so than all of it, because another thread gets the lock first.
        """
        is_whole = all(one.kind in {"scale", "without"} and not one.share for one in way)
        shares = self._measure_repeated_ns(changed, is_whole=is_whole) / np.maximum(self.repeated_ns, 1)
        freed = changed.graph
        for _ in range(_ROUNDS if is_whole else 0):
            before, freed = freed, follow_holds(follow_frees(freed, self._before))
            if freed is before:
                break
        if freed is changed.graph:
            return MeasuredChange(shares, None, changed.graph.operation_ns)
        freed_ns = np.minimum(
            self._repeated.measure_ns(freed), self._measure_once_ns(simulate(freed), is_whole=True)
        )
        freed_shares = freed_ns / np.maximum(self.repeated_ns, 1)
        return MeasuredChange(shares, freed_shares, changed.graph.operation_ns)

    @cached_property
    def _before(self) -> Rows:
        """The operation before each in its stream, -1 without one in the window."""
        before = self.window.waits.stream_before[self.graph.op].astype(np.int64)
        return np.where(before >= 0, self.graph.positions(before), -1)

    def _slow_overlapping(self, draft: GraphEdit) -> str:
        """Slow compute down where it newly overlaps communication; return what was assumed."""
        known, slower = self._slowdown
        if not known:
            return NO_TAX
        compute = self._find_class(OperationClass.COMPUTE)
        ops, own_ns = self.graph.op[compute], self.graph.operation_ns[compute]
        for _ in range(_ROUNDS if slower.any() else 0):
            more_ns = slower * (self._beside_ns(simulate(draft.graph())) - self._beside_unchanged_ns)
            rounded_ns = np.rint(more_ns).astype(np.int64)
            is_changed = rounded_ns != 0
            draft.set_operations(ops[is_changed], np.maximum(own_ns + rounded_ns, 0)[is_changed])
        times = " to ".join(dict.fromkeys(f"{tax:.2f}" for tax in (min(known), max(known))))
        return (
            f"compute that overlaps communication takes {times} times as long as alone, as measured in this"
            " capture"
        )

    @cached_property
    def _slowdown(self) -> tuple[list[float], Shares]:
        """The known slowdowns of compute by overlap, and by how much each compute operation gets slower."""
        compute = self._find_class(OperationClass.COMPUTE)
        rank_id, rank = number_densely(self.window.replayed["rank_id"].to_numpy().astype(np.int64)[compute])
        taxes = [self._taxes(one) for one in rank_id.tolist()]
        known = [max(tax, 1.0) for tax in taxes if tax is not None]  # below 1 it is noise
        return known, np.array([max(tax or 1.0, 1.0) - 1 for tax in taxes])[rank]

    @cached_property
    def _beside_unchanged_ns(self) -> Times:
        return self._beside_ns(self.unchanged)

    def _find_class(self, kind: OperationClass) -> Rows:
        """Return the indices of the operations of a class."""
        if kind not in self._places_of:
            self._places_of[kind] = np.flatnonzero((self.window.replayed["class"] == kind).to_numpy())
        return self._places_of[kind]

    def _beside_ns(self, run: SimulatedRun) -> Times:
        """Return how long each compute operation overlapped communication in a run."""
        compute = self._find_class(OperationClass.COMPUTE)
        own = Spans(run.start_ns[compute], run.end_ns[compute])
        return covered_ns(measure_busy(run, self._find_class(OperationClass.COMMUNICATION)), own)


NO_LENGTH = "the replayed steps take no time"
NO_STEP = "a replay needs two complete steps in a row"
_ROUNDS = 2
_COMPUTING = [OperationClass.COMPUTE, OperationClass.OPAQUE_GRAPH]


class SingleStep:
    """The only step of a rank: from the begin of its mark until its host and its device are through."""

    def __init__(self, windows: pl.DataFrame, window: SimulatedSteps) -> None:
        self.windows, self.step = windows, int(windows["step"][0])
        self.begin_ns, end_ns = map(int, windows.select("start_ns", "end_ns").row(0))
        own = (window.replayed["rank_id"] == window.rank_id).to_numpy()
        threads = np.unique(window.waits.calls.thread[window.replayed["call"].to_numpy()[own]])
        self._operations = np.flatnonzero(own)
        self._segments = np.flatnonzero(np.isin(np.asarray(window.segments.thread), threads))
        ended_ns = window.waits.end_ns[window.graph.op[self._operations]]
        left_ns = np.asarray(window.segments.end_ns)[self._segments]
        self._rest_ns = max(end_ns - max(int(ended_ns.max()), int(left_ns.max())), 0)
        self.captured_ns: int = end_ns - self.begin_ns

    def measure_ns(self, run: SimulatedRun) -> int:
        """Return the length of the step in a run."""
        ended_ns, left_ns = run.end_ns[self._operations], run.left_ns[self._segments]
        return max(int(ended_ns.max()), int(left_ns.max())) + self._rest_ns - self.begin_ns


def has_operations(rank_id: int, window: ReplayWindow) -> bool:
    """Return whether any operation of a rank is simulated."""
    return bool((window.replayed["rank_id"] == rank_id).any())


class WindowReplay:
    """Answers questions about the steps of one rank.

    Args:
        window: the steps.
        step_ns: the typical step, to which answers refer.
        engine: simulates the window, with these steps or those of a rank that is replayed together.
        single: the step of the rank if it has one only.
        place: the index of the rank among those that are replayed together.
    """

    def __init__(
        self,
        window: SimulatedSteps,
        step_ns: int,
        engine: Engine,
        single: SingleStep | None = None,
        place: int = 0,
    ) -> None:
        self._place = place
        self.window, self.engine, self.step_ns, self._single = window, engine, step_ns, single
        self.unchanged = engine.unchanged

    @property
    def is_single(self) -> bool:
        """Whether the rank has one step only."""
        return self._single is not None

    @property
    def step_count(self) -> int:
        """The number of simulated typical steps."""
        return 1 if self.is_single else int(self.window.steps["typical"].sum())

    @cached_property
    def typical_error(self) -> float:
        """The error of the typical steps, simulated unchanged, as a share of them."""
        if self._single is not None:
            captured_ns, own_ns = self._single.captured_ns, self._single.measure_ns(self.unchanged)
            return abs(own_ns - captured_ns) / max(captured_ns, 1)
        captured_ns = int(self._measure_captured_ns("typical").sum())
        own_ns = int(measure_step_lengths(self.window, self.unchanged, "typical").sum())
        return abs(own_ns - captured_ns) / max(captured_ns, 1)

    @property
    def changes(self) -> Changes:
        """The possible targets of questions."""
        return self.engine.changes

    @cached_property
    def names(self) -> NamedPath:
        """The names of all that is replayed."""
        return name_path(self.window)

    @property
    def steps(self) -> pl.DataFrame:
        """The simulated typical steps (`STEPS`)."""
        return self.window.steps.filter("typical") if self._single is None else self._single.windows

    @cached_property
    def _path(self) -> PathColumns:
        return self._trace(self.unchanged)

    def _trace(self, run: SimulatedRun) -> PathColumns:
        """Return the paths of the typical steps in a run."""
        if self._single is None:
            return trace_path(self.window, self.names, run)
        return trace_single_path(self.window, self.names, run, self._single.step, self._single.begin_ns)

    @cached_property
    def _of_cause(self) -> dict[str, int]:
        return sum_walls_of_run(self.names, self.unchanged, self._path)

    @property
    def walls(self) -> Walls:
        """The walls of the typical step, by its path."""
        return sum_path_walls(self._of_cause, self.step_ns)

    @property
    def wall(self) -> Wall:
        """What limits the typical step, by its path."""
        return find_next_path_wall(self._of_cause)[0]

    @cached_property
    def path(self) -> pl.DataFrame:
        """The critical path of the typical steps (`PATH`)."""
        return build_path_frame(self.window, self.names, self._path)

    @cached_property
    def own_error(self) -> float:
        """The error of the steady steps, simulated unchanged, as a share of them."""
        if self._single is not None:
            return self.typical_error
        captured_ns = self._measure_captured_ns("checked")
        own_ns = measure_step_lengths(self.window, self.unchanged, "checked")
        return float(np.abs(own_ns - captured_ns).sum() / max(int(captured_ns.sum()), 1))

    def _measure_captured_ns(self, which: str) -> Times:
        """Return the lengths of the steps of a kind (a column of the steps) in the capture."""
        window = self.window
        ops = window.steps["first", "behind"].to_numpy()[window.steps[which].to_numpy()]
        begins_ns = window.waits.start_ns[ops]
        lengths_ns: Times = begins_ns[:, 1] - begins_ns[:, 0]
        return lengths_ns

    @cached_property
    def check(self) -> SelfCheck:
        """The leave-one-out error of each step."""
        window, captured_ns = self.window, self._measure_captured_ns("checked")
        link_ns = self._path.end_ns - self._path.start_ns
        errors, unmatched_share = np.empty(0), 1.0
        if captured_ns.size > 1:
            others = measure_lags_of_other_steps(window)
            lengths_ns = measure_step_lengths(window, simulate(others.graph), "checked")
            errors = np.abs(lengths_ns - captured_ns) / np.maximum(captured_ns, 1)  # a step may take no time
            unmatched_share = others.unmatched_share
        return SelfCheck(
            steps=captured_ns.size,
            error_median=float(np.median(errors)) if errors.size else None,
            error_p90=float(np.quantile(errors, 0.9)) if errors.size else None,
            own_error=self.own_error,
            slack_share=int(link_ns[self._path.is_slack].sum()) / max(int(link_ns.sum()), 1),
            unmatched_share=unmatched_share,
            unresolved_wait_share=_unresolved_share(window),
        )

    def answer(self, questions: tuple[Question, ...]) -> Answer:
        """Return the typical step with some changes."""
        way, step_ns = self._find_best_way(questions)
        changed = self.engine.change(way)
        path = self._trace(changed.run)
        of_cause = sum_walls_of_run(self.names, changed.run, path)
        wall, cause = find_next_path_wall(of_cause)
        return Answer(
            questions=questions,
            step_ns=step_ns,
            won_ns=self.step_ns - step_ns,
            speedup=self.step_ns / max(step_ns, 1),
            walls=sum_path_walls(of_cause, step_ns),
            next_wall=wall,
            next_cause=cause,
            notes=changed.notes,
        )

    def measure_ns(self, questions: tuple[Question, ...]) -> int:
        """Return the typical step with some changes, as `answer` does."""
        return self._find_best_way(questions)[1]

    def _find_best_way(self, questions: tuple[Question, ...]) -> tuple[Way, int]:
        """Return how the questions win most, and the typical step then: it changes as steps that repeat do.

        It takes at least the time of the compute that is left, because one kernel may fill the GPU. This does
        not apply if many compute kernels run side by side in the capture. It also takes at least the time of
        the other work on the busiest stream. What only removes time makes no step longer.
        """
        ways = [(way, self._measure_way(way)) for way in self.changes.list_ways(questions)]
        way, step_ns = min(ways, key=lambda entry: entry[1])
        is_removal = all(one.kind == "without" or (one.share or 0) <= 1 for one in questions)
        is_removal &= all(one.kind in {"without", "scale"} for one in questions)
        return way, min(step_ns, self.step_ns) if is_removal else step_ns

    def _measure_way(self, way: Way) -> int:
        if self._single is not None:
            changed = self.engine.change(way)
            share = self._single.measure_ns(changed.run) / max(self._single.measure_ns(self.unchanged), 1)
            operation_ns = changed.graph.operation_ns
        else:
            measured = self.engine.measure(way)
            share, operation_ns = float(measured.shares[self._place]), measured.operation_ns
        compute_ns, others_ns = self._work.measure_left_ns(operation_ns)
        step_ns = max(round(self.step_ns * share), min(max(compute_ns, others_ns), self.step_ns))
        if self._single is not None or measured.freed_shares is None:
            return step_ns
        freed_ns = round(self.step_ns * float(measured.freed_shares[self._place]))
        return min(step_ns, max(freed_ns, min(compute_ns, self.step_ns)))

    @cached_property
    def _work(self) -> "WorkOfSteps":
        return measure_work(self.window, self.steps, self.window.rank_id)


@dataclass(frozen=True, slots=True)
class WorkOfSteps:
    """Device work of some steps: places of compute operations and of others, and lengths of all operations.

    `busy_share` is the time in which any compute ran by the sum of its lengths; 0 if many run side by side.
    `stream` numbers the streams of the others: communication and copies of one stream run one by one.
    """

    places: Rows
    others: Rows
    stream: Rows
    operation_ns: Times
    busy_share: float
    steps: int

    def measure_left_ns(self, changed_ns: Times) -> tuple[int, int]:
        """Return how long compute and the busiest other stream work in a step with changed times."""
        left_ns = np.minimum(self.operation_ns, changed_ns)
        of_compute_ns = self.busy_share * int(left_ns[self.places].sum())
        of_streams_ns = sum_by_group(self.stream, left_ns[self.others], int(self.stream.max(initial=0)) + 1)
        steps = max(self.steps, 1)
        return round(of_compute_ns / steps), round(int(of_streams_ns.max()) / steps)


def measure_work(window: ReplayWindow, steps: pl.DataFrame, rank_id: int) -> WorkOfSteps:
    """Return the device work of a rank in some of its steps (`STEPS`), as captured."""
    own = window.replayed
    spans = Spans(steps["start_ns"].to_numpy(), steps["end_ns"].to_numpy())
    all_start_ns = own["start_ns"].to_numpy()
    in_steps = covered_ns(union(spans), Spans(all_start_ns, all_start_ns + 1)) > 0
    in_steps &= (own["rank_id"] == rank_id).to_numpy()
    is_compute = own["class"].is_in(_COMPUTING).to_numpy()
    others = np.flatnonzero(in_steps & ~is_compute)
    places = np.flatnonzero(is_compute & (own["rank_id"] == rank_id).to_numpy())
    ran, begins = own[places], in_steps[places]
    start_ns, end_ns = ran["start_ns"].to_numpy(), ran["end_ns"].to_numpy()
    busy_ns = int(covered_ns(union(order_spans(start_ns, end_ns)), spans).sum())
    run_ns = int((end_ns - start_ns)[begins].sum())
    is_alone = run_ns <= SIDE_BY_SIDE_RATIO * busy_ns
    return WorkOfSteps(
        places[begins],
        others,
        number_groups(as_integers(own["stream"])[others]),
        window.graph.operation_ns,
        busy_ns / max(run_ns, 1) if is_alone else 0.0,
        len(steps),
    )


def _list_stream_operations(window: SimulatedSteps) -> StreamOperations:
    """Return the replayed operations as streams have them, as captured."""
    own = window.replayed
    stream = number_groups(*map(as_integers, own["rank_id", "stream"]))
    like = number_groups(*map(as_integers, own["rank_id", "stream", "kind", "name"]))
    start_ns, end_ns = own["start_ns"].to_numpy(), own["end_ns"].to_numpy()
    return StreamOperations(stream, like, start_ns, end_ns - start_ns)


def _unresolved_share(window: SimulatedSteps) -> float | None:
    resolved = window.waits.resolved_share
    return None if resolved is None else 1 - resolved
