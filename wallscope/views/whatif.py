"""What bounds the step, moment by moment, and the step time with changes; the error of the replay."""

from collections.abc import Iterator, Sequence
from functools import partial

from rich.console import RenderableType

from wallscope import units
from wallscope.advice.evidence import describe_questions
from wallscope.model.analysis import Rank
from wallscope.model.enums import Wall
from wallscope.model.report import Report
from wallscope.model.section import (
    Block,
    Cell,
    Column,
    Grid,
    Items,
    Lines,
    Section,
    Span,
    Value,
    on_page,
    on_terminal,
    tabulate,
)
from wallscope.model.whatif import Answer, CriticalPath, OperationSlack, PathPart, PathSegment, WhatIf
from wallscope.records import dataclass
from wallscope.render import figures
from wallscope.render.html import FirstScreen, build_sides, render_page
from wallscope.render.terminal import render_sections
from wallscope.render.texts import shorten_path, visible
from wallscope.thresholds.causes import FIX_REPLAY_ERROR_SHARE
from wallscope.views.cards import LegendRow
from wallscope.views.opening import Doubt, Grade
from wallscope.views.sections.walls import describe_replay, select_first_fixes
from wallscope.views.sections.words import WALL_WORDS

_MOST_WALLS, _MOST_PARTS, _MOST_CAUSES = 3, 8, 6
_MOST_SLACK, _MOST_SLACK_ON_PAGE = 5, 12
_LONGEST_NAME, _LONGEST_HINT = 120, 2_000
_APART = (
    "In the time breakdown, each moment with a compute kernel counts as compute. On the critical path, it"
    " counts for what the end of the step waited for. So communication that compute hides can have a share of"
    " the critical path."
)
_MOST_ANSWERS = 6
_NOTHING = "None of the usual changes shortens the step by 0.1 % or more."
_WIDE = 120


def build_path(report: Report, rank: Rank) -> Section | None:
    """Make the critical path of the typical step; `None` where there is no step to have one."""
    analysis, found = report.analysis, report.path
    if isinstance(found, str):
        if not found or analysis.anchor.kind == "whole-trace":
            return None
        return Section("path", "Critical path", f"Not known: {found}.", (), is_open=False)
    whole, path = analysis.anchor.typical, found.critical
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
    text = f"In the {whole}, the critical path consists of {', '.join(parts)}."
    return f"{text} Work in parallel with this path delays nothing." if len(parts) == 1 else text


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
    note = (
        ("Consecutive operations share their slack: what one of them uses, the others lose.",)
        if whole
        else ()
    )
    title = "Slack per operation, longest total duration first"
    brief = "Slack of one operation (medians): how much longer it could take without delaying the step"
    return tabulate(title, columns, rows, brief=brief, notes=note, is_wordy=True)


def render_whatif(found: WhatIf) -> RenderableType:
    """Render all of it for a terminal."""
    return render_sections(_build_whatif_summary(found))


def _build_whatif_summary(found: WhatIf) -> Iterator[Section | Grid]:
    name = visible(found.inputs[0].name, most=60)
    rank = "" if found.rank is None else f" · rank {found.rank}"
    played = f"{units.plural(found.played_steps, f'medium-length {found.unit}')} replayed"
    step = Span(f"Typical {found.unit}: {units.duration(found.step_ns)}", "strong")
    head = (
        f"{name}{rank} · {played} ({units.number(found.played_operations)} operations)",
        (step, ", ", Span(f"{found.wall}-bound", found.wall)),
        (Span(_describe_check(found), "dim"),),
    )
    yield Section("head", "", "", (Lines(head),))
    if found.answers:
        notes = tuple(
            ("•", (Span(f"{question}: {note}", "dim"),)) for question, note in _list_notes(found.answers)
        )
        title = "With each change"
        table = _tabulate_answers(found, found.answers, title)
        yield Section("answers", title, "", (table, *((Items(notes),) if notes else ())))
    elif not found.sweep:
        yield Section("answers", "", "", (Lines((_NOTHING,)),))
    if found.sweep:
        yield _tabulate_answers(found, found.sweep, "Sweep")
    yield list_parts(found.path)
    slack = list_slack(found.path)
    if slack is not None:
        yield slack


def write_whatif_page(found: WhatIf) -> str:
    """Write all of it as one HTML file."""
    name, whole = visible(found.inputs[0].name), f"typical {found.unit}"
    blocks = build_path_blocks(found.path, whole, found.unit, is_drawn=False)
    path = Section("path", "What bounds it?", describe_path(found.path, whole), tuple(blocks))
    shown = (_build_changes(found), _build_sweep(found), path, _build_sureness(found))
    answers = sorted(found.answers, key=lambda answer: -answer.won_ns)
    rank = [] if found.rank is None else [f"rank {found.rank}"]
    parts_ns = dict(zip(Wall, found.walls.parts(), strict=True))
    first = FirstScreen(
        f"{name}: what if",
        (name, *rank, f"captured {units.utc(found.inputs[0].session_start_utc_ns)}"),
        "-bound",
        (),
        build_sides({"": parts_ns}, lambda _, wall: units.duration(parts_ns[wall])),
        f"{whole} as captured",
        wall=found.wall,
        lines=_list_lead(found),
    )
    details = {
        "reason": _write_reason(found),
        "legend": _list_legend(found),
        "doubts": _list_replay_doubts(found),
        "answers": [_build_bar(found, answer) for answer in answers[:_MOST_ANSWERS]],
        "left": max(len(answers) - _MOST_ANSWERS, 0),
        "nothing": _NOTHING,
    }
    version = found.wallscope_version
    return render_page("whatif.html.j2", first, shown, found=found, more=details, version=version)


@dataclass(frozen=True, slots=True)
class ReplayedBar:
    """An asked change: its words and options, the step with it, and the walls as shares of the step now."""

    title: str
    option: str
    answer: Answer
    parts: tuple[tuple[Wall, float], ...]


def _build_bar(found: WhatIf, answer: Answer) -> ReplayedBar:
    """Make the bar of a change, on the scale of the step as captured, or of a longer one with the change."""
    scale_ns = max(found.step_ns, answer.step_ns, 1)
    walls = zip(Wall, answer.walls.parts(), strict=True)
    return ReplayedBar(
        _describe_replayed_changes(answer),
        " ".join(one.option for one in answer.questions),
        answer,
        tuple((wall, part_ns / scale_ns) for wall, part_ns in walls if part_ns),
    )


def _write_reason(found: WhatIf) -> str:
    """Say in a clause what the step could drop to, or that no change shortens it."""
    length = units.duration(found.step_ns)
    if (best := found.best) is None:
        return f"none of the requested changes shortens the {length} {found.unit}"
    drop = f"the typical {length} {found.unit} could drop to {units.duration(best.step_ns)}"
    return f"{drop} ({units.write_ceiling(best.speedup)}); the next wall is {best.next_wall}"


def _list_lead(found: WhatIf) -> tuple[str, ...]:
    """Say which change does that, or where to look instead."""
    if (best := found.best) is None:
        return (f"None of the requested changes shortens the {found.unit}. Look at the critical path.",)
    return (f"{_describe_replayed_changes(best)}. A replay shows the gain, not how to reach it.",)


def _list_legend(found: WhatIf) -> tuple[LegendRow, ...]:
    """List the walls of the step as captured."""
    return tuple(
        LegendRow(
            wall,
            units.percent(part_ns / max(found.step_ns, 1)),
            units.duration(part_ns),
            "",
            WALL_WORDS[wall],
            wall == found.wall,
        )
        for wall, part_ns in zip(Wall, found.walls.parts(), strict=True)
        if part_ns
    )


def _list_replay_doubts(found: WhatIf) -> tuple[Doubt, ...]:
    """Say how far the replay was off, and what it leaves unchanged."""
    error, slack = found.check.error_median, units.percent(found.check.slack_share)
    head = "Replay not checked" if error is None else f"Replay error {units.percent(error)}"
    checked = f"A check needs two steady {found.unit}s of medium length."
    if error is not None and found.check.error_p90 is not None:
        counted = units.plural(found.check.steps, f"steady {found.unit}")
        checked = f"Median of {counted}; p90 {units.percent(found.check.error_p90)}.{_doubt_error(found)}"
    unchanged = f"Latency and host time, {slack} of the critical path, are replayed unchanged."
    grade: Grade = "unknown" if error is None else "bad" if _doubt_error(found) else "sure"
    return (
        Doubt(grade, head, checked, "sureness"),
        Doubt("likely", "", unchanged, "sureness"),
    )


def _describe_replayed_changes(answer: Answer) -> str:
    """Say in words what a replay changes."""
    return units.capitalize(describe_questions(answer.questions))


def _build_changes(found: WhatIf) -> Section | None:
    """Make each change alone, and all together; `None` where only a sweep was asked for."""
    title = "What would it take?"
    if not found.answers and found.sweep:
        return None
    if not found.answers:
        return Section("changes", title, _NOTHING, ())
    answer = f"None of the requested changes shortens the {found.unit}."
    if (best := found.best) is not None:
        taken = f"{units.duration(best.step_ns)} {describe_questions(best.questions)}"
        answer = f"{taken}, {units.signed_duration(-best.won_ns)}; the next wall is {best.next_wall}."
    notes = tuple(f"{question}: {note}" for question, note in _list_notes(found.answers))
    blocks: tuple[Block, ...] = (
        figures.draw_changes(found, found.answers, "changes"),
        _tabulate_answers(found, found.answers, f"The typical {found.unit} with each change"),
        *((Lines(notes),) if notes else ()),
    )
    return Section("changes", title, answer, blocks)


def _build_sweep(found: WhatIf) -> Section | None:
    """Make one change at several strengths; `None` where none was asked for."""
    if not found.sweep:
        return None
    least, most = (pick(found.sweep, key=lambda one: one.step_ns) for pick in (min, max))
    start = f"From {units.duration(least.step_ns)} with {figures.name_changes(least)}"
    answer = f"{start} to {units.duration(most.step_ns)}."
    table = _tabulate_answers(found, found.sweep, f"The typical {found.unit} at each strength")
    figure = figures.draw_changes(found, found.sweep, "sweep")
    return Section("sweep", "Sweep", answer, (figure, table))


def _build_sureness(found: WhatIf) -> Section:
    """Make what was replayed, and its error."""
    check, ranks = found.check, units.plural(found.played_ranks, "rank")
    tax = "unknown" if found.overlap_tax is None else f"{found.overlap_tax:.2f}"
    rows = {
        "replayed": f"{units.plural(found.played_steps, found.unit)} of {ranks}",
        "operations": units.number(found.played_operations),
        "leave-one-out error": units.percent(check.error_median),
        "leave-one-out error, p90": units.percent(check.error_p90),
        "error with the latencies of the same steps": units.percent(check.own_error),
        "latency and host time outside CUDA calls, % of path": units.percent(check.slack_share),
        "latencies without a match in another step": units.percent(check.unmatched_share),
        "unresolved waits, replayed unchanged": units.percent(check.unresolved_wait_share),
        "slowdown of compute that overlaps communication": tax,
    }
    columns = (Column("what", "what"), Column("value", "value", "plain"))
    table = Grid("What was replayed, and its error", columns, tuple(rows.items()))
    return Section("sureness", "How sure is this?", _describe_check(found), (table,))


def _describe_check(found: WhatIf) -> str:
    """Return the error of the replay, and what it leaves unchanged."""
    check = found.check
    share = units.percent(check.slack_share)
    slack = f"The replay leaves latency and host time ({share} of the critical path) unchanged"
    if check.error_median is None or check.error_p90 is None:
        return f"The replay was not checked, which takes two steady {found.unit}s of medium length. {slack}."
    return (
        f"The replay error is {units.percent(check.error_median)} (median) and"
        f" {units.percent(check.error_p90)} (p90) over {units.plural(check.steps, f'steady {found.unit}')}."
        f"{_doubt_error(found)} {slack}."
    )


def _doubt_error(found: WhatIf) -> str:
    """Return a sentence on a replay error that was accepted although it is too large; else empty."""
    error = found.check.error_median
    if error is None or error <= FIX_REPLAY_ERROR_SHARE:
        return ""
    limit = units.percent(FIX_REPLAY_ERROR_SHARE)
    return f" Above {limit}, steps differ too much, so these gains are unreliable."


def _list_notes(answers: Sequence[Answer]) -> Iterator[tuple[str, str]]:
    """List each change and assumption once, with its question."""
    first = {note: answer.questions[0].text for answer in reversed(answers) for note in answer.notes}
    for note in dict.fromkeys(note for answer in answers for note in answer.notes):
        yield visible(first[note], most=40), visible(note)


def _tabulate_answers(found: WhatIf, answers: Sequence[Answer], title: str, brief: str = "") -> Grid:
    """Make what each change wins, and what comes next; the walls after it where there is room."""

    def part_ns(one: Answer, wall: Wall) -> int:
        time_ns: int = getattr(one.walls, wall)
        return time_ns

    wide = (_WIDE, 1 << 30)
    columns = (
        on_terminal("change", "", value=figures.name_changes, most=36, widths=(0, _WIDE)),
        on_terminal("change", "", value=figures.name_changes, most=60, widths=wide),
        on_page("change", "change", value=_describe_replayed_changes, most=120),
        on_terminal("step_ns", "step", "duration"),
        on_page("step_ns", found.unit, "ms"),
        on_terminal("won_ns", "change", "signed_duration", "", lambda one: -one.won_ns),
        on_page("won_ns", "change of it", "signed_ms", "", lambda one: -one.won_ns),
        Column("speedup", "speedup", "exact_speedup", "step as captured / step with the change"),
        Column("next_wall", "next wall", value=lambda one: Cell(str(one.next_wall), one.next_wall)),
        on_page("next_cause", "next cause", "text", "largest cause of the next wall"),
        *(on_terminal(wall, wall, "duration", "", partial(part_ns, wall=wall), widths=wide) for wall in Wall),
        *(
            on_page(wall, wall, "ms", f"of the {found.unit} with the change", partial(part_ns, wall=wall))
            for wall in Wall
        ),
    )
    return tabulate(title, columns, answers, brief=brief, is_wordy=True)
