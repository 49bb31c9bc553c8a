"""Two ranks' series of collectives laid beside each other: which of one is which of the other.

Ranks that share a clock are told by their ends (`timeline.partners`). Across clocks order tells: the series
are the same but for what one capture lacks at its ends, and but for the clocks' offset and drift their ends
keep one distance.
"""

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import polars as pl

from wallscope.arrays.columns import Rows, filled
from wallscope.thresholds import (
    FARTHEST_SHIFT_COUNT,
    FARTHEST_UNTOLD_SHIFT_COUNT,
    FEWEST_FOR_DRIFT_COUNT,
    FEWEST_PAIRED_COUNT,
    PAIRED_ALIKE_SHARE,
    PAIRED_SPREAD_NS,
    PAIRED_SPREAD_SHARE,
    SAME_SHIFT_NS,
    SAME_SHIFT_RATIO,
    SHIFT_SAMPLE_COUNT,
    SHORTEST_FOR_DRIFT_NS,
    SIZED_MET_SPREAD_NS,
)
from wallscope.timeline.partners import met, spread_ns, spreads_ns
from wallscope.timeline.spans import Times

Times64 = npt.NDArray[np.float64]
Line = tuple[float, float]
"""Value at 0, and slope."""

_AT_ONCE = 256


@dataclass(frozen=True, slots=True)
class Series:
    """Collectives of one kind of one rank, in order of their ends; `kinds` are numbers of operations."""

    member: int
    rows: Rows
    clock: int
    start_ns: Times
    end_ns: Times
    kinds: Rows


def series_of(rows: pl.DataFrame) -> Series:
    """The series of some rows of `GATHERED`, all of one rank."""
    ordered = rows.sort("end_ns", "row")
    return Series(
        int(ordered["member"][0]),
        ordered["row"].to_numpy().astype(np.int64),
        int(ordered["clock"][0]),
        ordered["start_ns"].to_numpy(),
        ordered["end_ns"].to_numpy(),
        filled(ordered["operation"]),
    )


@dataclass(frozen=True, slots=True)
class Laid:
    """Places of collectives of two ranks that are the same; how much the distance of their ends varies."""

    places: Rows
    others: Rows
    spread_ns: float


def by_end(one: Series, other: Series, *, is_sized: bool) -> Laid | None:
    """Two ranks of one clock laid beside each other; `None` if they never met.

    Where the size of the group is known, the closest are taken, and need not be that close.
    """
    times = (one.start_ns, one.end_ns, other.start_ns, other.end_ns)
    found = met(*times, SIZED_MET_SPREAD_NS) if is_sized else met(*times)
    return None if found is None else _laid(one, other, *found)


def _laid(one: Series, other: Series, places: Rows, others: Rows) -> Laid:
    at_ns = one.end_ns[places]
    return Laid(places, others, spread_ns(straightened(at_ns, other.end_ns[others] - at_ns)))


def by_order(one: Series, other: Series, *, is_told: bool) -> Laid | None:
    """The same of two ranks of two clocks; of ranks known to be in one group the distance may vary."""
    if not is_told and len(one.rows) == len(other.rows):
        shift = 0
    else:
        shift = _shift(one, other, FARTHEST_SHIFT_COUNT if is_told else FARTHEST_UNTOLD_SHIFT_COUNT)
    places, others = _beside(len(one.rows), len(other.rows), shift)
    if places.size < (1 if is_told else FEWEST_PAIRED_COUNT):
        return None
    if (one.kinds[places] == other.kinds[others]).mean() < PAIRED_ALIKE_SHARE:
        return None
    laid = _laid(one, other, places, others)
    if not is_told:
        starts = straightened(one.end_ns[places], other.start_ns[others] - one.start_ns[places])
        if laid.spread_ns > max(PAIRED_SPREAD_NS, PAIRED_SPREAD_SHARE * spread_ns(starts)):
            return None
    return laid


def line(at_ns: Times | Times64, apart_ns: Times | Times64) -> Line:
    """A straight line through most of some points, whatever the others do.

    The slope is the median over pairs of points half the series apart; 0 for few points or a short time.
    """
    order = np.argsort(at_ns, kind="stable")
    x, y = at_ns[order].astype(np.float64), apart_ns[order].astype(np.float64)
    slope = float(_slopes(x[None], y[None])[0]) if tells_drift(x) else 0.0
    return float(np.median(y - slope * x)), slope


def tells_drift(at_ns: Times | Times64) -> bool:
    """Whether there are enough points, far enough apart, to tell a drift."""
    return bool(at_ns.size >= FEWEST_FOR_DRIFT_COUNT and np.ptp(at_ns) >= SHORTEST_FOR_DRIFT_NS)


def straightened(at_ns: Times, apart_ns: Times) -> Times64:
    """Distances without their line."""
    begin_ns = at_ns[0] if at_ns.size else 0
    value, slope = line(at_ns - begin_ns, apart_ns)
    return apart_ns - (value + slope * (at_ns - begin_ns))


def _beside(count: int, other_count: int, shift: int) -> tuple[Rows, Rows]:
    places = np.arange(max(0, -shift), min(count, other_count - shift), dtype=np.int64)
    return places, places + shift


def _shift(one: Series, other: Series, farthest: int) -> int:
    """How many the other series has before the first of this one.

    None, if both are as long and keep one distance; else what makes the distances of ends vary least, of
    about equals none, else what makes them least.
    """
    if (
        len(one.rows) == len(other.rows)
        and _varies(one, other, np.zeros(1, np.int64))[0][0] <= PAIRED_SPREAD_NS
    ):
        return 0
    longer = max(len(one.rows), len(other.rows))
    most = min(longer - 1, abs(len(one.rows) - len(other.rows)) + farthest)
    shifts = np.arange(-most, most + 1, dtype=np.int64)
    varied_ns, apart_ns = _varies(one, other, shifts)
    good = np.flatnonzero(varied_ns <= SAME_SHIFT_RATIO * varied_ns.min() + SAME_SHIFT_NS)
    best = np.lexsort((np.abs(shifts[good]), apart_ns[good], shifts[good] != 0))[0]
    return int(shifts[good[best]])


def _varies(one: Series, other: Series, shifts: Rows) -> tuple[Times64, Times64]:
    """How much the distances of ends vary at each shift, and how large they are.

    Endless where too few remain, or are not of the same kinds.
    """
    first = np.maximum(0, -shifts)
    counts = np.minimum(len(one.rows), len(other.rows) - shifts) - first
    varied_ns, apart_ns = np.full(shifts.size, np.inf), np.full(shifts.size, np.inf)
    enough = np.flatnonzero((counts > 0) & (2 * counts >= min(len(one.rows), len(other.rows))))
    widths = np.minimum(counts, SHIFT_SAMPLE_COUNT)
    for width in np.unique(widths[enough]).tolist():
        alike = enough[widths[enough] == width]
        for rows in np.split(alike, range(_AT_ONCE, alike.size, _AT_ONCE)):
            places = first[rows, None] + _sampled(counts[rows], width)
            others = places + shifts[rows, None]
            same = (one.kinds[places] == other.kinds[others]).mean(axis=1) >= PAIRED_ALIKE_SHARE
            at_ns = one.end_ns[places[same]]
            own_ns = other.end_ns[others[same]] - at_ns
            varied_ns[rows[same]] = spreads_ns(_all_straightened(at_ns, own_ns))
            apart_ns[rows[same]] = np.abs(np.median(own_ns, axis=1))
    return varied_ns, apart_ns


def _sampled(counts: Rows, width: int) -> Rows:
    """So many numbers below each count, evenly spaced; a row for each."""
    if width < SHIFT_SAMPLE_COUNT:
        return np.broadcast_to(np.arange(width, dtype=np.int64), (counts.size, width))
    return np.linspace(0, counts - 1, width, axis=-1).astype(np.int64)


def _all_straightened(at_ns: Times, apart_ns: Times) -> Times64:
    """`straightened`, row by row; each is in order of time."""
    along_ns = (at_ns - at_ns[:, :1]).astype(np.float64)
    slopes = np.zeros(len(at_ns))
    drifting = np.flatnonzero([tells_drift(row) for row in along_ns])
    if drifting.size:
        slopes[drifting] = _slopes(along_ns[drifting], apart_ns[drifting].astype(np.float64))
    lines = slopes[:, None] * along_ns
    values = np.median(apart_ns - lines, axis=1)
    return apart_ns - (values[:, None] + lines)


def _slopes(x: Times64, y: Times64) -> Times64:
    """The slope of `line`, row by row; points are in order of `x`."""
    half = x.shape[1] // 2
    along = x[:, half:] - x[:, : x.shape[1] - half]
    rise = y[:, half:] - y[:, : x.shape[1] - half]
    is_apart = along > 0
    if is_apart.all():
        return np.asarray(np.median(rise / along, axis=1))
    return np.array(
        [
            np.median(rise[row, held] / along[row, held]) if held.any() else 0.0
            for row, held in enumerate(is_apart)
        ]
    )
