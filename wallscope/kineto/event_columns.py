"""Columns from values of events, which have the usual type almost always, and any type otherwise."""

from collections.abc import Iterable
from decimal import Decimal, InvalidOperation
from enum import Enum, auto
from types import NoneType
from typing import Any

import msgspec
import numpy as np
import polars as pl

from wallscope.kineto.event_structs import decode_list

_INT64 = range(-(2**63), 2**63)
_LARGEST_US = 2**53  # 285 years
_INTEGERS, _REALS, _TEXTS = {int, NoneType}, {int, float, NoneType}, {str, NoneType}


class ArgumentType(Enum):
    """What an argument is: a whole number, a list of sizes whose product counts, ..."""

    WHOLE = auto()
    PRODUCT = auto()
    REAL = auto()
    TEXT = auto()
    LIST = auto()


def convert_to_ns(times: list[Any]) -> tuple[pl.Series, bool]:
    """Return microseconds as integer nanoseconds, null if invalid, and whether any has a fraction.

    >>> values, is_fine = convert_to_ns(["1712195000000000.485", "68.0", -7, "", "1e3", '"0.5"'])
    >>> values.to_list(), is_fine
    ([1712195000000000485, 68000, -7000, None, 1000000, 500], True)
    >>> convert_to_ns([4458676416788.066, -0.5])[0].to_list()
    [4458676416788066, -500]
    """
    kinds = set(map(type, times))
    if kinds <= {int, float} and kinds:
        if max(map(abs, times)) > _LARGEST_US:
            pass  # some are invalid
        elif kinds == {int}:
            return pl.Series(times, dtype=pl.Int64) * 1_000, False
        else:
            return _round_to_ns(np.array(times, np.float64))
    return _parse_ns(times)


def _round_to_ns(times_us: np.ndarray) -> tuple[pl.Series, bool]:
    """Return nanoseconds; a double is exact if it is whole or below `event_structs`'s limit."""
    whole = np.floor(np.abs(times_us))
    thousandths = np.floor((np.abs(times_us) - whole) * 1_000 + 0.5).astype(np.int64)
    ns = np.where(times_us < 0, -1, 1) * (whole.astype(np.int64) * 1_000 + thousandths)
    return pl.Series("ns", ns), bool((ns % 1_000).any())


def _parse_ns(times: list[Any]) -> tuple[pl.Series, bool]:
    texts = pl.Series("time", [None if one is None else str(one) for one in times], dtype=pl.String)
    split = pl.col("time").str.strip_chars('" ').str.split_exact(".", 1)
    tenths = split.struct[1].fill_null("").str.pad_end(4, "0").str.slice(0, 4)
    frame = texts.to_frame().select(
        whole=split.struct[0].cast(pl.Int64, strict=False),
        thousandths=(tenths.cast(pl.UInt16, strict=False).cast(pl.Int64) + 5) // 10,
        sign=pl.when(pl.col("time").str.contains("-", literal=True)).then(-1).otherwise(1),
    )
    told = frame.select(
        ns=pl.when(pl.col("whole").abs() <= _LARGEST_US).then(
            pl.col("whole") * 1_000 + pl.col("sign") * pl.col("thousandths")
        )
    )["ns"]
    is_fine = bool((told % 1_000 != 0).any())
    if told.null_count():
        values = [
            _reckon_ns(text) if value is None else value for value, text in zip(told, texts, strict=True)
        ]
        told = pl.Series("ns", values, dtype=pl.Int64)
    return told, is_fine


def _reckon_ns(text: str | None) -> int | None:
    try:
        microseconds = Decimal((text or "").strip('" '))
    except InvalidOperation:
        return None
    if not microseconds.is_finite() or abs(microseconds) > _LARGEST_US:
        return None
    return round(microseconds * 1_000)


def collect_numbers(values: list[Any]) -> pl.Series:
    """Return whole numbers, also those spelled as text; null otherwise."""
    if set(map(type, values)) <= _INTEGERS:
        try:
            return pl.Series(values, dtype=pl.Int64)
        except (OverflowError, TypeError):
            pass  # some are too large
    return pl.Series(list(map(read_whole, values)), dtype=pl.Int64)


def collect_reals(values: list[Any]) -> pl.Series:
    """Return numbers that are not negative, also those spelled as text; null otherwise."""
    if set(map(type, values)) <= _REALS:
        try:
            found = pl.Series(values, dtype=pl.Float64, strict=False)
        except (OverflowError, TypeError):
            pass  # some are too large
        else:
            return found.set(~found.is_between(0, _LARGEST_US), None)
    return pl.Series(list(map(read_real, values)), dtype=pl.Float64)


def collect_texts(values: list[Any]) -> pl.Series:
    """Return texts, also of lists and numbers."""
    if not set(map(type, values)) <= _TEXTS:
        values = list(map(spell_value, values))
    return pl.Series(values, dtype=pl.String)


def collect_lists(values: Iterable[msgspec.Raw]) -> pl.Series:
    """Return lists as JSON without spaces; null otherwise."""
    return pl.Series(list(map(spell_list, values)), dtype=pl.String)


def collect_products(values: Iterable[Any]) -> pl.Series:
    """Return the products of lists of sizes; null otherwise."""
    return collect_numbers(list(map(read_product, values)))


def read_whole(value: Any) -> int | None:
    """Return a whole number, also one spelled as text; `None` for another value."""
    if isinstance(value, str) and len(value) < 20 and value.lstrip("-").isdecimal():
        value = int(value)
    if isinstance(value, float) and value.is_integer():
        value = int(value)
    is_number = isinstance(value, int) and not isinstance(value, bool)
    return value if is_number and value in _INT64 else None


def read_real(value: Any) -> float | None:
    """Return a number that is not negative, also one spelled as text; `None` for another value."""
    if isinstance(value, str):
        try:
            value = float(value)
        except ValueError:
            return None
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    return float(value) if is_number and 0 <= value <= _LARGEST_US else None


def read_product(value: Any) -> int | None:
    """Return the product of a list of sizes; `None` for another value."""
    if not isinstance(value, list):
        return None
    product = 1
    for one in value:
        size = one if type(one) is int else read_whole(one)
        if size is None or size < 0:
            return None
        product *= size
    return product


def spell_list(text: msgspec.Raw) -> str | None:
    """Return a list as JSON without spaces; `None` for another value."""
    found = decode_list(text)
    return None if found is None else msgspec.json.encode(found).decode()


def spell_value(value: Any) -> str | None:
    """Return a text, also of a list or number."""
    if isinstance(value, list):
        return f"[{', '.join(map(str, value))}]"
    return value if isinstance(value, str) else None if value is None else str(value)
