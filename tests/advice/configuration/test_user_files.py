"""Files as people write them: printed words, conditions, and spellings that Python accepts."""

import pytest

from wallscope.advice.configuration import read_configuration

RUN = "torchrun pretrain_gpt.py --num-layers 32 --bf16"


@pytest.mark.parametrize(
    "line",
    [
        'echo "use --overlap-grad-reduce on 2 nodes..."',
        "if [ $A = b ]; then echo 'no --overlap-grad-reduce'; fi",
        'if [[ "$*" == *--overlap-grad-reduce* ]]; then true; fi',
        "# --overlap-grad-reduce",
    ],
)
def test_words_that_a_script_only_prints_or_compares_are_no_flags(tmp_path, line):
    file = tmp_path / "run.sh"
    file.write_text(f"{line}\n{RUN}\n", encoding="utf-8")

    settings = read_configuration(file).configuration.settings

    assert settings["num_layers"].value == 32
    assert "overlap_grad_reduce" not in settings


@pytest.mark.parametrize(
    "script",
    [
        pytest.param(
            f"# ARGS=' \\\\\n# it's unused \\\\\n{RUN} # don't", id="comment that ends in a backslash"
        ),
        pytest.param(f"cat <<END\nI don't run\nEND\n{RUN}", id="text until a word"),
        pytest.param(f"C=\"for f in *; do echo 'a;' $f; done\"\n{RUN}", id="echo inside quotes"),
        pytest.param(f'X="a # b"\n{RUN} # "', id="number sign inside quotes"),
    ],
)
def test_quotes_that_bash_accepts_refuse_no_file(tmp_path, script):
    file = tmp_path / "run.sh"
    file.write_text(f"{script}\n", encoding="utf-8")

    assert read_configuration(file).configuration.settings["num_layers"].value == 32


def test_an_underscore_may_group_digits(tmp_path):
    file = tmp_path / "run.sh"
    file.write_text(f"{RUN} --seq-length 4_096\n", encoding="utf-8")

    assert read_configuration(file).configuration.settings["seq_length"].value == 4096


@pytest.mark.parametrize("number", [0, 1])
def test_0_and_1_are_values_of_a_switch(tmp_path, number):
    file = tmp_path / "run.yaml"
    file.write_text(f"model:\n  sequence_parallel: {number}\n  num_layers: 32\n", encoding="utf-8")

    assert read_configuration(file).configuration.settings["sequence_parallel"].value is bool(number)


@pytest.mark.parametrize("command", ["bash run.sh", "megatron sft"])
def test_what_a_wrapped_program_adds_is_unknown(tmp_path, command):
    file = tmp_path / "run.sh"
    file.write_text(f"{command} --num-layers 32\n", encoding="utf-8")

    assert "sequence_parallel" not in read_configuration(file, with_defaults=True).configuration.settings
