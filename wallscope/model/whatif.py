"""The machine-readable answer to what-if questions: these classes are the published JSON, field by field.

Times are integer nanoseconds of the typical step, shares are 0 to 1, `None` is unknown.
"""

from collections.abc import Mapping
from shlex import quote
from typing import Final, Literal

from wallscope.model.capture import Export
from wallscope.model.cause_catalogue import REFILL, WAIT
from wallscope.model.diagnosis import Walls
from wallscope.model.enums import Wall
from wallscope.records import dataclass

WHATIF_SCHEMA: Final = "wallscope.whatif/1"

_SHOWN_TARGETS = {"think": "host time outside CUDA calls", "launch": "launch calls and latency"}
QuestionKind = Literal["scale", "without", "graph", "hide", "overlap"]


LAUNCH, THINK = "launch", "think"
"""Targets of questions that hold host time alone: calls that launch, and time outside of calls."""


@dataclass(frozen=True, slots=True)
class Question:
    """One change: a target and, if it is scaled, the remaining share of its time."""

    kind: QuestionKind
    target: str
    share: float | None = None

    @property
    def text(self) -> str:
        """The question in few words."""
        match self.kind:
            case "scale":
                target = _SHOWN_TARGETS.get(self.target, self.target)
                target = target.replace(WAIT, "wait in ").replace(REFILL, "host time after ")
                return f"{target} × {self.share:g}"  # noqa: RUF001  # a factor, set as one
            case "without":
                return f"without {self.target}"
            case "graph":
                return f"{'all launches' if self.target == '*' else self.target} as CUDA graphs"
            case "hide":
                return f"{self.target} fully hidden"
            case "overlap":
                return f"{self.target} on its own stream"

    @property
    def option(self) -> str:
        """The question as an option of `wallscope whatif`, quoted for a shell."""
        return f"--{self.kind} " + quote(self.target + ("" if self.share is None else f"={self.share:g}"))


@dataclass(frozen=True, slots=True)
class Asked:
    """The questions: changes that are replayed alone and together, and one that is replayed in degrees."""

    questions: tuple[Question, ...] = ()
    sweep: tuple[Question, ...] = ()
    interference: bool = True
    largest_error: float = 0.05


@dataclass(frozen=True, slots=True)
class SelfCheck:
    """Leave-one-out check of the replay: each step is replayed with the latencies of the other steps.

    `steps` counts the typical steps with adjacent steps. If there are fewer than two, nothing can be checked,
    and the errors are `None`. `own_error` is the error of a replay with each step's own latencies, which
    proves little. `slack_share` is the share of latency and time outside calls in the critical path.
    `unmatched_share` is the share of latencies without a match in another step.
    """

    steps: int
    error_median: float | None
    error_p90: float | None
    own_error: float
    slack_share: float
    unmatched_share: float
    unresolved_wait_share: float | None


@dataclass(frozen=True, slots=True)
class PathPart:
    """A part of the critical path of the typical step: a cause, a range, or an operation by its name.

    The row `rest` is the sum of those too small to list; an empty name means that there is none. `wall` has
    nearly all of its time, and is `None` if several share it.
    """

    name: str
    wall: Wall | None
    time_ns: int
    share: float
    count: float


@dataclass(frozen=True, slots=True)
class PathSegment:
    """One of the longest segments of the path of one step; `at_ns` is session time."""

    at_ns: int
    time_ns: int
    cause: str
    name: str
    path: str | None


@dataclass(frozen=True, slots=True)
class OperationSlack:
    """How much longer operations of a name could take without delaying the end of the step.

    This covers the operations that begin in the typical steps; `binding` of them per step have no slack.
    """

    name: str
    cause: str
    count: float
    duration_ns: int
    slack_ns: int
    least_slack_ns: int
    binding: float


@dataclass(frozen=True, slots=True)
class CriticalPath:
    """The critical path of the typical step; each list sums to `step_ns`.

    `shown_step` is the typical step closest to their mean, and `segments` come from it.
    """

    step_ns: int
    walls: tuple[PathPart, ...]
    causes: tuple[PathPart, ...]
    ranges: tuple[PathPart, ...]
    operations: tuple[PathPart, ...]
    shown_step: int
    segments: tuple[PathSegment, ...]
    slack: tuple[OperationSlack, ...]


@dataclass(frozen=True, slots=True)
class Answer:
    """The typical step with some changes; `speedup` is the step before, divided by the step after.

    `walls` are those of the step after: compute where any ran, else the wall of the path. `next_wall` is the
    largest loss wall then, compute if none reaches a tenth of the step; `next_cause` is its largest cause.
    `notes` state what was changed and assumed.
    """

    questions: tuple[Question, ...]
    step_ns: int
    won_ns: int
    speedup: float
    walls: Walls
    next_wall: Wall
    next_cause: str
    notes: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Replay:
    """The replayed steps from which the gains of fixes are computed.

    `ranks` are replayed together. If this is only one of several ranks, the others arrive as late as in the
    capture. `refused` states why no fix has an answer (`None` if they have), and `refused_briefly` says it
    without how that was found out. `check` is `None` if nothing was replayed.
    """

    steps: int
    operations: int
    ranks: int
    check: SelfCheck | None
    refused: str | None
    refused_briefly: str | None = None


@dataclass(frozen=True, slots=True)
class Replayed:
    """What a replay found for fixes: how good it is, `None` if there is none, and the answers by fix."""

    replay: Replay | None
    answers: Mapping[str, Answer]


@dataclass(frozen=True, slots=True)
class WhatIf:
    """The answers to all questions about one rank of an export.

    `step_ns` is the typical step of the capture, `played_steps` the number of replayed steps,
    `played_operations` the number of operations. `overlap_tax` is the measured slowdown of compute that
    overlaps communication. If `interference` is set, answers about overlap use it.
    """

    schema: str
    wallscope_version: str
    inputs: tuple[Export, ...]
    rank: int | None
    device: int | None
    unit: str
    step_ns: int
    played_steps: int
    played_operations: int
    played_ranks: int
    overlap_tax: float | None
    interference: bool
    check: SelfCheck
    path: CriticalPath
    walls: Walls
    wall: Wall
    answers: tuple[Answer, ...]
    sweep: tuple[Answer, ...]

    @property
    def best(self) -> Answer | None:
        """The answer that gains most; `None` where no change shortens the step."""
        found = max(self.answers, key=lambda one: one.won_ns, default=None)
        return found if found is not None and found.won_ns > 0 else None
