"""Data shown in addition to the answer: timelines, gaps, tracks for other viewers, steps of both runs."""

from dataclasses import field
from typing import TYPE_CHECKING, Any, Final, Literal

import polars as pl

from wallscope.model.analysis import Analysis
from wallscope.model.enums import DeviceState, Wall
from wallscope.model.profile import ProfiledInput, Work
from wallscope.model.whatif import CriticalPath, SelfCheck
from wallscope.records import dataclass

if TYPE_CHECKING:
    from wallscope.model.comparison import Comparison


TRACED: Final = pl.Schema(
    {
        "start_ns": pl.Int64(),
        "end_ns": pl.Int64(),
        "name": pl.String(),
        "category": pl.String(),  # null if it has none
        "flows_out": pl.List(pl.UInt64()),  # arrows that begin here; null if there are none
        "flow_in": pl.UInt64(),  # the arrow that ends here; null if there is none
    }
)
"""Slices of one track, sorted by start, the longest first; other text or integer columns are notes."""

COUNTED: Final = pl.Schema({"at_ns": pl.Int64(), "value": pl.Float64()})
"""Values of one counter, sorted by time."""

Nesting = Literal["nested", "side by side"]


@dataclass(frozen=True, slots=True)
class Track:
    """A track; `parent` is the index of the enclosing track, which comes before it.

    A track with a `pid` is a process, with also a `tid` a thread. `slices` follow `TRACED`, `counter` follows
    `COUNTED` in `unit`; both are optional. Slices that overlap without nesting go to further tracks of the
    same name. Where slices must be side by side, all that overlap do.
    """

    name: str
    parent: int | None
    pid: int | None = None
    tid: int | None = None
    slices: pl.DataFrame | None = None
    nesting: Nesting = "side by side"
    counter: pl.DataFrame | None = None
    unit: str = ""


GAPS = pl.Schema(
    {
        "rank": pl.Int32(),
        "pid": pl.Int32(),
        "device": pl.Int32(),
        "step": pl.UInt32(),
        "steady": pl.Boolean(),  # whether its step is one of the steady ones
        "start_ns": pl.Int64(),
        "end_ns": pl.Int64(),
        "duration_ns": pl.Int64(),
        "cause": pl.String(),  # the cause with most of the gap
        "cause_ns": pl.Int64(),
        "slack_ns": pl.Int64(),  # possible earlier start until the next constraint; null if none
        "ended_by": pl.String(),  # the operation that ends the gap; null if the step or the capture does
        "stream": pl.Int64(),  # its stream as CUDA numbers it
        "call": pl.String(),  # the call that issued it
        "call_start_ns": pl.Int64(),
        "tid": pl.Int32(),
        "path": pl.String(),  # NVTX ranges around that call
        "chain": pl.String(),  # the links in order of time
    }
)
"""Intervals of a step without compute and opaque graphs."""


@dataclass(frozen=True, slots=True)
class Link:
    """One link of a chain for readers: bounds in ns of session time, cause, what ran, slack.

    `name` is that of an operation, a call or a thread, and `path` the ranges in which a thread was.
    `is_after` marks the latency after an operation.
    """

    start_ns: int
    end_ns: int
    cause: str
    name: str
    slack_ns: int | None
    path: str | None = None
    is_after: bool = False

    @property
    def what(self) -> str:
        """What the link was, in a few words."""
        return f"{'after ' if self.is_after else ''}{self.name}{f' in {self.path}' if self.path else ''}"


@dataclass(frozen=True, slots=True)
class Gap:
    """A gap without compute: a row of `GAPS`, and its links in order of time."""

    row: dict[str, Any]
    links: tuple[Link, ...]


@dataclass(frozen=True, slots=True)
class GapGroup:
    """Gaps of a rank with one cause that one operation in one range ends: the longest of them, and sums."""

    longest: Gap
    count: int
    steps: int
    total_ns: int


@dataclass(frozen=True, slots=True)
class Moment:
    """The state of a rank (`RANKS`) at one moment: its slice (`SLICES` and `path`) and the adjacent links.

    The slice is `None` outside the steps.
    """

    rank: dict[str, Any]
    row: dict[str, Any] | None
    links: tuple[Link, ...]


SHOWN_OPERATIONS = pl.Schema(
    {
        "start_ns": pl.Int64(),
        "end_ns": pl.Int64(),
        "lane": pl.String(),  # its stream, as CUDA numbers it
        "name": pl.String(),
        "what": pl.String(),  # its category
        "wall": pl.Enum(Wall),  # of its class, whatever the time is attributed to
        "call": pl.String(),  # the API call that issued it; null where the export has none
        "call_start_ns": pl.Int64(),
        "correlation": pl.Int64(),  # Nsight's number of that call; null without one
        "path": pl.String(),  # NVTX ranges around the call; null without any
    }
)
"""Device operations of a rank that run in one step, sorted by stream and start."""

SHOWN_HOST = pl.Schema(
    {
        "start_ns": pl.Int64(),
        "end_ns": pl.Int64(),
        "lane": pl.String(),  # the thread
        "depth": pl.UInt32(),  # 0 for calls; ranges count from 0 at the outermost
        "name": pl.String(),
    }
)
"""API calls or ranges of threads during one step, the busiest thread first, by depth and start."""

SHOWN_SLICES = pl.Schema(
    {
        "start_ns": pl.Int64(),
        "end_ns": pl.Int64(),
        "state": pl.Enum(DeviceState),
        "wall": pl.Enum(Wall),
        "cause": pl.String(),
        "what": pl.String(),  # the operation, the call or the thread that is the cause; null if unknown
        "ended_by": pl.String(),  # the operation that ends the gap; null outside gaps and at their open end
        "path": pl.String(),  # NVTX ranges around the issue; null if there are none
        "slack_ns": pl.Int64(),
    }
)
"""The slices of one step, which tile it, in order of time."""

SHOWN_PATH = pl.Schema(
    {
        "step": pl.UInt32(),
        "start_ns": pl.Int64(),
        "end_ns": pl.Int64(),
        "bound": pl.String(),  # a value of `LinkKind`; `piece` is time of a thread
        "wall": pl.Enum(Wall),
        "cause": pl.String(),
        "name": pl.String(),  # the operation or the call; empty outside calls
    }
)
"""Segments of the critical paths of steps, in order of time; those of a step tile it."""


MEETING_LANES = pl.Schema(
    {
        "member": pl.UInt32(),  # index of the rank in the job
        "start_ns": pl.Int64(),  # on one clock, from the begin of the shown interval
        "end_ns": pl.Int64(),
        "wait_ns": pl.Int64(),  # of it, before the transfer; null if it was not matched
        "transfer_ns": pl.Int64(),
        "operation": pl.String(),
        "axis": pl.String(),
        "is_pipeline": pl.Boolean(),
        "ranks": pl.UInt32(),  # number of participating ranks among those given; null if it was not matched
        "last": pl.UInt32(),  # index of the rank that arrived last; null if it was not matched
    }
)
"""Collectives of some ranks of a job during one step of one rank, by start."""


@dataclass(frozen=True, slots=True)
class StepTimeline:
    """One step of one rank: `SHOWN_OPERATIONS`, `SHOWN_HOST` twice, `SHOWN_SLICES`, `SHOWN_PATH`.

    `role` is `typical` for the step whose duration is nearest to the typical step, `worst` for the longest
    steady one. `threads_left_out` counts threads whose calls and ranges are not listed. `path` is empty if
    the step was not replayed.
    """

    role: Literal["typical", "worst"]
    step: int
    start_ns: int
    end_ns: int
    operations: pl.DataFrame
    calls: pl.DataFrame
    ranges: pl.DataFrame
    slices: pl.DataFrame
    threads_left_out: int
    path: pl.DataFrame = field(default_factory=SHOWN_PATH.to_frame)


OVERVIEW_STEPS = pl.Schema(
    {
        "place": pl.UInt32(),  # of the rank among those of the answer
        "step": pl.UInt32(),
        "start_ns": pl.Int64(),
        "end_ns": pl.Int64(),
        "steady": pl.Boolean(),
        "shift_ns": pl.Int64(),  # what brings its times to the clock of the job; null where that is unknown
    }
)
"""Steps at low detail, rank by rank; those of the rank of the diagnosis come first."""

OVERVIEW_SLICES = pl.Schema(
    {
        "place": pl.UInt32(),
        "step": pl.UInt32(),
        "length_ns": pl.Int64(),
        "is_gap": pl.Boolean(),  # no compute and no opaque graph ran
        "wall": pl.Enum(Wall),
        "cause": pl.String(),
    }
)
"""Slices of those steps in order, which tile them; short neighbors are put together by cause."""

OVERVIEW_OPERATIONS = pl.Schema(
    {
        "place": pl.UInt32(),
        "step": pl.UInt32(),
        "lane": pl.String(),
        "start_ns": pl.Int64(),
        "end_ns": pl.Int64(),
        "name": pl.String(),
        "wall": pl.Enum(Wall),
    }
)
"""Operations of the busiest streams in those steps; short neighbors are merged and named by the longest."""


@dataclass(frozen=True, slots=True)
class StepOverviews:
    """All steps at low detail: `OVERVIEW_STEPS`, `OVERVIEW_SLICES`, `OVERVIEW_OPERATIONS`."""

    steps: pl.DataFrame
    slices: pl.DataFrame
    operations: pl.DataFrame


@dataclass(frozen=True, slots=True)
class PlayedPath:
    """The critical path of the typical step, its replay error, and `SHOWN_PATH` of the replayed steps."""

    critical: CriticalPath
    check: SelfCheck
    steps: pl.DataFrame


@dataclass(frozen=True, slots=True)
class Report:
    """The answer with details to view: timelines, gaps and path of the representative rank.

    A job of several exports has overviews alone. `path` says why there is none, where there is none. `lanes`
    (`MEETING_LANES`) show how ranks met. `overviews` are all steps at low detail.
    """

    analysis: Analysis
    timelines: tuple[StepTimeline, ...]
    gaps: tuple[GapGroup, ...]
    path: PlayedPath | str = ""
    lanes: pl.DataFrame = field(default_factory=MEETING_LANES.to_frame)
    overviews: StepOverviews | None = None

    @property
    def drawn_steps(self) -> frozenset[int]:
        """The steps of the rank of the diagnosis that the timeline can show."""
        shown = {one.step for one in self.timelines}
        if self.overviews is not None:
            own = self.overviews.steps.filter(pl.col("place") == self.analysis.diagnosis.rank_index)
            shown |= set(own["step"].to_list())
        return frozenset(shown)


SIDE_STEPS = pl.Schema(
    {
        "run": pl.UInt32(),  # from 0, in order of their start
        "step": pl.UInt32(),
        "length_ns": pl.Int64(),  # scaled as in the comparison, if tokens differ
        **{f"{wall}_wall_ns": pl.Int64() for wall in Wall},  # scaled too
        "counts": pl.Boolean(),
        "reason": pl.String(),  # why it does not count; null if it does
    }
)
"""The steps of one run of a comparison, capture by capture, in order of time."""


@dataclass(frozen=True, slots=True)
class SideSteps:
    """One run of a comparison: its work, its captures, its `SIDE_STEPS`."""

    work: Work
    inputs: tuple[ProfiledInput, ...]
    steps: pl.DataFrame


@dataclass(frozen=True, slots=True)
class ComparisonReport:
    """A comparison with details to view: the steps of the representative rank in both runs."""

    comparison: "Comparison"
    base: SideSteps
    head: SideSteps
