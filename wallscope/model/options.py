"""What the user asks of an analysis, and the part of a capture that is looked at."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from wallscope.model.diagnosis import StepFacts
from wallscope.model.enums import Axis, Reader
from wallscope.units import seconds

FOREVER_NS = 2**62
"""Beyond all times, also when one is subtracted from another."""


@dataclass(frozen=True, slots=True)
class Selection:
    """What is looked at; `None` is everything.

    `steps` are numbers of windows, both included; `time_ns` is a half-open stretch of session time.
    """

    rank: int | None = None
    device: int | None = None
    steps: tuple[int, int] | None = None
    time_ns: tuple[int, int] | None = None

    def spell(self, *names: str) -> str:
        """Some of its options as a user writes them; empty where none of them is set.

        >>> Selection(device=1, steps=(3, 3), time_ns=(1_500_000_000, 2_000_000_000)).spell("steps", "time")
        '--steps 3 --time 1.500000000-2.000000000'
        """
        steps = None if self.steps is None else has_time_limits(*self.steps)
        time = None if self.time_ns is None else "-".join(map(seconds, self.time_ns))
        options = {"rank": self.rank, "device": self.device, "steps": steps, "time": time}
        return " ".join(
            f"--{name} {value}" for name, value in options.items() if name in names and value is not None
        )


def has_time_limits(first: int, last: int) -> str:
    """Numbers from first to last, both included, as a user writes them."""
    return str(first) if first == last else f"{first}-{last}"


@dataclass(frozen=True, slots=True)
class Options:
    """What the user asks for, and tells.

    Kernel-name rules, a pattern for steps, a part to look at, axes of streams, facts of a step, a file that
    says how the run was configured, how to read.
    """

    kernels: Path | None = None
    step_range: str | None = None
    selection: Selection = field(default_factory=Selection)
    streams: Mapping[int, Axis] = field(default_factory=dict)
    step_facts: StepFacts = field(default_factory=StepFacts)
    configuration: Path | None = None
    reader: Reader = Reader.PAGES
