"""Find what repeats: the kernels of a step in the main stream, and microbatches or layers inside a step.

A sequence that repeats every `p` kernels equals itself shifted by `p`. All shifts are tried at once: each
name gets a random direction in the plane. The autocorrelation of those (one Fourier transform) is close to
the share of equal pairs. The few best shifts are then counted exactly.

The unit that repeats inside a step: microbatches, else layers. With few steps, it shows the variation.

Units are marked by ranges, as steps are. Each lasts from its first kernel to that of the next one in the same
step, so the last of a step has no length.
"""

from dataclasses import replace
from typing import get_args

import numpy as np
import numpy.typing as npt
import polars as pl

from wallscope.columns import Flags, Rows, as_integers, encode_member, iterate_runs
from wallscope.model.analysis import AnchorUnit, InnerUnit
from wallscope.model.enums import ComputeCategory, OperationClass
from wallscope.model.rank_summaries import RepeatedUnit
from wallscope.model.schemas import CATEGORY
from wallscope.records import dataclass
from wallscope.thresholds.steps import (
    ENOUGH_STEPS_COUNT,
    FEWEST_INNER_UNITS_COUNT,
    FEWEST_UNITS_COUNT,
    LAYERED_MATCH_SHARE,
    LAYERED_PARTS_COUNT,
    LIKE_UNITS_SHARE,
    LIKELY_UNIT_MATCH_SHARE,
    MODEL_UNITS_COUNT,
    MOST_STREAMS_IN_TURN_COUNT,
    REGULAR_UNITS_SHARE,
    SAME_UNIT_MATCH_SHARE,
    SHORTEST_STRETCH_SHARE,
    SHORTEST_SURE_UNIT_COUNT,
    SHORTEST_UNIT_COUNT,
    STRETCH_PARTS_COUNT,
    SURE_UNIT_MATCH_SHARE,
    UNIT_CANDIDATES_COUNT,
    UNIT_LENGTH_PARTS_COUNT,
    UNIT_MATCH_SHARE,
)
from wallscope.trace.intervals import Times
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

    Columns `start_ns`, `end_ns`, `symbol`, `updates` (whether it is optimizer work), `issue_ns` and `thread`.
    `issue_ns` is the start of the issuing call (its own start if unknown), `thread` the thread of the call,
    -1 if unknown.
    """

    rank_id: int
    process: int
    last_ns: int
    rows: pl.DataFrame
    has_graphs: bool


def find_main_stream(own: pl.DataFrame, process: int, host: HostCalls) -> MainStream:
    """The main stream of the operations of one rank (`CLASSIFIED`) and its process.

    It is the one that carries most compute. A program may turn from one stream to another: streams at work
    only before or only after the others of it belong to it.
    """
    of_class = as_integers(own["class"])
    computing = np.flatnonzero(is_compute(of_class))
    start_ns, end_ns = own["start_ns"].to_numpy(), own["end_ns"].to_numpy()
    stream = own["stream"].to_numpy()[computing].astype(np.int64)
    work_ns = np.full(int(stream.max(initial=0)) + 1, -1)
    work_ns[stream] = 0
    np.add.at(work_ns, stream, end_ns[computing] - start_ns[computing])
    rows = computing[_take_turns(stream, start_ns[computing], end_ns[computing], work_ns)[stream]]
    is_graph = of_class[rows] == encode_member(OperationClass.OPAQUE_GRAPH)
    name, category, call = (as_integers(own[column])[rows] for column in ("name", "category", "call"))
    is_issued, issue_ns, thread = call >= 0, start_ns[rows], np.full(rows.size, -1)
    issue_ns[is_issued] = host.calls["start_ns"].to_numpy()[call[is_issued]]
    thread[is_issued] = host.calls["thread"].to_numpy()[call[is_issued]]
    timed = pl.DataFrame(
        {
            "start_ns": start_ns[rows],
            "end_ns": end_ns[rows],
            "symbol": np.where(is_graph, 0, name.astype(np.int64) + 1),
            "updates": category == _OPTIMIZER,
            "issue_ns": issue_ns,
            "thread": thread,
        }
    )
    return MainStream(own["rank_id"][0], process, int(end_ns.max()), timed, bool(is_graph.any()))


def _take_turns(stream: Rows, start_ns: Times, end_ns: Times, work_ns: Rows) -> Flags:
    """Whether each stream is the one of most work, or one that works at no time at which a chosen one does.

    Each stream is taken from its first to its last kernel; those of more work are chosen first.
    """
    first_ns = np.full(work_ns.size, np.iinfo(np.int64).max)
    last_ns = np.full(work_ns.size, np.iinfo(np.int64).min)
    np.minimum.at(first_ns, stream, start_ns)
    np.maximum.at(last_ns, stream, end_ns)
    by_work = [int(number) for number in np.argsort(-work_ns, kind="stable") if work_ns[number] >= 0]
    is_chosen = np.zeros(work_ns.size, np.bool_)
    for number in by_work[:MOST_STREAMS_IN_TURN_COUNT]:
        meets = (first_ns[is_chosen] < last_ns[number]) & (last_ns[is_chosen] > first_ns[number])
        is_chosen[number] = not meets.any()
    return is_chosen


def find_first_compute(main: MainStream, anchor: MarkerRanges) -> Rows:
    """Row of the first kernel issued inside each anchor range; ranges without one are passed over."""
    issue_ns = main.rows["issue_ns"].to_numpy()
    inside = np.searchsorted(anchor.start_ns, issue_ns, side="right") - 1
    within = (inside >= 0) & (issue_ns < anchor.end_ns[inside])
    rows = np.flatnonzero(within)
    return rows[np.unique(inside[rows], return_index=True)[1]]


Symbols = npt.NDArray[np.int64]
Shares = npt.NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class Period:
    """A repeating unit: rows at which each begins, and the share of kernels that repeat one unit later.

    `is_layered` means that the unit repeats a smaller one inside, as a step repeats its layers.
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
    matches = {lag: _measure_match(symbols, lag) for lag in _likely_lags(symbols, shortest)}
    good = {lag: match for lag, match in matches.items() if match >= UNIT_MATCH_SHARE}
    if not good:
        return None
    best = max(good.values())
    lag = min(lag for lag, match in good.items() if match >= best - SAME_UNIT_MATCH_SHARE)
    starts = _find_unit_starts(symbols, gap_ns, lag)
    if lag < shortest or starts.size < FEWEST_UNITS_COUNT or not _is_regular(starts, lag):
        return None
    is_layered = any(
        match >= LAYERED_MATCH_SHARE
        for other, match in matches.items()
        if other <= lag // LAYERED_PARTS_COUNT
    )
    return Period(starts, matches[lag], is_layered)


def find_repetition(symbols: Symbols, gap_ns: Rows, shortest: int = SHORTEST_UNIT_COUNT) -> Period | None:
    """Return the repeating unit of a sequence, or of its repeating part; `None` if none is certain.

    Start-up, evaluation and similar work may have as many kernels as the steps. Units of different kernels
    are fragments. If most are, only the longest part with similar ones is used. A unit of few kernels counts
    only if almost nothing else ran.
    """
    found = find_period(symbols, gap_ns, shortest)
    if found is not None and is_alike(symbols, found.starts):
        return found
    for part in range(STRETCH_PARTS_COUNT):
        first = part * symbols.size // STRETCH_PARTS_COUNT
        tail = find_period(symbols[first:], gap_ns[first:], shortest) if part else found
        stretch = None if tail is None else _longest_stretch(symbols, first + tail.starts)
        inside = None if stretch is None else find_period(symbols[stretch], gap_ns[stretch], shortest)
        if stretch is not None and inside is not None and is_alike(symbols[stretch], inside.starts):
            return replace(inside, starts=_begin_earlier(symbols, inside.starts + stretch.start))
    few = find_period(symbols, gap_ns, SHORTEST_SURE_UNIT_COUNT)
    return few if few is not None and _is_sure(symbols, few) else None


def _is_sure(symbols: Symbols, unit: Period) -> bool:
    """Return whether a unit of few kernels repeats almost always, and runs more than one kernel."""
    names = np.unique(symbols[unit.starts[0] : unit.starts[1]]).size
    return (
        unit.match >= SURE_UNIT_MATCH_SHARE
        and names >= SHORTEST_SURE_UNIT_COUNT
        and unit.starts.size >= ENOUGH_STEPS_COUNT
    )


def measure_likeness(symbols: Symbols, starts: Rows, model: int | None = None) -> Shares:
    """How much of the longer of a unit and its model is in both, by names.

    The model is one unit for all, or the one before (the first has none and is like it). The last unit ends
    with the sequence and is often cut off or has more behind it: it is as long as the one before, at most.

    >>> symbols, starts = np.array([1, 2, 1, 2, 1, 1, 1, 2]), np.array([0, 2, 4, 6])
    >>> measure_likeness(symbols, starts).tolist(), measure_likeness(symbols, starts, 2).tolist()
    ([1.0, 1.0, 0.5, 0.5], [0.5, 0.5, 1.0, 0.5])
    """
    ends = np.append(starts[1:], symbols.size)
    if starts.size > 1:
        ends[-1] = min(symbols.size, int(starts[-1] + ends[-2] - starts[-2]))
    length = ends - starts
    unit = np.repeat(np.arange(starts.size), length)
    width = int(symbols.max(initial=0)) + 1
    key, count = np.unique(unit * width + symbols[starts[0] : ends[-1]], return_counts=True)
    of_unit = key // width
    models = np.maximum(of_unit - 1, 0) if model is None else np.full(key.size, model)
    wanted = models * width + key % width
    place = np.minimum(np.searchsorted(key, wanted), key.size - 1)
    common = np.where(key[place] == wanted, np.minimum(count, count[place]), 0)
    sizes = np.bincount(of_unit, weights=common, minlength=starts.size)
    others = np.append(length[:1], length[:-1]) if model is None else length[model]
    shares: Shares = sizes / np.maximum(np.maximum(length, others), 1)
    return shares


def is_alike(symbols: Symbols, starts: Rows) -> bool:
    """Whether there is a unit that most others, and those with most of the kernels, are like.

    How long units take does not matter: one of the same kernels may have to wait. The last one, which the
    capture may cut, does not count.
    """
    if starts.size < FEWEST_UNITS_COUNT:
        return True
    kernels = np.diff(starts)
    for model in np.unique(np.linspace(0, kernels.size - 1, MODEL_UNITS_COUNT).astype(np.int64)):
        are_like = measure_likeness(symbols, starts, int(model))[:-1] >= LIKE_UNITS_SHARE
        held = float(kernels[are_like].sum() / max(int(kernels.sum()), 1))
        if min(float(are_like.mean()), held) >= REGULAR_UNITS_SHARE:
            return True
    return False


def is_same_mix(symbols: Symbols, starts: Rows) -> bool:
    """Whether most units run the kernels of the middle one in about its proportions, however many.

    >>> is_same_mix(np.array([1, 2, 1, 2, 1, 2, 1, 2]), np.array([0, 2, 6]))
    True
    >>> is_same_mix(np.array([1, 2, 3, 3, 3, 4, 4, 4]), np.array([0, 2, 5]))
    False
    """
    length = np.diff(np.append(starts, symbols.size))
    unit = np.repeat(np.arange(starts.size), length)
    counts = np.zeros((starts.size, int(symbols.max(initial=0)) + 1))
    np.add.at(counts, (unit, symbols[starts[0] :]), 1)
    shares = counts / length[:, None]
    model = int(np.argsort(length, kind="stable")[length.size // 2])
    common = np.minimum(shares, shares[model]).sum(axis=1)
    return float((common >= LIKE_UNITS_SHARE).mean()) >= REGULAR_UNITS_SHARE


def _longest_stretch(symbols: Symbols, starts: Rows) -> slice | None:
    """The rows of the most kernels in a row whose units are alike; `None` if they are too few.

    It begins earlier where what is before it is like it, unit by unit.
    """
    are_like = measure_likeness(symbols, starts) >= LIKE_UNITS_SHARE
    are_like[0] = are_like[1]
    ends = np.append(starts[1:], symbols.size)
    best = slice(0, 0)
    for is_so, units in iterate_runs(are_like.astype(np.int64)):
        own = slice(int(starts[units.start]), int(ends[units.stop - 1]))
        if is_so and own.stop - own.start > best.stop - best.start:
            best = own
    first = int(_begin_earlier(symbols, starts[starts >= best.start])[0])
    is_enough = best.stop - first >= SHORTEST_STRETCH_SHARE * symbols.size
    return slice(first, best.stop) if is_enough else None


def _begin_earlier(symbols: Symbols, starts: Rows) -> Rows:
    """The units with those that lie right before them and run the same kernels in turn."""
    lag = int(np.median(np.diff(starts))) if starts.size > 1 else symbols.size
    earlier, first = [], int(starts[0])
    while first >= lag:
        same = symbols[first - lag : first] == symbols[first : first + lag]
        if float(same.mean()) < LIKE_UNITS_SHARE:
            break
        first -= lag
        earlier.append(first)
    return np.concatenate([np.array(earlier[::-1], np.int64), starts])


def _is_regular(starts: Rows, lag: int) -> bool:
    """Whether most units are as long as the shift says."""
    lengths = np.diff(starts)
    return bool((np.abs(lengths - lag) <= lag // UNIT_LENGTH_PARTS_COUNT).mean() >= REGULAR_UNITS_SHARE)


def _likely_lags(symbols: Symbols, shortest: int) -> list[int]:
    """Shifts under which many kernels meet their like, at most half the sequence, and all short ones."""
    angles = np.random.default_rng(5).uniform(0, 2 * np.pi, int(symbols.max()) + 1)
    signal = np.exp(1j * angles).astype(np.complex64)[symbols]
    spectrum = np.fft.fft(signal, _padded(symbols.size + symbols.size // 2))
    power = spectrum.real**2 + spectrum.imag**2
    correlation = np.fft.ifft(power).real[: symbols.size // 2 + 1].astype(np.float64)
    correlation /= symbols.size - np.arange(correlation.size)
    peaks = (
        np.flatnonzero((correlation[1:-1] >= correlation[:-2]) & (correlation[1:-1] >= correlation[2:])) + 1
    )
    strong = peaks[correlation[peaks] > LIKELY_UNIT_MATCH_SHARE]
    strongest = strong[np.argsort(-correlation[strong], kind="stable")][:UNIT_CANDIDATES_COUNT].tolist()
    return sorted({*strongest, *range(1, min(shortest, symbols.size // 2))})


def _padded(count: int) -> int:
    """A size of at least the count for which a Fourier transform is fast: `2**n`, or `3 * 2**n`.

    >>> [_padded(count) for count in (5, 7, 9, 1000, 1025)]
    [6, 8, 12, 1024, 1536]
    """
    power = 1 << (count - 1).bit_length()
    return 3 * power // 4 if 3 * power // 4 >= count else power


def _measure_match(symbols: Symbols, lag: int) -> float:
    return float((symbols[lag:] == symbols[:-lag]).mean())


def _find_unit_starts(symbols: Symbols, gap_ns: Rows, lag: int) -> Rows:
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
    own = ranges["thread", "start_ns", "end_ns", "like", "text", "folded"][np.flatnonzero(is_own)]
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
    is_known = match_texts(tree, "|".join(f"(?:{known})" for known in patterns), "name")
    return find_farthest(tree["parent"].to_numpy(), is_known & ~tree["crosses"].to_numpy())
