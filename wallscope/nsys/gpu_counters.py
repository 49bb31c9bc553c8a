"""Samples of GPU metrics and device memory in use.

Samples are in a table of numbers, or in JSON texts in older exports. Memory is the sum of the traced
allocations and releases.
"""

from collections.abc import Collection

import polars as pl

from wallscope.model.capture import Presence, Progress
from wallscope.model.schemas import MEMORY_EVENTS, NAMES, SAMPLES
from wallscope.nsys.identity import list_processes, number_texts
from wallscope.nsys.tables import CatalogTable, Database, read_table

_NUMBERS = CatalogTable(
    "GPU_METRICS",
    ("timestamp", "typeId", "metricId", "value"),
    required=("timestamp", "typeId", "metricId", "value"),
)
_METRICS = CatalogTable(
    "TARGET_INFO_GPU_METRICS",
    ("typeId", "metricId"),
    texts=("metricName",),
    required=("typeId", "metricId", "metricName"),
)
_TEXTS = CatalogTable(
    "GENERIC_EVENTS", ("timestamp", "rawTimestamp", "typeId"), texts=("data",), required=("typeId",)
)
_IS_SAMPLE = r'(?i)"(GR|SMs?) Active'  # Generic events have other content too; every GPU has one of these.
_PAIR = r'"((?:[^"\\]|\\.)+)"\s*:\s*"?([-+0-9.eE]+)"?\s*[,}]'
_SYNONYMS = (
    (r"\s*\[avg ?([^\]]*)\]", " avg $1"),  # a different quantity than the percentage of the same name
    (r"\s*\[[^\]]*\]", ""),
    (r"\bsm(s|\(s\))", "sm"),
    (r"\bthroughput\b", "bandwidth"),
    (r"\s+", " "),
)
_USAGE = CatalogTable(
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


def read_samples(
    source: Database, time_shift_ns: int, progress: Progress, wanted: Collection[str] | None = None
) -> tuple[pl.DataFrame, pl.DataFrame]:
    """Read the samples and the names of their metrics (`SAMPLES`, `NAMES`); names are `normalised`.

    With `wanted` names, other metrics are not read.
    """
    if source.presence(_NUMBERS.name) is Presence.ROWS:
        rows, metrics = _read_numbers(source, progress, wanted)
    else:
        rows, metrics = _read_texts(source, progress)
    if rows.is_empty():
        return SAMPLES.to_frame(), NAMES.to_frame()
    key = [column for column in metrics.columns if column in rows.columns]
    metrics = metrics.with_columns(text=normalize("spelled"))
    if wanted is not None:
        metrics = metrics.filter(pl.col("text").is_in(list(wanted)))
    names = number_texts(metrics["text"])
    metrics = metrics.join(names, on="text").select(*key, metric="name")
    found = (
        rows.join(metrics, on=key, nulls_equal=True, maintain_order="left")
        .with_columns(gpu=pl.col("typeId") & 0xFF, at_ns=pl.col("at") - time_shift_ns)
        .select(SAMPLES.names())
        .cast(SAMPLES)
        .sort("gpu", "metric", "at_ns", maintain_order=True)
    )
    return found, names


def normalize(column: str) -> pl.Expr:
    """Return a metric's name in one spelling for all versions: lower case, no unit, one word per quantity.

    >>> names = ["SMs Active [Throughput %]", "DRAM Read Throughput", "Compute Warps in Flight [Avg]"]
    >>> pl.DataFrame({"name": names}).select(normalize("name")).to_series().to_list()
    ['sm active', 'dram read bandwidth', 'compute warps in flight avg']
    """
    name = pl.col(column).str.to_lowercase()
    for spelling, word in _SYNONYMS:
        name = name.str.replace_all(spelling, word)
    return name.str.strip_chars()


def _read_numbers(
    source: Database, progress: Progress, wanted: Collection[str] | None
) -> tuple[pl.DataFrame, pl.DataFrame]:
    """Read samples by (`typeId`, `metricId`) and the spelling of each; numbers count only within their type.

    A metric without a description has no useful name.
    """
    key = ["typeId", "metricId"]
    described = read_table(source, _METRICS, progress).unique(key, keep="first", maintain_order=True)
    keys = None
    if wanted is not None:
        keys = described.filter(normalize("metricName").is_in(list(wanted))).select(key).drop_nulls()
    rows = read_table(source, _NUMBERS, progress, keys).select(*key, at="timestamp", value="value")
    metrics = rows.select(key).unique().join(described, on=key, how="left", nulls_equal=True)
    number = pl.format("#{}", pl.col("metricId").fill_null("?"))
    return rows, metrics.select(*key, spelled=pl.coalesce("metricName", number))


def _find_sample_types(source: Database) -> pl.DataFrame | None:
    """Return the types of generic events that may be samples; `None` if unknown."""
    if not source.has(_TEXTS.name, "typeId", "data"):
        return None
    found = source.rows("sample_types")
    return pl.DataFrame(
        {"typeId": [kind for (kind,) in found if isinstance(kind, int)]}, {"typeId": pl.Int64}
    )


def _read_texts(source: Database, progress: Progress) -> tuple[pl.DataFrame, pl.DataFrame]:
    """Read samples by `key` and the spelling of each; pairs of a text that are not numbers are excluded.

    These rows often have only the raw time, which is session time there. Other generic events, possibly
    gigabytes, are not kept in memory.
    """
    rows = read_table(source, _TEXTS, progress, _find_sample_types(source))
    if rows.is_empty():
        return rows, rows
    rows = rows.filter(pl.col("data").str.contains(_IS_SAMPLE))
    pairs = rows.select(
        "typeId", at=pl.coalesce("timestamp", "rawTimestamp"), pair=pl.col("data").str.extract_all(_PAIR)
    ).explode("pair")
    samples_by_key = pairs.select(
        "typeId",
        "at",
        key=pl.col("pair").str.extract(_PAIR, 1).str.replace_all(r"\\(.)", "$1"),
        value=pl.col("pair").str.extract(_PAIR, 2).cast(pl.Float64, strict=False),
    ).filter(pl.col("value").is_finite())
    return samples_by_key, samples_by_key.select("key").unique().with_columns(spelled="key")


def read_memory(
    source: Database, threads: pl.DataFrame, time_shift_ns: int, progress: Progress
) -> pl.DataFrame:
    """Return the device memory that each process used on each device (`MEMORY`).

    Memory allocated before the capture counts as far as its release was recorded, so all values are lower
    bounds. A row of a pool contains the use of the pool, which counts instead of the bytes of the row. Rows
    of other memory, or of impossible sizes, are excluded.
    """
    rows = read_table(source, _USAGE, progress)
    if rows.is_empty():
        return MEMORY_EVENTS.to_frame()
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
        .join(list_processes(threads), on="globalPid", how="left", nulls_equal=True, maintain_order="left")
        .sort("process", "device", "at_ns", maintain_order=True)
        .select(MEMORY_EVENTS.names())
        .cast(MEMORY_EVENTS)
    )


def _small(column: str) -> pl.Expr:
    """Return a number that fits 16 bits, null otherwise."""
    return pl.when(pl.col(column).is_between(0, 0xFFFF)).then(pl.col(column))
