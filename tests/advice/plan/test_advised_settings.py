"""Settings that `wallscope advise` names, judged by `check-config`: none stops the run that follows it."""

import pytest

from wallscope.advice.parallel_layout import parse_sizes
from wallscope.advice.plan import PlanRequest, plan_run
from wallscope.advice.preconditions import check_configuration
from wallscope.advice.published import find_machine, find_model
from wallscope.advice.settings import check_value, parse_value, vocabulary
from wallscope.model.advice import KnownSetting, RunConfiguration

RUN = {
    "framework": "megatron-bridge",
    "num_moe_experts": 256,
    "expert_model_parallel_size": 64,
    "moe_grouped_gemm": True,
    "bf16": True,
}


def advised(model, gpus, machine, words):
    """The settings of each item whose text has the words."""
    wanted = PlanRequest(find_model(model), find_machine(machine), gpus, 4_096, "bf16", parse_sizes(None))
    return [item.settings for item in plan_run(wanted).items if words in item.text]


def configured(settings):
    """A run of a mixture of experts with these settings."""
    known = {name: KnownSetting(check_value(name, value), "test") for name, value in RUN.items()}
    for setting in settings:
        written, _, value = setting.partition("=")
        name = vocabulary().name(written)
        assert name is not None, setting
        known[name] = KnownSetting(parse_value(name, value), "advised")
    return RunConfiguration(known)


@pytest.mark.parametrize(("machine", "scopes"), [("h100", 2), ("b200", 2), ("gb200", 3)])
def test_each_scope_of_graphs_is_advised_with_what_it_takes(machine, scopes):
    items = advised("dsv3", 256, machine, "CUDA graphs:") + advised("dsv3", 256, machine, "CUDA graphs, ")
    modules = [configured(item).get("cuda_graph_modules") for item in items]

    assert (
        modules == [("moe_router", "moe_preprocess"), ("attn", "moe_router", "moe_preprocess"), ()][:scopes]
    )
    for item in items:
        assert check_configuration(configured(item), find_machine(machine).facts(), ()).stops == ()


def test_blockwise_fp8_is_named_as_each_framework_names_it():
    (settings,) = advised("dsv3", 256, "h100", "blockwise FP8")

    assert settings == (
        "mixed_precision=bf16_with_fp8_subchannel_scaling_mixed",
        "--fp8-format e4m3",
        "--fp8-recipe blockwise",
    )
