"""Who came late to collectives, by how much, and which wall kept it.

A meeting is charged to its last participant: by the middle one of the waits that it puts on the binding
chains of the others. A rank's net lateness in a step is what it is charged less what it waits itself; only
who is ahead in that holds the job up, however much all wait for each other now and then.
"""

import polars as pl

from wallscope.model.kinds import Wall
from wallscope.ranks.gathering import AT, OUT

SINCE = tuple(f"since_{wall}_ns" for wall in Wall)
_BY_STEP = ("member", "input", "step")

CHARGES = pl.Schema(
    {
        "member": pl.UInt32(),
        "input": pl.UInt32(),
        "step": pl.UInt32(),
        "late_ns": pl.Int64(),  # that others wait for it
        "waits_ns": pl.Int64(),  # that it waits for others
        **dict.fromkeys((f"more_{wall}_ns" for wall in Wall), pl.Int64()),
    }
)
"""A row for each step in which a rank met others; `more` is what it did longer than they did before."""

MORE = tuple(name for name in CHARGES.names() if name.startswith("more_"))


def charges(rows: pl.DataFrame) -> pl.DataFrame:
    """The charges (`CHARGES`) of collectives that were split (`waits.split`); pipelines wait by design."""
    met = _since_last(rows).filter(pl.col("is_whole") & ~pl.col("is_pipeline") & pl.col("step").is_not_null())
    if met.is_empty():
        return CHARGES.to_frame()
    is_other = ~pl.col("is_last")
    of_others = (
        met.filter(is_other)
        .group_by("meeting")
        .agg(late_ns=pl.col("blocking_wait_ns").median(), **{name: pl.col(name).median() for name in SINCE})
    )
    last = met.filter("is_last").join(of_others, on="meeting", suffix="_others", maintain_order="left")
    is_late = pl.col("late_ns") > 0
    late = last.group_by(_BY_STEP, maintain_order=True).agg(
        pl.col("late_ns").sum(),
        *(
            (pl.col(since) - pl.col(f"{since}_others")).filter(is_late).sum().alias(more)
            for since, more in zip(SINCE, MORE, strict=True)
        ),
    )
    waiting = met.group_by(_BY_STEP, maintain_order=True).agg(waits_ns=pl.col("blocking_wait_ns").sum())
    return (
        waiting.join(late, on=_BY_STEP, how="left")
        .with_columns(pl.col("late_ns", *MORE).fill_null(0).round())
        .sort(_BY_STEP)
        .select(CHARGES.names())
        .cast(CHARGES)
    )


def _since_last(rows: pl.DataFrame) -> pl.DataFrame:
    """What each wall owned of a rank since its group last met: from the end of that, or its begin if later.

    Null for the first meeting of a group.
    """
    by = ("member", "input", "group")
    ordered = rows.sort("member", "input", "start_ns", "row")
    follows = pl.col("end_ns").shift().over(by) <= pl.col("start_ns")
    return ordered.with_columns(
        (
            pl.col(at)
            - pl.when(follows).then(pl.col(out).shift().over(by)).otherwise(pl.col(at).shift().over(by))
        ).alias(since)
        for at, out, since in zip(AT, OUT, SINCE, strict=True)
    )
