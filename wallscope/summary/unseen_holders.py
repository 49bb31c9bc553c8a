"""Waits for locks of which the export does not show what the holder did meanwhile.

The system records that a thread waits for a lock, but not which thread holds it. A holder with calls in the
export shows when it releases the lock: one of its calls or waits begins or ends then. If no such thread
does, the holder may be one whose calls are missing. Whether it worked or allocated is then unknown.
"""

from collections.abc import Iterator

import numpy as np
import polars as pl

from wallscope.attribution.host_causes import HostActivity
from wallscope.columns import (
    Flags,
    as_integers,
    encode_member,
    iterate_groups,
    match_rows,
    sum_by_group,
)
from wallscope.model.capture import Capture
from wallscope.model.cause_catalogue import DRAINED, HOST_FRAMEWORK, HOST_LOCK
from wallscope.model.enums import LinkKind
from wallscope.model.schemas import HostKind
from wallscope.thresholds.steps import LOCK_RETURN_NS
from wallscope.trace.intervals import Times, is_inside


def sum_unseen_holds_by_step(
    slices: pl.DataFrame, capture: Capture, activity: HostActivity, steps: pl.Series
) -> Times:
    """Return the host time in waits for locks whose holder is not seen, in ns, one number per step.

    Args:
        slices: `SLICES` of one rank.
        capture: the capture.
        activity: what its threads did outside calls.
        steps: the numbers of the steps.
    """
    is_lock = as_integers(capture.host_events["kind"]) == encode_member(HostKind.LOCK)
    if not is_lock.any():
        return np.zeros(len(steps), np.int64)
    causes = slices["cause"].cast(pl.String)
    is_open = (causes.is_in([HOST_LOCK, HOST_FRAMEWORK]) | causes.str.starts_with(DRAINED)).to_numpy()
    is_open &= as_integers(slices["kind"]) == encode_member(LinkKind.OUTSIDE_CALLS)
    row, place = match_rows(steps.to_numpy(), slices["step"].to_numpy()[is_open])
    own = np.flatnonzero(is_open)[place]
    start_ns, end_ns = (slices[side].to_numpy()[own] for side in ("start_ns", "end_ns"))
    unseen_ns = np.zeros(own.size, np.int64)
    for thread, on_thread in iterate_groups(slices["thread"].to_numpy()[own].astype(np.int64)):
        waits = activity.spans_of(thread, HostKind.LOCK)
        locked = on_thread[is_inside(waits, start_ns[on_thread])]
        wait = np.searchsorted(waits.start_ns, start_ns[locked], side="right") - 1
        rows = locked[~_lets_go(waits.end_ns[wait], thread, capture, activity)]
        unseen_ns[rows] = end_ns[rows] - start_ns[rows]
    return sum_by_group(row, unseen_ns, len(steps))


def _lets_go(until_ns: Times, waiting: int, capture: Capture, activity: HostActivity) -> Flags:
    """Return whether another thread with calls goes on at each end of a wait.

    A thread that itself waited for a lock until then holds none that others wait for.
    """
    found = np.zeros(until_ns.size, np.bool_)
    for thread, moments in _list_resumptions(waiting, capture) if until_ns.size else ():
        begun = np.searchsorted(moments, until_ns - LOCK_RETURN_NS)
        behind = np.searchsorted(moments, until_ns + LOCK_RETURN_NS, side="right")
        locks = activity.spans_of(thread, HostKind.LOCK)
        found |= (behind > begun) & ~is_inside(locks, until_ns - LOCK_RETURN_NS)
    return found


def _list_resumptions(waiting: int, capture: Capture) -> Iterator[tuple[int, Times]]:
    """Yield the other threads with calls of a thread's process, and when they go on, in order.

    That is when their calls begin and end, and when they wait for something else.
    """
    process = capture.threads["process"].to_numpy()
    of_call, of_event = (
        frame["thread"].to_numpy().astype(np.int64) for frame in (capture.calls, capture.host_events)
    )
    for thread, own in iterate_groups(of_call):
        if thread == waiting or process[thread] != process[waiting]:
            continue
        sides = [capture.calls[side].to_numpy()[own] for side in ("start_ns", "end_ns")]
        sides.append(capture.host_events["start_ns"].to_numpy()[of_event == thread])
        yield thread, np.sort(np.concatenate(sides))
