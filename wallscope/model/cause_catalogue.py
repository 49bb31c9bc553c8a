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
    "unknown": "communication on an unknown axis",
}
_MEANINGS = {
    "communication/unresolved": "exposed communication for an unknown reason",
    "memory/recompute": "forward work recomputed in the backward pass",
    "memory/allocator": "memory allocation, pinning and release",
    "memory/offload": "offload: copies to the host and back",
    "memory/staging": "bulk H2D copies",
    "memory/readback": "bulk D2H copies",
    "memory/migration": "page migration of unified memory",
    "memory/device-copy": "copies inside the device",
    "memory/fill": "memsets of device memory",
    "memory/unknown-copy": "copies of unknown direction",
    "memory/hand-over": "dependency latency after copies and memsets",
    "memory/driver-lock": "CUDA calls that wait for another thread in the driver",
    "memory/unresolved": "exposed copies for an unknown reason",
    "host/framework": "host time outside CUDA calls (Python, framework, program)",
    "host/data-loading": "data loading on the host",
    "host/checkpoint": "checkpoint saving on the host",
    "host/garbage-collection": "garbage collection on the host",
    "host/lock": "lock waits on the host",
    "host/file": "file access on the host",
    "host/network": "network access on the host",
    "host/launch-call": "host time inside launch calls",
    "host/other-call": "host time inside other CUDA calls",
    "host/launch-latency": "latency from launch to kernel start",
    "host/synchronisation": "latency of the return from a synchronizing call",
    "host/small-copy": "small host/device copies (under 64 KiB)",
    "host/hand-over": "dependency latency after small copies",
    "compute/kernel-gap": "gaps between kernels of one stream or graph",
    "compute/unrecognized": "kernels with unrecognized names",
    "compute/hand-over": "dependency latency after kernels of other streams",
    "unattributed/unresolved": "idle GPU time for an unknown reason",
    "unattributed/held-while-idle": "launched work that waits on an idle GPU",
    "unattributed/opaque-graph": "CUDA graphs traced as a whole",
    "unattributed/unrecognized-kernel": "kernels with unrecognized names that may compute or communicate",
    "unattributed/profiler": "profiler overhead",
}
_CATEGORIES = {
    "dispatcher-local": "token permutation and routing kernels",
    "preprocessing": "input preprocessing kernels",
}
_QUALIFIERS = {
    "transfer": "moving data",
    "peer-wait": "waiting for peers",
    "pipeline-wait": "waiting for other pipeline stages",
    "unsplit": "transfer + peer wait, not separable",
    "hand-over": "dependency latency after it",
}


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


UNRECOGNIZED = "unattributed/unrecognized-kernel"
"""Kernels with unrecognized names, in a capture whose kernels may communicate."""
CALL, DRAINED = "<call>", "host/queue-drained/"
"""Placeholder for the name of a call in the catalog, and the beginning of the causes that name one."""
LAUNCHING = ("host/framework", "host/launch-call", "host/launch-latency")
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
    'expert-parallel all-to-all (dispatch and combine), transfer + peer wait, not separable'
    >>> describe_cause("host/queue-drained/cudaStreamSynchronize")
    'GPU idle after cudaStreamSynchronize until the next launch'
    >>> describe_cause("compute/gemm")
    'gemm kernels'
    """
    if cause in _MEANINGS:
        return _MEANINGS[cause]
    wall, kind, *rest = cause.split("/")
    if wall == "communication":
        return f"{_AXES[kind]}, {_QUALIFIERS[rest[0]]}"
    if kind == "queue-drained":
        return f"GPU idle after {rest[0]} until the next launch"
    return _CATEGORIES.get(kind, f"{kind} kernels")


@cache
def _list_causes() -> frozenset[str]:
    return frozenset(cause for cause, _ in list_cause_meanings())


def write_cause_pattern() -> str:
    """Write a regular expression that matches every identifier of a cause, longer ones first."""
    causes = sorted(_list_causes(), key=lambda cause: (-len(cause), cause))
    return "|".join(re.escape(cause).replace(re.escape(CALL), r"\w+") for cause in causes)


def name_cause(text: str) -> str:
    """Return the words of a cause without their parentheses; any other text is returned unchanged.

    >>> name_cause("host/framework"), name_cause("gemm_kernel")
    ('host time outside CUDA calls', 'gemm_kernel')
    """
    is_known = text in _list_causes() or text.startswith(DRAINED)
    return re.sub(r" \([^)]*\)", "", describe_cause(text)) if is_known else text
