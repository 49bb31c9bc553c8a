"""Why a rank is late: what it did longer than its peers, and whether that was more work or slower work."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import polars as pl

from wallscope.model.catalogue import meaning
from wallscope.model.job import Reason
from wallscope.model.kinds import ComputeCategory, Wall
from wallscope.model.profile import Profile
from wallscope.thresholds import (
    COMPARED_PEERS_COUNT,
    MOST_OF_LATENESS_SHARE,
    SAME_KERNEL_COUNT_SHARE,
    SLOWED_ALIKE_SHARE,
)
from wallscope.units import duration, signed_percent

_KEY = ("path", "category", "name")
_COMPUTE = [str(category) for category in ComputeCategory]
_OF_EXPERTS = (ComputeCategory.GROUPED_GEMM, ComputeCategory.DISPATCHER_LOCAL)
_TOKENS = ("all-to-all", "dispatch", "combine")
_REASON = {
    Wall.HOST: Reason.HOST,
    Wall.MEMORY: Reason.MEMORY,
    Wall.COMMUNICATION: Reason.COMMUNICATION,
    Wall.UNATTRIBUTED: Reason.UNKNOWN,
}


@dataclass(frozen=True, slots=True)
class Side:
    """A rank's profile and the steps (`input`, `step`) of it that are looked at."""

    profile: Profile
    steps: pl.DataFrame


@dataclass(frozen=True, slots=True)
class Why:
    """The wall and cause that made a rank late; `ratio` is how much longer that takes than on its peers.

    `over_ns` is how much longer it takes in a step.
    """

    wall: Wall | None
    cause: str | None
    reason: Reason
    ratio: float | None
    sentence: str
    over_ns: int = 0


def why(late: Side, others: Sequence[Side], more_ns: Mapping[Wall, int]) -> Why:
    """Why a rank is late in some steps, beside its peers or its own other steps.

    `more_ns` is what each wall owned longer than on those who waited, before the collectives in question.
    """
    beside = [side for side in others if len(side.steps)][:COMPARED_PEERS_COUNT]
    wall = max(more_ns, key=lambda wall: (more_ns[wall], wall), default=None)
    if wall is None or more_ns[wall] <= 0 or not beside:
        return Why(None, None, Reason.UNKNOWN, None, "what kept it is not in the capture")
    if wall is Wall.COMPUTE:
        return _computing(late, beside)
    cause, over_ns, usual_ns = _cause(late, beside, wall)
    if cause is None:
        return Why(wall, None, _REASON[wall], None, f"{wall} takes longer, of no one cause")
    ratio = (over_ns + usual_ns) / usual_ns if usual_ns > 0 else None
    return Why(
        wall, cause, _REASON[wall], ratio, f"{duration(over_ns)} more {meaning(cause)} a step", over_ns
    )


def _cause(late: Side, others: Sequence[Side], wall: Wall) -> tuple[str | None, int, int]:
    """The cause of a wall that grew most, by how much, and what it usually takes."""
    own, usual = _causes(late), _middle([_causes(side) for side in others], "cause", "ns")
    grown = (
        own.join(usual, on="cause", how="left", suffix="_usual")
        .with_columns(usual=pl.col("ns_usual").fill_null(0.0))
        .filter(pl.col("cause").str.starts_with(f"{wall}/"))
        .with_columns(over=pl.col("ns") - pl.col("usual"))
        .sort("over", "cause", descending=[True, False])
    )
    if grown.is_empty() or grown["over"][0] <= 0:
        return None, 0, 0
    return grown["cause"][0], round(grown["over"][0]), round(grown["usual"][0])


def _causes(side: Side) -> pl.DataFrame:
    own = side.profile.causes.join(side.steps, on=["input", "step"])
    return own.group_by("cause").agg(ns=pl.col("ns").sum() / len(side.steps))


def _middle(frames: Sequence[pl.DataFrame], key: str, *columns: str) -> pl.DataFrame:
    """The median over ranks of some columns by a key; a rank without it counts as 0."""
    keys = pl.concat([frame.select(key) for frame in frames]).unique()
    whole = pl.concat(
        [keys.join(frame, on=key, how="left").with_columns(pl.col(columns).fill_null(0)) for frame in frames]
    )
    return whole.group_by(key).agg(pl.col(columns).median())


def _computing(late: Side, others: Sequence[Side]) -> Why:
    """Whether kernels are others, more, longer for more tokens, or slower all alike."""
    usual = _middle([_work(side) for side in others], "key", "work", "count")
    both = (
        _work(late)
        .join(usual, on="key", how="full", coalesce=True, suffix="_usual")
        .with_columns(pl.col("work", "count", "work_usual", "count_usual").fill_null(0.0))
        .sort("key")  # sums of shares depend on their order
        .with_columns(over=pl.col("work") - pl.col("work_usual"))
        .with_columns(pl.col("key").struct.field("category"))
    )
    over_ns = float(both["over"].sum())
    if over_ns <= 0:
        return Why(Wall.COMPUTE, None, Reason.UNKNOWN, None, "compute takes longer, but no kernel does")
    same = (pl.col("count") - pl.col("count_usual")).abs() <= SAME_KERNEL_COUNT_SHARE * pl.col("count_usual")
    is_expert = pl.col("category").is_in([str(category) for category in _OF_EXPERTS])
    most = (
        both.group_by("category", maintain_order=True)
        .agg(pl.col("over").sum())
        .sort("over", "category", descending=[True, False])
    )
    cause = f"compute/{most['category'][0]}"
    added_ns = float(both.filter(~same)["over"].sum())
    if added_ns >= MOST_OF_LATENESS_SHARE * over_ns:
        said = f"it runs other kernels than its peers: {duration(round(added_ns))} more a step"
        return Why(Wall.COMPUTE, cause, Reason.OTHER_WORK, None, said, round(over_ns))
    alike = both.filter(same & (pl.col("work_usual") > 0))
    ratio, dense, expert = (
        _ratio(alike.filter(which)) for which in (pl.lit(value=True), ~is_expert, is_expert)
    )
    expert_ns = float(alike.filter(is_expert)["over"].sum())
    if (
        expert_ns >= MOST_OF_LATENESS_SHARE * over_ns
        and expert is not None
        and (dense or 1.0) - 1 < SLOWED_ALIKE_SHARE * (expert - 1)
    ):
        said = (
            f"its experts' kernels take {signed_percent(expert - 1)}{_tokens(late, others)}, the others"
            f" {signed_percent((dense or 1.0) - 1)}: more tokens"
        )
        return Why(Wall.COMPUTE, cause, Reason.MORE_TOKENS, expert, said, round(over_ns))
    assert ratio is not None  # noqa: S101  # over_ns > 0 with like counts
    uneven = _unevenness(alike, ratio)
    if uneven <= SLOWED_ALIKE_SHARE:
        said = f"the same kernels take {signed_percent(ratio - 1)}, all alike: a slower GPU clock"
        return Why(Wall.COMPUTE, cause, Reason.SLOWER_KERNELS, ratio, said, round(over_ns))
    said = f"as many kernels take {signed_percent(ratio - 1)}, {most['category'][0]} most: more work in each"
    return Why(Wall.COMPUTE, cause, Reason.LONGER_KERNELS, ratio, said, round(over_ns))


def _work(side: Side) -> pl.DataFrame:
    """Added-up durations and count of each kind of compute kernel, means of a step."""
    keys = side.profile.keys.filter(pl.col("category").is_in(_COMPUTE))
    own = side.profile.work.join(side.steps, on=["input", "step"]).join(keys, on="key")
    return own.group_by(key=pl.struct(_KEY)).agg(
        work=pl.col("work_ns").sum() / len(side.steps), count=pl.col("count").sum() / len(side.steps)
    )


def _ratio(both: pl.DataFrame) -> float | None:
    usual = float(both["work_usual"].sum())
    return float(both["work"].sum()) / usual if usual else None


def _unevenness(both: pl.DataFrame, ratio: float) -> float:
    """How far kernels are from being slowed alike: mean distance from the common ratio, by work, over it."""
    apart = (both["work"] - ratio * both["work_usual"]).abs().sum()
    return float(apart) / max(float(both["over"].sum()), 1.0)


def _tokens(late: Side, others: Sequence[Side]) -> str:
    """How much more it exchanges with the experts of its peers, where bytes are known."""
    own, usual = _exchanged(late), [_exchanged(side) for side in others]
    known = sorted(value for value in usual if value)
    if not own or not known:
        return ""
    return f" ({signed_percent(own / known[len(known) // 2] - 1)} bytes exchanged)"


def _exchanged(side: Side) -> float | None:
    keys = side.profile.keys.filter(pl.col("category").is_in(_TOKENS))
    own = side.profile.work.join(side.steps, on=["input", "step"]).join(keys, on="key")["bytes"]
    return None if own.is_empty() or own.null_count() else float(own.sum()) / len(side.steps)
