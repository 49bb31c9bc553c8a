"""What NVLink, network cards and switches carried in the steps, and during exposed communication."""

from collections.abc import Callable, Iterator

import numpy as np
import numpy.typing as npt
import polars as pl

from wallscope.attribution.totals import TypicalWork
from wallscope.columns import Flags
from wallscope.model.capture import Capture
from wallscope.model.enums import Direction, OperationClass
from wallscope.model.rank_summaries import SPELLED, GpuMetric, LinkTraffic
from wallscope.summary.compute import select_gpu_samples
from wallscope.thresholds.causes import BESIDE_SHARE
from wallscope.trace.intervals import Spans, Times, common, covered_ns, union
from wallscope.trace.kernel_classes import COMPUTING

_NVLINK = {
    Direction.RECEIVED: (GpuMetric.NVLINK_RECEIVED_REQUESTS, GpuMetric.NVLINK_RECEIVED_RESPONSES),
    Direction.SENT: (GpuMetric.NVLINK_SENT_REQUESTS, GpuMetric.NVLINK_SENT_RESPONSES),
}
_PERCENT = 100
_Values = npt.NDArray[np.float64]


def measure_link_traffic(
    work: TypicalWork, capture: Capture, gpu: int | None
) -> tuple[LinkTraffic, ...] | None:
    """Return the traffic of each link and direction, cards and switches first, the busiest first.

    `gpu` is that of the rank (Nsight's id). `None` if no counter of a link has a sample in the steps.
    """
    own = select_gpu_samples(work.steps, capture, gpu)
    if own is None and capture.traffic is None:
        return None
    running = common(union(work.columns.spans(work.rows_of(OperationClass.COMMUNICATION))), work.steps)
    hidden = common(union(work.columns.spans(work.rows_of(*COMPUTING))), running)

    def are_exposed(spans: Spans) -> Flags:
        exposed_ns = covered_ns(running, spans) - covered_ns(hidden, spans)
        is_exposed: Flags = exposed_ns >= BESIDE_SHARE * (spans.end_ns - spans.start_ns)
        return is_exposed

    found = []
    if capture.traffic is not None:
        found += sorted(
            _measure_cards(capture.traffic, work, are_exposed),
            key=lambda one: (-(one.bytes_per_s or 0.0), one.link, one.direction),
        )
    if own is not None:
        found += _measure_nvlink(own[1], are_exposed)
    return tuple(found) or None


def _measure_cards(
    traffic: pl.DataFrame, work: TypicalWork, are_exposed: Callable[[Spans], Flags]
) -> Iterator[LinkTraffic]:
    """Yield the links with samples of which the steps cover at least half."""
    spans = Spans(traffic["start_ns"].to_numpy(), traffic["end_ns"].to_numpy())
    is_inside = covered_ns(work.steps, spans) >= BESIDE_SHARE * (spans.end_ns - spans.start_ns)
    placed = traffic.filter(pl.Series(is_inside))
    for (link, direction), own in placed.group_by("link", "direction", maintain_order=True):
        spans = Spans(own["start_ns"].to_numpy(), own["end_ns"].to_numpy())
        rate, is_exposed = own["bytes_per_s"].to_numpy(), are_exposed(spans)
        lasted_ns = spans.end_ns - spans.start_ns
        yield LinkTraffic(
            link=str(link),
            direction=Direction(str(direction)),
            bytes_per_s=_average_rate(rate, lasted_ns),
            exposed_bytes_per_s=_average_rate(rate[is_exposed], lasted_ns[is_exposed]),
            peak_share=None,
            exposed_peak_share=None,
            samples=rate.size,
            exposed_samples=int(is_exposed.sum()),
        )


def _average_rate(rate: _Values, lasted_ns: Times) -> float | None:
    return float(np.average(rate, weights=lasted_ns)) if rate.size else None


def _measure_nvlink(samples: pl.DataFrame, are_exposed: Callable[[Spans], Flags]) -> Iterator[LinkTraffic]:
    """Yield a direction if requests and responses were both sampled: their sum is what NVLink carried."""
    is_exposed = are_exposed(Spans(samples["begin_ns"].to_numpy(), samples["at_ns"].to_numpy()))
    named = samples.with_columns(exposed=pl.Series(is_exposed)).select("text", "at_ns", "value", "exposed")
    texts = {metric: text for text, metric in SPELLED.items()}
    for direction, metrics in _NVLINK.items():
        own = named.filter(pl.col("text").is_in([texts[metric] for metric in metrics]))
        whole = own.group_by("at_ns").agg(pl.col("value").sum(), pl.col("exposed").first(), parts=pl.len())
        whole = whole.filter(parts=len(metrics))
        if whole.is_empty():
            continue
        exposed = whole.filter("exposed")["value"]
        yield LinkTraffic(
            link="NVLink",
            direction=direction,
            bytes_per_s=None,
            exposed_bytes_per_s=None,
            peak_share=float(whole["value"].to_numpy().mean()) / _PERCENT,
            exposed_peak_share=float(exposed.to_numpy().mean()) / _PERCENT if len(exposed) else None,
            samples=len(whole),
            exposed_samples=len(exposed),
        )
