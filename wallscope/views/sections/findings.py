"""What limits this, how sure is the verdict, and how is each number computed? And the glossary."""

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING

from wallscope import units
from wallscope.advice.definitions import finding_notes
from wallscope.files import read_query
from wallscope.model.advice import Fix
from wallscope.model.analysis import Analysis, Rank
from wallscope.model.capture import Export, Finding, Profiler, Severity
from wallscope.model.cause_catalogue import (
    UNATTRIBUTED_HELD_WHILE_IDLE,
    describe_cause,
)
from wallscope.model.enums import Wall
from wallscope.model.finding_codes import FindingCode
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
    make_columns,
    tabulate,
)
from wallscope.render.texts import visible
from wallscope.summary.diagnosis import LOSSES
from wallscope.thresholds.steps import ENOUGH_STEPS_COUNT
from wallscope.thresholds.verdict import (
    DOMINANT_SHARE,
    HIGH_CONFIDENCE_SHARE,
    MATERIAL_SHARE,
    SHARE_ROUNDING,
    SHARED_DEVICE_SHARE,
    SHOWN_WALL_SHARE,
)
from wallscope.views.sections.depth import tabulate_budget
from wallscope.views.sections.words import (
    COMPARISON_WORDS,
    STATE_NAMES,
    STATE_WORDS,
    WALL_WORDS,
    WORDS,
    describe_profiler,
)
from wallscope.views.verdict import choose_basis, find_dominant

if TYPE_CHECKING:
    from wallscope.model.report import ComparisonReport

_QUERIES = {
    "device_busy": "Time in which the device did anything",
    "compute_gaps": "Gaps between kernels of compute",
}
_SQL = (
    "Run these queries on the export with sqlite3 to check the GPU time of one step."
    " `wallscope analyze FILE --json -` gives `start_ns` and `end_ns` of each step."
)
_ANCHORS = {"upper bound": "upper-bound"}
"""Words that the first screen links to."""
_BETWEEN_WORDS = re.compile(r",? ")
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
_MOST_CAVEATS, _LONGEST_CAVEAT = 2, 200
UNREPLAYED_BOUND = "each upper bound assumes that its cause takes no time at all"
_SHARES_FIRST = 2
"""Reasons of a confidence begin with its inferred and its unresolved share."""
_ANY = frozenset(Wall)
_DOUBTS: tuple[tuple[tuple[str, ...], frozenset[Wall]], ...] = (
    (
        (
            FindingCode.TRACE_CUT_OFF,
            FindingCode.TRACE_EVENTS_LOST,
            FindingCode.RECORDS_LOST,
            FindingCode.NO_KERNELS,
            FindingCode.GRAPH_MODE_GRAPHS,
            FindingCode.GRAPH_REPLAYS_MISSING,
            FindingCode.NO_API_CALLS,
            FindingCode.FILTERED_EXPORT,
            FindingCode.TRACE_FILTERED,
            FindingCode.DEVICE_CLOCK_UNKNOWN,
            FindingCode.SILENT_WAITS,
            FindingCode.UNATTRIBUTED_TIME,
        ),
        _ANY,
    ),
    (
        (
            FindingCode.ONE_RANK,
            FindingCode.RANKS_MISSING,
            FindingCode.COLLECTIVES_UNMATCHED,
            FindingCode.CLOCKS_APART,
        ),
        frozenset({Wall.COMMUNICATION}),
    ),
    (
        (
            FindingCode.CONFIGURATION_CONTRADICTED,
            FindingCode.CONFIGURATION_INEFFECTIVE,
            FindingCode.RANK_CONTRADICTION,
            FindingCode.EXPORT_LEFT_OUT,
            FindingCode.RANKS_WITHOUT_STEPS,
        ),
        _ANY,
    ),
    (
        (
            FindingCode.EMIT_NVTX,
            FindingCode.DEVICE_CLOCK_ALIGNED,
            FindingCode.TORCH_STACKS,
            FindingCode.TORCH_OPERATORS,
            FindingCode.PROFILER_OVERHEAD,
        ),
        frozenset({Wall.HOST}),
    ),
    (
        (FindingCode.UNPROFILED_STEP,),
        _ANY,
    ),
    (
        (
            FindingCode.NO_STEPS,
            FindingCode.FEW_STEPS,
            FindingCode.INFERRED_STEPS,
            FindingCode.UNMARKED_STEPS,
            FindingCode.ANCHORS_DISAGREE,
        ),
        _ANY,
    ),
    (
        (
            FindingCode.UNRESOLVED_WAITS,
            FindingCode.NO_CUDA_EVENTS,
            FindingCode.LAUNCHES_WITHOUT_WORK,
            FindingCode.ORPHAN_OPERATIONS,
            FindingCode.WORK_BEFORE_CALLS,
            FindingCode.UNMATCHED_KERNELS,
        ),
        frozenset({*LOSSES, Wall.UNATTRIBUTED}),
    ),
)
"""Findings that weaken the headline, the most serious group first, and the walls that they concern."""
_UNKNOWING = (_DOUBTS[0][0], _DOUBTS[-1][0])
"""Findings of work or waits that the capture lacks."""
_HEAD = """# Glossary

To learn more about a term, wall, fix or finding, run `wallscope explain WORD`. *[Causes](causes.md)* are
listed on a separate page.

<!-- picture: explain-term | A term explained in the terminal -->

This page is generated from the source code; `make golden` rewrites it.
"""


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


def build_limits(findings: tuple[Finding, ...], advice: Sequence[Fix] = ()) -> Section:
    """Make what the export lacks, which claims that weakens, and how the next capture avoids it.

    `advice` is what the next capture should record.
    """
    tables = tuple(_tabulate_limits(findings, advice))
    answer = f"{units.plural(len(findings), 'finding')}." if findings else "No limit was found."
    return Section("limits", "Limits", answer, tables)


def _tabulate_limits(findings: tuple[Finding, ...], advice: Sequence[Fix]) -> Iterator[Grid]:
    """Yield the findings, and what the next capture should record, each if there is any."""
    if findings:
        columns = (
            *make_columns(Finding, "severity", "message"),
            *make_columns(Finding, "cure", "covers_ns", none=""),
        )
        caption = "Findings about the capture, errors and warnings first"
        yield tabulate(caption, columns, sort_findings(findings), is_wordy=True)
    if advice:
        columns = (
            Column("title", "for the next capture"),
            Column("settings", "settings", value=lambda fix: " ".join(one.write() for one in fix.settings)),
        )
        yield tabulate("What the next capture should record", columns, advice, is_wordy=True)


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
    words = ((Cell(word, anchor=_anchor_word(word)), text) for word, text in WORDS.items())
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


def _anchor_word(word: str) -> str:
    """Return the target of links to a definition.

    >>> _anchor_word("upper bound"), _anchor_word("base, head")
    ('upper-bound', 'word-base-head')
    """
    return _ANCHORS.get(word) or "-".join(["word", *_BETWEEN_WORDS.split(word)])


def _write_queries() -> Iterator[Block]:
    """Yield the SQL that checks a number; a PyTorch trace is not a database."""
    yield Lines((_SQL,))
    yield from (Code(caption, read_query(name)) for name, caption in _QUERIES.items())


def list_pairs(title: str, names: tuple[str, ...], rows: Iterable[tuple[str | Cell, ...]]) -> Grid:
    """Make a table of texts."""
    return Grid(title, tuple(Column(name, name) for name in names), tuple(rows))


def build_comparison_methods(report: "ComparisonReport") -> Section:
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


def _tabulate_captures(report: "ComparisonReport") -> Grid:
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
    import polars as pl  # noqa: PLC0415  # the first screen has no frames

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


def describe_confidence(analysis: Analysis, *, has_caveats: bool = True) -> str:
    """Say how sure the time breakdown is, and what is uncertain: waits, time, replays, few steps.

    `has_caveats` says that the caveats follow, which may say that steps are few.
    """
    sure = analysis.diagnosis.confidence
    if sure is None:
        return "The confidence is unknown."
    level = f"{sure.level.capitalize()} confidence"
    if any(one.code == FindingCode.NO_KERNELS for one in analysis.capture.findings):
        return f"{level}: {' and '.join(sure.reasons)}."
    replayed, refused = _describe_error(analysis), _describe_refusal(analysis)
    has_no_steps = has_caveats and analysis.anchor.kind == "whole-trace"
    doubts, known = sort_reasons(analysis, skips_doubts=has_no_steps)
    if has_no_steps:
        doubts = ("no steps were found", *doubts)
    rank = analysis.ranks[analysis.diagnosis.rank_index]
    shown = _pick_caveats(analysis, rank) if has_caveats else ()
    is_said = any(one.code == FindingCode.FEW_STEPS for one in shown)
    sentences = (*known, *replayed, *(() if is_said else describe_few_steps(analysis, rank)), *refused)
    lead = f"{level}{' in the time breakdown' if any(refused) else ''}"
    if doubts:
        return f"{lead}: {_join_clauses(doubts)}. {_write_sentences(sentences)}".rstrip()
    first, *others = sentences
    return f"{lead}: {first}. {_write_sentences(others)}".rstrip()


def sort_reasons(
    analysis: Analysis, *, skips_doubts: bool = False
) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Return what lowers the confidence, in clauses, and what else is known of waits and time, in sentences.

    `skips_doubts` leaves out what lowers it other than unknown time.
    """
    sure, resolved = analysis.diagnosis.confidence, analysis.capture.resolved_dependency_share
    if sure is None:
        return (), ()
    if len(sure.reasons) < _SHARES_FIRST:  # a capture without kernels has one reason
        return sure.reasons, ()
    waits, time, *others = sure.reasons
    is_at_risk = sure.inferred_share + sure.unresolved_share > HIGH_CONFIDENCE_SHARE + SHARE_ROUNDING
    shares = {waits: sure.inferred_share, time: _measure_open_share(analysis)}
    doubts = tuple(text for text, share in shares.items() if is_at_risk and share >= MATERIAL_SHARE)
    known = [", and ".join(text for text in shares if text not in doubts)]
    if resolved is not None and resolved < 1 and not sure.inferred_share:
        effect = "" if _has_open_time(analysis) else f", but these do not delay the {analysis.anchor.window}"
        known.append(f"the reason for {units.percent(1 - resolved)} of the waits is unknown{effect}")
    return (*doubts, *(() if skips_doubts else others)), tuple(filter(None, known))


def write_reasons(analysis: Analysis) -> str:
    """Write in sentences what lowers the confidence, and what is known of waits and time."""
    doubts, known = sort_reasons(analysis)
    return _write_sentences((*doubts, *known))


def _measure_open_share(analysis: Analysis) -> float:
    """Return the share of the typical step that has no known cause."""
    rank = analysis.ranks[analysis.diagnosis.rank_index]
    opened = (one for one in rank.causes if one.unresolved_ns or one.wall is Wall.UNATTRIBUTED)
    return sum(one.typical_ns for one in opened) / max(rank.typical.step_ns, 1)


def _join_clauses(clauses: Sequence[str]) -> str:
    """Join clauses as a list in a sentence; they have commas of their own.

    >>> _join_clauses(("a",)), _join_clauses(("a", "b")), _join_clauses(("a", "b", "c"))
    ('a', 'a, and b', 'a; b; and c')
    """
    *before, last = clauses
    if not before:
        return last
    return f"{'; '.join(before)}{',' if len(before) == 1 else ';'} and {last}"


def _write_sentences(sentences: Iterable[str]) -> str:
    """Write texts without a full stop as sentences."""
    return " ".join(f"{units.capitalize(text)}." for text in sentences if text)


def describe_few_steps(analysis: Analysis, rank: Rank) -> Iterator[str]:
    """Say that few steady steps leave open how much steps vary."""
    steady = sum(step.steady for step in rank.steps)
    if 0 < steady < ENOUGH_STEPS_COUNT and analysis.anchor.kind != "whole-trace":
        unit = analysis.anchor.window
        counted = units.plural(steady, f"steady {unit}")
        yield f"with only {counted}, it is uncertain how much {unit}s vary"


def _describe_error(analysis: Analysis) -> tuple[str, ...]:
    """Return the replay error in a clause; nothing where it is unknown, or too large."""
    replay = analysis.replay
    check = replay.check if replay is not None and replay.refused is None else None
    if check is None or check.error_median is None:
        return ()
    error = units.percent_in_words(check.error_median)
    return (f"the replay simulates {analysis.anchor.unit} times with an error of {error}",)


def _describe_refusal(analysis: Analysis) -> tuple[str, ...]:
    """Return sentences on why no fix is simulated, and what that means for bounds; nothing if fixes are."""
    reason = explain_missing_replay(analysis)
    if not has_unreplayed_bounds(analysis):
        return (reason,)
    return (f"upper bounds are less certain: {reason}", UNREPLAYED_BOUND)


def explain_missing_replay(analysis: Analysis) -> str:
    """Say why no fix is simulated; empty if fixes are."""
    replay = analysis.replay
    if replay is None or replay.refused is None:
        return ""
    if analysis.anchor.kind == "whole-trace":
        return "without steps, speedups cannot be simulated"
    return f"fixes are not simulated, because {replay.refused_briefly or replay.refused}"


def has_unreplayed_bounds(analysis: Analysis) -> bool:
    """Return whether fixes have upper bounds although no fix is simulated."""
    is_refused = analysis.replay is not None and analysis.replay.refused is not None
    bounded = (fix for fix in analysis.fixes or () if fix.speedup_ceiling is not None and fix.replay is None)
    return is_refused and any(bounded)


def _has_open_time(analysis: Analysis) -> bool:
    """Return whether so much of the typical step is unattributed that it is shown."""
    typical = analysis.ranks[analysis.diagnosis.rank_index].typical
    return typical.walls.unattributed > SHOWN_WALL_SHARE * typical.step_ns


def list_caveats(analysis: Analysis, rank: Rank, *, is_brief: bool = False) -> list[Line]:
    """List the one or two limits that bear most on the headline; briefly, the second one only of an error."""
    lines: list[Line] = []
    if _is_shared_first(analysis, rank):
        held_ns = sum(one.typical_ns for one in rank.causes if one.cause == UNATTRIBUTED_HELD_WHILE_IDLE)
        waited = f"Launched kernels waited {units.duration(held_ns)} on an idle GPU"
        lines.append((Span("• ", "warning"), f"{waited}, which is probably shared with another process."))
    for finding in _pick_caveats(analysis, rank):
        if is_brief and lines and finding.severity is not Severity.ERROR:
            continue
        cure = visible(f" → {finding.cure}") if finding.cure else ""
        mark = Span("• ", "bad" if finding.severity is Severity.ERROR else "warning")
        lines.append((mark, shorten_message(finding), Span(cure, "dim")))
    return lines


def _is_shared_first(analysis: Analysis, rank: Rank) -> bool:
    """Return whether the first caveat is that the GPU is probably shared."""
    return is_held_back(rank) and find_dominant(analysis) != "unknown"


def _pick_caveats(analysis: Analysis, rank: Rank) -> list[Finding]:
    """Return the one or two findings that bear most on the headline, without what another line says."""
    covered = {FindingCode.UNATTRIBUTED_TIME} if is_held_back(rank) else set()
    if any(one.code == FindingCode.NO_KERNELS for one in analysis.capture.findings):
        covered |= {FindingCode.NO_KERNELS, FindingCode.NO_STEPS}
    doubts = [one for one in find_doubts(analysis, rank) if one.code not in covered]
    return doubts[: _MOST_CAVEATS - _is_shared_first(analysis, rank)]


def is_held_back(rank: Rank) -> bool:
    """Return whether launched kernels wait so long on an idle GPU that it is probably shared."""
    return any(
        one.cause == UNATTRIBUTED_HELD_WHILE_IDLE and one.share >= SHARED_DEVICE_SHARE for one in rank.causes
    )


def find_cure(analysis: Analysis) -> str:
    """Return what to do about the most serious finding that can leave a wall unknown; else empty."""
    codes = [code for group in _UNKNOWING for code in group]
    found = [one for one in analysis.capture.findings if one.cure and one.severity is Severity.ERROR]
    found += [one for code in codes for one in analysis.capture.findings if one.code == code and one.cure]
    return found[0].cure or "" if found else ""


def shorten_message(finding: Finding) -> str:
    """Return the message of a finding, of a long one its first sentence."""
    is_short = len(finding.message) <= _LONGEST_CAVEAT
    return finding.message if is_short else visible(finding.short, most=_LONGEST_CAVEAT)


def find_doubts(analysis: Analysis, rank: Rank) -> list[Finding]:
    """Return the findings that put the headline in doubt, or are errors, the most serious first."""
    basis, dominant, job = choose_basis(analysis, rank), find_dominant(analysis), analysis.job
    walls = {wall for wall in LOSSES if basis.share(wall) >= DOMINANT_SHARE / 2}
    walls |= {Wall(dominant)} if dominant in set(Wall) else _ANY
    walls |= {late.cause_wall for late in job.stragglers if late.cause_wall} if job is not None else set()
    places = {code: place for place, (codes, of) in enumerate(_DOUBTS) if of & walls for code in codes}

    def weigh(finding: Finding) -> int:
        return -1 if finding.severity is Severity.ERROR else places.get(finding.code, len(_DOUBTS))

    found = [
        one
        for one in analysis.capture.findings
        if weigh(one) < len(_DOUBTS) and (one.code != FindingCode.UNRESOLVED_WAITS or one.covers_ns)
    ]
    return sorted(found, key=weigh)


def write_glossary() -> str:
    """The page: words, walls, states, causes, kernels, findings."""
    return "\n".join(_lines()) + "\n"


def _lines() -> Iterator[str]:
    yield _HEAD
    yield from _table("Words of an answer", ("word", "meaning"), WORDS)
    yield from _table("Words of a comparison", ("word", "meaning"), COMPARISON_WORDS)
    yield from _table(
        "Walls",
        ("wall", "time attributed to it"),
        {f"`{wall}`": meaning for wall, meaning in WALL_WORDS.items()},
    )
    states = {STATE_NAMES[state]: meaning for state, meaning in STATE_WORDS.items()}
    yield from _table("What the device did", ("part of a step", "meaning"), states)
    yield from _findings()


def _table(title: str, header: tuple[str, str], rows: Mapping[str, str]) -> Iterator[str]:
    yield f"## {title}\n"
    yield f"| {' | '.join(header)} |\n|---|---|"
    yield from (f"| {word} | {_cell(meaning)} |" for word, meaning in rows.items())
    yield ""


def _findings() -> Iterator[str]:
    """What limits a result, and what to change in the next capture or command."""
    rows = {f"`{entry.code}`": f"{_cell(entry.means)} | {_cell(entry.cure)}" for entry in finding_notes()}
    yield "## Findings\n"
    yield (
        "A finding reports what makes a result incomplete or less certain. To see a finding's evidence, run"
        " `wallscope explain FINDING`.\n"
    )
    yield "| finding | meaning | cure |\n|---|---|---|"
    yield from (f"| {code} | {said} |" for code, said in rows.items())


def _cell(text: str) -> str:
    return text.replace("|", "\\|")
