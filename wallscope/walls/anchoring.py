"""What divided the capture into steps, and whether the kernel sequence agrees."""

import polars as pl

from wallscope.model.analysis import Anchor, CrossCheck, DroppedStep
from wallscope.thresholds import ANCHOR_AGREEMENT_SHARE
from wallscope.timeline.inner import inner_unit
from wallscope.timeline.steps import Division
from wallscope.walls.accounting import Divided


def anchor_of(parts: Divided, division: Division) -> Anchor:
    """What divided the capture, with the steps of the busiest rank that do not count as steady."""
    own = parts.windows.filter(pl.col("rank_id") == division.busiest.rank_id)
    dropped = own.filter(pl.col("reason").is_not_null()).select("step", "reason")
    selected = own.filter(pl.col("selected"))
    is_step = division.unit == "step"
    return Anchor(
        kind=division.kind,
        unit=division.unit,
        name=division.name,
        steps=division.steps,
        dropped=tuple(DroppedStep(step, reason) for step, reason in dropped.iter_rows()),
        inner=inner_unit(division.busiest, selected, parts.phases.tree) if is_step else None,
        cross_check=_cross_check(division),
        selected_time_ns=parts.selection.time_ns,
    )


def _cross_check(division: Division) -> CrossCheck | None:
    """What the kernel sequence says of the busiest rank's steps.

    Bursts of optimizer kernels lie between steps: there is one more or one less of them.
    """
    if division.check is None:
        return None
    allowed = max(ANCHOR_AGREEMENT_SHARE * division.steps, 1 if division.kind == "optimizer" else 0)
    agrees = abs(division.check - division.steps) <= allowed
    return CrossCheck("kernel-sequence", division.check, agrees=agrees)
