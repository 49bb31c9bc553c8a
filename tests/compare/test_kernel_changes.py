"""What kernels and copies show of a change, each rule with its opposite and with what it is not."""

from fractions import Fraction

import pytest

from wallscope.compare.kernel_changes import explain_kernels
from wallscope.compare.typical_steps import Key, OperationWork, TypicalStep
from wallscope.model.cause_catalogue import describe_cause, find_wall
from wallscope.model.enums import Wall


def row(category, name, cause, *ran, path="", size=None):
    """Operations of one kind: how often they run and their time per call are in `ran`."""
    return Key(path, category, name, None, None, None), cause, *ran, size


def typical(*rows, causes=()):
    owned, ran, sums = {}, {}, dict(causes)
    for key, cause, count, each_ns, size in rows:
        owned[cause, key] = count * each_ns
        sums[cause] = sums.get(cause, 0) + count * each_ns
        moved = None if size is None else Fraction(size)
        ran[key] = OperationWork(Fraction(count), Fraction(count * each_ns), None, moved)
    walls = {wall: sum(ns for cause, ns in sums.items() if find_wall(cause) == wall) for wall in Wall}
    return TypicalStep(sum(walls.values()), walls, sums, owned, ran)


CONVOLUTION = "compute/convolution"
FP32 = row("convolution", "implicit_convolveNd_sgemm<float, 3>", CONVOLUTION, 4, 100)
TF32 = row("convolution", "xmma_fprop_tf32f32", CONVOLUTION, 4, 100)
FP16 = row("convolution", "xmma_fprop_f16f16", CONVOLUTION, 4, 40)
ODD = row("convolution", "my_convolution", CONVOLUTION, 4, 40)
ADAM = [
    row("elementwise", f"mul_{number}", "compute/elementwise", 8, 5, path="step / optimizer")
    for number in range(3)
]
FUSED_ADAM = row("optimizer", "multi_tensor_apply", "compute/optimizer", 4, 20, path="step / optimizer")
EAGER = [row("elementwise", f"gelu_{number}", "compute/elementwise", 6, 5) for number in range(4)]
COMPILED = [row("elementwise", f"triton__{number}d", "compute/elementwise", 6, 4) for number in range(3)]
SCORES = [
    row("reduction", "softmax_warp_forward<float>", "compute/reduction", 6, 20),
    row("elementwise", "mul", "compute/elementwise", 6, 10),
]
FLASH = row("attention", "flash_fwd_kernel", "compute/attention", 4, 10)
FLASH_BACKWARD = row("attention", "flash_bwd_kernel", "compute/attention", 8, 10)
LOSS = row("reduction", "cunn_SoftMaxForward<LogSoftMaxForwardEpilogue>", "compute/reduction", 1, 20)
ROTATE = row("preprocessing", "dali::kernels::warp", "compute/preprocessing", 2, 10)
COPY = row("device-to-device", "", "memory/device-copy", 20, 10, size=600)
FEWER_COPIES = row("device-to-device", "", "memory/device-copy", 4, 10, size=120)
SLOWER_COPIES = row("device-to-device", "", "memory/device-copy", 20, 20, size=600)
WAITING = {"host/data-loading": 500}


def found(base, head):
    return [(entry.code, entry.delta_ns) for entry in explain_kernels(base, head)]


@pytest.mark.parametrize(
    ("base", "head", "there", "back"),
    [
        pytest.param(
            typical(FP32, TF32), typical(FP16), [("precision-changed", -640)], "precision-changed", id="AMP"
        ),
        pytest.param(
            typical(*ADAM), typical(FUSED_ADAM), [("optimizer-fused", -40)], "optimizer-split", id="optimizer"
        ),
        pytest.param(
            typical(*SCORES, LOSS),
            typical(FLASH, FLASH_BACKWARD, LOSS),
            [("attention-fused", -60)],
            "attention-split",
            id="attention",
        ),
        pytest.param(
            typical(*EAGER),
            typical(*COMPILED),
            [("compiled-kernels-new", -48)],
            "compiled-kernels-gone",
            id="compiled",
        ),
        pytest.param(
            typical(FP32, causes=WAITING),
            typical(FP32, ROTATE),
            [("gpu-preprocessing-new", -480)],
            "gpu-preprocessing-gone",
            id="preprocessing",
        ),
        pytest.param(
            typical(COPY),
            typical(FEWER_COPIES),
            [("device-to-device-fewer", -160)],
            "device-to-device-more",
            id="copies",
        ),
    ],
)
def test_a_change_of_kernels_is_recognized_in_both_directions(base, head, there, back):
    assert found(base, head) == there
    assert found(head, base) == [(back, -there[0][1])]
    assert found(base, base) == found(head, head) == []


@pytest.mark.parametrize(
    ("base", "head"),
    [
        pytest.param(typical(FP32), typical(ODD), id="a precision that no name tells"),
        pytest.param(typical(*EAGER), typical(*EAGER, COMPILED[0]), id="one kernel of Triton"),
        pytest.param(typical(*EAGER), typical(*EAGER, *COMPILED), id="compiled kernels that replace none"),
        pytest.param(typical(COPY), typical(SLOWER_COPIES), id="slower copies"),
        pytest.param(typical(FLASH), typical(FLASH, FLASH_BACKWARD), id="more attention"),
        pytest.param(typical(*SCORES), typical(SCORES[1]), id="no softmax, and no attention instead"),
        pytest.param(typical(LOSS), typical(FLASH), id="softmax of the loss"),
        pytest.param(
            typical(FUSED_ADAM), typical(FUSED_ADAM, *EAGER), id="more kernels outside the optimizer"
        ),
    ],
)
def test_what_shows_no_such_change_is_not_explained(base, head):
    assert found(base, head) == []


def test_precisions_are_named_with_the_categories_that_changed_alike():
    gemm = row("gemm", "cutlass_80_tensorop_s1688gemm", "compute/gemm", 4, 100)
    low = row("gemm", "ampere_bf16_s16816gemm_bf16", "compute/gemm", 4, 50)
    (entry,) = explain_kernels(
        typical(gemm, TF32), typical(low, row("convolution", "xmma_bf16bf16", CONVOLUTION, 4, 50))
    )

    assert entry.message == "Matrix multiplication and convolution went from tf32 to bf16"
    assert entry.causes == ("compute/gemm", CONVOLUTION)
    assert entry.delta_ns == -400


def test_input_prepared_on_the_gpu_is_said_with_what_became_of_loading():
    (entry,) = explain_kernels(typical(FP32, causes=WAITING), typical(FP32, ROTATE))

    assert entry.message == (
        f"Input is prepared on the GPU (DALI) in head only: {describe_cause('host/data-loading')} -500 ns,"
        f" {describe_cause('compute/preprocessing')} +20 ns"
    )
    assert "host/data-loading" in entry.causes
