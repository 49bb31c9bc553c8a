"""The multiplications of models by their configuration: published FLOPs, and sums over all ranks of a job."""

import itertools
import json
from fractions import Fraction

import pytest

from wallscope.advice.configuration import read_configuration
from wallscope.advice.model_work import PlannedRun, count_token_flops, describes_model, read_run
from wallscope.model.enums import ComputeCategory
from wallscope.model.planned_work import PlanMismatch

DENSE = {"swiglu": True, "global_batch_size": 64, "micro_batch_size": 1, "world_size": 64}
LATENT = {
    "multi_latent_attention": True,
    "q_lora_rank": 1536,
    "kv_lora_rank": 512,
    "qk_head_dim": 128,
    "qk_pos_emb_head_dim": 64,
    "v_head_dim": 128,
}
DEEPSEEK = {
    "num_layers": 61,
    "hidden_size": 7168,
    "num_attention_heads": 128,
    "vocab_size": 129_280,
    "ffn_hidden_size": 18_432,
    "num_moe_experts": 256,
    "moe_router_topk": 8,
    "moe_ffn_hidden_size": 2048,
    "moe_shared_expert_intermediate_size": 2048,
    "moe_layer_freq": "([0]*3+[1]*58)",
    "seq_length": 4096,
    **LATENT,
}


SIZES = (
    "hidden_size",
    "num_layers",
    "num_attention_heads",
    "vocab_size",
    "seq_length",
    "num_query_groups",
)


def size(*numbers, **more):
    """Settings of a model: its sizes in this order, the last one if queries share keys."""
    return dict(zip(SIZES, numbers, strict=False)) | more


MODELS = {
    "GPT-3 175B": (size(12_288, 96, 96, 51_200, 2048, swiglu=False), 1061.947),
    "Llama 3 8B": (size(4096, 32, 32, 128_256, 8192, 8, ffn_hidden_size=14_336), 51.4704),
    "Llama 3 70B": (size(8192, 80, 64, 128_256, 8192, 8, ffn_hidden_size=28_672), 449.2225),
    "Llama 3.1 405B": (size(16_384, 126, 128, 128_256, 8192, 8, ffn_hidden_size=53_248), 2523.956),
    "Mixtral 8x7B": (
        size(4096, 32, 32, 32_000, 4096, 8, num_moe_experts=8, moe_router_topk=2, ffn_hidden_size=14_336),
        79.70646,
    ),
    "DeepSeek-V3": (DEEPSEEK, 249.8121),
    "DeepSeek-V3 with prediction": ({**DEEPSEEK, "mtp_num_layers": 1}, 259.993),
    "Qwen3 30B": (
        size(
            *(2048, 48, 32, 151_936, 4096, 4),
            kv_channels=128,
            num_moe_experts=128,
            moe_router_topk=8,
            moe_ffn_hidden_size=768,
        ),
        23.00628,
    ),
    "Qwen3 235B": (
        size(
            *(4096, 94, 64, 151_936, 4096, 4),
            kv_channels=128,
            num_moe_experts=128,
            moe_router_topk=8,
            moe_ffn_hidden_size=1536,
        ),
        148.0348,
    ),
}
"""Settings, and GFLOP of a token in training by the formula of Megatron-LM."""
WINDOWED = size(
    *(2880, 36, 64, 201_088, 4096, 8),
    kv_channels=64,
    num_moe_experts=128,
    moe_router_topk=4,
    moe_ffn_hidden_size=2880,
    window_size=[127, 0],
    window_attn_skip_freq=2,
)


@pytest.fixture
def run_of(tmp_path):
    def read(settings, gpus=None):
        path = tmp_path / "run.yaml"
        path.write_text(json.dumps({"model": {**DENSE, **settings}}), encoding="utf-8")
        return read_run(path, read_configuration(path), gpus)

    return read


@pytest.mark.parametrize("name", MODELS)
def test_flops_of_a_token_are_those_of_megatron_lm(name, run_of):
    settings, expected = MODELS[name]
    run = run_of(settings)

    assert float(count_token_flops(run.sizes, run.sequence)) / 1e9 == pytest.approx(expected, rel=5e-4)


def test_a_window_leaves_out_the_keys_before_it(run_of):
    """NVIDIA publishes 1,077 model TFLOP/s with 33,024 tokens/s of GPT-OSS 120B, on one GPU."""
    run = run_of(WINDOWED)

    assert float(count_token_flops(run.sizes, run.sequence)) == pytest.approx(1077e12 / 33_024, rel=6e-3)


@pytest.mark.parametrize(
    ("settings", "published"),
    [
        ({**DEEPSEEK, "mtp_num_layers": 1}, 1635e12 / 6288),
        (MODELS["Llama 3.1 405B"][0], 2646e12 / 1048),
        (MODELS["Qwen3 30B"][0], 1029e12 / 44_544),
        (MODELS["Qwen3 235B"][0], 1306e12 / 8816),
    ],
)
def test_flops_of_a_token_are_those_that_nvidia_publishes(settings, published, run_of):
    run = run_of(settings)

    assert float(count_token_flops(run.sizes, run.sequence)) == pytest.approx(published, rel=6e-3)


GRID = [
    {"tensor_model_parallel_size": tensor, "context_parallel_size": context, **stages, **experts}
    for tensor, context, stages, experts in itertools.product(
        (1, 2, 4),
        (1, 2),
        (
            {},
            {"pipeline_model_parallel_size": 4},
            {"pipeline_model_parallel_size": 4, "virtual_pipeline_model_parallel_size": 2},
            {
                "pipeline_model_parallel_size": 4,
                "num_layers_in_first_pipeline_stage": 2,
                "num_layers_in_last_pipeline_stage": 6,
            },
            {"pipeline_model_parallel_size": 2, "pipeline_model_parallel_layout": "Ettt|tttt|(tt|)*4,m|L"},
            {
                "pipeline_model_parallel_size": 2,
                "num_layers": 14,
                "account_for_embedding_in_pipeline_split": True,
                "account_for_loss_in_pipeline_split": True,
            },
        ),
        ({}, {"expert_model_parallel_size": 2}, {"expert_tensor_parallel_size": 2}),
    )
]
SMALL = {
    **DEEPSEEK,
    "num_layers": 16,
    "hidden_size": 96,
    "num_attention_heads": 8,
    "vocab_size": 1000,
    "moe_layer_freq": 2,
    "mtp_num_layers": 1,
    "seq_length": 33 * 8,
    "global_batch_size": 192,
}


@pytest.mark.parametrize("layout", GRID, ids=str)
def test_ranks_together_have_the_flops_of_the_job(layout, run_of):
    settings = {**SMALL, **layout, "world_size": 96}
    if "layout" in str(layout):
        settings["num_layers"] = 15
    run = run_of(settings)
    assert isinstance(run, PlannedRun), run

    of_ranks = sum((run.plan_rank(rank).training_flops for rank in range(96)), Fraction())

    assert of_ranks == count_token_flops(run.sizes, run.sequence) * run.sequence * 192


def test_stages_of_a_rank_follow_the_order_of_axes(run_of):
    sizes = {**SMALL, "tensor_model_parallel_size": 2, "pipeline_model_parallel_size": 4, "world_size": 16}
    last = [rank for rank in range(16) if run_of(sizes).plan_rank(rank).widths[1:]]
    inner = {**sizes, "use_tp_pp_dp_mapping": True}

    assert last == [12, 13, 14, 15]
    assert [rank for rank in range(16) if run_of(inner).plan_rank(rank).widths[1:]] == [6, 7, 14, 15]
    assert run_of(sizes).plan_rank(None) is None


@pytest.mark.parametrize(
    ("settings", "reason"),
    [
        pytest.param({"num_layers": 7}, PlanMismatch.SIZES_UNKNOWN, id="layers do not fit stages"),
        pytest.param({"micro_batch_size": None}, PlanMismatch.BATCH_UNKNOWN, id="no batch"),
        pytest.param({"hybrid_layer_pattern": "M-M*"}, PlanMismatch.MODEL_UNKNOWN, id="hybrid"),
        pytest.param({"hidden_size": None}, PlanMismatch.SIZES_UNKNOWN, id="no size"),
    ],
)
def test_what_is_missing_is_said(settings, reason, run_of):
    assert run_of({**SMALL, "pipeline_model_parallel_size": 4, **settings}) is reason


def test_a_model_of_hugging_face_has_the_same_flops(tmp_path, run_of):
    path = tmp_path / "config.json"
    written = {
        "model_type": "qwen3_moe",
        "hidden_size": 2048,
        "num_hidden_layers": 48,
        "num_attention_heads": 32,
        "num_key_value_heads": 4,
        "head_dim": 128,
        "vocab_size": 151_936,
        "intermediate_size": 6144,
        "num_experts": 128,
        "num_experts_per_tok": 8,
        "moe_intermediate_size": 768,
        "decoder_sparse_step": 1,
        "mlp_only_layers": [],
    }
    path.write_text(json.dumps(written), encoding="utf-8")

    assert describes_model(path)
    assert read_run(path, None, None) is PlanMismatch.BATCH_UNKNOWN

    path.write_text(json.dumps({**written, "seq_length": 4096, "micro_batch_size": 2}), encoding="utf-8")
    run, other = read_run(path, None, None), run_of(MODELS["Qwen3 30B"][0])

    assert count_token_flops(run.sizes, 4096) == count_token_flops(other.sizes, 4096)
    assert run.plan_rank(None).training_flops == 2 * 4096 * count_token_flops(run.sizes, 4096)
    categories = {part.category for part in run.plan_rank(None).parts}
    assert categories == {ComputeCategory.GEMM, ComputeCategory.GROUPED_GEMM, ComputeCategory.ATTENTION}


def test_another_kind_of_model_is_not_guessed(tmp_path):
    path = tmp_path / "config.json"
    path.write_text(json.dumps({"model_type": "mamba2", "hidden_size": 8}), encoding="utf-8")

    assert read_run(path, None, None) is PlanMismatch.MODEL_UNKNOWN
