"""Find time that is lost rarely: on few steps, so that no median shows it, or in one gap of the capture.

One gap with most of the host time, in a capture whose steps are unknown, is start-up, compilation or input.
The cause of all other host time then says little of it.
"""

from collections.abc import Mapping

import numpy as np
import polars as pl

from wallscope.attribution.totals import SliceSums
from wallscope.columns import as_integers, encode_member, find_places
from wallscope.model.analysis import Anchor, Rank
from wallscope.model.capture import Finding, Severity
from wallscope.model.diagnosis import RareStall
from wallscope.model.enums import LinkKind, Wall
from wallscope.thresholds.verdict import MATERIAL_SHARE, ONE_GAP_SHARE
from wallscope.trace.intervals import Times
from wallscope.trace.step_variation import find_stall_period, measure_rare_excess, select_longest
from wallscope.units import duration, percent

_WALLS = tuple(Wall)


def find_rare_stalls(sums: SliceSums, steady: pl.DataFrame) -> tuple[RareStall, ...]:
    """Return the rare stalls of a rank, the largest first; `steady` are its steady windows (`STEPS`)."""
    length_ns = (steady["end_ns"] - steady["start_ns"]).to_numpy()
    number = steady["step"].to_numpy().astype(np.int64)
    found = []
    for (wall, cause), time_ns in _list_times(sums, steady["step"]).items():
        excess_ns = measure_rare_excess(time_ns, length_ns)
        total_ns = int(excess_ns.sum())
        if total_ns == 0:
            continue
        rows = np.flatnonzero(excess_ns)
        found.append(
            RareStall(
                cause=cause,
                wall=_WALLS[wall],
                steps=tuple(number[rows].tolist()),
                period=find_stall_period(number[select_longest(excess_ns, rows)]),
                total_ns=total_ns,
                share=total_ns / int(length_ns.sum()),
                least_ns=int(excess_ns[rows].min()),
                most_ns=int(excess_ns.max()),
            )
        )
    return tuple(sorted(found, key=lambda stall: (-stall.total_ns, stall.cause)))


def _list_times(sums: SliceSums, steps: pl.Series) -> Mapping[tuple[int, str], Times]:
    """Return the time of each cause of each wall in each step."""
    row = find_places(sums.step, steps.to_numpy())
    found: dict[tuple[int, str], Times] = {}
    for place, wall, cause, time_ns in zip(
        row.tolist(), sums.wall.tolist(), sums.cause, sums.ns.tolist(), strict=True
    ):
        if place >= 0:
            found.setdefault((wall, cause), np.zeros(len(steps), np.int64))[place] += time_ns
    return found


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
            "Capture after this gap, or select the time after it: --time START-END.",
            covers_ns=host.longest_gap_ns,
        ),
    )
