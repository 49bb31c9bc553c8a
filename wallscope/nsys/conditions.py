"""Under which conditions a capture was taken: versions of the driver, clocks, and what the profiler recorded.

All of it can make one capture slower than another of the same program. Values are checked, as the table of
settings holds whatever the user typed.
"""

import re

from wallscope.model.capture import CaptureConditions
from wallscope.nsys.tables import Database

_OPTIONS = {
    "COLLECT_GPU_MEMORY_USAGE": "CUDA memory usage",
    "COLLECT_UVM_CPU_PAGE_FAULTS": "page faults of the CPU",
    "COLLECT_UVM_GPU_PAGE_FAULTS": "page faults of the GPU",
    "COLLECT_GPU_CTX_SW_TRACE": "GPU context switches",
    "COLLECT_BACKTRACES": "backtraces of OS calls",
    "COLLECT_IP_BACKTRACE_SAMPLES": "CPU sampling",
    "CUDA_FLUSH_PERIODICALLY": "periodic flush",
}
_TRACES = {
    "CpuCycles": "CPU sampling",
    "OSRuntime": "OS calls",
    "CuBLAS": "cuBLAS calls",
    "CuDNN": "cuDNN calls",
    "OpenACC": "OpenACC calls",
    "Cuda": "CUDA",
    "NvtxEvents": "NVTX",
}
_FREQUENCY = "SAMPLING_FREQUENCY"
_VERSION = re.compile(r"\d{1,4}(?:\.\d{1,4}){1,3}|\d{4,9}")
_INSTALLED = re.compile(
    r"/(?:NsightSystems-cli-|nsight-systems(?:-cli)?[-/])(20\d\d\.\d{1,2}(?:\.\d{1,2})?)(?=/|$)"
)


def read_conditions(source: Database) -> CaptureConditions:
    """Return the conditions that an export shows."""
    versions = (
        {str(name): str(value) for name, value in source.rows("driver_versions")}
        if source.has("TARGET_INFO_SYSTEM_ENV", "name", "value")
        else {}
    )
    return CaptureConditions(
        profiler_version=found[1]
        if (found := _INSTALLED.search(versions.get("TargetInstallDir", "")))
        else None,
        driver_version=_version(versions.get("NvDriverVersion")),
        cuda_version=_write_cuda_version(_version(versions.get("CudaDriverVersion"))),
        clock_hz=_read_clock_hz(source),
        options=_read_options(source),
    )


def _version(value: str | None) -> str | None:
    return value if value is not None and _VERSION.fullmatch(value) else None


def _write_cuda_version(number: str | None) -> str | None:
    """Write a version of CUDA as NVIDIA does.

    >>> _write_cuda_version("12020"), _write_cuda_version("12.2")
    ('12.2', '12.2')
    """
    if number is None or not number.isdecimal():
        return number
    return f"{int(number) // 1000}.{int(number) % 1000 // 10}"


def _read_clock_hz(source: Database) -> int | None:
    """Return the highest clock of the GPUs, `None` where they differ or it is unknown."""
    if not source.has("TARGET_INFO_GPU", "clockRate"):
        return None
    found = {value for (value,) in source.select('SELECT DISTINCT "clockRate" FROM "TARGET_INFO_GPU"')}
    (clock_hz,) = found if len(found) == 1 else (None,)
    return clock_hz if isinstance(clock_hz, int) and clock_hz > 0 else None


def _read_options(source: Database) -> tuple[tuple[str, str], ...]:
    if not source.has("META_DATA_CAPTURE", "name", "value"):
        return ()
    found = dict.fromkeys([*_OPTIONS.values(), *_TRACES.values()], "off")
    for name, value in source.rows("capture_settings"):
        setting = str(name).rpartition(":")[2]
        if setting == "CAPTURE_EVENT_TYPE" and value in _TRACES:
            found[_TRACES[value]] = "on"
        elif setting in _OPTIONS and value == "true":
            found[_OPTIONS[setting]] = "on"
        elif setting == _FREQUENCY and str(value).isdecimal() and len(str(value)) < 9:
            found["GPU metrics"] = f"{value} Hz"
    return tuple(sorted(found.items()))
