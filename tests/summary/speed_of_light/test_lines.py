"""Small traces with operators of known FLOPs: the lines are those that a pencil gives."""

import pytest

from fixtures.torch_trace import BASE_NS, H100, TraceWriter
from wallscope.advice.measurements import is_near_peak
from wallscope.model.capture import Options
from wallscope.model.diagnosis import StepFacts
from wallscope.model.enums import Precision
from wallscope.model.speed_of_light import LedgerLine
from wallscope.pipeline import analyze
from wallscope.summary import speed_of_light
from wallscope.trace.gpu_peaks import list_peaks
from wallscope.views.light import explain_light, list_light_rows

BF16, TF32 = "nvjet_tst_128x128_64x6_1x2_h_bz_coopA_TNT", "cutlass_80_tensorop_s1688gemm_128x128_tn"
ADD = "void at::native::vectorized_elementwise_kernel<4, at::native::CUDAFunctor_add<float>>"
A100 = {"name": "NVIDIA A100-SXM4-40GB", "totalGlobalMem": 42_298_834_944, "numSms": 108}
A100 |= {"computeMajor": 8, "computeMinor": 0}
UNKNOWN = {"name": "NVIDIA of 2031", "computeMajor": 9, "computeMinor": 0}
SIZE = 4_096  # 2 * 4096**3 FLOPs take 138,911 ns at 989.4 TFLOP/s, and 277,823 ns at 494.7
FLOPS = 2 * SIZE**3
STEPS, STEP_NS = 10, 1_000_000
LINES = (
    LedgerLine.IDEAL_MATH,
    LedgerLine.PRECISION,
    LedgerLine.COMPUTED_TWICE,
    LedgerLine.EMULATED_PRECISION,
    LedgerLine.BELOW_PEAK,
)


def write_steps(path, kernels, *, gpu=H100, type_="c10::BFloat16", step_ns=STEP_NS, **shapes):
    """Steps in which one multiplication issues some kernels: (name, start, end) in ns of the step."""
    writer = TraceWriter(deviceProperties=[{"id": 0, **gpu}], baseTimeNanoseconds=BASE_NS)
    dims = {
        "Input Dims": [[SIZE, SIZE], [SIZE, SIZE]],
        "Input type": [type_, type_],
        "Concrete Inputs": ["", ""],
    }
    number = 0
    for step in range(STEPS):
        at = step * step_ns
        writer.span("user_annotation", f"ProfilerStep#{step}", at, at + step_ns)
        name = shapes.get("name", "aten::mm")
        writer.span("cpu_op", name, at + 1_000, at + 60_000, args=dims | shapes.get("args", {}))
        for place, (kernel, start, end, *stream) in enumerate(kernels):
            launched = at + 2_000 + 5_000 * place
            writer.call("cudaLaunchKernel", launched, launched + 2_000, number)
            writer.kernel(kernel, at + start, at + end, number, stream=stream[0] if stream else 7)
            number += 1
    return writer.write(path)


@pytest.fixture
def ledger(tmp_path):
    def build(kernels, *, flops=None, **more):
        path = write_steps(tmp_path / "t.json", kernels, **more)
        options = Options(step_facts=StepFacts(flops=flops))
        return analyze(path, options, lambda _: None).ranks[0].speed_of_light

    return build


def times(found, *lines):
    """The time of lines, whatever their category; `None` of lines that are not there."""
    listed = [one.line for one in found.lines]
    return [
        sum(one.ns for one in found.lines if one.line is line) if line in listed else None for line in lines
    ]


def reasons(found):
    """Category, reason and time of all that is unknown."""
    return [(one.category, each.reason, each.ns) for one in found.lines for each in one.reasons]


def test_a_product_in_16_bits_is_ideal_or_below_the_peak(ledger):
    found = ledger([(BF16, 100_000, 400_000)])

    assert times(found, *LINES) == [138_911, 0, 0, 0, 161_089]
    assert sum(one.ns for one in found.lines) == found.window_ns
    assert (found.model_flops, found.executed_flops, found.source, found.covered) == (
        FLOPS,
        FLOPS,
        "shapes",
        1,
    )
    assert found.mfu == found.hfu == found.mfu_16bit == pytest.approx(138_911 / found.window_ns, rel=1e-4)
    assert all(one.proven for one in found.lines)


def test_a_product_in_fp32_could_run_in_16_bits(ledger):
    found = ledger([(TF32, 100_000, 700_000)], type_="float")

    assert times(found, *LINES) == pytest.approx([138_911, 138_911, 0, 0, 322_178], abs=1)
    assert found.mfu == pytest.approx(2 * found.mfu_16bit, rel=1e-3)


def test_attention_in_fp32_is_emulated_by_three_products(ledger):
    dims = [[4, 8, 2_048, 64]] * 3
    args = {"Input Dims": dims, "Input type": ["float"] * 3, "Concrete Inputs": [""] * 6 + ["False"]}
    kernel = "fmha_cutlassF_f32_aligned_64x64_rf_sm80(PyTorchMemEffAttention::AttentionKernel::Params)"
    name = "aten::_scaled_dot_product_efficient_attention"
    found = ledger([(kernel, 100_000, 950_000)], gpu=A100, name=name, args=args)
    flops = 2 * 2 * 4 * 8 * 2_048 * 2_048 * 64

    assert found.executed_flops == flops
    at_tf32_ns = round(flops / 156e3)
    expected = [at_tf32_ns / 2, at_tf32_ns / 2, 0, 2 * at_tf32_ns, 850_000 - 3 * at_tf32_ns]
    assert times(found, *LINES) == pytest.approx(expected, abs=2)


@pytest.mark.parametrize(
    ("kernel", "precision", "products"),
    [
        ("cutlass_80_simt_sgemm_128x256_8x4_nn_align1", Precision.FP32, 1),
        ("cutlass_80_tensorop_3xtf32_s1688gemm_128x128_tn", Precision.TF32, 3),
        ("void cutlass::Kernel<sgemm<cutlass::arch::OpMultiplyAddFastF32>>", Precision.TF32, 3),
        ("cublasLt_bf16x9_sgemm_128x128", Precision.BF16, 9),
    ],
)
def test_products_that_emulate_fp32_are_shown_by_names(kernel, precision, products, ledger):
    found = ledger([(kernel, 100_000, 9_900_000)], gpu=A100, type_="float", step_ns=12_000_000)

    (one,) = found.matrices
    assert (one.precision, one.products) == (precision, products)
    rate = found.peak.find_rate(precision)
    assert one.peak_share == pytest.approx(FLOPS * products / rate / 9.8e-3, rel=1e-4)
    assert found.total(LedgerLine.EMULATED_PRECISION) == pytest.approx(
        FLOPS * (products - 1) / rate * 1e9, abs=2
    )


@pytest.mark.parametrize(
    ("end_ns", "step_ns", "is_near"),
    [
        pytest.param(250_000, 200_000, True, id="by the peak"),
        pytest.param(280_000, 250_000, True, id="by the best measured rate"),
        pytest.param(310_000, 250_000, False, id="slower than that"),
        pytest.param(280_000, 320_000, False, id="less than most of the step"),
    ],
)
def test_near_the_peak_is_what_libraries_were_measured_to_reach(end_ns, step_ns, is_near, ledger):
    """The best measured rate of an H100 takes 173 us, its peak 139."""
    found = ledger([(BF16, 100_000, end_ns)], step_ns=step_ns)
    (row,) = [one for one in list_light_rows(found, 0.0) if one.name == "gemm below peak"]

    assert is_near_peak(found) is is_near
    assert "best measured 80.3 %" in row.note
    assert ("near what the hardware reaches" in " ".join(explain_light(found))) is is_near


def test_gradients_of_attention_compute_the_scores_again(ledger):
    dims = [[4, 16, 2_048, 64]] * 6
    types, values = ["c10::BFloat16"] * 6, [""] * 11 + ["False"]
    args = {"Input Dims": dims, "Input type": types, "Concrete Inputs": values}
    name = "aten::_scaled_dot_product_flash_attention_backward"
    kernel = "void pytorch_flash::flash_bwd_dq_dk_dv_loop_seqk_parallel_kernel<cutlass::bfloat16_t>"
    found = ledger([(kernel, 100_000, 900_000)], name=name, args=args)
    product_ns = 2 * 4 * 16 * 2_048 * 2_048 * 64 / 989.4e3

    assert (5 * found.model_flops, found.mfu < found.hfu) == (4 * found.executed_flops, True)
    assert times(found, *LINES[:3]) == pytest.approx([4 * product_ns, 0, product_ns], abs=2)


def test_kernels_that_run_at_once_share_the_time(ledger):
    found = ledger([(BF16, 100_000, 500_000, 7), (ADD, 300_000, 500_000, 8)])

    assert sum(times(found, *LINES)) == 300_000
    assert reasons(found) == [("elementwise", "bytes-unknown", 100_000)]


def test_more_flops_than_the_gpu_can_do_are_no_line(ledger):
    found = ledger([(BF16, 100_000, 200_000)])

    assert times(found, *LINES) == [None] * 5
    assert reasons(found) == [("gemm", "impossible-flops", 100_000)]
    assert found.mfu is found.hfu is found.mfu_16bit is found.model_flops_per_s is None


def test_a_clock_above_that_of_the_data_sheet_leaves_the_loss_unknown(ledger):
    found = ledger([(BF16, 100_000, 232_000)])

    assert reasons(found) == [("gemm", "above-peak", 132_000)]
    assert found.mfu == pytest.approx(138_911 / found.window_ns, rel=1e-4)


@pytest.mark.parametrize(
    ("more", "reason"),
    [
        pytest.param({"gpu": UNKNOWN}, "peak-unknown", id="of the GPU"),
        pytest.param({"type_": "double"}, "peak-unknown", id="of the precision"),
    ],
)
def test_without_a_peak_no_share_is_told(ledger, more, reason):
    found = ledger([(BF16, 100_000, 400_000)], **more)

    assert times(found, *LINES) == [None] * 5
    assert reasons(found) == [("gemm", reason, 300_000)]
    assert found.mfu is found.hfu is None
    assert found.model_flops_per_s == pytest.approx(FLOPS * 1e9 / found.window_ns)


def test_a_name_without_a_precision_leaves_that_of_fp32_open(ledger):
    found = ledger([("my_gemm_kernel", 100_000, 400_000)], type_="float")

    assert reasons(found) == [("gemm", "precision-unknown", 300_000)]


def test_flops_of_the_user_are_those_of_all_kernels_that_multiply(ledger):
    found = ledger([(BF16, 100_000, 400_000)], flops=2e11, args={"Input Dims": [[], []]})

    assert (found.source, found.model_flops, found.executed_flops, found.covered) == (
        "user",
        2e11,
        None,
        None,
    )
    assert found.mfu == found.mfu_16bit == pytest.approx(2e11 / 989.4e12 / (found.window_ns / 1e9))
    assert found.hfu is None
    assert times(found, *LINES) == pytest.approx([202_143, 0, None, None, 97_857], abs=1)
    assert {one.category for one in found.lines if one.line in LINES} == {None}
    assert reasons(found) == []


def test_more_flops_of_the_user_than_the_gpu_can_do_are_no_line(ledger):
    found = ledger([(BF16, 100_000, 400_000)], flops=2e12, args={"Input Dims": [[], []]})

    assert times(found, *LINES) == [None] * 5
    assert reasons(found) == [(None, "impossible-flops", 300_000)]


def test_batches_of_matrices_leave_the_flops_of_the_model_unknown(ledger):
    args = {"Input Dims": [[1, SIZE, SIZE], [1, SIZE, SIZE]]}
    found = ledger([(BF16, 100_000, 400_000)], name="aten::bmm", args=args)

    assert (found.model_flops, found.executed_flops, found.mfu, found.mfu_16bit) == (None, FLOPS, None, None)
    assert found.hfu == pytest.approx(138_911 / found.window_ns, rel=1e-4)


def test_twice_the_peak_takes_half_of_what_is_at_the_peak(ledger, monkeypatch):
    kernels = [(TF32, 100_000, 700_000)]
    once = ledger(kernels, type_="float")

    def double(gpu):
        found = list_peaks(gpu)
        rates = tuple(type(one)(one.precision, 2 * one.flops_per_s) for one in found.rates)
        return type(found)(found.gpu, rates, found.source, found.is_derived)

    monkeypatch.setattr(speed_of_light, "list_peaks", double)
    twice = ledger(kernels, type_="float")

    assert times(twice, *LINES[:3]) == pytest.approx([half / 2 for half in times(once, *LINES[:3])], abs=1)
    assert sum(times(twice, *LINES)) == sum(times(once, *LINES)) == 600_000


def test_a_kernel_in_two_halves_changes_nothing(ledger):
    whole = ledger([(BF16, 100_000, 400_000)])
    halves = ledger([(BF16, 100_000, 250_000), (BF16, 250_000, 400_000)])

    assert halves == whole


def test_longer_idle_time_changes_the_line_of_the_host_alone(ledger):
    kernels, more_ns = [(BF16, 100_000, 400_000), (ADD, 400_000, 500_000)], 1_000_000
    short, long = ledger(kernels), ledger(kernels, step_ns=STEP_NS + more_ns)
    own, other = ({(one.line, one.category): one.ns for one in each.lines} for each in (short, long))

    assert long.window_ns == short.window_ns + more_ns
    assert {key: other[key] - own[key] for key in own if other[key] != own[key]} == {
        (LedgerLine.HOST, None): more_ns
    }
    assert own.keys() == other.keys()
    assert long.matrices == short.matrices
