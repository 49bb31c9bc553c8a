"""Answers about one window: the replay error, the gain of each change, upper bounds of causes.

A cause may take little of the step and yet delay everything, or take much with the next constraint close
behind. Simulating the dependencies without it includes both effects.
"""

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import cached_property, partial
from math import ceil

import polars as pl

from wallscope.attribution.prepared import (
    Prepared,
    RankWindows,
    select_rank_windows,
)
from wallscope.errors import NothingToAnalyzeError
from wallscope.model.diagnosis import Walls
from wallscope.model.enums import Wall
from wallscope.model.report import SHOWN_PATH, PlayedPath
from wallscope.model.whatif import Answer, Asked, CriticalPath, Question, Replay, Replayed, SelfCheck
from wallscope.process_tuning import Once, run_side_by_side
from wallscope.records import dataclass
from wallscope.replay.changes import Changes, OverlapTaxes
from wallscope.replay.critical_path import divide_path
from wallscope.replay.engine import (
    NO_LENGTH,
    NO_STEP,
    Engine,
    SingleStep,
    WindowReplay,
    explain_error,
    has_operations,
    is_too_far_off,
)
from wallscope.replay.windows import (
    NO_ISSUER,
    find_connected_ranks,
    find_held_between,
    find_held_operations,
    make_simulated_steps,
    select_neighbouring_steps,
    view_rank_steps,
)
from wallscope.thresholds.causes import (
    FIX_REPLAY_ERROR_SHARE,
    MOST_PLAYED_COUNT,
    PATH_ERROR_SHARE,
    REFUSED_PLAYED_COUNT,
    UPPER_BOUND_ERROR_SHARE,
)
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


def answer_questions(player: WindowReplay, asked: Asked, texts: pl.Series) -> WindowAnswer:
    """Return the answers to the questions; without questions, to the usual ones.

    Args:
        player: the replayed steps.
        asked: the questions.
        texts: the written paths of ranges, by number.

    Raises:
        NothingToAnalyzeError: the replay error is too large.
        OptionError: the target of a question does not exist.
    """
    check = player.check
    if check.error_median is not None and check.error_median > asked.largest_error:
        raise NothingToAnalyzeError(
            f"{is_too_far_off(check.error_median, asked.largest_error)}: the answers would not be reliable",
            "choose similar steps with --steps, or accept the error with"
            f" --accept-error {ceil(100 * check.error_median)}",
        )
    changes = player.changes
    questions = tuple(changes.resolve(one) for one in asked.questions)
    sweep = tuple(changes.resolve(one) for one in asked.sweep)
    is_open = not questions and not sweep
    alone = [player.answer((one,)) for one in (_usual(changes) if is_open else questions)]
    if is_open:
        alone = sorted(
            (one for one in alone if one.won_ns >= _LEAST_WON * player.step_ns), key=lambda one: -one.won_ns
        )
    together = [player.answer(questions)] if len(questions) > 1 else []
    return WindowAnswer(
        check=check,
        path=divide_path(player.window, player.names, player.unchanged, player.path, texts, player.steps),
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
    most = FIX_REPLAY_ERROR_SHARE
    if check.error_median <= most:
        return None, None
    return is_too_far_off(check.error_median, most), explain_error(check.error_median, most)


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
    """Simulates the typical step of one rank with changes, on first use.

    Ranks that communicate are simulated together, in one window.
    """

    def __init__(self, window: "Once[_SharedWindow]", rank_id: int, *, is_alone: bool) -> None:
        self.window, self._rank_id, self._is_alone = window, rank_id, is_alone

    @cached_property
    def player(self) -> WindowReplay | str:
        """The simulation, or the reason why there is none."""
        return self.window().make_player(self._rank_id)

    def forget(self) -> None:
        """Drop the simulation, and a window that no other rank shares; both are made again when needed."""
        if self.__dict__.pop("player", None) is not None and self._is_alone:
            self.window.forget()

    @property
    def step_count(self) -> int:
        """The number of simulated steps of the typical step."""
        return 0 if isinstance(self.player, str) else self.player.step_count

    @property
    def error(self) -> float | None:
        """The error of the unchanged simulation, as a share; `None` if they cannot be simulated."""
        return None if isinstance(self.player, str) else self.player.typical_error

    def recoverable_ns(self, causes: Collection[str]) -> int | None:
        """Return the reduction of the typical step without some causes; `None` if unknown."""
        player = self.player
        if isinstance(player, str) or player.typical_error > UPPER_BOUND_ERROR_SHARE:
            return None
        return player.step_ns - player.measure_ns(tuple(Question("scale", cause, 0.0) for cause in causes))


_CURES = {
    NO_STEP: "name the steps with --step-range, or capture three or more",
    NO_ISSUER: "capture with --trace=cuda, starting before the steps",
    NO_LENGTH: "export the report again",
}


def require_player(bounds: UpperBounds) -> WindowReplay:
    """Return the simulation of a rank.

    Raises:
        NothingToAnalyzeError: there is none.
    """
    player = bounds.player
    if isinstance(player, str):
        raise NothingToAnalyzeError(player, _CURES[player])
    return player


def estimate_upper_bounds(
    prepared: Prepared, ranks: Sequence[RankWindows], taxes: OverlapTaxes
) -> tuple[UpperBounds, ...]:
    """Return the upper bounds of each rank of a capture.

    Args:
        prepared: the capture.
        ranks: all its ranks with their windows.
        taxes: slowdown of each rank's compute that overlaps communication.
    """
    partners = prepared.facts.partners
    groups = [together for group in find_connected_ranks(ranks, partners) for together in _alongside(group)]
    bounds: dict[int, UpperBounds] = {}
    for together in groups:
        window, is_alone = Once(partial(_SharedWindow, prepared, together, taxes)), len(together) == 1
        bounds |= {rank.rank_id: UpperBounds(window, rank.rank_id, is_alone=is_alone) for rank, _ in together}
    return tuple(bounds[rank.rank_id] for rank in ranks)


def _alongside(ranks: Sequence[RankWindows]) -> Iterator[list[tuple[RankWindows, pl.DataFrame]]]:
    """Yield ranks with their simulated windows: those at the time of the steps of the busiest one, the first.

    A rank without typical windows at that time is simulated alone. So are all ranks if that is too much.
    """
    ordered = sorted(ranks, key=lambda rank: -len(rank.operations))
    most = MOST_PLAYED_COUNT // len(ranks)
    if len(ranks) > 1 and sum(find_held_operations(rank, most) for rank in ranks) > REFUSED_PLAYED_COUNT:
        yield from ([(rank, select_neighbouring_steps(rank, most))] for rank in ranks)
        return
    chosen = select_neighbouring_steps(ordered[0], most)
    begin_ns, until_ns = chosen["start_ns"][0], chosen["end_ns"][-1]
    together = [(ordered[0], chosen)]
    for rank in ordered[1:]:
        own = find_held_between(rank, begin_ns, until_ns)
        if set(own["step"].to_list()).isdisjoint(rank.typical["step"].to_list()):
            yield [(rank, select_neighbouring_steps(rank, MOST_PLAYED_COUNT))]
        else:
            together.append((rank, own))
    yield together


class _SharedWindow:
    """Steps of some ranks, simulated together."""

    def __init__(
        self, prepared: Prepared, ranks: Sequence[tuple[RankWindows, pl.DataFrame]], taxes: OverlapTaxes
    ) -> None:
        self._ranks, self._tree, trace = ranks, prepared.trace.range_tree, prepared.trace
        self._engine: Engine | None = None
        try:
            window = make_simulated_steps(
                prepared.evidence, ranks, prepared.facts.partners, self._tree, trace.capture.names
            )
        except NothingToAnalyzeError:
            return
        self._engine = Engine(window, taxes)

    def make_player(self, rank_id: int) -> WindowReplay | str:
        """Return the simulation of a rank, or the reason why there is none."""
        if self._engine is None:
            return NO_ISSUER
        window, ranks = self._engine.window, sorted(self._ranks, key=lambda own: own[0].rank_id != rank_id)
        (rank, chosen), *_ = ranks
        if rank_id != window.rank_id:
            window = view_rank_steps(window, ranks, self._tree)
        step_ns = round(float((rank.typical["end_ns"] - rank.typical["start_ns"]).to_numpy().mean()))
        if len(rank.windows) == 1 and chosen["steady"].all() and has_operations(rank_id, window):
            return WindowReplay(window, step_ns, self._engine, SingleStep(rank.windows, window))
        if not window.steps["typical"].any():
            return NO_STEP
        place = [one.rank_id for one, _ in self._ranks].index(rank_id)
        made = WindowReplay(window, step_ns, self._engine, place=place)
        return made if self._engine.repeated_ns[place] else NO_LENGTH


def _frame_path(player: WindowReplay) -> pl.DataFrame:
    """Return the critical path of the replayed steps (`SHOWN_PATH`)."""
    wall = pl.col("cause").str.split("/").list.first()
    steps = player.path.with_columns(pl.col("bound").cast(pl.String), wall=wall)
    return steps.select(SHOWN_PATH.names()).cast(SHOWN_PATH)


@dataclass(frozen=True)
class RankReplays:
    """Replays the steps of the rank at index `place` on first use, in the window of its upper bounds."""

    prepared: Prepared
    place: int
    bounds: UpperBounds

    @cached_property
    def player(self) -> WindowReplay | str:
        """The simulation, or the reason why there is none."""
        if self.prepared.trace.capture.is_cut_off:
            return "the capture is incomplete"
        player = self.bounds.player
        if isinstance(player, str) or player.is_single:
            return player if isinstance(player, str) else NO_STEP
        count = player.window.graph.op.size
        if count > REFUSED_PLAYED_COUNT:
            return f"two steps have {number(count)} operations; `wallscope whatif` replays them on request"
        return player

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
        off = player.own_error
        if off > PATH_ERROR_SHARE:
            return f"replayed without changes, steps differ by {percent(off)} from the capture"
        texts = self.prepared.trace.range_tree.texts
        parts = divide_path(player.window, player.names, player.unchanged, player.path, texts, player.steps)
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
        trace = self.prepared.trace
        shown = select_rank_windows(trace, trace.capture.ranks["rank_id"][self.place])
        shown = replace(shown, typical=shown.windows.filter(pl.col("step") == step))
        (player,) = estimate_upper_bounds(self.prepared, [shown], lambda _: None)
        made = player.player
        if isinstance(made, str) or made.is_single or made.own_error > PATH_ERROR_SHARE:
            return SHOWN_PATH.to_frame()
        return _frame_path(made).filter(pl.col("step") == step)
