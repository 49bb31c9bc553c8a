"""One export, read once into plain frames."""

from pathlib import Path

from wallscope.errors import NothingToAnalyzeError
from wallscope.model.capture import Capture, Presence, Progress
from wallscope.model.kinds import OperationKind
from wallscope.nsys import catalog, findings
from wallscope.nsys.connection import opened
from wallscope.nsys.identity import export_facts, export_identity
from wallscope.nsys.operations import device_work
from wallscope.nsys.tables import Database, database


def read_capture(path: Path, progress: Progress) -> Capture:
    """The device operations of an export, and what limits the claims made from them.

    Raises:
        InputError: the file is no readable export.
        NothingToAnalyzeError: it holds no device operation.
    """
    with opened(path) as connection:
        source = database(path, connection)
        presence = {table: source.presence(table) for table in catalog.CONTENTS}
        _refuse_empty(source, presence)
        facts = export_facts(source)
        export = export_identity(source, facts)
        work = device_work(source, export, facts.time_shift_ns, progress)
        if work.operations.is_empty():
            raise NothingToAnalyzeError(
                f"{path} — no device operation has a usable time — capture again and end after a device"
                " synchronisation"
            )
        graphs, graph_findings = findings.graph_tracing(
            source,
            has_nodes=work.operations["graph_node"].is_not_null().any(),
            has_graphs=(work.operations["kind"] == OperationKind.GRAPH).any(),
        )
        return Capture(
            export=export,
            presence=presence,
            graphs=graphs,
            ranks=work.ranks,
            names=work.names,
            operations=work.operations,
            copies=work.copies,
            findings=(
                *graph_findings,
                *findings.loss_findings(source),
                *findings.untimed_findings(work.untimed_rows),
                *findings.export_findings(facts),
                *findings.gpu_findings(source),
            ),
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
