"""Captures whose FLOPs are known: the values of an independent calculation, within its tolerances."""

import pytest

from tests.summary.speed_of_light.truth_values import TRUTH, is_met, list_values

pytestmark = pytest.mark.skipif(
    not TRUTH.is_file(), reason="no independent values here: ../shared/speed_of_light is absent"
)
VALUES = list(list_values())
_OUTPUT = "the calculation leaves out the output layer: 147 products are 3 x (12 x 4 + 1)"
_FIRST = "the calculation leaves out the convolution cutlass_cudnn_infer::Kernel of the patches"
_WHOLE = "the calculation is about the whole capture, wallscope about its steps"
_EARLIER = "kernels before the range count there, the range is longer than its kernels"
_OTHER_STEPS = "other steps are chosen: a difference of 0.1 us"
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
    ("ds_train", "window_ms"): "the step of the range is 0.4 % longer than its kernels",
    **{("tracelens_b200_eager", what): _EARLIER for what in ("window_ms", "compute_running_ms")},
    **{
        (name, what): _WHOLE
        for name, what, *_ in VALUES
        if name == "hta_sampled_rank0" and what.endswith(("time_ms", "executed_tflop"))
    },
}
"""Values that differ, and why."""


@pytest.mark.parametrize(
    ("name", "what", "value", "tolerance"), [pytest.param(*one, id=f"{one[0]}-{one[1]}") for one in VALUES]
)
def test_values_are_those_of_an_independent_calculation(name, what, value, tolerance):
    assert is_met(name, what, value, tolerance) is ((name, what) not in UNMET)
