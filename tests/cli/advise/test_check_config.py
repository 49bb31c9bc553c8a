import json

import jsonschema
import pytest

from wallscope.demo.example import write_example
from wallscope.files import read_report


@pytest.fixture
def run_yaml(tmp_path):
    path = tmp_path / "run.yaml"
    path.write_text(
        "model:\n"
        "  num_moe_experts: 128\n"
        "  expert_model_parallel_size: 8\n"
        "  recompute_granularity: full\n"
        "  cuda_graph_impl: none\n"
        "comm_overlap:\n"
        "  overlap_moe_expert_parallel_comm: true\n",
        encoding="utf-8",
    )
    return path


def test_what_stops_a_run_is_named_with_what_to_do(wallscope, run_yaml):
    shown = wallscope("check-config", run_yaml)

    assert shown.code == 1
    assert "2 failed checks that will stop the run" in shown.out
    assert "EPO-P07" in shown.out
    assert "set recompute_granularity=selective" in shown.out
    assert "CUDA graphs:" in shown.out
    assert "CG-26" in shown.out
    assert all(len(line) <= 80 for line in shown.out.splitlines())


def test_a_file_of_another_program_is_not_checked(wallscope, tmp_path):
    path = tmp_path / "trainer.yaml"
    path.write_text("per_device_train_batch_size: 4\nlearning_rate: 1.0e-4\n", encoding="utf-8")
    shown = wallscope("check-config", path)

    assert (shown.code, shown.err) == (0, "")
    assert shown.out.startswith(
        "trainer.yaml · not checked, as no setting shows that Megatron reads this file"
    )
    assert "Trainer of Hugging Face" in shown.out
    assert " met" not in shown.out


def test_the_check_as_json(wallscope, run_yaml):
    found = json.loads(wallscope("check-config", run_yaml, "--hardware", "h100", "--json", "-").out)
    rows = {row["precondition"]["id"]: row for part in found["features"] for row in part["rows"]}

    jsonschema.validate(found, json.loads(read_report("check-config.schema.json")))
    assert found["schema"] == "wallscope.check-config/1"
    assert found["layout"] is None
    assert rows["EPO-P07"]["precondition"]["status"] == "unmet"
    assert rows["EPO-P05"]["missing"] == ["torch_version"]
    assert {part["id"]: part["on"] for part in found["features"]}["cuda-graphs"] is False


SIZES = """
world_size = 8
tensor_model_parallel_size = 2
pipeline_model_parallel_size = 2
expert_model_parallel_size = 8
"""


BATCH = """
global_batch_size = 100
micro_batch_size = 3
num_moe_experts = 64
recompute_granularity = "full"
overlap_moe_expert_parallel_comm = true
"""


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (SIZES, "needs PP x max(TP x CP, EP x ETP)"),
        (BATCH, "global_batch_size 100 is not a multiple of micro_batch_size 3"),
    ],
)
def test_impossible_sizes_are_a_failed_check_and_the_others_go_on(wallscope, tmp_path, text, said):
    (tmp_path / "run.toml").write_text(text, encoding="utf-8")
    shown = wallscope("check-config", "run.toml")
    checked = json.loads(wallscope("check-config", "run.toml", "--json", "-").out)

    assert (shown.code, shown.err) == (1, "")
    assert said in " ".join(shown.out.split())
    assert ("EPO-P07" in shown.out) is (text == BATCH)
    assert [finding["severity"] for finding in checked["findings"]].count("error") == 1


def test_sizes_at_which_training_stops_later_are_the_headline(wallscope, tmp_path):
    text = "framework: megatron-bridge\ntrain:\n  global_batch_size: {}\n  micro_batch_size: 3\n"
    for batch, is_told in ((100, True), (99, False)):
        (tmp_path / "run.yaml").write_text(text.format(batch), encoding="utf-8")
        shown = wallscope("check-config", "run.yaml")
        brief = wallscope("check-config", "run.yaml", "--brief")
        for out in (shown.out, brief.out):
            words = " ".join(out.split()).lower()

            assert ("validation accepts this file, but training stops at its first step" in words) is is_told
            assert ("no check finds an error that stops the run" in words) is not is_told
        assert (shown.code, brief.code) == (0, 0)


def test_impossible_sizes_do_not_stop_an_analysis(wallscope, tmp_path):
    write_example(tmp_path / "moe.sqlite")
    (tmp_path / "run.toml").write_text(BATCH, encoding="utf-8")
    shown = wallscope("analyze", "moe.sqlite", "--config", "run.toml")

    assert (shown.code, shown.err) == (0, "")
    assert "global_batch_size 100 is not a multiple of micro_batch_size 3" in " ".join(shown.out.split())


def test_settings_that_are_not_known_are_refused_in_one_line(wallscope, tmp_path):
    (tmp_path / "run.toml").write_text("a = 1", encoding="utf-8")
    shown = wallscope("check-config", "run.toml")

    assert (shown.code, shown.out) == (2, "")
    assert shown.err.startswith("wallscope: ")
    assert shown.err.count("\n") == 1
    assert "an unknown setting" in shown.err


def test_hardware_that_is_not_known_is_refused(wallscope, run_yaml):
    shown = wallscope("check-config", run_yaml, "--hardware", "tpu")

    assert shown.code == 2
    assert "name one of" in shown.err
