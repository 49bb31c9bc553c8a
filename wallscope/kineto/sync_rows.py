"""Waits and event records from `cuda_sync` rows, joined with the calls that made them.

Such rows exist only if the profiler was configured to record them. They name the record of an event by the
correlation of its call, -1 if the profiler did not see it: always from CUDA 12.9 on. Up to 2026-04 it may
name a later record, so a record whose call began after the wait is ignored.
"""

import polars as pl

from wallscope.kineto.event_tables import TraceTables
from wallscope.model.schemas import EVENTS, SYNCS, SyncKind
from wallscope.nsys.calls import Calls

_KINDS = {
    "Stream Sync": SyncKind.STREAM,
    "Event Sync": SyncKind.EVENT,
    "Context Sync": SyncKind.CONTEXT,
    "Stream Wait Event": SyncKind.WAIT,
}
_RECORD_CALL = r"EventRecord"


def build_syncs(
    tables: TraceTables, processes: pl.Series, threads: pl.DataFrame, made: Calls, start_ns: int
) -> pl.DataFrame:
    """Return the waits (`SYNCS`); `processes` has the process of each `cuda_sync` row."""
    rows = tables.frames["syncs"].with_columns(processes, correlationId="correlation")
    if rows.is_empty():
        return SYNCS.to_frame()
    rows = rows.with_columns(made.find_issuing(rows), row=pl.int_range(pl.len()))
    rows = _with_call(rows, made).with_columns(
        kind=pl.col("sync_kind").replace_strict(
            {name: str(kind) for name, kind in _KINDS.items()}, default=None, return_dtype=SYNCS["kind"]
        ),
        start_ns=pl.col("start") - start_ns,
        end_ns=pl.col("end") - start_ns,
        stream=_known("stream"),
        event=_known("wait_event"),
        record=_known("wait_record"),
    )
    records = _record_calls(threads, made).select("process", record="correlation", recorded_ns="start_ns")
    return (
        rows.join(records, on=["process", "record"], how="left", maintain_order="left")
        .with_columns(
            event_sync=pl.when(
                pl.col("recorded_ns") <= pl.coalesce("called_ns", "start_ns")
            ).then("record")
        )
        .drop_nulls("kind")
        .sort("process", "start_ns", maintain_order=True)
        .select(SYNCS.names())
        .cast(SYNCS)
    )  # fmt: skip


def build_events(
    tables: TraceTables, processes: pl.Series, threads: pl.DataFrame, made: Calls
) -> pl.DataFrame:
    """Return the records (`EVENTS`): all calls that make one; stream and event if a wait names them."""
    waits = tables.frames["syncs"].with_columns(processes)
    if waits.is_empty():
        return EVENTS.to_frame()
    named = (
        waits.with_columns(correlation=_known("wait_record"), stream=_known("wait_stream"))
        .drop_nulls(["correlation", "stream"])
        .group_by("process", "correlation", maintain_order=True)
        .agg(pl.col("context", "stream", "wait_event").first())
    )
    return (
        _record_calls(threads, made)
        .join(named, on=["process", "correlation"], how="left", maintain_order="left")
        .with_columns(
            event="wait_event", event_sync="correlation", timestamp_ns=pl.lit(None, pl.Int64)
        )
        .sort("process", "call", maintain_order=True)
        .select(EVENTS.names())
        .cast(EVENTS)
    )  # fmt: skip


def _record_calls(threads: pl.DataFrame, made: Calls) -> pl.DataFrame:
    names = made.names.filter(pl.col("text").str.contains(_RECORD_CALL))["name"]
    calls = made.calls.filter(pl.col("name").is_in(names.to_list()))
    processes = threads["process"].gather(calls["thread"]).cast(pl.Int64)
    return calls.with_columns(processes).unique(["process", "correlation"], keep="first", maintain_order=True)


def _with_call(rows: pl.DataFrame, made: Calls) -> pl.DataFrame:
    """Add the thread and start of their call to the rows, null without one."""
    place = rows["call"].set(rows["call"] < 0, None)
    return rows.with_columns(
        made.calls["thread"].gather(place), made.calls["start_ns"].gather(place).alias("called_ns")
    )


def _known(column: str) -> pl.Expr:
    """Return the number, null for -1, which means none."""
    return pl.when(pl.col(column) >= 0).then(pl.col(column))
