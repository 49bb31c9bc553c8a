"""The token dispatcher of a mixture of experts: what packs, waits, moves and unpacks tokens.

What is called the time of dispatch and combine is mostly not that of the network; the parts are told
apart by class, category and kernel name.
"""

import polars as pl

from wallscope.model.communication import DispatcherWork
from wallscope.model.kinds import Axis, Collective, ComputeCategory, OperationClass
from wallscope.walls.typical import TypicalWork

_UNPACKS = r"(?i)unpermute|unpad|reduce_epilogue|moe_(sum|finalize|recover)|finalize\w*Rout"
_PACKS = (
    r"(?i)permute_(kernel|with_mask|rows|bwd)|^_?permute\b|moe_permute|sort_chunks|moe_(sort|expand)|row_id_map"
    r"|chunk_sort_map|pad_tokens|copy_epilogue|count_and_sort_expert|expand\w*Rows|prob_kernel|to_dense_prob"
    r"|to_sparse_prob"
)


def dispatcher(work: TypicalWork, axes: pl.DataFrame, names: pl.DataFrame) -> DispatcherWork | None:
    """Work of the dispatcher in the typical step of one rank; `None` where no experts communicate.

    `axes` follow `AXES`, `names` are those of kernels. Permutations back to the order of tokens unpack,
    also in the backward pass of packing, whose kernels bear the same names; kernels of the dispatcher that
    neither pack nor unpack route: scores, counts, layouts.
    """
    expert = work.operations.join(axes.filter(pl.col("axis") == Axis.EP).select("op"), on="op", how="semi")
    if expert.is_empty():
        return None
    is_local = (pl.col("class") == OperationClass.COMPUTE) & (
        pl.col("category") == ComputeCategory.DISPATCHER_LOCAL
    )
    local = work.operations.filter(is_local).join(names, on="name", how="left")
    unpacks = pl.col("text").str.contains(_UNPACKS)
    packs = ~unpacks & pl.col("text").str.contains(_PACKS)
    waits = pl.col("category") == Collective.SYNCHRONISE
    return DispatcherWork(
        pack_ns=_work_ns(work, local.filter(packs)),
        synchronise_ns=_work_ns(work, expert.filter(waits)),
        transport_ns=_work_ns(work, expert.filter(~waits)),
        unpack_ns=_work_ns(work, local.filter(unpacks)),
        routing_ns=_work_ns(work, local.filter(~packs & ~unpacks)),
    )


def _work_ns(work: TypicalWork, operations: pl.DataFrame) -> int:
    return work.mean(int(operations["inside_ns"].sum()))
