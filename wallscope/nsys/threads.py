"""Processes and host threads: Nsight's global ids made dense.

A global id holds host, virtual machine and process in its upper 40 bits and the thread in the lower
24; ids of hosts from 128 on are negative.
"""

import polars as pl

from wallscope.model.frames import THREADS
from wallscope.nsys.tables import Database

_TID_BITS = 0xFFFFFF
_KNOWN_ROLES = r"^(pt_autograd_\d+|pt_nccl_\w+|pt_data_pin|pt_main_thread|CUPTI worker thread)$"


def process_of(column: str) -> pl.Expr:
    """The process of a global thread id, in the spelling of globalPid."""
    return pl.col(column) - (pl.col(column) & _TID_BITS)


def pid_of(column: str) -> pl.Expr:
    """The operating system's id of the process in a global id."""
    return (pl.col(column) // (1 << 24)) & _TID_BITS


def processes(global_pids: pl.Series) -> pl.DataFrame:
    """Columns `globalPid`, `process`: the distinct processes, numbered in the order of their ids."""
    return global_pids.unique().sort(nulls_last=False).alias("globalPid").to_frame().with_row_index("process")


def threads(source: Database, global_tids: pl.Series, of_processes: pl.DataFrame) -> pl.DataFrame:
    """The distinct threads (`THREADS`) of some processes; null ids are one thread of unknown number."""
    tids = global_tids.unique().sort(nulls_last=False).alias("global_tid").to_frame()
    return (
        tids.with_columns(
            globalPid=process_of("global_tid"), pid=pid_of("global_tid"), tid=pl.col("global_tid") & _TID_BITS
        )
        .join(of_processes, on="globalPid", how="left", nulls_equal=True)
        .join(_roles(source), on="global_tid", how="left")
        .sort("process", "global_tid", nulls_last=False)
        .with_row_index("thread")
        .select(THREADS.names())
        .cast(THREADS)
    )


def processes_of(of_threads: pl.DataFrame) -> pl.DataFrame:
    """Columns `globalPid`, `process` of the processes that have threads (`THREADS`)."""
    return of_threads.select("process", globalPid=process_of("global_tid")).unique(maintain_order=True)


def with_threads(rows: pl.DataFrame, of_threads: pl.DataFrame, column: str) -> pl.DataFrame:
    """The rows with `thread` and `process` of the global thread id in a column, null where it is unknown."""
    numbers = of_threads.select("thread", "process", pl.col("global_tid").alias(column))
    return rows.join(numbers, on=column, how="left", nulls_equal=True, maintain_order="left")


def _roles(source: Database) -> pl.DataFrame:
    """What known libraries call their threads; other names are the program's own and are not read."""
    found = source.rows("thread_names") if source.has("ThreadNames", "globalTid", "nameId") else []
    rows = [(tid, name) for tid, name in found if isinstance(tid, int) and isinstance(name, str)]
    return (
        pl.DataFrame(rows, schema={"global_tid": pl.Int64, "role": pl.String}, orient="row")
        .filter(pl.col("role").str.contains(_KNOWN_ROLES))
        .unique("global_tid", keep="first", maintain_order=True)
    )
