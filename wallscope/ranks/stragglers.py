"""Ranks that delay a job: which arrive late at collectives, by how much, and why.

A collective is charged to its last participant: the median of the waits on the blame chains of the others. A
rank's net lateness in a step is its charge minus its own waits. Only ranks with the largest net lateness
delay the job, however much all wait for each other at times. The cause of lateness is work that takes longer
than on peers, either more work or slower work.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import polars as pl

from wallscope.model.analysis import PipelineStage, RankGroup, Reason, Straggler
from wallscope.model.cause_catalogue import describe_cause
from wallscope.model.enums import Axis, Collective, ComputeCategory, Wall
from wallscope.model.profile import Profile
from wallscope.ranks.match_collectives import AT, OUT
from wallscope.ranks.wait_split import StepSums
from wallscope.thresholds.causes import (
    COMPARED_PEERS_COUNT,
    FEWEST_LATE_STEPS_COUNT,
    LATE_IN_TURN_SHARE,
    LATE_OF_ALL_SHARE,
    LATE_STEPS_SHARE,
    MOST_OF_LATENESS_SHARE,
    SAME_KERNEL_COUNT_SHARE,
    SLOWED_ALIKE_SHARE,
    UNEVEN_STAGES_SHARE,
)
from wallscope.thresholds.verdict import MATERIAL_SHARE
from wallscope.units import duration, percent, signed_percent

SINCE = tuple(f"since_{wall}_ns" for wall in Wall)
_BY_STEP = ("member", "input", "step")

CHARGES = pl.Schema(
    {
        "member": pl.UInt32(),
        "input": pl.UInt32(),
        "step": pl.UInt32(),
        "late_ns": pl.Int64(),  # that others wait for it
        "waits_ns": pl.Int64(),  # that it waits for others
        **dict.fromkeys((f"more_{wall}_ns" for wall in Wall), pl.Int64()),
    }
)
"""A row for each step in which a rank shared collectives; `more` is its extra time before them."""

MORE = tuple(name for name in CHARGES.names() if name.startswith("more_"))


def charge_lateness(rows: pl.DataFrame) -> pl.DataFrame:
    """Return the charges (`CHARGES`) of split collectives (`split_waits`), except pipeline waits.

    Two ranks that send and receive on an unknown axis may also be a pipeline.
    """
    by_design = pl.col("is_pipeline") | _may_be_pipeline()
    met = _measure_since_last(rows).filter(pl.col("is_whole") & ~by_design & pl.col("step").is_not_null())
    if met.is_empty():
        return CHARGES.to_frame()
    is_other = ~pl.col("is_last")
    of_others = (
        met.filter(is_other)
        .group_by("meeting")
        .agg(late_ns=pl.col("blocking_wait_ns").median(), **{name: pl.col(name).median() for name in SINCE})
    )
    last = met.filter("is_last").join(of_others, on="meeting", suffix="_others", maintain_order="left")
    is_late = pl.col("late_ns") > 0
    late = last.group_by(_BY_STEP, maintain_order=True).agg(
        pl.col("late_ns").sum(),
        *(
            (pl.col(since) - pl.col(f"{since}_others")).filter(is_late).sum().alias(more)
            for since, more in zip(SINCE, MORE, strict=True)
        ),
    )
    waiting = met.group_by(_BY_STEP, maintain_order=True).agg(waits_ns=pl.col("blocking_wait_ns").sum())
    return (
        waiting.join(late, on=_BY_STEP, how="left")
        .with_columns(pl.col("late_ns", *MORE).fill_null(0).round())
        .sort(_BY_STEP)
        .select(CHARGES.names())
        .cast(CHARGES)
    )


def _may_be_pipeline() -> pl.Expr:
    is_sent = (pl.col("operation") == Collective.SEND_RECV) & (pl.col("axis") == Axis.UNKNOWN)
    return is_sent & (pl.len().over("meeting") == _NEIGHBOURS_COUNT)


def _measure_since_last(rows: pl.DataFrame) -> pl.DataFrame:
    """Return the time of each wall since the last collective of the group: from its end, or a later begin.

    Null for the first collective of a group.
    """
    by = ("member", "input", "group")
    ordered = rows.sort("member", "input", "start_ns", "row")
    follows = pl.col("end_ns").shift().over(by) <= pl.col("start_ns")
    return ordered.with_columns(
        (
            pl.col(at)
            - pl.when(follows).then(pl.col(out).shift().over(by)).otherwise(pl.col(at).shift().over(by))
        ).alias(since)
        for at, out, since in zip(AT, OUT, SINCE, strict=True)
    )


_NEIGHBOURS_COUNT = 2
_KEY = ("path", "category", "name")
_COMPUTE = [str(category) for category in ComputeCategory]
_OF_EXPERTS = (ComputeCategory.GROUPED_GEMM, ComputeCategory.DISPATCHER_LOCAL)
_TOKENS = ("all-to-all", "dispatch", "combine")
_REASON_OF_WALL = {
    Wall.HOST: Reason.HOST,
    Wall.MEMORY: Reason.MEMORY,
    Wall.COMMUNICATION: Reason.COMMUNICATION,
    Wall.UNATTRIBUTED: Reason.UNKNOWN,
}


@dataclass(frozen=True, slots=True)
class RankSteps:
    """A rank's profile and its selected steps (`input`, `step`)."""

    profile: Profile
    steps: pl.DataFrame


@dataclass(frozen=True, slots=True)
class LateReason:
    """The wall and cause that made a rank late; `ratio` is how much longer that takes than on its peers.

    `over_ns` is how much longer it takes per step.
    """

    wall: Wall | None
    cause: str | None
    reason: Reason
    ratio: float | None
    sentence: str
    over_ns: int = 0


def explain_lateness(late: RankSteps, others: Sequence[RankSteps], more_ns: Mapping[Wall, int]) -> LateReason:
    """Explain why a rank is late in some steps, compared with its peers or its own other steps.

    `more_ns` is how much longer each wall took than on the waiting ranks, before these collectives.
    """
    peers = [side for side in others if len(side.steps)][:COMPARED_PEERS_COUNT]
    wall = max(more_ns, key=lambda wall: (more_ns[wall], wall), default=None)
    if wall is None or more_ns[wall] <= 0 or not peers:
        return LateReason(None, None, Reason.UNKNOWN, None, "the capture does not show why")
    if wall is Wall.COMPUTE:
        return _explain_compute(late, peers)
    cause, over_ns, usual_ns = _find_grown_cause(late, peers, wall)
    if cause is None:
        return LateReason(
            wall, None, _REASON_OF_WALL[wall], None, f"{wall} takes longer, without a single cause"
        )
    ratio = (over_ns + usual_ns) / usual_ns if usual_ns > 0 else None
    unit = late.profile.header.work.unit
    usual = f"on its other {unit}s" if peers[0].profile is late.profile else "peers"
    return LateReason(
        wall,
        cause,
        _REASON_OF_WALL[wall],
        ratio,
        f"{duration(over_ns)} more {describe_cause(cause)} per {unit} than {usual}",
        over_ns,
    )


def _find_grown_cause(
    late: RankSteps, others: Sequence[RankSteps], wall: Wall
) -> tuple[str | None, int, int]:
    """Return the cause of a wall that grew most, its growth, and its usual time, in ns."""
    own, usual = _mean_causes(late), _middle([_mean_causes(side) for side in others], "cause", "ns")
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


def _mean_causes(side: RankSteps) -> pl.DataFrame:
    own = side.profile.causes.join(side.steps, on=["input", "step"])
    return own.group_by("cause").agg(ns=pl.col("ns").sum() / len(side.steps))


def _middle(frames: Sequence[pl.DataFrame], key: str, *columns: str) -> pl.DataFrame:
    """Return the median over ranks of some columns by a key; a rank without it counts as 0."""
    keys = pl.concat([frame.select(key) for frame in frames]).unique()
    whole = pl.concat(
        [keys.join(frame, on=key, how="left").with_columns(pl.col(columns).fill_null(0)) for frame in frames]
    )
    return whole.group_by(key).agg(pl.col(columns).median())


def _explain_compute(late: RankSteps, others: Sequence[RankSteps]) -> LateReason:
    """Explain compute: different kernels, more kernels, more tokens, or a slower clock."""
    usual = _middle([_mean_work(side) for side in others], "key", "work", "count")
    both = (
        _mean_work(late)
        .join(usual, on="key", how="full", coalesce=True, suffix="_usual")
        .with_columns(pl.col("work", "count", "work_usual", "count_usual").fill_null(0.0))
        .sort("key")  # sums of shares depend on their order
        .with_columns(over=pl.col("work") - pl.col("work_usual"))
        .with_columns(pl.col("key").struct.field("category"))
    )
    over_ns = float(both["over"].sum())
    if over_ns <= 0:
        return LateReason(
            Wall.COMPUTE, None, Reason.UNKNOWN, None, "compute takes longer, but no single kernel does"
        )
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
        unit = late.profile.header.work.unit
        sentence = f"it runs other kernels than its peers: {duration(round(added_ns))} more per {unit}"
        return LateReason(Wall.COMPUTE, cause, Reason.OTHER_WORK, None, sentence, round(over_ns))
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
        tokens, rest = _describe_tokens(late, others), signed_percent((dense or 1.0) - 1)
        sentence = (
            f"its experts' kernels take {signed_percent(expert - 1)}{tokens}, the others {rest}: more tokens"
        )
        return LateReason(Wall.COMPUTE, cause, Reason.MORE_TOKENS, expert, sentence, round(over_ns))
    assert ratio is not None  # noqa: S101  # over_ns > 0 with similar counts
    uneven = _unevenness(alike, ratio)
    if uneven <= SLOWED_ALIKE_SHARE:
        sentence = f"the same kernels take {signed_percent(ratio - 1)}, all alike: a slower GPU clock"
        return LateReason(Wall.COMPUTE, cause, Reason.SLOWER_KERNELS, ratio, sentence, round(over_ns))
    sentence = (
        f"the same number of kernels takes {signed_percent(ratio - 1)}, {most['category'][0]} most: more"
        " work in each"
    )
    return LateReason(Wall.COMPUTE, cause, Reason.LONGER_KERNELS, ratio, sentence, round(over_ns))


def _mean_work(side: RankSteps) -> pl.DataFrame:
    """Return summed durations and count of each kind of compute kernel, means per step."""
    keys = side.profile.keys.filter(pl.col("category").is_in(_COMPUTE))
    own = side.profile.work.join(side.steps, on=["input", "step"]).join(keys, on="key")
    return own.group_by(key=pl.struct(_KEY)).agg(
        work=pl.col("work_ns").sum() / len(side.steps), count=pl.col("count").sum() / len(side.steps)
    )


def _ratio(both: pl.DataFrame) -> float | None:
    usual = float(both["work_usual"].sum())
    return float(both["work"].sum()) / usual if usual else None


def _unevenness(both: pl.DataFrame, ratio: float) -> float:
    """Return how unevenly kernels are slowed: mean distance from the common ratio, by work, divided by it."""
    apart = (both["work"] - ratio * both["work_usual"]).abs().sum()
    return float(apart) / max(float(both["over"].sum()), 1.0)


def _describe_tokens(late: RankSteps, others: Sequence[RankSteps]) -> str:
    """Return how much more it exchanges with the experts of its peers, as text; empty if unknown."""
    own, usual = _sum_token_bytes(late), [_sum_token_bytes(side) for side in others]
    known = sorted(value for value in usual if value)
    if not own or not known:
        return ""
    return f" ({signed_percent(own / known[len(known) // 2] - 1)} bytes exchanged)"


def _sum_token_bytes(side: RankSteps) -> float | None:
    keys = side.profile.keys.filter(pl.col("category").is_in(_TOKENS))
    own = side.profile.work.join(side.steps, on=["input", "step"]).join(keys, on="key")["bytes"]
    return None if own.is_empty() or own.null_count() else float(own.sum()) / len(side.steps)


@dataclass(frozen=True, slots=True)
class JobRanks:
    """Data of ranks: profiles, their steps, groups of similar ones, their peers, `CHARGES`.

    `names` are for people; `noise_ns` is the remaining distance of the ends of one collective.
    """

    profiles: Sequence[Profile]
    steps: Sequence[StepSums]
    groups: tuple[RankGroup, ...]
    met: Mapping[int, frozenset[int]]
    charges: pl.DataFrame
    noise_ns: int
    names: Sequence[str]

    def side(self, place: int) -> RankSteps:
        """Return a rank with its deciding steps."""
        return RankSteps(self.profiles[place], self.steps[place].deciding)

    def like(self, place: int) -> list[int]:
        """Return the ranks that do the same work as one, preferably its peers; else all of its peers."""
        (group,) = (group for group in self.groups if place in group.places)
        met = self.met.get(place, frozenset())
        same = [other for other in group.places if other != place]
        same.sort(key=lambda other: (other not in met, other))
        return [other for other in same if other in met] or same or sorted(met)


def find_stragglers(ranks: JobRanks) -> tuple[Straggler, ...]:
    """Return the ranks that others wait for, the worst first.

    Repeated: net lateness is at least 1 % of the step on two thirds of the steps. In turn: at least 5 % on
    some, and 0.4 % of all time together.
    """
    found = [one for place in range(len(ranks.profiles)) if (one := _judge(ranks, place)) is not None]
    return tuple(sorted(found, key=lambda one: (not one.repeated, -one.late_ns_median, one.place)))


def _judge(ranks: JobRanks, place: int) -> Straggler | None:
    steps = ranks.steps[place]
    own = ranks.charges.filter(pl.col("member") == place)
    table = steps.deciding.join(own, on=["input", "step"], how="left", maintain_order="left")
    late_ns = table["late_ns"].fill_null(0).to_numpy()
    net_ns = late_ns - table["waits_ns"].fill_null(0).to_numpy()
    count, usual_ns = len(table), float(np.median(steps.length_ns)) if len(table) else 0.0
    is_late = net_ns >= max(MATERIAL_SHARE * usual_ns, ranks.noise_ns)
    repeated = count >= FEWEST_LATE_STEPS_COUNT and is_late.sum() >= LATE_STEPS_SHARE * count
    if not repeated:
        is_late = net_ns >= max(LATE_IN_TURN_SHARE * usual_ns, ranks.noise_ns)
        if not is_late.any() or net_ns[is_late].sum() < LATE_OF_ALL_SHARE * steps.length_ns.sum():
            return None
    in_question = table.filter(pl.Series(is_late))
    more_ns = {
        wall: int(in_question[name].sum()) // len(in_question) for wall, name in zip(Wall, MORE, strict=True)
    }
    reason = _reason(ranks, place, in_question, more_ns, repeated=bool(repeated))
    return Straggler(
        place=place,
        rank=ranks.profiles[place].header.rank,
        name=ranks.names[place],
        repeated=bool(repeated),
        late_ns_median=round(float(np.median(late_ns[is_late]))),
        late_steps=int(is_late.sum()),
        steps=count,
        cause_wall=reason.wall,
        cause=reason.cause,
        reason=reason.reason,
        ratio=reason.ratio,
        why=reason.sentence,
    )


def _reason(
    ranks: JobRanks, place: int, late: pl.DataFrame, more_ns: Mapping[Wall, int], *, repeated: bool
) -> LateReason:
    """Explain a rank that is always late by its peers, one that is late in turn by its other steps.

    The delay before its first collective may be at the end of the previous step, because a step without a
    range begins with its first kernel.
    """
    profile, steps = ranks.profiles[place], late.select("input", "step")
    peers = [ranks.side(other) for other in ranks.like(place)]
    if repeated:
        return explain_lateness(RankSteps(profile, steps), peers, more_ns)
    every = ranks.steps[place].deciding
    reason = []
    for own in (steps, _steps_before(steps, every)):
        rest = every.join(own, on=["input", "step"], how="anti")
        reason.append(
            explain_lateness(
                RankSteps(profile, own), [RankSteps(profile, rest)] if len(rest) else peers, more_ns
            )
        )
    return max(reason, key=lambda one: (one.cause is not None, one.over_ns))


def _steps_before(steps: pl.DataFrame, every: pl.DataFrame) -> pl.DataFrame:
    """Return the deciding step before each, or the step itself if there is none."""
    following = every.sort("input", "step").with_columns(
        pl.struct("input", "step").shift(-1).over("input").alias("next")
    )
    found = following.join(steps, left_on="next", right_on=pl.struct("input", "step"), how="semi")
    return found.select("input", "step") if len(found) else steps


def find_slow_stages(ranks: JobRanks, pipeline: tuple[PipelineStage, ...]) -> tuple[Straggler, ...]:
    """Return the ranks of a stage that computes 3 % of the step more than the others, and waits least."""
    if len(pipeline) < 2:
        return ()
    slowest = max(pipeline, key=lambda stage: (stage.compute_ns, -stage.stage))
    others = [stage for stage in pipeline if stage is not slowest]
    usual_ns = float(np.median([stage.compute_ns for stage in others]))
    step_ns = float(np.median([np.median(steps.length_ns) for steps in ranks.steps]))
    over_ns = slowest.compute_ns - usual_ns
    waits_least = slowest.bubble_ns <= min(stage.bubble_ns for stage in others)
    if over_ns < UNEVEN_STAGES_SHARE * step_ns or not waits_least:
        return ()
    peers = [ranks.side(place) for stage in others for place in stage.places]
    found = []
    for place in slowest.places:
        reason = explain_lateness(ranks.side(place), peers, {Wall.COMPUTE: round(over_ns)})
        is_other = reason.reason is not Reason.SLOWER_KERNELS
        steps = ranks.steps[place]
        found.append(
            Straggler(
                place=place,
                rank=ranks.profiles[place].header.rank,
                name=ranks.names[place],
                repeated=True,
                late_ns_median=round(over_ns),
                late_steps=len(steps.deciding),
                steps=len(steps.deciding),
                cause_wall=Wall.COMPUTE,
                cause=reason.cause,
                reason=Reason.OTHER_WORK if is_other else reason.reason,
                ratio=slowest.compute_ns / usual_ns if usual_ns else None,
                why=f"stage {slowest.stage} of the pipeline computes {percent(over_ns / step_ns)} more than"
                f" the others: {reason.sentence}",
            )
        )
    return tuple(found)
