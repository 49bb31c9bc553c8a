"""Where published layouts stand among those that fit: the page of docs/, and long sequences."""

from functools import cache
from pathlib import Path

import pytest

from tests.advice.peaks import PEAKS
from wallscope.advice import plan
from wallscope.advice.parallel_layout import MemoryOptions, model_shapes
from wallscope.advice.plan import PlanRequest, list_feasible_layouts, list_sharded_layouts
from wallscope.advice.published import find_long_context, find_machine, find_model, machines, presets
from wallscope.errors import LayoutError
from wallscope.model.advice import Sizes

PAGE = Path(__file__).resolve().parents[2] / "docs" / "layouts.md"
SHAPES = model_shapes()
HEAD = """# Published layouts among those that fit

A layout specifies how many GPUs each kind of parallelism uses: tensor (TP), pipeline (PP), context (CP) and
expert (EP). `wallscope advise` lists the layouts whose sizes evenly divide a model's attention heads,
experts and sequence length, and whose weights, gradients and optimizer states fit into GPU memory.
Memory for activations is not counted. Layouts are sorted by the product TP x CP x PP, smallest first, and
those with equal products by TP, then CP, then EP. A layout's position doesn't predict its speed, which
also depends on activations, overlap and batch size.

The table shows where published layouts rank in this list. The published layouts are Megatron Bridge
presets and configurations for long sequences. The *layouts* column shows how many layouts the list has, and
*sequence* is the sequence length in tokens. A preset's name begins with its precision: FP8 with
current (`fp8cs`), subchannel (`fp8sc`) or delayed scaling (`fp8ds`), or MXFP8 (`fp8mx`).

| model | GPUs | sequence | TP | PP | CP | EP | position | layouts | presets |
|---|---|---|---|---|---|---|---|---|---|
"""
FULLY_SHARDED = """
## Fully sharded layouts

The Megatron Bridge presets in the next table use Megatron FSDP (fully sharded data parallelism) and
neither pipeline nor context parallelism. Megatron FSDP divides weights, gradients and optimizer states
into *shards*, and those of the experts into *expert shards*. The *GiB* column shows the estimated memory
per GPU if no activations are recomputed; *GiB, recomputed* assumes full recomputation. Both estimates are for
BF16 and a micro-batch of one sequence. `wallscope advise` lists layouts that fit with full recomputation,
sorted by TP x CP, then by CP, then by memory without recomputation. For models without experts, it also
lists PyTorch FSDP2.

| model | GPUs | sequence | TP | EP | shards | expert shards | GiB | GiB, recomputed | position | layouts |
|---|---|---|---|---|---|---|---|---|---|---|
"""
MEMORY = """
## Memory of published runs

The next table compares the published peak memory per GPU with the estimate from `wallscope advise` for the
same layout, at a sequence length of 4,096 tokens. 1 GB is 10^9 bytes. The *source* column has the id of
the published measurement, which you can look up with `wallscope explain`, as in `wallscope explain WF-60`.
What was special about a run follows after a comma: the recomputed modules (`full` means all), optimizer
states in host memory (`offloaded`), or the TP size.

The estimate excludes temporary buffers, fragmentation, the CUDA context and NCCL buffers. The table omits
runs with LoRA, runs that ran out of memory, and models with Mamba, linear or sparse attention (Nemotron,
Qwen3-Next, GLM-5).

| source | model | GPUs | TP | PP | CP | EP | published (GB) | estimated (GB) | difference |
|---|---|---|---|---|---|---|---|---|---|
"""
LONG = [  # as the documents have them: model, machine, sequence, GPUs
    ("deepseek_v3", "h100", 131_072, 256),
    ("deepseek_v3", "h100", 262_144, 512),
    ("qwen3_235b_a22b", "gb200", 131_072, 128),
]

LENGTHS = {"llama3_8b": 8_192, "llama3_70b": 8_192, "llama31_405b": 8_192}
"""Tokens of a sequence in the presets of families; 4,096 in the others."""


def known_presets():
    """The presets of models and machines whose sizes and memory are known."""
    for preset in presets():
        is_known = preset.family in SHAPES and machines()[preset.machine].memory_bytes
        if preset.states_layout and is_known and preset.sizes.fewest_gpus <= preset.gpus:
            yield preset


SHARDED = sorted(
    {(each.family, each.machine, each.gpus, each.sizes) for each in known_presets() if each.fully_sharded},
    key=str,
)
"""Layouts of FSDP that presets have: model, machine, GPUs, sizes."""


@cache
def feasible(family, machine, gpus, seq_length):
    """The sizes of the layouts that fit, in the order of the search."""
    memory = round(0.94 * machines()[machine].memory_bytes)
    return tuple(one.sizes for one in list_feasible_layouts(SHAPES[family], gpus, seq_length, memory))


def published():
    """The published layouts whose model and memory are known, with the presets that have them."""
    found = {}
    for preset in known_presets():
        if not preset.fully_sharded:
            length = LENGTHS.get(preset.family, 4_096)
            key = (preset.family, preset.machine, preset.gpus, length, preset.sizes)
            found.setdefault(key, []).append(preset.name.partition(f"{preset.machine}_")[2])
    for family, machine, seq_length, gpus in LONG:
        table = find_long_context(family, find_machine(machine), seq_length)
        found[family, machine, gpus, seq_length, table.sizes] = ["long sequence"]
    return found


def line(key, names):
    family, machine, gpus, seq_length, sizes = key
    of = feasible(family, machine, gpus, seq_length)
    cells = [
        family,
        f"{gpus} x {machine}",
        f"{seq_length:,}",
        *map(str, (sizes.tensor, sizes.pipeline, sizes.context, sizes.expert)),
        str(of.index(sizes) + 1),
        str(len(of)),
        ", ".join(sorted(names)),
    ]
    return f"| {' | '.join(cells)} |\n"


def find_sharded(family, machine, gpus):
    memory = round(0.94 * machines()[machine].memory_bytes)
    length = LENGTHS.get(family, 4_096)
    return list_sharded_layouts(SHAPES[family], gpus, length, MemoryOptions(gradient_bytes=2), memory)


def sharded_line(family, machine, gpus, published_sizes):
    of = find_sharded(family, machine, gpus)
    sizes = [one.layout.sizes for one in of]
    found = of[sizes.index(published_sizes)]
    totals = (found.memory.total_bytes, found.recomputed_bytes)
    cells = [
        family,
        f"{gpus} x {machine}",
        f"{LENGTHS.get(family, 4_096):,}",
        str(published_sizes.tensor),
        str(published_sizes.expert),
        str(found.layout.data),
        str(found.layout.expert_data) if SHAPES[family].experts else "-",
        *(f"{total / 2**30:.1f}" for total in totals),
        str(sizes.index(found.layout.sizes) + 1),
        str(len(of)),
    ]
    return f"| {' | '.join(cells)} |\n"


def peak_line(peak):
    found, sizes = peak.estimated_gb(), peak.sizes
    cells = [
        peak.source,
        peak.model,
        str(peak.gpus),
        *map(str, (sizes.tensor, sizes.pipeline, sizes.context, sizes.expert)),
        f"{peak.published_gb:.1f}",
        f"{found:.1f}",
        f"{found / peak.published_gb - 1:+.0%}".replace("%", " %"),
    ]
    return f"| {' | '.join(cells)} |\n"


def test_published_layouts_are_found_without_presets(monkeypatch):
    """The search knows shapes and memory alone: with an empty table of presets, each plan lists them."""
    tables = published()
    monkeypatch.setattr(plan, "nearest_presets", lambda *_: ())
    monkeypatch.setattr(plan, "find_long_context", lambda *_: None)
    missing = []
    for family, machine, gpus, seq_length, sizes in tables:
        given = {
            "tensor": sizes.tensor,
            "pipeline": sizes.pipeline,
            "context": sizes.context,
            "expert": sizes.expert,
        }
        on = find_machine(machine)
        wanted = PlanRequest(find_model(family), on, gpus, seq_length, "bf16", given)
        if sizes not in plan.plan_run(wanted).feasible:
            missing.append((family, machine, gpus, sizes))

    assert len(tables) > 85
    assert {family for family, *_ in tables} >= {*LENGTHS, "deepseek_v3", "qwen3_30b_a3b", "gpt_oss_120b"}
    assert missing == []


def test_the_page_tells_the_rank_of_each_published_layout(request):
    rows = sorted(line(key, names) for key, names in published().items())
    sharded = FULLY_SHARDED + "".join(sharded_line(*each) for each in SHARDED)
    page = HEAD + "".join(rows) + sharded + MEMORY + "".join(map(peak_line, PEAKS))
    if request.config.getoption("--golden"):
        PAGE.write_text(page, encoding="utf-8")

    assert PAGE.read_text(encoding="utf-8") == page


@pytest.mark.parametrize(
    ("family", "machine", "seq_length", "gpus", "sizes"),
    [
        (*LONG[0], Sizes(tensor=1, pipeline=8, context=32, expert=32)),
        (*LONG[1], Sizes(tensor=1, pipeline=8, context=64, expert=32)),
        (*LONG[2], Sizes(tensor=4, pipeline=4, context=4, expert=32)),
    ],
)
def test_long_sequences_that_take_every_gpu_for_their_axes_are_found(
    family, machine, seq_length, gpus, sizes
):
    """Their pipeline, context and experts fill the GPUs exactly, or leave a few replicas."""
    found = feasible(family, machine, gpus, seq_length)

    assert sizes in found
    assert all(one.fewest_gpus <= gpus and gpus % one.fewest_gpus == 0 for one in found)
    assert all(seq_length % (2 * one.context) == 0 for one in found if one.context > 1)


@pytest.mark.parametrize(("family", "machine", "gpus", "sizes"), SHARDED)
def test_published_fsdp_layouts_are_offered_without_presets(family, machine, gpus, sizes, monkeypatch):
    monkeypatch.setattr(plan, "nearest_presets", lambda *_: ())
    wanted = PlanRequest(find_model(family), find_machine(machine), gpus, 4_096, "bf16", {})
    offered = plan.plan_run(wanted).sharded

    assert sizes in [one.layout.sizes for one in offered]
    assert all(one.recomputed_bytes < one.memory.total_bytes for one in offered)
    names = ("Megatron FSDP",) if SHAPES[family].experts else ("Megatron FSDP", "PyTorch FSDP2")
    assert {one.implementations for one in offered} == {names}


def test_states_that_only_fit_sharded_are_refused_with_that_way_out():
    given = {"tensor": 1, "pipeline": 1, "context": 1, "expert": 8}
    wanted = PlanRequest(find_model("deepseek_v3"), find_machine("gb200"), 256, 4_096, "bf16", given)

    with pytest.raises(LayoutError, match=r"or shard them all with FSDP$"):
        plan.plan_run(wanted)


def test_models_without_experts_can_take_either_fsdp():
    (found, *_) = find_sharded("llama3_70b", "gb200", 32)

    assert found.implementations == ("Megatron FSDP", "PyTorch FSDP2")
    states = found.memory.weights_bytes + found.memory.gradients_bytes + found.memory.optimizer_bytes
    assert states == pytest.approx((2 + 2 + 12) * 70.6e9 / 32 + 2 * 2 * 70.6e9 / 80, rel=0.03)
