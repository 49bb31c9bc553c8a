"""What the tests of host details share: an export read as far as the account of its first rank."""

from pathlib import Path

import polars as pl

from wallscope.attribution.attribute import attributed
from wallscope.attribution.totals import summed, typical_steps
from wallscope.model.rank_summaries import GpuMetrics, HostDetails
from wallscope.pipeline import Options, divide, gathered
from wallscope.summary.compute import gpu_metrics
from wallscope.summary.host import host_details
from wallscope.summary.rank import rank_work


def details(path: Path, rank_id: int = 0) -> HostDetails | None:
    """The host details of one rank."""
    parts, division = divide(path, Options(), lambda _: None)
    _, evidence = gathered(parts, division, Options(), lambda _: None)
    is_own = pl.col("rank_id") == rank_id
    operations, windows = parts.operations.filter(is_own), parts.windows.filter(is_own)
    is_usual = pl.col("step").is_in(typical_steps(windows)["step"].implode())
    slices = attributed(evidence, operations, windows).filter(is_usual)
    return host_details(operations, rank_work(parts, rank_id), summed(slices), evidence, parts.capture)


def metrics(path: Path, rank_id: int = 0) -> GpuMetrics | None:
    """The GPU metrics of one rank."""
    parts, _ = divide(path, Options(), lambda _: None)
    rank = parts.capture.ranks.row(rank_id, named=True)
    return gpu_metrics(rank_work(parts, rank_id).steps, parts.capture, rank_id, rank["gpu"])
