"""Limits of comparisons: docs/diff.md measures how often they are wrong."""

from fractions import Fraction
from typing import Final

MARGIN_SHARE: Final = 0.02
"""Changes of the step up to this are none, if not said otherwise. Measured: docs/diff.md. `wallscope diff`
and its help spell it again."""
MARGIN_NS: Final = 10_000
"""Changes up to this are none either. Measured: docs/diff.md."""
CONFIDENCE_SHARE: Final = 0.95
"""Of the interval of a ratio. Convention."""
FEWEST_STEPS_FOR_SPREAD_COUNT: Final = 5
"""Minimum number of steps to estimate a run's variation. Chosen; as many as `ENOUGH_STEPS_COUNT`."""
SLOW_STEP_RATIO: Final = 1.25
"""Steps that take longer than so many medians may be left out as slow. Chosen; as `WARM_UP_RATIO`."""
OUTLYING_DEVIATIONS_COUNT: Final = 3
"""And lie so many deviations above the median. Convention."""
USUAL_STEPS_SHARE: Final = 0.75
"""Of the steps that must be usual, for slow ones to be left out. The quartiles leave out slow ones then."""
RESAMPLES_COUNT: Final = 600
"""Draws of the bootstrap. Measured: docs/diff.md."""
DETECTED_SHARE: Final = 0.8
"""Chance with which the change that is called detectable is found. Convention for the power of a test."""
MOST_CORRELATED_RATIO: Final = 0.9
"""Largest correlation of neighboring steps. Chosen: beyond it no number of steps is sufficient."""
WANDERING_BLOCKS_COUNT: Final = 10
"""Blocks of steps whose means show whether the level of a run wanders. Chosen."""
FEWEST_STEPS_OF_BLOCK_COUNT: Final = 2
"""Steps of such a block, at least. Chosen: in shorter runs a walk is less than what is assumed."""
MOST_WANDERING_RATIO: Final = 0.376
"""Von Neumann's ratio of 10 means, halved, below which they wander: 1 % of independent ones. Hart 1942."""
SURE_SHIFT_ERRORS_COUNT: Final = 5
"""Standard errors by which the steps of a run must shift, at least: the best place is taken. Chosen."""
FEWEST_STEPS_OF_SHIFT_COUNT: Final = 2
"""Steps before and after it, at least. Chosen: one step is an outlier."""
SHARED_LEVELS_RATIO: Final = 1.02
"""Level by the next shorter one, of the steps of both sides together. Chosen, as the margin of a change."""
FEWEST_STEPS_FOR_WARM_UP_COUNT: Final = 6
"""Steps of a run in which a warm-up is recognized, at least. Chosen: fewer often fit by chance."""
SURE_WARM_UP_LIKELIHOOD: Final = 14
"""Twice the logarithm of the likelihood of a decay by that of one level, at least. Measured: docs/diff.md."""
UNLIKE_SHIFT_LIKELIHOOD: Final = 12
"""The same by that of a shift at one step. Measured: at most 1 % of runs without a decay, docs/diff.md."""
WHITE_REST_RATIO: Final = 1.2
"""Von Neumann's ratio of what a decay leaves, at least: 2 if it is not correlated. Measured, as above."""
WARM_UP_DECAY_SHARE: Final = 0.02
"""By which the first step must exceed what steps decay to. Chosen, as the margin of a change."""
WARM_UP_REST_SHARE: Final = 0.005
"""Excess of a step below which a warm-up is over. Chosen: a quarter of the margin of a change."""
OTHER_WORK_SHARE: Final = 0.5
"""Of compute kernels that both sides share, below which they do other work and have no verdict. Chosen."""
LIKE_WORK_SHARE: Final = 0.9
"""The same from which on they do the same work. Chosen."""
UNTOLD_PART_SHARE: Final = 0.05
"""Unsplit share of an axis above which waiting and transfer are not separate. docs/ranks.md names it."""
LIKE_OPERATIONS_RATIO: Final = Fraction(9, 10)
"""Fewer by more runs of an operation, from which on differently named ones can be the same. Chosen."""
HIDDEN_CHANGE_SHARE: Final = 0.1
"""Of communication that must be hidden more or less, for overlap to be the explanation. Chosen."""
EXPLAINED_SHARE: Final = 0.002
"""Of base's step that a queue drain must change, to be an explanation. Chosen."""
MORE_KERNELS_RATIO: Final = Fraction(12, 10)
"""More by fewer kernels, above which fusion is the explanation. Chosen."""
MORE_VOLUME_RATIO: Final = 1.05
"""Bytes of an axis by those of the other side, above which volume is an explanation. Chosen."""
MORE_SLOW_STEPS_SHARE: Final = 0.05
"""By which the share of slow steps must differ, to be an explanation. Chosen."""
MORE_SLOW_STEPS_COUNT: Final = 2
"""And by so many steps. Chosen."""
REPLACED_WORK_RATIO: Final = Fraction(1, 10)
"""Less by more work of kernels gone and new in a range, from which on they replace each other. Chosen."""
LEADING_OPERATION_SHARE: Final = 0.8
"""Of what a group of operations changed by, from which on the one that did has a line of its own. Chosen."""
UNEXPLAINED_SHARE: Final = 0.01
"""Of base's step that a cause must change, to be called not explained by anything recorded. Chosen."""
BIAS_SHARE: Final = 0.005
"""Of base's step that dearer launches must make, to be noted as a bias. Chosen."""
UNIFORM_WORK_SHARE: Final = 0.6
"""Of the work of kernels that must change alike, for an amount of work or a clock to be inferred. Chosen."""
OTHER_WORK_RATIO: Final = 1.15
"""Time per call by that of the other side, from which on it shows another amount of work. Chosen."""
UNIFORM_CHANGE_RATIO: Final = 1.3
"""Spread of such ratios, at most: small kernels do not grow with their input. Chosen."""
OTHER_CLOCK_RATIO: Final = 1.02
"""The same ratio, from which on it shows another clock. Chosen, above what runs differ by."""
UNIFORM_CLOCK_RATIO: Final = 1.02
"""Spread of ratios that a clock makes, at most. Chosen."""
LIKE_INPUT_RATIO: Final = 1.1
"""Bytes copied to the device by those of the other side, up to which the input is alike. Chosen."""
CONFOUNDING_SHARE: Final = 0.25
"""Of the change of the step that a bias may make, from which on it stands next to the verdict. Chosen."""
MAIN_PRECISION_SHARE: Final = Fraction(1, 4)
"""Of the work of a category, from which on a precision is named as one that it runs in. Chosen."""
FEWEST_COMPILED_KERNELS_COUNT: Final = 3
"""Kernels of Triton of different names, from which on a compiler makes them, and no library. Chosen."""
FEWER_KERNELS_RATIO: Final = Fraction(3, 2)
"""Kernels of the optimizer by those of the other side, from which on it is fused or split. Chosen."""
OTHER_COPIES_RATIO: Final = Fraction(5, 4)
"""Copies or their bytes by those of the other side, from which on they are an explanation. Chosen."""
SHOWN_JOINT_SHARE: Final = 0.002
"""Of base's step that a cause must change, to be named with the change that it goes with. Chosen."""
EXPLAINING_SHARE: Final = 0.003
"""Of base's step that an explanation or operation must change, for the first screen. Chosen."""
