"""Two ranks' series of collectives laid beside each other: which of one is which of the other.

Ranks that share a clock are told by their ends (`timeline.partners`). Across clocks order tells: the series
are the same but for what one capture lacks at its ends, and but for the clocks' offset and drift their ends
keep one distance.
"""

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import polars as pl

from wallscope.timeline.partners import met, spread_ns
from wallscope.timeline.spans import Times

Indices = npt.NDArray[np.int64]
Line = tuple[float, float]
"""Value at 0, and slope."""

_FEWEST = 2
_SAMPLED = 400
_FARTHEST_SHIFT = 256
_LEAST_ALIKE = 0.98
_CLOSE_NS, _CLOSE_SHARE = 50_000, 0.25
_SAME_NS, _SAME_RATIO = 5_000, 1.5
_FEWEST_FOR_DRIFT, _SHORTEST_FOR_DRIFT_NS = 8, 50_000_000


@dataclass(frozen=True, slots=True)
class Series:
    """Collectives of one kind of one rank, in order of their ends; `kinds` are numbers of operations."""

    rows: Indices
    clock: int
    start_ns: Times
    end_ns: Times
    kinds: Indices


def series_of(rows: pl.DataFrame) -> Series:
    """The series of some rows of `GATHERED`, all of one rank."""
    ordered = rows.sort("end_ns", "row")
    return Series(
        ordered["row"].to_numpy().astype(np.int64),
        int(ordered["clock"][0]),
        ordered["start_ns"].to_numpy(),
        ordered["end_ns"].to_numpy(),
        ordered["operation"].to_physical().to_numpy().astype(np.int64),
    )


def by_end(one: Series, other: Series) -> tuple[Indices, Indices] | None:
    """Places of the collectives of two ranks of one clock that are the same; `None` if they never met."""
    return met(one.start_ns, one.end_ns, other.start_ns, other.end_ns)


def by_order(one: Series, other: Series, *, is_told: bool) -> tuple[Indices, Indices] | None:
    """The same of two ranks of two clocks; of ranks known to be in one group the distance may vary."""
    shift = _shift(one, other)
    places, others = _beside(len(one.rows), len(other.rows), shift)
    if places.size < (1 if is_told else _FEWEST):
        return None
    if (one.kinds[places] == other.kinds[others]).mean() < _LEAST_ALIKE:
        return None
    if not is_told:
        at_ns = one.end_ns[places]
        ends = straightened(at_ns, other.end_ns[others] - at_ns)
        starts = straightened(at_ns, other.start_ns[others] - one.start_ns[places])
        if spread_ns(ends) > max(_CLOSE_NS, _CLOSE_SHARE * spread_ns(starts)):
            return None
    return places, others


def line(at_ns: Times | npt.NDArray[np.float64], apart_ns: Times | npt.NDArray[np.float64]) -> Line:
    """A straight line through most of some points, whatever the others do.

    The slope is the median over pairs of points half the series apart; 0 for few points or a short time.
    """
    order = np.argsort(at_ns, kind="stable")
    x, y = at_ns[order].astype(np.float64), apart_ns[order].astype(np.float64)
    half = x.size // 2
    slope = 0.0
    if x.size >= _FEWEST_FOR_DRIFT and x[-1] - x[0] >= _SHORTEST_FOR_DRIFT_NS:
        along = x[half:] - x[: x.size - half]
        is_apart = along > 0
        if is_apart.any():
            slope = float(np.median((y[half:] - y[: x.size - half])[is_apart] / along[is_apart]))
    return float(np.median(y - slope * x)), slope


def straightened(at_ns: Times, apart_ns: Times) -> npt.NDArray[np.float64]:
    """Distances without their line."""
    begin_ns = at_ns[0] if at_ns.size else 0
    value, slope = line(at_ns - begin_ns, apart_ns)
    return apart_ns - (value + slope * (at_ns - begin_ns))


def _beside(count: int, other_count: int, shift: int) -> tuple[Indices, Indices]:
    places = np.arange(max(0, -shift), min(count, other_count - shift), dtype=np.int64)
    return places, places + shift


def _shift(one: Series, other: Series) -> int:
    """How many the other series has before the first of this one.

    None, if both are as long and keep one distance; else what makes the distances of ends vary least, of
    about equals none, else what makes them least.
    """
    if len(one.rows) == len(other.rows) and _varies(one, other, 0)[0] <= _CLOSE_NS:
        return 0
    most = min(max(len(one.rows), len(other.rows)) - 1, _FARTHEST_SHIFT)
    tried = {shift: _varies(one, other, shift) for shift in range(-most, most + 1)}
    least = min(spread for spread, _ in tried.values())
    good = [shift for shift, (spread, _) in tried.items() if spread <= _SAME_RATIO * least + _SAME_NS]
    return min(good, key=lambda shift: (shift != 0, tried[shift][1], abs(shift)))


def _varies(one: Series, other: Series, shift: int) -> tuple[float, float]:
    """How much the distances of ends vary, and how large they are; endless where too few remain."""
    places, others = _beside(len(one.rows), len(other.rows), shift)
    if 2 * places.size < min(len(one.rows), len(other.rows)) or not places.size:
        return np.inf, np.inf
    held = np.unique(np.linspace(0, places.size - 1, _SAMPLED).astype(np.int64))
    places, others = places[held], others[held]
    if (one.kinds[places] == other.kinds[others]).mean() < _LEAST_ALIKE:
        return np.inf, np.inf
    apart_ns = other.end_ns[others] - one.end_ns[places]
    return spread_ns(straightened(one.end_ns[places], apart_ns)), float(abs(np.median(apart_ns)))
