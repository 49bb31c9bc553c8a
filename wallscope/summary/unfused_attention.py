"""Find attention that runs as separate kernels, by ranges that name it or by its operators.

Fused attention keeps scores and softmax on chip. The kernels that scale, mask and normalize them between the
two multiplications then vanish. PyTorch's operators do not name attention, but a softmax between two
batched multiplications is one: routers, samplers and losses multiply without a batch, or not again.
"""

import numpy as np
import polars as pl

from wallscope.attribution.totals import CATEGORIES, TypicalWork
from wallscope.columns import Flags, Rows, sum_by_group
from wallscope.model.enums import ComputeCategory, OperationClass
from wallscope.model.rank_summaries import CategoryTime, UnfusedAttention
from wallscope.thresholds.causes import MOST_BETWEEN_PRODUCTS_COUNT
from wallscope.trace.ranges import RangeTree

_CORE = r"(?i)scaled[ _-]?dot[ _-]?product|dot_?product_?attention|core_?attention"
_SCORES = r"(?i)attention[ _-]?(scores?|logits|weights|probs)"
_SOFTMAX = r"(?i)(^|[^a-z_])softmax"
_OPERATORS = {
    "product": r"^aten::(bmm|baddbmm_?)$",
    "softmax": r"^aten::_?softmax(_backward_data)?$",
    "layout": r"^aten::(clone|contiguous)$",
}
_FUSED = CATEGORIES.index(ComputeCategory.ATTENTION)
_IS_PRODUCT = np.isin(CATEGORIES, (ComputeCategory.GEMM, ComputeCategory.GROUPED_GEMM))


def find_unfused_attention(
    ranges: RangeTree, work: TypicalWork, projected: pl.DataFrame
) -> UnfusedAttention | None:
    """Return the compute in ranges of attention; `None` without any, or with a fused kernel there.

    Args:
        ranges: the ranges of all processes.
        work: the operations of one rank in its typical step.
        projected: `PROJECTION`.
    """
    rows = work.rows_of(OperationClass.COMPUTE)
    columns = work.columns
    path = ranges.path_of_range[projected["range"].to_numpy()[columns.op[rows]]]
    is_named = _mark_paths(ranges)[path] & (path >= 0)
    named = rows[is_named]
    if not _IS_PRODUCT[columns.category[named]].any() or (columns.category[named] == _FUSED).any():
        is_named[:] = False
    is_found = is_named | _mark_sequences(ranges, work, rows, path)
    if not is_found.any():
        return None
    rows, path = rows[is_found], path[is_found]
    category = columns.category[rows]
    work_ns = sum_by_group(category, columns.inside_ns[rows], len(CATEGORIES))
    between = rows[~_IS_PRODUCT[category]]
    label = ranges.paths["name"].to_numpy()[np.unique(path)]
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
    return _with_inner(is_core[label] | is_scores[label] | (is_softmax[label] & beside_scores), parent)


def _with_inner(found: Flags, parent: Rows) -> Flags:
    """Return paths with all that lies in them; an additional last one is for no path."""
    marked: Flags = np.append(found, np.False_)
    for path, above in enumerate(parent.tolist()):  # parents come first
        marked[path] |= above >= 0 and marked[above]
    return marked


def _mark_sequences(ranges: RangeTree, work: TypicalWork, rows: Rows, path: Rows) -> Flags:
    """Return whether each kernel belongs to a softmax between two batched multiplications on a stream.

    Copies that change the layout of an operand stay: the operands of a fused kernel may need them too.

    Args:
        ranges: the ranges of all processes.
        work: the operations.
        rows: of the kernels that compute.
        path: the path of the range of each of them, -1 without one.
    """
    label, parent = (ranges.paths[name].to_numpy().astype(np.int64) for name in ("name", "parent"))
    is_product, is_softmax, is_layout = (
        _with_inner(ranges.names["text"].str.contains(pattern).to_numpy()[label], parent)[path]
        for pattern in _OPERATORS.values()
    )
    found = np.zeros(rows.size, np.bool_)
    multiplies = _IS_PRODUCT[work.columns.category[rows]]
    stream = work.operations["stream"].to_numpy()[rows]
    order = np.lexsort((work.columns.start_ns[rows], stream))
    products = np.flatnonzero(multiplies[order])
    for softmax in np.flatnonzero(is_softmax[order] & ~multiplies[order]).tolist():
        after = int(np.searchsorted(products, softmax))
        if not 0 < after < products.size:
            continue
        first, last = products[after - 1 : after + 1].tolist()
        part = order[first : last + 1]
        if (
            is_product[part[[0, -1]]].all()
            and stream[part[0]] == stream[part[-1]]
            and max(softmax - first, last - softmax) <= MOST_BETWEEN_PRODUCTS_COUNT
        ):
            found[part[~is_layout[part]]] = True
    return found
