"""Every nanosecond of every step in one slice: who computed, or which link of a chain bound it.

Compute owns the time in which it ran, of concurrent kernels the one that started first; recomputed
forward work owns it where nothing else computes, opaque graphs where no compute ran. The links of the
binding chains tile the rest. Everything else that is said of time is a sum over slices.
"""

from dataclasses import dataclass

import numpy as np
import polars as pl

from wallscope.model.kinds import Absent, DeviceState, LinkKind, OperationClass
from wallscope.timeline.nesting import Rows
from wallscope.timeline.spans import Spans, Times, distinct, inside, union
from wallscope.walls.budget import spans_of

_ABSENT = {LinkKind.OPERATION: Absent.BLOCKING} | dict.fromkeys(
    (LinkKind.HAND_OVER, LinkKind.UNRESOLVED), Absent.DEPENDENCY_STALLED
)
_ABSENT_OF_KIND = pl.Series(
    [_ABSENT.get(kind, Absent.LAUNCH_STARVED) for kind in LinkKind], dtype=pl.Enum(Absent)
)
_IDENTITIES = ["gap", "next_op", "call", "thread"]


@dataclass(frozen=True, slots=True)
class _Pieces:
    """Disjoint stretches in order of time, each with the row of the link that owns it, or its operation."""

    start_ns: Times
    end_ns: Times
    link: Rows
    op: Rows

    def cut(self, moments: Times) -> "_Pieces":
        """The pieces cut at some moments, in order."""
        first = np.searchsorted(moments, self.start_ns, side="right")
        behind = np.searchsorted(moments, self.end_ns, side="left")
        parts = np.maximum(behind - first, 0) + 1
        row = np.repeat(np.arange(self.start_ns.size), parts)
        number = np.arange(row.size) - np.repeat(np.cumsum(parts) - parts, parts)
        inner = np.append(moments, 0)[np.minimum(first[row] + number - 1, moments.size)]
        start_ns = np.where(number == 0, self.start_ns[row], inner)
        is_last = number == parts[row] - 1
        following = np.append(start_ns[1:], 0)
        return _Pieces(start_ns, np.where(is_last, self.end_ns[row], following), self.link[row], self.op[row])

    def rows(self, held: Rows) -> "_Pieces":
        """Some of the pieces."""
        return _Pieces(self.start_ns[held], self.end_ns[held], self.link[held], self.op[held])


def slices(
    operations: pl.DataFrame,
    links: pl.DataFrame,
    windows: pl.DataFrame,
    recomputed: pl.Series,
    on_threads: dict[int, Times],
) -> pl.DataFrame:
    """The slices of one rank: `SLICES` without `range`, `wall` and `cause`, and with a row number `link`.

    Args:
        operations: `CLASSIFIED`, those of the rank.
        links: `LINKS` of the rank.
        windows: `WINDOWS` of the rank.
        recomputed: numbers of the operations that repeat forward work.
        on_threads: moments at which the time of a thread is cut, in order, by thread.
    """
    owned = _owned(operations, recomputed)
    bound = _Pieces(
        links["start_ns"].to_numpy(),
        links["end_ns"].to_numpy(),
        np.arange(len(links)),
        links["op"].to_numpy().astype(np.int64),
    )
    order = np.argsort(np.concatenate((owned.start_ns, bound.start_ns)), kind="stable")
    pieces = _Pieces(
        np.concatenate((owned.start_ns, bound.start_ns)),
        np.concatenate((owned.end_ns, bound.end_ns)),
        np.concatenate((owned.link, bound.link)),
        np.concatenate((owned.op, bound.op)),
    ).rows(order)
    tiles = (pieces.start_ns[1:] == pieces.end_ns[:-1]).all()
    assert tiles, "the links and the compute of a rank leave time out or count it twice"  # noqa: S101  # the law
    communicating, copying = (
        union(spans_of(operations.filter(pl.col("class") == kind)))
        for kind in (OperationClass.COMMUNICATION, OperationClass.COPY)
    )
    bounds = Spans(windows["start_ns"].to_numpy(), windows["end_ns"].to_numpy())
    pieces = pieces.cut(_moments(communicating, copying, bounds))
    step = np.searchsorted(bounds.start_ns, pieces.start_ns, side="right") - 1
    held = np.flatnonzero((step >= 0) & (pieces.start_ns < bounds.end_ns[step]))
    pieces = _cut_on_threads(pieces.rows(held), links, on_threads)
    step = np.searchsorted(bounds.start_ns, pieces.start_ns, side="right") - 1
    return _framed(pieces, links).with_columns(
        windows["rank_id"].gather(pl.Series(step)),
        windows["step"].gather(pl.Series(step)),
        state=_state(pieces, operations, communicating, copying),
    )


def _framed(pieces: _Pieces, links: pl.DataFrame) -> pl.DataFrame:
    """The pieces with the columns of their links; where compute ran, these are -1 or null."""
    link = pl.Series(pieces.link, dtype=pl.Int64)
    row = link.set(link < 0, None)
    told = links.select(pl.col(*_IDENTITIES, "kind", "slack_ns").gather(row))
    return told.with_columns(
        pl.col(_IDENTITIES).fill_null(-1),
        start_ns=pieces.start_ns,
        end_ns=pieces.end_ns,
        op=pieces.op.astype(np.int32),
        link=link,
        absent=_ABSENT_OF_KIND.gather(told["kind"].to_physical()),
    )


def _owned(operations: pl.DataFrame, recomputed: pl.Series) -> _Pieces:
    """Who computed, by precedence: kernels, recomputed work beside none, opaque graphs beside neither."""
    computing = operations.filter(pl.col("class") == OperationClass.COMPUTE)
    again = pl.col("op").is_in(recomputed.implode())
    tiers = (
        computing.filter(~again),
        computing.filter(again),
        operations.filter(pl.col("class") == OperationClass.OPAQUE_GRAPH),
    )
    taken = Spans(np.empty(0, np.int64), np.empty(0, np.int64))
    found: list[_Pieces] = []
    for tier in tiers:
        if tier.is_empty():
            continue
        own = _earliest_started(tier)
        found.append(own if taken.start_ns.size == 0 else _outside(own, taken))
        taken = union(taken, spans_of(tier))
    if not found:
        nothing = np.empty(0, np.int64)
        return _Pieces(nothing, nothing, nothing, nothing)
    return _Pieces(
        *(
            np.concatenate([getattr(part, name) for part in found])
            for name in ("start_ns", "end_ns", "link", "op")
        )
    )


def _earliest_started(operations: pl.DataFrame) -> _Pieces:
    """Each moment's owner: of those that run the one that started first, ties by row."""
    start_ns, end_ns = operations["start_ns"].to_numpy(), operations["end_ns"].to_numpy()
    reached_ns = np.maximum.accumulate(end_ns)
    from_ns = np.maximum(start_ns, np.concatenate((start_ns[:1], reached_ns[:-1])))
    held = np.flatnonzero(end_ns > from_ns)
    op = operations["op"].to_numpy().astype(np.int64)[held]
    return _Pieces(from_ns[held], end_ns[held], np.full(held.size, -1), op)


def _outside(pieces: _Pieces, taken: Spans) -> _Pieces:
    """The pieces without what disjoint spans cover."""
    parts = pieces.cut(_moments(taken))
    row = np.searchsorted(taken.start_ns, parts.start_ns, side="right") - 1
    return parts.rows(np.flatnonzero((row < 0) | (parts.start_ns >= taken.end_ns[row])))


def _moments(*spans: Spans) -> Times:
    bounds = [side for one in spans for side in (one.start_ns, one.end_ns)]
    return distinct(np.concatenate(bounds))


def _cut_on_threads(pieces: _Pieces, links: pl.DataFrame, on_threads: dict[int, Times]) -> _Pieces:
    """The pieces that lie on a thread cut where its ranges and waits begin and end."""
    if not len(links):
        return pieces
    thread = np.where(pieces.link >= 0, links["thread"].to_numpy()[np.maximum(pieces.link, 0)], -1)
    parts = [pieces.rows(np.flatnonzero(~np.isin(thread, list(on_threads))))]
    for number, moments in on_threads.items():
        own = np.flatnonzero(thread == number)
        if own.size:
            parts.append(pieces.rows(own).cut(moments))
    together = _Pieces(
        *(
            np.concatenate([getattr(part, name) for part in parts])
            for name in ("start_ns", "end_ns", "link", "op")
        )
    )
    return together.rows(np.argsort(together.start_ns, kind="stable"))


def _state(pieces: _Pieces, operations: pl.DataFrame, communicating: Spans, copying: Spans) -> pl.Series:
    """What the device did in each piece; of links the precedence of the budget decides."""
    graphs = operations.filter(pl.col("class") == OperationClass.OPAQUE_GRAPH)["op"].to_numpy()
    states = pl.Series("state", list(DeviceState), dtype=pl.Enum(DeviceState))
    place = {state: number for number, state in enumerate(DeviceState)}
    gap = np.full(pieces.start_ns.size, place[DeviceState.IDLE])
    gap[inside(copying, pieces.start_ns)] = place[DeviceState.EXPOSED_COPY]
    gap[inside(communicating, pieces.start_ns)] = place[DeviceState.EXPOSED_COMMUNICATION]
    computed = np.where(
        np.isin(pieces.op, graphs), place[DeviceState.OPAQUE_GRAPH], place[DeviceState.COMPUTE]
    )
    return states.gather(pl.Series(np.where(pieces.link >= 0, gap, computed), dtype=pl.UInt32))
