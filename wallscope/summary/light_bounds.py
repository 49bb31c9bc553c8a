"""How much faster a fix of the compute wall can make the step at most, by the lines that it can remove."""

from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any

from wallscope.files import read_toml
from wallscope.model.advice import Fix
from wallscope.model.analysis import Analysis
from wallscope.model.enums import Precision
from wallscope.model.speed_of_light import AT_PEAK, LedgerLine, MatrixWork, SpeedOfLight

_OF_MEMORY = (LedgerLine.AT_BANDWIDTH, LedgerLine.ABOVE_FLOOR, LedgerLine.COMPUTE_UNKNOWN)
_HALF = 2
"""Bytes of 32 bits by those of 16."""


def limit_fixes(analysis: Analysis) -> Analysis:
    """Return an answer whose fixes have the largest speedup that the ledger allows, where it is known."""
    found = analysis.ranks[analysis.diagnosis.rank_index].speed_of_light
    if not analysis.fixes or found is None or not found.matrices:
        return analysis
    limits = {fix: limit for limit in read_toml("advice/light.toml")["limit"] for fix in limit["fixes"]}
    fixes = tuple(
        replace(fix, most_speedup=measure_most_speedup(found, limits[fix.id])) if fix.id in limits else fix
        for fix in analysis.fixes
    )
    return replace(analysis, fixes=tuple(map(_raise_to_replay, fixes)))


def measure_most_speedup(found: SpeedOfLight, limit: Mapping[str, Any]) -> float | None:
    """Return the step divided by what is left of it, `None` if the ledger does not show what goes.

    Args:
        found: the ledger of the rank.
        limit: what a fix removes, of `advice/light.toml`.
    """
    parts = list(_list_removed(found, limit))
    if not parts or None in parts:
        return None
    left_ns = found.window_ns - sum(one for one in parts if one is not None)
    return found.window_ns / left_ns if left_ns > 0 else None


def _list_removed(found: SpeedOfLight, limit: Mapping[str, Any]) -> Iterator[float | None]:
    """Yield the ns that a fix can remove, `None` for a part whose size is unknown."""
    categories = set(limit["categories"])
    if "memory" in limit:
        yield from (one.ns for one in found.lines if one.line in _OF_MEMORY and one.category in categories)
    elif "lines" in limit:
        lines = set(limit["lines"])
        yield from (one.ns for one in found.lines if one.line in lines and one.category in categories)
    else:
        own = [one for one in found.matrices if one.category is None or one.category in categories]
        yield from _list_faster(found, own, Precision(limit["precision"]))


def _list_faster(found: SpeedOfLight, own: list[MatrixWork], precision: Precision) -> Iterator[float | None]:
    """Yield what kernels take longer than at the peak of another precision, and half the bytes of FP32."""
    rate = None if found.peak is None else found.peak.find_rate(precision)
    if rate is None:
        yield None
        return
    for one in own:
        slow = None if found.peak is None else found.peak.find_rate(one.precision)
        flops = one.executed_flops if one.executed_flops is not None else one.model_flops
        if slow is None or slow / one.products < rate:
            yield one.ns - flops * 1e9 / rate
    if any(one.precision in {Precision.FP32, Precision.TF32} for one in own):
        multiplying = {one.category for one in found.lines if one.line in AT_PEAK}
        memory_ns = (
            one.ns for one in found.lines if one.line in _OF_MEMORY and one.category not in multiplying
        )
        yield sum(memory_ns) / _HALF


def _raise_to_replay(fix: Fix) -> Fix:
    """Return a fix whose largest speedup is not below the one that its assumed rates give."""
    if fix.most_speedup is None or fix.speedup_ceiling is None:
        return fix
    return replace(fix, most_speedup=max(fix.most_speedup, fix.speedup_ceiling))
