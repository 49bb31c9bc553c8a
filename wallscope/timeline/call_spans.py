"""What each host thread was in at every moment: calls laid flat, without overlap.

Runtime calls contain driver calls: the outermost call owns its time, but where an allocation or a
synchronisation stands inside another call, that one owns its own.
"""

from dataclasses import dataclass
from itertools import groupby
from operator import itemgetter

import numpy as np
import numpy.typing as npt
import polars as pl

from wallscope.arrays.columns import Flags, Rows
from wallscope.arrays.groups import runs
from wallscope.model.kinds import CallRole
from wallscope.timeline.nesting import parents
from wallscope.timeline.spans import BEFORE_ALL, Numbers, Times, numbers

_WINS_INSIDE = (CallRole.ALLOC, CallRole.SYNC)


@dataclass(frozen=True, slots=True)
class OfCalls:
    """A column of `CALLS` as it is, to be asked by numbers of calls; -1 is no call."""

    told: npt.NDArray[np.integer]
    of_none: int

    def __getitem__(self, call: int | npt.NDArray[np.integer]) -> npt.NDArray[np.int64]:
        """What is told of some calls."""
        if not self.told.size:
            return np.full(np.shape(call), self.of_none, np.int64)
        return np.where(np.less(call, 0), np.int64(self.of_none), self.told[call])


@dataclass(frozen=True, slots=True)
class CallTimes:
    """Start, end and thread of each call; of none: before all, and no thread."""

    start_ns: OfCalls
    end_ns: OfCalls
    thread: OfCalls


def call_times(calls: pl.DataFrame) -> CallTimes:
    """The times and threads of calls (`CALLS`)."""
    return CallTimes(
        OfCalls(calls["start_ns"].to_numpy(), BEFORE_ALL),
        OfCalls(calls["end_ns"].to_numpy(), BEFORE_ALL),
        OfCalls(calls["thread"].to_numpy(), -1),
    )


@dataclass(frozen=True, slots=True)
class CallSpans:
    """Disjoint stretches of one thread inside calls, in order of time; `call` is who owns each."""

    start_ns: Numbers
    end_ns: Numbers
    call: Numbers


def call_spans(calls: pl.DataFrame) -> dict[int, CallSpans]:
    """The stretches of every thread (`CALLS`), by number of the thread."""
    thread = calls["thread"].to_numpy()
    found = {}
    for number, rows in runs(thread):
        own = calls[rows]
        start_ns, end_ns = own["start_ns"].to_numpy(), own["end_ns"].to_numpy()
        is_flat = (end_ns > start_ns).all() and (start_ns[1:] >= end_ns[:-1]).all()
        found[number] = (
            CallSpans(numbers(start_ns), numbers(end_ns), numbers(own["call"].to_numpy()))
            if is_flat
            else _flattened(own)
        )
    return found


def are_outer(end_ns: Times) -> Flags:
    """Whether each call of a thread, by start and the longest first, ends behind all before it.

    >>> are_outer(np.array([9, 4, 12, 12])).tolist()
    [True, False, True, False]
    """
    found = np.ones(end_ns.size, np.bool_)
    found[1:] = end_ns[1:] > np.maximum.accumulate(end_ns)[:-1]
    return found


def _flattened(own: pl.DataFrame) -> CallSpans:
    start_ns, end_ns = own["start_ns"].to_numpy(), own["end_ns"].to_numpy()
    call = own["call"].to_numpy().astype(np.int64)
    order = np.lexsort((np.arange(call.size), -end_ns, start_ns))
    start_ns, end_ns, call = start_ns[order], end_ns[order], call[order]
    wins = own["role"].is_in(_WINS_INSIDE).to_numpy()[order]
    is_outermost = are_outer(end_ns)
    outermost = np.flatnonzero(is_outermost)
    inner = _winning_inside(end_ns, wins, is_outermost)
    if inner.size == 0:
        return _disjoint(start_ns[outermost], end_ns[outermost], call[outermost])
    around = np.searchsorted(outermost, inner, side="right") - 1
    pieces: list[tuple[int, int, int, int]] = []
    for outer, rows in groupby(zip(around.tolist(), inner.tolist(), strict=True), key=itemgetter(0)):
        top = int(outermost[outer])
        at_ns = int(start_ns[top])
        for _, row in rows:
            pieces += [
                (outer, at_ns, int(start_ns[row]), top),
                (outer, int(start_ns[row]), int(end_ns[row]), row),
            ]
            at_ns = max(at_ns, int(end_ns[row]))
        pieces.append((outer, at_ns, int(end_ns[top]), top))
    cut = np.array(pieces, np.int64)
    whole = np.delete(np.arange(outermost.size), np.unique(around))
    order = np.argsort(np.concatenate((whole, cut[:, 0])), kind="stable")
    return _disjoint(
        np.concatenate((start_ns[outermost[whole]], cut[:, 1]))[order],
        np.concatenate((end_ns[outermost[whole]], cut[:, 2]))[order],
        np.concatenate((call[outermost[whole]], call[cut[:, 3]]))[order],
    )


def _winning_inside(end_ns: Times, wins: Flags, is_outermost: Flags) -> Rows:
    """Rows of the inner calls that own their time: none of those around them already does."""
    is_around = is_outermost[:-1] & ~is_outermost[1:]
    rows = np.flatnonzero(np.append(is_around, False) | ~is_outermost)
    parent = parents(end_ns[rows])
    found = []
    taken = np.zeros(rows.size, np.bool_)
    for place in np.flatnonzero(parent >= 0).tolist():
        above = parent[place]
        taken[place] = taken[above] or wins[rows[above]]
        if wins[rows[place]] and not taken[place]:
            found.append(rows[place])
    return np.array(found, np.int64)


def _disjoint(start_ns: Rows, end_ns: Rows, call: Rows) -> CallSpans:
    """The stretches with starts moved behind earlier ends: calls of a thread may overlap by a hair."""
    if start_ns.size:
        reached_ns = np.maximum.accumulate(end_ns)
        start_ns = np.concatenate((start_ns[:1], np.maximum(start_ns[1:], reached_ns[:-1])))
        held = np.flatnonzero(end_ns > start_ns)
        start_ns, end_ns, call = start_ns[held], end_ns[held], call[held]
    return CallSpans(numbers(start_ns), numbers(end_ns), numbers(call))
