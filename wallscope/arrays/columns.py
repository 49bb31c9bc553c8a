"""Columns of frames as arrays; what is one of a few is a small number, its place in an enumeration."""

from collections.abc import Sequence
from enum import StrEnum
from typing import cast

import numpy as np
import numpy.typing as npt
import polars as pl

Rows = npt.NDArray[np.int64]
Flags = npt.NDArray[np.bool_]
Codes = npt.NDArray[np.integer]


def place(member: StrEnum) -> int:
    """The place of a member in its enumeration."""
    return list(type(member)).index(member)


def members(kinds: type[StrEnum]) -> pl.Series:
    """The members by place; -1, the last, is null."""
    return pl.Series([*kinds, None], dtype=pl.Enum(kinds))


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
    return filled(texts).astype(np.int64), texts_of(texts).to_list()


def numbered(texts: Sequence[str | None]) -> tuple[Rows, list[str]]:
    """The same of few texts, without a query.

    >>> numbered(["b", None, "a", "b"])
    (array([ 1, -1,  0,  1]), ['a', 'b'])
    """
    told = sorted({text for text in texts if text is not None})
    number: dict[str | None, int] = {text: place for place, text in enumerate(told)}
    return np.array([number.get(text, -1) for text in texts], np.int64), told
