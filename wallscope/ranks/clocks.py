"""Align the clocks of a job by the ends of matched collectives, of messages where no collective joins clocks.

No rank leaves a collective in which all send and all receive before the last rank enters. Its ends are
therefore one moment, seen by several clocks. Hosts differ by an offset and a drift. Ranks of one host differ
by the clocks of their GPUs and by how fast each leaves, which is one number per rank.
"""

import numpy as np
import polars as pl

from wallscope.model.analysis import Clock, ClockMethod, Clocks
from wallscope.model.enums import Collective
from wallscope.ranks.match_collectives import (
    AllCollectives,
    Times64,
    fit_line,
    has_drift_evidence,
    join_meetings,
)
from wallscope.records import dataclass
from wallscope.thresholds.causes import CLOCK_ROUNDS_COUNT, LARGEST_DRIFT_RATIO

SYMMETRIC = (
    Collective.ALL_REDUCE,
    Collective.ALL_GATHER,
    Collective.REDUCE_SCATTER,
    Collective.ALL_TO_ALL,
    Collective.SYNCHRONISE,
    Collective.DISPATCH,
    Collective.COMBINE,
)
_PPM = 1e6


@dataclass(frozen=True, slots=True)
class AlignedCollectives:
    """Collectives on one clock: `ALL_COLLECTIVES`, `MEETINGS`, and `is_tied`: whether the clock is known."""

    rows: pl.DataFrame
    clocks: Clocks


@dataclass(frozen=True, slots=True)
class _ClockFit:
    begin_ns: int
    offset_ns: float
    drift: float
    matched: int
    has_drift: bool


def align_clocks(gathered: AllCollectives, meetings: pl.DataFrame) -> AlignedCollectives:
    """Return the collectives with their meetings, on the clock of the host that shares most collectives."""
    rows = join_meetings(gathered.rows, meetings)
    fits = _fit_clocks(rows)
    numbers = range(len(gathered.hostnames))
    is_tied = pl.col("clock").is_in([clock for clock in numbers if clock in fits])
    shift = np.zeros(len(rows))
    clock, end_ns = rows["clock"].to_numpy(), rows["end_ns"].to_numpy()
    for number, fit in fits.items():
        own = clock == number
        shift[own] = fit.offset_ns + fit.drift * (end_ns[own] - fit.begin_ns)
    rows = _shift_times(rows, shift).with_columns(is_tied=is_tied)
    for _ in range(CLOCK_ROUNDS_COUNT):
        own_shift = _correct_members(rows)
        rows = _shift_times(rows, own_shift)
    low, high = _residuals(rows)
    members = dict(rows.group_by("clock").agg(pl.col("member").unique().sort()).iter_rows())
    hosts = tuple(
        Clock(
            hostname=gathered.hostnames[number],
            ranks=tuple(members.get(number, ())),
            offset_ns=round(-fits[number].offset_ns) if number in fits else None,
            drift_ppm=0.0 - fits[number].drift * _PPM if number in fits and fits[number].has_drift else None,
            matched=fits[number].matched if number in fits else 0,
        )
        for number in numbers
    )
    return AlignedCollectives(rows, Clocks(_method(gathered, len(fits)), low, high, hosts))


def _method(gathered: AllCollectives, tied_count: int) -> ClockMethod:
    if gathered.rows.is_empty():
        return "none"
    clock_count = len(gathered.hostnames)
    if clock_count == 1:
        return "one-clock" if gathered.captures == 1 else "session-start"
    return "collective-ends" if tied_count == clock_count else "unaligned"


def _select_simultaneous(rows: pl.DataFrame, *by: str) -> pl.DataFrame:
    """Return the matched ends that are one moment; if a job has none of these, all matched ones.

    `by` are columns that are needed with their meetings.
    """
    matched = rows.select(*by, "meeting", "operation", "end_ns").filter(pl.col("meeting").is_not_null())
    symmetric = matched.filter(pl.col("operation").is_in([str(kind) for kind in SYMMETRIC]))
    return matched if symmetric.is_empty() else symmetric


def _fit_clocks(rows: pl.DataFrame) -> dict[int, _ClockFit]:
    """Return the correction of the times of each clock that can be aligned with the reference.

    Messages align those clocks that no collective reaches.
    """
    present = rows["clock"].unique().sort().to_list()
    if not present:
        return {}
    ends = _find_ends(_select_simultaneous(rows, "clock"))
    sizes = ends.filter("shared").group_by("clock").len().sort("len", "clock", descending=[True, False])
    reference = present[0] if sizes.is_empty() else int(sizes["clock"][0])
    fits = {reference: _ClockFit(0, 0.0, 0.0, 0, has_drift=True)}
    _reach_clocks(ends, fits)
    if len(fits) < len(present):
        matched = rows.select("clock", "meeting", "end_ns").filter(pl.col("meeting").is_not_null())
        _reach_clocks(_find_ends(matched), fits)
    return fits


def _find_ends(matched: pl.DataFrame) -> pl.DataFrame:
    """Return the end of each meeting on each clock; `shared` with another clock."""
    return (
        matched.group_by("clock", "meeting")
        .agg(pl.col("end_ns").median())
        .sort("clock", "meeting")
        .with_columns(shared=pl.len().over("meeting") > 1)
    )


def _reach_clocks(ends: pl.DataFrame, fits: dict[int, _ClockFit]) -> None:
    """Add the corrections of clocks that share meetings with one that has a correction, and so on."""
    aligned = pl.concat([_align_ends(ends, number, fit) for number, fit in fits.items()])
    while True:
        aligned = aligned.group_by("meeting").agg(pl.col("at").median()).sort("meeting")
        reachable = ends.filter(~pl.col("clock").is_in(list(fits))).join(
            aligned, on="meeting", maintain_order="left"
        )
        if reachable.is_empty():
            return
        fresh = []
        for own in reachable.partition_by("clock", maintain_order=True):
            number, at_ns = int(own["clock"][0]), own["end_ns"].to_numpy()
            begin_ns = round(at_ns.min())
            offset_ns, drift = fit_line(at_ns - begin_ns, own["at"].to_numpy() - at_ns)
            if abs(drift) > LARGEST_DRIFT_RATIO:
                offset_ns, drift = float(np.median(own["at"].to_numpy() - at_ns)), 0.0
            fits[number] = _ClockFit(begin_ns, offset_ns, drift, len(own), has_drift_evidence(at_ns))
            fresh.append(_align_ends(ends, number, fits[number]))
        aligned = pl.concat([aligned, *fresh])


def _align_ends(ends: pl.DataFrame, number: int, fit: _ClockFit) -> pl.DataFrame:
    """Return the ends on a clock with its correction."""
    shift = fit.offset_ns + fit.drift * (pl.col("end_ns") - fit.begin_ns)
    return ends.filter(pl.col("clock") == number).select("meeting", at=pl.col("end_ns") + shift)


def _shift_times(rows: pl.DataFrame, shift: Times64) -> pl.DataFrame:
    added = pl.Series("shift", np.rint(shift).astype(np.int64))
    return rows.with_columns(pl.col("start_ns") + added, pl.col("end_ns") + added)


def _correct_members(rows: pl.DataFrame) -> Times64:
    """Return the correction of each rank's times, in ns, that aligns its ends with those of its peers."""
    missing = pl.col("end_ns").median().over("meeting") - pl.col("end_ns")
    simultaneous = _select_simultaneous(rows, "member").select(
        "member", added=missing
    )  # Inside of agg, over would see only one member.
    own = simultaneous.group_by("member").agg(pl.col("added").median())
    added = rows.select("member").join(own, on="member", how="left", maintain_order="left")["added"]
    return added.fill_null(0.0).to_numpy()


def _residuals(rows: pl.DataFrame) -> tuple[int | None, int | None]:
    """Return the distance of ends from those of their peers, in ns: 5th and 95th percentile."""
    count = pl.len().over("meeting")
    simultaneous = _select_simultaneous(rows).filter(count > 1)
    if simultaneous.is_empty():
        return None, None
    others = (pl.col("end_ns").sum().over("meeting") - pl.col("end_ns")) / (count - 1)
    apart_ns = simultaneous.select(apart=pl.col("end_ns") - others)["apart"].to_numpy()
    low, high = np.percentile(apart_ns, [5, 95])
    return round(float(low)), round(float(high))
