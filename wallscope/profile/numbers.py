"""Dense numbers in the place of keys: made once, then counted and summed by."""

import math

import numpy as np
import numpy.typing as npt

from wallscope.timeline.nesting import Rows
from wallscope.timeline.spans import Times

Flags = npt.NDArray[np.bool_]

_SPARSE, _FEW = 8, 1 << 16


def ranked(numbers: Rows, count: int) -> tuple[Rows, Rows]:
    """The distinct ones of some numbers below `count`, in order, and the place of each among them.

    >>> [found.tolist() for found in ranked(np.array([7, 2, 7]), 10)]
    [[2, 7], [1, 0, 1]]
    """
    if count > _SPARSE * numbers.size + _FEW:
        found, places = np.unique(numbers, return_inverse=True)
        return found, places
    is_there = np.zeros(count, np.bool_)
    is_there[numbers] = True
    found = np.flatnonzero(is_there)
    place = np.empty(count, np.int64)
    place[found] = np.arange(found.size)
    return found, place[numbers]


def grouped(sizes: tuple[int, ...], *columns: Rows) -> tuple[tuple[Rows, ...], Rows]:
    """The distinct rows of some columns of numbers, in order, and the place of each row among them.

    `sizes` are what the numbers of each column are below.

    >>> (found, other), places = grouped((9, 5), np.array([7, 2, 7]), np.array([1, 4, 1]))
    >>> found.tolist(), other.tolist(), places.tolist()
    ([2, 7], [4, 1], [1, 0, 1])
    """
    found, places = ranked(np.ravel_multi_index(columns, sizes), math.prod(sizes))
    return np.unravel_index(found, sizes), places


def distinct_rows(rows: Rows) -> tuple[Rows, Rows]:
    """The distinct rows of a table, in order of its columns, and the place of each among them."""
    order = np.lexsort(rows.T[::-1])
    in_order = rows[order]
    is_new = np.ones(len(rows), np.bool_)
    is_new[1:] = (in_order[1:] != in_order[:-1]).any(axis=1)
    place = np.empty(len(rows), np.int64)
    place[order] = np.cumsum(is_new) - 1
    return in_order[is_new], place


def at_places(values: npt.NDArray[np.integer], places: npt.NDArray[np.integer], nothing: int) -> Rows:
    """The values at some places, `nothing` where a place is below 0.

    >>> at_places(np.array([5, 6]), np.array([1, -1]), 9).tolist()
    [6, 9]
    """
    found = np.full(places.size, nothing)
    held = np.flatnonzero(places >= 0)
    found[held] = values[places[held]]
    return found


def rows_of(op: npt.NDArray[np.integer], wanted: npt.NDArray[np.integer]) -> tuple[Rows, Rows]:
    """The rows of wanted operations among some in order, and which of the wanted those are.

    >>> [found.tolist() for found in rows_of(np.array([2, 4]), np.array([4, 9, 1, 2]))]
    [[1, 0], [0, 3]]
    """
    if op.size == 0:
        return np.empty(0, np.int64), np.empty(0, np.int64)
    row = np.minimum(np.searchsorted(op, wanted), op.size - 1)
    held = np.flatnonzero(op[row] == wanted)
    return row[held], held


def flags(numbers: Rows, count: int) -> Flags:
    """Whether each number below a count is among some."""
    found = np.zeros(count, np.bool_)
    found[numbers] = True
    return found


def summed(group: Rows, values: Times, count: int) -> Times:
    """The sum of the values of each of so many groups, exact.

    >>> summed(np.array([2, 0, 2]), np.array([5, 1, 7]), 3).tolist()
    [1, 0, 12]
    """
    found = np.zeros(count, np.int64)
    np.add.at(found, group, values)
    return found
