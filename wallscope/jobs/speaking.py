"""The diagnosis of the rank that speaks for a job, told again once what it waits for is known."""

from dataclasses import replace

import polars as pl

from wallscope.fixes import with_divided_fixes
from wallscope.model.analysis import Analysis
from wallscope.model.profile import Profile
from wallscope.ranks import Together
from wallscope.walls.diagnosis import decided
from wallscope.walls.opportunities import divided
from wallscope.walls.verdict import verdict

_BETWEEN_RANGES = " / "


def told_again(analysis: Analysis, known: Together) -> Analysis:
    """The answer about a job with verdict, ceilings and fixes by the causes that its ranks have now."""
    place = analysis.diagnosis.rank_index
    rank, profile, steps = analysis.ranks[place], known.profiles[place], known.steps[place]
    won = divided(analysis.opportunities, rank)
    decision = decided(steps.walls, steps.open_ns(profile))
    said = verdict(rank, analysis.anchor, decision, won, analysis.diagnosis.next_wall)
    again = replace(analysis, diagnosis=replace(analysis.diagnosis, verdict=said), opportunities=won)
    return with_divided_fixes(again, _names(profile))


def _names(profile: Profile) -> pl.Series:
    """Names of the kernels and ranges that a profile knows."""
    ranges = profile.keys["path"].unique().str.split(_BETWEEN_RANGES).explode()
    return pl.concat([profile.keys["name"], ranges.alias("name")]).unique().sort()
