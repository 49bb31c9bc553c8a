"""Limits of what a comparison says of operations and causes; as in thresholds.py."""

from fractions import Fraction
from typing import Final

REPLACED_WORK_RATIO: Final = Fraction(1, 10)
"""Less by more work of kernels gone and new in a range, from which on they replace each other. Chosen."""
LEADING_OPERATION_SHARE: Final = 0.8
"""Of what a group of operations changed by, from which on the one that did has a line of its own. Chosen."""
UNEXPLAINED_SHARE: Final = 0.01
"""Of base's step that a cause must change, to be called not explained by anything recorded. Chosen."""
