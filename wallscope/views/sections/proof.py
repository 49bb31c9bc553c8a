"""What limits this, and how each number is computed."""

from wallscope import units
from wallscope.model.analysis import Analysis, Rank
from wallscope.model.capture import Finding, Severity
from wallscope.model.catalogue import meaning
from wallscope.model.kinds import DeviceState
from wallscope.shipped import query
from wallscope.views.blocks import Block, Cell, Code, Column, Grid, Lines, Section, cells, text
from wallscope.views.details import STATE_NAMES
from wallscope.views.words import STATE_WORDS, WORDS

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
GRAVITY = {severity: place for place, severity in enumerate(reversed(Severity))}


def limits(findings: tuple[Finding, ...]) -> Section:
    """What the export lacks, what that forbids to claim, and how the next capture avoids it."""
    graded = sorted(findings, key=lambda entry: GRAVITY[entry.severity])
    columns = (text("gravity"), text("finding"), text("cure"), Column("covers", "time concerned"))
    rows = tuple(
        cells(
            str(entry.severity),
            entry.message,
            entry.cure or "",
            "" if entry.covers_ns is None else units.duration(entry.covers_ns),
        )
        for entry in graded
    )
    answer = (
        f"{units.plural(len(findings), 'finding')}." if findings else "Nothing was found that limits this."
    )
    caption = "Findings about the capture, the gravest first"
    blocks = (Grid(caption, columns, rows, is_wordy=True),) if rows else ()
    return Section("limits", "What limits this?", answer, blocks)


def computed(analysis: Analysis, rank: Rank) -> Section:
    """Definitions, the SQL that checks a number, versions."""
    export = analysis.inputs[0]
    window_ns = rank.typical.step_ns
    budget = tuple(
        (
            Cell(STATE_NAMES[state], hint=STATE_WORDS[state]),
            Cell(units.milliseconds(getattr(rank.typical.budget, state))),
            Cell(units.percent(getattr(rank.typical.budget, state) / window_ns if window_ns else 0.0)),
        )
        for state in DeviceState
    )
    versions = {
        "wallscope": analysis.wallscope_version,
        "answer": analysis.schema,
        "Nsight Systems": export.nsys_version or "unknown",
        "export schema": export.schema_version or "unknown",
        "fingerprint": export.fingerprint,
        "size of the export": units.size(export.size_bytes),
        "host": export.hostname or "unknown",
        "capture began": units.utc(export.session_start_utc_ns),
        "launches found": units.percent(analysis.capture.launch_correlation_share),
        "waits resolved": units.percent(analysis.capture.resolved_dependency_share),
    }
    says = (text("word"), text("what it means"))
    blocks: tuple[Block, ...] = (
        Grid(
            "Words",
            says,
            tuple((Cell(word, anchor=_ANCHORS.get(word, "")), Cell(said)) for word, said in WORDS.items()),
        ),
        Grid(
            f"What the device did in the {analysis.anchor.typical}, each nanosecond once",
            (text("part"), Column("time"), Column("share")),
            budget,
        ),
        Grid(
            "Causes of this capture",
            (text("cause"), text("what it means")),
            tuple((Cell(entry.cause, entry.wall), Cell(meaning(entry.cause))) for entry in rank.causes),
        ),
        Lines((_SQL,)),
        *(Code(caption, query(name)) for name, caption in _QUERIES.items()),
        Grid("Versions", (text("of"), text("is")), tuple(cells(*entry) for entry in versions.items())),
    )
    return Section(
        "computed", "How is each number computed?", "Definitions, SQL, versions.", blocks, is_open=False
    )
