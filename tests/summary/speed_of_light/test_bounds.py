"""The largest speedup of a fix, by the lines of the ledger that it can remove."""

import json
from dataclasses import replace

import pytest

from tests.summary.speed_of_light.truth_values import CONFIGURATIONS, SHARED, TRUTH
from wallscope.files import read_toml
from wallscope.model.capture import Options
from wallscope.model.enums import ComputeCategory, Precision
from wallscope.model.speed_of_light import (
    GpuPeak,
    LedgerEntry,
    LedgerLine,
    MatrixWork,
    PrecisionRate,
    SpeedOfLight,
)
from wallscope.pipeline import analyze
from wallscope.summary.light_bounds import measure_most_speedup
from wallscope.views.light import describe_expectation, write_worth

RATES = {Precision.FP32: 1e12, Precision.TF32: 2e12, Precision.BF16: 4e12, Precision.FP8: 8e12}
GEMM, ATTENTION, ELEMENTWISE = ComputeCategory.GEMM, ComputeCategory.ATTENTION, ComputeCategory.ELEMENTWISE
LIMITS = {fix: one for one in read_toml("advice/light.toml")["limit"] for fix in one["fixes"]}


def entry(line, category, time_ns):
    return LedgerEntry(line, category, time_ns, proven=True)


def build(precision=Precision.TF32):
    """A step of 1,000 ns: 400 of products with 2e5 FLOPs, 300 of attention, 200 elementwise, 100 else."""
    lines = (
        entry(LedgerLine.IDEAL_MATH, GEMM, 50),
        entry(LedgerLine.BELOW_PEAK, GEMM, 350),
        entry(LedgerLine.IDEAL_MATH, ATTENTION, 40),
        entry(LedgerLine.COMPUTED_TWICE, ATTENTION, 10),
        entry(LedgerLine.BELOW_PEAK, ATTENTION, 250),
        entry(LedgerLine.COMPUTE_UNKNOWN, ELEMENTWISE, 200),
        entry(LedgerLine.HOST, None, 100),
    )
    matrices = (
        MatrixWork(GEMM, precision, 1, 400, 200_000, 200_000, 5e11, 0.25),
        MatrixWork(ATTENTION, precision, 1, 300, 160_000, 200_000, 6.7e11, 0.33),
    )
    rates = tuple(PrecisionRate(one, rate) for one, rate in RATES.items())
    return SpeedOfLight(
        window_ns=1_000,
        is_step=True,
        peak=GpuPeak("GPU", rates, "sheet", is_derived=False),
        model_flops=360_000,
        executed_flops=400_000,
        source="shapes",
        covered=1.0,
        mfu=0.18,
        hfu=0.2,
        mfu_16bit=0.09,
        model_flops_per_s=3.6e11,
        lines=lines,
        matrices=matrices,
    )


@pytest.mark.parametrize(
    ("fix", "precision", "removed_ns"),
    [
        pytest.param("bf16", Precision.TF32, 350 + 250 + 100, id="16 bits, and half of the bytes"),
        pytest.param("tf32", Precision.FP32, 300 + 100, id="only matrices"),
        pytest.param("fp8-blockwise", Precision.BF16, 375, id="no bytes of 16 bits"),
        pytest.param("newer-attention", Precision.BF16, 260, id="attention below peak"),
        pytest.param("fuse-elementwise", Precision.BF16, 200, id="all bytes"),
    ],
)
def test_a_bound_is_the_step_without_what_the_fix_removes(fix, precision, removed_ns):
    found = measure_most_speedup(build(precision), LIMITS[fix])

    assert found == pytest.approx(1_000 / (1_000 - removed_ns))


def test_a_bound_is_unknown_without_the_peak_that_it_needs():
    assert measure_most_speedup(build(), LIMITS["nvfp4"]) is None
    assert measure_most_speedup(replace(build(), peak=None), LIMITS["bf16"]) is None
    assert measure_most_speedup(replace(build(), lines=(), matrices=()), LIMITS["newer-attention"]) is None


def test_flops_of_the_user_bound_a_precision_but_no_category():
    found = build()
    one = replace(found.matrices[0], category=None, ns=700, executed_flops=None)

    assert measure_most_speedup(replace(found, matrices=(one,)), LIMITS["bf16"]) == pytest.approx(
        1_000 / (1_000 - 650 - 100)
    )


@pytest.mark.skipif(not TRUTH.is_file(), reason="no measured gains here: ../shared is absent")
def test_no_bound_is_below_a_measured_gain(tmp_path):
    """With BF16, the step of this model took 368.1 ms instead of 1,195.5 ms: 3.25 times as fast."""
    name = "nersc_sc23_dali"
    path = tmp_path / "config.json"
    path.write_text(json.dumps(CONFIGURATIONS[name]), encoding="utf-8")
    answer = analyze(SHARED / "traces" / f"{name}.sqlite", Options(configuration=path), lambda _: None)
    fix = next(one for one in answer.fixes if one.id == "bf16")

    assert 3.248 < fix.most_speedup <= 9.04 * 1.02
    assert write_worth(fix) == f"at most {fix.most_speedup:.2f}x"
    assert describe_expectation(fix).startswith("about 3.0")
