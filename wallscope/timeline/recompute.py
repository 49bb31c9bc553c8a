"""Forward work that runs again in the backward pass, as activation checkpointing makes it do.

Three kinds of evidence, the stronger first: ranges that say so; a run of kernels in the backward pass
that repeats a run of the forward pass; and, where no range tells the passes apart, forward attention
kernels of which a step has more than backward ones, in an order that only replays have.
"""

from collections.abc import Iterator
from dataclasses import dataclass, fields

import numpy as np
import polars as pl

from wallscope.arrays.columns import Flags, Rows, filled
from wallscope.arrays.groups import ordered_by, runs
from wallscope.arrays.lookup import at_places, flags, places
from wallscope.cores import side_by_side
from wallscope.model.frames import CATEGORY, RECOMPUTE
from wallscope.model.kinds import ComputeCategory, OperationClass, Pass, RecomputeSource
from wallscope.thresholds import (
    MOST_RECOMPUTED_SHARE,
    RECOMPUTED_NAMES_COUNT,
    SHORTEST_FRESH_PREFIX_COUNT,
    SHORTEST_RECOMPUTED_RUN_COUNT,
)
from wallscope.timeline.attention import replayed_attention
from wallscope.timeline.sequences import repeated, turns
from wallscope.timeline.spans import Times

_MULTIPLICATIONS = [
    list(CATEGORY.categories).index(one) for one in (ComputeCategory.GEMM, ComputeCategory.GROUPED_GEMM)
]
_ATTENTION = list(CATEGORY.categories).index(ComputeCategory.ATTENTION)
_COMPUTE = list(OperationClass).index(OperationClass.COMPUTE)
_FORWARD, _BACKWARD = map(list(Pass).index, (Pass.FORWARD, Pass.BACKWARD))
_EXPLICIT, _INFERRED = map(list(RecomputeSource).index, (RecomputeSource.EXPLICIT, RecomputeSource.INFERRED))
_TOLD = ("pass", "replay", "scope")
_NEVER = np.iinfo(np.int64).max


def recompute(
    operations: pl.DataFrame, windows: pl.DataFrame, kernel_names: pl.DataFrame, passes: pl.DataFrame
) -> pl.DataFrame:
    """The compute operations that do forward work again (`CLASSIFIED`, `WINDOWS`, `NAMES`, `PASSES`).

    `explicit`: issued inside a range of a checkpoint's backward or of recomputation. Where such a range
    holds the true backward as well, the replay is what ran before the first range of it; without ranges
    inside, the beginning that repeats kernels of the forward pass.

    `inferred`: issued inside a forward range that stands in a backward range, or eight kernels or more
    of the backward pass, a matrix multiplication and four different names among them, that follow one
    another on their stream as kernels of the forward pass did before.

    `lower-bound`: ranks without any backward range; some of the attention kernels, and none of what
    was recomputed beside them.

    Returns:
        `RECOMPUTE`, sorted by operation; empty where nothing tells.
    """
    kernels = _computing(operations, passes)

    def of_rank(ran: tuple[int, slice]) -> pl.DataFrame:
        rank_id, rows = ran
        own = _Kernels(*(column[rows] for column in kernels.columns()))
        return _of_rank(own, windows.filter(windows["rank_id"] == rank_id), kernel_names)

    found = side_by_side(of_rank, runs(kernels.rank))
    return (pl.concat(found) if found else RECOMPUTE.to_frame()).sort("op")


@dataclass(frozen=True, slots=True)
class _Kernels:
    """Compute operations by rank, stream and start; category, pass and replay as places, -1 for null."""

    op: Rows
    rank: Rows
    stream: Rows
    start_ns: Times
    name: Rows
    category: Rows
    part: Rows
    replay: Rows
    scope: Rows

    def columns(self) -> Iterator[Rows]:
        """The columns in their order."""
        return (getattr(self, field.name) for field in fields(self))


def _computing(operations: pl.DataFrame, passes: pl.DataFrame) -> _Kernels:
    rows = np.flatnonzero(filled(operations["class"]) == _COMPUTE)
    rank, stream = (operations[column].to_numpy()[rows] for column in ("rank_id", "stream"))
    place = places(operations["op"].to_numpy()[rows], passes["op"].to_numpy())
    order = ordered_by(rank, stream)
    rows, place = rows[order], place[order]
    part, replay, scope = (at_places(filled(passes[column]), place, -1) for column in _TOLD)
    return _Kernels(
        op=operations["op"].to_numpy()[rows],
        rank=rank[order],
        stream=stream[order],
        start_ns=operations["start_ns"].to_numpy()[rows],
        name=filled(operations["name"])[rows].astype(np.int64),
        category=filled(operations["category"])[rows],
        part=part,
        replay=replay,
        scope=scope,
    )


def _of_rank(own: _Kernels, windows: pl.DataFrame, kernel_names: pl.DataFrame) -> pl.DataFrame:
    is_backward = own.part == _BACKWARD
    if not is_backward.any():
        return _rows(_replayed_attention(own, windows, kernel_names), RecomputeSource.LOWER_BOUND)
    explicit = _explicit(own)
    is_told = explicit | (own.replay == _INFERRED)
    inferred = _repeated_runs(own, is_backward & ~is_told) | (is_told & ~explicit)
    return pl.concat(
        [
            _rows(own.op[explicit], RecomputeSource.EXPLICIT),
            _rows(own.op[inferred], RecomputeSource.INFERRED),
        ]
    )


def _rows(op: Rows, how: RecomputeSource) -> pl.DataFrame:
    told = pl.repeat(how, op.size, dtype=RECOMPUTE["how"], eager=True)
    return pl.DataFrame({"op": op, "how": told}, schema=RECOMPUTE)


def _replayed_attention(own: _Kernels, windows: pl.DataFrame, kernel_names: pl.DataFrame) -> Rows:
    rows = np.flatnonzero(own.category == _ATTENTION)
    rows = rows[np.lexsort((own.op[rows], own.start_ns[rows]))]
    return own.op[rows[replayed_attention(own.name[rows], own.start_ns[rows], windows, kernel_names)]]


def _explicit(own: _Kernels) -> Flags:
    """The operations that ranges say run again, without the true backward inside the same ranges."""
    is_told: Flags = own.replay == _EXPLICIT
    if not is_told.any():
        return is_told
    has_scope = own.scope >= 0
    is_backward = (own.replay < 0) & (own.part == _BACKWARD) & has_scope
    begun_ns = np.full(int(own.scope.max()) + 2, _NEVER)
    np.minimum.at(begun_ns, own.scope[is_backward], own.start_ns[is_backward])
    is_split = begun_ns[own.scope] < _NEVER
    found: Flags = is_told & (~has_scope | (is_split & (own.start_ns < begun_ns[own.scope])))
    whole = is_told & has_scope & ~is_split
    return found | _prefixes(own, whole) if whole.any() else found


def _prefixes(own: _Kernels, is_asked: Flags) -> Flags:
    """Of ranges that hold replay and backward undivided, the beginning that repeats forward kernels."""
    rows = np.flatnonzero(is_asked)
    rows = rows[ordered_by(own.stream[rows], own.scope[rows])]
    begins = turns(own.stream[rows], own.scope[rows])
    is_fresh = ~_repeats(own, is_asked, SHORTEST_FRESH_PREFIX_COUNT)[rows]
    fresh = np.append(0, np.cumsum(is_fresh))
    fresh_before = fresh[np.flatnonzero(begins)][np.cumsum(begins) - 1]
    return flags(rows[fresh[1:] == fresh_before], own.op.size)


def _repeated_runs(own: _Kernels, backward: Flags) -> Flags:
    """Runs of backward kernels that repeat forward ones, with a multiplication and several names."""
    repeats = _repeats(own, backward, SHORTEST_RECOMPUTED_RUN_COUNT)
    rows = np.flatnonzero(repeats)
    run = np.cumsum(turns(own.stream, repeats))[rows]
    kinds = np.unique(run * (int(own.name.max()) + 1) + own.name[rows]) // (int(own.name.max()) + 1)
    names, multiplications = (
        np.bincount(each, minlength=own.op.size + 1)
        for each in (kinds, run[np.isin(own.category[rows], _MULTIPLICATIONS)])
    )
    found = flags(rows[(names[run] >= RECOMPUTED_NAMES_COUNT) & (multiplications[run] > 0)], own.op.size)
    return found if found.sum() <= MOST_RECOMPUTED_SHARE * backward.sum() else np.zeros_like(found)


def _repeats(own: _Kernels, is_asked: Flags, at_least: int) -> Flags:
    """Which asked kernels lie in a run that repeats one of the forward pass on their stream.

    Where no range names the forward pass, all is of it that no other part claims.
    """
    forward = own.part == _FORWARD
    forward = forward if forward.any() else own.part < 0
    repeats = np.zeros(own.op.size, np.bool_)
    for _, rows in runs(own.stream):
        repeats[rows] = repeated(own.name[rows], forward[rows], is_asked[rows], at_least)
    return repeats
