"""Conditions `KEY OPERATOR VALUE…`, evaluated to true, false or unknown.

Fixes, preconditions and the checklist of `wallscope advise` use them. Numbers, versions and words compare by
their type, words without regard to case. `KEY` may be a product (`a*b`). So may the right side of a
comparison or of `divisible-by`, which may also name settings. For an unknown number, a lookup may have a
lower bound under its key and `LOWER_BOUND`.
"""

import re
from collections.abc import Callable, Iterable, Mapping
from math import prod

from wallscope.model.advice import Value
from wallscope.records import dataclass

_BETWEEN_WORDS = re.compile(r"[-_ ]")
Outcome = bool | None
Lookup = Callable[[str], tuple[bool, Value]]
"""Whether a key is known, and its value."""
LOWER_BOUND = " at least"

_Number = int | float
_NUMBER = re.compile(r"\d+(\.\d+)?")
_VERSION = re.compile(r"\d+\.\d+\.\d+")
_COMPARE: Mapping[str, Callable[[tuple[_Number, ...], tuple[_Number, ...]], bool]] = {
    "<": lambda left, right: left < right,
    "<=": lambda left, right: left <= right,
    ">": lambda left, right: left > right,
    ">=": lambda left, right: left >= right,
    "equals": lambda left, right: left == right,
    "divisible-by": lambda left, right: right != (0,) and left[0] % right[0] == 0,
}
_SETTLED_BY_BOUND: Mapping[str, bool] = {"<": False, "<=": False, ">": True, ">=": True}
"""The outcome that holds for all larger numbers once it holds for a lower bound."""
_ONE: Mapping[str, Callable[[str, tuple[str, ...]], bool]] = {
    "=": lambda value, words: value == words[0],
    "!=": lambda value, words: value != words[0],
    "in": lambda value, words: value in words,
    "not-in": lambda value, words: value not in words,
    "like": lambda value, words: any(re.search(whole_words(word), value) for word in words),
    "not-like": lambda value, words: not any(re.search(whole_words(word), value) for word in words),
    "starts": lambda value, words: any(re.match(whole_words(word), value) for word in words),
    "unset": lambda value, _: value in {"none", "false", "0", ""},
}
_MANY: Mapping[str, Callable[[set[str], set[str]], bool]] = {
    "has": lambda values, words: bool(values & words),
    "has-all": lambda values, words: words <= values,
    "lacks": lambda values, words: not values & words,
    "within": lambda values, words: values <= words,
    "empty": lambda values, _: not values,
    "not-empty": lambda values, _: bool(values),
}


def whole_words(written: str) -> str:
    """Return a pattern of consecutive words in a text, joined by `-`, `_` or a space.

    >>> [bool(re.search(whole_words("qwen3_vl"), text)) for text in ("qwen/qwen3-vl-30b", "qwen3_vlm")]
    [True, False]
    """
    words = map(re.escape, _BETWEEN_WORDS.split(written.lower()))
    return rf"(?<![a-z0-9]){'[-_ ]'.join(words)}(?![a-z0-9])"


_WITHOUT_WORDS = {"empty", "not-empty", "unset"}
_WITH_SEVERAL_WORDS = {*_MANY, "in", "not-in", "like", "not-like", "starts"}


@dataclass(frozen=True, slots=True)
class Condition:
    """One test of one key."""

    key: str
    operator: str
    words: tuple[str, ...]

    def names(self) -> set[str]:
        """Return the names of settings and measurements that the condition may look up."""
        right = self.words[0].split("*") if self.operator in _COMPARE else []
        return {name for name in (*self.key.split("*"), *right) if not name[:1].isdecimal()}

    def evaluate(self, lookup: Lookup) -> Outcome:
        """Return whether the condition holds; `None` if a setting that it needs is unknown."""
        if self.operator in _COMPARE:
            outcome = self._compare(lookup)
            return self._evaluate_bound(lookup) if outcome is None else outcome
        known, value = lookup(self.key)
        if not known:
            return self._evaluate_bound(lookup)
        if self.operator in _MANY:
            return _MANY[self.operator](list_words(value), set(self.words))
        return _ONE[self.operator](write_word(value), self.words)

    def _compare(self, lookup: Lookup) -> Outcome:
        left = _product(self.key, lookup)
        right = _product(self.words[0], lookup)
        if left is None or right is None:
            return None
        if not left or not right:
            return False
        width = max(len(left), len(right))
        return _COMPARE[self.operator](_pad(left, width), _pad(right, width))

    def _evaluate_bound(self, lookup: Lookup) -> Outcome:
        """Return the outcome if the lower bound of an unknown number is sufficient, else `None`."""
        bound = _lower_bound(self.key, lookup)
        if bound is None:
            return None
        if self.operator in {"=", "!="}:
            (word,) = self.words
            is_out = not word.isdecimal() or int(word) < bound
            return self.operator == "!=" if is_out else None
        right = _product(self.words[0], lookup) if self.operator in _COMPARE else None
        if not right:
            return None
        outcome = _COMPARE[self.operator](_pad((bound,), len(right)), right)
        return outcome if outcome is _SETTLED_BY_BOUND.get(self.operator) else None


Clause = tuple[Condition, ...]
"""Holds if any of its conditions holds."""


def parse_condition(text: str) -> Condition:
    """Parse one condition.

    >>> parse_condition("recompute_modules lacks moe mlp")
    Condition(key='recompute_modules', operator='lacks', words=('moe', 'mlp'))

    Raises:
        ValueError: the operator is unknown, or the values do not fit the operator.
    """
    parts = text.split()
    key, operator, *words = parts if len(parts) > 1 else (text, "")
    if (
        operator not in {*_COMPARE, *_ONE, *_MANY}
        or bool(words) is (operator in _WITHOUT_WORDS)
        or (len(words) > 1 and operator not in _WITH_SEVERAL_WORDS)
    ):
        raise ValueError(f"{text!r} is not a condition")
    return Condition(key, operator, tuple(word.lower() for word in words))


def parse_clause(written: object) -> Clause:
    """Parse a condition, or a list of conditions of which one must hold.

    Raises:
        ValueError: it is neither, or one of them is not a condition.
    """
    texts = written if isinstance(written, list) else [written]
    if not texts or not all(isinstance(text, str) for text in texts):
        raise ValueError(f"{written!r} is not a condition")
    return tuple(map(parse_condition, texts))


def evaluate(clauses: Iterable[Clause], lookup: Lookup) -> Outcome:
    """Return whether every clause holds; `None` if that depends on unknown settings."""
    outcomes = [_any_outcome([condition.evaluate(lookup) for condition in clause]) for clause in clauses]
    return False if False in outcomes else None if None in outcomes else True


def _any_outcome(outcomes: list[Outcome]) -> Outcome:
    return True if True in outcomes else None if None in outcomes else False


def _pad(numbers: tuple[_Number, ...], width: int) -> tuple[_Number, ...]:
    return numbers + (0,) * (width - len(numbers))


def _product(text: str, lookup: Lookup) -> tuple[_Number, ...] | None:
    """Return the product of numbers and settings, or a version; `()`: not a number, `None`: unknown."""
    if _VERSION.match(text):
        return tuple(map(int, text.split(".")))
    factors: list[_Number] = []
    for name in text.split("*"):
        if _NUMBER.fullmatch(name):
            factors.append(int(name) if name.isdecimal() else float(name))
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


def _lower_bound(text: str, lookup: Lookup) -> int | None:
    """Return the lower bound of a product of positive numbers; `None` if a factor has no bound."""
    factors = []
    for name in text.split("*"):
        known, value = lookup(name)
        if not known:
            known, value = lookup(name + LOWER_BOUND)
        if isinstance(value, bool) or not isinstance(value, int) or value < 1:
            return None
        factors.append(value)
    return prod(factors)


def is_version(word: str) -> bool:
    """Return whether a word of a condition is a version."""
    return _VERSION.match(word) is not None


def write_word(value: Value) -> str:
    """Write a value as the words of conditions are: in lower case, whole numbers without a fraction."""
    if isinstance(value, float) and value.is_integer():
        value = int(value)
    return str(value).lower()


def list_words(value: Value) -> set[str]:
    """Return the words of a value with several of them; none of `None`."""
    if value is None:
        return set()
    if isinstance(value, tuple):
        return {write_word(item) for item in value}
    return {word.lower() for word in str(value).replace(",", " ").split()}
