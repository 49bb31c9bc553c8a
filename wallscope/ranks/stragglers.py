"""Why a unit holds a job up: work that takes longer than on its peers, either more work or slower work."""

from collections import defaultdict
from collections.abc import Mapping, Sequence
from itertools import takewhile

import numpy as np
import polars as pl

from wallscope.model.analysis import RankGroup, Reason, Straggler, UnitKind
from wallscope.model.cause_catalogue import describe_cause
from wallscope.model.enums import ComputeCategory, Wall
from wallscope.model.profile import Profile
from wallscope.ranks.culprits import Culprit, JobUnit
from wallscope.ranks.rank_lists import join_ranks
from wallscope.ranks.wait_split import StepSums
from wallscope.records import dataclass
from wallscope.thresholds.causes import (
    COMPARED_PEERS_COUNT,
    CULPRIT_SHARE,
    MOST_OF_LATENESS_SHARE,
    SAME_KERNEL_COUNT_SHARE,
    SLOWED_ALIKE_SHARE,
)
from wallscope.trace.intervals import Times
from wallscope.units import duration, percent, signed_percent

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
            wall, None, _REASON_OF_WALL[wall], None, f"{wall} takes longer, but for no single cause"
        )
    ratio = (over_ns + usual_ns) / usual_ns if usual_ns > 0 else None
    unit = late.profile.header.work.unit
    usual = f"on its other {unit}s" if peers[0].profile is late.profile else "its peers"
    return LateReason(
        wall,
        cause,
        _REASON_OF_WALL[wall],
        ratio,
        f"it has {duration(over_ns)} more {describe_cause(cause)} per {unit} than {usual}",
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
        sentence = f"it runs other kernels than its peers, {duration(round(added_ns))} more per {unit}"
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
            f"its experts' kernels take {signed_percent(expert - 1)}{tokens} and all others {rest}, as"
            " with more tokens"
        )
        return LateReason(Wall.COMPUTE, cause, Reason.MORE_TOKENS, expert, sentence, round(over_ns))
    if ratio is None:
        sentence = "its kernels take time, while the same kernels of its peers take none"
        return LateReason(Wall.COMPUTE, cause, Reason.UNKNOWN, None, sentence, round(over_ns))
    uneven = _unevenness(alike, ratio)
    if uneven <= SLOWED_ALIKE_SHARE:
        sentence = f"the same kernels all take {percent(ratio - 1)} longer, as with a slower GPU clock"
        return LateReason(Wall.COMPUTE, cause, Reason.SLOWER_KERNELS, ratio, sentence, round(over_ns))
    sentence = (
        f"as many kernels take {percent(ratio - 1)} longer, {most['category'][0]} most, as with"
        " more work in each"
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
    """Data of ranks: profiles, their steps, groups of similar ones, their peers; `names` are for people."""

    profiles: Sequence[Profile]
    steps: Sequence[StepSums]
    groups: tuple[RankGroup, ...]
    met: Mapping[int, frozenset[int]]
    names: Sequence[str]

    def side(self, place: int) -> RankSteps:
        """Return a rank with its deciding steps."""
        return RankSteps(self.profiles[place], self.steps[place].deciding)

    def mean_walls(self, place: int) -> Times:
        """Return the mean of each wall over the deciding steps of a rank, float64 ns."""
        return np.asarray(self.steps[place].walls.mean(axis=0))

    def like(self, place: int) -> list[int]:
        """Return the ranks that do the same work as one, preferably its peers; else all of its peers."""
        (group,) = (group for group in self.groups if place in group.places)
        met = self.met.get(place, frozenset())
        same = [other for other in group.places if other != place]
        same.sort(key=lambda other: (other not in met, other))
        return [other for other in same if other in met] or same or sorted(met)


def name_stragglers(
    ranks: JobRanks, culprits: Sequence[Culprit], stage_of: Mapping[int, int]
) -> tuple[Straggler, ...]:
    """Return what holds a job up with the reasons, in the order of repair (`find_culprits`).

    The list ends before a unit that is late in no step.
    """
    shown = takewhile(lambda culprit: culprit.is_late.any(), culprits)
    return tuple(_name_straggler(ranks, culprit, stage_of) for culprit in shown)


def _name_straggler(ranks: JobRanks, culprit: Culprit, stage_of: Mapping[int, int]) -> Straggler:
    unit = culprit.unit
    reason = _reason(ranks, culprit, stage_of)
    is_one, late = len(unit.places) == 1, np.flatnonzero(culprit.is_late)
    since = int(late[0]) if late.size and late.size == culprit.over_ns.size - late[0] else None
    return Straggler(
        place=unit.places[0],
        rank=ranks.profiles[unit.places[0]].header.rank if is_one else None,
        name=_name_unit(ranks, unit),
        unit=unit.kind,
        places=unit.places,
        late_steps=late.size,
        replayed_steps=culprit.over_ns.size,
        hides_next=culprit.gain_ns < CULPRIT_SHARE * culprit.step_ns,
        since_step=None if since is None else culprit.first_step + since,
        saved_ns=round(culprit.gain_ns),
        replayed_step_ns=round(culprit.replayed_ns),
        cause_wall=reason.wall,
        cause=reason.cause,
        reason=reason.reason,
        ratio=reason.ratio,
        why=reason.sentence,
    )


def _name_unit(ranks: JobRanks, unit: JobUnit) -> str:
    named = [ranks.names[place] for place in unit.places]
    match unit.kind:
        case UnitKind.RANK:
            return named[0]
        case UnitKind.NODE:
            return f"node {unit.name} ({join_ranks(named)})"
        case UnitKind.STAGE:
            return f"pipeline stage {unit.stage} ({join_ranks(named)})"
        case UnitKind.LINK:
            return f"the link of {join_ranks(named)}"
        case UnitKind.JOB:
            return "the hosts of all ranks in turn"


def _reason(ranks: JobRanks, culprit: Culprit, stage_of: Mapping[int, int]) -> LateReason:
    """Explain a unit by the peers of its first rank, or of that one which takes most longer."""
    unit, gain_ns = culprit.unit, round(culprit.gain_ns)
    if unit.kind is UnitKind.LINK:
        return _explain_link(unit)
    if unit.kind is UnitKind.JOB:
        return _explain_turns(ranks)
    place = unit.places[0]
    if unit.kind is UnitKind.STAGE:
        others = [other for other in sorted(stage_of) if stage_of[other] != unit.stage]
    else:
        others = [other for other in ranks.like(place) if other not in unit.places]
        others = [other for other in others if stage_of.get(other) == stage_of.get(place)] or others
    if not others:
        return LateReason(None, None, Reason.UNKNOWN, None, "the capture does not show why")
    peers = [ranks.side(other) for other in others]
    if unit.is_compute:
        return explain_lateness(ranks.side(place), peers, {Wall.COMPUTE: gain_ns})
    own, usual = ranks.mean_walls(place), np.median([ranks.mean_walls(other) for other in others], axis=0)
    more = dict(zip(Wall, (own - usual).astype(np.int64).tolist(), strict=True))
    return explain_lateness(
        ranks.side(place), peers, {wall: more[wall] for wall in (Wall.HOST, Wall.MEMORY, Wall.UNATTRIBUTED)}
    )


def _explain_link(unit: JobUnit) -> LateReason:
    """Explain a link by its transfers and those of others."""
    ratio = unit.ratio
    times = "" if ratio is None else f" {ratio:.1f}x as long as"
    sentence = (
        f"its {describe_cause(f'communication/{unit.name}/transfer')} takes{times} other links of the kind"
    )
    return LateReason(
        Wall.COMMUNICATION, f"communication/{unit.name}/transfer", Reason.COMMUNICATION, ratio, sentence
    )


def _explain_turns(ranks: JobRanks) -> LateReason:
    """Explain hosts that stall in turn by the cause outside of compute that varies most from step to step."""
    over: defaultdict[str, float] = defaultdict(float)
    for place, profile in enumerate(ranks.profiles):
        own = profile.causes.join(ranks.steps[place].deciding, on=["input", "step"])
        own = own.filter(pl.col("cause").str.contains("^(host|memory|unattributed)/"))
        by_step = own.group_by("input", "step", "cause").agg(pl.col("ns").sum()).sort("cause", "step")
        count = max(len(ranks.steps[place].deciding), 1)
        for cause, ns in by_step.group_by("cause", maintain_order=True).agg("ns").iter_rows():
            usual = float(np.median([*ns, *[0] * (count - len(ns))]))
            over[cause] += sum(max(one - usual, 0) for one in ns) / count
    if not any(over.values()):
        return LateReason(None, None, Reason.UNKNOWN, None, "the capture does not show why")
    cause = max(over, key=lambda one: (over[one], one))
    wall = Wall(cause.partition("/")[0])
    together = duration(round(over[cause]))
    sentence = f"{describe_cause(cause)} comes on one rank after the other, together {together} per step"
    return LateReason(wall, cause, _REASON_OF_WALL[wall], None, sentence)
