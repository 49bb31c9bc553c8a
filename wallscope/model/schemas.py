"""Schemas of the frames that cross a boundary.

Times are int64 nanoseconds of session time, spans are half-open, null is unknown. `process` and `thread` are
the numbers of `THREADS`. Ids are dense and count from 0; contexts, streams, events and devices have CUDA's
numbers inside their process.
"""

from enum import StrEnum

import polars as pl

from wallscope.model.enums import (
    Absent,
    Axis,
    Backend,
    CallRole,
    Collective,
    ComputeCategory,
    CopyCause,
    CopyDirection,
    DeviceState,
    Direction,
    LinkKind,
    MemoryKind,
    OperationClass,
    OperationKind,
    Pass,
    Precision,
    ProjectedBy,
    RecomputeSource,
    Wall,
)


class SyncKind(StrEnum):
    """The kind of a synchronization; `wait` makes a stream wait for an event and blocks no thread."""

    STREAM = "stream"
    EVENT = "event"
    CONTEXT = "context"
    WAIT = "wait"


class StreamFlag(StrEnum):
    """Whether a stream synchronizes with the null stream, or is it."""

    NULL = "null"
    BLOCKING = "blocking"
    NONBLOCKING = "nonblocking"


class HostKind(StrEnum):
    """The activity of a host thread, or what blocked it."""

    OS = "os"
    GC = "gc"
    LOCK = "lock"
    IO = "io"
    SCHED = "sched"
    PROFILER = "profiler"
    CUDA = "cuda"


class CollectiveSource(StrEnum):
    """Source of the data on an NCCL call: its payload, its JSON text, or its name alone."""

    PAYLOAD = "payload"
    JSON = "json"
    NAME = "name"


SYNCS = pl.Schema(
    {
        "process": pl.UInt32(),
        "thread": pl.UInt32(),
        "call": pl.Int32(),  # -1 if the export has none
        "kind": pl.Enum(SyncKind),
        "start_ns": pl.Int64(),
        "end_ns": pl.Int64(),
        "context": pl.Int64(),
        "stream": pl.Int64(),  # null if no stream takes part
        "event": pl.Int64(),  # null if no event takes part
        "event_sync": pl.Int64(),  # which record of the event
    }
)
"""CUDA synchronizations, sorted by process, start and row."""

EVENTS = pl.Schema(
    {
        "process": pl.UInt32(),
        "thread": pl.UInt32(),
        "call": pl.Int32(),  # -1 if the export has none
        "context": pl.Int64(),
        "stream": pl.Int64(),
        "event": pl.Int64(),
        "event_sync": pl.Int64(),  # which record of the event
        "timestamp_ns": pl.Int64(),  # when the device had completed it; null if not collected
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
"""CUDA streams, one row per (process, context, stream), sorted by these."""

HOST_EVENTS = pl.Schema(
    {
        "thread": pl.UInt32(),
        "start_ns": pl.Int64(),
        "end_ns": pl.Int64(),
        "kind": pl.Enum(HostKind),
        "name": pl.UInt32(),
    }
)
"""Activities of host threads outside CUDA calls, sorted by thread and start; rows of a thread may nest."""

BYSTANDER_WAITS = pl.Schema(
    {
        "process": pl.UInt32(),
        "global_tid": pl.Int64(),  # as in `THREADS`
        "start_ns": pl.Int64(),
        "end_ns": pl.Int64(),
    }
)
"""Waits for locks and conditions of threads without CUDA calls and ranges, by process, thread and times.

Empty where no thread with CUDA calls waits long for a lock."""

CPU_SAMPLES = pl.Schema({"thread": pl.UInt32(), "at_ns": pl.Int64(), "cpu_cycles": pl.Int64()})
"""CPU samples, sorted by thread and time; newer exports write 0 cycles for a switch of threads."""

MEMORY_EVENTS = pl.Schema(
    {"process": pl.UInt32(), "device": pl.Int32(), "at_ns": pl.Int64(), "bytes_used": pl.Int64()}
)
"""Device memory in use after each allocation and release, sorted by process, device and time."""

SAMPLES = pl.Schema({"gpu": pl.Int32(), "at_ns": pl.Int64(), "metric": pl.UInt32(), "value": pl.Float64()})
"""Samples of GPU metrics, sorted by GPU, metric and time.

`gpu` is Nsight's id, not a CUDA ordinal. A sample is the mean since the previous one, in percent of the peak;
clock frequencies are in Hz.
"""

TRAFFIC = pl.Schema(
    {
        "link": pl.String(),  # card or switch, with the port if there are several, and the protocol
        "direction": pl.Enum(Direction),
        "start_ns": pl.Int64(),
        "end_ns": pl.Int64(),
        "bytes_per_s": pl.Float64(),  # mean between both moments
    }
)
"""Samples of what network cards and switches moved, sorted by link, direction and time."""

COLLECTIVE_CALLS = pl.Schema(
    {
        "thread": pl.UInt32(),
        "start_ns": pl.Int64(),
        "end_ns": pl.Int64(),
        "operation": pl.String(),  # name of the NCCL function without its prefix
        "communicator": pl.UInt64(),  # hash that all its ranks share
        "bytes": pl.Int64(),  # as NCCL counts them: AllGather and ReduceScatter have one rank's part
        "participants": pl.Int32(),
        "peer": pl.Int32(),
        "rank": pl.Int32(),  # number inside the communicator
        "sequence": pl.Int64(),  # number of the operation in its communicator, where NCCL traced the device
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
"""The rank of a process in each communicator, from NCCL's creation or destruction call."""


KIND = pl.Enum(OperationKind)
CLASS = pl.Enum(OperationClass)
CATEGORY = pl.Enum(
    list(
        dict.fromkeys([*map(str, ComputeCategory), *map(str, Collective), *map(str, CopyDirection), "graph"])
    )
)
BACKEND = pl.Enum(Backend)
DIRECTION = pl.Enum(CopyDirection)
MEMORY = pl.Enum(MemoryKind)
ROLE = pl.Enum(CallRole)
PROJECTED_BY = pl.Enum(ProjectedBy)

NAMES = pl.Schema({"name": pl.UInt32(), "text": pl.String()})
"""Names of one kind (kernels, calls, ranges), each kind with its own numbers, spelled as in exports."""

RANGE_NAMES = pl.Schema({**NAMES, "like": pl.UInt32()})
"""Names of ranges, and the first name from which each differs in long running numbers alone."""

THREADS = pl.Schema(
    {
        "thread": pl.UInt32(),
        "process": pl.UInt32(),  # dense over the processes of the export
        "global_tid": pl.Int64(),  # as Nsight spells it: host, machine, process and thread in one number
        "pid": pl.Int32(),
        "tid": pl.Int32(),
        "role": pl.String(),  # name of the thread given by a known library (pt_autograd, …); null otherwise
    }
)
"""Host threads with CUDA calls or ranges, by process and thread id."""

CALLS = pl.Schema(
    {
        "call": pl.UInt32(),
        "thread": pl.UInt32(),
        "start_ns": pl.Int64(),
        "end_ns": pl.Int64(),
        "name": pl.UInt32(),
        "correlation": pl.Int64(),  # unique inside a process
        "role": ROLE,
    }
)
"""CUDA API calls, runtime and driver, sorted by thread, start and row."""

RANGES = pl.Schema(
    {
        "range": pl.UInt32(),
        "thread": pl.UInt32(),
        "domain": pl.UInt32(),  # number of the NVTX domain inside its process; 0 is the default one
        "start_ns": pl.Int64(),
        "end_ns": pl.Int64(),
        "name": pl.UInt32(),
        "clipped": pl.Boolean(),  # still open when the capture ended
        "crosses": pl.Boolean(),  # ended on another thread: in no tree, projected onto nothing
    }
)
"""NVTX ranges, sorted by thread, start, longest first, row."""

NESTED = pl.Schema({**RANGES, "parent": pl.Int32(), "path": pl.UInt32()})
"""Ranges with the enclosing range (-1 at the top) and the path of folded names."""

PATHS = pl.Schema({"path": pl.UInt32(), "parent": pl.Int32(), "name": pl.UInt32(), "depth": pl.UInt32()})
"""Folded names from the outermost range inwards; many similar ranges share one path."""

PROJECTION = pl.Schema({"op": pl.UInt32(), "range": pl.Int32(), "how": PROJECTED_BY})
"""The innermost range of each operation; -1 if it has none."""

RANKS = pl.Schema(
    {
        "rank_id": pl.UInt32(),
        "rank": pl.Int32(),  # number of the rank in the job; null if unknown
        "rank_source": pl.String(),  # source of the rank
        "process": pl.UInt32(),  # dense over the processes of the export
        "pid": pl.Int32(),  # null if the export names no processes
        "device": pl.Int32(),  # CUDA ordinal inside the process
        "gpu": pl.Int32(),  # Nsight's id of the GPU; null if unknown
    }
)
"""One row per (process, device) pair that ran device operations."""

OPERATIONS = pl.Schema(
    {
        "op": pl.UInt32(),
        "rank_id": pl.UInt32(),
        "stream": pl.UInt32(),  # dense over (rank, context, stream id)
        "start_ns": pl.Int64(),
        "end_ns": pl.Int64(),
        "kind": KIND,
        "name": pl.UInt32(),  # kernels alone
        "call": pl.Int32(),  # the API call that issued it; -1 if the export has none
        "graph_node": pl.Int64(),  # null outside CUDA graphs traced by node
        "bytes": pl.Int64(),  # only copies and memsets
    }
)
"""Device operations, sorted by rank, start and row."""

KERNELS = pl.Schema(
    {
        "op": pl.UInt32(),
        "blocks": pl.Int64(),  # of the grid, all three dimensions
        "threads": pl.UInt16(),  # of a block
        "registers": pl.UInt16(),  # of a thread
        "shared_bytes": pl.UInt32(),  # of a block, static and dynamic
    }
)
"""Launch shapes of the kernels; null if the export has no valid value."""

KERNEL_FLOPS = pl.Schema(
    {
        "op": pl.UInt32(),
        "operator": pl.UInt32(),  # that issued it, one or several kernels
        "flops": pl.Int64(),  # of all kernels of the operator
        "model_flops": pl.Int64(),  # those of them that a model needs; null if unknown
        "precision": pl.Enum(Precision),  # of its arguments; FP32 may be multiplied as TF32; null if unknown
        "moved_bytes": pl.Int64(),  # of two matrices and their product; null if unknown
    }
)
"""The kernels of operators whose floating-point operations are known by their shapes."""

KERNEL_OCCUPANCY = pl.Schema(
    {
        "op": pl.UInt32(),
        "blocks_per_sm": pl.Float64(),  # blocks of the grid for each multiprocessor of the GPU
        "achieved": pl.Float64(),  # share of the GPU's warps, as the profiler estimates from the grid too
    }
)
"""Kernels with occupancy that the profiler recorded; `achieved` is null where it did not."""

AUTOGRAD_RANGES = pl.Schema(
    {
        "range": pl.UInt32(),  # of an operator
        "forward": pl.UInt32(),  # range of the forward operator that it is the backward of; null if unknown
        "is_replay": pl.Boolean(),  # runs inside a backward operator, and is forward work
    }
)
"""Operators of the backward pass, and forward operators that run inside them again, by `range`."""

DEVICE_STREAMS = pl.Schema(
    {
        "stream": pl.UInt32(),  # as in `OPERATIONS`
        "rank_id": pl.UInt32(),
        "process": pl.UInt32(),
        "context": pl.Int64(),
        "number": pl.Int64(),  # CUDA's number inside the context
        "flags": pl.Enum(StreamFlag),
    }
)
"""Streams that ran operations, and null streams, with CUDA's numbers; null flags are unknown."""

COPIES = pl.Schema({"op": pl.UInt32(), "direction": DIRECTION, "source": MEMORY, "destination": MEMORY})
"""The operations that are copies or memsets."""

KERNEL_KINDS = pl.Schema(
    {"name": pl.UInt32(), "class": CLASS, "category": CATEGORY, "backend": BACKEND, "matched": pl.Boolean()}
)
"""Class and category of each kernel name; `matched` is false if no pattern matched."""

CLASSIFIED = pl.Schema(
    {**OPERATIONS, "class": CLASS, "category": CATEGORY, "backend": BACKEND, "matched": pl.Boolean()}
)
"""Operations with their class."""

COLLECTIVES = pl.Schema(
    {
        "op": pl.UInt32(),
        "operation": pl.Enum(Collective),  # by the calls: many sends and receives are an all-to-all
        "communicator": pl.UInt64(),  # null if unknown, or if one operation serves several
        "participants": pl.Int32(),
        "peers": pl.Int32(),  # number of other ranks that it sends to or receives from; null for collectives
        "peer": pl.Int32(),  # the only rank in the communicator that its messages name; null for several
        "bytes": pl.Int64(),  # as NCCL counts them, for a group together; the larger of sent and received
        "bus_bytes": pl.Int64(),  # bytes on a rank's link, as NCCL's tests count them
        "source": pl.Enum(CollectiveSource),
    }
)
"""Data from the NCCL calls that enqueued an operation; operations without such calls have no row."""

PARTNERS = pl.Schema({"op": pl.UInt32(), "collective": pl.UInt32()})
"""Communication operations of several ranks that form one collective, numbered by its first one."""

AXES = pl.Schema(
    {
        "op": pl.UInt32(),
        "operation": pl.Enum(Collective),
        "axis": pl.Enum(Axis),
        "evidence": pl.String(),  # null if the axis is unknown
    }
)
"""The axis of each communication operation, its evidence, and the kind of the operation."""

SLICES = pl.Schema(
    {
        "rank_id": pl.UInt32(),
        "step": pl.UInt32(),
        "start_ns": pl.Int64(),
        "end_ns": pl.Int64(),
        "state": pl.Enum(DeviceState),
        "absent": pl.Enum(Absent),  # null if compute or an opaque graph ran
        "wall": pl.Enum(Wall),
        "cause": pl.String(),  # wall/cause[/detail]
        "kind": pl.Enum(LinkKind),  # null if compute or an opaque graph ran
        "gap": pl.Int32(),  # the operation that ends the gap; -1 after the last one and where compute ran
        "op": pl.Int32(),  # the operation that ran, ended or was launched; -1 on a thread
        "next_op": pl.Int32(),  # the operation that waited for it; -1 if a thread did
        "call": pl.Int32(),  # the call, or the blocking call that waited; -1 if there is none
        "thread": pl.Int32(),  # -1 on the device
        "range": pl.Int32(),  # innermost range around the issue of `op`, or on the thread; -1 if none
        "slack_ns": pl.Int64(),  # how much earlier the next constraint was satisfied; null if there is none
        "inferred": pl.Boolean(),  # found through a wait that was inferred from timing
    }
)
"""Every nanosecond of every step with its wall and cause; the slices of a rank tile its steps."""

SLICE_SUMS = pl.Schema(
    {name: SLICES[name] for name in ("step", "wall", "cause", "absent", "state")} | {"ns": pl.Int64()}
)
"""Slices of a rank summed, one row a combination that there is."""

PASSES = pl.Schema(
    {
        "op": pl.UInt32(),
        "pass": pl.Enum(Pass),  # null if no range shows it
        "replay": pl.Enum(RecomputeSource),  # null if no range shows recompute
        "scope": pl.Int32(),  # the range of the checkpoint or of the optimizer around it; -1 if there is none
    }
)
"""The part of the step that each operation belongs to, by its ranges."""

RECOMPUTE = pl.Schema({"op": pl.UInt32(), "how": pl.Enum(RecomputeSource)})
"""The compute operations that recompute forward work, and the evidence."""

COPY_CAUSES = pl.Schema({"op": pl.UInt32(), "cause": pl.Enum(CopyCause)})
"""The cause of each copy and memset; null if its direction is unknown."""

WINDOWS = pl.Schema(
    {"rank_id": pl.UInt32(), "step": pl.UInt32(), "start_ns": pl.Int64(), "end_ns": pl.Int64()}
)
"""The windows of each rank, in order of time; windows of one rank are disjoint."""

STEPS = pl.Schema(
    {
        **WINDOWS,
        "issue_start_ns": pl.Int64(),  # start of the step's range; without one, of its first launch
        "issue_end_ns": pl.Int64(),  # and that of the next window
        "steady": pl.Boolean(),
        "reason": pl.String(),
    }
)
"""Windows with their host time, whether each is steady, and why not."""

BUDGET_PARTS = ("compute_ns", "opaque_graph_ns", "exposed_communication_ns", "exposed_copy_ns", "idle_ns")

BUDGETS = pl.Schema({**WINDOWS, **dict.fromkeys(BUDGET_PARTS, pl.Int64())})
"""Device budget of each window; the five parts sum to `end_ns - start_ns`."""

RANGE_WORK = pl.Schema(
    {
        "path": pl.UInt32(),
        "count": pl.Int64(),  # instances; null for only ranges open from before or throughout
        "host_ns": pl.Int64(),  # their added-up time between start and end on the host
        "gpu_ns": pl.Int64(),  # time in which operations issued inside ran, including nested ranges
        "own_gpu_ns": pl.Int64(),  # the same without nested ranges
        "work_ns": pl.Int64(),  # added-up durations of those operations
        "own_work_ns": pl.Int64(),
        "operations": pl.Int64(),
        "own_operations": pl.Int64(),
    }
)
"""Range paths of one rank, means over the steps of its typical step."""
LEDGER_ROWS = pl.Schema(
    {
        "testbed": pl.String(),
        "base": pl.String(),
        "head": pl.String(),
        "recorded_utc_ns": pl.Int64(),
        "verdict": pl.String(),
        "fix": pl.String(),
        "alternatives": pl.String(),  # ids, separated by semicolons
        "precisions": pl.String(),  # of kernels of head, where the fix names another; semicolons between them
        "window": pl.String(),  # the step of bound and gain: typical or mean
        "base_ns": pl.Int64(),
        "head_ns": pl.Int64(),
        "bound_ns": pl.Int64(),  # null where none was known
        "expected_ns": pl.Int64(),  # at assumed rates of kernels; null where the bound assumes them
        "replayed_ns": pl.Int64(),  # null without a replay
        "measured_ns": pl.Int64(),
        "low_ns": pl.Int64(),
        "high_ns": pl.Int64(),
        "share": pl.Float64(),  # measured by bound; null without a bound, or with several fixes at once
        "next_wall": pl.String(),
    }
)
"""The rows of a ledger as a table."""
