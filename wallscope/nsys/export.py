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
from wallscope.nsys.call_findings import call_findings
from wallscope.nsys.calls import calls, raw_calls
from wallscope.nsys.collectives import Collectives, collectives
from wallscope.nsys.connection import opened
from wallscope.nsys.host import cpu_samples, host_events
from wallscope.nsys.identity import export_facts, export_identity
from wallscope.nsys.memory import memory
from wallscope.nsys.metrics import samples
from wallscope.nsys.operations import device_work, looked_up, raw_operations
from wallscope.nsys.overhead_findings import overhead_findings
from wallscope.nsys.range_findings import FOR_FINDINGS, began_inside, range_findings
from wallscope.nsys.ranges import ranges
from wallscope.nsys.ranks import Ranks, ranks
from wallscope.nsys.room import check_room
from wallscope.nsys.synchronisation import events, flagged, streams, syncs
from wallscope.nsys.tables import Database, database, read
from wallscope.nsys.threads import process_of, processes, threads
from wallscope.tuning import give_back


def read_capture(path: Path, progress: Progress, reader: Reader = Reader.PAGES) -> Capture:
    """The device operations of an export, and what limits the claims made from them.

    Raises:
        InputError: the file is no readable export.
        NothingToAnalyzeError: it holds no device operation.
    """
    with opened(path, progress, reader=reader) as tables:
        source = database(path, tables)
        presence = {table: source.presence(table) for table in catalog.CONTENTS}
        _refuse_empty(source, presence)
        facts = export_facts(source)
        export = export_identity(source, facts)
        check_room(path, tables, export.size_bytes)
        shift_ns = facts.time_shift_ns
        ((operations, untimed_rows), raw_ranges), called = both(
            lambda: (raw_operations(source, progress), read(source, catalog.RANGES, progress)),
            lambda: raw_calls(source, progress),
        )
        if operations.is_empty():
            raise NothingToAnalyzeError(
                f"{path} — no device operation has a usable time — capture again and end after a device"
                " synchronisation"
            )
        # whoever makes something of a large table gets the only hold of it, to let go of column by column
        large = {"ranges": raw_ranges}
        large["operations"], of_threads = _who(source, operations, called.callers, raw_ranges)
        del operations, raw_ranges

        def of_ranges() -> tuple[tuple[pl.DataFrame, pl.DataFrame], Collectives, Ranks]:
            raw_ranges = large["ranges"]
            held = ranges(source, raw_ranges, of_threads, shift_ns)
            exchanged = collectives(source, raw_ranges, of_threads, shift_ns, progress)
            large["ranges"] = raw_ranges.select(*FOR_FINDINGS)
            return held, exchanged, ranks(source, export, large["operations"], exchanged.communicators)

        made, ((held, range_names), exchanged, of_ranks) = both(
            lambda: calls(called, of_threads, shift_ns), of_ranges
        )
        work, ((during, host_names), (sampled, metric_names), synced, recorded) = both(
            lambda: device_work(source, large.pop("operations"), of_ranks.ranks, made, shift_ns),
            lambda: (
                host_events(source, of_threads, shift_ns, progress),
                samples(source, shift_ns, progress, SPELLED),
                syncs(source, facts, of_threads, made, progress),
                events(source, of_threads, made, shift_ns, progress),
            ),
        )
        give_back()
        graphs, graph_findings = findings.graph_tracing(
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
            streams=flagged(work.streams, streams(source, of_threads, progress)),
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
            memory=memory(source, of_threads, shift_ns, progress),
            cpu_samples=cpu_samples(source, of_threads, shift_ns, progress),
            samples=sampled,
            metric_names=metric_names,
            findings=(),
            world_size=of_ranks.world_size,
        )
        limits = (
            *graph_findings,
            *findings.loss_findings(source),
            *findings.untimed_findings(untimed_rows),
            *call_findings(capture, began_inside=began_inside(source, large["ranges"], shift_ns)),
            *overhead_findings(source, capture, shift_ns, progress),
            *range_findings(source, large["ranges"], capture),
            *findings.export_findings(facts),
            *findings.gpu_findings(source),
            *of_ranks.findings,
        )
        return replace(capture, findings=limits)


def _who(
    source: Database, operations: pl.DataFrame, callers: pl.Series, ranges: pl.DataFrame
) -> tuple[pl.DataFrame, pl.DataFrame]:
    """The device rows with their dense `process`, and the threads of everything that was read.

    Where the device tables name no process and only one made calls, the work is its own.
    """
    tids = pl.concat([callers, ranges["globalTid"].drop_nulls().unique()])
    calling = callers.to_frame().select(process_of("globalTid"))["globalTid"].unique().drop_nulls()
    if len(calling) == 1 and operations["globalPid"].null_count() == len(operations):
        operations = operations.with_columns(globalPid=pl.lit(calling[0], pl.Int64))
    of_processes = processes(
        pl.concat(
            [operations["globalPid"].unique(), tids.to_frame().select(process_of("globalTid"))["globalTid"]]
        )
    )
    return operations.with_columns(looked_up(operations, of_processes)), threads(source, tids, of_processes)


def _refuse_empty(source: Database, presence: dict[str, Presence]) -> None:
    if any(presence[table.name] is Presence.ROWS for table in catalog.DEVICE_TABLES):
        return
    calls = source.row_count("CUPTI_ACTIVITY_KIND_RUNTIME")
    what = f"no kernel, copy, fill or graph ({calls:,} CUDA API calls)" if calls else "no CUDA activity"
    raise NothingToAnalyzeError(
        f"{source.path} — holds {what} — capture with --trace=cuda,nvtx while the GPU works"
        " (`wallscope info` shows what is there)"
    )
