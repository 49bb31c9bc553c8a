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
    """A column: its name, its type, and what stands in it."""

    name: str
    kind: pl.DataType
    meaning: str


@dataclass(frozen=True, slots=True)
class Table:
    """A table by name: what one row is, and its columns in order."""

    name: str
    row_is: str
    columns: tuple[TableColumn, ...]

    @property
    def schema(self) -> pl.Schema:
        """Names and types of the columns."""
        return pl.Schema({column.name: column.kind for column in self.columns})


def find_table_columns(kind: pl.DataType, /, **meanings: str) -> tuple[TableColumn, ...]:
    """Columns of one type, and what stands in each."""
    return tuple(TableColumn(name, kind, meaning) for name, meaning in meanings.items())


_WHO = find_table_columns(
    _I32,
    rank="number of the rank in the job",
    pid="its process",
    device="CUDA ordinal inside the process",
)
_SPAN = find_table_columns(_I64, start_ns="begin", end_ns="end", duration_ns="end - start")
_STEP = find_table_columns(_I64, step="number of the step")
_WALL = find_table_columns(_TEXT, wall="who pays", cause="wall/cause[/detail]; docs/causes.md tells each")
_OP = find_table_columns(_I64, op="number of the device operation, as in `operations`")
_WALL_TIMES = tuple(TableColumn(f"{wall}_wall_ns", _I64, f"what {wall} pays for") for wall in Wall)
_BUDGET = find_table_columns(
    _I64,
    compute_ns="compute ran",
    opaque_graph_ns="a CUDA graph that was traced as a whole ran, no compute",
    exposed_communication_ns="communication ran, none of those",
    exposed_copy_ns="a copy or fill ran, none of those",
    idle_ns="nothing ran",
)
_KIND = find_table_columns(
    _TEXT,
    kind="kernel, copy, fill or graph",
    name="the kernel, or kind and direction of a copy",
    **{"class": "compute, opaque_graph, communication or copy"},
    category="what it calculates, communicates or where it copies",
    backend="library of a communication operation",
)
_AXIS = find_table_columns(
    _TEXT,
    operation="what it does",
    axis="dimension of the job that it serves",
    evidence="what tells the axis",
)
_CALL = find_table_columns(_I64, call="number of the API call, as in `calls`")

TABLES = (
    Table(
        "ranks",
        "a rank: one process on one device",
        (
            *_WHO,
            *find_table_columns(_TEXT, rank_source="what told the number", gpu="model of the GPU"),
            *find_table_columns(_I64, steps="how many steps it has", steady_steps="of these, how many count"),
            *find_table_columns(
                _I64, typical_step_ns="mean of the steady steps", outside_ns="before the first step"
            ),
            *_WALL_TIMES,
            *_BUDGET,
        ),
    ),
    Table(
        "steps",
        "a step of a rank; budget and walls sum to its duration, each",
        (
            *(*_WHO, *_STEP, *_SPAN, *_BUDGET, *_WALL_TIMES),
            *find_table_columns(
                _I64,
                launch_starved_ns="no compute: too little was issued",
                blocking_ns="no compute: an operation was in the way",
                dependency_stalled_ns="no compute: work was handed over",
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
            *find_table_columns(_I64, typical_ns="what it owns of the typical step"),
            *find_table_columns(_REAL, step_share="the same over the step"),
            *find_table_columns(_I64, recoverable_ns="ceiling: what the step would get shorter without it"),
            *find_table_columns(_I64, unresolved_ns="part of it whose owner is not known"),
        ),
    ),
    Table(
        "step_causes",
        "what a cause owns of one step, by what the device did",
        (
            *(*_WHO, *_STEP, *_WALL),
            *find_table_columns(_TEXT, state="what the device did", absent="why no compute ran"),
            *find_table_columns(_I64, owned_ns="sums to the step"),
        ),
    ),
    Table(
        "slices",
        "a stretch of a step with one owner; the slices of a step tile it",
        (
            *(*_WHO, *_STEP, *_SPAN),
            *find_table_columns(_TEXT, state="what the device did", absent="why no compute ran"),
            *_WALL,
            *find_table_columns(_TEXT, link="what bound the device; null where it computed"),
            *find_table_columns(
                _I64,
                op="operation that ran, handed over or was launched",
                next_op="operation that waited for it",
                gap_op="operation that ends the gap",
                call="API call that held",
                tid="thread that held",
                slack_ns="how much earlier the next constraint would have bound",
            ),
            *find_table_columns(_YES, inferred="whether a wait led here that times alone tell"),
            *find_table_columns(
                _TEXT, name="name of `op`", call_name="name of `call`", path="NVTX ranges around"
            ),
        ),
    ),
    Table(
        "gaps",
        "a stretch without compute inside a step",
        (
            *(*_WHO, *_STEP, *_SPAN),
            *find_table_columns(_TEXT, wall="of the cause", cause="the one that owns most of it"),
            *find_table_columns(_I64, cause_ns="what that cause owns", links="slices of the gap"),
            *find_table_columns(_I64, ended_by_op="operation that ends it; null where the step ends"),
            *find_table_columns(_TEXT, ended_by="its name", path="NVTX ranges around its issue"),
            *find_table_columns(_I64, call_start_ns="when its issuing call began"),
        ),
    ),
    Table(
        "operations",
        "a device operation: kernel, copy, fill or graph",
        (
            *(*_OP, *_WHO),
            *find_table_columns(_I64, stream="as CUDA numbers it", context="of the stream"),
            *(*_SPAN, *_KIND),
            *find_table_columns(_TEXT, axis="dimension of the job that communication serves"),
            *find_table_columns(_I64, bytes="of copies and fills", graph_node="inside a CUDA graph"),
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
            *find_table_columns(_I64, parent="range around it on the thread"),
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
                count="ranges that begin in the step",
                host_ns="their time on the host",
                gpu_ns="time in which operations issued inside ran, ranges inside included",
                own_gpu_ns="the same without the ranges inside",
                work_ns="added-up durations of those operations",
                own_work_ns="the same without the ranges inside",
                operations="how many operations",
                own_operations="the same without the ranges inside",
            ),
        ),
    ),
    Table(
        "kernels",
        "a kernel name in the typical step of a rank",
        (
            *_WHO,
            *find_table_columns(
                _TEXT, name="of the kernel", **{"class": "who pays"}, category="what it calculates"
            ),
            *find_table_columns(_TEXT, backend="library of communication"),
            *find_table_columns(_REAL, count="kernels that begin in a step, the mean"),
            *find_table_columns(_I64, work_ns="added-up durations inside the step"),
            *find_table_columns(_REAL, step_share="work over the step"),
            *find_table_columns(
                _I64, median_ns="of durations", least_ns="of durations", most_ns="of durations"
            ),
        ),
    ),
    Table(
        "collectives",
        "a communication operation on the device",
        (
            *(*_OP, *_WHO, *_SPAN),
            *find_table_columns(_TEXT, name="its kernel or copy", backend="its library"),
            *_AXIS,
            *find_table_columns(
                _TEXT, communicator="its hash, hexadecimal", source="what told the facts of the call"
            ),
            *find_table_columns(
                _I64,
                participants="ranks that take part",
                peers="ranks that it sends to or receives from",
                bytes="as NCCL counts them",
                bus_bytes="what the link of a rank carries for that",
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
                exposed_ns="beside nothing",
                bytes="sent",
            ),
            *find_table_columns(
                _REAL, bus_bandwidth_bytes_per_s="over the duration, which includes waiting for peers"
            ),
        ),
    ),
    Table(
        "copies",
        "copies of one direction in the typical step of a rank",
        (
            *_WHO,
            *find_table_columns(_TEXT, direction="from where to where"),
            *find_table_columns(_YES, pinned="whether the host memory is"),
            *find_table_columns(
                _I64, count="copies", bytes="moved", work_ns="durations added up", exposed_ns="beside nothing"
            ),
            *find_table_columns(_REAL, bulk_bandwidth_bytes_per_s="of copies of 64 KiB and more"),
        ),
    ),
    Table(
        "compute",
        "compute of one category in the typical step of a rank",
        (
            *_WHO,
            *find_table_columns(_TEXT, category="what is calculated"),
            *find_table_columns(_I64, kernels="how many", work_ns="durations added up"),
            *find_table_columns(_REAL, work_share="of all such work"),
        ),
    ),
    Table(
        "blocking_calls",
        "calls of one name that drained the queue in the typical step of a rank",
        (
            *_WHO,
            *find_table_columns(_TEXT, name="of the function", path="commonest NVTX ranges around"),
            *find_table_columns(_REAL, count="calls that end in the step"),
            *find_table_columns(
                _I64, waited_ns="how long the host stood in them", drained_ns="what they cost the step"
            ),
        ),
    ),
    Table(
        "gpu_metrics",
        "a sampled metric of the GPU of a rank, in its typical step",
        (
            *_WHO,
            *find_table_columns(_TEXT, metric="what is measured"),
            *find_table_columns(_REAL, mean_share="of the peak"),
            *find_table_columns(_I64, samples="how many"),
        ),
    ),
    Table(
        "opportunities",
        "a ceiling: what removing one cause could win at most; they do not add up",
        (
            *find_table_columns(_TEXT, id="its name"),
            *_WALL,
            *find_table_columns(
                _I64, recoverable_ns="what the step would get shorter", step_ceiling_ns="the step then"
            ),
            *find_table_columns(_REAL, speedup_ceiling="step over that"),
            *find_table_columns(_TEXT, status="how it is known", evidence="what tells it"),
        ),
    ),
    Table(
        "fixes",
        "a remedy, the most worthwhile first",
        (
            *find_table_columns(_I64, place="1 is the first"),
            *find_table_columns(
                _TEXT, fix="its name", title="what to do", wall="of its causes", causes="that it answers"
            ),
            *find_table_columns(_YES, blocked="a precondition is unmet"),
            *find_table_columns(_I64, recoverable_ns="largest ceiling among its causes"),
            *find_table_columns(_REAL, speedup_ceiling="the same as a ratio"),
            *find_table_columns(_TEXT, verify="how to see that it works", source="where it is documented"),
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
            value="as written there",
        ),
    ),
    Table(
        "preconditions",
        "what must hold before a fix can work",
        find_table_columns(
            _TEXT,
            fix="as in `fixes`",
            precondition="its name",
            text="what must hold",
            status="met, unmet or unknown",
            unblock="what to change where it is unmet",
        ),
    ),
    Table(
        "findings",
        "something about the capture that limits a claim",
        (
            *find_table_columns(
                _TEXT, code="its name", severity="how much", message="what", cure="how to capture better"
            ),
            *find_table_columns(_I64, covers_ns="time concerned"),
        ),
    ),
)
"""All tables, those of the answer and those of its evidence."""


_RANK = (
    *find_table_columns(_I64, place="of the rank in `ranks` of the answer, from 0"),
    *find_table_columns(_I32, rank="its number in the job"),
)
_CALLED: tuple[TableColumn, ...] = find_table_columns(_TEXT, name="what it is called")

JOB_TABLES = (
    Table(
        "waits",
        "a rank of the job; times without another word are of its typical step, durations added up",
        (
            *(*_RANK, *_CALLED),
            *find_table_columns(_TEXT, hostname="where it ran"),
            *find_table_columns(_I64, group="of ranks that do the same work", stage="of the pipeline"),
            *find_table_columns(
                _I64, steady_steps="how many steps count", step_median_ns="median length of these"
            ),
            *find_table_columns(
                _I64,
                residence_ns="its collectives last",
                transfer_ns="of it, bytes move",
                peer_wait_ns="of it, it waits for ranks that came later",
                pipeline_wait_ns="of it, it waits for other stages",
                unsplit_ns="of it, what was not matched",
                blocking_peer_wait_ns="waits for peers on the binding chain",
                blocking_pipeline_wait_ns="waits for stages on the binding chain",
                late_ns="others wait for it on their chains",
                all_residence_ns="its collectives last, in the whole capture",
                all_wait_ns="it waits for peers, in the whole capture",
            ),
        ),
    ),
    Table(
        "late_ranks",
        "a rank that others wait for, the worst first",
        (
            *(*_RANK, *_CALLED),
            *find_table_columns(_YES, repeated="late on most steps, not in turn with others"),
            *find_table_columns(
                _I64, late_ns_median="what others wait for it", late_steps="on how many steps"
            ),
            *find_table_columns(_I64, steps="of how many"),
            *find_table_columns(
                _TEXT, cause_wall="the wall that kept it", cause="of that wall", reason="in a word"
            ),
            *find_table_columns(_REAL, ratio="how much longer that takes than on its peers"),
            *find_table_columns(_TEXT, why="in words"),
        ),
    ),
    Table(
        "rank_groups",
        "a group of ranks that do the same work",
        (
            *find_table_columns(
                _I64, group="as in `waits`", count="of ranks", step_median_ns="median of their medians"
            ),
            *find_table_columns(_REAL, spread="longest less shortest of these, over their median"),
            *find_table_columns(_I64, representative="place of the rank that is nearest to the median"),
        ),
    ),
    Table(
        "clocks",
        "a host against the clock of reference",
        (
            *find_table_columns(_TEXT, hostname="its name"),
            *find_table_columns(
                _I64, ranks="how many ran on it", offset_ns="of its clock at its first collective"
            ),
            *find_table_columns(_REAL, drift_ppm="how much faster its clock runs"),
            *find_table_columns(_I64, matched="collectives that tell it"),
        ),
    ),
    Table(
        "meetings",
        "a rank in a collective, in order of its begin on one clock, which counts from the first session",
        (
            *find_table_columns(_I64, meeting="number of the collective, the same of all that take part"),
            *_RANK,
            *find_table_columns(_I64, step="that it begins in"),
            *find_table_columns(_TEXT, operation="what it does", axis="dimension of the job that it serves"),
            *find_table_columns(_TEXT, communicator="its id, in hexadecimal"),
            *find_table_columns(
                _I64, start_ns="it came in", end_ns="it was through", session_ns="its begin in its session"
            ),
            *find_table_columns(_I64, joined_ns="the last one came in; null where participants lack"),
            *find_table_columns(_YES, is_last="it came last"),
            *find_table_columns(_I64, residence_ns="end - start", wait_ns="of it, before the last came"),
            *find_table_columns(_I64, transfer_ns="of it, bytes move", blocking_ns="it owns on the chain"),
            *find_table_columns(_I64, blocking_wait_ns="of that, waiting", bytes="of its message"),
        ),
    ),
)
"""What ranks tell together, as tables."""
