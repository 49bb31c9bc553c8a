"""The what-if engine: simulate a window unchanged and changed, with chosen latencies.

A latency is the time between a cause and its effect: launch latency, dependency latency, return of a blocking
call, host time outside calls. Latencies of several steps match if they belong to the same thing, counted from
the begin of its step.

It answers `wallscope whatif`, gains of fixes and upper bounds of causes. These differ in how much they
simulate, in the largest accepted error, and in what belongs to a cause: `Purpose` has all three.
"""

from collections.abc import Iterable
from dataclasses import dataclass, replace
from functools import cached_property
from typing import NamedTuple

import numpy as np
import polars as pl

from wallscope.columns import (
    Flags,
    Rows,
    as_integers,
    count_before_in_group,
    number_groups,
    order_by_group,
    take_or,
)
from wallscope.model.enums import OperationClass
from wallscope.model.whatif import Answer, Asked, Question, SelfCheck
from wallscope.replay.changes import Changes, OverlapTaxes
from wallscope.replay.critical_path import (
    build_path_frame,
    find_next_path_wall,
    measure_busy,
    name_path,
    sum_path_walls,
    sum_walls_of_run,
    trace_path,
)
from wallscope.replay.edits import GraphEdit
from wallscope.replay.graph import ReplayGraph, Role
from wallscope.replay.simulate import SimulatedRun, StreamOperations, find_repeated_steps, simulate
from wallscope.replay.windows import ReplayWindow, SimulatedSteps
from wallscope.thresholds.causes import (
    ASKED_PLAYED_COUNT,
    FIX_REPLAY_ERROR_SHARE,
    MOST_PLAYED_COUNT,
    PATH_ERROR_SHARE,
    SIDE_BY_SIDE_RATIO,
    UPPER_BOUND_ERROR_SHARE,
    UPPER_BOUND_PLAYED_COUNT,
    USUAL_DEPENDENCY_LATENCY_NS,
)
from wallscope.trace.intervals import Spans, Times, covered_ns, order_spans, union
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


@dataclass(frozen=True, slots=True)
class Purpose:
    """The parameters of a simulation for one kind of answer.

    Attributes:
        most_operations: most operations of all ranks in a window, which has at least one step.
        largest_error: largest accepted error, as a share of a step, of the simulation with the latencies of
            the other steps; `None`: not checked.
        largest_own_error: the same for the simulation with its own latencies.
        is_upper_bound: what belongs to a cause; see `list_targets`.
    """

    most_operations: int
    largest_error: float | None
    largest_own_error: float | None
    is_upper_bound: bool


# To be unified: the size, the error of steps simulated with the latencies of others, the content of causes.
UPPER_BOUNDS = Purpose(
    most_operations=UPPER_BOUND_PLAYED_COUNT,
    largest_error=None,
    largest_own_error=UPPER_BOUND_ERROR_SHARE,
    is_upper_bound=True,
)
"""Upper bounds of causes for the step of each rank; about a dozen questions per rank."""
FIXES = Purpose(
    most_operations=MOST_PLAYED_COUNT,
    largest_error=FIX_REPLAY_ERROR_SHARE,
    largest_own_error=PATH_ERROR_SHARE,
    is_upper_bound=False,
)
"""Gains of fixes, and the critical path, whose error is the second; computed once per export."""
ASKED = Purpose(
    most_operations=ASKED_PLAYED_COUNT,
    largest_error=Asked().largest_error,
    largest_own_error=None,
    is_upper_bound=False,
)
"""`wallscope whatif`; `--accept-error` replaces the error."""


def state_error(error: float, most: float) -> str:
    """Say that the error of a replay is above its limit."""
    return f"the replay error is {percent(error)}, above the limit of {percent(most)}"


def is_too_far_off(error: float, most: float) -> str:
    """Return why a replay is rejected, and how that was measured."""
    return f"{state_error(error, most)} (measured on each step, with the latencies of the other steps)"


class Engine:
    """Simulates a window unchanged once, then with questions applied.

    Args:
        window: the window.
        graph: its graph, with the latencies to simulate.
        taxes: slowdown of each rank's compute that overlaps communication.
        purpose: the kind of answers.
    """

    def __init__(
        self, window: ReplayWindow, graph: ReplayGraph, taxes: OverlapTaxes, purpose: Purpose
    ) -> None:
        self.graph, self._window, self._taxes, self._purpose = graph, window, taxes, purpose

    @cached_property
    def unchanged(self) -> SimulatedRun:
        """The run of the unchanged window."""
        return simulate(self.graph)

    @cached_property
    def changes(self) -> Changes:
        """The possible targets of questions."""
        return Changes(self._window, self._taxes, is_upper_bound=self._purpose.is_upper_bound)

    def draft(self, questions: Iterable[Question]) -> tuple[GraphEdit, list[str]]:
        """Return the graph with some questions applied, and what was changed and assumed."""
        draft = GraphEdit(self.graph)
        return draft, [note for one in questions for note in self.changes.put(one, draft)]


NO_LENGTH = "the replayed steps take no time"
NO_STEP = "a replay needs two complete steps in a row, and there are none"
_ROUNDS = 2
_COMPUTING = [OperationClass.COMPUTE, OperationClass.OPAQUE_GRAPH]


class WindowReplay:
    """Answers questions about the steps of one rank.

    Args:
        window: the steps.
        step_ns: the typical step, to which answers refer.
        tax: slowdown of compute that overlaps communication, `None` to ignore it.
        purpose: the kind of answers.
    """

    def __init__(self, window: SimulatedSteps, step_ns: int, tax: float | None, purpose: Purpose) -> None:
        self.window, self._step_ns, self._tax = window, step_ns, tax
        self.names = name_path(window)
        self._places_of: dict[OperationClass, Rows] = {}
        self._engine = Engine(window, measure_own_lags(window), lambda _: tax, purpose)
        self.unchanged = self._engine.unchanged
        self._repeated = find_repeated_steps(
            [window.edges("typical"), *window.edges_of_others()], _list_stream_operations(window)
        )
        self.repeated_ns = self._repeated.measure_ns(self._engine.graph)
        self._path = trace_path(window, self.names, self.unchanged)
        of_cause = sum_walls_of_run(self.names, self.unchanged, self._path)
        self.walls = sum_path_walls(of_cause, step_ns)
        self.wall = find_next_path_wall(of_cause)[0]

    @property
    def changes(self) -> Changes:
        """The possible targets of questions."""
        return self._engine.changes

    @cached_property
    def path(self) -> pl.DataFrame:
        """The critical path of the typical steps (`PATH`)."""
        return build_path_frame(self.window, self.names, self._path)

    @cached_property
    def check(self) -> SelfCheck:
        """The leave-one-out error of each step."""
        window = self.window
        is_checked = window.steps["checked"].to_numpy()
        begins_ns = window.waits.start_ns[window.steps["first", "behind"].to_numpy()[is_checked]]
        captured_ns = begins_ns[:, 1] - begins_ns[:, 0]
        own_ns = measure_step_lengths(window, self.unchanged, "checked")
        link_ns = self._path.end_ns - self._path.start_ns
        errors, unmatched_share = np.empty(0), 1.0
        if captured_ns.size > 1:
            others = measure_lags_of_other_steps(window)
            lengths_ns = measure_step_lengths(window, simulate(others.graph), "checked")
            errors, unmatched_share = np.abs(lengths_ns - captured_ns) / captured_ns, others.unmatched_share
        return SelfCheck(
            steps=captured_ns.size,
            error_median=float(np.median(errors)) if errors.size else None,
            error_p90=float(np.quantile(errors, 0.9)) if errors.size else None,
            own_error=float(np.abs(own_ns - captured_ns).sum() / captured_ns.sum()),
            slack_share=int(link_ns[self._path.is_slack].sum()) / max(int(link_ns.sum()), 1),
            unmatched_share=unmatched_share,
            unresolved_wait_share=_unresolved_share(window),
        )

    def answer(self, questions: tuple[Question, ...]) -> Answer:
        """Return the typical step with some changes."""
        draft, notes = self.draft(questions)
        run = simulate(draft.graph())
        if any(one.kind in {"overlap", "hide"} for one in questions):
            run, note = self._interfering(draft, run)
            notes.append(note)
        step_ns = self.measure_changed_ns(draft)
        path = trace_path(self.window, self.names, run)
        of_cause = sum_walls_of_run(self.names, run, path)
        wall, cause = find_next_path_wall(of_cause)
        return Answer(
            questions=questions,
            step_ns=step_ns,
            won_ns=self._step_ns - step_ns,
            speedup=self._step_ns / max(step_ns, 1),
            walls=sum_path_walls(of_cause, step_ns),
            next_wall=wall,
            next_cause=cause,
            notes=tuple(dict.fromkeys(notes)),
        )

    def draft(self, questions: Iterable[Question]) -> tuple[GraphEdit, list[str]]:
        """Return the graph with some questions applied, and what was changed and assumed."""
        return self._engine.draft(questions)

    def measure_changed_ns(self, draft: GraphEdit) -> int:
        """Return the typical step with a change: it changes as steps that repeat do.

        It takes at least the time of the compute that is left, because one kernel may fill the GPU. This does
        not apply if many compute kernels run side by side in the capture.
        """
        graph = draft.graph()
        changed_ns = round(self._step_ns * self._repeated.measure_ns(graph) / self.repeated_ns)
        return max(changed_ns, min(self._compute.measure_left_ns(graph), self._step_ns))

    @cached_property
    def _compute(self) -> "ComputeOfSteps":
        typical = self.window.steps.filter("typical")
        return measure_compute(self.window, typical, self.window.rank_id)

    def _interfering(self, draft: GraphEdit, run: SimulatedRun) -> tuple[SimulatedRun, str]:
        """Return the run with compute slowed where it newly overlaps communication."""
        if self._tax is None:
            return run, "compute that overlaps communication is assumed to be as fast as alone"
        before_ns = self._beside_ns(self.unchanged)
        compute = self._of_class(OperationClass.COMPUTE)
        ops, own_ns = self.window.graph.op[compute], self.window.graph.operation_ns[compute]
        for _ in range(_ROUNDS):
            more_ns = (self._tax - 1) * (self._beside_ns(run) - before_ns)
            rounded_ns = np.rint(more_ns).astype(np.int64)
            changed = rounded_ns != 0
            draft.set_operations(ops[changed], np.maximum(own_ns + rounded_ns, 0)[changed])
            run = simulate(draft.graph())
        return run, (
            f"compute that overlaps communication takes {self._tax:.2f} times as long as alone, as measured"
            " in this capture"
        )

    def _of_class(self, kind: OperationClass) -> Rows:
        """Return the indices of the operations of a class."""
        if kind not in self._places_of:
            self._places_of[kind] = np.flatnonzero((self.window.replayed["class"] == kind).to_numpy())
        return self._places_of[kind]

    def _beside_ns(self, run: SimulatedRun) -> Times:
        """Return how long each compute operation overlapped communication in a run."""
        compute = self._of_class(OperationClass.COMPUTE)
        own = Spans(run.start_ns[compute], run.end_ns[compute])
        return covered_ns(measure_busy(run, self._of_class(OperationClass.COMMUNICATION)), own)


@dataclass(frozen=True, slots=True)
class ComputeOfSteps:
    """Compute of some steps: places of its operations, and lengths of all operations.

    `busy_share` is the time in which any ran by the sum of their lengths; 0 if many run side by side.
    """

    places: Rows
    operation_ns: Times
    busy_share: float
    steps: int

    def measure_left_ns(self, changed: ReplayGraph) -> int:
        """Return how long compute runs in a step with a change, at least."""
        left_ns = np.minimum(self.operation_ns[self.places], changed.operation_ns[self.places])
        return round(self.busy_share * int(left_ns.sum()) / max(self.steps, 1))


def measure_compute(window: ReplayWindow, steps: pl.DataFrame, rank_id: int) -> ComputeOfSteps:
    """Return the compute of a rank in some of its steps (`STEPS`), as captured."""
    own = window.replayed
    places = np.flatnonzero((own["class"].is_in(_COMPUTING) & (own["rank_id"] == rank_id)).to_numpy())
    ran = own[places]
    start_ns, end_ns = ran["start_ns"].to_numpy(), ran["end_ns"].to_numpy()
    spans = Spans(steps["start_ns"].to_numpy(), steps["end_ns"].to_numpy())
    begins = covered_ns(union(spans), Spans(start_ns, start_ns + 1)) > 0
    busy_ns = int(covered_ns(union(order_spans(start_ns, end_ns)), spans).sum())
    run_ns = int((end_ns - start_ns)[begins].sum())
    is_alone = run_ns <= SIDE_BY_SIDE_RATIO * busy_ns
    return ComputeOfSteps(
        places[begins],
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
