"""CUDA API calls of all threads (caller, time, correlation id), synchronizations, event records and streams.

An export includes the version of an entry point, and whether it uses the thread's stream as the default one
(`_ptsz`, `_ptds`), in any order: `cudaStreamSynchronize_ptsz_v7000`, `cuMemcpyDtoHAsync_v2_ptsz`. Calls have
one spelling per entry point.
"""

import re
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import polars as pl

from wallscope.columns import Codes, Flags, Rows, as_integers, number_densely
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
from wallscope.nsys.tables import CatalogTable, Database, read_table

_SPELLING = r"^_*cu(?:64)?(\w*?)(?:_(?:ptsz|ptds|v\d+))*$"
"""Leading underscores mark calls that the compiler generates. `64` is from the time of 32-bit pointers."""
_ALLOCATING = (
    r"Malloc|Free"
    r"|(Mem)?Host(Alloc|Register|Unregister)"
    r"|Mem(Alloc|Free|Create|Release|Retain|Export|Import|Address(Reserve|Free)|Map|Unmap|SetAccess)"
    r"|MemPool(Create|Destroy|Export|Import|Trim|SetAccess)|DeviceGraphMemTrim"
    r"|(Array|Array3D|MipmappedArray)(Create|Destroy)"
    r"|(Mem)?Peer(Register|Unregister)|Ipc(Open|Close)Mem|Multicast(Create|AddDevice|Bind|Unbind)"
    r"|(Import|Destroy)ExternalMemory|ExternalMemoryGetMapped"
)
_ROLES = (
    (CallRole.GRAPH, r"GraphLaunch"),
    (CallRole.OTHER, r"Graph|LaunchHost"),  # building a graph issues no work; functions of the host
    (CallRole.LAUNCH, r"Launch"),
    (CallRole.SYNC, r"\w*Synchronize"),
    (CallRole.EVENT, r"Event|Ipc(Get|Open)Event|Stream(Query|Wait|Write|BatchMemOp)"),
    (CallRole.EVENT, r"\w*Ctx(Record|Wait)Event|\w*ExternalSemaphore"),
    (CallRole.COPY, r"Mem(cpy|set|\w*Prefetch|BatchDecompress)"),
    (CallRole.ALLOC, _ALLOCATING),
)
"""Patterns after `cu` or `cuda` in the names of a role; the first match counts, no match is `other`.

Calls of `sync` block their caller. Queries, and waits that are put into a stream, do not: those are `event`.
"""


def normalize_call_names(column: str) -> pl.Expr:
    """Return the names in a column, each entry point in one spelling."""
    return pl.col(column).str.replace(_SPELLING, "cu$1")


def express_roles(column: str) -> pl.Expr:
    """Return the roles of calls with normalized names."""
    role = pl.lit(CallRole.OTHER, ROLE)
    for meaning, begins in reversed(_ROLES):
        is_meant = pl.col(column).str.contains(f"^cu(da)?({begins})")
        role = pl.when(is_meant).then(pl.lit(meaning, ROLE)).otherwise(role)
    return role


Times = npt.NDArray[np.int64]
_ROOMY = 4
_MOST_THREADS = 1 << 16
"""Up to this number, rows are sorted by counting."""


class _ByCorrelation:
    """The first call under each (process, correlation id); most ids lie close together."""

    def __init__(self, process: npt.NDArray[np.integer], correlation: Times, call: Codes) -> None:
        self._ids = self._distinct(correlation)
        key = process.astype(np.int64)
        self._processes = int(key.max(initial=-1)) + 1
        key *= self._width
        if self._ids is None:  # in place: these are as many as there are calls
            key += correlation
            key -= self._first
        else:
            key += self._places(correlation)
        self._table: Rows | None = None
        if self._processes * self._width <= _ROOMY * key.size + _ROOMY:
            self._table = np.full(
                self._processes * self._width + 1, -1, np.int32
            )  # the last entry is for missing ones
            self._table[key[::-1]] = call[::-1]  # the value written last, which is the first call, stays
        else:
            order = np.argsort(key, kind="stable")
            self._keys, self._calls = key[order], call[order]

    def _distinct(self, correlation: Times) -> Times | None:
        """Return the distinct ids in order, `None` if they are close enough to be used directly."""
        self._first = int(correlation.min(initial=0))
        span = int(correlation.max(initial=0)) - self._first + 1
        is_close = span <= _ROOMY * correlation.size + _ROOMY
        ids = None if is_close else _sort_distinct(correlation)
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


def _sort_distinct(ids: Times) -> Times:
    """Return the distinct ids in order, which they almost have: `np.unique` takes a hundred times as long."""
    found = np.sort(ids, kind="stable")
    return found.compress(np.append(True, found[1:] != found[:-1]))


@dataclass(frozen=True, slots=True)
class Calls:
    """The calls (`CALLS`), their names (`NAMES`) and the call of each (process, correlation id).

    The index of each call is its number.
    """

    calls: pl.DataFrame
    names: pl.DataFrame
    by_correlation: _ByCorrelation

    def find_issuing(self, operations: pl.DataFrame) -> pl.Series:
        """Return the call that issued each row, from its `process` and `correlationId`; -1 if unknown."""
        found = self.by_correlation.find(
            operations["process"].fill_null(-1).to_numpy().astype(np.int64),
            operations["correlationId"].fill_null(0).to_numpy(),
        )
        found[operations["correlationId"].is_null().to_numpy()] = -1
        return pl.Series("call", found, dtype=pl.Int32)


@dataclass(frozen=True, slots=True)
class RawCalls:
    """Calls on the clock of the export, in its order, with their names; columns are freed after use.

    `columns` are `start`, `end`, `globalTid`, `correlationId`, and `named`. The latter is the row of each
    call in the frame of that name, which has `name` of `names` (`NAMES`) and `role`. `callers` are the
    distinct global ids of threads, also of calls without a valid time.
    """

    columns: dict[str, pl.Series]
    named: pl.DataFrame
    names: pl.DataFrame
    callers: pl.Series


def read_calls(source: Database, progress: Progress) -> RawCalls:
    """Return the calls, without those that end before they start."""
    raw = read_table(source, tables.CALLS, progress)
    callers = raw["globalTid"].unique()
    is_timed = (raw["end"] >= raw["start"]).fill_null(value=False)
    left = (raw if is_timed.all() else raw.filter(is_timed)).to_dict()
    del raw  # Free each column once it is copied, because these are the largest of an export.
    string_ids, place = number_densely(as_integers(left.pop("nameId"), NAMELESS))
    texts = look_up_texts(source, pl.Series(string_ids)).with_columns(normalize_call_names("text"))
    names = number_texts(texts["text"])
    named = texts.join(
        names.with_columns(role=express_roles("text")), on="text", how="left", maintain_order="left"
    )
    left["named"] = pl.Series(place, dtype=pl.UInt32)
    return RawCalls(left, named, names, callers)


def build_calls(raw: RawCalls, threads: pl.DataFrame, time_shift_ns: int) -> Calls:
    """Return the calls in session time, by thread and start; this frees the raw columns.

    Correlation ids are unique only inside a process. Of several calls with one id, the first counts.
    """
    left = raw.columns
    known = join_threads(left.pop("globalTid").to_frame(), threads, "globalTid")["thread", "process"]
    rows = pl.Series(_sort_by_thread(known["thread"].to_numpy(), left["start"].to_numpy()).astype(np.uint32))
    thread, process = (known[name].gather(rows) for name in known.columns)
    del known
    named = left.pop("named").gather(rows)
    made = pl.DataFrame(
        {
            "call": np.arange(len(rows), dtype=np.uint32),
            "thread": thread,
            "start_ns": left.pop("start").gather(rows) - time_shift_ns,
            "end_ns": left.pop("end").gather(rows) - time_shift_ns,
            "name": raw.named["name"].gather(named),
            "correlation": left.pop("correlationId").gather(rows),
            "role": raw.named["role"].gather(named),
        }
    )
    del rows, named
    correlations = made["correlation"]
    if correlations.null_count():
        held = np.flatnonzero(correlations.is_not_null().to_numpy())
        issuer = process.to_numpy()[held]
        by_correlation = _ByCorrelation(issuer, correlations.drop_nulls().to_numpy(), held)
    else:
        every = np.arange(len(made), dtype=np.int32)
        by_correlation = _ByCorrelation(process.to_numpy(), correlations.to_numpy(), every)
    return Calls(made.select(CALLS.names()).cast(CALLS), raw.names, by_correlation)


def _sort_by_thread(thread: npt.NDArray[np.integer], start_ns: Times) -> Rows:
    """Sort rows by thread, start and row; most threads are already in order, and threads are few."""
    is_few = thread.size and thread.max() < _MOST_THREADS
    order = np.argsort(thread.astype(np.uint16) if is_few else thread, kind="stable")
    starts_ns, of = start_ns[order], thread[order]
    if ((starts_ns[1:] < starts_ns[:-1]) & (of[1:] == of[:-1])).any():
        order = np.lexsort((start_ns, thread))
    return order


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
