import re
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from wallscope.advice.parallel_layout import context_and_tensor, fold, parse_sizes
from wallscope.advice.plan import PlanRequest, plan_run
from wallscope.advice.published import (
    find_long_context,
    find_machine,
    find_model,
    machines,
    nearest_presets,
    presets,
)
from wallscope.errors import LayoutError, OptionError
from wallscope.model.advice import Levers, Sizes


def wanted(name, gpus, hardware, seq_length=4096, layout=None, **rest):
    run = PlanRequest(find_model(name), find_machine(hardware), gpus, seq_length, "bf16", parse_sizes(layout))
    return replace(run, **rest)


@pytest.mark.parametrize(
    ("run", "sizes", "data", "expert_data", "virtual"),
    [
        pytest.param(wanted("dsv3", 256, "h100", 131072), (1, 8, 32, 32), 1, 1, 4, id="DSV3 128K"),
        pytest.param(wanted("dsv3", 512, "h100", 262144), (1, 8, 64, 32), 1, 2, 4, id="DSV3 256K"),
        pytest.param(
            wanted("qwen3-235b", 128, "gb200", 131072), (4, 4, 4, 32), 2, 1, 12, id="Qwen3-235B 128K"
        ),
        pytest.param(
            wanted("dsv3", 256, "h100", 4096, "tp4,cp2,pp4"), (4, 4, 2, 64), 8, 1, None, id="folded EP64"
        ),
    ],
)
def test_published_layouts_are_reproduced(run, sizes, data, expert_data, virtual):
    plan = plan_run(run)
    tensor, stages, context, expert = sizes

    assert plan.layout.sizes == Sizes(tensor, stages, context, expert)
    assert (plan.layout.data, plan.layout.expert_data) == (data, expert_data)
    assert plan.virtual_pipeline == virtual


@pytest.mark.parametrize(
    ("run", "sizes", "source"),
    [
        pytest.param(
            wanted("qwen3-next", 32, "gb200", 65536), (1, 2, 16, 16), "EP reduced", id="EP fits into a group"
        ),
        pytest.param(wanted("dsv3", 512, "h100", 196608), (1, 8, 64, 32), "262,144 tokens", id="next longer"),
        pytest.param(
            wanted("dsv3", 256, "h100", 131072), (1, 8, 32, 32), "this length", id="just this length"
        ),
        pytest.param(
            wanted("dsv3", 256, "h100", 4096, "tp16,pp16"), (16, 16, 1, 16), "EP reduced", id="the user's TP"
        ),
    ],
)
def test_what_does_not_fit_as_published_is_fitted_and_said(run, sizes, source):
    plan = plan_run(run)
    tensor, stages, context, expert = sizes

    assert plan.layout.sizes == Sizes(tensor, stages, context, expert)
    assert source in plan.layout_source


def test_the_users_own_ep_is_never_lowered():
    with pytest.raises(LayoutError, match="EP64"):
        plan_run(wanted("dsv3", 64, "h100", 4096, "ep64"))


def test_folding_lets_experts_spread_over_what_attention_divides_otherwise():
    assert plan_run(wanted("dsv3", 256, "h100", 4096, "tp4,cp2,pp4")).largest_expert == 64


@pytest.mark.parametrize(
    ("sizes", "fewest"),
    [
        (Sizes(tensor=2, expert=8), 8),
        (Sizes(tensor=2, pipeline=2, expert=8), 16),
        (Sizes(tensor=2, context=4, expert=8), 8),
        (Sizes(tensor=2, expert=4, expert_tensor=2), 8),
        (Sizes(context=8, expert=8), 8),
    ],
)
def test_the_fewest_gpus_are_those_of_the_larger_mesh(sizes, fewest):
    assert fold(sizes, fewest).data * sizes.attention * sizes.pipeline == fewest
    with pytest.raises(LayoutError, match="max"):
        fold(sizes, fewest - 1)


@given(
    st.builds(Sizes, *[st.sampled_from([1, 2, 3, 4, 8])] * 5),
    st.integers(1, 4096),
)
def test_a_layout_that_can_be_uses_every_gpu_in_both_meshes(sizes, gpus):
    try:
        found = fold(sizes, gpus)
    except LayoutError:
        whole = (sizes.attention * sizes.pipeline, sizes.experts * sizes.pipeline)
        assert any(gpus % each for each in whole)
    else:
        assert sizes.attention * found.data * sizes.pipeline == gpus
        assert sizes.experts * found.expert_data * sizes.pipeline == gpus


@pytest.mark.parametrize(
    ("seq_length", "hardware", "found"),
    [
        (4_096, "h100", (1, 1)),
        (16_384, "h100", (4, 1)),
        (32_768, "h100", (8, 1)),
        (65_536, "b200", (16, 1)),
        (131_072, "h100", (32, 1)),
        (262_144, "h100", (64, 1)),
        (131_072, "gb200", (4, 4)),
        (20_000, "h100", (4, 1)),
        (1, "h100", (1, 1)),
    ],
)
def test_context_parallelism_follows_the_length(seq_length, hardware, found):
    assert context_and_tensor(seq_length, find_machine(hardware)) == found


@pytest.mark.parametrize(
    ("run", "said"),
    [
        pytest.param(wanted("dsv3", 64, "h100", 131072), "= 256", id="too few GPUs for this length"),
        pytest.param(wanted("dsv3", 256, "h100", 4096, "tp3,pp4,cp1,ep8"), "TP x CP = 12", id="TP 3"),
        pytest.param(wanted("dsv3", 96, "h100", 4096, "tp1,pp1,cp1,ep96"), "256 experts", id="EP 96"),
        pytest.param(
            wanted("dsv3", 256, "h100", 131072, global_batch=5, micro_batch=2), "not a multiple", id="GBS"
        ),
        pytest.param(wanted("dsv3", 512, "h100", 200_000, "cp64"), "2 x CP = 2 x 64", id="shards"),
        pytest.param(wanted("dsv3", 7, "h100"), "= 16", id="the fewest GPUs of any proposal"),
    ],
)
def test_what_cannot_be_is_refused_with_the_reason(run, said):
    with pytest.raises(LayoutError) as caught:
        plan_run(run)

    assert said in str(caught.value)


@pytest.mark.parametrize("text", ["tp4,tp2", "dp4", "tp0", "tp", "tp-1", "tp4;ep2"])
def test_a_layout_that_cannot_be_read_is_refused(text):
    with pytest.raises(OptionError, match="--layout"):
        parse_sizes(text)


def test_names_and_precisions_that_are_not_known_are_refused():
    with pytest.raises(OptionError, match="--model gpt2"):
        find_model("gpt2")
    with pytest.raises(OptionError, match="--hardware tpu"):
        find_machine("tpu")
    with pytest.raises(OptionError, match="does not run on h100"):
        plan_run(wanted("dsv3", 256, "h100", precision="mxfp8"))
    with pytest.raises(OptionError, match="does not run on a100 — use bf16"):
        plan_run(wanted("dsv3", 256, "a100", precision="fp8"))


def texts(plan):
    return " ".join(item.text for item in plan.items)


def test_the_checklist_follows_machine_length_and_model():
    phases = ["freeze", "fit", "scale", "profile", "retune", "validate"]
    short = plan_run(wanted("qwen3-30b", 16, "h100"))
    long = plan_run(wanted("dsv3", 256, "h100", 131072, global_batch=64))
    rack = plan_run(wanted("dsv3", 256, "gb200", precision="mxfp8"))
    vision = plan_run(wanted("qwen3-vl-235b", 64, "gb200"))
    old = plan_run(wanted("dsv3", 256, "a100", layout="tp16,pp16"))

    for plan in (short, long, rack, vision, old):
        order = [phases.index(item.phase) for item in plan.items]
        assert order == sorted(order)
        assert set(order) == set(range(6))
        assert all(item.facts for item in plan.items)
        assert not re.search(r"[{}]", texts(plan))
    assert "Offload the optimizer" in texts(long)
    assert "Offload the optimizer" not in texts(short)
    assert (long.accumulation, "DP is 1:" in texts(long)) == (64, True)
    assert "HybridEP first" in texts(rack)
    assert "blockwise FP8" in texts(short)
    assert "FP8" not in texts(old).replace("dispatcher, overlap, FP8", "").replace("once graphs, FP8", "")
    assert ("TP16 exceeds" in texts(old), "exceeds the NVLink domain of 8: across" in texts(short)) == (
        True,
        False,
    )
    assert "MXFP8 after" in texts(rack)
    assert "real images" in texts(vision)
    assert "real images" not in texts(rack)


def test_presets_nearby_are_of_the_machine_and_size():
    near = nearest_presets("deepseek_v3", find_machine("gb200"), 256, "mxfp8")

    assert near[0].name == "deepseek_v3_256gpu_gb200_fp8mx"
    assert (near[0].sizes, near[0].virtual_pipeline) == (Sizes(1, 4, 1, 64), 4)
    assert (near[0].global_batch, near[0].ep_overlap) == (4096, True)
    assert len(presets()) == len({each.name for each in presets()}) > 280


def test_every_published_length_can_be_on_the_gpus_that_it_was_published_for():
    for name, hardware, length, gpus in (
        ("deepseek_v3", "h100", 131072, 256),
        ("deepseek_v3", "h100", 262144, 512),
        ("qwen3_235b_a22b", "gb200", 131072, 128),
    ):
        found = find_long_context(name, find_machine(hardware), length)
        assert found is not None
        assert found.sizes.fewest_gpus == gpus


def test_throughput_is_that_of_the_machine_and_length():
    short = plan_run(wanted("qwen3-235b", 128, "gb200"))
    long = plan_run(replace(wanted("qwen3-235b", 128, "gb200"), seq_length=131072))

    assert any("700 (28 %)" in band.text for band in short.bands)
    assert ["1,100" in band.text for band in long.bands] == [True]
    assert {each.nvlink_domain for each in machines().values()} == {8, 72, None}


@pytest.mark.parametrize(
    ("name", "gpus", "hardware", "seq_length"),
    [
        ("llama3-8b", 8, "h100", 8192),
        ("llama-3-70b", 64, "h100", 8192),
        ("llama3.1-405b", 512, "h100", 8192),
        ("gpt-3", 512, "h100", 4096),
        ("qwen3-32b", 32, "h200", 8192),
        ("qwen2.5-72b", 64, "a100", 4096),
    ],
)
def test_a_plan_of_a_dense_model_fits_and_names_no_experts(name, gpus, hardware, seq_length):
    plan = plan_run(wanted(name, gpus, hardware, seq_length))
    said = f"{texts(plan)} {[str(setting) for item in plan.items for setting in item.settings]}"

    assert re.search(r"(?i)expert|dispatcher|router|moe|all-to-all", said) is None
    assert plan.planned.fits
    assert plan.planned.memory.total_bytes <= plan.memory_capacity_bytes
    assert plan.largest_expert == plan.layout.sizes.expert == 1
    assert set(range(6)) == {
        ("freeze", "fit", "scale", "profile", "retune", "validate").index(item.phase) for item in plan.items
    }


def test_a_model_without_experts_refuses_sizes_of_experts():
    with pytest.raises(LayoutError, match="no experts"):
        plan_run(wanted("llama3-8b", 8, "h100", layout="ep4"))


def test_a_model_without_presets_gets_the_first_sizes_that_fit_with_selective_recomputation():
    plan = plan_run(wanted("gpt-3", 512, "h100"))
    sizes = plan.layout.sizes
    before = [
        one for one in plan.feasible if one.tensor < sizes.tensor and one.pipeline <= 16 and one.context <= 2
    ]

    assert "nothing is published" in plan.layout_source
    assert plan.planned.levers == Levers(("layernorm", "mlp"))
    assert sizes.pipeline <= 16
    assert len(before) > 1
    for one in before:
        given = f"tp{one.tensor},pp{one.pipeline},cp{one.context},ep1"
        levers = plan_run(wanted("gpt-3", 512, "h100", layout=given)).planned.levers
        assert levers.short_moments or levers.offloads_optimizer or levers.recompute == ("full",)
