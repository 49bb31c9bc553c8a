"""The rules: which fix addresses which causes, under which conditions, with which settings and evidence.

Rules are data in `rules/<topic>.toml` next to this file, and fully checked when they are read. Settings are
written as a user writes them: `section.key=value`, `--flag value`, `NAME=value`. Conditions (`when`) follow
conditions.py, on the names of measurements.py and on settings.
"""

import re
import tomllib
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from functools import cache, lru_cache
from typing import Annotated, Any, ClassVar, Literal, get_args

from pydantic import BeforeValidator, ConfigDict, Field, TypeAdapter

from wallscope.advice.conditions import Clause, parse_clause
from wallscope.advice.estimates import ESTIMATES, Estimate, estimate_nothing
from wallscope.advice.measurements import MEASUREMENTS
from wallscope.advice.settings import vocabulary
from wallscope.model.advice import ExpectedGain, Phase, Setting, System
from wallscope.model.cause_catalogue import CALL, DRAINED, list_cause_meanings
from wallscope.model.enums import Wall
from wallscope.model.whatif import Question, QuestionKind
from wallscope.resources import list_toml_paths, read_toml

PRESSURE = "memory-pressure"
"""Pseudo-cause of a rule against running out of memory, to which no time is attributed."""

_STRICT = ConfigDict(extra="forbid", str_strip_whitespace=True)
_Text = Annotated[str, Field(min_length=3)]
_Id = Annotated[str, Field(pattern=r"^[a-z0-9]+(-[a-z0-9]+)*$")]
_FactId = Annotated[str, Field(pattern=r"^[A-Z]+[0-9]*-[A-Z]?[0-9]+$")]


@dataclass(frozen=True, slots=True)
class Gain:
    """A published measurement, as `ExpectedGain`."""

    __pydantic_config__: ClassVar[ConfigDict] = _STRICT

    text: _Text
    context: _Text
    low: Annotated[float, Field(gt=0)] | None = None
    high: Annotated[float, Field(gt=0)] | None = None

    def quote(self) -> ExpectedGain:
        """Return it as in the answer."""
        return ExpectedGain(self.text, self.low, self.high, self.context)


@dataclass(frozen=True, slots=True)
class Rule:
    """One fix as in the files.

    `causes` are patterns of cause ids. `order` sorts rules for the same cause, lower first. `settings` has
    lines by system. `active` describes the evidence that the fix runs, and `compare` what to hold fixed in
    addition to the usual. `replay` lists the options of `wallscope whatif` that together compute the gain.
    There, `CAUSES` stands for the causes of the rule, and a name of `estimates.py` for a share that the
    kernels determine. `facts` are ids of the fact tables. `about` is capture for a change of the capture,
    which is not a recommendation. A `generic` fix has no specific evidence in the capture and comes last.
    `refuted` describes what a further capture shows if the fix has no effect.
    """

    __pydantic_config__: ClassVar[ConfigDict] = _STRICT

    id: _Id
    title: _Text
    wall: Wall
    causes: Annotated[tuple[str, ...], Field(min_length=1)]
    phase: Phase
    because: _Text
    active: _Text
    source: _Text
    order: int = 50
    about: Literal["program", "capture"] = "program"
    generic: bool = False
    refuted: str = ""
    when: tuple[Annotated[Clause, BeforeValidator(parse_clause)], ...] = ()
    settings: dict[System, Annotated[tuple[_Text, ...], Field(min_length=1)]] = field(default_factory=dict)
    preconditions: tuple[str, ...] = ()
    gain: Gain | None = None
    caveats: tuple[_Text, ...] = ()
    compare: str = ""
    replay: tuple[str, ...] = ()
    facts: tuple[_FactId, ...] = ()

    @property
    def measured(self) -> frozenset[str]:
        """The measurements and settings that its conditions name."""
        return frozenset(name for clause in self.when for condition in clause for name in condition.names())

    def answers(self, cause: str) -> bool:
        """Return whether the rule addresses a cause."""
        return _is_any(self.causes, cause)

    def all_settings(self) -> tuple[Setting, ...]:
        """Return the settings one by one, in the order of the file."""
        return tuple(_setting(system, line) for system, lines in self.settings.items() for line in lines)

    def questions(self, causes: Sequence[str], estimate: Estimate = estimate_nothing) -> tuple[Question, ...]:
        """Return the replay questions of the rule for these causes."""
        return tuple(question for line in self.replay for question in _questions(line, causes, estimate))


@lru_cache(maxsize=1 << 14)
def _is_any(patterns: tuple[str, ...], cause: str) -> bool:
    return cause in patterns or any(
        fnmatchcase(cause, pattern) for pattern in patterns if _WILD.search(pattern)
    )


def _questions(line: str, causes: Sequence[str], estimate: Estimate) -> Iterator[Question]:
    """Yield a question per cause if the target is `CAUSES`, else the only one.

    >>> [one.option for one in _questions("--scale CAUSES=0", ["host/file", "host/lock"], estimate_nothing)]
    ['--scale host/file=0', '--scale host/lock=0']

    Raises:
        ValueError: it is not an option of `wallscope whatif`.
    """
    match = _REPLAY.fullmatch(line)
    kind = next((kind for kind in get_args(QuestionKind) if match and match["kind"] == kind), None)
    if match is None or kind is None or (kind == "scale") == (match["share"] is None):
        raise ValueError(f"replay {line!r} has no question")
    for target in causes if match["target"] == "CAUSES" else (match["target"],):
        if match["share"] in ESTIMATES:
            share = estimate(match["share"], target)
            if share is not None:
                yield Question(kind, target, share)
        else:
            yield Question(kind, target, None if match["share"] is None else float(match["share"]))


def _setting(system: System, line: str) -> Setting:
    if system in _VERBATIM:
        return Setting(system, line, "")
    key, value, *_ = [*re.split(r"[ =]", line, maxsplit=1), ""]
    return Setting(system, key, value)


@cache
def fix_rules() -> tuple[Rule, ...]:
    """Return all shipped rules, by topic and in the order of the files."""
    found = [rule for path in list_toml_paths("advice/rules") for rule in _check_rules(read_toml(path), path)]
    if doubled := sorted(rule for rule, count in Counter(rule.id for rule in found).items() if count > 1):
        raise ValueError(f"rules with the same id: {doubled}")
    return tuple(found)


def read_rules(text: str, origin: str) -> tuple[Rule, ...]:
    """Parse and check the rules of one file.

    Raises:
        ValueError: the file has an error; pydantic's message names the place.
    """
    return _check_rules(tomllib.loads(text), origin)


def _check_rules(document: Mapping[str, Any], origin: str) -> tuple[Rule, ...]:
    rules = _reader().validate_python(document.get("fix", []))
    for rule in rules:
        if problems := list(_problems(rule)):
            raise ValueError(f"{origin}: {rule.id}: {'; '.join(problems)}")
    return rules


@cache
def _reader() -> TypeAdapter[tuple[Rule, ...]]:
    return TypeAdapter(tuple[Rule, ...])


@cache
def _known_causes() -> tuple[str, ...]:
    return (*(cause.replace(CALL, "cudaStreamSynchronize") for cause, _ in list_cause_meanings()), PRESSURE)


def _problems(rule: Rule) -> Iterator[str]:
    if unknown := sorted(rule.measured - set(MEASUREMENTS) - set(vocabulary().kinds)):
        yield f"unknown measurements or settings {unknown}"
    try:
        rule.questions(rule.causes)
    except ValueError as error:
        yield str(error)
    for pattern in rule.causes:
        fixed = pattern if not pattern.startswith(DRAINED) else f"{DRAINED}*"
        if not any(_is_any((fixed,), cause) for cause in _known_causes()):
            yield f"no cause matches {pattern!r}"
    for system, lines in rule.settings.items():
        if system not in _VERBATIM and (
            bad := [line for line in lines if "=" not in line and not line.startswith("--")]
        ):
            yield f"{system} settings without a value: {bad}"


_WILD = re.compile(r"[*?\[]")
_REPLAY = re.compile(r"--(?P<kind>\w+) (?P<target>.+?)(=(?P<share>[\d.]+|[A-Z]+\d*))?")
_VERBATIM: tuple[System, ...] = (
    "pytorch",
    "jax",
    "tensorflow",
    "inference",
    "directives",
    "julia",
    "program",
    "launcher",
)
