"""The machine-readable answer: these classes are the published JSON contract, field by field.

Times are integer nanoseconds, shares are 0..1, `None` is unknown and never means 0. Fields may be
added, never renamed within a major version of `SCHEMA`.
"""

from dataclasses import dataclass
from typing import Final, Literal

from wallscope.model.advice import Fix, Program
from wallscope.model.capture import Export, Finding, GraphTracing
from wallscope.model.diagnosis import Diagnosis, Opportunity, RareStall, SlowerKernels, StepMode
from wallscope.model.diagnosis import Walls as Walls  # noqa: PLC0414  # told here too: a part of the contract
from wallscope.model.enums import ComputeCategory, Wall
from wallscope.model.job import Job
from wallscope.model.rank_summaries import Communication, ComputeDetails, GpuMetrics, HostDetails, Memory
from wallscope.model.whatif import Replay

SCHEMA: Final = "wallscope.analysis/1"

AnchorKind = Literal["user", "nvtx", "optimizer", "collective", "kernel-sequence", "whole-trace"]
AnchorUnit = Literal["step", "microbatch", "layer", "window"]


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
class ComputeAbsent:
    """Why neither compute nor an opaque graph ran; the three parts sum to that time, exactly."""

    launch_starved: int
    blocking: int
    dependency_stalled: int


@dataclass(frozen=True, slots=True)
class CauseTime:
    """What a cause owns of the typical step; causes of one wall sum to it.

    `recoverable_ns` is what the step would get shorter without the cause, next constraints heeded: a
    ceiling, `None` where it was not worked out. `unresolved_ns` is the part whose owner is not known.
    """

    cause: str
    wall: Wall
    typical_ns: int
    share: float
    recoverable_ns: int | None
    unresolved_ns: int


@dataclass(frozen=True, slots=True)
class Step:
    """One window of a rank, with its budget, why no compute ran, and who pays."""

    index: int
    start_ns: int
    end_ns: int
    steady: bool
    reason: str | None
    budget: Budget
    compute_absent: ComputeAbsent
    walls: Walls


@dataclass(frozen=True, slots=True)
class Typical:
    """The typical step: the mean of the steady ones, rounded so that it adds up."""

    step_ns: int
    budget: Budget
    walls: Walls


@dataclass(frozen=True, slots=True)
class ComputeWork:
    """Compute kernels of one category: added-up durations (work, not time), share of all such work.

    `flops_per_s` is by the shapes of operators, while the kernels run; `None` where a kernel of the category
    lacks them.
    """

    category: ComputeCategory
    work_ns: int
    share: float
    kernels: int
    flops_per_s: float | None = None


@dataclass(frozen=True, slots=True)
class KernelWork:
    """A kernel by name: added-up durations (work, not time) and share of the window."""

    name: str
    count: int
    work_ns: int
    share: float


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
    walls: Walls | None = None


@dataclass(frozen=True, slots=True)
class PackedProfile:
    """What comparisons need of a rank: the schema of its profile, and base64 of compressed JSON."""

    schema: str
    data: str


@dataclass(frozen=True, slots=True)
class Rank:
    """One (process, device) pair.

    `outside_ns` is device time before the first window, `outside_idle_ns` the part of it in which no
    operation ran; `whole_walls` are of all time, where a good part of the work and most time lie there, else
    `None`; `unmatched_kernels` are over 1 % of the typical step and known to no pattern;
    `ranges` are the 200 with most device time. `host_details` are `None` where
    no call is known, `gpu_metrics` where none were sampled. `mean_step_ns` and `median_step_ns` are of all
    steady steps, `None` without any; `modes` are the kinds they come in, empty where they are of one kind;
    `rare_stalls` are what the typical step does not show; `slower_kernels` is `None` where kernels keep
    their length.
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
    causes: tuple[CauseTime, ...]
    compute_details: ComputeDetails | None
    profile: PackedProfile | None = None
    host_details: HostDetails | None = None
    gpu_metrics: GpuMetrics | None = None
    outside_idle_ns: int = 0
    whole_walls: Walls | None = None
    mean_step_ns: int | None = None
    median_step_ns: int | None = None
    modes: tuple[StepMode, ...] = ()
    rare_stalls: tuple[RareStall, ...] = ()
    slower_kernels: SlowerKernels | None = None


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
    """What divides the capture into windows, told of the busiest rank, the one with most kernels.

    `steps` and the cross-check count the steps of its whole capture; `dropped` and `inner` speak of what is
    selected. `selected_time_ns` is the stretch of session time that the user chose, `None` for all of it.
    """

    kind: AnchorKind
    unit: AnchorUnit
    name: str | None
    steps: int
    dropped: tuple[DroppedStep, ...] = ()
    cross_check: CrossCheck | None = None
    inner: InnerUnit | None = None
    selected_time_ns: tuple[int, int] | None = None

    @property
    def window(self) -> str:
        """What one window is, in a word or two."""
        if self.kind != "whole-trace":
            return self.unit
        return "capture" if self.selected_time_ns is None else "selected time"

    @property
    def typical(self) -> str:
        """What the typical step is called: without steps it is all there is."""
        return self.window if self.kind == "whole-trace" else f"typical {self.unit}"


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
class Analysis:
    """One object a run of `analyze`; `job` is what several ranks tell together, `None` of one alone.

    `replay` is `None` where no fix can be asked for. `capture_advice` is what would make the capture say
    more, in the form of fixes but none of them; `dismissed` are fixes whose own replay wins nothing.
    """

    schema: Literal["wallscope.analysis/1"]
    wallscope_version: str
    inputs: tuple[Export, ...]
    capture: CaptureQuality
    anchor: Anchor
    ranks: tuple[Rank, ...]
    diagnosis: Diagnosis
    opportunities: tuple[Opportunity, ...] = ()
    fixes: tuple[Fix, ...] | None = None
    job: Job | None = None
    replay: Replay | None = None
    program: Program | None = None
    capture_advice: tuple[Fix, ...] = ()
    dismissed: tuple[Fix, ...] = ()
