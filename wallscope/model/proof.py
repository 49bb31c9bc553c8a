"""What is shown on request so that a number can be checked in Nsight's timeline."""

from dataclasses import dataclass
from typing import Any

import polars as pl

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
