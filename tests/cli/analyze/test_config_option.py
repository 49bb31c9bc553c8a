import json

import pytest

from tests.shipped_example import EXAMPLE

OVERLAP = "overlap_moe_expert_parallel_comm"


@pytest.fixture(scope="module")
def example():
    return EXAMPLE


def test_what_a_trace_contradicts_is_a_finding(wallscope, example, tmp_path):
    (tmp_path / "run.toml").write_text('fp8 = "e4m3"\nmoe_token_dispatcher_type = "flex"\n', encoding="utf-8")
    ran = wallscope("analyze", example, "--config", "run.toml", "--json", "-")
    found = json.loads(ran.out)["capture"]["findings"]

    assert [each["message"] for each in found if each["code"] == "configuration-contradicted"] == [
        "run.toml: fp8 sets e4m3, but no low-precision GEMM ran",
        (
            "run.toml: moe_token_dispatcher_type sets flex, but NCCL all-to-all exchanged the tokens:"
            " alltoall counts"
        ),
    ]


def test_a_bad_configuration_is_refused_before_the_work(wallscope, tmp_path):
    (tmp_path / "run.toml").write_text("nonsense = 1\n", encoding="utf-8")
    ran = wallscope("analyze", "absent.sqlite", "--config", "run.toml")

    assert ran.code == 2
    assert "nonsense is an unknown setting" in ran.err


def test_a_fix_that_the_configuration_forbids_is_blocked_and_says_by_what(wallscope, example, tmp_path):
    told = (
        'moe_token_dispatcher_type = "alltoall"\nrecompute_granularity = "full"\nrecompute_method = "block"\n'
    )
    (tmp_path / "run.toml").write_text(told, encoding="utf-8")
    shown = wallscope("analyze", example, "--config", "run.toml", "--json", "run.json").out
    found = json.loads((tmp_path / "run.json").read_text(encoding="utf-8"))["fixes"]
    overlap = next(fix for fix in found if fix["id"] == "ep-overlap")

    assert overlap["blocked"]
    assert [each["id"] for each in overlap["preconditions"] if each["status"] == "unmet"] == [
        "EPO-P07",
        "EPO-P08",
    ]
    assert not found[0]["blocked"]
    assert "Held back: Overlap dispatch and combine" in shown
    blocked = (
        "blocked: recompute_method must not be set, but is block (Megatron Core from 0.14 on; no release is"
        " stated, so the newest counts) → set recompute_method=null"
    )
    assert blocked in " ".join(shown.split())


def test_what_the_file_sets_is_not_recommended_and_what_does_not_work_is_said(wallscope, example, tmp_path):
    told = (
        "overlap_moe_expert_parallel_comm = true\ntensor_model_parallel_size = 3\nmtp_num_layers = 2\n"
        "fine_grained_activation_offloading = true\noffload_modules = ['core_attn']\n"
        "moe_router_dtype = 'fp32'\n"
    )
    (tmp_path / "run.toml").write_text(told, encoding="utf-8")
    answer = json.loads(wallscope("analyze", example, "--config", "run.toml", "--json", "-").out)
    fixes = {fix["id"]: [setting["key"] for setting in fix["settings"]] for fix in answer["fixes"]}
    why = {fix["id"]: fix["why"] for fix in answer["fixes"]}
    odd = [each for each in answer["capture"]["findings"] if "run.toml" in each["message"]]

    assert [each["message"] for each in odd] == [
        "run.toml has TP x PP x CP = 3, which does not divide the 16 ranks of the trace",
        f"run.toml: {OVERLAP} is on, but 100.0 % of the ep communication is still exposed",
    ]
    assert odd[1]["cure"].startswith(
        "set mtp_num_layers=1, or unset it; export CUDA_DEVICE_MAX_CONNECTIONS=32"
    )
    assert "offload-activations" not in fixes
    assert "mixed_precision" in fixes["fp8-blockwise"]
    assert "model.moe_router_dtype" not in fixes["fp8-blockwise"]
    assert why["ep-overlap"].startswith(
        f"run.toml: {OVERLAP} is on, but 100.0 % of the ep communication is still exposed: set mtp_num"
    )
    assert f"comm_overlap.{OVERLAP}" not in fixes["ep-overlap"]
    assert not why["ep-overlap-delayed-wgrad"].startswith("run.toml")


@pytest.mark.parametrize(
    ("own", "text"),
    [
        ("megatron-lm", "torchrun pretrain_gpt.py --num-experts 64 --bf16\n"),
        ("megatron-bridge", "model: {num_moe_experts: 64}\n"),
    ],
)
def test_settings_are_those_of_the_framework_of_the_file(wallscope, example, tmp_path, own, text):
    name = "run.sh" if own == "megatron-lm" else "run.yaml"
    (tmp_path / name).write_text(text, encoding="utf-8")
    answer = json.loads(wallscope("analyze", example, "--config", name, "--json", "-").out)
    systems = {setting["system"] for fix in answer["fixes"] for setting in fix["settings"]}

    assert systems & {"megatron-lm", "megatron-bridge"} == {own}
