"""The unit that repeats inside a step: microbatches, else layers. With few steps, it tells how much varies.

Units are marked by ranges, as steps are; each reaches from its first kernel to that of the next one in
the same step, so the last of a step has no length.
"""

from typing import get_args

import numpy as np
import polars as pl

from wallscope.model.analysis import AnchorUnit, InnerUnit
from wallscope.model.host import RepeatedUnit
from wallscope.thresholds import FEWEST_INNER_UNITS_COUNT
from wallscope.timeline.anchors import FORWARD, are_saying, outermost, saying
from wallscope.timeline.main_stream import MainStream, first_rows
from wallscope.timeline.nesting import Parents, farthest

UNITS: tuple[tuple[AnchorUnit, str], ...] = (
    ("microbatch", r"(?i)(^|[^a-z])micro[ _-]?(batch|step)[ _#:.]*\d*$"),
    ("microbatch", FORWARD),
    ("layer", r"(?i)(^|[^a-z])(layers?|blocks?)[ _#:.]?\d+(f|b|\)|$|[^a-z0-9])"),
    ("layer", r"transformer_layer\._forward_attention\.self_attention$"),
)
"""Units and the texts of the ranges that mark them, in the order in which they are looked for."""


def inner_unit(main: MainStream, windows: pl.DataFrame, ranges: pl.DataFrame) -> InnerUnit | None:
    """The first known unit that occurs several times inside the steps of a rank (`STEPS`), in order of time.

    `ranges` are those of `labelled`.
    """
    if windows.is_empty():
        return None
    is_own = (ranges["process"].to_numpy() == main.process) & ~ranges["crosses"].to_numpy()
    own = ranges["thread", "start_ns", "end_ns", "name", "text", "folded"][np.flatnonzero(is_own)]
    start_ns = main.rows["start_ns"].to_numpy()
    step_start_ns, step_end_ns = windows["start_ns"].to_numpy(), windows["end_ns"].to_numpy()
    for unit, known in UNITS:
        for anchor in outermost(saying(own, known)):
            begins_ns = np.sort(start_ns[first_rows(main, anchor)])
            step = np.searchsorted(step_start_ns, begins_ns, side="right") - 1
            is_inside = (step >= 0) & (begins_ns < step_end_ns[step])
            begins_ns, step = begins_ns[is_inside], step[is_inside]
            same_step = step[1:] == step[:-1]
            length_ns = np.diff(begins_ns)[same_step]
            if length_ns.size >= max(FEWEST_INNER_UNITS_COUNT, len(windows)):
                low, median, high = (int(time_ns) for time_ns in np.percentile(length_ns, [10, 50, 90]))
                return InnerUnit(unit, anchor.name, int(length_ns.size), median, low, high)
    return None


def outermost_units(tree: pl.DataFrame) -> dict[RepeatedUnit, Parents]:
    """The range of a unit that each range stands in, by unit; -1 without one."""
    return {
        unit: _outermost(tree, [known for named, known in UNITS if named == unit])
        for unit in get_args(RepeatedUnit)
    }


def _outermost(tree: pl.DataFrame, patterns: list[str]) -> Parents:
    """The outermost range around each range, itself too, whose text a pattern finds; -1 without one.

    `tree` follows `NESTED` with `text`, that of its name; the number of a range is its row.
    """
    is_known = are_saying(tree, "|".join(f"(?:{known})" for known in patterns))
    return farthest(tree["parent"].to_numpy(), is_known & ~tree["crosses"].to_numpy())
