"""Limits of replays; those that only `whatif` uses are in its modules."""

from typing import Final

FEWEST_PLAYED_WINDOWS_COUNT: Final = 2
"""Windows of a replay: one is replayed, another checks it. By definition."""
PATH_ERROR_SHARE: Final = 0.01
"""Largest error of unchanged replayed steps for a critical path. Chosen; elsewhere 2 and 5 %."""
ONE_WALL_OF_PART_SHARE: Final = 0.9
"""Share of a part of the critical path that one wall must have to be its wall. Chosen."""
MOST_PLAYED_COUNT: Final = 30_000
"""Operations that are replayed without a request. Chosen, to bound the time."""
REFUSED_PLAYED_COUNT: Final = 60_000
"""Two steps with more are not replayed without a request; `wallscope whatif` replays more."""
FIX_REPLAY_ERROR_SHARE: Final = 0.05
"""A fix gets no replayed gain if steps simulated with the latencies of the others are off by more. Chosen."""
UPPER_BOUND_PLAYED_COUNT: Final = 12_000
"""Operations of a window in which upper bounds of causes are simulated, one step at least. Chosen: a dozen
causes are asked of each rank. To be unified with `MOST_PLAYED_COUNT`."""
UPPER_BOUND_ERROR_SHARE: Final = 0.02
"""No upper bound is given if steps simulated unchanged are off by more. Chosen. To be unified with
`PATH_ERROR_SHARE` and `FIX_REPLAY_ERROR_SHARE`."""
ASKED_PLAYED_COUNT: Final = 160_000
"""Operations of a window that `wallscope whatif` simulates, as the user asked for it. Chosen."""
