"""The settings that checks use: their current names, former ones, and kinds of values."""

import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from functools import cache

from wallscope.advice.framework_rules import expand_recipe, resolve_settings
from wallscope.model.advice import KnownSetting, RunConfiguration, Setting, Value
from wallscope.resources import read_toml

_NONE = {"none", "null", "~", ""}
_SWITCHES = {"true": True, "false": False, "1": True, "0": False, "on": True, "off": False}
_WORD = re.compile(r"[A-Za-z][\w.:+-]*|\d+")
_LARGEST = 2**53
_LONGEST_WORD = 4_000


@dataclass(frozen=True, slots=True)
class Vocabulary:
    """Kinds of value by current name, current names by other ones, flags that disable a setting.

    A name in `former` that has a kind is a setting of its own, which the framework resolves.
    """

    kinds: Mapping[str, str]
    current: Mapping[str, str]
    former: Mapping[str, str]
    off: Mapping[str, str]

    def name(self, written: str) -> str | None:
        """Return the current name of a spelling, without sections and dashes; `None` if it is unknown."""
        leaf = written.strip().rpartition(".")[2].lstrip("-+")
        name = leaf if leaf in self.kinds else leaf.replace("-", "_")
        name = self.current.get(name, name)
        return name if name in self.kinds else None


def bare_name(written: str) -> str:
    """Return a name without sections and leading dashes, its other dashes as underscores.

    >>> bare_name("model.--use-flash-attn")
    'use_flash_attn'
    """
    return written.rpartition(".")[2].lstrip("-").replace("-", "_")


@cache
def vocabulary() -> Vocabulary:
    """Return the shipped settings."""
    document = read_toml("advice/settings.toml")
    lists = {kind: names for kind, names in document.items() if isinstance(names, list)}
    kinds = {name: kind for kind, names in lists.items() for name in names}
    former = document["former"]
    return Vocabulary(
        kinds=kinds,
        current={**document["current"], **{old: new for old, new in former.items() if old not in kinds}},
        former=former,
        off=document["off"],
    )


def parse_value(name: str, text: str) -> Value:
    """Parse the value of a setting from text.

    Raises:
        ValueError: the text has the wrong kind; the message names the kind.
    """
    bare = text.strip().strip("'\"")
    kind = vocabulary().kinds[name]
    if bare.lower() in _NONE and kind != "environment":
        return None
    match kind:
        case "sizes" | "whole" if re.fullmatch(r"[+-]?\d{1,15}", bare):
            return check_value(name, int(bare))
        case "number":
            return check_value(name, _number(bare))
        case "switch" if bare.lower() in _SWITCHES:
            return _SWITCHES[bare.lower()]
        case "words":
            inside = re.sub(r"<?\w*(?:Scope|Module)s?\.(\w+)(?:: ?\d+>)?", r"\1", bare)
            return check_value(name, tuple(_WORD.findall(inside)))
    return check_value(name, bare)


def check_value(name: str, value: object) -> Value:
    """Return the value if it has the kind of the setting.

    Raises:
        ValueError: it has not; the message names the kind.
    """
    if value is None:
        return None
    kind = vocabulary().kinds[name]
    return _OF_KIND[kind](value)


def _number(text: str) -> object:
    try:
        return float(text)
    except ValueError:
        return text


def _size(value: object) -> Value:
    found = _whole(value)
    if not isinstance(found, int) or found < 1:
        raise ValueError("is not a whole number above 0")
    return found


def _whole(value: object) -> Value:
    if isinstance(value, bool) or not isinstance(value, int) or not -_LARGEST < value < _LARGEST:
        raise ValueError("is not a whole number")
    return value


def _decimal(value: object) -> Value:
    if isinstance(value, bool) or not isinstance(value, int | float) or not abs(value) < _LARGEST:
        raise ValueError("is not a number")
    return value


def _switch(value: object) -> Value:
    if not isinstance(value, bool):
        raise ValueError("is neither true nor false")  # noqa: TRY004  # a wrong value of a file, not of a call
    return value


def _word(value: object) -> Value:
    if isinstance(value, bool | int | float):
        return str(value)
    if not isinstance(value, str) or len(value) > _LONGEST_WORD:
        raise ValueError("is not a word")
    return None if value.lower() in _NONE else value


def _words(value: object) -> Value:
    one = [value] if isinstance(value, int) and not isinstance(value, bool) else value
    items = one.split(",") if isinstance(one, str) else one
    if not isinstance(items, list | tuple) or not all(isinstance(item, str | int) for item in items):
        raise ValueError("is not a list of words")
    return tuple(str(item).strip().rpartition(".")[2] for item in items if str(item).strip())


def _version(value: object) -> Value:
    if not isinstance(value, str) or not re.match(r"\d+\.\d+", value):
        raise ValueError('is not a version; write it as text, such as "2.6.0"')
    return value


def _environment(value: object) -> Value:
    if isinstance(value, bool) or not isinstance(value, str | int):
        raise ValueError("is not text")  # noqa: TRY004  # as above
    return str(value)


_OF_KIND: Mapping[str, Callable[[object], Value]] = {
    "sizes": _size,
    "whole": _whole,
    "number": _decimal,
    "switch": _switch,
    "word": _word,
    "words": _words,
    "version": _version,
    "environment": _environment,
}


def complete_settings(settings: Mapping[str, KnownSetting]) -> dict[str, KnownSetting]:
    """Return the settings with derived ones: graph names, precision recipes, virtual stages."""
    found = dict(settings)
    recipe = found.get("mixed_precision")
    if recipe is not None and isinstance(recipe.value, str):
        values = expand_recipe(recipe.value).items()
        found = {**{key: KnownSetting(value, recipe.source) for key, value in values}, **found}
    return resolve_settings(found)


def add_settings(configuration: RunConfiguration, settings: Iterable[Setting]) -> RunConfiguration:
    """Return the configuration with a fix's settings; settings with several values stay unchanged."""
    words = vocabulary()
    found = dict(configuration.settings)
    for setting in settings:
        name = words.name(setting.key)
        if name is None:
            continue
        try:
            value = parse_value(name, setting.value or "true")
        except ValueError:
            continue
        found[name] = KnownSetting(value, "the fix")
    return RunConfiguration(complete_settings(found))
