"""How certain a verdict is: the share inferred from timing, and the unattributed share."""

import numpy as np

from wallscope.model.diagnosis import Confidence, ConfidenceLevel
from wallscope.summary.diagnosis import Decision
from wallscope.thresholds.verdict import HIGH_CONFIDENCE_SHARE, MEDIUM_CONFIDENCE_SHARE, SHARE_ROUNDING
from wallscope.trace.intervals import Times
from wallscope.units import percent


def judge_confidence(  # noqa: PLR0913  # all inputs that lower the confidence
    decision: Decision,
    walls: Times,
    unresolved: Times,
    inferred: Times,
    *,
    steady: bool,
    hides_recompute: bool = False,
    is_incomplete: bool = False,
    lacks_calls: bool = False,
) -> Confidence:
    """Return how certain the decision is.

    The confidence falls with the share of the step that may belong to another wall. This is unattributed
    time, and time found through inferred waits, part of which may be wrong. Compute as the wall is never
    highly certain where recomputed forward work cannot be recognized, or where launch calls are missing.
    Without those calls, short gaps between kernels count as compute, whatever caused them.

    Args:
        decision: the dominant wall.
        walls: int64[steps, walls], ns of each wall in each deciding step.
        unresolved: int64[steps, 3 or 4], unattributed ns in each, as `decide_wall` takes it.
        inferred: int64[steps], ns in each that were found through inferred waits.
        steady: whether steady steps decide.
        hides_recompute: whether a program trains and no range names its backward pass.
        is_incomplete: whether the capture ends early, so that idle time may be missing work.
        lacks_calls: whether the export lacks the launch calls of a material part of the operations.
    """
    step_ns = np.maximum(walls.sum(axis=1), 1)
    inferred_share = float(np.median(inferred / step_ns)) if step_ns.size else 0.0
    unresolved_share = float(np.median(unresolved[:, :3].sum(axis=1) / step_ns)) if step_ns.size else 0.0
    at_risk = inferred_share + unresolved_share
    hides_recompute = hides_recompute and decision.dominant == "compute"
    lacks_calls = lacks_calls and decision.dominant == "compute"
    level: ConfidenceLevel = "high"
    if decision.dominant == "unknown" or is_incomplete or at_risk > MEDIUM_CONFIDENCE_SHARE + SHARE_ROUNDING:
        level = "low"
    elif at_risk > HIGH_CONFIDENCE_SHARE + SHARE_ROUNDING or not steady or hides_recompute or lacks_calls:
        level = "medium"
    told = [
        f"{percent(inferred_share)} depends on waits that were inferred from timing"
        if inferred_share > 0
        else "no wait had to be inferred",
        f"{percent(unresolved_share)} has an unknown cause",
    ]
    if is_incomplete:
        told.append("idle time may be work that the incomplete trace lacks")
    if not steady:
        told.append("no steady step: shares cover all windows")
    if hides_recompute:
        told.append("no range names the backward pass: recomputed activations would count as compute")
    if lacks_calls:
        told.append("launch calls are missing: short gaps between kernels count as compute")
    return Confidence(level, inferred_share, unresolved_share, tuple(told))
