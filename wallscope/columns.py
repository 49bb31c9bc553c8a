"""Columns of frames as arrays; what is one of a few is a small number, its place in an enumeration.

Where numbers stand among others: rows found in another frame without a join.
"""

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


def places(wanted: npt.NDArray[np.integer], among: npt.NDArray[np.integer]) -> Rows:
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


def are_among(wanted: Rows, chosen: Rows) -> Flags:
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


def within(
    numbers: npt.NDArray[np.int64], begins: npt.NDArray[np.int64], ends: npt.NDArray[np.int64]
) -> Flags:
    """Whether a stretch holds each of some numbers; both are in order, stretches end before the next begins.

    Quick where stretches are few: their bounds are sought among the numbers.

    >>> within(np.array([0, 3, 4, 8, 9]), np.array([0, 6]), np.array([4, 9])).tolist()
    [True, True, False, True, False]
    """
    bounds = np.column_stack([begins, ends]).ravel()
    passed = np.bincount(np.searchsorted(numbers, bounds), minlength=numbers.size + 1)
    return (np.cumsum(passed)[:-1] & 1).astype(np.bool_)


def rows_of(op: npt.NDArray[np.integer], wanted: npt.NDArray[np.integer]) -> tuple[Rows, Rows]:
    """The rows of wanted operations among some, and which of the wanted those are.

    >>> [found.tolist() for found in rows_of(np.array([2, 4]), np.array([4, 9, 1, 2]))]
    [[1, 0], [0, 3]]
    """
    row = places(wanted, op)
    held = np.flatnonzero(row >= 0)
    return row[held], held


def at_places(values: npt.NDArray[np.integer], places: npt.NDArray[np.integer], nothing: int) -> Rows:
    """The values at some places, `nothing` where a place is below 0.

    >>> at_places(np.array([5, 6]), np.array([1, -1]), 9).tolist()
    [6, 9]
    """
    found = np.full(places.size, nothing)
    held = np.flatnonzero(places >= 0)
    found[held] = values[places[held]]
    return found


def beside(values: npt.NDArray[np.integer], are_told: Flags, nothing: int = -1) -> npt.NDArray[np.integer]:
    """The values of those that something is told of, beside all of them; `nothing` for the others.

    >>> beside(np.array([5, 6]), np.array([True, False, True])).tolist()
    [5, -1, 6]
    """
    if values.size == are_told.size:
        return values
    found = np.full(are_told.size, nothing)
    found[are_told] = values
    return found


def flags(numbers: npt.NDArray[np.integer], count: int) -> Flags:
    """Whether each number below a count is among some."""
    found = np.zeros(count, np.bool_)
    found[numbers] = True
    return found
