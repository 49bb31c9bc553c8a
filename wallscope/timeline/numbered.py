"""Rows of some operations laid beside all operations: operations are numbered from 0 without a gap."""

import numpy as np
import polars as pl


def by_operation(rows: pl.DataFrame, column: str, count: int) -> pl.Series:
    """A column of rows with a distinct `op` each, for the operations 0 to `count` - 1; null without a row."""
    place = np.full(count, -1, np.int64)
    place[rows["op"].to_numpy()] = np.arange(len(rows))
    at = pl.Series(place)
    return rows[column].gather(at.set(at < 0, None))
