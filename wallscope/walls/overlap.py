"""The price of overlap: how much slower compute kernels run while communication runs beside them.

Communication takes multiprocessors, memory bandwidth and power from what it hides behind.
"""

import polars as pl

from wallscope.model.communication import OverlapTax
from wallscope.model.kinds import OperationClass, OperationKind
from wallscope.timeline.spans import Spans, covered_ns, union
from wallscope.walls.budget import spans_of
from wallscope.walls.typical import TypicalWork

_FEWEST = 5
_BESIDE = 0.5
_ALIKE = 1.5
_SHAPE = ("name", "blocks", "threads", "registers", "shared_bytes")


def overlap_tax(work: TypicalWork, kernels: pl.DataFrame) -> OverlapTax | None:
    """Medians of the same kernel and launch shape, beside communication and alone, in the typical steps.

    `kernels` follow `KERNELS`. Beside means that communication covers at least half of the kernel,
    alone that it covers nothing of it; what lies between counts for neither. Shapes with fewer than five
    kernels on either side are left out, and so are those whose kernels vary much where they ran alone
    (90th percentile over 1.5 times the 10th): persistent kernels bear one name and grid for problems of
    all sizes. `None` where none remains. Each shape weighs as much as its kernels beside communication
    would have taken alone.
    """
    is_communication = pl.col("class") == OperationClass.COMMUNICATION
    communicating = union(spans_of(work.operations.filter(is_communication)))
    compute = work.operations.filter(
        (pl.col("class") == OperationClass.COMPUTE)
        & (pl.col("kind") == OperationKind.KERNEL)
        & pl.col("begins")
    ).with_columns(duration_ns=pl.col("end_ns") - pl.col("start_ns"))
    spans = Spans(compute["start_ns"].to_numpy(), compute["end_ns"].to_numpy())
    covered = pl.Series("covered_ns", covered_ns(communicating, spans))
    is_alone = pl.col("covered_ns") == 0
    is_beside = ~is_alone & (pl.col("covered_ns") >= _BESIDE * pl.col("duration_ns"))
    duration_ns = pl.col("duration_ns")
    shapes = (
        compute.with_columns(covered)
        .join(kernels, on="op", how="left")
        .group_by(_SHAPE)
        .agg(
            beside=is_beside.sum(),
            alone=is_alone.sum(),
            beside_ns=duration_ns.filter(is_beside).median(),
            alone_ns=duration_ns.filter(is_alone).median(),
            short_ns=duration_ns.filter(is_alone).quantile(0.1, "nearest"),
            long_ns=duration_ns.filter(is_alone).quantile(0.9, "nearest"),
        )
        .filter((pl.col("beside") >= _FEWEST) & (pl.col("alone") >= _FEWEST) & (pl.col("alone_ns") > 0))
        .filter(pl.col("long_ns") <= _ALIKE * pl.col("short_ns"))
        .sort(_SHAPE)
    )
    if shapes.is_empty():
        return None
    count = pl.col("beside")
    beside_ns, alone_ns = shapes.select(
        (count * pl.col("beside_ns")).sum(), (count * pl.col("alone_ns")).sum().alias("all_alone_ns")
    ).row(0)
    return OverlapTax(
        ratio=beside_ns / alone_ns,
        slowed_ns=work.mean(round(beside_ns - alone_ns)),
        kernels=int(shapes["beside"].sum()),
    )
