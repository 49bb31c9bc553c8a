"""The what-if engine: a replay window simulated unchanged and with questions put into it.

The answers of `wallscope whatif`, the gains of fixes and the upper bounds of causes are all asked here. They
differ in how much they simulate, from which error on they are not given, and in what they take to go with a
cause. `Purpose` says which; these differences are to be unified.

A stretch played unchanged and with changes: how good the replay is, and what each change wins.
"""

from collections.abc import Iterable
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
import polars as pl

from wallscope.columns import Rows
from wallscope.model.kinds import OperationClass
from wallscope.model.whatif import Answer, Asked, Question, SelfCheck
from wallscope.replay.changes import Changes
from wallscope.replay.critical_path import busy, named, next_wall, path_frame, path_of, walls, walls_of_run
from wallscope.replay.edits import Draft
from wallscope.replay.graph import ReplayGraph
from wallscope.replay.lags import others_lags, own_lags, step_lengths
from wallscope.replay.simulate import Run, simulate
from wallscope.replay.targets import Rules
from wallscope.replay.window import ReplayWindow, Stretch
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
        framework_refills=True,
        blocking_calls_stay=True,
        recompute_has_host_time=False,
        returns_count_alone=True,
    ),
)
"""What the step of each rank could win at most without a cause; asked about a dozen causes of each rank."""

_NAMED = Rules(
    framework_refills=False,
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


def too_far_off(error: float, most: float) -> str:
    """Return why a replay is not believed."""
    return (
        f"played again by the lags of the other steps, steps are {percent(error)} off, over {percent(most)}"
    )


class Engine:
    """Simulates a window unchanged once, then with questions put into it.

    Args:
        window: the window.
        graph: its graph, with the latencies that it is to be simulated with.
        rules: what goes with a cause.
    """

    def __init__(self, window: ReplayWindow, graph: ReplayGraph, rules: Rules) -> None:
        self.graph, self._window, self._rules = graph, window, rules

    @cached_property
    def unchanged(self) -> Run:
        """The run of the unchanged window."""
        return simulate(self.graph)

    @cached_property
    def changes(self) -> Changes:
        """What questions can be about."""
        return Changes(self._window, self._rules)

    def draft(self, questions: Iterable[Question]) -> tuple[Draft, list[str]]:
        """Return the graph with all of some questions put into it, and what was changed and assumed."""
        draft = Draft(self.graph)
        return draft, [note for one in questions for note in self.changes.put(one, draft)]


NO_STEP = "no whole step with another behind it"
_ROUNDS = 2


class Player:
    """Answers questions about the steps of one rank.

    Args:
        stretch: the steps.
        step_ns: the typical step, which answers are about.
        tax: how much longer compute takes next to communication, `None` to leave that out.
        purpose: what the answers are for.
    """

    def __init__(self, stretch: Stretch, step_ns: int, tax: float | None, purpose: Purpose) -> None:
        self.stretch, self._step_ns, self._tax = stretch, step_ns, tax
        self.names = named(stretch)
        self._places_of: dict[OperationClass, Rows] = {}
        self._engine = Engine(stretch, own_lags(stretch), purpose.rules)
        self.unchanged = self._engine.unchanged
        self._length_ns = float(step_lengths(stretch, self.unchanged, "typical").mean())
        self._path = path_of(stretch, self.names, self.unchanged, "typical")
        of_cause = walls_of_run(self.names, self.unchanged, self._path)
        self.walls = walls(of_cause, step_ns)
        self.wall = next_wall(of_cause)[0]

    @property
    def changes(self) -> Changes:
        """What questions can be about."""
        return self._engine.changes

    @cached_property
    def path(self) -> pl.DataFrame:
        """What bounds the typical steps (`PATH`)."""
        return path_frame(self.stretch, self.names, self._path)

    @cached_property
    def check(self) -> SelfCheck:
        """How well the lags of the other steps tell each step."""
        stretch = self.stretch
        is_checked = stretch.steps["checked"].to_numpy()
        captured_ns = (stretch.steps["end_ns"] - stretch.steps["start_ns"]).to_numpy()[is_checked]
        own_ns = step_lengths(stretch, self.unchanged, "checked")
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
        others = others_lags(stretch)
        errors = np.abs(step_lengths(stretch, simulate(others.graph), "checked") - captured_ns) / captured_ns
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
        length_ns = float(step_lengths(self.stretch, run, "typical").mean())
        step_ns = max(round(self._step_ns * length_ns / self._length_ns), 0)
        path = path_of(self.stretch, self.names, run, "typical")
        of_cause = walls_of_run(self.names, run, path)
        wall, cause = next_wall(of_cause)
        return Answer(
            questions=questions,
            step_ns=step_ns,
            won_ns=self._step_ns - step_ns,
            speedup=self._step_ns / max(step_ns, 1),
            walls=walls(of_cause, step_ns),
            next_wall=wall,
            next_cause=cause,
            notes=tuple(dict.fromkeys(notes)),
        )

    def _interfering(self, draft: Draft, run: Run) -> tuple[Run, str]:
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

    def _beside_ns(self, run: Run) -> Times:
        """How long each compute operation ran beside communication in a run."""
        compute = self._of_class(OperationClass.COMPUTE)
        own = Spans(run.start_ns[compute], run.end_ns[compute])
        return covered_ns(busy(run, self._of_class(OperationClass.COMMUNICATION)), own)


def _unresolved_share(stretch: Stretch) -> float | None:
    resolved = stretch.waits.resolved_share
    return None if resolved is None else 1 - resolved
