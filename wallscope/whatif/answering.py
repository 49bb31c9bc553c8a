"""All answers about one stretch: how good they are, what bounds the step, and what each change wins."""

from dataclasses import dataclass, replace

import numpy as np
import polars as pl

from wallscope.errors import NothingToAnalyzeError
from wallscope.model.analysis import Walls
from wallscope.model.kinds import OperationClass, Wall
from wallscope.model.whatif import Answer, Asked, CriticalPath, Question, SelfCheck
from wallscope.timeline.play import Change, Played
from wallscope.timeline.spans import Spans, Times, covered_ns, ordered, union
from wallscope.timeline.stretch import Stretch
from wallscope.units import percent
from wallscope.whatif.changes import Changes
from wallscope.whatif.composition import composition
from wallscope.whatif.draft import Draft
from wallscope.whatif.path import named, next_wall, paths, walls, walls_of_run
from wallscope.whatif.slack import others_lags, own_lags, step_lengths

_ROUNDS = 2
_LEAST_WON = 0.001


@dataclass(frozen=True, slots=True)
class Answered:
    """What a stretch tells: its check, its path, its walls, and the answers."""

    check: SelfCheck
    path: CriticalPath
    walls: Walls
    wall: Wall
    answers: tuple[Answer, ...]
    sweep: tuple[Answer, ...]


def answered(
    stretch: Stretch, asked: Asked, step_ns: int, overlap_tax: float | None, texts: pl.Series
) -> Answered:
    """The answers to what is asked; to the usual questions where nothing is.

    Args:
        stretch: the steps that are played.
        asked: the questions.
        step_ns: the typical step, which all answers are about.
        overlap_tax: how much longer compute takes beside communication; `None` where nothing tells.
        texts: the written paths of ranges, by number.

    Raises:
        NothingToAnalyzeError: no step of the stretch has both its ends in it, or the replay is too far off.
        OptionError: a question is about nothing that is there.
    """
    if not stretch.steps["typical"].any():
        raise NothingToAnalyzeError(
            "no whole step with another behind it — a replay needs steps — name them with --step-range, or"
            " capture three or more"
        )
    player = _Player(stretch, step_ns, overlap_tax if asked.interference else None)
    check = player.check()
    if check.error_median is not None and check.error_median > asked.largest_error:
        raise NothingToAnalyzeError(
            f"played again by the lags of the other steps, steps are {percent(check.error_median)} off, over"
            f" {percent(asked.largest_error)} — no answer could be trusted — choose steps that are alike with"
            " --steps, or take it as it is with --accept-error"
        )
    changes = Changes(stretch)
    questions = tuple(changes.known(one) for one in asked.questions)
    sweep = tuple(changes.known(one) for one in asked.sweep)
    is_open = not questions and not sweep
    alone = [player.answer(changes, (one,)) for one in (_usual(changes) if is_open else questions)]
    if is_open:
        alone = sorted(
            (one for one in alone if one.won_ns >= _LEAST_WON * step_ns), key=lambda one: -one.won_ns
        )
    together = [player.answer(changes, questions)] if len(questions) > 1 else []
    return Answered(
        check=check,
        path=composition(stretch, player.names, player.unchanged, player.path, texts),
        walls=player.walls,
        wall=player.wall,
        answers=(*alone, *together),
        sweep=tuple(player.answer(changes, (one,)) for one in sweep),
    )


def _usual(changes: Changes) -> list[Question]:
    """What is asked where the user asks nothing: each loss gone, compute of each kind at half its time."""
    scaled = [name for name in changes.targets if name in {"communication", "launch", "think"}]
    scaled += [name for name in changes.targets if name.startswith("communication:")]
    usual = [Question("scale", name, 0.0) for name in scaled]
    usual += [Question("without", name) for name in ("allocator", "synchronisation", "recompute", "offload")]
    usual += [Question("without", "jitter")]
    usual += [Question("scale", name, 0.0) for name in changes.targets if name.startswith("memory/")]
    usual += [Question("scale", name, 0.5) for name in changes.targets if name.startswith("category:")]
    return usual


class _Player:
    """Plays a stretch unchanged once, then with changes."""

    def __init__(self, stretch: Stretch, step_ns: int, tax: float | None) -> None:
        self.stretch, self._step_ns, self._tax = stretch, step_ns, tax
        self.names = named(stretch)
        self._places_of: dict[OperationClass, Times] = {}
        self._lags = own_lags(stretch)
        self.unchanged = stretch.replay.play(Change(), self._lags)
        self._length_ns = float(step_lengths(stretch, self.unchanged, "typical").mean())
        self.path = paths(stretch, self.names, self.unchanged, "typical")
        of_cause = walls_of_run(self.names, self.unchanged, self.path)
        self.walls = walls(of_cause, step_ns)
        self.wall = next_wall(of_cause)[0]

    def check(self) -> SelfCheck:
        """How well the lags of the other steps tell each step."""
        stretch = self.stretch
        steps = stretch.steps.filter(pl.col("checked"))
        captured_ns = (steps["end_ns"] - steps["start_ns"]).to_numpy()
        own_ns = step_lengths(stretch, self.unchanged, "checked")
        slack_ns = self.path.filter(pl.col("is_slack")).select(pl.col("end_ns") - pl.col("start_ns"))
        whole_ns = int((self.path["end_ns"] - self.path["start_ns"]).sum())
        told = SelfCheck(
            steps=len(steps),
            error_median=None,
            error_p90=None,
            own_error=float(np.abs(own_ns - captured_ns).sum() / captured_ns.sum()),
            slack_share=int(slack_ns.sum().item()) / max(whole_ns, 1),
            unmatched_share=1.0,
            unresolved_wait_share=_unresolved_share(stretch),
        )
        if len(steps) < 2:
            return told
        others = others_lags(stretch)
        played = stretch.replay.play(others.change, others.slack)
        errors = np.abs(step_lengths(stretch, played, "checked") - captured_ns) / captured_ns
        return replace(
            told,
            error_median=float(np.median(errors)),
            error_p90=float(np.quantile(errors, 0.9)),
            unmatched_share=others.unmatched_share,
        )

    def answer(self, changes: Changes, questions: tuple[Question, ...]) -> Answer:
        """What the typical step takes with some changes."""
        draft = Draft(self.stretch)
        notes = [note for one in questions for note in changes.put(one, draft)]
        played = self.stretch.replay.play(draft.change(), self._lags)
        if any(one.kind in {"overlap", "hide"} for one in questions):
            played, note = self._interfering(draft, played)
            notes.append(note)
        length_ns = float(step_lengths(self.stretch, played, "typical").mean())
        step_ns = max(round(self._step_ns * length_ns / self._length_ns), 0)
        path = paths(self.stretch, self.names, played, "typical")
        of_cause = walls_of_run(self.names, played, path)
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

    def _interfering(self, draft: Draft, played: Played) -> tuple[Played, str]:
        """The run with compute slowed where communication has come to run beside it."""
        if self._tax is None:
            return played, "compute beside communication is taken to be as fast as alone"
        before_ns = self._beside_ns(self.unchanged)
        order, ops = self.stretch.replay.order, self.stretch.replay.ops
        compute = self._of_class(OperationClass.COMPUTE)
        for _ in range(_ROUNDS):
            more_ns = (self._tax - 1) * (self._beside_ns(played) - before_ns)
            draft.set_operations(
                (ops[place], max(order.operation_ns[place] + round(ns), 0))
                for place, ns in zip(compute.tolist(), more_ns.tolist(), strict=True)
                if round(ns)
            )
            played = self.stretch.replay.play(draft.change(), self._lags)
        return played, f"compute beside communication takes {self._tax:.2f} times as long, as measured here"

    def _of_class(self, kind: OperationClass) -> Times:
        """Places of the operations of a class."""
        if kind not in self._places_of:
            ops = pl.DataFrame({"op": self.stretch.replay.ops}, schema={"op": pl.UInt32})
            known = ops.join(self.stretch.operations, on="op", how="left", maintain_order="left")
            self._places_of[kind] = np.flatnonzero((known["class"] == kind).to_numpy())
        return self._places_of[kind]

    def _beside_ns(self, played: Played) -> Times:
        """How long each compute operation ran beside communication in a run."""
        starts, ends = np.array(played.start_ns, np.int64), np.array(played.end_ns, np.int64)
        moving = self._of_class(OperationClass.COMMUNICATION)
        compute = self._of_class(OperationClass.COMPUTE)
        beside = union(ordered(starts[moving], ends[moving]))
        return covered_ns(beside, Spans(starts[compute], ends[compute]))


def _unresolved_share(stretch: Stretch) -> float | None:
    resolved = stretch.waits.resolved_share
    return None if resolved is None else 1 - resolved
