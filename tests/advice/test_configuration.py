from contextlib import suppress

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from wallscope.advice.configuration import read_configuration
from wallscope.advice.preconditions import check_configuration, lookup_in, precondition_rows
from wallscope.advice.published import find_machine
from wallscope.errors import ConfigurationError
from wallscope.model.advice import KnownSetting, RunConfiguration, TraceFacts

BRIDGE = """
model:
  tensor_model_parallel_size: 2
  num_moe_experts: 128
  cuda_graph_scope: [attn, moe_router]
  overlap_moe_expert_parallel_comm: false
  recompute_modules: [mla_up_proj, layernorm]
  params_dtype:
    _target_: torch.bfloat16
    _call_: false
comm_overlap:
  overlap_moe_expert_parallel_comm: true
  overlap_grad_reduce: null
ddp: {overlap_grad_reduce: true}
mixed_precision: bf16_with_mxfp8_mixed
optimizer: {lr: 3.0e-4, min_lr: .nan}
"""
LOG = """
[default0]:------------------------ arguments ------------------------
[default0]:  num_experts ..................................... 64
[default0]:  tensor_model_parallel_size ...................... 4
[default0]:  cp_comm_type .................................... ['a2a']
 3:  cuda_graph_modules .............................. [<CudaGraphScope.attn: 2>]
  recompute_granularity ........................... None
  pipeline_model_parallel_size .................... 2
  world_size ...................................... 64
  num_layers ...................................... 32
  num_layers_per_virtual_pipeline_stage ........... 4
  lr .............................................. 0.0003
"""
ARGUMENTS = """
export CUDA_DEVICE_MAX_CONNECTIONS=1
OPTIONS=(
    --tensor-model-parallel-size 4   # inside a node
    --num-experts=64
    --recompute-modules moe_act layernorm \\
    --moe-grouped-gemm
    --disable-bias-linear
    --no-gradient-accumulation-fusion
    --no-check-for-nan-in-loss-and-grad
)
torchrun pretrain_gpt.py ${OPTIONS[@]} comm_overlap.delay_wgrad_compute=false
"""


def read(tmp_path, text, name="run.yaml"):
    path = tmp_path / name
    path.write_text(text, encoding="utf-8")
    return read_configuration(path)


def read_with_defaults(tmp_path, text, name="run.yaml"):
    path = tmp_path / name
    path.write_text(text, encoding="utf-8")
    return read_configuration(path, with_defaults=True)


def status(row, configuration, **others):
    added = {name: KnownSetting(value, "test") for name, value in others.items()}
    full = RunConfiguration({**configuration.settings, **added})
    return precondition_rows()[row].find_status(lookup_in(full, TraceFacts()))


def values(found, *names):
    return {name: found.configuration.get(name) for name in names}


def test_a_bridge_file_by_its_sections(tmp_path):
    found = read(tmp_path, BRIDGE)

    assert values(found, *found.configuration.settings) == {
        "tensor_model_parallel_size": 2,
        "num_moe_experts": 128,
        "cuda_graph_modules": ("attn", "moe_router"),
        "overlap_moe_expert_parallel_comm": True,
        "recompute_modules": ("mla_up_proj", "layernorm"),
        "overlap_grad_reduce": True,
        "mixed_precision": "bf16_with_mxfp8_mixed",
        "bf16": True,
        "fp16": False,
        "fp8": "e4m3",
        "fp8_recipe": "mxfp8",
        "fp8_param_gather": True,
        "reuse_grad_buf_for_mxfp8_param_ag": True,
        "fp4": None,
        "framework": "megatron-bridge",
        "cuda_graph_scope": None,
    }
    source = found.configuration.settings["overlap_moe_expert_parallel_comm"].source
    assert source == "run.yaml: comm_overlap.overlap_moe_expert_parallel_comm"
    assert [finding.code for finding in found.findings] == [
        "configuration-unused",
        "configuration-former-name",
    ]


def test_the_arguments_that_a_log_lists(tmp_path):
    found = read(tmp_path, LOG, "train.log")

    assert values(found, *found.configuration.settings) == {
        "num_moe_experts": 64,
        "tensor_model_parallel_size": 4,
        "cp_comm_type": "a2a",
        "context_type_layers": None,
        "cuda_graph_modules": ("attn",),
        "recompute_granularity": None,
        "pipeline_model_parallel_size": 2,
        "world_size": 64,
        "num_layers": 32,
        "num_layers_per_virtual_pipeline_stage": 4,
        "virtual_pipeline_model_parallel_size": 4,
        "framework": "megatron-lm",
        "layers_per_stage": 16,
        "pipeline_layers": 32,
        "middle_layers": 32,
        "middle_stages": 2,
    }


def test_a_command_line_with_its_exports(tmp_path):
    found = read(tmp_path, ARGUMENTS, "run.sh")

    assert values(found, *found.configuration.settings) == {
        "CUDA_DEVICE_MAX_CONNECTIONS": "1",
        "tensor_model_parallel_size": 4,
        "num_moe_experts": 64,
        "recompute_modules": ("moe_act", "layernorm"),
        "moe_grouped_gemm": True,
        "add_bias_linear": False,
        "gradient_accumulation_fusion": False,
        "check_for_nan_in_loss": False,
        "check_for_nan_in_grad": False,
        "delay_wgrad_compute": False,
        "framework": "megatron-bridge",
    }


def test_members_of_enumerations_in_a_dump_count_where_they_are_named(tmp_path):
    named = "{_target_: mcore.CudaGraphModule.attn, _call_: false}"
    numbered = "{_target_: mcore.AttnBackend, _call_: true, _args_: [2]}"
    told = "{_target_: mcore.CudaGraphModule, _call_: true, _args_: [2], _name_: mlp}"
    modules = f"cuda_graph_modules: [{named}, {told}]"
    text = f"model: {{bf16: true, {modules}, attention_backend: {numbered}, fp8: null}}"
    found = read(tmp_path, text)

    assert values(found, *found.configuration.settings) == {
        "bf16": True,
        "cuda_graph_modules": ("attn", "mlp"),
        "fp8": None,
        "framework": "megatron-bridge",
    }


def test_sections_that_do_not_decide_contradict_no_size(tmp_path):
    text = "model: {transformer: {tensor_model_parallel_size: 8}}\ntokenizer: {tensor_model_parallel_size: 1}"
    found = read(tmp_path, text)

    assert found.configuration.get("tensor_model_parallel_size") == 8
    assert "configuration-disputed" not in {finding.code for finding in found.findings}


def test_a_dump_tells_the_class_that_builds_the_model(tmp_path):
    found = read(
        tmp_path, "model: {_target_: bridge.qwen_vl.qwen3_vl_provider.Qwen3VLMoEProvider, bf16: true}"
    )

    assert status("VLM-17", found.configuration, apply_rope_fusion=True) == "unmet"
    assert status("CG-06", found.configuration, cuda_graph_modules=("attn",)) == "unmet"
    of_arguments = read(tmp_path, "--bf16 --use-megatron-fsdp", "run.sh")
    assert of_arguments.configuration.get("framework") == "megatron-lm"


def test_whole_iterations_in_the_former_spelling(tmp_path):
    text = 'cuda_graph_impl = "local"\ncuda_graph_scope = "full_iteration"\n'
    found = read(tmp_path, text, "run.toml")

    assert values(found, "cuda_graph_impl", "cuda_graph_modules") == {
        "cuda_graph_impl": "full_iteration",
        "cuda_graph_modules": (),
    }


def test_a_misspelled_setting_of_a_short_file_is_said(tmp_path):
    found = read(tmp_path, "model: {expert_model_paralel_size: 8, bf16: true}\n")

    assert [finding.code for finding in found.findings] == ["configuration-misspelled"]
    assert "expert_model_parallel_size" in found.findings[0].message


BOMB = "a: &a [x,x,x,x,x,x,x,x,x,x]\n" + "".join(
    f"{name}: &{name} [{','.join(['*' + before] * 10)}]\n"
    for before, name in zip("abcdefg", "bcdefgh", strict=True)
)


@pytest.mark.parametrize(
    ("name", "text", "said"),
    [
        pytest.param("a.yaml", "model: {tensor_model_parallel_size: four}", "not a whole number", id="word"),
        pytest.param("a.yaml", "model: {tensor_model_parallel_size: 0}", "above 0", id="zero"),
        pytest.param(
            "a.yaml", "model: {tensor_model_parallel_size: true}", "not a whole number", id="switch"
        ),
        pytest.param("a.yaml", "model: {bf16: 2}", "neither true nor false", id="number for a switch"),
        pytest.param(
            "a.yaml", "model: {recompute_modules: [{a: 1}]}", "not a list of words", id="mapping in a list"
        ),
        pytest.param("a.yaml", "a: !!python/object/apply:os.system [ls]", "has the tag", id="tag"),
        pytest.param("a.yaml", "a: !thing 1", "has the tag", id="own tag"),
        pytest.param("a.yaml", BOMB, "expand too much", id="alias bomb"),
        pytest.param("a.yaml", "a: &a [*a]", "alias to an object that contains it", id="alias to itself"),
        pytest.param("a.yaml", "a: " + "[" * 100 + "]" * 100, "nested", id="deep"),
        pytest.param("a.yaml", "[" * 5000, "nested", id="very deep, unclosed"),
        pytest.param("a.yaml", "a: [1", "inside what begins in line 1, column 4 —", id="unclosed"),
        pytest.param("a.yaml", "a: 1\nb: c: d", "is not valid YAML in line 2, column 5 —", id="colon"),
        pytest.param("a.yaml", "a: 1\nb: \x01", "an unprintable character in line 2", id="control character"),
        pytest.param("a.yaml", "a: 1\n---\nb: 2", "has several documents", id="two documents"),
        pytest.param("a.yaml", "- 1", "has no settings", id="list"),
        pytest.param("a.yaml", "", "has no settings", id="empty"),
        pytest.param("a.yaml", "a: 2024-13-45", "no known setting", id="odd date"),
        pytest.param("a.yaml", "a: !!int many", "an invalid value", id="odd number"),
        pytest.param("a.yaml", "lr: 1", "no known setting", id="nothing known"),
        pytest.param("a.yaml", "x" * (2 * 2**20 + 1), "larger than 2.0 MiB", id="huge"),
        pytest.param("a.yaml", "a: 1\0", "not text", id="binary"),
        pytest.param("a.toml", "tensor_size = 1", "an unknown setting", id="unknown key"),
        pytest.param(
            "a.toml", "expert_model_paralel_size = 1", "expert_model_parallel_size", id="misspelled"
        ),
        pytest.param("a.toml", "bf16 = yes", "is not valid TOML", id="no TOML"),
        pytest.param("a.toml", "torch = 2.6", "not a version", id="number for a version"),
        pytest.param("a.sh", "python x.py --bf16 'open", "close the quotes", id="quotes"),
        pytest.param("a.log", "seq_length ........ many", "not a whole number", id="word in a log"),
        pytest.param(
            "a.yaml",
            "model: {context_parallel_size: 2}\ntrain: {context_parallel_size: 4}",
            "keep the correct one",
            id="sections disagree",
        ),
    ],
)
def test_a_bad_file_is_one_clear_line(tmp_path, name, text, said):
    with pytest.raises(ConfigurationError, match=name) as caught:
        read(tmp_path, text, name)

    assert said in str(caught.value)
    assert str(caught.value).count(" — ") >= 2


@pytest.mark.parametrize(
    ("name", "text", "written"),
    [
        pytest.param(
            "a.yaml",
            "model: {bf16: true, tensor_model_parallel_size: 2, seq_length: many}",
            "model.seq_length",
            id="word",
        ),
        pytest.param(
            "a.yaml",
            "model: {bf16: true, num_moe_experts: 8, sequence_parallel: 3}",
            "model.sequence_parallel",
            id="3",
        ),
        pytest.param("a.sh", "pretrain_gpt.py --bf16 --seq-length 4k", "--seq-length", id="flag"),
        pytest.param("a.log", "bf16 .... True\nseq_length .... many", "seq_length", id="log"),
    ],
)
def test_a_value_that_cannot_be_read_makes_its_setting_unknown_and_no_other(tmp_path, name, text, written):
    found = read(tmp_path, text, name)
    (odd,) = (one for one in found.findings if one.code == "configuration-unreadable")

    assert found.configuration.settings["bf16"].value is True
    assert not {"seq_length", "sequence_parallel"} & set(found.configuration.settings)
    assert odd.message.startswith(f"{name}: {written} is ")
    assert odd.severity == "warning"


@pytest.mark.parametrize(
    ("name", "text", "setting", "value"),
    [
        pytest.param("a.yaml", "model: {sequence_parallel: 1}", "sequence_parallel", True, id="1 is true"),
        pytest.param("a.yaml", "model: {sequence_parallel: 0}", "sequence_parallel", False, id="0 is false"),
        pytest.param("a.sh", "x.py --seq-length 4_096", "seq_length", 4_096, id="a number as in Python"),
        pytest.param(
            "a.sh", "echo 'see the log...'\nx.py --seq-length 64", "seq_length", 64, id="dots in a script"
        ),
    ],
)
def test_values_are_read_as_programs_do(tmp_path, name, text, setting, value):
    assert read(tmp_path, text, name).configuration.settings[setting].value == value


def test_what_is_no_file_is_refused(tmp_path):
    with pytest.raises(ConfigurationError, match="not a regular file"):
        read_configuration(tmp_path)
    with pytest.raises(ConfigurationError, match="cannot be read"):
        read_configuration(tmp_path / "absent.yaml")
    (tmp_path / "latin.yaml").write_bytes(b"a: \xe9\n")
    with pytest.raises(ConfigurationError, match="UTF-8"):
        read_configuration(tmp_path / "latin.yaml")


WORDS = st.sampled_from(
    [
        "model",
        "bf16",
        "tensor_model_parallel_size",
        "--bf16",
        "recompute_modules",
        "&a",
        "*a",
        "<<",
        "!!int",
        "...",
    ]
)
MARKS = st.sampled_from(
    [":", ": ", "\n", "\n  ", "- ", "[", "]", "{", "}", "'", '"', " .... ", "=", "(", ")", "#", ","]
)
TEXTS = st.lists(WORDS | MARKS | st.text(max_size=3), max_size=30).map("".join)


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(TEXTS, st.sampled_from(["a.yaml", "a.toml", "a.log", "a.sh", "a"]))
@example("!!int", "a.yaml")
@example("bf16: !!int x", "a.yaml")
@example("? [a]\n: 1", "a.yaml")
@example("? {a: 1}\n: 1", "a.yaml")
@example("bf16: &a true\nmodel: {<<: *a}", "a.yaml")
@example("=: 1", "a.yaml")
@example("bf16: 0o9", "a.yaml")
@example("bf16: !!timestamp 2024-99-99", "a.yaml")
@example("bf16: !!binary é", "a.yaml")
@example("bf16: 12:90:90", "a.yaml")
@example("a: " + "9" * 5_000, "a.yaml")
@example("a = " + "9" * 5_000, "a.toml")
@example("a = " + "[" * 3_000, "a.toml")
def test_whatever_is_in_a_file_it_is_read_or_refused(tmp_path, text, name):
    with suppress(ConfigurationError):
        found = read(tmp_path, text, name)
        codes = [finding.code for finding in found.findings]
        assert found.configuration.settings or codes == ["configuration-framework"]


SCRIPT = """
TP=4
export CUDA_DEVICE_MAX_CONNECTIONS=1
GPT_ARGS="--num-layers 24 \\
  --tensor-model-parallel-size $TP"
MOE=(
  --num-experts ${EXPERTS:-8}   # of all layers
  --moe-layer-freq ([0]*4+[1]*9)
  --moe-router-topk 2 --moe-router-topk 4
  "--fp8-format hybrid"
)
torchrun --nproc_per_node 8 pretrain_gpt.py $GPT_ARGS ${MOE[@]} --seq-length $LENGTH
"""


def test_a_script_with_its_variables_and_arrays(tmp_path):
    found = read_with_defaults(tmp_path, SCRIPT, "run.sh")

    assert values(
        found, "num_layers", "tensor_model_parallel_size", "num_moe_experts", "moe_router_topk", "bf16"
    ) == {
        "num_layers": 24,
        "tensor_model_parallel_size": 4,
        "num_moe_experts": 8,
        "moe_router_topk": 4,
        "bf16": False,
    }
    assert found.configuration.get("moe_layer_freq") == "( [0]*4+[1]*9"
    assert found.configuration.get("fp8") == "hybrid", "a quoted flag falls apart where its array is used"
    assert not found.configuration.knows("seq_length"), "it comes from outside"
    assert found.configuration.settings["bf16"].source == "default of megatron-lm"


@pytest.mark.parametrize("outside", ['"$@"', "${EXTRA_ARGS[@]}", "$MORE", "--use-checkpoint-args"])
def test_a_script_with_arguments_from_outside_leaves_open_what_is_not_in_it(tmp_path, outside):
    found = read_with_defaults(tmp_path, f"torchrun pretrain_gpt.py --num-layers 4 {outside}", "run.sh")

    assert not found.configuration.knows("bf16")


def test_flags_as_keys_of_a_test_of_megatron_lm(tmp_path):
    text = """
ENV_VARS: {CUDA_DEVICE_MAX_CONNECTIONS: 1}
MODEL_ARGS:
  --num-layers: 12
  --disable-bias-linear: true
  --recompute-modules: "[moe_act layernorm]"
  --no-gradient-accumulation-fusion: true
"""
    found = read_with_defaults(tmp_path, text)

    assert values(
        found,
        "num_layers",
        "add_bias_linear",
        "recompute_modules",
        "gradient_accumulation_fusion",
        "framework",
    ) == {
        "num_layers": 12,
        "add_bias_linear": False,
        "recompute_modules": ("moe_act", "layernorm"),
        "gradient_accumulation_fusion": False,
        "framework": "megatron-lm",
    }


def test_a_complete_file_leaves_only_versions_and_packages_open(tmp_path):
    found = read_with_defaults(tmp_path, "torchrun pretrain_gpt.py --num-layers 4 --bf16\n", "run.sh")
    check = check_configuration(found.configuration, find_machine("h100").facts(), ())
    missing = {name for one in check.features if one.on for row in one.rows for name in row.missing}

    assert missing <= {"num_attention_heads", "seq_length", "max_position_embeddings", "torch_version"}


def test_flags_of_a_second_run_and_of_a_checkpoint_decide_nothing(tmp_path):
    text = "MODEL_ARGS:\n  --micro-batch-size: 2\nMODEL_ARGS_2:\n  --micro-batch-size: 1\n"
    found = read_with_defaults(tmp_path, text)
    of_checkpoint = read_with_defaults(tmp_path, f"{text}  --bf16: true\n  --use-checkpoint-args: true\n")

    assert found.configuration.get("micro_batch_size") == 2
    assert found.configuration.get("bf16") is False
    assert not of_checkpoint.configuration.knows("bf16")


def test_overrides_of_nemo_without_dashes(tmp_path):
    text = "torchrun x.py trainer.strategy.tensor_model_parallel_size 2 data.micro_batch_size 4\n"
    found = read(tmp_path, text, "run.sh")

    assert values(found, "tensor_model_parallel_size", "micro_batch_size") == {
        "tensor_model_parallel_size": 2,
        "micro_batch_size": 4,
    }


def test_sets_tuples_and_repeated_names_of_yaml(tmp_path):
    text = (
        "model:\n  recompute_modules: !!set {moe_act: null, layernorm: null}\n  bf16: true\n  bf16: false\n"
    )
    found = read(tmp_path, text + "  offload_modules: !!python/tuple [core_attn]\n")

    assert values(found, "recompute_modules", "bf16", "offload_modules") == {
        "recompute_modules": ("moe_act", "layernorm"),
        "bf16": False,
        "offload_modules": ("core_attn",),
    }
    assert [finding.code for finding in found.findings] == ["configuration-repeated", "configuration-release"]


def test_sections_of_bridge_count_as_bridge_applies_them(tmp_path):
    text = """
_target_: megatron.bridge.training.config.ConfigContainer
comm_overlap: {delay_wgrad_compute: null, wgrad_deferral_limit: null}
mixed_precision: {_target_: x.Precision, fp4: null, fp8: e4m3, fp8_param: null, fp8_param_gather: true}
model:
  delay_wgrad_compute: true
  fp4: e2m1
  use_te_rng_tracker: false
  cuda_graph_impl: transformer_engine
  cuda_graph_modules: full
  cuda_graph_scope: [attn]
  seq_length: 8192
  vision: {num_layers: 4}
  num_layers: 48
ddp: {use_megatron_fsdp: true, use_custom_fsdp: false}
rng: {te_rng_tracker: true}
dataset: {_target_: x.GPTDatasetConfig, seq_length: 4096}
"""
    found = read_with_defaults(tmp_path, text)

    assert values(
        found,
        *("delay_wgrad_compute", "wgrad_deferral_limit", "fp4", "fp8", "fp8_param_gather", "te_rng_tracker"),
        *("cuda_graph_modules", "use_megatron_fsdp", "seq_length", "dataset_seq_length", "num_layers"),
    ) == {
        "delay_wgrad_compute": False,
        "wgrad_deferral_limit": -1,
        "fp4": None,
        "fp8": "e4m3",
        "fp8_param_gather": True,
        "te_rng_tracker": True,
        "cuda_graph_modules": ("attn",),
        "use_megatron_fsdp": True,
        "seq_length": 8192,
        "dataset_seq_length": 4096,
        "num_layers": 48,
    }
    assert found.configuration.get("moe_token_dispatcher_type") == "allgather", "the default of a whole dump"
    partial = read_with_defaults(tmp_path, "model: {bf16: true}\ncomm_overlap: {bucket_size: 1}")
    assert not partial.configuration.knows("moe_token_dispatcher_type"), "a recipe may set it"


@pytest.mark.parametrize(
    ("layout", "counted"),
    [
        ("Et*3|(tt|)*29m|L", (32, 61, 1)),
        ("[[embedding, decoder], [decoder, loss]]", (2, 2, 0)),
        ("[[{_target_: x.LayerType, _call_: true, _args_: [1], _name_: decoder}], [loss]]", (2, 1, 0)),
        ("{_target_: x.PipelineParallelLayerLayout, _call_: true}", (None, None, None)),
        ("whatever", (None, None, None)),
    ],
)
def test_the_stages_and_layers_of_a_pipeline_layout(tmp_path, layout, counted):
    text = f"_target_: x.ConfigContainer\nmodel: {{num_layers: 61, pipeline_model_parallel_layout: {layout}}}"
    found = read_with_defaults(tmp_path, text)

    names = ("layout_stages", "layout_decoders", "layout_mtp_layers")
    assert tuple(found.configuration.get(name) for name in names) == counted
    assert (
        found.configuration.get("pipeline_model_parallel_layout") is not None or "_target_: x.Pipe" in layout
    )


@pytest.mark.parametrize("missing", ["--num-layers 2", "--hidden-size 64", "--micro-batch-size 1", None])
@pytest.mark.parametrize("elsewhere", ["", "--use-checkpoint-args", "$MORE", "--unknown $EXTRA_ARGS"])
def test_an_argument_without_default_that_is_left_out_stops_megatron_lm(tmp_path, missing, elsewhere):
    needed = "--num-layers 2 --hidden-size 64 --num-attention-heads 4 --max-position-embeddings 64"
    line = f"{needed} --micro-batch-size 1 --seq-length 64 --bf16 {elsewhere}"
    found = read_with_defaults(
        tmp_path, f"python pretrain_gpt.py {line.replace(missing or ' ~', '')}\n", "run.sh"
    )
    stops = {one.precondition.id for one in check_configuration(found.configuration, TraceFacts(), ()).stops}

    assert stops == ({"CFG-107"} if missing and not elsewhere else set())
