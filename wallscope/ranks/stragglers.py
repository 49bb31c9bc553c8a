"""Ranks that hold a job up: always, or in turns; with what made them late."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import polars as pl

from wallscope.model.job import PipelineStage, RankGroup, Reason, Straggler
from wallscope.model.kinds import Wall
from wallscope.model.profile import Profile
from wallscope.ranks.lateness import MORE
from wallscope.ranks.reasons import Side, Why, why
from wallscope.ranks.typical import Steps
from wallscope.thresholds import (
    FEWEST_LATE_STEPS_COUNT,
    LATE_IN_TURN_SHARE,
    LATE_OF_ALL_SHARE,
    LATE_SHARE,
    LATE_STEPS_SHARE,
    UNEVEN_STAGES_SHARE,
)
from wallscope.units import percent


@dataclass(frozen=True, slots=True)
class Ranks:
    """What ranks are told from: profiles, their steps, groups of like ones, who met whom, `CHARGES`.

    `names` are for people; `noise_ns` is how far the clocks leave the ends of one collective apart.
    """

    profiles: Sequence[Profile]
    steps: Sequence[Steps]
    groups: tuple[RankGroup, ...]
    met: Mapping[int, frozenset[int]]
    charges: pl.DataFrame
    noise_ns: int
    names: Sequence[str]

    def side(self, place: int) -> Side:
        """A rank with the steps that speak for it."""
        return Side(self.profiles[place], self.steps[place].deciding)

    def like(self, place: int) -> list[int]:
        """The ranks that do the same as one, those that it meets first; all that it meets, if none does."""
        (group,) = (group for group in self.groups if place in group.places)
        met = self.met.get(place, frozenset())
        same = [other for other in group.places if other != place]
        same.sort(key=lambda other: (other not in met, other))
        return [other for other in same if other in met] or same or sorted(met)


def stragglers(ranks: Ranks) -> tuple[Straggler, ...]:
    """The ranks that others wait for, the worst first.

    Repeated: net lateness is at least 1 % of the step on two thirds of the steps. In turn: at least 5 % on
    some, and 0.4 % of all time together.
    """
    found = [one for place in range(len(ranks.profiles)) if (one := _judged(ranks, place)) is not None]
    return tuple(sorted(found, key=lambda one: (not one.repeated, -one.late_ns_median, one.place)))


def _judged(ranks: Ranks, place: int) -> Straggler | None:
    steps = ranks.steps[place]
    own = ranks.charges.filter(pl.col("member") == place)
    table = steps.deciding.join(own, on=["input", "step"], how="left", maintain_order="left")
    late_ns = table["late_ns"].fill_null(0).to_numpy()
    net_ns = late_ns - table["waits_ns"].fill_null(0).to_numpy()
    count, usual_ns = len(table), float(np.median(steps.length_ns)) if len(table) else 0.0
    is_late = net_ns >= max(LATE_SHARE * usual_ns, ranks.noise_ns)
    repeated = count >= FEWEST_LATE_STEPS_COUNT and is_late.sum() >= LATE_STEPS_SHARE * count
    if not repeated:
        is_late = net_ns >= max(LATE_IN_TURN_SHARE * usual_ns, ranks.noise_ns)
        if not is_late.any() or net_ns[is_late].sum() < LATE_OF_ALL_SHARE * steps.length_ns.sum():
            return None
    in_question = table.filter(pl.Series(is_late))
    more_ns = {
        wall: int(in_question[name].sum()) // len(in_question) for wall, name in zip(Wall, MORE, strict=True)
    }
    told = _reason(ranks, place, in_question, more_ns, repeated=bool(repeated))
    return Straggler(
        place=place,
        rank=ranks.profiles[place].header.rank,
        name=ranks.names[place],
        repeated=bool(repeated),
        late_ns_median=round(float(np.median(late_ns[is_late]))),
        late_steps=int(is_late.sum()),
        steps=count,
        cause_wall=told.wall,
        cause=told.cause,
        reason=told.reason,
        ratio=told.ratio,
        why=told.sentence,
    )


def _reason(
    ranks: Ranks, place: int, late: pl.DataFrame, more_ns: Mapping[Wall, int], *, repeated: bool
) -> Why:
    """One that is always late is laid beside its peers, one that is late in turn beside its other steps.

    What kept it until its first collective may lie at the end of the step before: a step begins with its
    first kernel.
    """
    profile, steps = ranks.profiles[place], late.select("input", "step")
    peers = [ranks.side(other) for other in ranks.like(place)]
    if repeated:
        return why(Side(profile, steps), peers, more_ns)
    every = ranks.steps[place].deciding
    told = []
    for own in (steps, _before(steps, every)):
        rest = every.join(own, on=["input", "step"], how="anti")
        told.append(why(Side(profile, own), [Side(profile, rest)] if len(rest) else peers, more_ns))
    return max(told, key=lambda one: (one.cause is not None, one.over_ns))


def _before(steps: pl.DataFrame, every: pl.DataFrame) -> pl.DataFrame:
    """The step before each, of those that decide; the steps themselves where there is none."""
    following = every.sort("input", "step").with_columns(
        pl.struct("input", "step").shift(-1).over("input").alias("next")
    )
    found = following.join(steps, left_on="next", right_on=pl.struct("input", "step"), how="semi")
    return found.select("input", "step") if len(found) else steps


def slow_stages(ranks: Ranks, pipeline: tuple[PipelineStage, ...]) -> tuple[Straggler, ...]:
    """The ranks of a stage that computes at least 3 % of the step more than the others, and waits least."""
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
    beside = [ranks.side(place) for stage in others for place in stage.places]
    found = []
    for place in slowest.places:
        told = why(ranks.side(place), beside, {Wall.COMPUTE: round(over_ns)})
        is_other = told.reason is not Reason.SLOWER_KERNELS
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
                cause=told.cause,
                reason=Reason.OTHER_WORK if is_other else told.reason,
                ratio=slowest.compute_ns / usual_ns if usual_ns else None,
                why=f"stage {slowest.stage} of the pipeline computes {percent(over_ns / step_ns)} more than"
                f" the others: {told.sentence}",
            )
        )
    return tuple(found)
