"""Bytes that network cards and InfiniBand switches moved, as Nsight Systems samples their counters.

A sample is a rate between two moments. Its unit is in the description of the metric; a rate that is not bytes
in some time is not read. Older exports have the `globalId` next to the name of a card, newer ones in a table.
"""

import polars as pl

from wallscope.model.capture import Presence, Progress
from wallscope.model.enums import Direction
from wallscope.model.schemas import TRAFFIC
from wallscope.nsys.tables import CatalogTable, Database, read_table

_WHAT = ("metricsListId", "metricsIdx")
_NEEDED = ("start", "end", "globalId", *_WHAT, "value")
_CARDS, _SWITCHES = (
    CatalogTable(name, (*_NEEDED, "portId"), required=())
    for name in ("NET_NIC_METRIC", "NET_IB_SWITCH_METRIC")
)
_METRICS = CatalogTable("TARGET_INFO_NETWORK_METRICS", _WHAT, texts=("name", "unit"), required=())
_NAMES = CatalogTable("TARGET_INFO_NIC_INFO", ("nicId", "globalId"), texts=("name",), required=())
_IDS = CatalogTable("NIC_ID_MAP", ("nicId", "globalId"), required=())
_IS_BYTES = r"^(.+): Bytes (received|sent)$"
_UNIT = r"^(?:B|[Bb]ytes)/(s|ms|us|ns)$"
_PER_SECOND = {"s": 1.0, "ms": 1e3, "us": 1e6, "ns": 1e9}


def read_traffic(source: Database, time_shift_ns: int, progress: Progress) -> pl.DataFrame | None:
    """Return the samples of bytes moved, by link and direction (`TRAFFIC`); `None` where none was sampled."""
    sampled = [
        table
        for table in (_CARDS, _SWITCHES)
        if source.has(table.name, *_NEEDED) and source.presence(table.name) is Presence.ROWS
    ]
    if not sampled:
        return None
    factor = pl.col("unit").str.extract(_UNIT).replace_strict(_PER_SECOND, default=None)
    metrics = (
        read_table(source, _METRICS, progress)
        .select(
            *_WHAT,
            protocol=pl.col("name").str.extract(_IS_BYTES, 1),
            direction=pl.col("name").str.extract(_IS_BYTES, 2),
            factor=factor.cast(pl.Float64),
        )
        .drop_nulls()
        .unique(_WHAT, keep="first", maintain_order=True)
    )
    cards = _name_cards(source, progress)
    frames = []
    for table in sampled:
        rows = read_table(source, table, progress, metrics.select(_WHAT)).join(metrics, on=_WHAT)
        named = rows.join(cards, on="globalId", how="left") if table is _CARDS else _name_switches(rows)
        frames.append(named)
    several = pl.col("portId").n_unique().over("device") > 1
    port = pl.when(several & pl.col("portId").is_not_null()).then(pl.format(" port {}", "portId"))
    return (
        pl.concat(frames)
        .with_columns(device=pl.coalesce("device", pl.format("card {}", "globalId")))
        .filter((pl.col("end") > pl.col("start")) & (pl.col("value") >= 0))
        .with_columns(
            link=pl.format("{}{} ({})", "device", port.fill_null(""), "protocol"),
            start_ns=pl.col("start") - time_shift_ns,
            end_ns=pl.col("end") - time_shift_ns,
            bytes_per_s=pl.col("value") * pl.col("factor"),
            direction=pl.col("direction").cast(pl.Enum(Direction)),
        )
        .select(TRAFFIC.names())
        .cast(TRAFFIC)
        .sort("link", "direction", "start_ns")
    )


def _name_cards(source: Database, progress: Progress) -> pl.DataFrame:
    """Return the name of each card that a sample can refer to, once."""
    names = read_table(source, _NAMES, progress)
    if source.has(_IDS.name, "nicId", "globalId"):
        names = read_table(source, _IDS, progress).join(names.drop("globalId"), on="nicId", how="left")
    return (
        names.drop_nulls("globalId")
        .unique("globalId", keep="first", maintain_order=True)
        .select("globalId", device="name")
    )


def _name_switches(rows: pl.DataFrame) -> pl.DataFrame:
    return rows.with_columns(device=pl.format("switch {}", "globalId"))
