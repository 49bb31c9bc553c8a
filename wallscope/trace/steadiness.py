"""Which windows count as steady, which are of ordinary length, and why the others do not."""

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import polars as pl

from wallscope.columns import Flags
from wallscope.model.frames import STEPS
from wallscope.thresholds import (
    FEWEST_STEPS_FOR_QUARTILES_COUNT,
    WARM_UP_RATIO,
)
from wallscope.trace.intervals import Times

_PROFILER = r"Profiler(Start|Stop)"


_GRAPH_CAPTURE = r"StreamBeginCapture|StreamEndCapture|GraphInstantiate"


_LOADING = r"(Module|Library)Load"


_LAST = "ends with the capture"


_TOUCHED = (
    (_PROFILER, "the profiler was started or stopped in it"),
    (_GRAPH_CAPTURE, "a CUDA graph was captured in it"),
)


@dataclass(frozen=True, slots=True)
class Host:
    """Calls with their names and threads: `CALLS`, `NAMES`, `THREADS`."""

    calls: pl.DataFrame
    names: pl.DataFrame
    threads: pl.DataFrame

    def moments(self, process: int, pattern: str) -> Times:
        """Starts of the calls of a process whose name the pattern finds, in order."""
        names = self.names.filter(pl.col("text").str.contains(pattern))["name"]
        if names.is_empty():
            return np.empty(0, np.int64)
        threads = self.threads.filter(pl.col("process") == process)["thread"]
        own = self.calls.filter(
            pl.col("name").is_in(names.implode()) & pl.col("thread").is_in(threads.implode())
        )
        return np.sort(own["start_ns"].to_numpy())


def judged(windows: pl.DataFrame, process: int, host: Host) -> pl.DataFrame:
    """The windows of one rank with steadiness and reason (`STEPS` without them to `STEPS`).

    What the host did for a window lies between the issue of its first kernel and that of the next. The
    leading windows that load modules, or take over 1.25 times the median of all later ones, are warm-up.
    """
    reasons: list[str | None] = [None] * len(windows)
    issue_ns = windows["issue_start_ns"].to_numpy()
    for pattern, touched in _TOUCHED:
        for window in _windows_of(host.moments(process, pattern), issue_ns):
            reasons[window] = touched
    loading = set(_windows_of(host.moments(process, _LOADING), issue_ns))
    duration_ns = (windows["end_ns"] - windows["start_ns"]).to_numpy()
    for window in range(len(windows) - 2):
        later_ns = float(np.median(duration_ns[window + 1 : -1]))
        if window in loading:
            reasons[window] = reasons[window] or "warm-up: modules were loaded in it"
        elif later_ns and duration_ns[window] > WARM_UP_RATIO * later_ns:
            ratio = duration_ns[window] / later_ns
            reasons[window] = reasons[window] or f"warm-up: {ratio:.1f} times the median of the later ones"
        elif reasons[window] is None:
            break
    reasons[-1] = _LAST
    reason = pl.Series("reason", reasons, dtype=pl.String)
    return windows.with_columns(reason, reason.is_null().alias("steady")).select(STEPS.names()).cast(STEPS)


def _windows_of(moments: Times, issue_ns: Times) -> list[int]:
    """The windows that moments of the host fall into."""
    window = np.searchsorted(issue_ns, moments, side="right") - 1
    return [int(index) for index in np.unique(window[window >= 0])]


def is_ordinary(length_ns: npt.NDArray[np.int64] | npt.NDArray[np.float64]) -> Flags:
    """Whether each length lies within the quartiles of its row; all do, where a row has fewer than eight.

    Rows are along the last axis.

    >>> is_ordinary(np.array([1, 2, 3, 4, 5, 6, 7, 8])).tolist()
    [False, False, True, True, True, True, False, False]
    >>> is_ordinary(np.array([1, 99])).tolist()
    [True, True]
    """
    if length_ns.shape[-1] < FEWEST_STEPS_FOR_QUARTILES_COUNT:
        return np.ones(length_ns.shape, dtype=np.bool_)
    low, high = np.percentile(length_ns, [25, 75], axis=-1, keepdims=True)
    within: Flags = (length_ns >= low) & (length_ns <= high)
    return within
