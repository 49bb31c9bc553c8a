"""What must hold before a setting can work: tables of conditions, judged against configuration and trace."""

import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from typing import Any

from wallscope.advice.conditions import LEAST, Clause, Lookup, all_hold, clause
from wallscope.advice.settings import checked_value, vocabulary
from wallscope.model.advice import Level
from wallscope.model.configuration import KnownSetting, RunConfiguration, TraceFacts, Value
from wallscope.model.fixes import Met, Precondition

_KEYS = {"id", "of", "text", "when", "needs", "unblock", "level", "facts"}


@dataclass(frozen=True, slots=True)
class Row:
    """One precondition: `feature` needs all of `needs` wherever all of `when` hold."""

    id: str
    feature: str
    text: str
    when: tuple[Clause, ...]
    needs: tuple[Clause, ...]
    unblock: str
    level: Level
    facts: tuple[str, ...]

    def keys(self) -> set[str]:
        """The settings and facts that it asks for."""
        tests = [one for part in (*self.when, *self.needs) for one in part]
        words = [word for one in tests for word in (*one.key.split("*"), *_right(one.operator, one.words))]
        return {word for word in words if word in vocabulary().kinds}

    def checked(self, lookup: Lookup) -> Precondition:
        """The row, judged."""
        return Precondition(self.id, self.text, self._status(lookup), self.unblock)

    def _status(self, lookup: Lookup) -> Met:
        speaks, holds = all_hold(self.when, lookup), all_hold(self.needs, lookup)
        if speaks is False or holds is True:
            return "met"
        return "unmet" if speaks is True and holds is False else "unknown"


@dataclass(frozen=True, slots=True)
class Feature:
    """What rows are about; `settings` are those that would switch it on."""

    id: str
    title: str
    on: tuple[Clause, ...]
    settings: Mapping[str, Value]


def _right(operator: str, words: tuple[str, ...]) -> list[str]:
    compares = operator in {"<", "<=", ">", ">=", "divisible-by"}
    return words[0].split("*") if compares else []


@cache
def _tables() -> tuple[tuple[Feature, ...], Mapping[str, Row]]:
    text = (files("wallscope.advice") / "preconditions.toml").read_text(encoding="utf-8")
    document = tomllib.loads(text)
    rows = [_row(table) for table in document["precondition"]]
    return tuple(map(_feature, document["feature"])), {row.id: row for row in rows}


def features() -> tuple[Feature, ...]:
    """What rows are about, in the order in which they are shown."""
    return _tables()[0]


def rows() -> Mapping[str, Row]:
    """All rows by id, in the order of their table."""
    return _tables()[1]


def _feature(table: Mapping[str, Any]) -> Feature:
    settings = {name: checked_value(name, value) for name, value in table.get("with", {}).items()}
    return Feature(table["id"], table["title"], tuple(map(clause, table["on"])), settings)


def _row(table: Mapping[str, Any]) -> Row:
    if set(table) - _KEYS:
        raise ValueError(f"{table['id']}: unknown keys {sorted(set(table) - _KEYS)}")
    return Row(
        id=table["id"],
        feature=table["of"],
        text=table["text"],
        when=tuple(map(clause, table.get("when", []))),
        needs=tuple(map(clause, table["needs"])),
        unblock=table["unblock"],
        level=table.get("level", "error"),
        facts=tuple(table.get("facts", [])),
    )


def lookup_in(configuration: RunConfiguration, trace: TraceFacts) -> Lookup:
    """What is known of a key: the configuration's word first, then the machine's, and what bounds it."""
    bounds = {f"{key}{LEAST}": value for key, value in trace.least.items()}
    machine = {**trace.settings(), **bounds}

    def known(key: str) -> tuple[bool, Value]:
        if configuration.knows(key):
            return True, configuration.get(key)
        return key in machine, machine.get(key)

    return known


def checked(
    ids: Sequence[str], configuration: RunConfiguration, trace: TraceFacts
) -> tuple[Precondition, ...]:
    """The preconditions of these ids, judged for this configuration, in the order asked for.

    Raises:
        KeyError: there is no such row.
    """
    known = lookup_in(configuration, trace)
    return tuple(rows()[each].checked(known) for each in ids)


def switched_on(feature: Feature, configuration: RunConfiguration) -> RunConfiguration:
    """The configuration as it would be with the feature on."""
    added = {name: KnownSetting(value, feature.title) for name, value in feature.settings.items()}
    return RunConfiguration({**configuration.settings, **added})
