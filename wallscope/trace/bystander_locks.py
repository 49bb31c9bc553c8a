"""Locks that a thread without CUDA calls held while a launching thread waited for them.

Such a thread, a bystander, has rows of system calls alone. It holds a lock while it works, and waits again
after it released the lock. If the launching thread goes on again and again as a wait of the bystander begins,
the bystander held the lock. Both then depended on its work since its own last wait.
"""

from collections.abc import Mapping

import numpy as np
import polars as pl

from wallscope.columns import Flags, as_integers, encode_member, iterate_groups
from wallscope.model.capture import Capture
from wallscope.model.schemas import HostKind
from wallscope.thresholds.steps import (
    FEWEST_LOCKS_COUNT,
    LOCK_RETURN_NS,
    LOCKS_SHARE,
    SHORTEST_HELD_CALL_NS,
)
from wallscope.trace.intervals import Spans, order_spans, union

EXCLUSION_CALL = r"^(__)?(pthread_(mutex|rwlock|spin)_|flockfile)"
"""Waits for what another thread holds. Others, as for a condition, also mean that nothing is to do."""


def mark_exclusions(events: pl.DataFrame, names: pl.DataFrame) -> Flags:
    """Return whether each of `HOST_EVENTS` with their `NAMES` waits for a lock that another thread holds."""
    is_exclusion = names["text"].str.contains(EXCLUSION_CALL).to_numpy()
    found: Flags = as_integers(events["kind"]) == encode_member(HostKind.LOCK)
    found[found] = is_exclusion[events["name"].to_numpy()[found]]
    return found


def find_bystander_holds(capture: Capture) -> Mapping[int, Spans]:
    """Return when each thread depended on the work of one without CUDA calls that held a lock, by thread."""
    if capture.bystander_waits.is_empty():
        return {}
    events = capture.host_events
    start_ns, end_ns = (events[side].to_numpy() for side in ("start_ns", "end_ns"))
    is_wait = mark_exclusions(events, capture.host_names) & (end_ns - start_ns >= SHORTEST_HELD_CALL_NS)
    rows = np.flatnonzero(is_wait)
    thread = events["thread"].to_numpy()[rows].astype(np.int64)
    process = capture.threads["process"].to_numpy()
    bystanders = _list_bystanders(capture.bystander_waits)
    found = {}
    for one, own in iterate_groups(thread):
        asked = Spans(start_ns[rows[own]], end_ns[rows[own]])
        held = [_find_holds(asked, waits) for of, waits in bystanders if of == process[one]]
        if any(spans.start_ns.size for spans in held):
            found[one] = union(*held)
    return found


def _list_bystanders(waits: pl.DataFrame) -> list[tuple[int, Spans]]:
    """Return the process and the waits, united, of each bystander."""
    start_ns, end_ns = waits["start_ns"].to_numpy(), waits["end_ns"].to_numpy()
    process = waits["process"].to_numpy()
    return [
        (int(process[rows[0]]), union(order_spans(start_ns[rows], end_ns[rows])))
        for _, rows in iterate_groups(waits["global_tid"].to_numpy())
    ]


def _find_holds(asked: Spans, waits: Spans) -> Spans:
    """Return when a bystander worked in waits of another one that end as it waits again, to their ends.

    Args:
        asked: the waits of the other thread.
        waits: those of the bystander, disjoint.
    """
    place = np.searchsorted(waits.start_ns, asked.start_ns, side="right")
    nothing = np.iinfo(np.int64).max
    let_go_ns = np.append(waits.start_ns, nothing)[place]
    woke_ns = np.append(nothing, waits.end_ns)[place]  # that of the wait before
    works = (woke_ns <= asked.start_ns) & (let_go_ns <= asked.end_ns + LOCK_RETURN_NS)
    ended = works & (np.abs(asked.end_ns - let_go_ns) <= LOCK_RETURN_NS)
    if ended.sum() < max(FEWEST_LOCKS_COUNT, LOCKS_SHARE * works.sum()):
        ended[:] = False
    return union(order_spans(woke_ns[ended], asked.end_ns[ended]))
