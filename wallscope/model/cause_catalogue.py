"""The causes in words: what each means, for people who read `wall/cause[/detail]` the first time."""

from wallscope.model.enums import Axis, ComputeCategory

_AXES = {
    "ep": "expert-parallel exchange (dispatch and combine)",
    "dp-gradient": "data-parallel reduction of gradients",
    "dp-parameter": "data-parallel gathering of parameters",
    "tp": "tensor-parallel collectives",
    "cp": "context-parallel exchange",
    "pp": "pipeline send and receive",
    "unknown": "communication of unknown axis",
}
_MEANINGS = {
    "communication/unresolved": "waits of unknown origin beside communication",
    "memory/recompute": "forward work computed again in the backward pass",
    "memory/allocator": "memory allocated, pinned and released",
    "memory/offload": "copies to the host and back again",
    "memory/staging": "bulk copies to the device",
    "memory/readback": "bulk copies to the host",
    "memory/migration": "pages of unified memory on the move",
    "memory/device-copy": "copies inside the device",
    "memory/fill": "fills of device memory",
    "memory/unknown-copy": "copies of unknown direction",
    "memory/hand-over": "hand-over behind copies and fills",
    "memory/unresolved": "waits of unknown origin beside copies",
    "host/framework": "Python, framework and program outside CUDA calls",
    "host/data-loading": "host loading data",
    "host/checkpoint": "host saving a checkpoint",
    "host/garbage-collection": "host collecting garbage",
    "host/lock": "host waiting for a lock",
    "host/file": "host in file operations",
    "host/network": "host in network operations",
    "host/launch-call": "host inside launch calls",
    "host/other-call": "host inside other CUDA calls",
    "host/launch-latency": "latency from launch to start",
    "host/synchronisation": "return from synchronisation",
    "host/small-copy": "copies under 64 KiB between host and device",
    "host/hand-over": "hand-over behind small copies",
    "compute/kernel-gap": "gaps between kernels in one queue",
    "compute/unrecognized": "kernels that no pattern knows",
    "compute/hand-over": "hand-over from kernels to other queues",
    "unattributed/unresolved": "idle time of unknown origin",
    "unattributed/held-while-idle": "work held back on an idle device",
    "unattributed/opaque-graph": "CUDA graphs of unknown content",
    "unattributed/unrecognized-kernel": "kernels that no pattern knows, which compute or communicate",
    "unattributed/profiler": "the profiler at work",
}
_QUALIFIERS = {
    "transfer": "moving data",
    "peer-wait": "waiting for peers",
    "pipeline-wait": "waiting for the pipeline",
    "unsplit": "transfer and waiting for peers not told apart",
    "hand-over": "hand-over behind it",
}


UNSPLIT, TRANSFER, PEER_WAIT, PIPELINE_WAIT = "unsplit", "transfer", "peer-wait", "pipeline-wait"
"""How the time of a communication operation is told: as one, or by what it did."""
_PARTS = (TRANSFER, PEER_WAIT, PIPELINE_WAIT)


def is_part(cause: str) -> bool:
    """Whether a cause is a part of what an operation between ranks does: moving, or one kind of waiting.

    >>> is_part("communication/ep/peer-wait"), is_part("communication/ep/unsplit")
    (True, False)
    """
    return cause.startswith("communication/") and cause.rpartition("/")[2] in _PARTS


def drop_detail(cause: str) -> str:
    """The cause of the whole operation that a part of one belongs to; any other cause is its own.

    >>> drop_detail("communication/ep/peer-wait"), drop_detail("communication/ep/hand-over")
    ('communication/ep/unsplit', 'communication/ep/hand-over')
    """
    return f"{cause.rpartition('/')[0]}/{UNSPLIT}" if is_part(cause) else cause


UNRECOGNIZED = "unattributed/unrecognized-kernel"
"""Kernels that no pattern knows, in a capture whose kernels may communicate."""
CALL = "<call>"
"""Stands for the name of a call in the catalogue."""


def list_cause_meanings() -> tuple[tuple[str, str], ...]:
    """Every cause with its meaning, in the order of its id."""
    causes = [*_MEANINGS, f"host/queue-drained/{CALL}"]
    causes += [f"communication/{axis}/{qualifier}" for axis in Axis for qualifier in _QUALIFIERS]
    causes += [f"compute/{category}" for category in ComputeCategory]
    return tuple((cause, describe_cause(cause)) for cause in sorted(set(causes)))


def describe_cause(cause: str) -> str:
    """A cause in a few words.

    >>> describe_cause("communication/ep/unsplit")
    'expert-parallel exchange (dispatch and combine), transfer and waiting for peers not told apart'
    >>> describe_cause("host/queue-drained/cudaStreamSynchronize")
    'host refilling the queue that cudaStreamSynchronize drained'
    >>> describe_cause("compute/gemm")
    'gemm kernels'
    """
    if cause in _MEANINGS:
        return _MEANINGS[cause]
    wall, kind, *rest = cause.split("/")
    if wall == "communication":
        return f"{_AXES[kind]}, {_QUALIFIERS[rest[0]]}"
    if kind == "queue-drained":
        return f"host refilling the queue that {rest[0]} drained"
    return f"{kind} kernels"
