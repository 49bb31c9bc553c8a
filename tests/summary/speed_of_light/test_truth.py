"""Captures whose FLOPs are known: the values of an independent calculation, within its tolerances."""

import gzip
import json
import sqlite3
from contextlib import closing
from statistics import mean

import pytest

from tests.summary.speed_of_light.truth_values import (
    GEMM,
    SHARED,
    TRUTH,
    find_rank,
    is_met,
    list_values,
)
from wallscope.model.enums import Precision

pytestmark = pytest.mark.skipif(
    not TRUTH.is_file(), reason="no independent values here: ../shared/speed_of_light is absent"
)
VALUES = list(list_values())
_OUTPUT = "the calculation leaves out the output layer: 147 products are 3 x (12 x 4 + 1)"
_FIRST = "the calculation leaves out the convolution cutlass_cudnn_infer::Kernel of the patches"
_DEVICE = "the calculation is from the first device operation to the last, the range is longer"
_REDUCTION = "the calculation takes multimem_all_reduce_kernel for compute"
_OTHER_STEPS = "the calculation is about the mean of all steps, wallscope about typical ones: 0.1 us less"
_OF_VIT = ("model_tflop", "executed_tflop", "ideal_16bit_ms")
UNMET = {
    **{
        ("nersc_sc23_dali", what): _OUTPUT for what in (*_OF_VIT, "mfu", "mfu_16bit", "achieved_model_tflops")
    },
    **{
        ("nersc_sc23_dali", f"gemm.{what}"): _OUTPUT
        for what in ("achieved_tflops", "peak_share", "below_peak_ms")
    },
    **{(f"nersc_sc23_dali_bf16{more}", what): _OUTPUT for more in ("", "_fused_jit") for what in _OF_VIT},
    **{(f"nersc_sc23_dali_bf16{more}", "gemm.time_ms"): _FIRST for more in ("", "_fused_jit")},
    ("cs336_zx_2.7B_compile_graph", "compute_running_ms"): _OTHER_STEPS,
    ("tracelens_b200_eager", "window_ms"): _DEVICE,
    ("tracelens_b200_eager", "compute_running_ms"): _REDUCTION,
}
"""Values that differ, and why."""


@pytest.mark.parametrize(
    ("name", "what", "value", "tolerance"), [pytest.param(*one, id=f"{one[0]}-{one[1]}") for one in VALUES]
)
def test_values_are_those_of_an_independent_calculation(name, what, value, tolerance):
    assert is_met(name, what, value, tolerance) is ((name, what) not in UNMET)


OUTPUT_FLOPS = 3 * 2 * 16 * 4_050 * 384 * (8 * 8 * 20)
"""Of the output layer of the vision transformer in a step: 16 images of 4,050 patches."""
_FP32 = "nersc_sc23_dali"
VISION = [one for one in VALUES if (one[0], one[1]) in UNMET and one[0].startswith(_FP32)]


def measure_convolution(name):
    """The mean ns of the convolution of the patches, of which each step has one."""
    with (
        closing(sqlite3.connect(f"file:{SHARED / 'traces' / name}.sqlite?mode=ro", uri=True)) as export,
        export,
    ):
        return export.execute(
            "SELECT coalesce(avg(k.end - k.start), 0) FROM CUPTI_ACTIVITY_KIND_KERNEL k JOIN StringIds s"
            " ON s.id = k.demangledName WHERE s.value LIKE '%cutlass_cudnn_infer::Kernel%'"
        ).fetchone()[0]


def measure_without_output(name, what):
    """A value without the output layer, and without the convolution that the calculation takes for none."""
    found = find_rank(name).speed_of_light
    model, executed = found.model_flops - OUTPUT_FLOPS, found.executed_flops - OUTPUT_FLOPS
    matrices = next(one for one in found.matrices if one.category is GEMM)
    window_s, gemm_s = found.window_ns / 1e9, matrices.ns / 1e9
    rate = found.peak.find_rate(matrices.precision)
    sixteen = found.peak.find_rate(Precision.BF16)
    rate_in_gemm = (matrices.executed_flops - OUTPUT_FLOPS) / gemm_s
    return {
        "model_tflop": model / 1e12,
        "executed_tflop": executed / 1e12,
        "ideal_16bit_ms": model / sixteen * 1e3,
        "mfu": model / rate / window_s,
        "mfu_16bit": model / sixteen / window_s,
        "achieved_model_tflops": model / window_s / 1e12,
        "gemm.achieved_tflops": rate_in_gemm / 1e12,
        "gemm.peak_share": rate_in_gemm / rate,
        "gemm.below_peak_ms": gemm_s * (1 - rate_in_gemm / rate) * 1e3,
        "gemm.time_ms": gemm_s * 1e3 - measure_convolution(name) / 1e6,
    }[what]


@pytest.mark.parametrize(
    ("name", "what", "value", "tolerance"), [pytest.param(*one, id=f"{one[0]}-{one[1]}") for one in VISION]
)
def test_what_the_calculation_leaves_out_is_the_whole_difference(name, what, value, tolerance):
    assert measure_without_output(name, what) == pytest.approx(value, rel=tolerance)


def test_the_calculation_takes_the_mean_of_all_steps():
    (value,) = [one[2] for one in VALUES if one[1] == "compute_running_ms" and one[0].endswith("e_graph")]
    steps = find_rank("cs336_zx_2.7B_compile_graph").steps

    assert mean(one.budget.compute for one in steps if one.steady) / 1e6 == pytest.approx(value, rel=1e-4)


RANGE = "tracelens_b200_eager"


def read_device_operations():
    """Name, start and end in us of all kernels, copies and fills of the trace of a range."""
    with gzip.open(SHARED / "traces" / "kineto" / f"{RANGE}.json.gz") as trace:
        events = json.load(trace)["traceEvents"]
    kinds = {"kernel", "gpu_memcpy", "gpu_memset"}
    return [(one["name"], one["ts"], one["ts"] + one["dur"]) for one in events if one.get("cat") in kinds]


def find_value(what):
    return next(
        (value, tolerance) for name, told, value, tolerance in VALUES if (name, told) == (RANGE, what)
    )


def test_a_range_is_longer_than_its_device_operations():
    value, tolerance = find_value("window_ms")
    operations = read_device_operations()
    device_us = max(one[2] for one in operations) - min(one[1] for one in operations)

    assert device_us / 1e3 == pytest.approx(value, rel=tolerance)
    assert find_rank(RANGE).speed_of_light.window_ns > 1e3 * device_us


def test_a_reduction_by_symmetric_memory_is_communication():
    value, tolerance = find_value("compute_running_ms")
    reduced_us = sum(end - start for name, start, end in read_device_operations() if "multimem" in name)
    computed_ms = find_rank(RANGE).typical.budget.compute / 1e6

    assert computed_ms + reduced_us / 1e3 == pytest.approx(value, rel=tolerance)
