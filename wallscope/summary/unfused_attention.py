"""Find attention that runs as separate kernels: what ranges name attention hold, without a fused kernel.

Fused attention keeps scores and softmax on chip. The kernels that scale, mask and normalize them between the
two multiplications then vanish.
"""

import numpy as np
import polars as pl

from wallscope.attribution.totals import CATEGORIES, TypicalWork
from wallscope.columns import Flags, sum_by_group
from wallscope.model.enums import ComputeCategory, OperationClass
from wallscope.model.rank_summaries import CategoryTime, UnfusedAttention
from wallscope.trace.ranges import RangeTree

_CORE = r"(?i)scaled[ _-]?dot[ _-]?product|dot_?product_?attention|core_?attention"
_SCORES = r"(?i)attention[ _-]?(scores?|logits|weights|probs)"
_SOFTMAX = r"(?i)(^|[^a-z_])softmax"
_FUSED = CATEGORIES.index(ComputeCategory.ATTENTION)
_IS_PRODUCT = np.isin(CATEGORIES, (ComputeCategory.GEMM, ComputeCategory.GROUPED_GEMM))


def find_unfused_attention(
    ranges: RangeTree, work: TypicalWork, projected: pl.DataFrame
) -> UnfusedAttention | None:
    """Return the compute in ranges of attention; `None` without such ranges, or with a fused kernel there.

    Args:
        ranges: the ranges of all processes.
        work: the operations of one rank in its typical step.
        projected: `PROJECTION`.
    """
    is_attention = _mark_paths(ranges)
    if not is_attention.any():
        return None
    rows = work.rows_of(OperationClass.COMPUTE)
    columns = work.columns
    path = ranges.path_of_range[projected["range"].to_numpy()[columns.op[rows]]]
    rows = rows[(path >= 0) & is_attention[path]]
    category = columns.category[rows]
    if not _IS_PRODUCT[category].any() or (category == _FUSED).any():
        return None
    work_ns = sum_by_group(category, columns.inside_ns[rows], len(CATEGORIES))
    between = rows[~_IS_PRODUCT[category]]
    label = ranges.paths["name"].to_numpy()[np.unique(path[(path >= 0) & is_attention[path]])]
    return UnfusedAttention(
        ranges=tuple(ranges.names["text"][np.unique(label)].sort().to_list()),
        product_ns=work.mean(work.total_ns(rows[_IS_PRODUCT[category]])),
        between_ns=work.mean(work.total_ns(between)),
        between_kernels=work.mean(int(columns.begins[between].sum())),
        between=tuple(
            CategoryTime(ComputeCategory(CATEGORIES[place]), work.mean(int(work_ns[place])))
            for place in np.flatnonzero(work_ns).tolist()
            if not _IS_PRODUCT[place]
        ),
    )


def _mark_paths(ranges: RangeTree) -> Flags:
    """Return whether each path is that of attention's multiplications and of what lies between them.

    A softmax belongs to attention if scores of attention have the same path above them.
    """
    texts = ranges.names["text"]
    is_core, is_scores, is_softmax = (
        texts.str.contains(pattern).to_numpy() for pattern in (_CORE, _SCORES, _SOFTMAX)
    )
    label, parent = (ranges.paths[name].to_numpy().astype(np.int64) for name in ("name", "parent"))
    beside_scores = np.isin(parent, parent[is_scores[label]])
    found = is_core[label] | is_scores[label] | (is_softmax[label] & beside_scores)
    for path, above in enumerate(parent.tolist()):  # parents come first
        found[path] |= above >= 0 and found[above]
    marked: Flags = found
    return marked
