"""The profile of a rank: what a comparison needs of its steps, without the export.

Times are integer nanoseconds. `input` and `key` count from 0 inside one profile; null is unknown.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

import polars as pl

from wallscope.model.analysis import AnchorKind, AnchorUnit
from wallscope.model.capture import CaptureConditions, GraphTracing, Profiler
from wallscope.model.enums import Absent, Axis, Collective, DeviceState, Precision, Wall
from wallscope.model.schemas import BACKEND, BUDGET_PARTS

PROFILE_SCHEMA: Final = "wallscope.profile/2"

PROFILE_STEPS = pl.Schema(
    {
        "input": pl.UInt32(),  # place in `Header.inputs`
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
        "path": pl.String(),  # folded names of the ranges around it; empty without one
        "category": pl.String(),  # of the operation; `host` for time on a thread
        "name": pl.String(),  # of the kernel or call, folded and cut; empty without one
        "axis": pl.Enum(Axis),  # communication alone
        "backend": BACKEND,  # communication alone
        "precision": pl.Enum(Precision),  # matrix multiplications alone
    }
)
"""What operations are told apart by."""

STEP_WORK = pl.Schema(
    {
        "input": pl.UInt32(),
        "step": pl.UInt32(),
        "key": pl.UInt32(),
        "count": pl.Int64(),  # that begin in the step
        "work_ns": pl.Int64(),  # durations inside the step, added up
        "exposed_ns": pl.Int64(),  # of communication and copies: beside neither compute nor graph; null else
        "bytes": pl.Int64(),  # of those that begin in the step; null where unknown of any
    }
)
"""What ran in each step."""

STEP_OWNED = pl.Schema(
    {
        "input": pl.UInt32(),
        "step": pl.UInt32(),
        "key": pl.UInt32(),
        "cause": pl.String(),  # wall/cause[/detail]
        "owned_ns": pl.Int64(),
        "blocking_ns": pl.Int64(),  # of it, while the operation itself ran on the binding chain
    }
)
"""Who pays for each step; `owned_ns` of a step sums to it."""

STEP_CAUSES = pl.Schema(
    {
        "input": pl.UInt32(),
        "step": pl.UInt32(),
        "cause": pl.String(),
        "state": pl.Enum(DeviceState),
        "absent": pl.Enum(Absent),  # null where compute or an opaque graph ran
        "ns": pl.Int64(),
    }
)
"""The causes of each step by what the device did; `ns` of a step sums to it."""

RECOVERABLE = pl.Schema({"input": pl.UInt32(), "cause": pl.String(), "recoverable_ns": pl.Int64()})
"""What the typical step of a capture would get shorter without a cause, as far as known."""

BEFORE = tuple(f"before_{wall}_ns" for wall in Wall)
INSIDE = tuple(f"inside_{wall}_ns" for wall in Wall)

RANK_COLLECTIVES = pl.Schema(
    {
        "input": pl.UInt32(),
        "place": pl.UInt32(),  # counts those of a capture by start
        "step": pl.UInt32(),  # that it begins in; null outside of all steps
        "key": pl.UInt32(),  # null outside of all steps
        "communicator": pl.UInt64(),  # null where unknown
        "sequence": pl.UInt32(),  # how many of its kind began before it in the capture
        "operation": pl.Enum(Collective),
        "axis": pl.Enum(Axis),
        "stream": pl.UInt32(),
        "participants": pl.Int32(),
        "start_ns": pl.Int64(),
        "end_ns": pl.Int64(),
        "blocking_ns": pl.Int64(),  # what it owns on the binding chain
        "bytes": pl.Int64(),
        "bus_bytes": pl.Int64(),  # what a rank's link has to carry for it
        **dict.fromkeys(BEFORE, pl.Int64()),
        **dict.fromkeys(INSIDE, pl.Int64()),
    }
)
"""The communication operations of a rank, copies left out, with who paid for its time between them.

Of one kind are those of a communicator; where it is unknown, those of an operation and axis on one stream.
`before` is the time from the begin of the previous one, or of the first step, to its own begin, `inside` the
time while it ran; time outside of steps has no wall.
"""

NULLABLE: Final[Mapping[str, frozenset[str]]] = {
    "steps": frozenset({"reason"}),
    "keys": frozenset({"axis", "backend", "precision"}),
    "work": frozenset({"exposed_ns", "bytes"}),
    "causes": frozenset({"absent"}),
    "collectives": frozenset({"step", "key", "communicator", "participants", "bytes", "bus_bytes"}),
}
"""Columns of the tables of a profile that may say that something is unknown, or is not there."""


@dataclass(frozen=True, slots=True)
class Communicators:
    """The sizes of the groups that operations of one axis ran in, as far as the capture tells."""

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
    """What one step is, so that a comparison can tell whether two are alike."""

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
    """What the run configuration that was given declares, by canonical name; empty without one."""


@dataclass(frozen=True, slots=True)
class Header:
    """Whose profile it is: the rank, its work, and the captures, by fingerprint.

    `is_representative` marks the rank that the analysis is about.
    """

    rank: int | None
    device: int | None
    work: Work
    inputs: tuple[ProfiledInput, ...]
    is_representative: bool = False


@dataclass(frozen=True, slots=True)
class Profile:
    """One rank's compact account; frames follow the schemas of this module, sorted by their keys."""

    header: Header
    steps: pl.DataFrame
    keys: pl.DataFrame
    work: pl.DataFrame
    owned: pl.DataFrame
    causes: pl.DataFrame
    recoverable: pl.DataFrame
    collectives: pl.DataFrame = field(default_factory=RANK_COLLECTIVES.to_frame)
