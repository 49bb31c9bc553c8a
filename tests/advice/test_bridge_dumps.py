"""Dumps of Megatron Bridge: what their form tells, and what Bridge would refuse in them."""

import pytest

from wallscope.advice.configuration import read_configuration
from wallscope.advice.preconditions import check_configuration
from wallscope.advice.published import find_machine


def judge(folder, text):
    """The settings of a dump, and the rows that stop its run."""
    path = folder / "config.yaml"
    path.write_text(text, encoding="utf-8")
    found = read_configuration(path, with_defaults=True)
    check = check_configuration(found.configuration, find_machine("gb200").facts(), found.findings)
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
