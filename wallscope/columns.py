"""Columns of frames as arrays: coded, looked up, grouped and summed without a query."""

import math
from collections.abc import Iterator, Sequence
from enum import StrEnum
from typing import cast

import numpy as np
import numpy.typing as npt
import polars as pl

Rows = npt.NDArray[np.int64]
Flags = npt.NDArray[np.bool_]
Codes = npt.NDArray[np.integer]
_SIGNED: dict[pl.DataType, type[np.signedinteger]] = {
    pl.UInt8(): np.int8,
    pl.UInt16(): np.int16,
    pl.UInt32(): np.int32,
}


def encode_member(member: StrEnum) -> int:
    """The place of a member in its enumeration."""
    return list(type(member)).index(member)


def list_members(kinds: type[StrEnum]) -> pl.Series:
    """The members by place; -1, the last, is null."""
    return pl.Series([*kinds, None], dtype=pl.Enum(kinds))


def as_integers(column: pl.Series, unknown: int = -1) -> Rows:
    """Whole numbers as an array, of an enumeration the places of its values; null as another number.

    The numbers are as narrow as in the column, which may be a byte: widen them before arithmetic.

    >>> as_integers(pl.Series(["b", None, "a"], dtype=pl.Enum(["a", "b"]))).tolist()
    [1, -1, 0]
    """
    nulls = column.null_count()
    if nulls == len(column):
        return np.full(nulls, unknown)
    values = column.to_physical() if isinstance(column.dtype, pl.Enum) else column
    if not nulls:
        return values.to_numpy()
    signed = _SIGNED.get(values.dtype)
    if signed is not None and max(cast("int", values.max()), abs(unknown)) <= np.iinfo(signed).max:
        return values.fill_null(unknown % 2 ** np.iinfo(signed).bits).to_numpy().view(signed)
    return values.cast(pl.Int64).fill_null(unknown).to_numpy()


def as_texts(values: pl.Series) -> pl.Series:
    """The texts of an enumeration, by their numbers.

    >>> as_texts(pl.Series(["b", "b"], dtype=pl.Enum(["a", "b"]))).to_list()
    ['a', 'b']
    """
    return cast("pl.Enum", values.dtype).categories


def encode_column(texts: pl.Series) -> tuple[Rows, list[str]]:
    """Texts as numbers, -1 for none, and what each number stands for; those of an enumeration are its own.

    >>> encode_column(pl.Series(["b", None, "a", "b"]))
    (array([ 1, -1,  0,  1]), ['a', 'b'])
    """
    if texts.dtype != pl.Enum:
        texts = texts.cast(pl.Enum(sorted(text for text in texts.unique().to_list() if text is not None)))
    return as_integers(texts).astype(np.int64), as_texts(texts).to_list()


def number_values(texts: Sequence[str | None]) -> tuple[Rows, list[str]]:
    """Return the number of each of few texts, -1 for `None`, and the distinct texts in order.

    >>> number_values(["b", None, "a", "b"])
    (array([ 1, -1,  0,  1]), ['a', 'b'])
    """
    known = sorted({text for text in texts if text is not None})
    number: dict[str | None, int] = {text: place for place, text in enumerate(known)}
    return np.array([number.get(text, -1) for text in texts], np.int64), known


def find_places(wanted: npt.NDArray[np.integer], among: npt.NDArray[np.integer]) -> Rows:
    """The place of each wanted number among distinct others, -1 where it is not one of them.

    >>> find_places(np.array([7, 3, 5]), np.array([3, 7, 9])).tolist()
    [1, 0, -1]
    """
    if among.size == 0:
        return np.full(wanted.size, -1)
    if (among[1:] < among[:-1]).any():
        order = np.argsort(among, kind="stable")
        found = find_places(wanted, among[order])
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


def are_among(wanted: Rows, chosen: Codes) -> Flags:
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


def is_within(
    numbers: npt.NDArray[np.int64], begins: npt.NDArray[np.int64], ends: npt.NDArray[np.int64]
) -> Flags:
    """Return whether an interval contains each number; both are sorted, intervals are disjoint.

    Fast for few intervals: their bounds are searched among the numbers.

    >>> is_within(np.array([0, 3, 4, 8, 9]), np.array([0, 6]), np.array([4, 9])).tolist()
    [True, True, False, True, False]
    """
    bounds = np.column_stack([begins, ends]).ravel()
    passed = np.bincount(np.searchsorted(numbers, bounds), minlength=numbers.size + 1)
    return (np.cumsum(passed)[:-1] & 1).astype(np.bool_)


def keep_within(values: pl.Expr, least: int, most: int) -> pl.Expr:
    """Return the values that are possible, null for the others."""
    return pl.when(values.is_between(least, most)).then(values)


def match_rows(op: npt.NDArray[np.integer], wanted: npt.NDArray[np.integer]) -> tuple[Rows, Rows]:
    """The rows of wanted operations among some, and which of the wanted those are.

    >>> [found.tolist() for found in match_rows(np.array([2, 4]), np.array([4, 9, 1, 2]))]
    [[1, 0], [0, 3]]
    """
    row = find_places(wanted, op)
    held = np.flatnonzero(row >= 0)
    return row[held], held


def take_or(values: npt.NDArray[np.integer], places: npt.NDArray[np.integer], nothing: int) -> Rows:
    """The values at some places, `nothing` where a place is below 0.

    >>> take_or(np.array([5, 6]), np.array([1, -1]), 9).tolist()
    [6, 9]
    """
    found = np.full(places.size, nothing)
    held = np.flatnonzero(places >= 0)
    found[held] = values[places[held]]
    return found


def expand(values: npt.NDArray[np.integer], are_told: Flags, nothing: int = -1) -> npt.NDArray[np.integer]:
    """Return an array for all with the values of some; `nothing` for the others.

    >>> expand(np.array([5, 6]), np.array([True, False, True])).tolist()
    [5, -1, 6]
    """
    if values.size == are_told.size:
        return values
    found = np.full(are_told.size, nothing)
    found[are_told] = values
    return found


def mark_numbers(numbers: npt.NDArray[np.integer], count: int) -> Flags:
    """Whether each number below a count is among some."""
    found = np.zeros(count, np.bool_)
    found[numbers] = True
    return found


def list_numbers(numbers: npt.NDArray[np.integer]) -> Rows:
    """The numbers of rows of a table that occur, each once in order; -1 is none.

    >>> list_numbers(np.array([4, -1, 2, 4])).tolist()
    [2, 4]
    """
    held = numbers[numbers >= 0]
    return np.flatnonzero(mark_numbers(held, int(held.max(initial=-1)) + 1))


_NARROW = 1 << 16
_SPARSE, _FEW = 8, 1 << 16
_PAIR = 2


def iterate_runs(values: npt.NDArray[np.integer]) -> Iterator[tuple[int, slice]]:
    """Each run of one number with its rows.

    >>> [(value, rows.start, rows.stop) for value, rows in iterate_runs(np.array([4, 4, 7]))]
    [(4, 0, 2), (7, 2, 3)]
    >>> list(iterate_runs(np.array([], np.uint32)))
    []
    """
    edges = (np.flatnonzero(values[1:] != values[:-1]) + 1).tolist()
    for first, behind in zip([0, *edges], [*edges, values.size], strict=True):
        if behind > first:
            yield int(values[first]), slice(first, behind)


def iterate_groups(values: npt.NDArray[np.integer]) -> Iterator[tuple[int, Rows]]:
    """Each distinct number, none below 0, with its rows in order; numbers of 16 bits take linear time.

    >>> [(value, rows.tolist()) for value, rows in iterate_groups(np.array([7, 4, 7, 4, 4]))]
    [(4, [1, 3, 4]), (7, [0, 2])]
    """
    is_narrow = values.max(initial=0) < _NARROW
    order = np.argsort(values.astype(np.uint16) if is_narrow else values, kind="stable")
    for value, own in iterate_runs(values[order]):
        yield value, order[own]


def iterate_by_first(number: Rows) -> Iterator[tuple[int, Rows]]:
    """Each number that there is, in order of its first place, with all its places.

    >>> [(one, places.tolist()) for one, places in iterate_by_first(np.array([7, 3, 7]))]
    [(7, [0, 2]), (3, [1])]
    """
    in_order = np.argsort(number, kind="stable")
    found = [(value, in_order[own]) for value, own in iterate_runs(number[in_order])]
    yield from sorted(found, key=lambda one: int(one[1][0]))


def split_by_rank(rows: pl.DataFrame) -> dict[int, pl.DataFrame]:
    """The rows of each rank in their order: slices of the frame where it is sorted by `rank_id`."""
    rank = rows["rank_id"].to_numpy()
    if (rank[1:] < rank[:-1]).any():
        return split_by_rank(rows.sort("rank_id", maintain_order=True))
    return {number: rows[own] for number, own in iterate_runs(rank)}


def order_by_group(*keys: Rows) -> Rows:
    """The rows in order of small whole numbers, the first key first; rows with equal keys as they were.

    >>> order_by_group(np.array([1, 0, 1, 0]), np.array([2, 7, 1, 7])).tolist()
    [1, 3, 2, 0]
    """
    together = np.zeros(keys[0].size, np.int64)
    for key in keys:
        together = together * (int(key.max(initial=0)) + 1) + key
    narrow = np.min_scalar_type(int(together.max(initial=0)))  # two bytes are sorted in one pass
    return np.argsort(together.astype(narrow), kind="stable")


def combine_codes(sizes: tuple[int, ...], *columns: Rows) -> tuple[tuple[Rows, ...], Rows]:
    """The distinct rows of some columns of numbers, in order, and the place of each row among them.

    `sizes` are what the numbers of each column are below. Where a table of all combinations had more entries
    than there are rows, the combinations of the last columns are numbered first: they are few.

    >>> (found, other), places = combine_codes((9, 5), np.array([7, 2, 7]), np.array([1, 4, 1]))
    >>> found.tolist(), other.tolist(), places.tolist()
    ([2, 7], [4, 1], [1, 0, 1])
    """
    count = math.prod(sizes)
    if len(columns) > _PAIR and count > columns[0].size + _FEW:
        last, own = combine_codes(sizes[1:], *columns[1:])
        (first, row), places = combine_codes((sizes[0], last[0].size), columns[0], own)
        return (first, *(column[row] for column in last)), places
    together = columns[0].astype(np.int64)
    for size, column in zip(sizes[1:], columns[1:], strict=True):
        together *= size
        together += column
    found, places = number_densely(together)
    return np.unravel_index(found, sizes), places


def number_groups(*columns: npt.NDArray[np.integer]) -> Rows:
    """Return the group number of each row: rows of a group are equal in all columns, of which none is null.

    >>> number_groups(np.array([5, 5, 2, 5]), np.array([1, 2, 1, 1])).tolist()
    [1, 2, 0, 1]
    """
    _, found = number_densely(columns[0].astype(np.int64))
    for column in columns[1:]:
        distinct, own = number_densely(column.astype(np.int64))
        if distinct.size > 1:
            _, found = number_densely(found * distinct.size + own)
    return found


def number_alike_rows(rows: pl.DataFrame) -> Rows:
    """Return the group number of each row: rows of a group are equal in all number columns, nulls included.

    >>> number_alike_rows(pl.DataFrame({"a": [5, 5, 5], "b": [None, 0, None]})).tolist()
    [0, 1, 0]
    """
    return number_groups(*(part for column in rows for part in _list_codes(column)))


def _list_codes(column: pl.Series) -> Iterator[Codes]:
    """The numbers of a column, and which are null where some are."""
    yield as_integers(column)
    if column.has_nulls():
        yield column.is_null().to_numpy().astype(np.uint8)


def find_first_rows(group: Rows) -> Rows:
    """The first row of each group; groups are numbered from 0 on, none is left out.

    >>> find_first_rows(np.array([1, 0, 1])).tolist()
    [1, 0]
    """
    found = np.empty(int(group.max(initial=-1)) + 1, np.int64)
    found[group[::-1]] = np.arange(group.size)[::-1]
    return found


def number_densely(values: Rows) -> tuple[Rows, Rows]:
    """The distinct ones of some numbers, in order, and the place of each among them.

    By a table where they lie close to each other.

    >>> [found.tolist() for found in number_densely(np.array([-7, 2, -7]))]
    [[-7, 2], [0, 1, 0]]
    """
    low = int(values.min(initial=values[:1].sum()))
    span = int(values.max(initial=low)) - low + 1
    if span == 1:
        return values[:1], np.zeros(values.size, np.int64)
    if span > _SPARSE * values.size + _FEW:
        return np.unique(values, return_inverse=True)
    is_there = np.zeros(span, np.bool_)
    is_there[values - low] = True
    found = np.flatnonzero(is_there)
    place = np.empty(span, np.int64)
    place[found] = np.arange(found.size)
    return found + low, place[values - low]


def sort_distinct(numbers: Rows) -> Rows:
    """Return distinct numbers in order, which they almost have: `np.unique` takes ten times as long.

    >>> sort_distinct(np.array([2, 3, 3, 1])).tolist()
    [1, 2, 3]
    """
    found = np.sort(numbers, kind="stable")
    is_new = np.ones(found.size, np.bool_)
    is_new[1:] = found[1:] != found[:-1]
    return found[is_new]


def expand_counts(counts: Rows) -> tuple[Rows, Rows]:
    """So many rows for each place: the place of each row, and how many of its place stand before it.

    >>> [found.tolist() for found in expand_counts(np.array([2, 0, 3]))]
    [[0, 0, 2, 2, 2], [0, 1, 0, 1, 2]]
    """
    place = np.repeat(np.arange(counts.size), counts)
    return place, np.arange(place.size) - np.repeat(np.cumsum(counts) - counts, counts)


def count_before_in_group(group: Rows) -> Rows:
    """How many of its group stand before each row.

    >>> count_before_in_group(np.array([1, 2, 0, 1])).tolist()
    [0, 0, 0, 1]
    """
    in_order = np.argsort(group, kind="stable")
    begin = np.flatnonzero(np.diff(group[in_order], prepend=group[in_order][:1] - 1))
    found = np.empty(group.size, np.int64)
    found[in_order] = np.arange(group.size) - np.repeat(begin, np.diff(begin, append=group.size))
    return found


def select_distinct_rows(rows: Rows) -> tuple[Rows, Rows]:
    """The distinct rows of a table, in order of its columns, and the place of each among them."""
    order = np.lexsort(rows.T[::-1])
    in_order = rows[order]
    is_new = np.ones(len(rows), np.bool_)
    is_new[1:] = (in_order[1:] != in_order[:-1]).any(axis=1)
    place = np.empty(len(rows), np.int64)
    place[order] = np.cumsum(is_new) - 1
    return in_order[is_new], place


def sum_by_group(group: npt.NDArray[np.integer], values: Rows, count: int) -> Rows:
    """The sum of the values of each of so many groups, exact.

    >>> sum_by_group(np.array([2, 0, 2]), np.array([5, 1, 7]), 3).tolist()
    [1, 0, 12]
    """
    found = np.zeros(count, np.int64)
    np.add.at(found, group.astype(np.int64, copy=False), values)  # narrow numbers take a slow way
    return found


def split_rows(group: npt.NDArray[np.integer], count: int) -> tuple[Rows, npt.NDArray[np.int32]]:
    """The rows of each of so many groups in their order: offsets by group, and the rows.

    >>> [found.tolist() for found in split_rows(np.array([2, 0, 2]), 4)]
    [[0, 1, 1, 3, 3], [1, 0, 2]]
    """
    rows = np.argsort(group.astype(np.uint16) if count <= _NARROW else group, kind="stable")
    sizes = np.bincount(group, minlength=count)
    return np.concatenate(([0], np.cumsum(sizes))), rows.astype(np.int32)
