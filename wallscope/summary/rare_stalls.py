"""Find time that a cause takes on few steps, so that neither the median nor the typical step shows it."""

from collections.abc import Mapping

import numpy as np
import polars as pl

from wallscope.attribution.totals import SliceSums
from wallscope.columns import find_places
from wallscope.model.diagnosis import RareStall
from wallscope.model.enums import Wall
from wallscope.trace.intervals import Times
from wallscope.trace.step_variation import find_stall_period, measure_rare_excess, select_longest

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
