"""Find host time that happens once: one gap with most of it, in a capture whose steps are unknown.

Such a gap is start-up, compilation or input. The cause of all other host time then says little of it.
"""

import numpy as np
import polars as pl

from wallscope.columns import as_integers, encode_member
from wallscope.model.analysis import Anchor, Rank
from wallscope.model.capture import Finding, Severity
from wallscope.model.enums import LinkKind, Wall
from wallscope.thresholds.verdict import MATERIAL_SHARE, ONE_GAP_SHARE
from wallscope.units import duration, percent


def measure_longest_gap(slices: pl.DataFrame) -> tuple[int, float]:
    """Return the most time of the host in one gap, in ns, and its share of all such time.

    Args:
        slices: those (`SLICES`) of the typical step. Calls that allocate memory count as time of the host.
    """
    is_host = as_integers(slices["wall"]) == encode_member(Wall.HOST)
    is_allocation = as_integers(slices["kind"]) == encode_member(LinkKind.ALLOCATION)
    rows = np.flatnonzero(is_host | is_allocation)
    spent_ns = (slices["end_ns"] - slices["start_ns"]).to_numpy()[rows]
    _, gap = np.unique(slices["gap"].to_numpy()[rows], return_inverse=True)
    longest_ns = int(np.bincount(gap, spent_ns).max(initial=0))
    return longest_ns, longest_ns / max(int(spent_ns.sum()), 1)


def find_one_gap(rank: Rank, anchor: Anchor) -> tuple[Finding, ...]:
    """Report that one gap has most of the host time of a capture without steps."""
    host = rank.host_details
    if anchor.kind != "whole-trace" or host is None or host.longest_gap_share < ONE_GAP_SHARE:
        return ()
    if host.longest_gap_ns < MATERIAL_SHARE * rank.typical.step_ns:
        return ()
    return (
        Finding(
            "one-gap",
            Severity.WARNING,
            f"One gap of {duration(host.longest_gap_ns)} has {percent(host.longest_gap_share)} of the host"
            " time. Such time is usually spent once, on start-up, compilation or input.",
            "Capture after it, or select the time after it: --time START-END.",
            covers_ns=host.longest_gap_ns,
        ),
    )
