"""The tables that can be taken out of an answer or a job, declared once: columns, types, meanings.

Times are integer nanoseconds of session time, spans are half-open, shares are 0..1, null is unknown or does
not apply. A unit ends the name of its column.
"""

from dataclasses import dataclass

import polars as pl

from wallscope.model.enums import Wall

_I32, _I64, _REAL = pl.Int32(), pl.Int64(), pl.Float64()
_TEXT, _YES = pl.String(), pl.Boolean()


@dataclass(frozen=True, slots=True)
class TableColumn:
    """A column: its name, type and content."""

    name: str
    kind: pl.DataType
    meaning: str


@dataclass(frozen=True, slots=True)
class Table:
    """A table by name: the meaning of a row, and its columns in order."""

    name: str
    row_is: str
    columns: tuple[TableColumn, ...]

    @property
    def schema(self) -> pl.Schema:
        """Names and types of the columns."""
        return pl.Schema({column.name: column.kind for column in self.columns})


def find_table_columns(kind: pl.DataType, /, **meanings: str) -> tuple[TableColumn, ...]:
    """Return columns of one type, with the content of each."""
    return tuple(TableColumn(name, kind, meaning) for name, meaning in meanings.items())


_WHO = find_table_columns(
    _I32, rank="number of the rank in the job", pid="its process", device="CUDA ordinal inside the process"
)
_SPAN = find_table_columns(_I64, start_ns="begin", end_ns="end", duration_ns="end - start")
_STEP = find_table_columns(_I64, step="number of the step")
_WALL = find_table_columns(
    _TEXT, wall="wall of the time", cause="wall/cause[/detail], listed in docs/causes.md"
)
_OP = find_table_columns(_I64, op="number of the device operation, as in `operations`")
_WALL_TIMES = tuple(TableColumn(f"{wall}_wall_ns", _I64, f"time of the {wall} wall") for wall in Wall)
_BUDGET = find_table_columns(
    _I64,
    compute_ns="compute ran",
    opaque_graph_ns="time in which a CUDA graph traced as a whole ran, and no kernel",
    exposed_communication_ns="time in which communication ran, and no kernel or graph",
    exposed_copy_ns="time in which only a copy or memset ran",
    idle_ns="nothing ran",
)
_KIND = find_table_columns(
    _TEXT,
    kind="kernel, copy, fill or graph",
    name="the kernel name, or kind and direction of a copy",
    **{"class": "compute, opaque_graph, communication or copy"},
    category="category, kind of communication, or direction of a copy",
    backend="library of a communication operation",
)
_AXIS = find_table_columns(
    _TEXT,
    operation="kind of the operation",
    axis="parallel axis that it serves",
    evidence="evidence for the axis",
)
_CALL = find_table_columns(_I64, call="number of the API call, as in `calls`")

TABLES = (
    Table(
        "ranks",
        "a rank: one process on one device",
        (
            *_WHO,
            *find_table_columns(_TEXT, rank_source="source of the rank number", gpu="model of the GPU"),
            *find_table_columns(_I64, steps="number of its steps", steady_steps="number of steady steps"),
            *find_table_columns(
                _I64,
                typical_step_ns="length of the typical step",
                outside_ns="device time before the first step",
            ),
            *_WALL_TIMES,
            *_BUDGET,
        ),
    ),
    Table(
        "steps",
        "one step of one rank. GPU activity (with idle time) sums to its duration, and so do the walls",
        (
            *(*_WHO, *_STEP, *_SPAN, *_BUDGET, *_WALL_TIMES),
            *find_table_columns(
                _I64,
                launch_starved_ns="time without compute because too little was launched",
                blocking_ns="time without compute because an operation blocked it",
                dependency_stalled_ns="time without compute by latency of a dependency",
            ),
            *find_table_columns(_YES, steady="counts for the typical step"),
            *find_table_columns(_TEXT, reason="why it does not count"),
        ),
    ),
    Table(
        "causes",
        "a cause in the typical step of a rank",
        (
            *(*_WHO, *_WALL),
            *find_table_columns(_I64, typical_ns="time of the cause in the typical step"),
            *find_table_columns(_REAL, step_share="its share of the step"),
            *find_table_columns(_I64, recoverable_ns="upper bound: reduction of the step without the cause"),
            *find_table_columns(_I64, unresolved_ns="part of the time whose dependencies are unresolved"),
        ),
    ),
    Table(
        "step_causes",
        "a cause in one step, by what the device did",
        (
            *(*_WHO, *_STEP, *_WALL),
            *find_table_columns(_TEXT, state="what the device did", absent="why no compute ran"),
            *find_table_columns(_I64, owned_ns="time of the cause; sums to the step"),
        ),
    ),
    Table(
        "slices",
        "an interval of a step with one cause; the intervals of a step have no gap and no overlap",
        (
            *(*_WHO, *_STEP, *_SPAN),
            *find_table_columns(_TEXT, state="what the device did", absent="why no compute ran"),
            *_WALL,
            *find_table_columns(_TEXT, link="kind of the critical constraint; null if compute ran"),
            *find_table_columns(
                _I64,
                op="operation that ran, ended or was launched",
                next_op="operation that waited for this one",
                gap_op="operation that ends the gap",
                call="CUDA call that took the time",
                tid="thread that is the cause",
                slack_ns="how much earlier the wait could have ended without this constraint",
            ),
            *find_table_columns(_YES, inferred="whether the time depends on a wait inferred from timing"),
            *find_table_columns(
                _TEXT, name="name of `op`", call_name="name of `call`", path="NVTX ranges around"
            ),
        ),
    ),
    Table(
        "gaps",
        "an interval without compute inside a step",
        (
            *(*_WHO, *_STEP, *_SPAN),
            *find_table_columns(_TEXT, wall="of the cause", cause="the cause with most of the gap"),
            *find_table_columns(_I64, cause_ns="time of that cause", links="slices of the gap"),
            *find_table_columns(_I64, ended_by_op="operation that ends the gap; null if the step ends"),
            *find_table_columns(_TEXT, ended_by="name of that operation", path="NVTX ranges of its call"),
            *find_table_columns(_I64, call_start_ns="when its issuing call began"),
        ),
    ),
    Table(
        "operations",
        "a device operation: kernel, copy, memset or graph",
        (
            *(*_OP, *_WHO),
            *find_table_columns(_I64, stream="as CUDA numbers it", context="of the stream"),
            *(*_SPAN, *_KIND),
            *find_table_columns(_TEXT, axis="parallel axis of communication"),
            *find_table_columns(_I64, bytes="of copies and memsets", graph_node="inside a CUDA graph"),
            *_CALL,
            *find_table_columns(_I64, call_start_ns="when the issuing call began"),
            *find_table_columns(
                _TEXT, path="NVTX ranges around its issue", path_by="how the range was found"
            ),
        ),
    ),
    Table(
        "calls",
        "a CUDA API call",
        (
            *_CALL,
            *find_table_columns(_I32, pid="its process", tid="its thread"),
            *_SPAN,
            *find_table_columns(
                _TEXT, name="of the function", role="launch, graph, sync, copy, alloc, event or other"
            ),
            *find_table_columns(_I64, correlation="Nsight's number, unique inside a process"),
        ),
    ),
    Table(
        "ranges",
        "an NVTX range",
        (
            *find_table_columns(_I64, range="number of the range"),
            *find_table_columns(_I32, pid="its process", tid="its thread"),
            *_SPAN,
            *find_table_columns(_TEXT, name="its text", path="folded names from the outermost range inwards"),
            *find_table_columns(_I64, parent="enclosing range on the same thread"),
            *find_table_columns(
                _YES, clipped="open when the capture ended", crosses="ended on another thread"
            ),
        ),
    ),
    Table(
        "range_work",
        "a range path in the typical step of a rank",
        (
            *_WHO,
            *find_table_columns(_TEXT, name="innermost name", path="folded names from the outermost inwards"),
            *find_table_columns(
                _I64,
                count="number of ranges that begin in the step",
                host_ns="their time on the host",
                gpu_ns="GPU time of operations launched inside, also in nested ranges",
                own_gpu_ns="the same without nested ranges",
                work_ns="added-up durations of those operations",
                own_work_ns="the same without nested ranges",
                operations="number of operations",
                own_operations="the same without nested ranges",
            ),
        ),
    ),
    Table(
        "kernels",
        "a kernel name in the typical step of a rank",
        (
            *_WHO,
            *find_table_columns(
                _TEXT,
                name="of the kernel",
                **{"class": "class of the operation"},
                category="category or operation",
            ),
            *find_table_columns(_TEXT, backend="library of communication"),
            *find_table_columns(_REAL, count="kernels that begin in a step (mean)"),
            *find_table_columns(_I64, work_ns="added-up durations inside the step"),
            *find_table_columns(_REAL, step_share="share of the step (work)"),
            *find_table_columns(_I64, **dict.fromkeys(("median_ns", "least_ns", "most_ns"), "of durations")),
            *find_table_columns(_REAL, flops_per_s="FLOP/s of kernels whose FLOPs are known from shapes"),
            *find_table_columns(_REAL, peak_share="share of the peak FLOP/s at the precision of the kernel"),
        ),
    ),
    Table(
        "collectives",
        "a communication operation on the device",
        (
            *(*_OP, *_WHO, *_SPAN),
            *find_table_columns(_TEXT, name="its kernel or copy", backend="its library"),
            *_AXIS,
            *find_table_columns(_TEXT, communicator="its hash, hexadecimal", source="source of the data"),
            *find_table_columns(
                _I64,
                participants="number of ranks",
                peers="number of ranks that this rank sends to or receives from",
                bytes="as NCCL counts them",
                bus_bytes="bytes that cross the link of a rank",
            ),
        ),
    ),
    Table(
        "communication",
        "communication of one kind, axis and library in the typical step of a rank",
        (
            *(*_WHO, *_AXIS),
            *find_table_columns(_TEXT, backend="library"),
            *find_table_columns(
                _I64,
                count="operations",
                work_ns="durations added up",
                exposed_ns="nothing else ran",
                bytes="sent",
            ),
            *find_table_columns(_REAL, bus_bandwidth_bytes_per_s="over the duration, with waiting"),
        ),
    ),
    Table(
        "copies",
        "copies of one direction in the typical step of a rank",
        (
            *_WHO,
            *find_table_columns(_TEXT, direction="direction"),
            *find_table_columns(_YES, pinned="whether the host memory is pinned"),
            *find_table_columns(
                _I64,
                count="copies",
                bytes="moved",
                work_ns="durations added up",
                exposed_ns="nothing else ran",
            ),
            *find_table_columns(_REAL, bulk_bandwidth_bytes_per_s="bandwidth of copies of 64 KiB and more"),
        ),
    ),
    Table(
        "compute",
        "compute of one category in the typical step of a rank",
        (
            *_WHO,
            *find_table_columns(_TEXT, category="category"),
            *find_table_columns(_I64, kernels="how many", work_ns="durations added up"),
            *find_table_columns(_REAL, work_share="share of all compute work"),
        ),
    ),
    Table(
        "blocking_calls",
        "calls of one name that drained the queue in the typical step of a rank",
        (
            *_WHO,
            *find_table_columns(_TEXT, name="of the function", path="most frequent NVTX ranges around"),
            *find_table_columns(_REAL, count="number of calls that end in the step"),
            *find_table_columns(_I64, waited_ns="wait of the host in these", drained_ns="GPU idle after"),
        ),
    ),
    Table(
        "gpu_metrics",
        "a sampled metric of the GPU of a rank, in its typical step",
        (
            *_WHO,
            *find_table_columns(_TEXT, metric="the metric"),
            *find_table_columns(_REAL, mean_share="share of the peak"),
            *find_table_columns(_I64, samples="how many"),
        ),
    ),
    Table(
        "opportunities",
        "an upper bound on the gain of removing one cause; upper bounds are not additive",
        (
            *find_table_columns(_TEXT, id="name of the fix"),
            *_WALL,
            *find_table_columns(
                _I64, recoverable_ns="reduction of the step", step_ceiling_ns="remaining step"
            ),
            *find_table_columns(_REAL, speedup_ceiling="step divided by that"),
            *find_table_columns(_TEXT, status="how it is known", evidence="evidence"),
        ),
    ),
    Table(
        "fixes",
        "a fix, the largest gain first",
        (
            *find_table_columns(_I64, place="rank, 1 is the first"),
            *find_table_columns(
                _TEXT,
                fix="name of the fix",
                title="what to do",
                wall="wall of its causes",
                causes="causes that it addresses",
            ),
            *find_table_columns(_YES, blocked="a precondition is unmet"),
            *find_table_columns(_I64, recoverable_ns="upper bound on its gain"),
            *find_table_columns(_REAL, speedup_ceiling="the same as a ratio"),
            *find_table_columns(_TEXT, verify="how to verify it", source="documentation"),
        ),
    ),
    Table(
        "settings",
        "a setting of a fix",
        find_table_columns(
            _TEXT,
            fix="as in `fixes`",
            system="whose setting",
            key="its current name",
            value="value, as written there",
        ),
    ),
    Table(
        "preconditions",
        "a precondition of a fix",
        find_table_columns(
            _TEXT,
            fix="as in `fixes`",
            precondition="name of the precondition",
            text="the condition",
            status="met, unmet or unknown",
            unblock="what to change if the precondition is unmet",
        ),
    ),
    Table(
        "findings",
        "a limit of the capture",
        (
            *find_table_columns(
                _TEXT, code="name", severity="how much", message="what", cure="how to capture better"
            ),
            *find_table_columns(_I64, covers_ns="time concerned"),
        ),
    ),
)
"""All tables of the answer and of its evidence."""


_RANK = (
    *find_table_columns(_I64, place="index of the rank in `ranks` of the answer, from 0"),
    *find_table_columns(_I32, rank="number of the rank in the job"),
)
_CALLED: tuple[TableColumn, ...] = find_table_columns(_TEXT, name="name")

JOB_TABLES = (
    Table(
        "waits",
        "a rank of the job; times are per typical step, durations added up, unless stated otherwise",
        (
            *(*_RANK, *_CALLED),
            *find_table_columns(_TEXT, hostname="host of the rank"),
            *find_table_columns(_I64, group="group of ranks with the same work", stage="pipeline stage"),
            *find_table_columns(_I64, steady_steps="steady steps", step_median_ns="median length of these"),
            *find_table_columns(
                _I64,
                residence_ns="time of the rank in collectives",
                transfer_ns="time in collectives: transfer",
                peer_wait_ns="time in collectives: wait for later ranks",
                pipeline_wait_ns="time in collectives: wait for other stages",
                unsplit_ns="time in collectives: not matched",
                blocking_peer_wait_ns="wait for peers on the critical path",
                blocking_pipeline_wait_ns="wait for stages on the critical path",
                late_ns="critical wait of other ranks for this one",
                all_residence_ns="time of the rank in collectives, whole capture",
                all_wait_ns="wait of the rank for peers, whole capture",
            ),
        ),
    ),
    Table(
        "late_ranks",
        "a rank that others wait for, the worst first",
        (
            *(*_RANK, *_CALLED),
            *find_table_columns(_YES, repeated="whether the rank is late on most steps"),
            *find_table_columns(
                _I64,
                late_ns_median="how long other ranks wait for this rank",
                late_steps="number of steps on which the rank is late",
            ),
            *find_table_columns(_I64, steps="number of compared steps"),
            *find_table_columns(
                _TEXT,
                cause_wall="the wall that delays the rank",
                cause="the cause of that wall",
                reason="the reason in a word",
            ),
            *find_table_columns(_REAL, ratio="time of the cause divided by that on the peers"),
            *find_table_columns(_TEXT, why="the reason in words"),
        ),
    ),
    Table(
        "rank_groups",
        "a group of ranks that do the same work",
        (
            *find_table_columns(
                _I64, group="as in `waits`", count="number of ranks", step_median_ns="median over its ranks"
            ),
            *find_table_columns(_REAL, spread="(longest - shortest) / median of these steps"),
            *find_table_columns(_I64, representative="index of the rank whose step is nearest to the median"),
        ),
    ),
    Table(
        "clocks",
        "a host compared with the reference clock",
        (
            *find_table_columns(_TEXT, hostname="name of the host"),
            *find_table_columns(
                _I64, ranks="ranks on the host", offset_ns="clock offset at the first collective"
            ),
            *find_table_columns(_REAL, drift_ppm="how much faster the clock of the host runs"),
            *find_table_columns(_I64, matched="number of collectives used"),
        ),
    ),
    Table(
        "meetings",
        "a rank in a collective, by its begin on one clock, which counts from the first session",
        (
            *find_table_columns(_I64, meeting="number of the collective, the same for all participants"),
            *_RANK,
            *find_table_columns(_I64, step="step in which it begins"),
            *find_table_columns(
                _TEXT, operation="kind of the operation", axis="parallel axis that it serves"
            ),
            *find_table_columns(_TEXT, communicator="its id, in hexadecimal"),
            *find_table_columns(
                _I64, start_ns="its begin", end_ns="its end", session_ns="its begin in its session"
            ),
            *find_table_columns(
                _I64, joined_ns="when the last rank arrived; null if participants are missing"
            ),
            *find_table_columns(_YES, is_last="this rank arrived last"),
            *find_table_columns(
                _I64, residence_ns="end - start", wait_ns="part of the duration before the last rank arrived"
            ),
            *find_table_columns(
                _I64, transfer_ns="transfer part of the duration", blocking_ns="time on the critical path"
            ),
            *find_table_columns(_I64, blocking_wait_ns="of that, waiting", bytes="of its message"),
        ),
    ),
)
"""The tables of a job."""
