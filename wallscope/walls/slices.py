"""Every nanosecond of every step in one slice: who computed, or which link of a chain bound it.

Compute owns the time in which it ran, of concurrent kernels the one that started first; recomputed
forward work owns it where nothing else computes, opaque graphs where no compute ran. The links of the
binding chains tile the rest. Everything else that is said of time is a sum over slices.
"""

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import polars as pl

from wallscope.arrays.columns import Codes, Flags, Rows, filled, place
from wallscope.arrays.groups import spread
from wallscope.arrays.lookup import within
from wallscope.model.kinds import DeviceState, OperationClass
from wallscope.timeline.spans import Spans, Times, distinct, ordered, union
from wallscope.walls.gaps import NO_SLACK, Links


@dataclass(frozen=True, slots=True)
class Told:
    """Slices in order of time, as columns of `SLICES` in arrays.

    `window` is the row of each slice's window; `kind` and `state` are places in their enumerations. Where
    compute ran `kind` is -1, and so are `gap`, `next_op`, `call` and `thread`; `slack_ns` is `NO_SLACK` where
    nothing else could have bound.
    """

    window: Rows
    start_ns: Times
    end_ns: Times
    state: Rows
    kind: Codes
    gap: Codes
    op: Rows
    next_op: Codes
    call: Codes
    thread: Codes
    slack_ns: Times


@dataclass(frozen=True, slots=True)
class _Ran:
    """Operations of a rank in order of start, with their classes as places."""

    op: Rows
    start_ns: Times
    end_ns: Times
    kind: Codes

    def rows(self, held: Rows) -> "_Ran":
        """Some of the operations."""
        return _Ran(self.op[held], self.start_ns[held], self.end_ns[held], self.kind[held])

    def of(self, kind: OperationClass) -> "_Ran":
        """Those of a class."""
        return self.rows(np.flatnonzero(self.kind == place(kind)))

    def covered(self) -> Spans:
        """When any of them ran."""
        return union(ordered(self.start_ns, self.end_ns))


@dataclass(frozen=True, slots=True)
class _Pieces:
    """Disjoint stretches in order of time, each with the row of the link that owns it, or its operation."""

    start_ns: Times
    end_ns: Times
    link: Rows
    op: Rows

    def cut(self, moments: Times) -> "_Pieces":
        """The pieces cut at some moments, in order."""
        return self.cut_in(np.searchsorted(self.start_ns, moments) - 1, moments)

    def cut_in(self, row: Rows, moments: Times) -> "_Pieces":
        """Each of some pieces cut at a moment, in order; where it does not lie inside the piece, none is."""
        held = np.flatnonzero(row >= 0)
        held = held[moments[held] < self.end_ns[row[held]]]
        row, moments = row[held], moments[held]
        return _Pieces(
            np.insert(self.start_ns, row + 1, moments),
            np.insert(self.end_ns, row, moments),
            np.insert(self.link, row, self.link[row]),
            np.insert(self.op, row, self.op[row]),
        )

    def inside(self, disjoint: Spans) -> Flags:
        """Whether spans hold each piece; none is cut by their bounds."""
        return within(self.start_ns, disjoint.start_ns, disjoint.end_ns)

    def rows(self, held: Rows) -> "_Pieces":
        """Some of the pieces."""
        return _Pieces(self.start_ns[held], self.end_ns[held], self.link[held], self.op[held])

    def beside(self, *others: "_Pieces") -> "_Pieces":
        """These and others, in order of time."""
        parts = (self, *others)
        together = _Pieces(
            np.concatenate([part.start_ns for part in parts]),
            np.concatenate([part.end_ns for part in parts]),
            np.concatenate([part.link for part in parts]),
            np.concatenate([part.op for part in parts]),
        )
        return together.rows(np.argsort(together.start_ns, kind="stable"))


def slices(
    operations: pl.DataFrame,
    links: Links,
    windows: pl.DataFrame,
    recomputed: pl.Series,
    on_threads: Mapping[int, Times],
) -> Told:
    """The slices of one rank.

    Args:
        operations: `CLASSIFIED`, those of the rank.
        links: the links of the rank.
        windows: `WINDOWS` of the rank.
        recomputed: numbers of the operations that repeat forward work.
        on_threads: moments at which the time of a thread is cut, in order, by thread.
    """
    ran = _Ran(
        operations["op"].to_numpy().astype(np.int64),
        operations["start_ns"].to_numpy(),
        operations["end_ns"].to_numpy(),
        filled(operations["class"]),
    )
    bound = _Pieces(links.start_ns, links.end_ns, np.arange(links.gap.size), links.op.astype(np.int64))
    pieces = bound.beside(*_owned(ran, recomputed.to_numpy()))
    tiles = (pieces.start_ns[1:] == pieces.end_ns[:-1]).all()
    assert tiles, "the links and the compute of a rank leave time out or count it twice"  # noqa: S101  # the law
    communicating, copying = (
        ran.of(kind).covered() for kind in (OperationClass.COMMUNICATION, OperationClass.COPY)
    )
    bounds = Spans(windows["start_ns"].to_numpy(), windows["end_ns"].to_numpy())
    pieces = pieces.cut(_moments(communicating, copying, bounds))
    pieces = _cut_on_threads(pieces, np.append(links.thread, -1), on_threads)
    window = np.searchsorted(bounds.start_ns, pieces.start_ns, side="right") - 1
    held = np.flatnonzero((window >= 0) & (pieces.start_ns < bounds.end_ns[window]))
    pieces = pieces.rows(held)
    link = pieces.link
    gap, next_op, call, thread = (
        np.append(column, np.int32(-1))[link]
        for column in (links.gap, links.next_op, links.call, links.thread)
    )
    return Told(
        window=window[held],
        start_ns=pieces.start_ns,
        end_ns=pieces.end_ns,
        state=_state(pieces, ran.of(OperationClass.OPAQUE_GRAPH).op, communicating, copying),
        kind=np.append(links.kind, np.int8(-1))[link],
        gap=gap,
        op=pieces.op,
        next_op=next_op,
        call=call,
        thread=thread,
        slack_ns=np.append(links.slack_ns, NO_SLACK)[link],
    )


def _owned(ran: _Ran, recomputed: Rows) -> list[_Pieces]:
    """Who computed, by precedence: kernels, recomputed work beside none, opaque graphs beside neither."""
    computing = ran.of(OperationClass.COMPUTE)
    again = np.isin(computing.op, recomputed)
    tiers = (
        computing.rows(np.flatnonzero(~again)) if again.any() else computing,
        computing.rows(np.flatnonzero(again)),
        ran.of(OperationClass.OPAQUE_GRAPH),
    )
    found: list[_Pieces] = []
    before: list[_Ran] = []
    for tier in tiers:
        if tier.op.size:
            own = _earliest_started(tier)
            found.append(_outside(own, union(*(one.covered() for one in before))) if before else own)
            before.append(tier)
    return found


def _earliest_started(ran: _Ran) -> _Pieces:
    """Each moment's owner: of those that run the one that started first, ties by row."""
    reached_ns = np.maximum.accumulate(ran.end_ns)
    from_ns = np.maximum(ran.start_ns, np.concatenate((ran.start_ns[:1], reached_ns[:-1])))
    held = np.flatnonzero(ran.end_ns > from_ns)
    return _Pieces(from_ns[held], ran.end_ns[held], np.full(held.size, -1), ran.op[held])


def _outside(pieces: _Pieces, taken: Spans) -> _Pieces:
    """The pieces without what disjoint spans cover."""
    if not taken.start_ns.size:
        return pieces
    parts = pieces.cut(_moments(taken))
    row = np.searchsorted(taken.start_ns, parts.start_ns, side="right") - 1
    return parts.rows(np.flatnonzero((row < 0) | (parts.start_ns >= taken.end_ns[row])))


def _moments(*spans: Spans) -> Times:
    bounds = [side for one in spans for side in (one.start_ns, one.end_ns)]
    return distinct(np.concatenate(bounds))


def _cut_on_threads(pieces: _Pieces, thread_of_link: Codes, on_threads: Mapping[int, Times]) -> _Pieces:
    """The pieces that lie on a thread cut where its ranges and waits begin and end."""
    if not on_threads:
        return pieces
    thread = thread_of_link[pieces.link]
    on_thread = np.flatnonzero(thread >= 0)
    rows, cuts = [], []
    for number, moments in on_threads.items():
        own = on_thread[thread[on_thread] == number]
        first = np.searchsorted(moments, pieces.start_ns[own], side="right")
        place, nth = spread((np.searchsorted(moments, pieces.end_ns[own]) - first).clip(0))
        rows.append(own[place])
        cuts.append(moments[first[place] + nth])
    return pieces.cut_in(np.concatenate(rows), np.concatenate(cuts))


def _state(pieces: _Pieces, graphs: Rows, communicating: Spans, copying: Spans) -> Rows:
    """What the device did in each piece, as a place; of links the precedence of the budget decides."""
    gap = np.full(pieces.start_ns.size, place(DeviceState.IDLE))
    gap[pieces.inside(copying)] = place(DeviceState.EXPOSED_COPY)
    gap[pieces.inside(communicating)] = place(DeviceState.EXPOSED_COMMUNICATION)
    is_graph = np.isin(pieces.op, graphs)
    computed = np.where(is_graph, place(DeviceState.OPAQUE_GRAPH), place(DeviceState.COMPUTE))
    return np.where(pieces.link >= 0, gap, computed)
