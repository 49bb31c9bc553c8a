"""Attention in separate kernels, by the ranges that name it or by the operators of PyTorch."""

import pytest

from fixtures.export import ExportWriter
from wallscope.model.capture import Options
from wallscope.pipeline import analyze

PRODUCT, SCALE = "ampere_sgemm_128x64_tn", "void at::native::vectorized_elementwise_kernel<4, float>(x)"
MASK, SUM = (
    "void at::native::elementwise_kernel<128, 2>(x)",
    "void at::native::reduce_kernel<512, 1, float>(x)",
)
FUSED = "fmha_cutlassF_f32_aligned_64x64_rf_sm80"
CORE = "scaled dot product attention"
STEPS = 8


def found(path, layer):
    """The finding on steps of a layer: kernels, each with its length in microseconds and its ranges."""
    with ExportWriter(path) as writer:
        writer.gpu()
        at_ns = 0
        for step in range(STEPS):
            begin_ns = at_ns
            for kernel, length_us, *ranges in layer:
                for depth, text in enumerate(ranges):
                    writer.range(text, at_ns + 1 + depth, at_ns + 90 - depth)
                number = writer.call("cudaLaunchKernel", at_ns + 10, at_ns + 20)
                writer.kernel(kernel, at_ns + 100, at_ns + 100 + length_us * 1_000, correlation=number)
                at_ns += 200 + length_us * 1_000
            writer.range(f"step {step}", begin_ns, at_ns - 1)
    (rank,) = analyze(path, Options(), lambda _: None).ranks
    return rank.compute_details.unfused_attention


def test_what_is_between_the_products_is_counted(tmp_path):
    layer = [
        (PRODUCT, 50),
        (PRODUCT, 20, CORE, "scores"),
        (SCALE, 7, CORE),
        (MASK, 5, CORE, "mask"),
        (SUM, 3, CORE),
        (PRODUCT, 10, CORE),
        (SCALE, 30, "mlp"),
    ]

    told = found(tmp_path / "run.sqlite", layer)

    assert (told.product_ns, told.between_ns, told.between_kernels) == (30_000, 15_000, 3)
    assert {str(one.category): one.work_ns for one in told.between} == {
        "elementwise": 12_000,
        "reduction": 3_000,
    }
    assert CORE in told.ranges


def test_a_softmax_next_to_scores_of_attention_belongs_to_it(tmp_path):
    layer = [(PRODUCT, 20, "attention scores"), (SUM, 3, "softmax"), (SCALE, 30, "mlp")]

    assert found(tmp_path / "run.sqlite", layer).between_ns == 3_000


BMM, SOFTMAX = ("aten::matmul", "aten::bmm"), ("aten::softmax", "aten::_softmax")


def test_a_softmax_between_batched_products_is_attention(tmp_path):
    layer = [
        (SCALE, 9, "aten::layer_norm"),
        (PRODUCT, 20, *BMM),
        (SCALE, 7, "aten::mul"),
        (SUM, 5, *SOFTMAX),
        (MASK, 4, "aten::contiguous", "aten::clone", "aten::copy_"),
        (PRODUCT, 10, *BMM),
        (SCALE, 30, "aten::gelu"),
        (PRODUCT, 40, "aten::addmm"),
    ]

    told = found(tmp_path / "run.sqlite", layer)

    assert (told.product_ns, told.between_ns, told.between_kernels) == (30_000, 12_000, 2)
    assert {str(one.category): one.work_ns for one in told.between} == {
        "elementwise": 7_000,
        "reduction": 5_000,
    }


@pytest.mark.parametrize(
    "layer",
    [
        pytest.param([(PRODUCT, 9, "aten::mm"), (SUM, 5, *SOFTMAX), (PRODUCT, 9, *BMM)], id="a router"),
        pytest.param(
            [(PRODUCT, 9, *BMM), (SUM, 5, *SOFTMAX), (PRODUCT, 9, "aten::mm")], id="no second batch"
        ),
        pytest.param([(PRODUCT, 9, *BMM), (SCALE, 5, "aten::relu"), (PRODUCT, 9, *BMM)], id="no softmax"),
        pytest.param(
            [(PRODUCT, 9, *BMM), (SUM, 5, *SOFTMAX), *[(SCALE, 1, "aten::add")] * 9, (PRODUCT, 9, *BMM)],
            id="a product far away",
        ),
    ],
)
def test_other_operators_are_no_attention(tmp_path, layer):
    closed = [
        (PRODUCT, 50, "aten::mm"),
        *layer,
        (PRODUCT, 50, "aten::mm"),
    ]  # the step before is no part of it
    assert found(tmp_path / "run.sqlite", closed) is None


@pytest.mark.parametrize(
    "layer",
    [
        pytest.param([(PRODUCT, 20, "mlp"), (SCALE, 7, "mlp")], id="no attention"),
        pytest.param([(PRODUCT, 20, CORE), (FUSED, 70, CORE), (SCALE, 5, CORE)], id="a fused kernel"),
        pytest.param([(SCALE, 20, CORE), (PRODUCT, 70)], id="no product"),
        pytest.param([(PRODUCT, 20, "logits"), (SUM, 7, "softmax")], id="a softmax of the loss"),
    ],
)
def test_other_ranges_hold_no_unfused_attention(tmp_path, layer):
    assert found(tmp_path / "run.sqlite", layer) is None
