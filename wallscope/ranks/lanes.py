"""One step as its ranks met: when each came to each collective, how long it waited, how long bytes moved."""

from collections.abc import Sequence

import numpy as np
import polars as pl

from wallscope.model.report import MEETING_LANES
from wallscope.ranks.job import Together

_MOST_RANKS, _MOST_ROWS = 24, 2_400
_OF_A_KIND = 6


def lanes(known: Together) -> pl.DataFrame:
    """The collectives of some ranks (`MEETING_LANES`) while one made a step; empty where none was matched.

    It is the step of the worst late rank that is as late as it mostly is, else an ordinary one of the
    critical rank. Shown are late ranks, those that speak for groups, and those that they meet.
    """
    whole = known.rows.filter("is_whole")
    if whole.is_empty():
        return MEETING_LANES.to_frame()
    stragglers = known.job.stragglers
    place = stragglers[0].place if stragglers else known.job.critical_place
    chosen = _step(known, whole, place)
    met = whole.filter(pl.col("meeting").is_in(chosen["meeting"].implode()))
    begin_ns, until_ns = met.select(pl.col("start_ns").min(), pl.col("end_ns").max()).row(0)
    shown = _shown(known, place, met["member"].unique().to_list())
    rows = known.rows.filter(
        pl.col("member").is_in(shown)
        & (pl.col("start_ns") <= until_ns)
        & (pl.col("end_ns") >= begin_ns)
        & pl.col("is_tied").fill_null(value=False)
    ).sort("start_ns", "row")
    last = known.rows.filter(pl.col("is_last")).select("meeting", last="member")
    counts = known.rows.group_by("meeting").agg(ranks=pl.len()).drop_nulls("meeting")
    return (
        rows.head(_MOST_ROWS)
        .join(last, on="meeting", how="left", maintain_order="left")
        .join(counts, on="meeting", how="left", maintain_order="left")
        .with_columns(pl.col("start_ns", "end_ns") - begin_ns)
        .select(MEETING_LANES.names())
        .cast(MEETING_LANES)
    )


def _step(known: Together, whole: pl.DataFrame, place: int) -> pl.DataFrame:
    """The collectives of a rank in the step that stands for how late it is."""
    own = whole.filter((pl.col("member") == place) & pl.col("step").is_not_null())
    if own.is_empty():
        return whole.sort("start_ns").head(1)
    steps = known.steps[place].deciding
    sums = (
        whole.filter(pl.col("meeting").is_in(own.filter("is_last")["meeting"].implode()) & ~pl.col("is_last"))
        .group_by("meeting")
        .agg(waited=pl.col("wait_ns").median())
    )
    late = own.join(sums, on="meeting", how="left").group_by("input", "step").agg(pl.col("waited").sum())
    by_step = late.join(steps, on=["input", "step"]).sort("input", "step")
    if by_step.is_empty():
        by_step = late.sort("input", "step")
    waited = by_step["waited"].fill_null(0).to_numpy()
    is_late = waited > 0
    told = [one.late_ns_median for one in known.job.stragglers if one.place == place]
    usual = float(told[0] if told else np.median(waited[is_late]) if is_late.any() else 0.0)
    nearest = int(np.abs(np.where(is_late | ~is_late.any(), waited, np.inf) - usual).argmin())
    return own.join(by_step[nearest : nearest + 1].select("input", "step"), on=["input", "step"])


def _shown(known: Together, place: int, met: Sequence[int]) -> list[int]:
    late = [one.place for one in known.job.stragglers[:_OF_A_KIND]]
    speaking = [group.representative for group in known.job.groups[:_OF_A_KIND]]
    wanted = [place, *late, known.job.critical_place, *speaking, *sorted(met), *range(known.job.ranks)]
    return sorted(list(dict.fromkeys(wanted))[:_MOST_RANKS])
