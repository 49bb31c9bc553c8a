"""Ranks that do the same work, and who speaks for them."""

from collections.abc import Sequence

import numpy as np
import polars as pl

from wallscope.arrays.groups import summed
from wallscope.model.job import RankGroup
from wallscope.model.kinds import ComputeCategory
from wallscope.model.profile import Profile
from wallscope.ranks.typical import Steps, among
from wallscope.thresholds import MATERIAL_KERNEL_SHARE

_COMPUTE = [str(category) for category in ComputeCategory]


def groups(profiles: Sequence[Profile], steps: Sequence[Steps]) -> tuple[RankGroup, ...]:
    """The ranks grouped by what they compute: kernels that matter, and how often a step runs each."""
    alike: dict[object, list[int]] = {}
    for place, (profile, own) in enumerate(zip(profiles, steps, strict=True)):
        alike.setdefault(_fingerprint(profile, own), []).append(place)
    return tuple(_group(places, profiles, steps) for places in alike.values())


def _group(places: list[int], profiles: Sequence[Profile], steps: Sequence[Steps]) -> RankGroup:
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


def _fingerprint(profile: Profile, steps: Steps) -> object:
    """GPU and unit of work, and the kernels over 1 % of what a rank computes, with how many a step has."""
    ran = profile.work["key", "work_ns", "count"][among(steps.deciding, profile.work)]
    key = ran["key"].to_numpy()
    by_key = [
        pl.Series(name, summed(key, ran[name].to_numpy(), len(profile.keys))) for name in ("work_ns", "count")
    ]
    sums = (
        profile.keys.hstack(by_key)
        .filter(pl.col("category").is_in(_COMPUTE))
        .group_by("category", "name")
        .agg(pl.col("work_ns", "count").sum())
    )
    material = sums.filter(pl.col("work_ns") >= MATERIAL_KERNEL_SHARE * max(int(sums["work_ns"].sum()), 1))
    count = max(len(steps.deciding), 1)
    kernels = [(category, name, round(total / count)) for category, name, _, total in material.iter_rows()]
    return profile.header.work.gpu, profile.header.work.unit, tuple(sorted(kernels))
