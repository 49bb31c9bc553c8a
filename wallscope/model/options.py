"""The user's options for an analysis, and the selected part of a capture."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from wallscope.model.diagnosis import StepFacts
from wallscope.model.enums import Axis, Reader

FOREVER_NS = 2**62
"""Larger than all times, also when one is subtracted from another."""


@dataclass(frozen=True, slots=True)
class Selection:
    """The selection; `None` is everything.

    `steps` are numbers of windows, both included; `time_ns` is a half-open interval of session time.
    """

    rank: int | None = None
    device: int | None = None
    steps: tuple[int, int] | None = None
    time_ns: tuple[int, int] | None = None


@dataclass(frozen=True, slots=True)
class Options:
    """The user's options and data.

    Kernel-name rules, a pattern for steps, the selected part, axes of streams and data on a step. Also the
    file with the run configuration, how to read, and whether Python functions count as ranges.
    """

    kernels: Path | None = None
    step_range: str | None = None
    selection: Selection = field(default_factory=Selection)
    streams: Mapping[int, Axis] = field(default_factory=dict)
    step_facts: StepFacts = field(default_factory=StepFacts)
    configuration: Path | None = None
    reader: Reader = Reader.PAGES
    python_functions: bool = False
