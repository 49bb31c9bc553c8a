"""A time of the typical step from commit to commit."""

from collections.abc import Sequence

import polars as pl
from rich.console import Group, RenderableType
from rich.text import Text

from wallscope import units
from wallscope.model.record import Record
from wallscope.render.colours import COMPUTE
from wallscope.render.foreign import visible
from wallscope.render.grids import bar, grid

HISTORY = pl.Schema(
    {
        "testbed": pl.String(),
        "commit": pl.String(),
        "recorded_utc_ns": pl.Int64(),
        "runs": pl.Int64(),
        "steps": pl.Int64(),
        "median_ns": pl.Int64(),
        "change": pl.Float64(),  # against the reference before, on the same testbed
        "origin": pl.String(),  # null for a reference
    }
)


def rows(records: Sequence[Record], metric: str) -> pl.DataFrame:
    """A row a testbed, commit and origin, in the order of recording (`HISTORY`), of several runs the median.

    Changes are against the reference before: a pull request's runs are measured, and measure nothing.
    """
    listed = pl.DataFrame(
        [
            (
                str(entry.testbed),
                entry.commit,
                entry.recorded_utc_ns,
                entry.metric_ns(metric),
                entry.speaking.steps,
                entry.origin,
            )
            for entry in records
        ],
        schema={
            "testbed": pl.String,
            "commit": pl.String,
            "recorded_utc_ns": pl.Int64,
            "ns": pl.Int64,
            "steps": pl.Int64,
            "origin": pl.String,
        },
        orient="row",
    )
    by_commit = listed.group_by("testbed", "commit", "origin").agg(
        pl.col("recorded_utc_ns").min(),
        runs=pl.len(),
        steps=pl.col("steps").sum(),
        median_ns=pl.col("ns").median().round(0),
    )
    ordered = by_commit.sort("testbed", "recorded_utc_ns", "commit", "origin")
    references_ns = pl.when(pl.col("origin").is_null()).then(pl.col("median_ns"))
    before = references_ns.shift(1).forward_fill().over("testbed")
    change = pl.when(before > 0).then(pl.col("median_ns") / before - 1)
    return ordered.with_columns(change=change).select(HISTORY.names()).cast(HISTORY)


def history_table(frame: pl.DataFrame, metric: str) -> RenderableType:
    """The rows testbed by testbed, with a bar each, or the origin of what is no reference."""
    parts: list[RenderableType] = []
    longest_ns = max(int(frame["median_ns"].to_numpy().max()), 1)
    for own in frame.partition_by("testbed", maintain_order=True):
        if parts:
            parts.append(Text())
        parts.append(Text(f"{visible(metric)} · {visible(own['testbed'][0])}", style="bold"))
        table = grid("commit", "recorded", "runs", "time", "change", "")
        for row in own.iter_rows(named=True):
            table.add_row(
                row["commit"][:12],
                units.utc(row["recorded_utc_ns"])[:16],
                units.number(row["runs"]),
                units.milliseconds(row["median_ns"]),
                "" if row["change"] is None else units.signed_percent(row["change"]),
                bar(row["median_ns"] / longest_ns, COMPUTE)
                if row["origin"] is None
                else visible(row["origin"]),
            )
        parts.append(table)
    return Group(*parts)
