"""What bounds the step, moment by moment, and what it would take with the fixes."""

from wallscope import units
from wallscope.model.analysis import Rank
from wallscope.model.fixes import first_screen
from wallscope.model.report import Report
from wallscope.model.whatif import CriticalPath, OperationSlack, PathPart
from wallscope.render.foreign import visible
from wallscope.views import path_figures
from wallscope.views.blocks import Block, Cell, Column, Grid, Lines, Section, text
from wallscope.views.path_figures import inner
from wallscope.views.sections.fixes import describe_replay

_MOST_WALLS, _MOST_PARTS, _MOST_SLACK, _LONGEST_NAME = 3, 8, 12, 120
_LONGEST_HINT = 2_000
_APART = (
    "The walls give a moment to compute wherever any runs; the path gives it to what the end of the step"
    " waited for. So communication that compute hides has a share here where the step depends on it."
)


def path(report: Report, rank: Rank) -> Section | None:
    """The critical path of the typical step; `None` where there is no step to have one."""
    analysis, found = report.analysis, report.path
    if isinstance(found, str):
        if not found or analysis.anchor.kind == "whole-trace":
            return None
        return Section("path", "What bounds it?", f"Not known: {found}.", (), is_open=False)
    whole, told = analysis.anchor.typical, found.told
    drawn = {each.step for each in report.timelines if len(each.path)}
    blocks = path_blocks(told, whole, analysis.anchor.window, is_drawn=told.shown_step in drawn)
    fixes = path_figures.with_fixes(rank, first_screen(analysis.fixes or ()), whole)
    if fixes is not None:
        blocks.append(fixes)
    if analysis.replay is not None:
        blocks.append(Lines((describe_replay(analysis.replay),)))
    return Section("path", "What bounds it?", bound_by(told, whole), tuple(blocks))


def bound_by(told: CriticalPath, whole: str) -> str:
    """The largest walls of the path, in a sentence."""
    owned = [f"{one.name} {_time(one)} ({units.percent(one.share)})" for one in told.walls[:_MOST_WALLS]]
    return f"Moment by moment, back from its end, the {whole} is bound by {', '.join(owned)}."


def path_blocks(told: CriticalPath, whole: str, unit: str, *, is_drawn: bool) -> list[Block]:
    """What the path is made of, where it is longest, and what is not on it."""
    return [
        path_figures.composition(told, whole),
        Lines((_APART,)),
        _parts(told, whole),
        _segments(told, unit, is_drawn=is_drawn),
        _slack(told, whole),
    ]


def _parts(told: CriticalPath, whole: str) -> Grid:
    """The largest causes, ranges and operations."""
    columns = (
        text("by"),
        text("part"),
        Column("time", f"of the {whole} that the path spends on it"),
        Column("share", f"of the {whole}"),
        Column("stretches", "how often the path comes there in a step"),
    )
    kinds = (("cause", told.causes), ("range", told.ranges), ("operation", told.operations))
    rows = tuple(_part(kind, part) for kind, parts in kinds for part in parts[:_MOST_PARTS])
    note = "Each list sums to the step with what is too small for it; the figure has the rest."
    return Grid(f"The largest parts of the critical path of the {whole}", columns, rows, note, is_wordy=True)


def _time(part: PathPart) -> str:
    return units.milliseconds(part.time_ns)


def _part(kind: str, part: PathPart) -> tuple[Cell, ...]:
    name = part.name or {"range": "in no range", "operation": "time outside calls"}[kind]
    shown = inner(name) if kind == "range" else visible(name, most=_LONGEST_NAME)
    return (
        Cell(kind),
        Cell(shown, part.wall, name[:_LONGEST_HINT]),
        Cell(_time(part)),
        Cell(units.percent(part.share)),
        Cell(f"{part.count:,.0f}"),
    )


def _segments(told: CriticalPath, unit: str, *, is_drawn: bool) -> Grid:
    """The longest stretches of one step; those of a step that is drawn lead there."""
    columns = (
        Column("start", "session time in seconds, as Nsight shows it"),
        Column("length"),
        text("cause"),
        text("what"),
        text("in", "NVTX ranges around what it led to"),
    )
    rows = tuple(
        (
            Cell(
                f"{units.seconds(one.at_ns)} s",
                step=told.shown_step if is_drawn else None,
                at_ns=one.at_ns + one.time_ns // 2 if is_drawn else None,
            ),
            Cell(units.duration(one.time_ns)),
            Cell(one.cause),
            Cell(visible(one.name, most=_LONGEST_NAME), hint=one.name[:_LONGEST_HINT]),
            Cell(inner(one.path or ""), hint=(one.path or "")[:_LONGEST_HINT]),
        )
        for one in told.segments
    )
    return Grid(
        f"The longest stretches of the path of {unit} {told.shown_step}", columns, rows, is_wordy=True
    )


def _slack(told: CriticalPath, whole: str) -> Grid:
    """What could take longer without the step ending later."""
    columns = (
        text("operation"),
        text("cause"),
        Column("a step", f"how many begin in the {whole}"),
        Column("takes", "median"),
        Column("longer by", "how much longer one could take, alone, without the step ending later; median"),
        Column("least", "the same of the one that has least"),
        Column("binding", "how many a step have none at all"),
    )
    rows = tuple(_loose(one) for one in told.slack[:_MOST_SLACK])
    note = "Slack is of one operation at a time: two in a row share theirs."
    return Grid(
        "How much longer operations could take for free, most work first", columns, rows, note, is_wordy=True
    )


def _loose(one: OperationSlack) -> tuple[Cell, ...]:
    return (
        Cell(visible(one.name, most=_LONGEST_NAME), hint=one.name[:_LONGEST_HINT]),
        Cell(one.cause),
        Cell(f"{one.count:,.0f}"),
        Cell(units.duration(one.duration_ns)),
        Cell(units.duration(one.slack_ns)),
        Cell(units.duration(one.least_slack_ns)),
        Cell(f"{one.binding:,.0f}"),
    )
