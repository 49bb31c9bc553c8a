"""Numbers looked up in tables, and texts as numbers: sorting and hashing would take most of a replay."""

from collections.abc import Iterator
from typing import cast

import numpy as np
import numpy.typing as npt
import polars as pl

from wallscope.timeline.nesting import Rows

_LARGEST_TABLE = 16


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


def coded(texts: pl.Series) -> tuple[Rows, list[str]]:
    """Texts as numbers, -1 for none, and what each number stands for; those of an enumeration are its own.

    >>> coded(pl.Series(["b", None, "a", "b"]))
    (array([ 1, -1,  0,  1]), ['a', 'b'])
    """
    if texts.dtype != pl.Enum:
        texts = texts.cast(pl.Enum(sorted(text for text in texts.unique().to_list() if text is not None)))
    number = texts.to_physical().to_numpy()
    known = np.where(np.isnan(number), -1, number) if texts.null_count() else number
    return known.astype(np.int64), texts_of(texts).to_list()


def parts(number: Rows) -> Iterator[tuple[int, Rows]]:
    """Each number that there is, in order of its first place, with all its places.

    >>> [(one, places.tolist()) for one, places in parts(np.array([7, 3, 7]))]
    [(7, [0, 2]), (3, [1])]
    """
    in_order = np.argsort(number, kind="stable")
    edges = np.flatnonzero(np.diff(number[in_order])) + 1
    found = np.split(in_order, edges) if in_order.size else []
    for places in sorted(found, key=lambda one: int(one[0])):
        yield int(number[places[0]]), places


def groups(*columns: npt.NDArray[np.integer]) -> Rows:
    """The number of each row's group: rows are of one that are alike in all columns, which are not none.

    >>> groups(np.array([5, 5, 2, 5]), np.array([1, 2, 1, 1])).tolist()
    [1, 2, 0, 1]
    """
    found = _dense(columns[0].astype(np.int64))
    for column in columns[1:]:
        own = _dense(column.astype(np.int64))
        found = _dense(found * (own.max(initial=0) + 1) + own)
    return found


def _dense(values: Rows) -> Rows:
    """How many smaller values there are, each counted once; by a table where they lie close to each other."""
    low = int(values.min(initial=values[:1].sum()))
    span = int(values.max(initial=low)) - low + 1
    if span > _LARGEST_TABLE * (values.size + 1):
        return np.unique(values, return_inverse=True)[1].reshape(-1)
    is_there = np.zeros(span, np.int64)
    is_there[values - low] = 1
    found: Rows = (np.cumsum(is_there) - 1)[values - low]
    return found


def ordinals(group: Rows) -> Rows:
    """How many of its group stand before each row.

    >>> ordinals(np.array([1, 2, 0, 1])).tolist()
    [0, 0, 0, 1]
    """
    in_order = np.argsort(group, kind="stable")
    begin = np.flatnonzero(np.diff(group[in_order], prepend=group[in_order][:1] - 1))
    found = np.empty(group.size, np.int64)
    found[in_order] = np.arange(group.size) - np.repeat(begin, np.diff(begin, append=group.size))
    return found
