"""The machine-readable analysis: these classes are the published JSON contract, field by field.

Times are integer nanoseconds, shares are 0..1, `None` is unknown and never means 0. Fields may be
added, never renamed within a major version of `SCHEMA`.
"""

from enum import StrEnum
from typing import Annotated, Final, Literal

from wallscope.model.advice import Fix, Program
from wallscope.model.capture import Export, Finding, GraphTracing
from wallscope.model.diagnosis import (
    Diagnosis,
    Dominant,
    Opportunity,
    RareStall,
    Scope,
    SlowerKernels,
    StepMode,
    Walls,
)
from wallscope.model.enums import Axis, Collective, ComputeCategory, Wall
from wallscope.model.rank_summaries import Communication, ComputeDetails, GpuMetrics, HostDetails, Memory
from wallscope.model.shown import (
    CAUSE,
    END,
    HOSTNAME,
    KERNEL_NAME,
    KERNELS,
    NAME,
    PLACE,
    RANK,
    START,
    WALL,
    WORK,
    Shown,
)
from wallscope.model.speed_of_light import SpeedOfLight
from wallscope.model.whatif import Replay
from wallscope.records import dataclass

ClockMethod = Literal["none", "one-clock", "session-start", "collective-ends", "unaligned"]


class Reason(StrEnum):
    """Why a unit of a job holds the others up."""

    SLOWER_KERNELS = "slower-kernels"
    MORE_TOKENS = "more-tokens"
    LONGER_KERNELS = "longer-kernels"
    OTHER_WORK = "other-work"
    HOST = "host"
    MEMORY = "memory"
    COMMUNICATION = "communication"
    UNKNOWN = "unknown"


class UnitKind(StrEnum):
    """What one repair of a job concerns: a rank, the ranks of a node or stage, a link, or all hosts."""

    RANK = "rank"
    NODE = "node"
    STAGE = "stage"
    LINK = "link"
    JOB = "job"


@dataclass(frozen=True, slots=True)
class Clock:
    """One host's clock, compared with the reference.

    Offset and drift are 0 for the reference, and `None` if nothing connects the host to it. The drift is also
    `None` if the matched part is too short.
    """

    hostname: Annotated[str | None, HOSTNAME]
    ranks: Annotated[tuple[int, ...], Shown("number of ranks on the host", "ranks", kind="Int64")]
    offset_ns: Annotated[
        int | None,
        Shown(
            "offset of the host's clock from the reference clock at its first matched collective",
            "offset",
            "signed_duration",
        ),
    ]
    drift_ppm: Annotated[
        float | None,
        Shown(
            "how much faster the host's clock runs than the reference clock, in parts per million",
            "drift",
            "plain",
        ),
    ]
    matched: Annotated[int, Shown("number of collectives used for the comparison", "matched", "count")]


@dataclass(frozen=True, slots=True)
class Clocks:
    """How the ranks' clocks were aligned, and how far apart the ends of a collective still are."""

    method: ClockMethod
    residual_p05_ns: int | None
    residual_p95_ns: int | None
    hosts: tuple[Clock, ...]


@dataclass(frozen=True, slots=True)
class CollectiveWaits:
    """The matched collectives of one kind over all ranks: a rank's mean times in its typical step.

    `bus_bandwidth_bytes_per_s` refers to the transfer time, and is `None` if the bytes are unknown.
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

    `partial` counts those that lack ranks which were not given, so that their waiting cannot be separated
    from their transfer. `jitter_ns` is the mean peer wait of a rank per typical step.
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
    """One rank of a job; times in collectives include those that overlap compute.

    A moment in several collectives counts once: as peer wait if any of them waits for peers, else as pipeline
    wait, transfer or unsplit time, in this order.

    Waiting for peers is `None` if most of the collectives could not be matched; `unmatched_count` is their
    number.
    """

    place: Annotated[int, PLACE]
    rank: Annotated[int | None, RANK]
    name: Annotated[str, NAME]
    hostname: Annotated[str | None, HOSTNAME]
    group: Annotated[
        int, Shown("index, in `rank_groups`, of the group of ranks that do the same work", "group")
    ]
    stage: Annotated[int | None, Shown("pipeline stage number, from 0", "stage", "count")]
    steady_steps: Annotated[int, Shown("number of the rank's steady steps", "steps", "count")]
    step_median_ns: Annotated[int | None, Shown("median length of the rank's steady steps", "step", "ms")]
    walls: Walls
    residence_ns: Annotated[
        int,
        Shown(
            "time in communication operations: transfer, peer wait, pipeline wait and unsplit time together",
            "in collectives",
            "ms",
        ),
    ]
    transfer_ns: Annotated[
        int,
        Shown(
            "time in matched operations in which data moves: each operation's shortest duration on any rank",
            "transfer",
            "ms",
        ),
    ]
    peer_wait_ns: Annotated[
        int | None,
        Shown(
            "time in matched operations, except pipeline sends and receives, in which the rank waited"
            " for ranks that arrived later",
            "peer wait",
            "ms",
        ),
    ]
    pipeline_wait_ns: Annotated[
        int,
        Shown(
            "time in matched sends and receives between pipeline stages in which the rank waited"
            " for another stage",
            "pipeline wait",
            "ms",
        ),
    ]
    unsplit_ns: Annotated[
        int,
        Shown(
            "time in operations that lack a match on some rank, so transfer and waiting are not separated",
            "unsplit",
            "ms",
        ),
    ]
    blocking_peer_wait_ns: Annotated[
        int | None, Shown("part of `peer_wait_ns` on the critical path", "on the critical path", "ms")
    ]
    blocking_pipeline_wait_ns: Annotated[
        int, Shown("part of `pipeline_wait_ns` on the critical path", "on the critical path", "ms")
    ]
    all_residence_ns: Annotated[
        int, Shown("time in communication operations in the whole capture", "in all collectives", "ms")
    ]
    all_wait_ns: Annotated[
        int | None,
        Shown(
            "time in the whole capture in which the rank waited for ranks that arrived later",
            "all waits",
            "ms",
        ),
    ]
    unmatched_count: int = 0


@dataclass(frozen=True, slots=True)
class RankGroup:
    """Ranks that do the same work, by kernels and their counts."""

    places: tuple[int, ...]
    ranks: tuple[int | None, ...]
    step_median_ns: Annotated[
        int | None, Shown("median of the median step lengths of the group's ranks", "step", "ms")
    ]
    spread: Annotated[
        float | None,
        Shown(
            "(longest - shortest) / median, computed from the median step lengths of the group's ranks",
            "spread",
            "percent",
        ),
    ]
    representative: Annotated[
        int,
        Shown(
            "`place` of the rank whose median step length is closest to the group's",
            "representative rank",
        ),
    ]


@dataclass(frozen=True, slots=True)
class Straggler:
    """A unit that holds the job up: what repairing it saves, as a replay shows, and why it is slow.

    `places` are its ranks; `rank` is `None` if there are several. Units are in order of repair, so each
    amount is what the repair saves after the previous ones. `ratio` is `None` if unknown. A unit counts as
    late in a step if it loses at least half of what it usually loses. `since_step` is the step from which it
    is always late, `None` if there is none.
    """

    place: Annotated[int, PLACE]
    rank: Annotated[int | None, RANK]
    name: Annotated[str, Shown("name of the unit: a rank, node, pipeline stage or link", "name")]
    unit: Annotated[
        UnitKind,
        Shown(
            "what needs repair: a rank, node, stage or link, or the job if hosts take turns stalling", "unit"
        ),
    ]
    places: tuple[int, ...]
    late_steps: Annotated[
        int, Shown("number of replayed steps in which the unit takes longer than its peers", "late steps")
    ]
    replayed_steps: Annotated[int, Shown("number of steps in the job replay", "replayed steps")]
    hides_next: Annotated[
        bool,
        Shown(
            "whether repairing only this unit saves less than 1 %, because the next unit hides it",
            "hides next",
        ),
    ]
    since_step: Annotated[
        int | None,
        Shown(
            "index of the step from which the unit takes longer in every step; empty if there is none",
            "since",
        ),
    ]
    saved_ns: Annotated[
        int,
        Shown(
            "how much shorter the mean step gets, in a job replay, if the unit works like its peers",
            "saves",
            "ms",
        ),
    ]
    replayed_step_ns: Annotated[
        int,
        Shown(
            "mean step in a job replay without the delays of this unit and of all previous units",
            "step",
            "ms",
        ),
    ]
    cause_wall: Annotated[Wall | None, Shown("wall that takes longer on this unit", "wall")]
    cause: Annotated[
        str | None, Shown("cause in `cause_wall` that accounts for most of the additional time", "cause")
    ]
    reason: Annotated[
        Reason,
        Shown(
            "why the unit is slow, in one word: slower-kernels, more-tokens, longer-kernels,"
            " other-work, host, memory, communication or unknown",
            "reason",
        ),
    ]
    ratio: Annotated[
        float | None,
        Shown("time of the delaying work on this unit, divided by its usual time on similar units", "ratio"),
    ]
    why: Annotated[str, Shown("why the unit is slow, in one sentence", "what took longer")]


@dataclass(frozen=True, slots=True)
class PipelineStage:
    """A pipeline stage: its ranks, and for each of them the compute and the wait for other stages."""

    stage: int
    places: tuple[int, ...]
    compute_ns: int
    bubble_ns: int
    bubble_share: float


@dataclass(frozen=True, slots=True)
class Job:
    """The combined result of the ranks.

    `ranks` counts the ranks given, and `missing` lists the others, up to the job's size or the largest
    number. `walls` is the mean typical step of all ranks, with waits for a unit of `stragglers` attributed to
    whatever delays it. `critical_wall` is the wall of the critical rank, the one that waits least.
    `replayed_step_ns` is the mean step of a replay without a change, `None` if the job could not be replayed,
    in which case `stragglers` is unknown.
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
    replayed_step_ns: int | None
    collectives: JobCollectives
    pipeline: tuple[PipelineStage, ...]
    clock: Clocks

    @property
    def leading(self) -> tuple[Straggler, ...]:
        """What holds the job up most: the first unit, with those that hide it; nothing where none does."""
        ends = (place for place, one in enumerate(self.stragglers, start=1) if not one.hides_next)
        return self.stragglers[: next(ends, len(self.stragglers))]


SCHEMA: Final = "wallscope.analysis/1"

AnchorKind = Literal["user", "nvtx", "optimizer", "collective", "kernel-sequence", "whole-trace"]
AnchorUnit = Literal["step", "microbatch", "layer", "window"]


@dataclass(frozen=True, slots=True)
class Budget:
    """What the device did in a window; the five parts sum exactly to its length."""

    compute: Annotated[int, Shown("time of the {step} in which a compute kernel ran", column="compute_ns")]
    opaque_graph: Annotated[
        int,
        Shown(
            "time of the {step} in which an opaque CUDA graph ran, but no compute kernel did",
            column="opaque_graph_ns",
        ),
    ]
    exposed_communication: Annotated[
        int,
        Shown(
            "time of the {step} in which communication ran, but neither a compute kernel nor an"
            " opaque CUDA graph did",
            column="exposed_communication_ns",
        ),
    ]
    exposed_copy: Annotated[
        int,
        Shown(
            "time of the {step} in which a copy or memset ran, but no compute kernel, opaque CUDA"
            " graph or communication did",
            column="exposed_copy_ns",
        ),
    ]
    idle: Annotated[
        int,
        Shown("time of the {step} in which none of the rank's operations ran on the GPU", column="idle_ns"),
    ]

    def parts(self) -> tuple[int, ...]:
        """The five parts, in order of precedence."""
        return (self.compute, self.opaque_graph, self.exposed_communication, self.exposed_copy, self.idle)


@dataclass(frozen=True, slots=True)
class ComputeAbsent:
    """Why neither compute nor an opaque graph ran; the three parts sum exactly to that time."""

    launch_starved: Annotated[
        int,
        Shown(
            "gap time in which the GPU waited for the host, including launch latency",
            column="launch_starved_ns",
        ),
    ]
    blocking: Annotated[
        int,
        Shown(
            "gap time in which the GPU waited for a running operation: communication, a copy or a memset",
            column="blocking_ns",
        ),
    ]
    dependency_stalled: Annotated[
        int,
        Shown(
            "gap time between the end of an operation and the start of a dependent one, and gap time for"
            " unknown reasons",
            column="dependency_stalled_ns",
        ),
    ]


@dataclass(frozen=True, slots=True)
class CauseTime:
    """The time of a cause in the typical step; the causes of a wall sum to the wall.

    `recoverable_ns` is replayed, other constraints included; `None` if unknown.
    """

    cause: Annotated[str, CAUSE]
    wall: Annotated[Wall, WALL]
    typical_ns: Annotated[int, Shown("time of the cause in the {whole}", "time", "ms")]
    share: Annotated[
        float,
        Shown(
            "time of the cause divided by the length of the {whole}", "share", "percent", column="step_share"
        ),
    ]
    recoverable_ns: Annotated[
        int | None,
        Shown(
            "upper bound on how much shorter the {whole} gets without the cause",
            "without it",
            "plain",
        ),
    ]
    unresolved_ns: Annotated[
        int,
        Shown(
            "part of the cause's time for which wallscope could not follow the dependencies",
            "unresolved",
            "ms",
        ),
    ]


@dataclass(frozen=True, slots=True)
class Step:
    """One window of a rank, with its budget, why compute was absent, and its walls."""

    index: Annotated[int, Shown("index of the {step} in the capture, from 0", "step", "count", column="step")]
    start_ns: Annotated[int, START]
    end_ns: Annotated[int, END]
    steady: Annotated[
        bool,
        Shown("whether the {step} is steady; only steady {step}s are used for the typical {step}", "counts"),
    ]
    reason: Annotated[str | None, Shown("why the step is not steady; empty if it is", "reason")]
    budget: Budget
    compute_absent: ComputeAbsent
    walls: Walls


@dataclass(frozen=True, slots=True)
class Typical:
    """The typical step: the mean of the steady steps, rounded so that its parts add up."""

    step_ns: Annotated[int, Shown("length of the typical step", "step", "ms", column="typical_step_ns")]
    budget: Budget
    walls: Walls


@dataclass(frozen=True, slots=True)
class ComputeWork:
    """Compute kernels of one category; `flops_per_s` and `flops_share` are `None` without shapes."""

    category: Annotated[
        ComputeCategory, Shown("category of the kernels, such as gemm or attention", "category")
    ]
    work_ns: Annotated[int, WORK]
    share: Annotated[
        float,
        Shown(
            "`work_ns` divided by the work of all compute kernels",
            "share of work",
            "percent",
            column="work_share",
        ),
    ]
    kernels: Annotated[int, KERNELS]
    flops_per_s: Annotated[
        float | None,
        Shown(
            "FLOP/s while the kernels ran, from operator shapes; empty without shapes", "achieved", "flops"
        ),
    ] = None
    flops_share: Annotated[
        float | None,
        Shown("share of the category's work in kernels with known operator shapes", "FLOPs known", "percent"),
    ] = None


@dataclass(frozen=True, slots=True)
class KernelWork:
    """A kernel by name."""

    name: Annotated[str, KERNEL_NAME]
    count: Annotated[int, Shown("number of kernels that begin in the {whole} (mean)", "count", "plain")]
    work_ns: Annotated[int, WORK]
    share: Annotated[
        float,
        Shown(
            "work divided by the length of the {whole}, above 1 if many kernels overlap",
            "of the {whole}",
            "percent",
        ),
    ]


@dataclass(frozen=True, slots=True)
class RangeWork:
    """A range path in the typical step.

    `count` and `host_ns` are `None` for a range that is open throughout, and `backward_gpu_ns` if it was not
    recorded.
    """

    name: Annotated[str, Shown("name of the innermost range of `path`", "range")]
    path: Annotated[
        str,
        Shown(
            "names of the ranges, from the outermost to the innermost; `#` replaces each number",
            "range",
        ),
    ]
    count: Annotated[
        int | None, Shown("number of ranges that begin in the {whole}", "count", "count", brief="per step")
    ]
    host_ns: Annotated[
        int | None,
        Shown("summed durations of the ranges on the host", "on the host", "ms", brief="host"),
    ]
    gpu_ns: Annotated[
        int,
        Shown(
            "time during which the GPU ran operations launched in the range, including nested ranges",
            "on the device",
            "ms",
            brief="device",
        ),
    ]
    own_gpu_ns: Annotated[
        int,
        Shown(
            "time during which the GPU ran operations launched in the range, excluding nested ranges",
            "alone",
            "ms",
            brief="own",
        ),
    ]
    work_ns: Annotated[
        int,
        Shown(
            "summed durations of operations launched in the range, including nested ranges",
            "work",
            "ms",
        ),
    ]
    own_work_ns: Annotated[
        int,
        Shown(
            "summed durations of operations launched in the range, excluding nested ranges",
            "own work",
            "ms",
        ),
    ]
    walls: Walls | None = None
    backward_gpu_ns: Annotated[
        int | None,
        Shown(
            "time in which an operation ran that the backward pass of operators in the range launched",
            "its backward",
            "ms",
        ),
    ] = None


@dataclass(frozen=True, slots=True)
class PackedProfile:
    """The data of a rank for comparisons: the schema of its profile, and base64 of compressed JSON."""

    schema: str
    data: str


@dataclass(frozen=True, slots=True)
class Rank:
    """One (process, device) pair.

    `outside_ns` is device time before the first window, `outside_idle_ns` the part of it without operations,
    and `after_ns` device time after the last window. If much work and most of the time lie there,
    `whole_walls` covers all time; otherwise it is `None`. `unmatched_kernels` lists unrecognized kernels over
    1 % of the typical step, and `ranges` the 200 with the most device time. `host_details` is `None` if no
    calls are known, and `gpu_metrics` if there are no samples. `mean_step_ns` and `median_step_ns` cover all
    steady steps, and are `None` without any. `modes` lists the kinds of steps, and is empty if there is only
    one. `rare_stalls` are not visible in the typical step. `slower_kernels` is `None` if kernels keep their
    length. `speed_of_light` is `None` in answers of older versions.
    """

    rank: Annotated[int | None, RANK]
    rank_source: Annotated[
        str | None,
        Shown("source of the rank number, such as the RANK variable or the file name", "source"),
    ]
    input: int
    pid: Annotated[int | None, Shown("id of the rank's process", "process", kind="Int32")]
    device: Annotated[int | None, Shown("CUDA device number within the process", "device", kind="Int32")]
    gpu: int | None
    outside_ns: Annotated[
        int,
        Shown("time between the rank's first operation on the GPU and its first step", "outside", "ms"),
    ]
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
    after_ns: int = 0
    whole_walls: Walls | None = None
    mean_step_ns: int | None = None
    median_step_ns: int | None = None
    modes: tuple[StepMode, ...] = ()
    rare_stalls: tuple[RareStall, ...] = ()
    slower_kernels: SlowerKernels | None = None
    speed_of_light: SpeedOfLight | None = None


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
    """The unit that repeats inside the busiest rank's steps: how often, and how long it is.

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
    """What divides the capture into windows, for the busiest rank (the one with the most kernels).

    `steps` and the cross-check count the steps of its whole capture, whereas `dropped` and `inner` cover only
    the selection. `selected_time_ns` is the interval of session time that the user chose (`None` for all),
    and `selected_steps` the first and last step. `is_marked` says whether the ranges' name marks them as
    steps.
    """

    kind: AnchorKind
    unit: AnchorUnit
    name: str | None
    steps: int
    dropped: tuple[DroppedStep, ...] = ()
    cross_check: CrossCheck | None = None
    inner: InnerUnit | None = None
    selected_time_ns: tuple[int, int] | None = None
    selected_steps: tuple[int, int] | None = None
    is_marked: bool = False

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
    """What the export lacks, and what therefore cannot be concluded."""

    findings: tuple[Finding, ...]
    launch_correlation_share: float | None
    resolved_dependency_share: float | None
    cuda_graphs: GraphTracing
    ranks_supplied: int
    world_size: int | None


@dataclass(frozen=True, slots=True)
class Analysis:
    """The result of one run of `analyze`; `job` combines several ranks, and is `None` for one rank.

    `replay` is `None` if no fix can be replayed. `capture_advice` lists changes of the capture in the form of
    fixes, and `dismissed` fixes whose own replay gains nothing. `scope` is what the dominant wall covers:
    that of `job` if its ranks were matched, `None` in answers of older versions.
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
