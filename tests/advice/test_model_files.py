"""Models whose shape is read from a file."""

import json

import pytest

from wallscope.advice.model_files import read_model
from wallscope.advice.parallel_layout import model_shapes
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
ARGUMENTS = (
    "torchrun --nproc_per_node 8 pretrain_gpt.py --num-layers 61 --hidden-size 7168 --num-attention-heads 128"
    " --seq-length 4096 --max-position-embeddings 4096 --micro-batch-size 1 --swiglu --multi-latent-attention"
    " --q-lora-rank 1536 --kv-lora-rank 512 --qk-pos-emb-head-dim 64 --v-head-dim 128 --ffn-hidden-size 18432"
    " --num-experts 256 --moe-ffn-hidden-size 2048 --moe-router-topk 8 --vocab-size 129280"
    " --moe-shared-expert-intermediate-size 2048 --moe-layer-freq '([0]*3+[1]*58)'"
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
