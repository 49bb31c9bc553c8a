"""The profile of a rank: the data on its steps that a comparison needs, without the export.

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
"""The identity of operations."""

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
    "keys": frozenset({"axis", "backend", "precision"}),
    "work": frozenset({"exposed_ns", "bytes"}),
    "causes": frozenset({"absent"}),
    "collectives": frozenset({"step", "key", "communicator", "participants", "bytes", "bus_bytes"}),
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

    `is_representative` marks the rank that the analysis is about.
    """

    rank: int | None
    device: int | None
    work: Work
    inputs: tuple[ProfiledInput, ...]
    is_representative: bool = False


@dataclass(frozen=True, slots=True)
class Profile:
    """The compact account of one rank; frames follow the schemas of this module, sorted by their keys."""

    header: Header
    steps: pl.DataFrame
    keys: pl.DataFrame
    work: pl.DataFrame
    owned: pl.DataFrame
    causes: pl.DataFrame
    recoverable: pl.DataFrame
    collectives: pl.DataFrame = field(default_factory=RANK_COLLECTIVES.to_frame)
