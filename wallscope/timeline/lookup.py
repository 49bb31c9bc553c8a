"""Columns as arrays, and where numbers stand among others: rows found in another frame without a join."""

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
    at = np.searchsorted(among, wanted).clip(0, among.size - 1)
    return np.where(among[at] == wanted, at, -1)


def filled(column: pl.Series, unknown: int = -1) -> Rows:
    """Whole numbers as an array, of an enumeration the places of its values; null as another number.

    >>> filled(pl.Series(["b", None, "a"], dtype=pl.Enum(["a", "b"]))).tolist()
    [1, -1, 0]
    """
    values = column.to_physical() if isinstance(column.dtype, pl.Enum) else column
    if values.null_count():
        values = values.cast(pl.Int64).fill_null(unknown)
    return values.to_numpy()
