"""The price of overlap: how much slower compute kernels run while communication runs beside them.

Communication takes multiprocessors, memory bandwidth and power from what it hides behind.
"""

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import polars as pl

from wallscope.arrays.columns import Rows, filled, place
from wallscope.arrays.groups import groups
from wallscope.arrays.lookup import beside, places
from wallscope.model.communication import OverlapTax
from wallscope.model.kinds import OperationClass, OperationKind
from wallscope.thresholds import (
    BESIDE_SHARE,
    FEWEST_BESIDE_COUNT,
    LIKE_KERNELS_RATIO,
    LONG_KERNELS_SHARE,
    SHORT_KERNELS_SHARE,
)
from wallscope.timeline.spans import Spans, Times, covered_ns, ordered, union
from wallscope.walls.typical import TypicalWork

_SHAPE = ("blocks", "threads", "registers", "shared_bytes")


def overlap_tax(work: TypicalWork, kernels: pl.DataFrame) -> OverlapTax | None:
    """Medians of the same kernel and launch shape, beside communication and alone, in the typical steps.

    `kernels` follow `KERNELS`, in order. Beside means that communication covers at least half of the kernel,
    alone that it covers nothing of it; what lies between counts for neither. Shapes with fewer than five
    kernels on either side are left out, and so are those whose kernels vary much where they ran alone
    (90th percentile over 1.5 times the 10th): persistent kernels bear one name and grid for problems of
    all sizes. `None` where none remains. Each shape weighs as much as its kernels beside communication
    would have taken alone.
    """
    own = work.operations
    starts_ns, ends_ns = own["start_ns"].to_numpy(), own["end_ns"].to_numpy()
    moves = work.rows_of(OperationClass.COMMUNICATION)
    compute = work.rows_of(OperationClass.COMPUTE)
    is_kernel = filled(own["kind"])[compute] == place(OperationKind.KERNEL)
    compute = compute[is_kernel & work.columns.begins[compute]]
    spans = Spans(starts_ns[compute], ends_ns[compute])
    length_ns = spans.end_ns - spans.start_ns
    covered = covered_ns(union(ordered(starts_ns[moves], ends_ns[moves])), spans)
    is_alone = covered == 0
    is_beside = ~is_alone & (covered >= BESIDE_SHARE * length_ns)
    if np.count_nonzero(is_beside) < FEWEST_BESIDE_COUNT:
        return None
    shape = _shapes(work.columns.op[compute], work.columns.name[compute], kernels)
    shapes = int(shape.max()) + 1
    alone, beside = (_Side.of(shape[held], length_ns[held], shapes) for held in (is_alone, is_beside))
    often = np.flatnonzero((alone.count >= FEWEST_BESIDE_COUNT) & (beside.count >= FEWEST_BESIDE_COUNT))
    middle_ns = alone.middle_ns(often)
    short_ns, long_ns = (
        alone.nearest_ns(often, share) for share in (SHORT_KERNELS_SHARE, LONG_KERNELS_SHARE)
    )
    are_alike = long_ns <= LIKE_KERNELS_RATIO * short_ns
    held = are_alike & (middle_ns > 0)
    if not held.any():
        return None
    told = often[held]
    beside_ns = float((beside.count[told] * beside.middle_ns(told)).sum())
    alone_ns = float((beside.count[told] * middle_ns[held]).sum())
    return OverlapTax(
        ratio=beside_ns / alone_ns,
        slowed_ns=work.mean(round(beside_ns - alone_ns)),
        kernels=int(beside.count[told].sum()),
    )


@dataclass(frozen=True, slots=True)
class _Side:
    """Lengths of kernels in order, shape by shape: where each shape begins, and how many it has."""

    begin: Rows
    count: Rows
    length_ns: Times

    @classmethod
    def of(cls, shape: Rows, length_ns: Times, shapes: int) -> "_Side":
        """The kernels of each shape; there are `shapes` of them."""
        count = np.bincount(shape, minlength=shapes)
        in_order = np.argsort(length_ns)
        narrow = shape[in_order].astype(np.min_scalar_type(shapes))  # sixteen bits sort in no time
        in_order = in_order[np.argsort(narrow, kind="stable")]
        return cls(np.cumsum(count) - count, count, length_ns[in_order])

    def middle_ns(self, shape: Rows) -> npt.NDArray[np.float64]:
        """The median of shapes that there are."""
        begin, last = self.begin[shape], self.count[shape] - 1
        low_ns, high_ns = self.length_ns[begin + last // 2], self.length_ns[begin + (last + 1) // 2]
        middle_ns: npt.NDArray[np.float64] = (low_ns + high_ns) / 2
        return middle_ns

    def nearest_ns(self, shape: Rows, share: float) -> Times:
        """The length at a share of the way through shapes that there are."""
        way = ((self.count[shape] - 1) * share + 0.5).astype(np.int64)
        found: Times = self.length_ns[self.begin[shape] + way]
        return found


def _shapes(op: Rows, name: Rows, kernels: pl.DataFrame) -> Rows:
    """The name and launch shape of each kernel as a number; what has no row in `KERNELS` has one shape."""
    row = places(op, kernels["op"].to_numpy())
    shapes = kernels[*_SHAPE][row[row >= 0]]
    return groups(name, *(beside(filled(shape), row >= 0) for shape in shapes))
