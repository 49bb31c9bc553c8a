"""What each host thread was in at every moment: calls laid flat, without overlap.

Runtime calls contain driver calls: the outermost call owns its time, but where an allocation or a
synchronisation stands inside another call, that one owns its own.
"""

from dataclasses import dataclass

import numpy as np
import polars as pl

from wallscope.model.kinds import CallRole
from wallscope.timeline.nesting import Rows, parents
from wallscope.timeline.spans import Times

_WINS_INSIDE = (CallRole.ALLOC, CallRole.SYNC)


@dataclass(frozen=True, slots=True)
class CallTimes:
    """Start, end and thread of each call as arrays; the last entry is for call -1."""

    start_ns: Times
    end_ns: Times
    thread: Rows


@dataclass(frozen=True, slots=True)
class CallSpans:
    """Disjoint stretches of one thread inside calls, in order of time; `call` is who owns each."""

    start_ns: list[int]
    end_ns: list[int]
    call: list[int]


def call_spans(calls: pl.DataFrame) -> dict[int, CallSpans]:
    """The stretches of every thread (`CALLS`), by number of the thread."""
    return {int(own["thread"][0]): _flattened(own) for own in calls.partition_by("thread")}


def _flattened(own: pl.DataFrame) -> CallSpans:
    start_ns, end_ns = own["start_ns"].to_numpy(), own["end_ns"].to_numpy()
    call = own["call"].to_numpy().astype(np.int64)
    order = np.lexsort((np.arange(call.size), -end_ns, start_ns))
    start_ns, end_ns, call = start_ns[order], end_ns[order], call[order]
    wins = own["role"].is_in(_WINS_INSIDE).to_numpy()[order]
    parent = parents(end_ns)
    outermost = np.flatnonzero(parent < 0)
    inner = _winning_inside(parent, wins)
    if inner.size == 0:
        return _disjoint(start_ns[outermost], end_ns[outermost], call[outermost])
    around = np.searchsorted(outermost, inner, side="right") - 1
    starts: list[int] = []
    ends: list[int] = []
    owners: list[int] = []
    inside: dict[int, list[int]] = {}
    for row, outer in zip(inner.tolist(), around.tolist(), strict=True):
        inside.setdefault(outer, []).append(row)
    for number, outer in enumerate(outermost.tolist()):
        at_ns = int(start_ns[outer])
        for row in inside.get(number, ()):
            pieces = ((at_ns, int(start_ns[row]), outer), (int(start_ns[row]), int(end_ns[row]), row))
            for begin, end, owner in pieces:
                if end > begin:
                    starts.append(begin)
                    ends.append(end)
                    owners.append(int(call[owner]))
            at_ns = max(at_ns, int(end_ns[row]))
        if end_ns[outer] > at_ns or at_ns == start_ns[outer]:
            starts.append(at_ns)
            ends.append(int(end_ns[outer]))
            owners.append(int(call[outer]))
    return _disjoint(np.array(starts, np.int64), np.array(ends, np.int64), np.array(owners, np.int64))


def _winning_inside(parent: Rows, wins: np.ndarray[tuple[int], np.dtype[np.bool_]]) -> Rows:
    """Rows of the inner calls that own their time: none of those around them already does."""
    found = []
    taken = np.zeros(parent.size, np.bool_)
    for row in np.flatnonzero(parent >= 0).tolist():
        above = parent[row]
        taken[row] = taken[above] or wins[above]
        if wins[row] and not taken[row]:
            found.append(row)
    return np.array(found, np.int64)


def _disjoint(start_ns: Rows, end_ns: Rows, call: Rows) -> CallSpans:
    """The stretches with starts moved behind earlier ends: calls of a thread may overlap by a hair."""
    if start_ns.size:
        reached_ns = np.maximum.accumulate(end_ns)
        start_ns = np.concatenate((start_ns[:1], np.maximum(start_ns[1:], reached_ns[:-1])))
        held = np.flatnonzero(end_ns > start_ns)
        start_ns, end_ns, call = start_ns[held], end_ns[held], call[held]
    return CallSpans(start_ns.tolist(), end_ns.tolist(), call.tolist())
