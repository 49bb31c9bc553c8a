"""Find host time that happens once: one gap with most of it, in a capture whose steps are unknown.

Such a gap is start-up, compilation or input. The cause of all other host time then says little of it.
"""

import numpy as np
import polars as pl

from wallscope.columns import as_integers, encode_member
from wallscope.model.analysis import Anchor, Rank
from wallscope.model.capture import Finding, Severity
from wallscope.model.enums import Wall
from wallscope.thresholds.verdict import MATERIAL_SHARE, ONE_GAP_SHARE
from wallscope.units import duration, percent


def measure_longest_gap(slices: pl.DataFrame) -> int:
    """Return the most host time in one gap, in ns, given the slices (`SLICES`) of the typical step."""
    rows = np.flatnonzero(as_integers(slices["wall"]) == encode_member(Wall.HOST))
    spent_ns = (slices["end_ns"] - slices["start_ns"]).to_numpy()[rows]
    _, gap = np.unique(slices["gap"].to_numpy()[rows], return_inverse=True)
    return int(np.bincount(gap, spent_ns).max(initial=0))


def find_one_gap(rank: Rank, anchor: Anchor) -> tuple[Finding, ...]:
    """Report that one gap has most of the host time of a capture without steps."""
    host, host_ns = rank.host_details, rank.typical.walls.host
    if anchor.kind != "whole-trace" or host is None or not host_ns:
        return ()
    share = host.longest_gap_ns / host_ns
    if share < ONE_GAP_SHARE or host.longest_gap_ns < MATERIAL_SHARE * rank.typical.step_ns:
        return ()
    return (
        Finding(
            "one-gap",
            Severity.WARNING,
            f"One gap of {duration(host.longest_gap_ns)} has {percent(share)} of the host time. It happens"
            " once: start-up, compilation or input.",
            "Capture after it, or select the time after it: --time START-END.",
            covers_ns=host.longest_gap_ns,
        ),
    )
