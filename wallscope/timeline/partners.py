"""Communication operations of several ranks in one capture that are one collective.

Nobody gets out of a collective before the last participant is in: its operations overlap, and however far
apart they start, they end close together. Operations that only look alike end as far apart as they start.
Ranks that share one clock are matched by that; nothing is guessed across clocks.
"""

import itertools
from collections.abc import Iterator

import numpy as np
import numpy.typing as npt
import polars as pl

from wallscope.arrays.columns import Rows
from wallscope.arrays.groups import firsts, groups, parts
from wallscope.arrays.lookup import Places
from wallscope.model.frames import PARTNERS
from wallscope.model.kinds import OperationClass
from wallscope.thresholds import (
    FEWEST_MET_COUNT,
    LEAST_MET_SHARE,
    MET_ENDS_APART_NS,
    MET_SPREAD_NS,
    MET_SPREAD_SHARE,
)
from wallscope.timeline.spans import Times

_READ = ("op", "rank_id", "stream", "name", "start_ns", "end_ns")


def partners(operations: pl.DataFrame, collectives: pl.DataFrame) -> pl.DataFrame:
    """Which communication operations (of `CLASSIFIED`, all ranks) are one collective (`PARTNERS`).

    What streams of two ranks run under one name, of one communicator where `collectives` (`COLLECTIVES`) tell
    it, is matched where each is the other's nearest by end; the streams communicate if nine of ten are, and
    overlap, and end together.
    """
    rows = np.flatnonzero((operations["class"] == OperationClass.COMMUNICATION).to_numpy())
    if not rows.size:
        return PARTNERS.to_frame()
    own = operations[*_READ][rows]
    own = own[np.lexsort((own["op"].to_numpy(), own["end_ns"].to_numpy()))]
    name = own["name"].fill_null(-1).to_numpy()
    alike = groups(name, _communicators(own["op"].to_numpy(), collectives))
    found = [pair for _, same in parts(alike) for pair in _pairs(own[same])]
    if not found:
        return PARTNERS.to_frame()
    return _joined(np.concatenate(found), own)


def _communicators(op: Rows, collectives: pl.DataFrame) -> Rows:
    """The communicator of each operation as a number, 0 where nothing tells it."""
    if collectives.is_empty():
        return np.zeros(op.size, np.int64)
    number = collectives["communicator"].rank("dense").fill_null(0).to_numpy()
    return np.append(number, 0)[Places(collectives["op"].to_numpy()).of(op)].astype(np.int64)


def _pairs(same: pl.DataFrame) -> Iterator[Rows]:
    """Pairs of operations of one name that are one collective; two columns of numbers."""
    rank_id = same["rank_id"].to_numpy()
    of_streams = [rows for _, rows in parts(groups(rank_id, same["stream"].to_numpy()))]
    for one, other in itertools.combinations(of_streams, 2):
        if rank_id[one[0]] != rank_id[other[0]]:
            matched = _matched(same[one], same[other])
            if matched is not None:
                yield matched


def _matched(one: pl.DataFrame, other: pl.DataFrame) -> Rows | None:
    """The pairs of two ranks, `None` where they do not communicate with each other."""
    starts, ends, other_starts, other_ends = (
        side[column].to_numpy() for side in (one, other) for column in ("start_ns", "end_ns")
    )
    found = met(starts, ends, other_starts, other_ends)
    if found is None:
        return None
    rows, others = found
    pairs = np.column_stack([one["op"].to_numpy()[rows], other["op"].to_numpy()[others]])
    return pairs.astype(np.int64)


def met(
    starts: Times, ends: Times, other_starts: Times, other_ends: Times, close_ns: float = MET_SPREAD_NS
) -> tuple[Rows, Rows] | None:
    """The places of operations of two ranks with one clock that are one collective; `None` if they never met.

    Both sides are in order of their ends. Where these vary by no more than `close_ns` they end together.
    """
    nearest, nearest_back = _nearest(ends, other_ends), _nearest(other_ends, ends)
    rows = np.flatnonzero(nearest_back[nearest] == np.arange(len(ends)))
    if rows.size < max(FEWEST_MET_COUNT, LEAST_MET_SHARE * min(len(ends), len(other_ends))):
        return None
    others = nearest[rows]
    own, their = starts[rows], other_starts[others]
    ends_apart_ns, starts_apart_ns = other_ends[others] - ends[rows], their - own
    overlap = np.maximum(own, their) < np.minimum(ends[rows], other_ends[others])
    if overlap.mean() < LEAST_MET_SHARE or abs(np.median(ends_apart_ns)) > MET_ENDS_APART_NS:
        return None
    if spread_ns(ends_apart_ns) > max(close_ns, MET_SPREAD_SHARE * spread_ns(starts_apart_ns)):
        return None
    return rows[overlap], others[overlap]


def spread_ns(apart_ns: Times | npt.NDArray[np.float64]) -> float:
    """How far three of four lie from the median, at most."""
    return float(spreads_ns(apart_ns))


def spreads_ns(apart_ns: Times | npt.NDArray[np.float64]) -> npt.NDArray[np.float64]:
    """The same of each row."""
    middle_ns = np.median(apart_ns, axis=-1, keepdims=True)
    return np.asarray(np.percentile(np.abs(apart_ns - middle_ns), 75, axis=-1))


def _nearest(at_ns: Times, among_ns: Times) -> Rows:
    """The place of the nearest moment among others, which are in order."""
    right = np.searchsorted(among_ns, at_ns).clip(0, len(among_ns) - 1)
    left = (right - 1).clip(0)
    is_left = np.abs(at_ns - among_ns[left]) <= np.abs(among_ns[right] - at_ns)
    return np.where(is_left, left, right)


def _joined(pairs: Rows, communication: pl.DataFrame) -> pl.DataFrame:
    """Pairs joined into collectives; a collective has an operation of each rank once, else it is left out."""
    op, place = np.unique(pairs, return_inverse=True)
    one, other = place.reshape(-1, 2).T
    first = np.arange(op.size)
    while (first[one] != first[other]).any():
        earliest = np.minimum(first[one], first[other])
        np.minimum.at(first, one, earliest)
        np.minimum.at(first, other, earliest)
        first = first[first]
    rank_id = communication["rank_id"].to_numpy()[Places(communication["op"].to_numpy()).of(op)]
    count = np.bincount(first, minlength=op.size)
    seen = firsts(groups(first, rank_id))
    is_whole = count == np.bincount(first[seen], minlength=op.size)
    held = np.flatnonzero(is_whole[first])
    held = held[np.lexsort((op[held], first[held]))]
    return pl.DataFrame({"op": op[held], "collective": op[first[held]]}, schema=PARTNERS)
