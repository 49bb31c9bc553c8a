"""Captures whose authors changed one thing: the recommendation is recognized, with its bound and its gain.

The gains are those of the rows, in ms (INTERVENTIONS.md of the shared traces).
"""

from dataclasses import dataclass

import pytest

from tests.answered_once import compare_once
from tests.real.answers import NEEDS_TRACES, TRACES

pytestmark = NEEDS_TRACES


@dataclass(frozen=True, slots=True)
class AppliedCase:
    """Two captures, the recommendation between them, and the gain of its step: which, and by how much.

    Bounds by the lines of compute kernels differ from the gain that was expected at assumed rates.
    """

    base: str
    head: str
    fix: str
    window: str
    gain_ms: float
    shares: tuple[float, float]
    expected_ms: float | None = None
    precisions: tuple[str, ...] = ()


CASES = (
    AppliedCase("sc21_baseline", "sc21_8workers", "data-workers", "mean", 506.7, (0.9, 1.0)),
    AppliedCase("sc21_8workers", "sc21_dali", "gpu-data-pipeline", "mean", 46.2, (0.7, 0.9)),
    AppliedCase("sc21_dali", "sc21_dali_amp", "bf16", "typical", 28.7, (0.1, 0.3), 43.3, ("fp16",)),
    AppliedCase("sc22_4gpu_base", "sc22_4gpu_nobcast", "gradient-bucket-views", "typical", 0.62, (0.6, 0.8)),
    AppliedCase("sc23_dali", "sc23_dali_bf16", "bf16", "typical", 827.6, (0.7, 0.8), 803.8),
    AppliedCase(
        "sc23_dali_bf16", "sc23_dali_bf16_fused_jit", "fuse-elementwise", "typical", 3.1, (0.01, 0.1), 14.2
    ),
)


def compare(base, head):
    return compare_once(TRACES / f"nersc_{base}.sqlite", TRACES / f"nersc_{head}.sqlite").applied


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.head)
def test_the_recommendation_that_was_applied_is_recognized(case):
    (found,) = compare(case.base, case.head)
    least, most = case.shares

    assert (found.id, found.window, found.is_joint) == (case.fix, case.window, False)
    assert found.measured_ns == pytest.approx(case.gain_ms * 1e6, rel=0.02)
    assert found.measured_ns == found.base_ns - found.head_ns
    assert found.low_ns <= found.measured_ns <= found.high_ns
    assert least <= found.share <= most <= 1
    assert found.measured_ns <= found.bound_ns
    assert (found.expected_ns is None) is (case.expected_ms is None)
    assert case.expected_ms is None or found.expected_ns == pytest.approx(case.expected_ms * 1e6, rel=0.01)
    assert found.precisions == case.precisions
    assert found.share == pytest.approx(found.measured_ns / found.bound_ns)


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.head)
def test_a_change_that_is_undone_applies_nothing(case):
    assert [one for one in compare(case.head, case.base) if one.measured_ns <= 0] == []
