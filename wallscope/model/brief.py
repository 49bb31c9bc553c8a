"""Brief answers, for coding agents: these classes are the published JSON, field by field.

A brief answer is a selection of the full one, and each number has its place in the full JSON answer. A key of
`numbers` is the JSON pointer (RFC 6901) of its value. `evidence` of a row is the pointer of an object whose
fields have the same names. Times are integer nanoseconds; the JSON has 5 digits of shares and ratios.
A key that is absent is unknown or empty, never 0.
"""

from collections.abc import Mapping
from dataclasses import field
from typing import Final, Literal, Self

from wallscope.records import dataclass

BRIEF_SCHEMA: Final = "wallscope.brief/1"

DEFAULT_ROWS_COUNT: Final = 3
"""Rows of each list of a brief answer on the command line. Chosen: then it has under 600 tokens."""
TOOL_ROWS_COUNT: Final = 20
"""Rows of each list of a tool of the server by default. Chosen."""
MOST_ROWS_COUNT: Final = 50
"""The most rows of each list that may be asked for. Chosen."""

NAME_BEGINS: Final = "\u2039"
"""Stands before a name of a capture in sentences of the server: a single angle quotation mark."""
NAME_ENDS: Final = "\u203a"
"""Stands behind it."""


class CutText(str):
    """A sentence that was cut: the first `kept` letters of the `whole`, and the mark of a cut, if any."""

    __slots__ = ("kept", "whole")
    whole: str
    kept: int

    def __new__(cls, whole: str, kept: int, mark: str = "") -> Self:
        """Cut a text."""
        text = super().__new__(cls, whole[:kept] + mark)
        text.whole, text.kept = whole, kept
        return text


@dataclass(frozen=True, slots=True)
class Unknown:
    """What the capture does not show, why, and the cure."""

    what: str
    because: str
    cure: str | None = None


@dataclass(frozen=True, slots=True)
class NextCall:
    """The next useful call: a command line, or a tool of the server with its arguments."""

    command: str | None = None
    tool: str | None = None
    arguments: Mapping[str, str | tuple[str, ...]] | None = None


@dataclass(frozen=True, slots=True)
class Recommendation:
    """A fix: what to set, its upper bound on speedup, and how many of its preconditions hold.

    `more_settings` of the same framework, or of any, are left out here; those of others do not count. What
    follows `blocked_by` is present only with details. `replay_step_ns` is `replay/step_ns` of the object at
    `evidence`. `check_first` are preconditions that neither capture nor configuration shows. `assumes` is
    what the upper bound assumes; if these are rates, `most_speedup` is the bound.
    """

    id: str
    title: str
    evidence: str
    speedup_ceiling: float | None = None
    settings: tuple[str, ...] = ()
    more_settings: int | None = None
    preconditions: str | None = None
    blocked_by: tuple[str, ...] = ()
    recoverable_ns: int | None = None
    replay_step_ns: int | None = None
    check_first: tuple[str, ...] = ()
    assumes: str | None = None
    most_speedup: float | None = None


@dataclass(frozen=True, slots=True)
class BriefCause:
    """A cause of lost time: what it takes of the typical step, and what its removal wins at most."""

    cause: str
    typical_ns: int
    share: float
    evidence: str
    recoverable_ns: int | None = None


@dataclass(frozen=True, slots=True)
class BriefAnswer:
    """What the answer to one what-if question is; `option` is the question as the command line takes it."""

    option: str
    step_ns: int
    won_ns: int
    speedup: float
    next_wall: str
    next_cause: str
    evidence: str


@dataclass(frozen=True, slots=True)
class BriefChange:
    """How a cause changed from base to head."""

    cause: str
    delta_ns: int
    base_ns: int
    head_ns: int
    evidence: str


@dataclass(frozen=True, slots=True)
class BriefText:
    """Lines under a heading, or one line with what to do about it."""

    heading: str
    lines: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class BriefCheck:
    """A precondition that is not met."""

    id: str
    feature: str
    text: str
    level: str
    evidence: str
    unblock: str | None = None


Scalar = str | int | float | bool | None


@dataclass(frozen=True, slots=True)
class Brief:
    """A brief answer of `command`; `omitted` rows of its list are left out.

    `verdict` is the answer in a sentence or two, `subject` what it is about, `confidence` how sure it is.
    """

    schema: Literal["wallscope.brief/1"]
    command: str
    subject: str
    verdict: str
    next: NextCall
    numbers: Mapping[str, int | float] = field(default_factory=dict)
    confidence: str | None = None
    unknown: tuple[Unknown, ...] = ()
    omitted: int | None = None


@dataclass(frozen=True, slots=True)
class AnalysisBrief(Brief):
    """Of `analyze`: what limits the step, and what to do."""

    recommendations: tuple[Recommendation, ...] = ()


@dataclass(frozen=True, slots=True)
class BreakdownBrief(Brief):
    """Of `analyze`: the walls of the typical step are the numbers, the causes are the rows."""

    causes: tuple[BriefCause, ...] = ()


@dataclass(frozen=True, slots=True)
class WhatIfBrief(Brief):
    """Of `whatif`: the replayed step for each question."""

    answers: tuple[BriefAnswer, ...] = ()


@dataclass(frozen=True, slots=True)
class ComparisonBrief(Brief):
    """Of `diff`: causes that changed."""

    changes: tuple[BriefChange, ...] = ()


@dataclass(frozen=True, slots=True)
class CheckBrief(Brief):
    """Of `check-config`: preconditions that are not met, of features that are on first."""

    checks: tuple[BriefCheck, ...] = ()


@dataclass(frozen=True, slots=True)
class TextBrief(Brief):
    """Of `explain` and `capture-help`: text under headings."""

    sections: tuple[BriefText, ...] = ()


@dataclass(frozen=True, slots=True)
class TableBrief(Brief):
    """Of tables: rows of the full table at `/0`, `/1` …; texts are cut, cells without a value left out."""

    rows: tuple[Mapping[str, Scalar], ...] = ()
