"""Read a trace of PyTorch's profiler once into the frames of a capture, or list its content."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import polars as pl

from wallscope.errors import InputError
from wallscope.kineto.device_rows import (
    build_collective_calls,
    build_device_rows,
    build_kernel_flops,
    build_kernel_occupancy,
    number_graph_nodes,
)
from wallscope.kineto.event_tables import TraceTables, read_trace_tables
from wallscope.kineto.host_rows import build_events, build_raw_calls, build_syncs, build_trace_ranges
from wallscope.kineto.trace_bytes import OversizeError, TraceBytes
from wallscope.kineto.trace_identity import (
    TIMED,
    find_processes,
    find_session_start_ns,
    identify_trace,
    identify_trace_ranks,
    join_thread_ids,
    number_trace_threads,
    read_job_facts,
    read_trace_conditions,
)
from wallscope.kineto.trace_limits import (
    find_damage,
    find_presence,
    find_trace_limits,
    refuse_empty_trace,
    refuse_other_traces,
)
from wallscope.model.capture import (
    Capture,
    Contents,
    GraphTracing,
    Progress,
    TableContents,
)
from wallscope.model.enums import CallRole
from wallscope.model.schemas import (
    BYSTANDER_WAITS,
    CPU_SAMPLES,
    HOST_EVENTS,
    MEMORY_EVENTS,
    NAMES,
    SAMPLES,
    STREAMS,
    THREADS,
)
from wallscope.nsys.calls import Calls, add_flags, build_calls
from wallscope.nsys.load import find_free_bytes
from wallscope.nsys.operations import number_origins, sort_device_work
from wallscope.process_tuning import release_memory
from wallscope.trace.device_clocks import align_device_clocks

_ON_CUDA = 1  # number of CUDA among the device types of PyTorch
_MEANINGS = {
    "kernel": "kernels",
    "gpu_memcpy": "memory copies",
    "gpu_memset": "memory fills",
    "cuda_runtime": "calls of the CUDA runtime",
    "cuda_driver": "calls of the CUDA driver",
    "cuda_sync": "CUDA synchronisations",
    "cuda_event": "CUDA events",
    "cpu_op": "operators of PyTorch",
    "user_annotation": "annotations of the program",
    "gpu_user_annotation": "annotations projected onto the device",
    "python_function": "Python functions",
    "overhead": "overheads of the profiler",
    "fwdbwd": "links from forward to backward",
    "Kernel": "kernels",
    "Memcpy": "memory copies",
    "Memset": "memory fills",
    "Runtime": "calls of the CUDA runtime",
    "Operator": "operators of PyTorch",
    "async": "links from calls to the device",
}
"""Descriptions of event categories for `wallscope info`."""


def read_trace_capture(path: Path, progress: Progress, *, with_python: bool = False) -> Capture:
    """Return the device operations of a trace, and its limits.

    Python functions, very many in a trace with stacks, become ranges only on request.

    Raises:
        InputError: the file is not a readable trace.
        NothingToAnalyzeError: it has no device operation.
    """
    tables = load_trace_tables(path, progress, with_python=with_python)
    refuse_empty_trace(path, tables)
    return build_trace_capture(path, tables)


def load_trace_tables(path: Path, progress: Progress, *, with_python: bool = False) -> TraceTables:
    """Return the events of a trace as frames.

    Raises:
        InputError: the file is not a readable trace.
    """
    try:
        with path.open("rb") as stream:
            source = TraceBytes(stream, find_free_bytes)
            tables = read_trace_tables(source, progress, with_python=with_python)
    except OversizeError as error:
        raise InputError(f"{path} — {error} — profile fewer steps, or raise the limit of memory") from error
    except OSError as error:
        raise InputError(f"{path} — cannot be read: {error.strerror} — check the path") from error
    refuse_other_traces(path, tables)
    return tables


def build_trace_capture(path: Path, tables: TraceTables) -> Capture:
    """Return the capture from the events of a trace."""
    start_ns = find_session_start_ns(tables)
    export, job = identify_trace(path, tables, start_ns), read_job_facts(tables)
    numbered = number_trace_threads(tables)
    threads = numbered.select(THREADS.names()).cast(THREADS)
    called = join_thread_ids(tables.frames["calls"], numbered)
    made = build_calls(build_raw_calls(tables, called), threads, start_ns)

    def process_of(rows: pl.DataFrame) -> pl.Series:
        return find_processes(rows, called)

    rows = build_device_rows(tables)
    rows = rows.with_columns(process_of(rows.select(correlation="correlationId", device="deviceId")))
    ranks, contradictions = identify_trace_ranks(export, job, rows, numbered)
    names, name = tables.number_names(rows["text"])
    origin, origins = number_origins(rows)
    rows = rows.drop("text").with_columns(name, origin)
    work = sort_device_work(rows, origins, names, ranks, made, start_ns)
    operations = number_graph_nodes(work.operations, made.calls)
    ranges, range_names, autograd = build_trace_ranges(tables, numbered, start_ns)
    syncs = process_of(tables.frames["syncs"])
    kernels = tables.frames["kernels"]
    collective_calls, communicators = build_collective_calls(kernels, process_of(kernels), made, job)
    release_memory()
    capture = Capture(
        export=export,
        presence=find_presence(tables),
        graphs=_find_graphs(operations, made),
        ranks=ranks,
        names=work.names,
        operations=operations,
        copies=work.copies,
        kernels=work.kernels,
        streams=add_flags(work.streams, STREAMS.to_frame()),
        threads=threads,
        calls=made.calls,
        call_names=made.names,
        syncs=build_syncs(tables, syncs, threads, made, start_ns),
        events=build_events(tables, syncs, threads, made),
        host_events=HOST_EVENTS.to_frame(),
        host_names=NAMES.to_frame(),
        bystander_waits=BYSTANDER_WAITS.to_frame(),
        ranges=ranges,
        range_names=range_names,
        collective_calls=collective_calls,
        communicators=communicators,
        memory=_read_memory(tables, process_of, start_ns),
        cpu_samples=CPU_SAMPLES.to_frame(),
        samples=SAMPLES.to_frame(),
        metric_names=NAMES.to_frame(),
        findings=(),
        world_size=job.world_size,
        kernel_flops=build_kernel_flops(tables, numbered, work, made, start_ns),
        kernel_occupancy=build_kernel_occupancy(tables, work.raw_place),
        autograd_ranges=autograd,
        conditions=read_trace_conditions(tables),
    )
    capture, clocks = align_device_clocks(capture)
    return replace(capture, findings=(*find_trace_limits(tables, capture, clocks), *contradictions))


def _find_graphs(operations: pl.DataFrame, made: Calls) -> GraphTracing:
    """Kernels of graphs are traced one by one."""
    call = operations["call"].to_numpy()
    roles = made.calls["role"].gather(call[call >= 0])
    return GraphTracing.NODE if (roles == CallRole.GRAPH).any() else GraphTracing.NONE


def _read_memory(
    tables: TraceTables, process_of: Callable[[pl.DataFrame], pl.Series], start_ns: int
) -> pl.DataFrame:
    """Return the reserved memory of PyTorch's allocator after each change (`MEMORY_EVENTS`)."""
    rows = tables.frames["allocations"].filter(
        (pl.col("device_type") == _ON_CUDA) & (pl.col("reserved_bytes") >= 0) & (pl.col("device_id") >= 0)
    )
    keyed = rows.select(correlation=pl.lit(None, pl.Int64), device="device_id")
    return (
        rows.with_columns(process_of(keyed))
        .select(
            "process",
            device="device_id",
            at_ns=pl.col("start") - start_ns,
            bytes_used="reserved_bytes",
        )
        .sort("process", "device", "at_ns", maintain_order=True)
        .cast(MEMORY_EVENTS)
    )


def read_trace_contents(path: Path, progress: Progress) -> Contents:
    """Return identity and events of a trace by category, and its limits.

    Raises:
        InputError: the file is not a readable trace.
    """
    tables = load_trace_tables(path, progress)
    start_ns = find_session_start_ns(tables)
    ends = [tables.frames[name]["end"].max() for name in TIMED]
    last_ns = max((end for end in ends if isinstance(end, int)), default=None)
    findings = build_trace_capture(path, tables).findings if tables.has_work else find_damage(tables)
    return Contents(
        export=identify_trace(path, tables, start_ns),
        has_device_work=tables.has_work,
        traced=tuple(sorted(tables.counts)),
        duration_ns=None if last_ns is None else last_ns - start_ns,
        graph_mode="node",
        processes=tables.frames["calls"]["pid"].n_unique(),
        tables=tuple(
            TableContents(category, meaning, tables.counts.get(category))
            for category, meaning in _MEANINGS.items()
        ),
        other_tables=len(set(tables.counts) - set(_MEANINGS)),
        findings=findings,
    )
