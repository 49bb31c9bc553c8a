"""Limits of what a comparison says of operations and causes; as in thresholds.py."""

from fractions import Fraction
from typing import Final

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
