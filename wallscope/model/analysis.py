"""The machine-readable analysis: these classes are the published JSON contract, field by field.

Times are integer nanoseconds, shares are 0..1, `None` is unknown and never means 0. Fields may be
added, never renamed within a major version of `SCHEMA`.
"""

from dataclasses import dataclass
from enum import StrEnum
from typing import Final, Literal

from wallscope.model.advice import Fix, Program
from wallscope.model.capture import Export, Finding, GraphTracing
from wallscope.model.diagnosis import (
    Diagnosis,
    Dominant,
    Opportunity,
    RareStall,
    SlowerKernels,
    StepMode,
    Walls,
)
from wallscope.model.enums import Axis, Collective, ComputeCategory, Wall
from wallscope.model.rank_summaries import Communication, ComputeDetails, GpuMetrics, HostDetails, Memory
from wallscope.model.scope import Scope
from wallscope.model.whatif import Replay

ClockMethod = Literal["none", "one-clock", "session-start", "collective-ends", "unaligned"]


class Reason(StrEnum):
    """Why a rank is late to the collectives of its peers."""

    SLOWER_KERNELS = "slower-kernels"
    MORE_TOKENS = "more-tokens"
    LONGER_KERNELS = "longer-kernels"
    OTHER_WORK = "other-work"
    HOST = "host"
    MEMORY = "memory"
    COMMUNICATION = "communication"
    UNKNOWN = "unknown"


@dataclass(frozen=True, slots=True)
class Clock:
    """One host's clock against the reference: `offset_ns` at its first collective, and its drift.

    Both are 0 for the reference, and `None` if nothing connects the host to it. The drift is also `None` if
    the matched part is too short.
    """

    hostname: str | None
    ranks: tuple[int, ...]
    offset_ns: int | None
    drift_ppm: float | None
    matched: int


@dataclass(frozen=True, slots=True)
class Clocks:
    """How the clocks of the ranks were aligned, and the remaining distance of ends of one collective."""

    method: ClockMethod
    residual_p05_ns: int | None
    residual_p95_ns: int | None
    hosts: tuple[Clock, ...]


@dataclass(frozen=True, slots=True)
class CollectiveWaits:
    """The matched collectives of one kind over all ranks: mean times of a rank in its typical step.

    `bus_bandwidth_bytes_per_s` is over the transfer time; `None` if the bytes are unknown.
    """

    operation: Collective
    axis: Axis
    participants: int
    count: float
    transfer_ns: int
    wait_ns: int
    bus_bandwidth_bytes_per_s: float | None


@dataclass(frozen=True, slots=True)
class JobCollectives:
    """Operations of all ranks that were matched to a collective, and those that were not.

    `partial` lack ranks that were not given; their waiting cannot be separated from their transfer.
    `jitter_ns` is the mean peer wait of a rank per typical step.
    """

    matched: int
    partial: int
    unmatched: int
    transfer_ns: int
    jitter_ns: int
    pipeline_ns: int
    kinds: tuple[CollectiveWaits, ...]


@dataclass(frozen=True, slots=True)
class RankWaits:
    """One rank of a job.

    The duration of its collectives (added up, with or without overlapping compute) is the sum of
    `transfer_ns`, `peer_wait_ns`, `pipeline_wait_ns` and `unsplit_ns`. The `blocking_*` are their parts on
    the critical path. `all_residence_ns` and `all_wait_ns` cover the whole capture. Waiting for peers is
    `None` if most of the collectives could not be matched; `unmatched_count` is their number. `late_ns` is
    how long others wait on the chain for this rank, `spread_*` the spread of step lengths.
    """

    place: int
    rank: int | None
    name: str
    hostname: str | None
    group: int
    stage: int | None
    steady_steps: int
    step_median_ns: int | None
    walls: Walls
    residence_ns: int
    transfer_ns: int
    peer_wait_ns: int | None
    pipeline_wait_ns: int
    unsplit_ns: int
    blocking_peer_wait_ns: int | None
    blocking_pipeline_wait_ns: int
    late_ns: int
    all_residence_ns: int
    all_wait_ns: int | None
    unmatched_count: int = 0


@dataclass(frozen=True, slots=True)
class RankGroup:
    """Ranks that do the same work, by kernels and their counts; `spread` is (max - min) / median of steps.

    `representative` is the index of the rank whose step is nearest to the median.
    """

    places: tuple[int, ...]
    ranks: tuple[int | None, ...]
    step_median_ns: int | None
    spread: float | None
    representative: int


@dataclass(frozen=True, slots=True)
class Straggler:
    """A rank that others wait for: by how much, on how many steps, and why.

    `repeated` separates a rank that is late on most steps from ranks that alternate. `ratio` is how much
    longer the delaying work takes than on its peers, if known.
    """

    place: int
    rank: int | None
    name: str
    repeated: bool
    late_ns_median: int
    late_steps: int
    steps: int
    cause_wall: Wall | None
    cause: str | None
    reason: Reason
    ratio: float | None
    why: str


@dataclass(frozen=True, slots=True)
class PipelineStage:
    """A stage of a pipeline: its ranks, the compute of each, and the wait of each for other stages."""

    stage: int
    places: tuple[int, ...]
    compute_ns: int
    bubble_ns: int
    bubble_share: float


@dataclass(frozen=True, slots=True)
class Job:
    """The combined result of the ranks.

    `ranks` counts the ranks given, `missing` lists the others, as far as the size is known. `walls` are the
    mean typical step of all ranks, with peer wait attributed to the late rank's cause. `critical_wall` is the
    wall of the critical rank, the one that waits least.
    """

    ranks: int
    world_size: int | None
    missing: tuple[int, ...]
    verdict: str
    dominant_wall: Dominant
    critical_rank: int | None
    critical_place: int
    critical_wall: Dominant
    walls: Walls
    members: tuple[RankWaits, ...]
    groups: tuple[RankGroup, ...]
    stragglers: tuple[Straggler, ...]
    collectives: JobCollectives
    pipeline: tuple[PipelineStage, ...]
    clock: Clocks


SCHEMA: Final = "wallscope.analysis/1"

AnchorKind = Literal["user", "nvtx", "optimizer", "collective", "kernel-sequence", "whole-trace"]
AnchorUnit = Literal["step", "microbatch", "layer", "window"]


@dataclass(frozen=True, slots=True)
class Budget:
    """What the device did in a window; the five parts sum to it exactly."""

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
    """Why neither compute nor an opaque graph ran; the three parts sum to that time exactly."""

    launch_starved: int
    blocking: int
    dependency_stalled: int


@dataclass(frozen=True, slots=True)
class CauseTime:
    """The time of a cause in the typical step; the causes of one wall sum to it.

    `recoverable_ns` is the replayed reduction of the step without the cause, other constraints included: an
    upper bound, `None` if unknown. `unresolved_ns` is the part whose cause is unknown.
    """

    cause: str
    wall: Wall
    typical_ns: int
    share: float
    recoverable_ns: int | None
    unresolved_ns: int


@dataclass(frozen=True, slots=True)
class Step:
    """One window of a rank, with its budget, the reasons for absent compute, and its walls."""

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
    """The typical step: the mean of the steady ones, rounded so that its parts add up."""

    step_ns: int
    budget: Budget
    walls: Walls


@dataclass(frozen=True, slots=True)
class ComputeWork:
    """Compute kernels of one category: added-up durations (work, not time), share of all such work.

    `flops_per_s` comes from the shapes of operators, while the kernels run for which they are known;
    `flops_share` is the share of these kernels of the work. Both are `None` without shapes.
    """

    category: ComputeCategory
    work_ns: int
    share: float
    kernels: int
    flops_per_s: float | None = None
    flops_share: float | None = None


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

    `count` and `host_ns` cover the ranges that begin in the step; `None` for a range that is open throughout.
    `backward_gpu_ns` is the device time of the backward pass of what ran inside; `None` if not recorded.
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
    backward_gpu_ns: int | None = None


@dataclass(frozen=True, slots=True)
class PackedProfile:
    """The data of a rank for comparisons: the schema of its profile, and base64 of compressed JSON."""

    schema: str
    data: str


@dataclass(frozen=True, slots=True)
class Rank:
    """One (process, device) pair.

    `outside_ns` is device time before the first window, `outside_idle_ns` the part without operations.
    `whole_walls` cover all time if much work and most time lie there, else `None`. `unmatched_kernels` are
    unrecognized kernels over 1 % of the typical step. `ranges` are the 200 with most device time.
    `host_details` are `None` without known calls, `gpu_metrics` without samples. `mean_step_ns` and
    `median_step_ns` cover all steady steps, `None` without any. `modes` are the kinds of steps, empty if
    there is one kind. `rare_stalls` are not visible in the typical step. `slower_kernels` is `None` if
    kernels keep their length.
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
    """A window that is not steady, and why."""

    index: int
    reason: str


@dataclass(frozen=True, slots=True)
class CrossCheck:
    """The number of steps by a second marker, and whether both agree within 5 %."""

    kind: AnchorKind
    steps: int
    agrees: bool


@dataclass(frozen=True, slots=True)
class InnerUnit:
    """The unit that repeats inside the steps of the busiest rank: its number and its length.

    A unit lasts from its first kernel to that of the next one in the same step.
    """

    unit: AnchorUnit
    name: str
    count: int
    median_ns: int
    p10_ns: int
    p90_ns: int


@dataclass(frozen=True, slots=True)
class Anchor:
    """What divides the capture into windows, for the busiest rank, the one with most kernels.

    `steps` and the cross-check count the steps of its whole capture. `dropped` and `inner` cover the
    selection. `selected_time_ns` is the interval of session time that the user chose, `None` for all of it.
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
        """The name of one window, in a word or two."""
        if self.kind != "whole-trace":
            return self.unit
        return "capture" if self.selected_time_ns is None else "selected time"

    @property
    def typical(self) -> str:
        """The name of the typical step; without steps, that of the whole window."""
        return self.window if self.kind == "whole-trace" else f"typical {self.unit}"


@dataclass(frozen=True, slots=True)
class CaptureQuality:
    """What the export lacks and what it does not allow to conclude."""

    findings: tuple[Finding, ...]
    launch_correlation_share: float | None
    resolved_dependency_share: float | None
    cuda_graphs: GraphTracing
    ranks_supplied: int
    world_size: int | None


@dataclass(frozen=True, slots=True)
class Analysis:
    """One object per run of `analyze`; `job` combines several ranks, `None` for one rank.

    `replay` is `None` if no fix can be replayed. `capture_advice` are changes of the capture, in the form of
    fixes. `dismissed` are fixes whose own replay has no gain. `scope` is what the dominant wall covers, of
    `job` if its ranks were matched; `None` in answers of older versions.
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
    scope: Scope | None = None
