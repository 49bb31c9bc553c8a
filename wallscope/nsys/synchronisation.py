"""Dependencies: CUDA synchronizations, records of events, and streams."""

import re

import polars as pl

from wallscope.model.capture import Progress
from wallscope.model.schemas import DEVICE_STREAMS, EVENTS, STREAMS, SYNCS, StreamFlag, SyncKind
from wallscope.nsys.calls import Calls
from wallscope.nsys.identity import ExportFacts, list_processes
from wallscope.nsys.tables import CatalogTable, Database, read_table

_SYNCS = CatalogTable(
    "CUPTI_ACTIVITY_KIND_SYNCHRONIZATION",
    (
        "start",
        "end",
        "contextId",
        "streamId",
        "correlationId",
        "globalPid",
        "syncType",
        "eventId",
        "eventSyncId",
    ),
)
_EVENTS = CatalogTable(
    "CUPTI_ACTIVITY_KIND_CUDA_EVENT",
    ("timestamp", "contextId", "streamId", "correlationId", "globalPid", "eventId", "eventSyncId"),
    required=(),
)
_OWNER = ("hwId", "vmId", "processId", "contextId")
_STREAMS = CatalogTable(
    "TARGET_INFO_CUDA_STREAM", (*_OWNER, "streamId", "priority", "flag"), required=("streamId",)
)
_CONTEXTS = CatalogTable(
    "TARGET_INFO_CUDA_CONTEXT_INFO", (*_OWNER, "nullStreamId"), required=("nullStreamId",)
)
_NULL_STREAMS = CatalogTable("TARGET_INFO_CUDA_NULL_STREAM", (*_OWNER, "streamId"), required=("streamId",))
_NOBODY = (4_294_967_295, -1)  # "no stream", "no event"
_KIND_BY_NAME = {
    SyncKind.WAIT: r"(Stream|Ctx)WaitEvent",
    SyncKind.STREAM: r"StreamSynchronize",
    SyncKind.EVENT: r"Event(Synchronize|Query)",
    SyncKind.CONTEXT: r"(Device|Ctx|Context|Thread)Synchronize",
}
_KIND_BY_TYPE = {1: SyncKind.EVENT, 2: SyncKind.WAIT, 3: SyncKind.STREAM, 4: SyncKind.CONTEXT}
_FLAGS = {1: StreamFlag.BLOCKING, 2: StreamFlag.NONBLOCKING, 3: StreamFlag.NULL}


def read_syncs(
    source: Database, facts: ExportFacts, threads: pl.DataFrame, made: Calls, progress: Progress
) -> pl.DataFrame:
    """Return the synchronizations (`SYNCS`), without rows that end before they start.

    The name of the call gives the kind. If the call is missing, the kind follows from whether a stream and an
    event take part. Numbers of the type come last: up to 3.7 they have another meaning, and from 3.24.0 to
    3.24.14 they are one too low.
    """
    rows = read_table(source, _SYNCS, progress)
    if rows.is_empty():
        return SYNCS.to_frame()
    rows = rows.filter(pl.col("end") >= pl.col("start"))
    return (
        _join_calls(rows, threads, made)
        .with_columns(
            kind=pl.coalesce(_kind_by_name(), _kind_by_parties(), _kind_by_type(facts.schema_version)),
            start_ns=pl.col("start") - facts.time_shift_ns,
            end_ns=pl.col("end") - facts.time_shift_ns,
            **_select_endpoints(),
        )
        .sort("process", "start_ns", maintain_order=True)
        .select(SYNCS.names())
        .cast(SYNCS)
    )


def read_events(
    source: Database, threads: pl.DataFrame, made: Calls, time_shift_ns: int, progress: Progress
) -> pl.DataFrame:
    """Return the records of events (`EVENTS`)."""
    rows = read_table(source, _EVENTS, progress)
    if rows.is_empty():
        return EVENTS.to_frame()
    timestamp = pl.col("timestamp")
    return (
        _join_calls(rows, threads, made)
        .with_columns(
            # 0 means "not collected"; an export on another clock may have shifted that too
            timestamp_ns=pl.when(~timestamp.is_in([0, time_shift_ns])).then(timestamp - time_shift_ns),
            **_select_endpoints(),
        )
        .sort("process", "call", maintain_order=True)
        .select(EVENTS.names())
        .cast(EVENTS)
    )


def read_streams(source: Database, threads: pl.DataFrame, progress: Progress) -> pl.DataFrame:
    """Return the streams of the processes with threads (`STREAMS`), with null streams of other tables."""
    listed = read_table(source, _STREAMS, progress).with_columns(
        flags=pl.col("flag").replace_strict(
            {flag: str(meaning) for flag, meaning in _FLAGS.items()}, default=None, return_dtype=pl.String
        ),
        priority=_signed("priority"),
    )
    null_streams = [
        read_table(source, _CONTEXTS, progress).rename({"nullStreamId": "streamId"}),
        read_table(source, _NULL_STREAMS, progress),
    ]
    is_null = [frame.with_columns(flags=pl.lit(str(StreamFlag.NULL))) for frame in null_streams]
    key = ["process", "context", "stream"]
    return (
        pl.concat([*is_null, listed], how="diagonal")
        .with_columns(globalPid=_global_pid(), context="contextId", stream=_mask_absent("streamId"))
        .join(list_processes(threads), on="globalPid", maintain_order="left")
        .filter(pl.col("stream").is_not_null())
        .group_by(key, maintain_order=True)
        .agg(pl.col("flags").drop_nulls().first(), pl.col("priority").drop_nulls().first())
        .sort(key)
        .select(STREAMS.names())
        .cast(STREAMS)
    )


def add_flags(used: pl.DataFrame, known: pl.DataFrame) -> pl.DataFrame:
    """Add the data of the export to streams (`STREAMS` to `DEVICE_STREAMS`).

    They are the streams with operations, and the null streams of their contexts, which synchronize with
    others even without operations.
    """
    flags = known.select("process", "context", "flags", number="stream")
    key = ["process", "context", "number"]
    working = used.join(flags, on=key, how="left", maintain_order="left")
    idle = (
        flags.filter(pl.col("flags") == StreamFlag.NULL)
        .join(used, on=key, how="anti")
        .join(
            used.unique(["process", "context"]).select("process", "context", "rank_id"),
            on=["process", "context"],
        )
        .sort(key)
        .with_row_index("stream", offset=_find_free_stream(used))
    )
    return pl.concat(frame.select(DEVICE_STREAMS.names()).cast(DEVICE_STREAMS) for frame in (working, idle))


def _find_free_stream(used: pl.DataFrame) -> int:
    """The smallest number above all streams."""
    return 0 if used.is_empty() else int(used["stream"].to_numpy().max()) + 1


def _join_calls(rows: pl.DataFrame, threads: pl.DataFrame, made: Calls) -> pl.DataFrame:
    """Add `process`, `call` and `thread`, and the `text` of the call's name to the rows."""
    keyed = rows.join(
        list_processes(threads), on="globalPid", how="left", nulls_equal=True, maintain_order="left"
    )
    call = made.find_issuing(keyed).alias("call")
    place = call.set(call < 0, None)
    of_calls = made.calls.select(pl.col("thread", "name").gather(place))
    return keyed.with_columns(call, *of_calls).join(made.names, on="name", how="left", maintain_order="left")


def _select_endpoints() -> dict[str, pl.Expr]:
    return {
        "context": pl.col("contextId"),
        "stream": _mask_absent("streamId"),
        "event": _mask_absent("eventId"),
        "event_sync": _mask_absent("eventSyncId"),
    }


def _mask_absent(column: str) -> pl.Expr:
    return pl.when(~pl.col(column).is_in(_NOBODY)).then(pl.col(column))


def _kind_by_name() -> pl.Expr:
    kind = pl.lit(None, pl.String)
    for meaning, pattern in _KIND_BY_NAME.items():
        is_meant = pl.col("text").str.contains(pattern)
        kind = pl.when(is_meant).then(pl.lit(str(meaning))).otherwise(kind)
    return kind


def _kind_by_parties() -> pl.Expr:
    """Return null if the export has no column of streams or of events."""
    has_stream, has_event = (~pl.col(column).is_in(_NOBODY) for column in ("streamId", "eventId"))
    return (
        pl.when(has_stream & has_event)
        .then(pl.lit(str(SyncKind.WAIT)))
        .when(has_stream & ~has_event)
        .then(pl.lit(str(SyncKind.STREAM)))
        .when(~has_stream & has_event)
        .then(pl.lit(str(SyncKind.EVENT)))
        .when(~has_stream & ~has_event)
        .then(pl.lit(str(SyncKind.CONTEXT)))
    )


def _kind_by_type(schema_version: str | None) -> pl.Expr:
    numbers = [int(number) for number in re.findall(r"\d+", schema_version or "")]
    meanings = _KIND_BY_TYPE if numbers[:2] >= [3, 25] else {}
    return pl.col("syncType").replace_strict(
        {number: str(meaning) for number, meaning in meanings.items()}, default=None, return_dtype=pl.String
    )


def _global_pid() -> pl.Expr:
    """Return host, virtual machine and process in one signed number, as in other tables."""
    host = pl.col("hwId") & 0xFF
    signed = pl.when(host >= 0x80).then(host - 0x100).otherwise(host)
    machine, process = pl.col("vmId") & 0xFF, pl.col("processId") & 0xFFFFFF
    return signed * (1 << 56) + machine * (1 << 48) + process * (1 << 24)


def _signed(column: str) -> pl.Expr:
    """Return an int32 that the export stores as unsigned."""
    bits = pl.col(column) & 0xFFFFFFFF
    return pl.when(bits >= 1 << 31).then(bits - (1 << 32)).otherwise(bits)
