"""FLOPs of kernels inside NVTX ranges that give the shapes of PyTorch's operators.

`torch.autograd.profiler.emit_nvtx(record_shapes=True)` and `nsys --pytorch=autograd-shapes-nvtx` add them to
the names of ranges: `aten::mm, seq = 7, op_id = 12, sizes = [[64, 96], [96, 160]], input_op_ids = [(11,0)]`.
Types and values of other arguments are not in there. So kernels alone show the precision, and FLOPs that
depend on a mask, a stride or a padding are unknown.
"""

import json
import re

import polars as pl

from wallscope.model.enums import OperationKind
from wallscope.model.schemas import KERNEL_FLOPS
from wallscope.trace.operator_flops import FLOP_FORMULAS, count_flops, count_model_flops
from wallscope.trace.operator_kernels import find_operator_kernels

_HAS_SIZES = ", sizes = [["
_SIZES = r"\[(?:\d{1,18}(?:, \d{1,18})*)?\]"
_SHAPED = re.compile(rf"([\w:]+)(?:, \w+ = -?\d+)*, sizes = (\[{_SIZES}(?:, {_SIZES})*\])(?:, |$)")


def count_shaped_ranges(
    ranges: pl.DataFrame,
    range_names: pl.DataFrame,
    operations: pl.DataFrame,
    calls: pl.DataFrame,
) -> pl.DataFrame | None:
    """Return the kernels of operators whose ranges give shapes (`KERNEL_FLOPS`); `None` if no range does.

    Args:
        ranges: `RANGES`.
        range_names: `NAMES` of the ranges.
        operations: `OPERATIONS`.
        calls: `CALLS` that issued them.
    """
    shaped = range_names.filter(pl.col("text").str.contains(_HAS_SIZES, literal=True))
    if shaped.is_empty():
        return None
    texts = shaped["text"].to_list()
    counted = [_count_flops(text) for text in texts]
    known = shaped.select("name").with_columns(
        flops=pl.Series([one[0] for one in counted], dtype=pl.Int64),
        model_flops=pl.Series([one[1] for one in counted], dtype=pl.Int64),
        precision=pl.lit(None, KERNEL_FLOPS["precision"]),
        moved_bytes=pl.lit(None, pl.Int64),
    )
    operators = ranges.filter(~pl.col("crosses")).join(known, on="name", maintain_order="left")
    kernels = operations.filter((pl.col("kind") == OperationKind.KERNEL) & (pl.col("call") >= 0))
    issued = kernels.select("op").hstack(
        calls[kernels["call"].to_numpy()].select("thread", called_ns="start_ns")
    )
    return find_operator_kernels(
        issued.sort("called_ns", maintain_order=True), operators.with_columns(until_ns="end_ns")
    )


def _count_flops(text: str) -> tuple[int | None, int | None]:
    """Return the FLOPs that run in an operator and those that a model needs, by the name of its range.

    >>> _count_flops("aten::mm, seq = 7, op_id = 12, sizes = [[2, 3], [3, 5]], input_op_ids = [(1,0)]")
    (60, 60)
    >>> _count_flops("aten::mm, sizes = [[2, 3], [4, 5]]"), _count_flops("aten::mm, sizes = [[2, 3], [3")
    ((None, None), (None, None))
    """
    found = _SHAPED.match(text)
    if found is None or found[1] not in FLOP_FORMULAS:
        return None, None
    sizes = json.loads(found[2])
    return count_flops(found[1], sizes, [], []), count_model_flops(found[1], sizes, [], [])
