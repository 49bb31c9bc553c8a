"""What limits this? And how is each number computed?"""

from wallscope import units
from wallscope.model.analysis import Analysis, Rank
from wallscope.model.capture import Finding, Severity
from wallscope.model.cause_catalogue import describe_cause
from wallscope.model.section import (
    Block,
    Cell,
    Code,
    Column,
    Grid,
    Items,
    Line,
    Lines,
    Section,
    Span,
    Tone,
    tabulate,
)
from wallscope.resources import read_query
from wallscope.views.sections.walls import tabulate_budget
from wallscope.views.words import WORDS

_QUERIES = {
    "device_busy": "Time in which the device did anything",
    "compute_gaps": "Gaps between kernels of compute",
}
_SQL = (
    "These queries, run on the export with sqlite3, tell the device's time in one window;"
    " its bounds are those of a step in the JSON answer."
)
_ANCHORS = {"ceiling": "ceiling"}
"""Words that the first screen links to."""
_TONES: dict[Severity, Tone | None] = {
    Severity.ERROR: "bad",
    Severity.WARNING: "warning",
    Severity.INFO: None,
}


def sort_findings(findings: tuple[Finding, ...]) -> list[Finding]:
    """Sort findings, the gravest first."""
    return sorted(findings, key=lambda entry: list(_TONES).index(entry.severity))


def build_findings(findings: tuple[Finding, ...], most: int | None = None) -> Section:
    """Make what a terminal shows: what limits the claims, with the cure; what is left out is said."""
    rows: list[tuple[Line, ...]] = [
        (
            (Span("•", _TONES[entry.severity]),),
            (entry.message, Span(f" → {entry.cure}" if entry.cure else "", "dim")),
        )
        for entry in sort_findings(findings)[:most]
    ]
    if most is not None and len(findings) > most:
        more = f"{len(findings) - most} more in the JSON; cures: wallscope capture-help FILE"
        rows.append(("", (Span(more, "dim"),)))
    return Section("limits", "Limits", "", (Items(tuple(rows)) if rows else Lines(("none found",)),))


def build_limits(findings: tuple[Finding, ...]) -> Section:
    """Make what the export lacks, what that forbids to claim, and how the next capture avoids it."""
    columns = (
        Column("severity", "gravity"),
        Column("message", "finding"),
        Column("cure", "cure", none=""),
        Column("covers_ns", "covers", "duration", "time concerned", none=""),
    )
    if not findings:
        return Section("limits", "What limits this?", "Nothing was found that limits this.", ())
    caption = "Findings about the capture, the gravest first"
    table = tabulate(caption, columns, sort_findings(findings), is_wordy=True)
    return Section("limits", "What limits this?", f"{units.plural(len(findings), 'finding')}.", (table,))


def build_methods(analysis: Analysis, rank: Rank) -> Section:
    """Make definitions, the SQL that checks a number, versions."""
    export, capture = analysis.inputs[0], analysis.capture
    versions = {
        "wallscope": analysis.wallscope_version,
        "answer": analysis.schema,
        "Nsight Systems": export.nsys_version or "unknown",
        "export schema": export.schema_version or "unknown",
        "fingerprint": export.fingerprint,
        "size of the export": units.size(export.size_bytes),
        "host": export.hostname or "unknown",
        "capture began": units.utc(export.session_start_utc_ns),
        "launches found": units.percent(capture.launch_correlation_share),
        "waits resolved": units.percent(capture.resolved_dependency_share),
    }
    words = tuple((Cell(word, anchor=_ANCHORS.get(word, "")), said) for word, said in WORDS.items())
    causes = tuple((Cell(entry.cause, entry.wall), describe_cause(entry.cause)) for entry in rank.causes)
    blocks: tuple[Block, ...] = (
        list_pairs("Words", ("word", "what it means"), words),
        tabulate_budget(analysis, rank),
        list_pairs("Causes of this capture", ("cause", "what it means"), causes),
        Lines((_SQL,)),
        *(Code(caption, read_query(name)) for name, caption in _QUERIES.items()),
        list_pairs("Versions", ("of", "is"), tuple(versions.items())),
    )
    title = "How is each number computed?"
    return Section("computed", title, "Definitions, SQL, versions.", blocks, is_open=False)


def list_pairs(title: str, names: tuple[str, ...], rows: tuple[tuple[str | Cell, ...], ...]) -> Grid:
    """Make a table of texts."""
    return Grid(title, tuple(Column(name, name) for name in names), rows)
