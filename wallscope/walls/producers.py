"""Whom operations wait for beside the ones before them in their streams, of many at once."""

import numpy as np

from wallscope.arrays.columns import Rows
from wallscope.arrays.groups import spread
from wallscope.timeline.dependencies import Dependencies


def waited_for(op: Rows, waits: Dependencies) -> tuple[Rows, Rows]:
    """The place of an operation among some and the number of one that it waits for, perhaps `UNRESOLVED`.

    A row each; of operations that wait for nobody there is none.
    """
    waiting = np.flatnonzero(waits.order.is_waiting()[op])
    if not waiting.size:
        return waiting, waiting
    pairs = waits.order.pairs()
    first, behind = (np.searchsorted(pairs.op, op[waiting], side=side) for side in ("left", "right"))
    at, nth = spread(behind - first)
    row, producer = waiting[at], pairs.producer[first[at] + nth]
    is_other = np.flatnonzero(producer != op[row])
    return row[is_other], producer[is_other]
