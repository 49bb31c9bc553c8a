"""One job out of the profiles of its ranks: matched, laid on one clock, split, judged."""

from collections import defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction

import numpy as np
import polars as pl

from wallscope.arrays.columns import Flags
from wallscope.arrays.lookup import flags
from wallscope.model.analysis import Rank
from wallscope.model.diagnosis import Dominant
from wallscope.model.job import (
    CollectiveWaits,
    Job,
    JobCollectives,
    RankWaits,
    Straggler,
)
from wallscope.model.kinds import Axis, Collective, Wall
from wallscope.model.profile import Profile
from wallscope.model.walls import Walls
from wallscope.ranks.causes import split_profile, split_rank
from wallscope.ranks.clocks import aligned
from wallscope.ranks.gathering import gathered
from wallscope.ranks.lateness import charges
from wallscope.ranks.matching import meetings
from wallscope.ranks.stages import pipeline, stages
from wallscope.ranks.stragglers import Ranks, slow_stages, stragglers
from wallscope.ranks.survey import groups
from wallscope.ranks.typical import Steps, among, steps_of
from wallscope.ranks.verdict import verdict
from wallscope.ranks.waits import split
from wallscope.timeline.spans import Times

Judge = Callable[[Times, Times], Dominant]
"""The dominant wall of some steps: ns of each wall, and of the time without an owner, as `walls` decides."""

_WALLS = list(Wall)


@dataclass(frozen=True, slots=True)
class Together:
    """A job with what it was told from: the profiles of its ranks, what communication owns split.

    `rows` are the collectives of all ranks on one clock (`gathering.GATHERED`, `matching.MEETINGS`,
    `waits.SPLIT`), `steps` those that speak for each rank.
    """

    job: Job
    profiles: tuple[Profile, ...]
    rows: pl.DataFrame
    steps: tuple[Steps, ...]

    def split(self, ranks: Sequence[Rank], counts: Sequence[int]) -> tuple[Rank, ...]:
        """The ranks of the answer with their profiles' causes; each was read with so many others."""
        rows = self.rows_of()
        nothing = self.rows.clear()
        return tuple(
            split_rank(rank, profile, rows.get(place, nothing), steps, is_alone=count == 1)
            for place, (rank, profile, steps, count) in enumerate(
                zip(ranks, self.profiles, self.steps, counts, strict=True)
            )
        )

    def rows_of(self) -> dict[int, pl.DataFrame]:
        """The collectives of each rank that has some."""
        return _by_member(self.rows)


def job_of(profiles: Sequence[Profile], judge: Judge, world_size: int | None = None) -> Job:
    """What the ranks of one job tell together (`together`)."""
    return together(profiles, judge, world_size).job


def together(profiles: Sequence[Profile], judge: Judge, world_size: int | None = None) -> Together:
    """The ranks of one job, a profile each: matched, on one clock, what communication owns split, judged.

    Args:
        profiles: of the ranks, in the order of the answer.
        judge: decides the dominant wall.
        world_size: how many ranks the job has, as far as known.
    """
    of_all = gathered(profiles)
    found = aligned(of_all, meetings(of_all.rows))
    rows = split(found.rows)
    steps = [steps_of(profile) for profile in profiles]
    alike = groups(profiles, steps)
    low_ns, high_ns = found.clocks.residual_p05_ns or 0, found.clocks.residual_p95_ns or 0
    ranks = Ranks(profiles, steps, alike, _met(rows), charges(rows), max(-low_ns, high_ns), names(profiles))
    stage_of = stages(rows, profiles)
    in_stages = pipeline(rows, stage_of, profiles, steps)
    late = stragglers(ranks)
    late = (
        *late,
        *(
            one
            for one in slow_stages(ranks, in_stages)
            if not any(one.place == other.place for other in late)
        ),
    )
    members = _members(rows, ranks, stage_of)
    critical = min(
        range(len(members)),
        key=lambda place: (members[place].blocking_peer_wait_ns, members[place].rank or 0, place),
    )
    charged = _charged(rows, ranks, late)
    open_ns = [own.open_ns(profile) for profile, own in zip(profiles, steps, strict=True)]
    job = Job(
        ranks=len(profiles),
        world_size=world_size,
        missing=_missing(profiles, world_size),
        verdict="",
        dominant_wall=judge(np.concatenate(charged), np.concatenate(open_ns)),
        critical_rank=members[critical].rank,
        critical_place=critical,
        critical_wall=judge(steps[critical].walls, open_ns[critical]),
        walls=_mean_walls(charged),
        members=members,
        groups=alike,
        stragglers=late,
        collectives=_collectives(rows, steps, members),
        pipeline=in_stages,
        clock=found.clocks,
    )
    of_member = _by_member(rows)
    told = (split_profile(one, of_member.get(place, rows.clear())) for place, one in enumerate(profiles))
    return Together(replace(job, verdict=verdict(job)), tuple(told), rows, tuple(steps))


def names(profiles: Sequence[Profile]) -> tuple[str, ...]:
    """What ranks are called: by number, by device where no number is known, else by place."""
    ranks = [profile.header.rank for profile in profiles]
    devices = [profile.header.device for profile in profiles]
    if None not in ranks and len(set(ranks)) == len(ranks):
        return tuple(f"rank {rank}" for rank in ranks)
    if None not in devices and len(set(devices)) == len(devices):
        return tuple(f"device {device}" for device in devices)
    return tuple(f"rank #{place}" for place in range(len(profiles)))


def _met(rows: pl.DataFrame) -> dict[int, frozenset[int]]:
    """Whom each member meets in collectives beside the pipeline's."""
    pairs = rows.filter(pl.col("is_whole") & ~pl.col("is_pipeline")).select("group", "member").unique()
    found: defaultdict[int, set[int]] = defaultdict(set)
    for members in pairs.group_by("group").agg("member")["member"].to_list():
        for member in members:
            found[member] |= set(members) - {member}
    return {member: frozenset(others) for member, others in found.items()}


def _missing(profiles: Sequence[Profile], world_size: int | None) -> tuple[int, ...]:
    known = {profile.header.rank for profile in profiles}
    if world_size is None or None in known:
        return ()
    return tuple(rank for rank in range(world_size) if rank not in known)


def _members(rows: pl.DataFrame, ranks: Ranks, stage_of: dict[int, int]) -> tuple[RankWaits, ...]:
    group_of = {place: number for number, group in enumerate(ranks.groups) for place in group.places}
    own_rows = _by_member(rows)
    nothing = rows.clear()
    return tuple(
        _member(ranks, place, own_rows.get(place, nothing), group_of[place], stage_of.get(place))
        for place in range(len(ranks.profiles))
    )


def _by_member(rows: pl.DataFrame) -> dict[int, pl.DataFrame]:
    return {int(own["member"][0]): own for own in rows.partition_by("member", maintain_order=True)}


def _member(ranks: Ranks, place: int, rows: pl.DataFrame, group: int, stage: int | None) -> RankWaits:
    profile, steps = ranks.profiles[place], ranks.steps[place]
    is_typical = flags(among(steps.ordinary, rows), len(rows))
    is_whole, is_pipeline = rows["is_whole"].to_numpy(), rows["is_pipeline"].to_numpy()
    peers, handed = is_whole & ~is_pipeline, is_whole & is_pipeline

    def mean_ns(column: str, held: Flags) -> int:
        return steps.mean(int(rows[column].filter(pl.Series(held & is_typical)).sum()))

    charged = ranks.charges.filter(pl.col("member") == place)
    names = {entry.hostname for entry in profile.header.inputs}
    return RankWaits(
        place=place,
        rank=profile.header.rank,
        name=ranks.names[place],
        hostname=names.pop() if len(names) == 1 else None,
        group=group,
        stage=stage,
        steady_steps=steps.steady,
        step_median_ns=steps.median_ns,
        walls=steps.typical_walls(profile),
        residence_ns=mean_ns("residence_ns", is_typical),
        transfer_ns=mean_ns("transfer_ns", is_whole),
        peer_wait_ns=mean_ns("wait_ns", peers),
        pipeline_wait_ns=mean_ns("wait_ns", handed),
        unsplit_ns=mean_ns("residence_ns", ~is_whole),
        blocking_peer_wait_ns=mean_ns("blocking_wait_ns", peers),
        blocking_pipeline_wait_ns=mean_ns("blocking_wait_ns", handed),
        late_ns=steps.mean_ns(charged, "late_ns"),
        all_residence_ns=int(rows["residence_ns"].sum()),
        all_wait_ns=int(rows["wait_ns"].filter(pl.Series(peers)).sum()),
    )


def _charged(rows: pl.DataFrame, ranks: Ranks, late: tuple[Straggler, ...]) -> list[Times]:
    """The walls of each rank's deciding steps, waits for a late rank moved to what made that one late."""
    charged = [own.walls.copy() for own in ranks.steps]
    wall_of = {one.place: one.cause_wall for one in late if one.cause_wall is not None}
    whole = rows.filter("is_whole")
    last = whole.filter(pl.col("is_last") & pl.col("member").is_in(list(wall_of))).select(
        "meeting", whom="member"
    )
    sums = (
        whole.filter(~pl.col("is_last"))
        .join(last, on="meeting")
        .group_by("member", "input", "step", "whom")
        .agg(ns=pl.col("blocking_wait_ns").sum())
        .sort("member", "input", "step", "whom")
    )
    communication = _WALLS.index(Wall.COMMUNICATION)
    for own in sums.partition_by("member", maintain_order=True):
        place = int(own["member"][0])
        walls = charged[place]
        numbered = ranks.steps[place].deciding.with_row_index("at")
        for at, whom, ns in numbered.join(own, on=["input", "step"]).select("at", "whom", "ns").iter_rows():
            moved = min(ns, int(walls[at, communication]))
            walls[at, communication] -= moved
            walls[at, _WALLS.index(wall_of[whom])] += moved
    return charged


def _mean_walls(charged: Sequence[Times]) -> Walls:
    """The mean over ranks of the mean deciding step."""
    means = [own.mean(axis=0) for own in charged if len(own)]
    return Walls(*(round(float(part)) for part in np.mean(means, axis=0)))


def _collectives(
    rows: pl.DataFrame, steps: Sequence[Steps], members: tuple[RankWaits, ...]
) -> JobCollectives:
    whole = rows.filter("is_whole")
    partial = rows.filter(pl.col("meeting").is_not_null() & ~pl.col("is_whole"))
    count = max(len(members), 1)
    return JobCollectives(
        matched=whole["meeting"].n_unique(),
        partial=partial["meeting"].n_unique(),
        unmatched=int(rows["meeting"].null_count()),
        transfer_ns=round(Fraction(sum(one.transfer_ns for one in members), count)),
        jitter_ns=round(Fraction(sum(one.peer_wait_ns for one in members), count)),
        pipeline_ns=round(Fraction(sum(one.pipeline_wait_ns for one in members), count)),
        kinds=_kinds(whole, steps),
    )


def _kinds(whole: pl.DataFrame, steps: Sequence[Steps]) -> tuple[CollectiveWaits, ...]:
    ordinary = [
        own.ordinary.with_columns(pl.lit(member, pl.UInt32).alias("member"))
        for member, own in enumerate(steps)
    ]
    sized = whole.with_columns(size=pl.len().over("meeting"))
    counted = sized.join(pl.concat(ordinary), on=["member", "input", "step"], maintain_order="left")
    own_steps = {member: max(len(own.ordinary), 1) for member, own in enumerate(steps)}
    weighted = counted.with_columns(
        weight=1 / pl.col("member").replace_strict(own_steps, return_dtype=pl.Float64)
    )
    found = weighted.group_by("operation", "axis", "size", maintain_order=True).agg(
        count=pl.col("weight").sum(),
        transfer=(pl.col("transfer_ns") * pl.col("weight")).sum(),
        wait=(pl.col("wait_ns") * pl.col("weight")).sum(),
        bus=pl.when(pl.col("bus_bytes").null_count() == 0).then(pl.col("bus_bytes").sum()),
        moving=pl.col("transfer_ns").sum(),
        members=pl.col("member").n_unique(),
    )
    return tuple(
        CollectiveWaits(
            operation=Collective(row["operation"]),
            axis=Axis(row["axis"]),
            participants=row["size"],
            count=row["count"] / row["members"],
            transfer_ns=round(row["transfer"] / row["members"]),
            wait_ns=round(row["wait"] / row["members"]),
            bus_bandwidth_bytes_per_s=row["bus"] / row["moving"] * 1e9
            if row["bus"] and row["moving"]
            else None,
        )
        for row in found.sort("operation", "axis", "size").iter_rows(named=True)
    )
