"""What limits the claims that can be made from one export, as far as its tables tell."""

from wallscope.model.capture import Finding, GraphTracing, Presence, Severity
from wallscope.nsys.identity import ExportFacts
from wallscope.nsys.tables import Database
from wallscope.units import plural

_RUNTIME = "CUPTI_ACTIVITY_KIND_RUNTIME"


def loss_findings(source: Database) -> tuple[Finding, ...]:
    """Whether the profiler says that it lost records; before schema 3.8 no export tells."""
    if not source.has("DIAGNOSTIC_EVENT", "text"):
        return (
            Finding(
                "loss-unknown",
                Severity.INFO,
                "This export holds no diagnostics: whether records were lost cannot be told.",
                "Export the report with nsys 2024.2 or later.",
            ),
        )
    ((lost, incomplete),) = source.rows("diagnostics")
    findings = []
    if lost:
        findings.append(
            Finding(
                "records-lost",
                Severity.ERROR,
                f"The profiler lost CUDA records ({plural(lost, 'message')}): idle time may be work unseen.",
                "Capture fewer steps, or flush more often: --cuda-flush-interval=100.",
            )
        )
    if incomplete:
        findings.append(
            Finding(
                "perhaps-incomplete",
                Severity.INFO,
                f"The profiler may have missed CUDA events of a process ({plural(incomplete, 'message')});"
                " it says so of most multi-process captures.",
            )
        )
    return tuple(findings)


def untimed_findings(untimed_rows: int) -> tuple[Finding, ...]:
    """Operations without a usable time."""
    if untimed_rows == 0:
        return ()
    return (
        Finding(
            "untimed-operations",
            Severity.WARNING,
            f"{plural(untimed_rows, 'device operation')} without a usable time left out"
            " (start and end 0, or an end before the start).",
            "End the capture after a device synchronisation.",
        ),
    )


def export_findings(facts: ExportFacts) -> tuple[Finding, ...]:
    """Whether the exporter was told to leave something out."""
    if not facts.is_filtered:
        return ()
    return (
        Finding(
            "filtered-export",
            Severity.WARNING,
            "The exporter was told to keep some tables or times alone: more may have been captured.",
            "Export again without --tables and --times.",
        ),
    )


def graph_tracing(
    source: Database, *, has_nodes: bool, has_graphs: bool
) -> tuple[GraphTracing, tuple[Finding, ...]]:
    """How CUDA graphs were traced; launches that left no device work mean that idle time is not known."""
    if has_graphs:
        return GraphTracing.GRAPH, ()
    if has_nodes:
        return GraphTracing.NODE, ()
    launches = 0
    if source.has(_RUNTIME, "nameId") and source.has("StringIds", "id", "value"):
        ((launches,),) = source.rows("graph_launches")
    if launches == 0:
        return GraphTracing.NONE, ()
    return GraphTracing.GRAPH, (
        Finding(
            "graph-replays-missing",
            Severity.ERROR,
            f"{plural(launches, 'CUDA graph launch')} and no row of what they ran:"
            " time shown as idle may be graph work.",
            "Capture with --cuda-graph-trace=node, or export with nsys 2024.3 or later.",
        ),
    )


def gpu_findings(source: Database) -> tuple[Finding, ...]:
    """Whether the export describes the GPUs."""
    if Presence.ROWS in (source.presence("TARGET_INFO_GPU"), source.presence("TARGET_INFO_CUDA_GPU")):
        return ()
    return (
        Finding(
            "gpu-unknown",
            Severity.INFO,
            "The export does not describe the GPUs: no memory capacity, no peak rates.",
            "Let nsys see the GPU from inside the container when it starts.",
        ),
    )
