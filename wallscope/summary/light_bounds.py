"""How much faster a fix of the compute wall can make the step at most, by the lines that it can remove.

Where FLOPs are unknown, so is how fast kernels can be: they then take no time, and `keeps_floor` says so.
"""

from collections.abc import Collection, Mapping
from dataclasses import replace
from typing import Any, NamedTuple

from wallscope.advice.rules import list_light_limits
from wallscope.model.advice import Fix
from wallscope.model.analysis import Analysis, Rank
from wallscope.model.cause_catalogue import LAUNCHING
from wallscope.model.enums import ComputeCategory, Precision, Wall
from wallscope.model.speed_of_light import OF_MATRICES, LedgerLine, MatrixWork, SpeedOfLight
from wallscope.thresholds.causes import LEAST_COUNTED_SHARE

_OF_MEMORY = (LedgerLine.AT_BANDWIDTH, LedgerLine.ABOVE_FLOOR, LedgerLine.COMPUTE_UNKNOWN)
_HALF = 2
"""Bytes of 32 bits by those of 16."""
_FULL_PRECISION = frozenset((Precision.FP32, Precision.TF32, Precision.FP64))
_SIXTEEN_BITS = frozenset((Precision.BF16, Precision.FP16))
_MOST_BITS = 64
_BITS = {
    Precision.NVFP4: 4,
    **dict.fromkeys((Precision.MXFP8, Precision.FP8, Precision.INT8), 8),
    **dict.fromkeys(_SIXTEEN_BITS, 16),
    Precision.TF32: 19,
    Precision.FP32: 32,
}
"""By precision; those of kernels whose names show none may be most."""


class MostSpeedup(NamedTuple):
    """The largest speedup of a fix, and whether kernels keep the time of their FLOPs at the peak."""

    speedup: float
    keeps_floor: bool


class _Removed(NamedTuple):
    """Time that a fix removes at most: of compute, of it without a known floor, and of other lines."""

    compute_ns: float
    floorless_ns: float = 0.0
    other_ns: float = 0.0


def limit_fixes(analysis: Analysis) -> Analysis:
    """Return an answer whose fixes have the largest speedup that the ledger of any rank allows.

    Where compute is the wall and no replay gives an order, the fixes with the largest bound come first.
    """
    limits = {fix: limit for limit in list_light_limits() for fix in limit["fixes"]}
    own = [rank for rank in analysis.ranks if rank.speed_of_light is not None]
    if not analysis.fixes or not own or not any(fix.id in limits for fix in analysis.fixes):
        return analysis
    fixes = [_limit_fix(fix, limits.get(fix.id), own) for fix in analysis.fixes]
    is_replayed = any(fix.replay is not None for fix in fixes)
    if analysis.diagnosis.dominant_wall == str(Wall.COMPUTE) and not is_replayed:
        fixes.sort(key=lambda fix: (fix.blocked, -(fix.most_speedup or fix.speedup_ceiling or 1.0)))
    return replace(analysis, fixes=tuple(fixes))


def _limit_fix(fix: Fix, limit: Mapping[str, Any] | None, ranks: list[Rank]) -> Fix:
    """Return a fix with its largest speedup, which is not below the one that its assumed rates give."""
    if limit is None:
        return fix
    found = [one for rank in ranks if (one := measure_most_speedup(rank, limit)) is not None]
    if not found:
        return fix
    most = max(found)
    return replace(
        fix,
        most_speedup=max(most.speedup, fix.speedup_ceiling or 1.0),
        keeps_floor=all(one.keeps_floor for one in found),
    )


def measure_most_speedup(rank: Rank, limit: Mapping[str, Any]) -> MostSpeedup | None:
    """Return the step divided by what is left of it, `None` if none of it goes or nothing is left.

    Peers of a rank get faster as it does, so that waiting for them shrinks as much as its compute.

    Args:
        rank: with its ledger.
        limit: what a fix removes, of `advice/light.toml`.
    """
    found = rank.speed_of_light
    if found is None:
        return None
    categories = frozenset(map(ComputeCategory, limit["categories"]))
    if "precision" in limit:
        removed = _remove_slow_products(rank, found, categories, Precision(limit["precision"]))
    elif "lines" in limit:
        lines = frozenset(map(LedgerLine, limit["lines"]))
        removed = _remove_lines(rank, found, categories, lines)
    elif "clock" in limit:
        lost = found.measure_low_clock(categories)
        removed = _Removed(lost.known_ns + lost.unknown_ns, lost.unknown_ns)
    else:
        removed = _Removed(_measure_pointwise(rank, found, categories, is_single=bool(limit.get("single"))))
    gone_ns = removed.compute_ns + removed.other_ns
    if limit.get("launches"):
        launching_ns = sum(one.typical_ns for one in rank.causes if one.cause in LAUNCHING)
        gone_ns += found.total(LedgerLine.HAND_OVER) + launching_ns
    computing_ns = rank.typical.budget.compute
    faster = min(removed.compute_ns / computing_ns, 1.0) if computing_ns else 0.0
    gone_ns += faster * found.total(LedgerLine.EXPOSED_COMMUNICATION)
    if not gone_ns:
        return None
    left_ns = max(found.window_ns - gone_ns, 1.0)
    is_known = removed.floorless_ns <= (1 - LEAST_COUNTED_SHARE) * removed.compute_ns
    return MostSpeedup(found.window_ns / left_ns, is_known)


def _sum_lines(
    found: SpeedOfLight, lines: Collection[LedgerLine], categories: Collection[ComputeCategory | None]
) -> int:
    return sum(one.ns for one in found.lines if one.line in lines and one.category in categories)


def _measure_repeated(rank: Rank, found: SpeedOfLight, categories: Collection[ComputeCategory]) -> int:
    """Return the time of recomputed kernels of some categories, at most."""
    all_ns = sum(one.work_ns for one in rank.compute if one.category in categories)
    fresh_ns = _sum_lines(found, (*OF_MATRICES, *_OF_MEMORY), categories)
    return min(found.total(LedgerLine.RECOMPUTATION), max(all_ns - fresh_ns, 0))


def _measure_pointwise(
    rank: Rank, found: SpeedOfLight, categories: Collection[ComputeCategory], *, is_single: bool
) -> int:
    """Return the time of kernels that do not multiply, if asked of single operations of a framework only."""
    own_ns = _sum_lines(found, _OF_MEMORY, categories) + _measure_repeated(rank, found, categories)
    details, elementwise = rank.compute_details, {ComputeCategory.ELEMENTWISE}
    if not is_single or details is None or not elementwise <= set(categories):
        return own_ns
    all_ns = _sum_lines(found, _OF_MEMORY, elementwise) + _measure_repeated(rank, found, elementwise)
    return own_ns - max(all_ns - round(details.unfused_elementwise_share * details.work_ns), 0)


def _remove_lines(
    rank: Rank, found: SpeedOfLight, categories: Collection[ComputeCategory], lines: Collection[LedgerLine]
) -> _Removed:
    """Return the lines of kernels that a fix removes; all of their time where their FLOPs are unknown.

    FLOPs may be known of several categories together. Any part of their lines may then be that of one.
    """
    again_ns = _measure_repeated(rank, found, categories)
    listed = frozenset(one.category for one in found.lines)
    elsewhere_ns = sum(one.work_ns for one in rank.compute if one.category in set(categories) - listed)
    others = listed - frozenset(categories)
    together_ns = min(elsewhere_ns, _sum_lines(found, lines, others))
    unknown_ns = again_ns + _sum_lines(found, (LedgerLine.COMPUTE_UNKNOWN,), categories)
    return _Removed(_sum_lines(found, lines, categories) + together_ns + unknown_ns, unknown_ns)


def _remove_slow_products(
    rank: Rank, found: SpeedOfLight, categories: Collection[ComputeCategory], precision: Precision
) -> _Removed:
    """Return what kernels take longer than at the peak of another precision, and half the bytes of FP32."""
    rate = None if found.peak is None else found.peak.find_rate(precision)
    own = [one for one in found.matrices if one.category is None or one.category in categories]
    slow = [one for one in own if _is_slower(found, one.precision, precision, one.products)]
    known_ns = 0.0 if rate is None else sum(max(one.ns - _count_flops(one) * 1e9 / rate, 0.0) for one in slow)
    floorless_ns = float(sum(one.ns for one in slow)) if rate is None else 0.0
    works = () if rank.compute_details is None else rank.compute_details.category_precisions
    has_full = any(one.precision in _FULL_PRECISION for one in slow)
    for category in categories:
        work = [
            one for one in works if one.category is category and _is_slower(found, one.precision, precision)
        ]
        unknown_ns = _sum_lines(found, (LedgerLine.COMPUTE_UNKNOWN,), {category})
        floorless_ns += min(unknown_ns, sum(one.work_ns for one in work))
        has_full |= any(one.precision in _FULL_PRECISION for one in work)
    floorless_ns += _measure_repeated(rank, found, categories)
    others = frozenset(one.category for one in found.lines if one.line in _OF_MEMORY) - frozenset(categories)
    halved = has_full and precision in _SIXTEEN_BITS
    memory_ns = _sum_lines(found, _OF_MEMORY, others) / _HALF if halved else 0.0
    copies_ns = found.total(LedgerLine.COPIES) / _HALF if halved else 0.0
    return _Removed(known_ns + floorless_ns + memory_ns, floorless_ns, copies_ns)


def _count_flops(one: MatrixWork) -> int:
    return one.model_flops if one.executed_flops is None else one.executed_flops


def _is_slower(found: SpeedOfLight, precision: Precision, other: Precision, products: int = 1) -> bool:
    """Return whether kernels may multiply slower in a precision than in another one, by peaks or by bits."""
    rates = (None, None) if found.peak is None else tuple(map(found.peak.find_rate, (precision, other)))
    if rates[0] is None or rates[1] is None:
        return _BITS.get(precision, _MOST_BITS) > _BITS[other]
    return rates[0] / products < rates[1]
