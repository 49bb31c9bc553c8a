"""What the user asks of an analysis."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from wallscope.model.kinds import Axis
from wallscope.model.reader import Reader
from wallscope.model.selection import Selection
from wallscope.model.throughput import StepFacts


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
