"""What an export holds, what a word means, and how a time went from commit to commit, on a terminal."""

from collections.abc import Iterator, Sequence

import polars as pl

from wallscope import units
from wallscope.model.advice import WordExplanation
from wallscope.model.capture import Contents, Gpu
from wallscope.model.enums import Wall
from wallscope.model.record import Record
from wallscope.model.section import (
    Cell,
    Column,
    Grid,
    Lines,
    Row,
    Section,
    Span,
    on_terminal,
    tabulate,
)
from wallscope.render.foreign import visible
from wallscope.views.sections.findings import build_findings

_UNKNOWN = "unknown"
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


def build_explanation(found: WordExplanation) -> Iterator[Section]:
    """Make the word and its meaning; a section each for the rest."""
    head = (Span(visible(found.word), "strong"), f" ({found.kind}): {found.meaning}")
    yield Section("head", "", "", (Lines((head,)),))
    yield from (Section("part", one.heading, "", (Lines(one.lines),)) for one in found.sections)


def build_contents(contents: Contents) -> Iterator[Section]:
    """Make identity, tables with row counts, and limits of an export."""
    columns = (Column("fact", "", wrap="fixed", tone="dim"), Column("value", "", wrap="words"))
    yield Section("facts", "", "", (Grid("", columns, tuple(_list_facts(contents)), has_header=False),))
    yield Section("tables", "", "", tuple(_list_tables(contents)))
    yield build_findings(contents.findings)


def _list_facts(contents: Contents) -> Iterator[Row]:
    export = contents.export
    yield "export", f"{visible(export.name, most=100)}, {units.size(export.size_bytes)}"
    yield "nsys", f"{export.nsys_version or _UNKNOWN}, schema {export.schema_version or _UNKNOWN}"
    yield "host", export.hostname or _UNKNOWN
    yield "session start", units.utc(export.session_start_utc_ns)
    yield "captured", units.duration(contents.duration_ns)
    yield "traced", ", ".join(contents.traced) or _UNKNOWN
    yield "CUDA graphs", f"traced by {contents.graph_mode}" if contents.graph_mode else _UNKNOWN
    calling = contents.processes
    count = _UNKNOWN if calling is None else f"{units.plural(calling, 'process')} with CUDA calls"
    yield "processes", count
    yield "GPUs", tuple(_describe_gpu(gpu) for gpu in export.gpus) or _UNKNOWN
    environment = tuple(f"{name}={value}" for name, value in export.environment.items())
    yield "environment", environment or "none of the variables that are read"


def _describe_gpu(gpu: Gpu) -> str:
    return (
        f"{gpu.id}: {gpu.name or _UNKNOWN}, {gpu.architecture or _UNKNOWN},"
        f" {units.number(gpu.sm_count)} SMs, {units.size(gpu.memory_bytes)}"
    )


def _list_tables(contents: Contents) -> Iterator[Grid | Lines]:
    columns = (
        on_terminal("row_count", "rows", "count", is_right=True, wrap="fixed"),
        on_terminal("rows_are", "of"),
        on_terminal("table", "table", wrap="fold", tone="dim"),
    )
    yield tabulate("", columns, [entry for entry in contents.tables if entry.row_count is not None])
    missing = [entry.rows_are for entry in contents.tables if entry.row_count is None]
    if missing:
        yield Lines((f"Not captured or not exported: {', '.join(missing)}.",))
    yield Lines((f"{units.plural(contents.other_tables, 'other table')} in the file.",), "dim")


def build_history(frame: pl.DataFrame, metric: str) -> Iterator[Section]:
    """Make the rows testbed by testbed, with a bar each, or the origin of what is no reference."""
    longest_ns = max(int(frame["median_ns"].to_numpy().max()), 1)

    def share(row: dict[str, int]) -> Cell:
        return Cell(row["median_ns"] / longest_ns, Wall.COMPUTE)

    columns = (
        on_terminal("commit", "commit", value=lambda row: row["commit"][:12]),
        on_terminal("recorded", "recorded", "plain", "", lambda row: units.utc(row["recorded_utc_ns"])[:16]),
        on_terminal("runs", "runs", "count", "", lambda row: row["runs"]),
        on_terminal("time", "time", "ms", "", lambda row: row["median_ns"]),
        on_terminal("change", "change", "signed_percent", "", lambda row: row["change"], none=""),
        on_terminal(
            "bar",
            "",
            "bar",
            "",
            lambda row: share(row) if row["origin"] is None else row["origin"],
            most=200,
            is_right=True,
        ),
    )
    for own in frame.partition_by("testbed", maintain_order=True):
        title = f"{visible(metric)} · {visible(own['testbed'][0])}"
        table = tabulate("", columns, own.iter_rows(named=True))
        yield Section("testbed", "", "", (Lines(((Span(title, "strong"),),)), table))


def list_times(records: Sequence[Record], metric: str) -> pl.DataFrame:
    """List a row a testbed, commit and origin, in order of recording (`HISTORY`), of several runs the median.

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
