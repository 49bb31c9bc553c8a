"""Files that are not Megatron's, arguments that its parser rejects, and sizes that the launcher shows."""

import pytest

from wallscope.advice.configuration import read_configuration
from wallscope.advice.preconditions import check_configuration
from wallscope.advice.published import find_machine
from wallscope.errors import ConfigurationError
from wallscope.model.capture import Severity

NEEDED = (
    "--num-layers 8 --hidden-size 64 --num-attention-heads 8 --max-position-embeddings 64 --seq-length 64"
    " --micro-batch-size 1 --bf16"
)


def check(folder, text, name="run.sh"):
    """The check of a file, and the messages of its errors with the rows that stop its run."""
    path = folder / name
    path.write_text(text, encoding="utf-8")
    found = read_configuration(path, with_defaults=True)
    checked = check_configuration(
        found.configuration, find_machine("h100").facts(), found.findings, found.form
    )
    errors = [one.message for one in checked.findings if one.severity is Severity.ERROR]
    return checked, errors + [one.precondition.id for one in checked.stops]


@pytest.mark.parametrize(
    ("name", "text", "program"),
    [
        (
            "run.yaml",
            "bf16: true\nfp16: true\nper_device_train_batch_size: 2\nmodel_name_or_path: x\n",
            "Hugging Face",
        ),
        ("run.yaml", "zero_optimization: {stage: 3}\nbf16: true\nfp16: true\n", "DeepSpeed"),
        (
            "run.toml",
            "[training]\nseq_len = 8192\n[parallelism]\ntensor_parallel_degree = 2\n",
            "torchtitan",
        ),
        ("run.yaml", "train: {micro_batch_size: 3, global_batch_size: 64, bf16: true, fp16: true}\n", ""),
        ("run.sh", "torchrun train.py --bf16 True --fp16 True --per_device_train_batch_size 2\n", "Hugging"),
    ],
)
def test_a_file_of_another_program_is_named_and_never_stops(tmp_path, name, text, program):
    checked, stops = check(tmp_path, text, name)

    assert stops == []
    (finding,) = checked.findings
    assert finding.code == "configuration-framework"
    assert program in finding.message


def test_one_setting_of_megatron_shows_whose_file_it_is(tmp_path):
    text = "bf16: true\nfp16: true\ntensor_model_parallel_size: 2\n"

    assert check(tmp_path, text, "run.yaml")[1] == ["CFG-38"]
    with pytest.raises(ConfigurationError, match="unknown setting"):
        check(tmp_path, "bf16 = true\nodd = 1\n", "run.toml")


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        ("--swiglu true", "takes no value"),
        ("--swiglu", None),
        ("--no-overlap-p2p-communication true", "takes no value"),
        ("--no-overlap-p2p-communication", None),
        ("--swiglu > log", None),
        ("--attention-backend AttnBackend.auto", "has none of its choices"),
        ("--attention-backend auto", None),
        ("--exp-avg-dtype None", "has none of its choices"),
        ("--fp8-quantizer-factory", "has no value"),
        ("--fp8-quantizer-factory $FACTORY", None),
        ("--moe-router-load-balancing-type aux_loss global_aux_loss", None),
    ],
)
def test_the_parser_of_megatron_rejects_odd_values(tmp_path, flags, message):
    _, stops = check(tmp_path, f"torchrun --nproc_per_node 8 pretrain_gpt.py {NEEDED} {flags}\n")

    assert [each for each in stops if " has " in each or "takes" in each] == [
        each for each in stops if message and message in each
    ]
    assert any(message in each for each in stops) if message else True


@pytest.mark.parametrize(
    ("launcher", "flags", "stops"),
    [
        ("--nproc_per_node 8", "--tensor-model-parallel-size 2", False),
        ("--nproc-per-node 8 --nnodes 2", "--tensor-model-parallel-size 16", True),
        ("--nproc_per_node 8", "--tensor-model-parallel-size 16", True),
        ("--nproc_per_node $GPUS", "--tensor-model-parallel-size 16", False),
        ("--nproc_per_node 8 --nnodes $NODES", "--tensor-model-parallel-size 16", False),
        ("--nproc_per_node 8", "--global-batch-size 12", True),
        ("--nproc_per_node 8", "--global-batch-size 16 --eval-global-batch-size 4", True),
    ],
)
def test_the_launcher_tells_the_number_of_gpus(tmp_path, launcher, flags, stops):
    environment = "export CUDA_DEVICE_MAX_CONNECTIONS=1\n"
    heads = NEEDED.replace("attention-heads 8", "attention-heads 16")
    _, found = check(tmp_path, f"{environment}torchrun {launcher} pretrain_gpt.py {heads} {flags}\n")

    of_sizes = [each for each in found if "GPUs" in each or "batch" in each or "ranks" in each]
    assert bool(of_sizes) is (stops and "nnodes 2" not in launcher)


def test_the_encoder_gives_layers_and_length_to_a_model_without_its_own(tmp_path):
    text = NEEDED.replace("--num-layers", "--encoder-num-layers").replace(
        "--seq-length", "--encoder-seq-length"
    )
    stages = "--num-layers-per-virtual-pipeline-stage 2"

    assert check(tmp_path, f"torchrun pretrain_t5.py {text}\n")[1] == []
    assert check(tmp_path, f"torchrun pretrain_t5.py {text} {stages}\n")[1] == ["CFG-65"]


def test_a_log_has_what_megatron_filled_in(tmp_path):
    names = {
        "num_layers": 8,
        "encoder_num_layers": 8,
        "seq_length": 64,
        "encoder_seq_length": 64,
        "step_batch_size_schedule": "0:8",
        "global_batch_size": 8,
        "micro_batch_size": 1,
        "max_position_embeddings": 64,
        "main_grads_dtype": "torch.float32",
    }
    text = "".join(f"  {name} {'.' * (48 - len(name))} {value}\n" for name, value in names.items())

    assert check(tmp_path, f"using world size: 8\n{text}", "run.log")[1] == []


@pytest.mark.parametrize(
    ("flags", "stops"),
    [
        ("--swiglu --use-te-activation-func", {"CFG-87"}),
        ("--squared-relu", {"CFG-88"}),
        ("--squared-relu --disable-bias-linear", set()),
        ("--swiglu --glu-linear-offset 1.0", {"CFG-88"}),
        ("--quick-geglu --glu-linear-offset 1.0", set()),
        ("--squared-relu --no-bias-gelu-fusion", set()),
    ],
)
def test_flags_tell_the_activation_of_megatron(tmp_path, flags, stops):
    assert set(check(tmp_path, f"torchrun pretrain_gpt.py {NEEDED} {flags}\n")[1]) == stops


DUMP = """
_target_: megatron.bridge.training.config.ConfigContainer
checkpoint: {save: null}
dataset: {path: x}
logger: {log_interval: 1}
scheduler: {lr_decay_iters: 1}
tokenizer: {tokenizer_type: NullTokenizer}
train: {micro_batch_size: 1, global_batch_size: 8}
"""


@pytest.mark.parametrize(
    ("text", "stops"),
    [
        pytest.param("optimizer: {lr: 1.0}\nmodel: {num_layers: 8}\n", [], id="sound"),
        pytest.param("model: {num_layers: 8}\n", ["section optimizer is missing"], id="a section"),
        pytest.param(
            "optimizer: {lr: 1.0}\nmodel: {recompute_granularity: selective, recompute_modules: core_attn}\n",
            ["recompute_modules is a text"],
            id="letters as modules",
        ),
        pytest.param(
            "optimizer: {bf16: true, fp16: true}\nmodel: {bf16: true, fp16: false}\n",
            ["optimizer.fp16 are both set"],
            id="two precisions",
        ),
        pytest.param(
            "optimizer: {use_precision_aware_optimizer: true, use_distributed_optimizer: false}\n"
            "ddp: {use_distributed_optimizer: true}\nmodel: {num_layers: 8}\n",
            ["CFG-46"],
            id="the optimizer is checked before ddp's value counts",
        ),
        pytest.param(
            "optimizer: {lr: 1.0}\nmodel: {fp8: hybrid, fp8_param: true}\n"
            "mixed_precision: {_target_: megatron.bridge.training.mixed_precision.MixedPrecisionConfig,"
            " fp8_param_gather: true}\n",
            ["CFG-39"],
            id="a precision that leaves out FP8 has none",
        ),
        pytest.param(
            "optimizer: {lr: 1.0}\nmodel: {transformer: {_target_: megatron.bridge.TransformerConfig,"
            " cuda_graph_impl: transformer_engine, use_te_rng_tracker: false}}\n",
            ["CFG-129"],
            id="a model of a builder",
        ),
        pytest.param(
            "optimizer: {lr: 1.0}\nmodel: {cuda_graph_impl: transformer_engine, external_cuda_graph: true,"
            " cuda_graph_modules: []}\n",
            [],
            id="saved by a run that had resolved the former name",
        ),
        pytest.param(
            "optimizer: {lr: 1.0}\nmodel: {cuda_graph_impl: transformer_engine, external_cuda_graph: true,"
            " cuda_graph_modules: [attn]}\n",
            ["CFG-37"],
            id="both names",
        ),
    ],
)
def test_what_bridge_checks_of_one_section(tmp_path, text, stops):
    _, found = check(tmp_path, DUMP + text, "run.yaml")

    assert len(found) == len(stops), found
    assert all(part in each for part, each in zip(stops, found, strict=True))


OVERLAP = (
    "comm_overlap: {delay_wgrad_compute: true, overlap_moe_expert_parallel_comm: true,"
    " tp_comm_overlap: false}\n"
)
MODEL = (
    "model: {num_moe_experts: 8, expert_model_parallel_size: 8, moe_token_dispatcher_type: alltoall,"
    " bf16: true,"
    " overlap_moe_expert_parallel_comm: true, delay_wgrad_compute: true, cuda_graph_impl: transformer_engine,"
    " cuda_graph_modules: [attn], gradient_accumulation_fusion: true, add_bias_linear: true,"
    " expert_tensor_parallel_size: 1}\n"
)


@pytest.mark.parametrize(
    ("section", "stops"),
    [
        ("comm_overlap: null\n", False),
        (
            OVERLAP,
            True,
        ),
    ],
)
def test_graphs_of_delayed_gradients_are_checked_with_the_section_for_overlap(tmp_path, section, stops):
    _, found = check(tmp_path, f"{DUMP}optimizer: {{lr: 1.0}}\n{MODEL}{section}", "run.yaml")

    assert ("EPO-D07" in found) is stops


@pytest.mark.parametrize(
    ("written", "is_on"), [("true", True), ("'true'", True), ("'false'", True), ("0", False), ("''", False)]
)
def test_a_switch_of_a_dump_is_read_as_python_reads_it(tmp_path, written, is_on):
    text = f"{DUMP}optimizer: {{lr: 1.0}}\nmodel: {{moe_permute_fusion: {written}}}\n"
    path = tmp_path / "run.yaml"
    path.write_text(text, encoding="utf-8")
    found = read_configuration(path)

    assert found.configuration.get("moe_permute_fusion") is is_on
    odd = [one for one in found.findings if one.code == "configuration-disputed"]
    assert bool(odd) is (written != "true")
