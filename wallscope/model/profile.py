"""The profile of a rank: the data on its steps that a comparison needs, without the export, and its records.

A record belongs to a commit in a store: its runs, their testbed, and the lengths of their steps.
"""

import json
from collections.abc import Mapping
from dataclasses import field, replace
from hashlib import sha256
from typing import Final, Literal

import polars as pl

from wallscope.model.analysis import AnchorKind, AnchorUnit
from wallscope.model.capture import CaptureConditions, GraphTracing, Profiler
from wallscope.model.enums import Absent, Axis, Collective, DeviceState, Precision, Wall
from wallscope.model.schemas import BACKEND, BUDGET_PARTS
from wallscope.model.speed_of_light import MatrixWork
from wallscope.records import dataclass

PROFILE_SCHEMA: Final = "wallscope.profile/2"

PROFILE_STEPS = pl.Schema(
    {
        "input": pl.UInt32(),  # index in `Header.inputs`
        "step": pl.UInt32(),
        "start_ns": pl.Int64(),
        "end_ns": pl.Int64(),
        "steady": pl.Boolean(),
        "reason": pl.String(),
        **dict.fromkeys(BUDGET_PARTS, pl.Int64()),
        **{f"{wall}_wall_ns": pl.Int64() for wall in Wall},
    }
)
"""The steps of a rank with their device budget and walls; each five sum to the step."""

OPERATION_KEYS = pl.Schema(
    {
        "key": pl.UInt32(),
        "path": pl.String(),  # folded names of the ranges around it; empty if it has none
        "category": pl.String(),  # of the operation; `host` for time on a thread
        "name": pl.String(),  # of the kernel or call, folded and cut; empty if it has none
        "axis": pl.Enum(Axis),  # communication alone
        "backend": BACKEND,  # communication alone
        "precision": pl.Enum(Precision),  # GEMMs only
    }
)
"""The identity of operations. Path, category and name are null of time without operation and thread."""

STEP_WORK = pl.Schema(
    {
        "input": pl.UInt32(),
        "step": pl.UInt32(),
        "key": pl.UInt32(),
        "count": pl.Int64(),  # that begin in the step
        "work_ns": pl.Int64(),  # durations inside the step, added up
        "exposed_ns": pl.Int64(),  # of communication and copies, without compute and graphs; null for others
        "bytes": pl.Int64(),  # of those that begin in the step; null if unknown for any
    }
)
"""The operations of each step."""

STEP_OWNED = pl.Schema(
    {
        "input": pl.UInt32(),
        "step": pl.UInt32(),
        "key": pl.UInt32(),
        "cause": pl.String(),  # wall/cause[/detail]
        "owned_ns": pl.Int64(),
        "blocking_ns": pl.Int64(),  # of it, while the operation itself ran on the critical path
    }
)
"""The time of each step by cause; `owned_ns` of a step sums to it."""

STEP_CAUSES = pl.Schema(
    {
        "input": pl.UInt32(),
        "step": pl.UInt32(),
        "cause": pl.String(),
        "state": pl.Enum(DeviceState),
        "absent": pl.Enum(Absent),  # null if compute or an opaque graph ran
        "ns": pl.Int64(),
    }
)
"""The causes of each step by what the device did; `ns` of a step sums to it."""

RECOVERABLE = pl.Schema({"input": pl.UInt32(), "cause": pl.String(), "recoverable_ns": pl.Int64()})
"""The reduction of a capture's typical step without a cause, if known."""

BEFORE = tuple(f"before_{wall}_ns" for wall in Wall)
INSIDE = tuple(f"inside_{wall}_ns" for wall in Wall)

RANK_COLLECTIVES = pl.Schema(
    {
        "input": pl.UInt32(),
        "place": pl.UInt32(),  # counts the operations of a capture by start
        "step": pl.UInt32(),  # of the step in which it begins; null outside of all steps
        "key": pl.UInt32(),  # null outside of all steps
        "communicator": pl.UInt64(),  # null if unknown
        "sequence": pl.UInt32(),  # number of earlier operations of its kind in the capture
        "operation": pl.Enum(Collective),
        "axis": pl.Enum(Axis),
        "stream": pl.UInt32(),
        "participants": pl.Int32(),
        "peer": pl.Int32(),  # the only rank of the communicator that it sends to or receives from, if named
        "start_ns": pl.Int64(),
        "end_ns": pl.Int64(),
        "blocking_ns": pl.Int64(),  # its time on the critical path
        "bytes": pl.Int64(),
        "bus_bytes": pl.Int64(),  # bytes on a rank's link
        **dict.fromkeys(BEFORE, pl.Int64()),
        **dict.fromkeys(INSIDE, pl.Int64()),
    }
)
"""The communication operations of a rank without copies, with the causes of the time between them.

Operations of one communicator have one kind. If it is unknown, so have those of one operation and axis on one
stream. `before` is the time from the begin of the previous one, or of the first step, to its own begin.
`inside` is the time while it ran. Time outside of steps has no wall.
"""

NULLABLE: Final[Mapping[str, frozenset[str]]] = {
    "steps": frozenset({"reason"}),
    "keys": frozenset({"path", "category", "name", "axis", "backend", "precision"}),
    "work": frozenset({"exposed_ns", "bytes"}),
    "causes": frozenset({"absent"}),
    "collectives": frozenset({"step", "key", "communicator", "participants", "peer", "bytes", "bus_bytes"}),
}
"""Columns of the tables of a profile that may be unknown or missing."""


@dataclass(frozen=True, slots=True)
class Communicators:
    """The sizes of the groups of operations of one axis, as far as the capture shows."""

    axis: Axis
    participants: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class ProfiledInput:
    """A capture that steps come from: where and when, by what version, and which findings limit it.

    `environment` holds the variables that may be read but those of single ranks, `device_count` is how many
    devices were used. `launch_call_ns` is the lower quartile of the durations of calls that launch kernels:
    what a call takes that waits for nothing, with the time that the profiler adds.
    """

    fingerprint: str
    name: str
    nsys_version: str | None
    hostname: str | None
    session_start_utc_ns: int | None
    findings: tuple[str, ...]
    profiler: Profiler = Profiler.NSYS
    environment: tuple[tuple[str, str], ...] = ()
    conditions: CaptureConditions = field(default_factory=CaptureConditions)
    device_count: int | None = None
    launch_call_ns: int | None = None


@dataclass(frozen=True, slots=True)
class Work:
    """The definition of a step, so that a comparison can check whether two are alike."""

    kind: AnchorKind
    unit: AnchorUnit
    name: str | None
    tokens_per_step: int | None
    gpu: str | None
    sm_count: int | None
    world_size: int | None
    graphs: GraphTracing
    communicators: tuple[Communicators, ...]
    settings: tuple[tuple[str, str], ...] = ()
    """Settings of the given run configuration, by canonical name; empty if there is none."""


@dataclass(frozen=True, slots=True)
class Header:
    """Whose profile it is: the rank, its work, and the captures, by fingerprint.

    `is_representative` marks the rank that the analysis is about. `matrices` are its kernels that multiply
    with known FLOPs.
    """

    rank: int | None
    device: int | None
    work: Work
    inputs: tuple[ProfiledInput, ...]
    is_representative: bool = False
    matrices: tuple[MatrixWork, ...] = ()


@dataclass(frozen=True, slots=True)
class RecordedFix:
    """A recommendation that a run had, as far as a later run can be compared with it.

    Attributes:
        id: of the fix.
        title: what to do.
        wall: under which it is listed.
        causes: of the run, that it addresses.
        settings: keys and values that it changes, without lines of code and commands.
        whole_ns: the step that the bound is about: the typical one, or the mean; `None` without a bound.
        bound_ns: by how much that may become shorter, at most.
        expected_ns: by how much it does at assumed rates of kernels; `None` where the bound assumes them.
        replayed_ns: by how much the replayed step became shorter.
        next_wall: the wall of the replayed step.
        assumption: what the bound assumes, or what was expected, in words that follow "the bound".
        is_blocked: whether a condition was not met.
    """

    id: str
    title: str
    wall: Wall
    causes: tuple[str, ...]
    settings: tuple[tuple[str, str], ...]
    whole_ns: int | None
    bound_ns: int | None
    replayed_ns: int | None
    next_wall: str | None
    assumption: str
    is_blocked: bool
    expected_ns: int | None = None


@dataclass(frozen=True, slots=True)
class Profile:
    """The compact account of one rank; frames follow the schemas of this module, sorted by their keys.

    `fixes` are the recommendations for its run, in their order, where they are known. A packed one has none.
    """

    header: Header
    steps: pl.DataFrame
    keys: pl.DataFrame
    work: pl.DataFrame
    owned: pl.DataFrame
    causes: pl.DataFrame
    recoverable: pl.DataFrame
    collectives: pl.DataFrame = field(default_factory=RANK_COLLECTIVES.to_frame)
    fixes: tuple[RecordedFix, ...] = ()


RECORD_SCHEMA: Final = "wallscope.record/1"
CONFIGURATION: Final = "configuration"
"""The label with the fingerprint of the configuration; users select by it and do not set it."""
PULL_REQUEST: Final = "pull-request"
"""The origin of runs of code that is not merged yet."""


@dataclass(frozen=True, slots=True)
class Testbed:
    """What runs must share to be compared: GPU, size of the job, definition of a step, and labels.

    `configuration` are their settings by name. Runs on one machine that differ only in it are compared if
    there are no others, and the output states that.
    """

    gpu: str | None
    world_size: int | None
    ranks: int
    unit: str
    name: str | None
    labels: Mapping[str, str]
    configuration: Mapping[str, str] = field(default_factory=dict)

    @property
    def machine(self) -> "Testbed":
        """The testbed without the configuration."""
        return replace(self, configuration={})

    @property
    def fingerprint(self) -> str:
        """The fingerprint of the configuration in eight digits; empty if it is unknown."""
        text = json.dumps(dict(self.configuration), sort_keys=True)
        return sha256(text.encode()).hexdigest()[:8] if self.configuration else ""

    def fits(self, labels: Mapping[str, str]) -> bool:
        """Return whether it has all the labels; `configuration` matches a prefix of the fingerprint."""
        own = {key: value for key, value in labels.items() if key != CONFIGURATION}
        return own.items() <= self.labels.items() and self.fingerprint.startswith(
            labels.get(CONFIGURATION, "")
        )

    def __str__(self) -> str:
        """The testbed in one line, for selection by a user."""
        size = self.world_size or self.ranks
        fingerprint = [f"{CONFIGURATION}={self.fingerprint}"] if self.configuration else []
        parts = [self.gpu or "GPU unknown", f"{size} ranks" if size > 1 else "1 rank", self.name or self.unit]
        return ", ".join(
            [*parts, *(f"{key}={value}" for key, value in sorted(self.labels.items())), *fingerprint]
        )


@dataclass(frozen=True, slots=True)
class RecordedRank:
    """One rank of a recorded run: the object with its profile, and its typical step by cause."""

    rank: int | None
    device: int | None
    object: str
    typical_ns: int
    steps: int
    causes: Mapping[str, int]


@dataclass(frozen=True, slots=True)
class Record:
    """One run of a commit on a testbed; `speaks` is the index of the rank that computes least.

    `origin` is `PULL_REQUEST`, or a value of a later version; without one the run is a reference. `fixes` are
    the recommendations for it; older records have none.
    """

    schema: Literal["wallscope.record/1"]
    commit: str
    testbed: Testbed
    recorded_utc_ns: int
    ranks: tuple[RecordedRank, ...]
    speaks: int
    origin: str | None = None
    fixes: tuple[RecordedFix, ...] = ()

    @property
    def is_reference(self) -> bool:
        """Return whether other runs may use it as their base, and for the noise between runs."""
        return self.origin is None

    @property
    def representative(self) -> RecordedRank:
        """The rank that is compared."""
        return self.ranks[self.speaks]

    def metric_ns(self, name: str) -> int:
        """The typical step (`step`), or the time of a wall or a cause in it."""
        rank = self.representative
        if name == "step":
            return rank.typical_ns
        return sum(
            time_ns
            for cause, time_ns in rank.causes.items()
            if cause == name or cause.partition("/")[0] == name
        )


@dataclass(frozen=True, slots=True)
class Noise:
    """Standard deviation between runs, relative to what varies, and from how many degrees of freedom."""

    deviation: float
    freedom: float


@dataclass(frozen=True, slots=True)
class RecordedNoise:
    """What recorded runs differ by: `step`, walls and causes by name; `steps` is how many a run has."""

    noise: Mapping[str, Noise]
    steps: float
