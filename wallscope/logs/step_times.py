"""The time of a step without the profiler, from the reports of logs: steady ones, without warm-up."""

import statistics
from bisect import bisect_right
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from math import ceil
from pathlib import Path

from wallscope.errors import OptionError
from wallscope.logs.formats import CLOCK, find_log_format, list_log_formats
from wallscope.logs.log_lines import LogContent, StepReport, read_log
from wallscope.model.diagnosis import LoggedSteps, StepTimeBasis
from wallscope.thresholds.logs import (
    CLOCK_RESOLUTION_SHARE,
    FEWEST_REPORTS_COUNT,
    LEAST_GROWING_SHARE,
    LEAST_GROWTH_SHARE,
    LEAST_WARM_UP_SHARE,
    MOST_WARM_UP_SHARE,
    STEADY_LOG_SHARE,
    WARM_UP_DEVIATIONS_COUNT,
)
from wallscope.units import duration, plural

_NORMAL_DEVIATION = 1.4826
_FIGURES = ("flops_per_s", "gpu_tokens_per_s", "tokens_per_s", "mfu")
_MOST_STEP_S = 1e6
_DAY_S, _NOON_S = 86_400, 43_200
_SURELY_SORTED_COUNT, _CUMULATED_RATIO = 8, 2  # one of 40,320 orders; two steps have passed


@dataclass(slots=True)
class _Times:
    """Steady times of steps, in seconds, and what was left out."""

    steady_s: list[float] = field(default_factory=list)
    warm_up: int = 0
    steps: int = 0
    is_coarse: bool = False


def read_logged_steps(paths: Sequence[Path]) -> LoggedSteps:
    """Return what the logs of one run state about its steps; each has another rank, or a part.

    Raises:
        OptionError: a log cannot be read, or states nothing about a step.
    """
    contents = [read_log(path) for path in paths]
    for path, content in zip(paths, contents, strict=True):
        if not content.reports and not content.whole_per_s:
            raise OptionError(
                f"{path} — states no time of a step in a known format — give another log, or the time with"
                " --unprofiled-step-ms"
            )
    return _join_logs(contents)


def _join_logs(contents: Sequence[LogContent]) -> LoggedSteps:
    basis, times, reason = _choose_times(contents)
    steady_s = times.steady_s
    if reason is None:
        reason = _find_unsteady(steady_s) if basis != "whole-run" else None
    median_s = statistics.median(steady_s) if steady_s else None
    is_known = median_s is not None and reason is None
    figures = {name: _summarize_figure(contents, name) for name in _FIGURES}
    return LoggedSteps(
        names=tuple(content.name for content in contents),
        formats=tuple(_name_formats(contents)),
        basis=basis,
        step_ns=max(round(median_s * 1e9), 1) if is_known and median_s is not None else None,
        reason=reason,
        low_ns=_find_quantile_ns(steady_s, 0.1) if is_known else None,
        high_ns=_find_quantile_ns(steady_s, 0.9) if is_known else None,
        mean_ns=round(statistics.fmean(steady_s) * 1e9) if is_known else None,
        reports=len(steady_s),
        steps=times.steps,
        warm_up_reports=times.warm_up,
        broken_reports=sum(content.broken for content in contents),
        skipped_steps=_count_skipped(contents),
        loss_scale=_find_loss_scale(contents),
        tokens_per_s=figures["tokens_per_s"],
        gpu_tokens_per_s=figures["gpu_tokens_per_s"],
        flops_per_s=figures["flops_per_s"],
        mfu=figures["mfu"],
    )


def _name_formats(contents: Sequence[LogContent]) -> Iterator[str]:
    """Name the formats of the reports, each once; Megatron Bridge writes lines of Megatron-LM too."""
    ids = {name for content in contents for name in content.reports}
    left_out = {"megatron-lm"} if "megatron-bridge" in ids else set()
    if "hugging-face" in ids:
        left_out.add("progress-bar")
    if ids - {"plain"}:
        left_out.add("plain")
    yield from dict.fromkeys(one.name for one in list_log_formats() if one.id in ids - left_out)


def _choose_times(contents: Sequence[LogContent]) -> tuple[StepTimeBasis | None, _Times, str | None]:
    """Return the most exact times that all logs together have, on what they rest, and why there are none."""
    kinds = [one.id for one in list_log_formats()]
    kinds.sort(
        key=lambda kind: kind == "megatron-bridge"
    )  # its times have two digits, those of its base four
    reason = None
    ways: tuple[tuple[StepTimeBasis, str], ...] = (
        ("stated", "time"),
        ("stated", "lap"),
        ("throughput", "samples"),
        ("clock", "elapsed"),
        ("clock", "clock"),
    )
    for basis, way in ways:
        for kind in kinds:
            found = _Times()
            for content in contents:
                _add_times(content, kind, way, found)
            if len(found.steady_s) >= FEWEST_REPORTS_COUNT:
                return basis, found, None
            if found.is_coarse:
                reason = "the log writes times to the second, and covers too little time for that"
            elif found.steady_s or found.warm_up:
                some = plural(len(found.steady_s), "steady report")
                reason = reason or f"the log has {some} of steps: too few"
    rates = [rate for content in contents for rate in content.whole_per_s if rate > 1 / _MOST_STEP_S]
    if rates:
        return "whole-run", _Times([1 / rate for rate in rates], 0, 0), None
    return None, _Times(), reason or "the log states no time of a step"


def _add_times(content: LogContent, kind: str, way: str, found: _Times) -> None:
    reports = content.reports.get(kind, [])
    last_batch = next((one.figures["batch"] for one in reversed(reports) if "batch" in one.figures), None)
    is_bar = any(one.unit == CLOCK for one in find_log_format(kind).elapsed)
    for own in _split_writers(reports, is_longest_alone=is_bar):
        for segment in _split_restarts(own):
            interval = _measure_interval(segment)
            if way in {"time", "samples"}:
                samples = content.samples if way == "samples" else None
                times_s = list(_list_stated(segment, samples, last_batch))
            elif way == "lap":
                times_s = [] if is_bar else _list_laps(segment)
            else:
                times_s, is_coarse = _measure_differences(segment, way)
                found.is_coarse |= is_coarse
            times_s = [one for one in times_s if 0 < one < _MOST_STEP_S]
            steady = drop_warm_up(times_s)
            found.steady_s += steady
            found.warm_up += len(times_s) - len(steady)
            found.steps += len(steady) * interval


def _split_writers(reports: Sequence[StepReport], *, is_longest_alone: bool) -> list[list[StepReport]]:
    """Return the reports by writer; of progress bars, those of the bar that ran longest."""
    by_writer: dict[str, list[StepReport]] = {}
    for one in reports:
        by_writer.setdefault(one.writer, []).append(one)
    parts = list(by_writer.values())
    if is_longest_alone and len(parts) > 1:
        return [max(parts, key=lambda own: max(one.elapsed_s or 0 for one in own))]
    return parts


def _measure_interval(reports: Sequence[StepReport]) -> int:
    """Return by how many steps the reports of a writer are mostly apart."""
    steps = [one.step for one in reports if one.step is not None]
    apart = [after - before for before, after in pairwise(steps) if after > before]
    return round(statistics.median_low(apart)) if apart else 1


def _split_restarts(reports: Sequence[StepReport]) -> Iterator[list[StepReport]]:
    """Split the reports of a writer where the number of the step falls back: a run began again.

    Ranks that share a name are apart by less than two intervals.
    """
    interval = _measure_interval(reports)
    own: list[StepReport] = []
    highest = -1
    for one in reports:
        if one.step is not None:
            if one.step < highest - 2 * interval:
                yield own
                own, highest = [], -1
            highest = max(highest, one.step)
        own.append(one)
    if own:
        yield own


def _list_stated(
    reports: Iterable[StepReport], samples: float | None, last_batch: float | None
) -> Iterator[float]:
    """Return the durations that reports state, the last one of each step.

    Left out are reports with skipped steps, which lack the optimizer, and those of another batch size.
    """
    by_step: dict[int, float] = {}
    for place, one in enumerate(reports):
        time_s = one.time_s
        if samples is not None:
            rate = one.figures.get("samples_per_s")
            time_s = samples / rate if rate else None
        if not time_s or one.figures.get("skipped"):
            continue
        if last_batch is not None and one.figures.get("batch", last_batch) != last_batch:
            continue
        by_step[-1 - place if one.step is None else one.step] = time_s
    yield from by_step.values()


def _measure_differences(reports: Sequence[StepReport], way: str) -> tuple[list[float], bool]:
    """Return durations from the times of reports, and whether these are too coarse for it.

    Reports are taken so far apart that the resolution of their times does not count.
    """
    moments = _list_cumulative(list(_list_moments(reports, way)))
    if len(moments) <= FEWEST_REPORTS_COUNT:
        return [], False
    step_s = max(1.0 if way == "elapsed" else max(one.clock_step_s for one in reports), 1e-6)
    if way == "elapsed" and any(at_s % 1 for _, at_s in moments):
        step_s = 1e-3
    span_s, count = moments[-1][1] - moments[0][1], len(moments) - 1
    lag = max(1, ceil(step_s / CLOCK_RESOLUTION_SHARE * count / span_s))
    if count - lag < FEWEST_REPORTS_COUNT:
        return [], True
    return [
        (after_s - before_s) / (after - before)
        for (before, before_s), (after, after_s) in zip(moments, moments[lag:], strict=False)
        if after_s > before_s
    ], False


def _list_moments(reports: Iterable[StepReport], way: str) -> Iterator[tuple[int, float]]:
    """Return step and time of the reports, the first one of each step, as long as both grow."""
    highest, last_s = -1, None
    for one in reports:
        at_s = one.elapsed_s if way == "elapsed" else one.clock_s
        if at_s is None or one.step is None or one.step <= highest:
            continue
        if way == "clock" and last_s is not None and at_s < last_s - _NOON_S:
            at_s += _DAY_S * -(-(last_s - _NOON_S - at_s) // _DAY_S)  # the day ended
        highest, last_s = one.step, at_s
        yield one.step, at_s


def _list_laps(reports: Sequence[StepReport]) -> list[float]:
    """Return times that reports call time or elapsed, unless they grow as those since a moment do."""
    moments = list(_list_moments(reports, "elapsed"))
    growing = _list_cumulative(moments)
    if growing and (
        len(growing) >= _SURELY_SORTED_COUNT or growing[-1][1] > _CUMULATED_RATIO * growing[0][1]
    ):
        return []
    return [at_s for _, at_s in moments]


def _list_cumulative(moments: Sequence[tuple[int, float]]) -> list[tuple[int, float]]:
    """Return the moments if their times grow with the steps, as those since a moment do; else none.

    Lines that ranks broke give few of them a time of another step, which is left out. Times of
    steps that become longer may grow too. Moments differ: all but few grow, from the first half to the
    second, and become a multiple.
    """
    growing = _list_growing(moments)
    if not growing or growing[-1][1] <= growing[0][1]:
        return []
    if len(growing) == len(moments):
        return growing
    first_s, middle_s, last_s = (growing[place][1] for place in (0, len(growing) // 2, -1))
    least_s = LEAST_GROWTH_SHARE * (last_s - first_s)
    is_spread = min(middle_s - first_s, last_s - middle_s) >= least_s
    is_most = len(growing) >= LEAST_GROWING_SHARE * len(moments)
    return growing if is_most and is_spread and last_s > _CUMULATED_RATIO * first_s else []


def _list_growing(moments: Sequence[tuple[int, float]]) -> list[tuple[int, float]]:
    """Return the most moments of which none is earlier than one before it.

    >>> _list_growing([(1, 2.0), (2, 90.0), (3, 4.0), (4, 4.0), (5, 3.0), (6, 7.0)])
    [(1, 2.0), (3, 4.0), (4, 4.0), (6, 7.0)]
    """
    ends_s: list[float] = []  # by length, the earliest moment that so many can end with
    ends: list[int] = []
    before: list[int] = []
    for place, (_, at_s) in enumerate(moments):
        length = bisect_right(ends_s, at_s)
        before.append(ends[length - 1] if length else -1)
        ends_s[length : length + 1] = [at_s]
        ends[length : length + 1] = [place]
    found = []
    place = ends[-1] if ends else -1
    while place >= 0:
        found.append(moments[place])
        place = before[place]
    return found[::-1]


def drop_warm_up(times_s: Sequence[float]) -> list[float]:
    """Return the times without those at the beginning that are unlike the second half.

    The first one is always left out: it holds what a program does once.

    >>> drop_warm_up([9.0, 3.0, 1.0, 1.1, 1.0, 1.0, 1.1, 1.0])
    [1.0, 1.1, 1.0, 1.0, 1.1, 1.0]
    """
    if len(times_s) < 2:
        return []
    later = times_s[len(times_s) // 2 :]
    middle = statistics.median(later)
    deviation = _NORMAL_DEVIATION * statistics.median(abs(one - middle) for one in later)
    limit = max(WARM_UP_DEVIATIONS_COUNT * deviation, LEAST_WARM_UP_SHARE * middle)
    most = max(1, int(MOST_WARM_UP_SHARE * len(times_s)))
    first = 1
    while first < most and abs(times_s[first] - middle) > limit:
        first += 1
    return list(times_s[first:])


def _find_unsteady(times_s: Sequence[float]) -> str | None:
    """Say that the two halves of the times differ, where there are enough."""
    half = len(times_s) // 2
    if half < FEWEST_REPORTS_COUNT:
        return None
    first, second = statistics.median(times_s[:half]), statistics.median(times_s[-half:])
    if abs(second - first) <= STEADY_LOG_SHARE * max(first, second):
        return None
    before, after = duration(round(first * 1e9)), duration(round(second * 1e9))
    return f"the log has no steady step: {before} in its first half, {after} in its second"


def _summarize_figure(contents: Sequence[LogContent], name: str) -> float | None:
    """Return the median of a figure over the reports after warm-up, of the first format that states it."""
    for kind in list_log_formats():
        found: list[float] = []
        for content in contents:
            for own in _split_writers(content.reports.get(kind.id, []), is_longest_alone=False):
                for segment in _split_restarts(own):
                    values = [one.figures[name] for one in segment if name in one.figures]
                    found += drop_warm_up(values) if len(values) > 1 else values
        if found:
            return statistics.median(found)
    return None


def _find_loss_scale(contents: Sequence[LogContent]) -> float | None:
    """Return the loss scale that was stated last."""
    for content in reversed(contents):
        if content.loss_scale is not None:
            return content.loss_scale
        for reports in content.reports.values():
            for one in reversed(reports):
                if "loss_scale" in one.figures:
                    return one.figures["loss_scale"]
    return None


def _count_skipped(contents: Sequence[LogContent]) -> int | None:
    """Return how many steps were skipped, each counted once; `None` where no line says so."""
    counts: list[float] = []
    for content in contents:
        per_writer: Counter[str] = Counter()
        is_stated = False
        for reports in content.reports.values():
            for own in _split_writers(reports, is_longest_alone=False):
                for segment in _split_restarts(own):
                    by_step = {
                        one.step: one.figures["skipped"] for one in segment if "skipped" in one.figures
                    }
                    is_stated |= bool(by_step)
                    per_writer[own[0].writer] += round(sum(by_step.values()))
        if is_stated:
            counts.append(max(per_writer.values()))
        elif content.skipped_so_far is not None:
            counts.append(content.skipped_so_far)
        elif content.skipped_lines:
            counts.append(content.skipped_lines)
    return round(max(counts)) if counts else None


def _find_quantile_ns(times_s: Sequence[float], share: float) -> int:
    """Return the time below which a share of the times lies, between neighbors in proportion."""
    ordered = sorted(times_s)
    place = (len(ordered) - 1) * share
    below = int(place)
    above = min(below + 1, len(ordered) - 1)
    return round((ordered[below] + (ordered[above] - ordered[below]) * (place - below)) * 1e9)
