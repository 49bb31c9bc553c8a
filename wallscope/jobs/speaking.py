"""The diagnosis of the rank that speaks for a job, told again once what it waits for is known."""

from dataclasses import replace

import polars as pl

from wallscope.advice.advise import update_fixes
from wallscope.model.analysis import Analysis
from wallscope.model.diagnosis import Diagnosis
from wallscope.model.profile import Profile
from wallscope.ranks import Together
from wallscope.walls.diagnosis import decided, wall_shares
from wallscope.walls.opportunities import divided
from wallscope.walls.verdict import verdict, working

_BETWEEN_RANGES = " / "


def told_again(analysis: Analysis, known: Together) -> Analysis:
    """The answer about a job with verdict, ceilings and fixes by the causes that its ranks have now.

    It speaks of the critical rank, also where an export of several told of another one; then what comes next
    and memory pressure are not known, and of fixes those are listed that answered the other rank too.
    """
    shown = _speaking_of(analysis, known)
    place = shown.diagnosis.rank_index
    rank, profile, steps = shown.ranks[place], known.profiles[place], known.steps[place]
    won = divided(analysis.opportunities, rank)
    decision = decided(steps.walls, steps.open_ns(profile))
    said = verdict(rank, shown.anchor, decision, won, shown.diagnosis.next_wall)
    again = replace(shown, diagnosis=replace(shown.diagnosis, verdict=said), opportunities=won)
    return update_fixes(again, _names(profile))


def _speaking_of(analysis: Analysis, known: Together) -> Analysis:
    """The answer with the diagnosis of the critical rank, if that one works."""
    place = known.job.critical_place
    rank, steps = analysis.ranks[place], known.steps[place]
    if place == analysis.diagnosis.rank_index or not any(rank is one for one in working(analysis.ranks)):
        return analysis
    decision = decided(steps.walls, steps.open_ns(known.profiles[place]))
    diagnosis = Diagnosis(
        dominant_wall=decision.dominant,
        verdict="",
        runner_up=str(decision.runner_up),
        margin=decision.margin,
        led_steps=decision.led_steps,
        steady_steps=steps.steady,
        walls=wall_shares(steps.walls, rank.typical.walls, steady=steps.steady > 0),
        rank_index=place,
    )
    return replace(analysis, diagnosis=diagnosis)


def _names(profile: Profile) -> pl.Series:
    """Names of the kernels and ranges that a profile knows."""
    ranges = profile.keys["path"].unique().str.split(_BETWEEN_RANGES).explode()
    return pl.concat([profile.keys["name"], ranges.alias("name")]).unique().sort()
