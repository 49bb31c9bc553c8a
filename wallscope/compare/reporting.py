"""What a comparison is looked at with: every step of both sides."""

from collections.abc import Sequence
from fractions import Fraction

import polars as pl

from wallscope.compare.comparing import Side
from wallscope.compare.ranks import paired
from wallscope.compare.typical import deciding
from wallscope.model.comparison import Comparison
from wallscope.model.kinds import Wall
from wallscope.model.profile import Profile
from wallscope.model.report import SIDE_STEPS, ComparisonReport, SideSteps

_WALLS = tuple(f"{wall}_wall_ns" for wall in Wall)


def comparison_report(found: Comparison, base: Side, head: Side, rank: int | None) -> ComparisonReport:
    """The comparison with the steps of the rank that speaks; `rank` is the one that was asked for."""
    pairing = paired(base.runs, head.runs, rank)
    return ComparisonReport(
        found, _side(pairing.base, found.step.tokens), _side(pairing.head, found.step.tokens)
    )


def _side(profiles: Sequence[Profile], tokens: int | None) -> SideSteps:
    header = profiles[0].header
    own = header.work.tokens_per_step
    scale = Fraction(1) if tokens is None or own is None else Fraction(tokens, own)
    return SideSteps(
        header.work,
        tuple(entry for profile in profiles for entry in profile.header.inputs),
        pl.concat([_steps(run, profile, scale) for run, profile in enumerate(profiles)]),
    )


def _steps(run: int, profile: Profile, scale: Fraction) -> pl.DataFrame:
    chosen = deciding(profile).select("input", "step", counts=pl.lit(True))
    steps = profile.steps.join(chosen, on=["input", "step"], how="left").sort("input", "start_ns")
    scaled = (
        steps if scale == 1 else steps.with_columns((pl.col(_WALLS) * float(scale)).round().cast(pl.Int64))
    )
    return (
        scaled.with_columns(
            run=pl.lit(run),
            length_ns=pl.sum_horizontal(_WALLS),
            counts=pl.col("counts").fill_null(value=False),
        )
        .with_columns(reason=pl.when(~pl.col("counts")).then(pl.col("reason").fill_null("unknown")))
        .select(SIDE_STEPS.names())
        .cast(SIDE_STEPS)
    )
