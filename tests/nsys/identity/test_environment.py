import pytest

from fixtures.export import ExportWriter
from wallscope.nsys import read_capture


def environment(path, **variables: str) -> dict[str, str]:
    with ExportWriter(path) as writer:
        writer.kernel("nvjet", 1, 2)
        writer.environment(**variables)
    return dict(read_capture(path, lambda _: None).export.environment)


@pytest.mark.parametrize(
    ("name", "value", "is_read"),
    [
        pytest.param("RANK", "12", True, id="a rank"),
        pytest.param("RANK", "sk-12", False, id="a secret in a rank"),
        pytest.param("RANK", "12 ", False, id="a rank with a blank"),
        pytest.param("rank", "12", False, id="another spelling"),
        pytest.param("RANK_TOKEN", "12", False, id="a longer name"),
        pytest.param("NCCL_DEBUG", "1", False, id="a name that is not on the list"),
        pytest.param("CUDA_DEVICE_MAX_CONNECTIONS", "1", True, id="connections"),
        pytest.param("PYTORCH_CUDA_ALLOC_CONF", "expandable_segments:True", True, id="allocator"),
        pytest.param(
            "PYTORCH_CUDA_ALLOC_CONF",
            "max_split_size_mb:128,expandable_segments:True",
            True,
            id="allocator, two",
        ),
        pytest.param("PYTORCH_CUDA_ALLOC_CONF", "backend:hf_abcdef", False, id="a secret in the allocator"),
        pytest.param("CUDA_MODULE_LOADING", "LAZY", True, id="a word"),
        pytest.param("CUDA_MODULE_LOADING", "LAZY\x1b[31m", False, id="an escape sequence"),
    ],
)
def test_only_allowed_variables_with_sound_values_are_read(name, value, is_read, tmp_path):
    found = environment(tmp_path / "run.sqlite", **{name: value})

    assert found == ({name: value} if is_read else {})


def test_a_variable_that_processes_disagree_about_is_left_out(tmp_path):
    with ExportWriter(tmp_path / "run.sqlite") as writer:
        writer.kernel("nvjet", 1, 2)
        writer.environment(RANK="1", WORLD_SIZE="8")
        writer.capture_option("PROCESS_1:ENVIRONMENT_VARIABLE", 'RANK="2"')
        writer.capture_option("PROCESS_1:ENVIRONMENT_VARIABLE", 'WORLD_SIZE="8"')

    found = read_capture(tmp_path / "run.sqlite", lambda _: None).export.environment
    assert found == {"WORLD_SIZE": "8"}


def test_the_agents_environment_counts_where_the_command_has_none(tmp_path):
    with ExportWriter(tmp_path / "run.sqlite", "3.0.0") as writer:
        writer.kernel("nvjet", 1, 2)
        writer.row(
            "TARGET_INFO_SYSTEM_ENV",
            globalVid=1,
            devStateName="x",
            name="DeviceEnvironment",
            value="API_KEY=planted;SLURM_PROCID=7;HOME=/root",
        )

    found = read_capture(tmp_path / "run.sqlite", lambda _: None).export.environment
    assert found == {"SLURM_PROCID": "7"}
