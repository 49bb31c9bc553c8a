"""Ranges of any name that recur once per step, recognized by their content.

A step's range contains most of the kernel time between its first and its last instance, and is not nested in
itself. From the start of one instance to the next, about the same kernels run each time. Its own thread
issues some of them, unlike with ranges of loaders and other workers. Of nested ranges the outermost is the
step, unless it occurs too rarely. Layers, microbatches, epochs and steps of a scheduler have known names and
never count as steps.
"""

from collections.abc import Iterator

import numpy as np
import polars as pl

from wallscope.columns import Flags, Rows
from wallscope.records import dataclass
from wallscope.thresholds.steps import (
    COARSER_STEPS_RATIO,
    CYCLE_KERNELS_SHARE,
    ENOUGH_STEPS_COUNT,
    FEWEST_UNNAMED_STEPS_COUNT,
    MARKED_BY_CYCLE_SHARE,
    MARKED_KERNELS_SHARE,
    MOST_UNNAMED_COUNT,
    SAME_KERNELS_SHARE,
    SHORTEST_STRETCH_SHARE,
)
from wallscope.trace.intervals import Times
from wallscope.trace.repeat_unit import (
    UNITS,
    MainStream,
    Symbols,
    find_first_compute,
    is_alike,
    is_same_mix,
)
from wallscope.trace.step_markers import NO_STEP, STEP, MarkerRanges, filter_by_text, find_outer

_PARTS = "|".join([*(f"(?:{known})" for _, known in UNITS), r"(?i)(?:^|[^a-z])epochs?(?:$|[^a-z])"])


@dataclass(frozen=True, slots=True)
class RecurringRange:
    """A range that recurs and issues work: how many instances do, and whether it can be the step."""

    marker: MarkerRanges
    count: int
    is_step: bool


@dataclass(frozen=True, slots=True)
class _Seen:
    """A recurring range with the kernels in its instances (`holds`), and those from first to last one.

    `share` is the time of the kernels in instances by that from the first to the last instance, and
    `stretch_share` the latter by the time of all kernels.
    """

    marker: MarkerRanges
    thread: int
    covered_ns: int
    is_outermost: bool
    holds: Flags
    stretch: Flags
    begins: Rows
    share: float
    stretch_share: float


def find_recurring_steps(ranges: pl.DataFrame, main: MainStream) -> list[RecurringRange]:
    """The ranges of a process that recur and issue work of its main stream, the best step first.

    `ranges` are those of `label_ranges` of the process. None of them is a step if the first is not.
    """
    seen = sorted(
        _look(ranges, main), key=lambda one: (-round(one.share, 2), -one.covered_ns, one.marker.name)
    )
    phases = _find_first_phases(seen, _run_ns(main))
    symbols = main.rows["symbol"].to_numpy()
    steps = [
        one
        for one in seen
        if one.stretch_share >= _least_stretch(one)
        and one.share >= (MARKED_BY_CYCLE_SHARE if one.marker in phases else MARKED_KERNELS_SHARE)
        and (is_alike(symbols, one.begins) or _is_request(one, symbols))
    ]
    fine = [one for one in steps if not _is_too_coarse(one, steps)]
    ordered = [*fine, *(one for one in steps if one not in fine)]
    ordered += [one for one in seen if one not in ordered]
    return [RecurringRange(one.marker, int(one.begins.size), is_step=one in fine) for one in ordered]


def _is_request(one: _Seen, symbols: Symbols) -> bool:
    """Whether an outermost range holds nearly all work: the same kernels each time, in other numbers."""
    return one.is_outermost and one.share >= CYCLE_KERNELS_SHARE and is_same_mix(symbols, one.begins)


def _least_stretch(one: _Seen) -> float:
    """The share of the kernels that must lie between first and last instance: of few nearly all."""
    return SHORTEST_STRETCH_SHARE if one.begins.size >= ENOUGH_STEPS_COUNT else CYCLE_KERNELS_SHARE


def is_finer(one: RecurringRange, coarser: int) -> bool:
    """Whether a range recurs more often than something of which a step has one: it is a part of a step."""
    return coarser > 1 and one.count > COARSER_STEPS_RATIO * (coarser + 1)


def select_by_name(ranges: pl.DataFrame, name: str, main: MainStream) -> MarkerRanges | None:
    """The ranges of that folded name on the thread that issues most kernels, of those that have any."""
    own = ranges.filter((pl.col("folded") == name) & ~pl.col("crosses"))
    for thread in main.rows["thread"].value_counts(sort=True)["thread"]:
        there = own.filter(pl.col("thread") == thread)
        if not there.is_empty():
            return MarkerRanges("nvtx", name, *find_outer(there))
    return None


def _look(ranges: pl.DataFrame, main: MainStream) -> Iterator[_Seen]:
    """The ranges of threads that issue kernels, of which most hold some that their own thread issued."""
    thread, issue_ns = main.rows["thread"].to_numpy(), main.rows["issue_ns"].to_numpy()
    run_ns = _run_ns(main)
    issuing = np.unique(thread[thread >= 0]).tolist()
    own = ranges.filter(pl.col("thread").is_in(issuing) & ~pl.col("crosses"))
    text = pl.col("text").first()
    recurring = (
        own.group_by("thread", "folded")
        .agg(
            pl.len(),
            covered_ns=(pl.col("end_ns") - pl.col("start_ns")).sum(),
            first_ns=pl.col("start_ns").min(),
            is_outermost=(pl.col("parent") < 0).mean() > MARKED_KERNELS_SHARE,
            is_known=text.str.contains(_PARTS) | (text.str.contains(STEP) & text.str.contains(NO_STEP)),
        )
        .filter(
            (pl.col("len") >= FEWEST_UNNAMED_STEPS_COUNT) & ~pl.col("is_known") & (pl.col("folded") != "")
        )
        .sort("covered_ns", "first_ns", "folded", descending=[True, False, False])
        .head(MOST_UNNAMED_COUNT)
    )
    parts = filter_by_text(own, _PARTS)
    for row in recurring.iter_rows(named=True):
        instances = own.filter((pl.col("thread") == row["thread"]) & (pl.col("folded") == row["folded"]))
        marker = MarkerRanges("nvtx", row["folded"], *find_outer(instances))
        if _lies_in(marker, parts.filter(pl.col("thread") == row["thread"])):
            continue
        inside = np.searchsorted(marker.start_ns, issue_ns, side="right") - 1
        holds = (inside >= 0) & (issue_ns < marker.end_ns[inside])
        begins = find_first_compute(main, marker)
        by_itself = np.unique(inside[holds & (thread == row["thread"])]).size
        is_nested = 2 * marker.start_ns.size <= row["len"]
        if begins.size < FEWEST_UNNAMED_STEPS_COUNT or 2 * by_itself <= begins.size or is_nested:
            continue
        stretch = (issue_ns >= marker.start_ns[0]) & (issue_ns < marker.end_ns[-1])
        stretch_ns = max(int(run_ns[stretch].sum()), 1)
        yield _Seen(
            marker,
            row["thread"],
            row["covered_ns"],
            row["is_outermost"],
            holds,
            stretch,
            np.sort(begins),
            share=int(run_ns[holds].sum()) / stretch_ns,
            stretch_share=stretch_ns / max(int(run_ns.sum()), 1),
        )


def _lies_in(marker: MarkerRanges, parts: pl.DataFrame) -> bool:
    """Whether most instances of a range lie in layers, microbatches or other parts of a step."""
    start_ns, end_ns = find_outer(parts)
    around = np.searchsorted(start_ns, marker.start_ns, side="right") - 1
    is_inside = (
        (around >= 0) & (marker.end_ns <= end_ns[np.maximum(around, 0)]) if start_ns.size else around >= 0
    )
    return float(is_inside.mean()) > MARKED_KERNELS_SHARE


def _run_ns(main: MainStream) -> Times:
    """Return how long each kernel of the main stream ran."""
    run_ns: Times = main.rows["end_ns"].to_numpy() - main.rows["start_ns"].to_numpy()
    return run_ns


def _find_first_phases(seen: list[_Seen], run_ns: Times) -> list[MarkerRanges]:
    """The first of each group of outermost ranges of equal count that together hold nearly all work."""
    groups: dict[tuple[int, int], list[_Seen]] = {}
    for one in seen:
        if one.is_outermost:
            groups.setdefault((one.thread, one.begins.size), []).append(one)
    return [
        min(group, key=lambda one: int(one.marker.start_ns[0])).marker
        for group in groups.values()
        if len(group) > 1
        and run_ns[np.any([one.holds for one in group], axis=0)].sum()
        >= CYCLE_KERNELS_SHARE * run_ns[np.any([one.stretch for one in group], axis=0)].sum()
    ]


def _is_too_coarse(outer: _Seen, steps: list[_Seen]) -> bool:
    """Whether a range occurs too seldom to be the step, while one inside it holds the same kernels."""
    return outer.begins.size < ENOUGH_STEPS_COUNT and any(
        inner.begins.size >= ENOUGH_STEPS_COUNT
        and inner.share >= SAME_KERNELS_SHARE * outer.share
        and not (inner.holds & outer.stretch & ~outer.holds).any()
        for inner in steps
    )
