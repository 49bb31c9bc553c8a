"""Work by NVTX range in the typical step of one rank: of each range path, and of attention not fused.

Operations count for the range in which they were issued: inclusive of nested ranges, and exclusive. Time is
the length of a union inside the steps. Work adds durations up.

Attention that runs as separate kernels is found by ranges that name it or by its operators. Fused attention
keeps scores and softmax on chip. The kernels that scale, mask and normalize them between the two
multiplications then vanish. PyTorch's operators do not name attention, but a softmax between two batched
multiplications is one: routers, samplers and losses multiply without a batch, or not again.
"""

from typing import NamedTuple

import numpy as np
import polars as pl

from wallscope.attribution.totals import CATEGORIES, TypicalWork, average_total
from wallscope.columns import Flags, Rows, as_integers, sum_by_group
from wallscope.kernels import views
from wallscope.kernels.busy_time import sum_busy_times
from wallscope.model.analysis import RangeWork
from wallscope.model.diagnosis import Walls
from wallscope.model.enums import ComputeCategory, OperationClass, Wall
from wallscope.model.rank_summaries import CategoryTime, HostRange, UnfusedAttention
from wallscope.model.schemas import RANGE_WORK
from wallscope.thresholds.causes import MOST_BETWEEN_PRODUCTS_COUNT
from wallscope.thresholds.verdict import NEARLY_WHOLE_STEP_SHARE
from wallscope.trace.intervals import BEFORE_ALL, Times, is_inside, passed_ns
from wallscope.trace.ranges import RangeTree, find_chain_top, find_nearest

_DEEPEST = 64
_MOST_LISTED = 200
_WALLS = len(Wall)
_HOST = tuple(Wall).index(Wall.HOST)
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


class PathWork(NamedTuple):
    """Totals of a path in the mean step; fields as the columns of `RANGE_WORK`, `instances` is a count."""

    path: int
    instances: int | None
    host_ns: int | None
    gpu_ns: int
    own_gpu_ns: int
    work_ns: int
    own_work_ns: int
    operations: int
    own_operations: int


def build_range_work(
    ranges: RangeTree, work: TypicalWork, projected: pl.DataFrame, process: int
) -> pl.DataFrame:
    """Return the paths of one rank (`RANGE_WORK`) with `name` and `text`, the path written out."""
    found = pl.DataFrame(_range_work(ranges, work, projected, process), schema=RANGE_WORK, orient="row")
    path = found["path"].to_numpy()
    name = ranges.names["text"][ranges.paths["name"].to_numpy()[path]]
    return found.with_columns(name.alias("name"), ranges.texts[path].alias("text"))


def list_range_work(  # noqa: PLR0913, PLR0917  # all that is known of ranges
    ranges: RangeTree,
    work: TypicalWork,
    projected: pl.DataFrame,
    process: int,
    walls: Times,
    autograd: pl.DataFrame | None,
) -> tuple[RangeWork, ...]:
    """Return the paths with most device time.

    `walls` are those of each path (`sum_range_walls`), `autograd` the operators of the backward pass
    (`AUTOGRAD_RANGES`).
    """
    found = _range_work(ranges, work, projected, process)[:_MOST_LISTED]
    label = ranges.paths["name"].to_numpy()
    backward_ns = _measure_backward(ranges, work, projected, autograd)
    return tuple(
        RangeWork(
            name=ranges.names["text"][int(label[one.path])],
            path=ranges.texts[one.path],
            count=one.instances,
            host_ns=one.host_ns,
            gpu_ns=one.gpu_ns,
            own_gpu_ns=one.own_gpu_ns,
            work_ns=one.work_ns,
            own_work_ns=one.own_work_ns,
            walls=Walls(*walls[one.path].tolist()),
            backward_gpu_ns=None if backward_ns is None else work.mean(int(backward_ns[one.path])),
        )
        for one in found
    )


def _measure_backward(
    ranges: RangeTree, work: TypicalWork, projected: pl.DataFrame, autograd: pl.DataFrame | None
) -> Times | None:
    """Return the device time of the backward pass of what each path holds, in all steps."""
    links = None if autograd is None else autograd.drop_nulls("forward")
    if links is None or links.is_empty():
        return None
    tree, size = ranges.tree, int(ranges.tree["range"].to_numpy().max()) + 1
    parent, forward = np.full(size, -1, np.int32), np.full(size + 1, -1, np.int64)
    parent[tree["range"].to_numpy()] = tree["parent"].to_numpy()
    forward[links["range"].to_numpy()] = links["forward"].to_numpy()
    nearest = np.append(find_nearest(parent, forward[:-1] >= 0), np.int32(-1))
    path = ranges.path_of_range[forward[nearest[projected["range"].to_numpy()[work.columns.op]]]]
    rows = np.flatnonzero(path >= 0)
    return _measure_busy(work, rows, _capped(ranges.paths)[path[rows]], _parents(ranges.paths))


def _range_work(
    ranges: RangeTree, work: TypicalWork, projected: pl.DataFrame, process: int
) -> list[PathWork]:
    path = ranges.path_of_range[projected["range"].to_numpy()[work.columns.op]]
    return measure_range_work(work, path, ranges.tree, process, ranges.paths)


def sum_range_walls(ranges: RangeTree, slices: pl.DataFrame, step_count: int) -> Times:
    """Return the time of each wall in each path and the paths inside it, in ns of the mean step.

    Args:
        ranges: the ranges of all processes.
        slices: `SLICES` of one rank, of the steps of its typical step.
        step_count: how many these steps are.

    Returns:
        int64[path, wall].
    """
    path = ranges.path_of_range[slices["range"].to_numpy()]
    rows = np.flatnonzero(path >= 0)
    spent_ns = slices["end_ns"].to_numpy()[rows] - slices["start_ns"].to_numpy()[rows]
    place = path[rows] * _WALLS + as_integers(slices["wall"])[rows]
    owned = sum_by_group(place, spent_ns, len(ranges.paths) * _WALLS).reshape(-1, _WALLS)
    _add_upwards(owned, ranges.paths)
    return average_total(owned, step_count)


def find_host_range(ranges: RangeTree, walls: Times, typical: Walls) -> HostRange | None:
    """Return the innermost path that holds at least half of the host's time in the typical step.

    Args:
        ranges: the ranges of all processes.
        walls: int64[path, wall], ns of each path of one rank (`sum_range_walls`).
        typical: the walls of the typical step, ns.

    Returns:
        `None` where no path holds half, or the innermost one that does covers nearly the whole step: such
        a path excludes nothing.
    """
    if not typical.host:
        return None
    host_ns = walls[:, _HOST]
    holding = np.flatnonzero(2 * host_ns >= typical.host)
    if not holding.size:
        return None
    path = int(holding[ranges.paths["depth"].to_numpy()[holding].argmax()])
    if walls[path].sum() > NEARLY_WHOLE_STEP_SHARE * sum(typical.parts()):
        return None
    name = ranges.names["text"][int(ranges.paths["name"][path])]
    return HostRange(name=name, path=ranges.texts[path], host_ns=int(host_ns[path]))


def _add_upwards(totals: Times, paths: pl.DataFrame) -> None:
    """Add the totals of the paths inside to those of each path, one row each."""
    parent, depth = paths["parent"].to_numpy(), paths["depth"].to_numpy()
    order = np.argsort(-depth, kind="stable")
    for deep in np.split(order, np.flatnonzero(np.diff(depth[order])) + 1):
        if deep.size and depth[deep[0]] > 0:
            np.add.at(totals, parent[deep], totals[deep])


def measure_range_work(
    work: TypicalWork, path: Rows, tree: pl.DataFrame, process: int, paths: pl.DataFrame
) -> list[PathWork]:
    """Return means over the steps for each path with device work, the most device time first.

    Args:
        work: the operations of one rank in its steps.
        path: path of the range of each operation, -1 if it has none.
        tree: `NESTED` with `process`.
        process: that of the rank.
        paths: `PATHS`.
    """
    columns, count = work.columns, len(paths)
    rows = np.flatnonzero(path >= 0)
    own = path[rows]
    capped = _capped(paths)[own]
    measures = (np.ones(rows.size, np.int64), columns.inside_ns[rows], columns.begins[rows].astype(np.int64))
    alone, within = (
        np.stack([sum_by_group(of, values, count) for values in measures], axis=1) for of in (own, capped)
    )
    _add_upwards(within, paths)
    alone_ns = _measure_busy(work, rows, own, np.full(count, -1))
    within_ns = _measure_busy(work, rows, capped, _parents(paths))
    begun, host_ns = _host(work, tree, process, count)
    found = [
        PathWork(
            path=one,
            instances=work.mean(int(begun[one])) if begun[one] else None,
            host_ns=work.mean(int(host_ns[one])) if begun[one] else None,
            gpu_ns=work.mean(int(within_ns[one])),
            own_gpu_ns=work.mean(int(alone_ns[one])),
            work_ns=work.mean(int(within[one, 1])),
            own_work_ns=work.mean(int(alone[one, 1])),
            operations=work.mean(int(within[one, 2])),
            own_operations=work.mean(int(alone[one, 2])),
        )
        for one in np.flatnonzero((begun > 0) | (within[:, 0] > 0)).tolist()
    ]
    return sorted(found, key=lambda one: (-one.gpu_ns, one.host_ns is None, -(one.host_ns or 0), one.path))


def _measure_busy(work: TypicalWork, rows: Rows, group: Rows, parent: Rows) -> Times:
    """Return how long any operation of each group, or of the groups inside it, ran inside the steps.

    The time axis holds only the steps, joined end to end: operations outside of them take no time.

    Args:
        work: the operations of a rank.
        rows: some of them.
        group: int64[rows], the innermost group of each.
        parent: int64[groups], the group around each, -1 without one.
    """
    columns = work.columns
    start_ns, end_ns = (passed_ns(work.steps, side[rows]) for side in (columns.start_ns, columns.end_ns))
    found: Times = np.zeros(parent.size, np.int64)
    sum_busy_times(*views(start_ns, end_ns, group, parent, np.full(parent.size, BEFORE_ALL), found))
    return found


def _parents(paths: pl.DataFrame) -> Rows:
    return paths["parent"].to_numpy().astype(np.int64)


def _capped(paths: pl.DataFrame) -> Rows:
    """Return the path that each path counts for: below depth 64 it is the enclosing one there."""
    return find_chain_top(paths["parent"].to_numpy(), paths["depth"].to_numpy() >= _DEEPEST).astype(np.int64)


def _host(work: TypicalWork, tree: pl.DataFrame, process: int, count: int) -> tuple[Rows, Times]:
    """Return the instances of each path that begin in the host time of the steps, and their added-up time.

    Ranges that end after the selected time count until their end.
    """
    rows = np.flatnonzero(tree["process"].to_numpy() == process)
    rows = rows[is_inside(work.issued, tree["start_ns"].to_numpy()[rows])]
    start_ns, end_ns, path = (tree[column].to_numpy()[rows] for column in ("start_ns", "end_ns", "path"))
    window = np.searchsorted(work.issued.start_ns, start_ns, side="right") - 1
    until_ns = np.minimum(end_ns, work.host_until_ns[window])
    return np.bincount(path, minlength=count), sum_by_group(path, until_ns - start_ns, count)


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
    has_scores = np.isin(parent, parent[is_scores[label]])
    return _with_inner(is_core[label] | is_scores[label] | (is_softmax[label] & has_scores), parent)


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
