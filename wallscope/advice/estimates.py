"""Estimate the remaining time of a kernel category in another precision, by the precision of its kernels.

FP32 on CUDA cores gains more than TF32, and attention more than convolutions. The source of each ratio is in
thresholds/fixes.py. Kernels in low or unknown precision do not change.
"""

from collections.abc import Callable, Mapping, Sequence

from wallscope.model.enums import ComputeCategory, Precision
from wallscope.model.rank_summaries import CategoryPrecision
from wallscope.thresholds import fixes as ratios
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
ESTIMATES = {"BF16": _TO_BF16, "TF32": _TO_TF32}
"""Ratios by their name in the rules."""
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


def estimate_nothing(_name: str, _target: str) -> float | None:
    """Return `None`: the kernels are unknown."""
    return None
