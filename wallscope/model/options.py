"""What the user asks of an analysis, and the part of a capture that is looked at."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from wallscope.model.diagnosis import StepFacts
from wallscope.model.enums import Axis, Reader

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


@dataclass(frozen=True, slots=True)
class Options:
    """What the user asks for, and tells.

    Kernel-name rules, a pattern for steps, a part to look at, axes of streams, facts of a step, a file that
    says how the run was configured, how to read, and whether functions of Python count as ranges.
    """

    kernels: Path | None = None
    step_range: str | None = None
    selection: Selection = field(default_factory=Selection)
    streams: Mapping[int, Axis] = field(default_factory=dict)
    step_facts: StepFacts = field(default_factory=StepFacts)
    configuration: Path | None = None
    reader: Reader = Reader.PAGES
    python_functions: bool = False
