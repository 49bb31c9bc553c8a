"""A job: results of its ranks combined.

Times are integer nanoseconds; `*_ns` without another word is per typical step. A rank is identified by its
index in `ranks` of the answer, from 0, by its number if known, and by a name for people.
"""

from dataclasses import dataclass
from enum import StrEnum
from typing import Literal

from wallscope.model.diagnosis import Dominant, Walls
from wallscope.model.enums import Axis, Collective, Wall

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
