"""The unit that repeats, in the kernels of the main stream and inside a step.

A sequence that repeats every `p` kernels equals itself shifted by `p`. All shifts are tried at once: each
name gets a random direction in the plane, and the autocorrelation of those (one Fourier transform) is
close to the share of equal pairs. The few best shifts are then counted exactly.

The unit that repeats inside a step: microbatches, else layers. With few steps, it tells how much varies.

Units are marked by ranges, as steps are; each reaches from its first kernel to that of the next one in
the same step, so the last of a step has no length.
"""

from dataclasses import dataclass
from typing import get_args

import numpy as np
import numpy.typing as npt
import polars as pl

from wallscope.columns import Rows, as_integers, encode_member
from wallscope.model.analysis import AnchorUnit, InnerUnit
from wallscope.model.enums import ComputeCategory, OperationClass
from wallscope.model.rank_summaries import RepeatedUnit
from wallscope.model.schemas import CATEGORY
from wallscope.thresholds import (
    FEWEST_INNER_UNITS_COUNT,
    FEWEST_UNITS_COUNT,
    LAYERED_MATCH_SHARE,
    LAYERED_PARTS_COUNT,
    LIKELY_UNIT_MATCH_SHARE,
    REGULAR_UNITS_SHARE,
    SAME_UNIT_MATCH_SHARE,
    SHORTEST_UNIT_COUNT,
    UNIT_CANDIDATES_COUNT,
    UNIT_LENGTH_PARTS_COUNT,
    UNIT_MATCH_SHARE,
)
from wallscope.trace.kernel_classes import is_compute
from wallscope.trace.ranges import Parents, find_farthest
from wallscope.trace.step_markers import (
    FORWARD,
    MarkerRanges,
    filter_by_text,
    find_recurring_ranges,
    match_texts,
)
from wallscope.trace.thread_timeline import HostCalls

_OPTIMIZER = list(CATEGORY.categories).index(ComputeCategory.OPTIMIZER)


@dataclass(frozen=True, slots=True)
class MainStream:
    """Compute kernels and opaque graphs of a rank's main stream, in order of time.

    Columns `start_ns`, `end_ns`, `symbol`, `updates` (whether it is optimizer work) and `issue_ns`, the
    start of the issuing call (its own start where that is not known).
    """

    rank_id: int
    process: int
    last_ns: int
    rows: pl.DataFrame
    has_graphs: bool


def find_main_stream(own: pl.DataFrame, process: int, host: HostCalls) -> MainStream:
    """The main stream of the operations of one rank (`CLASSIFIED`) and its process."""
    of_class = as_integers(own["class"])
    computing = np.flatnonzero(is_compute(of_class))
    start_ns, end_ns = own["start_ns"].to_numpy(), own["end_ns"].to_numpy()
    stream = own["stream"].to_numpy()[computing].astype(np.int64)
    work_ns = np.full(int(stream.max(initial=0)) + 1, -1)
    work_ns[stream] = 0
    np.add.at(work_ns, stream, end_ns[computing] - start_ns[computing])
    rows = computing[stream == work_ns.argmax()]
    is_graph = of_class[rows] == encode_member(OperationClass.OPAQUE_GRAPH)
    name, category, call = (as_integers(own[column][rows]) for column in ("name", "category", "call"))
    is_issued, issue_ns = call >= 0, start_ns[rows]
    issue_ns[is_issued] = host.calls["start_ns"][call[is_issued]].to_numpy()
    timed = pl.DataFrame(
        {
            "start_ns": start_ns[rows],
            "end_ns": end_ns[rows],
            "symbol": np.where(is_graph, 0, name.astype(np.int64) + 1),
            "updates": category == _OPTIMIZER,
            "issue_ns": issue_ns,
        }
    )
    return MainStream(own["rank_id"][0], process, int(end_ns.max()), timed, bool(is_graph.any()))


def find_first_compute(main: MainStream, anchor: MarkerRanges) -> Rows:
    """Row of the first kernel issued inside each anchor range; ranges without one are passed over."""
    issue_ns = main.rows["issue_ns"].to_numpy()
    inside = np.searchsorted(anchor.start_ns, issue_ns, side="right") - 1
    within = (inside >= 0) & (issue_ns < anchor.end_ns[inside])
    rows = np.flatnonzero(within)
    return rows[np.unique(inside[rows], return_index=True)[1]]


Symbols = npt.NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class Period:
    """A repeating unit: rows at which each begins, and the share of kernels that repeat one unit later.

    `is_layered` tells that the unit repeats a smaller one inside, as a step repeats its layers.
    """

    starts: Rows
    match: float
    is_layered: bool


def find_period(symbols: Symbols, gap_ns: Rows, shortest: int = SHORTEST_UNIT_COUNT) -> Period | None:
    """The repeating unit of a sequence, `None` where there is none that is sure.

    Args:
        symbols: a small non-negative number for each kernel's name, in order of time.
        gap_ns: idle time before each kernel; units begin behind the largest of a unit's gaps.
        shortest: a sequence that repeats after fewer kernels has no unit worth the name.
    """
    if symbols.size < FEWEST_UNITS_COUNT * shortest:
        return None
    matches = {lag: _match(symbols, lag) for lag in _likely_lags(symbols, shortest)}
    good = {lag: match for lag, match in matches.items() if match >= UNIT_MATCH_SHARE}
    if not good:
        return None
    best = max(good.values())
    lag = min(lag for lag, match in good.items() if match >= best - SAME_UNIT_MATCH_SHARE)
    starts = _starts(symbols, gap_ns, lag)
    if lag < shortest or starts.size < FEWEST_UNITS_COUNT or not _is_regular(starts, lag):
        return None
    is_layered = any(
        match >= LAYERED_MATCH_SHARE
        for other, match in matches.items()
        if other <= lag // LAYERED_PARTS_COUNT
    )
    return Period(starts, matches[lag], is_layered)


def _is_regular(starts: Rows, lag: int) -> bool:
    """Whether most units are as long as the shift says."""
    lengths = np.diff(starts)
    return bool((np.abs(lengths - lag) <= lag // UNIT_LENGTH_PARTS_COUNT).mean() >= REGULAR_UNITS_SHARE)


def _likely_lags(symbols: Symbols, shortest: int) -> list[int]:
    """Shifts under which many kernels meet their like, at most half the sequence, and all short ones."""
    angles = np.random.default_rng(5).uniform(0, 2 * np.pi, int(symbols.max()) + 1)
    signal = np.exp(1j * angles)[symbols]
    size = 1 << (2 * symbols.size - 1).bit_length()
    spectrum = np.fft.fft(signal, size)
    correlation = np.fft.ifft(spectrum * spectrum.conj()).real[: symbols.size // 2 + 1]
    correlation /= symbols.size - np.arange(correlation.size)
    peaks = (
        np.flatnonzero((correlation[1:-1] >= correlation[:-2]) & (correlation[1:-1] >= correlation[2:])) + 1
    )
    strong = peaks[correlation[peaks] > LIKELY_UNIT_MATCH_SHARE]
    strongest = strong[np.argsort(-correlation[strong], kind="stable")][:UNIT_CANDIDATES_COUNT].tolist()
    return sorted({*strongest, *range(1, min(shortest, symbols.size // 2))})


def _match(symbols: Symbols, lag: int) -> float:
    return float((symbols[lag:] == symbols[:-lag]).mean())


def _starts(symbols: Symbols, gap_ns: Rows, lag: int) -> Rows:
    """First row of each unit: a name that occurs once a unit, behind the largest gap where it can be had."""
    repeats = symbols[lag:] == symbols[:-lag]
    so_far = np.concatenate(([0], np.cumsum(repeats)))
    first = int(np.argmax(so_far[lag:] - so_far[:-lag] >= UNIT_MATCH_SHARE * lag))
    unit_count = (symbols.size - first) // lag
    units = symbols[first : first + unit_count * lag].reshape(unit_count, lag)
    gaps = np.median(gap_ns[first : first + unit_count * lag].reshape(unit_count, lag), axis=0)
    occurrences = np.bincount(units.ravel(), minlength=int(symbols.max()) + 1)
    once = [phase for phase in range(lag) if occurrences[units[0, phase]] == unit_count]
    if not once:
        phase = int(np.argmax(gaps))
        return np.arange(first + phase, symbols.size, lag)
    anchor = max(once, key=lambda phase: (gaps[phase], -phase))
    return np.flatnonzero(symbols == units[0, anchor])


UNITS: tuple[tuple[AnchorUnit, str], ...] = (
    ("microbatch", r"(?i)(^|[^a-z])micro[ _-]?(batch|step)[ _#:.]*\d*$"),
    ("microbatch", FORWARD),
    ("layer", r"(?i)(^|[^a-z])(layers?|blocks?)[ _#:.]?\d+(f|b|\)|$|[^a-z0-9])"),
    ("layer", r"transformer_layer\._forward_attention\.self_attention$"),
)
"""Units and the texts of the ranges that mark them, in the order in which they are looked for."""


def find_repeat_unit(main: MainStream, windows: pl.DataFrame, ranges: pl.DataFrame) -> InnerUnit | None:
    """The first known unit that occurs several times inside the steps of a rank (`STEPS`), in order of time.

    `ranges` are those of `label_ranges`.
    """
    if windows.is_empty():
        return None
    is_own = (ranges["process"].to_numpy() == main.process) & ~ranges["crosses"].to_numpy()
    own = ranges["thread", "start_ns", "end_ns", "name", "text", "folded"][np.flatnonzero(is_own)]
    start_ns = main.rows["start_ns"].to_numpy()
    step_start_ns, step_end_ns = windows["start_ns"].to_numpy(), windows["end_ns"].to_numpy()
    for unit, known in UNITS:
        for anchor in find_recurring_ranges(filter_by_text(own, known)):
            begins_ns = np.sort(start_ns[find_first_compute(main, anchor)])
            step = np.searchsorted(step_start_ns, begins_ns, side="right") - 1
            is_inside = (step >= 0) & (begins_ns < step_end_ns[step])
            begins_ns, step = begins_ns[is_inside], step[is_inside]
            same_step = step[1:] == step[:-1]
            length_ns = np.diff(begins_ns)[same_step]
            if length_ns.size >= max(FEWEST_INNER_UNITS_COUNT, len(windows)):
                low, median, high = (int(time_ns) for time_ns in np.percentile(length_ns, [10, 50, 90]))
                return InnerUnit(unit, anchor.name, int(length_ns.size), median, low, high)
    return None


def find_outermost_units(tree: pl.DataFrame) -> dict[RepeatedUnit, Parents]:
    """The range of a unit that each range stands in, by unit; -1 without one."""
    return {
        unit: _outermost(tree, [known for named, known in UNITS if named == unit])
        for unit in get_args(RepeatedUnit)
    }


def _outermost(tree: pl.DataFrame, patterns: list[str]) -> Parents:
    """The outermost range around each range, itself too, whose text a pattern finds; -1 without one.

    `tree` follows `NESTED` with `text`, that of its name; the number of a range is its row.
    """
    is_known = match_texts(tree, "|".join(f"(?:{known})" for known in patterns))
    return find_farthest(tree["parent"].to_numpy(), is_known & ~tree["crosses"].to_numpy())
