"""What the profiler itself cost the threads that issue work."""

import polars as pl

from wallscope.model.capture import Capture, Finding, Progress, Severity
from wallscope.model.kinds import CallRole
from wallscope.nsys.catalog import Table
from wallscope.nsys.tables import Database, read
from wallscope.thresholds import GRAVE_PROFILER_OVERHEAD_SHARE, PROFILER_OVERHEAD_SHARE
from wallscope.timeline.spans import covered_ns, ordered, spans, union
from wallscope.units import duration, percent

_WHO_AND_WHEN = ("start", "end", "globalTid")
_PROFILER = Table("PROFILER_OVERHEAD", _WHO_AND_WHEN)
_CUDA = Table("CUPTI_ACTIVITY_KIND_OVERHEAD", (*_WHO_AND_WHEN, "overheadType"))
_PROFILER_TYPES = (3, 4, 5)  # buffer flush, instrumentation, resource; the others are costs of CUDA itself
_ISSUING = (CallRole.LAUNCH, CallRole.GRAPH, CallRole.COPY)


def overhead_findings(
    source: Database, capture: Capture, time_shift_ns: int, progress: Progress
) -> tuple[Finding, ...]:
    """How long the profiler held the thread it held longest of those that issue, while the device was traced.

    That is a lower bound of what the capture cost: only a step timed without the profiler tells it all.
    """
    start_ns, end_ns = _device_window(capture)
    overheads = pl.concat(
        [
            read(source, _PROFILER, progress).select(_WHO_AND_WHEN),
            read(source, _CUDA, progress)
            .filter(pl.col("overheadType").is_in(_PROFILER_TYPES))
            .select(_WHO_AND_WHEN),
        ]
    )
    if overheads.is_empty():
        return ()
    issuing = capture.calls.filter(pl.col("role").is_in([str(role) for role in _ISSUING]))
    tids = capture.threads.join(issuing, on="thread", how="semi").select(globalTid="global_tid")
    window = spans((start_ns + time_shift_ns, end_ns + time_shift_ns))
    held_ns = [
        int(covered_ns(union(ordered(own["start"].to_numpy(), own["end"].to_numpy())), window).sum())
        for own in overheads.drop_nulls().join(tids, on="globalTid", how="semi").partition_by("globalTid")
    ]
    longest_ns, window_ns = max(held_ns, default=0), end_ns - start_ns
    if longest_ns == 0 or longest_ns < PROFILER_OVERHEAD_SHARE * window_ns:
        return ()
    return (
        Finding(
            "profiler-overhead",
            Severity.WARNING if longest_ns >= GRAVE_PROFILER_OVERHEAD_SHARE * window_ns else Severity.INFO,
            f"The profiler held a thread that issues work for {duration(longest_ns)},"
            f" {percent(longest_ns / window_ns)} of the captured time, and slowed it beyond that.",
            "Trace less, and time some steps without the profiler.",
            covers_ns=longest_ns,
        ),
    )


def _device_window(capture: Capture) -> tuple[int, int]:
    """From the first device operation to the last."""
    bounds = capture.operations.select(pl.col("start_ns").min(), pl.col("end_ns").max())
    start_ns, end_ns = bounds.row(0)
    return int(start_ns), int(end_ns)
