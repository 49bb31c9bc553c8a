"""Environment variables of the profiled run: a short list of names, each value checked.

Exports hold whole environments. Everything that is not on the list, or does not look as the
variable must, is left where it is.
"""

import json
import re
from collections.abc import Iterator, Mapping

from wallscope.nsys.tables import Database

_COUNT = r"\d{1,9}"
_SWITCH = r"[01]"
RANK_VARIABLES = ("RANK", "SLURM_PROCID", "OMPI_COMM_WORLD_RANK", "PMI_RANK")
"""Variables that hold the rank of a process in its job, the most trusted first."""

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
}
_PATTERNS = {name: re.compile(pattern) for name, pattern in _ALLOWED.items()}


def allowed_environment(source: Database) -> Mapping[str, str]:
    """The allowed variables, sorted by name; one that processes disagree about is left out.

    The environment of the profiled command counts; the agent's only where the export has none.
    """
    for assignments in (_of_command(source), _of_agent(source)):
        values: dict[str, set[str]] = {}
        for assignment in assignments:
            name, _, quoted = assignment.partition("=")
            value = quoted.strip().removeprefix('"').removesuffix('"')
            if name in _PATTERNS and _PATTERNS[name].fullmatch(value):
                values.setdefault(name, set()).add(value)
        if values:
            return {name: min(found) for name, found in sorted(values.items()) if len(found) == 1}
    return {}


def _of_command(source: Database) -> Iterator[str]:
    if source.has("META_DATA_CAPTURE", "name", "value"):
        for (assignment,) in source.rows("allowed_environment", json.dumps(sorted(_ALLOWED))):
            yield str(assignment)


def _of_agent(source: Database) -> Iterator[str]:
    if source.has("TARGET_INFO_SYSTEM_ENV", "name", "value"):
        for name, value in source.rows("system_facts"):
            if name == "DeviceEnvironment":
                yield from str(value).split(";")
