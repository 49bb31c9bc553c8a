"""The verdict of a rank: walls in nanoseconds, deciding shares, opportunities, pressure, throughput, scope.

A part of the published contract of `model.analysis`. `None` is unknown, or was not requested.
"""

from dataclasses import field
from typing import Annotated, Literal

from wallscope.model.enums import Precision, Wall
from wallscope.model.shown import CAUSE, WALL, Shown
from wallscope.records import dataclass


@dataclass(frozen=True, slots=True)
class Walls:
    """The time of a window by wall; the five parts sum exactly to its length."""

    compute: Annotated[
        int, Shown("time of the compute wall in the {step}", "compute", "ms", column="compute_wall_ns")
    ]
    communication: Annotated[
        int,
        Shown(
            "time of the communication wall in the {step}",
            "communication",
            "ms",
            "comm",
            column="communication_wall_ns",
        ),
    ]
    memory: Annotated[
        int, Shown("time of the memory wall in the {step}", "memory", "ms", column="memory_wall_ns")
    ]
    host: Annotated[int, Shown("time of the host wall in the {step}", "host", "ms", column="host_wall_ns")]
    unattributed: Annotated[
        int,
        Shown(
            "time of the unattributed wall in the {step}",
            "unattributed",
            "ms",
            "unknown",
            column="unattributed_wall_ns",
        ),
    ]

    def parts(self) -> tuple[int, ...]:
        """The five parts, in the order of `Wall`."""
        return (self.compute, self.communication, self.memory, self.host, self.unattributed)


@dataclass(frozen=True, slots=True)
class Peak:
    """The peak rate of a GPU for dense matrices in one precision, and its source."""

    flops_per_s: float
    precision: Precision
    source: str


StepTimeBasis = Literal["stated", "throughput", "clock", "whole-run"]


@dataclass(frozen=True, slots=True)
class LoggedSteps:
    """What logs state about the steps of a run without the profiler, `None` where they say nothing.

    Attributes:
        names: names of the files.
        formats: frameworks whose lines they hold.
        basis: what the step time rests on: a time in each report (`stated`), samples per second, or moments
            at which lines were written (`clock`). `whole-run` is the rate of the whole run with warm-up.
        step_ns: the median of the steady steps, `None` with a `reason`.
        low_ns: below it lies a tenth of them.
        high_ns: above it lies a tenth of them.
        mean_ns: their mean.
        reports: how many steady reports these rest on.
        steps: how many steps these cover.
        warm_up_reports: left out at the beginning of each run.
        broken_reports: that lack their time, as another rank wrote into them.
        skipped_steps: without an update of the weights.
        loss_scale: the last one.
        tokens_per_s: of the job.
        gpu_tokens_per_s: of one GPU.
        flops_per_s: of one GPU.
        mfu: as a share of the peak that the framework assumes.
    """

    names: tuple[str, ...]
    formats: tuple[str, ...]
    basis: StepTimeBasis | None
    step_ns: int | None
    reason: str | None
    low_ns: int | None
    high_ns: int | None
    mean_ns: int | None
    reports: int
    steps: int
    warm_up_reports: int
    broken_reports: int
    skipped_steps: int | None
    loss_scale: float | None
    tokens_per_s: float | None
    gpu_tokens_per_s: float | None
    flops_per_s: float | None
    mfu: float | None


@dataclass(frozen=True, slots=True)
class StepFacts:
    """The user's data on a step: its length without the profiler, the job's tokens, FLOPs of one GPU.

    `logged` is what logs of the run state; its step time is `unprofiled_step_ns` too.
    """

    unprofiled_step_ns: int | None = None
    tokens: int | None = None
    flops: float | None = None
    logged: LoggedSteps | None = None


Inflation = Literal["no", "yes", "possible"]


@dataclass(frozen=True, slots=True)
class WallInflation:
    """Whether the capture makes a wall longer than it would be without the profiler.

    At most `most_ns` of the captured step is due to the profiler; of host time, that much is (`yes`).
    """

    wall: Wall
    inflated: Inflation
    most_ns: int


@dataclass(frozen=True, slots=True)
class Throughput:
    """The typical step compared with the user's data on it.

    `perturbation` is the typical step divided by one without the profiler, so 1.05 means 5 % slower in the
    capture. `tokens_per_s` (for the job) and `flops_per_s` (for one GPU) are rates of the captured step.
    Tokens come from the user. FLOPs come from `flops_source`, which is the user or the shapes of multiplying
    operators, recomputed ones included. `mfu` is a share of `peak`, `None` if the peak of the GPU is unknown.
    Shapes may be known for only some of the kernels that multiply; `flops_share` is these kernels' share of
    the work. Below 1, the rate and `mfu` are lower bounds, and below one half, they are `None`.

    `logged` is what logs of the run state without the profiler, and `logged_mfu` their MFU, or their FLOPs as
    a share of `peak`. `inflation` has one entry for each wall if an unprofiled step is known and used.
    """

    step_ns: int
    unprofiled_step_ns: int | None
    perturbation: float | None
    tokens_per_s: float | None
    flops_per_s: float | None
    peak: Peak | None
    mfu: float | None
    flops_source: Literal["user", "shapes"] | None = None
    flops_share: float | None = None
    logged: LoggedSteps | None = None
    logged_mfu: float | None = None
    inflation: tuple[WallInflation, ...] = ()


@dataclass(frozen=True, slots=True)
class StepMode:
    """One of several kinds of steady steps: the numbers of its steps, and their median length.

    `kernel_ratio` is the length of its compute kernels divided by that of the same kernels in the shortest
    kind, `None` if too few can be compared.
    """

    steps: tuple[int, ...]
    median_ns: int
    kernel_ratio: float | None = None


@dataclass(frozen=True, slots=True)
class SlowerKernels:
    """The same compute kernels at equal launch shapes take longer from some step on.

    Attributes:
        ratio: length after by length before, weighted by work.
        since_step: number of the first slower step.
        steps_before: steady steps before it.
        steps_after: steady steps from it on.
        work_share: of the work of compute kernels that was compared.
        clock_ratio: sampled clock of the GPU after by before; `None` where it was not sampled.
    """

    ratio: float
    since_step: int
    steps_before: int
    steps_after: int
    work_share: float
    clock_ratio: float | None


@dataclass(frozen=True, slots=True)
class RareStall:
    """The time that a cause takes in only a few steady steps, beyond its median over all of them.

    `steps` are the numbers of those steps. They recur every `period` steps, `None` if irregular. `share` is
    `total_ns` divided by all steady time; `least_ns` and `most_ns` are per step.
    """

    cause: str
    wall: Wall
    steps: tuple[int, ...]
    period: int | None
    total_ns: int
    share: float
    least_ns: int
    most_ns: int


Dominant = Literal["compute", "communication", "memory", "host", "mixed", "unknown"]
Pressure = Literal["none", "near", "high", "unknown"]
ClaimStatus = Literal["trace-verified", "config-verified", "inferred", "unverified"]


@dataclass(frozen=True, slots=True)
class MemoryPressure:
    """How close the run is to the capacity of the GPU's memory."""

    level: Pressure = "unknown"
    evidence: tuple[str, ...] = ()


ConfidenceLevel = Literal["high", "medium", "low"]


@dataclass(frozen=True, slots=True)
class Confidence:
    """The confidence in the dominant wall.

    `inferred_share` is the share of the step (median of the deciding ones) that depends on waits missing in
    the export. `unresolved_share` is the share with unknown cause. `reasons` states both in words, along with
    other limits.
    """

    level: ConfidenceLevel
    inferred_share: float
    unresolved_share: float
    reasons: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class WallShare:
    """A wall in the typical step, and its share of the steady steps: median, percentiles, mean.

    The percentiles are `None` without a steady step; then median and mean cover all windows. `mean_share` is
    the share of their total time; `None` in answers of older versions.
    """

    typical_ns: int
    share: float
    p10: float | None
    p90: float | None
    mean_share: float | None = None


@dataclass(frozen=True, slots=True)
class WallShares:
    """The deciding shares of all walls."""

    compute: WallShare
    communication: WallShare
    memory: WallShare
    host: WallShare
    unattributed: WallShare


@dataclass(frozen=True, slots=True)
class Opportunity:
    """The upper bound on the gain of removing one cause; upper bounds are not additive.

    `speedup_ceiling` is T / (T - R), a ratio of at least 1. `assumes` says what must vanish besides the call
    that names the cause, `None` if nothing else.
    """

    id: Annotated[str, Shown("id of the row, equal to the cause", "cause")]
    wall: Annotated[Wall, WALL]
    cause: Annotated[str, CAUSE]
    recoverable_ns: Annotated[int, Shown("upper bound on how much shorter the {whole} gets", "gain", "ms")]
    step_ceiling_ns: Annotated[
        int,
        Shown(
            "shortest possible step, which is the length of the {whole} minus `recoverable_ns`", "step", "ms"
        ),
    ]
    speedup_ceiling: Annotated[
        float,
        Shown(
            "largest possible speedup, which is the length of the {whole} divided by `step_ceiling_ns`",
            "upper bound",
            "speedup",
        ),
    ]
    status: Annotated[
        ClaimStatus,
        Shown(
            "how the cause is known: trace-verified (the profile shows it) or inferred (from times or order)",
            "status",
        ),
    ]
    evidence: Annotated[
        tuple[str, ...], Shown("figures that support the bound, separated by semicolons", "evidence")
    ]
    fixes: tuple[str, ...] = ()
    assumes: str | None = None


@dataclass(frozen=True, slots=True)
class UnknownWall:
    """Why the wall is unknown.

    `no-kernels` means that there is no work to analyze: `kernel_share` is the share of time with a kernel,
    and `has_kernels_elsewhere` says whether the capture has kernels outside the analyzed time. With
    `unrecognized-kernels`, the wall is `if_computing` or `if_communicating`, depending on what kernels with
    unrecognized names do. `open-causes` means that too much time has no known cause. `asks_for_names` says
    whether kernel names would settle it.
    """

    kind: Literal["no-kernels", "unrecognized-kernels", "open-causes"]
    kernel_share: float | None = None
    has_kernels_elsewhere: bool = False
    if_computing: Dominant | None = None
    if_communicating: Dominant | None = None
    asks_for_names: bool = False


@dataclass(frozen=True, slots=True)
class StatedBound:
    """The upper bound that the verdict states: the typical step without the cause worth most.

    `next_wall` is what then limits the step. `assumes` says what must vanish in addition to the cause.
    """

    cause: str
    wall: Wall
    step_ceiling_ns: int
    speedup_ceiling: float
    next_wall: str
    assumes: str | None = None


@dataclass(frozen=True, slots=True)
class Diagnosis:
    """The verdict on the representative rank, and what it is based on.

    `rank_index` is the index of that rank in `ranks`, from 0. `margin` is the lead of the dominant wall over
    the runner-up, in shares of the step. `throughput` is `None` without the user's data on a step or operator
    shapes with FLOPs. `confidence` is `None` in answers of older versions.

    `steps_wall` is the wall of the steps, which differs from `dominant_wall` if the latter is about the whole
    capture. It is decided by the shares of `decided_steps`: by their medians, or by their means (`is_mean`)
    if rare stalls take more than any loss of the usual step. `unknown` says why there is no wall, and `bound`
    is the upper bound that the verdict states, each `None` if there is none. `opening` is the sentence that
    every screen begins with: the wall, what it covers, and its main cause.
    """

    dominant_wall: Dominant
    verdict: str
    runner_up: str | None = None
    margin: float | None = None
    led_steps: int | None = None
    steady_steps: int = 0
    walls: WallShares | None = None
    next_wall: str | None = None
    memory_pressure: MemoryPressure = field(default_factory=MemoryPressure)
    rank_index: int = 0
    throughput: Throughput | None = None
    confidence: Confidence | None = None
    steps_wall: Dominant | None = None
    decided_steps: int = 0
    is_mean: bool = False
    unknown: UnknownWall | None = None
    bound: StatedBound | None = None
    opening: str = ""

    def share(self, wall: Wall) -> float:
        """Return the share of a wall that decides: the median over the steps, or the mean; 0 if unknown."""
        found: WallShare | None = None if self.walls is None else getattr(self.walls, wall)
        if found is None:
            return 0.0
        return found.share if not self.is_mean or found.mean_share is None else found.mean_share


CoveredTime = Literal["steps", "start-up", "capture", "selected-time"]


@dataclass(frozen=True, slots=True)
class Scope:
    """What the dominant wall refers to.

    Attributes:
        time: the steps; the time before the first one (`start-up`); without steps, all that was captured or
            selected.
        rank: number of the rank, `None` if it is unknown or the verdict covers several.
        ranks: how many ranks it covers.
        of_ranks: how many ranks the job has, as far as known.
        files: how many files it covers.
        of_files: how many files were given, those that were left out included.
        is_one_stage: whether it covers one stage of a pipeline alone.
        covered_share: the steady steps by the time from the GPU's first to its last operation. `None` where
            ranges mark the steps, where the user chose them, and without steps.
    """

    time: CoveredTime
    rank: int | None
    ranks: int
    of_ranks: int
    files: int
    of_files: int
    is_one_stage: bool
    covered_share: float | None = None
