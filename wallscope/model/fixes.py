"""What could be done about a loss: settings, their preconditions, and how to see that they work."""

from collections import Counter
from dataclasses import dataclass
from typing import Literal

from wallscope.model.kinds import Wall
from wallscope.model.whatif import Answer
from wallscope.thresholds import FIXES_OF_A_CAUSE_COUNT, SHOWN_FIXES_COUNT

System = Literal["megatron-bridge", "megatron-lm", "pytorch", "program", "environment", "launcher", "nsys"]
Met = Literal["met", "unmet", "unknown"]


@dataclass(frozen=True, slots=True)
class Setting:
    """One setting of one system, under its current name; `value` as it is written there.

    A flag that takes none has an empty value; of `pytorch`, `program` and `launcher` the key is a line
    of code or of a command.
    """

    system: System
    key: str
    value: str

    def written(self) -> str:
        """The setting as its system has it.

        >>> Setting("megatron-lm", "--moe-token-dispatcher-type", "flex").written()
        '--moe-token-dispatcher-type flex'
        >>> Setting("nsys", "--sample", "none").written(), Setting("megatron-lm", "--bf16", "").written()
        ('--sample=none', '--bf16')
        """
        if not self.value:
            return self.key
        return f"{self.key}{' ' if self.system == 'megatron-lm' else '='}{self.value}"


@dataclass(frozen=True, slots=True)
class Precondition:
    """What must hold before a fix can work; trace or run configuration tell whether it does.

    `unblock` says what to change where it is unmet.
    """

    id: str
    text: str
    status: Met
    unblock: str | None = None


@dataclass(frozen=True, slots=True)
class ExpectedGain:
    """A published measurement with its context, quoted and never promised: speed-up ratios, or `None`."""

    text: str
    low: float | None
    high: float | None
    context: str


@dataclass(frozen=True, slots=True)
class Fix:
    """One remedy for one or several causes, ranked.

    `causes` are those of this run that it answers; `recoverable_ns` is the largest ceiling among them, `None`
    where none was worked out. It is `blocked` while a precondition is unmet. `replay` is what the step would
    take if all of what the fix is for came true, `None` where that was not asked (`Analysis.replay`).
    """

    id: str
    title: str
    wall: Wall
    causes: tuple[str, ...]
    why: str
    settings: tuple[Setting, ...]
    preconditions: tuple[Precondition, ...]
    blocked: bool
    recoverable_ns: int | None
    speedup_ceiling: float | None
    expected_gain: ExpectedGain | None
    caveats: tuple[str, ...]
    verify: str
    source: str
    next_wall: str | None = None
    replay: Answer | None = None


def first_screen(found: tuple[Fix, ...]) -> tuple[Fix, ...]:
    """The fixes that are shown first, in their order: not more than two of a cause before others."""
    taken: Counter[str] = Counter()
    first: list[int] = []
    for place, fix in enumerate(found):
        cause = fix.causes[0] if fix.causes else fix.wall
        taken[cause] += 1
        if taken[cause] <= FIXES_OF_A_CAUSE_COUNT:
            first.append(place)
    others = [place for place in range(len(found)) if place not in first]
    return tuple(found[place] for place in sorted([*first, *others][:SHOWN_FIXES_COUNT]))
