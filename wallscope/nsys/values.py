"""The values of records of an SQLite file, column by column.

The numbers beside the steps are sections of https://www.sqlite.org/fileformat2.html. Most columns of an
export are of one type in all records near each other: what lies between two others is taken at once then.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from itertools import accumulate, groupby

import numpy as np
import polars as pl

from wallscope.nsys.pages import Flat, Numbers, Records, UnusualError, long_varints, varints, view

NULL = -(2**63)
"""Stands for NULL among integers on the way; no time or id of an export is that small."""

_ONE_BYTE = np.arange(128)
_WIDTHS = np.where(
    _ONE_BYTE < 12, np.resize([0, 1, 2, 3, 4, 6, 8, 8, 0, 0, 0, 0], 128), (_ONE_BYTE - 12) // 2
)
"""Bytes of a value, for the serial types that fit in one byte (2.1)."""
_NULL_TYPE, _REAL_TYPE, _ONE_TYPE, _SHORTEST_TEXT = 0, 7, 9, 13
_BETWEEN = 0
"""A byte that texts seldom hold."""
_SHIFTS = (64 - 8 * _WIDTHS[: _ONE_TYPE + 1]) % 64
_CONSTANTS = np.array([NULL, 0, 0, 0, 0, 0, 0, 0, 0, 1])
"""The values of integer types that take no byte: NULL, zero, one."""


@dataclass(frozen=True, slots=True)
class Stored:
    """A wanted column as the schema tells: whether it is text or the row's number, what old rows have."""

    name: str
    is_text: bool
    is_row_number: bool
    default: int | None
    is_default_known: bool


@dataclass(frozen=True, slots=True)
class Layout:
    """The wanted columns by their places in a record, and how many columns the table has (2.3)."""

    wanted: Mapping[int, Stored]
    width: int


def decoded(found: Records, layout: Layout) -> dict[str, Numbers | pl.Series]:
    """The values of records, of the wanted columns."""
    starts = found.starts
    header_bytes = found.flat.take(starts)
    shortest = int(header_bytes.min())
    if not 2 <= shortest <= header_bytes.max() <= 127:
        raise UnusualError("a record has a long header, or an empty one, which SQLite takes for damage")
    # 2.1: the types stand in the header, one behind the other, and so do the values behind it
    header_ends = starts + header_bytes
    count = max(layout.wanted) + 1
    types = _short_types(found.flat, starts + 1, count) if shortest > count else None
    if types is not None:
        type_at = starts + 1 + count
        values, value_at = _by_stretches(found, header_ends, types, layout)
    else:
        values, type_at, value_at = _one_by_one(found, starts + 1, header_ends, layout)
    goes_on = (type_at < header_ends) & (value_at <= found.ends)
    is_complete = (type_at == header_ends) & (value_at == found.ends)
    if not (goes_on | is_complete).all():
        raise UnusualError("a record is not as long as it says")
    return values


def _short_types(flat: Flat, at: Numbers, count: int) -> list[Flat] | None:
    """The first types of each record, of a column but one where all are alike; `None` if some are long."""
    words_a_row = -(-count // 8)
    headers = view(flat, f"V{8 * words_a_row}")[at]
    words = headers.view(np.uint64).reshape(-1, words_a_row)
    some, every = (
        gathered.reduce(words, axis=0).view(np.uint8)[:count] for gathered in (np.bitwise_or, np.bitwise_and)
    )
    if some.max() > 127:
        return None
    by_row = headers.view(np.uint8).reshape(len(at), -1)
    return [
        some[place : place + 1] if some[place] == every[place] else by_row[:, place].copy()
        for place in range(count)
    ]


def _by_stretches(
    found: Records, at: Numbers, types: list[Flat], layout: Layout
) -> tuple[dict[str, Numbers | pl.Series], Numbers]:
    """The values by the types of columns, and where those behind begin."""
    values: dict[str, Numbers | pl.Series] = {}
    for is_alike, of_columns in groupby(enumerate(types), key=lambda column: len(column[1]) == 1):
        if is_alike:
            found_here, at = _stretch(found, at, dict(of_columns), layout)
            values |= found_here
            continue
        for place, own in of_columns:
            if column := layout.wanted.get(place):
                values[column.name] = _values(found, at, own, column)
            at = at + _widths(own)  # not in place: whoever asked holds them
    return values, at


def _stretch(
    found: Records, at: Numbers, type_of: Mapping[int, Flat], layout: Layout
) -> tuple[dict[str, Numbers | pl.Series], Numbers]:
    """The values of columns of one type each, that stand side by side, and where those behind begin."""
    widths = {place: int(_WIDTHS[types[0]]) for place, types in type_of.items()}
    *begins, width = accumulate(widths.values(), initial=0)
    offset_of = dict(zip(type_of, begins, strict=True))
    wanted = {place: layout.wanted[place] for place in type_of if place in layout.wanted}
    numbers = [
        place
        for place, column in wanted.items()
        if widths[place] and type_of[place][0] < _REAL_TYPE and not (column.is_text or column.is_row_number)
    ]
    values: dict[str, Numbers | pl.Series] = {}
    if numbers:
        first = offset_of[numbers[0]]
        held = view(found.flat, f"V{offset_of[numbers[-1]] - first + 8}")[at + first]
        for place in numbers:
            words = np.ndarray(len(at), ">i8", held, offset_of[place] - first, held.strides)
            own = words.astype(np.int64)
            own >>= _SHIFTS[type_of[place][0]]
            values[wanted[place].name] = own
    for place, column in wanted.items():
        if column.name not in values:
            values[column.name] = _values(found, at + offset_of[place], type_of[place], column)
    return values, at + width


def _one_by_one(
    found: Records, type_at: Numbers, header_ends: Numbers, layout: Layout
) -> tuple[dict[str, Numbers | pl.Series], Numbers, Numbers]:
    """The values, and where the types and values behind begin; columns may be absent, types of any length."""
    flat, value_at = found.flat, header_ends
    # a type takes a byte or more, the length itself one
    may_be_short = (header_ends - type_at).min() < layout.width
    values: dict[str, Numbers | pl.Series] = {}
    for place in range(max(layout.wanted) + 1):
        types, behind = varints(flat, type_at)
        absent = type_at >= header_ends if may_be_short else None
        if absent is not None and absent.any():
            types, behind = np.where(absent, _NULL_TYPE, types), np.where(absent, type_at, behind)
        if column := layout.wanted.get(place):
            values[column.name] = _values(found, value_at, types, column)
            if absent is not None and not column.is_row_number:
                _set_default(values[column.name], absent, column)
        type_at, value_at = behind, value_at + _widths(types)
        if types.max() > 127 and (value_at > found.ends).any():
            raise UnusualError("a value reaches out of its record")
    return values, type_at, value_at


def _values(found: Records, at: Numbers, types: Numbers | Flat, column: Stored) -> Numbers | pl.Series:
    """The values of a column from their places and types."""
    if column.is_row_number:
        return _row_numbers(found, types, column)
    if column.is_text:
        return _texts(found.flat, at, types)
    return _integers(view(found.flat, ">i8"), at, types)


def text(raw: bytes) -> str:
    """Text of an export; those made on Windows hold bytes that are no UTF-8."""
    return raw.decode("utf-8", "replace")


def _row_numbers(found: Records, types: Numbers | Flat, column: Stored) -> Numbers:
    """The numbers of the rows, for which a record holds NULL (2.3)."""
    if column.is_text or types.any():
        raise UnusualError(f"column {column.name} is no row number")
    return long_varints(found.flat, found.row_numbers_at)


def _set_default(values: Numbers | pl.Series, absent: np.typing.NDArray[np.bool_], column: Stored) -> None:
    """Rows from before a column was added hold nothing for it, and read as its default (2.3)."""
    if not column.is_default_known and absent.any():
        raise UnusualError(f"column {column.name} was added later")
    if column.default is not None and isinstance(values, np.ndarray):
        values[absent] = column.default


def _integers(words: Numbers, at: Numbers, types: Numbers | Flat) -> Numbers:
    """Integers of up to eight bytes: the first of eight bytes, shifted down (2.1)."""
    low, high = int(types.min()), int(types.max())
    if high > _ONE_TYPE or (low <= _REAL_TYPE <= high and (types == _REAL_TYPE).any()):
        raise UnusualError("a value is no integer")
    if low == high and not _WIDTHS[low]:
        return np.full(len(at), _CONSTANTS[low])
    numbers = words[at].astype(np.int64)
    numbers >>= _SHIFTS[low] if low == high else _SHIFTS.take(types)
    if low == _NULL_TYPE or high > _REAL_TYPE:
        bare = np.flatnonzero((types == _NULL_TYPE) | (types > _REAL_TYPE))
        numbers[bare] = _CONSTANTS.take(types[bare])
    return numbers


def _texts(flat: Flat, at: Numbers, types: Numbers | Flat) -> pl.Series:
    """Texts, each as long as its type tells (2.1)."""
    is_null = np.broadcast_to(types == _NULL_TYPE, len(at))
    if is_null.all():
        return pl.Series([None], dtype=pl.String).new_from_index(0, len(at))
    if (~is_null & ((types < _SHORTEST_TEXT) | (types % 2 == 0))).any():
        raise UnusualError("a value is no text")
    rows = np.flatnonzero(~is_null)
    lengths = np.broadcast_to(_widths(types), len(at))[rows]
    told = _split(flat, at[rows], lengths)
    if len(rows) == len(at):
        return told
    place = np.cumsum(~is_null) - 1
    return told.gather(pl.Series(place).set(pl.Series(is_null), None))


def _split(flat: Flat, at: Numbers, lengths: Numbers) -> pl.Series:
    """Texts of so many bytes each, taken together and split where polars finds what stands between them."""
    behind = np.cumsum(lengths + 1)
    taken = np.arange(behind[-1])
    taken += np.repeat(at - (behind - lengths - 1), lengths + 1)
    together = flat.take(taken, mode="clip")  # one byte too many of each, which is overwritten
    together[behind - 1] = _BETWEEN
    if np.count_nonzero(together == _BETWEEN) == len(at):
        try:
            joined = together[:-1].tobytes().decode()
        except UnicodeDecodeError:
            pass
        else:
            return pl.Series([joined]).str.split(chr(_BETWEEN)).explode()
    raw = flat.tobytes()
    spans = zip(at.tolist(), (at + lengths).tolist(), strict=True)
    return pl.Series([text(raw[start:end]) for start, end in spans], dtype=pl.String)


def _widths(types: Numbers | Flat) -> Numbers | int:
    """Bytes of values by their serial types (2.1)."""
    low, high = int(types.min()), int(types.max())
    if high > 127:
        return np.where(types < 12, _WIDTHS.take(np.minimum(types, 11)), (types.astype(np.int64) - 12) // 2)
    return int(_WIDTHS[low]) if low == high else _WIDTHS.take(types)
