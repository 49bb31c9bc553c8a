"""Schemas of the frames beside the timeline: waiting, host activity, memory, samples, NCCL calls.

Times are int64 nanoseconds of session time, spans are half-open, null is unknown. `process` and
`thread` are the numbers of `frames.THREADS`; contexts, streams, events and devices bear the numbers
that CUDA gives them inside their process.
"""

from enum import StrEnum

import polars as pl


class SyncKind(StrEnum):
    """What a synchronisation is for; `wait` lets a stream wait for an event and blocks nobody."""

    STREAM = "stream"
    EVENT = "event"
    CONTEXT = "context"
    WAIT = "wait"


class StreamFlag(StrEnum):
    """Whether a stream waits for the null stream, or is it."""

    NULL = "null"
    BLOCKING = "blocking"
    NONBLOCKING = "nonblocking"


class HostKind(StrEnum):
    """What a host thread was busy with, or kept from its work by."""

    OS = "os"
    GC = "gc"
    LOCK = "lock"
    IO = "io"
    SCHED = "sched"
    PROFILER = "profiler"
    CUDA = "cuda"


class CollectiveSource(StrEnum):
    """What told the facts of an NCCL call: its payload, its JSON text, or its name alone."""

    PAYLOAD = "payload"
    JSON = "json"
    NAME = "name"


SYNCS = pl.Schema(
    {
        "process": pl.UInt32(),
        "thread": pl.UInt32(),
        "call": pl.Int32(),  # -1 where the export has none
        "kind": pl.Enum(SyncKind),
        "start_ns": pl.Int64(),
        "end_ns": pl.Int64(),
        "context": pl.Int64(),
        "stream": pl.Int64(),  # null where no stream takes part
        "event": pl.Int64(),  # null where no event takes part
        "event_sync": pl.Int64(),  # which record of the event
    }
)
"""CUDA synchronisations, sorted by process, start and row."""

EVENTS = pl.Schema(
    {
        "process": pl.UInt32(),
        "thread": pl.UInt32(),
        "call": pl.Int32(),  # -1 where the export has none
        "context": pl.Int64(),
        "stream": pl.Int64(),
        "event": pl.Int64(),
        "event_sync": pl.Int64(),  # which record of the event
        "timestamp_ns": pl.Int64(),  # when the device had completed it; null where not collected
    }
)
"""Records of CUDA events into streams, sorted by process, call and row."""

STREAMS = pl.Schema(
    {
        "process": pl.UInt32(),
        "context": pl.Int64(),
        "stream": pl.Int64(),
        "flags": pl.Enum(StreamFlag),
        "priority": pl.Int32(),  # the lower the sooner
    }
)
"""CUDA streams, one row for each (process, context, stream), sorted by these."""

HOST_EVENTS = pl.Schema(
    {
        "thread": pl.UInt32(),
        "start_ns": pl.Int64(),
        "end_ns": pl.Int64(),
        "kind": pl.Enum(HostKind),
        "name": pl.UInt32(),
    }
)
"""What host threads did outside CUDA calls, sorted by thread and start; rows of a thread may nest."""

CPU_SAMPLES = pl.Schema({"thread": pl.UInt32(), "at_ns": pl.Int64(), "cpu_cycles": pl.Int64()})
"""CPU samples, sorted by thread and time; newer exports write 0 cycles for a switch of threads."""

MEMORY = pl.Schema(
    {"process": pl.UInt32(), "device": pl.Int32(), "at_ns": pl.Int64(), "bytes_used": pl.Int64()}
)
"""Device memory in use after each allocation and release, sorted by process, device and time."""

SAMPLES = pl.Schema({"gpu": pl.Int32(), "at_ns": pl.Int64(), "metric": pl.UInt32(), "value": pl.Float64()})
"""Samples of GPU metrics, sorted by GPU, metric and time.

`gpu` is Nsight's id, no CUDA ordinal. A sample is the mean since the one before it, in percent of the
peak; clock frequencies are in Hz.
"""

COLLECTIVE_CALLS = pl.Schema(
    {
        "thread": pl.UInt32(),
        "start_ns": pl.Int64(),
        "end_ns": pl.Int64(),
        "operation": pl.String(),  # name of the NCCL function without its prefix
        "communicator": pl.UInt64(),  # hash that all its ranks share
        "bytes": pl.Int64(),  # as NCCL counts them: AllGather and ReduceScatter give one rank's part
        "participants": pl.Int32(),
        "peer": pl.Int32(),
        "rank": pl.Int32(),  # number inside the communicator
        "source": pl.Enum(CollectiveSource),
    }
)
"""NCCL calls on the host, sorted by thread, start and row: when work was enqueued, not when it ran."""

COMMUNICATORS = pl.Schema(
    {
        "process": pl.UInt32(),
        "communicator": pl.UInt64(),
        "rank": pl.Int32(),
        "participants": pl.Int32(),
        "device": pl.Int32(),
    }
)
"""The rank that a process has in each communicator, as NCCL said when it was made or destroyed."""
