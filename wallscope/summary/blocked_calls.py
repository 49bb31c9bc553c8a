"""Host time in calls that something blocked: for no recorded reason, or without a delay of the GPU.

A long wait in a launch call looks like a cause in Nsight Systems. It is one only if the GPU runs out of work:
that time is the cause `memory/driver-lock`.
"""

import numpy as np
import polars as pl

from wallscope.columns import as_integers, encode_member, find_places
from wallscope.model.analysis import Anchor, Rank
from wallscope.model.capture import Finding, Severity
from wallscope.model.enums import CallRole, LinkKind, Wall
from wallscope.model.rank_summaries import LockedCall
from wallscope.thresholds.verdict import MATERIAL_SHARE
from wallscope.trace.dependencies import Dependencies
from wallscope.trace.intervals import Times
from wallscope.units import duration, percent

_RETURNING = (CallRole.LAUNCH, CallRole.GRAPH, CallRole.COPY)
_IN_CALLS = (LinkKind.LAUNCH_CALL, LinkKind.OTHER_CALL)


def sum_blocked_by_step(
    slices: pl.DataFrame, calls: pl.DataFrame, waits: Dependencies, steps: pl.Series
) -> Times:
    """Return the host time in calls that were blocked for an unknown reason, in ns, one number per step.

    Launches and copies return within microseconds unless something blocks them. If no full queue and no
    call of another thread explains a long one, the thread that held the driver may be missing from the
    export.

    Args:
        slices: `SLICES` of one rank.
        calls: `CALLS`.
        waits: what calls waited for.
        steps: the numbers of the steps.
    """
    own = slices.filter(
        (pl.col("wall") == Wall.HOST) & (pl.col("call") >= 0) & pl.col("kind").is_in(list(_IN_CALLS))
    )
    call = own["call"].to_numpy()
    returns = np.isin(as_integers(calls["role"])[call], [encode_member(one) for one in _RETURNING])
    own = own.filter(pl.Series(returns & waits.is_delayed[call] & (waits.holder[call] < 0)))
    row = find_places(own["step"].to_numpy(), steps.to_numpy())
    found = np.zeros(len(steps), np.int64)
    np.add.at(found, row[row >= 0], (own["end_ns"] - own["start_ns"]).to_numpy()[row >= 0])
    return found


_LOCK = "memory/driver-lock"
_MOST_CALLS = 2


def find_hidden_locks(rank: Rank, anchor: Anchor) -> tuple[Finding, ...]:
    """Report waits for the driver that are material, while those on the critical path are not."""
    step_ns, host = rank.typical.step_ns, rank.host_details
    if host is None or any(stall.cause == _LOCK for stall in rank.rare_stalls):
        return ()
    waits = [call for call in host.locked_calls if call.waited_ns >= MATERIAL_SHARE * step_ns]
    lost_ns = sum(entry.typical_ns for entry in rank.causes if entry.cause == _LOCK)
    if not waits or lost_ns >= MATERIAL_SHARE * step_ns:
        return ()
    listed = "; ".join(_describe_wait(call, step_ns) for call in waits[:_MOST_CALLS])
    lost = f"Only {duration(lost_ns)} of this delays the GPU" if lost_ns else "None of this delays the GPU"
    return (
        Finding(
            "lock-hidden",
            Severity.INFO,
            f"CUDA calls wait while another thread is in the driver, in each {anchor.window}: {listed}."
            f" {lost}, so it does not limit the {anchor.window}.",
            None,
        ),
    )


def _describe_wait(call: LockedCall, step_ns: int) -> str:
    return (
        f"{call.count:.1f} {call.name} behind {call.holder}, {duration(call.waited_ns)}"
        f" ({percent(call.waited_ns / max(step_ns, 1))})"
    )
