"""Hybrid models: kernels fit a configuration by their number, and FLOPs of state spaces are an estimate."""

import json

import pytest

from tests.summary.speed_of_light.test_laws import check_laws
from tests.summary.speed_of_light.test_lines import write_steps
from wallscope.model.capture import Options
from wallscope.model.enums import ComputeCategory, Precision
from wallscope.model.planned_work import PlanMismatch
from wallscope.model.speed_of_light import LedgerLine, LossUnknown
from wallscope.pipeline import analyze

PRODUCT = "nvjet_tst_bf16_h_bz_TNT"
SCAN, FLASH = (
    "_chunk_scan_fwd_kernel",
    "void flash_fwd_kernel<Flash_fwd_kernel_traits<128, 64, 64, 4, bfloat16>>",
)
HIDDEN, WIDE, VOCABULARY, TOKENS, STATE = 1024, 2816, 32_000, 2048, 128
HEADS = 12  # of which the 132 blocks of a kernel are a multiple
MODEL = {
    "model_type": "nemotron_h",
    "hidden_size": HIDDEN,
    "hybrid_override_pattern": "M-*-M-",
    "num_attention_heads": HEADS,
    "num_key_value_heads": HEADS,
    "head_dim": 64,
    "intermediate_size": WIDE,
    "mamba_num_heads": 32,
    "mamba_head_dim": 64,
    "n_groups": 1,
    "ssm_state_size": STATE,
    "vocab_size": VOCABULARY,
    "seq_length": TOKENS,
    "micro_batch_size": 1,
}
PRODUCTS = 2 * 2 + 3 * 2 + 4 + 1
"""Of two state spaces, three feed-forward parts, one attention and the output layer."""
KERNELS = [*[PRODUCT] * PRODUCTS, FLASH, SCAN, SCAN]
KERNEL_NS = 40_000


@pytest.fixture
def answer(tmp_path):
    def build(kernels=KERNELS, **changes):
        config = tmp_path / "config.json"
        config.write_text(json.dumps(MODEL | changes), encoding="utf-8")
        placed = [
            (name, KERNEL_NS * (4 + place), KERNEL_NS * (5 + place)) for place, name in enumerate(kernels)
        ]
        path = write_steps(tmp_path / "t.json", placed, name="aten::custom", step_ns=2_000_000)
        return analyze(path, Options(configuration=config), lambda _: None)

    return build


def test_flops_of_a_hybrid_model_are_those_of_its_layers(answer):
    made = answer()
    (rank,) = made.ranks
    found = rank.speed_of_light
    state_space = HIDDEN * (3 * 2 * HIDDEN + 2 * STATE + 32)
    dense = 2 * state_space + 3 * 2 * HIDDEN * WIDE + 4 * HIDDEN * HEADS * 64 + HIDDEN * VOCABULARY
    scan, pairs = 2 * 7 * HIDDEN * STATE, HEADS * 64 * (TOKENS + 1)

    check_laws(made)
    assert (found.refused, found.source) == (None, "configuration")
    assert found.model_flops == 2 * TOKENS * (dense + scan + pairs)
    assert found.assumes.startswith("Megatron-LM's estimate of Mamba layers")
    assert {one.category: one.model_flops for one in found.matrices} == {
        ComputeCategory.GEMM: 2 * TOKENS * dense,
        ComputeCategory.ATTENTION: 2 * TOKENS * pairs,
    }


def test_how_far_a_scan_is_from_its_limit_is_unknown(answer):
    """State spaces are limited by their bytes, which a configuration does not give."""
    found = answer().ranks[0].speed_of_light
    other = {one.line: one for one in found.lines if one.category is ComputeCategory.OTHER}
    ideal_ns = 2 * TOKENS * 2 * 7 * HIDDEN * STATE / found.peak.find_rate(Precision.BF16) * 1e9

    assert other[LedgerLine.IDEAL_MATH].ns == pytest.approx(ideal_ns, abs=1)
    unknown = other[LedgerLine.COMPUTE_UNKNOWN]
    assert [(one.reason, one.ns) for one in unknown.reasons] == [(LossUnknown.BYTES_UNKNOWN, unknown.ns)]
    assert unknown.ns == pytest.approx(2 * KERNEL_NS - ideal_ns, abs=1)
    assert LedgerLine.BELOW_PEAK not in other


@pytest.mark.parametrize(
    ("kernels", "changes"),
    [
        pytest.param(KERNELS, {"hybrid_override_pattern": "M-*-MM"}, id="other layers"),
        pytest.param(KERNELS, {"hybrid_override_pattern": "M-*-M---"}, id="more layers"),
        pytest.param([*[PRODUCT] * PRODUCTS, FLASH], {}, id="no state spaces"),
        pytest.param([*KERNELS, PRODUCT], {}, id="one product more"),
    ],
)
def test_kernels_of_other_layers_refuse_a_hybrid_model(kernels, changes, answer):
    found = answer(kernels, **changes).ranks[0].speed_of_light

    assert found.refused is PlanMismatch.OTHER_LAYERS
    assert found.model_flops is None


def test_more_attention_than_its_layers_is_seen(answer):
    found = answer(KERNELS, hybrid_override_pattern="M-**M-").ranks[0].speed_of_light

    assert found.refused is PlanMismatch.OTHER_ATTENTION


def test_a_model_of_state_spaces_alone_needs_no_attention(answer):
    mamba = {"hybrid_override_pattern": "MMM"}

    found = answer([*[PRODUCT] * 7, *[SCAN] * 3], **mamba).ranks[0].speed_of_light
    other = answer([*[PRODUCT] * 7, *[SCAN] * 3, FLASH], **mamba).ranks[0].speed_of_light

    assert (found.refused, other.refused) == (None, PlanMismatch.OTHER_ATTENTION)
