"""Frozen dataclasses that share how they are compared, hashed and shown.

The standard decorator compiles these methods anew for each of some hundred classes, which takes a tenth of a
short command.
"""

import dataclasses
from collections.abc import Callable
from functools import cache
from operator import attrgetter
from reprlib import recursive_repr
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from dataclasses import dataclass as dataclass  # noqa: PLC0414  # what type checkers know of it holds
else:

    def dataclass(kind: type | None = None, /, *, eq: bool = True, repr: bool = True, **options: bool) -> Any:  # noqa: A002  # names of the standard library
        """Return the class as `dataclasses.dataclass` makes it; a frozen one shares its methods."""
        if kind is None:
            return lambda decorated: dataclass(decorated, eq=eq, repr=repr, **options)
        if not options.get("frozen") or options.get("order"):
            return dataclasses.dataclass(kind, eq=eq, repr=repr, **options)
        own = vars(kind)
        made = dataclasses.dataclass(kind, eq=False, repr=False, **options)
        if repr and "__repr__" not in own:
            made.__repr__ = _show
        if eq and "__eq__" not in own:
            made.__eq__ = _equal
            if "__hash__" not in own:
                made.__hash__ = _hash
        return made


@cache
def _compared(kind: Any) -> Callable[[Any], tuple[Any, ...]]:
    """Return what reads the values by which records of a class are compared."""
    names = [field.name for field in dataclasses.fields(kind) if field.compare]
    if len(names) > 1:
        return attrgetter(*names)
    return lambda record: tuple(getattr(record, name) for name in names)


def _read(record: Any) -> tuple[Any, ...]:
    kind: Any = type(record)
    return _compared(kind)(record)


def _equal(self: Any, other: Any) -> Any:
    if type(other) is not type(self):
        return NotImplemented
    return _read(self) == _read(other)


def _hash(self: Any) -> int:
    return hash(_read(self))


@recursive_repr()
def _show(self: Any) -> str:
    shown = (
        f"{field.name}={getattr(self, field.name)!r}" for field in dataclasses.fields(self) if field.repr
    )
    return f"{type(self).__qualname__}({', '.join(shown)})"
