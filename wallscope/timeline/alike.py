"""Rows of like values: of frames sorted by thread or rank, and of columns in any order."""

from collections.abc import Iterator

import numpy as np
import numpy.typing as npt

from wallscope.timeline.nesting import Rows

_NARROW = 1 << 16


def runs(values: npt.NDArray[np.integer]) -> Iterator[tuple[int, slice]]:
    """Each run of one number with its rows.

    >>> [(value, rows.start, rows.stop) for value, rows in runs(np.array([4, 4, 7]))]
    [(4, 0, 2), (7, 2, 3)]
    >>> list(runs(np.array([], np.uint32)))
    []
    """
    edges = (np.flatnonzero(values[1:] != values[:-1]) + 1).tolist()
    for first, behind in zip([0, *edges], [*edges, values.size], strict=True):
        if behind > first:
            yield int(values[first]), slice(first, behind)


def grouped(values: npt.NDArray[np.integer]) -> Iterator[tuple[int, Rows]]:
    """Each distinct number, none below 0, with its rows in order; numbers of 16 bits take linear time.

    >>> [(value, rows.tolist()) for value, rows in grouped(np.array([7, 4, 7, 4, 4]))]
    [(4, [1, 3, 4]), (7, [0, 2])]
    """
    is_narrow = values.max(initial=0) < _NARROW
    order = np.argsort(values.astype(np.uint16) if is_narrow else values, kind="stable")
    for value, own in runs(values[order]):
        yield value, order[own]
