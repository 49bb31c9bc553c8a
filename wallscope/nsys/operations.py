"""Device operations: kernels, copies, memsets and whole graphs in one frame, with their names.

globalPid has the process in its upper bits. `deviceId` counts inside the process, and stream ids inside a
context, so every key includes the process.
"""

from collections.abc import Mapping
from dataclasses import replace
from itertools import accumulate

import numpy as np
import polars as pl

from wallscope.columns import Rows, find_first_rows, keep_within, mark_numbers, number_alike_rows
from wallscope.model.capture import Progress
from wallscope.model.enums import CopyDirection, MemoryKind, OperationKind
from wallscope.model.schemas import COPIES, DIRECTION, KERNELS, KIND, MEMORY, NAMES, OPERATIONS
from wallscope.nsys import tables
from wallscope.nsys.calls import Calls
from wallscope.nsys.identity import NAMELESS, look_up_texts, number_texts
from wallscope.nsys.tables import Database, read_row_numbers
from wallscope.records import dataclass
from wallscope.trace.record_times import LeftOut

_DIRECTIONS = {
    1: CopyDirection.HOST_TO_DEVICE,
    2: CopyDirection.DEVICE_TO_HOST,
    3: CopyDirection.HOST_TO_DEVICE,  # to an array
    4: CopyDirection.DEVICE_TO_HOST,  # from an array
    5: CopyDirection.DEVICE_TO_DEVICE,  # between arrays
    6: CopyDirection.DEVICE_TO_DEVICE,
    7: CopyDirection.DEVICE_TO_DEVICE,
    8: CopyDirection.DEVICE_TO_DEVICE,
    9: CopyDirection.HOST_TO_HOST,
    10: CopyDirection.PEER,
    11: CopyDirection.MIGRATION_TO_DEVICE,
    12: CopyDirection.MIGRATION_TO_HOST,
    13: CopyDirection.MIGRATION_BETWEEN_DEVICES,
}
_MOST_DEVICES = 65_535
_MOST_BYTES = 2**48
_MOST_RANKS = 1 << 16
"""Up to this number, rows are sorted by counting."""
_MOST_THREADS = _MOST_REGISTERS = 65_535  # CUDA allows 1,024 and 255
_MOST_SHARED_BYTES = 2**26
_MEMORIES = dict(enumerate(MemoryKind))
_STREAM = (
    "stream",
    "rank_id",
    "process",
    pl.col("contextId").alias("context"),
    pl.col("streamId").alias("number"),
)
_FRAMES = {
    tables.KERNELS: OperationKind.KERNEL,
    tables.COPIES: OperationKind.COPY,
    tables.FILLS: OperationKind.FILL,
    tables.GRAPHS: OperationKind.GRAPH,
}


@dataclass(frozen=True, slots=True)
class DeviceWork:
    """Frames `NAMES`, `OPERATIONS`, `COPIES`, `KERNELS`, and `DEVICE_STREAMS` without its flags.

    `raw_place` is the place of each operation among the raw rows.
    """

    names: pl.DataFrame
    operations: pl.DataFrame
    copies: pl.DataFrame
    kernels: pl.DataFrame
    streams: pl.DataFrame
    raw_place: pl.Series


@dataclass(frozen=True, slots=True)
class RawOperations:
    """Rows of the device tables on the clock of the export.

    `frame` has `origin` and `named`, which are rows of `origins` (`globalPid`, `deviceId`, `contextId`,
    `streamId`) and of `string_ids`; `named` is null without a name. `left_out` says which were left out.
    """

    frame: pl.DataFrame
    origins: pl.DataFrame
    string_ids: pl.Series
    left_out: LeftOut


_ORIGIN = ("globalPid", "deviceId", "contextId", "streamId")
_NAMED = ("demangledName", "shortName")


def read_operations(source: Database, progress: Progress) -> RawOperations:
    """Read raw rows of the device tables on the clock of the export, without those that have no time."""
    of_kernels = {"named": _NAMED, "shape": tables.LAUNCH_SHAPE}
    read = [
        (table, *read_row_numbers(source, table, {"origin": _ORIGIN, **also}, progress))
        for table in tables.DEVICE_TABLES
        for also in [of_kernels if table is tables.KERNELS else {}]
    ]
    there = [own for own in read if own[0] is tables.KERNELS or not own[1].is_empty()]
    string_ids = there[0][2]["named"].select(pl.coalesce(*_NAMED, NAMELESS)).to_series()
    origins = [distinct["origin"] for *_, distinct in there]
    first_origins = list(accumulate(map(len, origins), initial=0))[:-1]
    rows = pl.concat(
        [_make_rows(*own, first) for own, first in zip(there, first_origins, strict=True)],
        how="diagonal",
        rechunk=True,
    )
    held = pl.concat(origins).with_columns(keep_within(pl.col("deviceId"), 0, _MOST_DEVICES))
    raw = RawOperations(rows, held, string_ids, LeftOut())
    is_timed = rows["start"].is_not_null() & rows["end"].is_not_null()
    is_timed &= ~((rows["start"] == 0) & (rows["end"] == 0))
    return keep_operations(raw, is_timed, LeftOut(timeless=len(rows) - int(is_timed.sum())))


def keep_operations(raw: RawOperations, is_kept: pl.Series, left_out: LeftOut) -> RawOperations:
    """Return some of the rows, the origins that they still have, and with `left_out` what all lack."""
    kept = raw.frame if is_kept.all() else raw.frame.filter(is_kept)
    origin, origins = _keep_used(kept["origin"], raw.origins)
    return replace(
        raw,
        frame=kept.with_columns(origin),
        origins=origins,
        left_out=raw.left_out + left_out,
    )


def _keep_used(number: pl.Series, distinct: pl.DataFrame) -> tuple[pl.Series, pl.DataFrame]:
    """Return the numbers of rows, and those rows, without rows that no number stands for."""
    is_used = mark_numbers(number.to_numpy(), len(distinct))
    if is_used.all():
        return number, distinct
    places = pl.Series(number.name, np.cumsum(is_used) - is_used, dtype=number.dtype)
    return places.gather(number), distinct.filter(is_used)


def build_device_work(
    source: Database, raw: RawOperations, ranks: pl.DataFrame, made: Calls, time_shift_ns: int
) -> DeviceWork:
    """Return all device operations, sorted by rank, start and row, in session time.

    The origins of `raw` have their dense `process`, `ranks` (`RANKS`) are all their (process, device) pairs.
    """
    names, number = _look_up_names(source, raw)
    rows = raw.frame.with_columns(number.gather(raw.frame["named"]).alias("name"))
    return sort_device_work(rows, raw.origins, names, ranks, made, time_shift_ns)


def sort_device_work(  # noqa: PLR0913, PLR0917  # all that was read
    rows: pl.DataFrame,
    origins: pl.DataFrame,
    names: pl.DataFrame,
    ranks: pl.DataFrame,
    made: Calls,
    time_shift_ns: int,
) -> DeviceWork:
    """Do the same for raw rows with a known `name` (of `NAMES`, null without one) and `origin`.

    `origins` have `process`, `deviceId`, `contextId` and `streamId`.
    """
    streams, of_origin = _number_streams(origins, ranks)
    of_row = of_origin["process", "rank_id", "stream"][rows["origin"]]
    rows = rows.with_columns(
        *of_row["rank_id", "stream"], call=made.find_issuing(of_row["process"], rows["correlationId"])
    )
    order = pl.Series(_sort_rows(rows), dtype=pl.UInt32)
    rows = rows.rename({"start": "start_ns", "end": "end_ns"})
    kind = rows["kind"].gather(order)
    return DeviceWork(
        names=names,
        operations=_gather(rows, order, OPERATIONS).with_columns(
            pl.col("start_ns", "end_ns") - time_shift_ns
        ),
        copies=_gather(rows, order, COPIES, kind.is_in([OperationKind.COPY, OperationKind.FILL])),
        kernels=_gather(rows, order, KERNELS, kind == OperationKind.KERNEL),
        streams=streams,
        raw_place=order,
    )


def number_origins(rows: pl.DataFrame) -> tuple[pl.Series, pl.DataFrame]:
    """Return the origin of each row, and the distinct origins: process, device, context and stream."""
    places = rows["process", "deviceId", "contextId", "streamId"]
    origin = number_alike_rows(places)
    return pl.Series("origin", origin, dtype=pl.UInt32), places[find_first_rows(origin)]


def _gather(
    rows: pl.DataFrame, order: pl.Series, schema: pl.Schema, held: pl.Series | None = None
) -> pl.DataFrame:
    """Return rows in order, numbered (`op`), with the columns of a schema."""
    op = pl.int_range(len(order), dtype=pl.UInt32, eager=True)
    if held is not None:
        op = op.filter(held)
        order = order.filter(held)
    columns = [pl.col(name).gather(order) for name in schema if name != "op"]
    return rows.select(columns).with_columns(op=op).select(schema.names()).cast(schema)


def _make_rows(
    table: tables.CatalogTable, frame: pl.DataFrame, distinct: Mapping[str, pl.DataFrame], first_origin: int
) -> pl.DataFrame:
    """Return the rows of one table with the common columns; kernels also with launch shapes.

    `distinct` are the rows that its numbers stand for; its origins are numbered from `first_origin` on.
    """
    nothing = pl.lit(None, pl.Int64)
    columns = {
        **{name: pl.col(name) for name in ("start", "end", "correlationId")},
        "origin": pl.col("origin") + pl.lit(first_origin, pl.UInt32),
        "graph_node": pl.col("graphNodeId") if "graphNodeId" in table.columns else nothing,
        "bytes": keep_within(pl.col("bytes"), 0, _MOST_BYTES) if "bytes" in table.columns else nothing,
        "named": pl.col("named") if table is tables.KERNELS else pl.lit(None, pl.UInt32),
        "kind": pl.lit(_FRAMES[table], KIND),
        "direction": pl.lit(None, DIRECTION),
        "source": pl.lit(None, MEMORY),
        "destination": pl.lit(None, MEMORY),
    }
    if table is tables.KERNELS:
        frame = frame.hstack(_make_kernel_shapes(distinct["shape"])[frame["shape"]])
        columns |= {name: pl.col(name) for name in ("blocks", "threads", "registers", "shared_bytes")}
    elif table is tables.COPIES:
        between_devices = (pl.col("copyKind") == 8) & (pl.col("srcDeviceId") != pl.col("dstDeviceId"))
        columns["direction"] = (
            pl.when(between_devices)
            .then(pl.lit(CopyDirection.PEER, DIRECTION))
            .otherwise(_decode_numbers("copyKind", _DIRECTIONS, CopyDirection.UNKNOWN, DIRECTION))
        )
        columns["source"] = _decode_numbers("srcKind", _MEMORIES, MemoryKind.UNKNOWN, MEMORY)
        columns["destination"] = _decode_numbers("dstKind", _MEMORIES, MemoryKind.UNKNOWN, MEMORY)
    elif table is tables.FILLS:
        columns["direction"] = pl.lit(CopyDirection.FILL, DIRECTION)
        columns["destination"] = _decode_numbers("memKind", _MEMORIES, MemoryKind.UNKNOWN, MEMORY)
    return frame.select(**columns).with_row_index("row")


def _make_kernel_shapes(shapes: pl.DataFrame) -> pl.DataFrame:
    """Return what launch shapes are to `KERNELS`; impossible values are null."""
    static_bytes, dynamic_bytes = (
        pl.col(column).fill_null(0) for column in ("staticSharedMemory", "dynamicSharedMemory")
    )
    threads = pl.col("blockX") * pl.col("blockY") * pl.col("blockZ")
    return shapes.select(
        blocks=pl.col("gridX") * pl.col("gridY") * pl.col("gridZ"),
        threads=keep_within(threads, 0, _MOST_THREADS).cast(pl.UInt16),
        registers=keep_within(pl.col("registersPerThread"), 0, _MOST_REGISTERS).cast(pl.UInt16),
        shared_bytes=keep_within(static_bytes + dynamic_bytes, 0, _MOST_SHARED_BYTES).cast(pl.UInt32),
    )


def _decode_numbers(column: str, meanings: Mapping[int, str], unknown: str, to: pl.Enum) -> pl.Expr:
    return pl.col(column).replace_strict(
        {code: str(meaning) for code, meaning in meanings.items()}, default=str(unknown), return_dtype=to
    )


def _look_up_names(source: Database, raw: RawOperations) -> tuple[pl.DataFrame, pl.Series]:
    """Return the names (`NAMES`) of the rows, and that of each string id, null where no row has it."""
    used = raw.frame["named"].drop_nulls().to_numpy()
    if not used.size:
        return NAMES.to_frame(), raw.string_ids.clear().cast(NAMES["name"])
    is_used = mark_numbers(used, len(raw.string_ids))
    texts = look_up_texts(source, raw.string_ids.filter(is_used))
    names = number_texts(texts["text"])
    known = texts.join(names, on="text", how="left")
    number = (
        raw.string_ids.alias("string_id")
        .to_frame()
        .join(known, on="string_id", how="left", maintain_order="left")
    )
    return names, number["name"]


def _number_streams(origins: pl.DataFrame, ranks: pl.DataFrame) -> tuple[pl.DataFrame, pl.DataFrame]:
    """Return the streams of some operations, and origins with `rank_id` and `stream`.

    Streams have dense ids over (rank, context, stream id).
    """
    pairs = ranks.select("process", "rank_id", deviceId=pl.col("device").cast(pl.Int64))
    found = origins.join(
        pairs, on=["process", "deviceId"], how="left", nulls_equal=True, maintain_order="left"
    )
    keys = ["rank_id", "contextId", "streamId"]
    numbers = found.select(keys).unique().sort(keys).with_row_index("stream")
    found = found.join(numbers, on=keys, how="left", nulls_equal=True, maintain_order="left")
    return found.select(_STREAM).unique().sort("stream"), found


def _sort_rows(rows: pl.DataFrame) -> Rows:
    """Sort rows by rank, start and row; most tables of an export are already in order."""
    rank_id = rows["rank_id"].to_numpy()
    if rank_id.max() < _MOST_RANKS:
        rank_id = rank_id.astype(np.uint16)
    return np.lexsort((rows["row"].to_numpy(), rows["start"].to_numpy(), rank_id))
