"""Pipelines: which ranks hand on to which, in what order, and how long each stage waits for the others."""

from collections import defaultdict, deque
from collections.abc import Sequence

import polars as pl

from wallscope.model.job import PipelineStage
from wallscope.model.profile import Profile
from wallscope.ranks.typical import Steps


def stages(rows: pl.DataFrame, profiles: Sequence[Profile]) -> dict[int, int]:
    """The stage of each member that hands on or is handed to, from 0, by split collectives.

    The first stage of a pipeline is the end of it whose steps begin first; the others follow by neighbours.
    """
    pairs = (
        rows.filter(pl.col("is_pipeline") & pl.col("is_whole"))
        .group_by("meeting")
        .agg(pl.col("member").unique().sort())
        .filter(pl.col("member").list.len() > 1)["member"]
        .unique(maintain_order=True)
    )
    beside: defaultdict[int, set[int]] = defaultdict(set)
    for members in pairs.to_list():
        for one in members:
            beside[one] |= set(members) - {one}
    middle = min((len(profiles[member].steps) for member in beside), default=0) // 2
    begins = {member: _begin_ns(rows, member, profiles[member], middle) for member in beside}
    found: dict[int, int] = {}
    for first in sorted(beside, key=lambda member: (len(beside[member]) > 1, begins[member], member)):
        if first in found:
            continue
        found[first] = 0
        waiting = deque([first])
        while waiting:
            one = waiting.popleft()
            for other in sorted(beside[one] - found.keys()):
                found[other] = found[one] + 1
                waiting.append(other)
    return found


def _begin_ns(rows: pl.DataFrame, member: int, profile: Profile, step: int) -> float:
    """When a step of a member begins on the clock of the job."""
    shift = rows.filter(pl.col("member") == member).select((pl.col("start_ns") - pl.col("told_ns")).median())
    return float(profile.steps["start_ns"].sort()[step]) + float(shift.item())


def pipeline(
    rows: pl.DataFrame, stage_of: dict[int, int], profiles: Sequence[Profile], steps: Sequence[Steps]
) -> tuple[PipelineStage, ...]:
    """The stages: what each computes and how long its chains wait for the pipeline, means of its ranks."""
    waits = rows.filter(pl.col("is_pipeline") & pl.col("is_whole"))
    listed = []
    for stage in sorted(set(stage_of.values())):
        members = tuple(sorted(member for member, own in stage_of.items() if own == stage))
        bubble = [
            steps[member].mean_ns(waits.filter(pl.col("member") == member), "blocking_wait_ns")
            for member in members
        ]
        walls = [steps[member].typical_walls(profiles[member]) for member in members]
        step_ns = sum(sum(own.parts()) for own in walls)
        listed.append(
            PipelineStage(
                stage=stage,
                places=members,
                compute_ns=round(sum(own.compute for own in walls) / len(members)),
                bubble_ns=round(sum(bubble) / len(members)),
                bubble_share=sum(bubble) / step_ns if step_ns else 0.0,
            )
        )
    return tuple(listed)
