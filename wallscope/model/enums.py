"""Enumerations that cross a boundary: classes of operations, walls, axes, ways to read an export."""

from enum import StrEnum


class OperationKind(StrEnum):
    """The table of a device operation."""

    KERNEL = "kernel"
    COPY = "copy"
    FILL = "fill"
    GRAPH = "graph"


class OperationClass(StrEnum):
    """The class of a device operation, in the order of precedence of the budget."""

    COMPUTE = "compute"
    OPAQUE_GRAPH = "opaque_graph"
    COMMUNICATION = "communication"
    COPY = "copy"


class ComputeCategory(StrEnum):
    """The category of a compute kernel.

    `other` are recognized kernels without a category; `unrecognized` are kernels that no pattern matches.
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
    """The kind of a communication operation."""

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
    """The library of a communication operation, `unknown` if its kernel does not show it."""

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
    """Direction of a copy or memset; `peer` is from one device to another."""

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
    """The purpose of a CUDA API call."""

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
    """The state of the device at one moment: the five parts of the budget, in order of precedence."""

    COMPUTE = "compute"
    OPAQUE_GRAPH = "opaque_graph"
    EXPOSED_COMMUNICATION = "exposed_communication"
    EXPOSED_COPY = "exposed_copy"
    IDLE = "idle"


class LinkKind(StrEnum):
    """The kind of critical constraint of an interval."""

    OPERATION = "operation"
    HAND_OVER = "hand-over"
    LAUNCH_LATENCY = "launch-latency"
    LAUNCH_CALL = "launch-call"
    OTHER_CALL = "other-call"
    ALLOCATION = "allocation"
    SYNCHRONISATION = "synchronisation"
    DRIVER_LOCK = "driver-lock"
    OUTSIDE_CALLS = "outside-calls"
    UNRESOLVED = "unresolved"


LINK_KINDS = tuple(LinkKind)


class Direction(StrEnum):
    """Which way bytes moved, seen from the end of the link that counted them."""

    RECEIVED = "received"
    SENT = "sent"


class Wall(StrEnum):
    """The wall of an interval."""

    COMPUTE = "compute"
    COMMUNICATION = "communication"
    MEMORY = "memory"
    HOST = "host"
    UNATTRIBUTED = "unattributed"


class Absent(StrEnum):
    """Why no compute ran: too little was issued, an operation blocked it, or a dependency had latency."""

    LAUNCH_STARVED = "launch_starved"
    BLOCKING = "blocking"
    DEPENDENCY_STALLED = "dependency_stalled"


class Pass(StrEnum):
    """The part of a training step that an operation belongs to."""

    FORWARD = "forward"
    BACKWARD = "backward"
    OPTIMIZER = "optimizer"


class RecomputeSource(StrEnum):
    """Evidence of recompute: names of ranges, repeated kernels, or a lower bound from some kernels."""

    EXPLICIT = "explicit"
    INFERRED = "inferred"
    LOWER_BOUND = "lower-bound"


class CopyCause(StrEnum):
    """The cause of a copy or memset."""

    SMALL_COPY = "small-copy"
    OFFLOAD = "offload"
    STAGING = "staging"
    READBACK = "readback"
    MIGRATION = "migration"
    DEVICE_COPY = "device-copy"
    FILL = "fill"


class Precision(StrEnum):
    """The input precision of a GEMM, as far as the kernel's name shows it."""

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


class Grade(StrEnum):
    """How certain a claim is, by the runs behind it: of sure ones 95 % are right, of likely ones 80 %."""

    SURE = "sure"
    LIKELY = "likely"
    POSSIBLE = "possible"


class Reader(StrEnum):
    """How large tables are read: directly from the file's pages if possible, or only by SQLite."""

    PAGES = "pages"
    SQLITE = "sqlite"


LOW_PRECISIONS = frozenset({Precision.FP8, Precision.MXFP8, Precision.NVFP4})
"""Precisions that low-precision training uses in kernels: floating point of 8 bits or fewer.

INT8 is not included: inference and quantized optimizers multiply integers, without such a setting.
"""
