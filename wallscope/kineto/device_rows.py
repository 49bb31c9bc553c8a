"""Kernels, copies and memsets of a trace as the raw device rows of `OPERATIONS`.

Names of copies contain direction and memory: `Memcpy HtoD (Pageable -> Device)`. Copies between devices have
neither device nor context: both come from other rows.
"""

import polars as pl

from wallscope.kineto.event_tables import TraceTables
from wallscope.model.enums import CopyDirection, MemoryKind, OperationKind
from wallscope.model.schemas import DIRECTION, KERNEL_OCCUPANCY, KIND, MEMORY
from wallscope.nsys.identity import number_texts

_MOST_DEVICES = 65_535
_MOST_BYTES = 2**48
_MOST_THREADS = _MOST_REGISTERS = 65_535
_MOST_SHARED_BYTES = 2**26
_DIRECTIONS = {
    "HtoD": CopyDirection.HOST_TO_DEVICE,
    "HtoA": CopyDirection.HOST_TO_DEVICE,
    "DtoH": CopyDirection.DEVICE_TO_HOST,
    "AtoH": CopyDirection.DEVICE_TO_HOST,
    "DtoD": CopyDirection.DEVICE_TO_DEVICE,
    "AtoA": CopyDirection.DEVICE_TO_DEVICE,
    "AtoD": CopyDirection.DEVICE_TO_DEVICE,
    "DtoA": CopyDirection.DEVICE_TO_DEVICE,
    "HtoH": CopyDirection.HOST_TO_HOST,
    "PtoP": CopyDirection.PEER,
}
_MEMORIES = {
    "Pageable": MemoryKind.PAGEABLE,
    "Pinned": MemoryKind.PINNED,
    "Device": MemoryKind.DEVICE,
    "Array": MemoryKind.ARRAY,
    "Managed": MemoryKind.MANAGED,
    "Device Static": MemoryKind.DEVICE_STATIC,
    "Managed Static": MemoryKind.MANAGED_STATIC,
}
_PERCENT = 100
_COPY = r"^Memcpy (\w+)"
_ENDS = r"\(([\w ]+) -> ([\w ]+)\)", r"\(([\w ]+)\)"


def build_device_rows(tables: TraceTables) -> pl.DataFrame:
    """Return device operations, in the order of the file by kind, with columns as in Nsight's raw rows.

    `text` is the index of the name in the texts of the trace; the process is not known yet.
    """
    texts = pl.Series("name", tables.texts, dtype=pl.String)
    copies, fills = (
        tables.frames[name].with_columns(name=texts.gather(tables.frames[name]["text"]))
        for name in ("copies", "fills")
    )
    kernels = tables.frames["kernels"]
    rows = pl.concat(
        [
            kernels.select(
                *_where(),
                kind=pl.lit(OperationKind.KERNEL, KIND),
                text="text",
                blocks=_keep_within("grid", 2**62),
                threads=_keep_within("block", _MOST_THREADS).cast(pl.UInt16),
                registers=_keep_within("registers", _MOST_REGISTERS).cast(pl.UInt16),
                shared_bytes=_keep_within("shared_bytes", _MOST_SHARED_BYTES).cast(pl.UInt32),
            ),
            copies.select(
                *_where(pl.coalesce("device", "in_device", "from_device", "pid")),
                kind=pl.lit(OperationKind.COPY, KIND),
                bytes=_keep_within("bytes", _MOST_BYTES),
                direction=_decode(pl.col("name").str.extract(_COPY), _DIRECTIONS, DIRECTION),
                source=_decode(pl.col("name").str.extract(_ENDS[0], 1), _MEMORIES, MEMORY),
                destination=_decode(pl.col("name").str.extract(_ENDS[0], 2), _MEMORIES, MEMORY),
            ),
            fills.select(
                *_where(),
                kind=pl.lit(OperationKind.FILL, KIND),
                bytes=_keep_within("bytes", _MOST_BYTES),
                direction=pl.lit(CopyDirection.FILL, DIRECTION),
                destination=_decode(pl.col("name").str.extract(_ENDS[1]), _MEMORIES, MEMORY),
            ),
        ],
        how="diagonal",
    )
    usual = pl.col("contextId").drop_nulls().mode().min()
    return rows.with_columns(
        contextId=pl.coalesce("contextId", usual.over("deviceId"), usual, pl.lit(0, pl.Int64))
    ).with_row_index("row")


def number_kernel_names(rows: pl.DataFrame, texts: list[str]) -> tuple[pl.DataFrame, pl.Series]:
    """Return the names of kernels (`NAMES`), and the number of each device row, null without a kernel."""
    used = rows["text"].unique().drop_nulls().sort()
    spelled = pl.Series("text", [texts[place] for place in used.to_list()], dtype=pl.String)
    names = number_texts(spelled)
    numbers = pl.DataFrame({"text": used, "spelled": spelled}).join(
        names, left_on="spelled", right_on="text", how="left", maintain_order="left"
    )
    found = rows.select("text").join(
        numbers.select("text", "name"), on="text", how="left", maintain_order="left"
    )
    return names, found["name"]


_LEAST_SHOWN_WARPS = 0.16
"""Half a percent of the warps of the smallest multiprocessors, which have 32: fewer are rounded to 0."""


def build_kernel_occupancy(tables: TraceTables, raw_place: pl.Series) -> pl.DataFrame:
    """Return the occupancy that the trace has of kernels (`KERNEL_OCCUPANCY`).

    `raw_place` is the place of each operation in `build_device_rows`, in which kernels are first. An
    occupancy of 0 means that the profiler could not compute it, unless the grid has almost no warps.
    """
    kernels = tables.frames["kernels"]
    is_told = (pl.col("occupancy") > 0) | (pl.col("warps_per_sm") < _LEAST_SHOWN_WARPS)
    told = kernels.select(
        place=pl.int_range(pl.len(), dtype=pl.UInt32),
        blocks_per_sm=pl.when(pl.col("blocks_per_sm") > 0).then("blocks_per_sm"),
        achieved=pl.when(is_told & (pl.col("occupancy") <= _PERCENT)).then(pl.col("occupancy") / _PERCENT),
    ).filter(pl.col("blocks_per_sm").is_not_null())
    ops = pl.DataFrame({"place": raw_place.cast(pl.UInt32)}).with_row_index("op")
    found = ops.join(told, on="place", maintain_order="left")
    return found.select(KERNEL_OCCUPANCY.names()).cast(KERNEL_OCCUPANCY)


def _where(device: pl.Expr | None = None) -> list[pl.Expr]:
    """Return times, identity and correlation; the device is in the process column of host rows."""
    place = pl.coalesce("device", "pid") if device is None else device
    node = pl.col("graph_node")
    return [
        pl.col("start"),
        pl.col("end"),
        pl.when(place.is_between(0, _MOST_DEVICES)).then(place).alias("deviceId"),
        pl.col("context").alias("contextId"),
        pl.coalesce("stream", "tid").alias("streamId"),
        pl.col("correlation").alias("correlationId"),
        pl.when(node > 0).then(node).alias("graph_node"),
    ]


def _keep_within(column: str, most: int) -> pl.Expr:
    """Return the value if it is possible, else null."""
    return pl.when(pl.col(column).is_between(0, most)).then(pl.col(column))


def _decode(
    spelled: pl.Expr, meanings: dict[str, CopyDirection] | dict[str, MemoryKind], to: pl.Enum
) -> pl.Expr:
    """Return the meaning of a word, `unknown` for others."""
    return spelled.replace_strict(
        {word: str(meaning) for word, meaning in meanings.items()}, default="unknown", return_dtype=to
    )
