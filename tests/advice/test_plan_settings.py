"""A plan passes its own check, fits, and gets the same answer when its own numbers are given back."""

import itertools
import random
from dataclasses import replace

import pytest

from tests.advice.test_plan import wanted
from wallscope.advice.configuration import read_configuration
from wallscope.advice.framework_rules import count_layout
from wallscope.advice.parallel_layout import ModelShape, VisionShape, model_shapes, parse_sizes
from wallscope.advice.plan import plan_run
from wallscope.advice.plan_settings import divide_layers
from wallscope.advice.preconditions import check_configuration
from wallscope.advice.published import Model, find_machine, machines
from wallscope.errors import LayoutError

MACHINES = [
    ("h100", "bf16"),
    ("h100", "fp8"),
    ("h20", "fp8"),
    ("a800", "bf16"),
    ("gb200", "mxfp8"),
    ("b200", "nvfp4"),
    ("mi300x", "bf16"),
    ("v100", "fp16"),
]
OWN = {
    "latent experts with MTP": ModelShape(
        *(40, 4096, 32, 8, 128, 131072),
        experts=256,
        expert_width=2688,
        experts_of_a_token=8,
        latent_width=1024,
        predictions=1,
    ),
    "latent attention with wide keys": ModelShape(
        *(62, 2560, 40, 40, 64, 73448, 6400),
        query_rank=768,
        latent_rank=256,
        rope_size=32,
        key_size=96,
        predictions=2,
    ),
    "dense with vision": ModelShape(
        *(28, 3584, 28, 4, 128, 152064, 18944),
        vision=VisionShape(32, 1280, 3420, 1176, 3584, merged=4, inner=5120, gated=True),
    ),
}
"""Shapes of kinds that no family has."""
GRID = list(
    itertools.product(
        sorted({*model_shapes(), *OWN}), MACHINES, (8, 64, 256, 1024), (4_096, 32_768, 131_072, 1 << 20)
    )
)
random.Random(3).shuffle(GRID)
FEW, MANY = 24, 480
SCARCE = {"LC-02", "LC-03"}
"""Warnings that a sequence takes all GPUs: there are too few for the usual context and data parallelism."""
LEAST_PLANNED = 0.7
"""Of the grid, how much has a layout at all: eight GPUs hold no model of 671 billion parameters."""


def check(folder, name, text, machine):
    file = folder / name
    file.write_text(text, encoding="utf-8")
    read = read_configuration(file, with_defaults=True)
    return check_configuration(read.configuration, find_machine(machine).facts(), read.findings, read.form)


def break_law(folder, combinations):
    """The plans of combinations, and what is wrong with them."""
    planned, wrong = 0, []
    for model, (machine, precision), gpus, length in combinations:
        rest = {"precision": precision}
        if model in OWN:
            shape = OWN[model]
            rest |= {"own_shape": shape, "model": Model(model, shape.experts, None, shape.vision is not None)}
        asked = wanted("dsv3" if model in OWN else model, gpus, machine, length, **rest)
        try:
            plan = plan_run(asked)
        except LayoutError:
            continue
        planned += 1
        label = (model, machine, precision, gpus, length)
        if plan.planned.fits is False:
            wrong.append((*label, "does not fit"))
        for name, text in (("plan.yaml", plan.bridge), ("plan.sh", plan.arguments)):
            found = check(folder, name, text, machine)
            unmet = {row.precondition.id for one in found.features if one.on for row in one.unmet()}
            if found.stop_count or not unmet <= SCARCE:
                wrong.append((*label, name, found.stop_count, unmet))
        sizes = plan.layout.sizes
        stages = f",vpp{plan.virtual_pipeline}" if plan.virtual_pipeline else ""
        given = f"tp{sizes.tensor},pp{sizes.pipeline},cp{sizes.context},ep{sizes.expert}{stages}"
        levers = plan.planned.levers
        again = plan_run(replace(asked, given=parse_sizes(given), short_gradients=levers.short_gradients))
        if (again.layout, again.planned, again.bridge) != (plan.layout, plan.planned, plan.bridge):
            wrong.append((*label, "its own numbers give another plan", given))
    return planned, wrong


def test_a_plan_passes_its_own_check_and_takes_its_own_numbers_back(tmp_path):
    planned, wrong = break_law(tmp_path, GRID[:FEW])

    assert wrong == []
    assert planned > LEAST_PLANNED * FEW


@pytest.mark.slow
def test_every_plan_passes_its_own_check_and_takes_its_own_numbers_back(tmp_path):
    planned, wrong = break_law(tmp_path, GRID[:MANY])

    assert wrong == []
    assert planned > LEAST_PLANNED * MANY > 300


def test_deepseek_v3_with_128k_on_256_gpus_fits_as_the_documents_have_it():
    plan = plan_run(wanted("dsv3", 256, "h100", 131_072, precision="fp8"))

    assert set(plan.planned.levers.recompute) == {"mla_up_proj", "layernorm", "moe", "mlp"}
    assert plan.planned.levers.offloads_optimizer
    assert plan.planned.fits
    assert plan.dispatcher == "deepep"
    assert "  moe_flex_dispatcher_backend: deepep\n" in plan.bridge
    assert "  optimizer_cpu_offload: true\n" in plan.bridge
    said = {setting for item in plan.items if item.phase == "fit" for setting in item.settings}
    assert "model.recompute_modules=[moe,layernorm,mla_up_proj,mlp]" in said
    assert "optimizer.optimizer_cpu_offload=true" in said


@pytest.mark.parametrize("machine", sorted(machines()))
def test_every_gpu_of_the_table_has_a_plan(machine, tmp_path):
    precision = machines()[machine].best_precision
    plan = plan_run(wanted("llama3-8b", 64, machine, precision=precision))

    assert plan.planned.fits is not False
    assert check(tmp_path, "plan.yaml", plan.bridge, machine).stop_count == 0
    assert f"{precision}: true" in plan.bridge


@pytest.mark.parametrize(("layers", "stages"), [(61, 32), (61, 16), (5, 4), (80, 7), (3, 5), (1, 1)])
def test_layers_are_divided_evenly_with_embedding_and_loss(layers, stages):
    layout = divide_layers(layers, stages)
    counts = [len(stage) for stage in layout.split("|")]

    assert count_layout(layout) == (stages, layers, 0)
    assert divide_layers(layers, stages, 2) == f"{layout[:-1]}mmL"
    assert layout.replace("|", "") == f"E{'t' * layers}L"
    assert max(counts) - min(counts) <= 1


def test_more_stages_than_layers_are_refused():
    with pytest.raises(ValueError, match="9 stages"):
        divide_layers(6, 9)
    with pytest.raises(LayoutError, match="more than"):
        plan_run(wanted("llama3-8b", 64, "h100", layout="tp1,pp64,cp1,ep1"))
    with pytest.raises(LayoutError, match="PP8 x VPP8"):
        plan_run(wanted("llama3-8b", 64, "h100", layout="tp1,pp8,cp1,ep1,vpp8"))


def test_virtual_stages_and_gradients_are_taken_as_given():
    given = "tp1,pp8,cp32,ep32,vpp2"
    plan = plan_run(wanted("dsv3", 256, "h100", 131_072, given, precision="fp8", short_gradients=True))

    assert parse_sizes(given)["virtual_pipeline"] == 2
    assert plan.virtual_pipeline == 2
    assert plan.planned.levers.short_gradients
    assert "  grad_reduce_in_fp32: false\n" in plan.bridge
    assert "--accumulate-allreduce-grads-in-fp32" not in plan.arguments
