"""What limits this? And how is each number computed?"""

from collections.abc import Iterable, Iterator

import polars as pl

from wallscope import units
from wallscope.files import read_query
from wallscope.model.analysis import Analysis, Rank
from wallscope.model.capture import Export, Finding, Profiler, Severity
from wallscope.model.cause_catalogue import describe_cause
from wallscope.model.report import ComparisonReport
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
from wallscope.views.sections.walls import tabulate_budget
from wallscope.views.sections.words import COMPARISON_WORDS, WORDS, describe_profiler

_QUERIES = {
    "device_busy": "Time in which the device did anything",
    "compute_gaps": "Gaps between kernels of compute",
}
_SQL = (
    "Run these queries on the export with sqlite3 to check the GPU time of one window."
    " Use the start and end of a step from the JSON answer."
)
_ANCHORS = {"upper bound": "upper-bound"}
"""Words that the first screen links to."""
_TONES: dict[Severity, Tone | None] = {
    Severity.ERROR: "bad",
    Severity.WARNING: "warning",
    Severity.INFO: None,
}


_REPLICATION = {
    "runs": "Several runs: Student's t interval on the logarithms of their typical steps.",
    "steps": "One run each: bootstrap over blocks of consecutive steps, with a fixed seed. The noise between"
    " runs is added.",
    "same": "Both inputs are the same capture, so nothing varies.",
    "none": "Too few steps, or no variation: there is no interval.",
}


def sort_findings(findings: tuple[Finding, ...]) -> list[Finding]:
    """Return the findings, errors first, then warnings."""
    return sorted(findings, key=lambda entry: list(_TONES).index(entry.severity))


def build_findings(findings: tuple[Finding, ...], most: int | None = None) -> Section:
    """Make what a terminal shows of findings: each with its cure, and how many are left out."""
    rows: list[tuple[Line, ...]] = [
        (
            (Span("•", _TONES[entry.severity]),),
            (entry.message, Span(f" → {entry.cure}" if entry.cure else "", "dim")),
        )
        for entry in sort_findings(findings)[:most]
    ]
    if most is not None and len(findings) > most:
        more = f"{len(findings) - most} more: --json FILE; how to fix them: wallscope capture-help FILE"
        rows.append(("", (Span(more, "dim"),)))
    return Section("limits", "Limits", "", (Items(tuple(rows)) if rows else Lines(("None found.",)),))


def build_limits(findings: tuple[Finding, ...]) -> Section:
    """Make what the export lacks, which claims that weakens, and how the next capture avoids it."""
    if not findings:
        return Section("limits", "Limits", "No limit was found.", ())
    columns = (
        Column("severity", "gravity"),
        Column("message", "finding"),
        Column("cure", "cure", none=""),
        Column("covers_ns", "covers", "duration", "time concerned", none=""),
    )
    caption = "Findings about the capture, errors and warnings first"
    table = tabulate(caption, columns, sort_findings(findings), is_wordy=True)
    return Section("limits", "Limits", f"{units.plural(len(findings), 'finding')}.", (table,))


def build_methods(analysis: Analysis, rank: Rank) -> Section:
    """Make definitions, the SQL that checks a number, versions."""
    export, capture = analysis.inputs[0], analysis.capture
    is_trace = export.profiler == Profiler.TORCH
    versions = {
        "wallscope": analysis.wallscope_version,
        "answer": analysis.schema,
        **_tell_profiler(export),
        "fingerprint": export.fingerprint,
        "size of the export": units.size(export.size_bytes),
        "host": export.hostname or "unknown",
        "capture began": units.utc(export.session_start_utc_ns),
        "launches found": units.percent(capture.launch_correlation_share),
        "waits resolved": units.percent(capture.resolved_dependency_share),
    }
    words = ((Cell(word, anchor=_ANCHORS.get(word, "")), text) for word, text in WORDS.items())
    causes = ((Cell(entry.cause, entry.wall), describe_cause(entry.cause)) for entry in rank.causes)
    blocks: tuple[Block, ...] = (
        list_pairs("Words", ("word", "what it means"), words),
        tabulate_budget(analysis, rank),
        list_pairs("Causes of this capture", ("cause", "what it means"), causes),
        *(() if is_trace else _write_queries()),
        list_pairs("Versions", ("of", "is"), versions.items()),
    )
    title = "Definitions"
    answer = "Definitions, versions." if is_trace else "Definitions, SQL, versions."
    return Section("computed", title, answer, blocks, is_open=False)


def _write_queries() -> Iterator[Block]:
    """Yield the SQL that checks a number; a PyTorch trace is not a database."""
    yield Lines((_SQL,))
    yield from (Code(caption, read_query(name)) for name, caption in _QUERIES.items())


def list_pairs(title: str, names: tuple[str, ...], rows: Iterable[tuple[str | Cell, ...]]) -> Grid:
    """Make a table of texts."""
    return Grid(title, tuple(Column(name, name) for name in names), tuple(rows))


def build_comparison_methods(report: ComparisonReport) -> Section:
    """Make definitions, what the interval rests on, captures and versions."""
    comparison, step = report.comparison, report.comparison.step
    least, noise = step.minimum_detectable_ratio, "unknown"
    if step.run_noise is not None:
        noise = f"{units.percent(step.run_noise)}, {step.run_noise_source or 'unknown source'}"
    rests = {
        "confidence": units.percent(step.confidence),
        "margin": f"{units.percent(step.margin_ratio)} and {units.duration(step.margin_ns)}",
        "ratio, head over base": f"{step.ratio:.4f}",
        "its interval": _write_ratios(step.ratio_low, step.ratio_high),
        "smallest detectable change": "unknown"
        if least is None
        else f"{units.signed_percent(least - 1)} or {units.signed_percent(1 / least - 1)}",
        "interval from the steps of this pair only": _write_ratios(step.pair_ratio_low, step.pair_ratio_high),
        "noise between runs": noise,
        "scaled to tokens": "no" if step.tokens is None else units.number(step.tokens),
        "method": _REPLICATION[step.replication],
    }
    versions = (("wallscope", comparison.wallscope_version), ("comparison", comparison.schema))
    blocks: tuple[Block, ...] = (
        list_pairs("Words", ("word", "what it means"), COMPARISON_WORDS.items()),
        list_pairs("What the verdict rests on", ("of", "is"), rests.items()),
        _tabulate_captures(report),
        list_pairs("Versions", ("of", "is"), versions),
    )
    answer = "Definitions, intervals, captures, versions."
    return Section("computed", "Definitions", answer, blocks, is_open=False)


def _tell_profiler(export: Export) -> dict[str, str]:
    schema = {"export schema": export.schema_version or "unknown"}
    if export.profiler == Profiler.TORCH:
        return {"profiler": describe_profiler(export), **schema}
    return {"Nsight Systems": export.nsys_version or "unknown", **schema}


def _write_ratios(low: float | None, high: float | None) -> str:
    return "none" if low is None or high is None else f"{low:.4f} … {high:.4f}"


def _tabulate_captures(report: ComparisonReport) -> Grid:
    columns = (
        Column("side", "side"),
        Column("name", "capture"),
        Column("taken", "taken"),
        Column("nsys_version", "nsys"),
        Column("hostname", "host"),
        Column("fingerprint", "fingerprint", "text", "of its content"),
        Column("findings", "findings", "text", "codes of what limits it: wallscope explain CODE"),
        Column("steps", "steps compared", "plain", "steps that count, of those found"),
    )
    rows = []
    for name, side in (("base", report.base), ("head", report.head)):
        of_run = side.steps.group_by("run").agg(found=pl.len(), counted=pl.col("counts").sum())
        counts = {run: f"{counted} of {found}" for run, found, counted in of_run.iter_rows()}
        rows += [
            (
                name,
                entry.name,
                units.utc(entry.session_start_utc_ns),
                "PyTorch" if entry.profiler == Profiler.TORCH else entry.nsys_version or "unknown",
                entry.hostname or "unknown",
                entry.fingerprint,
                ", ".join(entry.findings) or "none",
                counts.get(run),
            )
            for run, entry in enumerate(side.inputs)
        ]
    return Grid("Captures", columns, tuple(rows), is_wordy=True)
