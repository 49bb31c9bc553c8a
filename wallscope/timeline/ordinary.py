"""Which steps are of ordinary length: those that make the typical step."""

import numpy as np
import numpy.typing as npt

from wallscope.arrays.columns import Flags
from wallscope.thresholds import FEWEST_STEPS_FOR_QUARTILES_COUNT


def is_ordinary(length_ns: npt.NDArray[np.int64] | npt.NDArray[np.float64]) -> Flags:
    """Whether each length lies within the quartiles of its row; all do, where a row has fewer than eight.

    Rows are along the last axis.

    >>> is_ordinary(np.array([1, 2, 3, 4, 5, 6, 7, 8])).tolist()
    [False, False, True, True, True, True, False, False]
    >>> is_ordinary(np.array([1, 99])).tolist()
    [True, True]
    """
    if length_ns.shape[-1] < FEWEST_STEPS_FOR_QUARTILES_COUNT:
        return np.ones(length_ns.shape, dtype=np.bool_)
    low, high = np.percentile(length_ns, [25, 75], axis=-1, keepdims=True)
    within: Flags = (length_ns >= low) & (length_ns <= high)
    return within
