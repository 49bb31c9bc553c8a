"""GPU metrics of a rank: means over the samples that lie inside the steps of its typical step.

A sample is the mean since the one before it, of the whole GPU: nothing of it belongs to a kernel.

What the typical step achieves: tokens and FLOPs as the user counts them, and the share of the peak.
"""

import numpy as np
import polars as pl

from wallscope.columns import Flags
from wallscope.model.analysis import Anchor, Rank
from wallscope.model.capture import Capture, Gpu
from wallscope.model.kinds import Precision
from wallscope.model.metrics import SPELLED, GpuMetrics, MetricMean
from wallscope.model.throughput import Peak, StepFacts, Throughput
from wallscope.thresholds import KNOWN_PRECISION_SHARE
from wallscope.trace.gpu_limits import peak
from wallscope.trace.intervals import Spans, covered_ns, ordered, union

_PERCENT = 100


def gpu_metrics(steps: Spans, capture: Capture, rank_id: int, gpu: int | None) -> GpuMetrics | None:
    """What was sampled of the GPU (Nsight's id) of a rank; `None` where nothing was in its steps.

    Where the id is not known, an export of a single GPU leaves no choice.
    """
    if gpu is None and len(capture.export.gpus) == 1:
        gpu = capture.export.gpus[0].id
    if gpu is None or capture.samples.is_empty():
        return None
    told = capture.samples.filter((pl.col("gpu") == gpu) & pl.col("at_ns").is_not_null()).join(
        capture.metric_names, left_on="metric", right_on="name"
    )
    own = told.filter(pl.col("text").is_in(list(SPELLED)))
    placed = _inside(own, steps)
    if placed.is_empty():
        return None
    by_name = {
        text: (mean, count)
        for text, mean, count in placed.group_by("text")
        .agg(pl.col("value").mean(), count=pl.len())
        .iter_rows()
    }
    moments = placed.select("begin_ns", "at_ns").unique("at_ns").sort("at_ns")
    spans = Spans(moments["begin_ns"].to_numpy(), moments["at_ns"].to_numpy())
    return GpuMetrics(
        gpu=gpu,
        samples=len(moments),
        exclusive_share=_exclusive_share(spans, capture, rank_id, gpu),
        means=tuple(
            MetricMean(metric, by_name[text][0] / _PERCENT, by_name[text][1])
            for text, metric in SPELLED.items()
            if text in by_name
        ),
    )


def _inside(samples: pl.DataFrame, steps: Spans) -> pl.DataFrame:
    """The samples whose whole time lies in one step, with `begin_ns`.

    A sample begins where the one before ended, but is never longer than usual: behind a hole in the
    sampling it tells only of its own period.
    """
    at_ns = samples["at_ns"].unique().sort()
    if len(at_ns) < 2:
        return samples.clear().with_columns(begin_ns=pl.lit(0, pl.Int64))
    lasted_ns = np.diff(at_ns.to_numpy())
    usual_ns = int(np.median(lasted_ns))
    begin_ns = at_ns.to_numpy() - np.minimum(np.append(usual_ns, lasted_ns), usual_ns)
    step = np.searchsorted(steps.start_ns, begin_ns, side="right") - 1
    is_inside = (step >= 0) & (at_ns.to_numpy() <= steps.end_ns[step])
    placed = pl.DataFrame({"at_ns": at_ns, "begin_ns": begin_ns}).filter(pl.Series(is_inside))
    return samples.join(placed, on="at_ns")


def _exclusive_share(samples: Spans, capture: Capture, rank_id: int, gpu: int) -> float | None:
    """Share of the samples without operations of other ranks on the GPU; ranks may not tell theirs."""
    gpu_of_rank = capture.ranks.select("rank_id", on="gpu")
    others = capture.operations.filter(pl.col("rank_id") != rank_id).join(
        gpu_of_rank, on="rank_id", how="left"
    )
    shared = _touched(samples, others.filter(pl.col("on") == gpu))
    unclear = _touched(samples, others.filter(pl.col("on").is_null()))
    if bool((unclear & ~shared).any()):
        return None
    return 1 - float(shared.mean())


def _touched(samples: Spans, operations: pl.DataFrame) -> Flags:
    """Whether any of the operations ran during each sample."""
    busy = union(ordered(operations["start_ns"].to_numpy(), operations["end_ns"].to_numpy()))
    is_touched: Flags = covered_ns(busy, samples) > 0
    return is_touched


def throughput(rank: Rank, anchor: Anchor, facts: StepFacts, gpu: Gpu | None) -> Throughput | None:
    """The throughput of one rank; `None` where the user told nothing, or windows are not known to be steps.

    `gpu` is the one that the rank ran on.
    """
    step_ns = rank.typical.step_ns
    if facts == StepFacts() or anchor.unit != "step" or step_ns == 0:
        return None
    per_s = 1e9 / step_ns
    flops_per_s = None if facts.flops is None else facts.flops * per_s
    most = None if flops_per_s is None else _peak(rank, gpu)
    return Throughput(
        step_ns=step_ns,
        unprofiled_step_ns=facts.unprofiled_step_ns,
        perturbation=step_ns / facts.unprofiled_step_ns if facts.unprofiled_step_ns else None,
        tokens_per_s=None if facts.tokens is None else facts.tokens * per_s,
        flops_per_s=flops_per_s,
        peak=most,
        mfu=flops_per_s / most.flops_per_s if flops_per_s is not None and most is not None else None,
    )


def _peak(rank: Rank, gpu: Gpu | None) -> Peak | None:
    """That of the precision in which most of the matrix multiplication is done, if names tell it."""
    if rank.compute_details is None or gpu is None:
        return None
    first = next(iter(rank.compute_details.precisions), None)
    if first is None or first.precision is Precision.UNKNOWN or first.share < KNOWN_PRECISION_SHARE:
        return None
    return peak(gpu.name, first.precision)
