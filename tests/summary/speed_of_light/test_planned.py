"""A configuration is believed only if the kernels fit it."""

import json
import re

import pytest

from tests.summary.speed_of_light.truth_values import CONFIGURATIONS, SETTINGS, SHARED, TRUTH
from tests.views.test_first_screen import printed
from wallscope.model.capture import Options
from wallscope.model.enums import ComputeCategory
from wallscope.model.planned_work import PlanMismatch
from wallscope.model.speed_of_light import BelowPeak, LedgerLine
from wallscope.pipeline import analyze
from wallscope.thresholds.causes import FULL_EXPERT_ROWS

pytestmark = pytest.mark.skipif(not TRUTH.is_file(), reason="no captures here: ../shared is absent")

WRONG = [
    pytest.param({"num_hidden_layers": 10}, {PlanMismatch.OTHER_LAYERS}, id="fewer layers"),
    pytest.param({"num_hidden_layers": 24}, {PlanMismatch.OTHER_LAYERS}, id="twice the layers"),
    pytest.param({"num_hidden_layers": 13}, {PlanMismatch.OTHER_LAYERS}, id="one layer more"),
    pytest.param({"micro_batch_size": 8}, {PlanMismatch.OTHER_TOKENS}, id="twice the batch"),
    pytest.param({"micro_batch_size": 2}, {PlanMismatch.OTHER_TOKENS}, id="half the batch"),
    pytest.param({"seq_length": 512}, {PlanMismatch.OTHER_TOKENS}, id="twice the sequence"),
    pytest.param({"vocab_size": 32_000}, {PlanMismatch.OTHER_TOKENS}, id="another vocabulary"),
    pytest.param({"hidden_size": 2560}, {PlanMismatch.OTHER_TOKENS}, id="twice the width"),
    pytest.param({"gradient_accumulation_steps": 2}, {PlanMismatch.OTHER_LAYERS}, id="two micro-batches"),
    pytest.param({"seq_length": None}, {PlanMismatch.BATCH_UNKNOWN}, id="no sequence"),
]
NAME = "cs336_tianshi_result"
"""A decoder that trains: 12 layers of width 1,280, 4 sequences of 256 tokens."""


@pytest.fixture
def ledger(tmp_path):
    def build(name, **changes):
        path = tmp_path / "config.json"
        path.write_text(json.dumps(CONFIGURATIONS[name] | changes), encoding="utf-8")
        options = Options(configuration=path)
        return analyze(SHARED / "traces" / f"{name}.sqlite", options, lambda _: None).ranks[0].speed_of_light

    return build


@pytest.mark.parametrize(("changes", "reasons"), WRONG)
def test_a_wrong_configuration_gives_no_flops(changes, reasons, ledger):
    found = ledger(NAME, **changes)

    assert found.refused in reasons
    assert (found.source, found.model_flops, found.mfu) == (None, None, None)
    assert not found.matrices
    assert found.total(LedgerLine.IDEAL_MATH) == 0


@pytest.mark.parametrize("times", [1, 4])
@pytest.mark.parametrize(
    "name", ["cs336_zx_2.7B_clean", "cs336_zx_result", "cs336_athrun", "cs336_tianshi_small"]
)
def test_other_sequences_with_the_same_tokens_are_seen_in_the_grids_of_attention(name, times, ledger):
    own = CONFIGURATIONS[name]
    sequence, batch = own["seq_length"] * times // 2, own["micro_batch_size"] * 2 // times
    found = ledger(name, seq_length=sequence, micro_batch_size=batch)

    assert found.refused is PlanMismatch.OTHER_SEQUENCE
    assert found.model_flops is None


@pytest.mark.parametrize(("sequence", "batch"), [(128, 8), (64, 16), (32, 32), (512, 2)])
def test_other_sequences_with_the_same_tokens_are_seen_in_the_masks_of_scores(sequence, batch, ledger):
    found = ledger(NAME, seq_length=sequence, micro_batch_size=batch)

    assert found.refused is PlanMismatch.OTHER_SEQUENCE


def test_a_sequence_that_no_kernel_shows_is_assumed(ledger):
    """Fused kernels mask by themselves."""
    assert ledger("nersc_sc23_dali_bf16").assumes == "sequences of 4,050 tokens"
    assert not ledger(NAME).assumes
    assert not ledger("cs336_zx_2.7B_clean").assumes


def test_a_right_configuration_shows_that_the_step_trains(ledger):
    training, forward = ledger(NAME), ledger("cs336_zx_result")

    assert training.refused is forward.refused is None
    for found, times, tokens, sizes in (
        (training, 3, 1024, (12, 1280, 20, 256)),
        (forward, 1, 512, (12, 768, 12, 128)),
    ):
        layers, hidden, heads, sequence = sizes
        matrices = layers * (4 + 3 * 4) * hidden**2 + 10_000 * hidden
        pairs = layers * 2 * hidden * (sequence + 1) // 2
        assert heads * 64 == hidden
        assert found.model_flops == 2 * times * tokens * (matrices + pairs)
        whole = layers * 2 * hidden * sequence
        assert found.flops_whole_square == 2 * times * tokens * (matrices + whole)


@pytest.mark.parametrize("name", ["nersc_sc23_dali", "cs336_zx_2.7B_clean"])
def test_no_number_of_the_ledger_is_cut_off_on_the_first_screen(name, tmp_path):
    path = tmp_path / "config.json"
    path.write_text(json.dumps(CONFIGURATIONS[name]), encoding="utf-8")
    answer = analyze(SHARED / "traces" / f"{name}.sqlite", Options(configuration=path), lambda _: None)
    screen = "\n".join(printed(answer, 80))
    rows = screen.partition("\nFrom the ideal")[2].partition("\n\n")[0].splitlines()[1:]

    assert len(rows) > 5
    assert all(re.search(r"[\d.]+ ms +[<>]?[\d.]+ %$", row) for row in rows)


@pytest.mark.parametrize(("most", "is_few"), [(8_193, True), (8_192, False)])
def test_few_rows_of_an_expert_are_a_reason_of_grouped_kernels(most, is_few, monkeypatch, tmp_path):
    """4,096 tokens go to 8 experts each, and 64 ranks share 256 experts: 8,192 rows for each."""
    monkeypatch.setitem(FULL_EXPERT_ROWS, "sm_90", most)
    path = tmp_path / "run.yaml"
    path.write_text(json.dumps(SETTINGS["ds_train"]), encoding="utf-8")
    trace = SHARED / "traces" / "kineto" / "ds_train.json.gz"
    found = analyze(trace, Options(configuration=path), lambda _: None).ranks[0].speed_of_light
    of_experts = {
        one.category: BelowPeak.FEW_EXPERT_ROWS in {each.reason for each in one.explained_by}
        for one in found.lines
        if one.line is LedgerLine.BELOW_PEAK
    }

    assert of_experts.pop(ComputeCategory.GROUPED_GEMM) is is_few
    assert not any(of_experts.values())


def test_a_graph_without_kernels_cannot_be_checked(tmp_path):
    path = tmp_path / "config.json"
    path.write_text(json.dumps(CONFIGURATIONS["cs336_zx_2.7B"]), encoding="utf-8")
    trace = SHARED / "traces" / "cs336_zx_2.7B_compile_graph.sqlite"
    found = analyze(trace, Options(configuration=path), lambda _: None).ranks[0].speed_of_light

    assert found.refused is PlanMismatch.HIDDEN_KERNELS
    assert found.mfu is None
