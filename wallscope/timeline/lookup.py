"""Columns as arrays, and where numbers stand among others: rows found in another frame without a join."""

import itertools

import numpy as np
import polars as pl

from wallscope.timeline.nesting import Rows


def places(wanted: Rows, among: Rows) -> Rows:
    """The place of each wanted number among distinct others, -1 where it is not one of them.

    >>> places(np.array([7, 3, 5]), np.array([3, 7, 9])).tolist()
    [1, 0, -1]
    """
    if among.size == 0:
        return np.full(wanted.size, -1)
    if (among[1:] < among[:-1]).any():
        order = np.argsort(among, kind="stable")
        found = places(wanted, among[order])
        return np.where(found < 0, -1, order[found])
    first, last = int(among[0]), int(among[-1])
    if last - first + 1 == among.size:  # they follow one another
        return np.where((wanted >= first) & (wanted <= last), wanted.astype(np.int64) - first, -1)
    at = np.searchsorted(among, wanted).clip(0, among.size - 1)
    return np.where(among[at] == wanted, at, -1)


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


def filled(column: pl.Series, unknown: int = -1) -> Rows:
    """Whole numbers as an array, of an enumeration the places of its values; null as another number.

    Without a null the numbers are of the column's own type, which may be a byte: widen them to reckon.

    >>> filled(pl.Series(["b", None, "a"], dtype=pl.Enum(["a", "b"]))).tolist()
    [1, -1, 0]
    """
    nulls = column.null_count()
    if nulls == len(column):
        return np.full(nulls, unknown)
    values = column.to_physical() if isinstance(column.dtype, pl.Enum) else column
    if nulls:
        values = values.cast(pl.Int64).fill_null(unknown)
    return values.to_numpy()


def by_rank(rows: pl.DataFrame) -> dict[int, pl.DataFrame]:
    """The rows of each rank in their order: slices of the frame where it is sorted by `rank_id`."""
    rank = rows["rank_id"].to_numpy()
    if (rank[1:] < rank[:-1]).any():
        return by_rank(rows.sort("rank_id", maintain_order=True))
    edges = [0, *(np.flatnonzero(rank[1:] != rank[:-1]) + 1).tolist(), rank.size]
    return {int(rank[begin]): rows[begin:end] for begin, end in itertools.pairwise(edges) if end > begin}
