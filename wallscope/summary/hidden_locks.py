"""Report CUDA calls that wait for another thread in the driver, where this does not delay the GPU.

A long wait in a launch call looks like a cause in Nsight Systems. It is one only if the GPU runs out of work:
that time is the cause `memory/driver-lock`.
"""

from wallscope.model.analysis import Anchor, Rank
from wallscope.model.capture import Finding, Severity
from wallscope.model.rank_summaries import LockedCall
from wallscope.thresholds.verdict import MATERIAL_SHARE
from wallscope.units import duration, percent

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
