"""What threads were in, piece by piece: what they do again when a stretch of time is played.

A replay window with all that is known of what is simulated in it.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import polars as pl

from wallscope.columns import Places, Rows
from wallscope.replay.graph import ReplayGraph
from wallscope.replay.segments import Pieces
from wallscope.trace.dependencies import Dependencies
from wallscope.trace.streams import Tail


@dataclass(frozen=True)
class ReplayWindow:
    """A time of some ranks, ready to be simulated; series of texts are enumerations.

    Attributes:
        graph: what is simulated.
        waits: the dependencies of the capture.
        pieces: the host segments.
        causes: of each segment, `wall/cause[/detail]`; what a blocking call waited for is not its cause.
        operations: `CLASSIFIED`, those that are issued in the window, with `cause`.
        call_name, call_role: of each call, by number; its text, its `CallRole`.
        releasing: calls that free memory, and the last work before each.
    """

    graph: ReplayGraph
    waits: Dependencies
    pieces: Pieces
    causes: pl.Series
    operations: pl.DataFrame
    call_name: pl.Series
    call_role: pl.Series
    releasing: Mapping[int, Tail]

    @cached_property
    def role(self) -> Rows:
        """The role of the call that each segment is in, as a place in `ROLE`; -1 outside calls."""
        call, roles = np.asarray(self.pieces.call), self.call_role.to_physical().to_numpy()
        found = np.full(call.size, -1, np.int64)
        found[call >= 0] = roles[call[call >= 0]]
        return found

    @cached_property
    def played(self) -> pl.DataFrame:
        """The operations that are simulated, by position."""
        row_of = Places(self.operations["op"].to_numpy())
        return self.operations[row_of.of(self.graph.op)]


@dataclass(frozen=True)
class Stretch(ReplayWindow):
    """A replay window with the steps of one rank and the names of what is in it.

    Attributes:
        operations: with `before` (the cause of the time between their end and the start of what waits for
            them), `text` (of kernels their name), `range` and `path` (null outside ranges) too.
        steps: the steps of the rank (`STEPS`) with the operations `first` and `behind` that begin them and
            the next; answers are about `typical` ones, `checked` ones tell how good they are.
        ranges, paths: `NESTED` with `text`, and `PATHS`.
        rank_id: whose steps they are.
    """

    steps: pl.DataFrame
    ranges: pl.DataFrame
    paths: pl.DataFrame
    rank_id: int

    def edges(self, which: str) -> Rows:
        """The places at which the steps of a kind (a column of `steps`) begin and end, in two columns."""
        held = np.flatnonzero(self.steps[which].to_numpy())
        ops = np.column_stack([self.steps["first"].to_numpy(), self.steps["behind"].to_numpy()])[held]
        return self.graph.positions(ops.ravel()).reshape(-1, 2)
