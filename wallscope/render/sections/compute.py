"""Compute in depth."""

from collections.abc import Iterator

from wallscope import units
from wallscope.model.analysis import Rank
from wallscope.model.compute import LaunchShapes
from wallscope.render.blocks import Block, Column, Grid, Lines, cells, text
from wallscope.render.details import compute_lines
from wallscope.render.host import whose

_WORK = "durations added up, not time"


def compute(rank: Rank, whole: str) -> tuple[Block, ...]:
    """Categories, precisions, launch shapes, sampled metrics, unknown kernels."""
    return tuple(_blocks(rank, whole))


def _blocks(rank: Rank, whole: str) -> Iterator[Block]:
    details = rank.compute_details
    if details is not None:
        lines = (*compute_lines(details), *_shapes(details.launch_shapes))
        if lines:
            yield Lines(lines)
    if rank.compute:
        yield Grid(
            "Compute kernels by category",
            (text("category"), Column("kernels"), Column("work", _WORK), Column("share of work")),
            tuple(
                cells(
                    str(entry.category),
                    units.number(entry.kernels),
                    units.milliseconds(entry.work_ns),
                    units.percent(entry.share),
                )
                for entry in rank.compute
            ),
        )
    if details is not None and details.precisions:
        yield Grid(
            "Matrix multiplications by precision, as names of kernels tell",
            (text("precision"), Column("kernels"), Column("work", _WORK), Column("share of these")),
            tuple(
                cells(
                    str(entry.precision),
                    units.number(entry.kernels),
                    units.milliseconds(entry.work_ns),
                    units.percent(entry.share),
                )
                for entry in details.precisions
            ),
        )
    metrics = rank.gpu_metrics
    if metrics is not None and metrics.means:
        yield Grid(
            f"GPU metrics, sampled in the {whole}",
            (text("metric"), Column("mean of peak"), Column("samples")),
            tuple(
                cells(str(entry.metric), units.percent(entry.mean_share), units.number(entry.samples))
                for entry in metrics.means
            ),
            whose(metrics),
        )
    if rank.unmatched_kernels:
        yield Grid(
            "Kernels known to no pattern (--kernels FILE names them)",
            (text("kernel"), Column("count"), Column("work", _WORK), Column(f"of the {whole}")),
            tuple(
                cells(
                    entry.name,
                    units.number(entry.count),
                    units.milliseconds(entry.work_ns),
                    units.percent(entry.share),
                )
                for entry in rank.unmatched_kernels
            ),
        )


def _shapes(shapes: LaunchShapes) -> Iterator[str]:
    if shapes.occupancy is not None:
        yield (
            f"Theoretical occupancy {units.percent(shapes.occupancy)}, mean by work, without matrix"
            " multiplications and attention."
        )
    if shapes.small_grid_kernels:
        small = units.plural(shapes.small_grid_kernels, "kernel")
        yield f"{small} with fewer blocks than the GPU has multiprocessors."
