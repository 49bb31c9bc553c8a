"""Limits of what a log of a run says about its steps."""

from typing import Final

FEWEST_REPORTS_COUNT: Final = 3
"""Reports of steady steps that a time without the profiler rests on, at least: of two, no spread. Chosen."""
STEADY_LOG_SHARE: Final = 0.10
"""The halves of a log whose medians differ by more have no one step time. Chosen: twice what a capture takes
as equal steps, as reports of a log include evaluation and checkpoints."""
LEAST_WARM_UP_SHARE: Final = 0.05
"""What leading reports exceed those of the second half by, at least, to be warm-up. Chosen."""
WARM_UP_DEVIATIONS_COUNT: Final = 4.0
"""The same in standard deviations, from the median of absolute differences. Chosen: one in 15,000."""
MOST_WARM_UP_SHARE: Final = 1 / 3
"""Of reports, how many may be warm-up at the most. Chosen: more would be another half of an unsteady run."""
CLOCK_RESOLUTION_SHARE: Final = 0.02
"""Of the time between two moments of a log, how much their resolution may be. Chosen: below what a capture
costs."""
LEAST_GROWING_SHARE: Final = 0.9
"""Of times since a moment, how many grow with the steps at least, where ranks broke lines. Chosen: times of
steps in any order have a third of 30 that grow."""
LEAST_GROWTH_SHARE: Final = 0.1
"""Of the growth of such times, how much is in each half of the reports at least. Chosen: a slow step at the
beginning may take most of it."""
LOG_CONTRADICTION_SHARE: Final = 0.05
"""Values of a log and of the capture, or of options, that differ by more contradict each other. Chosen."""
MOST_LOG_BYTES: Final = 128 << 20
"""The size of a log. Chosen: 400,000 lines of Megatron-LM."""
MOST_LOG_REPORTS_COUNT: Final = 1_000_000
"""Reports of steps in a log. Chosen: more than twice what fits into its size as Megatron-LM writes it."""
MOST_LINE_LETTERS_COUNT: Final = 4_096
"""Letters of a line that are read. Chosen: ten times a line of Megatron-LM."""
