"""A stretch of steps with all that is known of what is played in it."""

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import polars as pl

from wallscope.timeline.dependencies import Dependencies
from wallscope.timeline.pieces import Pieces
from wallscope.timeline.places import texts_of
from wallscope.timeline.replay import Replay
from wallscope.timeline.stream_order import Tail


@dataclass(frozen=True, slots=True)
class Stretch:
    """Steps of some ranks, ready to be played; series of texts are enumerations.

    Attributes:
        replay: the stretch.
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

    replay: Replay
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

    def roles(self) -> list[str | None]:
        """The role of the call that each piece is in, by row; `None` outside calls."""
        call = np.asarray(self.pieces.call)
        known = self.call_role.to_physical().to_numpy()[call[call >= 0]]
        names = [*texts_of(self.call_role), None]
        of_piece = np.full(call.size, -1)
        of_piece[call >= 0] = known
        return [names[place] for place in of_piece.tolist()]
