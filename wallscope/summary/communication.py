"""Summarize the communication of a rank: operations by axis, exposed time, the dispatcher, cost of overlap.

Most of what is called dispatch and combine time is not network time. Class, category and kernel name separate
the parts.
"""

from collections import Counter
from collections.abc import Iterator

import numpy as np
import numpy.typing as npt
import polars as pl

from wallscope.attribution.totals import CATEGORIES, TypicalWork, average_total
from wallscope.columns import (
    Rows,
    as_integers,
    encode_member,
    expand,
    find_places,
    iterate_groups,
    match_rows,
    number_groups,
    take_or,
)
from wallscope.model.enums import (
    LINK_KINDS,
    Axis,
    Backend,
    Collective,
    ComputeCategory,
    LinkKind,
    OperationClass,
    OperationKind,
)
from wallscope.model.rank_summaries import Communication, CommunicationOperation, DispatcherWork, OverlapTax
from wallscope.model.schemas import AXES, COLLECTIVES, NAMES
from wallscope.records import dataclass
from wallscope.thresholds.causes import (
    BESIDE_SHARE,
    FEWEST_BESIDE_COUNT,
    LIKE_KERNELS_RATIO,
    LONG_KERNELS_SHARE,
    SHORT_KERNELS_SHARE,
)
from wallscope.trace.intervals import Spans, Times, common, covered_ns, order_spans, union
from wallscope.trace.kernel_classes import COMPUTING
from wallscope.trace.names import TextMemo

_MOST_EVIDENCE = 3
_UNKNOWN = np.iinfo(np.int64).min
_COLLECTIVES, _AXES, _BACKENDS = tuple(Collective), tuple(Axis), tuple(Backend)
_OF_CATEGORY = np.array(
    [_COLLECTIVES.index(Collective(each)) if each in _COLLECTIVES else -1 for each in CATEGORIES]
)


@dataclass(frozen=True, slots=True)
class CommunicationSummary:
    """Inputs in addition to operations: `AXES`, `COLLECTIVES`, kernel names."""

    axes: pl.DataFrame
    collectives: pl.DataFrame
    names: pl.DataFrame


_NOTHING = CommunicationSummary(*(schema.to_frame() for schema in (AXES, COLLECTIVES, NAMES)))


def summarize_communication(
    work: TypicalWork,
    all_exposed_ns: int,
    traffic: CommunicationSummary = _NOTHING,
    overlap_tax: OverlapTax | None = None,
) -> Communication:
    """Return volume and exposure of the communication in the typical step of one rank.

    `all_exposed_ns` is the exposed part of its budget, `overlap_tax` that of `measure_overlap_tax`.

    Exposed means that neither compute nor an opaque graph ran. Operations that overlap each other each count
    with all of their exposed time, so the list may add up to more than the total. Bus bandwidth is defined as
    in NCCL's tests, over all operations that begin in the steps. It divides the bytes on a rank's link by the
    duration of the operation on this rank. It is a lower bound, because one rank cannot separate waiting for
    peers from the transfer. It is unknown if that of any operation is unknown.
    """
    own = _own(work, traffic)
    computed = common(union(work.columns.spans(work.rows_of(*COMPUTING))), work.steps)

    def spent_ns(rows: Rows) -> tuple[int, int]:
        """Return the time in which any of the rows ran inside the steps, and the part without compute."""
        running = union(work.columns.spans(rows))
        ran_ns = work.all_covered_ns(running)
        return ran_ns, ran_ns - int(covered_ns(computed, running).sum())

    ran_ns, exposed_ns = spent_ns(own.rows)
    hidden_ns = ran_ns - exposed_ns
    return Communication(
        union_ns=all_exposed_ns + work.mean(hidden_ns),
        exposed_ns=all_exposed_ns,
        blocking_ns=None,
        hidden_share=hidden_ns / ran_ns if ran_ns else None,
        operations=tuple(
            sorted(
                (_summarize_operation(work, one, work.mean(spent_ns(one.rows)[1])) for one in own.alike()),
                key=lambda entry: (
                    -entry.exposed_ns,
                    -entry.work_ns,
                    entry.operation,
                    entry.axis,
                    entry.backend,
                ),
            )
        ),
        overlap_tax=overlap_tax,
        dispatcher=summarize_dispatcher(work, traffic.axes, traffic.names),
    )


def measure_blocking(slices: pl.DataFrame, communicating: pl.Series, step_count: int) -> int:
    """Return communication on the critical path in ns per step: the lower bound of what is exposed.

    `slices` (`SLICES`) are those of the steps, `communicating` the numbers of communication operations.
    """
    rows = np.flatnonzero(as_integers(slices["kind"]) == LINK_KINDS.index(LinkKind.OPERATION))
    on_chain = rows[find_places(slices["op"].to_numpy()[rows], communicating.to_numpy()) >= 0]
    total_ns = int((slices["end_ns"].to_numpy()[on_chain] - slices["start_ns"].to_numpy()[on_chain]).sum())
    return average_total(total_ns, step_count)


@dataclass(frozen=True, slots=True)
class _Own:
    """Communication operations by row: kind, axis and backend as indices, and bytes as NCCL counts them."""

    rows: Rows
    does: Rows
    axis: Rows
    backend: Rows
    bytes: Rows
    bus_bytes: Rows
    evidence: npt.NDArray[np.object_]

    def alike(self) -> Iterator["_Own"]:
        """Yield the operations of each combination of operation, axis and backend."""
        key = (self.does * len(_AXES) + self.axis) * len(_BACKENDS) + self.backend
        for _, own in iterate_groups(key):
            yield _Own(*(getattr(self, name)[own] for name in self.__slots__))


def _own(work: TypicalWork, traffic: CommunicationSummary) -> _Own:
    """Return operations with axis, evidence, and bytes as NCCL counts them; peer copies count their own."""
    rows, columns = work.rows_of(OperationClass.COMMUNICATION), work.columns
    with_axis, counted = (
        find_places(columns.op[rows], frame["op"].to_numpy()) for frame in (traffic.axes, traffic.collectives)
    )
    does, axis = (take_or(as_integers(traffic.axes[name]), with_axis, -1) for name in ("operation", "axis"))
    backend = as_integers(work.operations["backend"][rows])
    size = as_integers(work.operations["bytes"][rows], _UNKNOWN)
    counted_bytes, bus_bytes = (
        take_or(as_integers(traffic.collectives[column], _UNKNOWN), counted, _UNKNOWN)
        for column in ("bytes", "bus_bytes")
    )
    evidence = np.full(rows.size, None, object)
    evidence[with_axis >= 0] = traffic.axes["evidence"][with_axis[with_axis >= 0]].to_list()
    return _Own(
        rows=rows,
        does=np.where(does < 0, _OF_CATEGORY[columns.category[rows]], does),
        axis=np.where(axis < 0, _AXES.index(Axis.UNKNOWN), axis),
        backend=backend,
        bytes=np.where(size == _UNKNOWN, counted_bytes, size),
        bus_bytes=np.where(backend == _BACKENDS.index(Backend.PEER_COPY), size, bus_bytes),
        evidence=evidence,
    )


def _summarize_operation(work: TypicalWork, own: _Own, exposed_ns: int) -> CommunicationOperation:
    columns, begun = work.columns, work.columns.begins[own.rows]
    rows, size, bus_bytes = own.rows[begun], own.bytes[begun], own.bus_bytes[begun]
    duration_ns = int((columns.end_ns[rows] - columns.start_ns[rows]).sum())
    is_counted = duration_ns and not (bus_bytes == _UNKNOWN).any()
    evidence = Counter(text for text in own.evidence.tolist() if text is not None)
    return CommunicationOperation(
        operation=_COLLECTIVES[own.does[0]],
        axis=_AXES[own.axis[0]],
        backend=_BACKENDS[own.backend[0]],
        count=work.mean(rows.size),
        work_ns=work.mean(work.total_ns(own.rows)),
        exposed_ns=exposed_ns,
        bytes=None if (size == _UNKNOWN).any() else work.mean(int(size.sum())),
        bus_bandwidth_bytes_per_s=int(bus_bytes.sum()) / duration_ns * 1_000_000_000 if is_counted else None,
        evidence=tuple(sorted(evidence, key=lambda text: (-evidence[text], text))[:_MOST_EVIDENCE]),
    )


_PACKING, _UNPACKING, _ROUTING = range(3)
_LOCAL, _SYNCHRONISE = map(CATEGORIES.index, (ComputeCategory.DISPATCHER_LOCAL, Collective.SYNCHRONISE))
_UNPACKS = r"(?i)unpermute|unpad|reduce_epilogue|moe_(sum|finalize|recover)|finalize\w*Rout"
_PACKS = (
    r"(?i)permute_(kernel|with_mask|rows|bwd)|^_?permute\b|moe_permute|sort_chunks|moe_(sort|expand)|row_id_map"
    r"|chunk_sort_map|pad_tokens|copy_epilogue|count_and_sort_expert|expand\w*Rows|prob_kernel|to_dense_prob"
    r"|to_sparse_prob"
)


def _match_dispatcher(texts: pl.Series) -> npt.NDArray[np.int64]:
    """Return the part of the dispatcher that a kernel belongs to, by its name."""
    packs, unpacks = (texts.str.contains(pattern).to_numpy() for pattern in (_PACKS, _UNPACKS))
    return np.where(unpacks, _UNPACKING, np.where(packs, _PACKING, _ROUTING))


_DISPATCHER_PARTS = TextMemo(_match_dispatcher)


def summarize_dispatcher(work: TypicalWork, axes: pl.DataFrame, names: pl.DataFrame) -> DispatcherWork | None:
    """Return the work of the dispatcher in the typical step of one rank; `None` without expert communication.

    `axes` follow `AXES`, `names` are those of kernels. Permutations back to token order count as unpack. So
    does the backward pass of packing, whose kernels have the same names. Dispatcher kernels that neither pack
    nor unpack count as routing: scores, counts, layouts.
    """
    columns = work.columns
    expert, _ = match_rows(
        columns.op, axes["op"].to_numpy()[as_integers(axes["axis"]) == encode_member(Axis.EP)]
    )
    if expert.size == 0:
        return None
    computing = work.rows_of(OperationClass.COMPUTE)
    local = computing[columns.category[computing] == _LOCAL]
    does = _DISPATCHER_PARTS.of(names["text"])[columns.name[local]]
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


_SHAPE = ("blocks", "threads", "registers", "shared_bytes")


def measure_overlap_tax(work: TypicalWork, kernels: pl.DataFrame) -> OverlapTax | None:
    """Compare medians of the same kernel and launch shape, overlapping communication and alone.

    `kernels` follow `KERNELS`, in order. A kernel overlaps communication if communication covers at least
    half of it, and runs alone if communication covers none of it. Other kernels count for neither. Shapes
    with fewer than five kernels on either side are excluded. So are shapes whose kernels vary much when alone
    (90th percentile over 1.5 times the 10th), or take over 1.5 times as long on one side. The reason is that
    one name and grid can serve problems of several sizes. `None` where no shape remains. The weight of a
    shape is the time its overlapping kernels would take alone.
    """
    own = work.operations
    starts_ns, ends_ns = own["start_ns"].to_numpy(), own["end_ns"].to_numpy()
    moves = work.rows_of(OperationClass.COMMUNICATION)
    compute = work.rows_of(OperationClass.COMPUTE)
    is_kernel = as_integers(own["kind"])[compute] == encode_member(OperationKind.KERNEL)
    compute = compute[is_kernel & work.columns.begins[compute]]
    spans = Spans(starts_ns[compute], ends_ns[compute])
    length_ns = spans.end_ns - spans.start_ns
    covered = covered_ns(union(order_spans(starts_ns[moves], ends_ns[moves])), spans)
    is_alone = covered == 0
    is_overlapped = ~is_alone & (covered >= BESIDE_SHARE * length_ns)
    if np.count_nonzero(is_overlapped) < FEWEST_BESIDE_COUNT:
        return None
    shape = number_shapes(work.columns.op[compute], work.columns.name[compute], kernels)
    shapes = int(shape.max()) + 1
    alone, overlapped = (
        _KernelLengths.of(shape[own], length_ns[own], shapes) for own in (is_alone, is_overlapped)
    )
    often = np.flatnonzero((alone.count >= FEWEST_BESIDE_COUNT) & (overlapped.count >= FEWEST_BESIDE_COUNT))
    middle_ns = alone.middle_ns(often)
    short_ns, long_ns = (
        alone.nearest_ns(often, share) for share in (SHORT_KERNELS_SHARE, LONG_KERNELS_SHARE)
    )
    are_alike = long_ns <= LIKE_KERNELS_RATIO * short_ns
    taken_ns = overlapped.middle_ns(often)
    are_alike &= np.maximum(taken_ns, middle_ns) <= LIKE_KERNELS_RATIO * np.minimum(taken_ns, middle_ns)
    is_compared = are_alike & (middle_ns > 0)
    if not is_compared.any():
        return None
    compared = often[is_compared]
    overlapped_ns = float((overlapped.count[compared] * overlapped.middle_ns(compared)).sum())
    of_compared = np.isin(shape, compared) & is_overlapped
    alone_ns = float((overlapped.count[compared] * middle_ns[is_compared]).sum())
    return OverlapTax(
        ratio=overlapped_ns / alone_ns,
        slowed_ns=work.mean(round(overlapped_ns - alone_ns)),
        kernels=int(overlapped.count[compared].sum()),
        compared_share=float(length_ns[of_compared].sum() / length_ns[is_overlapped].sum()),
    )


@dataclass(frozen=True, slots=True)
class _KernelLengths:
    """Kernel lengths sorted shape by shape: the first index of each shape, and its number of kernels."""

    begin: Rows
    count: Rows
    length_ns: Times

    @classmethod
    def of(cls, shape: Rows, length_ns: Times, shapes: int) -> "_KernelLengths":
        """Return the kernels of each of the `shapes` shapes."""
        count = np.bincount(shape, minlength=shapes)
        in_order = np.argsort(length_ns)
        narrow = shape[in_order].astype(np.min_scalar_type(shapes))  # Sixteen bits sort fastest.
        in_order = in_order[np.argsort(narrow, kind="stable")]
        return cls(np.cumsum(count) - count, count, length_ns[in_order])

    def middle_ns(self, shape: Rows) -> npt.NDArray[np.float64]:
        """Return the median length of each given shape."""
        begin, last = self.begin[shape], self.count[shape] - 1
        low_ns, high_ns = self.length_ns[begin + last // 2], self.length_ns[begin + (last + 1) // 2]
        middle_ns: npt.NDArray[np.float64] = (low_ns + high_ns) / 2
        return middle_ns

    def nearest_ns(self, shape: Rows, share: float) -> Times:
        """Return the length at a quantile of each given shape."""
        way = ((self.count[shape] - 1) * share + 0.5).astype(np.int64)
        found: Times = self.length_ns[self.begin[shape] + way]
        return found


def number_shapes(op: Rows, name: Rows, kernels: pl.DataFrame) -> Rows:
    """Return the name and launch shape of each kernel as a number.

    Kernels without a row in `KERNELS` have one shape.

    Args:
        op: int64[kernel], the operations, ascending.
        name: int64[kernel], numbers of their names.
        kernels: `KERNELS`, in order.
    """
    row = find_places(op, kernels["op"].to_numpy())
    shapes = kernels[*_SHAPE][row[row >= 0]]
    return number_groups(name, *(expand(as_integers(shape), row >= 0) for shape in shapes))
