"""Conditions on settings, written as text: `KEY OPERATOR VALUE…`, judged true, false or unknown.

Numbers, versions and words compare as what they are. `KEY` may be a product (`a*b`), and so may the right
side of a comparison or of `divisible-by`, where it may name settings. Of a number that is not known a lookup
may still know the least that it can be, under its key and `LEAST`.
"""

import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from math import prod

from wallscope.model.configuration import Value

Judged = bool | None
Lookup = Callable[[str], tuple[bool, Value]]
"""Whether a key is known, and its value."""
LEAST = " at least"

_Number = int | float
_VERSION = re.compile(r"\d+\.\d+\.\d+")
_COMPARE: Mapping[str, Callable[[tuple[_Number, ...], tuple[_Number, ...]], bool]] = {
    "<": lambda left, right: left < right,
    "<=": lambda left, right: left <= right,
    ">": lambda left, right: left > right,
    ">=": lambda left, right: left >= right,
    "divisible-by": lambda left, right: right != (0,) and left[0] % right[0] == 0,
}
_DECIDED: Mapping[str, bool] = {"<": False, "<=": False, ">": True, ">=": True}
"""What a comparison says of all greater numbers too once it says so of the least."""
_ONE: Mapping[str, Callable[[str, tuple[str, ...]], bool]] = {
    "=": lambda value, words: value == words[0],
    "!=": lambda value, words: value != words[0],
    "in": lambda value, words: value in words,
    "not-in": lambda value, words: value not in words,
    "like": lambda value, words: any(word in value for word in words),
    "not-like": lambda value, words: not any(word in value for word in words),
    "starts": lambda value, words: any(value.startswith(word.replace("_", " ")) for word in words),
}
_MANY: Mapping[str, Callable[[set[str], set[str]], bool]] = {
    "has": lambda values, words: bool(values & words),
    "has-all": lambda values, words: words <= values,
    "lacks": lambda values, words: not values & words,
    "within": lambda values, words: values <= words,
    "empty": lambda values, _: not values,
    "not-empty": lambda values, _: bool(values),
}


@dataclass(frozen=True, slots=True)
class Condition:
    """One test of one key."""

    key: str
    operator: str
    words: tuple[str, ...]

    def judged(self, lookup: Lookup) -> Judged:
        """Whether it holds; `None` where a setting that it asks for is unknown."""
        if self.operator in _COMPARE:
            judged = self._compared(lookup)
            return self._bounded(lookup) if judged is None else judged
        known, value = lookup(self.key)
        if not known:
            return self._bounded(lookup)
        if self.operator in _MANY:
            return _MANY[self.operator](_words(value), set(self.words))
        return _ONE[self.operator](_word(value), self.words)

    def _compared(self, lookup: Lookup) -> Judged:
        left = _product(self.key, lookup)
        right = _product(self.words[0], lookup)
        if left is None or right is None:
            return None
        if not left or not right:
            return False
        width = max(len(left), len(right))
        return _COMPARE[self.operator](_padded(left, width), _padded(right, width))

    def _bounded(self, lookup: Lookup) -> Judged:
        """What the least that an unknown number can be decides already."""
        least = _least(self.key, lookup)
        if least is None:
            return None
        if self.operator in {"=", "!="}:
            (word,) = self.words
            is_out = not word.isdecimal() or int(word) < least
            return self.operator == "!=" if is_out else None
        right = _product(self.words[0], lookup) if self.operator in _COMPARE else None
        if not right:
            return None
        judged = _COMPARE[self.operator](_padded((least,), len(right)), right)
        return judged if judged is _DECIDED.get(self.operator) else None


Clause = tuple[Condition, ...]
"""Met by any one of its conditions."""


def condition(text: str) -> Condition:
    """Read one condition.

    >>> condition("recompute_modules lacks moe mlp")
    Condition(key='recompute_modules', operator='lacks', words=('moe', 'mlp'))

    Raises:
        ValueError: it has no known operator, or not the values that the operator takes.
    """
    key, operator, *words = text.split()
    many = operator in _MANY or operator in {"in", "not-in", "like", "not-like", "starts"}
    bare = operator in {"empty", "not-empty"}
    if operator not in {*_COMPARE, *_ONE, *_MANY} or bool(words) is bare or (len(words) > 1 and not many):
        raise ValueError(f"{text!r} is no condition")
    return Condition(key, operator, tuple(map(_lower, words)))


def clause(written: str | list[str]) -> Clause:
    """Read a condition, or a list of them that any one meets."""
    return tuple(map(condition, [written] if isinstance(written, str) else written))


def all_hold(clauses: Iterable[Clause], lookup: Lookup) -> Judged:
    """Whether every clause is met, as far as is known."""
    return _every([_some([one.judged(lookup) for one in each]) for each in clauses])


def _every(judged: list[Judged]) -> Judged:
    return False if False in judged else None if None in judged else True


def _some(judged: list[Judged]) -> Judged:
    return True if True in judged else None if None in judged else False


def _padded(numbers: tuple[_Number, ...], width: int) -> tuple[_Number, ...]:
    return numbers + (0,) * (width - len(numbers))


def _product(text: str, lookup: Lookup) -> tuple[_Number, ...] | None:
    """The product of numbers and settings, or a version; `()` of one that is none, `None` if unknown."""
    if _VERSION.match(text):
        return tuple(map(int, text.split(".")))
    factors: list[_Number] = []
    for name in text.split("*"):
        if name.isdecimal():
            factors.append(int(name))
            continue
        known, value = lookup(name)
        if not known:
            return None
        if isinstance(value, str) and (parts := re.match(r"\d+(\.\d+)+", value)):
            return tuple(map(int, parts[0].split(".")))
        if isinstance(value, str) and value.isdecimal():
            value = int(value)
        if isinstance(value, bool) or not isinstance(value, int | float):
            return ()
        factors.append(value)
    return (prod(factors),)


def _least(text: str, lookup: Lookup) -> int | None:
    """The least that a product of positive numbers can be; `None` where nothing bounds a factor."""
    factors = []
    for name in text.split("*"):
        known, value = lookup(name)
        if not known:
            known, value = lookup(name + LEAST)
        if isinstance(value, bool) or not isinstance(value, int) or value < 1:
            return None
        factors.append(value)
    return prod(factors)


def _word(value: Value) -> str:
    if isinstance(value, float) and value.is_integer():
        value = int(value)
    return _lower(str(value))


def _words(value: Value) -> set[str]:
    if value is None:
        return set()
    if isinstance(value, tuple):
        return {_word(item) for item in value}
    return set(map(_lower, str(value).replace(",", " ").split()))


def _lower(word: str) -> str:
    return word.lower()
