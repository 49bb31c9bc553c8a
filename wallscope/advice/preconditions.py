"""Preconditions of settings, what a configuration already sets, and the lines of its file that break one."""

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import cache
from math import prod
from typing import Any

from wallscope.advice.assertion_releases import (
    ASSUMED,
    ReleaseSpan,
    find_outcome,
    newest_releases,
    parse_span,
    say_other_releases,
    say_releases,
)
from wallscope.advice.condition_words import (
    CONFIGURATION,
    Source,
    say_inapplicable,
    say_met,
    say_unknown,
    say_unmet,
)
from wallscope.advice.conditions import LOWER_BOUND, Clause, Condition, Lookup, evaluate, parse_clause
from wallscope.advice.parallel_layout import fold_configuration
from wallscope.advice.rejected_settings import report_impossible
from wallscope.advice.settings import check_value, parse_value, vocabulary
from wallscope.errors import LayoutError
from wallscope.files import read_toml
from wallscope.finding_texts import make_finding
from wallscope.model.advice import (
    ConfigurationCheck,
    FeatureCheck,
    FileForm,
    FormKind,
    Judged,
    KnownSetting,
    Level,
    Met,
    Precondition,
    RunConfiguration,
    Setting,
    TraceFacts,
    Value,
)
from wallscope.model.analysis import Rank
from wallscope.model.capture import Finding, Severity
from wallscope.model.enums import Axis
from wallscope.model.finding_codes import FindingCode
from wallscope.records import dataclass
from wallscope.thresholds.verdict import INEFFECTIVE_OVERLAP_SHARE
from wallscope.units import percent

_TABLES = "advice/preconditions.toml"
_ASSERTIONS = "advice/assertions.toml"
_UNLESS_SHOWN: Mapping[str, Value] = {"wgrad_is_checked": True, "virtual_stages_are_written": True}
"""What holds unless the form of a file shows the contrary."""

_KEYS = {"id", "of", "text", "why", "when", "needs", "unblock", "level", "facts", "holds"}


@dataclass(frozen=True, slots=True)
class Row:
    """One precondition: `feature` needs all of `needs` if all of `when` hold.

    `text` is what then holds, and `why` the reason for it, empty where it is evident. `spans` are the
    releases that check it: all of them if there is none.
    """

    id: str
    feature: str
    text: str
    why: str
    when: tuple[Clause, ...]
    needs: tuple[Clause, ...]
    unblock: str
    level: Level
    facts: tuple[str, ...]
    spans: tuple[ReleaseSpan, ...]

    def keys(self) -> set[str]:
        """Return the settings and machine properties that it uses."""
        conditions = [one for clause in (*self.when, *self.needs) for one in clause]
        return {name for one in conditions for name in one.names()} & set(vocabulary().kinds)

    @property
    def requirement(self) -> str:
        """What it demands, with the reason."""
        return f"{self.text} ({self.why})" if self.why else self.text

    def find_status(self, lookup: Lookup) -> Met:
        """Return whether it is met; it is where it does not apply."""
        applies, holds = evaluate(self.when, lookup), evaluate(self.needs, lookup)
        made = find_outcome(self.spans, lookup)
        if applies is False or holds is True or made is False:
            return "met"
        applies = applies if made else None
        return "unmet" if applies is True and holds is False else "unknown"

    def judge(self, lookup: Lookup, source: Source) -> Precondition:
        """Return the precondition with whether it is met, and what is the case.

        Args:
            lookup: what is known of the run.
            source: where that comes from.
        """
        return self._state(self.find_status(lookup), lookup, source)

    def judge_with(self, before: Lookup, after: Lookup, source: Source) -> Precondition:
        """Return it as it is after settings are made; if these alone make it hold, it is marked as set."""
        status = self.find_status(after)
        is_set_now = status == "met" != self.find_status(before)
        return self._state("set" if is_set_now else status, after, source)

    def _state(self, status: Met, lookup: Lookup, source: Source) -> Precondition:
        if status == "unmet":
            releases = say_releases(self.spans, lookup)
            text = say_unmet(self.why, self.when, self.needs, lookup)
            text += f" ({releases})" if releases else ""
        elif status == "unknown":
            text = say_unknown(self.text, self.when, self.needs, lookup, source)
        elif evaluate(self.when, lookup) is False:
            text = say_inapplicable(self.when, lookup, is_new=status == "set")
        elif evaluate(self.needs, lookup) is not True:
            text = say_other_releases(self.spans, lookup)
        else:
            text = say_met(self.text, self.needs, lookup)
        return Precondition(self.id, text, status, None if status == "set" else self.unblock)


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
    ids = (*_index_tables(_TABLES, "precondition"), *_index_tables(_ASSERTIONS, "assertion"))
    return {each: _find_row(each) for each in ids}


@cache
def _find_row(each: str) -> Row:
    """Return the row with an id; fixes need few of them, and none of the assertions."""
    table = _index_tables(_TABLES, "precondition").get(each)
    return _parse_row(table or _index_tables(_ASSERTIONS, "assertion")[each])


@cache
def _index_tables(path: str, kind: str) -> Mapping[str, Mapping[str, Any]]:
    return {table["id"]: table for table in read_toml(path)[kind]}


def _parse_row(table: Mapping[str, Any]) -> Row:
    if set(table) - _KEYS:
        raise ValueError(f"{table['id']}: unknown keys {sorted(set(table) - _KEYS)}")
    return Row(
        id=table["id"],
        feature=table["of"],
        text=table["text"],
        why=table.get("why", ""),
        when=tuple(map(parse_clause, table.get("when", []))),
        needs=tuple(map(parse_clause, table["needs"])),
        unblock=table["unblock"],
        level=table.get("level", "error"),
        facts=tuple(table.get("facts", [])),
        spans=tuple(map(parse_span, table.get("holds", []))),
    )


def lookup_in(configuration: RunConfiguration, trace: TraceFacts) -> Lookup:
    """Return a lookup of settings: the configuration first, then the machine, and lower bounds.

    A release that the configuration does not state is the newest.
    """
    bounds = {f"{key}{LOWER_BOUND}": value for key, value in trace.least.items()}
    newest = {key: value for key, value in newest_releases().items() if not configuration.knows(key)}
    assumed = {f"{key}{ASSUMED}": True for key in newest}
    machine = {**_UNLESS_SHOWN, **newest, **assumed, **trace.settings(), **bounds}

    def lookup(key: str) -> tuple[bool, Value]:
        if configuration.knows(key):
            return True, configuration.get(key)
        return key in machine, machine.get(key)

    return lookup


def judge_preconditions(
    ids: Sequence[str], before: Lookup, after: Lookup, source: Source
) -> tuple[Precondition, ...]:
    """Return the preconditions with these ids, judged before and after settings are made, in the given order.

    Raises:
        KeyError: there is no such row.
    """
    return tuple(_find_row(each).judge_with(before, after, source) for each in ids)


_WHOLE = FileForm(FormKind.SETTINGS, is_whole=True)


def check_configuration(
    configuration: RunConfiguration,
    trace: TraceFacts,
    findings: tuple[Finding, ...],
    form: FileForm = _WHOLE,
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
            stop = report_impossible(": ".join(reasons), cure)
            findings = (stop if form.is_whole else replace(stop, severity=Severity.WARNING), *findings)
    return ConfigurationCheck(
        "wallscope.check-config/1",
        form,
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
            judged = row.judge(lookup, CONFIGURATION)
            missing = sorted(key for key in row.keys() if not lookup(key)[0])  # noqa: SIM118  # not a mapping
            found.append(Judged(judged, row.level, tuple(missing) if judged.status == "unknown" else ()))
    return FeatureCheck(feature.id, feature.title, on, tuple(found))


_OVERLAPS: Mapping[str, Axis] = {
    "overlap_moe_expert_parallel_comm": Axis.EP,
    "overlap_grad_reduce": Axis.DP_GRADIENT,
    "overlap_param_gather": Axis.DP_PARAMETER,
    "tp_comm_overlap": Axis.TP,
}
"""Settings that hide communication, and the axis of that communication."""

_MOST_OBSTACLES = 2
_SIZES = ("tensor_model_parallel_size", "pipeline_model_parallel_size", "context_parallel_size")


def find_ineffective(
    written: RunConfiguration, configuration: RunConfiguration, trace: TraceFacts, rank: Rank
) -> dict[str, Finding]:
    """Return findings by name about overlaps that are on while their communication is exposed.

    Args:
        written: the settings of the file.
        configuration: those with what the trace shows, which counts.
        trace: what the trace shows of machine and run.
        rank: the representative rank.
    """
    found = {}
    for name, axis in _OVERLAPS.items():
        operations = [one for one in rank.communication.operations if one.axis is axis]
        work_ns = sum(one.work_ns for one in operations)
        exposed_ns = sum(one.exposed_ns for one in operations)
        if written.get(name) is not True or not work_ns:
            continue
        share = min(exposed_ns / work_ns, 1.0)
        if share >= INEFFECTIVE_OVERLAP_SHARE:
            found[name] = make_finding(
                FindingCode.CONFIGURATION_INEFFECTIVE,
                cure="; ".join(_list_obstacles(name, configuration, trace)) or "check the log for a fallback",
                source=written.settings[name].source,
                share=percent(share),
                axis=axis,
            )
    return found


def _list_obstacles(name: str, configuration: RunConfiguration, trace: TraceFacts) -> list[str]:
    """Return what would have to change for an overlap, if the file or the trace shows it."""
    ids = [row.id for row in precondition_rows().values() if any(one.key == name for one in _switches(row))]
    lookup = lookup_in(configuration, trace)
    failed = [row for row in map(_find_row, ids) if row.find_status(lookup) == "unmet"]
    return [row.unblock for row in failed if row.unblock][:_MOST_OBSTACLES]


def _switches(row: Row) -> list[Condition]:
    on = next(feature.on for feature in features() if feature.id == row.feature)
    return [one for clause in (*on, *row.when) if len(clause) == 1 for one in clause]


def list_impossible_sizes(written: RunConfiguration, trace: TraceFacts) -> tuple[Finding, ...]:
    """Return a finding if the sizes of the file do not divide the ranks of the trace."""
    sizes = [written.get(name) for name in _SIZES]
    numbers = [size for size in sizes if isinstance(size, int)]
    if trace.world_size is None or not numbers or trace.world_size % prod(numbers) == 0:
        return ()
    source = next(written.settings[name].source for name in _SIZES if written.knows(name))
    return (
        make_finding(
            FindingCode.CONFIGURATION_CONTRADICTED,
            "sizes",
            file=source.partition(":")[0],
            product=prod(numbers),
            ranks=trace.world_size,
        ),
    )


def is_set(setting: Setting, written: RunConfiguration) -> bool:
    """Return whether a configuration file has the value that a fix recommends."""
    name = vocabulary().name(setting.key)
    if name is None or not written.knows(name):
        return False
    try:
        return parse_value(name, setting.value or "true") == written.get(name)
    except ValueError:
        return False


def is_done(settings: Iterable[Setting], configuration: RunConfiguration) -> bool:
    """Return whether a configuration has all settings of a fix that is only about Megatron."""
    found = list(settings)
    return bool(found) and all(
        one.system in {"megatron-bridge", "megatron-lm"} and is_set(one, configuration) for one in found
    )


_MOST_LINES = 3
_LONGEST_LINE = 70
_OF_FORM = {"framework", "model_family"}
"""What the form of a file shows; no line states it."""


def quote_stops(
    text: str, name: str, check: ConfigurationCheck, configuration: RunConfiguration
) -> dict[str, tuple[str, ...]]:
    """Return the lines that state what failed checks use, by id of the check.

    Args:
        text: the file.
        name: its name, as sources of settings have it.
        check: the result.
        configuration: the settings that were read.
    """
    rows = precondition_rows()
    found = {}
    for row in check.conflicts:
        used = rows[row.precondition.id].keys() if row.precondition.id in rows else set()
        keys = sorted(used - _OF_FORM)
        known = (configuration.settings[key].source for key in keys if key in configuration.settings)
        written = [source.removeprefix(f"{name}: ") for source in known if source.startswith(f"{name}: ")]
        quoted = tuple(dict.fromkeys(_quote_lines(text, written)))[:_MOST_LINES]
        if quoted:
            found[row.precondition.id] = quoted
    return found


def _quote_lines(text: str, written: Iterable[str]) -> Iterator[str]:
    lines = text.splitlines()
    found = ((index, each) for each in written if (index := find_line(lines, each)) is not None)
    for index, each in sorted(found):
        yield f"line {index + 1}: {_cut_line(lines[index], each)}"


def _cut_line(line: str, written: str) -> str:
    """Return a line, or what follows the setting in a long one."""
    if len(line.strip()) <= _LONGEST_LINE:
        return line.strip()
    start = max(line.find(written), 0)
    return f"{line[start : start + _LONGEST_LINE].strip()} …"


def find_line(lines: list[str], written: str) -> int | None:
    """Return the index of the line that states a setting; its sections come before it, in order.

    >>> find_line(["tokenizer:", "  size: 1", "model:", "  size: 2"], "model.size")
    3
    >>> find_line(["torchrun x --bf16", "--fp16-other", "--fp16"], "--fp16")
    2
    """
    *sections, leaf = re.split(r"\.(?!\d)", written)
    start = 0
    for section in sections:
        start = _find_word(lines, section, start) or start
    index = _find_word(lines, leaf, start)
    return _find_word(lines, leaf, 0) if index is None else index


def _find_word(lines: list[str], word: str, start: int) -> int | None:
    """Return the first line from `start` that has a word as a key or flag; dashes and underscores are one."""
    spelled = re.escape(word.lstrip("-")).replace("_", "[-_]").replace(r"\-", "[-_]")
    pattern = re.compile(rf"(?<![\w-])(?:--)?{spelled}(?![\w-])")
    return next((index for index in range(start, len(lines)) if pattern.search(lines[index])), None)
