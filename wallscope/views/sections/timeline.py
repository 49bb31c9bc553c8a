"""Show me: the step timeline, and the longest gaps."""

from collections.abc import Sequence

from wallscope import units
from wallscope.model.kinds import Wall
from wallscope.model.proof import Gap
from wallscope.model.report import Report
from wallscope.render.foreign import visible
from wallscope.render.timeline_pack import Pack
from wallscope.views.blocks import Canvas, Cell, Column, Grid, Section, text
from wallscope.views.words import explain_cause

_LONGEST_NAME = 120


def timeline(report: Report, packed: Pack) -> Section:
    """The typical and the worst step on a canvas, and the longest gaps as a table."""
    unit = report.analysis.anchor.window
    is_whole = report.analysis.anchor.kind == "whole-trace"
    steps = tuple(
        (unit if is_whole else f"{shown.role} {unit} ({shown.step})")
        + f": {units.duration(shown.end_ns - shown.start_ns)}"
        for shown in report.timelines
    )
    if not report.gaps:
        answer = "No gap: compute or opaque graphs run throughout."
    else:
        longest = report.gaps[0].row
        ended = longest["ended_by"] or f"the end of the {unit}"
        where = "" if is_whole else f" in {unit} {longest['step']}"
        answer = (
            f"The longest gap without compute takes {units.duration(longest['duration_ns'])}"
            f"{where}; {longest['cause']} owns most of it;"
            f" it is ended by {visible(ended, most=_LONGEST_NAME)}."
        )
    shown = {each.step for each in report.timelines}
    canvas = Canvas(
        steps, " ".join((*packed.notes, *_pathless(report, unit))), _longest(report.gaps, unit, shown)
    )
    return Section("timeline", "Show me", answer, (canvas, _gaps(report.gaps, unit, shown)))


def _pathless(report: Report, unit: str) -> list[str]:
    """Steps that bear no critical path, where others do."""
    missing = [f"{unit} {each.step}" for each in report.timelines if not len(each.path)]
    has_some = len(missing) < len(report.timelines)
    return (
        [f"The critical path of {' and '.join(missing)} was not worked out."] if missing and has_some else []
    )


def _longest(gaps: Sequence[Gap], unit: str, shown: set[int]) -> Cell | None:
    """What leads to the longest gap of all; `None` where its step is not drawn, or no other is."""
    if not gaps or gaps[0].row["step"] not in shown or len(shown) == 1:
        return None
    step = gaps[0].row["step"]
    return Cell(f"Longest gap: {unit} {step}", step=step, at_ns=_middle_ns(gaps[0]))


def _middle_ns(gap: Gap) -> int:
    middle_ns: int = gap.row["start_ns"] + gap.row["duration_ns"] // 2
    return middle_ns


def _gaps(gaps: Sequence[Gap], unit: str, shown: set[int]) -> Grid:
    columns = (
        Column("start", "session time in seconds, as Nsight shows it"),
        Column("length"),
        Column(unit),
        text("most of it", "the cause that owns most of the gap"),
        Column("slack", "how much earlier the next constraint would have bound; none: nothing else held it"),
        text("ended by", "the operation that starts when the gap ends, and its stream"),
        text("issued by", "the call that issued that operation, and its thread"),
        text("in", "NVTX ranges around that call"),
    )
    rows = tuple(_row(gap, is_shown=gap.row["step"] in shown) for gap in gaps)
    note = ""
    if any(gap.row["step"] not in shown for gap in gaps):
        note = f"A start that can be clicked leads into the timeline; the other {unit}s are not drawn there."
    return Grid("The longest gaps without compute", columns, rows, note, is_wordy=True)


def _row(gap: Gap, *, is_shown: bool) -> tuple[Cell, ...]:
    row = gap.row
    ended = row["ended_by"]
    where = "" if ended is None else f" on stream {'unknown' if row['stream'] is None else row['stream']}"
    call = row["call"] or ("" if ended is None else "before the capture")
    thread = "" if row["tid"] is None else f", thread {row['tid']}"
    return (
        Cell(
            f"{units.seconds(row['start_ns'])} s",
            step=row["step"] if is_shown else None,
            at_ns=_middle_ns(gap) if is_shown else None,
        ),
        Cell(units.duration(row["duration_ns"])),
        Cell(units.number(row["step"])),
        Cell(
            f"{row['cause']} {units.duration(row['cause_ns'])}",
            Wall(row["cause"].split("/")[0]),
            explain_cause(row["cause"]),
        ),
        Cell("none" if row["slack_ns"] is None else units.duration(row["slack_ns"])),
        Cell(
            visible(ended or "the end of the window", most=_LONGEST_NAME) + where, hint=(ended or "")[:2_000]
        ),
        Cell(f"{call}{thread}"),
        Cell(row["path"] or ""),
    )
