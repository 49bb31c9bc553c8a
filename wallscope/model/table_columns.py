"""The tables of the analysis of a capture and of a job: the rows that they take their columns from.

A column is declared once, as a field of a row with its meaning (`model.shown`). Times are integer nanoseconds
of session time, spans are half-open, null is unknown or does not apply. A unit ends the name of its column.
"""

from wallscope.model import frame_rows as rows
from wallscope.model.advice import Fix, Precondition, Setting
from wallscope.model.analysis import (
    Budget,
    CauseTime,
    Clock,
    ComputeAbsent,
    ComputeWork,
    RangeWork,
    Rank,
    RankGroup,
    RankWaits,
    Step,
    Straggler,
    Typical,
)
from wallscope.model.capture import Finding
from wallscope.model.diagnosis import Opportunity, Walls
from wallscope.model.rank_summaries import BlockingCall, CommunicationOperation, CopyWork, MetricMean
from wallscope.model.tables import Table
from wallscope.model.tables import list_columns as take

_WHO = take(Rank, "rank", "pid", "device")
_STEP = take(Step, "index")
_CAUSE = take(CauseTime, "wall", "cause")
_STATE = take(rows.StateRow)
_AXIS = take(CommunicationOperation, "operation", "axis", "evidence")
_FIX = take(Fix, "id")
_RANK = take(RankWaits, "place", "rank")

TABLES = (
    Table(
        "ranks",
        "a rank: one process on one device",
        (
            *(*_WHO, *take(Rank, "rank_source"), *take(rows.RankRow)),
            *(*take(Typical, "step_ns"), *take(Rank, "outside_ns")),
            *(*take(Walls, step="typical step"), *take(Budget, step="typical step")),
        ),
    ),
    Table(
        "steps",
        "one step of one rank. The columns from `compute_ns` to `idle_ns` add up to `duration_ns`, and so do"
        " the five walls",
        (
            *(*_WHO, *_STEP, *take(rows.SpanRow, of="step")),
            *(*take(Budget), *take(Walls), *take(ComputeAbsent), *take(Step, "steady", "reason")),
        ),
    ),
    Table(
        "causes",
        "a cause in the typical step of a rank",
        (*_WHO, *_CAUSE, *take(CauseTime, "typical_ns", "share", "recoverable_ns", "unresolved_ns")),
    ),
    Table(
        "step_causes",
        "the time of one cause in one step while the GPU was in one state",
        (*_WHO, *_STEP, *_CAUSE, *_STATE, *take(rows.StepCauseRow)),
    ),
    Table(
        "slices",
        "an interval of a step that has one cause. The intervals cover the step without gaps or overlaps",
        (*_WHO, *_STEP, *take(rows.SpanRow, of="interval"), *_STATE, *_CAUSE, *take(rows.SliceRow)),
    ),
    Table(
        "gaps",
        "a gap: an interval of a step in which the GPU runs neither a compute kernel nor an opaque CUDA"
        " graph",
        (*_WHO, *_STEP, *take(rows.SpanRow, of="gap"), *take(rows.GapRow)),
    ),
    Table(
        "operations",
        "an operation on the GPU: a kernel, a copy, a memset or a whole CUDA graph",
        (
            *(*take(rows.OperationRow, "op"), *_WHO, *take(rows.OperationRow, "stream", "context")),
            *take(rows.SpanRow, of="operation"),
            *take(rows.OperationRow, "kind", "name", "class", "category", "backend", "axis", "bytes"),
            *take(rows.OperationRow, "graph_node", "call", "call_start_ns", "path", "path_by"),
        ),
    ),
    Table(
        "calls",
        "a CUDA API call",
        (
            *(*take(rows.CallRow, "call", "pid", "tid"), *take(rows.SpanRow, of="call")),
            *take(rows.CallRow, "name", "role", "correlation"),
        ),
    ),
    Table(
        "ranges",
        "an NVTX range",
        (
            *(*take(rows.RangeRow, "range", "pid", "tid"), *take(rows.SpanRow, of="range")),
            *take(rows.RangeRow, "name", "path", "parent", "clipped", "crosses"),
        ),
    ),
    Table(
        "range_work",
        "all NVTX ranges with the same path in the typical step of a rank",
        (
            *(*_WHO, *take(RangeWork, "name", "path", "count", "host_ns", "gpu_ns", "own_gpu_ns")),
            *(*take(RangeWork, "work_ns", "own_work_ns"), *take(rows.RangeOperationsRow)),
        ),
    ),
    Table(
        "kernels",
        "all kernels with the same name in the typical step of a rank",
        (*_WHO, *take(rows.KernelRow)),
    ),
    Table(
        "collectives",
        "a communication operation of a rank",
        (
            *(*take(rows.CollectiveRow, "op"), *_WHO, *take(rows.SpanRow, of="operation")),
            *(*take(rows.CollectiveRow, "name", "backend"), *_AXIS),
            *take(
                rows.CollectiveRow, "communicator", "source", "participants", "peers", "bytes", "bus_bytes"
            ),
        ),
    ),
    Table(
        "communication",
        "all communication operations with the same kind, axis and library in a rank's typical step",
        (
            *(*_WHO, *_AXIS, *take(CommunicationOperation, "backend", "count", "work_ns", "exposed_ns")),
            *take(CommunicationOperation, "bytes", "bus_bandwidth_bytes_per_s"),
        ),
    ),
    Table(
        "copies",
        "all copies with the same direction and kind of host memory in a rank's typical step",
        (
            *(*_WHO, *take(CopyWork, "direction", "pinned", "count", "bytes", "work_ns", "exposed_ns")),
            *take(CopyWork, "bulk_bandwidth_bytes_per_s"),
        ),
    ),
    Table(
        "compute",
        "all compute kernels of the same category in a rank's typical step",
        (*_WHO, *take(ComputeWork, "category", "kernels", "work_ns", "share")),
    ),
    Table(
        "blocking_calls",
        "the calls of one CUDA function, in a rank's typical step, that returned when the GPU had no"
        " queued work",
        (*_WHO, *take(BlockingCall, "name", "path", "count", "waited_ns", "drained_ns")),
    ),
    Table(
        "gpu_metrics",
        "a sampled metric of a rank's GPU, in the rank's typical step",
        (*_WHO, *take(MetricMean)),
    ),
    Table(
        "opportunities",
        "a cause of time on the representative rank, with an upper bound on the gain from removing it. Gains"
        " of several causes do not add up",
        take(Opportunity),
    ),
    Table(
        "fixes",
        "a recommended fix. Rows are in the order of the recommendations",
        (*take(rows.FixRow), *take(Fix)),
    ),
    Table("settings", "a setting of a fix", (*_FIX, *take(Setting))),
    Table("preconditions", "a precondition of a fix", (*_FIX, *take(Precondition))),
    Table("findings", "a finding, which makes the result incomplete or less certain", take(Finding)),
)
"""All tables of the analysis of one capture; the last ones are those of upper bounds, fixes and findings."""

JOB_TABLES = (
    Table(
        "waits",
        "a rank of the job. Unless a column says otherwise, times are sums of durations in the rank's typical"
        " step, including durations that overlap compute",
        take(RankWaits),
    ),
    Table(
        "late_units",
        "a unit that delays the job: a rank, node, pipeline stage or link. Rows are in the order of repair",
        take(Straggler),
    ),
    Table("rank_groups", "a group of ranks that do the same work", (*take(rows.GroupRow), *take(RankGroup))),
    Table("clocks", "a host and how its clock compares with the reference clock", take(Clock)),
    Table(
        "meetings",
        "one communication operation of one rank. Rows are sorted by start. `start_ns` and `end_ns` refer to"
        " one clock for all ranks, which starts with the first profiling session",
        (
            *(*take(rows.MeetingRow, "meeting"), *_RANK, *take(rows.MeetingRow, "step")),
            *(*take(CommunicationOperation, "operation", "axis"),),
            *take(
                rows.MeetingRow, "communicator", "start_ns", "end_ns", "session_ns", "joined_ns", "is_last"
            ),
            *take(rows.MeetingRow, "residence_ns", "wait_ns", "transfer_ns", "blocking_ns"),
            *take(rows.MeetingRow, "blocking_wait_ns", "bytes"),
        ),
    ),
)
"""The tables of a job of several ranks."""
