"""The machine-readable answer to what-if questions: these classes are the published JSON, field by field.

Times are integer nanoseconds of the typical step, shares are 0 to 1, `None` is unknown.
"""

from dataclasses import dataclass
from typing import Final, Literal

from wallscope.model.capture import Export
from wallscope.model.diagnosis import Walls
from wallscope.model.enums import Wall

WHATIF_SCHEMA: Final = "wallscope.whatif/1"

_SHOWN_TARGETS = {"think": "host time outside CUDA calls", "launch": "launch calls and latency"}
QuestionKind = Literal["scale", "without", "graph", "hide", "overlap"]


@dataclass(frozen=True, slots=True)
class Question:
    """One change: a target and, where it is scaled, what is left of its time as a share."""

    kind: QuestionKind
    target: str
    share: float | None = None

    @property
    def text(self) -> str:
        """The question in few words."""
        match self.kind:
            case "scale":
                target = _SHOWN_TARGETS.get(self.target, self.target)
                return f"{target} × {self.share:g}"  # noqa: RUF001  # a factor, set as one
            case "without":
                return f"without {self.target}"
            case "graph":
                return f"{'all launches' if self.target == '*' else self.target} as CUDA graphs"
            case "hide":
                return f"{self.target} fully hidden"
            case "overlap":
                return f"{self.target} on a stream of its own"

    @property
    def option(self) -> str:
        """The question as `wallscope whatif` takes it."""
        return f"--{self.kind} {self.target}" + ("" if self.share is None else f"={self.share:g}")


@dataclass(frozen=True, slots=True)
class Asked:
    """What is asked: changes that are played alone and together, and one that is played in degrees."""

    questions: tuple[Question, ...] = ()
    sweep: tuple[Question, ...] = ()
    interference: bool = True
    largest_error: float = 0.05


@dataclass(frozen=True, slots=True)
class SelfCheck:
    """How well the replay tells steps that it was not told: the lags of each are those of the other steps.

    `steps` are the typical steps that have others beside them; without two of them nothing can be checked
    and the errors are `None`. `own_error` is that of a replay with each step's own lags, which proves
    little. `slack_share` is the share of the critical path that is lags and time outside calls,
    `unmatched_share` that of lags with no like in another step.
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

    The row named `rest` holds all that are too small to list, an empty name what has none. `wall` is `None`
    where a part lies on several.
    """

    name: str
    wall: Wall | None
    time_ns: int
    share: float
    count: float


@dataclass(frozen=True, slots=True)
class PathSegment:
    """One of the longest stretches of the path of one step; `at_ns` is time of the session."""

    at_ns: int
    time_ns: int
    cause: str
    name: str
    path: str | None


@dataclass(frozen=True, slots=True)
class OperationSlack:
    """How much longer operations of a name could take each without the step ending later.

    Of the operations that begin in the typical steps. `binding` of them a step have no slack at all.
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
    """What bounds the typical step, moment by moment; each list sums to `step_ns`.

    `shown_step` is the step of the typical ones nearest to their mean, of which `segments` are told.
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
    """What the typical step takes with some changes; `speedup` is the step before over the step after.

    `walls` are those of the step after: compute where any ran, else what the path was bound by. `next_wall`
    is the loss wall that is largest then, compute where none reaches a tenth of the step; `next_cause` is
    its largest cause. `notes` say what was changed and what was assumed.
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
    """The steps that were played again to tell what fixes would win.

    `ranks` are played together; where it is one of several, the others come as late as they did. `refused`
    says why no fix has an answer, `None` where they have; `check` is `None` where nothing was played.
    """

    steps: int
    operations: int
    ranks: int
    check: SelfCheck | None
    refused: str | None


@dataclass(frozen=True, slots=True)
class WhatIf:
    """The answers to all questions about one rank of an export.

    `step_ns` is the typical step of the capture, `played_steps` how many steps it is played as,
    `played_operations` how many operations. `overlap_tax` is how much longer compute takes beside
    communication as measured here, which answers about overlap heed if `interference` is set.
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
