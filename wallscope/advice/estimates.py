"""Estimate the remaining time of a kernel category after a change, by what its kernels are.

FP32 on CUDA cores gains more than TF32, and attention more than convolutions. The source of each ratio is in
thresholds/verdict.py. Kernels in low or unknown precision do not change.
"""

from collections.abc import Callable, Mapping, Sequence

from wallscope.model.analysis import ComputeWork
from wallscope.model.enums import ComputeCategory, Precision
from wallscope.model.rank_summaries import CategoryPrecision, ComputeDetails
from wallscope.thresholds import verdict as ratios
from wallscope.thresholds.verdict import MATERIAL_SHARE

Estimate = Callable[[str, str], float | None]
"""The remaining share of a replay target, by the name of the estimate; `None`: no change."""

_TO_BF16: Mapping[tuple[ComputeCategory, Precision], float] = {
    (ComputeCategory.ATTENTION, Precision.FP32): ratios.BF16_ATTENTION_OF_FP32_RATIO,
    (ComputeCategory.ATTENTION, Precision.TF32): ratios.BF16_GEMM_OF_TF32_RATIO,
    (ComputeCategory.GEMM, Precision.TF32): ratios.BF16_GEMM_OF_TF32_RATIO,
    (ComputeCategory.GEMM, Precision.FP32): ratios.BF16_GEMM_OF_FP32_RATIO,
    (ComputeCategory.GROUPED_GEMM, Precision.TF32): ratios.BF16_GEMM_OF_TF32_RATIO,
    (ComputeCategory.GROUPED_GEMM, Precision.FP32): ratios.BF16_GEMM_OF_FP32_RATIO,
    (ComputeCategory.CONVOLUTION, Precision.TF32): ratios.BF16_CONVOLUTION_OF_TF32_RATIO,
    (ComputeCategory.CONVOLUTION, Precision.FP32): ratios.BF16_CONVOLUTION_OF_FP32_RATIO,
}
_TO_TF32: Mapping[tuple[ComputeCategory, Precision], float] = {
    (ComputeCategory.GEMM, Precision.FP32): ratios.TF32_GEMM_OF_FP32_RATIO,
    (ComputeCategory.GROUPED_GEMM, Precision.FP32): ratios.TF32_GEMM_OF_FP32_RATIO,
}
FUSED = "FUSED"
ESTIMATES = {"BF16": _TO_BF16, "TF32": _TO_TF32, FUSED: {}}
"""Ratios by their name in the rules; those of fused attention are measured."""
_TARGET = "category:"


def estimate_left_share(name: str, target: str, found: Sequence[CategoryPrecision]) -> float | None:
    """Return the remaining share of a category's time; `None` if the change is not material.

    >>> work = CategoryPrecision(ComputeCategory.GEMM, Precision.TF32, 80, 0.8, 1)
    >>> rest = CategoryPrecision(ComputeCategory.GEMM, Precision.BF16, 20, 0.2, 1)
    >>> estimate_left_share("BF16", "category:gemm", (work, rest))
    0.6
    """
    own = [entry for entry in found if f"{_TARGET}{entry.category}" == target]
    whole_ns = sum(entry.work_ns for entry in own)
    if not whole_ns:
        return None
    of = ESTIMATES[name]
    left = sum(of.get((entry.category, entry.precision), 1.0) * entry.work_ns for entry in own) / whole_ns
    return None if left > 1 - MATERIAL_SHARE else round(left, 2)


def estimate_without_unfused_attention(
    target: str, details: ComputeDetails, works: Sequence[ComputeWork]
) -> float | None:
    """Return the share of a category's work that is not between the multiplications of attention.

    `works` is all compute of the step. The result is `None` if attention is fused, or this is not material.
    """
    between = () if details.unfused_attention is None else details.unfused_attention.between
    gone_ns = sum(entry.work_ns for entry in between if f"{_TARGET}{entry.category}" == target)
    whole_ns = sum(entry.work_ns for entry in works if f"{_TARGET}{entry.category}" == target)
    if not whole_ns or gone_ns < MATERIAL_SHARE * whole_ns:
        return None
    return round(max(1 - gone_ns / whole_ns, 0.0), 2)


def estimate_nothing(_name: str, _target: str) -> float | None:
    """Return `None`: the kernels are unknown."""
    return None
