"""Frozen dataclasses that share how they are compared, hashed, shown and frozen.

The standard decorator compiles these methods anew for each of some hundred classes, which takes a tenth of a
short command. What initializes a record is compiled with the first record of its class: most classes have
none in a command.
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
        if not _shares_methods(kind, options):
            return dataclasses.dataclass(kind, eq=eq, repr=repr, **options)
        own = vars(kind)
        is_slotted = options.get("slots", False)
        made = dataclasses.dataclass(kind, init=False, eq=False, repr=False, slots=is_slotted)
        made.__dataclass_params__.frozen = True
        made.__setattr__, made.__delattr__ = _refuse_to_set, _refuse_to_delete
        if "__init__" not in own:
            made.__init__ = _initialize
        if is_slotted and "__getstate__" not in own:
            made.__getstate__, made.__setstate__ = _list_values, _restore_values
        if repr and "__repr__" not in own:
            made.__repr__ = _represent
        if eq and "__eq__" not in own:
            made.__eq__ = _equal
            if "__hash__" not in own:
                made.__hash__ = _hash
        return made


def _shares_methods(kind: type, options: dict[str, bool]) -> bool:
    """Return whether a class is a frozen one without bases, and its parameters are its fields."""
    has_bases = any(dataclasses.is_dataclass(base) for base in kind.__mro__[1:])
    sets_later = any(isinstance(one, dataclasses.Field) and not one.init for one in vars(kind).values())
    return (
        options.get("frozen", False) and set(options) <= {"frozen", "slots"} and not (has_bases or sets_later)
    )


def _initialize(self: Any, /, *values: Any, **named: Any) -> None:
    """Compile what initializes the records of a class, and initialize the first."""
    kind: Any = next(one for one in type(self).__mro__ if "__dataclass_fields__" in vars(one))
    kind.__init__ = made = _compile_initializer(kind)
    made(self, *values, **named)


def _compile_initializer(kind: Any) -> Callable[..., None]:
    """Return what sets the fields of a record, as the standard decorator compiles it."""
    known: dict[str, Any] = {"_set": object.__setattr__, "_absent": object()}
    taken, named, lines = ["self"], list[str](), list[str]()
    for place, field in enumerate(dataclasses.fields(kind)):
        argument = value = field.name
        if field.default is not dataclasses.MISSING:
            known[f"_default_{place}"] = field.default
            argument += f"=_default_{place}"
        elif field.default_factory is not dataclasses.MISSING:
            known[f"_make_{place}"] = field.default_factory
            argument += "=_absent"
            value = f"_make_{place}() if {value} is _absent else {value}"
        (named if field.kw_only else taken).append(argument)
        lines.append(f"_set(self, {field.name!r}, {value})")
    if hasattr(kind, "__post_init__"):
        lines.append("self.__post_init__()")
    arguments = ", ".join([*taken, *(["*", *named] if named else [])])
    body = "\n ".join(lines or ["pass"])
    exec(f"def __init__({arguments}):\n {body}", known)  # noqa: S102  # as the standard decorator does
    made: Callable[..., None] = known["__init__"]
    made.__qualname__, made.__module__ = f"{kind.__qualname__}.__init__", kind.__module__
    return made


def _is_fixed(record: Any, name: str) -> bool:
    """Return whether an attribute cannot be set: only a class derived from a record adds some of its own."""
    kind: Any = type(record)
    return "__dataclass_fields__" in vars(kind) or name in kind.__dataclass_fields__


def _refuse_to_set(self: Any, name: str, value: Any) -> None:
    if _is_fixed(self, name):
        raise dataclasses.FrozenInstanceError(f"cannot assign to field {name!r}")
    object.__setattr__(self, name, value)


def _refuse_to_delete(self: Any, name: str) -> None:
    if _is_fixed(self, name):
        raise dataclasses.FrozenInstanceError(f"cannot delete field {name!r}")
    object.__delattr__(self, name)


def _list_values(self: Any) -> list[Any]:
    """Return the values of a record with slots, for `pickle`."""
    return [getattr(self, field.name) for field in dataclasses.fields(self)]


def _restore_values(self: Any, values: list[Any]) -> None:
    for field, value in zip(dataclasses.fields(self), values, strict=True):
        object.__setattr__(self, field.name, value)


@cache
def _compared(kind: Any) -> Callable[[Any], tuple[Any, ...]]:
    """Return what reads the values by which records of a class are compared."""
    names = [field.name for field in dataclasses.fields(kind) if field.compare]
    if len(names) > 1:
        return attrgetter(*names)
    return lambda record: tuple(getattr(record, name) for name in names)


def _read_compared(record: Any) -> tuple[Any, ...]:
    kind: Any = type(record)
    return _compared(kind)(record)


def _equal(self: Any, other: Any) -> Any:
    if type(other) is not type(self):
        return NotImplemented
    return _read_compared(self) == _read_compared(other)


def _hash(self: Any) -> int:
    return hash(_read_compared(self))


@recursive_repr()
def _represent(self: Any) -> str:
    shown = (
        f"{field.name}={getattr(self, field.name)!r}" for field in dataclasses.fields(self) if field.repr
    )
    return f"{type(self).__qualname__}({', '.join(shown)})"
