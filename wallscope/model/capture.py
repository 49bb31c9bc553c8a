"""The content of one export or trace, the selected part of it, and the user's options for its analysis."""

from collections.abc import Callable, Mapping
from dataclasses import field, replace
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from wallscope.model.calibration import FixCalibration
from wallscope.model.diagnosis import StepFacts
from wallscope.model.enums import Axis, Reader
from wallscope.model.finding_codes import FindingCode
from wallscope.model.shown import Shown
from wallscope.records import dataclass

if TYPE_CHECKING:
    import polars as pl  # Answers contain these models and no frames: reading an answer does not need polars.

Progress = Callable[[str], None]
"""Called from time to time with a few words on the current stage of long work."""
FOREVER_NS = 2**62
"""Larger than all times, also when one is subtracted from another."""
CAPTURE_RECORDS = "hook-{host}-rank-*.json"
"""How the records of a captured program are named; such files, next to its reports, hold no answer."""
CAPTURE_RECORD_SCHEMA = "wallscope-capture-record-1"


class Presence(StrEnum):
    """Whether a table has rows: a missing table differs from an empty one."""

    ABSENT = "absent"
    EMPTY = "empty"
    ROWS = "rows"


class Severity(StrEnum):
    """How much a finding limits conclusions."""

    INFO = "info"
    WARNING = "warning"
    ERROR = "error"


_PROFILER_COSTS = frozenset({FindingCode.EMIT_NVTX, FindingCode.TORCH_STACKS})
"""Findings about time that recording takes from the threads of the host."""
_NSYS_COSTS = _PROFILER_COSTS | {FindingCode.PROFILER_OVERHEAD}
"""Of nsys, which says on which thread; the overhead in a trace of PyTorch may be on any."""


class GraphTracing(StrEnum):
    """How CUDA graphs were traced."""

    NONE = "none"
    NODE = "node"
    GRAPH = "graph"


class Profiler(StrEnum):
    """The recorder of a capture: Nsight Systems, or the profiler of PyTorch (Kineto)."""

    NSYS = "nsys"
    TORCH = "torch"


@dataclass(frozen=True, slots=True)
class Finding:
    """A limit of the capture: what it is, and how to avoid it in the next capture.

    If a message has several sentences, `lead` is the first one, otherwise it is empty.
    """

    code: Annotated[str, Shown("id of the finding, as in docs/glossary.md", "code")]
    severity: Annotated[
        Severity, Shown("how strongly the finding limits the result: error, warning or info", "gravity")
    ]
    message: Annotated[str, Shown("text of the finding", "finding")]
    cure: Annotated[str | None, Shown("what to change in the next capture or in the command", "cure")] = None
    covers_ns: Annotated[
        int | None,
        Shown("how much time the finding concerns; empty if none", "covers", "duration"),
    ] = None
    lead: str = ""

    @property
    def short(self) -> str:
        """The first sentence of several, else the message."""
        return self.lead or self.message


@dataclass(frozen=True, slots=True)
class Gpu:
    """A GPU of the machine, used or not, as in the export."""

    id: int
    name: str | None
    architecture: str | None
    sm_count: int | None
    memory_bytes: int | None
    memory_bandwidth_bytes_per_s: int | None
    clock_hz: int | None = None


@dataclass(frozen=True, slots=True)
class CaptureConditions:
    """Under which conditions a capture was taken; `None` is unknown, and so are all of no `options`.

    `profiler_version` is that of the profiler that captured, which is not always the one that exported.
    `clock_hz` is the highest clock of its GPUs, `options` what the profiler recorded, by name: `on` or `off`,
    or how often.
    """

    profiler_version: str | None = None
    driver_version: str | None = None
    cuda_version: str | None = None
    clock_hz: int | None = None
    options: tuple[tuple[str, str], ...] = ()


@dataclass(frozen=True, slots=True)
class Export:
    """Identity of an export: base name of the file, versions, machine, GPUs.

    `fingerprint` identifies the content (BLAKE2 of size and evenly spaced blocks). `environment` has only the
    allowed variables. `time_shift_ns` is what the exporter added to all times; it is subtracted again in all
    output. `loader_threads` counts, by kind, the threads and worker processes that a data loader named.
    """

    name: str
    fingerprint: str
    size_bytes: int
    nsys_version: str | None
    schema_version: str | None
    hostname: str | None
    session_start_utc_ns: int | None
    time_shift_ns: int
    gpus: tuple[Gpu, ...]
    environment: Mapping[str, str]
    profiler: Profiler = Profiler.NSYS
    loader_threads: Mapping[str, int] = field(default_factory=dict)

    def gpu(self, number: int | None) -> Gpu | None:
        """Return the GPU with this id; if it is unknown, one that represents all if all are alike."""
        for gpu in self.gpus:
            if gpu.id == number:
                return gpu
        alike = {replace(gpu, id=0) for gpu in self.gpus}
        return self.gpus[0] if len(alike) == 1 else None


@dataclass(frozen=True, slots=True)
class Capture:
    """The device operations of an export, with the ranks that issued them.

    Frames follow the schemas of the same names. `names`, `call_names`, `host_names` and `metric_names` follow
    `NAMES`, `range_names` follows `RANGE_NAMES`, `streams` follows `DEVICE_STREAMS`. `world_size` is the
    number of ranks in the job if known. `kernel_flops`, `kernel_occupancy` and `autograd_ranges` are `None`
    if the profiler does not record shapes of operators, occupancy, or operators of the backward pass.
    `traffic` is `None` if no card or switch was sampled. `libraries` are the known framework libraries that
    the program loaded. `interpreter` is `python`, `julia`, `native`, or `None` if unknown.
    """

    export: Export
    presence: Mapping[str, Presence]
    graphs: GraphTracing
    ranks: "pl.DataFrame"
    names: "pl.DataFrame"
    operations: "pl.DataFrame"
    copies: "pl.DataFrame"
    kernels: "pl.DataFrame"
    streams: "pl.DataFrame"
    threads: "pl.DataFrame"
    calls: "pl.DataFrame"
    call_names: "pl.DataFrame"
    syncs: "pl.DataFrame"
    events: "pl.DataFrame"
    host_events: "pl.DataFrame"
    host_names: "pl.DataFrame"
    bystander_waits: "pl.DataFrame"
    ranges: "pl.DataFrame"
    range_names: "pl.DataFrame"
    collective_calls: "pl.DataFrame"
    communicators: "pl.DataFrame"
    memory: "pl.DataFrame"
    cpu_samples: "pl.DataFrame"
    samples: "pl.DataFrame"
    metric_names: "pl.DataFrame"
    findings: tuple[Finding, ...]
    world_size: int | None
    kernel_flops: "pl.DataFrame | None" = None
    kernel_occupancy: "pl.DataFrame | None" = None
    autograd_ranges: "pl.DataFrame | None" = None
    traffic: "pl.DataFrame | None" = None
    libraries: tuple[str, ...] = ()
    interpreter: str | None = None
    conditions: CaptureConditions = field(default_factory=CaptureConditions)

    @property
    def is_cut_off(self) -> bool:
        """Whether the capture is known to end early: then any time may lack work, and no bound holds."""
        return any(finding.code == FindingCode.TRACE_CUT_OFF for finding in self.findings)

    @property
    def has_unknown_clock(self) -> bool:
        """Whether the clocks of devices and CPU contradict each other, and nothing aligns them."""
        return any(finding.code == FindingCode.DEVICE_CLOCK_UNKNOWN for finding in self.findings)

    @property
    def is_slowed_by_profiler(self) -> bool:
        """Whether a warning says that recording slowed the threads of the host."""
        costs = _PROFILER_COSTS if self.export.profiler == Profiler.TORCH else _NSYS_COSTS
        return any(one.code in costs and one.severity is Severity.WARNING for one in self.findings)


@dataclass(frozen=True, slots=True)
class TableContents:
    """One table of an export: the meaning of its rows, and their number (`None`: no such table)."""

    table: str
    rows_are: str
    row_count: int | None


@dataclass(frozen=True, slots=True)
class Contents:
    """The content of an export, before any analysis.

    `traced` are the kinds of event that the capture was configured to record; empty if unknown.
    `has_device_work` says whether it has a kernel, copy, fill or graph.
    """

    export: Export
    has_device_work: bool
    traced: tuple[str, ...]
    duration_ns: int | None
    graph_mode: str | None
    processes: int | None
    tables: tuple[TableContents, ...]
    other_tables: int
    findings: tuple[Finding, ...]


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
    file with the run configuration, how to read, and whether Python functions count as ranges. What
    recommendations realized of their bounds in a project is `experience`.
    """

    kernels: Path | None = None
    step_range: str | None = None
    selection: Selection = field(default_factory=Selection)
    streams: Mapping[int, Axis] = field(default_factory=dict)
    step_facts: StepFacts = field(default_factory=StepFacts)
    configuration: Path | None = None
    reader: Reader = Reader.PAGES
    python_functions: bool = False
    experience: tuple[FixCalibration, ...] = ()
