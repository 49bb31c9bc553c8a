"""Device operations: kernels, copies, fills and whole graphs in one frame, with their ranks and names.

Identity: globalPid holds the process in its upper bits; `deviceId` counts inside the process, and
stream ids inside a context, so nothing is keyed without its process.
"""

from collections.abc import Mapping
from dataclasses import dataclass

import polars as pl

from wallscope.model.capture import Export, Progress
from wallscope.model.frames import COPIES, DIRECTION, KIND, MEMORY, OPERATIONS, RANKS
from wallscope.model.kinds import CopyDirection, MemoryKind, OperationKind
from wallscope.nsys import catalog
from wallscope.nsys.calls import Calls
from wallscope.nsys.environment import RANK_VARIABLES
from wallscope.nsys.strings import NAMELESS, numbered, texts_of
from wallscope.nsys.tables import Database, read
from wallscope.nsys.threads import pid_of

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
_MEMORIES = dict(enumerate(MemoryKind))
_FRAMES = {
    catalog.KERNELS: OperationKind.KERNEL,
    catalog.COPIES: OperationKind.COPY,
    catalog.FILLS: OperationKind.FILL,
    catalog.GRAPHS: OperationKind.GRAPH,
}


@dataclass(frozen=True, slots=True)
class DeviceWork:
    """Frames `RANKS`, `NAMES`, `OPERATIONS`, `COPIES`."""

    ranks: pl.DataFrame
    names: pl.DataFrame
    operations: pl.DataFrame
    copies: pl.DataFrame


def raw_operations(source: Database, progress: Progress) -> tuple[pl.DataFrame, int]:
    """Raw rows of the device tables on the clock of the export, and how many had no usable time.

    Rows whose times were never resolved (both 0, or an end before the start) are left out.
    """
    rows = pl.concat([_table(source, table, progress) for table in catalog.DEVICE_TABLES], how="diagonal")
    timed = rows.filter((pl.col("end") >= pl.col("start")) & ~((pl.col("start") == 0) & (pl.col("end") == 0)))
    return timed, len(rows) - len(timed)


def device_work(
    source: Database, export: Export, raw: pl.DataFrame, made: Calls, time_shift_ns: int
) -> DeviceWork:
    """Everything that ran on a device, sorted by rank, start and row, in session time.

    `raw` are the raw rows with their dense `process`.
    """
    ranks = _ranks(source, export, raw)
    texts = texts_of(source, raw["string_id"])
    names = numbered(texts["text"])
    keyed = raw.join(
        ranks.select("rank_id", "process", "deviceId"),
        on=["process", "deviceId"],
        nulls_equal=True,
        maintain_order="left",
    ).join(
        texts.join(names, on="text").select("name", "string_id"),
        on="string_id",
        how="left",
        maintain_order="left",
    )
    rows = (
        keyed.sort("rank_id", "start", "row", maintain_order=True)
        .with_row_index("op")
        .with_columns(start_ns=pl.col("start") - time_shift_ns, end_ns=pl.col("end") - time_shift_ns)
        .join(
            _streams(keyed),
            on=["rank_id", "contextId", "streamId"],
            how="left",
            nulls_equal=True,
            maintain_order="left",
        )
    )
    rows = rows.with_columns(made.issuing(rows).alias("call"))
    return DeviceWork(
        ranks=ranks.select(RANKS.names()).cast(RANKS),
        names=names,
        operations=rows.select(OPERATIONS.names()).cast(OPERATIONS),
        copies=_copies(rows),
    )


def _table(source: Database, table: catalog.Table, progress: Progress) -> pl.DataFrame:
    frame = read(source, table, progress)
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
    if table is catalog.KERNELS:
        columns["string_id"] = pl.coalesce("demangledName", "shortName", NAMELESS)
    elif table is catalog.COPIES:
        between_devices = (pl.col("copyKind") == 8) & (pl.col("srcDeviceId") != pl.col("dstDeviceId"))
        columns["direction"] = (
            pl.when(between_devices)
            .then(pl.lit(CopyDirection.PEER, DIRECTION))
            .otherwise(_decoded("copyKind", _DIRECTIONS, CopyDirection.UNKNOWN, DIRECTION))
        )
        columns["source"] = _decoded("srcKind", _MEMORIES, MemoryKind.UNKNOWN, MEMORY)
        columns["destination"] = _decoded("dstKind", _MEMORIES, MemoryKind.UNKNOWN, MEMORY)
    elif table is catalog.FILLS:
        columns["direction"] = pl.lit(CopyDirection.FILL, DIRECTION)
        columns["destination"] = _decoded("memKind", _MEMORIES, MemoryKind.UNKNOWN, MEMORY)
    return frame.select(**columns).with_row_index("row")


def _decoded(column: str, meanings: Mapping[int, str], unknown: str, to: pl.Enum) -> pl.Expr:
    return pl.col(column).replace_strict(
        {code: str(meaning) for code, meaning in meanings.items()}, default=str(unknown), return_dtype=to
    )


def _streams(rows: pl.DataFrame) -> pl.DataFrame:
    """Dense stream ids over (rank, context, stream id)."""
    keys = ["rank_id", "contextId", "streamId"]
    return rows.select(keys).unique().sort(keys).with_row_index("stream")


def _ranks(source: Database, export: Export, rows: pl.DataFrame) -> pl.DataFrame:
    """One row for each (process, device) pair, ordered by process and device."""
    pairs = (
        rows.select("process", "globalPid", "deviceId").unique().sort("process", "deviceId", nulls_last=False)
    )
    rank, rank_source = _rank_of_job(export) if len(pairs) == 1 else (None, None)
    identified = pairs.with_columns(
        pid=pid_of("globalPid"),
        device=pl.col("deviceId"),
        rank=pl.lit(rank, pl.Int32),
        rank_source=pl.lit(rank_source, pl.String),
    ).with_row_index("rank_id")
    gpu = [
        _gpu_of(source, export, pid, device) for pid, device in identified.select("pid", "device").iter_rows()
    ]
    return identified.with_columns(pl.Series("gpu", gpu, dtype=pl.Int32))


def _rank_of_job(export: Export) -> tuple[int | None, str | None]:
    """The rank that the launcher gave the one process of the export."""
    for variable in RANK_VARIABLES:
        if variable in export.environment:
            return int(export.environment[variable]), variable
    return None, None


def _gpu_of(source: Database, export: Export, pid: int | None, device: int | None) -> int | None:
    """Nsight's id of the GPU that a process calls `device`; `None` where nothing tells.

    Processes may see the GPUs in an order of their own; only newer exports say which.
    """
    if device is None:
        return None
    if source.has("TARGET_INFO_CUDA_DEVICE", "pid", "cudaId", "gpuId"):
        matches = {gpu for p, d, gpu in source.rows("cuda_devices") if (p, d) == (pid, device)}
        if len(matches) == 1:
            return int(matches.pop())
    if source.has("TARGET_INFO_GPU", "cuDevice", "smCount"):
        matches = {gpu for (gpu,) in source.rows("gpus_by_ordinal", device)}
        if len(matches) == 1:
            return int(matches.pop())
    return device if device in {gpu.id for gpu in export.gpus} else None


def _copies(rows: pl.DataFrame) -> pl.DataFrame:
    moved = rows.filter(pl.col("kind").is_in([OperationKind.COPY, OperationKind.FILL]))
    return moved.select(COPIES.names()).cast(COPIES)
