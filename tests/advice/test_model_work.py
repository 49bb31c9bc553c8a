"""The multiplications of models by their configuration: published FLOPs, and sums over all ranks of a job."""

import itertools
import json
from fractions import Fraction

import pytest

from wallscope.advice.configuration import read_configuration
from wallscope.advice.model_work import PlannedRun, count_token_flops
from wallscope.advice.planned_runs import describes_model, read_run
from wallscope.model.enums import ComputeCategory
from wallscope.model.planned_work import PlanMismatch, PlannedKind

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


@pytest.mark.parametrize(
    ("layout", "rows"),
    [
        ({}, 8448 * 8),
        ({"expert_model_parallel_size": 8}, 8448 * 8 * 8),
        ({"expert_model_parallel_size": 8, "tensor_model_parallel_size": 2}, 8448 * 8 * 4),
        ({"context_parallel_size": 2, "micro_batch_size": 2}, 8448 * 8),
    ],
)
def test_rows_of_an_expert_are_those_of_a_micro_batch(layout, rows, run_of):
    run = run_of({**SMALL, "seq_length": 8448, "world_size": 96, **layout})

    assert run.plan_rank(0).expert_rows == Fraction(rows, 256)


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
        pytest.param({"hybrid_layer_pattern": "M-M+"}, PlanMismatch.MODEL_UNKNOWN, id="latent in hybrid"),
        pytest.param(
            {"hybrid_layer_pattern": "M-M*", "spec": "[megatron.core.models.hybrid gdp_stack_spec]"},
            PlanMismatch.MODEL_UNKNOWN,
            id="gated delta products",
        ),
        pytest.param({"hybrid_layer_pattern": "M-M-M"}, PlanMismatch.SIZES_UNKNOWN, id="odd hybrid"),
        pytest.param({"hybrid_layer_pattern": "M|-|M"}, PlanMismatch.SIZES_UNKNOWN, id="three parts"),
        pytest.param({"hybrid_layer_pattern": "M-?*"}, PlanMismatch.SIZES_UNKNOWN, id="no layer"),
        pytest.param({"experimental_attention_variant": "dsa"}, PlanMismatch.MODEL_UNKNOWN, id="sparse"),
        pytest.param(
            {"experimental_attention_variant": "gdn"}, PlanMismatch.SIZES_UNKNOWN, id="no frequency"
        ),
        pytest.param({"hidden_size": None}, PlanMismatch.SIZES_UNKNOWN, id="no size"),
        pytest.param({"vocab_size": None}, PlanMismatch.SIZES_UNKNOWN, id="no vocabulary"),
        pytest.param({"moe_router_topk": None}, PlanMismatch.SIZES_UNKNOWN, id="no experts of a token"),
        pytest.param({"kv_lora_rank": None}, PlanMismatch.SIZES_UNKNOWN, id="no latent size"),
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


@pytest.mark.parametrize("kind", ["jamba", "falcon_h1", "mamba", "zamba2"])
def test_another_kind_of_model_is_not_guessed(kind, tmp_path):
    path = tmp_path / "config.json"
    path.write_text(json.dumps({"model_type": kind, "hidden_size": 8}), encoding="utf-8")

    assert read_run(path, None, None) is PlanMismatch.MODEL_UNKNOWN


def count_linear_token(settings):
    """GFLOP of a token in training by the formula of Megatron-LM for hybrid models and gated delta nets."""
    get = settings.get
    hidden, heads, tokens = get("hidden_size"), get("num_attention_heads"), get("seq_length")
    matrices = 3 if get("swiglu") else 2
    size, groups = get("kv_channels") or hidden // heads, get("num_query_groups") or heads
    state, kernel = get("mamba_state_dim", 128), get("linear_conv_kernel_dim", 4)
    mamba_heads = get("mamba_num_heads") or 2 * hidden // get("mamba_head_dim", 64)
    keys = get("linear_num_key_heads", 16) * get("linear_key_head_dim", 128)
    value_heads, value_size = get("linear_num_value_heads", 32), get("linear_value_head_dim", 128)
    values, is_second = value_heads * value_size, get("experimental_attention_variant") == "gdn2"
    inputs = 4 * keys + 3 * values if is_second else 2 * keys + 2 * values + 2 * value_heads
    query = heads * size
    routed = get("moe_latent_size") or hidden
    flops = {
        "M": 2 * hidden * (4 * hidden + 2 * get("mamba_num_groups", 8) * state + mamba_heads)
        + 7 * 2 * hidden * state
        + 2 * 2 * hidden * hidden,
        "G": 2 * (hidden * inputs + kernel * (2 * keys + values))
        + 2 * (4 * value_heads * value_size**2 + hidden * values),
        "*": 2 * hidden * (2 * query + 2 * groups * size + (query if get("attention_output_gate") else 0))
        + 2 * tokens * query,
        "-": 2 * matrices * hidden * get("ffn_hidden_size"),
        "E": 2 * matrices * routed * get("moe_ffn_hidden_size", 0) * get("moe_router_topk", 0)
        + 2 * matrices * hidden * get("moe_shared_expert_intermediate_size", 0)
        + (4 * hidden * routed if get("moe_latent_size") else 0),
    }
    pattern, ahead, joins = get("hybrid_layer_pattern"), get("mtp_num_layers") or 0, 0
    if pattern is None:
        joins, layers = ahead * 2 * 2 * hidden**2, get("num_layers") + ahead
        every = get("linear_attention_freq")
        listed = [(layer + 1) % every != 0 for layer in range(layers)] if isinstance(every, int) else every
        pattern = "".join("G" if one else "*" for one in listed)
        pattern += ("E" if get("num_moe_experts") else "-") * layers
    else:
        ahead = pattern.count("/")
    head = 2 * hidden * get("vocab_size") * (1 + ahead)
    return 3 * (sum(flops[one] for one in pattern if one in flops) + joins + head) / 1e9


NEMOTRON = size(
    *(4096, 52, 32, 131_072, 8192, 8),
    hybrid_layer_pattern="M-M-M-M*-M-M-M-M-M*-M-M-M-M-M*-M-M-M-M-M*-M-M-M-M-M-",
    kv_channels=128,
    mamba_num_heads=128,
    ffn_hidden_size=21_504,
    swiglu=False,
)
NANO = size(
    *(2688, 52, 32, 131_072, 8192, 2),
    hybrid_layer_pattern="MEMEM*EMEMEM*EMEMEM*EMEMEM*EMEMEM*EMEMEMEM*EMEMEMEME/*E/*E",
    kv_channels=128,
    mamba_num_heads=64,
    ffn_hidden_size=1856,
    num_moe_experts=128,
    moe_router_topk=6,
    moe_ffn_hidden_size=1856,
    moe_shared_expert_intermediate_size=3712,
    swiglu=False,
)
QWEN_NEXT = size(
    *(2048, 48, 16, 151_936, 4096, 2),
    kv_channels=256,
    ffn_hidden_size=5120,
    attention_output_gate=True,
    experimental_attention_variant="gated_delta_net",
    linear_attention_freq=4,
    num_moe_experts=512,
    moe_router_topk=10,
    moe_ffn_hidden_size=512,
    moe_shared_expert_intermediate_size=512,
    swiglu=True,
)
LINEAR = {
    "Nemotron-H 8B": NEMOTRON,
    "Nemotron 3 Nano": NANO,
    "Nemotron with latent experts": {**NANO, "moe_latent_size": 1024},
    "narrow Mamba layers": {**NEMOTRON, "mamba_num_heads": 32, "mamba_state_dim": 64},
    "wide Mamba layers": {**NEMOTRON, "mamba_num_heads": 512},
    "Mamba layers alone": {**NEMOTRON, "hybrid_layer_pattern": "M" * 52, "mamba_num_heads": None},
    "delta rules in a pattern": {**NEMOTRON, "hybrid_layer_pattern": "GG*-" * 13},
    "Qwen3-Next": QWEN_NEXT,
    "Qwen3-Next with predictions": {**QWEN_NEXT, "mtp_num_layers": 2},
    "the second gated delta net": {**QWEN_NEXT, "experimental_attention_variant": "gdn2"},
    "listed delta rules": {**QWEN_NEXT, "linear_attention_freq": [1, 0, 0, 1] * 12},
    "small delta rules": {
        **QWEN_NEXT,
        "linear_num_value_heads": 8,
        "linear_value_head_dim": 64,
        "linear_key_head_dim": 96,
        "linear_num_key_heads": 4,
        "linear_conv_kernel_dim": 3,
    },
}


@pytest.mark.parametrize("name", LINEAR)
def test_flops_of_state_spaces_and_delta_rules_are_those_of_megatron_lm(name, run_of):
    run = run_of(LINEAR[name])

    found = float(count_token_flops(run.sizes, run.sequence)) / 1e9

    assert found == pytest.approx(count_linear_token(LINEAR[name]), rel=5e-4)


def test_a_pattern_of_linear_layers_may_be_written_as_lists(run_of):
    runs = [
        run_of({**QWEN_NEXT, "linear_attention_freq": each})
        for each in (4, "([1]*3+[0]*1)*12", [1, 1, 1, 0] * 12)
    ]

    assert len({count_token_flops(run.sizes, run.sequence) for run in runs}) == 1


def test_a_list_of_linear_layers_may_leave_out_those_that_predict(run_of):
    """They are then like the last one, which has attention."""
    lists = [[1, 1, 1, 0] * 12, [1, 1, 1, 0] * 12 + [0]]
    runs = [run_of({**QWEN_NEXT, "mtp_num_layers": 1, "linear_attention_freq": each}) for each in lists]
    other = run_of({**QWEN_NEXT, "mtp_num_layers": 1, "linear_attention_freq": [1, 0] * 12})

    assert len({count_token_flops(run.sizes, run.sequence) for run in runs}) == 1
    assert other is PlanMismatch.SIZES_UNKNOWN


def test_layers_that_only_megatron_lm_estimates_are_said(run_of):
    said = {name: run_of(LINEAR[name]).plan_rank(0).assumes for name in LINEAR}

    assert said["Nemotron-H 8B"] == "Megatron-LM's estimate of Mamba layers"
    assert said["Nemotron 3 Nano"] == (
        "balanced routing and Megatron-LM's estimate of Mamba layers, as if twice as wide as the hidden size"
    )
    assert said["Qwen3-Next"] == "balanced routing and Megatron-LM's estimate of gated delta nets"


@pytest.mark.parametrize("name", ["Nemotron-H 8B", "Nemotron 3 Nano"])
def test_matrices_of_mamba_layers_have_their_own_width(name, run_of):
    """What Megatron-LM counts more than linear layers have is apart, with the scan."""
    settings = LINEAR[name]
    run = run_of({**settings, "hybrid_layer_pattern": "M"})
    flops = {part.kind: part.flops for part in run.plan_rank(0).parts}

    hidden, inner = settings["hidden_size"], settings["mamba_num_heads"] * 64
    linear = hidden * (3 * inner + 2 * 8 * 128 + settings["mamba_num_heads"])
    assert flops[PlannedKind.LAYERS] == 2 * run.tokens * run.micro_batches * linear
    assert flops[PlannedKind.MIXING] >= 2 * run.tokens * run.micro_batches * 7 * hidden * 128


def shrink(settings):
    """The same with few layers and narrow ones."""
    return {
        **settings,
        "hidden_size": 64,
        "num_attention_heads": 8,
        "num_query_groups": 8,
        "kv_channels": 8,
        "ffn_hidden_size": 96,
        "vocab_size": 1000,
        "seq_length": 33 * 8,
        "global_batch_size": 192,
        "world_size": 96,
    }


STAGES = [
    ("Nemotron-H 8B", {"pipeline_model_parallel_size": 2}, "M-M*M-M-M*"),
    ("Nemotron-H 8B", {"pipeline_model_parallel_size": 2}, "M-M|*M|-M-|M*"),
    ("Nemotron 3 Nano", {"pipeline_model_parallel_size": 4}, "MEM|*|E|MEM*/*E/*E"),
    (
        "Nemotron 3 Nano",
        {"pipeline_model_parallel_size": 2, "num_layers_in_first_pipeline_stage": 3},
        "MEM*EMEM*/ME",
    ),
    ("Qwen3-Next", {"pipeline_model_parallel_size": 4, "num_layers": 8}, None),
    (
        "Qwen3-Next with predictions",
        {
            "pipeline_model_parallel_size": 2,
            "num_layers": 7,
            "pipeline_model_parallel_layout": "Ettt|tttt|m|mL",
        },
        None,
    ),
]


@pytest.mark.parametrize("tensor", [1, 2])
@pytest.mark.parametrize(("name", "layout", "pattern"), STAGES, ids=str)
def test_ranks_of_a_hybrid_model_together_have_the_flops_of_the_job(name, layout, pattern, tensor, run_of):
    more = {} if pattern is None else {"hybrid_layer_pattern": pattern}
    run = run_of({**shrink(LINEAR[name]), **layout, **more, "tensor_model_parallel_size": tensor})
    assert isinstance(run, PlannedRun), run

    of_ranks = sum((run.plan_rank(rank).training_flops for rank in range(96)), Fraction())

    assert of_ranks == count_token_flops(run.sizes, run.sequence) * run.sequence * 192


def test_parts_of_a_pattern_belong_to_the_stages_in_turn(run_of):
    layers = {"pipeline_model_parallel_size": 2, "hybrid_layer_pattern": "M-|**|--|ME"}
    run = run_of({**shrink(NANO), **layers})

    assert run.stages == (("E", 0, 1, 4, 5), (2, 3, 6, 7, "L"))
    assert [run.plan_rank(rank).attention_layers for rank in (0, 48)] == [0, 2]
    assert [run.plan_rank(rank).expert_layers for rank in (0, 48)] == [0, 1]


NEMOTRON_FILE = {
    "model_type": "nemotron_h",
    "hidden_size": 4096,
    "hybrid_override_pattern": NEMOTRON["hybrid_layer_pattern"],
    "num_hidden_layers": 52,
    "num_attention_heads": 32,
    "num_key_value_heads": 8,
    "attention_head_dim": 128,
    "intermediate_size": 21_504,
    "mamba_num_heads": 128,
    "mamba_head_dim": 64,
    "n_groups": 8,
    "ssm_state_size": 128,
    "expand": 2,
    "vocab_size": 131_072,
}
NANO_FILE = {
    **NEMOTRON_FILE,
    "hidden_size": 2688,
    "hybrid_override_pattern": NANO["hybrid_layer_pattern"].partition("/")[0],
    "num_key_value_heads": 2,
    "mamba_num_heads": 64,
    "intermediate_size": 1856,
    "n_routed_experts": 128,
    "num_experts_per_tok": 6,
    "moe_intermediate_size": 1856,
    "moe_shared_expert_intermediate_size": 3712,
    "n_shared_experts": 1,
    "num_nextn_predict_layers": 2,
}
QWEN_FILE = {
    "model_type": "qwen3_next",
    "hidden_size": 2048,
    "num_hidden_layers": 48,
    "num_attention_heads": 16,
    "num_key_value_heads": 2,
    "head_dim": 256,
    "vocab_size": 151_936,
    "intermediate_size": 5120,
    "full_attention_interval": 4,
    "linear_num_key_heads": 16,
    "linear_key_head_dim": 128,
    "linear_num_value_heads": 32,
    "linear_value_head_dim": 128,
    "linear_conv_kernel_dim": 4,
    "num_experts": 512,
    "num_experts_per_tok": 10,
    "moe_intermediate_size": 512,
    "shared_expert_intermediate_size": 512,
    "decoder_sparse_step": 1,
    "mlp_only_layers": [],
}
_NAMED = {"M": "mamba", "-": "mlp", "*": "attention"}
FILES = [
    pytest.param(NEMOTRON_FILE, NEMOTRON, id="Nemotron-H"),
    pytest.param(
        {
            **{name: value for name, value in NEMOTRON_FILE.items() if name != "hybrid_override_pattern"},
            "layers_block_type": [_NAMED[one] for one in NEMOTRON["hybrid_layer_pattern"]],
        },
        NEMOTRON,
        id="Nemotron-H with a list",
    ),
    pytest.param(NANO_FILE, NANO, id="Nemotron 3 Nano"),
    pytest.param(QWEN_FILE, QWEN_NEXT, id="Qwen3-Next"),
    pytest.param(
        {**QWEN_FILE, "layer_types": (["linear_attention"] * 3 + ["full_attention"]) * 12},
        QWEN_NEXT,
        id="Qwen3-Next with a list",
    ),
    pytest.param(
        {
            "model_type": "mamba2",
            "hidden_size": 4096,
            "num_hidden_layers": 64,
            "num_heads": 128,
            "head_dim": 64,
            "n_groups": 8,
            "state_size": 128,
            "expand": 2,
            "vocab_size": 32_768,
        },
        size(
            *(4096, 64, 32, 32_768, 8192, 8),
            hybrid_layer_pattern="M" * 64,
            ffn_hidden_size=1,
            mamba_num_heads=128,
        ),
        id="Mamba-2",
    ),
    pytest.param(
        {
            "model_type": "bamba",
            "hidden_size": 4096,
            "num_hidden_layers": 32,
            "attn_layer_indices": [9, 18, 27],
            "num_attention_heads": 32,
            "num_key_value_heads": 8,
            "intermediate_size": 14_336,
            "mamba_n_heads": 128,
            "mamba_d_head": "auto",
            "mamba_n_groups": 1,
            "mamba_d_state": 128,
            "vocab_size": 128_256,
        },
        size(
            *(4096, 64, 32, 128_256, 8192, 8),
            hybrid_layer_pattern="".join(("*" if one in {9, 18, 27} else "M") + "-" for one in range(32)),
            ffn_hidden_size=14_336,
            mamba_num_groups=1,
            swiglu=True,
        ),
        id="Bamba",
    ),
    pytest.param(
        {
            "model_type": "granitemoehybrid",
            "hidden_size": 4096,
            "num_hidden_layers": 40,
            "layer_types": ["attention" if one in {5, 15, 25, 35} else "mamba" for one in range(40)],
            "num_attention_heads": 32,
            "num_key_value_heads": 8,
            "intermediate_size": 768,
            "num_local_experts": 72,
            "num_experts_per_tok": 10,
            "shared_intermediate_size": 1536,
            "mamba_n_heads": 128,
            "mamba_d_head": 64,
            "mamba_n_groups": 1,
            "mamba_d_state": 128,
            "vocab_size": 100_352,
        },
        size(
            *(4096, 80, 32, 100_352, 8192, 8),
            hybrid_layer_pattern="".join(("*" if one in {5, 15, 25, 35} else "M") + "E" for one in range(40)),
            ffn_hidden_size=1536,
            num_moe_experts=72,
            moe_router_topk=10,
            moe_ffn_hidden_size=768,
            moe_shared_expert_intermediate_size=1536,
            mamba_num_groups=1,
            swiglu=True,
        ),
        id="Granite 4",
    ),
]


@pytest.mark.parametrize(("written", "settings"), FILES)
def test_a_hybrid_model_of_hugging_face_has_the_same_flops(written, settings, tmp_path):
    path = tmp_path / "config.json"
    tokens = settings["seq_length"]
    path.write_text(json.dumps({**written, "seq_length": tokens, "micro_batch_size": 2}), encoding="utf-8")
    run = read_run(path, None, None)

    found = float(count_token_flops(run.sizes, tokens)) / 1e9

    assert found == pytest.approx(count_linear_token(settings), rel=5e-4)
    assert "Megatron-LM's estimate" in run.plan_rank(None).assumes
