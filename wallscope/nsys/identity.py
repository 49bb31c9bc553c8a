"""Identities in an export: numbers of texts and threads, processes, devices, product and version, conditions.

A global id has host, virtual machine and process in its upper 40 bits and the thread in the lower 24. Ids of
hosts from 128 on are negative.

Exports contain whole environments, output, and what the user typed. Only variables of a short list and names
of known libraries are read, and each value is checked. All others, and values in an unexpected form, never
leave the export.

The conditions of a capture are versions of the driver, clocks, and what the profiler recorded. Each can make
one capture slower than another of the same program.
"""

import json
import re
from collections.abc import Iterator, Mapping
from typing import Final

import polars as pl

from wallscope.model.capture import CaptureConditions, Export, Gpu
from wallscope.model.schemas import NAMES, THREADS
from wallscope.nsys import tables
from wallscope.nsys.integrity import content_size_bytes, fingerprint
from wallscope.nsys.tables import EXPORT_METADATA, STRINGS, Database
from wallscope.records import dataclass
from wallscope.units import spell_surrogates

NAMELESS = -1
"""Used for a row that names no string; its text is `(unnamed)`."""
_TID_BITS = 0xFFFFFF
KNOWN_ROLES = r"^(pt_autograd_\d+|pt_nccl_\w+|pt_data_pin|pt_main_thread|CUPTI worker thread)$"


LONGEST_NAME_LETTERS: Final = 1 << 16
"""Letters after which names of kernels, ranges and calls are cut. Chosen: ten times the longest known."""


def look_up_texts(source: Database, string_ids: pl.Series) -> pl.DataFrame:
    """Return `string_id`, `text` of the distinct ids; an id missing in the export reads `#<id>`."""
    wanted = string_ids.unique().drop_nulls().sort().cast(pl.Int64).alias("string_id").to_frame()
    found: list[tuple[int, str]] = []
    if source.has(tables.STRINGS, "id", "value"):
        found = source.rows("names", json.dumps(wanted["string_id"].to_list()))
    texts = pl.DataFrame(
        [(number, str(text)[:LONGEST_NAME_LETTERS]) for number, text in found if text is not None],
        schema={"string_id": pl.Int64, "text": pl.String},
        orient="row",
    ).unique("string_id", keep="first", maintain_order=True)
    number = pl.concat_str(pl.lit("#"), pl.col("string_id"))
    unnamed = pl.when(pl.col("string_id") == NAMELESS).then(pl.lit("(unnamed)")).otherwise(number)
    return wanted.join(texts, on="string_id", how="left").with_columns(pl.col("text").fill_null(unnamed))


def number_texts(texts: pl.Series) -> pl.DataFrame:
    """Return distinct texts, numbered in their alphabetical order (`NAMES`)."""
    return texts.unique().sort().alias("text").to_frame().with_row_index("name").cast(NAMES)


def process_of(column: str) -> pl.Expr:
    """Return the process of a global thread id, in the spelling of globalPid."""
    return pl.col(column) - (pl.col(column) & _TID_BITS)


def pid_of(column: str) -> pl.Expr:
    """Return the operating system's id of the process in a global id."""
    return (pl.col(column) // (1 << 24)) & _TID_BITS


def number_processes(global_pids: pl.Series) -> pl.DataFrame:
    """Return `globalPid`, `process`: the distinct processes, numbered in the order of their ids."""
    return global_pids.unique().sort(nulls_last=False).alias("globalPid").to_frame().with_row_index("process")


def number_threads(source: Database, global_tids: pl.Series, of_processes: pl.DataFrame) -> pl.DataFrame:
    """Return the distinct threads (`THREADS`) of some processes; null ids are one unknown thread."""
    tids = global_tids.unique().sort(nulls_last=False).alias("global_tid").to_frame()
    return (
        tids.with_columns(
            globalPid=process_of("global_tid"), pid=pid_of("global_tid"), tid=pl.col("global_tid") & _TID_BITS
        )
        .join(of_processes, on="globalPid", how="left", nulls_equal=True)
        .join(_read_roles(source), on="global_tid", how="left")
        .sort("process", "global_tid", nulls_last=False)
        .with_row_index("thread")
        .select(THREADS.names())
        .cast(THREADS)
    )


def list_processes(of_threads: pl.DataFrame) -> pl.DataFrame:
    """Return `globalPid`, `process` of the processes that have threads (`THREADS`)."""
    return of_threads.select("process", globalPid=process_of("global_tid")).unique(maintain_order=True)


def join_threads(rows: pl.DataFrame, of_threads: pl.DataFrame, column: str) -> pl.DataFrame:
    """Add `thread` and `process` of the global thread id in a column, null if unknown."""
    numbers = of_threads.select("thread", "process", pl.col("global_tid").alias(column))
    return rows.join(numbers, on=column, how="left", nulls_equal=True, maintain_order="left")


def _read_roles(source: Database) -> pl.DataFrame:
    """Thread names of known libraries; other names belong to the program and are not read."""
    found = source.rows("thread_names") if source.has("ThreadNames", "globalTid", "nameId") else []
    rows = [(tid, name) for tid, name in found if isinstance(tid, int) and isinstance(name, str)]
    return (
        pl.DataFrame(rows, schema={"global_tid": pl.Int64, "role": pl.String}, orient="row")
        .filter(pl.col("role").str.contains(KNOWN_ROLES))
        .unique("global_tid", keep="first", maintain_order=True)
    )


_VERSION = re.compile(r"\d{1,5}(?:\.\d{1,9}){0,4}(?:-[0-9a-z]{1,40})?")
_HOSTNAME = re.compile(r"[A-Za-z0-9](?:[A-Za-z0-9._-]{0,252})")
_GPU_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9 ()._/+-]{0,63}")
_INT64 = range(-(2**63), 2**63)
_COUNT = r"\d{1,9}"
_SWITCH = r"[01]"
RANK_VARIABLES = ("RANK", "SLURM_PROCID", "OMPI_COMM_WORLD_RANK", "PMI_RANK")
"""Variables with the rank of a process in its job, the most trusted first."""

_ALLOWED = {
    **dict.fromkeys(RANK_VARIABLES, _COUNT),
    "WORLD_SIZE": _COUNT,
    "LOCAL_RANK": _COUNT,
    "CUDA_DEVICE_MAX_CONNECTIONS": _COUNT,
    "CUDA_LAUNCH_BLOCKING": _SWITCH,
    "CUDA_MODULE_LOADING": r"LAZY|EAGER|DEFAULT",
    "PYTORCH_CUDA_ALLOC_CONF": (
        r"(?:expandable_segments:(?:True|False)|max_split_size_mb:\d{1,7}|roundup_power2_divisions:\d{1,3}"
        r"|garbage_collection_threshold:0?\.\d{1,4}|backend:(?:native|cudaMallocAsync)"
        r"|pinned_use_cuda_host_register:(?:True|False)|pinned_num_register_threads:\d{1,3}|,(?=[a-z])){1,15}"
    ),
    "NCCL_CTA_POLICY": r"[012]",
    "NCCL_GRAPH_REGISTER": _SWITCH,
    "NCCL_NET_GDR_C2C": _SWITCH,
    "NCCL_NET_GDR_LEVEL": r"LOC|PIX|PXB|PHB|SYS|[0-5]",
    "NCCL_NVLS_ENABLE": r"[012]",
    "NCCL_P2P_NET_CHUNKSIZE": _COUNT,
    "NVTE_ALLOW_NONDETERMINISTIC_ALGO": _SWITCH,
    "NVTE_BWD_LAYERNORM_SM_MARGIN": r"\d{1,3}",
    "NVTE_CPU_OFFLOAD_V1": _SWITCH,
    "NVTE_CUTEDSL_FUSED_GROUPED_MLP": _SWITCH,
    "NVTE_FUSED_ATTN": _SWITCH,
    "NVTE_FWD_LAYERNORM_SM_MARGIN": r"\d{1,3}",
    "NVTE_NVTX_ENABLED": _SWITCH,
    "NVTE_NORM_BWD_USE_CUDNN": _SWITCH,
    "NVTE_NORM_FWD_USE_CUDNN": _SWITCH,
    "NUM_OF_HYBRID_EP_RANKS_PER_NVLINK_DOMAIN": _COUNT,
    "NVLINK_DOMAIN_SIZE": _COUNT,
    "USE_MNNVL": _SWITCH,
    "NVSHMEM_ENABLE_NIC_PE_MAPPING": _SWITCH,
    "NVSHMEM_IB_ENABLE_IBGDA": r"[01]|true|false",
    "TORCH_NCCL_AVOID_RECORD_STREAMS": _SWITCH,
    "TORCH_NCCL_HIGH_PRIORITY": _SWITCH,
    "OMP_NUM_THREADS": _COUNT,
}
_PATTERNS = {name: re.compile(pattern) for name, pattern in _ALLOWED.items()}


@dataclass(frozen=True, slots=True)
class ExportFacts:
    """Export metadata: time shift in ns, and whether it contains everything that was captured."""

    product_version: str | None
    schema_version: str | None
    time_shift_ns: int
    is_filtered: bool


def read_export_facts(source: Database) -> ExportFacts:
    """Read the metadata of the export, under either of its two names; unknown if it has none."""
    facts: dict[str, object] = {}
    for table, query_name in zip(EXPORT_METADATA, ("metadata_new", "metadata_old"), strict=True):
        if not facts and source.has(table, "name", "value"):
            facts = {str(name): value for name, value in source.rows(query_name)}
    return ExportFacts(
        product_version=_keep_matching(_VERSION, facts.get("EXPORT_PRODUCT_VERSION")),
        schema_version=_keep_matching(_VERSION, facts.get("EXPORT_SCHEMA_VERSION")),
        time_shift_ns=_integer(facts.get("EXPORT_CONFIG_TIME_SHIFT")) or 0,
        is_filtered=bool(
            facts.get("EXPORT_PARAM_TABLES_TO_EXPORT") or facts.get("EXPORT_PARAM_TIMES_TO_EXPORT")
        ),
    )


def identify_export(source: Database, facts: ExportFacts) -> Export:
    """Return the identity of the export; only the base name of the file, never its folder."""
    size_bytes = content_size_bytes(source.path)
    return Export(
        name=spell_surrogates(source.path.name),
        fingerprint=fingerprint(source.path, size_bytes),
        size_bytes=size_bytes,
        nsys_version=facts.product_version,
        schema_version=facts.schema_version,
        hostname=_read_hostname(source),
        session_start_utc_ns=_read_session_start(source),
        time_shift_ns=facts.time_shift_ns,
        gpus=read_gpus(source),
        environment=read_environment(source),
        loader_threads=count_loader_threads(source),
    )


def read_duration_ns(source: Database) -> int | None:
    """Return the duration of the capture, `None` if unknown."""
    if not source.has("ANALYSIS_DETAILS", "duration"):
        return None
    ((duration_ns,),) = source.rows("capture_duration")
    return duration_ns if isinstance(duration_ns, int) else None


def read_capture_options(source: Database) -> list[tuple[str, object]]:
    """Return names and values of the capture's recording options; empty if unknown."""
    if not source.has("META_DATA_CAPTURE", "name", "value"):
        return []
    return [(str(name), value) for name, value in source.rows("capture_options")]


def _read_session_start(source: Database) -> int | None:
    if not source.has("TARGET_INFO_SESSION_START_TIME", "utcEpochNs"):
        return None
    rows = source.rows("session_start")
    return _integer(rows[0][0]) if rows else None


def _read_hostname(source: Database) -> str | None:
    if not source.has("TARGET_INFO_SYSTEM_ENV", "name", "value"):
        return None
    hostnames = [value for name, value in source.rows("system_facts") if name == "Hostname"]
    return _keep_matching(_HOSTNAME, hostnames[0]) if hostnames else None


def read_gpus(source: Database) -> tuple[Gpu, ...]:
    """Return the GPUs of the machine by id, used or not; columns that an export lacks are unknown."""
    table, identifier = "TARGET_INFO_GPU", "id"
    if not source.has(table, identifier):
        table, identifier = "TARGET_INFO_CUDA_GPU", "deviceId"  # before mid-2021
        if not source.has(table, identifier):
            return ()
    wanted = {
        "id": (identifier,),
        "name": ("name",),
        "major": ("computeMajor", "computeCapabilityMajor"),
        "minor": ("computeMinor", "computeCapabilityMinor"),
        "sm_count": ("smCount", "numMultiprocessors"),
        "memory_bytes": ("totalMemory",),
        "memory_mib": ("globalMemorySize",),  # seen in an export of 2021: 32510 for a V100 of 32 GB
        "bandwidth": ("memoryBandwidth",),
        "clock": ("clockRate",),
    }
    columns = [
        next((f'"{column}"' for column in spellings if source.has(table, column)), "NULL")
        for spellings in wanted.values()
    ]
    rows = source.select(f'SELECT {", ".join(columns)} FROM "{table}" ORDER BY 1')
    found = (make_gpu(dict(zip(wanted, row, strict=True))) for row in rows if _integer(row[0]) is not None)
    return tuple({gpu.id: gpu for gpu in found}.values())  # the early table repeats a GPU for each process


def make_gpu(row: dict[str, object]) -> Gpu:
    """Return a GPU as in the columns of an export; impossible values are unknown."""
    major, minor = _positive(row["major"]), _integer(row["minor"])
    memory_bytes, memory_mib = _positive(row["memory_bytes"]), _positive(row["memory_mib"])
    return Gpu(
        id=_integer(row["id"]) or 0,
        name=_keep_matching(_GPU_NAME, row["name"]),
        architecture=f"sm_{major}{minor or 0}" if major is not None else None,
        sm_count=_positive(row["sm_count"]),
        memory_bytes=memory_mib << 20 if memory_bytes is None and memory_mib is not None else memory_bytes,
        memory_bandwidth_bytes_per_s=_positive(row["bandwidth"]),
        clock_hz=_positive(row["clock"]),
    )


def _keep_matching(pattern: re.Pattern[str], value: object) -> str | None:
    return value if isinstance(value, str) and pattern.fullmatch(value) else None


def _integer(value: object) -> int | None:
    """Return an int64, also if the export has numbers as text."""
    if isinstance(value, str) and re.fullmatch(r"-?\d{1,19}", value):
        value = int(value)
    return value if isinstance(value, int) and value in _INT64 else None


def _positive(value: object) -> int | None:
    """Return a quantity; Nsight writes 0 for unknown."""
    number = _integer(value)
    return number if number is not None and number > 0 else None


def read_environment(source: Database) -> Mapping[str, str]:
    """Return the allowed variables, sorted by name, without those whose values differ between processes.

    The environment of the profiled command counts, and the agent's only if the export has no other.
    """
    for assignments in (_read_command_environment(source), _read_agent_environment(source)):
        values: dict[str, set[str]] = {}
        for assignment in assignments:
            name, _, quoted = assignment.partition("=")
            value = quoted.strip().removeprefix('"').removesuffix('"')
            if name in _PATTERNS and _PATTERNS[name].fullmatch(value):
                values.setdefault(name, set()).add(value)
        if values:
            return {name: min(found) for name, found in sorted(values.items()) if len(found) == 1}
    return {}


def _read_command_environment(source: Database) -> Iterator[str]:
    if source.has("META_DATA_CAPTURE", "name", "value"):
        for (assignment,) in source.rows("allowed_environment", json.dumps(sorted(_ALLOWED))):
            yield str(assignment)


def _read_agent_environment(source: Database) -> Iterator[str]:
    if source.has("TARGET_INFO_SYSTEM_ENV", "name", "value"):
        for name, value in source.rows("system_facts"):
            if name == "DeviceEnvironment":
                yield from str(value).split(";")


_OPTIONS = {
    "COLLECT_GPU_MEMORY_USAGE": "CUDA memory usage",
    "COLLECT_UVM_CPU_PAGE_FAULTS": "page faults of the CPU",
    "COLLECT_UVM_GPU_PAGE_FAULTS": "page faults of the GPU",
    "COLLECT_GPU_CTX_SW_TRACE": "GPU context switches",
    "COLLECT_BACKTRACES": "backtraces of OS calls",
    "COLLECT_IP_BACKTRACE_SAMPLES": "CPU sampling",
    "COLLECT_CPU_CTXSW_TRACE": "CPU context switches",
    "COLLECT_MPI_TRACE": "MPI calls",
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
_CUDA_BACKTRACES = "backtraces of CUDA calls"
_CUDA_CALLCHAINS = "CUDA_CALLCHAINS"
_FREQUENCY = "SAMPLING_FREQUENCY"
_DRIVER_VERSION = re.compile(r"\d{1,4}(?:\.\d{1,4}){1,3}|\d{4,9}")
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
        driver_version=_check_driver_version(versions.get("NvDriverVersion")),
        cuda_version=write_cuda_version(_check_driver_version(versions.get("CudaDriverVersion"))),
        clock_hz=_read_clock_hz(source),
        options=_read_capture_settings(source),
    )


def _check_driver_version(value: str | None) -> str | None:
    return value if value is not None and _DRIVER_VERSION.fullmatch(value) else None


def write_cuda_version(number: str | None) -> str | None:
    """Write a version of CUDA as NVIDIA does.

    >>> write_cuda_version("12020"), write_cuda_version("12.2")
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


def _read_capture_settings(source: Database) -> tuple[tuple[str, str], ...]:
    if not source.has("META_DATA_CAPTURE", "name", "value"):
        return ()
    found = dict.fromkeys([*_OPTIONS.values(), *_TRACES.values(), _CUDA_BACKTRACES], "off")
    if source.has(_CUDA_CALLCHAINS, "id"):
        found[_CUDA_BACKTRACES] = "on"
    for name, value in source.rows("capture_settings"):
        setting = str(name).rpartition(":")[2]
        if setting == "CAPTURE_EVENT_TYPE" and value in _TRACES:
            found[_TRACES[value]] = "on"
        elif setting in _OPTIONS and value == "true":
            found[_OPTIONS[setting]] = "on"
        elif setting == _FREQUENCY and str(value).isdecimal() and len(str(value)) < 9:
            found["GPU metrics"] = f"{value} Hz"
    return tuple(sorted(found.items()))


_LIBRARIES = (
    "libtorch_cuda.so",
    "libtorch_cuda_cu.so",
    "libtorch_python.so",
    "libdali.so",
    "libtensorflow_cc.so.2",
    "libtensorflow_framework.so.2",
    "_pywrap_tensorflow_internal.so",
    "xla_extension.so",
    "xla_cuda_plugin.so",
    "libjax_common.so",
    "libnvinfer.so.8",
    "libnvinfer.so.10",
    "libtensorrt_llm.so",
    "libjulia.so.1",
    "libtransformer_engine.so",
)
"""Base names of shared libraries, each of one framework."""
_INTERPRETERS = ((re.compile(r"(pytest|python[0-9.]*)(\.exe)?"), "python"), (re.compile(r"julia"), "julia"))
_LAUNCHERS = re.compile(r"nsys.*|ProcessLauncher|readlink|gcc|cc1|git|nvidia-smi|sh|bash|mpirun|srun|orted")


@dataclass(frozen=True, slots=True)
class ProgramHints:
    """Libraries of the program, and its interpreter (`python`, `julia`, `native`; `None`: unknown)."""

    libraries: tuple[str, ...]
    interpreter: str | None


def read_program_hints(source: Database, global_pids: list[int]) -> ProgramHints:
    """Return the known libraries in an export, and the interpreter of the processes that issued work.

    Args:
        source: the export.
        global_pids: those processes.
    """
    libraries: tuple[str, ...] = ()
    if source.has(STRINGS, "id", "value"):
        found = source.rows("loaded_libraries", json.dumps(list(_LIBRARIES)))
        libraries = tuple(sorted(str(name) for (name,) in found))
    names: list[str] = []
    if source.has("PROCESSES", "globalPid", "name"):
        names = [str(name) for (name,) in source.rows("process_names", json.dumps(global_pids)) if name]
    return ProgramHints(libraries, _find_interpreter(names))


_LOADERS = {
    "pt_data_worker": r"pt_data_worker.*",
    "pt_data_pin": r"pt_data_pin",
    "DALI executor": r"\[DALI\]\[TP\d+\].*",
    "DALI reader": r"PrefetchWorker readers.*",
    "tf_data": r"tf_data.*",
}
"""Names that data loaders give to their threads and worker processes, by what they are called here."""


def count_loader_threads(source: Database) -> dict[str, int]:
    """Return how many threads in an export have the name of a data loader's, by kind.

    A worker process is counted by its main thread, which has the name too.
    """
    rows = source.rows("thread_names") if source.has("ThreadNames", "globalTid", "nameId") else []
    threads = {kind: set[object]() for kind in _LOADERS}
    for tid, name in rows:
        for kind, pattern in _LOADERS.items():
            if isinstance(name, str) and re.fullmatch(pattern, name):
                threads[kind].add(tid)
    return {kind: len(own) for kind, own in threads.items() if own}


def _find_interpreter(names: list[str]) -> str | None:
    """Return the interpreter of processes with these names.

    >>> [_find_interpreter([name]) for name in ("/usr/bin/python3", "./a.out", "nsys-launcher")]
    ['python', 'native', None]
    """
    own = [re.split(r"[/\\]", name)[-1] for name in names]
    for pattern, interpreter in _INTERPRETERS:
        if any(pattern.fullmatch(name) for name in own):
            return interpreter
    return "native" if any(not _LAUNCHERS.fullmatch(name) for name in own) else None
