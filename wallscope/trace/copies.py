"""Why copies and fills run: offload, input, readback, or too small to be worth one.

Copies between devices are communication and not covered here.
"""

import numpy as np
import polars as pl

from wallscope.columns import (
    Flags,
    Rows,
    are_among,
    as_integers,
    find_places,
    iterate_groups,
    number_groups,
    take_or,
)
from wallscope.model.enums import CopyCause, CopyDirection, Pass
from wallscope.model.schemas import COPY_CAUSES
from wallscope.records import dataclass
from wallscope.thresholds.causes import BULK_COPY_BYTES, MOST_FRESH_OFFLOAD_SHARE
from wallscope.trace.intervals import Spans, Times, order_spans, union
from wallscope.trace.names import mark_changes

_CAUSE_OF_DIRECTION = {
    CopyDirection.HOST_TO_DEVICE: CopyCause.STAGING,
    CopyDirection.HOST_TO_HOST: CopyCause.STAGING,
    CopyDirection.DEVICE_TO_HOST: CopyCause.READBACK,
    CopyDirection.DEVICE_TO_DEVICE: CopyCause.DEVICE_COPY,
    CopyDirection.MIGRATION_TO_DEVICE: CopyCause.MIGRATION,
    CopyDirection.MIGRATION_TO_HOST: CopyCause.MIGRATION,
    CopyDirection.MIGRATION_BETWEEN_DEVICES: CopyCause.MIGRATION,
    CopyDirection.FILL: CopyCause.FILL,
}

_DIRECTIONS = tuple(CopyDirection)
_TO_DEVICE, _TO_HOST = map(_DIRECTIONS.index, (CopyDirection.HOST_TO_DEVICE, CopyDirection.DEVICE_TO_HOST))
_OPTIMIZER = list(Pass).index(Pass.OPTIMIZER)
_PLACES = {cause: place for place, cause in enumerate(CopyCause)}
_CAUSES = np.array(
    [_PLACES[cause] if (cause := _CAUSE_OF_DIRECTION.get(way)) else -1 for way in CopyDirection]
)
_EACH_CAUSE = pl.Series([*CopyCause, None], dtype=COPY_CAUSES["cause"])
_UNKNOWN = np.iinfo(np.int64).min


def classify_copies(operations: pl.DataFrame, copies: pl.DataFrame, passes: pl.DataFrame) -> pl.DataFrame:
    """The cause of each copy and fill (`OPERATIONS`, `COPIES`, `PASSES` to `COPY_CAUSES`).

    Bulk copies from the device to the host are offload if a later copy of the same size goes back to the same
    device of the same process. The later copy is offload too. Each copy is matched once, the earliest first.
    Bulk copies inside an optimizer range with both directions are also offload. A copy of unknown size is
    neither small nor offload. Copies between devices have no row.
    """
    moved = _select_copies(operations, copies, passes)
    is_between = np.isin(moved.direction, (_TO_DEVICE, _TO_HOST))
    bulk = np.flatnonzero(is_between & (moved.bytes >= BULK_COPY_BYTES))
    cause = np.append(_CAUSES, -1)[moved.direction]
    cause[bulk[_round_trips_or_optimizer(moved, bulk)]] = _PLACES[CopyCause.OFFLOAD]
    is_small = is_between & (moved.bytes < BULK_COPY_BYTES) & (moved.bytes != _UNKNOWN)
    cause[is_small] = _PLACES[CopyCause.SMALL_COPY]
    names = _EACH_CAUSE[np.where(cause < 0, len(_PLACES), cause)]
    return pl.DataFrame({"op": moved.op, "cause": names}, schema=COPY_CAUSES)


@dataclass(frozen=True, slots=True)
class _Moved:
    """Copies and fills by number; direction and pass as places, `scope` a range; -1 for null."""

    op: Rows
    rank: Rows
    direction: Rows
    start_ns: Times
    end_ns: Times
    bytes: Rows
    part: Rows
    scope: Rows


def _select_copies(operations: pl.DataFrame, copies: pl.DataFrame, passes: pl.DataFrame) -> _Moved:
    direction = as_integers(copies["direction"])
    rows = np.flatnonzero(direction != _DIRECTIONS.index(CopyDirection.PEER))
    rows = rows[np.argsort(copies["op"].to_numpy()[rows], kind="stable")]
    op = copies["op"].to_numpy()[rows]
    row, pass_row = (find_places(op, frame["op"].to_numpy()) for frame in (operations, passes))
    rank, start_ns, end_ns = (operations[name].to_numpy()[row] for name in ("rank_id", "start_ns", "end_ns"))
    part, scope = (take_or(as_integers(passes[column]), pass_row, -1) for column in ("pass", "scope"))
    return _Moved(
        op=op,
        rank=rank.astype(np.int64),
        direction=direction[rows],
        start_ns=start_ns,
        end_ns=end_ns,
        bytes=as_integers(operations["bytes"][row], _UNKNOWN),
        part=part,
        scope=scope,
    )


def _round_trips_or_optimizer(moved: _Moved, bulk: Rows) -> Rows:
    """Which of the bulk copies are matched, or around the optimizer's work on the host."""
    rank, leaves = moved.rank[bulk], moved.direction[bulk] == _TO_HOST
    sizes, start_ns, end_ns = (values[bulk] for values in (moved.bytes, moved.start_ns, moved.end_ns))
    trips = find_round_trips(rank, sizes, leaves, start_ns, end_ns)
    rest = np.setdiff1d(np.arange(bulk.size), trips)
    cast = _find_cast_trips(rank[rest], sizes[rest], leaves[rest], start_ns[rest], end_ns[rest])
    trips = np.concatenate([trips, rest[cast]])
    inside = np.flatnonzero((moved.part[bulk] == _OPTIMIZER) & (moved.scope[bulk] >= 0))
    both = set[tuple[int, int]]()
    seen: dict[tuple[int, int], bool] = {}
    around = list(zip(rank[inside].tolist(), moved.scope[bulk[inside]].tolist(), strict=True))
    for where, is_leaving in zip(around, leaves[inside].tolist(), strict=True):
        if seen.setdefault(where, is_leaving) != is_leaving:
            both.add(where)
    of_optimizer = inside[[where in both for where in around]] if around else inside
    return np.concatenate([trips, of_optimizer])


def find_round_trips(rank: Rows, size: Rows, leaves: Flags, start_ns: Times, end_ns: Times) -> Rows:
    """Of copies between host and device those that go to the host and come back, or come back from there.

    A copy comes back if it starts no earlier than the end of a copy of the same size from the same rank to
    the host. That copy must not have come back already; the earliest comes back first. If over a quarter of
    the later copies of a size to the device bring nothing back, the sizes are equal by chance. Then none of
    that size is a return.

    Args:
        rank: of each copy, in order of their numbers.
        size: of each, in bytes.
        leaves: whether each goes to the host.
        start_ns: when each starts.
        end_ns: when each ends.

    Returns:
        The places of the copies that are matched, in some order.
    """
    if not leaves.any() or leaves.all():
        return np.empty(0, np.int64)
    order = np.lexsort((~leaves, np.where(leaves, end_ns, start_ns), size, rank))
    leaves = leaves[order]
    begins = mark_changes(rank[order], size[order])
    group = np.cumsum(begins) - 1
    first = np.flatnonzero(begins)

    def so_far(values: Rows) -> Rows:
        """Sums from the first of a group to each."""
        total: Rows = np.cumsum(values)
        within: Rows = total - (total - values)[first][group]
        return within

    balance = so_far(np.where(leaves, 1, -1))
    apart = 2 * leaves.size * group  # so that the least of a group lies below all of those before
    least = np.minimum(np.minimum.accumulate(balance - apart) + apart, 0)
    before = np.where(begins, 0, np.append(0, least[:-1]))
    returns = ~leaves & (least == before)  # else nothing was away
    nth = so_far(leaves.astype(np.int64))
    matched, later = (
        np.bincount(group[which], minlength=first.size)[group] for which in (returns, ~leaves & (nth > 0))
    )
    is_matched = (returns | (leaves & (nth <= matched))) & (matched >= (1 - MOST_FRESH_OFFLOAD_SHARE) * later)
    found: Rows = order[is_matched]
    return found


def _find_cast_trips(rank: Rows, size: Rows, leaves: Flags, start_ns: Times, end_ns: Times) -> Rows:
    """Return the copies that go to the host and come back in half or twice the bytes: the host casts them.

    An optimizer on the host takes gradients in FP32 and returns parameters in BF16. Several of its buckets
    are away at a time, unlike the result and the next input of a program that answers requests.

    Args:
        rank: of each copy, in order of their numbers.
        size: of each, in bytes.
        leaves: whether each goes to the host.
        start_ns: when each starts.
        end_ns: when each ends.
    """
    taken = size.copy()
    for sizes in (size // 2, 2 * size):  # the latter counts where both left
        pair = number_groups(np.concatenate((rank, rank)), np.concatenate((size, sizes)))
        has_left = are_among(pair[size.size :], np.unique(pair[: size.size][leaves]))
        taken[~leaves & has_left] = sizes[~leaves & has_left]
    found = find_round_trips(rank, taken, leaves, start_ns, end_ns)
    kept = [np.empty(0, np.int64)]
    for _, own in iterate_groups(number_groups(rank[found], taken[found])):
        rows = found[own]
        order = np.argsort(np.where(leaves[rows], end_ns[rows], start_ns[rows]), kind="stable")
        if np.cumsum(np.where(leaves[rows][order], 1, -1)).max() > 1:
            kept.append(rows)
    return np.concatenate(kept)


def find_offloaded_spans(operations: pl.DataFrame, copies: pl.DataFrame, causes: pl.DataFrame) -> Spans:
    """When offloaded bytes of a rank were on the host alone (`OPERATIONS`, `COPIES`, `COPY_CAUSES`).

    From the end of an offload to the host to the start of the next copy, where that brings bytes back.
    """
    offloaded = causes["op"].to_numpy()[as_integers(causes["cause"]) == _PLACES[CopyCause.OFFLOAD]]
    row = find_places(offloaded, operations["op"].to_numpy())
    rows = np.sort(row[row >= 0])
    start_ns, end_ns = (operations[side].to_numpy()[rows] for side in ("start_ns", "end_ns"))
    order = np.argsort(start_ns, kind="stable")
    place = find_places(operations["op"].to_numpy()[rows[order]], copies["op"].to_numpy())
    direction = as_integers(copies["direction"])[place]
    turn = np.flatnonzero((direction[:-1] == _TO_HOST) & (direction[1:] == _TO_DEVICE))
    return union(order_spans(end_ns[order][turn], start_ns[order][turn + 1]))
