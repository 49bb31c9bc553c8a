"""What a script starts decides what it shows: whole runs stop, and parts of runs conflict."""

import csv
from pathlib import Path

import pytest

from wallscope.advice.configuration import read_configuration
from wallscope.advice.launches import name_program
from wallscope.advice.preconditions import check_configuration
from wallscope.errors import ConfigurationError
from wallscope.model.advice import TraceFacts

USERS = Path(__file__).resolve().parents[3] / "shared" / "configs" / "users"
SIZES = (
    "--num-layers 8 --hidden-size 512 --num-attention-heads 8 --seq-length 64 --max-position-embeddings 64"
)
RUN = f"torchrun --nproc_per_node 8 pretrain_gpt.py {SIZES} --micro-batch-size 1 --lr 1e-4 --train-iters 9"
WRONG = "--num-layers 8 --bf16 --fp16"


def check(tmp_path, text, name="run.sh"):
    """Return the settings of a file, what kind it is, and what stops or conflicts."""
    path = tmp_path / name
    path.write_text(text, encoding="utf-8")
    read = read_configuration(path, with_defaults=True)
    found = check_configuration(read.configuration, TraceFacts(), read.findings, read.form)
    return read.configuration.settings, read.form, found


@pytest.mark.parametrize(
    ("text", "kind"),
    [
        pytest.param(f"{RUN} {WRONG}", "command", id="command"),
        pytest.param(f"mkdir -p $OUT\ncd ${{HERE}}\n{RUN} {WRONG}", "command", id="others work on variables"),
        pytest.param(f"CMD='{RUN} {WRONG}'\neval $CMD", "command", id="command in a variable"),
        pytest.param(
            RUN.replace("torchrun --nproc_per_node 8", "python -u") + f" {WRONG}", "command", id="python"
        ),
        pytest.param(f"srun --nodes 2 bash -c '{RUN} {WRONG}'", "command", id="inside srun"),
        pytest.param(
            f"python convert.py --fp16 --tensor-model-parallel-size 3\n{RUN} --bf16 --fp16",
            "command",
            id="after a converter",
        ),
        pytest.param(f"if [ $N -gt 1 ]; then X=1; fi\n{RUN} {WRONG}", "alternatives", id="branch of another"),
    ],
)
def test_a_whole_command_stops(text, kind, tmp_path):
    _, form, found = check(tmp_path, text)

    assert (form.kind, form.is_whole) == (kind, True)
    assert [row.precondition.id for row in found.stops] == ["CFG-38"]


@pytest.mark.parametrize(
    ("text", "kind"),
    [
        pytest.param(f"ARGS=( {SIZES} {WRONG} )", "fragment", id="array"),
        pytest.param(f"{SIZES} {WRONG}", "fragment", id="flags alone"),
        pytest.param(f"bash run.sh {WRONG}", "wrapper", id="script"),
        pytest.param(f"PP=4 sbatch -N 2 jobs/run.sbatch {WRONG}", "wrapper", id="sbatch"),
        pytest.param(f"./launch.sh {WRONG}", "wrapper", id="own script"),
        pytest.param(f"NPROC_PER_NODE=8 megatron sft {WRONG}", "wrapper", id="ms-swift"),
        pytest.param(f"ray job submit -- python3 train.py {SIZES} {WRONG}", "wrapper", id="slime"),
        pytest.param(f"python3 -m verl.trainer.main_ppo {WRONG}", "wrapper", id="module"),
        pytest.param(f"python -m torch.distributed.run run_recipe.py {WRONG}", "overrides", id="recipe"),
        pytest.param(f'{RUN} {WRONG} "$@"', "parts-elsewhere", id="arguments of the caller"),
        pytest.param(f'{RUN} {WRONG} "${{MODEL_ARGS[@]}}"', "parts-elsewhere", id="array of another file"),
        pytest.param(f"{RUN} {WRONG}\n{RUN} {WRONG} --recompute-activations", "several-runs", id="two runs"),
    ],
)
def test_a_part_of_a_run_conflicts_and_stops_nothing(text, kind, tmp_path):
    settings, form, found = check(tmp_path, text)

    assert (form.kind, form.is_whole) == (kind, False)
    assert found.stop_count == 0
    if kind != "overrides":
        assert "CFG-38" in [row.precondition.id for row in found.conflicts]
    if kind in {"fragment", "wrapper"}:
        assert "sequence_parallel" not in settings


@pytest.mark.parametrize(
    "flag", ["--use-mpi", "--deepspeed", "--train-weighted-split-paths '1 0.5 a'", "--fake_pp 4"]
)
def test_a_flag_that_no_release_has_starts_a_derived_program_which_stops_nothing(flag, tmp_path):
    _, form, found = check(tmp_path, f"{RUN} {WRONG} {flag}")

    assert (form.kind, form.is_whole) == ("derived", False)
    assert form.program == f"pretrain_gpt.py with {flag.split()[0].replace('_', '-')}"
    assert found.stop_count == 0
    assert "CFG-38" in [row.precondition.id for row in found.conflicts]


@pytest.mark.parametrize(
    "command",
    [
        pytest.param(f"{RUN} {WRONG} --tensor-model-parallel 2", id="cut off"),
        pytest.param(f"{RUN} {WRONG} --no-save-optim", id="switched off"),
        pytest.param(f"{RUN} {WRONG} --moe-router-topkk 2", id="misspelled"),
        pytest.param(f"srun --container-image a.sqsh --mpi=pmix {RUN} {WRONG}", id="of the launcher"),
        pytest.param(f'ARGS="--rdzv-backend c10d"\n{RUN} {WRONG}', id="of another variable"),
        pytest.param(f"sed --in-place --expression s/a/b/ f\n{RUN} {WRONG}", id="of another command"),
    ],
)
def test_flags_of_launchers_and_of_megatron_derive_no_program(command, tmp_path):
    _, form, found = check(tmp_path, command)

    assert (form.kind, form.is_whole) == ("command", True)
    assert found.stop_count > 0


@pytest.mark.parametrize(
    "program", ["$REPO/pretrain_gpt.py", "${REPO}/pretrain_gpt.py", "$SCRIPT", "${SCRIPT}", '"${SCRIPT}"']
)
def test_a_program_may_be_named_by_variables(program, tmp_path):
    text = f"REPO=/a\nSCRIPT=${{REPO}}/pretrain_gpt.py\n{RUN} {WRONG}".replace(
        "8 pretrain_gpt.py", f"8 {program}"
    )
    _, form, found = check(tmp_path, text)

    assert (form.kind, form.program) == ("command", "pretrain_gpt.py")
    assert found.stop_count > 0


@pytest.mark.parametrize("variable", ["SLURM_NNODES", "WORLD_SIZE", "NNODES", "OMPI_COMM_WORLD_SIZE"])
def test_the_default_of_a_variable_of_the_scheduler_shows_no_size(variable, tmp_path):
    run = f"{RUN.replace('torchrun', 'torchrun --nnodes $N')} --context-parallel-size 16"
    assert check(tmp_path, f"N=1\n{run}")[2].stop_count == 1
    text = f"N=${{{variable}:-1}}\n{run}"
    settings, _, found = check(tmp_path, text)

    assert "world_size" not in settings
    assert found.stop_count == 0


def test_arguments_that_a_project_of_retro_sets_are_unknown(tmp_path):
    _, _, found = check(
        tmp_path, "torchrun pretrain_retro.py --retro-project-dir a --micro-batch-size 1 --bf16"
    )

    assert found.stop_count == 0


def test_a_setting_in_a_branch_is_unknown_and_no_default(tmp_path):
    text = f'if [ $P = half ]; then\n  pr="--fp16"\nelse\n  pr="--bf16"\nfi\n{RUN} ${{pr}}'
    settings, form, found = check(tmp_path, text)

    assert form.kind == "alternatives"
    assert not {"fp16", "bf16"} & set(settings)
    assert settings["num_layers"].value == 8
    assert found.stop_count == 0


def test_a_variable_set_in_a_branch_is_unknown_until_it_is_set_again(tmp_path):
    text = "case $S in\n big) TP=8 ;;\n *) TP=1 ;;\nesac\n"
    flag = " --tensor-model-parallel-size ${TP}"
    assert "tensor_model_parallel_size" not in check(tmp_path, f"{text}{RUN}{flag}")[0]
    assert check(tmp_path, f"{text}TP=2\n{RUN}{flag}")[0]["tensor_model_parallel_size"].value == 2


def test_what_two_runs_have_in_common_counts(tmp_path):
    text = "bash a.sh --num-layers 8 --fp16\nbash a.sh --num-layers 8 --bf16\n"
    settings, form, _ = check(tmp_path, text)

    assert form.kind == "several-runs"
    assert settings["num_layers"].value == 8
    assert not {"fp16", "bf16"} & set(settings)


def test_flags_of_a_command_that_does_not_train_do_not_count(tmp_path):
    text = f"python tools/convert.py --tensor-model-parallel-size 4\n{RUN} --bf16"

    assert check(tmp_path, text)[0]["tensor_model_parallel_size"].value == 1


def test_an_option_of_a_recipe_counts_as_what_it_sets(tmp_path):
    settings, form, _ = check(tmp_path, "python run_script.py -m qwen --moe_a2a_overlap true --num-layers 8")

    assert form.kind == "overrides"
    assert settings["overlap_moe_expert_parallel_comm"].value is True
    assert settings["delay_wgrad_compute"].value is True
    assert settings["moe_shared_expert_overlap"].value is False
    other = check(tmp_path, "python other.py --moe_a2a_overlap true --num-layers 8")[0]
    assert "overlap_moe_expert_parallel_comm" not in other


def test_a_recipes_own_options_count_as_what_they_set(tmp_path):
    text = (
        "srun -n 8 -tp 64 python scripts/performance/run_script.py -m deepseek -mr deepseek_v3 -ng 256"
        " -g h100 -c bf16 --compute_dtype fp8_sc -tp 2 -pp 8 -vp 4 -ep 32 -mb 1 -gb 2048 -sl 4096"
        " --moe_flex_dispatcher_backend hybridep --recompute_modules mla_up_proj mlp"
    )
    settings, form, found = check(tmp_path, text)

    assert form.program == "run_script.py"
    assert {name: settings[name].value for name in ("world_size", "tensor_model_parallel_size")} == {
        "world_size": 256,
        "tensor_model_parallel_size": 2,
    }
    assert settings["virtual_pipeline_model_parallel_size"].value == 4
    assert settings["moe_token_dispatcher_type"].value == "flex"
    assert settings["recompute_modules"].value == ("mla_up_proj", "mlp")
    assert settings["recompute_granularity"].value == "selective"
    assert (settings["fp8_recipe"].value, settings["model_family"].value) == ("blockwise", "deepseek_v3")
    assert found.layout.data == 16
    none = text.replace("hybridep", "None").replace("--recompute_modules mla_up_proj mlp", "-rl 2 -ol 3")
    settings = check(tmp_path, none)[0]
    assert settings["moe_token_dispatcher_type"].value == "alltoall"
    assert (settings["recompute_granularity"].value, settings["cpu_offloading_num_layers"].value) == (
        "full",
        3,
    )
    other = check(tmp_path, text.replace("run_script.py", "other.py"))[0]
    assert "world_size" not in other
    assert "expert_model_parallel_size" not in other


@pytest.mark.parametrize(("dispatcher", "is_told"), [("alltoall", True), ("flex", False), (None, False)])
def test_a_backend_without_the_flex_dispatcher_is_told_where_it_is_set(dispatcher, is_told, tmp_path):
    text = "model:\n  num_moe_experts: 8\n  moe_flex_dispatcher_backend: deepep\n"
    text += f"  moe_token_dispatcher_type: {dispatcher}\n" if dispatcher else ""
    _, _, found = check(tmp_path, text, "run.yaml")

    assert any("has no effect" in one.message for one in found.findings) is is_told
    left_out = check(tmp_path, text.replace("  moe_flex_dispatcher_backend: deepep\n", ""), "run.yaml")[2]
    assert not any("has no effect" in one.message for one in left_out.findings)


@pytest.mark.parametrize(("release", "stops"), [("0.14.0", 0), ("0.18.0", 0), ("0.18.2", 1), (None, 1)])
def test_a_check_knows_the_release_that_makes_it(release, stops, tmp_path):
    stated = f'megatron_core_version: "{release}"\n' if release else ""
    flags = {one.split()[0]: one.split()[1] for one in SIZES.split("--") if one}
    lines = "".join(f"  --{name}: {value}\n" for name, value in flags.items())
    text = f"{stated}MODEL_ARGS:\n{lines}  --micro-batch-size: 1\n"
    text += "  --cross-entropy-loss-fusion: true\n  --cross-entropy-fusion-impl: te\n"

    found = check(tmp_path, text, "run.yaml")[2]
    assert [row.precondition.id for row in found.stops] == ["CFG-81"] * stops


@pytest.mark.parametrize(
    ("text", "program"),
    [
        ("modules:\n  pre_trainer:\n    config: a.yaml\n    overrides:\n", "Primus"),
        ("defaults:\n  - base\nactor:\n  megatron:\n", "Hydra"),
    ],
)
def test_yaml_over_another_file_conflicts_and_stops_nothing(text, program, tmp_path):
    _, form, found = check(
        tmp_path,
        f"{text}      num_layers: 8\n      sequence_parallel: true\n      bf16: true\n      fp16: true\n",
        "a.yaml",
    )

    assert (form.kind, form.program, found.stop_count) == ("overrides", program, 0)
    assert [row.precondition.id for row in found.conflicts] == ["CFG-38"]


def test_sizes_of_several_programs_are_unknown_and_refuse_nothing(tmp_path):
    text = "actor:\n  num_layers: 8\n  tensor_model_parallel_size: 4\nref:\n  tensor_model_parallel_size: 2\n"
    settings, _, found = check(tmp_path, text, "run.yaml")

    assert "tensor_model_parallel_size" not in settings
    assert settings["num_layers"].value == 8
    assert any("two programs" in one.message for one in found.findings)
    model = text.replace("actor:", "model:").replace("ref:", "train:")
    with pytest.raises(ConfigurationError, match="keep the correct one"):
        check(tmp_path, model, "run.yaml")


@pytest.mark.parametrize(
    ("text", "program"),
    [
        ("compute_environment: LOCAL_MACHINE\nmixed_precision: bf16\nnum_processes: 8\n", "Accelerate"),
        ("modules:\n  trainer:\n    framework: torchtitan\n    seq_length: 64\n", "torchtitan"),
    ],
)
def test_a_configuration_of_another_program_is_not_checked(text, program, tmp_path):
    _, form, found = check(tmp_path, text, "run.yaml")

    assert form.kind == "other-program"
    assert program in found.findings[0].message


@pytest.mark.parametrize(
    "words", ["cp run.sh other.sh", "source models/a.sh", "export A=b", "mkdir -p x.py", "", "cd scripts"]
)
def test_commands_that_start_nothing_are_no_launch(words):
    assert name_program(words.split()) is None


@pytest.mark.skipif(not USERS.is_dir(), reason="no configurations of users here: ../shared/configs is absent")
def test_no_file_of_a_user_is_stopped_or_refused_against_its_label():
    with (USERS / "labels.tsv").open(encoding="utf-8", newline="") as file:
        rows = list(csv.DictReader(file, delimiter="\t"))
    wrong = {}
    for row in rows:
        try:
            read = read_configuration(USERS / row["file"], with_defaults=True)
        except ConfigurationError as error:
            wrong[row["file"]] = str(error)
            continue
        found = check_configuration(read.configuration, TraceFacts(), read.findings, read.form)
        may_stop = row["truth"] in {"stops", "reads"}  # what only reads may lack required settings
        if (found.stop_count and not may_stop) or (row["truth"] == "stops" and not found.stop_count):
            wrong[row["file"]] = f"{found.stop_count} stops, {row['truth']}"
        if (row["truth"] == "not checked") != (read.form.kind == "other-program"):
            wrong[row["file"]] = f"{read.form.kind}, {row['truth']}"

    assert len(rows) > 30
    assert wrong == {}


@pytest.mark.parametrize(
    "text",
    [
        "python run_script.py -mr qwen3_30b_a3b -ng 16 -etp 2",
        "python run_script.py --model_recipe_name=qwen3_30b_a3b -ng=16 -etp=2",
        'A="-mr qwen3_30b_a3b -ng 16"\npython run_script.py $A --expert_tensor_parallel_size 2',
        "torchrun run_recipe.py --model qwen3_30b_a3b --num_gpus 16 -etp 2",
        "bash -c 'python run_script.py -mr qwen3_30b_a3b -ng 16 -etp 2'",
    ],
)
def test_short_options_of_a_recipe_are_read(text, tmp_path):
    settings, form, _ = check(tmp_path, text)

    assert form.kind == "overrides"
    assert settings["model_family"].value == "qwen3_30b_a3b"
    assert settings["world_size"].value == 16
    assert settings["expert_tensor_parallel_size"].value == 2
