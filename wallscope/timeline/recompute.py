"""Forward work that runs again in the backward pass, as activation checkpointing makes it do.

Three kinds of evidence, the stronger first: ranges that say so; a run of kernels in the backward pass
that repeats a run of the forward pass; and, where no range tells the passes apart, forward attention
kernels of which a step has more than backward ones, in an order that only replays have.
"""

import numpy as np
import polars as pl

from wallscope.model.frames import RECOMPUTE
from wallscope.model.kinds import ComputeCategory, OperationClass, Pass, RecomputeSource
from wallscope.timeline.attention import replayed_attention
from wallscope.timeline.nesting import Rows
from wallscope.timeline.sequences import Flags, repeated

_SHORTEST_RUN = 8
_SHORTEST_PREFIX = 4
_FEWEST_KERNELS = 4
"""Different kernels of a run: layers of one kernel name repeat themselves in both passes."""
_MOST_REPEATED = 0.6
"""Of the backward pass; where more of it looks like the forward pass, the ranges miss some backward work."""
_MULTIPLICATIONS = [str(category) for category in (ComputeCategory.GEMM, ComputeCategory.GROUPED_GEMM)]


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
    computing = (
        operations.filter(pl.col("class") == OperationClass.COMPUTE)
        .select("op", "rank_id", "stream", "start_ns", "name", "category")
        .join(passes, on="op", how="left", maintain_order="left")
        .sort("rank_id", "stream", "start_ns", "op")
    )
    found = [
        _of_rank(own, windows.filter(pl.col("rank_id") == own["rank_id"][0]), kernel_names)
        for own in computing.partition_by("rank_id")
    ]
    return (pl.concat(found) if found else RECOMPUTE.to_frame()).sort("op")


def _of_rank(own: pl.DataFrame, windows: pl.DataFrame, kernel_names: pl.DataFrame) -> pl.DataFrame:
    if not (own["pass"] == Pass.BACKWARD).any():
        replays = replayed_attention(own.sort("start_ns", "op"), windows, kernel_names)
        return _rows(replays, RecomputeSource.LOWER_BOUND)
    explicit = _explicit(own)
    is_told = explicit | (own["replay"] == RecomputeSource.INFERRED).fill_null(value=False).to_numpy()
    inferred = _repeated_runs(own, ~explicit & ~is_told, _SHORTEST_RUN)
    inferred |= is_told & ~explicit
    return pl.concat(
        [
            _rows(own.filter(pl.Series(explicit))["op"], RecomputeSource.EXPLICIT),
            _rows(own.filter(pl.Series(inferred))["op"], RecomputeSource.INFERRED),
        ]
    )


def _rows(op: pl.Series, how: RecomputeSource) -> pl.DataFrame:
    return pl.DataFrame({"op": op}).with_columns(how=pl.lit(how, RECOMPUTE["how"])).cast(RECOMPUTE)


def _explicit(own: pl.DataFrame) -> Flags:
    """The operations that ranges say run again, without the true backward inside the same ranges."""
    is_told = pl.col("replay") == RecomputeSource.EXPLICIT
    is_backward = pl.col("replay").is_null() & (pl.col("pass") == Pass.BACKWARD) & (pl.col("scope") >= 0)
    begun_ns = pl.col("start_ns").filter(is_backward).min().over("scope")
    told = own.select(
        plain=is_told & (pl.col("scope") < 0),
        split=is_told & (pl.col("start_ns") < begun_ns),
        whole=is_told & (pl.col("scope") >= 0) & begun_ns.is_null(),
    ).fill_null(value=False)
    found: Flags = (told["plain"] | told["split"]).to_numpy()
    whole: Flags = told["whole"].to_numpy()
    return found | _prefixes(own, whole) if whole.any() else found


def _prefixes(own: pl.DataFrame, is_asked: Flags) -> Flags:
    """Of ranges that hold replay and backward undivided, the beginning that repeats forward kernels."""
    forward = _forward(own)
    repeats = np.zeros(len(own), np.bool_)
    for rows in _streams(own):
        repeats[rows] = repeated(
            own["name"].to_numpy().astype(np.int64)[rows], forward[rows], is_asked[rows], _SHORTEST_PREFIX
        )
    asked = own.with_columns(pl.Series("repeats", repeats)).filter(pl.Series(is_asked))
    prefix = asked.filter(pl.col("repeats").cast(pl.Int8).cum_min().over("scope", "stream") > 0)["op"]
    found: Flags = own["op"].is_in(prefix.implode()).to_numpy()
    return found


def _repeated_runs(own: pl.DataFrame, is_open: Flags, at_least: int) -> Flags:
    """Runs of backward kernels that repeat forward ones, with a multiplication and several names."""
    backward = (own["pass"] == Pass.BACKWARD).fill_null(value=False).to_numpy() & is_open
    forward = _forward(own)
    repeats = np.zeros(len(own), np.bool_)
    for rows in _streams(own):
        repeats[rows] = repeated(
            own["name"].to_numpy().astype(np.int64)[rows], forward[rows], backward[rows], at_least
        )
    is_material = (
        own.select(
            "name",
            run=pl.Series(repeats).rle_id(),
            stream="stream",
            multiplies=pl.col("category").is_in(_MULTIPLICATIONS),
        )
        .select(
            (pl.col("name").n_unique().over("run", "stream") >= _FEWEST_KERNELS)
            & pl.col("multiplies").any().over("run", "stream")
        )
        .to_series()
        .to_numpy()
    )
    found: Flags = repeats & is_material
    return found if found.sum() <= _MOST_REPEATED * backward.sum() else np.zeros(len(own), np.bool_)


def _forward(own: pl.DataFrame) -> Flags:
    """The operations of the forward pass; where no range names it, all that no other part claims."""
    forward: Flags = (own["pass"] == Pass.FORWARD).fill_null(value=False).to_numpy()
    return forward if forward.any() else own["pass"].is_null().to_numpy()


def _streams(own: pl.DataFrame) -> list[Rows]:
    """The rows of each stream, in order of time."""
    stream = own["stream"].to_numpy()
    return np.split(np.arange(len(own)), np.flatnonzero(np.diff(stream)) + 1)
