"""What the tests of host details share: an export read as far as the account of its first rank."""

from pathlib import Path

import polars as pl

from wallscope.attribution.attribute import attribute_rank
from wallscope.attribution.prepared import measure_rank_work
from wallscope.attribution.totals import select_typical_steps, sum_slices
from wallscope.model.capture import Options
from wallscope.model.rank_summaries import GpuMetrics, HostDetails
from wallscope.preparation import prepare, read_trace
from wallscope.summary.compute import average_gpu_metrics
from wallscope.summary.host import summarize_host


def details(path: Path, rank_id: int = 0) -> HostDetails | None:
    """The host details of one rank."""
    prepared = prepare(path, Options(), lambda _: None)
    parts, evidence = prepared.trace, prepared.evidence
    is_own = pl.col("rank_id") == rank_id
    operations, windows = parts.operations.filter(is_own), parts.windows.filter(is_own)
    is_usual = pl.col("step").is_in(select_typical_steps(windows)["step"].implode())
    slices = attribute_rank(evidence, operations, windows).filter(is_usual)
    return summarize_host(
        operations, measure_rank_work(parts, rank_id), sum_slices(slices), evidence, parts.capture
    )


def metrics(path: Path, rank_id: int = 0) -> GpuMetrics | None:
    """The GPU metrics of one rank."""
    parts = read_trace(path, Options(), lambda _: None)
    rank = parts.capture.ranks.row(rank_id, named=True)
    return average_gpu_metrics(measure_rank_work(parts, rank_id).steps, parts.capture, rank_id, rank["gpu"])
