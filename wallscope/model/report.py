"""What the page shows beside the answer: the timelines of single steps, and the longest gaps."""

from dataclasses import dataclass
from typing import Literal

import polars as pl

from wallscope.model.analysis import Analysis
from wallscope.model.kinds import DeviceState, Wall
from wallscope.model.proof import Gap

SHOWN_OPERATIONS = pl.Schema(
    {
        "start_ns": pl.Int64(),
        "end_ns": pl.Int64(),
        "lane": pl.String(),  # its stream, as CUDA numbers it
        "name": pl.String(),
        "what": pl.String(),  # its category
        "wall": pl.Enum(Wall),  # of its class, whoever pays for the time
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


@dataclass(frozen=True, slots=True)
class StepTimeline:
    """One step of one rank: `SHOWN_OPERATIONS`, `SHOWN_HOST` twice, `SHOWN_SLICES`.

    `role` is `typical` for the one whose duration is nearest the typical step's, `worst` for the longest
    steady one. `threads_left_out` counts threads whose calls and ranges are not listed.
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


@dataclass(frozen=True, slots=True)
class Report:
    """The answer with what is looked at: timelines and gaps of the rank that the diagnosis speaks of."""

    analysis: Analysis
    timelines: tuple[StepTimeline, ...]
    gaps: tuple[Gap, ...]
