"""A stretch played unchanged and with changes: how good the replay is, and what each change wins."""

from dataclasses import replace
from functools import cached_property

import numpy as np
import polars as pl

from wallscope.arrays.columns import Rows
from wallscope.model.kinds import OperationClass
from wallscope.model.whatif import Answer, Question, SelfCheck
from wallscope.timeline.simulate import Run, simulate
from wallscope.timeline.spans import Spans, Times, covered_ns
from wallscope.timeline.stretch import Stretch
from wallscope.whatif.changes import Changes
from wallscope.whatif.draft import Draft
from wallscope.whatif.engine import Engine, Purpose
from wallscope.whatif.path import busy, named, next_wall, path_frame, path_of, walls, walls_of_run
from wallscope.whatif.slack import others_lags, own_lags, step_lengths

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
