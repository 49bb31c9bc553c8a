"""The ledger of a rank: from the model's FLOPs at the peak of the GPU to the measured typical step.

An instant belongs to compute if a compute kernel runs; kernels that run at once share it equally. Other
instants belong to the wall and cause that the account gives them. Work that repeats the forward pass counts
where nothing else computes. All sums are integers, and the lines add up to the typical step.
"""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from fractions import Fraction
from types import MappingProxyType
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
from wallscope.model.diagnosis import Peak
from wallscope.model.enums import (
    LOW_PRECISIONS,
    ComputeCategory,
    DeviceState,
    OperationClass,
    Precision,
    Wall,
)
from wallscope.model.planned_work import PlanMismatch, PlannedWork
from wallscope.model.rank_summaries import ComputeDetails
from wallscope.model.speed_of_light import (
    BelowPeak,
    FlopsSource,
    GpuPeak,
    LedgerEntry,
    LedgerLine,
    LineReason,
    LossUnknown,
    MatrixWork,
    PeakReason,
    SampledWork,
    SpeedOfLight,
    UncountedWork,
)
from wallscope.summary.below_peak import KernelGroups, find_below_peak
from wallscope.summary.compute import find_leading_peak
from wallscope.summary.kernel_bytes import measure_byte_floors
from wallscope.summary.kernel_work import ADDING, MULTIPLYING
from wallscope.summary.matrix_samples import sample_clocks, sample_matrices
from wallscope.summary.planned_flops import FittedPlan, fit_plan, select_mixing
from wallscope.thresholds.causes import (
    BELOW_PEAK_SHARE,
    COMPLETE_FLOPS_SHARE,
    FULL_EXPERT_ROWS,
    HIGHEST_CLOCK_RATIO,
    LEAST_COUNTED_SHARE,
    ONE_PRECISION_SHARE,
    SATURATED_BANDWIDTH_SHARE,
    SHORT_KERNEL_NS,
)
from wallscope.thresholds.verdict import MATERIAL_SHARE
from wallscope.trace.gpu_peaks import find_bandwidth, list_peaks
from wallscope.trace.intervals import Spans, Times, apportion, covered_ns, order_spans, union
from wallscope.trace.kernel_classes import infer_precisions
from wallscope.trace.unrecognized import mark_unknown_kernels

_FRACTION_BITS = 16  # a shared nanosecond is divided so finely; 2**47 ns, more than a day, still fit
_PRECISIONS = list(Precision)
_UNKNOWN, _FP32 = _PRECISIONS.index(Precision.UNKNOWN), _PRECISIONS.index(Precision.FP32)
_IS_MULTIPLYING = np.isin(CATEGORIES, MULTIPLYING)
_EMULATING = (
    (r"fmha_cutlass[FB]_f32|(?i)3xtf32|fast_?f32", Precision.TF32, 3),
    (r"(?i)bf16x9", Precision.BF16, 9),
)
"""Kernels that multiply FP32 as several products of another precision, since Ampere."""
_MOST_PRODUCTS = 9
_WITHOUT_TF32 = ("sm_5", "sm_6", "sm_70", "sm_72", "sm_75")
_ADDING, _AT, _ABOVE, _KINDS = 1, 2, 3, 4
"""Kernels of a category without FLOPs: that only add, at the bandwidth, above it; and how many kinds are."""
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
    """Kernels of one category that multiply in one precision, over all steps of the typical step.

    FLOPs of the user have no category, and only those of the model are known. `products` is how many products
    of that precision stand for one. `repeated` FLOPs are those of recomputed operators, which are not in
    `executed`.
    """

    category: ComputeCategory | None
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
        model: those of them that the model needs, at most.
        repeats: whether each repeats forward work.
        moved_bytes: of each operator that begins in a step, 0 if unknown, as of all others.
        taken_ns: of its multiplying kernels in the steps.
        knows_model: whether all of the model's are known.
    """

    rows: Rows
    operator: Rows
    kind: Rows
    executed: Rows
    model: Rows
    repeats: Flags
    moved_bytes: Rows
    taken_ns: Rows
    knows_model: bool = True


def build_ledger(  # noqa: PLR0913, PLR0917  # what is known of a rank
    work: TypicalWork,
    sums: SliceSums,
    capture: Capture,
    recomputed: npt.NDArray[np.integer],
    details: ComputeDetails | None,
    gpu: Gpu | None,
    user_flops: float | None,
    plan: PlannedWork | PlanMismatch | None = None,
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
        plan: the multiplications of the rank by a configuration, or why it gives none; `None` without any.
        is_step: whether the windows are training steps.
    """
    peak = None if gpu is None else list_peaks(gpu)
    is_again = np.zeros(work.columns.op.size, np.bool_)
    rows = work.rows_of(OperationClass.COMPUTE)
    is_again[rows] = are_among(work.columns.op[rows].astype(np.int64), recomputed.astype(np.int64))
    fresh = rows[~is_again[rows]]
    by_shapes = _count_by_shapes(work, capture, gpu, rows, is_again)
    share = None if details is None or not by_shapes.groups else details.flops_share
    counted, refused = by_shapes, plan if isinstance(plan, PlanMismatch) else None
    if isinstance(plan, PlannedWork) and (share or 0) < COMPLETE_FLOPS_SHARE:
        fitted = fit_plan(work, capture, plan, fresh, rows[is_again[rows]])
        refused = fitted.mismatch
        if refused is None:
            counted = _count_by_plan(work, capture, gpu, rows, is_again, fitted)
            assumes = tuple(_list_assumptions(plan, fitted))
            counted = counted._replace(assumes=assumes, expert_rows=plan.expert_rows)
            share = 1.0
    has_lines = bool(counted.groups)
    if not has_lines and user_flops is not None:
        counted = _count_by_user(work, capture, gpu, fresh, user_flops)
    count = work.steps.start_ns.size
    computing_ns = int(sums.ns[sums.state == _STATES.index(DeviceState.COMPUTE)].sum())
    sampled = sample_matrices(work, capture, None if gpu is None else gpu.id)
    clocks = sample_clocks(work, capture, None if gpu is None else gpu.id, peak)
    by_samples = _Sampled(
        {one.category: one for one in sampled},
        {one.category: 1 - one.peak_share for one in clocks if one.peak_share is not None},
    )
    atoms: Counter[_Atom] = Counter(dict(_list_walls(sums)))
    divided = _divide_compute(work, capture, fresh, counted, gpu, computing_ns)
    atoms.update(divided.lines)
    step_ns = average_total(sum(atoms.values()), count)
    means = dict(zip(atoms, apportion_means(list(atoms.values()), count, step_ns), strict=True))
    shares = _measure_shares(
        counted.groups, peak, count, None if user_flops is None else find_leading_peak(details, gpu)
    )
    source: FlopsSource | None = "user" if user_flops is not None else counted.source if has_lines else None
    needed = work.mean(sum(one.model for one in counted.groups))
    if user_flops is not None:
        needed = round(user_flops)
    is_counted = has_lines and (share or 0) >= LEAST_COUNTED_SHARE and _is_possible(means)
    has_model = user_flops is not None or (has_lines and counted.knows_model)
    is_rate = step_ns > 0 and has_model and (is_counted or (is_step and user_flops is not None))
    model_ns = shares.model_ns
    if user_flops is not None:
        model_ns = None if shares.leading is None else user_flops * 1e9 / shares.leading
    most_16bit = _find_16bit_rate(peak)

    def divide(part_ns: float | None, *, is_known: bool) -> float | None:
        return part_ns / step_ns if part_ns is not None and is_step and is_known and step_ns else None

    return SpeedOfLight(
        window_ns=step_ns,
        is_step=is_step,
        peak=peak,
        model_flops=needed if has_model else None,
        executed_flops=work.mean(sum(one.executed + one.repeated for one in counted.groups))
        if has_lines and counted.knows_repeats
        else None,
        source=source,
        covered=share if has_lines else None,
        mfu=divide(model_ns, is_known=is_rate),
        hfu=divide(shares.executed_ns, is_known=is_counted and counted.knows_repeats),
        mfu_16bit=divide(needed * 1e9 / most_16bit if most_16bit else None, is_known=is_rate),
        model_flops_per_s=needed * 1e9 / step_ns if is_rate else None,
        lines=_add_reasons(
            _list_entries(means, counted.source),
            _find_reasons(work, capture, gpu, counted, by_samples),
            by_samples.slowed,
        ),
        matrices=tuple(_rate_matrices(work, counted, is_again, divided.group_ns, peak)),
        flops_whole_square=counted.whole_square,
        refused=refused,
        assumes=" and ".join(counted.assumes),
        uncounted=tuple(
            _list_uncounted(work, capture, gpu, fresh[find_places(fresh, counted.rows) < 0], by_samples)
        ),
        sampled=sampled,
        clocks=clocks,
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


class _Counted(NamedTuple):
    """Kernels with known FLOPs: those in `rows` belong to `groups` by the number in `group`."""

    source: FlopsSource
    groups: list[_Multiplied]
    rows: Rows
    group: Rows
    whole_square: int | None = None
    knows_model: bool = True
    knows_repeats: bool = True
    sized: Mapping[BelowPeak, Mapping[ComputeCategory, int]] = MappingProxyType({})
    assumes: tuple[str, ...] = ()
    expert_rows: Fraction | None = None


def _count_by_shapes(
    work: TypicalWork, capture: Capture, gpu: Gpu | None, rows: Rows, is_again: Flags
) -> _Counted:
    """Return the kernels of operators whose shapes are known."""
    operators = _find_operators(work, capture, gpu, rows, is_again)
    groups = _group_operators(operators)
    place = find_places(operators.kind, np.array(list(groups), np.int64))
    return _Counted(
        "shapes",
        list(groups.values()),
        operators.rows,
        place[operators.operator],
        knows_model=operators.knows_model,
        sized=_measure_operators(operators, groups, gpu),
    )


def _measure_operators(
    operators: _Operators, groups: Mapping[int, _Multiplied], gpu: Gpu | None
) -> dict[BelowPeak, Counter[ComputeCategory]]:
    """Return what each operator shows of why it is below the peak, over all steps.

    A multiplication with few rows or columns reads a matrix for few products with each number: its bytes
    take longer than its FLOPs at the peak. Of short kernels, the rest of their time counts.
    """
    few, short = Counter[ComputeCategory](), Counter[ComputeCategory]()
    bandwidth, peak = (None, None) if gpu is None else (find_bandwidth(gpu), list_peaks(gpu))
    for kind, one in groups.items():
        rate = one.rate(peak)
        if rate is None or one.category is None:
            continue
        own = (operators.kind == kind) & ~operators.repeats & (operators.executed > 0)
        taken_ns = operators.taken_ns[own].astype(np.float64)
        flops_ns = np.minimum(operators.executed[own] * one.products * 1e9 / rate, taken_ns)
        bytes_ns = np.minimum(operators.moved_bytes[own] * 1e9 / bandwidth, taken_ns) if bandwidth else 0.0
        floor_ns = np.maximum(flops_ns, bytes_ns)
        few[one.category] += round(float((floor_ns - flops_ns).sum()))
        is_short = taken_ns < SHORT_KERNEL_NS
        short[one.category] += round(float((taken_ns - floor_ns)[is_short].sum()))
    return {BelowPeak.FEW_ROWS: few, BelowPeak.SHORT_KERNELS: short}


def _list_assumptions(plan: PlannedWork, fitted: FittedPlan) -> Iterator[str]:
    """Yield what no kernel shows of a configuration that they fit."""
    if plan.assumes:
        yield plan.assumes
    if not fitted.shows_sequence:
        yield f"sequences of {plan.sequence:,} tokens"


def _count_by_plan(  # noqa: PLR0913, PLR0917  # what is known of a rank
    work: TypicalWork, capture: Capture, gpu: Gpu | None, rows: Rows, is_again: Flags, fitted: FittedPlan
) -> _Counted:
    """Return the multiplying kernels of the categories with planned FLOPs; convolutions are matrices."""
    steps, parts, numbers = work.steps.start_ns.size, [], []
    groups: list[_Multiplied] = []
    told = _infer_kernel_precisions(capture, gpu)[0][work.columns.name]
    apart = [(one.category, one.precision) for one in fitted.flops if one.precision is not None]
    linear = _select_multiplying(work, capture, rows, (ComputeCategory.GEMM, ComputeCategory.GROUPED_GEMM))
    for planned in fitted.flops:
        category = planned.category
        with_it = (category, ComputeCategory.CONVOLUTION) if category is ComputeCategory.GEMM else (category,)
        own = _select_multiplying(work, capture, rows, with_it)
        if category is ComputeCategory.OTHER:
            own = select_mixing(work, capture, rows)
        if planned.precision is not None:
            own = own[told[own] == _PRECISIONS.index(planned.precision)]
        for other, precision in apart if planned.precision is None else ():
            own = own[(told[own] != _PRECISIONS.index(precision)) | (other is not category)]
        is_mixing = category is ComputeCategory.OTHER
        precision, products = _find_one_precision(work, capture, gpu, linear if is_mixing else own)
        if is_mixing and precision in LOW_PRECISIONS:
            precision = Precision.BF16
        numbers.append(np.full(own.size, len(groups)))
        executed, repeated, model = (
            each * steps for each in (planned.executed, planned.repeated, planned.model)
        )
        groups.append(_Multiplied(category, precision, products, executed, repeated, model))
        parts.append(own)
    return _Counted(
        "configuration",
        groups,
        np.concatenate(parts),
        np.concatenate(numbers),
        sum(one.whole_square for one in fitted.flops),
        knows_repeats=fitted.knows_repeats or not is_again.any(),
    )


def _count_by_user(
    work: TypicalWork, capture: Capture, gpu: Gpu | None, rows: Rows, flops: float
) -> _Counted:
    """Return all multiplying kernels, whose FLOPs the user gave; none if others may multiply unseen."""
    own = _select_multiplying(work, capture, rows, MULTIPLYING)
    unseen = [*work.rows_of(OperationClass.OPAQUE_GRAPH), *rows[mark_unknown_kernels(work.operations)[rows]]]
    is_complete = work.total_ns(np.array(unseen, np.int64)) <= MATERIAL_SHARE * work.total_ns(own)
    if not own.size or not is_complete:
        return _Counted("user", [], own[:0], own[:0])
    total = round(flops * work.steps.start_ns.size)
    precision, _ = _find_one_precision(work, capture, gpu, own)
    return _Counted(
        "user", [_Multiplied(None, precision, 1, total, 0, total)], own, np.zeros(own.size, np.int64)
    )


def _select_multiplying(
    work: TypicalWork, capture: Capture, rows: Rows, categories: Iterable[ComputeCategory]
) -> Rows:
    """Return the rows of kernels that multiply, of some categories."""
    is_asked = np.isin(CATEGORIES, list(categories))[work.columns.category[rows]]
    adds: Flags = capture.names["text"].str.contains(ADDING).to_numpy()
    return rows[is_asked & ~adds[work.columns.name[rows]]]


def _find_one_precision(
    work: TypicalWork, capture: Capture, gpu: Gpu | None, rows: Rows
) -> tuple[Precision, int]:
    """Return the precision of almost all of some kernels, and how many of its products stand for one."""
    name, inside_ns = work.columns.name[rows], work.columns.inside_ns[rows]
    told, emulated = _infer_kernel_precisions(capture, gpu)
    key = told[name] * (_MOST_PRODUCTS + 1) + emulated[name]
    time_ns = sum_by_group(key, inside_ns, len(_PRECISIONS) * (_MOST_PRODUCTS + 1))
    if not time_ns.any():
        return Precision.UNKNOWN, 1
    first = int(time_ns.argmax())
    precision, products = divmod(first, _MOST_PRODUCTS + 1)
    same_ns = int(time_ns.reshape(len(_PRECISIONS), -1)[precision].sum())
    is_one = max(int(time_ns[first]), same_ns) >= ONE_PRECISION_SHARE * int(time_ns.sum())
    return (_PRECISIONS[precision] if is_one else Precision.UNKNOWN), products


def _infer_kernel_precisions(capture: Capture, gpu: Gpu | None) -> tuple[Rows, Rows]:
    """Return the precision of each kernel name, by number, and how many of its products stand for one."""
    told = as_integers(infer_precisions(capture.names)["precision"]).astype(np.int64)
    products = np.ones_like(told)
    for pattern, precision, count in () if _lacks_tf32(gpu) else _EMULATING:
        emulates: Flags = capture.names["text"].str.contains(pattern).to_numpy()
        told = np.where(emulates, _PRECISIONS.index(precision), told)
        products = np.where(emulates, count, products)
    return told, products


def _lacks_tf32(gpu: Gpu | None) -> bool:
    return gpu is not None and (gpu.architecture or "").startswith(_WITHOUT_TF32)


def _find_operators(
    work: TypicalWork, capture: Capture, gpu: Gpu | None, rows: Rows, is_again: Flags
) -> _Operators:
    """Return the operators with known FLOPs whose kernels run in the steps."""
    nothing, none = np.empty(0, np.int64), np.empty(0, np.bool_)
    known = capture.kernel_flops
    if known is None or known.is_empty():
        return _Operators(nothing, nothing, nothing, nothing, nothing, none, nothing, nothing)
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
    told_of_name, products_of_name = _infer_kernel_precisions(capture, gpu)
    told, products = told_of_name[name], products_of_name[name]
    stated = as_integers(known["precision"][place[first]], -1)
    precision = _choose_precisions(stated, told, is_old=_lacks_tf32(gpu))
    precision = np.where(products > 1, told, precision)
    begins = columns.begins[chosen]
    return _Operators(
        rows,
        owner,
        _number_kind(columns.category[chosen], precision, products),
        np.where(begins, known["flops"].to_numpy()[place[first]], 0),
        np.where(begins, known["model_flops"].fill_null(known["flops"]).to_numpy()[place[first]], 0),
        is_again[chosen],
        np.where(begins, as_integers(known["moved_bytes"][place[first]], 0), 0),
        sum_by_group(owner, columns.inside_ns[rows], numbers.size),
        not known["model_flops"].is_null().to_numpy()[place[first]].any(),
    )


def _choose_precisions(stated: Rows, told: Rows, *, is_old: bool) -> Rows:
    """Return the precision of operators by their types, -1 if unknown, and by the names of their kernels.

    FP32 arguments may be multiplied in another precision, which only names show.
    """
    by_name = np.where((stated == _FP32) & (told == _UNKNOWN) & is_old, _FP32, told)
    return np.where((stated < 0) | (stated == _FP32), by_name, stated).astype(np.int64)


def _number_kind(category: Rows, precision: Rows, products: Rows) -> Rows:
    """Return a number for category, precision and number of products of kernels, which `_read_kind` reads."""
    return (category.astype(np.int64) * len(_PRECISIONS) + precision) * (_MOST_PRODUCTS + 1) + products


def _read_kind(kind: int) -> tuple[ComputeCategory, Precision, int]:
    rest, products = divmod(kind, _MOST_PRODUCTS + 1)
    category, precision = divmod(rest, len(_PRECISIONS))
    return ComputeCategory(CATEGORIES[category]), _PRECISIONS[precision], products


def _group_operators(operators: _Operators) -> dict[int, _Multiplied]:
    """Return the operators added up by kind."""
    found = {}
    for kind in np.unique(operators.kind).tolist():
        of_kind = operators.kind == kind
        found[kind] = _Multiplied(
            *_read_kind(kind),
            sum(operators.executed[of_kind & ~operators.repeats].tolist()),
            sum(operators.executed[of_kind & operators.repeats].tolist()),
            sum(operators.model[of_kind & ~operators.repeats].tolist()),
        )
    return found


class _Divided(NamedTuple):
    """Lines in ns over all steps, and the time of each group of known FLOPs."""

    lines: Counter[_Atom]
    group_ns: list[int]


def _divide_compute(  # noqa: PLR0913, PLR0917  # the parts of one account
    work: TypicalWork,
    capture: Capture,
    rows: Rows,
    counted: _Counted,
    gpu: Gpu | None,
    computing_ns: int,
) -> _Divided:
    """Return the lines of all time in which a compute kernel runs, and the time of groups of matrices.

    Args:
        work: the typical step.
        capture: with names of kernels.
        rows: of the compute kernels that repeat no work.
        counted: those of them with known FLOPs.
        gpu: of the rank.
        computing_ns: the time in which any compute kernel runs.
    """
    columns, peak = work.columns, None if gpu is None else list_peaks(gpu)
    fresh_ns = computing_ns
    if rows.size < work.rows_of(OperationClass.COMPUTE).size:
        alone = union(order_spans(columns.start_ns[rows], columns.end_ns[rows]))
        fresh_ns = int(covered_ns(alone, work.steps).sum())
    shared = share_time(
        columns.start_ns[rows], columns.end_ns[rows], columns.inside_ns[rows].astype(np.int64), work.steps
    )
    known, place = len(counted.groups), find_places(rows, counted.rows)
    adds: Flags = capture.names["text"].str.contains(ADDING).to_numpy()
    category = known + _KINDS * columns.category[rows].astype(np.int64)
    floor = measure_byte_floors(capture, gpu, columns.op[rows].astype(np.int64), columns.name[rows])
    floor = _find_own_floors(floor, shared, columns.end_ns[rows] - columns.start_ns[rows])
    has_floor = (floor >= 0) & (place < 0)
    group = np.where(place >= 0, np.append(counted.group, -1)[place], category + adds[columns.name[rows]])
    group = np.where(has_floor, category + _ABOVE, group)
    size = known + _KINDS * len(CATEGORIES)
    at_bandwidth = np.where(has_floor, floor, 0)
    sums = sum_by_group(group, shared - at_bandwidth, size)
    sums = sums + sum_by_group((category + _AT)[has_floor], at_bandwidth[has_floor], size)
    parts = sums.tolist()
    ran = np.flatnonzero(np.bincount(group, minlength=size) + (sums > 0)).tolist()
    found = Counter({_Atom(LedgerLine.RECOMPUTATION): computing_ns - fresh_ns})
    shares = {one: Fraction(parts[one] * fresh_ns, max(sum(parts), 1)) for one in ran}
    group_ns = [0] * known
    for one, time_ns in apportion(shares, fresh_ns).items():
        if one < known:
            group_ns[one] = time_ns
            found.update(_measure_lines(counted, counted.groups[one], time_ns, peak))
        else:
            number, kind = divmod(one - known, _KINDS)
            found[_name_other(ComputeCategory(CATEGORIES[number]), kind)] += time_ns
    return _Divided(found, group_ns)


def _rate_matrices(
    work: TypicalWork, counted: _Counted, is_again: Flags, group_ns: list[int], peak: GpuPeak | None
) -> Iterator[MatrixWork]:
    """Yield how near to the peak the kernels with known FLOPs are, those with most time first."""
    again = is_again[counted.rows]
    repeated_ns = sum_by_group(
        counted.group[again], work.columns.inside_ns[counted.rows[again]], len(counted.groups)
    )
    times = zip(counted.groups, group_ns, repeated_ns.tolist(), strict=True)
    for one, time_ns, again_ns in sorted(times, key=lambda found: -found[1]):
        if not time_ns or one.category is ComputeCategory.OTHER:  # whose FLOPs are an estimate
            continue
        per_s, rate = one.executed * 1e9 / time_ns, one.rate(peak)
        yield MatrixWork(
            one.category,
            one.precision,
            one.products,
            work.mean(time_ns),
            work.mean(one.model),
            None if counted.source == "user" else work.mean(one.executed),
            per_s,
            None if rate is None else per_s * one.products / rate,
            work.mean(again_ns),
            work.mean(one.repeated) if counted.source != "user" and counted.knows_repeats else None,
        )


def _find_own_floors(floor_ns: Rows, shared: Times, taken_ns: Times) -> Rows:
    """Return the part of the shared time of kernels that their bytes need, -1 if that is unknown.

    It is unknown of kernels that are faster than the bandwidth: their bytes are others, or in a cache.
    """
    is_possible = (floor_ns >= 0) & (floor_ns <= HIGHEST_CLOCK_RATIO * taken_ns)
    scaled = np.minimum(floor_ns / np.maximum(taken_ns, 1), 1.0)
    return np.where(is_possible, np.rint(shared * scaled), -1).astype(np.int64)


def _name_other(category: ComputeCategory, kind: int) -> _Atom:
    """Return the line of kernels without known FLOPs."""
    if kind in {_AT, _ABOVE}:
        return _Atom(LedgerLine.AT_BANDWIDTH if kind == _AT else LedgerLine.ABOVE_FLOOR, category)
    reason = LossUnknown.BYTES_UNKNOWN
    if category in MULTIPLYING and kind != _ADDING:
        reason = LossUnknown.FLOPS_UNKNOWN
    elif category is ComputeCategory.UNRECOGNIZED:
        reason = LossUnknown.KERNEL_UNKNOWN
    return _Atom(LedgerLine.COMPUTE_UNKNOWN, category, reason)


def _measure_lines(
    counted: _Counted, one: _Multiplied, time_ns: int, peak: GpuPeak | None
) -> dict[_Atom, int]:
    """Return the lines of kernels of one kind that take some time, which they sum to.

    Of FLOPs of the user it is unknown what was computed twice or emulated: this is below the peak, too.
    """
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
        until_ns = {
            LedgerLine.IDEAL_MATH: round(one.model * 1e9 / fastest),
            LedgerLine.PRECISION: round(one.model * 1e9 / rate),
        }
        if counted.source != "user":
            until_ns[LedgerLine.COMPUTED_TWICE] = round(one.executed * 1e9 / rate)
            until_ns[LedgerLine.EMULATED_PRECISION] = round(one.executed * one.products * 1e9 / rate)
        least_ns = max(until_ns.values())
        if least_ns <= time_ns:
            until_ns[LedgerLine.BELOW_PEAK] = time_ns
            each_ns = dict(zip(until_ns, np.diff([0, *until_ns.values()]).tolist(), strict=True))
            found = {_Atom(line, one.category): own for line, own in each_ns.items()}
            if one.category is ComputeCategory.OTHER:  # state spaces are limited by their bytes, not by FLOPs
                left_ns = found.pop(_Atom(LedgerLine.BELOW_PEAK, one.category))
                found[_Atom(LedgerLine.COMPUTE_UNKNOWN, one.category, LossUnknown.BYTES_UNKNOWN)] = left_ns
            return found
        is_possible = least_ns <= HIGHEST_CLOCK_RATIO * time_ns
        reason = LossUnknown.ABOVE_PEAK if is_possible else LossUnknown.IMPOSSIBLE_FLOPS
    return {_Atom(LedgerLine.COMPUTE_UNKNOWN, one.category, reason): time_ns}


def _find_16bit_rate(peak: GpuPeak | None) -> float | None:
    return None if peak is None else peak.find_rate(Precision.BF16) or peak.find_rate(Precision.FP16)


class _PeakTime(NamedTuple):
    """The time of the FLOPs of a step at the peaks of their precisions; the peak of what the user counted."""

    model_ns: float | None
    executed_ns: float | None
    leading: float | None


def _measure_shares(
    groups: Iterable[_Multiplied], peak: GpuPeak | None, count: int, leading: Peak | None
) -> _PeakTime:
    """Return the time at the peak, of one of so many steps; `None` if a peak is unknown."""
    most = None if leading is None else leading.flops_per_s
    model_ns = executed_ns = 0.0
    for one in groups:
        rate = one.rate(peak)
        if rate is None:
            return _PeakTime(None, None, most)
        model_ns += one.model * 1e9 / rate / count
        executed_ns += (one.executed + one.repeated) * 1e9 / rate / count
    return _PeakTime(model_ns, executed_ns, most)


class _Sampled(NamedTuple):
    """What samples show of kernels by category, and which share of the peak's clock is missing meanwhile."""

    works: Mapping[ComputeCategory, SampledWork]
    slowed: Mapping[ComputeCategory, float]


def _is_possible(means: dict[_Atom, int]) -> bool:
    """Return whether no kernels have more FLOPs than the GPU can do in their time."""
    return all(one.reason is not LossUnknown.IMPOSSIBLE_FLOPS for one in means)


def _find_reasons(
    work: TypicalWork,
    capture: Capture,
    gpu: Gpu | None,
    counted: _Counted,
    sampled: "_Sampled",
) -> dict[ComputeCategory, dict[BelowPeak, int | None]]:
    """Return why kernels with known FLOPs are below the peak, by category."""
    sized = [
        {reason: times_ns.get(one, 0) for reason, times_ns in counted.sized.items()} for one in MULTIPLYING
    ]
    places = np.array([CATEGORIES.index(one) for one in MULTIPLYING], np.int64)
    group = find_places(work.columns.category[counted.rows].astype(np.int64), places)
    is_own = group >= 0
    kernels = KernelGroups(counted.rows[is_own], group[is_own], sized)
    all_ns = sum_by_group(kernels.group, work.columns.inside_ns[kernels.rows], len(MULTIPLYING)).tolist()
    found = find_below_peak(work, capture, gpu, kernels)
    least_rows = FULL_EXPERT_ROWS.get("" if gpu is None else gpu.architecture or "", 0)
    if counted.expert_rows is not None and counted.expert_rows < least_rows:
        found[MULTIPLYING.index(ComputeCategory.GROUPED_GEMM)][BelowPeak.FEW_EXPERT_ROWS] = None
    return {
        one: reasons | _read_samples(sampled.works.get(one), work.mean(int(own_ns)))
        for one, reasons, own_ns in zip(MULTIPLYING, found, all_ns, strict=True)
    }


def _read_samples(one: SampledWork | None, time_ns: int) -> dict[BelowPeak, int | None]:
    """Return why kernels are below the peak, as samples show, with ns of their time where that is known."""
    found: dict[BelowPeak, int | None] = {}
    if one is not None and one.sm_active is not None and one.sm_active <= 1 - BELOW_PEAK_SHARE:
        found[BelowPeak.UNFILLED_GPU] = round(time_ns * (1 - one.sm_active))
    if one is not None and one.dram is not None and one.dram >= SATURATED_BANDWIDTH_SHARE:
        found[BelowPeak.BANDWIDTH] = None
    return found


def _list_uncounted(
    work: TypicalWork,
    capture: Capture,
    gpu: Gpu | None,
    rows: Rows,
    sampled: "_Sampled",
) -> list[UncountedWork]:
    """Return the kernels that multiply, by category and precision, most work first; `rows` have no FLOPs."""
    own = _select_multiplying(work, capture, rows, MULTIPLYING)
    told, emulated = _infer_kernel_precisions(capture, gpu)
    name = work.columns.name[own]
    key = _number_kind(work.columns.category[own], told[name], emulated[name])
    kinds, group = np.unique(key, return_inverse=True)
    works_ns = sum_by_group(group, work.columns.inside_ns[own], kinds.size).tolist()
    reasons = find_below_peak(work, capture, gpu, KernelGroups(own, group, [{}] * kinds.size))
    peak, found = None if gpu is None else list_peaks(gpu), []
    for kind, work_ns, why in zip(kinds.tolist(), works_ns, reasons, strict=True):
        category, precision, products = _read_kind(kind)
        rate = None if peak is None else peak.find_rate(precision)
        most = None if rate is None else rate / products
        shown = why | _read_samples(sampled.works.get(category), work_ns)
        if sampled.slowed.get(category, 0.0) >= MATERIAL_SHARE:
            shown |= {BelowPeak.LOW_CLOCK: None}
        found.append(UncountedWork(category, precision, products, work.mean(work_ns), most, tuple(shown)))
    return sorted((one for one in found if one.work_ns), key=lambda one: -one.work_ns)


def _add_reasons(
    entries: tuple[LedgerEntry, ...],
    reasons: Mapping[ComputeCategory, Mapping[BelowPeak, int | None]],
    slowed: Mapping[ComputeCategory, float],
) -> tuple[LedgerEntry, ...]:
    """Return lines with the reasons why kernels are below the peak, which take no more than a line.

    At the clock of the peak, what other reasons leave of a line would be shorter by what is missing of it.
    """
    found = []
    for one in entries:
        if one.line is LedgerLine.BELOW_PEAK and one.category is not None and one.ns:
            left_ns, own = one.ns, []
            for reason, part_ns in reasons.get(one.category, {}).items():
                sized_ns = None if part_ns is None else min(part_ns, left_ns)
                left_ns -= sized_ns or 0
                own.append(PeakReason(reason, sized_ns))
            if slowed.get(one.category, 0.0) >= MATERIAL_SHARE:
                own.append(PeakReason(BelowPeak.LOW_CLOCK, round(left_ns * slowed[one.category])))
            found.append(replace(one, explained_by=tuple(own)))
        else:
            found.append(one)
    return tuple(found)


def _list_entries(means: dict[_Atom, int], source: FlopsSource) -> tuple[LedgerEntry, ...]:
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
            source=source if order.index(line) <= order.index(LedgerLine.BELOW_PEAK) else None,
            reasons=tuple(sorted(together.get((line, category), ()), key=lambda one: (-one.ns, one.reason))),
        )
        for (line, category), time_ns in listed
    )
