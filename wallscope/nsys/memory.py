"""Device memory in use, from each allocation and release that was traced."""

import polars as pl

from wallscope.model.capture import Progress
from wallscope.model.events import MEMORY
from wallscope.nsys.catalog import Table
from wallscope.nsys.tables import Database, read
from wallscope.nsys.threads import processes_of

_USAGE = Table(
    "CUDA_GPU_MEMORY_USAGE_EVENTS",
    (
        "start",
        "globalPid",
        "deviceId",
        "bytes",
        "memKind",
        "memoryOperationType",
        "localMemoryPoolAddress",
        "localMemoryPoolUtilizedSize",
    ),
    required=("start", "bytes", "memKind", "memoryOperationType"),
)
_DEVICE_MEMORY = 2
_SIGNS = {0: 1, 1: -1}  # allocation, release
_LARGEST_BYTES = 1 << 48
_WHERE = ["globalPid", "deviceId"]


def memory(source: Database, threads: pl.DataFrame, time_shift_ns: int, progress: Progress) -> pl.DataFrame:
    """Device memory that each process used on each device (`MEMORY`).

    Memory that was there before the capture counts as far as its release shows, so all is a lower
    bound. A row of a pool tells how much of the pool is used; that counts, not the bytes of the row.
    Rows of other memory, or of impossible sizes, are left out.
    """
    rows = read(source, _USAGE, progress)
    if rows.is_empty():
        return MEMORY.to_frame()
    sign = pl.col("memoryOperationType").replace_strict(_SIGNS, default=None, return_dtype=pl.Int64)
    pool_bytes = pl.col("localMemoryPoolUtilizedSize")
    before = pool_bytes.shift(1, fill_value=0).over([*_WHERE, "localMemoryPoolAddress"])
    possible = pl.coalesce("localMemoryPoolUtilizedSize", "bytes").is_between(0, _LARGEST_BYTES)
    device_memory = rows.sort("start", maintain_order=True).filter(
        possible & (pl.col("memKind") == _DEVICE_MEMORY) & sign.is_not_null()
    )
    in_pools, others = (
        device_memory.filter(pool_bytes.is_not_null()).with_columns(change=pool_bytes - before),
        device_memory.filter(pool_bytes.is_null()).with_columns(change=sign * pl.col("bytes")),
    )
    used = pl.col("change").cum_sum().over(_WHERE)
    earlier = pl.col("change").cum_sum().min().over(_WHERE).clip(upper_bound=0)
    return (
        pl.concat([others, in_pools])
        .sort(*_WHERE, "start", maintain_order=True)
        .with_columns(
            at_ns=pl.col("start") - time_shift_ns, bytes_used=used - earlier, device=_small("deviceId")
        )
        .join(processes_of(threads), on="globalPid", how="left", nulls_equal=True, maintain_order="left")
        .sort("process", "device", "at_ns", maintain_order=True)
        .select(MEMORY.names())
        .cast(MEMORY)
    )


def _small(column: str) -> pl.Expr:
    """A number that fits 16 bits; null where it does not."""
    return pl.when(pl.col(column).is_between(0, 0xFFFF)).then(pl.col(column))
