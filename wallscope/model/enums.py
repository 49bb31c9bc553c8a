"""Choices that cross a boundary: classes of operations, walls, axes, ways to read an export."""

from enum import StrEnum


class OperationKind(StrEnum):
    """The table that a device operation comes from."""

    KERNEL = "kernel"
    COPY = "copy"
    FILL = "fill"
    GRAPH = "graph"


class OperationClass(StrEnum):
    """Who pays for a device operation, in the order of precedence of the budget."""

    COMPUTE = "compute"
    OPAQUE_GRAPH = "opaque_graph"
    COMMUNICATION = "communication"
    COPY = "copy"


class ComputeCategory(StrEnum):
    """What a compute kernel calculates.

    `other` are kernels that a pattern knows and that belong to no category; `unrecognized` are those that no
    pattern knows.
    """

    GEMM = "gemm"
    GROUPED_GEMM = "grouped-gemm"
    ATTENTION = "attention"
    CONVOLUTION = "convolution"
    NORM = "norm"
    ELEMENTWISE = "elementwise"
    REDUCTION = "reduction"
    OPTIMIZER = "optimizer"
    QUANTIZE = "quantize"
    EMBEDDING = "embedding"
    DISPATCHER_LOCAL = "dispatcher-local"
    PREPROCESSING = "preprocessing"
    OTHER = "other"
    UNRECOGNIZED = "unrecognized"


class Collective(StrEnum):
    """What a communication operation does."""

    ALL_TO_ALL = "all-to-all"
    ALL_GATHER = "all-gather"
    REDUCE_SCATTER = "reduce-scatter"
    ALL_REDUCE = "all-reduce"
    REDUCE = "reduce"
    BROADCAST = "broadcast"
    SEND_RECV = "send-recv"
    DISPATCH = "dispatch"
    COMBINE = "combine"
    SYNCHRONISE = "synchronise"
    OTHER = "other"


class Axis(StrEnum):
    """The dimension of the job over which an operation communicates."""

    EP = "ep"
    DP_GRADIENT = "dp-gradient"
    DP_PARAMETER = "dp-parameter"
    TP = "tp"
    CP = "cp"
    PP = "pp"
    UNKNOWN = "unknown"


class Backend(StrEnum):
    """The library that a communication operation belongs to, `unknown` where its kernel does not tell."""

    NCCL = "nccl"
    NCCL_SYMMETRIC = "nccl-symmetric"
    NCCL_EP = "nccl-ep"
    DEEP_EP = "deep-ep"
    HYBRID_EP = "hybrid-ep"
    NVSHMEM = "nvshmem"
    USERBUFFERS = "userbuffers"
    CUSTOM_ALL_REDUCE = "custom-all-reduce"
    SYMMETRIC_MEMORY = "symmetric-memory"
    MSCCL = "msccl"
    ONECCL = "oneccl"
    UCC = "ucc"
    UNKNOWN = "unknown"
    PEER_COPY = "peer-copy"


class CopyDirection(StrEnum):
    """Where a copy or fill moves bytes; `peer` is from one device to another."""

    HOST_TO_DEVICE = "host-to-device"
    DEVICE_TO_HOST = "device-to-host"
    DEVICE_TO_DEVICE = "device-to-device"
    HOST_TO_HOST = "host-to-host"
    PEER = "peer"
    MIGRATION_TO_DEVICE = "migration-to-device"
    MIGRATION_TO_HOST = "migration-to-host"
    MIGRATION_BETWEEN_DEVICES = "migration-between-devices"
    FILL = "fill"
    UNKNOWN = "unknown"


class MemoryKind(StrEnum):
    """The memory at one end of a copy, in the numbering of Nsight's exports."""

    PAGEABLE = "pageable"
    PINNED = "pinned"
    DEVICE = "device"
    ARRAY = "array"
    MANAGED = "managed"
    DEVICE_STATIC = "device-static"
    MANAGED_STATIC = "managed-static"
    UNKNOWN = "unknown"


class CallRole(StrEnum):
    """What a CUDA API call is for."""

    LAUNCH = "launch"
    GRAPH = "graph"
    SYNC = "sync"
    COPY = "copy"
    ALLOC = "alloc"
    EVENT = "event"
    OTHER = "other"


class ProjectedBy(StrEnum):
    """How the range of a device operation was found."""

    SAME_THREAD = "same_thread"
    INHERITED = "inherited"
    NONE = "none"


class DeviceState(StrEnum):
    """What the device did at one moment: the five parts of the budget, in order of precedence."""

    COMPUTE = "compute"
    OPAQUE_GRAPH = "opaque_graph"
    EXPOSED_COMMUNICATION = "exposed_communication"
    EXPOSED_COPY = "exposed_copy"
    IDLE = "idle"


class LinkKind(StrEnum):
    """What bound a stretch of time."""

    OPERATION = "operation"
    HAND_OVER = "hand-over"
    LAUNCH_LATENCY = "launch-latency"
    LAUNCH_CALL = "launch-call"
    OTHER_CALL = "other-call"
    ALLOCATION = "allocation"
    SYNCHRONISATION = "synchronisation"
    OUTSIDE_CALLS = "outside-calls"
    UNRESOLVED = "unresolved"


LINK_KINDS = tuple(LinkKind)


class Wall(StrEnum):
    """Who pays for a stretch of time."""

    COMPUTE = "compute"
    COMMUNICATION = "communication"
    MEMORY = "memory"
    HOST = "host"
    UNATTRIBUTED = "unattributed"


class Absent(StrEnum):
    """Why no compute ran: too little was issued, an operation was in the way, or work was handed over."""

    LAUNCH_STARVED = "launch_starved"
    BLOCKING = "blocking"
    DEPENDENCY_STALLED = "dependency_stalled"


class Pass(StrEnum):
    """The part of a training step that an operation belongs to."""

    FORWARD = "forward"
    BACKWARD = "backward"
    OPTIMIZER = "optimizer"


class RecomputeSource(StrEnum):
    """What told that forward work runs again: names of ranges, repeated kernels, or a count of some."""

    EXPLICIT = "explicit"
    INFERRED = "inferred"
    LOWER_BOUND = "lower-bound"


class CopyCause(StrEnum):
    """Why a copy or fill runs."""

    SMALL_COPY = "small-copy"
    OFFLOAD = "offload"
    STAGING = "staging"
    READBACK = "readback"
    MIGRATION = "migration"
    DEVICE_COPY = "device-copy"
    FILL = "fill"


class Precision(StrEnum):
    """The numbers that a matrix multiplication takes in, as far as the kernel's name tells."""

    NVFP4 = "nvfp4"
    MXFP8 = "mxfp8"
    FP8 = "fp8"
    INT8 = "int8"
    BF16 = "bf16"
    FP16 = "fp16"
    TF32 = "tf32"
    FP32 = "fp32"
    FP64 = "fp64"
    UNKNOWN = "unknown"


class Reader(StrEnum):
    """How the large tables are read: out of the file's pages where these are plain, or by SQLite alone."""

    PAGES = "pages"
    SQLITE = "sqlite"


LOW_PRECISIONS = frozenset({Precision.FP8, Precision.MXFP8, Precision.NVFP4})
"""What settings of low-precision training make kernels multiply in: floating point of 8 bits or fewer.

INT8 is not among them: inference and quantized optimizers multiply integers, and no such setting does.
"""
