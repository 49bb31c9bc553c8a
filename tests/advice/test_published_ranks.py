"""Where published layouts stand among those that fit: the page of docs/, and long sequences."""

from functools import cache
from pathlib import Path

import pytest

from tests.advice.peaks import PEAKS
from wallscope.advice import plan
from wallscope.advice.layout_search import list_feasible_layouts
from wallscope.advice.memory_estimate import model_shapes
from wallscope.advice.plan import PlanRequest
from wallscope.advice.published import find_long_context, find_machine, find_model, machines, presets
from wallscope.model.advice import Sizes

PAGE = Path(__file__).resolve().parents[2] / "docs" / "layouts.md"
SHAPES = model_shapes()
HEAD = """# Published layouts among those that fit

`wallscope advise` lists the layouts that divide the heads, experts and sequence of a model and whose states
fit into the memory of a GPU. It does not use published layouts for that. The least split layout is first,
by TP x CP x PP, then TP, CP and EP. The column *rank* is the place of a published layout in this list:
presets of Megatron Bridge, and configurations published for long sequences. The order shows simplicity and
not speed: the states alone do not show what a layout gains by activations, overlap or batch size.
`make golden` writes this page.

| model | GPUs | sequence | TP | PP | CP | EP | rank | of | presets |
|---|---|---|---|---|---|---|---|---|---|
"""
MEMORY = """
## Memory of published runs

Peaks that documents give, in 10^9 bytes per GPU at 4,096 tokens, and the estimate of `wallscope advise` for
the same layout. The estimate has no temporary buffers, fragmentation, CUDA and NCCL.

| fact | model | GPUs | TP | PP | CP | EP | published | estimated | difference |
|---|---|---|---|---|---|---|---|---|---|
"""
LONG = [  # as the documents have them: model, machine, sequence, GPUs
    ("deepseek_v3", "h100", 131_072, 256),
    ("deepseek_v3", "h100", 262_144, 512),
    ("qwen3_235b_a22b", "gb200", 131_072, 128),
]


@cache
def feasible(family, machine, gpus, seq_length):
    """The sizes of the layouts that fit, in the order of the search."""
    memory = round(0.94 * machines()[machine].memory_bytes)
    return tuple(one.sizes for one in list_feasible_layouts(SHAPES[family], gpus, seq_length, memory))


def published():
    """The published layouts whose model and memory are known, with the presets that have them."""
    found = {}
    for preset in presets():
        is_known = preset.family in SHAPES and machines()[preset.machine].memory_bytes
        if preset.states_layout and is_known and preset.sizes.fewest_gpus <= preset.gpus:
            key = (preset.family, preset.machine, preset.gpus, 4_096, preset.sizes)
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

    assert len(tables) > 50
    assert missing == []


def test_the_page_tells_the_rank_of_each_published_layout(request):
    rows = sorted(line(key, names) for key, names in published().items())
    page = HEAD + "".join(rows) + MEMORY + "".join(map(peak_line, PEAKS))
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
