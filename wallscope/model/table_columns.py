"""The tables of the analysis of a capture, declared once: columns, types, meanings.

Times are integer nanoseconds of session time, spans are half-open, null is unknown or does not apply. A unit
ends the name of its column. `job_columns` has the tables of a job.
"""

import polars as pl

from wallscope.model.advice_columns import ADVICE_TABLES, WALL_COLUMNS
from wallscope.model.enums import Wall
from wallscope.model.tables import Table, TableColumn, find_table_columns

_I32, _I64, _REAL = pl.Int32(), pl.Int64(), pl.Float64()
_TEXT, _YES = pl.String(), pl.Boolean()


_WHO = find_table_columns(
    _I32,
    rank="number of the rank in the job",
    pid="id of the process of the rank",
    device="CUDA device number inside the process",
)
_STEP = find_table_columns(_I64, step="index of the step in the capture, from 0")
_OPERATION = "`op` of the operation in the table `operations`"
_OP = find_table_columns(_I64, op=_OPERATION)
_AXIS = find_table_columns(
    _TEXT,
    operation="kind of the operation: all-reduce, all-to-all, send-recv and others",
    axis="parallel axis of the operation: ep, dp-gradient, dp-parameter, tp, cp, pp or unknown",
    evidence="evidence for the axis, empty if the axis is unknown",
)
_LAUNCH_PATH = "NVTX ranges that contain the launch of the operation"
_STATE = find_table_columns(
    _TEXT,
    state="what ran on the GPU: compute, opaque_graph, exposed_communication, exposed_copy or idle",
    absent="why no compute ran: launch_starved, blocking or dependency_stalled, as in `steps`",
)


def _span(of: str) -> tuple[TableColumn, ...]:
    return find_table_columns(
        _I64,
        start_ns=f"start of the {of}",
        end_ns=f"end of the {of}",
        duration_ns=f"length of the {of}: `end_ns` minus `start_ns`",
    )


def _times(step: str) -> tuple[tuple[TableColumn, ...], tuple[TableColumn, ...]]:
    """Return the columns of what ran on the GPU in a step, and those of its walls."""
    ran = find_table_columns(
        _I64,
        compute_ns=f"time of the {step} in which a compute kernel ran",
        opaque_graph_ns=f"time of the {step} in which an opaque CUDA graph ran, and no compute kernel",
        exposed_communication_ns=f"time of the {step} in which communication ran, and neither a compute"
        " kernel"
        " nor an opaque CUDA graph",
        exposed_copy_ns=f"time of the {step} in which a copy or memset ran, and no compute kernel, opaque"
        " CUDA"
        " graph or communication",
        idle_ns=f"time of the {step} in which no operation of the rank ran on the GPU",
    )
    walls = (TableColumn(f"{wall}_wall_ns", _I64, f"time of the {wall} wall in the {step}") for wall in Wall)
    return ran, tuple(walls)


_TYPICAL_ACTIVITY, _TYPICAL_WALLS = _times("typical step")
_STEP_ACTIVITY, _STEP_WALLS = _times("step")

TABLES = (
    Table(
        "ranks",
        "a rank: one process on one device",
        (
            *_WHO,
            *find_table_columns(
                _TEXT,
                rank_source="where the rank number comes from, such as the variable RANK or the file name",
                gpu="model of the GPU",
            ),
            *find_table_columns(
                _I64,
                steps="count of the steps of this rank",
                steady_steps="count of the steady steps of this rank",
                typical_step_ns="length of the typical step",
                outside_ns="time between the first operation of the rank on the GPU and its first step",
            ),
            *(*_TYPICAL_WALLS, *_TYPICAL_ACTIVITY),
        ),
    ),
    Table(
        "steps",
        "one step of one rank. The columns from `compute_ns` to `idle_ns` sum to `duration_ns`, and so do the"
        " five walls",
        (
            *(*_WHO, *_STEP, *_span("step"), *_STEP_ACTIVITY, *_STEP_WALLS),
            *find_table_columns(
                _I64,
                launch_starved_ns="time in gaps in which the GPU waited for the host, launch latency"
                " included",
                blocking_ns="time in gaps in which the GPU waited for a running operation: communication, a"
                " copy"
                " or a memset",
                dependency_stalled_ns="time in gaps between the end of an operation and the start of one that"
                " depends on it, or for an unknown reason",
            ),
            *find_table_columns(
                _YES,
                steady="whether the step is steady: only steady steps are used for the typical step",
            ),
            *find_table_columns(_TEXT, reason="why the step is not steady, empty if it is steady"),
        ),
    ),
    Table(
        "causes",
        "a cause in the typical step of a rank",
        (
            *(*_WHO, *WALL_COLUMNS),
            *find_table_columns(_I64, typical_ns="time of the cause in the typical step"),
            *find_table_columns(_REAL, step_share="`typical_ns` divided by the length of the typical step"),
            *find_table_columns(
                _I64,
                recoverable_ns="upper bound on the time by which the typical step becomes shorter without the"
                " cause",
                unresolved_ns="part of `typical_ns` in which wallscope could not follow the dependencies",
            ),
        ),
    ),
    Table(
        "step_causes",
        "the time of one cause in one step while the GPU was in one state",
        (
            *(*_WHO, *_STEP, *WALL_COLUMNS, *_STATE),
            *find_table_columns(
                _I64,
                owned_ns="time of the cause in this state: all rows of a step sum to the length of the step",
            ),
        ),
    ),
    Table(
        "slices",
        "an interval of a step with one cause. The intervals of a step follow each other without a hole",
        (
            *(*_WHO, *_STEP, *_span("interval"), *_STATE, *WALL_COLUMNS),
            *find_table_columns(
                _TEXT,
                link="what the GPU waited for: `operation`, `hand-over`, `launch-latency`, `launch-call`,"
                " `other-call`, `allocation`, `synchronisation`, `driver-lock`, `outside-calls` or"
                " `unresolved`. Empty if compute ran",
            ),
            *find_table_columns(
                _I64,
                op="`op` of the operation that ran. If `link` is `hand-over` or `synchronisation`: of the"
                " operation that had ended. If it is `launch-latency`: of the launched operation",
                next_op="`op` of the operation that waited for `op`, empty if a host thread waited",
                gap_op="`op` of the operation that ends the gap, empty if compute ran",
                call="`call` of the CUDA call that ran. If `link` is `launch-latency`: of the launch call",
                tid="id of the host thread that the GPU waited for",
                slack_ns="how much earlier the wait would have ended without this dependency",
            ),
            *find_table_columns(
                _YES,
                inferred="whether the interval depends on a wait that the profile does not contain and"
                " wallscope"
                " inferred",
            ),
            *find_table_columns(
                _TEXT,
                name="name of the operation `op`",
                call_name="name of the CUDA call `call`",
                path="NVTX ranges that contain the launch of `op`, or the host activity if `op` is empty",
            ),
        ),
    ),
    Table(
        "gaps",
        "a gap: an interval of a step in which neither a compute kernel nor an opaque CUDA graph runs",
        (
            *(*_WHO, *_STEP, *_span("gap")),
            *find_table_columns(
                _TEXT, wall="wall of `cause`", cause="cause that takes the most time of the gap"
            ),
            *find_table_columns(
                _I64,
                cause_ns="time of `cause` in the gap",
                links="count of the rows of `slices` in the gap",
                ended_by_op="`op` of the operation that ends the gap, empty if the step ends first",
            ),
            *find_table_columns(
                _TEXT,
                ended_by="name of the operation `ended_by_op`",
                path="NVTX ranges that contain the launch of `ended_by_op`",
            ),
            *find_table_columns(_I64, call_start_ns="start of the CUDA call that launched `ended_by_op`"),
        ),
    ),
    Table(
        "operations",
        "an operation on the GPU: kernel, copy, memset or whole CUDA graph",
        (
            *find_table_columns(_I64, op="id of the operation, used by other tables"),
            *_WHO,
            *find_table_columns(
                _I64,
                stream="id of the CUDA stream in the profile",
                context="id of the CUDA context of the stream in the profile",
            ),
            *_span("operation"),
            *find_table_columns(
                _TEXT,
                kind="kernel, copy, fill (memset) or graph",
                name="name of the kernel, `CUDA graph`, or kind and direction of the copy",
                **{"class": "compute, opaque_graph, communication or copy"},
                category="category of a compute kernel, kind of a communication operation, or direction of a"
                " copy",
                backend="library of a communication operation, empty for others",
                axis="parallel axis of a communication operation, empty for others",
            ),
            *find_table_columns(
                _I64,
                bytes="size of a copy or memset, empty for others",
                graph_node="id of the CUDA graph node, empty if the operation is not part of a CUDA graph",
                call="`call` of the CUDA call that launched the operation, in the table `calls`",
                call_start_ns="start of the CUDA call that launched the operation",
            ),
            *find_table_columns(
                _TEXT,
                path=_LAUNCH_PATH,
                path_by="how `path` was found: same_thread (ranges of the launching thread), inherited"
                " (ranges"
                " of a thread that waited for it) or none",
            ),
        ),
    ),
    Table(
        "calls",
        "a CUDA API call",
        (
            *find_table_columns(_I64, call="id of the CUDA call, used by other tables"),
            *find_table_columns(
                _I32, pid="id of the process that made the call", tid="id of the thread that made the call"
            ),
            *_span("call"),
            *find_table_columns(
                _TEXT,
                name="name of the CUDA function",
                role="purpose of the call: launch, graph, sync, copy, alloc, event or other",
            ),
            *find_table_columns(_I64, correlation="correlation id of the profiler, unique inside a process"),
        ),
    ),
    Table(
        "ranges",
        "an NVTX range",
        (
            *find_table_columns(_I64, range="id of the range"),
            *find_table_columns(
                _I32, pid="id of the process of the range", tid="id of the thread on which the range began"
            ),
            *_span("range"),
            *find_table_columns(
                _TEXT,
                name="text of the range",
                path="names of the range and of the ranges that contain it, outermost first. `#` stands for a"
                " number in a name",
            ),
            *find_table_columns(
                _I64, parent="`range` of the innermost range that contains this one, on the same thread"
            ),
            *find_table_columns(
                _YES,
                clipped="whether the range was still open when the capture ended",
                crosses="whether the range ended on another thread than it began on",
            ),
        ),
    ),
    Table(
        "range_work",
        "all NVTX ranges of one path in the typical step of a rank",
        (
            *_WHO,
            *find_table_columns(
                _TEXT,
                name="name of the innermost range of `path`",
                path="names of the ranges from the outermost to the innermost. `#` stands for a number in a"
                " name",
            ),
            *find_table_columns(
                _I64,
                count="count of the ranges that begin in the step",
                host_ns="sum of the durations of the ranges on the host",
                gpu_ns="time in which an operation ran that was launched in the range or in a range inside"
                " it",
                own_gpu_ns="time in which an operation ran that was launched in the range and in no range"
                " inside"
                " it",
                work_ns="sum of the durations of the operations launched in the range or in a range inside"
                " it",
                own_work_ns="sum of the durations of the operations launched in the range and in no range"
                " inside"
                " it",
                operations="count of the operations launched in the range or in a range inside it",
                own_operations="count of the operations launched in the range and in no range inside it",
            ),
        ),
    ),
    Table(
        "kernels",
        "all kernels of one name in the typical step of a rank",
        (
            *_WHO,
            *find_table_columns(
                _TEXT,
                name="name of the kernels",
                **{"class": "compute or communication"},
                category="category of a compute kernel, or kind of a communication operation",
                backend="library of a communication kernel, empty for others",
            ),
            *find_table_columns(_REAL, count="count of the kernels that begin in a step (mean)"),
            *find_table_columns(_I64, work_ns="sum of the durations of the kernels inside the step"),
            *find_table_columns(
                _REAL,
                step_share="`work_ns` divided by the length of the step, above 1 if many kernels overlap",
            ),
            *find_table_columns(
                _I64,
                median_ns="median duration of a kernel",
                least_ns="shortest duration of a kernel",
                most_ns="longest duration of a kernel",
            ),
            *find_table_columns(
                _REAL,
                flops_per_s="FLOP/s while the kernels run, empty if no shapes of operators give their FLOPs",
                peak_share="`flops_per_s` divided by the peak of the GPU at the precision of the kernels",
            ),
        ),
    ),
    Table(
        "collectives",
        "a communication operation of a rank",
        (
            *(*_OP, *_WHO, *_span("operation")),
            *find_table_columns(_TEXT, name="name of the kernel or copy", backend="library of the operation"),
            *_AXIS,
            *find_table_columns(
                _TEXT,
                communicator="id of the communicator, in hexadecimal",
                source="where the columns from `communicator` to `bus_bytes` come from: payload (of NCCL's"
                " NVTX"
                " range), json (text of the range) or name (of the range)",
            ),
            *find_table_columns(
                _I64,
                participants="count of the ranks that take part",
                peers="count of the ranks that this rank sends to or receives from, empty for collectives",
                bytes="size of the message as NCCL counts it: of all-gather and reduce-scatter the part of"
                " one"
                " rank",
                bus_bytes="bytes that cross the link of one rank, by the formula of nccl-tests for bus"
                " bandwidth",
            ),
        ),
    ),
    Table(
        "communication",
        "all communication operations of one kind, axis and library in the typical step of a rank",
        (
            *(*_WHO, *_AXIS),
            *find_table_columns(_TEXT, backend="library of the operations"),
            *find_table_columns(
                _I64,
                count="count of the operations that begin in the step",
                work_ns="sum of the durations of the operations inside the step",
                exposed_ns="time in which one of the operations ran, and neither a compute kernel nor an"
                " opaque"
                " CUDA graph",
                bytes="sum of the message sizes as NCCL counts them",
            ),
            *find_table_columns(
                _REAL,
                bus_bandwidth_bytes_per_s="bus bytes (as in `collectives`) divided by the duration of the"
                " operations, which includes waiting for peers",
            ),
        ),
    ),
    Table(
        "copies",
        "all copies of one direction and kind of host memory in the typical step of a rank",
        (
            *_WHO,
            *find_table_columns(
                _TEXT,
                direction="host-to-device, device-to-host, device-to-device, host-to-host,"
                " migration-to-device, migration-to-host, migration-between-devices, fill (memset) or"
                " unknown",
            ),
            *find_table_columns(
                _YES, pinned="whether the host memory is pinned, empty if there is none or it is unknown"
            ),
            *find_table_columns(
                _I64,
                count="count of the copies that begin in the step",
                bytes="sum of the sizes of the copies",
                work_ns="sum of the durations of the copies inside the step",
                exposed_ns="time in which one of the copies ran, and no compute kernel, opaque CUDA graph or"
                " communication",
            ),
            *find_table_columns(
                _REAL, bulk_bandwidth_bytes_per_s="bandwidth of the copies of 64 KiB or more while they ran"
            ),
        ),
    ),
    Table(
        "compute",
        "all compute kernels of one category in the typical step of a rank",
        (
            *_WHO,
            *find_table_columns(_TEXT, category="category of the kernels, such as gemm or attention"),
            *find_table_columns(
                _I64,
                kernels="count of the kernels that begin in the step",
                work_ns="sum of the durations of the kernels inside the step",
            ),
            *find_table_columns(_REAL, work_share="`work_ns` divided by that of all compute kernels"),
        ),
    ),
    Table(
        "blocking_calls",
        "the calls of one CUDA function in the typical step of a rank that returned when the GPU had no"
        " queued"
        " work",
        (
            *_WHO,
            *find_table_columns(
                _TEXT,
                name="name of the CUDA function",
                path="NVTX ranges that contain most of the calls",
            ),
            *find_table_columns(_REAL, count="count of the calls that end in the step"),
            *find_table_columns(
                _I64,
                waited_ns="time that the host waited inside the calls",
                drained_ns="time of the cause host/queue-drained for this function: the GPU is idle from the"
                " return of a call to the next launch",
            ),
        ),
    ),
    Table(
        "gpu_metrics",
        "a sampled metric of the GPU of a rank, in the typical step of the rank",
        (
            *_WHO,
            *find_table_columns(_TEXT, metric="name of the metric"),
            *find_table_columns(_REAL, mean_share="mean of the samples, as a share of the peak"),
            *find_table_columns(_I64, samples="count of the samples"),
        ),
    ),
    *ADVICE_TABLES,
)
"""All tables of the analysis of one capture."""
