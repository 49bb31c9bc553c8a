"""Columns from the rows of scanned events: plain numbers as they are, the few other values one by one."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, assert_never

import numpy as np
import polars as pl

from wallscope.kineto.event_columns import ArgumentType, convert_to_ns, spell_value

ABSENT, REAL, TEXT = -1, -3, -4
"""Marks of values: none, bits of a double, number of a text. From 0 on: a number with so many decimals."""
_MOST_WHOLE = 2**53
_MOST_DOUBLE_US = 2**43
NS_DECIMALS = 3
_MOST_DECIMALS = 18
_POWERS = 10 ** np.arange(_MOST_DECIMALS + 1)
"""Of ten; a double has each of them."""


@dataclass(frozen=True, slots=True)
class ScannedRows:
    """Rows of one kind, as `kernels.json_events` writes them.

    Args:
        rows: int64[n], all rows, in which only the marks above are left.
        starts: int64[row], where each begins.
        places: of each value in a row.
        strings: the texts that values stand for.
    """

    rows: np.ndarray
    starts: np.ndarray
    places: Mapping[str, int]
    strings: Sequence[str]

    def __len__(self) -> int:
        return len(self.starts)

    @property
    def phase(self) -> np.ndarray:
        """The letter of each event's phase, as its code."""
        return np.take(self.rows, self.starts + 1)

    @property
    def text(self) -> np.ndarray:
        """The number of each event's name."""
        return np.take(self.rows, self.starts + 2)

    def filter(self, is_kept: np.ndarray) -> "ScannedRows":
        """Return some of the rows."""
        return ScannedRows(self.rows, self.starts[is_kept], self.places, self.strings)

    def times_ns(self, name: str) -> tuple[pl.Series, bool]:
        """Return times in nanoseconds, and whether any has a fraction of a microsecond."""
        values, marks = self._values(name)
        if not marks.any() and np.abs(values).max(initial=0) < _MOST_WHOLE:
            return pl.Series(values * 1_000), False
        decimals = np.clip(marks, 0, NS_DECIMALS)
        ns = values * _POWERS[NS_DECIMALS - decimals]
        is_large = (np.abs(values) >= _MOST_WHOLE * _POWERS[decimals]) & (marks >= 0)
        odd = np.flatnonzero((marks > NS_DECIMALS) | is_large)
        found = _with_nulls(ns, marks == ABSENT)
        if len(odd):
            times = [
                _read_time(*pair) for pair in zip(values[odd].tolist(), marks[odd].tolist(), strict=True)
            ]
            found = found.scatter(odd, pl.Series(times, dtype=pl.Int64))
        return found, bool((found % 1_000 != 0).any())

    def numbers(self, name: str) -> pl.Series:
        """Return whole numbers; null otherwise."""
        values, marks = self._values(name)
        if not marks.any():
            return pl.Series(values)
        for place in np.flatnonzero(marks > 0).tolist():
            whole, rest = divmod(int(values[place]), 10 ** int(marks[place]))
            values[place], marks[place] = (whole, 0) if not rest else (0, ABSENT)
        return _with_nulls(values, marks == ABSENT)

    def reals(self, name: str) -> pl.Series:
        """Return numbers that are not negative; null otherwise."""
        values, marks = self._values(name)
        found = values / _POWERS[np.clip(marks, 0, _MOST_DECIMALS)]
        for place in np.flatnonzero(np.abs(values) >= _MOST_WHOLE).tolist():
            found[place] = int(values[place]) / 10 ** max(0, int(marks[place]))
        is_bits = marks == REAL
        found[is_bits] = values[is_bits].view(np.float64)
        return _with_nulls(found, (marks == ABSENT) | ~((found >= 0) & (found <= _MOST_WHOLE)))

    def texts(self, name: str) -> pl.Series:
        """Return texts; null without one."""
        values, marks = self._values(name)
        spelled: list[str | None] = [None] * len(values)
        for place in np.flatnonzero(marks != ABSENT).tolist():
            value, mark = int(values[place]), int(marks[place])
            spelled[place] = self.strings[value] if mark == TEXT else spell_value(_as_number(value, mark))
        return pl.Series(spelled, dtype=pl.String)

    def read(self, name: str, own_type: ArgumentType) -> pl.Series:
        """Return the values of an argument."""
        match own_type:
            case ArgumentType.WHOLE | ArgumentType.PRODUCT:
                return self.numbers(name)
            case ArgumentType.REAL:
                return self.reals(name)
            case ArgumentType.TEXT | ArgumentType.LIST:
                return self.texts(name)
        assert_never(own_type)

    def _values(self, name: str) -> tuple[np.ndarray, np.ndarray]:
        at = self.starts + self.places[name]
        return np.take(self.rows, at), np.take(self.rows, at + 1)


def _with_nulls(values: np.ndarray, is_null: np.ndarray) -> pl.Series:
    found = pl.Series(values)
    return found.set(pl.Series(is_null), None) if is_null.any() else found


def _as_number(value: int, mark: int) -> float:
    return value if mark == 0 else value / 10**mark


def _read_time(value: int, mark: int) -> int | None:
    """Return the nanoseconds of a time with many decimals, as of the number that a parser gives."""
    number = _as_number(value, mark)
    if mark and abs(number) >= _MOST_DOUBLE_US:
        digits = f"{abs(value):0{mark + 1}d}"
        return _time_of(f"{'-' * (value < 0)}{digits[:-mark]}.{digits[-mark:]}")
    return _time_of(number)


def _time_of(time: Any) -> int | None:
    ns: int | None = convert_to_ns([time])[0][0]
    return ns
