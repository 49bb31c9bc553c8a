"""What can be copied from a recommendation runs as written; values that the run determines are filled in."""

import re

import polars as pl
import pytest

from tests.advice.runs import run
from tests.answered_once import analyze_once
from tests.shipped_example import EXAMPLE
from wallscope.advice.recommend import match_rules, recommend
from wallscope.advice.rules import fill_placeholders, fix_rules, is_sketch
from wallscope.model.advice import KnownSetting, RunConfiguration, Setting, TraceFacts
from wallscope.views.cards import build_card

SETTINGS = [setting for rule in fix_rules() for setting in rule.all_settings()]
HYBRIDEP = Setting("environment", "NUM_OF_HYBRID_EP_RANKS_PER_NVLINK_DOMAIN", "<EP size, at most 72>")

MICRO_BATCH = Setting("megatron-bridge", "train.micro_batch_size", "<twice as large>")
TENSOR = Setting("megatron-lm", "--tensor-model-parallel-size", "<half>")


def known(**values):
    return RunConfiguration({name: KnownSetting(value, "file") for name, value in values.items()})


def test_what_can_be_copied_has_no_part_to_fill_in():
    copied = [setting for setting in SETTINGS if not is_sketch(setting.system, setting.write())]
    codes = [(setting.system, setting.write().partition("  # ")[0]) for setting in copied]

    assert not [code for _, code in codes if re.search(r"<[^<>]+>|\.\.\.|\bFILE\b", code)]
    for system, code in codes:
        if system == "pytorch":
            compile(code, "settings", "exec")
    assert {system for system, _ in codes} >= {"megatron-bridge", "megatron-lm", "environment", "pytorch"}


@pytest.mark.parametrize(
    ("system", "code", "is_one"),
    [
        ("pytorch", "torch.set_float32_matmul_precision('high')", False),
        ("pytorch", "model = torch.compile(model)", True),
        ("pytorch", "with torch.autocast('cuda', dtype=torch.bfloat16):", True),
        ("pytorch", "torch.amp.GradScaler()", True),
        ("pytorch", "no .item() between launches", True),
        ("program", "cudaMemsetAsync(buffer, 0, bytes, stream)", True),
        ("directives", "-gpu=pinned (nvc): host arrays are pinned", True),
        ("inference", "--dtype bfloat16", False),
        ("jax", "XLA_PYTHON_CLIENT_PREALLOCATE=true", False),
        ("megatron-lm", "--micro-batch-size <twice as large>", True),
        ("megatron-lm", "--moe-token-dispatcher-type flex", False),
        ("launcher", "wallscope analyze FILE", True),
    ],
)
def test_a_line_that_needs_a_program_is_a_sketch(system, code, is_one):
    assert is_sketch(system, code) is is_one


@pytest.mark.parametrize(
    ("setting", "run_settings", "value"),
    [
        (HYBRIDEP, {"expert_model_parallel_size": 16}, "16"),
        (HYBRIDEP, {"expert_model_parallel_size": 144}, "72"),
        (HYBRIDEP, {}, HYBRIDEP.value),
        (HYBRIDEP, {"expert_model_parallel_size": "auto"}, HYBRIDEP.value),
        (
            Setting("megatron-bridge", "train.micro_batch_size", "<twice as large>"),
            {"micro_batch_size": 3},
            "6",
        ),
        (
            Setting("megatron-lm", "--tensor-model-parallel-size", "<half>"),
            {"tensor_model_parallel_size": 4},
            "2",
        ),
        (
            Setting("megatron-lm", "--tensor-model-parallel-size", "<half>"),
            {"tensor_model_parallel_size": 1},
            "<half>",
        ),
        (Setting("megatron-lm", "--micro-batch-size", "8"), {"micro_batch_size": 3}, "8"),
    ],
    ids=str,
)
def test_a_value_that_the_run_determines_is_filled_in(setting, run_settings, value):
    assert fill_placeholders(setting, known(**run_settings)).value == value


def test_a_recommendation_has_the_value_of_its_run():
    analysis = run({"communication/ep/unsplit": 40}, gpu="GB200", experts=True, operations=[["ep"]])
    names = pl.Series(["nvte_rmsnorm_fwd"])
    found = recommend(match_rules(analysis, known(expert_model_parallel_size=32), TraceFacts(), names))
    values = {one.key: one.value for fix in found.fixes for one in fix.settings}

    assert values[HYBRIDEP.key] == "32"


def test_a_card_copies_only_what_runs_as_written():
    for fix in analyze_once(EXAMPLE).fixes:
        card = build_card(fix, 1_000_000)
        for tab in (*card.tabs, *card.anywhere):
            assert set(tab.copied) <= set(tab.lines)
            assert not [line for line in tab.copied if re.search(r"<[^<>]+>|\.\.\.", line)]
            assert bool(tab.sketch) == (tab.copied != tab.lines)
