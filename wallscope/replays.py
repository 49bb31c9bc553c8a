"""The steps of a rank played again beside the answer about it: what fixes would win, what bounds a step."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cached_property

import polars as pl

from wallscope.attribution.attribute import Evidence, OperationFacts
from wallscope.errors import NothingToAnalyzeError
from wallscope.model.analysis import Analysis, Rank
from wallscope.model.report import SHOWN_PATH, PlayedPath
from wallscope.model.schemas import PARTNERS
from wallscope.model.whatif import Question, Replay
from wallscope.replay.critical_path import divide_path
from wallscope.replay.engine import FIXES, NO_STEP, WindowReplay
from wallscope.replay.what_if import answer_fixes, explain_refusal
from wallscope.replay.windows import NO_ISSUER, find_held_operations, select_replay_window
from wallscope.summary.rank import Trace, list_rank_windows, select_rank_windows
from wallscope.thresholds import FEWEST_PLAYED_WINDOWS_COUNT, REFUSED_PLAYED_COUNT
from wallscope.trace.ranges import write_paths
from wallscope.units import number, percent


@dataclass(frozen=True)
class RankReplays:
    """Plays the steps of the rank at `place` when it is first asked."""

    parts: Trace
    facts: OperationFacts
    evidence: Evidence
    place: int
    rank: Rank

    @cached_property
    def player(self) -> WindowReplay | str:
        """What plays them, or why they are not played."""
        return self._made()

    def with_answers(self, analysis: Analysis, asked: Mapping[str, tuple[Question, ...]]) -> Analysis:
        """The analysis with what those of its fixes would win that ask something."""
        player = self.player
        if isinstance(player, str):
            return replace(analysis, replay=Replay(0, 0, 0, None, player))
        check = player.check
        refused = explain_refusal(check)
        answers = {} if refused else answer_fixes(player, asked)
        stretch = player.stretch
        told = Replay(
            steps=int(stretch.steps["typical"].sum()),
            operations=stretch.graph.op.size,
            ranks=stretch.operations["rank_id"].n_unique(),
            check=check,
            refused=refused,
        )
        fixes = tuple(replace(fix, replay=answers.get(fix.id)) for fix in analysis.fixes or ())
        return replace(analysis, replay=told, fixes=fixes)

    @cached_property
    def path(self) -> PlayedPath | str:
        """What bounds the typical step, or why that is not known."""
        player = self.player
        if isinstance(player, str):
            return player
        off = player.check.own_error
        if FIXES.largest_own_error is not None and off > FIXES.largest_own_error:
            return f"played again with nothing changed, steps are {percent(off)} off"
        range_tree = self.parts.range_tree
        texts = write_paths(range_tree.paths, range_tree.names, range_tree.paths["path"])
        told = divide_path(player.stretch, player.names, player.unchanged, player.path, texts)
        wall = pl.col("cause").str.split("/").list.first()
        steps = player.path.with_columns(pl.col("bound").cast(pl.String), wall=wall)
        return PlayedPath(told, player.check, steps.select(SHOWN_PATH.names()).cast(SHOWN_PATH))

    def shown_path(self) -> tuple[int, pl.DataFrame]:
        """The rank that is played, and `SHOWN_PATH` of its steps; empty where they are not."""
        path = self.path
        steps = SHOWN_PATH.to_frame() if isinstance(path, str) else path.steps
        return self.parts.capture.ranks["rank_id"][self.place], steps

    def _made(self) -> WindowReplay | str:
        parts = self.parts
        shown = select_rank_windows(parts, parts.capture.ranks["rank_id"][self.place])
        if len(shown.windows) < FEWEST_PLAYED_WINDOWS_COUNT:
            return NO_STEP
        most = FIXES.most_operations
        alone = find_held_operations(shown, most)
        if alone > REFUSED_PLAYED_COUNT:
            return f"two steps hold {number(alone)} operations; wallscope whatif plays them when it is asked"
        count = len(parts.capture.ranks)
        if count > 1 and count * find_held_operations(shown, most // count) <= most:
            ranks, between, place = list_rank_windows(parts), self.facts.partners, self.place
        else:
            ranks, between, place = [shown], PARTNERS.to_frame(), 0
        try:
            stretch = select_replay_window(
                self.evidence, ranks, between, parts.range_tree, parts.capture.names, place, most
            )
        except NothingToAnalyzeError:
            return NO_ISSUER
        if not stretch.steps["typical"].any():
            return NO_STEP
        tax = self.rank.communication.overlap_tax
        return WindowReplay(stretch, self.rank.typical.step_ns, None if tax is None else tax.ratio, FIXES)
