"""Kernels that multiply and whose FLOPs are unknown: their peaks, and what names and grids show."""

import pytest

from fixtures.torch_trace import BASE_NS, H100, TraceWriter
from tests.summary.speed_of_light.test_lines import A100, BF16, STEP_NS, STEPS, UNKNOWN
from wallscope.model.capture import Options
from wallscope.model.enums import ComputeCategory, Precision
from wallscope.model.speed_of_light import BelowPeak
from wallscope.pipeline import analyze
from wallscope.views.light import explain_light

GEMM, ATTENTION = ComputeCategory.GEMM, ComputeCategory.ATTENTION
FP8 = "void cutlass::device_kernel<dpsk::grouped_gemm::cuda::fp8_ptp128c::GemmKernel<(int)112>>"
FLASH_2 = "void flash_fwd_kernel<Flash_fwd_kernel_traits<128, 128, 64, 4, cutlass::bfloat16_t>>"
CONVOLUTION = "sm80_xmma_fprop_implicit_gemm_indexed_tf32f32_tf32f32_f32_nhwckrsc_nchw_tilesize128x128x16"
EMULATED = "fmha_cutlassF_f32_aligned_64x64_rf_sm80(PyTorchMemEffAttention::AttentionKernel::Params)"


@pytest.fixture
def ledger(tmp_path):
    def build(kernels, gpu=H100):
        """The ledger of steps with some kernels: (name, start and end in ns of the step, blocks)."""
        writer = TraceWriter(deviceProperties=[{"id": 0, **gpu}], baseTimeNanoseconds=BASE_NS)
        number = 0
        for step in range(STEPS):
            at = step * STEP_NS
            writer.span("user_annotation", f"ProfilerStep#{step}", at, at + STEP_NS)
            for place, (name, start, end, blocks) in enumerate(kernels):
                launched = at + 2_000 + 5_000 * place
                writer.call("cudaLaunchKernel", launched, launched + 2_000, number)
                writer.kernel(name, at + start, at + end, number, grid=[blocks, 1, 1])
                number += 1
        path = writer.write(tmp_path / "t.json")
        return analyze(path, Options(), lambda _: None).ranks[0].speed_of_light

    return build


def test_each_precision_has_its_peak_and_what_slows_it(ledger):
    found = ledger([(FP8, 100_000, 500_000, 112), (FLASH_2, 500_000, 700_000, 1_320)])

    assert [(one.category, one.precision, one.work_ns, one.reasons) for one in found.uncounted] == [
        (GEMM, Precision.FP8, 400_000, (BelowPeak.UNFILLED_GPU, BelowPeak.FINE_ACCUMULATION)),
        (ATTENTION, Precision.BF16, 200_000, (BelowPeak.OLD_KERNELS,)),
    ]
    assert [one.peak_flops_per_s for one in found.uncounted] == [1978.9e12, 989.4e12]
    _, matrices, slow = explain_light(found)
    assert matrices == (
        "Matrix kernels take 60.0 % of the step; 66.7 % of their time is in FP8 (peak 1,978.9 TFLOP/s) and"
        " 33.3 % in BF16 (peak 989.4 TFLOP/s)."
    )
    assert slow == (
        "Kernel names and grid sizes suggest why these kernels are slow:"
        " fewer thread blocks than SMs, FP8 with block-wise"
        " scales, kernels made for an older GPU."
    )


def test_emulated_products_have_a_third_of_the_peak(ledger):
    (one,) = ledger([(EMULATED, 100_000, 900_000, 1_080)], A100).uncounted

    assert (one.precision, one.products, one.peak_flops_per_s) == (Precision.TF32, 3, 52e12)


@pytest.mark.parametrize(
    ("name", "asked"), [(BF16, "--config or --flops-per-step"), (CONVOLUTION, "--flops-per-step")]
)
def test_a_configuration_is_not_asked_for_convolutions(name, asked, ledger):
    first, *_ = explain_light(ledger([(name, 100_000, 900_000, 132)]))

    assert first == f"To see the share of the GPU's peak, pass {asked}."


@pytest.mark.parametrize(
    ("blocks", "reasons"),
    [
        (132, ()),
        (264, ()),
        (140, (BelowPeak.LAST_WAVE,)),
        (1_400, ()),
        (100, (BelowPeak.UNFILLED_GPU,)),
        (120, ()),
    ],
)
def test_blocks_that_are_no_multiple_of_the_multiprocessors_leave_some_idle(blocks, reasons, ledger):
    (one,) = ledger([(BF16, 100_000, 900_000, blocks)]).uncounted

    assert one.reasons == reasons


def test_without_a_peak_or_with_little_of_it_nothing_is_compared(ledger):
    unknown, small = (
        ledger([(BF16, 100_000, 900_000, 132)], UNKNOWN),
        ledger([(BF16, 100_000, 150_000, 132)]),
    )

    assert [one.peak_flops_per_s for one in unknown.uncounted] == [None]
    assert "Matrix kernels take 80.0 % of the step, all of it in BF16." in list(explain_light(unknown))
    assert not any("Matrix" in one for one in explain_light(small))
