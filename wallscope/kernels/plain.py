"""Stand-in for the module `cython` where the kernels run as plain Python and Cython is not installed.

Declarations of types mean nothing then; `compiled` is False.
"""

from collections.abc import Callable
from contextlib import nullcontext
from typing import TypeVar

_Any = TypeVar("_Any")


class _Type:
    """A C type, which only the compiler uses."""

    def __getitem__(self, _: object) -> "_Type":
        return self


class _NoGil(nullcontext[None]):
    """Both forms of `cython.nogil`: the context and the decorator."""

    def __call__(self, function: _Any) -> _Any:
        return function


compiled = False
const = schar = uchar = short = ushort = int = uint = longlong = ulonglong = _Type()  # noqa: A001  # cython's name
Py_ssize_t = double = bint = void = const
nogil = _NoGil()


def declare(_: object, value: _Any) -> _Any:
    """Return the value of a typed constant."""
    return value


def cast(_: object, value: _Any) -> _Any:
    """Return a value unchanged."""
    return value


def cclass(decorated: _Any) -> _Any:
    """Return a class or function unchanged."""
    return decorated


cfunc = inline = ccall = final = cclass


def exceptval(*_: object, **__: object) -> Callable[[_Any], _Any]:
    """Return a decorator that changes nothing."""
    return cclass
