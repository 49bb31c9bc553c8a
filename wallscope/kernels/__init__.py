"""Sequential loops over arrays, each written once as typed Python and compiled with Cython on installation.

A kernel takes columns (numpy arrays, C-contiguous) and fills arrays that the caller made. It touches no
Python object inside its loop and runs without the interpreter lock. Without a compiler the same files run
interpreted, 10 to 50 times slower. Pass arrays through `views`, which returns what each form reads fastest.
"""

from functools import cache
from importlib import import_module
from typing import Any

import numpy as np


@cache
def is_compiled() -> bool:
    """Return whether the kernels run compiled."""
    return not str(import_module("wallscope.kernels.intervals").__file__).endswith(".py")


def views(*arrays: Any) -> tuple[Any, ...]:
    """Return arrays as compiled kernels take them, or as memoryviews, which plain Python indexes faster.

    Other arguments are returned unchanged.
    """
    if is_compiled():
        return arrays
    return tuple(memoryview(each.data) if isinstance(each, np.ndarray) else each for each in arrays)
