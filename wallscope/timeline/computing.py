"""What owns time before all else: compute, and graphs whose inside is not in the export."""

import numpy as np

from wallscope.arrays.columns import Codes, Flags
from wallscope.model.kinds import OperationClass

COMPUTING = (OperationClass.COMPUTE, OperationClass.OPAQUE_GRAPH)
_IS_COMPUTING = np.isin([*OperationClass, ""], COMPUTING)


def computes(of_class: Codes) -> Flags:
    """Whether classes, as places in `OperationClass`, are those; -1 is none.

    >>> computes(np.array([-1, list(OperationClass).index(OperationClass.COMPUTE)])).tolist()
    [False, True]
    """
    found: Flags = _IS_COMPUTING[of_class]
    return found
