"""Under which conditions a capture was taken: only known settings with values that they can have."""

import pytest

from fixtures.export import ExportWriter
from wallscope.model.capture import CaptureConditions
from wallscope.nsys.identity import read_conditions
from wallscope.nsys.sources import open_tables
from wallscope.nsys.tables import make_database


def read(path, settings=(), facts=(), clocks=()):
    with ExportWriter(path) as export:
        export.kernel("gemm", 0, 10)
        for name, value in settings:
            export.row("META_DATA_CAPTURE", name=name, value=value)
        for number, (name, value) in enumerate(facts):
            export.row(
                "TARGET_INFO_SYSTEM_ENV",
                globalVid=0,
                devStateName="x",
                name=name,
                nameEnum=number,
                value=value,
            )
        for number, clock_hz in enumerate(clocks):
            export.row("TARGET_INFO_GPU", vmId=0, id=number, name="NVIDIA H100", clockRate=clock_hz)
    with open_tables(path, lambda _: None) as tables:
        return read_conditions(make_database(path, tables))


@pytest.fixture
def path(tmp_path):
    return tmp_path / "run.sqlite"


def test_an_export_that_tells_nothing_has_no_conditions(path):
    assert read(path) == CaptureConditions()


def test_versions_and_the_clock_are_read(path):
    folder = "/usr/local/cuda-12.2/NsightSystems-cli-2023.2.3/target-linux-x64"
    facts = [("NvDriverVersion", "525.105.17"), ("CudaDriverVersion", "12020"), ("TargetInstallDir", folder)]
    found = read(path, facts=facts, clocks=[1_410_000_000, 1_410_000_000])

    assert found == CaptureConditions("2023.2.3", "525.105.17", "12.2", 1_410_000_000)


@pytest.mark.parametrize("driver", ["0", "", "secret", "5; DROP"])
def test_a_version_that_is_none_is_unknown(path, driver):
    facts = [("NvDriverVersion", driver), ("TargetInstallDir", "/home/user/token-2023.1.1-x")]
    assert read(path, facts=facts) == CaptureConditions()


def test_clocks_that_differ_are_unknown(path):
    assert read(path, clocks=[1_410_000_000, 1_980_000_000]).clock_hz is None


def test_options_that_cost_time_are_on_or_off(path):
    settings = [
        ("CAPTURE_EVENT_TYPE", "Cuda"),
        ("CAPTURE_EVENT_TYPE", "OSRuntime"),
        ("PROCESS_0:COLLECT_GPU_MEMORY_USAGE", "true"),
        ("LINUX_PERF_OPTIONS:COLLECT_CPU_CTXSW_TRACE", "true"),
        ("PROCESS_0:COLLECT_MPI_TRACE", "true"),
        ("LINUX_PERF_OPTIONS:COLLECT_IP_BACKTRACE_SAMPLES", "false"),
        ("GPU_METRICS_OPTIONS:SAMPLING_FREQUENCY", "10000"),
        ("PROCESS_0:ENVIRONMENT_VARIABLE", "HF_TOKEN=secret"),
        ("PROCESS_0:COLLECT_UVM_GPU_PAGE_FAULTS", "secret"),
    ]
    options = dict(read(path, settings).options)

    assert {name for name, value in options.items() if value == "on"} == {
        "CUDA",
        "OS calls",
        "CUDA memory usage",
        "CPU context switches",
        "MPI calls",
    }
    assert options["GPU metrics"] == "10000 Hz"
    assert options["CPU sampling"] == options["page faults of the GPU"] == "off"
    assert options["backtraces of CUDA calls"] == "off"
    assert "secret" not in str(options)
