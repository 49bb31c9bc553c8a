"""Combine the profiles of ranks into a job: match collectives, align clocks, find late ranks.

This last stage with several ranks uses only profiles, so that ranks can be analyzed separately.
"""

from collections import defaultdict
from collections.abc import Callable, Sequence
from dataclasses import replace
from fractions import Fraction

import numpy as np
import polars as pl

from wallscope.columns import Flags, mark_numbers, sum_by_group
from wallscope.model.analysis import (
    Clocks,
    CollectiveWaits,
    Job,
    JobCollectives,
    PipelineStage,
    Rank,
    RankGroup,
    RankWaits,
    Straggler,
    UnitKind,
)
from wallscope.model.diagnosis import Dominant, Walls
from wallscope.model.enums import Axis, Collective, ComputeCategory, Wall
from wallscope.model.profile import Profile
from wallscope.process_tuning import release_memory, run_both, run_side_by_side
from wallscope.ranks.clocks import align_clocks
from wallscope.ranks.culprits import Culprit, JobShape, find_culprits
from wallscope.ranks.job_replay import build_job_graph
from wallscope.ranks.job_sentences import list_job_sentences
from wallscope.ranks.match_collectives import (
    add_meetings,
    gather_collectives,
    match_meetings,
    match_messages,
    rows_by_member,
)
from wallscope.ranks.stragglers import JobRanks, name_stragglers
from wallscope.ranks.wait_split import (
    StepSums,
    find_stages,
    rows_in_steps,
    select_steps,
    split_profile,
    split_rank,
    split_waits,
    summarize_pipeline,
)
from wallscope.records import dataclass
from wallscope.thresholds.causes import UNEVEN_STAGES_SHARE, UNKNOWN_WAIT_SHARE
from wallscope.thresholds.verdict import MATERIAL_SHARE
from wallscope.trace.intervals import Times, length_ns, make_spans, order_spans, union

Judge = Callable[[Times, Times], Dominant]
"""Decide the dominant wall of some steps from ns of each wall and unattributed ns."""

_WALLS = list(Wall)


@dataclass(frozen=True, slots=True)
class MatchedJob:
    """A job with its evidence: the profiles of its ranks, with communication split into transfer and waits.

    `rows` are the collectives of all ranks on one clock (`ALL_COLLECTIVES`, `MEETINGS` and `SPLIT`), `steps`
    the deciding ones of each rank.
    """

    job: Job
    profiles: tuple[Profile, ...]
    rows: pl.DataFrame
    steps: tuple[StepSums, ...]

    def split_ranks(self, ranks: Sequence[Rank], counts: Sequence[int]) -> tuple[Rank, ...]:
        """Return the ranks with the causes of their profiles; `counts` refer to the ranks read together."""
        rows = self.rows_by_member()
        nothing = self.rows.clear()
        return tuple(
            split_rank(rank, profile, rows.get(place, nothing), steps, is_alone=count == 1)
            for place, (rank, profile, steps, count) in enumerate(
                zip(ranks, self.profiles, self.steps, counts, strict=True)
            )
        )

    def rows_by_member(self) -> dict[int, pl.DataFrame]:
        """Return the collectives of each rank that has some, by member."""
        return rows_by_member(self.rows)


def match_ranks(profiles: Sequence[Profile], judge: Judge, world_size: int | None = None) -> MatchedJob:
    """Match the ranks of one job on one clock, split their communication, and judge them.

    Args:
        profiles: of the ranks, in the order of the answer.
        judge: decides the dominant wall.
        world_size: the number of ranks of the job, as far as known.
    """
    rows, clocks = _match_collectives(profiles)
    release_memory()
    steps = tuple(select_steps(profile) for profile in profiles)
    job, split = run_both(
        lambda: _judge_job(profiles, steps, rows, clocks, judge, world_size),
        lambda: _split_profiles(profiles, rows),
    )
    return MatchedJob(job, split, rows, steps)


def _match_collectives(profiles: Sequence[Profile]) -> tuple[pl.DataFrame, Clocks]:
    """Return the collectives of all ranks (`MatchedJob.rows`), and the clocks that they had."""
    numbers = [profile.header.rank for profile in profiles]
    gathered = gather_collectives(profiles)
    found = align_clocks(gathered, match_meetings(gathered.rows, numbers))
    return split_waits(add_meetings(found.rows, match_messages(found.rows, numbers))), found.clocks


def _judge_job(  # noqa: PLR0913, PLR0917  # all that is known of the ranks
    profiles: Sequence[Profile],
    steps: Sequence[StepSums],
    rows: pl.DataFrame,
    clocks: Clocks,
    judge: Judge,
    world_size: int | None,
) -> Job:
    """Judge the ranks by their deciding steps and by all collectives on one clock (`MatchedJob.rows`)."""
    alike = group_ranks(profiles, steps)
    ranks = JobRanks(profiles, steps, alike, _peers(rows), rank_names(profiles))
    stage_of = find_stages(rows, profiles)
    in_stages = summarize_pipeline(rows, stage_of, profiles, steps)
    members = _summarize_members(rows, ranks, stage_of)
    collectives = _summarize_collectives(rows, steps, members)
    step_ns, culprits = _replay_job(profiles, steps, rows, stage_of)
    release_memory()
    late = name_stragglers(ranks, culprits, stage_of)
    critical = min(
        _list_held_up(late) or _list_slowest(in_stages, steps) or range(len(members)),
        key=lambda place: (_waiting_order(members[place]), members[place].rank or 0, place),
    )
    charged = _charge_walls(rows, ranks, late)
    open_ns = [own.open_ns(profile) for profile, own in zip(profiles, steps, strict=True)]
    job = Job(
        ranks=len(profiles),
        world_size=world_size,
        missing=_missing_ranks(profiles, world_size),
        verdict="",
        dominant_wall=judge(np.concatenate(charged), np.concatenate(open_ns)),
        critical_rank=members[critical].rank,
        critical_place=critical,
        critical_wall=judge(steps[critical].walls, open_ns[critical]),
        walls=_mean_walls(charged),
        members=members,
        groups=alike,
        stragglers=late,
        replayed_step_ns=None if step_ns is None else round(step_ns),
        collectives=collectives,
        pipeline=in_stages,
        clock=clocks,
    )
    return replace(job, verdict=" ".join(list_job_sentences(job, profiles[0].header.work.unit)))


def _replay_job(
    profiles: Sequence[Profile], steps: Sequence[StepSums], rows: pl.DataFrame, stage_of: dict[int, int]
) -> tuple[float | None, tuple[Culprit, ...]]:
    """Return the mean step of the replay in ns, `None` where none shows it, and what holds the job up."""
    graph = build_job_graph(rows, profiles, steps) if rows["is_whole"].any() else None
    if graph is None:
        return None, ()
    culprits = find_culprits(graph, _describe_shape(rows, profiles, stage_of))
    step_ns = graph.measure_step_ns(graph.own)
    if step_ns is not None and not culprits and not graph.shows_begins(step_ns):
        return None, ()
    return step_ns, culprits


def _split_profiles(profiles: Sequence[Profile], rows: pl.DataFrame) -> tuple[Profile, ...]:
    """Return the profiles with the time of collectives split by their rows."""
    of_member, nothing = rows_by_member(rows), rows.clear()
    return run_side_by_side(
        lambda place: split_profile(profiles[place], of_member.get(place, nothing)), range(len(profiles))
    )


def rank_names(profiles: Sequence[Profile]) -> tuple[str, ...]:
    """Return names of ranks: by number, by device if the number is unknown, else by index."""
    ranks = [profile.header.rank for profile in profiles]
    devices = [profile.header.device for profile in profiles]
    if None not in ranks and len(set(ranks)) == len(ranks):
        return tuple(f"rank {rank}" for rank in ranks)
    if None not in devices and len(set(devices)) == len(devices):
        return tuple(f"device {device}" for device in devices)
    return tuple(f"rank #{place}" for place in range(len(profiles)))


def _peers(rows: pl.DataFrame) -> dict[int, frozenset[int]]:
    """Return the peers of each member in collectives other than the pipeline's."""
    met = rows.select("group", "member", "is_whole", "is_pipeline")
    pairs = met.filter(pl.col("is_whole") & ~pl.col("is_pipeline")).select("group", "member").unique()
    found: defaultdict[int, set[int]] = defaultdict(set)
    for members in pairs.group_by("group").agg("member")["member"].to_list():
        for member in members:
            found[member] |= set(members) - {member}
    return {member: frozenset(others) for member, others in found.items()}


def _missing_ranks(profiles: Sequence[Profile], world_size: int | None) -> tuple[int, ...]:
    """Return the numbers without a profile, below the size of the job or, if it is unknown, the largest."""
    known = {rank for profile in profiles if (rank := profile.header.rank) is not None}
    if len(known) < len(profiles):
        return ()
    return tuple(sorted(set(range(world_size or max(known, default=-1) + 1)) - known))


def _summarize_members(
    rows: pl.DataFrame, ranks: JobRanks, stage_of: dict[int, int]
) -> tuple[RankWaits, ...]:
    group_of = {place: number for number, group in enumerate(ranks.groups) for place in group.places}
    own_rows = rows_by_member(rows)
    nothing = rows.clear()
    return tuple(
        _summarize_member(ranks, place, own_rows.get(place, nothing), group_of[place], stage_of.get(place))
        for place in range(len(ranks.profiles))
    )


def _summarize_member(
    ranks: JobRanks, place: int, rows: pl.DataFrame, group: int, stage: int | None
) -> RankWaits:
    profile, steps = ranks.profiles[place], ranks.steps[place]
    is_typical = mark_numbers(rows_in_steps(steps.ordinary, rows), len(rows))
    is_whole, is_pipeline = rows["is_whole"].to_numpy(), rows["is_pipeline"].to_numpy()
    peers, handed = is_whole & ~is_pipeline, is_whole & is_pipeline
    residence_ns = rows["residence_ns"].to_numpy()
    is_known = residence_ns[~is_whole].sum() <= UNKNOWN_WAIT_SHARE * residence_ns.sum()
    typical, whole = _unite_parts(rows.filter(pl.Series(is_typical))), _unite_parts(rows)

    def mean_ns(column: str, chosen: Flags) -> int:
        return steps.mean(int(rows[column].filter(pl.Series(chosen & is_typical)).sum()))

    rank_names = {entry.hostname for entry in profile.header.inputs}
    return RankWaits(
        place=place,
        rank=profile.header.rank,
        name=ranks.names[place],
        hostname=rank_names.pop() if len(rank_names) == 1 else None,
        group=group,
        stage=stage,
        steady_steps=steps.steady,
        step_median_ns=steps.median_ns,
        walls=steps.typical_walls(profile),
        residence_ns=sum(parts := [steps.mean(part_ns) for part_ns in typical]),
        transfer_ns=parts[2],
        peer_wait_ns=parts[0] if is_known else None,
        pipeline_wait_ns=parts[1],
        unsplit_ns=parts[3],
        blocking_peer_wait_ns=mean_ns("blocking_wait_ns", peers) if is_known else None,
        blocking_pipeline_wait_ns=mean_ns("blocking_wait_ns", handed),
        all_residence_ns=sum(whole),
        all_wait_ns=whole[0] if is_known else None,
        unmatched_count=int((~is_whole).sum()),
    )


def _describe_shape(rows: pl.DataFrame, profiles: Sequence[Profile], stage_of: dict[int, int]) -> JobShape:
    """Return where the ranks are, and who meets whom."""
    hosts = [{entry.hostname for entry in profile.header.inputs} for profile in profiles]
    whole = rows.select("group", "member", "axis", "transfer_ns", "is_whole").filter("is_whole")
    met = whole.group_by("group").agg(
        pl.col("member").unique().sort(),
        pl.col("axis").mode().sort().first().cast(pl.String),
        ns=pl.col("transfer_ns").sum(),
    )  # fmt: skip
    links = met.sort("ns", "group", descending=[True, False]).group_by("member", maintain_order=True).agg(
        pl.col("group").sort(), pl.col("axis").first()
    )  # fmt: skip
    return JobShape(
        tuple(own.pop() if len(own) == 1 else None for own in hosts),
        stage_of,
        {tuple(members): (tuple(groups), axis) for members, groups, axis in links.iter_rows()},
    )


def _list_held_up(late: tuple[Straggler, ...]) -> list[int]:
    """Return the ranks of the first unit that holds a job up by its own work, and of those that hide it."""
    own = [one for one in late if one.unit in {UnitKind.RANK, UnitKind.NODE, UnitKind.STAGE}]
    last = next((nth for nth, one in enumerate(own, start=1) if not one.hides_next), len(own))
    return [place for one in own[:last] for place in one.places]


def _list_slowest(pipeline: tuple[PipelineStage, ...], steps: Sequence[StepSums]) -> list[int]:
    """Return the ranks of the pipeline stages that compute longest, within 3 % of the step."""
    if len(pipeline) < 2:
        return []
    most_ns = max(stage.compute_ns for stage in pipeline)
    alike_ns = UNEVEN_STAGES_SHARE * float(np.median([np.median(own.length_ns) for own in steps]))
    slowest = [stage for stage in pipeline if stage.compute_ns >= most_ns - alike_ns]
    return [place for stage in slowest for place in stage.places]


def _unite_parts(rows: pl.DataFrame) -> tuple[int, int, int, int]:
    """Return the ns in which a rank waits for peers, for the pipeline, transfers, or does what is not split.

    Each moment counts once, for the first of these that any of its collectives does then.
    """
    start_ns, end_ns = rows["start_ns"].to_numpy(), rows["end_ns"].to_numpy()
    waited_ns = start_ns + rows["wait_ns"].fill_null(0).to_numpy()
    is_whole, is_pipeline = rows["is_whole"].to_numpy(), rows["is_pipeline"].to_numpy()
    parts = (
        (is_whole & ~is_pipeline, start_ns, waited_ns),
        (is_whole & is_pipeline, start_ns, waited_ns),
        (is_whole, waited_ns, end_ns),
        (~is_whole, start_ns, end_ns),
    )
    before, lengths_ns = make_spans(), [0]
    for chosen, from_ns, to_ns in parts:
        before = union(before, order_spans(from_ns[chosen], to_ns[chosen]))
        lengths_ns.append(length_ns(before))
    peers_ns, pipeline_ns, transfer_ns, unsplit_ns = np.diff(lengths_ns).tolist()
    return peers_ns, pipeline_ns, transfer_ns, unsplit_ns


def _waiting_order(member: RankWaits) -> tuple[bool, int, int]:
    """Sort key: ranks that wait least come first, those with unknown waiting last."""
    blocking_ns, wait_ns = member.blocking_peer_wait_ns, member.peer_wait_ns
    return blocking_ns is None, blocking_ns or 0, wait_ns or 0


def _charge_walls(rows: pl.DataFrame, ranks: JobRanks, late: tuple[Straggler, ...]) -> list[Times]:
    """Return the walls of deciding steps by rank, with waits for a late rank attributed to its cause."""
    charged = [own.walls.copy() for own in ranks.steps]
    wall_of = {
        place: one.cause_wall for one in reversed(late) if one.cause_wall is not None for place in one.places
    }
    if not wall_of:
        return charged
    waited = rows.select("meeting", "member", "input", "step", "is_whole", "is_last", "blocking_wait_ns")
    whole = waited.filter("is_whole")
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
    """Return the mean over ranks of the mean deciding step."""
    means = [own.mean(axis=0) for own in charged if len(own)]
    return Walls(*(round(float(part)) for part in np.mean(means, axis=0)))


_OF_KINDS = (
    "meeting", "member", "input", "step", "operation", "axis", "transfer_ns", "wait_ns", "bus_bytes",
    "is_whole",
)  # fmt: skip


def _summarize_collectives(
    rows: pl.DataFrame, steps: Sequence[StepSums], members: tuple[RankWaits, ...]
) -> JobCollectives:
    met = rows.select(_OF_KINDS).filter(pl.col("meeting").is_not_null())
    whole, partial = met.filter("is_whole"), met.filter(~pl.col("is_whole"))
    count = max(len(members), 1)
    return JobCollectives(
        matched=whole["meeting"].n_unique(),
        partial=partial["meeting"].n_unique(),
        unmatched=int(rows["meeting"].null_count()),
        transfer_ns=round(Fraction(sum(one.transfer_ns for one in members), count)),
        jitter_ns=round(Fraction(sum(one.peer_wait_ns or 0 for one in members), count)),
        pipeline_ns=round(Fraction(sum(one.pipeline_wait_ns for one in members), count)),
        kinds=_summarize_kinds(whole, steps),
    )


def _summarize_kinds(whole: pl.DataFrame, steps: Sequence[StepSums]) -> tuple[CollectiveWaits, ...]:
    ordinary = [
        own.ordinary.with_columns(pl.lit(member, pl.UInt32).alias("member"))
        for member, own in enumerate(steps)
    ]
    sized = whole.with_columns(size=pl.len().over("meeting")).drop("meeting", "is_whole")
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


_COMPUTE = [str(category) for category in ComputeCategory]


def group_ranks(profiles: Sequence[Profile], steps: Sequence[StepSums]) -> tuple[RankGroup, ...]:
    """Group the ranks by their compute: material kernels, and how often each runs per step."""
    alike: dict[object, list[int]] = {}
    for place, (profile, own) in enumerate(zip(profiles, steps, strict=True)):
        alike.setdefault(_fingerprint(profile, own), []).append(place)
    return tuple(_make_group(places, profiles, steps) for places in alike.values())


def _make_group(places: list[int], profiles: Sequence[Profile], steps: Sequence[StepSums]) -> RankGroup:
    known = {place: median for place in places if (median := steps[place].median_ns) is not None}
    middle = round(float(np.median(list(known.values())))) if known else None
    return RankGroup(
        places=tuple(places),
        ranks=tuple(profiles[place].header.rank for place in places),
        step_median_ns=middle,
        spread=(max(known.values()) - min(known.values())) / middle if middle else None,
        representative=min(known, key=lambda place: (abs(known[place] - (middle or 0)), place))
        if known
        else places[0],
    )


def _fingerprint(profile: Profile, steps: StepSums) -> object:
    """Return GPU, unit of work, and counts per step of the kernels over 1 % of a rank's compute."""
    ran = profile.work["key", "work_ns", "count"][rows_in_steps(steps.deciding, profile.work)]
    key = ran["key"].to_numpy()
    by_key = [
        pl.Series(name, sum_by_group(key, ran[name].to_numpy(), len(profile.keys)))
        for name in ("work_ns", "count")
    ]
    sums = (
        profile.keys.hstack(by_key)
        .filter(pl.col("category").is_in(_COMPUTE))
        .group_by("category", "name")
        .agg(pl.col("work_ns", "count").sum())
    )
    material = sums.filter(pl.col("work_ns") >= MATERIAL_SHARE * max(int(sums["work_ns"].sum()), 1))
    count = max(len(steps.deciding), 1)
    kernels = [(category, name, round(total / count)) for category, name, _, total in material.iter_rows()]
    return profile.header.work.gpu, profile.header.work.unit, tuple(sorted(kernels))
