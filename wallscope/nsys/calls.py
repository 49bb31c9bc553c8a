"""CUDA API calls of all threads (caller, time, correlation id), synchronizations, event records and streams.

An export includes the version of an entry point, and whether it uses the thread's stream as the default one
(`_ptsz`, `_ptds`), in any order: `cudaStreamSynchronize_ptsz_v7000`, `cuMemcpyDtoHAsync_v2_ptsz`. Calls have
one spelling per entry point.
"""

import re
from dataclasses import replace

import numpy as np
import numpy.typing as npt
import polars as pl

from wallscope.columns import Flags, Rows, mark_numbers, sort_distinct
from wallscope.kernels import row_numbers, views
from wallscope.model.capture import Progress
from wallscope.model.enums import CallRole
from wallscope.model.schemas import CALLS, DEVICE_STREAMS, EVENTS, ROLE, STREAMS, SYNCS, StreamFlag, SyncKind
from wallscope.nsys import tables
from wallscope.nsys.identity import (
    NAMELESS,
    ExportFacts,
    join_threads,
    list_processes,
    look_up_texts,
    number_texts,
)
from wallscope.nsys.tables import NULL, CatalogTable, Database, make_nullable, read_row_numbers, read_table
from wallscope.records import dataclass

_SPELLING = r"^_*cu(?:64)?(\w*?)(?:_(?:ptsz|ptds|v\d+))*$"
"""Leading underscores mark calls that the compiler generates. `64` is from the time of 32-bit pointers."""
_ALLOCATING = (
    r"Malloc|Free"
    r"|(Mem)?Host(Alloc|Malloc|Free|Register|Unregister)"
    r"|Mem(Alloc|Free|Create|Release|Retain|Export|Import|Address(Reserve|Free)|Map|Unmap|SetAccess)"
    r"|MemPool(Create|Destroy|Export|Import|Trim|SetAccess)|DeviceGraphMemTrim"
    r"|(Array|Array3D|MipmappedArray)(Create|Destroy)"
    r"|(Mem)?Peer(Register|Unregister)|Ipc(Open|Close)Mem|Multicast(Create|AddDevice|Bind|Unbind)"
    r"|(Import|Destroy)ExternalMemory|ExternalMemoryGetMapped"
)
_ROLES = (
    (CallRole.GRAPH, r"GraphLaunch"),
    (CallRole.OTHER, r"Graph|LaunchHost"),  # building a graph issues no work; functions of the host
    (CallRole.LAUNCH, r"(?:Hcc|Ext)?(?:Module)?Launch"),
    (CallRole.SYNC, r"\w*Synchronize"),
    (CallRole.EVENT, r"Event|Ipc(Get|Open)Event|Stream(Query|Wait|Write|BatchMemOp)"),
    (CallRole.EVENT, r"\w*Ctx(Record|Wait)Event|\w*ExternalSemaphore"),
    (CallRole.COPY, r"Mem(cpy|set|\w*Prefetch|BatchDecompress)"),
    (CallRole.ALLOC, _ALLOCATING),
)
"""Patterns after `cu`, `cuda` or `hip` in the names of a role; the first match counts, no match is `other`.

Calls of `sync` block their caller. Queries, and waits that are put into a stream, do not: those are `event`.
"""


def normalize_call_names(column: str) -> pl.Expr:
    """Return the names in a column, each entry point in one spelling."""
    return pl.col(column).str.replace(_SPELLING, "cu$1")


def express_roles(column: str) -> pl.Expr:
    """Return the roles of calls with normalized names."""
    role = pl.lit(CallRole.OTHER, ROLE)
    for meaning, begins in reversed(_ROLES):
        is_meant = pl.col(column).str.contains(f"^(?:cu(?:da)?|hip)(?:{begins})")
        role = pl.when(is_meant).then(pl.lit(meaning, ROLE)).otherwise(role)
    return role


Times = npt.NDArray[np.int64]
_ROOMY = 4


class _ByCorrelation:
    """The first call under each (process, correlation id), of which `NULL` is none.

    Most ids lie close together.
    """

    def __init__(self, process: Times, correlation: Times) -> None:
        known = np.flatnonzero(correlation != NULL)
        is_each = known.size == correlation.size
        ids = correlation if is_each else correlation[known]
        self._ids = self._distinct(ids)
        self._processes = int(process.max(initial=-1)) + 1
        self._table: npt.NDArray[np.int32] | None = None
        if self._ids is None and self._processes * self._width <= _ROOMY * ids.size + _ROOMY:
            # the last entry is for missing ones
            self._table = np.full(self._processes * self._width + 1, -1, np.int32)
            row_numbers.find_first_calls(
                *views(process, correlation, NULL, self._first, self._width, self._table)
            )
        else:
            key = (process if is_each else process[known]) * self._width + self._places(ids)
            order = np.argsort(key, kind="stable")
            self._keys, self._calls = key[order], known[order]

    def _distinct(self, correlation: Times) -> Times | None:
        """Return the distinct ids in order, `None` if they are close enough to be used directly."""
        self._first = int(correlation.min(initial=0))
        span = int(correlation.max(initial=0)) - self._first + 1
        is_close = span <= _ROOMY * correlation.size + _ROOMY
        ids = None if is_close else sort_distinct(correlation)
        self._width = span if ids is None else ids.size
        return ids

    def _places(self, correlation: Times) -> Rows:
        """Return the index of each id, if it is known."""
        if self._ids is None:
            return correlation - self._first
        return np.minimum(np.searchsorted(self._ids, correlation), self._width - 1)

    def _codes(self, correlation: Times) -> tuple[Rows, Flags]:
        """Return the index of each id, and whether it is known."""
        if self._ids is None:
            is_known = (correlation >= self._first) & (correlation <= self._first + self._width - 1)
            return self._places(np.where(is_known, correlation, self._first)), is_known
        place = self._places(correlation)
        return place, self._ids[place] == correlation

    def find(self, process: Rows, correlation: Times) -> Rows:
        """Return the call of each pair, -1 if it has none."""
        code, is_known = self._codes(correlation)
        is_known &= (process >= 0) & (process < self._processes)
        key = np.where(is_known, process * self._width + code, 0)
        if self._table is not None:
            return np.where(is_known, self._table[key], -1)
        place = np.minimum(np.searchsorted(self._keys, key), self._keys.size - 1)
        return np.where(is_known & (self._keys[place] == key), self._calls[place], -1)


@dataclass(frozen=True, slots=True)
class Calls:
    """The calls (`CALLS`), their names (`NAMES`) and the call of each (process, correlation id).

    The index of each call is its number.
    """

    calls: pl.DataFrame
    names: pl.DataFrame
    by_correlation: _ByCorrelation

    def find_issuing(self, process: pl.Series, correlation: pl.Series) -> pl.Series:
        """Return the call that issued each operation, from its process and id; -1 if unknown."""
        found = self.by_correlation.find(
            process.fill_null(-1).to_numpy().astype(np.int64), correlation.fill_null(0).to_numpy()
        )
        if correlation.has_nulls():
            found[correlation.is_null().to_numpy()] = -1
        return pl.Series("call", found, dtype=pl.Int32)


@dataclass(frozen=True, slots=True)
class RawCalls:
    """Calls on the clock of the export, in its order, with their names; columns are freed after use.

    `columns` are `start`, `end`, `correlationId`, `caller` and `named`. The latter two are rows of `callers`
    and of `named`, which has `name` of `names` (`NAMES`) and `role`. `callers` are the distinct global ids of
    threads, also of calls without a valid time, which `untimed_rows` counts.
    """

    columns: dict[str, pl.Series]
    named: pl.DataFrame
    names: pl.DataFrame
    callers: pl.Series
    untimed_rows: int = 0


_GROUPS = {"caller": ("globalTid",), "named": ("nameId",)}


def read_calls(source: Database, progress: Progress) -> RawCalls:
    """Return the calls, without those that end before they start."""
    raw, distinct = read_row_numbers(source, tables.CALLS, _GROUPS, progress)
    string_ids = distinct["named"].select(string_id=pl.col("nameId").fill_null(NAMELESS))
    is_timed = (raw["end"] >= raw["start"]).fill_null(value=False)
    left = (raw if is_timed.all() else raw.filter(is_timed)).to_dict()
    del raw  # Free each column once it is copied, because these are the largest of an export.
    used = string_ids["string_id"].filter(mark_numbers(left["named"].to_numpy(), len(string_ids)))
    texts = look_up_texts(source, used).with_columns(normalize_call_names("text"))
    names = number_texts(texts["text"])
    named = texts.join(names.with_columns(role=express_roles("text")), on="text", how="left")
    return RawCalls(
        columns=left,
        named=string_ids.join(named, on="string_id", how="left", maintain_order="left"),
        names=names,
        callers=distinct["caller"]["globalTid"],
        untimed_rows=int((~is_timed).sum()),
    )


def keep_calls(raw: RawCalls, is_kept: pl.Series) -> RawCalls:
    """Return some of the calls, with the others counted."""
    if is_kept.all():
        return raw
    columns = {name: column.filter(is_kept) for name, column in raw.columns.items()}
    return replace(raw, columns=columns, untimed_rows=raw.untimed_rows + int((~is_kept).sum()))


def build_calls(raw: RawCalls, threads: pl.DataFrame, time_shift_ns: int) -> Calls:
    """Return the calls in session time, by thread and start; this frees the raw columns.

    Correlation ids are unique only inside a process. Of several calls with one id, the first counts.
    """
    left = raw.columns
    caller = left.pop("caller").to_numpy()
    known = join_threads(raw.callers.alias("globalTid").to_frame(), threads, "globalTid")
    thread_of = known["thread"].to_numpy().astype(np.int64)
    counts = np.zeros(len(threads), np.int64)
    np.add.at(counts, thread_of, np.bincount(caller, minlength=thread_of.size))
    begin = np.cumsum(counts) - counts
    size = caller.size
    thread, named = np.empty(size, np.uint32), np.empty(size, np.uint32)
    times_ns, correlation = np.empty((2, size), np.int64), np.empty(size, np.int64)
    in_order = row_numbers.order_calls(
        *views(
            caller, left.pop("start").to_numpy(), left.pop("end").to_numpy(), left.pop("named").to_numpy()
        ),
        *views(left.pop("correlationId").fill_null(NULL).to_numpy(), thread_of, begin, time_shift_ns),
        *views(begin.copy(), thread, times_ns, named, correlation),
    )
    del caller
    if not in_order:
        rows = np.lexsort((times_ns[0], thread))
        times_ns, named, correlation = times_ns[:, rows], named[rows], correlation[rows]
    process = threads["process"].to_numpy().astype(np.int64)[thread]
    calls = pl.DataFrame(
        {
            "call": np.arange(size, dtype=np.uint32),
            "thread": thread,
            "start_ns": times_ns[0],
            "end_ns": times_ns[1],
            "name": raw.named["name"].fill_null(0).to_numpy()[named],  # null is that of no call
            "correlation": make_nullable("correlation", correlation),
            "role": raw.named["role"].gather(named),
        },
        schema=CALLS,
    )
    return Calls(calls, raw.names, _ByCorrelation(process, correlation))


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
    call = made.find_issuing(keyed["process"], keyed["correlationId"])
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
