"""Dumps of Megatron Bridge: what their form tells, and what Bridge would refuse in them."""

import pytest

from wallscope.advice.configuration import read_configuration
from wallscope.advice.preconditions import check_configuration
from wallscope.advice.published import find_machine
from wallscope.model.capture import Severity


def judge(folder, text):
    """The settings of a dump, and the rows that stop its run."""
    path = folder / "config.yaml"
    path.write_text(text, encoding="utf-8")
    found = read_configuration(path, with_defaults=True)
    check = check_configuration(
        found.configuration, find_machine("gb200").facts(), found.findings, found.form
    )
    return found.configuration, {one.precondition.id for one in check.stops}


@pytest.mark.parametrize(("padded", "stops"), [("true", set()), ("false", {"CFG-99"})])
def test_packing_under_graphs_is_padded_by_either_name(tmp_path, padded, stops):
    text = f"""
_target_: megatron.bridge.training.config.ConfigContainer
dataset:
  _target_: megatron.bridge.data.builders.gpt_sft.GPTSFTDatasetConfig
  enable_offline_packing: true
  pad_to_max_length: false
  dataset_kwargs: {{pad_to_max_length: {padded}}}
  seq_length: 4096
model: {{seq_length: 4096, cuda_graph_impl: transformer_engine, cuda_graph_modules: [mlp]}}
train: {{micro_batch_size: 1, global_batch_size: 8}}
"""
    found, stops_of = judge(tmp_path, text)

    assert found.get("dataset_is_for_finetuning") is True
    assert stops_of & {"CFG-98", "CFG-99", "CFG-100"} == stops


def test_the_activation_of_a_dump_is_named_by_its_function(tmp_path):
    text = """
_target_: megatron.bridge.training.config.ConfigContainer
model:
  activation_func: {_call_: false, _target_: megatron.core.activations.squared_relu}
  bias_activation_fusion: true
"""
    found, stops_of = judge(tmp_path, text)

    assert found.get("activation_func") == "squared_relu"
    assert "CFG-88" in stops_of


@pytest.mark.parametrize(("gathered", "stops"), [("true", set()), ("false", {"CFG-43"})])
def test_whether_parameters_are_gathered_decides_whether_they_are_kept_in_fp8(tmp_path, gathered, stops):
    """Bridge assigns both fields in their order, and the later one sets the other."""
    text = f"""
_target_: megatron.bridge.training.config.ConfigContainer
mixed_precision:
  fp8: e4m3
  fp8_recipe: mxfp8
  fp8_param: {"false" if gathered == "true" else "true"}
  fp8_param_gather: {gathered}
  reuse_grad_buf_for_mxfp8_param_ag: true
"""
    found, stopped_by = judge(tmp_path, text)

    assert found.get("fp8_param_gather") is (gathered == "true")
    assert stopped_by & {"CFG-39", "CFG-43"} == stops


DUMP = "_target_: megatron.bridge.training.config.ConfigContainer\n"


@pytest.mark.parametrize(
    ("model", "stops"),
    [
        pytest.param(
            "cuda_graph_impl: none, cuda_graph_modules: [moe_preprocess, full]", set(), id="no graphs"
        ),
        pytest.param("cuda_graph_impl: local, cuda_graph_scope: [full_iteration]", set(), id="former name"),
        pytest.param(
            "cuda_graph_impl: local, cuda_graph_modules: [full_iteration, mlp]", {"CG-02"}, id="both"
        ),
        pytest.param(
            "cuda_graph_impl: transformer_engine, cuda_graph_modules: [full_iteration]",
            {"CFG-103"},
            id="graphs of Transformer Engine are not of iterations",
        ),
        pytest.param(
            "cuda_graph_impl: transformer_engine, cuda_graph_modules: [attn, full]",
            {"CFG-103"},
            id="full stands alone",
        ),
    ],
)
def test_former_names_among_graph_modules_are_read_as_the_framework_reads_them(tmp_path, model, stops):
    checks = "rerun_state_machine: {check_for_nan_in_loss: false}\nrng: {te_rng_tracker: true}\n"
    _, stopped_by = judge(tmp_path, f"{DUMP}{checks}model: {{{model}}}\n")

    assert stopped_by == stops


@pytest.mark.parametrize(
    ("first", "last", "stops"),
    [("1", "3", set()), ("8", "null", {"CFG-67"}), ("32", "null", set()), ("null", "null", set())],
)
def test_a_single_stage_has_no_middle_stages_unless_both_ends_are_set(tmp_path, first, last, stops):
    """Megatron-Core subtracts a stage for each end; without any stage left, no layer may be left either."""
    text = (
        f"{DUMP}model: {{num_layers: 32, num_layers_in_first_pipeline_stage: {first},"
        f" num_layers_in_last_pipeline_stage: {last}}}\n"
    )

    assert judge(tmp_path, text)[1] == stops


def test_the_former_switch_for_whole_expert_layers_counts_after_the_checks_of_recomputation(tmp_path):
    model = "moe_layer_recompute: true, num_moe_experts: 8, expert_model_parallel_size: 8, num_layers: 4"
    offload = "cpu_offloading: true, cpu_offloading_num_layers: 1"
    early = f"{DUMP}model: {{{model}, recompute_modules: [odd], {offload}}}\n"
    late = (
        f"{DUMP}model: {{{model}, cuda_graph_impl: transformer_engine, cuda_graph_modules: [moe_router]}}\n"
        "rng: {te_rng_tracker: true}\n"
    )

    assert judge(tmp_path, early)[1] == set(), "names and offload are checked before"
    found, stops = judge(tmp_path, late)
    assert stops == {"CG-27", "MEM-07"}
    assert found.get("recompute_modules") == ("core_attn", "moe")


def test_a_former_name_that_nothing_reads_switches_nothing_on(tmp_path):
    text = f"{DUMP}ddp: {{use_custom_fsdp: true}}\nenv_vars: {{CUDA_DEVICE_MAX_CONNECTIONS: 1}}\n"
    found, stops = judge(tmp_path, text)

    assert (found.get("use_megatron_fsdp"), stops) == (False, set())
    findings = read_configuration(tmp_path / "config.yaml").findings
    assert any(
        "use_custom_fsdp is now named use_megatron_fsdp, and has no effect" in one.message for one in findings
    )


@pytest.mark.parametrize(
    ("coefficients", "stops"), [("0.01", {"CFG-104"}), ("[0.01]", {"CFG-104"}), ("[0.01, 0.02]", set())]
)
def test_several_balancing_losses_have_a_coefficient_each(tmp_path, coefficients, stops):
    text = (
        f"{DUMP}model: {{moe_router_load_balancing_type: [aux_loss, global_aux_loss],"
        f" moe_aux_loss_coeff: {coefficients}}}\n"
    )

    assert judge(tmp_path, text)[1] == stops


@pytest.mark.parametrize(
    ("section", "stops"),
    [
        (
            "dataset: {enable_offline_packing: false, offline_packing_specs: {packed_sequence_size: 4096}}",
            {"CFG-105"},
        ),
        ("dataset: {enable_offline_packing: true, offline_packing_specs: null}", {"CFG-105"}),
        ("checkpoint: {async_save: true, save: null, load: null}", {"CFG-106"}),
        ("checkpoint: {async_save: true, save: /out, load: null}", set()),
    ],
)
def test_parts_that_are_only_used_together(tmp_path, section, stops):
    assert judge(tmp_path, f"{DUMP}{section}\ntrain: {{micro_batch_size: 1}}\n")[1] == stops


@pytest.mark.parametrize(("gathered", "is_refused"), [("true", False), ("false", True)])
def test_a_section_of_core_is_checked_before_the_precision_changes_it(tmp_path, gathered, is_refused):
    path = tmp_path / "config.yaml"
    path.write_text(
        f"{DUMP}mixed_precision: {{fp8: e4m3, fp8_recipe: mxfp8, fp8_param_gather: true}}\n"
        "ddp:\n  _target_: megatron.core.distributed.DistributedDataParallelConfig\n"
        f"  reuse_grad_buf_for_mxfp8_param_ag: true\n  fp8_param_gather: {gathered}\n",
        encoding="utf-8",
    )
    found = read_configuration(path, with_defaults=True).findings

    assert any("without ddp.fp8_param_gather" in one.message for one in found) is is_refused


SOUND = """
_target_: megatron.bridge.training.config.ConfigContainer
checkpoint: {pretrained_checkpoint: null, save: null, load: null}
comm_overlap: {_target_: megatron.bridge.training.comm_overlap.CommOverlapConfig, tp_comm_overlap: false}
dataset: {fast_cache_load: false, path_to_cache: null}
ddp: {use_megatron_fsdp: false}
dist: {use_megatron_fsdp: false, use_torch_fsdp2: false}
model: {num_layers: 6, hybrid_layer_pattern: "M*|M-M-/M*"}
peft: null
train: {_target_: megatron.bridge.training.config.TrainingConfig, global_batch_size: 8, micro_batch_size: 1}
"""


@pytest.mark.parametrize(
    ("sound", "broken", "message"),
    [
        (", tp_comm_overlap: false", "", "comm_overlap.tp_comm_overlap is not set"),
        ("peft: null", "peft: {_target_: megatron.bridge.peft.lora.LoRA}", "peft is set without checkpoint"),
        ("fast_cache_load: false", "fast_cache_load: true", "dataset.fast_cache_load is set without"),
        ("global_batch_size: 8, ", "", "train.global_batch_size is not set"),
        ("num_layers: 6", "num_layers: 8", "num_layers is 8, and model.hybrid_layer_pattern has 6 layers"),
    ],
)
def test_sections_that_their_own_class_rejects_stop_the_run(tmp_path, sound, broken, message):
    def errors_of(text):
        path = tmp_path / "run.yaml"
        path.write_text(text, encoding="utf-8")
        found = read_configuration(path, with_defaults=True)
        return [one.message for one in found.findings if one.severity is Severity.ERROR]

    assert errors_of(SOUND) == []
    (error,) = errors_of(SOUND.replace(sound, broken))
    assert message in error


@pytest.mark.parametrize(
    ("ddp", "dist", "stops", "is_used"),
    [(True, False, set(), False), (True, True, {"CFG-76"}, True), (False, True, {"CFG-76"}, True)],
)
def test_torch_fsdp_counts_beside_megatron_fsdp_only_if_dist_has_both(tmp_path, ddp, dist, stops, is_used):
    text = SOUND.replace("ddp: {use_megatron_fsdp: false}", f"ddp: {{use_megatron_fsdp: {str(ddp).lower()}}}")
    text = text.replace(
        "use_megatron_fsdp: false, use_torch_fsdp2: false",
        f"use_megatron_fsdp: {str(dist).lower()}, use_torch_fsdp2: true",
    )
    found, stops_of = judge(tmp_path, text)

    assert stops_of & {"CFG-76"} == stops
    assert found.get("use_torch_fsdp2") is is_used
