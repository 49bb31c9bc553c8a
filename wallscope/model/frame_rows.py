"""Rows of the tables that are made as frames: each field with its type and meaning, declared once.

The rows of other tables are the parts of an answer. Times are integer nanoseconds of session time, spans are
half-open, null is unknown or does not apply. A unit ends the name of its field.
"""

from typing import Annotated

from wallscope.model.shown import COMMUNICATOR, END, FUNCTION, KERNEL_NAME, START, WORK, Shown


class RankRow:
    """Of a rank, in addition to the fields of `Rank`."""

    gpu: Annotated[str, Shown("GPU model")]
    steps: Annotated[int, Shown("number of steps found on this rank")]
    steady_steps: Annotated[int, Shown("number of steady steps on this rank")]


class SpanRow:
    """An interval of session time."""

    start_ns: Annotated[int, START]
    end_ns: Annotated[int, END]
    duration_ns: Annotated[int, Shown("length of the {of}: `end_ns` minus `start_ns`", "length", "ms", "")]


class StateRow:
    """The state of the GPU."""

    state: Annotated[
        str, Shown("what ran on the GPU: compute, opaque_graph, exposed_communication, exposed_copy or idle")
    ]
    absent: Annotated[
        str, Shown("why no compute ran: launch_starved, blocking or dependency_stalled, as in table `steps`")
    ]


class StepCauseRow:
    """The time of one cause in one step while the GPU was in one state."""

    owned_ns: Annotated[
        int, Shown("time of the cause in this state; all rows of a step add up to the length of the step")
    ]


class SliceRow:
    """An interval of a step with one cause."""

    link: Annotated[
        str,
        Shown(
            "what the GPU waited for: `operation`, `hand-over`, `launch-latency`, `launch-call`,"
            " `other-call`, `allocation`, `synchronisation`, `driver-lock`, `outside-calls` or"
            " `unresolved`. Empty if compute ran"
        ),
    ]
    op: Annotated[
        int,
        Shown(
            "`op` of the operation that ran, that had ended (if `link` is `hand-over` or `synchronisation`)"
            " or that was launched (`launch-latency`)",
        ),
    ]
    next_op: Annotated[
        int, Shown("`op` of the operation that waited for `op`; empty if a host thread waited")
    ]
    gap_op: Annotated[int, Shown("`op` of the operation that ends the gap; empty if compute ran")]
    call: Annotated[
        int, Shown("`call` of the CUDA call that ran, or of the launch call if `link` is `launch-latency`")
    ]
    tid: Annotated[int, Shown("id of the host thread that the GPU waited for")]
    slack_ns: Annotated[int, Shown("how much earlier the wait would have ended without this dependency")]
    inferred: Annotated[
        bool,
        Shown("whether the interval depends on a wait that wallscope inferred because the profile lacks it"),
    ]
    name: Annotated[str, Shown("name of the operation `op`")]
    call_name: Annotated[str, Shown("name of the CUDA call `call`")]
    path: Annotated[
        str, Shown("NVTX ranges around the launch of `op`, or around the host activity if `op` is empty")
    ]


class GapRow:
    """An interval of a step without compute."""

    wall: Annotated[str, Shown("wall to which `cause` belongs")]
    cause: Annotated[str, Shown("cause with the most time in the gap")]
    cause_ns: Annotated[int, Shown("time of `cause` in the gap")]
    links: Annotated[int, Shown("number of `slices` rows in the gap")]
    ended_by_op: Annotated[
        int, Shown("`op` of the operation that ends the gap; empty if the step ends first")
    ]
    ended_by: Annotated[str, Shown("name of the operation `ended_by_op`")]
    path: Annotated[str, Shown("NVTX ranges around the launch of `ended_by_op`")]
    call_start_ns: Annotated[int, Shown("start of the CUDA call that launched `ended_by_op`")]


class OperationRow:
    """An operation on the GPU."""

    op: Annotated[int, Shown("id of the operation, used by other tables")]
    stream: Annotated[int, Shown("id of the CUDA stream in the profile")]
    context: Annotated[int, Shown("id of the stream's CUDA context in the profile")]
    kind: Annotated[str, Shown("kernel, copy, fill (memset) or graph")]
    name: Annotated[str, Shown("kernel name, `CUDA graph`, or kind and direction of the copy")]
    class_: Annotated[str, Shown("compute, opaque_graph, communication or copy")]
    category: Annotated[
        str, Shown("category of a compute kernel, kind of a communication operation, or direction of a copy")
    ]
    backend: Annotated[str, Shown("library of a communication operation; empty for other operations")]
    axis: Annotated[str, Shown("parallel axis of a communication operation; empty for other operations")]
    bytes: Annotated[int, Shown("size of a copy or memset; empty for other operations")]
    graph_node: Annotated[
        int, Shown("id of the CUDA graph node; empty if the operation is not part of a CUDA graph")
    ]
    call: Annotated[int, Shown("`call`, in the table `calls`, of the CUDA call that launched the operation")]
    call_start_ns: Annotated[int, Shown("start of the CUDA call that launched the operation")]
    path: Annotated[str, Shown("NVTX ranges around the launch of the operation")]
    path_by: Annotated[
        str,
        Shown(
            "how `path` was found: same_thread (ranges on the launching thread), inherited (ranges"
            " on a thread that waited for it) or none"
        ),
    ]


class CallRow:
    """A CUDA API call."""

    call: Annotated[int, Shown("id of the CUDA call, used by other tables")]
    pid: Annotated[int, Shown("id of the process that made the call", kind="Int32")]
    tid: Annotated[int, Shown("id of the thread that made the call", kind="Int32")]
    name: Annotated[str, FUNCTION]
    role: Annotated[str, Shown("purpose of the call: launch, graph, sync, copy, alloc, event or other")]
    correlation: Annotated[int, Shown("the profiler's correlation id, unique within a process")]


class RangeRow:
    """An NVTX range."""

    range: Annotated[int, Shown("id of the range")]
    pid: Annotated[int, Shown("id of the process that made the range", kind="Int32")]
    tid: Annotated[int, Shown("id of the thread on which the range began", kind="Int32")]
    name: Annotated[str, Shown("text of the range")]
    path: Annotated[
        str,
        Shown(
            "names of the range and of its enclosing ranges, outermost first; `#` replaces each number"
            " in a name"
        ),
    ]
    parent: Annotated[int, Shown("`range` of the innermost enclosing range on the same thread")]
    clipped: Annotated[bool, Shown("whether the range was still open when the capture ended")]
    crosses: Annotated[
        bool, Shown("whether the range ended on a different thread than the one on which it began")
    ]


class RangeOperationsRow:
    """The operations of a range path, in addition to the fields of `RangeWork`."""

    operations: Annotated[
        int, Shown("number of operations launched in the range, including nested ranges", "ops", "count")
    ]
    own_operations: Annotated[
        int, Shown("number of operations launched in the range, excluding nested ranges")
    ]


class KernelRow:
    """All kernels of one name."""

    name: Annotated[str, KERNEL_NAME]
    class_: Annotated[str, Shown("compute or communication")]
    category: Annotated[
        str, Shown("category of a compute kernel, or kind of a communication operation", "category")
    ]
    backend: Annotated[str, Shown("library of a communication kernel; empty for compute kernels")]
    count: Annotated[float, Shown("mean number of kernels that begin in a step", "per step", "plain")]
    work_ns: Annotated[int, WORK]
    step_share: Annotated[
        float,
        Shown(
            "`work_ns` divided by the length of the step; above 1 if many kernels overlap",
            "of step",
            "percent",
        ),
    ]
    median_ns: Annotated[int, Shown("median duration of a kernel", "median", "duration")]
    mean_ns: Annotated[int, Shown("mean duration of a kernel", "mean", "duration")]
    least_ns: Annotated[int, Shown("shortest duration of a kernel", "shortest", "duration")]
    most_ns: Annotated[int, Shown("longest duration of a kernel", "longest", "duration")]
    deviation_ns: Annotated[
        int,
        Shown("standard deviation of the kernel durations; empty for a single kernel", "std dev", "duration"),
    ]
    flops_per_s: Annotated[
        float,
        Shown(
            "FLOP/s while the kernels run; empty if their FLOPs are unknown for lack of operator shapes",
            "achieved",
            "flops",
        ),
    ]
    peak_share: Annotated[
        float,
        Shown(
            "`flops_per_s` divided by the GPU's peak at the precision of the kernels",
            "of peak",
            "percent",
        ),
    ]


class CollectiveRow:
    """A communication operation of a rank."""

    op: Annotated[int, Shown("`op` of the operation in the table `operations`")]
    name: Annotated[str, Shown("name of the kernel or copy")]
    backend: Annotated[str, Shown("communication library of the operation")]
    communicator: Annotated[str, COMMUNICATOR]
    source: Annotated[
        str,
        Shown(
            "source of the columns from `communicator` to `bus_bytes`: payload (of NCCL's NVTX range),"
            " json (text of the range) or name (of the range)"
        ),
    ]
    participants: Annotated[int, Shown("number of ranks that take part in the operation")]
    peers: Annotated[
        int, Shown("number of ranks that this rank sends to or receives from; empty for collectives")
    ]
    bytes: Annotated[
        int,
        Shown("message size as NCCL counts it; for all-gather and reduce-scatter, one rank's part"),
    ]
    bus_bytes: Annotated[
        int, Shown("bytes that cross one rank's link, by the bus-bandwidth formula of nccl-tests")
    ]


class GroupRow:
    """Of a group of ranks, in addition to the fields of `RankGroup`."""

    group: Annotated[int, Shown("index of the group, used in table `waits`")]
    count: Annotated[int, Shown("number of ranks in the group", "count", "count")]


class MeetingRow:
    """A communication operation of a rank, matched with those of the others."""

    meeting: Annotated[
        int, Shown("id of the collective, the same on all of its ranks; empty without a match")
    ]
    step: Annotated[int, Shown("index of the step in which the operation begins")]
    communicator: Annotated[str, COMMUNICATOR]
    start_ns: Annotated[int, Shown("start of the operation on the common clock")]
    end_ns: Annotated[int, Shown("end of the operation on the common clock")]
    session_ns: Annotated[int, Shown("start of the operation on the clock of the rank's profiling session")]
    joined_ns: Annotated[
        int, Shown("time when the last rank joined the collective; empty if any rank's operation is missing")
    ]
    is_last: Annotated[bool, Shown("whether this rank joined the collective last")]
    residence_ns: Annotated[int, Shown("duration of the operation: `wait_ns` plus `transfer_ns`")]
    wait_ns: Annotated[
        int, Shown("part of the duration in which the rank waited for ranks that arrived later")
    ]
    transfer_ns: Annotated[int, Shown("part of the duration in which data moves")]
    blocking_ns: Annotated[int, Shown("part of the duration on the rank's critical path")]
    blocking_wait_ns: Annotated[
        int, Shown("part of `blocking_ns` in which the rank waited for ranks that arrived later")
    ]
    bytes: Annotated[int, Shown("message size as NCCL counts it")]


class FixRow:
    """Of a fix, in addition to the fields of `Fix`."""

    place: Annotated[int, Shown("position in the list of recommendations, from 1")]
