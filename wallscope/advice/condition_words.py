"""Sentences for conditions: what holds, what must hold, what is the case instead, what is unknown.

A setting has its own name in a sentence. Everything else that a condition looks up is named in `facts.toml`,
with its unit and, where its word is a statement, with the statement and its contrary.
"""

from collections.abc import Mapping, Sequence
from dataclasses import field
from functools import cache
from typing import Literal

from wallscope.advice.conditions import (
    LOWER_BOUND,
    Clause,
    Condition,
    Lookup,
    evaluate,
    is_version,
    list_words,
    write_word,
)
from wallscope.files import make_entry, read_toml
from wallscope.model.advice import Value
from wallscope.records import dataclass
from wallscope.units import duration, percent
from wallscope.user_files import quote_word

_MOST_CLAUSES = 3
_MOST_ASKED = 2
_MOST_NAMES = 4
_UNALTERABLE = {"framework", "model_family", "megatron_core_version"}
"""What no change of a configuration makes hold: no alternative to ask for."""
_BOUNDS: Mapping[str, str] = {
    "<": "below",
    "<=": "at most",
    ">": "above",
    ">=": "at least",
    "divisible-by": "divisible by",
    "equals": "equal to",
}
_NEGATIVE = {"!=", "not-in", "not-like", "lacks", "unset"}
_LISTING = {"has", "has-all", "lacks", "within"}

Mood = Literal["is", "must", "asks"]


@dataclass(frozen=True, slots=True)
class Source:
    """What does not show an unknown setting, and how the user can make it known."""

    name: str
    cure: str = ""


CAPTURE = Source("this capture", "pass --config")
CONFIGURATION = Source("this configuration")
BOTH = Source("this capture and its configuration")


@dataclass(frozen=True, slots=True)
class Saying:
    """A word of a fact that is a statement: if the fact is that word, if not, and both as demands."""

    of: str
    yes: str
    no: str
    must: str = ""
    must_not: str = ""


@dataclass(frozen=True, slots=True)
class Subject:
    """What a condition looks up that is not a setting: how sentences name it and its values.

    `plural` is whether the name takes a plural verb. `is_silent` marks what is true unless a file shows the
    contrary.
    """

    id: str
    name: str = ""
    plural: bool = False
    unit: Literal["", "share", "ns"] = ""
    values: Mapping[str, str] = field(default_factory=dict)
    says: tuple[Saying, ...] = ()
    is_silent: bool = False


@cache
def facts() -> Mapping[str, Subject]:
    """Return the facts that conditions name, by id."""
    found = (make_entry(table, Subject) for table in read_toml("advice/facts.toml")["fact"])
    return {fact.id: fact for fact in found}


def _find_fact(key: str) -> Subject:
    return facts().get(key) or Subject(key, key)


def name_key(key: str) -> str:
    """Return a setting, a fact or a product of them as a sentence names it.

    >>> name_key("2*context_parallel_size"), name_key("torch_version")
    ('2 x context_parallel_size', 'the version of PyTorch')
    """
    return " x ".join(_find_fact(part).name or part for part in key.split("*"))


def join_words(words: Sequence[str], last: str = "or") -> str:
    """Join words into a phrase.

    >>> join_words(["a", "b", "c"]), join_words(["a"], "and")
    ('a, b or c', 'a')
    """
    return f" {last} ".join(filter(None, (", ".join(words[:-1]), *words[-1:])))


def say_holds(clause: Clause) -> str:
    """Say that a clause holds.

    >>> from wallscope.advice.conditions import parse_clause
    >>> say_holds(parse_clause("recompute_method = none")), say_holds(parse_clause("window != capture"))
    ('recompute_method is not set', 'the capture has known steps')
    """
    return _say(clause, "is")


def say_must(clause: Clause) -> str:
    """Say that a clause must hold.

    >>> from wallscope.advice.conditions import parse_clause
    >>> say_must(parse_clause(["bf16 = true", "fp16 = true"]))
    'bf16 or fp16 must be true'
    >>> say_must(parse_clause("torch_version >= 2.6.0"))
    'the version of PyTorch must be 2.6.0 or newer'
    """
    return _say(clause, "must")


def say_whether(clause: Clause) -> str:
    """Say what would decide a clause, without its negation.

    >>> from wallscope.advice.conditions import parse_clause
    >>> say_whether(parse_clause("recompute_method = none"))
    'recompute_method is set'
    """
    return _say(clause, "asks")


def _say(clause: Clause, mood: Mood) -> str:
    """Join alternatives; those that ask the same of several settings have one verb."""
    alternatives = _list_conditions(clause)
    (first, *others) = alternatives
    if others and _is_shared(alternatives):
        return f"{join_words([name_key(one.key) for one in alternatives])} {_say_predicate(first, mood)}"
    said = list(dict.fromkeys(_say_one(one, mood) for one in alternatives))
    return ", or ".join(said)


def _is_shared(alternatives: Sequence[Condition]) -> bool:
    """Return whether conditions have one predicate, which no statement replaces and no negation splits."""
    if len({(one.operator, one.words) for one in alternatives}) > 1 or any(map(_find_saying, alternatives)):
        return False
    _, is_negative, _ = _divide(alternatives[0], Subject(""))
    return not is_negative


def _say_one(condition: Condition, mood: Mood) -> str:
    saying = _find_saying(condition)
    if saying is None:
        return f"{name_key(condition.key)} {_say_predicate(condition, mood)}"
    said, is_yes = saying
    if mood == "must":
        return said.must if is_yes else said.must_not
    return said.yes if is_yes or mood == "asks" else said.no


def _find_saying(condition: Condition) -> tuple[Saying, bool] | None:
    """Return the statement that a condition makes, and whether it says so or the contrary."""
    if len(condition.words) != 1:
        return None
    is_yes = condition.operator in {"=", "has"}
    if not is_yes and condition.operator not in {"!=", "lacks"}:
        return None
    (word,) = condition.words
    for said in _find_fact(condition.key).says:
        if said.of == word:
            return said, is_yes
        if {said.of, word} == {"true", "false"}:
            return said, not is_yes
    return None


def _say_predicate(condition: Condition, mood: Mood) -> str:
    """Return the verb of a condition and what follows it."""
    fact = _find_fact(condition.key)
    verb, is_negative, rest = _divide(condition, fact)
    if mood == "must":
        return f"must {'not ' if is_negative else ''}{verb} {rest}"
    if mood == "asks":
        is_negative, rest = False, "true" if condition.words == ("false",) else rest
    if verb == "be":
        to = "set to " if is_negative and rest != "set" and condition.key not in facts() else ""
        return f"{'are' if fact.plural else 'is'} {'not ' if is_negative else ''}{to}{rest}"
    if is_negative:
        return f"{'do' if fact.plural else 'does'} not {verb} {rest}"
    return f"{verb}{'' if fact.plural else 's'} {rest}"


def _divide(condition: Condition, fact: Subject) -> tuple[str, bool, str]:
    """Return verb, whether it is negated, and what follows."""
    operator, words = condition.operator, condition.words
    if operator in _BOUNDS:
        return "be", False, _say_bound(condition, fact)
    if operator == "empty":
        return "be", False, "empty"
    if operator in {"unset", "not-empty"} or words == ("none",):
        return "be", operator not in {"!=", "not-empty"}, "set"
    if operator == "!=" and words == ("false",):
        return "be", False, "true"
    return _divide_choice(operator, [_write(word, fact) for word in words if word != "none"], condition, fact)


def _divide_choice(
    operator: str, shown: list[str], condition: Condition, fact: Subject
) -> tuple[str, bool, str]:
    """Return the same of a condition with one or several words, `shown` but for `none`."""
    is_negative = operator in _NEGATIVE
    rest = join_words(shown, "and" if operator in {"has-all", "within"} else "or")
    if operator in _LISTING:
        return "include", is_negative, f"only {rest}" if operator == "within" else rest
    if "none" in condition.words:
        return "be", False, f"set, and not to {rest}" if is_negative else f"{rest}, or not set"
    if operator == "starts" and not fact.values:
        return "start", False, f"with {rest}"
    return "be", is_negative, rest


def _say_bound(condition: Condition, fact: Subject) -> str:
    (word,) = condition.words
    if is_version(word):
        return f"older than {word}" if condition.operator == "<" else f"{word} or newer"
    shown = _write(word, fact) if word[:1].isdecimal() and "*" not in word else name_key(word)
    return f"{_BOUNDS[condition.operator]} {shown}"


def _write(word: str, fact: Subject) -> str:
    """Write a word of a condition, or a value, as sentences about the fact do."""
    if fact.unit == "share":
        return percent(float(word))
    if fact.unit == "ns":
        return duration(round(float(word)))
    return fact.values.get(word, word)


def say_value(key: str, value: Value, conditions: Sequence[Condition] = ()) -> str:
    """Say what a setting or fact is; by its statement if a condition has one.

    >>> say_value("cuda_graph_modules", ("attn", "mlp")), say_value("recompute_method", None)
    ('cuda_graph_modules includes attn and mlp', 'recompute_method is not set')
    """
    for condition in conditions:
        if condition.key == key and (found := _find_saying(condition)) is not None:
            said, _ = found
            return said.yes if said.of in {write_word(value), *list_words(value)} else said.no
    return f"{name_key(key)} {_say_value(_find_fact(key), value)}"


def _say_value(fact: Subject, value: Value) -> str:
    verb = "are" if fact.plural else "is"
    if value is None:
        return f"{verb} not set"
    if isinstance(value, tuple):
        shown = [_show(one, fact) for one in value]
        return f"include{'' if fact.plural else 's'} {join_words(shown, 'and')}" if shown else f"{verb} empty"
    return f"{verb} {_show(value, fact)}"


def _show(value: Value, fact: Subject) -> str:
    """Write a value as its reader does: a text as it is, if it is a single word."""
    word = write_word(value)
    is_text = isinstance(value, str) and word not in fact.values
    return quote_word(value) if is_text else _write(word, fact)


def _list_keys(conditions: Sequence[Condition]) -> list[str]:
    """List what conditions look up, the left sides first."""
    left = [part for one in conditions for part in one.key.split("*")]
    right = sorted({name for one in conditions for name in one.names()} - set(left))
    return [key for key in dict.fromkeys((*left, *right)) if not key[:1].isdecimal()]


def _list_conditions(clause: Clause) -> list[Condition]:
    return [one for one in clause if one.key not in _UNALTERABLE] or list(clause)


def say_met(text: str, needs: Sequence[Clause], lookup: Lookup) -> str:
    """Say that a precondition is met, with the values that its text leaves open."""
    open_ones = [
        one
        for clause in needs
        for one in clause
        if one.evaluate(lookup) and one.operator != "=" and _find_saying(one) is None
    ]
    shown = [said for key in _list_keys(open_ones) if (said := _say_known(key, lookup))][:_MOST_CLAUSES]
    return f"{text} ({join_words(shown, 'and')})" if shown else text


def _say_known(key: str, lookup: Lookup) -> str:
    """Say what is known of a setting or fact, a lower bound included; empty if that is nothing."""
    is_known, value = lookup(key)
    if not is_known:
        has_bound, least = lookup(f"{key}{LOWER_BOUND}")
        return f"{name_key(key)} is at least {write_word(least)}" if has_bound else ""
    return "" if value is None else say_value(key, value)


def say_inapplicable(when: Sequence[Clause], lookup: Lookup, *, is_new: bool = False) -> str:
    """Say why a precondition does not apply; `is_new` is whether it did before a fix."""
    clause = next(clause for clause in when if evaluate((clause,), lookup) is False)
    return f"{'no longer applies' if is_new else 'does not apply'}: {_say_instead(list(clause), lookup)}"


def _say_instead(conditions: list[Condition], lookup: Lookup) -> str:
    """Say what is the case where conditions do not hold."""
    said = []
    for one in conditions:
        if one.operator in {"has", "has-all"} and _find_saying(one) is None:
            said.append(_say_one(Condition(one.key, "lacks", one.words), "is"))
        else:
            said += [
                say_value(key, lookup(key)[1], conditions) for key in _list_keys([one]) if lookup(key)[0]
            ]
    return join_words(list(dict.fromkeys(said)), "and")


def say_unmet(why: str, when: Sequence[Clause], needs: Sequence[Clause], lookup: Lookup) -> str:
    """Say what a precondition demands, where, and what is the case instead."""
    failed = [clause for clause in needs if evaluate((clause,), lookup) is False][:_MOST_CLAUSES]
    scope = _list_scope(when, lookup, {one.key for clause in failed for one in clause})
    where = f"where {join_words(scope, 'and')}, " if scope else ""
    said = "; ".join(_say_failed(clause, lookup) for clause in failed)
    return f"{where}{said}{f': {why}' if why else ''}"


def _say_failed(clause: Clause, lookup: Lookup) -> str:
    """Say that a clause must hold, and what is the case instead."""
    conditions = _list_conditions(clause)
    values = {key: lookup(key)[1] for key in _list_keys(conditions) if lookup(key)[0]}
    said = [say_value(key, value, conditions) for key, value in values.items()]
    (first, *others) = conditions
    if first.key in values and all(one.key == first.key for one in others) and _find_saying(first) is None:
        said[0] = _say_own_value(_find_fact(first.key), values[first.key], conditions)
    instead = join_words(list(dict.fromkeys(said)), "and")
    return f"{say_must(clause)}, but {instead}" if said else say_must(clause)


def _say_own_value(fact: Subject, value: Value, conditions: Sequence[Condition]) -> str:
    """Say what the subject of a demand is, without naming it again."""
    if value is None and all(one.words == ("none",) for one in conditions):
        return "is not"
    return f"it {_say_value(fact, value)}" if isinstance(value, tuple) and value else _say_value(fact, value)


def _list_scope(when: Sequence[Clause], lookup: Lookup, demanded: set[str]) -> list[str]:
    """List why a precondition applies, without what its demand repeats."""
    held = [next(one for one in clause if one.evaluate(lookup)) for clause in when]
    said = [
        _say_one(one, "is")
        if one.operator in _LISTING or "*" in one.key
        else say_value(one.key, lookup(one.key)[1], [one])
        for one in held
        if not _find_fact(one.key).is_silent
        and (one.operator == "has" or one.key not in demanded)
        and lookup(one.key)[0]
    ]
    return list(dict.fromkeys(said))


def say_unknown(
    text: str, when: Sequence[Clause], needs: Sequence[Clause], lookup: Lookup, source: Source
) -> str:
    """Say what is not known of a precondition, and how to make it known.

    Args:
        text: what holds if it is met, for one of many conditions.
        when: where the precondition applies.
        needs: what it demands.
        lookup: what is known.
        source: what does not show it.
    """
    where = [_select_open(clause, lookup) for clause in when if evaluate((clause,), lookup) is None]
    open_ones = [_select_open(clause, lookup) for clause in needs if evaluate((clause,), lookup) is None]
    asked = [one for clause in (*where, *open_ones) for one in clause]
    scope = join_words([say_holds(clause) for clause in where], "and")
    if any(evaluate((clause,), lookup) is False for clause in needs):
        told = f"whether {scope}; then {say_unmet('', (), needs, lookup)}"
    elif len(asked) > _MOST_ASKED or len(open_ones) > 1:
        names = [name_key(key) for key in _list_keys(asked) if not lookup(key)[0]]
        more = len(names) - _MOST_NAMES
        shown = [*names[:_MOST_NAMES], f"{more} more"] if more > 1 else names
        told = f"whether {text} ({join_words(shown, 'and')})"
    else:
        told = f"whether{f', if {scope}, ' if scope else ' '}{say_whether(open_ones[0])}"
    return f"not known from {source.name}: {told}{f'; {source.cure}' if source.cure else ''}"


def _select_open(clause: Clause, lookup: Lookup) -> Clause:
    """Return the alternatives of a clause that are not known to fail."""
    return tuple(one for one in _list_conditions(clause) if one.evaluate(lookup) is None) or clause
