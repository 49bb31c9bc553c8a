"""Answers to what-if questions on a terminal: how good they are first, then what each wins, then the path."""

from collections.abc import Iterator

from rich.console import Console, ConsoleOptions, Group, RenderableType, RenderResult
from rich.text import Text

from wallscope import units
from wallscope.model.kinds import Wall
from wallscope.model.whatif import Answer, PathPart, WhatIf
from wallscope.render.colours import WALL_COLOURS
from wallscope.render.foreign import visible
from wallscope.render.grids import bar, grid, titled

_MOST_PARTS, _MOST_SLACK = 6, 5
_WIDE = 120


def whatif_summary(found: WhatIf) -> RenderableType:
    """All of it."""
    return Group(*_summary(found))


def _summary(found: WhatIf) -> Iterator[RenderableType]:
    name = visible(found.inputs[0].name, most=60)
    rank = "" if found.rank is None else f" · rank {found.rank}"
    played = f"{units.plural(found.played_steps, f'typical {found.unit}')} played again"
    operations = f"{units.number(found.played_operations)} operations"
    yield Text(f"{name}{rank} · {played}, {operations}")
    yield Text.assemble(
        (f"{found.unit.capitalize()} {units.duration(found.step_ns)}", "bold"),
        ", bound by ",
        (str(found.wall), WALL_COLOURS[found.wall]),
    )
    yield Text(checked(found), style="dim")
    yield Text()
    if found.answers:
        yield titled("If …", _Answers(found.answers))
        yield from _notes(found.answers)
    else:
        yield Text("No usual change wins a thousandth of it.")
    if found.sweep:
        yield Text()
        yield titled("In degrees", _Answers(found.sweep))
    yield Text()
    yield titled("The critical path, moment by moment", _Parts(found.path.walls, found.path.causes))
    if any(row.slack_ns for row in found.path.slack):
        yield Text()
        yield titled("What could take longer for free, each", _Slack(found))


def checked(found: WhatIf) -> str:
    """How well the replay does, in a sentence."""
    check = found.check
    slack = f"{units.percent(check.slack_share)} of the path is lags and time outside calls"
    if check.error_median is None or check.error_p90 is None:
        return f"Not checked: one {found.unit} alone tells nothing of others; {slack}."
    return (
        f"Told of the other {found.unit}s alone, the replay is {units.percent(check.error_median)} off"
        f" (p90 {units.percent(check.error_p90)}, {units.plural(check.steps, found.unit)}); {slack}."
    )


class _Answers:
    """What each change wins, and what comes next; the walls after it where there is room."""

    def __init__(self, answers: tuple[Answer, ...]) -> None:
        self.answers = answers

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        is_wide = options.max_width >= _WIDE
        columns = ["", "step", "change", "speedup", "then the wall is"]
        table = grid(*columns, *(map(str, Wall) if is_wide else ()))
        table.columns[4].justify = "left"
        for answer in self.answers:
            walls = [units.duration(getattr(answer.walls, wall)) for wall in Wall] if is_wide else []
            table.add_row(
                visible(" + ".join(one.text for one in answer.questions), most=60 if is_wide else 36),
                units.duration(answer.step_ns),
                units.signed_duration(-answer.won_ns),
                f"{answer.speedup:.3f}x",
                Text(str(answer.next_wall), style=WALL_COLOURS[answer.next_wall]),
                *walls,
            )
        yield table


def noted(answers: tuple[Answer, ...]) -> Iterator[tuple[str, str]]:
    """What was changed and assumed, each once, with the question that it is of."""
    told: set[str] = set()
    for answer in answers:
        for note in answer.notes:
            if note not in told:
                told.add(note)
                yield visible(answer.questions[0].text, most=40), visible(note)


def _notes(answers: tuple[Answer, ...]) -> Iterator[RenderableType]:
    for asked, note in noted(answers):
        yield Text(f"  {asked}: {note}", style="dim")


class _Parts:
    """The walls of the path with bars, and its largest causes."""

    def __init__(self, walls: tuple[PathPart, ...], causes: tuple[PathPart, ...]) -> None:
        self.walls, self.causes = walls, causes

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        table = grid("", "", "share", "time")
        table.columns[1].justify = "left"
        for part in self.walls:
            colour = WALL_COLOURS[part.wall] if part.wall is not None else "dim"
            table.add_row(
                Text(part.name, style=colour),
                bar(part.share, colour),
                units.percent(part.share),
                units.duration(part.time_ns),
            )
        for part in self.causes[:_MOST_PARTS]:
            colour = WALL_COLOURS[part.wall] if part.wall is not None else "dim"
            table.add_row(
                Text(visible(part.name, most=44), style=colour),
                "",
                units.percent(part.share),
                units.duration(part.time_ns),
            )
        yield table


class _Slack:
    """The operations with most time that the path does not go through."""

    def __init__(self, found: WhatIf) -> None:
        self.rows = [row for row in found.path.slack if row.slack_ns][:_MOST_SLACK]

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        table = grid("", "takes", "longer by", "times a step")
        most = 90 if options.max_width >= _WIDE else 36
        for row in self.rows:
            table.add_row(
                visible(row.name, most=most),
                units.duration(row.duration_ns),
                units.duration(row.slack_ns),
                f"{row.count:.0f}",
            )
        yield table
