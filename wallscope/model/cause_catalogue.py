"""The meaning of each cause in a few words, for first-time readers of `wall/cause[/detail]`."""

import re
from functools import cache

from wallscope.model.enums import Axis, ComputeCategory, Wall

_AXES = {
    "ep": "expert-parallel all-to-all (dispatch and combine)",
    "dp-gradient": "data-parallel gradient reduction",
    "dp-parameter": "data-parallel parameter all-gather",
    "tp": "tensor-parallel collectives",
    "cp": "context-parallel exchange of keys and values",
    "pp": "pipeline send and receive",
    "unknown": "communication on an unknown parallel axis",
}
_MEANINGS: dict[str, str] = {}


def _declare(cause: str, meaning: str) -> str:
    _MEANINGS[cause] = meaning
    return cause


COMMUNICATION_UNRESOLVED = _declare("communication/unresolved", "exposed communication for an unknown reason")
MEMORY_RECOMPUTE = _declare("memory/recompute", "forward work recomputed in the backward pass")
MEMORY_ALLOCATOR = _declare("memory/allocator", "memory allocation, pinning and release")
MEMORY_OFFLOAD = _declare("memory/offload", "offload: copies to the host and back")
MEMORY_STAGING = _declare("memory/staging", "H2D copies of 64 KiB or more")
MEMORY_READBACK = _declare("memory/readback", "D2H copies of 64 KiB or more")
MEMORY_MIGRATION = _declare("memory/migration", "page migration of unified memory")
MEMORY_DEVICE_COPY = _declare("memory/device-copy", "copies inside the device")
MEMORY_FILL = _declare("memory/fill", "memsets of device memory")
MEMORY_UNKNOWN_COPY = _declare("memory/unknown-copy", "copies of unknown direction")
MEMORY_HAND_OVER = _declare("memory/hand-over", "latency from a copy or memset to dependent work")
MEMORY_DRIVER_LOCK = _declare("memory/driver-lock", "CUDA calls that wait for another thread in the driver")
MEMORY_UNRESOLVED = _declare("memory/unresolved", "exposed copies for an unknown reason")
HOST_FRAMEWORK = _declare("host/framework", "host time outside CUDA calls (Python, framework, program)")
HOST_DATA_LOADING = _declare("host/data-loading", "data loading on the host")
HOST_START_UP = _declare("host/start-up", "start-up: contexts, streams, modules and first allocations")
HOST_CHECKPOINT = _declare("host/checkpoint", "checkpoint saving on the host")
HOST_GARBAGE_COLLECTION = _declare("host/garbage-collection", "garbage collection on the host")
HOST_LOCK = _declare("host/lock", "lock waits on the host")
HOST_FILE = _declare("host/file", "file access on the host")
HOST_NETWORK = _declare("host/network", "network access on the host")
HOST_EVENT_WAIT = _declare("host/event-wait", "waiting for requests or other events (epoll_wait)")
HOST_LAUNCH_CALL = _declare("host/launch-call", "host time inside launch calls")
HOST_OTHER_CALL = _declare(
    "host/other-call", "host time inside other CUDA calls (neither launches nor waits)"
)
HOST_LAUNCH_LATENCY = _declare("host/launch-latency", "latency from launch to kernel start")
HOST_SYNCHRONISATION = _declare("host/synchronisation", "late return of synchronizing calls")
HOST_SMALL_COPY = _declare("host/small-copy", "small host/device copies (under 64 KiB)")
HOST_HAND_OVER = _declare("host/hand-over", "latency from a small copy to dependent work")
COMPUTE_KERNEL_GAP = _declare("compute/kernel-gap", "gaps between kernels of one stream or graph")
COMPUTE_UNRECOGNIZED = _declare("compute/unrecognized", "kernels with unrecognized names")
COMPUTE_HAND_OVER = _declare("compute/hand-over", "latency from a kernel to dependent work on another stream")
UNATTRIBUTED_UNRESOLVED = _declare("unattributed/unresolved", "idle GPU time for an unknown reason")
UNATTRIBUTED_HELD_WHILE_IDLE = _declare(
    "unattributed/held-while-idle", "idle GPU time with work already launched"
)
UNATTRIBUTED_OPAQUE_GRAPH = _declare("unattributed/opaque-graph", "CUDA graphs traced as a whole")
UNRECOGNIZED = _declare(
    "unattributed/unrecognized-kernel", "kernels with unrecognized names that may compute or communicate"
)
"""Kernels with unrecognized names, in a capture whose kernels may communicate."""
UNATTRIBUTED_PROFILER = _declare("unattributed/profiler", "profiler overhead")
_CATEGORIES = {
    "dispatcher-local": "token permutation and routing kernels",
    "preprocessing": "input preprocessing kernels",
}
_KERNELS = {
    ComputeCategory.GEMM: "matrix multiplications",
    ComputeCategory.GROUPED_GEMM: "one kernel that multiplies the matrices of several experts or groups",
    ComputeCategory.ATTENTION: "fused attention, forward and backward",
    ComputeCategory.CONVOLUTION: "convolutions, forward and backward",
    ComputeCategory.NORM: "layer norm, RMS norm, batch norm and group norm",
    ComputeCategory.ELEMENTWISE: "operations on each element, such as activations, additions and casts",
    ComputeCategory.REDUCTION: "sums, maxima, softmax and other reductions",
    ComputeCategory.OPTIMIZER: "updates of parameters, gradient norms and clipping",
    ComputeCategory.QUANTIZE: "casts to low precision, with their scales",
    ComputeCategory.EMBEDDING: "lookups in embedding tables, and their gradients",
    ComputeCategory.DISPATCHER_LOCAL: "work of a token dispatcher on its own GPU, without communication",
    ComputeCategory.PREPROCESSING: "decoding and augmentation of input data, such as by DALI",
    ComputeCategory.OTHER: "recognized kernels of no other category, such as FFT, sparse algebra, pooling"
    " and random numbers",
    ComputeCategory.UNRECOGNIZED: "no pattern of kernel names matches",
}
_QUALIFIERS = {
    "transfer": "transfer in {}",
    "peer-wait": "waiting for peers in {}",
    "pipeline-wait": "waiting for other pipeline stages in {}",
    "unsplit": "{}, including waiting for peers",
    "hand-over": "latency from {} to dependent work",
}
"""What is said of the operations of an axis."""


UNSPLIT, TRANSFER, PEER_WAIT, PIPELINE_WAIT = "unsplit", "transfer", "peer-wait", "pipeline-wait"
"""How the time of a communication operation is divided: not at all (`UNSPLIT`), or into parts."""
_PARTS = (TRANSFER, PEER_WAIT, PIPELINE_WAIT)


def find_wall(cause: str) -> Wall:
    """Return the wall that a cause belongs to.

    >>> str(find_wall("communication/ep/peer-wait"))
    'communication'
    """
    return Wall(cause.partition("/")[0])


def is_part(cause: str) -> bool:
    """Return whether a cause is a part of a communication operation: transfer, peer wait or pipeline wait.

    >>> is_part("communication/ep/peer-wait"), is_part("communication/ep/unsplit")
    (True, False)
    """
    return cause.startswith("communication/") and cause.rpartition("/")[2] in _PARTS


def drop_detail(cause: str) -> str:
    """Return the undivided cause that a part belongs to; return any other cause unchanged.

    >>> drop_detail("communication/ep/peer-wait"), drop_detail("communication/ep/hand-over")
    ('communication/ep/unsplit', 'communication/ep/hand-over')
    """
    return f"{cause.rpartition('/')[0]}/{UNSPLIT}" if is_part(cause) else cause


COMMUNICATION_UNKNOWN_PEER_WAIT = f"communication/{Axis.UNKNOWN}/{PEER_WAIT}"
COMPUTE_ATTENTION = f"compute/{ComputeCategory.ATTENTION}"
COMPUTE_CONVOLUTION = f"compute/{ComputeCategory.CONVOLUTION}"
COMPUTE_DISPATCHER_LOCAL = f"compute/{ComputeCategory.DISPATCHER_LOCAL}"
COMPUTE_ELEMENTWISE = f"compute/{ComputeCategory.ELEMENTWISE}"
COMPUTE_GEMM = f"compute/{ComputeCategory.GEMM}"
COMPUTE_GROUPED_GEMM = f"compute/{ComputeCategory.GROUPED_GEMM}"
COMPUTE_NORM = f"compute/{ComputeCategory.NORM}"
COMPUTE_OPTIMIZER = f"compute/{ComputeCategory.OPTIMIZER}"
COMPUTE_REDUCTION = f"compute/{ComputeCategory.REDUCTION}"
"""Causes that are made of an axis or a category."""
CALL, DRAINED = "<call>", "host/queue-drained/"
"""Placeholder for the name of a call in the catalog, and the beginning of the causes that name one."""
WAIT, REFILL = "wait:", "refill:"
"""Prefixes of the name of a call: its wait alone, and the host time behind it alone, until the queue that it
drained has work again. A cause that names a call consists of both."""
LAUNCHING = (HOST_FRAMEWORK, HOST_LAUNCH_CALL, HOST_LAUNCH_LATENCY)
"""Causes of host time between blocking calls."""


def list_cause_meanings() -> tuple[tuple[str, str], ...]:
    """Return every cause with its meaning, sorted by id."""
    causes = [*_MEANINGS, DRAINED + CALL]
    causes += [f"communication/{axis}/{qualifier}" for axis in Axis for qualifier in _QUALIFIERS]
    causes += [f"compute/{category}" for category in ComputeCategory]
    return tuple((cause, describe_cause(cause)) for cause in sorted(set(causes)))


def describe_cause(cause: str) -> str:
    """Return the meaning of a cause in a few words.

    >>> describe_cause("communication/ep/unsplit")
    'expert-parallel all-to-all (dispatch and combine), including waiting for peers'
    >>> describe_cause("communication/tp/peer-wait")
    'waiting for peers in tensor-parallel collectives'
    >>> describe_cause("host/queue-drained/cudaStreamSynchronize")
    'host time after cudaStreamSynchronize until the next launch'
    >>> describe_cause("compute/gemm")
    'gemm kernels'
    """
    if cause in _MEANINGS:
        return _MEANINGS[cause]
    wall, kind, *rest = cause.split("/")
    if wall == "communication":
        return _QUALIFIERS[rest[0]].format(_AXES[kind])
    if kind == "queue-drained":
        return f"host time after {rest[0]} until the next launch"
    return _CATEGORIES.get(kind, f"{kind} kernels")


def split_meaning(cause: str) -> tuple[str, str]:
    """Return the meaning of a cause, and apart from it what else is included; mostly empty.

    >>> split_meaning("communication/ep/unsplit")
    ('expert-parallel all-to-all (dispatch and combine)', 'including waiting for peers')
    >>> split_meaning("communication/tp/peer-wait")
    ('waiting for peers in tensor-parallel collectives', '')
    """
    if cause.startswith("communication/") and cause.endswith(f"/{UNSPLIT}"):
        return _AXES[cause.split("/")[1]], "including waiting for peers"
    return describe_cause(cause), ""


def define_cause(cause: str) -> str:
    """Return the meaning of a cause, with the kernels of a category of compute.

    >>> define_cause("compute/gemm"), define_cause("host/lock")
    ('gemm kernels: matrix multiplications', 'lock waits on the host')
    """
    meaning = describe_cause(cause)
    kernels = {f"compute/{category}": text for category, text in _KERNELS.items()}.get(cause)
    return meaning if kernels is None else f"{meaning}: {kernels}"


def can_occur(cause: str) -> bool:
    """Return whether any time can have a cause: only pipeline stages wait for the pipeline, and for it alone.

    >>> can_occur("communication/tp/pipeline-wait"), can_occur("communication/pp/pipeline-wait")
    (False, True)
    """
    impossible = {f"communication/{axis}/{PIPELINE_WAIT}" for axis in Axis if axis is not Axis.PP}
    return cause not in {*impossible, f"communication/{Axis.PP}/{PEER_WAIT}"}


@cache
def _list_cause_ids() -> frozenset[str]:
    return frozenset(cause for cause, _ in list_cause_meanings())


def is_cause(text: str) -> bool:
    """Return whether a text is the identifier of a cause.

    >>> is_cause("host/queue-drained/cudaMemcpy"), is_cause("host/start-up"), is_cause("host/unheard-of")
    (True, True, False)
    """
    return text in _list_cause_ids() or (text.startswith(DRAINED) and text != DRAINED)


def write_cause_pattern() -> str:
    """Write a regular expression that matches every identifier of a cause, longer ones first."""
    causes = sorted(_list_cause_ids(), key=lambda cause: (-len(cause), cause))
    return "|".join(re.escape(cause).replace(re.escape(CALL), r"\w+") for cause in causes)


def name_cause(text: str) -> str:
    """Return the words of a cause without their parentheses; any other text is returned unchanged.

    >>> name_cause("host/framework"), name_cause("gemm_kernel")
    ('host time outside CUDA calls', 'gemm_kernel')
    """
    return re.sub(r" \([^)]*\)", "", describe_cause(text)) if is_cause(text) else text
