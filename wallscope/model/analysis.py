"""The machine-readable answer: these classes are the published JSON contract, field by field.

Times are integer nanoseconds, shares are 0..1, `None` is unknown and never means 0. Fields may be
added, never renamed within a major version of `SCHEMA`.
"""

from dataclasses import dataclass, field
from typing import Final, Literal

from wallscope.model.capture import Export, Finding, GraphTracing
from wallscope.model.kinds import Backend, Collective, ComputeCategory, CopyDirection

SCHEMA: Final = "wallscope.analysis/1"
ENOUGH_STEPS: Final = 5
"""Of fewer steady steps the unit that repeats inside tells how much varies."""

AnchorKind = Literal["user", "nvtx", "optimizer", "collective", "kernel-sequence", "whole-trace"]
AnchorUnit = Literal["step", "microbatch", "layer", "window"]
Dominant = Literal["compute", "communication", "memory", "host", "mixed", "unknown"]
Pressure = Literal["none", "near", "high", "unknown"]


@dataclass(frozen=True, slots=True)
class Budget:
    """What the device did in a window; the five parts sum to it, exactly."""

    compute: int
    opaque_graph: int
    exposed_communication: int
    exposed_copy: int
    idle: int

    def parts(self) -> tuple[int, ...]:
        """The five parts, in order of precedence."""
        return (self.compute, self.opaque_graph, self.exposed_communication, self.exposed_copy, self.idle)


@dataclass(frozen=True, slots=True)
class Step:
    """One window of a rank, with its budget."""

    index: int
    start_ns: int
    end_ns: int
    steady: bool
    reason: str | None
    budget: Budget
    compute_absent: None = None
    walls: None = None


@dataclass(frozen=True, slots=True)
class Typical:
    """The typical step: the mean of the steady ones, rounded so that it adds up."""

    step_ns: int
    budget: Budget
    walls: None = None


@dataclass(frozen=True, slots=True)
class CommunicationOperation:
    """The communication operations of one collective and library.

    `work_ns` adds up durations; `exposed_ns` is the time in which one of them ran and neither
    compute nor an opaque graph did.
    """

    operation: Collective
    axis: str
    backend: Backend
    count: int
    work_ns: int
    exposed_ns: int
    bytes: int | None
    bus_bandwidth_bytes_per_s: float | None = None


@dataclass(frozen=True, slots=True)
class Communication:
    """Communication of a rank: the time it ran, and how much of it nothing hid."""

    union_ns: int
    exposed_ns: int
    blocking_ns: int | None
    hidden_share: float | None
    operations: tuple[CommunicationOperation, ...]


@dataclass(frozen=True, slots=True)
class ComputeWork:
    """Compute kernels of one category: added-up durations (work, not time), share of all such work."""

    category: ComputeCategory
    work_ns: int
    share: float
    kernels: int


@dataclass(frozen=True, slots=True)
class KernelWork:
    """A kernel by name: added-up durations (work, not time) and share of the window."""

    name: str
    count: int
    work_ns: int
    share: float


@dataclass(frozen=True, slots=True)
class CopyWork:
    """Copies of one direction and host memory; `exposed_ns` is time in which nothing else ran.

    `pinned` is `None` where no host memory takes part or the export does not tell.
    """

    direction: CopyDirection
    count: int
    bytes: int
    work_ns: int
    exposed_ns: int
    pinned: bool | None


@dataclass(frozen=True, slots=True)
class Memory:
    """Memory of a rank: capacity and traffic."""

    peak_bytes: int | None
    capacity_bytes: int | None
    allocator_calls: int | None
    copies: tuple[CopyWork, ...]


@dataclass(frozen=True, slots=True)
class RangeWork:
    """A range path in the typical step: instances, host time, device time inclusive and alone, work.

    `count` and `host_ns` are of the ranges that begin in the step; `None` for one that is open throughout.
    """

    name: str
    path: str
    count: int | None
    host_ns: int | None
    gpu_ns: int
    own_gpu_ns: int
    work_ns: int
    own_work_ns: int
    walls: None = None


@dataclass(frozen=True, slots=True)
class Rank:
    """One (process, device) pair.

    `outside_ns` is device time before the first window; `unmatched_kernels` are over 1 % of the typical
    step and known to no pattern; `ranges` are the 200 with most device time.
    """

    rank: int | None
    rank_source: str | None
    input: int
    pid: int | None
    device: int | None
    gpu: int | None
    outside_ns: int
    steps: tuple[Step, ...]
    typical: Typical
    communication: Communication
    compute: tuple[ComputeWork, ...]
    memory: Memory
    unmatched_kernels: tuple[KernelWork, ...]
    ranges: tuple[RangeWork, ...]
    causes: None = None
    profile: None = None


@dataclass(frozen=True, slots=True)
class DroppedStep:
    """A window that does not count as steady, and why."""

    index: int
    reason: str


@dataclass(frozen=True, slots=True)
class CrossCheck:
    """What a second anchor says: its count of steps, and whether both agree within 5 %."""

    kind: AnchorKind
    steps: int
    agrees: bool


@dataclass(frozen=True, slots=True)
class InnerUnit:
    """What repeats inside the steps of the busiest rank: how many there are, and how long they take.

    A unit reaches from its first kernel to that of the next one in the same step.
    """

    unit: AnchorUnit
    name: str
    count: int
    median_ns: int
    p10_ns: int
    p90_ns: int


@dataclass(frozen=True, slots=True)
class Anchor:
    """What divides the capture into windows."""

    kind: AnchorKind
    unit: AnchorUnit
    name: str | None
    steps: int
    dropped: tuple[DroppedStep, ...] = ()
    cross_check: CrossCheck | None = None
    inner: InnerUnit | None = None


@dataclass(frozen=True, slots=True)
class CaptureQuality:
    """What the export lacks and what that forbids to claim."""

    findings: tuple[Finding, ...]
    launch_correlation_share: float | None
    resolved_dependency_share: float | None
    cuda_graphs: GraphTracing
    ranks_supplied: int
    world_size: int | None


@dataclass(frozen=True, slots=True)
class MemoryPressure:
    """How close the run is to the end of the GPU's memory."""

    level: Pressure = "unknown"
    evidence: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Diagnosis:
    """The verdict, `unknown` where the walls were not accounted for."""

    dominant_wall: Dominant
    verdict: str
    runner_up: str | None = None
    margin: float | None = None
    led_steps: int | None = None
    steady_steps: int = 0
    walls: None = None
    next_wall: str | None = None
    memory_pressure: MemoryPressure = field(default_factory=MemoryPressure)


@dataclass(frozen=True, slots=True)
class Analysis:
    """One object a run of `analyze`."""

    schema: Literal["wallscope.analysis/1"]
    wallscope_version: str
    inputs: tuple[Export, ...]
    capture: CaptureQuality
    anchor: Anchor
    ranks: tuple[Rank, ...]
    diagnosis: Diagnosis
    opportunities: None = None
    fixes: None = None
