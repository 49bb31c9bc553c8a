"""Limits of what is said of steps that differ from each other; as in thresholds.py."""

from typing import Final

FEWEST_STEPS_FOR_MODES_COUNT: Final = 8
"""Steady steps that are needed to find kinds of steps. Chosen."""
FEWEST_MODE_STEPS_COUNT: Final = 3
"""Steps of a kind, at least. Chosen: two may be chance."""
SMALLEST_MODE_SHARE: Final = 0.15
"""The same as a share of all steady steps; fewer are rare stalls. Chosen."""
MODES_APART_RATIO: Final = 1.05
"""Median of a kind by that of the shorter one, at least. Chosen: less is not worth a sentence."""
SPLIT_MODES_RATIO: Final = 0.75
"""Distance of the medians of two kinds by their joint width, as logarithms. Measured: 2 % are chance."""
SPLIT_MODES_STEPS_COUNT: Final = 20
"""And so much by the number of steps more: of few steps the best split is often good. Measured."""
WIDEST_MODE_GAP_PARTS_COUNT: Final = 8
"""Between two kinds no step lies in one of so many parts of the way between their medians. Chosen."""
RARE_STALL_SHARE: Final = 0.03
"""Of all steady time that a cause must take beyond its median, on few steps: `DOMINANT_LEAD_SHARE`."""
RARE_LONG_PARTS_COUNT: Final = 4
"""The period of a rare stall counts steps with at least one in so many parts of the longest. Chosen."""
RARE_EXCESS_SHARE: Final = 0.05
"""Of the median step that it must take more, for a step to be one of those. Chosen."""
RARE_DEVIATIONS_COUNT: Final = 6
"""And so many median deviations of the cause more. Chosen: about four standard deviations."""
RARE_STEPS_PARTS_COUNT: Final = 2
"""Fewer than one step in so many has a rare stall. By definition: of more the median speaks."""
REGULAR_PERIOD_SHARE: Final = 2 / 3
"""Of the distances between its steps that must be equal, for it to have a period. Chosen."""
FEWEST_FOR_PERIOD_COUNT: Final = 3
"""Steps with the stall that are needed for a period. By definition: two have one distance."""
MEAN_ABOVE_MEDIAN_RATIO: Final = 1.1
"""Mean by median of the steady steps, from which on the verdict states both. Chosen."""
FEWEST_STEPS_EACH_SIDE_COUNT: Final = 3
"""Steps before and after the moment from which on kernels are slower, at least. Measured: 0.8 % of runs that
only vary at random are taken for slower at 3, fewer where there are more steps."""
SLOWER_KERNELS_RATIO: Final = 1.03
"""Length of the same kernels after that moment by the length before it, at least. Chosen."""
COMPARED_WORK_SHARE: Final = 0.5
"""Of the work of compute kernels that must be comparable from step to step. Chosen: most."""
CLOCK_EXPLAINS_SHARE: Final = 0.5
"""Of what kernels are slower, that a lower clock may leave unexplained, to be the reason. Chosen: most."""
