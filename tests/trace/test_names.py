import polars as pl
import pytest

from wallscope.trace.names import normalize_names


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("aten::add, op_id = 314359", "aten::add"),
        ("aten::mm, op_id = 3, sizes = [[2, 3], [3]], input_op_ids = [(1,0)]", "aten::mm"),
        ("{'mod': 'torch.nn.functional', 'op': 'conv2d', 'args': []}", "torch.nn.functional.conv2d"),
        ("autograd::engine::evaluate_function: AddmmBackward0, seq = 77", None),
        (
            "megatron.bridge.training.train.train.training_step_12",
            "megatron.bridge.training.train.train.training_step_#",
        ),
        ("layer_12f-layer_3b", "layer_#f-layer_#b"),
        ("layer_7f", "layer_#f"),
        ("step 3", "step #"),
        ("ProfilerStep#14", "ProfilerStep#"),
        ("Iteration: 5", "Iteration: #"),
        ("microbatch 3 forward", "microbatch # forward"),
        ("FSDP::pre_forward (blocks.11.mlp)", "FSDP::pre_forward (blocks.#.mlp)"),
        ("conv2d", "conv2d"),
        ("AddmmBackward0", "AddmmBackward0"),
        ("fp8_gemm", "fp8_gemm"),
        ("nvte_cublas_gemm_v2", "nvte_cublas_gemm_v2"),
        ("sm90_xmma", "sm90_xmma"),
        ("moe_dispatch forward", "moe_dispatch forward"),
        ("", ""),
    ],
    ids=lambda value: str(value)[:40],
)
def test_running_numbers_are_folded_and_names_of_kinds_stay(text, expected):
    if expected is None:
        expected = "autograd::engine::evaluate_function: AddmmBackward0"

    assert normalize_names(pl.Series([text])).to_list() == [expected]


def test_folding_what_is_folded_changes_nothing():
    once = normalize_names(pl.Series(["step 3", "layer_7f", "a.11.b.12", "x 3 4 5", "h=0x7fff"]))

    assert normalize_names(once).to_list() == once.to_list()
