"""Dense numbers looked up in a table: sorting and hashing would take most of the time of a replay."""

from typing import cast

import numpy as np
import numpy.typing as npt
import polars as pl

from wallscope.timeline.nesting import Rows


class Places:
    """Where numbers stand in a list that holds each of them once."""

    def __init__(self, listed: Rows) -> None:
        self._low = int(listed.min(initial=listed[:1].sum()))
        self._place = np.full(int(listed.max(initial=self._low)) - self._low + 2, -1, np.int32)
        self._place[listed - self._low] = np.arange(listed.size)

    def of(self, wanted: Rows) -> Rows:
        """The place of each number, -1 where it is not listed.

        >>> Places(np.array([7, 5])).of(np.array([5, 6, 7, 8, -1])).tolist()
        [1, -1, 0, -1, -1]
        """
        at = wanted.astype(np.int64) - self._low
        behind = self._place.size - 1
        return self._place[np.where((at >= 0) & (at < behind), at, behind)].astype(np.int64)


def are_among(wanted: Rows, chosen: Rows) -> npt.NDArray[np.bool_]:
    """Whether each number is one of some.

    >>> are_among(np.array([5, 6, 5]), np.array([9, 5])).tolist()
    [True, False, True]
    """
    if not wanted.size:
        return np.zeros(0, np.bool_)
    low, high = int(wanted.min()), int(wanted.max())
    found = np.zeros(high - low + 1, np.bool_)
    found[chosen[(chosen >= low) & (chosen <= high)] - low] = True
    return found[wanted - low]


def texts_of(values: pl.Series) -> pl.Series:
    """The texts of an enumeration, by their numbers.

    >>> texts_of(pl.Series(["b", "b"], dtype=pl.Enum(["a", "b"]))).to_list()
    ['a', 'b']
    """
    return cast("pl.Enum", values.dtype).categories
