"""Samples of GPU metrics, from the table of numbers or from the JSON texts that came before it."""

from collections.abc import Collection

import polars as pl

from wallscope.model.capture import Presence, Progress
from wallscope.model.events import SAMPLES
from wallscope.model.frames import NAMES
from wallscope.nsys.catalog import Table
from wallscope.nsys.strings import numbered
from wallscope.nsys.tables import Database, read

_NUMBERS = Table(
    "GPU_METRICS",
    ("timestamp", "typeId", "metricId", "value"),
    required=("timestamp", "typeId", "metricId", "value"),
)
_METRICS = Table(
    "TARGET_INFO_GPU_METRICS",
    ("typeId", "metricId"),
    texts=("metricName",),
    required=("typeId", "metricId", "metricName"),
)
_TEXTS = Table(
    "GENERIC_EVENTS", ("timestamp", "rawTimestamp", "typeId"), texts=("data",), required=("typeId",)
)
_IS_SAMPLE = r'(?i)"(GR|SMs?) Active'  # generic events hold other things too; every GPU has one of these
_PAIR = r'"((?:[^"\\]|\\.)+)"\s*:\s*"?([-+0-9.eE]+)"?\s*[,}]'
_SYNONYMS = (
    (r"\s*\[avg ?([^\]]*)\]", " avg $1"),  # another quantity than the percentage of the same name
    (r"\s*\[[^\]]*\]", ""),
    (r"\bsm(s|\(s\))", "sm"),
    (r"\bthroughput\b", "bandwidth"),
    (r"\s+", " "),
)


def samples(
    source: Database, time_shift_ns: int, progress: Progress, wanted: Collection[str] | None = None
) -> tuple[pl.DataFrame, pl.DataFrame]:
    """The samples and the names of their metrics (`SAMPLES`, `NAMES`); names are `normalised`.

    With `wanted` names, other metrics are not read.
    """
    if source.presence(_NUMBERS.name) is Presence.ROWS:
        rows, metrics = _from_numbers(source, progress, wanted)
    else:
        rows, metrics = _from_texts(source, progress)
    if rows.is_empty():
        return SAMPLES.to_frame(), NAMES.to_frame()
    key = [column for column in metrics.columns if column in rows.columns]
    metrics = metrics.with_columns(text=normalised("spelled"))
    if wanted is not None:
        metrics = metrics.filter(pl.col("text").is_in(list(wanted)))
    names = numbered(metrics["text"])
    metrics = metrics.join(names, on="text").select(*key, metric="name")
    found = (
        rows.join(metrics, on=key, nulls_equal=True, maintain_order="left")
        .with_columns(gpu=pl.col("typeId") & 0xFF, at_ns=pl.col("at") - time_shift_ns)
        .select(SAMPLES.names())
        .cast(SAMPLES)
        .sort("gpu", "metric", "at_ns", maintain_order=True)
    )
    return found, names


def normalised(column: str) -> pl.Expr:
    """A metric's name as all versions of Nsight spell it: lower case, no unit, one word for one thing.

    >>> names = ["SMs Active [Throughput %]", "DRAM Read Throughput", "Compute Warps in Flight [Avg]"]
    >>> pl.DataFrame({"name": names}).select(normalised("name")).to_series().to_list()
    ['sm active', 'dram read bandwidth', 'compute warps in flight avg']
    """
    name = pl.col(column).str.to_lowercase()
    for spelling, word in _SYNONYMS:
        name = name.str.replace_all(spelling, word)
    return name.str.strip_chars()


def _from_numbers(
    source: Database, progress: Progress, wanted: Collection[str] | None
) -> tuple[pl.DataFrame, pl.DataFrame]:
    """Samples by (`typeId`, `metricId`) and how each is `spelled`; numbers count in their type alone.

    A metric without a description has no name that anyone wants.
    """
    key = ["typeId", "metricId"]
    described = read(source, _METRICS, progress).unique(key, keep="first", maintain_order=True)
    keys = None
    if wanted is not None:
        keys = described.filter(normalised("metricName").is_in(list(wanted))).select(key).drop_nulls()
    rows = read(source, _NUMBERS, progress, keys).select(*key, at="timestamp", value="value")
    metrics = rows.select(key).unique().join(described, on=key, how="left", nulls_equal=True)
    number = pl.format("#{}", pl.col("metricId").fill_null("?"))
    return rows, metrics.select(*key, spelled=pl.coalesce("metricName", number))


def _sample_types(source: Database) -> pl.DataFrame | None:
    """The types of generic events that may be samples; `None` where nothing tells."""
    if not source.has(_TEXTS.name, "typeId", "data"):
        return None
    found = source.rows("sample_types")
    return pl.DataFrame(
        {"typeId": [kind for (kind,) in found if isinstance(kind, int)]}, {"typeId": pl.Int64}
    )


def _from_texts(source: Database, progress: Progress) -> tuple[pl.DataFrame, pl.DataFrame]:
    """Samples by `key` and how each is `spelled`; pairs of a text that are no numbers are left out.

    These rows often have the raw time alone, which is the time of the session there. Of the other generic
    events, which may be gigabytes, none is kept in memory.
    """
    rows = read(source, _TEXTS, progress, _sample_types(source))
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
