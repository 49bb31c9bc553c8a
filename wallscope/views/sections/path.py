"""What bounds the step, moment by moment? And what would it take with the fixes?"""

from collections.abc import Sequence

from wallscope import units
from wallscope.model.analysis import Rank
from wallscope.model.report import Report
from wallscope.model.section import (
    Block,
    Cell,
    Column,
    Grid,
    Lines,
    Section,
    Value,
    on_page,
    on_terminal,
    tabulate,
)
from wallscope.model.whatif import CriticalPath, OperationSlack, PathPart, PathSegment
from wallscope.render import figures
from wallscope.render.texts import shorten_path, visible
from wallscope.views.sections.fixes import describe_replay, select_first_fixes

_MOST_WALLS, _MOST_PARTS, _MOST_CAUSES = 3, 8, 6
_MOST_SLACK, _MOST_SLACK_ON_PAGE = 5, 12
_LONGEST_NAME, _LONGEST_HINT = 120, 2_000
_WIDE = 120
_APART = (
    "The time breakdown counts each moment with a compute kernel as compute. The critical path counts each"
    " moment for what the end of the step waited for. So communication that compute hides can have a share of"
    " the critical path."
)


def build_path(report: Report, rank: Rank) -> Section | None:
    """Make the critical path of the typical step; `None` where there is no step to have one."""
    analysis, found = report.analysis, report.path
    if isinstance(found, str):
        if not found or analysis.anchor.kind == "whole-trace":
            return None
        return Section("path", "Critical path", f"Not known: {found}.", (), is_open=False)
    whole, path = analysis.anchor.typical, found.told
    drawn = {each.step for each in report.timelines if len(each.path)}
    blocks = build_path_blocks(path, whole, analysis.anchor.window, is_drawn=path.shown_step in drawn)
    fixes = figures.draw_fixes(rank, select_first_fixes(analysis.fixes or ()), whole)
    blocks += [] if fixes is None else [fixes]
    blocks += [] if analysis.replay is None else [Lines((describe_replay(analysis.replay),))]
    return Section("path", "Critical path", describe_path(path, whole), tuple(blocks))


def describe_path(path: CriticalPath, whole: str) -> str:
    """Name the largest walls of the path."""
    parts = [
        f"{one.name} {units.milliseconds(one.time_ns)} ({units.percent(one.share)})"
        for one in path.walls[:_MOST_WALLS]
    ]
    return f"Critical path of the {whole}: {', '.join(parts)}."


def build_path_blocks(path: CriticalPath, whole: str, unit: str, *, is_drawn: bool) -> list[Block]:
    """Make what the path is made of, where it is longest, and what is not on it."""
    return [
        figures.draw_path(path, whole),
        Lines((_APART,)),
        _tabulate_parts(path, whole),
        _tabulate_segments(path, unit, is_drawn=is_drawn),
        tabulate_slack(path.slack[:_MOST_SLACK_ON_PAGE], whole),
    ]


def list_parts(path: CriticalPath) -> Grid:
    """Make what a terminal shows of the path: its walls with bars, and its largest causes."""

    def mark(value: Value, one: PathPart) -> Cell:
        return Cell(value, one.wall, tone=None if one.wall else "dim")

    def name(one: PathPart) -> Cell:
        return mark(one.name if one in path.walls else visible(one.name, most=44), one)

    def bar(one: PathPart) -> Value | Cell:
        return mark(one.share, one) if one in path.walls else ""

    columns = (
        on_terminal("name", "", value=name),
        on_terminal("bar", "", "bar", "", bar),
        on_terminal("share", "share", "percent"),
        on_terminal("time_ns", "time", "duration"),
    )
    parts = (*path.walls, *path.causes[:_MOST_CAUSES])
    return tabulate("Critical path", columns, parts)


def _tabulate_parts(path: CriticalPath, whole: str) -> Grid:
    """Make the largest causes, ranges and operations."""
    spent = f"time of the {whole} on the path"
    often = "how often the path reaches it per step"
    columns = (
        Column("by", "by", value=lambda entry: entry[0]),
        Column("part", "part", value=_name_part),
        Column("time", "time", "ms", spent, lambda one: one[1].time_ns),
        Column("share", "share", "percent", f"of the {whole}", lambda one: one[1].share),
        Column("count", "segments", "rounded", often, lambda one: one[1].count),
    )
    kinds = (("cause", path.causes), ("range", path.ranges), ("operation", path.operations))
    entries = [(kind, part) for kind, parts in kinds for part in parts[:_MOST_PARTS]]
    note = "Each list sums to the step, together with the parts that are too small to list."
    title = f"Largest parts of the critical path of the {whole}"
    return tabulate(title, columns, entries, notes=(note,), is_wordy=True)


def _name_part(entry: tuple[str, PathPart]) -> Cell:
    kind, part = entry
    name = part.name or {"range": "in no range", "operation": "host time outside CUDA calls"}[kind]
    shown = shorten_path(name) if kind == "range" else visible(name, most=_LONGEST_NAME)
    return Cell(shown, part.wall, name[:_LONGEST_HINT])


def _tabulate_segments(path: CriticalPath, unit: str, *, is_drawn: bool) -> Grid:
    """Make the longest segments of one step; segments of a drawn step link to it."""

    def start(one: PathSegment) -> Cell:
        middle_ns = one.at_ns + one.time_ns // 2
        return Cell(one.at_ns, step=path.shown_step, at_ns=middle_ns) if is_drawn else Cell(one.at_ns)

    columns = (
        Column("at_ns", "start", "seconds", "session time in seconds, as Nsight shows it", start),
        Column("time_ns", "length", "duration"),
        Column("cause", "cause"),
        Column("name", "what", value=_hint_name, most=_LONGEST_NAME),
        Column("path", "in", "text", "NVTX ranges around what it led to", _hint_path),
    )
    title = f"Longest segments of the critical path of {unit} {path.shown_step}"
    return tabulate(title, columns, path.segments, is_wordy=True)


def _hint_name(one: PathSegment | OperationSlack) -> Cell:
    return Cell(one.name, hint=one.name[:_LONGEST_HINT])


def _hint_path(one: PathSegment) -> Cell:
    return Cell(shorten_path(one.path or ""), hint=(one.path or "")[:_LONGEST_HINT])


def list_slack(path: CriticalPath) -> Grid | None:
    """Make what a terminal shows of slack; `None` if no operation has any."""
    loose = [row for row in path.slack if row.slack_ns]
    return tabulate_slack(loose[:_MOST_SLACK], "") if loose else None


def tabulate_slack(rows: Sequence[OperationSlack], whole: str) -> Grid:
    """Make the slack of operations: how much longer each could take without delaying the step."""
    longer = "how much longer one operation could take without delaying the step; median"
    columns = (
        on_terminal("name", "", most=36, widths=(0, _WIDE)),
        on_terminal("name", "", most=90, widths=(_WIDE, 1 << 30)),
        on_page("name", "operation", value=_hint_name, most=_LONGEST_NAME),
        on_page("cause", "cause"),
        on_page("count", "per step", "rounded", f"how many begin in the {whole}"),
        Column("duration_ns", "takes", "duration", "median"),
        Column("slack_ns", "slack", "duration", longer),
        on_terminal("count", "times per step", "plain", "", lambda one: f"{one.count:.0f}"),
        on_page("least_slack_ns", "least", "duration", "smallest slack of one operation"),
        on_page("binding", "binding", "rounded", "operations per step without slack"),
    )
    note = ("Consecutive operations share their slack: only one of them can use it.",) if whole else ()
    title = "Slack per operation, most work first"
    brief = "Slack per operation"
    return tabulate(title, columns, rows, brief=brief, notes=note, is_wordy=True)
