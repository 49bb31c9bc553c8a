"""Limits of what runs differ by, and of changes from commit to commit."""

from typing import Final

FEWEST_STEPS_FOR_MIDDLE_COUNT: Final = 3
"""Of so many steps a comparison takes those between the quartiles: two have none there. Chosen."""
ASSUMED_OFF_SHARE: Final = 0.025
"""How far step and compute of a run are taken to be off, evenly, where nothing is measured. docs/diff.md."""
ENOUGH_STEPS_OF_RUN_COUNT: Final = 10
"""Steps from which on a run is taken to be off by that. Slow changes average out less in shorter runs, so
that the square is multiplied by this by their steps. Measured: docs/diff.md."""
ASSUMED_NOISE_RATIO: Final = 0.2
"""Standard deviation of the other walls between runs, where nothing is measured. Chosen: wide."""
FEWEST_DEGREES_OF_NOISE_COUNT: Final = 3
"""Degrees of freedom with which the compared runs measure how runs differ, at least, where nothing is
recorded: of two, Student's factor is 4.3. Chosen."""
FEWEST_NEIGHBORS_COUNT: Final = 6
"""Differences between commits of one run each that measure run noise, at least: 4 degrees. Chosen."""
FEWEST_OWN_DEGREES_COUNT: Final = 2
"""Degrees of freedom with which a side is measured without the other one. Chosen."""
CONTRADICTED_VARIANCE_RATIO: Final = 3.0
"""Of the variance of runs by the assumed one, above which no more is assumed. Two runs a side that differ as
assumed exceed it in 5 %."""
UNLIKE_VARIANCE_RATIO: Final = 4.0
"""Square of the error of a run by the variance of recorded runs, above which it is unlike them. Chosen, as F
of few degrees of freedom at 1 %."""
FALSE_ALARM_SHARE: Final = 0.01
"""Of histories without a change in which one is found, at most. Chosen; measured in docs/diff.md."""
CHANGE_PERMUTATIONS_COUNT: Final = 999
"""Random orders that a change is compared with: ten of them are the share of false alarms. Convention."""
FEWEST_COMMITS_COUNT: Final = 6
"""Commits among which a change is looked for, at least: of five no order is rare enough. Chosen."""
FEWEST_GRADED_COMMITS_COUNT: Final = 4
"""Commits among which a change is likely or possible, at least: of three, noise has one degree. Chosen."""
FEWEST_LIKELY_COMMITS_COUNT: Final = 2
"""Commits before and after a likely change, at least. Chosen: a single one may be an outlier."""
LIKELY_CHANCE_SHARE: Final = 0.005
"""Of histories without a change, with normal noise, that show one as large, for a likely one. Measured:
docs/diff.md."""
POSSIBLE_CHANCE_SHARE: Final = 0.1
"""The same for a possible one. Chosen: more would name chance in most histories."""
NULL_HISTORIES_COUNT: Final = 2_000
"""Histories without a change that the largest difference is compared with: ten have a likely one. Chosen."""
MOST_SETTLING_COMMITS_COUNT: Final = 20
"""Later commits that are proposed to settle a change, at most. Chosen: more are not waited for."""
PARAMETERS_OF_DRIFT_RATIO: Final = 1.5
"""Parameters that a drift counts for; a change counts for two. Measured: docs/diff.md."""
STALE_RECORD_DAYS: Final = 14
"""Age of a base from which on it is said. Chosen: two weeks of changes lie between."""
FEWEST_DEGREES_OF_PAIRS_COUNT: Final = 2
"""Degrees of freedom of pairs of runs that measure how these differ, at least: three pairs. Chosen."""
MOST_RUNS_COUNT: Final = 50
"""Runs a side that are proposed to decide a verdict, at most. Chosen."""
STALE_BASE_COMMITS_COUNT: Final = 10
"""Recorded commits between base and head from which on the base is said to be old. Chosen."""
