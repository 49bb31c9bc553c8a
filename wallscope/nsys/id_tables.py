"""Texts of string ids, processes and host threads: Nsight's ids made dense.

A global id holds host, virtual machine and process in its upper 40 bits and the thread in the lower 24; ids
of hosts from 128 on are negative.
"""

import json

import polars as pl

from wallscope.model.frames import NAMES, THREADS
from wallscope.nsys import catalog
from wallscope.nsys.tables import Database

NAMELESS = -1
"""Stands for a row that names no string; its text is `(unnamed)`."""
_TID_BITS = 0xFFFFFF
_KNOWN_ROLES = r"^(pt_autograd_\d+|pt_nccl_\w+|pt_data_pin|pt_main_thread|CUPTI worker thread)$"


def look_up_texts(source: Database, string_ids: pl.Series) -> pl.DataFrame:
    """Columns `string_id`, `text` of the distinct ids; one that the export does not explain reads `#<id>`."""
    wanted = string_ids.unique().drop_nulls().sort().cast(pl.Int64).alias("string_id").to_frame()
    found: list[tuple[int, str]] = []
    if source.has(catalog.STRINGS, "id", "value"):
        found = source.rows("names", json.dumps(wanted["string_id"].to_list()))
    texts = pl.DataFrame(
        [(number, str(text)) for number, text in found if text is not None],
        schema={"string_id": pl.Int64, "text": pl.String},
        orient="row",
    ).unique("string_id", keep="first", maintain_order=True)
    number = pl.concat_str(pl.lit("#"), pl.col("string_id"))
    unnamed = pl.when(pl.col("string_id") == NAMELESS).then(pl.lit("(unnamed)")).otherwise(number)
    return wanted.join(texts, on="string_id", how="left").with_columns(pl.col("text").fill_null(unnamed))


def number_texts(texts: pl.Series) -> pl.DataFrame:
    """Distinct texts, numbered in their alphabetical order (`NAMES`)."""
    return texts.unique().sort().alias("text").to_frame().with_row_index("name").cast(NAMES)


def process_of(column: str) -> pl.Expr:
    """The process of a global thread id, in the spelling of globalPid."""
    return pl.col(column) - (pl.col(column) & _TID_BITS)


def pid_of(column: str) -> pl.Expr:
    """The operating system's id of the process in a global id."""
    return (pl.col(column) // (1 << 24)) & _TID_BITS


def number_processes(global_pids: pl.Series) -> pl.DataFrame:
    """Columns `globalPid`, `process`: the distinct processes, numbered in the order of their ids."""
    return global_pids.unique().sort(nulls_last=False).alias("globalPid").to_frame().with_row_index("process")


def number_threads(source: Database, global_tids: pl.Series, of_processes: pl.DataFrame) -> pl.DataFrame:
    """The distinct threads (`THREADS`) of some processes; null ids are one thread of unknown number."""
    tids = global_tids.unique().sort(nulls_last=False).alias("global_tid").to_frame()
    return (
        tids.with_columns(
            globalPid=process_of("global_tid"), pid=pid_of("global_tid"), tid=pl.col("global_tid") & _TID_BITS
        )
        .join(of_processes, on="globalPid", how="left", nulls_equal=True)
        .join(_read_roles(source), on="global_tid", how="left")
        .sort("process", "global_tid", nulls_last=False)
        .with_row_index("thread")
        .select(THREADS.names())
        .cast(THREADS)
    )


def list_processes(of_threads: pl.DataFrame) -> pl.DataFrame:
    """Columns `globalPid`, `process` of the processes that have threads (`THREADS`)."""
    return of_threads.select("process", globalPid=process_of("global_tid")).unique(maintain_order=True)


def join_threads(rows: pl.DataFrame, of_threads: pl.DataFrame, column: str) -> pl.DataFrame:
    """The rows with `thread` and `process` of the global thread id in a column, null where it is unknown."""
    numbers = of_threads.select("thread", "process", pl.col("global_tid").alias(column))
    return rows.join(numbers, on=column, how="left", nulls_equal=True, maintain_order="left")


def _read_roles(source: Database) -> pl.DataFrame:
    """What known libraries call their threads; other names are the program's own and are not read."""
    found = source.rows("thread_names") if source.has("ThreadNames", "globalTid", "nameId") else []
    rows = [(tid, name) for tid, name in found if isinstance(tid, int) and isinstance(name, str)]
    return (
        pl.DataFrame(rows, schema={"global_tid": pl.Int64, "role": pl.String}, orient="row")
        .filter(pl.col("role").str.contains(_KNOWN_ROLES))
        .unique("global_tid", keep="first", maintain_order=True)
    )
