"""One export, read once into plain frames."""

from dataclasses import replace
from pathlib import Path

import polars as pl

from wallscope.cores import both
from wallscope.errors import NothingToAnalyzeError
from wallscope.model.capture import Capture, Presence, Progress
from wallscope.model.kinds import OperationKind
from wallscope.model.metrics import SPELLED
from wallscope.model.reader import Reader
from wallscope.nsys import catalog, findings
from wallscope.nsys.calls import build_calls, read_calls
from wallscope.nsys.collectives import Collectives, read_collectives
from wallscope.nsys.findings import (
    FOR_FINDINGS,
    check_calls,
    check_overhead,
    check_ranges,
    has_begun_inside,
)
from wallscope.nsys.gpu_counters import read_memory, read_samples
from wallscope.nsys.host_events import read_cpu_samples, read_host_events
from wallscope.nsys.id_tables import number_processes, number_threads, process_of
from wallscope.nsys.identity import identify_export, read_export_facts
from wallscope.nsys.memory_check import check_memory
from wallscope.nsys.operations import build_device_work, look_up, read_operations
from wallscope.nsys.ranges import build_ranges
from wallscope.nsys.ranks import Ranks, identify_ranks
from wallscope.nsys.sources import open_tables
from wallscope.nsys.synchronisation import add_flags, read_events, read_streams, read_syncs
from wallscope.nsys.tables import Database, make_database, read_table
from wallscope.tuning import give_back


def read_capture(path: Path, progress: Progress, reader: Reader = Reader.PAGES) -> Capture:
    """The device operations of an export, and what limits the claims made from them.

    Raises:
        InputError: the file is no readable export.
        NothingToAnalyzeError: it holds no device operation.
    """
    with open_tables(path, progress, reader=reader) as tables:
        source = make_database(path, tables)
        presence = {table: source.presence(table) for table in catalog.CONTENTS}
        _refuse_empty(source, presence)
        facts = read_export_facts(source)
        export = identify_export(source, facts)
        check_memory(path, tables, export.size_bytes)
        shift_ns = facts.time_shift_ns
        ((operations, untimed_rows), raw_ranges), called = both(
            lambda: (read_operations(source, progress), read_table(source, catalog.RANGES, progress)),
            lambda: read_calls(source, progress),
        )
        if operations.is_empty():
            raise NothingToAnalyzeError(
                f"{path} — no device operation has a usable time — capture again and end after a device"
                " synchronisation"
            )
        # large tables are handed over by their only reference, so that columns are freed as they are used
        large = {"ranges": raw_ranges}
        large["operations"], of_threads = _number_who(source, operations, called.callers, raw_ranges)
        del operations, raw_ranges

        def of_ranges() -> tuple[tuple[pl.DataFrame, pl.DataFrame], Collectives, Ranks]:
            raw_ranges = large["ranges"]
            held = build_ranges(source, raw_ranges, of_threads, shift_ns)
            exchanged = read_collectives(source, raw_ranges, of_threads, shift_ns, progress)
            large["ranges"] = raw_ranges.select(*FOR_FINDINGS)
            return (
                held,
                exchanged,
                identify_ranks(source, export, large["operations"], exchanged.communicators),
            )

        made, ((held, range_names), exchanged, of_ranks) = both(
            lambda: build_calls(called, of_threads, shift_ns), of_ranges
        )
        work, ((during, host_names), (sampled, metric_names), synced, recorded) = both(
            lambda: build_device_work(source, large.pop("operations"), of_ranks.ranks, made, shift_ns),
            lambda: (
                read_host_events(source, of_threads, shift_ns, progress),
                read_samples(source, shift_ns, progress, SPELLED),
                read_syncs(source, facts, of_threads, made, progress),
                read_events(source, of_threads, made, shift_ns, progress),
            ),
        )
        give_back()
        graphs, graph_findings = findings.check_graph_tracing(
            source,
            has_nodes=work.operations["graph_node"].is_not_null().any(),
            has_graphs=(work.operations["kind"] == OperationKind.GRAPH).any(),
        )
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
            ranges=held,
            range_names=range_names,
            collective_calls=exchanged.calls,
            communicators=exchanged.communicators,
            memory=read_memory(source, of_threads, shift_ns, progress),
            cpu_samples=read_cpu_samples(source, of_threads, shift_ns, progress),
            samples=sampled,
            metric_names=metric_names,
            findings=(),
            world_size=of_ranks.world_size,
        )
        limits = (
            *graph_findings,
            *findings.check_losses(source),
            *findings.check_times(untimed_rows),
            *check_calls(capture, began_inside=has_begun_inside(source, large["ranges"], shift_ns)),
            *check_overhead(source, capture, shift_ns, progress),
            *check_ranges(source, large["ranges"], capture),
            *findings.check_export(facts),
            *findings.check_gpus(source),
            *of_ranks.findings,
        )
        return replace(capture, findings=limits)


def _number_who(
    source: Database, operations: pl.DataFrame, callers: pl.Series, ranges: pl.DataFrame
) -> tuple[pl.DataFrame, pl.DataFrame]:
    """The device rows with their dense `process`, and the threads of everything that was read.

    Where the device tables name no process and only one made calls, the work is its own.
    """
    tids = pl.concat([callers, ranges["globalTid"].drop_nulls().unique()])
    calling = callers.to_frame().select(process_of("globalTid"))["globalTid"].unique().drop_nulls()
    if len(calling) == 1 and operations["globalPid"].null_count() == len(operations):
        operations = operations.with_columns(globalPid=pl.lit(calling[0], pl.Int64))
    of_processes = number_processes(
        pl.concat(
            [operations["globalPid"].unique(), tids.to_frame().select(process_of("globalTid"))["globalTid"]]
        )
    )
    return operations.with_columns(look_up(operations, of_processes)), number_threads(
        source, tids, of_processes
    )


def _refuse_empty(source: Database, presence: dict[str, Presence]) -> None:
    if any(presence[table.name] is Presence.ROWS for table in catalog.DEVICE_TABLES):
        return
    calls = source.row_count("CUPTI_ACTIVITY_KIND_RUNTIME")
    what = f"no kernel, copy, fill or graph ({calls:,} CUDA API calls)" if calls else "no CUDA activity"
    raise NothingToAnalyzeError(
        f"{source.path} — holds {what} — capture with --trace=cuda,nvtx while the GPU works"
        " (`wallscope info` shows what is there)"
    )
