"""Rows that are alike: found, numbered, counted and summed by, without a query."""

import math
from collections.abc import Iterator

import numpy as np
import numpy.typing as npt
import polars as pl

from wallscope.columns import Codes, Rows, filled

_NARROW = 1 << 16
_SPARSE, _FEW = 8, 1 << 16


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


def parts(number: Rows) -> Iterator[tuple[int, Rows]]:
    """Each number that there is, in order of its first place, with all its places.

    >>> [(one, places.tolist()) for one, places in parts(np.array([7, 3, 7]))]
    [(7, [0, 2]), (3, [1])]
    """
    in_order = np.argsort(number, kind="stable")
    found = [(value, in_order[own]) for value, own in runs(number[in_order])]
    yield from sorted(found, key=lambda one: int(one[1][0]))


def by_rank(rows: pl.DataFrame) -> dict[int, pl.DataFrame]:
    """The rows of each rank in their order: slices of the frame where it is sorted by `rank_id`."""
    rank = rows["rank_id"].to_numpy()
    if (rank[1:] < rank[:-1]).any():
        return by_rank(rows.sort("rank_id", maintain_order=True))
    return {number: rows[own] for number, own in runs(rank)}


def ordered_by(*keys: Rows) -> Rows:
    """The rows in order of small whole numbers, the first key first; rows with equal keys as they were.

    >>> ordered_by(np.array([1, 0, 1, 0]), np.array([2, 7, 1, 7])).tolist()
    [1, 3, 2, 0]
    """
    together = np.zeros(keys[0].size, np.int64)
    for key in keys:
        together = together * (int(key.max(initial=0)) + 1) + key
    narrow = np.min_scalar_type(int(together.max(initial=0)))  # two bytes are sorted in one pass
    return np.argsort(together.astype(narrow), kind="stable")


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


def combined(sizes: tuple[int, ...], *columns: Rows) -> tuple[tuple[Rows, ...], Rows]:
    """The distinct rows of some columns of numbers, in order, and the place of each row among them.

    `sizes` are what the numbers of each column are below.

    >>> (found, other), places = combined((9, 5), np.array([7, 2, 7]), np.array([1, 4, 1]))
    >>> found.tolist(), other.tolist(), places.tolist()
    ([2, 7], [4, 1], [1, 0, 1])
    """
    found, places = ranked(np.ravel_multi_index(columns, sizes), math.prod(sizes))
    return np.unravel_index(found, sizes), places


def groups(*columns: npt.NDArray[np.integer]) -> Rows:
    """The number of each row's group: rows are of one that are alike in all columns, which are not none.

    >>> groups(np.array([5, 5, 2, 5]), np.array([1, 2, 1, 1])).tolist()
    [1, 2, 0, 1]
    """
    _, found = dense(columns[0].astype(np.int64))
    for column in columns[1:]:
        distinct, own = dense(column.astype(np.int64))
        if distinct.size > 1:
            _, found = dense(found * distinct.size + own)
    return found


def alike(rows: pl.DataFrame) -> Rows:
    """The number of each row's group: rows are of one that are alike in all columns of numbers, nulls too.

    >>> alike(pl.DataFrame({"a": [5, 5, 5], "b": [None, 0, None]})).tolist()
    [0, 1, 0]
    """
    return groups(*(part for column in rows for part in _known(column)))


def _known(column: pl.Series) -> Iterator[Codes]:
    """The numbers of a column, and which are null where some are."""
    yield filled(column)
    if column.has_nulls():
        yield column.is_null().to_numpy().astype(np.uint8)


def firsts(group: Rows) -> Rows:
    """The first row of each group; groups are numbered from 0 on, none is left out.

    >>> firsts(np.array([1, 0, 1])).tolist()
    [1, 0]
    """
    found = np.empty(int(group.max(initial=-1)) + 1, np.int64)
    found[group[::-1]] = np.arange(group.size)[::-1]
    return found


def dense(values: Rows) -> tuple[Rows, Rows]:
    """The distinct ones of some numbers, in order, and the place of each among them.

    By a table where they lie close to each other.

    >>> [found.tolist() for found in dense(np.array([-7, 2, -7]))]
    [[-7, 2], [0, 1, 0]]
    """
    low = int(values.min(initial=values[:1].sum()))
    span = int(values.max(initial=low)) - low + 1
    if span == 1:
        return values[:1], np.zeros(values.size, np.int64)
    if span > _SPARSE * values.size + _FEW:
        return np.unique(values, return_inverse=True)
    found, places = ranked(values - low, span)
    return found + low, places


def spread(counts: Rows) -> tuple[Rows, Rows]:
    """So many rows for each place: the place of each row, and how many of its place stand before it.

    >>> [found.tolist() for found in spread(np.array([2, 0, 3]))]
    [[0, 0, 2, 2, 2], [0, 1, 0, 1, 2]]
    """
    place = np.repeat(np.arange(counts.size), counts)
    return place, np.arange(place.size) - np.repeat(np.cumsum(counts) - counts, counts)


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


def distinct_rows(rows: Rows) -> tuple[Rows, Rows]:
    """The distinct rows of a table, in order of its columns, and the place of each among them."""
    order = np.lexsort(rows.T[::-1])
    in_order = rows[order]
    is_new = np.ones(len(rows), np.bool_)
    is_new[1:] = (in_order[1:] != in_order[:-1]).any(axis=1)
    place = np.empty(len(rows), np.int64)
    place[order] = np.cumsum(is_new) - 1
    return in_order[is_new], place


def summed(group: npt.NDArray[np.integer], values: Rows, count: int) -> Rows:
    """The sum of the values of each of so many groups, exact.

    >>> summed(np.array([2, 0, 2]), np.array([5, 1, 7]), 3).tolist()
    [1, 0, 12]
    """
    found = np.zeros(count, np.int64)
    np.add.at(found, group.astype(np.int64, copy=False), values)  # narrow numbers take a slow way
    return found


def rows_by(group: npt.NDArray[np.integer], count: int) -> tuple[Rows, npt.NDArray[np.int32]]:
    """The rows of each of so many groups in their order: offsets by group, and the rows.

    >>> [found.tolist() for found in rows_by(np.array([2, 0, 2]), 4)]
    [[0, 1, 1, 3, 3], [1, 0, 2]]
    """
    rows = np.argsort(group.astype(np.uint16) if count <= _NARROW else group, kind="stable")
    sizes = np.bincount(group, minlength=count)
    return np.concatenate(([0], np.cumsum(sizes))), rows.astype(np.int32)
