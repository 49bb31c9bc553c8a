"""Enumerations as places: what is one of a few is compared and looked up as a small number."""

from enum import StrEnum

import numpy as np
import numpy.typing as npt
import polars as pl

Places = npt.NDArray[np.integer]


def place(member: StrEnum) -> int:
    """The place of a member in its enumeration."""
    return list(type(member)).index(member)


def places(values: pl.Series) -> Places:
    """The place of each value in its enumeration (`pl.Enum`), -1 for null.

    >>> places(pl.Series(["b", None, "a"], dtype=pl.Enum(["a", "b"]))).tolist()
    [1, -1, 0]
    """
    found = values.to_physical().to_numpy()
    return np.nan_to_num(found, nan=-1).astype(np.int16) if values.null_count() else found


def members(kinds: type[StrEnum]) -> pl.Series:
    """The members by place; -1, the last, is null."""
    return pl.Series([*kinds, None], dtype=pl.Enum(kinds))
