"""Memory that layouts need, against published peaks, and layouts that fit, against published ones."""

from dataclasses import replace

import pytest

from tests.advice.peaks import PEAKS, layout
from wallscope.advice.parallel_layout import (
    MemoryOptions,
    ModelShape,
    VisionShape,
    estimate_memory,
    model_shapes,
    smallest_states,
)
from wallscope.advice.plan import PlanRequest, list_feasible_layouts, plan_run
from wallscope.advice.published import find_machine, find_model, machines, presets
from wallscope.errors import LayoutError
from wallscope.model.advice import Sizes

SHAPES = model_shapes()
PARAMETERS = {  # in 10^9, of the models' cards
    "deepseek_v3": 671 + 11.5,  # of the readme: the model, and the own parameters of its further prediction
    "deepseek_v2": 236,
    "kimi_k2": 1026,
    "moonlight_16b": 16,
    "qwen3_235b_a22b": 235,
    "qwen3_30b_a3b": 30.5,
    "gpt_oss_120b": 117,
    "gpt_oss_20b": 21,
    "glm_45": 355,
    "glm_45_air": 106,
    "olmoe_7b": 6.9,
    "llama3_8b": 8.03,
    "llama3_70b": 70.6,
    "llama31_405b": 405.9,
    "llama2_7b": 6.74,
    "llama2_70b": 69.0,
    "qwen3_8b": 8.2,
    "qwen3_14b": 14.8,
    "qwen3_32b": 32.8,
    "qwen25_7b": 7.6,
    "qwen25_72b": 72.7,
    "gpt3_175b": 175,
    "mixtral_8x7b": 46.7,
    "mixtral_8x22b": 141,
    "qwen3_next_80b_a3b": 80,
    "qwen3_vl_30b_a3b": 31.07,
    "qwen3_vl_235b_a22b": 235.7,
}


@pytest.mark.parametrize("name", PARAMETERS)
def test_shapes_have_as_many_parameters_as_the_models(name):
    shape = SHAPES[name]
    states = estimate_memory(shape, layout(Sizes(), 1, shape), 0, MemoryOptions(weight_bytes=1))

    tower = shape.vision.count_parameters() if shape.vision else 0  # in BF16
    assert (states.weights_bytes - tower) / 1e9 == pytest.approx(PARAMETERS[name], rel=0.04)


@pytest.mark.parametrize(
    ("shape", "published"),
    [
        pytest.param(SHAPES["qwen3_vl_30b_a3b"].vision, 0.54, id="Qwen3-VL-30B: 31.07 without 30.53"),
        pytest.param(SHAPES["qwen3_vl_235b_a22b"].vision, 0.58, id="Qwen3-VL-235B"),
        pytest.param(
            VisionShape(32, 1280, 3420, 3 * 2 * 14**2, 3584, merged=4, inner=5120, gated=True),
            0.676,
            id="Qwen2.5-VL-7B: 8.29 without 7.62",
        ),
        pytest.param(
            VisionShape(24, 1024, 4096, 3 * 14**2, 4096, inner=4096),
            0.325,
            id="LLaVA-1.5: CLIP-L and projector",
        ),
    ],
)
def test_towers_have_as_many_parameters_as_those_of_the_models(shape, published):
    assert shape.count_parameters() / 1e9 == pytest.approx(published, rel=0.04)


def test_a_further_prediction_has_the_parameters_of_the_readme():
    with_it = SHAPES["deepseek_v3"]
    without = replace(with_it, predictions=0)
    found = [
        estimate_memory(one, layout(Sizes(), 1, one), 0, MemoryOptions(weight_bytes=1)).weights_bytes
        for one in (with_it, without)
    ]

    assert (found[0] - found[1]) / 1e9 == pytest.approx(11.5, rel=0.02)


SMALL = ModelShape(layers=4, hidden=8, heads=2, groups=1, head_size=4, vocabulary=32, feed_forward=16)


def test_the_last_stage_counts_if_its_predictions_make_it_the_fullest():
    attention, mlp, joined = 8 * (8 + 8) + 8 * 8, 3 * 8 * 16, 2 * 8 * 8
    shape = replace(SMALL, predictions=2)
    found = estimate_memory(shape, layout(Sizes(pipeline=2), 2, shape), 64, MemoryOptions())
    held = 2 * (attention + mlp) + 2 * 32 * 8 + 2 * (joined + attention + mlp)
    token = 4 * 8 + 2 * 2 * 8 + 2 * (8 + 8) + 2 * 8 + 6 * 16

    assert found.weights_bytes == 2 * held
    assert found.activations_bytes == 64 * (2 + 2) * token, "1 microbatch of 2 layers and 2 predictions"
    assert found.logits_bytes == 3 * 64 * 32 * 6
    first = estimate_memory(
        replace(shape, vocabulary=1), layout(Sizes(pipeline=4), 4, shape), 640, MemoryOptions()
    )
    assert first.activations_bytes == 640 * 4 * token, "many microbatches at once count more"


def test_latent_experts_by_hand():
    shape = replace(
        SMALL, experts=4, expert_width=6, experts_of_a_token=2, shared_width=5, latent_width=3, feed_forward=0
    )
    attention, shared, latent = 8 * (8 + 8) + 8 * 8, 3 * 8 * 5, 2 * 8 * 3
    held = 4 * (attention + shared + latent + 8 * 4 + 4 * 3 * 3 * 6) + 2 * 32 * 8
    found = estimate_memory(shape, layout(Sizes(), 1, shape), 64, MemoryOptions())
    plain = estimate_memory(replace(shape, latent_width=0), layout(Sizes(), 1, shape), 64, MemoryOptions())

    assert found.weights_bytes == 2 * held
    kept = 64 * 4 * (2 * 2 * 8 - 2 * 2 * 3 - 2 * 2 * 3)
    assert plain.activations_bytes - found.activations_bytes == kept, "tokens travel in the latent width"


def test_keys_of_latent_attention_may_be_wider_than_values():
    shape = replace(SMALL, groups=2, latent_rank=3, rope_size=2)
    wide = replace(shape, key_size=6)

    assert wide.attention_parameters() - shape.attention_parameters() == 2 * 2 * (8 + 3)
    assert wide.query_width == 2 * (6 + 2)
    assert wide.key_value_width == wide.query_width + 2 * 4


def test_a_tower_is_on_the_first_stage_with_all_its_microbatches():
    vision = VisionShape(2, 4, 8, 12, out=8, merged=4, inner=16)
    tower = 2 * (4 * 4 * 4 + 2 * 4 * 8) + 12 * 4 + 16 * (4 * 4 + 8)
    shape = replace(SMALL, vision=vision)
    at = layout(Sizes(pipeline=2, context=2), 8, shape)
    plain, found = (estimate_memory(one, at, 64, MemoryOptions()) for one in (SMALL, shape))
    patch, projector = 2 * (16 * 4 + 4 * 8), 2 * 4 * 4 + 4 * 16

    assert found.weights_bytes - plain.weights_bytes == 2 * tower
    assert found.optimizer_bytes - plain.optimizer_bytes == 12 * tower / 4, "sharded over DP x CP"
    assert found.vision_bytes == 2 * 32 * (4 * patch + projector)
    half = estimate_memory(replace(shape, vision=replace(vision, image_share=0.5)), at, 64, MemoryOptions())
    assert half.vision_bytes == found.vision_bytes / 2
    full = estimate_memory(shape, at, 64, MemoryOptions(recompute_full=True))
    assert 0 < full.vision_bytes < found.vision_bytes
    frozen = estimate_memory(replace(shape, vision=replace(vision, frozen=True)), at, 64, MemoryOptions())
    assert frozen.vision_bytes == 0
    assert (frozen.gradients_bytes, frozen.optimizer_bytes) == (plain.gradients_bytes, plain.optimizer_bytes)
    assert frozen.weights_bytes == found.weights_bytes


@pytest.mark.parametrize("peak", PEAKS, ids=[peak.source for peak in PEAKS])
def test_estimates_are_near_published_peaks(peak):
    assert peak.estimated_gb() == pytest.approx(peak.published_gb, rel=0.15)


def test_the_parts_of_deepseek_v3_are_those_published():
    shape = SHAPES["deepseek_v3"]
    found = estimate_memory(
        shape, layout(Sizes(1, 4, 1, 64), 256, shape), 4_096, MemoryOptions(), virtual_stages=4
    )

    assert (found.weights_bytes + found.gradients_bytes) / 1e9 == pytest.approx(36.4, rel=0.25)
    assert found.optimizer_bytes / 1e9 == pytest.approx(32.1, rel=0.05)
    assert found.activations_bytes / 1e9 == pytest.approx(131.0, rel=0.05)


def test_parts_by_hand():
    shape = ModelShape(layers=4, hidden=8, heads=2, groups=1, head_size=4, vocabulary=32, feed_forward=16)
    attention, mlp = 8 * (8 + 8) + 8 * 8, 3 * 8 * 16
    held = (4 * (attention + mlp) / 2 + 32 * 8) / 2
    found = estimate_memory(
        shape, layout(Sizes(tensor=2, pipeline=2, context=2), 16, shape), 64, MemoryOptions()
    )

    assert (found.weights_bytes, found.gradients_bytes) == (2 * held, 4 * held)
    assert found.optimizer_bytes == 12 * held / 4, "the optimizer is sharded over DP x CP"
    token = 4 * 8 + 2 * 2 * 8 + 2 * (8 + 8) + 2 * 8 + 6 * 16
    assert found.activations_bytes == 32 * 4 * token / 2, "2 microbatches of 2 layers on the first stage"
    assert found.logits_bytes == 32 * 32 / 2 * 6


@pytest.mark.parametrize("module", ["layernorm", "moe_act", "mla_up_proj", "moe"])
def test_recomputation_saves_activations_alone(module):
    shape = SHAPES["deepseek_v3"]
    at = layout(Sizes(1, 4, 1, 64), 256, shape)
    plain = estimate_memory(shape, at, 4_096, MemoryOptions())
    less = estimate_memory(shape, at, 4_096, MemoryOptions(recompute_modules=(module,)))
    full = estimate_memory(shape, at, 4_096, MemoryOptions(recompute_full=True))

    assert full.activations_bytes < less.activations_bytes < plain.activations_bytes
    assert less.total_bytes - plain.total_bytes == less.activations_bytes - plain.activations_bytes


def test_shards_of_all_states_divide_by_their_replicas():
    shape = SHAPES["qwen3_30b_a3b"]
    at = layout(Sizes(expert=8), 64, shape)
    whole, shards = (
        estimate_memory(shape, at, 4_096, MemoryOptions(fully_sharded=sharded)) for sharded in (False, True)
    )

    assert shards.gradients_bytes < whole.gradients_bytes / 7
    assert shards.optimizer_bytes == whole.optimizer_bytes


PUBLISHED = [
    preset
    for preset in presets()
    if preset.states_layout and preset.family in SHAPES and machines()[preset.machine].memory_bytes
    if preset.sizes.fewest_gpus <= preset.gpus and not preset.fully_sharded
]


def test_layouts_that_fit_hold_the_published_ones_without_knowing_them():
    missing = []
    for preset in PUBLISHED:
        found = list_feasible_layouts(
            SHAPES[preset.family], preset.gpus, 4_096, round(0.94 * machines()[preset.machine].memory_bytes)
        )
        if preset.sizes not in {one.sizes for one in found}:
            missing.append((preset.name, preset.sizes))

    assert len(PUBLISHED) > 200
    assert missing == []


def test_what_cannot_fit_is_no_layout():
    shape = SHAPES["deepseek_v3"]
    memory = 75 * 10**9
    found = list_feasible_layouts(shape, 256, 4_096, memory)

    assert found
    assert all(smallest_states(shape, one) <= memory for one in found)
    assert list_feasible_layouts(shape, 64, 4_096, memory) == ()
    with pytest.raises(LayoutError):
        layout(Sizes(expert=3), 64, shape)


def plan(model, gpus, machine, given=None):
    return plan_run(
        PlanRequest(find_model(model), find_machine(machine), gpus, 4_096, "bf16", given or {}, None, 1)
    )


def test_a_plan_estimates_memory_and_refuses_what_cannot_fit_by_how_much():
    found = plan("dsv3", 256, "h100", {"tensor": 1, "pipeline": 4, "context": 1, "expert": 64})

    assert found.memory is not None
    assert found.memory.total_bytes / 1e9 == pytest.approx(199.5, rel=0.35), "without virtual stages"
    assert found.memory_capacity_bytes == round(80e9 * 0.94)
    with pytest.raises(LayoutError, match=r"need \d+\.\d GiB per GPU even in BF16, \d+\.\d GiB more"):
        plan("dsv3", 64, "h100", {"tensor": 1, "pipeline": 1, "context": 1, "expert": 64})
    assert plan("nemotron-3-nano", 16, "h100").memory is None


def test_a_plan_lists_all_layouts_that_fit_whatever_is_published():
    found = plan("qwen3-30b", 16, "h100").feasible

    assert Sizes(expert=16) in found
    assert Sizes(tensor=2, expert=8) in found
    assert found == tuple(sorted(found, key=lambda one: one.attention * one.pipeline))


def test_memory_is_shown_with_its_parts(wallscope):
    shown = wallscope("advise", "--model", "dsv3", "--gpus", "256", "--hardware", "h100")

    assert shown.code == 0
    assert "Estimated memory per GPU" in shown.out
    assert "activations" in shown.out


def test_recomputation_widens_until_it_fits():
    plan = plan_run(PlanRequest(find_model("dsv3"), find_machine("h100"), 256, 4_096, "bf16", {}))
    totals = [one.total_bytes for one in plan.recompute]
    sets = [one.modules for one in plan.recompute]

    assert sets == [
        (),
        ("moe_act", "layernorm"),
        ("moe_act", "layernorm", "mla_up_proj", "mlp"),
        ("moe", "layernorm", "mla_up_proj", "mlp"),
        ("full",),
    ]
    assert totals == sorted(totals, reverse=True)
    assert totals[0] == plan.memory.total_bytes
    assert [one.fits for one in plan.recompute] == [one <= plan.memory_capacity_bytes for one in totals]
