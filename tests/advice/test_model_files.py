"""Models whose shape is read from a file."""

import json

import pytest

from wallscope.advice.model_files import read_model
from wallscope.advice.parallel_layout import VisionShape, model_shapes
from wallscope.errors import ConfigurationError, OptionError

DEEPSEEK = {
    "model_type": "deepseek_v3",
    "num_hidden_layers": 61,
    "hidden_size": 7168,
    "num_attention_heads": 128,
    "num_key_value_heads": 128,
    "v_head_dim": 128,
    "qk_rope_head_dim": 64,
    "kv_lora_rank": 512,
    "q_lora_rank": 1536,
    "vocab_size": 129280,
    "intermediate_size": 18432,
    "n_routed_experts": 256,
    "moe_intermediate_size": 2048,
    "num_experts_per_tok": 8,
    "n_shared_experts": 1,
    "first_k_dense_replace": 3,
    "num_nextn_predict_layers": 1,
}
MIXTRAL = {
    "num_hidden_layers": 32,
    "hidden_size": 4096,
    "num_attention_heads": 32,
    "num_key_value_heads": 8,
    "vocab_size": 32000,
    "intermediate_size": 14336,
    "num_local_experts": 8,
    "num_experts_per_tok": 2,
    "head_dim": None,
    "tie_word_embeddings": False,
}
QWEN_NEXT = {
    "model_type": "qwen3_next",
    "num_hidden_layers": 48,
    "hidden_size": 2048,
    "num_attention_heads": 16,
    "num_key_value_heads": 2,
    "head_dim": 256,
    "vocab_size": 151936,
    "intermediate_size": 5120,
    "num_experts": 512,
    "moe_intermediate_size": 512,
    "shared_expert_intermediate_size": 512,
    "num_experts_per_tok": 10,
    "decoder_sparse_step": 1,
    "full_attention_interval": 4,
    "linear_num_key_heads": 16,
    "linear_key_head_dim": 128,
    "linear_num_value_heads": 32,
    "linear_value_head_dim": 128,
}
QWEN_TOWER = {
    "depth": 27,
    "hidden_size": 1152,
    "intermediate_size": 4304,
    "num_heads": 16,
    "in_channels": 3,
    "patch_size": 16,
    "temporal_patch_size": 2,
    "spatial_merge_size": 2,
    "out_hidden_size": 2048,
    "deepstack_visual_indexes": [8, 16, 24],
}
QWEN_TEXT = {
    "num_hidden_layers": 48,
    "hidden_size": 2048,
    "num_attention_heads": 32,
    "num_key_value_heads": 4,
    "head_dim": 128,
    "vocab_size": 151936,
    "intermediate_size": 6144,
    "num_experts": 128,
    "moe_intermediate_size": 768,
    "num_experts_per_tok": 8,
    "decoder_sparse_step": 1,
    "mlp_only_layers": [],
}
ARGUMENTS = (
    "torchrun --nproc_per_node 8 pretrain_gpt.py --num-layers 61 --hidden-size 7168 --num-attention-heads 128"
    " --seq-length 4096 --max-position-embeddings 4096 --micro-batch-size 1 --swiglu --multi-latent-attention"
    " --q-lora-rank 1536 --kv-lora-rank 512 --qk-pos-emb-head-dim 64 --v-head-dim 128 --ffn-hidden-size 18432"
    " --num-experts 256 --moe-ffn-hidden-size 2048 --moe-router-topk 8 --vocab-size 129280"
    " --moe-shared-expert-intermediate-size 2048 --moe-layer-freq '([0]*3+[1]*58)' --mtp-num-layers 1"
    " --untie-embeddings-and-output-weights"
)


def write(folder, name, content):
    path = folder / name
    path.parent.mkdir(exist_ok=True)
    path.write_text(content if isinstance(content, str) else json.dumps(content), encoding="utf-8")
    return str(path)


@pytest.mark.parametrize(
    ("name", "content", "family"),
    [
        ("v3/config.json", DEEPSEEK, "deepseek_v3"),
        ("v3.sh", ARGUMENTS, "deepseek_v3"),
        ("mixtral.json", MIXTRAL, "mixtral_8x7b"),
        ("next/config.json", QWEN_NEXT, "qwen3_next_80b_a3b"),
        ("vl.json", {"vision_config": QWEN_TOWER, "text_config": QWEN_TEXT}, "qwen3_vl_30b_a3b"),
    ],
)
def test_a_file_of_a_known_model_has_its_shape(name, content, family, tmp_path):
    model, shape = read_model(write(tmp_path, name, content))

    assert shape == model_shapes()[family]
    assert model.experts == shape.experts
    assert model.id == name.partition("/")[0].partition(".")[0]


def test_the_text_of_a_model_with_vision_counts(tmp_path):
    found = {"vision_config": {}, "text_config": {**MIXTRAL, "num_local_experts": 0}}
    model, shape = read_model(write(tmp_path, "vl.json", found))

    assert model.vision
    assert (shape.experts, shape.expert_width, shape.feed_forward) == (0, 0, 14336)
    assert shape.vision is None


@pytest.mark.parametrize(
    ("document", "tower"),
    [
        pytest.param(
            {"num_hidden_layers": 24, "hidden_size": 1024, "intermediate_size": 4096, "patch_size": 14},
            VisionShape(24, 1024, 4096, 588, 4096, inner=4096),
            id="CLIP",
        ),
        pytest.param(
            {"depth": 32, "embed_dim": 1280, "mlp_ratio": 4, "in_chans": 3, "patch_size": 14}
            | {"spatial_merge_size": 2, "temporal_patch_size": 2, "hidden_size": 3584},
            VisionShape(32, 1280, 5120, 1176, 4096, merged=4, inner=5120),
            id="Qwen2-VL",
        ),
        pytest.param(
            {"num_hidden_layers": 24, "hidden_size": 1024, "intermediate_size": 4096, "patch_size": 14}
            | {"downsample_ratio": 0.5},
            VisionShape(24, 1024, 4096, 588, 4096, merged=4, inner=4096),
            id="InternVL",
        ),
    ],
)
def test_the_tower_of_a_model_with_vision_counts(document, tower, tmp_path):
    outer = {key: document.pop(key) for key in ("downsample_ratio",) if key in document}
    found = {"vision_config": document, "text_config": {**MIXTRAL, "num_local_experts": 0}, **outer}

    assert read_model(write(tmp_path, "vl.json", found))[1].vision == tower


def test_keys_and_latent_experts_of_a_file_count(tmp_path):
    found = read_model(write(tmp_path, "a.json", {**DEEPSEEK, "qk_nope_head_dim": 192}))[1]
    assert (found.key_size, found.head_size) == (192, 128)
    text = f"{ARGUMENTS} --moe-latent-size 1024 --qk-head-dim 192"
    found = read_model(write(tmp_path, "b.sh", text))[1]
    assert (found.latent_width, found.key_size) == (1024, 192)


@pytest.mark.parametrize(
    ("name", "content", "said"),
    [
        ("a.json", {}, "has no hidden_size"),
        ("a.json", [], "is not an object"),
        ("a.json", "{", "cannot be read as JSON"),
        ("a.json", {**MIXTRAL, "hidden_size": "big"}, "hidden_size is not a size"),
        ("a.json", {**MIXTRAL, "hidden_size": 10**12}, "hidden_size is not a size"),
        ("a.sh", ARGUMENTS.replace(" --vocab-size 129280", ""), "has no vocab_size"),
        ("a.json", {"text_config": 3}, "has no sizes"),
        ("a.json", {**MIXTRAL, "hybrid_override_pattern": "M-M*"}, "layers other than attention"),
        ("a.json", {**MIXTRAL, "layer_types": ["mamba"]}, r"other than attention \(mamba\)"),
        ("a.json", {**QWEN_NEXT, "decoder_sparse_step": "x"}, "layers with experts cannot be read"),
        ("a.json", {"text_config": QWEN_TEXT, "vision_config": {"depth": -3}}, "depth is not a size"),
    ],
)
def test_a_file_without_the_sizes_is_refused(name, content, said, tmp_path):
    with pytest.raises(ConfigurationError, match=said):
        read_model(write(tmp_path, name, content))


def test_a_name_is_that_of_a_family():
    assert read_model("dsv3") == (read_model("deepseek-v3")[0], None)
    with pytest.raises(OptionError, match="is unknown"):
        read_model("absent.json")


def test_a_file_gives_the_plan_of_its_family(wallscope, tmp_path):
    file = write(tmp_path, "v3/config.json", DEEPSEEK)
    options = ("--gpus", "256", "--hardware", "h100", "--layout", "tp4,pp4,cp2,ep32", "--as", "yaml")
    known = wallscope("advise", "--model", "dsv3", *options, "--gradients", "fp32")

    assert wallscope("advise", "--model", file, *options).out == known.out
    assert known.out.startswith("world_size: 256\nmodel:\n")


def test_images_and_a_frozen_tower_decide_the_memory(wallscope, tmp_path):
    file = write(tmp_path, "vl.json", {"vision_config": QWEN_TOWER, "text_config": QWEN_TEXT})
    options = ("advise", "--model", file, "--gpus", "16", "--hardware", "h100")

    assert "at most 2,048 of 4,096 tokens from images (--image-tokens)" in wallscope(*options).out
    assert "at most 512 of 4,096 tokens" in wallscope(*options, "--image-tokens", "512").out
    frozen = wallscope(*options, "--freeze-vision")
    assert "activations of the vision tower" not in " ".join(frozen.out.split())
    assert "freeze_vision_model: true" in wallscope(*options, "--freeze-vision", "--as", "yaml").out
    assert wallscope(*options, "--as", "arguments").out.startswith("# the decoder alone")


def test_a_tower_of_unknown_sizes_is_said_to_be_left_out(wallscope, tmp_path):
    file = write(tmp_path, "vl.json", {"vision_config": {}, "text_config": QWEN_TEXT})
    shown = wallscope("advise", "--model", file, "--gpus", "16", "--hardware", "h100")

    assert "without the vision tower, whose sizes are unknown" in shown.out


def test_options_of_images_need_a_tower(wallscope):
    shown = wallscope("advise", "--model", "dsv3", "--gpus", "256", "--hardware", "h100", "--freeze-vision")

    assert shown.code == 2
    assert "--freeze-vision — deepseek_v3 has no vision tower" in shown.err
