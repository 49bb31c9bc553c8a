"""The token dispatcher of a mixture of experts: what packs, waits, moves and unpacks tokens.

What is called the time of dispatch and combine is mostly not that of the network; the parts are told
apart by class, category and kernel name.
"""

import numpy as np
import numpy.typing as npt
import polars as pl

from wallscope.arrays.columns import Rows, filled, place
from wallscope.arrays.lookup import rows_of
from wallscope.model.communication import DispatcherWork
from wallscope.model.kinds import Axis, Collective, ComputeCategory, OperationClass
from wallscope.text_memo import TextMemo
from wallscope.walls.typical import CATEGORIES, TypicalWork

_PACKING, _UNPACKING, _ROUTING = range(3)
_LOCAL, _SYNCHRONISE = map(CATEGORIES.index, (ComputeCategory.DISPATCHER_LOCAL, Collective.SYNCHRONISE))
_UNPACKS = r"(?i)unpermute|unpad|reduce_epilogue|moe_(sum|finalize|recover)|finalize\w*Rout"
_PACKS = (
    r"(?i)permute_(kernel|with_mask|rows|bwd)|^_?permute\b|moe_permute|sort_chunks|moe_(sort|expand)|row_id_map"
    r"|chunk_sort_map|pad_tokens|copy_epilogue|count_and_sort_expert|expand\w*Rows|prob_kernel|to_dense_prob"
    r"|to_sparse_prob"
)


def _asked(texts: pl.Series) -> npt.NDArray[np.int64]:
    """What a kernel of the dispatcher does, by its name."""
    packs, unpacks = (texts.str.contains(pattern).to_numpy() for pattern in (_PACKS, _UNPACKS))
    return np.where(unpacks, _UNPACKING, np.where(packs, _PACKING, _ROUTING))


_TOLD = TextMemo(_asked)


def dispatcher(work: TypicalWork, axes: pl.DataFrame, names: pl.DataFrame) -> DispatcherWork | None:
    """Work of the dispatcher in the typical step of one rank; `None` where no experts communicate.

    `axes` follow `AXES`, `names` are those of kernels. Permutations back to the order of tokens unpack,
    also in the backward pass of packing, whose kernels bear the same names; kernels of the dispatcher that
    neither pack nor unpack route: scores, counts, layouts.
    """
    columns = work.columns
    expert, _ = rows_of(columns.op, axes["op"].to_numpy()[filled(axes["axis"]) == place(Axis.EP)])
    if expert.size == 0:
        return None
    computing = work.rows_of(OperationClass.COMPUTE)
    local = computing[columns.category[computing] == _LOCAL]
    does = _TOLD.of(names["text"].to_list())[columns.name[local]]
    waits = columns.category[expert] == _SYNCHRONISE

    def work_ns(rows: Rows) -> int:
        return work.mean(work.total_ns(rows))

    return DispatcherWork(
        pack_ns=work_ns(local[does == _PACKING]),
        synchronise_ns=work_ns(expert[waits]),
        transport_ns=work_ns(expert[~waits]),
        unpack_ns=work_ns(local[does == _UNPACKING]),
        routing_ns=work_ns(local[does == _ROUTING]),
    )
