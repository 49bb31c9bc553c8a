"""The tables of a capture as read, before any analysis: the fields of their rows, with types and meanings.

Times are integer nanoseconds of session time, spans are half-open, null is unknown or does not apply.
"""

from typing import Annotated

from wallscope.model.shown import RANK, Shown
from wallscope.model.tables import Table, list_columns

_BEGIN, _END = Shown("begin"), Shown("end")
_THREAD = Shown("number of the thread, as in `threads`")
_CALL = Shown("number of the CUDA call, as in `calls`; -1 without one")
_CONTEXT, _STREAM = Shown("CUDA's number of the context"), Shown("CUDA's number of the stream")
_EVENT, _RECORD = Shown("number of the CUDA event"), Shown("which record of the event")


class ExportedRank:
    """A process on a device."""

    rank_id: Annotated[int, Shown("number of the row")]
    rank: Annotated[int, RANK]
    rank_source: Annotated[str, Shown("source of the rank number")]
    pid: Annotated[int, Shown("its process", kind="Int32")]
    device: Annotated[int, Shown("CUDA ordinal inside the process", kind="Int32")]


class ExportedOperation:
    """A kernel, copy, memset or graph."""

    op: Annotated[int, Shown("number of the operation")]
    rank_id: Annotated[int, Shown("as in `ranks`")]
    context: Annotated[int, _CONTEXT]
    stream: Annotated[int, Shown("of the stream")]
    start_ns: Annotated[int, _BEGIN]
    end_ns: Annotated[int, _END]
    kind: Annotated[str, Shown("kernel, copy, fill or graph")]
    name: Annotated[str, Shown("the kernel name, as spelled")]
    call: Annotated[int, _CALL]
    graph_node: Annotated[int, Shown("node of a CUDA graph")]
    bytes: Annotated[int, Shown("of copies and memsets")]
    direction: Annotated[str, Shown("of a copy")]
    source: Annotated[str, Shown("memory")]
    destination: Annotated[str, Shown("memory")]
    blocks: Annotated[int, Shown("of the grid")]
    threads: Annotated[int, Shown("of a block")]
    registers: Annotated[int, Shown("of a thread")]
    shared_bytes: Annotated[int, Shown("shared memory of a block")]
    blocks_per_sm: Annotated[float, Shown("as recorded")]
    occupancy: Annotated[float, Shown("achieved, as recorded")]
    operator: Annotated[int, Shown("number of its operator")]
    flops: Annotated[int, Shown("of all its kernels")]


class ExportedThread:
    """A host thread."""

    thread: Annotated[int, Shown("number of the thread")]
    process: Annotated[int, Shown("number of the process")]
    pid: Annotated[int, Shown("its process", kind="Int32")]
    tid: Annotated[int, Shown("of the operating system", kind="Int32")]
    role: Annotated[str, Shown("name given by a known library")]


class ExportedCall:
    """A CUDA call."""

    call: Annotated[int, Shown("number of the call")]
    thread: Annotated[int, _THREAD]
    start_ns: Annotated[int, _BEGIN]
    end_ns: Annotated[int, _END]
    name: Annotated[str, Shown("the function, in one spelling")]
    role: Annotated[str, Shown("purpose of the call")]
    correlation: Annotated[int, Shown("unique inside a process")]


class ExportedRange:
    """An NVTX range, annotation or operator."""

    range: Annotated[int, Shown("number of the range")]
    thread: Annotated[int, _THREAD]
    start_ns: Annotated[int, _BEGIN]
    end_ns: Annotated[int, _END]
    name: Annotated[str, Shown("as spelled")]
    domain: Annotated[int, Shown("NVTX domain; of PyTorch 0 annotations, 1 operators")]
    forward: Annotated[int, Shown("range that it is the backward of")]


class ExportedSync:
    """A wait of a thread or stream."""

    thread: Annotated[int, _THREAD]
    call: Annotated[int, _CALL]
    kind: Annotated[str, Shown("what the wait is for")]
    start_ns: Annotated[int, _BEGIN]
    end_ns: Annotated[int, _END]
    context: Annotated[int, _CONTEXT]
    stream: Annotated[int, _STREAM]
    event: Annotated[int, _EVENT]
    event_sync: Annotated[int, _RECORD]


class ExportedEvent:
    """A record of a CUDA event into a stream."""

    thread: Annotated[int, _THREAD]
    call: Annotated[int, _CALL]
    context: Annotated[int, _CONTEXT]
    stream: Annotated[int, _STREAM]
    event: Annotated[int, _EVENT]
    event_sync: Annotated[int, _RECORD]


class ExportedCollective:
    """An NCCL call, or a kernel with its collective."""

    thread: Annotated[int, _THREAD]
    start_ns: Annotated[int, _BEGIN]
    end_ns: Annotated[int, _END]
    operation: Annotated[str, Shown("function of NCCL")]
    communicator: Annotated[int, Shown("hash that its ranks share", kind="UInt64")]
    bytes: Annotated[int, Shown("as NCCL counts them")]
    participants: Annotated[int, Shown("ranks")]
    peer: Annotated[int, Shown("other rank")]
    rank: Annotated[int, Shown("number inside the communicator")]
    sequence: Annotated[int, Shown("number in the communicator, where NCCL traced the device")]


CAPTURE_TABLES = (
    Table("ranks", "a process on a device", list_columns(ExportedRank)),
    Table("operations", "a kernel, copy, memset or graph", list_columns(ExportedOperation)),
    Table("threads", "a host thread", list_columns(ExportedThread)),
    Table("calls", "a CUDA call", list_columns(ExportedCall)),
    Table("ranges", "an NVTX range, annotation or operator", list_columns(ExportedRange)),
    Table("syncs", "a wait of a thread or stream", list_columns(ExportedSync)),
    Table("events", "a record of a CUDA event into a stream", list_columns(ExportedEvent)),
    Table(
        "collective_calls", "an NCCL call, or a kernel with its collective", list_columns(ExportedCollective)
    ),
)
"""The tables of `wallscope convert`."""
