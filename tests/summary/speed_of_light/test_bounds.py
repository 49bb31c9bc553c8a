"""The largest speedup of a fix, by the lines of the ledger that it can remove."""

import json
from dataclasses import replace

import pytest

from tests.answered_once import analyze_once
from tests.shipped_example import EXAMPLE
from tests.summary.speed_of_light.truth_values import CONFIGURATIONS, SHARED, TRUTH
from wallscope.advice.rules import fix_rules
from wallscope.files import read_toml
from wallscope.model.analysis import ComputeWork
from wallscope.model.capture import Options
from wallscope.model.enums import ComputeCategory, Precision
from wallscope.model.rank_summaries import CategoryPrecision
from wallscope.model.speed_of_light import (
    BelowPeak,
    GpuPeak,
    LedgerEntry,
    LedgerLine,
    MatrixWork,
    PeakReason,
    PrecisionRate,
    SampledClock,
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
    found = SpeedOfLight(
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
    return place(found)


def place(found, **changes):
    """A rank with this ledger, whose kernels compute all of its time in the lines of compute."""
    rank = analyze_once(EXAMPLE).ranks[0]
    works = [(one, 0) for one in (GEMM, ATTENTION, ELEMENTWISE)]
    works = [(one, sum(each.ns for each in found.lines if each.category is one)) for one, _ in works]
    return replace(
        rank,
        speed_of_light=found,
        typical=replace(rank.typical, budget=replace(rank.typical.budget, compute=900)),
        compute=tuple(ComputeWork(one, time_ns, time_ns / 900, 1) for one, time_ns in works),
        compute_details=None,
        causes=(),
        **changes,
    )


def change(rank, **changes):
    """The rank with another ledger."""
    return replace(rank, speed_of_light=replace(rank.speed_of_light, **changes))


@pytest.mark.parametrize(
    ("fix", "precision", "removed_ns"),
    [
        pytest.param("bf16", Precision.TF32, 350 + 250 + 100, id="16 bits, and half of the bytes"),
        pytest.param("tf32", Precision.FP32, 300, id="only matrices"),
        pytest.param("fp8-blockwise", Precision.BF16, 375, id="no bytes of 16 bits"),
        pytest.param("newer-attention", Precision.BF16, 260, id="attention below peak"),
        pytest.param("fuse-elementwise", Precision.BF16, 200, id="all bytes"),
    ],
)
def test_a_bound_is_the_step_without_what_the_fix_removes(fix, precision, removed_ns):
    found = measure_most_speedup(build(precision), LIMITS[fix])

    assert found == (pytest.approx(1_000 / (1_000 - removed_ns)), True)


def hide(rank, **changes):
    """The rank without the FLOPs of its kernels."""
    unknown = [
        LedgerEntry(LedgerLine.COMPUTE_UNKNOWN, one.category, one.work_ns, proven=False)
        for one in rank.compute
    ]
    host = rank.speed_of_light.lines[-1]
    return change(rank, lines=(*unknown, host), matrices=(), **changes)


def test_a_higher_clock_gives_back_what_samples_show():
    rank = build()
    found = rank.speed_of_light
    slowed = replace(found.lines[1], explained_by=(PeakReason(BelowPeak.LOW_CLOCK, 35),))
    clocks = (SampledClock(GEMM, 10, 900, 0.9), SampledClock(ATTENTION, 10, 1_100, 1.1))
    known = replace(found, lines=(found.lines[0], slowed, *found.lines[2:]), clocks=clocks)
    unknown = replace(found, lines=(entry(LedgerLine.COMPUTE_UNKNOWN, GEMM, 400),), clocks=clocks)

    most = measure_most_speedup(replace(rank, speed_of_light=known), LIMITS["raise-clocks"])
    loose = measure_most_speedup(replace(rank, speed_of_light=unknown), LIMITS["raise-clocks"])

    assert (most.speedup, most.keeps_floor) == (pytest.approx(1000 / 965), True)
    assert (loose.speedup, loose.keeps_floor) == (pytest.approx(1000 / 960), False)
    assert measure_most_speedup(rank, LIMITS["raise-clocks"]) is None


def test_kernels_of_unknown_flops_take_no_time_in_a_bound():
    rank = hide(build())
    works = (
        CategoryPrecision(GEMM, Precision.TF32, 400, 0.4, 1),
        CategoryPrecision(ATTENTION, Precision.TF32, 100, 0.1, 1),
        CategoryPrecision(ATTENTION, Precision.BF16, 200, 0.2, 1),
    )
    details = replace(analyze_once(EXAMPLE).ranks[0].compute_details, category_precisions=works)
    rank = replace(rank, compute_details=details)

    assert measure_most_speedup(rank, LIMITS["bf16"]) == (pytest.approx(1_000 / (1_000 - 500 - 100)), False)
    assert measure_most_speedup(rank, LIMITS["newer-attention"]) == (pytest.approx(1_000 / 700), False)
    no_peak = change(rank, peak=None)
    assert measure_most_speedup(no_peak, LIMITS["bf16"]) == (pytest.approx(1_000 / 400), False)
    assert measure_most_speedup(rank, LIMITS["convolution-tuning"]) is None
    assert measure_most_speedup(replace(rank, speed_of_light=None), LIMITS["bf16"]) is None


def test_flops_of_the_user_bound_a_precision_and_the_time_of_a_category():
    rank = build()
    found = rank.speed_of_light
    one = replace(found.matrices[0], category=None, ns=700, executed_flops=None)
    lines = (
        entry(LedgerLine.IDEAL_MATH, None, 90),
        entry(LedgerLine.BELOW_PEAK, None, 610),
        entry(LedgerLine.COMPUTE_UNKNOWN, ELEMENTWISE, 200),
        entry(LedgerLine.HOST, None, 100),
    )
    rank = change(rank, matrices=(one,), lines=lines)

    assert measure_most_speedup(rank, LIMITS["bf16"]).speedup == pytest.approx(1_000 / (1_000 - 650 - 100))
    assert measure_most_speedup(rank, LIMITS["newer-attention"]).speedup == pytest.approx(1_000 / 700)


def test_waiting_for_peers_and_launches_shrink_too_and_so_do_recomputed_kernels():
    rank = build()
    lines = rank.speed_of_light.lines[:-1]
    waits = entry(LedgerLine.EXPOSED_COMMUNICATION, None, 100)
    waiting = change(rank, lines=(*lines, waits))
    removed = 200 + 100 * 200 / 900
    assert measure_most_speedup(waiting, LIMITS["fuse-elementwise"]).speedup == pytest.approx(
        1_000 / (1_000 - removed)
    )

    gaps = change(rank, lines=(*lines, entry(LedgerLine.HAND_OVER, None, 100)))
    assert measure_most_speedup(gaps, LIMITS["fuse-elementwise"]).speedup == pytest.approx(1_000 / 700)
    assert measure_most_speedup(gaps, LIMITS["fewer-kernels"]).speedup == pytest.approx(1_000 / 900)

    again = change(rank, lines=(*lines, entry(LedgerLine.RECOMPUTATION, None, 100)))
    works = [replace(one, work_ns=one.work_ns + 100 * (one.category is ATTENTION)) for one in again.compute]
    again = replace(again, compute=tuple(works))
    assert measure_most_speedup(again, LIMITS["newer-attention"]).speedup == pytest.approx(1_000 / 640)
    assert measure_most_speedup(again, LIMITS["fuse-elementwise"]).speedup == pytest.approx(1_000 / 800)


def test_each_fix_that_assumes_a_rate_of_kernels_has_a_limit():
    """Without one, its assumed speedup would be shown as an upper bound."""
    assuming = {
        rule.id
        for rule in fix_rules()
        for line in rule.replay
        if line.startswith(("--scale category:", "--scale compute/")) and not line.endswith("=0")
    }

    assert "bf16" in assuming
    assert assuming <= set(LIMITS) <= {rule.id for rule in fix_rules()}


@pytest.mark.parametrize(
    ("expected", "most", "has_floor", "worth", "other"),
    [
        (3.05, 9.0, True, "at most 9.00x", "about 3.05x at the rates that libraries reach"),
        (3.05, 7.5, False, "about 3.05x", "FLOPs are unknown: at most 7.50x"),
        (3.05, 23.7, False, "about 3.05x", "FLOPs are unknown: no bound below 20x"),
        (1.2, 1.2, True, "at most 1.20x", ""),
        (
            None,
            1.2,
            False,
            "at most 1.20x",
            "FLOPs are unknown, so this assumes that these kernels take no time and nothing replaces them",
        ),
        (None, 1.2, True, "at most 1.20x", ""),
        (1.2, None, None, "up to 1.20x", ""),
    ],
)
def test_an_estimate_is_never_called_a_bound(expected, most, has_floor, worth, other):
    fix = next(one for one in analyze_once(EXAMPLE).fixes)
    fix = replace(fix, speedup_ceiling=expected, most_speedup=most, keeps_floor=has_floor)

    assert (write_worth(fix), describe_expectation(fix)) == (worth, other)


MADE = [
    ("nersc_sc21_baseline", "data-workers", 719.6 / 209.9),
    ("nersc_sc21_8workers", "gpu-data-pipeline", 209.9 / 166.8),
    ("nersc_sc21_dali", "bf16", 166.8 / 126.1),
    ("nersc_sc22_4gpu_base", "gradient-bucket-views", 30.57 / 29.98),
    ("nersc_sc23_dali", "bf16", 1195.4 / 367.9),
    ("nersc_sc23_dali_bf16", "fuse-elementwise", 367.9 / 364.5),
]
"""Captures, the fix that was then made, and how many times as fast the next capture is."""


@pytest.mark.parametrize("with_flops", [False, True])
@pytest.mark.parametrize(("name", "made", "gain"), MADE)
@pytest.mark.skipif(not TRUTH.is_file(), reason="no measured gains here: ../shared is absent")
def test_no_bound_is_below_a_measured_gain(name, made, gain, with_flops, tmp_path):
    path = tmp_path / "config.json"
    path.write_text(json.dumps(CONFIGURATIONS.get(name, {})), encoding="utf-8")
    if with_flops and name not in CONFIGURATIONS:
        pytest.skip("no FLOPs are known of this capture")
    options = Options(configuration=path if with_flops else None)
    answer = analyze(SHARED / "traces" / f"{name}.sqlite", options, lambda _: None)
    fix = next(one for one in answer.fixes if one.id == made)
    bound = fix.speedup_ceiling if fix.most_speedup is None else fix.most_speedup

    assert bound >= gain
    assert write_worth(fix).startswith("about") is (fix.keeps_floor is False)
    if (name, with_flops) == ("nersc_sc23_dali", True):
        assert bound == pytest.approx(9.04, rel=0.02)
        assert describe_expectation(fix).startswith("about 3.0")
