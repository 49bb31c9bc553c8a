"""NVTX ranges of all threads: push/pop and start/end, with their text from whichever place holds it."""

import polars as pl

from wallscope.model.frames import RANGES
from wallscope.nsys.id_tables import NAMELESS, join_threads, look_up_texts, number_texts
from wallscope.nsys.identity import read_duration_ns
from wallscope.nsys.tables import Database
from wallscope.trace.names import folded

PUSH_POP, START_END = 59, 60
_NEVER = 2**62


def build_ranges(
    source: Database, raw: pl.DataFrame, threads: pl.DataFrame, time_shift_ns: int
) -> tuple[pl.DataFrame, pl.DataFrame]:
    """The ranges and their names (`RANGES`, `NAMES`) from the raw rows.

    A range that was open when the capture ended got the capture's end; it is marked clipped. Marks,
    categories and names of domains are no ranges; rows that end before they start are left out.
    """
    last_ns = _capture_end_ns(source, raw, time_shift_ns)
    kept = raw.filter(pl.col("eventType").is_in([PUSH_POP, START_END]))
    kept = kept.with_columns(pl.col("end").fill_null(last_ns)).filter(pl.col("end") >= pl.col("start"))
    by_id = look_up_texts(source, kept.filter(pl.col("text").is_null())["textId"].fill_null(NAMELESS))
    texts = kept.select(
        pl.coalesce(
            "text",
            pl.col("textId")
            .fill_null(NAMELESS)
            .replace_strict(by_id["string_id"], by_id["text"], default=None, return_dtype=pl.String),
        )
    )["text"]
    names = number_texts(texts)
    crosses = (pl.col("endGlobalTid") != pl.col("globalTid")) & (pl.col("endGlobalTid") != 0)
    rows = (
        kept.with_columns(texts)
        .join(names, on="text", how="left", maintain_order="left")
        .pipe(join_threads, threads, "globalTid")
        .with_columns(
            start_ns=pl.col("start") - time_shift_ns,
            end_ns=pl.col("end") - time_shift_ns,
            clipped=pl.col("end") >= last_ns,
            crosses=crosses.fill_null(value=False),
            domain=pl.when(pl.col("domainId").is_between(0, 2**31)).then("domainId").otherwise(0),
        )
        .pipe(_sort_outside_in, names)
        .with_row_index("range")
    )
    return rows.select(RANGES.names()).cast(RANGES), names


def _sort_outside_in(rows: pl.DataFrame, names: pl.DataFrame) -> pl.DataFrame:
    """Ranges of each thread from the outside in; of equal ones that is outside whose like last longer.

    Rows of an export are in no order, so equal ranges would nest differently from step to step. Where their
    like do not differ either, that is outside whose like stands first in the export.
    """
    span = ["thread", "start_ns", "end_ns"]
    outside_in = [False, False, True]
    found = rows.sort(span, descending=outside_in, maintain_order=True)
    is_tied = found.select(pl.all_horizontal(pl.col(span) == pl.col(span).shift(1)).any()).item()
    if not is_tied:
        return found
    folds = names.select("name", fold=folded(names["text"]))
    length = pl.col("end_ns") - pl.col("start_ns")
    kind = ["domain", "fold"]
    return (
        rows.with_row_index("row")
        .join(folds, on="name", how="left", maintain_order="left")
        .with_columns(like_ns=length.mean().over(kind), first=pl.col("row").min().over(kind))
        .sort(*span, "like_ns", "first", descending=[*outside_in, True, False], maintain_order=True)
        .drop("row", "fold", "like_ns", "first")
    )


def _capture_end_ns(source: Database, raw: pl.DataFrame, time_shift_ns: int) -> int:
    """When the capture ended, on the clock of the raw rows; Nsight gives open ranges this end.

    Where the export does not tell it, the last end stands for it if several ranges share it.
    """
    duration_ns = read_duration_ns(source)
    if duration_ns is not None and duration_ns > 0:
        return duration_ns + time_shift_ns
    ends = raw.filter(pl.col("eventType").is_in([PUSH_POP, START_END]))["end"]
    last_ns = ends.max()
    if not isinstance(last_ns, int):
        return _NEVER
    is_shared = (ends == last_ns).sum() > 1 or ends.null_count() > 0
    return last_ns if is_shared else _NEVER
