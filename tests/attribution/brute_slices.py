"""Who pays for each moment, the dull way: one moment after the other, asked of all rows."""

from itertools import pairwise
from typing import NamedTuple

from tests.attribution.brute import Link, Model, links
from tests.attribution.brute_trace import NAMES_OF_CALLS, Op, Trace

CAUSES = {
    "launch-latency": "host/launch-latency",
    "launch-call": "host/launch-call",
    "other-call": "host/other-call",
    "synchronisation": "host/synchronisation",
    "allocation": "memory/allocator",
}
REASONS = {
    "operation": "blocking",
    "hand-over": "dependency_stalled",
    "unresolved": "dependency_stalled",
}
NETWORK = ("send", "recv", "connect", "accept")


class Moment(NamedTuple):
    """What is said of a stretch: columns of `SLICES`."""

    step: int
    start: int
    end: int
    state: str
    absent: str | None
    wall: str
    cause: str
    kind: str | None
    op: int
    next_op: int
    call: int
    thread: int


def slices(trace: Trace, edges: list[int]) -> list[Moment]:
    """What is said of all time between the edges."""
    model, bound = Model(trace), links(trace, (edges[0], edges[-1]))
    rows = [*trace.ops, *trace.calls, *trace.host]
    moments = {side for row in rows for side in (row.start, row.end)} | set(edges)
    moments |= {side for link in bound for side in (link.start, link.end)}
    moments = sorted(moment for moment in moments if edges[0] <= moment <= edges[-1])
    found = []
    for start, end in pairwise(moments):
        step = sum(edge <= start for edge in edges) - 1
        found.append(Moment(step, start, end, *_said(model, bound, start)))
    return merged(found)


def merged(rows: list[Moment]) -> list[Moment]:
    """Neighbours of which the same is said as one."""
    found: list[Moment] = []
    for row in rows:
        if found and found[-1]._replace(start=0, end=0) == row._replace(start=0, end=0):
            found[-1] = found[-1]._replace(end=row.end)
        else:
            found.append(row)
    return found


def _said(model: Model, bound: list[Link], at: int) -> tuple[object, ...]:
    ops = model.trace.ops
    running = [row for row, op in enumerate(ops) if op.start <= at < op.end]
    by_kind = {
        kind: [row for row in running if ops[row].kind == kind]
        for kind in ("compute", "opaque_graph", "communication", "copy")
    }
    kernels = by_kind["compute"]
    for owners, state in (
        ([row for row in kernels if not ops[row].again and not ops[row].unknown], "compute"),
        ([row for row in kernels if ops[row].again], "compute"),
        (kernels, "compute"),
        (by_kind["opaque_graph"], "opaque_graph"),
    ):
        if owners:
            cause = cause_of(ops[owners[0]], peers=model.trace.peers)
            return state, None, cause.split("/")[0], cause, None, owners[0], -1, -1, -1
    busy = "exposed_communication" if by_kind["communication"] else "idle"
    state = "exposed_copy" if by_kind["copy"] and busy == "idle" else busy
    link = next(link for link in bound if link.start <= at < link.end)
    cause = _cause(model, link, state, at)
    absent = REASONS.get(link.kind, "launch_starved")
    wall = cause.split("/")[0]
    return state, absent, wall, cause, link.kind, link.op, link.next_op, link.call, link.thread


def cause_of(op: Op, *, peers: bool = False) -> str:
    """What an operation stands for; `peers`: there is somebody that it could communicate with."""
    if op.kind == "compute" and op.unknown and not op.again:
        return "unattributed/unrecognized-kernel" if peers else "compute/unrecognized"
    if op.kind == "compute":
        return "memory/recompute" if op.again else "compute/gemm"
    kinds = {"communication": "communication/unknown/unsplit", "copy": "memory/staging"}
    return kinds.get(op.kind, "unattributed/opaque-graph")


def _cause(model: Model, link: Link, state: str, at: int) -> str:
    """The cause of a moment of a link."""
    ops = model.trace.ops
    if link.kind == "operation":
        return cause_of(ops[link.op])
    if link.kind == "hand-over":
        return _handed_over(ops[link.op], ops[link.next_op])
    if link.kind == "unresolved" and state == "idle" and link.next_op >= 0:
        return "unattributed/held-while-idle"
    if link.kind == "unresolved":
        walls = {"exposed_communication": "communication", "exposed_copy": "memory"}
        return f"{walls.get(state, 'unattributed')}/unresolved"
    if link.kind != "allocation" and _is_open(model.trace, link.thread, at, "profiler"):
        return "unattributed/profiler"
    return CAUSES.get(link.kind) or outside(model, link.thread, at)


def _handed_over(before: Op, after: Op) -> str:
    computing = {"compute", "opaque_graph"}
    if {before.kind, after.kind} <= computing and before.stream == after.stream:
        return "compute/kernel-gap"
    if before.kind in computing:
        return "compute/hand-over"
    return "communication/unknown/hand-over" if before.kind == "communication" else "memory/hand-over"


def _is_open(trace: Trace, thread: int, at: int, kind: str) -> list[str]:
    return [
        row.text or "?"
        for row in trace.host
        if row.thread == thread and row.kind == kind and row.start <= at < row.end
    ]


def outside(model: Model, thread: int, at: int) -> str:
    """What a thread did outside of calls."""
    trace = model.trace
    calls = trace.calls
    issuing = {op.call for op in trace.ops if op.call >= 0}
    blocking = {row for row in range(len(calls)) if model.by_itself(row) is not None}
    launched = [calls[row].start for row in issuing - blocking if calls[row].thread == thread]
    drained = [
        (calls[row].end, row)
        for row in blocking
        if calls[row].thread == thread and calls[row].end <= at and drains(model, row)
    ]
    others = {calls[row].thread for row in issuing} - {thread}
    is_locked = _is_open(trace, thread, at, "lock") and all(
        _is_open(trace, one, at, "lock") for one in others
    )
    texts = _is_open(trace, thread, at, "io")
    if texts and not is_locked:
        if any(text.startswith("epoll_") for text in texts):
            return "host/event-wait"
        return "host/network" if any(text.startswith(NETWORK) for text in texts) else "host/file"
    if drained and not any(max(drained)[0] <= start < at for start in launched):
        return f"host/queue-drained/{NAMES_OF_CALLS[calls[max(drained)[1]].what]}"
    return "host/lock" if is_locked else "host/framework"


def drains(model: Model, call: int) -> bool:
    """Whether a blocking call waited, and left the device without work."""
    made, ops = model.trace.calls[call], model.trace.ops
    waited, _ = model.by_itself(call)
    asks_since = model.asks_since(call)
    entered = made.start if asks_since is None else asks_since
    if not any(ops[op].end > entered for op in waited - {-1}):
        return False
    given = [op.end for row, op in enumerate(ops) if model.issued(row) < made.end]
    own = [op.end for op in ops if op.call == call]  # its copy, which may end after it
    return bool(given) and max(given) <= max([made.end, *own])
