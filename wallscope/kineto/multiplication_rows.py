"""The kernels that do the FLOPs of an operator: those issued by calls inside it, on its thread.

`External id` names the operator in some versions and another event in others, so times decide.
"""

import msgspec
import polars as pl

from wallscope.kineto.event_tables import TraceTables
from wallscope.kineto.host_rows import ROUNDING_NS
from wallscope.kineto.operator_flops import count_flops
from wallscope.kineto.trace_identity import join_thread_ids
from wallscope.model.enums import OperationKind
from wallscope.model.schemas import KERNEL_FLOPS


def build_kernel_flops(
    tables: TraceTables, numbered: pl.DataFrame, operations: pl.DataFrame, calls: pl.DataFrame, start_ns: int
) -> pl.DataFrame:
    """Return the kernels of operators with known FLOPs (`KERNEL_FLOPS`).

    Of nested operators the outermost counts. `numbered` are the threads of the trace; `operations` and
    `calls` follow `OPERATIONS` and `CALLS`.
    """
    operators = _count_operators(tables, numbered, start_ns)
    if operators.is_empty():
        return KERNEL_FLOPS.to_frame()
    issued = operations.filter((pl.col("kind") == OperationKind.KERNEL) & (pl.col("call") >= 0)).select(
        "op", "call"
    )
    called = calls[issued["call"].to_numpy()].select("thread", called_ns="start_ns")
    late_ns = ROUNDING_NS if tables.is_coarse else 0
    return (
        issued.hstack(called)
        .sort("called_ns", maintain_order=True)
        .join_asof(
            operators.sort("start_ns"),
            left_on="called_ns",
            right_on="start_ns",
            by="thread",
            strategy="backward",
            check_sortedness=False,
        )
        .filter((pl.col("called_ns") < pl.col("end_ns") + late_ns) & pl.col("flops").is_not_null())
        .sort("op")
        .select(KERNEL_FLOPS.names())
        .cast(KERNEL_FLOPS)
    )


def _count_operators(tables: TraceTables, numbered: pl.DataFrame, start_ns: int) -> pl.DataFrame:
    """Return the outermost operators with `thread`, `start_ns`, `end_ns`, `operator` and `flops`."""
    rows = (
        join_thread_ids(tables.frames["multiplications"], numbered)
        .drop_nulls("thread")
        .sort("thread", "start", -pl.col("end"), maintain_order=True)
        .filter(pl.col("start") >= pl.col("end").cum_max().shift(1).over("thread").fill_null(pl.col("start")))
    )
    keys = rows.select("text", "shapes", "types", "values")
    known = {key: _count(tables.texts[key[0]], *key[1:]) for key in keys.unique().iter_rows()}
    return rows.select(
        pl.col("thread").cast(pl.UInt32),
        start_ns=pl.col("start") - start_ns,
        end_ns=pl.col("end") - start_ns,
        operator=pl.int_range(pl.len(), dtype=pl.UInt32),
        flops=pl.Series("flops", [known[key] for key in keys.iter_rows()], dtype=pl.Int64),
    )


def _count(name: str, shapes: str | None, types: str | None, values: str | None) -> int | None:
    told = (None if spelled is None else msgspec.json.decode(spelled) for spelled in (shapes, types, values))
    return count_flops(name, *told)
