"""Tracks of a trace that other viewers can show: slices and counters over session time."""

from dataclasses import dataclass
from typing import Final, Literal

import polars as pl

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
