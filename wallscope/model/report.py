"""What is shown beside the answer: timelines, gaps, tracks for other viewers, steps of both sides."""

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final, Literal

import polars as pl

from wallscope.model.analysis import Analysis
from wallscope.model.enums import DeviceState, Wall
from wallscope.model.profile import ProfiledInput, Work
from wallscope.model.whatif import CriticalPath, SelfCheck

if TYPE_CHECKING:
    from wallscope.model.comparison import Comparison


TRACED: Final = pl.Schema(
    {
        "start_ns": pl.Int64(),
        "end_ns": pl.Int64(),
        "name": pl.String(),
        "category": pl.String(),  # null where it has none
        "flows_out": pl.List(pl.UInt64()),  # arrows that begin here; null without any
        "flow_in": pl.UInt64(),  # the arrow that ends here; null without one
    }
)
"""Slices of one track, sorted by start, the longest first; more columns of text or integers are notes."""

COUNTED: Final = pl.Schema({"at_ns": pl.Int64(), "value": pl.Float64()})
"""Values of one counter, sorted by time."""

Nesting = Literal["nested", "side by side"]


@dataclass(frozen=True, slots=True)
class Track:
    """A track; `parent` is the place of the track around it among all tracks, which comes before it.

    A track with a `pid` is a process, with a `tid` too a thread. `slices` follow `TRACED`, `counter` follows
    `COUNTED` in `unit`; a track may have neither. Slices that overlap and do not nest, or that overlap at
    all where they stand side by side, go to further tracks of the same name.
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
        "start_ns": pl.Int64(),
        "end_ns": pl.Int64(),
        "duration_ns": pl.Int64(),
        "cause": pl.String(),  # the one that owns most of the gap
        "cause_ns": pl.Int64(),
        "slack_ns": pl.Int64(),  # how much earlier the next constraint would have bound; null without one
        "ended_by": pl.String(),  # the operation that ends the gap; null where the step or the capture does
        "stream": pl.Int64(),  # its stream as CUDA numbers it
        "call": pl.String(),  # what issued it
        "call_start_ns": pl.Int64(),
        "tid": pl.Int32(),
        "path": pl.String(),  # NVTX ranges around that call
        "chain": pl.String(),  # the links in order of time
    }
)
"""Stretches of a step without compute and opaque graphs."""


@dataclass(frozen=True, slots=True)
class Link:
    """One link of a chain as people read it: bounds in ns of session time, cause, what it was, slack."""

    start_ns: int
    end_ns: int
    cause: str
    what: str
    slack_ns: int | None


@dataclass(frozen=True, slots=True)
class Gap:
    """A stretch without compute: a row of `GAPS`, and its links in order of time."""

    row: dict[str, Any]
    links: tuple[Link, ...]


@dataclass(frozen=True, slots=True)
class Moment:
    """What is said of one moment of a rank (`RANKS`): its slice (`SLICES` and `path`) and the links around.

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
        "wall": pl.Enum(Wall),  # of its class, whoever pays for the time
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
"""API calls or ranges of threads while one step ran, the busiest thread first, by depth and start."""

SHOWN_SLICES = pl.Schema(
    {
        "start_ns": pl.Int64(),
        "end_ns": pl.Int64(),
        "state": pl.Enum(DeviceState),
        "wall": pl.Enum(Wall),
        "cause": pl.String(),
        "what": pl.String(),  # the operation, the call or the thread that owns it; null where unknown
        "ended_by": pl.String(),  # the operation that ends the gap; null outside gaps and at their open end
        "path": pl.String(),  # NVTX ranges around the issue; null without any
        "slack_ns": pl.Int64(),
    }
)
"""The slices of one step, which tile it, in order of time."""

SHOWN_PATH = pl.Schema(
    {
        "step": pl.UInt32(),
        "start_ns": pl.Int64(),
        "end_ns": pl.Int64(),
        "bound": pl.String(),  # operation, hand-over, launch-latency, piece (of a thread), return, earlier
        "wall": pl.Enum(Wall),
        "cause": pl.String(),
        "name": pl.String(),  # the operation or the call; empty outside calls
    }
)
"""Stretches of the critical paths of steps, in order of time; those of a step tile it."""


MEETING_LANES = pl.Schema(
    {
        "member": pl.UInt32(),  # place of the rank in the job
        "start_ns": pl.Int64(),  # on one clock, from the begin of what is shown
        "end_ns": pl.Int64(),
        "wait_ns": pl.Int64(),  # of it, before bytes move; null where it was not matched
        "transfer_ns": pl.Int64(),
        "operation": pl.String(),
        "axis": pl.String(),
        "is_pipeline": pl.Boolean(),
        "ranks": pl.UInt32(),  # that take part, of those supplied; null where it was not matched
        "last": pl.UInt32(),  # place of the rank that came last; null where it was not matched
    }
)
"""Collectives of some ranks of a job while one made a step, by start."""


@dataclass(frozen=True, slots=True)
class StepTimeline:
    """One step of one rank: `SHOWN_OPERATIONS`, `SHOWN_HOST` twice, `SHOWN_SLICES`, `SHOWN_PATH`.

    `role` is `typical` for the one whose duration is nearest the typical step's, `worst` for the longest
    steady one. `threads_left_out` counts threads whose calls and ranges are not listed; `path` is empty where
    the step was not played again.
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
    """The critical path of the typical step, how good its replay is, and `SHOWN_PATH` of the played steps."""

    told: CriticalPath
    check: SelfCheck
    steps: pl.DataFrame


@dataclass(frozen=True, slots=True)
class Report:
    """The answer with what is looked at: timelines, gaps and path of the rank that the diagnosis speaks of.

    A job of several exports has none of these. `path` says why there is none, where there is none. `lanes`
    (`MEETING_LANES`) show how ranks met. `overviews` are all steps at low detail.
    """

    analysis: Analysis
    timelines: tuple[StepTimeline, ...]
    gaps: tuple[Gap, ...]
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
        "length_ns": pl.Int64(),  # scaled as the comparison is, where tokens differ
        **{f"{wall}_wall_ns": pl.Int64() for wall in Wall},  # scaled too
        "counts": pl.Boolean(),
        "reason": pl.String(),  # why it does not count; null where it does
    }
)
"""The steps of one side of a comparison, run by run, in order of time."""


@dataclass(frozen=True, slots=True)
class SideSteps:
    """One side of a comparison: what its work is, the captures it was read from, its `SIDE_STEPS`."""

    work: Work
    inputs: tuple[ProfiledInput, ...]
    steps: pl.DataFrame


@dataclass(frozen=True, slots=True)
class ComparisonReport:
    """A comparison with what is looked at: the steps of both sides, of the rank that speaks."""

    comparison: "Comparison"
    base: SideSteps
    head: SideSteps
