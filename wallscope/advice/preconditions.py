"""Preconditions of settings: conditions of features, judged with or without a trace."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any

from wallscope.advice.conditions import LOWER_BOUND, Clause, Lookup, evaluate, parse_clause
from wallscope.advice.parallel_layout import fold_configuration
from wallscope.advice.rejected_settings import report_impossible
from wallscope.advice.settings import check_value, vocabulary
from wallscope.errors import LayoutError
from wallscope.model.advice import (
    ConfigurationCheck,
    FeatureCheck,
    Judged,
    KnownSetting,
    Level,
    Met,
    Precondition,
    RunConfiguration,
    TraceFacts,
    Value,
)
from wallscope.model.capture import Finding, Severity
from wallscope.resources import read_toml

_TABLES = "advice/preconditions.toml"
_ASSERTIONS = "advice/assertions.toml"
_UNLESS_SAID: Mapping[str, Value] = {"wgrad_is_checked": True, "virtual_stages_are_written": True}
"""What holds unless the form of a file shows the contrary."""

_KEYS = {"id", "of", "text", "when", "needs", "unblock", "level", "facts"}


@dataclass(frozen=True, slots=True)
class Row:
    """One precondition: `feature` needs all of `needs` if all of `when` hold."""

    id: str
    feature: str
    text: str
    when: tuple[Clause, ...]
    needs: tuple[Clause, ...]
    unblock: str
    level: Level
    facts: tuple[str, ...]

    def keys(self) -> set[str]:
        """Return the settings and machine properties that it uses."""
        conditions = [one for clause in (*self.when, *self.needs) for one in clause]
        return {name for one in conditions for name in one.names()} & set(vocabulary().kinds)

    def judge(self, lookup: Lookup) -> Precondition:
        """Return the precondition with whether it is met."""
        applies, holds = evaluate(self.when, lookup), evaluate(self.needs, lookup)
        status: Met = "unknown"
        if applies is False or holds is True:
            status = "met"
        elif applies is True and holds is False:
            status = "unmet"
        return Precondition(self.id, self.text, status, self.unblock)


@dataclass(frozen=True, slots=True)
class Feature:
    """A feature of rows; `settings` are those that would enable it."""

    id: str
    title: str
    on: tuple[Clause, ...]
    settings: Mapping[str, Value]

    def switch_on(self, configuration: RunConfiguration) -> RunConfiguration:
        """Return the configuration as it would be with the feature on."""
        added = {name: KnownSetting(value, self.title) for name, value in self.settings.items()}
        return RunConfiguration({**configuration.settings, **added})


@cache
def features() -> tuple[Feature, ...]:
    """Return the features of rows, in the order in which they are shown."""
    return tuple(
        Feature(
            table["id"],
            table["title"],
            tuple(map(parse_clause, table["on"])),
            {name: check_value(name, value) for name, value in table.get("with", {}).items()},
        )
        for table in read_toml(_TABLES)["feature"]
    )


@cache
def precondition_rows() -> Mapping[str, Row]:
    """Return all rows by id, in the order of their tables."""
    tables = [*read_toml(_TABLES)["precondition"], *read_toml(_ASSERTIONS)["assertion"]]
    return {table["id"]: _parse_row(table) for table in tables}


def _parse_row(table: Mapping[str, Any]) -> Row:
    if set(table) - _KEYS:
        raise ValueError(f"{table['id']}: unknown keys {sorted(set(table) - _KEYS)}")
    return Row(
        id=table["id"],
        feature=table["of"],
        text=table["text"],
        when=tuple(map(parse_clause, table.get("when", []))),
        needs=tuple(map(parse_clause, table["needs"])),
        unblock=table["unblock"],
        level=table.get("level", "error"),
        facts=tuple(table.get("facts", [])),
    )


def lookup_in(configuration: RunConfiguration, trace: TraceFacts) -> Lookup:
    """Return a lookup of settings: the configuration first, then the machine, and lower bounds."""
    bounds = {f"{key}{LOWER_BOUND}": value for key, value in trace.least.items()}
    machine = {**_UNLESS_SAID, **trace.settings(), **bounds}

    def lookup(key: str) -> tuple[bool, Value]:
        if configuration.knows(key):
            return True, configuration.get(key)
        return key in machine, machine.get(key)

    return lookup


def judge_preconditions(
    ids: Sequence[str], configuration: RunConfiguration, trace: TraceFacts
) -> tuple[Precondition, ...]:
    """Return the preconditions with these ids, judged for this configuration, in the given order.

    Raises:
        KeyError: there is no such row.
    """
    lookup = lookup_in(configuration, trace)
    return tuple(precondition_rows()[each].judge(lookup) for each in ids)


def check_configuration(
    configuration: RunConfiguration, trace: TraceFacts, findings: tuple[Finding, ...]
) -> ConfigurationCheck:
    """Judge every row, and fold the layout if its sizes and the number of GPUs are known.

    An impossible layout is a finding: the other checks go on.
    """
    layout = None
    if all(finding.severity is not Severity.ERROR for finding in findings):
        try:
            layout = fold_configuration(lookup_in(configuration, trace))
        except LayoutError as error:
            *reasons, cure = str(error).split(" — ")
            findings = (report_impossible(": ".join(reasons), cure), *findings)
    return ConfigurationCheck(
        "wallscope.check-config/1",
        tuple(_check_feature(feature, configuration, trace) for feature in features()),
        layout,
        findings,
    )


def _check_feature(feature: Feature, configuration: RunConfiguration, trace: TraceFacts) -> FeatureCheck:
    """Judge the rows of a feature; if the feature is off, as if it were on."""
    on = evaluate(feature.on, lookup_in(configuration, trace))
    lookup = lookup_in(configuration if on else feature.switch_on(configuration), trace)
    found = []
    for row in precondition_rows().values():
        if row.feature == feature.id:
            judged = row.judge(lookup)
            missing = sorted(key for key in row.keys() if not lookup(key)[0])  # noqa: SIM118  # not a mapping
            found.append(Judged(judged, row.level, tuple(missing) if judged.status == "unknown" else ()))
    return FeatureCheck(feature.id, feature.title, on, tuple(found))
