"""Device operations: kernels, copies, memsets and whole graphs in one frame, with their names.

globalPid has the process in its upper bits. `deviceId` counts inside the process, and stream ids inside a
context, so every key includes the process.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import cast

import numpy as np
import polars as pl

from wallscope.columns import Rows, as_integers, find_first_rows, number_alike_rows, number_densely
from wallscope.model.capture import Progress
from wallscope.model.enums import CopyDirection, MemoryKind, OperationKind
from wallscope.model.schemas import COPIES, DIRECTION, KERNELS, KIND, MEMORY, NAMES, OPERATIONS
from wallscope.nsys import tables
from wallscope.nsys.calls import Calls
from wallscope.nsys.identity import NAMELESS, look_up_texts, number_texts
from wallscope.nsys.tables import Database, read_table

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
_LATEST = 2**61  # Above the clocks of all exports, including UTC in ns.
_LONGEST_NS = 2**50  # thirteen days
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


def read_operations(source: Database, progress: Progress) -> tuple[pl.DataFrame, int]:
    """Read raw rows of the device tables on the clock of the export, and count rows without a valid time.

    Rows with unresolved times are excluded: both 0, an end before the start, or days apart.
    """
    read_tables = [(table, read_table(source, table, progress)) for table in tables.DEVICE_TABLES]
    there = [own for own in read_tables if own[0] is tables.KERNELS or not own[1].is_empty()]
    rows = pl.concat([_describe(*own) for own in there], how="diagonal")
    rows = rows.with_columns(
        _keep_within(pl.col("deviceId"), 0, _MOST_DEVICES), _keep_within(pl.col("bytes"), 0, _MOST_BYTES)
    )
    is_possible = pl.col("start").abs() < _LATEST
    is_possible &= (pl.col("end").abs() < _LATEST) & (pl.col("end") - pl.col("start") < _LONGEST_NS)
    is_timed = (pl.col("end") >= pl.col("start")) & ~((pl.col("start") == 0) & (pl.col("end") == 0))
    is_usable = rows.select((is_possible & is_timed).fill_null(value=False)).to_series()
    timed = rows if is_usable.all() else rows.filter(is_usable)
    return timed, len(rows) - len(timed)


def _keep_within(values: pl.Expr, least: int, most: int) -> pl.Expr:
    """Return the value if it is possible, else null."""
    return pl.when(values.is_between(least, most)).then(values)


def build_device_work(
    source: Database, raw: pl.DataFrame, ranks: pl.DataFrame, made: Calls, time_shift_ns: int
) -> DeviceWork:
    """Return all device operations, sorted by rank, start and row, in session time.

    `raw` are the raw rows with their dense `process`, `ranks` (`RANKS`) all their (process, device) pairs.
    """
    named, only = [_look_up_names(source, raw["string_id"])], [raw]
    del raw  # Pass it by its only reference, so that columns are freed during use.
    return sort_device_work(only.pop(), named.pop(), ranks, made, time_shift_ns)


def sort_device_work(
    raw: pl.DataFrame,
    named: tuple[pl.DataFrame, pl.Series],
    ranks: pl.DataFrame,
    made: Calls,
    time_shift_ns: int,
) -> DeviceWork:
    """Do the same for raw rows with known names: `NAMES`, and the number of each row, null if it has none."""
    names, name = named
    del named
    streams, of_stream, place = _number_streams(raw, ranks)
    rows = raw.with_columns(
        name, *(of_stream[key].gather(place) for key in ("rank_id", "stream")), call=made.find_issuing(raw)
    )
    del raw, name, place
    order = pl.Series(_sort_rows(rows), dtype=pl.UInt32)
    wanted = sorted({*OPERATIONS, *COPIES, *KERNELS} & set(rows.columns))
    rows = rows.select(
        *wanted, start_ns=pl.col("start") - time_shift_ns, end_ns=pl.col("end") - time_shift_ns
    )
    kind = rows["kind"].gather(order)
    return DeviceWork(
        names=names,
        operations=_gather(rows, order, OPERATIONS),
        copies=_gather(rows, order, COPIES, kind.is_in([OperationKind.COPY, OperationKind.FILL])),
        kernels=_gather(rows, order, KERNELS, kind == OperationKind.KERNEL),
        streams=streams,
        raw_place=order,
    )


def look_up(rows: pl.DataFrame, known: pl.DataFrame) -> pl.Series:
    """Return the column of `known` that rows lack, joined by the others; null without a match."""
    keys = [column for column in known.columns if column in rows.columns]
    found = rows.select(keys).join(known, on=keys, how="left", nulls_equal=True, maintain_order="left")
    return found.drop(keys).to_series()


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


def _describe(table: tables.CatalogTable, frame: pl.DataFrame) -> pl.DataFrame:
    """Return the rows of one table with the common columns; kernels also with launch shapes."""
    kind = _FRAMES[table]
    common = {"start", "end", "deviceId", "contextId", "streamId", "globalPid", "correlationId"}
    nothing = pl.lit(None, pl.Int64)
    columns = {
        **{name: pl.col(name) for name in sorted(common)},
        "graph_node": pl.col("graphNodeId") if "graphNodeId" in table.columns else nothing,
        "bytes": pl.col("bytes") if "bytes" in table.columns else nothing,
        "string_id": nothing,
        "kind": pl.lit(kind, KIND),
        "direction": pl.lit(None, DIRECTION),
        "source": pl.lit(None, MEMORY),
        "destination": pl.lit(None, MEMORY),
    }
    if table is tables.KERNELS:
        columns["string_id"] = pl.coalesce("demangledName", "shortName", NAMELESS)
        static_bytes, dynamic_bytes = (
            pl.col(column).fill_null(0) for column in ("staticSharedMemory", "dynamicSharedMemory")
        )
        threads = pl.col("blockX") * pl.col("blockY") * pl.col("blockZ")
        columns |= {
            "blocks": pl.col("gridX") * pl.col("gridY") * pl.col("gridZ"),
            "threads": _keep_within(threads, 0, _MOST_THREADS).cast(pl.UInt16),
            "registers": _keep_within(pl.col("registersPerThread"), 0, _MOST_REGISTERS).cast(pl.UInt16),
            "shared_bytes": _keep_within(static_bytes + dynamic_bytes, 0, _MOST_SHARED_BYTES).cast(pl.UInt32),
        }
    elif table is tables.COPIES:
        between_devices = (pl.col("copyKind") == 8) & (pl.col("srcDeviceId") != pl.col("dstDeviceId"))
        columns["direction"] = (
            pl.when(between_devices)
            .then(pl.lit(CopyDirection.PEER, DIRECTION))
            .otherwise(_decode("copyKind", _DIRECTIONS, CopyDirection.UNKNOWN, DIRECTION))
        )
        columns["source"] = _decode("srcKind", _MEMORIES, MemoryKind.UNKNOWN, MEMORY)
        columns["destination"] = _decode("dstKind", _MEMORIES, MemoryKind.UNKNOWN, MEMORY)
    elif table is tables.FILLS:
        columns["direction"] = pl.lit(CopyDirection.FILL, DIRECTION)
        columns["destination"] = _decode("memKind", _MEMORIES, MemoryKind.UNKNOWN, MEMORY)
    return frame.select(**columns).with_row_index("row")


def _decode(column: str, meanings: Mapping[int, str], unknown: str, to: pl.Enum) -> pl.Expr:
    return pl.col(column).replace_strict(
        {code: str(meaning) for code, meaning in meanings.items()}, default=str(unknown), return_dtype=to
    )


def _look_up_names(source: Database, strings: pl.Series) -> tuple[pl.DataFrame, pl.Series]:
    """Return the names (`NAMES`) of string ids, and the number of each; null if it names no string."""
    if strings.null_count() == len(strings):
        return NAMES.to_frame(), pl.Series("name", [None], NAMES["name"]).new_from_index(0, len(strings))
    none = cast("int", strings.min()) - 1
    ids, place = number_densely(as_integers(strings, none))
    texts = look_up_texts(source, pl.Series(ids[ids != none]))
    names = number_texts(texts["text"])
    known = texts.join(names, on="text", how="left", maintain_order="left")["name"]
    if len(known) < ids.size:
        known = pl.concat([pl.Series("name", [None], known.dtype), known])
    return names, known.gather(place)


def _number_streams(rows: pl.DataFrame, ranks: pl.DataFrame) -> tuple[pl.DataFrame, pl.DataFrame, pl.Series]:
    """Return the streams, `rank_id` and `stream` of some operations, and the index of each.

    Streams have dense ids over (rank, context, stream id).
    """
    places = rows["process", "deviceId", "contextId", "streamId"]
    group = number_alike_rows(places)
    pairs = ranks.select("process", "rank_id", deviceId=pl.col("device").cast(pl.Int64))
    found = places[find_first_rows(group)].join(
        pairs, on=["process", "deviceId"], how="left", nulls_equal=True, maintain_order="left"
    )
    keys = ["rank_id", "contextId", "streamId"]
    numbers = found.select(keys).unique().sort(keys).with_row_index("stream")
    found = found.join(numbers, on=keys, how="left", nulls_equal=True, maintain_order="left")
    return found.select(_STREAM).unique().sort("stream"), found, pl.Series(group, dtype=pl.UInt32)


def _sort_rows(rows: pl.DataFrame) -> Rows:
    """Sort rows by rank, start and row; most tables of an export are already in order."""
    rank_id = rows["rank_id"].to_numpy()
    if rank_id.max() < _MOST_RANKS:
        rank_id = rank_id.astype(np.uint16)
    return np.lexsort((rows["row"].to_numpy(), rows["start"].to_numpy(), rank_id))
