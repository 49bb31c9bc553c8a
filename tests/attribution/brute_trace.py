"""Small traces as plain values, and the frames that the code wants of them."""

from dataclasses import dataclass, field, replace
from typing import NamedTuple

import polars as pl

from wallscope.attribution.attribute import Evidence, OperationFacts, attribute_rank
from wallscope.attribution.attribute import collect_evidence as evidence_of
from wallscope.model.capture import Capture
from wallscope.model.schemas import (
    AXES,
    BYSTANDER_WAITS,
    CALLS,
    CLASSIFIED,
    COLLECTIVE_CALLS,
    COLLECTIVES,
    COPIES,
    COPY_CAUSES,
    DEVICE_STREAMS,
    EVENTS,
    HOST_EVENTS,
    NAMES,
    OPERATIONS,
    PARTNERS,
    RANGES,
    RANKS,
    RECOMPUTE,
    SYNCS,
    THREADS,
    WINDOWS,
    StreamFlag,
)
from wallscope.trace.dependencies import resolve_dependencies
from wallscope.trace.names import bring_together
from wallscope.trace.ranges import RangeTree, nest_ranges, project_ranges

CONTEXT = 1
FIRST_STREAM = 100  # CUDA's numbers are not the dense ones
KINDS = {"compute": "kernel", "communication": "kernel", "copy": "copy", "opaque_graph": "graph"}
NAMES_OF_CALLS = {
    "launch": "cudaLaunchKernel",
    "graph": "cudaGraphLaunch",
    "copy": "cudaMemcpyAsync",
    "memcpy": "cudaMemcpy",
    "alloc": "cudaMalloc",
    "record": "cudaEventRecord",
    "wait": "cudaStreamWaitEvent",
    "stream": "cudaStreamSynchronize",
    "event": "cudaEventSynchronize",
    "context": "cudaDeviceSynchronize",
    "query": "cudaEventQuery",
    "other": "cudaGetDevice",
}
HOST_MEMORY = ("pageable", "pinned")
ROLES = {name: name for name in ("launch", "graph", "copy", "alloc", "other")}
ROLES |= {
    "memcpy": "copy",
    "record": "event",
    "wait": "event",
    "query": "event",
    "stream": "sync",
    "event": "sync",
    "context": "sync",
}


class Call(NamedTuple):
    """A call of the host; `what` is a key of `NAMES_OF_CALLS`."""

    thread: int
    start: int
    end: int
    what: str


class Op(NamedTuple):
    """A device operation; `call` is its place in the calls, -1 without one; `again`: recomputed.

    `moves` is the memory at both ends of a copy, as `pageable>device`, nothing where it is not told;
    kernels may have a name; `unknown`: a kernel whose name says nothing.
    """

    stream: int
    start: int
    end: int
    kind: str
    call: int = -1
    again: bool = False
    node: int | None = None
    moves: str = ""
    unknown: bool = False
    name: str = ""


class Record(NamedTuple):
    """A row of CUDA_EVENT: which call recorded which event into which stream."""

    call: int
    stream: int
    event: int
    number: int | None


class Sync(NamedTuple):
    """A row of SYNCHRONIZATION; `kind` is one of stream, event, context, wait."""

    call: int
    kind: str
    stream: int | None = None
    event: int | None = None
    number: int | None = None


class HostRow(NamedTuple):
    """A row of the operating system or of the profiler: lock, io or profiler."""

    thread: int
    start: int
    end: int
    kind: str
    text: str = ""


class Range(NamedTuple):
    """An NVTX range."""

    thread: int
    start: int
    end: int
    text: str


@dataclass(frozen=True)
class Trace:
    """One process on one device; operations are in order of start, calls in order of thread and start."""

    ops: tuple[Op, ...]
    calls: tuple[Call, ...] = ()
    records: tuple[Record, ...] = ()
    syncs: tuple[Sync, ...] = ()
    flags: dict[int, str] = field(default_factory=dict)
    host: tuple[HostRow, ...] = ()
    ranges: tuple[Range, ...] = ()
    peers: bool = False


def in_order(trace: Trace) -> Trace:
    """The trace with operations and calls sorted as frames are, and numbered anew."""
    order = sorted(range(len(trace.calls)), key=lambda row: (trace.calls[row].thread, trace.calls[row].start))
    place = {old: new for new, old in enumerate(order)} | {-1: -1}
    ops = sorted(trace.ops, key=lambda op: op.start)
    return replace(
        trace,
        ops=tuple(op._replace(call=place[op.call]) for op in ops),
        calls=tuple(trace.calls[row] for row in order),
        records=tuple(row._replace(call=place[row.call]) for row in trace.records),
        syncs=tuple(row._replace(call=place[row.call]) for row in trace.syncs),
        host=tuple(sorted(trace.host)),
        ranges=tuple(sorted(trace.ranges, key=lambda row: (row.thread, row.start, -row.end))),
    )


def shifted(trace: Trace, by: int) -> Trace:
    """The trace with all times moved."""

    def moved(rows):
        return tuple(row._replace(start=row.start + by, end=row.end + by) for row in rows)

    ranges, host = moved(trace.ranges), moved(trace.host)
    return replace(trace, ops=moved(trace.ops), calls=moved(trace.calls), host=host, ranges=ranges)


def _frame(rows: list[dict[str, object]], schema: pl.Schema) -> pl.DataFrame:
    return pl.DataFrame(rows, schema=schema) if rows else schema.to_frame()


def operations(trace: Trace) -> pl.DataFrame:
    """`CLASSIFIED`."""
    dense, names = _dense(trace), sorted({op.name for op in trace.ops if op.name})
    return _frame(
        [
            {
                "op": row,
                "rank_id": 0,
                "stream": dense[op.stream],
                "start_ns": op.start,
                "end_ns": op.end,
                "kind": KINDS[op.kind],
                "name": names.index(op.name) if op.name else None,
                "call": op.call,
                "graph_node": op.node,
                "class": op.kind,
                "category": ("unrecognized" if op.unknown else "gemm") if op.kind == "compute" else None,
            }
            for row, op in enumerate(trace.ops)
        ],
        CLASSIFIED,
    )


def _dense(trace: Trace) -> dict[int, int]:
    return {stream: row for row, stream in enumerate(sorted({op.stream for op in trace.ops}))}


def capture(trace: Trace) -> Capture:
    """The trace as read from an export."""
    names = list(NAMES_OF_CALLS)
    threads = 1 + max((row.thread for row in (*trace.calls, *trace.host, *trace.ranges)), default=-1)
    calls = [
        {
            "call": row,
            "thread": call.thread,
            "start_ns": call.start,
            "end_ns": call.end,
            "name": names.index(call.what),
            "role": ROLES[call.what],
        }
        for row, call in enumerate(trace.calls)
    ]
    numbers = _dense(trace)
    numbers |= {
        stream: len(numbers) + place
        for place, stream in enumerate(
            one for one, flag in trace.flags.items() if flag == NULL and one not in numbers
        )
    }
    streams = [
        {
            "stream": row,
            "rank_id": 0,
            "process": 0,
            "context": CONTEXT,
            "number": FIRST_STREAM + stream,
            "flags": trace.flags.get(stream),
        }
        for stream, row in numbers.items()
    ]
    told = {
        "operations": operations(trace).select(OPERATIONS.names()),
        "ranks": pl.DataFrame({"rank_id": [0], "process": [0], "device": [0]}, schema_overrides=RANKS),
        "copies": _copies(trace),
        "streams": _frame(streams, DEVICE_STREAMS),
        "threads": _frame([{"thread": thread, "process": 0} for thread in range(threads)], THREADS),
        "calls": _frame(calls, CALLS),
        "call_names": _names([NAMES_OF_CALLS[name] for name in names]),
        "syncs": _frame([_sync(trace, row) for row in trace.syncs], SYNCS),
        "events": _frame([_record(trace, row) for row in trace.records], EVENTS),
        **_host(trace),
        "bystander_waits": BYSTANDER_WAITS.to_frame(),
        "collective_calls": COLLECTIVE_CALLS.to_frame(),
        "findings": (),
    }
    return Capture(**{name: told.get(name) for name in Capture.__dataclass_fields__})


def _copies(trace: Trace) -> pl.DataFrame:
    """What is told of copies."""
    ways = {(True, True): "host-to-host", (True, False): "host-to-device", (False, True): "device-to-host"}
    rows = []
    for row, op in enumerate(trace.ops):
        if op.moves:
            source, destination = op.moves.split(">")
            way = ways.get((source in HOST_MEMORY, destination in HOST_MEMORY), "device-to-device")
            rows.append({"op": row, "direction": way, "source": source, "destination": destination})
    return _frame(rows, COPIES)


def _names(texts: list[str]) -> pl.DataFrame:
    return pl.DataFrame({"name": range(len(texts)), "text": texts}, schema=NAMES)


def _host(trace: Trace) -> dict[str, pl.DataFrame]:
    """What threads did beside calls."""
    texts = sorted({row.text for row in (*trace.host, *trace.ranges)})

    def rows(held):
        return [
            {"thread": row.thread, "start_ns": row.start, "end_ns": row.end, "name": texts.index(row.text)}
            for row in held
        ]

    ranges = [
        row | {"range": number, "domain": 0, "clipped": False, "crosses": False}
        for number, row in enumerate(rows(trace.ranges))
    ]
    host = [row | {"kind": told.kind} for row, told in zip(rows(trace.host), trace.host, strict=True)]
    return {
        "host_events": _frame(host, HOST_EVENTS),
        "host_names": _names(texts),
        "ranges": _frame(ranges, RANGES),
        "range_names": bring_together(_names(texts)),
    }


def _sync(trace: Trace, row: Sync) -> dict[str, object]:
    call = trace.calls[row.call]
    return {
        "process": 0,
        "thread": call.thread,
        "call": row.call,
        "kind": row.kind,
        "start_ns": call.start,
        "end_ns": call.end,
        "context": CONTEXT,
        "stream": None if row.stream is None else FIRST_STREAM + row.stream,
        "event": row.event,
        "event_sync": row.number,
    }


def _record(trace: Trace, row: Record) -> dict[str, object]:
    return {
        "process": 0,
        "thread": trace.calls[row.call].thread,
        "call": row.call,
        "context": CONTEXT,
        "stream": FIRST_STREAM + row.stream,
        "event": row.event,
        "event_sync": row.number,
    }


def evidence(trace: Trace) -> Evidence:
    """What slices are told from."""
    held, ops = capture(trace), operations(trace)
    copies = [{"op": row, "cause": "staging"} for row, op in enumerate(trace.ops) if op.kind == "copy"]
    again = [{"op": row, "how": "explicit"} for row, op in enumerate(trace.ops) if op.again]
    facts = OperationFacts(
        axes=AXES.to_frame(),
        collectives=COLLECTIVES.to_frame(),
        partners=PARTNERS.to_frame(),
        copies=_frame(copies, COPY_CAUSES),
        recomputed=_frame(again, RECOMPUTE),
        backward_ranks=frozenset(),
    )
    tree, paths, names = nest_ranges(held.ranges, held.range_names, held.calls, held.threads)
    of_process = tree.join(held.threads.select("thread", "process"), on="thread", maintain_order="left")
    projected = project_ranges(held.operations, held.calls, tree, held.threads)
    ranges = RangeTree(of_process, paths, names)
    waits = resolve_dependencies(held)
    return evidence_of(ops, held, waits, facts, ranges, projected, may_communicate=trace.peers)


def slices(trace: Trace, edges: list[int]) -> pl.DataFrame:
    """The slices of the windows between neighbouring edges."""
    return attribute_rank(evidence(trace), operations(trace), windows(edges)).cast({"cause": pl.String})


def windows(edges: list[int]) -> pl.DataFrame:
    """`WINDOWS` between neighbouring edges."""
    rows = [(0, step, *edges[step : step + 2]) for step in range(len(edges) - 1)]
    return pl.DataFrame(rows, schema=WINDOWS, orient="row")


BLOCKING, NULL, NONBLOCKING = (
    str(flag) for flag in (StreamFlag.BLOCKING, StreamFlag.NULL, StreamFlag.NONBLOCKING)
)
