"""The tables of an export, declared once: columns that are read, what the rows are.

Columns are probed one by one in each export; nothing is inferred from version numbers.
"""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class CatalogTable:
    """A table that is read: columns of integers, columns of text, columns that must be there if it is."""

    name: str
    columns: tuple[str, ...]
    texts: tuple[str, ...] = ()
    required: tuple[str, ...] = ("start", "end")


_WHERE_AND_WHEN = ("start", "end", "deviceId", "contextId", "streamId", "globalPid", "correlationId")

LAUNCH_SHAPE = (
    "gridX",
    "gridY",
    "gridZ",
    "blockX",
    "blockY",
    "blockZ",
    "registersPerThread",
    "staticSharedMemory",
    "dynamicSharedMemory",
)
KERNELS = CatalogTable(
    "CUPTI_ACTIVITY_KIND_KERNEL",
    (*_WHERE_AND_WHEN, "demangledName", "shortName", "graphNodeId", *LAUNCH_SHAPE),
)
COPIES = CatalogTable(
    "CUPTI_ACTIVITY_KIND_MEMCPY",
    (
        *_WHERE_AND_WHEN,
        "bytes",
        "copyKind",
        "srcKind",
        "dstKind",
        "srcDeviceId",
        "dstDeviceId",
        "graphNodeId",
    ),
)
FILLS = CatalogTable("CUPTI_ACTIVITY_KIND_MEMSET", (*_WHERE_AND_WHEN, "bytes", "memKind", "graphNodeId"))
GRAPHS = CatalogTable("CUPTI_ACTIVITY_KIND_GRAPH_TRACE", _WHERE_AND_WHEN)

CALLS = CatalogTable("CUPTI_ACTIVITY_KIND_RUNTIME", ("start", "end", "globalTid", "correlationId", "nameId"))
RANGES = CatalogTable(
    "NVTX_EVENTS",
    ("start", "end", "eventType", "rangeId", "textId", "domainId", "globalTid", "endGlobalTid"),
    texts=("text",),
    required=("start", "end", "eventType"),
)

DEVICE_TABLES = (KERNELS, COPIES, FILLS, GRAPHS)
"""The tables whose rows are device operations."""

STRINGS = "StringIds"
EXPORT_METADATA = ("META_DATA_EXPORT", "EXPORT_META_DATA")
"""Both spellings, the newer first; the older one up to schema 3.1."""

CONTENTS = {
    "CUPTI_ACTIVITY_KIND_KERNEL": "kernels",
    "CUPTI_ACTIVITY_KIND_MEMCPY": "memory copies",
    "CUPTI_ACTIVITY_KIND_MEMSET": "memory fills",
    "CUPTI_ACTIVITY_KIND_GRAPH_TRACE": "CUDA graph replays traced as a whole",
    "CUPTI_ACTIVITY_KIND_RUNTIME": "CUDA API calls",
    "CUPTI_ACTIVITY_KIND_SYNCHRONIZATION": "CUDA synchronisations",
    "CUPTI_ACTIVITY_KIND_CUDA_EVENT": "CUDA events",
    "CUPTI_ACTIVITY_KIND_OVERHEAD": "CUDA overheads",
    "CUDA_GRAPH_EVENTS": "CUDA graph creations",
    "CUDA_GRAPH_NODE_EVENTS": "CUDA graph node creations",
    "CUDA_GPU_MEMORY_USAGE_EVENTS": "GPU memory allocations and releases",
    "CUDA_UM_CPU_PAGE_FAULT_EVENTS": "unified-memory faults of the CPU",
    "CUDA_UM_GPU_PAGE_FAULT_EVENTS": "unified-memory faults of the GPU",
    "NVTX_EVENTS": "NVTX ranges, marks and names",
    "NVTX_PAYLOAD_SCHEMAS": "layouts of NVTX payloads",
    "OSRT_API": "operating-system calls",
    "SCHED_EVENTS": "thread switches",
    "COMPOSITE_EVENTS": "CPU samples",
    "GPU_METRICS": "GPU metric samples",
    "GENERIC_EVENTS": "generic events",
    "NET_NIC_METRIC": "network card samples",
    "MPI_COLLECTIVES_EVENTS": "MPI collectives",
    "MPI_P2P_EVENTS": "MPI messages",
    "PROFILER_OVERHEAD": "profiler overheads",
    "DIAGNOSTIC_EVENT": "diagnostics of the profiler",
}
"""What the rows are of the tables that `wallscope info` counts."""
