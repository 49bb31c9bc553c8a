"""The what-if engine: a window simulated unchanged and changed, and the lags that it may know.

A lag is the time between a cause and its effect: launch latency, hand-over, return of a blocking call,
time of a thread outside calls. Lags of several steps are alike that belong to the same thing, counted
from the begin of its step.

The answers of `wallscope whatif`, the gains of fixes and the upper bounds of causes are all asked here. They
differ in how much they simulate, from which error on they are not given, and in what they take to go with a
cause. `Purpose` says which; these differences are to be unified.
"""

from collections.abc import Iterable
from dataclasses import dataclass, replace
from functools import cached_property
from typing import NamedTuple

import numpy as np
import polars as pl

from wallscope.columns import Flags, Rows, as_integers, count_before_in_group, number_groups, take_or
from wallscope.model.enums import OperationClass
from wallscope.model.whatif import Answer, Asked, Question, SelfCheck
from wallscope.replay.changes import Changes, OverlapTaxes, Rules
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
from wallscope.replay.simulate import SimulatedRun, simulate
from wallscope.replay.windows import ReplayWindow, SimulatedSteps
from wallscope.thresholds import (
    ASKED_PLAYED_COUNT,
    FIX_REPLAY_ERROR_SHARE,
    MOST_PLAYED_COUNT,
    PATH_ERROR_SHARE,
    UPPER_BOUND_ERROR_SHARE,
    UPPER_BOUND_PLAYED_COUNT,
)
from wallscope.trace.intervals import Spans, Times, covered_ns
from wallscope.units import percent

_NO_PIECE = -2
_USUAL_HAND_OVER_NS = 1_000
"""Between kernels of one stream that wait for each other, on the GPUs of the last ten years."""


@dataclass(frozen=True, slots=True)
class OtherStepLags:
    """The graph with lags as the other steps have them.

    `unmatched_share` is the share of the lags in steady steps that have no like there.
    """

    graph: ReplayGraph
    unmatched_share: float


def measure_lags_of_other_steps(stretch: SimulatedSteps) -> OtherStepLags:
    """Return the graph with each lag of a steady step as the median of those like it in the other ones.

    A lag without a like keeps its own time.
    """
    graph = measure_own_lags(stretch)
    step, thing = _operations(stretch)
    ordinal = count_before_in_group(number_groups(step, thing))
    latency_ns, is_lone = _of_others(step, number_groups(thing, ordinal), graph.latency_ns)
    count = np.diff(graph.producer_ptr)
    waiting = np.arange(thing.size).repeat(count)
    number = np.arange(waiting.size) - graph.producer_ptr[waiting]
    producer = np.append(thing, -1)[np.minimum(graph.producer, thing.size)]
    like = number_groups(thing[waiting], ordinal[waiting], number, producer)
    lag_ns, is_lone_edge = _of_others(step[waiting], like, graph.lag_ns)
    outside, back = _outside(stretch), _returns(stretch)
    outside_ns, is_lone_segment = _of_others(outside.step, outside.like, outside.time_ns)
    return_ns, is_lone_return = _of_others(back.step, back.like, back.time_ns)
    is_released = graph.role[outside.row] == Role.RELEASED
    segment_ns, gap_ns = graph.segment_ns.copy(), graph.gap_ns.copy()
    segment_ns[outside.row[~is_released]] = outside_ns[~is_released]
    gap_ns[outside.row[is_released]] = outside_ns[is_released]
    gap_ns[back.row] = return_ns
    lone = np.concatenate((is_lone, is_lone_edge, is_lone_segment, is_lone_return))
    told = np.concatenate((step, step[waiting], outside.step, back.step)) >= 0
    return OtherStepLags(
        replace(graph, latency_ns=latency_ns, lag_ns=lag_ns, segment_ns=segment_ns, gap_ns=gap_ns),
        float(lone[told].mean()) if told.any() else 0.0,
    )


def measure_own_lags(stretch: SimulatedSteps) -> ReplayGraph:
    """Return the graph with the lags of the capture, and what they would be where they were never critical.

    A call that had nothing to wait for would return as others mostly do; kernels of which none ever waited
    for another would follow each other as they do on most devices.
    """
    graph = stretch.graph
    is_blocking = graph.role == Role.BLOCKING
    waited = is_blocking & ~graph.is_idle & (np.diff(graph.awaited_ptr) > 0)
    usual_ns = max(int(np.median(graph.gap_ns[waited])), 0) if waited.any() else 0
    return replace(
        graph,
        gap_ns=np.where(is_blocking & graph.is_idle, usual_ns, graph.gap_ns),
        lag_ns=graph.lag_ns if graph.dependency_latency_ns else _unseen_lags(stretch),
    )


def _unseen_lags(stretch: SimulatedSteps) -> Times:
    """Return the lags where those of the capture are all unknown: at most a usual one in a stream."""
    graph, waits = stretch.graph, stretch.waits
    before = waits.stream_before[graph.op]
    held = np.flatnonzero(before >= 0)
    held = held[graph.lag_ns[graph.producer_ptr[held]] == 0]  # the first producer is the one before
    idle_ns = waits.start_ns[graph.op[held]] - waits.end_ns[before[held]]
    lag_ns = graph.lag_ns.copy()
    lag_ns[graph.producer_ptr[held]] = np.clip(idle_ns, 0, _USUAL_HAND_OVER_NS)
    return lag_ns


def measure_step_lengths(stretch: SimulatedSteps, run: SimulatedRun, which: str) -> Times:
    """How long the steps of a kind (a column of the steps) are in a run, in ns."""
    begun_ns = run.start_ns[stretch.edges(which)]
    lengths_ns: Times = begun_ns[:, 1] - begun_ns[:, 0]
    return lengths_ns


def _step_of(stretch: SimulatedSteps, at_ns: Times) -> Rows:
    """The number of the steady step that the host was at work for at each moment; -1 outside those."""
    is_checked = stretch.steps["checked"].to_numpy()
    begun_ns, ends_ns = (
        stretch.steps[f"issue_{edge}_ns"].to_numpy()[is_checked] for edge in ("start", "end")
    )
    row = np.searchsorted(begun_ns, at_ns, side="right") - 1
    return np.where((row >= 0) & (at_ns < np.append(ends_ns, 0)[row]), row, -1)


def _operations(stretch: SimulatedSteps) -> tuple[Rows, Rows]:
    """The step of each operation that is played, and what it is, on which stream, as a number."""
    issued_ns = stretch.waits.calls.start_ns[stretch.played["call"].to_numpy()]
    known = stretch.played["rank_id", "stream", "kind", "name", "category", "bytes"]
    return _step_of(stretch, issued_ns), number_groups(*map(as_integers, known))


class _Lags(NamedTuple):
    """Lags of pieces: which, in which step, what they are alike with in others (`like`), and how long."""

    row: Rows
    step: Rows
    like: Rows
    time_ns: Times


def _outside(stretch: SimulatedSteps) -> _Lags:
    """Time outside calls; what is alike follows the same call and is followed by the same."""
    pieces, graph = stretch.pieces, stretch.graph
    name, thread = _call_names(stretch), np.asarray(pieces.thread)
    before, behind = (np.full(name.size, _NO_PIECE) for _ in range(2))
    goes_on = thread[1:] == thread[:-1]
    before[1:][goes_on], behind[:-1][goes_on] = name[:-1][goes_on], name[1:][goes_on]
    row = np.flatnonzero(np.asarray(pieces.call) < 0)
    time_ns = np.where(graph.role == Role.RELEASED, graph.gap_ns, graph.segment_ns)
    step = _step_of(stretch, np.asarray(pieces.end_ns)[row])
    same = number_groups(thread[row], before[row], behind[row])
    return _Lags(
        row, step, number_groups(same, count_before_in_group(number_groups(step, same))), time_ns[row]
    )


def _returns(stretch: SimulatedSteps) -> _Lags:
    """Returns of blocking calls; what is alike is of one name."""
    graph, pieces = stretch.graph, stretch.pieces
    row = np.flatnonzero((graph.role >= Role.BLOCKING) & ~graph.is_idle)
    step = _step_of(stretch, np.asarray(pieces.end_ns)[row])
    same = number_groups(np.asarray(pieces.thread)[row], _call_names(stretch)[row])
    return _Lags(
        row, step, number_groups(same, count_before_in_group(number_groups(step, same))), graph.gap_ns[row]
    )


def _call_names(stretch: SimulatedSteps) -> Rows:
    """The name of the call that each piece is in, as a number; -1 outside calls."""
    return take_or(as_integers(stretch.call_name), np.asarray(stretch.pieces.call), -1)


def _of_others(step: Rows, group: Rows, time_ns: Times) -> tuple[Times, Flags]:
    """The median time of the same in other steps, and whether there is none; `step` is -1 for no step."""
    lone = np.ones(time_ns.size, np.bool_)
    found = time_ns.copy()
    held = np.flatnonzero(step >= 0)
    order = held[np.lexsort((time_ns[held], group[held]))]
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
    """What is simulated for one kind of answer.

    Attributes:
        most_operations: how many operations of all ranks a window holds, but one step at least.
        largest_error: by what share of a step it may be off where it is simulated with the latencies of the
            other steps; `None`: this is not looked at.
        largest_own_error: the same where it is simulated with its own latencies.
        rules: what goes with a cause.
    """

    most_operations: int
    largest_error: float | None
    largest_own_error: float | None
    rules: Rules


# To be unified: one size, one error of steps simulated with the latencies of the others, one set of rules.
UPPER_BOUNDS = Purpose(
    most_operations=UPPER_BOUND_PLAYED_COUNT,
    largest_error=None,
    largest_own_error=UPPER_BOUND_ERROR_SHARE,
    rules=Rules(
        blocking_calls_stay=True,
        recompute_has_host_time=False,
        returns_count_alone=True,
    ),
)
"""What the step of each rank could win at most without a cause; asked about a dozen causes of each rank."""

_NAMED = Rules(
    blocking_calls_stay=False,
    recompute_has_host_time=True,
    returns_count_alone=False,
)
FIXES = Purpose(
    most_operations=MOST_PLAYED_COUNT,
    largest_error=FIX_REPLAY_ERROR_SHARE,
    largest_own_error=PATH_ERROR_SHARE,
    rules=_NAMED,
)
"""Gains of fixes, and the critical path, whose error is the second; asked once about an export."""
ASKED = Purpose(
    most_operations=ASKED_PLAYED_COUNT,
    largest_error=Asked().largest_error,
    largest_own_error=None,
    rules=_NAMED,
)
"""`wallscope whatif`; `--accept-error` replaces the error."""


def is_too_far_off(error: float, most: float) -> str:
    """Return why a replay is not believed."""
    return (
        f"replayed with the latencies of the other steps, steps are {percent(error)} off,"
        f" over {percent(most)}"
    )


class Engine:
    """Simulates a window unchanged once, then with questions put into it.

    Args:
        window: the window.
        graph: its graph, with the latencies that it is to be simulated with.
        rules: what goes with a cause.
        taxes: how much longer compute of each rank takes next to communication.
    """

    def __init__(self, window: ReplayWindow, graph: ReplayGraph, rules: Rules, taxes: OverlapTaxes) -> None:
        self.graph, self._window, self._rules, self._taxes = graph, window, rules, taxes

    @cached_property
    def unchanged(self) -> SimulatedRun:
        """The run of the unchanged window."""
        return simulate(self.graph)

    @cached_property
    def changes(self) -> Changes:
        """What questions can be about."""
        return Changes(self._window, self._rules, self._taxes)

    def draft(self, questions: Iterable[Question]) -> tuple[GraphEdit, list[str]]:
        """Return the graph with all of some questions put into it, and what was changed and assumed."""
        draft = GraphEdit(self.graph)
        return draft, [note for one in questions for note in self.changes.put(one, draft)]


NO_STEP = "no whole step with another behind it"
_ROUNDS = 2


class WindowReplay:
    """Answers questions about the steps of one rank.

    Args:
        stretch: the steps.
        step_ns: the typical step, which answers are about.
        tax: how much longer compute takes next to communication, `None` to leave that out.
        purpose: what the answers are for.
    """

    def __init__(self, stretch: SimulatedSteps, step_ns: int, tax: float | None, purpose: Purpose) -> None:
        self.stretch, self._step_ns, self._tax = stretch, step_ns, tax
        self.names = name_path(stretch)
        self._places_of: dict[OperationClass, Rows] = {}
        self._engine = Engine(stretch, measure_own_lags(stretch), purpose.rules, lambda _: tax)
        self.unchanged = self._engine.unchanged
        self._length_ns = float(measure_step_lengths(stretch, self.unchanged, "typical").mean())
        self._path = trace_path(stretch, self.names, self.unchanged, "typical")
        of_cause = sum_walls_of_run(self.names, self.unchanged, self._path)
        self.walls = sum_path_walls(of_cause, step_ns)
        self.wall = find_next_path_wall(of_cause)[0]

    @property
    def changes(self) -> Changes:
        """What questions can be about."""
        return self._engine.changes

    @cached_property
    def path(self) -> pl.DataFrame:
        """What bounds the typical steps (`PATH`)."""
        return build_path_frame(self.stretch, self.names, self._path)

    @cached_property
    def check(self) -> SelfCheck:
        """How well the lags of the other steps tell each step."""
        stretch = self.stretch
        is_checked = stretch.steps["checked"].to_numpy()
        captured_ns = (stretch.steps["end_ns"] - stretch.steps["start_ns"]).to_numpy()[is_checked]
        own_ns = measure_step_lengths(stretch, self.unchanged, "checked")
        link_ns = self._path.end_ns - self._path.start_ns
        told = SelfCheck(
            steps=captured_ns.size,
            error_median=None,
            error_p90=None,
            own_error=float(np.abs(own_ns - captured_ns).sum() / captured_ns.sum()),
            slack_share=int(link_ns[self._path.is_slack].sum()) / max(int(link_ns.sum()), 1),
            unmatched_share=1.0,
            unresolved_wait_share=_unresolved_share(stretch),
        )
        if captured_ns.size < 2:
            return told
        others = measure_lags_of_other_steps(stretch)
        errors = (
            np.abs(measure_step_lengths(stretch, simulate(others.graph), "checked") - captured_ns)
            / captured_ns
        )
        return replace(
            told,
            error_median=float(np.median(errors)),
            error_p90=float(np.quantile(errors, 0.9)),
            unmatched_share=others.unmatched_share,
        )

    def answer(self, questions: tuple[Question, ...]) -> Answer:
        """Return what the typical step takes with some changes."""
        draft, notes = self._engine.draft(questions)
        run = simulate(draft.graph())
        if any(one.kind in {"overlap", "hide"} for one in questions):
            run, note = self._interfering(draft, run)
            notes.append(note)
        length_ns = float(measure_step_lengths(self.stretch, run, "typical").mean())
        step_ns = max(round(self._step_ns * length_ns / self._length_ns), 0)
        path = trace_path(self.stretch, self.names, run, "typical")
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

    def _interfering(self, draft: GraphEdit, run: SimulatedRun) -> tuple[SimulatedRun, str]:
        """The run with compute slowed where communication has come to run beside it."""
        if self._tax is None:
            return run, "compute beside communication is taken to be as fast as alone"
        before_ns = self._beside_ns(self.unchanged)
        compute = self._of_class(OperationClass.COMPUTE)
        ops, own_ns = self.stretch.graph.op[compute], self.stretch.graph.operation_ns[compute]
        for _ in range(_ROUNDS):
            more_ns = (self._tax - 1) * (self._beside_ns(run) - before_ns)
            rounded_ns = np.rint(more_ns).astype(np.int64)
            changed = rounded_ns != 0
            draft.set_operations(ops[changed], np.maximum(own_ns + rounded_ns, 0)[changed])
            run = simulate(draft.graph())
        return run, f"compute beside communication takes {self._tax:.2f} times as long, as measured here"

    def _of_class(self, kind: OperationClass) -> Rows:
        """Places of the operations of a class."""
        if kind not in self._places_of:
            self._places_of[kind] = np.flatnonzero((self.stretch.played["class"] == kind).to_numpy())
        return self._places_of[kind]

    def _beside_ns(self, run: SimulatedRun) -> Times:
        """How long each compute operation ran beside communication in a run."""
        compute = self._of_class(OperationClass.COMPUTE)
        own = Spans(run.start_ns[compute], run.end_ns[compute])
        return covered_ns(measure_busy(run, self._of_class(OperationClass.COMMUNICATION)), own)


def _unresolved_share(stretch: SimulatedSteps) -> float | None:
    resolved = stretch.waits.resolved_share
    return None if resolved is None else 1 - resolved
