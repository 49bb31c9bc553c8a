"""Host time in launches and copies that something blocked, where the export does not contain the reason."""

import numpy as np
import polars as pl

from wallscope.columns import Codes, Flags, as_integers, encode_member, find_places
from wallscope.model.enums import CallRole, LinkKind, Wall
from wallscope.thresholds.steps import LOCKED_LENGTH_RATIO, SHORTEST_HELD_CALL_NS
from wallscope.trace.blocking_calls import measure_usual_lengths
from wallscope.trace.intervals import Times

_RETURNING = (CallRole.LAUNCH, CallRole.GRAPH, CallRole.COPY)
_IN_CALLS = (LinkKind.LAUNCH_CALL, LinkKind.OTHER_CALL)


def sum_blocked_by_step(slices: pl.DataFrame, calls: pl.DataFrame, holder: Codes, steps: pl.Series) -> Times:
    """Return the host time in calls that were blocked for an unknown reason, in ns, one number per step.

    Launches and copies return within microseconds unless something blocks them. If no full queue and no
    call of another thread explains a long one, the thread that held the driver may be missing from the
    export.

    Args:
        slices: `SLICES` of one rank.
        calls: `CALLS`.
        holder: int32[call], the call of another thread that blocked each call, -1 without one.
        steps: the numbers of the steps.
    """
    is_open = _mark_blocked(calls) & (holder < 0)
    own = slices.filter(
        (pl.col("wall") == Wall.HOST) & (pl.col("call") >= 0) & pl.col("kind").is_in(list(_IN_CALLS))
    )
    own = own.filter(pl.Series(is_open[own["call"].to_numpy()]))
    row = find_places(own["step"].to_numpy(), steps.to_numpy())
    found = np.zeros(len(steps), np.int64)
    np.add.at(found, row[row >= 0], (own["end_ns"] - own["start_ns"]).to_numpy()[row >= 0])
    return found


def _mark_blocked(calls: pl.DataFrame) -> Flags:
    """Return whether each call should return at once, and took several times as long as is usual."""
    role = as_integers(calls["role"])
    length_ns = calls["end_ns"].to_numpy() - calls["start_ns"].to_numpy()
    is_long: Flags = (length_ns >= SHORTEST_HELD_CALL_NS) & (
        length_ns >= LOCKED_LENGTH_RATIO * measure_usual_lengths(length_ns, role)
    )
    return is_long & np.isin(role, [encode_member(one) for one in _RETURNING])
