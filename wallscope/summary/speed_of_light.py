"""The ledger of a rank: from the model's FLOPs at the peak of the GPU to the measured typical step.

An instant belongs to compute if a compute kernel runs; kernels that run at once share it equally. Other
instants belong to the wall and cause that the account gives them. Work that repeats the forward pass counts
where nothing else computes. All sums are integers, and the lines add up to the typical step.
"""

from collections import Counter
from collections.abc import Iterable, Iterator
from fractions import Fraction
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from wallscope.attribution.totals import (
    CATEGORIES,
    SliceSums,
    TypicalWork,
    apportion_means,
    average_total,
)
from wallscope.columns import Flags, Rows, are_among, as_integers, find_places, sum_by_group
from wallscope.model.capture import Capture, Gpu
from wallscope.model.cause_catalogue import MEMORY_RECOMPUTE
from wallscope.model.enums import ComputeCategory, DeviceState, OperationClass, Precision, Wall
from wallscope.model.rank_summaries import ComputeDetails
from wallscope.model.speed_of_light import (
    FlopsSource,
    GpuPeak,
    LedgerEntry,
    LedgerLine,
    LineReason,
    LossUnknown,
    SpeedOfLight,
)
from wallscope.summary.compute import find_leading_peak
from wallscope.summary.kernel_work import ADDING, MULTIPLYING
from wallscope.thresholds.causes import HIGHEST_CLOCK_RATIO, LEAST_COUNTED_SHARE
from wallscope.trace.gpu_peaks import list_peaks
from wallscope.trace.intervals import Spans, Times, apportion, covered_ns, order_spans, union
from wallscope.trace.kernel_classes import infer_precisions

_FRACTION_BITS = 16  # a shared nanosecond is divided so finely; 2**47 ns, more than a day, still fit
_PRECISIONS = list(Precision)
_UNKNOWN, _FP32 = _PRECISIONS.index(Precision.UNKNOWN), _PRECISIONS.index(Precision.FP32)
_IS_MULTIPLYING = np.isin(CATEGORIES, MULTIPLYING)
_EMULATING = r"fmha_cutlass[FB]_f32"
"""Attention kernels that multiply FP32 as three products of TF32, since Ampere."""
_EMULATED = 3
_WITHOUT_TF32 = ("sm_5", "sm_6", "sm_70", "sm_72", "sm_75")
_STATES, _WALLS = list(DeviceState), list(Wall)
_LINE_OF_WALL = {
    Wall.COMPUTE: LedgerLine.HAND_OVER,
    Wall.COMMUNICATION: LedgerLine.EXPOSED_COMMUNICATION,
    Wall.MEMORY: LedgerLine.COPIES,
    Wall.HOST: LedgerLine.HOST,
    Wall.UNATTRIBUTED: LedgerLine.UNATTRIBUTED,
}
_LINE_OF_STATE = {DeviceState.OPAQUE_GRAPH: LedgerLine.OPAQUE_GRAPHS}


class _Atom(NamedTuple):
    """What cannot be divided further: a line, a category if kernels run, a reason if it is unknown."""

    line: LedgerLine
    category: ComputeCategory | None = None
    reason: LossUnknown | None = None


class _Multiplied(NamedTuple):
    """Operators of one category that multiply in one precision, over all steps of the typical step.

    `products` is how many products of that precision stand for one. `repeated` FLOPs are those of recomputed
    operators, which are not in `executed`.
    """

    category: ComputeCategory
    precision: Precision
    products: int
    executed: int
    repeated: int
    model: int

    def rate(self, peak: GpuPeak | None) -> float | None:
        """Return the peak FLOP/s of the precision."""
        return None if peak is None else peak.find_rate(self.precision)


class _Operators(NamedTuple):
    """Operators with known FLOPs, an entry each, and what belongs to them.

    Attributes:
        rows: of their multiplying kernels, in the typical work.
        operator: the entry of each of these kernels.
        kind: the category, precision and number of products of each operator as one number.
        executed: FLOPs of each operator that begins in a step, else 0.
        model: those of them that the model needs.
        repeats: whether each repeats forward work.
    """

    rows: Rows
    operator: Rows
    kind: Rows
    executed: Rows
    model: Rows
    repeats: Flags


def build_ledger(  # noqa: PLR0913, PLR0917  # what is known of a rank
    work: TypicalWork,
    sums: SliceSums,
    capture: Capture,
    recomputed: npt.NDArray[np.integer],
    details: ComputeDetails | None,
    gpu: Gpu | None,
    user_flops: float | None,
    *,
    is_step: bool,
) -> SpeedOfLight:
    """Return the ledger of the typical step of a rank.

    Args:
        work: the typical step.
        sums: slices of its steps.
        capture: with names of kernels, and their FLOPs where shapes of operators are known.
        recomputed: numbers of the operations that repeat forward work.
        details: the composition of its compute, `None` without any.
        gpu: of the rank.
        user_flops: model FLOPs of a step and GPU, by the user.
        is_step: whether the windows are training steps.
    """
    peak = None if gpu is None else list_peaks(gpu)
    is_again = np.zeros(work.columns.op.size, np.bool_)
    rows = work.rows_of(OperationClass.COMPUTE)
    is_again[rows] = are_among(work.columns.op[rows].astype(np.int64), recomputed.astype(np.int64))
    operators = _find_operators(work, capture, gpu, rows, is_again)
    groups = _group_operators(operators)
    atoms: Counter[_Atom] = Counter(dict(_list_walls(sums)))
    computing_ns = int(sums.ns[sums.state == _STATES.index(DeviceState.COMPUTE)].sum())
    atoms.update(_divide_compute(work, rows[~is_again[rows]], operators, groups, peak, computing_ns))
    count = work.steps.start_ns.size
    step_ns = average_total(sum(atoms.values()), count)
    means = dict(zip(atoms, apportion_means(list(atoms.values()), count, step_ns), strict=True))
    covered = None if details is None or not groups else details.flops_share
    source: FlopsSource | None = "user" if user_flops is not None else "shapes" if groups else None
    needed = (
        round(user_flops) if user_flops is not None else work.mean(sum(one.model for one in groups.values()))
    )
    is_counted = covered is not None and covered >= LEAST_COUNTED_SHARE and _is_possible(means)
    has_model = is_step and step_ns > 0 and (user_flops is not None or is_counted)
    by_shapes = _measure_peak_time(groups.values(), peak, count)
    leading = find_leading_peak(details, gpu)
    if user_flops is None:
        mfu = by_shapes.model_ns / step_ns if has_model and by_shapes is not None else None
    else:
        mfu = user_flops * 1e9 / step_ns / leading.flops_per_s if has_model and leading is not None else None
    most_16bit = _find_16bit_rate(peak)
    is_rated = has_model and most_16bit is not None
    return SpeedOfLight(
        window_ns=step_ns,
        is_step=is_step,
        peak=peak,
        model_flops=None if source is None else needed,
        executed_flops=work.mean(sum(one.executed + one.repeated for one in groups.values()))
        if groups
        else None,
        source=source,
        covered=covered,
        mfu=mfu,
        hfu=by_shapes.executed_ns / step_ns
        if is_step and is_counted and by_shapes is not None and step_ns
        else None,
        mfu_16bit=needed * 1e9 / step_ns / most_16bit if is_rated and most_16bit else None,
        model_flops_per_s=needed * 1e9 / step_ns if has_model or (is_counted and step_ns) else None,
        lines=_list_entries(means),
    )


def share_time(start_ns: Times, end_ns: Times, inside_ns: Times, bounds: Spans) -> Times:
    """Return the time of spans that share each instant equally with those that run at once.

    Args:
        start_ns: of each span, in order.
        end_ns: of each span.
        inside_ns: the part of each inside the bounds.
        bounds: disjoint, in order; time outside counts for nothing.

    Returns:
        int64, in parts of 2**-16 ns, rounded down.

    >>> bounds = Spans(np.array([0]), np.array([10]))
    >>> (share_time(np.array([0, 2]), np.array([4, 6]), np.array([4, 4]), bounds) / 2**16).tolist()
    [3.0, 3.0]
    """
    shared = inside_ns << _FRACTION_BITS
    if start_ns.size < 2:  # alone
        return shared
    meets_earlier = start_ns[1:] < np.maximum.accumulate(end_ns)[:-1]
    meets = np.append(meets_earlier, False) | np.insert(meets_earlier, 0, False)
    rows = np.flatnonzero(meets)
    if not rows.size:
        return shared
    start_ns, end_ns = start_ns[rows], end_ns[rows]
    edges = np.unique(np.concatenate([start_ns, end_ns, bounds.start_ns, bounds.end_ns]))
    begins, ends = np.searchsorted(edges, start_ns), np.searchsorted(edges, end_ns)
    running = np.cumsum(np.bincount(begins, minlength=edges.size) - np.bincount(ends, minlength=edges.size))
    window = np.searchsorted(bounds.start_ns, edges, side="right") - 1
    is_inside = (window >= 0) & (edges < bounds.end_ns[window])
    length = np.append(np.diff(edges), 0) << _FRACTION_BITS
    parts = np.where(is_inside, length // np.maximum(running, 1), 0)
    passed = np.concatenate([[0], np.cumsum(parts)])
    shared[rows] = passed[ends] - passed[begins]
    return shared


def _list_walls(sums: SliceSums) -> Iterator[tuple[_Atom, int]]:
    """Yield the lines of all time in which no compute kernel runs, with 0 of those that are absent."""
    found = Counter(dict.fromkeys((*_LINE_OF_WALL.values(), *_LINE_OF_STATE.values()), 0))
    for state, wall, cause, time_ns in zip(
        sums.state.tolist(), sums.wall.tolist(), sums.cause, sums.ns.tolist(), strict=True
    ):
        if _STATES[state] is DeviceState.COMPUTE:
            continue
        line = _LINE_OF_STATE.get(_STATES[state], _LINE_OF_WALL[_WALLS[wall]])
        found[LedgerLine.RECOMPUTATION if cause == MEMORY_RECOMPUTE else line] += time_ns
    yield from ((_Atom(line), time_ns) for line, time_ns in found.items())


def _find_operators(
    work: TypicalWork, capture: Capture, gpu: Gpu | None, rows: Rows, is_again: Flags
) -> _Operators:
    """Return the operators with known FLOPs whose kernels run in the steps."""
    nothing, none = np.empty(0, np.int64), np.empty(0, np.bool_)
    known = capture.kernel_flops
    if known is None or known.is_empty():
        return _Operators(nothing, nothing, nothing, nothing, nothing, none)
    columns, texts = work.columns, capture.names["text"]
    place = find_places(columns.op[rows], known["op"].to_numpy())
    rows, place = rows[place >= 0], place[place >= 0]
    numbers, owner = np.unique(known["operator"].to_numpy()[place], return_inverse=True)
    adds = texts.str.contains(ADDING).to_numpy()[columns.name[rows]]
    multiplies = _IS_MULTIPLYING[columns.category[rows]] & ~adds
    has_multiplying = sum_by_group(owner, multiplies.astype(np.int64), numbers.size) > 0
    is_own = multiplies | ~has_multiplying[owner]
    rows, place, owner = rows[is_own], place[is_own], owner[is_own]
    order = np.lexsort((columns.start_ns[rows] - columns.end_ns[rows], owner))
    first = order[np.unique(owner[order], return_index=True)[1]]
    chosen = rows[first]
    name = columns.name[chosen]
    is_old = gpu is not None and (gpu.architecture or "").startswith(_WITHOUT_TF32)
    told = as_integers(infer_precisions(capture.names)["precision"]).astype(np.int64)[name]
    emulates = texts.str.contains(_EMULATING).to_numpy()[name] & (not is_old)
    precision = _choose_precisions(as_integers(known["precision"][place[first]], -1), told, is_old=is_old)
    precision = np.where(emulates, _PRECISIONS.index(Precision.TF32), precision)
    products = np.where(emulates, _EMULATED, 1)
    begins = columns.begins[chosen]
    return _Operators(
        rows,
        owner,
        (columns.category[chosen].astype(np.int64) * len(_PRECISIONS) + precision) * (_EMULATED + 1)
        + products,
        np.where(begins, known["flops"].to_numpy()[place[first]], 0),
        np.where(begins, known["model_flops"].to_numpy()[place[first]], 0),
        is_again[chosen],
    )


def _choose_precisions(stated: Rows, told: Rows, *, is_old: bool) -> Rows:
    """Return the precision of operators by their types, -1 if unknown, and by the names of their kernels.

    FP32 arguments may be multiplied in another precision, which only names show.
    """
    by_name = np.where((stated == _FP32) & (told == _UNKNOWN) & is_old, _FP32, told)
    return np.where((stated < 0) | (stated == _FP32), by_name, stated).astype(np.int64)


def _group_operators(operators: _Operators) -> dict[int, _Multiplied]:
    """Return the operators added up by kind."""
    found = {}
    for kind in np.unique(operators.kind).tolist():
        of_kind = operators.kind == kind
        rest, products = divmod(kind, _EMULATED + 1)
        category, precision = divmod(rest, len(_PRECISIONS))
        found[kind] = _Multiplied(
            ComputeCategory(CATEGORIES[category]),
            _PRECISIONS[precision],
            products,
            sum(operators.executed[of_kind & ~operators.repeats].tolist()),
            sum(operators.executed[of_kind & operators.repeats].tolist()),
            sum(operators.model[of_kind & ~operators.repeats].tolist()),
        )
    return found


def _divide_compute(  # noqa: PLR0913, PLR0917  # the parts of one account
    work: TypicalWork,
    rows: Rows,
    operators: _Operators,
    groups: dict[int, _Multiplied],
    peak: GpuPeak | None,
    computing_ns: int,
) -> Counter[_Atom]:
    """Return the lines of all time in which a compute kernel runs.

    Args:
        work: the typical step.
        rows: of the compute kernels that repeat no work.
        operators: with known FLOPs.
        groups: these, added up by kind.
        peak: of the GPU.
        computing_ns: the time in which any compute kernel runs.
    """
    columns = work.columns
    fresh_ns = computing_ns
    if rows.size < work.rows_of(OperationClass.COMPUTE).size:
        alone = union(order_spans(columns.start_ns[rows], columns.end_ns[rows]))
        fresh_ns = int(covered_ns(alone, work.steps).sum())
    shared = share_time(
        columns.start_ns[rows], columns.end_ns[rows], columns.inside_ns[rows].astype(np.int64), work.steps
    )
    kinds = list(groups)
    place = find_places(rows, operators.rows)
    of_operator = find_places(operators.kind, np.array(kinds, np.int64))[operators.operator]
    group = np.where(place >= 0, np.append(of_operator, -1)[place], len(kinds) + columns.category[rows])
    parts = sum_by_group(group, shared, len(kinds) + len(CATEGORIES)).tolist()
    ran = np.flatnonzero(np.bincount(group, minlength=len(parts))).tolist()
    found = Counter({_Atom(LedgerLine.RECOMPUTATION): computing_ns - fresh_ns})
    shares = {one: Fraction(parts[one] * fresh_ns, max(sum(parts), 1)) for one in ran}
    for one, time_ns in apportion(shares, fresh_ns).items():
        if one < len(kinds):
            found.update(_measure_lines(groups[kinds[one]], time_ns, peak))
        else:
            category = ComputeCategory(CATEGORIES[one - len(kinds)])
            found[_Atom(LedgerLine.COMPUTE_UNKNOWN, category, _explain_unknown(category))] += time_ns
    return found


def _explain_unknown(category: ComputeCategory) -> LossUnknown:
    if category in MULTIPLYING:
        return LossUnknown.FLOPS_UNKNOWN
    is_unrecognized = category is ComputeCategory.UNRECOGNIZED
    return LossUnknown.KERNEL_UNKNOWN if is_unrecognized else LossUnknown.BYTES_UNKNOWN


def _measure_lines(one: _Multiplied, time_ns: int, peak: GpuPeak | None) -> dict[_Atom, int]:
    """Return the lines of operators of one kind that take some time, which they sum to."""
    rate = one.rate(peak)
    reason = None
    if not one.executed:
        reason = LossUnknown.FLOPS_UNKNOWN
    elif one.precision is Precision.UNKNOWN:
        reason = LossUnknown.PRECISION_UNKNOWN
    elif rate is None:
        reason = LossUnknown.PEAK_UNKNOWN
    else:
        fastest = max(rate, _find_16bit_rate(peak) or 0)
        steps_ns = [
            round(one.model * 1e9 / fastest),
            round(one.model * 1e9 / rate),
            round(one.executed * 1e9 / rate),
            round(one.executed * one.products * 1e9 / rate),
            time_ns,
        ]
        if steps_ns[-2] <= time_ns:
            lines = list(LedgerLine)[: len(steps_ns)]
            each_ns = np.diff([0, *steps_ns]).tolist()
            return {_Atom(line, one.category): own for line, own in zip(lines, each_ns, strict=True)}
        is_possible = steps_ns[-2] <= HIGHEST_CLOCK_RATIO * time_ns
        reason = LossUnknown.ABOVE_PEAK if is_possible else LossUnknown.IMPOSSIBLE_FLOPS
    return {_Atom(LedgerLine.COMPUTE_UNKNOWN, one.category, reason): time_ns}


def _find_16bit_rate(peak: GpuPeak | None) -> float | None:
    return None if peak is None else peak.find_rate(Precision.BF16) or peak.find_rate(Precision.FP16)


class _PeakTime(NamedTuple):
    """The time of the FLOPs of a step at the peaks of the precisions that they ran in."""

    model_ns: float
    executed_ns: float


def _measure_peak_time(groups: Iterable[_Multiplied], peak: GpuPeak | None, count: int) -> _PeakTime | None:
    """Return the time at the peak, of one of so many steps; `None` if a peak is unknown."""
    model_ns = executed_ns = 0.0
    for one in groups:
        rate = one.rate(peak)
        if rate is None:
            return None
        model_ns += one.model * 1e9 / rate / count
        executed_ns += (one.executed + one.repeated) * 1e9 / rate / count
    return _PeakTime(model_ns, executed_ns)


def _is_possible(means: dict[_Atom, int]) -> bool:
    """Return whether no kernels have more FLOPs than the GPU can do in their time."""
    return all(one.reason is not LossUnknown.IMPOSSIBLE_FLOPS for one in means)


def _list_entries(means: dict[_Atom, int]) -> tuple[LedgerEntry, ...]:
    """Return the lines in order, those of one kind by time, without unknown time that is none."""
    together: dict[tuple[LedgerLine, ComputeCategory | None], list[LineReason]] = {}
    times: Counter[tuple[LedgerLine, ComputeCategory | None]] = Counter()
    for atom, time_ns in means.items():
        key = (atom.line, atom.category)
        if atom.reason is not None and not time_ns:
            continue
        times[key] += time_ns
        if atom.reason is not None:
            together.setdefault(key, []).append(LineReason(atom.reason, time_ns))
    order = list(LedgerLine)
    listed = sorted(times.items(), key=lambda item: (order.index(item[0][0]), -item[1], item[0][1] or ""))
    return tuple(
        LedgerEntry(
            line=line,
            category=category,
            ns=time_ns,
            proven=(line, category) not in together,
            source="shapes" if order.index(line) <= order.index(LedgerLine.BELOW_PEAK) else None,
            reasons=tuple(sorted(together.get((line, category), ()), key=lambda one: (-one.ns, one.reason))),
        )
        for (line, category), time_ns in listed
    )
