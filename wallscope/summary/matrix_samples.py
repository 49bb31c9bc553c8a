"""What samples of the GPU's metrics show while kernels multiply."""

from collections.abc import Iterator

import numpy as np
import polars as pl

from wallscope.attribution.totals import CATEGORIES, TypicalWork
from wallscope.columns import Flags, Rows
from wallscope.model.capture import Capture
from wallscope.model.enums import ComputeCategory, OperationClass
from wallscope.model.rank_summaries import CLOCK_METRIC, SPELLED, GpuMetric
from wallscope.model.speed_of_light import GpuPeak, SampledClock, SampledWork
from wallscope.summary.compute import find_sampled_gpu, list_gpu_samples
from wallscope.summary.kernel_work import MULTIPLYING
from wallscope.thresholds.causes import FEWEST_SAMPLES_COUNT, SAMPLED_ALONE_SHARE
from wallscope.trace.intervals import Spans, covered_ns, order_spans, union

_TENSOR = (GpuMetric.TENSOR_ACTIVE, GpuMetric.TENSOR_OR_FP16_ACTIVE)
_PERCENT, _MEGA = 100, 1e6


def sample_matrices(work: TypicalWork, capture: Capture, gpu: int | None) -> tuple[SampledWork, ...]:
    """Return what samples show while kernels of a multiplying category run alone; empty without samples.

    Samples cover the whole GPU, so those in which other compute kernels run, or none, are left out.

    Args:
        work: the typical step of a rank.
        capture: with the samples.
        gpu: of the rank (Nsight's id), if known.
    """
    gpu = find_sampled_gpu(capture, gpu)
    rows = work.rows_of(OperationClass.COMPUTE)
    if gpu is None or not rows.size:
        return ()
    samples = list_gpu_samples(capture, gpu)
    moments = samples.select("begin_ns", "at_ns").unique("at_ns").sort("at_ns")
    spans = Spans(moments["begin_ns"].to_numpy(), moments["at_ns"].to_numpy())
    found: list[SampledWork] = []
    for category in MULTIPLYING:
        is_own = work.columns.category[rows] == CATEGORIES.index(category)
        if is_own.any():
            alone = moments.filter(pl.Series(_mark_alone(work, rows, is_own, spans)))
            found += _average(category, samples.join(alone, on="at_ns", how="semi"))
    return tuple(found)


def sample_clocks(
    work: TypicalWork, capture: Capture, gpu: int | None, peak: GpuPeak | None
) -> tuple[SampledClock, ...]:
    """Return the clock that samples show while kernels of a multiplying category run; empty without samples.

    A clock changes more slowly than kernels follow each other, so that others may run in a sample, too.

    Args:
        work: the typical step of a rank.
        capture: with the samples.
        gpu: of the rank (Nsight's id), if known.
        peak: of the GPU, with its clock.
    """
    gpu = find_sampled_gpu(capture, gpu)
    rows = work.rows_of(OperationClass.COMPUTE)
    if gpu is None or not rows.size:
        return ()
    own = list_gpu_samples(capture, gpu, (CLOCK_METRIC,)).sort("at_ns")
    spans = Spans(own["begin_ns"].to_numpy(), own["at_ns"].to_numpy())
    values, found = own["value"].to_numpy(), list[SampledClock]()
    for category in MULTIPLYING:
        chosen = rows[work.columns.category[rows] == CATEGORIES.index(category)]
        if not chosen.size:
            continue
        runs: Flags = (_cover(work, chosen, spans) > 0) & (values > 0)
        if runs.any():
            clock_hz = float(values[runs].mean())
            share = None if peak is None or peak.clock_hz is None else clock_hz / peak.clock_hz
            found.append(SampledClock(category, int(runs.sum()), round(clock_hz / _MEGA), share))
    return tuple(found)


def _cover(work: TypicalWork, rows: Rows, samples: Spans) -> Rows:
    """Return how long any of some operations runs in each sample."""
    spans = union(order_spans(work.columns.start_ns[rows], work.columns.end_ns[rows]))
    return np.asarray(covered_ns(spans, samples), np.int64)


def _mark_alone(work: TypicalWork, rows: Rows, is_own: Flags, samples: Spans) -> Flags:
    """Return whether some of the kernels run nearly throughout a sample, and others nearly not at all."""
    least_ns = SAMPLED_ALONE_SHARE * (samples.end_ns - samples.start_ns)
    most_ns = (1 - SAMPLED_ALONE_SHARE) * (samples.end_ns - samples.start_ns)
    steps_ns = covered_ns(work.steps, samples)
    is_inside = steps_ns >= samples.end_ns - samples.start_ns
    alone: Flags = is_inside & (_cover(work, rows[is_own], samples) >= least_ns)
    alone &= _cover(work, rows[~is_own], samples) <= most_ns
    return alone


def _average(category: ComputeCategory, samples: pl.DataFrame) -> Iterator[SampledWork]:
    """Yield the means of enough samples."""
    count = samples["at_ns"].n_unique()
    if count < FEWEST_SAMPLES_COUNT:
        return
    means = {
        SPELLED[text]: mean / _PERCENT
        for text, mean in samples.group_by("text").agg(pl.col("value").mean()).iter_rows()
    }
    memory = [means[one] for one in (GpuMetric.DRAM_READ, GpuMetric.DRAM_WRITE) if one in means]
    yield SampledWork(
        category,
        count,
        means.get(GpuMetric.SM_ACTIVE),
        next((means[one] for one in _TENSOR if one in means), None),
        sum(memory) if memory else None,
    )
