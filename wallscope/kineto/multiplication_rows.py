"""The kernels that do the FLOPs of an operator: those issued by calls inside it, on its thread.

`External id` names the operator in some versions and another event in others, so times decide.
"""

import msgspec
import numpy as np
import polars as pl

from wallscope.columns import Rows
from wallscope.kineto.event_tables import TraceTables
from wallscope.kineto.host_rows import ROUNDING_NS
from wallscope.kineto.operator_flops import BACKWARD_OF, FLOP_FORMULAS, count_flops
from wallscope.kineto.trace_identity import join_thread_ids
from wallscope.model.enums import ComputeCategory, OperationKind
from wallscope.model.schemas import KERNEL_FLOPS
from wallscope.nsys.calls import Calls
from wallscope.nsys.operations import DeviceWork
from wallscope.trace.kernel_classes import classify_kernels, load_kernel_rules

_MULTIPLYING = (ComputeCategory.GEMM, ComputeCategory.GROUPED_GEMM)
_GRADIENTS = (1, 2)  # of the input or the weight, or of both


def build_kernel_flops(
    tables: TraceTables, numbered: pl.DataFrame, work: DeviceWork, made: Calls, start_ns: int
) -> pl.DataFrame:
    """Return the kernels of operators with known FLOPs (`KERNEL_FLOPS`).

    Of nested operators with known FLOPs the outermost counts. `numbered` are the threads of the trace.
    """
    operators = _count_operators(tables, numbered, start_ns)
    if operators.is_empty():
        return KERNEL_FLOPS.to_frame()
    kernels = work.operations.filter((pl.col("kind") == OperationKind.KERNEL) & (pl.col("call") >= 0))
    issued = kernels.select("op", "call", "name").hstack(
        made.calls[kernels["call"].to_numpy()].select("thread", called_ns="start_ns")
    )
    issued = issued.sort("called_ns", maintain_order=True)
    operators = _count_gradients(operators, issued, work.names)
    return (
        issued.join_asof(
            _keep_outermost(operators.drop_nulls("flops")).sort("start_ns"),
            left_on="called_ns",
            right_on="start_ns",
            by="thread",
            strategy="backward",
            check_sortedness=False,
        )
        .filter(pl.col("called_ns") < pl.col("until_ns"))
        .sort("op")
        .select(KERNEL_FLOPS.names())
        .cast(KERNEL_FLOPS)
    )


def _count_operators(tables: TraceTables, numbered: pl.DataFrame, start_ns: int) -> pl.DataFrame:
    """Return the operators with `thread`, times, `name`, `sequence` and `flops`, null where unknown.

    `until_ns` is the latest end: whole microseconds are rounded down.
    """
    rows = join_thread_ids(tables.frames["multiplications"], numbered).drop_nulls("thread")
    keys = rows.select("text", "shapes", "types", "values")
    known = {key: _count(tables.texts[key[0]], *key[1:]) for key in keys.unique().iter_rows()}
    late_ns = ROUNDING_NS if tables.is_coarse else 0
    return rows.select(
        pl.col("thread").cast(pl.UInt32),
        "process",
        "sequence",
        name=pl.Series([tables.texts[text] for text in rows["text"].to_list()], dtype=pl.String),
        start_ns=pl.col("start") - start_ns,
        end_ns=pl.col("end") - start_ns,
        until_ns=pl.col("end") - start_ns + late_ns,
        flops=pl.Series([known[key] for key in keys.iter_rows()], dtype=pl.Int64),
    ).sort("thread", "start_ns", -pl.col("end_ns"), maintain_order=True)


def _count(name: str, shapes: str | None, types: str | None, values: str | None) -> int | None:
    if name not in FLOP_FORMULAS:
        return None
    told = (None if spelled is None else msgspec.json.decode(spelled) for spelled in (shapes, types, values))
    return count_flops(name, *told)


def _keep_outermost(operators: pl.DataFrame) -> pl.DataFrame:
    """Return the operators inside no other, numbered (`operator`)."""
    before = pl.col("end_ns").cum_max().shift(1).over("thread").fill_null(pl.col("start_ns"))
    return operators.filter(pl.col("start_ns") >= before).with_columns(
        operator=pl.int_range(pl.len(), dtype=pl.UInt32)
    )


def _count_gradients(operators: pl.DataFrame, issued: pl.DataFrame, names: pl.DataFrame) -> pl.DataFrame:
    """Return the operators with FLOPs of those that record only gradients.

    Each gradient takes as much as the forward operator with the same sequence number. The kernels that
    multiply show whether there are one or two for each multiplication.
    """
    is_asked = pl.col("name").is_in(list(BACKWARD_OF)) & pl.col("flops").is_null()
    if operators.filter(is_asked).is_empty():
        return operators
    kinds = classify_kernels(names, load_kernel_rules(None))
    multiplying = kinds.filter(pl.col("category").is_in(list(map(str, _MULTIPLYING))))["name"]
    called = issued.filter(pl.col("name").is_in(multiplying.implode()))
    operators = operators.with_columns(kernels=_count_calls(operators, called))
    key = ["process", "sequence", "forward"]
    forward = (
        operators.select("process", "sequence", forward="name", done="flops", first="kernels")
        .filter(pl.col("sequence") >= 0, pl.col("first") > 0)
        .unique(key, keep="none")
    )
    gradients = pl.col("kernels") // pl.col("first")
    is_whole = (pl.col("kernels") % pl.col("first") == 0) & gradients.is_in(_GRADIENTS)
    return (
        operators.with_columns(forward=pl.col("name").replace_strict(BACKWARD_OF, default=None))
        .join(forward, on=key, how="left", maintain_order="left")
        .with_columns(
            flops=pl.when(is_asked & is_whole).then(pl.col("done") * gradients).otherwise("flops")
        )
    )  # fmt: skip


def _count_calls(operators: pl.DataFrame, called: pl.DataFrame) -> Rows:
    """Return how many kernels were issued inside each operator, on its thread."""
    found = np.zeros(len(operators), np.int64)
    thread = operators["thread"].to_numpy()
    start_ns, until_ns = operators["start_ns"].to_numpy(), operators["until_ns"].to_numpy()
    for number, own in called.partition_by("thread", as_dict=True).items():
        at_ns = np.sort(own["called_ns"].to_numpy())
        rows = np.flatnonzero(thread == number[0])
        found[rows] = np.searchsorted(at_ns, until_ns[rows]) - np.searchsorted(at_ns, start_ns[rows])
    return found
