"""Pipelines: which ranks hand on to which, in what order, and how long each stage waits for the others."""

from collections import defaultdict, deque
from collections.abc import Sequence

import polars as pl

from wallscope.model.job import PipelineStage
from wallscope.model.profile import Profile
from wallscope.ranks.typical import Steps


def stages(rows: pl.DataFrame) -> dict[int, int]:
    """The stage of each member that hands on or is handed to, from 0, by split collectives.

    The first stage of a pipeline is the end of it that waits least for the first message of its steps; the
    others follow by neighbours.
    """
    pairs = (
        rows.filter(pl.col("is_pipeline") & pl.col("is_whole"))
        .group_by("meeting")
        .agg(pl.col("member").unique().sort())
        .filter(pl.col("member").list.len() > 1)["member"]
        .unique()
    )
    beside: defaultdict[int, set[int]] = defaultdict(set)
    for members in pairs.to_list():
        for one in members:
            beside[one] |= set(members) - {one}
    waits = {member: _first_wait_ns(rows, member) for member in beside}
    found: dict[int, int] = {}
    for first in sorted(beside, key=lambda member: (len(beside[member]) > 1, waits[member], member)):
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


def _first_wait_ns(rows: pl.DataFrame, member: int) -> float:
    """How long a member waits for the first message of a step, in the median."""
    own = rows.filter((pl.col("member") == member) & pl.col("is_pipeline") & pl.col("step").is_not_null())
    first = own.sort("start_ns", "row").group_by("input", "step", maintain_order=True).first()
    found = first["wait_ns"].median()
    return found if isinstance(found, float) else 0.0


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
