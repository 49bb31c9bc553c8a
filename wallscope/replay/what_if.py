"""Answers about one window: the replay error, the gain of each change, upper bounds of causes.

A cause may take little of the step and yet delay everything, or take much with the next constraint close
behind. Simulating the dependencies without it includes both effects.
"""

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, partial
from threading import Lock

import numpy as np
import polars as pl

from wallscope.attribution.attribute import Evidence
from wallscope.attribution.prepared import (
    Prepared,
    RankWindows,
    list_rank_windows,
    select_rank_windows,
)
from wallscope.columns import Rows
from wallscope.errors import NothingToAnalyzeError
from wallscope.model.analysis import Rank
from wallscope.model.diagnosis import Walls
from wallscope.model.enums import Wall
from wallscope.model.report import SHOWN_PATH, PlayedPath
from wallscope.model.schemas import PARTNERS
from wallscope.model.whatif import Answer, Asked, CriticalPath, Question, Replay, Replayed, SelfCheck
from wallscope.process_tuning import Once, run_side_by_side
from wallscope.replay.changes import Changes, OverlapTaxes
from wallscope.replay.critical_path import divide_path
from wallscope.replay.engine import (
    ASKED,
    FIXES,
    NO_LENGTH,
    NO_STEP,
    UPPER_BOUNDS,
    Engine,
    WindowReplay,
    is_too_far_off,
    measure_compute,
    state_error,
)
from wallscope.replay.simulate import SimulatedRun, simulate
from wallscope.replay.windows import (
    NO_ISSUER,
    ReplayWindow,
    SimulatedSteps,
    find_connected_ranks,
    find_held_between,
    find_held_operations,
    find_host_times,
    find_step_operations,
    make_replay_window,
    select_neighbouring_steps,
    select_replay_window,
)
from wallscope.thresholds.causes import FEWEST_PLAYED_WINDOWS_COUNT, REFUSED_PLAYED_COUNT
from wallscope.trace.intervals import Times
from wallscope.units import number, percent

_LEAST_WON = 0.001


@dataclass(frozen=True, slots=True)
class WindowAnswer:
    """The result for a window: its check, its path, its walls, and the answers."""

    check: SelfCheck
    path: CriticalPath
    walls: Walls
    wall: Wall
    answers: tuple[Answer, ...]
    sweep: tuple[Answer, ...]


def answer_questions(
    window: SimulatedSteps, asked: Asked, step_ns: int, overlap_tax: float | None, texts: pl.Series
) -> WindowAnswer:
    """Return the answers to the questions; without questions, to the usual ones.

    Args:
        window: the replayed steps.
        asked: the questions.
        step_ns: the typical step, to which all answers refer.
        overlap_tax: slowdown of compute that overlaps communication; `None` if unknown.
        texts: the written paths of ranges, by number.

    Raises:
        NothingToAnalyzeError: no step of the window has both ends in it, or the replay error is too large.
        OptionError: the target of a question does not exist.
    """
    if not window.steps["typical"].any():
        raise NothingToAnalyzeError(NO_STEP, "name the steps with --step-range, or capture three or more")
    player = WindowReplay(window, step_ns, overlap_tax if asked.interference else None, ASKED)
    if not player.repeated_ns:
        raise NothingToAnalyzeError(
            f"{NO_LENGTH}: their order is not that of a run", "export the report again"
        )
    check = player.check
    if check.error_median is not None and check.error_median > asked.largest_error:
        raise NothingToAnalyzeError(
            f"{is_too_far_off(check.error_median, asked.largest_error)}: the answers would not be reliable",
            "choose similar steps with --steps, or accept the error with --accept-error",
        )
    changes = player.changes
    questions = tuple(changes.resolve(one) for one in asked.questions)
    sweep = tuple(changes.resolve(one) for one in asked.sweep)
    is_open = not questions and not sweep
    alone = [player.answer((one,)) for one in (_usual(changes) if is_open else questions)]
    if is_open:
        alone = sorted(
            (one for one in alone if one.won_ns >= _LEAST_WON * step_ns), key=lambda one: -one.won_ns
        )
    together = [player.answer(questions)] if len(questions) > 1 else []
    return WindowAnswer(
        check=check,
        path=divide_path(window, player.names, player.unchanged, player.path, texts),
        walls=player.walls,
        wall=player.wall,
        answers=(*alone, *together),
        sweep=tuple(player.answer((one,)) for one in sweep),
    )


def _usual(changes: Changes) -> list[Question]:
    """Return the default questions: each loss removed, compute of each kind at half its time."""
    scaled = [name for name in changes.targets if name in {"communication", "launch", "think"}]
    scaled += [name for name in changes.targets if name.startswith("communication:")]
    usual = [Question("scale", name, 0.0) for name in scaled]
    usual += [Question("without", name) for name in ("allocator", "synchronisation", "recompute", "offload")]
    usual += [Question("without", "jitter")]
    usual += [Question("scale", name, 0.0) for name in changes.targets if name.startswith("memory/")]
    usual += [Question("scale", name, 0.5) for name in changes.targets if name.startswith("category:")]
    return usual


def explain_refusal(check: SelfCheck) -> tuple[str | None, str | None]:
    """Return why the gains of fixes are not given, and the same in short; `None` if they are."""
    if check.error_median is None:
        alone = "only one step is complete, so its replay cannot be checked"
        return alone, alone
    most = FIXES.largest_error
    if most is None or check.error_median <= most:
        return None, None
    return is_too_far_off(check.error_median, most), state_error(check.error_median, most)


def answer_fixes(player: WindowReplay, asked: Mapping[str, tuple[Question, ...]]) -> dict[str, Answer]:
    """Return the answer to the questions of each fix together, by its id.

    Targets that the steps do not contain are left out; a fix without any target has no answer.
    """
    there = {
        fix: tuple(one for one in dict.fromkeys(questions) if player.changes.has(one))
        for fix, questions in asked.items()
    }
    distinct = list(dict.fromkeys(filter(None, there.values())))
    answers = dict(zip(distinct, run_side_by_side(player.answer, distinct), strict=True))
    return {fix: answers[questions] for fix, questions in there.items() if questions}


class UpperBounds:
    """Simulates the typical step of one rank without a cause.

    Ranks that communicate are simulated together.
    """

    def __init__(self, window: "Once[_SharedWindow]", rank_id: int) -> None:
        self.window, self._rank_id = window, rank_id

    @property
    def step_count(self) -> int:
        """The number of simulated steps of the typical step."""
        return self.window().count_steps(self._rank_id)

    @property
    def error(self) -> float | None:
        """The error of the unchanged simulation, as a share; `None` if they cannot be simulated."""
        actual_ns, replayed_ns = self.window().captured_ns(self._rank_id), self._replayed_ns(frozenset())
        if replayed_ns is None or not actual_ns:
            return None
        return abs(replayed_ns - actual_ns) / actual_ns

    def recoverable_ns(self, causes: Collection[str]) -> int | None:
        """Return the reduction of the typical step without some causes; `None` if unknown."""
        unchanged_ns, error, most = self._replayed_ns(frozenset()), self.error, UPPER_BOUNDS.largest_own_error
        if unchanged_ns is None or error is None or (most is not None and error > most):
            return None
        changed_ns = self._replayed_ns(frozenset(causes))
        return None if changed_ns is None else max(round(unchanged_ns - changed_ns), 0)

    def _replayed_ns(self, causes: frozenset[str]) -> float | None:
        return self.window().replayed_ns(self._rank_id, causes)


def estimate_upper_bounds(
    evidence: Evidence, ranks: Sequence[RankWindows], partners: pl.DataFrame, taxes: OverlapTaxes
) -> tuple[UpperBounds, ...]:
    """Return the upper bounds of each rank.

    Args:
        evidence: of the whole capture.
        ranks: all ranks with their windows.
        partners: the collectives between them (`PARTNERS`).
        taxes: slowdown of each rank's compute that overlaps communication.
    """
    groups = [together for group in find_connected_ranks(ranks, partners) for together in _alongside(group)]
    window_of: dict[int, Once[_SharedWindow]] = {}
    for together in groups:
        window = Once(partial(_SharedWindow, evidence, together, partners, taxes))
        window_of |= {rank.rank_id: window for rank, _ in together}
    return tuple(UpperBounds(window_of[rank.rank_id], rank.rank_id) for rank in ranks)


def _alongside(ranks: Sequence[RankWindows]) -> Iterator[list[tuple[RankWindows, pl.DataFrame]]]:
    """Yield ranks with their simulated windows: those at the time of the steps of the busiest rank.

    A rank without typical windows at that time is simulated alone.
    """
    busiest = max(ranks, key=lambda rank: len(rank.operations))
    chosen = select_neighbouring_steps(busiest, UPPER_BOUNDS.most_operations // len(ranks))
    begin_ns, until_ns = chosen["start_ns"][0], chosen["end_ns"][-1]
    together = []
    for rank in ranks:
        own = find_held_between(rank, begin_ns, until_ns)
        if set(own["step"].to_list()).isdisjoint(rank.typical["step"].to_list()):
            yield [(rank, select_neighbouring_steps(rank, UPPER_BOUNDS.most_operations))]
        else:
            together.append((rank, own))
    yield together


class _SharedWindow:
    """Steps of some ranks, simulated with and without causes."""

    def __init__(
        self,
        evidence: Evidence,
        ranks: Sequence[tuple[RankWindows, pl.DataFrame]],
        partners: pl.DataFrame,
        taxes: OverlapTaxes,
    ) -> None:
        host_ns = find_host_times(evidence, ranks)
        window = make_replay_window(evidence, [rank for rank, _ in ranks], partners, *host_ns)
        self._engine = Engine(window, window.graph, taxes, UPPER_BOUNDS)
        self.steps = {rank.rank_id: _first_operations(own, rank, window.operations) for rank, own in ranks}
        self._compute = {
            rank.rank_id: measure_compute(window, _select_typical(own, rank), rank.rank_id)
            for rank, own in ranks
        }
        self._single = {
            rank.rank_id: _SingleStep(rank, window)
            for rank, own in ranks
            if len(rank.windows) == 1 and own["steady"].all() and _is_replayed(rank.rank_id, window)
        }
        self._start_ns = np.asarray(evidence.waits.start_ns)
        self._lock = Lock()
        self._replayed_ns: dict[frozenset[str], dict[int, float | None]] = {}

    def count_steps(self, rank_id: int) -> int:
        """Return the number of simulated steps of a rank."""
        return 1 if rank_id in self._single else len(self.steps[rank_id])

    def captured_ns(self, rank_id: int) -> float | None:
        """Return the mean length of the steps of a rank in the capture."""
        if rank_id in self._single:
            return float(self._single[rank_id].captured_ns)
        return _mean_length(self._start_ns[self.steps[rank_id]])

    def replayed_ns(self, rank_id: int, causes: frozenset[str]) -> float | None:
        """Return their mean length without some causes; `None` if they cannot be simulated."""
        with self._lock:  # ranks that are summarized at the same time use the same
            if causes not in self._replayed_ns:
                self._replayed_ns[causes] = self._lengths(causes)
            return self._replayed_ns[causes][rank_id]

    def _lengths(self, causes: Collection[str]) -> dict[int, float | None]:
        """Return the mean length of the steps of each rank without some causes.

        It is at least the compute that is left, because one kernel may fill the GPU.
        """
        engine = self._engine
        if not causes:
            return self._measure_lengths(engine.unchanged)
        draft, _ = engine.draft(Question("scale", cause, 0.0) for cause in causes)
        graph = draft.graph()
        unchanged, changed = self._measure_lengths(engine.unchanged), self._measure_lengths(simulate(graph))
        left = {rank_id: float(own.measure_left_ns(graph)) for rank_id, own in self._compute.items()}
        return {
            rank_id: None
            if changed_ns is None or (known_ns := unchanged[rank_id]) is None
            else max(changed_ns, min(left[rank_id], known_ns))
            for rank_id, changed_ns in changed.items()
        }

    def _measure_lengths(self, run: SimulatedRun) -> dict[int, float | None]:
        """Return the mean length of the steps of each rank in a run."""
        found: dict[int, float | None] = {}
        for rank_id, steps in self.steps.items():
            edges = self._engine.graph.positions(steps.ravel()).reshape(-1, 2)
            found[rank_id] = _mean_length(run.start_ns[edges]) if (edges >= 0).all() else None
        return found | {rank_id: float(one.measure_ns(run)) for rank_id, one in self._single.items()}


class _SingleStep:
    """The only step of a rank: from the begin of its mark until its host and its device are through."""

    def __init__(self, rank: RankWindows, window: ReplayWindow) -> None:
        self._begin_ns, end_ns = map(int, rank.windows.select("start_ns", "end_ns").row(0))
        own = (window.replayed["rank_id"] == rank.rank_id).to_numpy()
        threads = np.unique(window.waits.calls.thread[window.replayed["call"].to_numpy()[own]])
        self._operations = np.flatnonzero(own)
        self._segments = np.flatnonzero(np.isin(np.asarray(window.segments.thread), threads))
        ended_ns = window.waits.end_ns[window.graph.op[self._operations]]
        left_ns = np.asarray(window.segments.end_ns)[self._segments]
        self._rest_ns = max(end_ns - max(int(ended_ns.max()), int(left_ns.max())), 0)
        self.captured_ns: int = end_ns - self._begin_ns

    def measure_ns(self, run: SimulatedRun) -> int:
        """Return the length of the step in a run."""
        ended_ns, left_ns = run.end_ns[self._operations], run.left_ns[self._segments]
        return max(int(ended_ns.max()), int(left_ns.max())) + self._rest_ns - self._begin_ns


def _first_operations(window: pl.DataFrame, rank: RankWindows, operations: pl.DataFrame) -> Rows:
    """Return the first operations of each typical window of a rank and of the next window, in two columns."""
    is_typical = np.isin(window["step"].to_numpy(), rank.typical["step"].to_numpy())
    found = find_step_operations(window, rank, operations)
    return found[is_typical & (found >= 0).all(axis=1)]


def _is_replayed(rank_id: int, window: ReplayWindow) -> bool:
    return bool((window.replayed["rank_id"] == rank_id).any())


def _select_typical(windows: pl.DataFrame, rank: RankWindows) -> pl.DataFrame:
    return windows.filter(pl.col("step").is_in(rank.typical["step"].implode()))


def _mean_length(bounds_ns: Times) -> float | None:
    """Return the mean length of steps between moments in two columns; `None` without steps."""
    return int((bounds_ns[:, 1] - bounds_ns[:, 0]).sum()) / len(bounds_ns) if len(bounds_ns) else None


def _frame_path(player: WindowReplay) -> pl.DataFrame:
    """Return the critical path of the replayed steps (`SHOWN_PATH`)."""
    wall = pl.col("cause").str.split("/").list.first()
    steps = player.path.with_columns(pl.col("bound").cast(pl.String), wall=wall)
    return steps.select(SHOWN_PATH.names()).cast(SHOWN_PATH)


@dataclass(frozen=True)
class RankReplays:
    """Replays the steps of the rank at index `place` on first use."""

    prepared: Prepared
    place: int
    rank: Rank

    @cached_property
    def player(self) -> WindowReplay | str:
        """The simulation, or the reason why there is none."""
        if self.prepared.trace.capture.is_cut_off:
            return "the capture is incomplete"
        return self._made()

    def answer_fixes(self, questions: Mapping[str, tuple[Question, ...]]) -> Replayed:
        """Return the replay error, and the answers to the questions of fixes."""
        player = self.player
        if isinstance(player, str):
            return Replayed(Replay(0, 0, 0, None, player, player), {})
        refused, briefly = explain_refusal(player.check)
        window = player.window
        replay = Replay(
            steps=int(window.steps["typical"].sum()),
            operations=window.graph.op.size,
            ranks=window.operations["rank_id"].n_unique(),
            check=player.check,
            refused=refused,
            refused_briefly=briefly,
        )
        return Replayed(replay, {} if refused else answer_fixes(player, questions))

    @cached_property
    def path(self) -> PlayedPath | str:
        """The critical path of the typical step, or the reason why it is unknown."""
        player = self.player
        if isinstance(player, str):
            return player
        off = player.check.own_error
        if FIXES.largest_own_error is not None and off > FIXES.largest_own_error:
            return f"replayed without changes, steps differ by {percent(off)} from the capture"
        texts = self.prepared.trace.range_tree.texts
        parts = divide_path(player.window, player.names, player.unchanged, player.path, texts)
        return PlayedPath(parts, player.check, _frame_path(player))

    def path_to_show(self) -> tuple[int, pl.DataFrame]:
        """The replayed rank, and `SHOWN_PATH` of its steps; empty if they are not replayed."""
        path = self.path
        steps = SHOWN_PATH.to_frame() if isinstance(path, str) else path.steps
        return self.prepared.trace.capture.ranks["rank_id"][self.place], steps

    def find_path(self, step: int) -> pl.DataFrame:
        """Return the critical path of a step (`SHOWN_PATH`), replayed alone if it is not a typical one."""
        steps = SHOWN_PATH.to_frame() if isinstance(self.path, str) else self.path.steps
        own = steps.filter(pl.col("step") == step)
        return own if len(own) else self.path_of_step(step)

    def path_of_step(self, step: int) -> pl.DataFrame:
        """The critical path (`SHOWN_PATH`) of any step, replayed alone; empty where it cannot be replayed."""
        player = self._made(step)
        most = FIXES.largest_own_error
        if isinstance(player, str) or (most is not None and player.check.own_error > most):
            return SHOWN_PATH.to_frame()
        return _frame_path(player).filter(pl.col("step") == step)

    def _made(self, step: int | None = None) -> WindowReplay | str:
        """Make the replay of the typical steps, or of one step with the one before it."""
        trace = self.prepared.trace
        shown = select_rank_windows(trace, trace.capture.ranks["rank_id"][self.place])
        if step is not None:
            shown = replace(shown, typical=shown.windows.filter(pl.col("step") == step))
        if len(shown.windows) < FEWEST_PLAYED_WINDOWS_COUNT:
            return NO_STEP
        most = FIXES.most_operations
        alone = find_held_operations(shown, most)
        if alone > REFUSED_PLAYED_COUNT:
            return f"two steps have {number(alone)} operations; `wallscope whatif` replays them on request"
        count = len(trace.capture.ranks)
        if count > 1 and count * find_held_operations(shown, most // count) <= most:
            ranks, between, place = list_rank_windows(trace), self.prepared.facts.partners, self.place
            ranks[place] = shown
        else:
            ranks, between, place = [shown], PARTNERS.to_frame(), 0
        try:
            window = select_replay_window(
                self.prepared.evidence, ranks, between, trace.range_tree, trace.capture.names, place, most
            )
        except NothingToAnalyzeError:
            return NO_ISSUER
        if not window.steps["typical"].any():
            return NO_STEP
        tax = self.rank.communication.overlap_tax
        made = WindowReplay(window, self.rank.typical.step_ns, None if tax is None else tax.ratio, FIXES)
        return made if made.repeated_ns else NO_LENGTH
