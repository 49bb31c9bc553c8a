"""A stretch of steps with all that is known of what is played in it."""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import polars as pl

from wallscope.arrays.columns import Rows
from wallscope.arrays.lookup import Places
from wallscope.timeline.dependencies import Dependencies
from wallscope.timeline.pieces import Pieces
from wallscope.timeline.replay_graph import ReplayGraph
from wallscope.timeline.stream_order import Tail


@dataclass(frozen=True)
class Stretch:
    """Steps of some ranks, ready to be played; series of texts are enumerations.

    Attributes:
        graph: what is simulated.
        waits: who waits for whom.
        pieces: what the threads were in.
        causes: of each piece, `wall/cause[/detail]`; what a blocking call waited for is not its cause.
        operations: `CLASSIFIED`, those that are issued in it, with `cause`, `before` (that of the time
            between their end and the start of what waits for them), `text` (of kernels their name) and
            `path` (null outside ranges).
        steps: the windows of one rank (`STEPS`) with the operations `first` and `behind` that begin them
            and the next; answers are about `typical` ones, `checked` ones tell how good they are.
        call_name, call_role: of each call, by number; its text, its `CallRole`.
        releasing: calls that give memory back, and the last work before each.
        ranges, paths: `NESTED` with `text`, and `PATHS`.
        rank_id: whose steps they are.
    """

    graph: ReplayGraph
    waits: Dependencies
    pieces: Pieces
    causes: pl.Series
    operations: pl.DataFrame
    steps: pl.DataFrame
    call_name: pl.Series
    call_role: pl.Series
    releasing: Mapping[int, Tail]
    ranges: pl.DataFrame
    paths: pl.DataFrame
    rank_id: int

    @cached_property
    def role(self) -> Rows:
        """The role of the call that each piece is in, as a place in `ROLE`; -1 outside calls."""
        call, roles = np.asarray(self.pieces.call), self.call_role.to_physical().to_numpy()
        found = np.full(call.size, -1, np.int64)
        found[call >= 0] = roles[call[call >= 0]]
        return found

    @cached_property
    def played(self) -> pl.DataFrame:
        """The operations that are played, by place."""
        row_of = Places(self.operations["op"].to_numpy())
        return self.operations[row_of.of(self.graph.op)]

    def edges(self, which: str) -> Rows:
        """The places at which the steps of a kind (a column of `steps`) begin and end, in two columns."""
        held = np.flatnonzero(self.steps[which].to_numpy())
        ops = np.column_stack([self.steps["first"].to_numpy(), self.steps["behind"].to_numpy()])[held]
        return self.graph.positions(ops.ravel()).reshape(-1, 2)
