"""Failed checks quote the lines of the file that state what they use."""

import pytest

from wallscope.advice.preconditions import find_line

DUMP = """tokenizer:
  tensor_model_parallel_size: 1
model:
  tensor_model_parallel_size: 3  # changed
  recompute_granularity: full
comm_overlap:
  overlap_moe_expert_parallel_comm: true
""".splitlines()


@pytest.mark.parametrize(
    ("written", "place"),
    [
        ("model.tensor_model_parallel_size", 3),
        ("model.recompute_granularity", 4),
        ("recompute_granularity", 4),
        ("comm_overlap.overlap_moe_expert_parallel_comm", 6),
        ("absent.recompute_granularity", 4),
        ("model.bf16", None),
    ],
)
def test_the_line_of_a_setting_is_that_of_its_section(written, place):
    assert find_line(DUMP, written) == place


@pytest.mark.parametrize("spelled", ["--sequence-parallel", "--sequence_parallel", "sequence_parallel"])
def test_flags_are_found_in_either_spelling(spelled):
    lines = ["torchrun train.py --no-sequence-parallel-x \\", "  --sequence-parallel --bf16"]

    assert find_line(lines, spelled) == 1


def test_a_stop_names_the_lines_to_change(wallscope, tmp_path):
    path = tmp_path / "run.yaml"
    path.write_text(
        "model:\n  num_moe_experts: 64\n  expert_model_parallel_size: 8\n  recompute_granularity: full\n"
        "comm_overlap:\n  overlap_moe_expert_parallel_comm: true\n",
        encoding="utf-8",
    )
    shown = wallscope("check-config", path)

    assert shown.code == 1
    assert "line 4: recompute_granularity: full" in shown.out
    assert shown.out.index("EPO-P07") < shown.out.index("line 4:")


def test_what_is_unknown_says_how_to_give_it(wallscope, tmp_path):
    path = tmp_path / "run.yaml"
    path.write_text("model:\n  num_moe_experts: 64\n  expert_model_parallel_size: 8\n", encoding="utf-8")
    shown = wallscope("check-config", path).out

    assert "Add unknown settings to the file" in shown
    assert "--hardware" in shown
    assert "--hardware" not in wallscope("check-config", path, "--hardware", "h100").out


def test_a_long_line_is_quoted_from_its_setting(wallscope, tmp_path):
    path = tmp_path / "args.txt"
    path.write_text(
        "--num-layers 32 --hidden-size 4096 --num-attention-heads 32 --seq-length 4096 --micro-batch-size 1"
        " --max-position-embeddings 4096 --tensor-model-parallel-size 3 --bf16\n",
        encoding="utf-8",
    )
    shown = " ".join(wallscope("check-config", path).out.split())

    assert "line 1: --tensor-model-parallel-size 3 --bf16 …" in shown
