"""Read an export once into plain frames if it fits into memory, or list its content.

A process that requests more memory than available is killed without a message, so a refusal states the
required memory. Limits: `getrlimit(2)`; `proc_meminfo(5)`, MemAvailable;
https://docs.kernel.org/admin-guide/cgroup-v2.html, "memory.max", and cgroup-v1/memory.html,
"memory.limit_in_bytes". If the system provides none of them, nothing is refused.
"""

import re
import sys
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path

import polars as pl

from wallscope.errors import InputError, NothingToAnalyzeError
from wallscope.model.capture import Capture, Contents, Presence, Progress, TableContents
from wallscope.model.enums import OperationKind, Reader
from wallscope.model.rank_summaries import CLOCK_METRIC, SPELLED
from wallscope.nsys import findings
from wallscope.nsys import tables as catalog
from wallscope.nsys.calls import (
    RawCalls,
    add_flags,
    build_calls,
    keep_calls,
    read_calls,
    read_events,
    read_streams,
    read_syncs,
)
from wallscope.nsys.collectives import Collectives, read_collectives
from wallscope.nsys.findings import (
    check_calls,
    check_loss_reasons,
    check_overhead,
    check_payloads,
    check_ranges,
    count_launches,
    find_loss_reasons,
    has_begun_inside,
)
from wallscope.nsys.gpu_counters import read_memory, read_samples
from wallscope.nsys.host_events import (
    SAMPLES,
    SWITCHES,
    build_ranges,
    count_untimed_ranges,
    read_cpu_samples,
    read_host_events,
    read_ranges,
)
from wallscope.nsys.identity import (
    identify_export,
    list_processes,
    number_processes,
    number_threads,
    process_of,
    read_capture_options,
    read_conditions,
    read_duration_ns,
    read_export_facts,
    read_program_hints,
)
from wallscope.nsys.integrity import is_folder
from wallscope.nsys.network_counters import read_traffic
from wallscope.nsys.operations import RawOperations, build_device_work, keep_operations, read_operations
from wallscope.nsys.ranks import Ranks, identify_ranks
from wallscope.nsys.shaped_ranges import count_shaped_ranges
from wallscope.nsys.sources import open_tables
from wallscope.nsys.tables import Database, Tables, make_database
from wallscope.process_tuning import release_memory, run_both
from wallscope.trace.device_clocks import align_device_clocks
from wallscope.trace.record_times import RecordTimes, count_time_faults, find_extent, mark_possible
from wallscope.units import plural, size

_OPERATION_BYTES, _CALL_BYTES, _RANGE_BYTES = 230, 60, 70
"""Minimum memory per row during the analysis. Measured: three quarters of the use for five million rows."""
_SWITCH_BYTES, _SAMPLE_BYTES = 140, 55
"""Minimum memory per scheduler row and CPU sample while they are read, measured likewise."""
_MOST_OF_A_FILE = 12
"""No SQLite file needs more than this multiple of its size: rows are counted only if there is less memory."""

_SYSTEM = Path("/")
_GROUPS = (
    ("sys/fs/cgroup/memory.max", "sys/fs/cgroup/memory.current", "sys/fs/cgroup/memory.stat"),
    (
        "sys/fs/cgroup/memory/memory.limit_in_bytes",
        "sys/fs/cgroup/memory/memory.usage_in_bytes",
        "sys/fs/cgroup/memory/memory.stat",
    ),
)
"""Limit, use, and reclaimable use of a control group, by version."""
_RECLAIMABLE = (("inactive_file", "active_file"), ("total_inactive_file", "total_active_file"))


def check_memory(path: Path, tables: Tables, size_bytes: int) -> None:
    """Refuse an export that cannot fit into memory; `size_bytes` is its size on disk.

    Raises:
        InputError: it needs more memory than this process can have.
    """
    left_bytes = find_free_bytes()
    if left_bytes is None or (not is_folder(path) and left_bytes > _MOST_OF_A_FILE * size_bytes):
        return
    needed_bytes = _needed_bytes(tables)
    if needed_bytes > left_bytes:
        raise InputError(
            f"{path} — needs at least {size(needed_bytes)} of memory, {size(max(left_bytes, 0))} are left —"
            " raise the limit, or capture fewer steps"
        )


def _needed_bytes(tables: Tables) -> int:
    """Return the larger of the memory for host rows while reading, and for other rows during the analysis."""
    host = {SWITCHES.name: _SWITCH_BYTES, SAMPLES.name: _SAMPLE_BYTES}
    cost = {table.name: _OPERATION_BYTES for table in catalog.DEVICE_TABLES}
    cost |= {catalog.CALLS.name: _CALL_BYTES, catalog.RANGES.name: _RANGE_BYTES}
    return max(
        sum(tables.row_count(name) * each for name, each in own.items() if name in tables.columns)
        for own in (host, cost)
    )


def find_free_bytes() -> int | None:
    """Return how much memory this process can still have; `None` if that is unknown."""
    return min(list_free_bytes(_SYSTEM), default=None)


def list_free_bytes(system: Path) -> Iterator[int]:
    """Yield the remaining memory of each limit, in bytes; `system` is the root of the file system."""
    own = _read_words(system / "proc/self/statm")
    if own and sys.platform == "linux":
        import resource  # noqa: PLC0415  # other systems lack it

        most_bytes = resource.getrlimit(resource.RLIMIT_AS)[0]
        if most_bytes != resource.RLIM_INFINITY:
            yield most_bytes - int(own[0]) * resource.getpagesize()
    for (limit, use, stat), reclaimable in zip(_GROUPS, _RECLAIMABLE, strict=True):
        most, used = _read_words(system / limit), _read_words(system / use)
        if most and used and most[0].isdecimal():
            pairs = _parse_pairs(_read_words(system / stat))
            yield int(most[0]) - int(used[0]) + sum(pairs.get(name, 0) for name in reclaimable)
    pairs = _parse_pairs(_read_words(system / "proc/meminfo", without="kB"))
    if "MemAvailable:" in pairs:
        yield 1024 * (pairs["MemAvailable:"] + pairs.get("SwapFree:", 0))


def _read_words(path: Path, without: str = "") -> list[str]:
    """Return the words of a small file; empty if it cannot be read."""
    try:
        return [word for word in path.read_text(encoding="ascii").split() if word != without]
    except OSError:
        return []


def _parse_pairs(words: Sequence[str]) -> dict[str, int]:
    return {name: int(value) for name, value in zip(words[::2], words[1::2], strict=False)}


_EVENT_TYPE = re.compile(r"[A-Za-z0-9]{1,40}")


def read_contents(path: Path, progress: Progress) -> Contents:
    """Return versions, machine, tables with row counts, and limits of an export.

    Raises:
        InputError: the file is not a readable export.
    """
    with open_tables(path, progress) as tables:
        source = make_database(path, tables)
        facts = read_export_facts(source)
        traced, graph_mode = _read_traced_events(source)
        return Contents(
            export=identify_export(source, facts),
            has_device_work=any(
                source.presence(table.name) is Presence.ROWS for table in catalog.DEVICE_TABLES
            ),
            traced=traced,
            duration_ns=read_duration_ns(source),
            graph_mode=graph_mode,
            processes=_count_processes(source),
            tables=tuple(
                TableContents(table, rows_are, source.row_count(table))
                for table, rows_are in catalog.CONTENTS.items()
            ),
            other_tables=len(set(source.columns) - set(catalog.CONTENTS)),
            findings=(
                *findings.check_losses(source),
                *findings.check_export(facts),
                *findings.check_gpus(source),
                *check_payloads(source),
            ),
        )


def _read_traced_events(source: Database) -> tuple[tuple[str, ...], str | None]:
    traced: set[str] = set()
    modes: set[str] = set()
    for name, value in read_capture_options(source):
        if isinstance(value, str) and _EVENT_TYPE.fullmatch(value):
            (traced if name == "CAPTURE_EVENT_TYPE" else modes).add(value)
    return tuple(sorted(traced)), modes.pop().lower() if len(modes) == 1 else None


def _count_processes(source: Database) -> int | None:
    if not source.has("CUPTI_ACTIVITY_KIND_RUNTIME", "globalTid"):
        return None
    ((processes,),) = source.rows("process_count")
    return int(processes)


def read_capture(path: Path, progress: Progress, reader: Reader = Reader.PAGES) -> Capture:
    """Read the device operations of an export, and its limits.

    Raises:
        InputError: the file is not a readable export.
        NothingToAnalyzeError: it has no device operation.
    """
    with open_tables(path, progress, reader=reader) as tables:
        source = make_database(path, tables)
        presence = {table: source.presence(table) for table in catalog.CONTENTS}
        _refuse_empty(source, presence)
        facts = read_export_facts(source)
        export = identify_export(source, facts)
        check_memory(path, tables, export.size_bytes)
        shift_ns = facts.time_shift_ns
        operations, (called, raw_ranges) = run_both(
            lambda: read_operations(source, progress),
            lambda: (read_calls(source, progress), read_ranges(source, progress)),
        )
        operations, called = _drop_impossible(operations, called, read_duration_ns(source), shift_ns)
        if operations.frame.is_empty():
            losses = find_loss_reasons(source)
            raise NothingToAnalyzeError(
                f"has no device operation with a valid time: {operations.left_out.describe('row')}"
                f"{losses.aside}",
                losses.join_cures("capture again and end after a device synchronization"),
                str(path),
            )
        operations, of_threads = _number_processes_and_threads(
            source, operations, called.callers, raw_ranges.places["globalTid"]
        )

        def of_ranges() -> tuple[tuple[pl.DataFrame, pl.DataFrame], Collectives, Ranks]:
            held = build_ranges(source, raw_ranges, of_threads, shift_ns)
            exchanged = read_collectives(source, raw_ranges.frame, of_threads, shift_ns, progress)
            return (
                held,
                exchanged,
                identify_ranks(source, export, operations.origins, exchanged.communicators),
            )

        (made, (during, host_names, bystander_waits)), ((held, range_names), exchanged, of_ranks) = run_both(
            lambda: (
                build_calls(called, of_threads, shift_ns),
                read_host_events(source, of_threads, shift_ns, progress),
            ),
            of_ranges,
        )
        work, ((sampled, metric_names), synced, recorded) = run_both(
            lambda: build_device_work(source, operations, of_ranks.ranks, made, shift_ns),
            lambda: (
                read_samples(source, shift_ns, progress, (*SPELLED, CLOCK_METRIC)),
                read_syncs(source, facts, of_threads, made, progress),
                read_events(source, of_threads, made, shift_ns, progress),
            ),
        )
        release_memory()
        graphs, graph_findings = findings.check_graph_tracing(
            source,
            has_nodes=work.operations["graph_node"].is_not_null().any(),
            has_graphs=(work.operations["kind"] == OperationKind.GRAPH).any(),
        )
        ranked = list_processes(of_threads).filter(
            pl.col("process").is_in(of_ranks.ranks["process"].implode())
        )
        hints = read_program_hints(source, ranked["globalPid"].drop_nulls().to_list())
        capture = Capture(
            export=export,
            presence=presence,
            graphs=graphs,
            ranks=of_ranks.ranks,
            names=work.names,
            operations=work.operations,
            copies=work.copies,
            kernels=work.kernels,
            streams=add_flags(work.streams, read_streams(source, of_threads, progress)),
            threads=of_threads,
            calls=made.calls,
            call_names=made.names,
            syncs=synced,
            events=recorded,
            host_events=during,
            host_names=host_names,
            bystander_waits=bystander_waits,
            ranges=held,
            range_names=range_names,
            collective_calls=exchanged.calls,
            communicators=exchanged.communicators,
            memory=read_memory(source, of_threads, shift_ns, progress),
            cpu_samples=read_cpu_samples(source, of_threads, shift_ns, progress),
            samples=sampled,
            metric_names=metric_names,
            traffic=read_traffic(source, shift_ns, progress),
            findings=(),
            world_size=of_ranks.world_size,
            kernel_flops=count_shaped_ranges(held, range_names, work.operations, made.calls),
            libraries=hints.libraries,
            interpreter=hints.interpreter,
            conditions=read_conditions(source),
        )
        capture, clocks = align_device_clocks(capture)
        limits = (
            *graph_findings,
            *findings.check_losses(source),
            *findings.check_times(
                operations.left_out.count, called.untimed_rows, count_untimed_ranges(raw_ranges)
            ),
            *findings.check_clocks(capture, clocks),
            *check_calls(capture, began_inside=has_begun_inside(source, raw_ranges, shift_ns)),
            *check_overhead(source, capture, shift_ns, progress),
            *check_ranges(source, raw_ranges, capture),
            *findings.check_export(facts),
            *findings.check_gpus(source),
            *of_ranks.findings,
        )
        return replace(capture, findings=(*limits, *check_loss_reasons(source, limits)))


def _drop_impossible(
    operations: RawOperations, called: RawCalls, duration_ns: int | None, time_shift_ns: int
) -> tuple[RawOperations, RawCalls]:
    """Leave operations and calls out whose time cannot be; both bear witness to when the other ended."""
    frame, columns = operations.frame, called.columns
    work = RecordTimes(frame["start"].to_numpy(), frame["end"].to_numpy())
    calls = RecordTimes(columns["start"].to_numpy(), columns["end"].to_numpy())
    end_ns = None if duration_ns is None else duration_ns + time_shift_ns
    is_possible = mark_possible(work, find_extent([work], [calls], end_ns))
    return (
        keep_operations(operations, pl.Series(is_possible), count_time_faults(work, is_possible)),
        keep_calls(called, pl.Series(mark_possible(calls, find_extent([calls], [work], end_ns)))),
    )


def _number_processes_and_threads(
    source: Database, operations: RawOperations, callers: pl.Series, with_ranges: pl.Series
) -> tuple[RawOperations, pl.DataFrame]:
    """Add their dense `process` to the origins of device rows, and return the threads of all that was read.

    If the device tables name no process and only one process made calls, the operations belong to it.
    `callers` and `with_ranges` are global ids of threads.
    """
    tids = pl.concat([callers, with_ranges.drop_nulls()])
    calling = callers.to_frame().select(process_of("globalTid"))["globalTid"].unique().drop_nulls()
    origins = operations.origins
    if len(calling) == 1 and origins["globalPid"].null_count() == len(origins):
        origins = origins.with_columns(globalPid=pl.lit(calling[0], pl.Int64))
    of_processes = number_processes(
        pl.concat(
            [origins["globalPid"].unique(), tids.to_frame().select(process_of("globalTid"))["globalTid"]]
        )
    )
    origins = origins.join(of_processes, on="globalPid", how="left", nulls_equal=True, maintain_order="left")
    return replace(operations, origins=origins), number_threads(source, tids, of_processes)


def _refuse_empty(source: Database, presence: dict[str, Presence]) -> None:
    if any(presence[table.name] is Presence.ROWS for table in catalog.DEVICE_TABLES):
        return
    calls, losses = source.row_count("CUPTI_ACTIVITY_KIND_RUNTIME"), find_loss_reasons(source)
    if launches := count_launches(source):
        raise NothingToAnalyzeError(
            f"contains {plural(launches, 'kernel launch')} but no kernel, copy, fill or graph:"
            f" records of the GPU were lost{losses.aside}",
            losses.join_cures(
                "end the capture after a device synchronization",
                "use an nsys release that supports the driver",
            ),
            str(source.path),
        )
    what = f"no kernel, copy, fill or graph ({calls:,} CUDA API calls)" if calls else "no CUDA activity"
    raise NothingToAnalyzeError(
        f"contains {what}{losses.aside}",
        losses.join_cures(
            "capture with --trace=cuda,nvtx while the GPU is busy (`wallscope info` shows what the file has)"
        ),
        str(source.path),
    )
