"""A kept answer as the analysis that it was: what `render.document` wrote, read back without loss."""

import json
from collections.abc import Callable, Mapping
from dataclasses import fields, is_dataclass
from enum import Enum
from functools import cache
from types import NoneType, UnionType
from typing import Any, Literal, Union, get_args, get_origin, get_type_hints

from wallscope.model.analysis import Analysis

_Reader = Callable[[Any], Any]


def decode_analysis(text: str) -> Analysis:
    """Return the answer that the text spells, which this very program wrote: nothing is checked."""
    found: Analysis = _reader(Analysis)(json.loads(text))
    return found


@cache
def _reader(kind: Any) -> _Reader:
    """Return what makes a value of a type from its JSON.

    >>> _reader(tuple[int, ...])([1, 2]), _reader(tuple[int, str] | None)(None)
    ((1, 2), None)
    """
    if is_dataclass(kind):
        return _of_dataclass(kind)
    origin, parts = get_origin(kind), get_args(kind)
    if origin in (Union, UnionType):
        (known,) = (_reader(part) for part in parts if part is not NoneType)
        return lambda plain: None if plain is None else known(plain)
    if origin is tuple:
        return _of_tuple(parts)
    if origin is Mapping:
        inner = _reader(parts[1])
        return lambda plain: {key: inner(value) for key, value in plain.items()}
    if isinstance(kind, type) and issubclass(kind, Enum):
        return kind
    if origin is Literal or kind in (str, int, float, bool):
        return lambda plain: plain
    raise TypeError(kind)


def _of_dataclass(kind: Any) -> _Reader:
    hints = get_type_hints(kind)
    readers = [(field.name, _reader(hints[field.name])) for field in fields(kind)]
    return lambda plain: kind(*(read(plain[name]) for name, read in readers))


def _of_tuple(parts: tuple[Any, ...]) -> _Reader:
    if parts[-1] is Ellipsis:
        each = _reader(parts[0])
        return lambda plain: tuple(map(each, plain))
    readers = [_reader(part) for part in parts]
    return lambda plain: tuple(read(value) for read, value in zip(readers, plain, strict=True))
