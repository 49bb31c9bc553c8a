"""Name the time in which a CUDA call waits while another thread holds the driver.

A copy or synchronization that blocks its caller may keep the lock of the CUDA context meanwhile. Launches of
other threads then wait, although nothing on the device delays them. The walk explains this time by what the
holder waits for. Without the lock, the launch would not have waited for that.
"""

from dataclasses import replace

import numpy as np
import polars as pl

from wallscope.attribution.slices import ChainLinks
from wallscope.columns import Rows, as_integers, encode_member
from wallscope.model.enums import LINK_KINDS, CallRole, LinkKind
from wallscope.trace.dependencies import Dependencies

DRIVER_LOCK = "memory/driver-lock"
_HOLDING = (CallRole.COPY, CallRole.SYNC)
_KIND = LINK_KINDS.index(LinkKind.DRIVER_LOCK)


def list_locked_calls(waits: Dependencies, roles: pl.Series) -> Rows:
    """Return the calls that waited for the lock of a copy or synchronization of another thread, by number.

    Allocation and release wait for the device by themselves, and time behind them is that of the allocator.

    Args:
        waits: the dependencies.
        roles: the `CallRole` of each call.
    """
    role = as_integers(roles)
    asked = np.flatnonzero(waits.holder >= 0)
    is_holding = np.isin(role[waits.holder[asked]], [encode_member(one) for one in _HOLDING])
    found: Rows = asked[is_holding & (role[asked] != encode_member(CallRole.ALLOC))]
    return found


def mark_lock_waits(links: ChainLinks, waits: Dependencies, locked: Rows) -> ChainLinks:
    """Return the links with one of kind `DRIVER_LOCK` for each wait of a locked call on a blame chain.

    Args:
        links: of one rank.
        waits: the dependencies.
        locked: int64[n], calls that waited for a lock.
    """
    calls, spans = waits.calls, list[tuple[int, int, int, Rows]]()
    for call in locked.tolist():
        begun_ns, left_ns = int(calls.start_ns[call]), int(calls.end_ns[call])
        first = int(np.searchsorted(links.end_ns, begun_ns, side="right"))
        last = int(np.searchsorted(links.start_ns, left_ns, side="right"))
        near = slice(first, last)
        # the walk enters the call from its end, or from an operation that starts before it returns
        is_entered = (links.thread[near] == calls.thread[call]) & (links.start_ns[near] == left_ns)
        gaps = np.unique(links.gap[near][is_entered | (links.call[near] == call)])
        if gaps.size:
            until_ns = min(left_ns, int(calls.end_ns[waits.holder[call]]))
            spans.append((begun_ns, until_ns, call, gaps))
    if not spans:
        return links
    cuts = np.unique([side for begun_ns, until_ns, *_ in spans for side in (begun_ns, until_ns)])
    links = _cut_links(links, cuts)
    kind, op, next_op = links.kind.copy(), links.op.copy(), links.next_op.copy()
    of_call, thread, inferred = links.call.copy(), links.thread.copy(), links.inferred.copy()
    for begun_ns, until_ns, call, gaps in spans:
        inside = np.arange(*np.searchsorted(links.start_ns, (begun_ns, until_ns)))
        inside = inside[np.isin(links.gap[inside], gaps)]
        kind[inside], op[inside], next_op[inside] = _KIND, -1, -1
        of_call[inside], thread[inside], inferred[inside] = call, calls.thread[call], 1
    return replace(links, kind=kind, op=op, next_op=next_op, call=of_call, thread=thread, inferred=inferred)


def _cut_links(links: ChainLinks, cuts: Rows) -> ChainLinks:
    """Return the links, each cut at the moments that lie inside it."""
    first = np.searchsorted(cuts, links.start_ns, side="right")
    count = np.maximum(np.searchsorted(cuts, links.end_ns, side="left") - first, 0)
    row = np.arange(count.size).repeat(count + 1)
    nth = np.arange(row.size) - np.cumsum(count + 1).repeat(count + 1) + (count + 1).repeat(count + 1)
    place = first[row] + nth
    start_ns = np.where(nth > 0, np.append(cuts, 0)[place - 1], links.start_ns[row])
    end_ns = np.where(nth < count[row], np.append(cuts, 0)[np.minimum(place, cuts.size)], links.end_ns[row])
    columns = {name: getattr(links, name)[row] for name in ("gap", "kind", "op", "next_op", "call", "thread")}
    return ChainLinks(
        **columns,
        start_ns=start_ns,
        end_ns=end_ns,
        slack_ns=links.slack_ns[row],
        inferred=links.inferred[row],
    )
