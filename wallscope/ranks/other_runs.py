"""Find captures of another run among those of a job: a restart has communicators of its own.

That two captures have no communicator in common proves little where ranks were not captured. It does if a
communicator needs more members than there are such ranks.
"""

from collections import Counter
from collections.abc import Sequence

import polars as pl

from wallscope.model.enums import Axis
from wallscope.model.profile import Profile
from wallscope.ranks.match_collectives import Unions


def find_other_runs(captures: Sequence[Sequence[Profile]], world_size: int | None) -> list[int]:
    """Return which captures belong to another run than most ranks do; none where no run has most ranks.

    Args:
        captures: the profiles of the ranks of each.
        world_size: number of ranks of the job, if known.
    """
    if world_size is None or len(captures) < 2:
        return []
    known = _gather_communicators(captures)
    runs = Unions()
    for places in known.group_by("communicator").agg(pl.col("capture").unique())["capture"].to_list():
        runs.add(places)
    run_of = {place: runs.find_first(place) for place in known["capture"].unique().to_list()}
    ranks: Counter[int] = Counter()
    for place, run in run_of.items():
        ranks[run] += len(captures[place])
    if len(ranks) < 2:
        return []
    (most, count) = max(ranks.items(), key=lambda entry: (entry[1], -entry[0]))
    if 2 * count <= ranks.total():
        return []
    lacking = max(world_size - _count_ranks(captures), 0)
    own_run = pl.col("capture").replace_strict(run_of, return_dtype=pl.UInt32)
    sized = known.group_by("communicator", maintain_order=True).agg(
        own_run.first().alias("run"),
        pl.col("axis").first(),
        pl.col("participants").max(),
        members=pl.struct("capture", "rank").n_unique(),
    )
    usual = sized.filter((pl.col("run") == most) & (pl.col("axis") != Axis.UNKNOWN)).group_by("axis")
    expected = sized.join(usual.agg(usual=pl.col("members").max()), on="axis", how="left")
    further = pl.coalesce("participants", "usual") - pl.col("members")
    apart = set(expected.filter(further > lacking)["run"].to_list()) - {most}
    return sorted(place for place, run in run_of.items() if run in apart)


def _gather_communicators(captures: Sequence[Sequence[Profile]]) -> pl.DataFrame:
    """Return the communicators of each rank of each capture, with their axis and size."""
    frames = [
        profile.collectives.filter(pl.col("communicator").is_not_null())
        .group_by("communicator", maintain_order=True)
        .agg(pl.col("axis").first(), pl.col("participants").max())
        .with_columns(capture=pl.lit(place, pl.UInt32), rank=pl.lit(number, pl.UInt32))
        for place, profiles in enumerate(captures)
        for number, profile in enumerate(profiles)
    ]
    return pl.concat(frames)


def _count_ranks(captures: Sequence[Sequence[Profile]]) -> int:
    """Return how many different ranks there are."""
    numbers = [profile.header.rank for profiles in captures for profile in profiles]
    return len({number for number in numbers if number is not None}) + numbers.count(None)
